// `tune`: what the plan cache holds, and taking it from one machine to another.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>

#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/files.hpp"
#include "cli/format.hpp"
#include "cli/tune_problems.hpp"
#include "flashoverlap/plan_cache.hpp"
#include "plan/readable.hpp"
#include "tune/cache_files.hpp"
#include "tune/collection.hpp"
#include "tune/entry_json.hpp"
#include "tune/entry_names.hpp"

namespace flashoverlap::cli {
namespace {

void warn(const std::string& line) {
  std::fputs((shortened("flashoverlap: " + line, longest_line) + '\n').c_str(), stderr);
}

std::string counted(std::size_t count, const std::string& what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string tile(const Schedule& schedule) {
  return fmt::format("{}x{}", schedule.tile_rows, schedule.tile_cols);
}

class CacheCommand {
  using Action = int (CacheCommand::*)() const;

 public:
  explicit CacheCommand(CLI::App& parser) {
    const auto add_action = [&](const std::string& option, Action action, const std::string& help) {
      parser.add_flag_callback(
          option, [=, this] { ask(option, action); }, help);
    };
    const auto add_action_on = [&](const std::string& option, Action action, const std::string& help) {
      const auto take = [=, this](const std::string& text) {
        require(!text.empty(), option, "\"\"", "must not be empty");
        ask(option, action);
        operand_ = text;
      };
      return add_text(parser, option, take, help);
    };
    add_action("--list", &CacheCommand::list, "List the tuned plans");
    add_action_on("--show", &CacheCommand::show,
                  "Print the tuned plan with this id, or this part of the file's name")
        ->type_name("TEXT");
    add_action_on("--export", &CacheCommand::write, "Write the tuned plans to one file")->type_name("FILE");
    add_action_on("--import", &CacheCommand::add,
                  "Add the tuned plans of a file, in place of those for the same problems")
        ->type_name("FILE");
    add_action("--clear", &CacheCommand::clear, "Remove the tuned plans");
    parser.add_option("--site", site_, "Only sites whose name contains this; not with --import")
        ->type_name("TEXT");
    add_path(parser, "--cache", *directory_, "Folder of the cache, instead of the usual one")
        ->type_name("DIR");
    parser.add_flag("--json", json_, "Print one JSON object, with --list");
  }

  std::shared_ptr<const std::string> chosen_directory() const { return directory_; }

  /// What was asked for, besides the folder, has no effect where something is measured.
  void refuse_all() const {
    const std::string given = action_ != nullptr ? asked_ : json_ ? "--json" : site_.empty() ? "" : "--site";
    require(given.empty(), given, "(given)", "cannot be combined with what measures");
  }

  int run() const {
    require(action_ != nullptr, "OPERATION, machine, --model, --list, --show, --export, --import, --clear",
            "(missing)", "one of them must be given");
    require(!json_ || action_ == &CacheCommand::list, "--json", "(given)", "is for --list");
    require(site_.empty() || action_ != &CacheCommand::add, "--site", shown(site_),
            "cannot be combined with --import");
    return (this->*action_)();
  }

 private:
  void ask(const std::string& option, Action action) {
    require(action_ == nullptr, option, "(given)", fmt::format("cannot be combined with {}", asked_));
    asked_ = option;
    action_ = action;
  }

  std::string directory() const { return cache_directory(*directory_); }

  bool is_wanted(const std::string& site) const { return site.find(site_) != site.npos; }

  std::vector<CachedPlan> plans() const {
    std::vector<CachedPlan> found = cached_plans(directory(), warn);
    std::erase_if(found, [this](const CachedPlan& entry) { return !is_wanted(folder_name(entry.site)); });
    return found;
  }

  static std::string sites_of(const std::vector<CachedPlan>& entries) {
    std::set<std::string> sites;
    for (const CachedPlan& entry : entries) sites.insert(folder_name(entry.site));
    return counted(sites.size(), "site");
  }

  int list() const {
    const std::vector<CachedPlan> entries = plans();
    if (json_) {
      print_json(list_json(entries));
    } else if (entries.empty()) {
      fmt::print("no tuned plans in {}\n", shown(directory()));
    } else {
      fmt::print("{}", list_text(entries));
    }
    return exit_success;
  }

  static std::string list_text(const std::vector<CachedPlan>& entries) {
    Table table({"site", "operation", "m", "n", "k", "dtype", "reader", "strategy", "tile", "cluster",
                 "tuned us", "sequential us", "speed-up", "date", "id"});
    for (const auto& [site, plan] : entries) {
      const Problem& problem = plan.problem;
      table.add({folder_name(site), std::string(name(problem.operation)), std::to_string(problem.m),
                 std::to_string(problem.n), std::to_string(problem.k), std::string(name(problem.data_type)),
                 std::string(name(plan.reader)), std::string(name(plan.schedule.strategy)),
                 tile(plan.schedule), std::to_string(plan.schedule.cluster_rows),
                 fmt::format("{:.1f}", plan.tuned_us), fmt::format("{:.1f}", plan.sequential_us),
                 fmt::format("{:.3f}", plan.sequential_us / plan.tuned_us), plan.date,
                 std::string(hash_of_entry(entry_name(plan)))});
    }
    return table.text();
  }

  nlohmann::ordered_json list_json(const std::vector<CachedPlan>& entries) const {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const auto& [site, plan] : entries) {
      const Problem& problem = plan.problem;
      rows.push_back({{"site", folder_name(site)},
                      {"file", entry_name(plan)},
                      {"operation", name(problem.operation)},
                      {"m", problem.m},
                      {"n", problem.n},
                      {"k", problem.k},
                      {"ranks", problem.ranks},
                      {"data_type", name(problem.data_type)},
                      {"reader", name(plan.reader)},
                      {"strategy", name(plan.schedule.strategy)},
                      {"tile", tile(plan.schedule)},
                      {"cluster", plan.schedule.cluster_rows},
                      {"tuned_us", plan.tuned_us},
                      {"sequential_us", plan.sequential_us},
                      {"speed_up", plan.sequential_us / plan.tuned_us},
                      {"date", plan.date}});
    }
    return {{"cache", directory()}, {"plans", std::move(rows)}};
  }

  int show() const {
    std::vector<CachedPlan> entries = plans();
    std::erase_if(entries, [this](const CachedPlan& entry) {
      return entry_name(entry.plan).find(operand_) == std::string::npos;
    });
    require(!entries.empty(), "--show", shown(operand_), "fits no entry; see --list");
    require(entries.size() == 1, "--show", shown(operand_),
            fmt::format("fits {} entries: add --site, or give the id that --list prints", entries.size()));
    fmt::print("{}", entry_to_json(entries.front()));
    return exit_success;
  }

  int write() const {
    check_outputs({}, {{"--export", operand_}});
    const std::vector<CachedPlan> entries = plans();
    write_file("--export", operand_, collection_to_json(entries));
    fmt::print("exported {} of {}\n", counted(entries.size(), "tuned plan"), sites_of(entries));
    return exit_success;
  }

  int add() const {
    const Collection collection = from_file("--import", operand_, collection_from_json);
    for (const std::string& line : collection.refused)
      warn(fmt::format("--import {}: {}", shown(operand_), line));
    const Merged merged = merge(directory(), collection.entries, warn);
    fmt::print("imported {}: {} new, {} replaced, {} unchanged; {} refused\n",
               counted(collection.entries.size(), "tuned plan"), merged.added, merged.replaced,
               merged.unchanged, collection.refused.size());
    return collection.refused.empty() ? exit_success : exit_wrong_input;
  }

  int clear() const {
    std::size_t sites = 0;
    std::size_t removed = 0;
    for (const std::filesystem::path& folder : site_folders(directory())) {
      if (!is_wanted(folder.filename().string())) continue;
      ++sites;
      removed += clear_folder(folder);
    }
    fmt::print("removed {} of {}\n", counted(removed, "tuned plan"), counted(sites, "site"));
    return exit_success;
  }

  Action action_ = nullptr;
  std::string asked_;    ///< the option of the action
  std::string operand_;  ///< its text
  std::shared_ptr<std::string> directory_ = std::make_shared<std::string>();
  std::string site_;
  bool json_ = false;
};

}  // namespace

Command tune_command(CLI::App& app) {
  CLI::App* parser = app.add_subcommand("tune", "Find the fastest schedules here, and keep them");
  const auto cache = std::make_shared<CacheCommand>(*parser);
  const auto model = std::make_shared<ModelTuning>(*parser);
  std::vector<Command> measuring = tune_operation_commands(*parser, cache->chosen_directory());
  measuring.push_back(tune_machine_command(*parser, cache->chosen_directory()));
  parser->require_subcommand(0, 1);
  parser->footer(
      "Examples:\n"
      "  flashoverlap tune machine --gpus 2\n"
      "  flashoverlap tune gemm_all_reduce --gpus 2 --m 4096 --n 8192 --k 4096\n"
      "  flashoverlap tune --model llama3-70b --gpus 4\n"
      "  flashoverlap tune --list\n"
      "  flashoverlap tune --show gemm_all_reduce-m4096-n8192-k4096\n"
      "  flashoverlap tune --export plans.json --site H200\n"
      "  flashoverlap tune --import plans.json --cache /shared/flashoverlap\n");
  return {parser, [=] {
            for (const Command& command : measuring) {
              if (!command.parser->parsed()) continue;
              cache->refuse_all();
              for (const std::string option : {"--model", "--m", "--gpus"}) {
                require(parser->count(option) == 0, option, "(given)",
                        fmt::format("must come after {}, or not at all", command.parser->get_name()));
              }
              return command.run();
            }
            if (!model->is_wanted()) {
              for (const std::string option : {"--m", "--gpus"}) {
                require(parser->count(option) == 0, option, "(given)",
                        "is for OPERATION, machine and --model");
              }
              return cache->run();
            }
            cache->refuse_all();
            return model->run(*cache->chosen_directory());
          }};
}

}  // namespace flashoverlap::cli
