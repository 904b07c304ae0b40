#include "cli/plan_options.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "cli/arguments.hpp"
#include "cli/destinations.hpp"
#include "cli/files.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/plan_json.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"
#include "flashoverlap/validate.hpp"
#include "plan/grouping.hpp"
#include "search/prediction.hpp"

namespace flashoverlap::cli {
namespace {

constexpr std::int64_t largest_extent = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t most_entries = 1 << 22;  ///< tiles, and messages, of all ranks
constexpr std::int64_t most_slices = 1 << 16;   ///< from any rank to any other, of all rounds
constexpr std::string_view best = "best";
constexpr auto* planned_group = "What is planned";
constexpr auto* schedule_group = "How it is overlapped";

bool is_preset(const std::string& machine) {
  const auto presets = preset_names();
  return std::ranges::find(presets, machine) != presets.end();
}

/// "128x256".
void take_tile(const std::string& text, Schedule& schedule) {
  const std::size_t cross = text.find('x');
  const std::string cols = cross == std::string::npos ? "" : text.substr(cross + 1);
  try {
    schedule.tile_rows = static_cast<int>(to_integer("ROWS", text.substr(0, cross), 1, max_tile_side));
    schedule.tile_cols = static_cast<int>(to_integer("COLS", cols, 1, max_tile_side));
  } catch (const InvalidArgument&) {
    throw InvalidArgument(
        "--tile", shown(text),
        fmt::format("must be ROWSxCOLS of at most {} each, such as 128x256", max_tile_side));
  }
}

/// What makes a plan too large is said of `option`, or of the size of the problem where a schedule is
/// searched.
void require_few(bool few, const Problem& problem, bool searched, std::string_view option,
                 const std::string& value, const std::string& made) {
  if (searched) return require(few, "--m, --n", fmt::format("{}, {}", problem.m, problem.n), "make " + made);
  require(few, option, value, "makes " + made);
}

/// Refuses plans that would fill the memory, as after a typing error. Counts m rows on each rank, which is
/// the average where rows have any destination. Returns the tiles of a rank.
std::int64_t check_tiles(const Problem& problem, const Schedule& schedule, bool searched) {
  const std::int64_t tiles = entry_count(schedule, problem.m, problem.n);
  const std::string tile = fmt::format("{}x{}", schedule.tile_rows, schedule.tile_cols);
  require_few(tiles <= most_entries / problem.ranks, problem, searched, "--tile", tile,
              fmt::format("{} tiles{} on each of {} ranks, and at most {} in all are planned", tiles,
                          searched ? " of " + tile : "", problem.ranks, most_entries));
  return tiles;
}

void check_size(const Problem& problem, const Schedule& schedule, bool searched) {
  const std::int64_t tiles = check_tiles(problem, schedule, searched);
  const std::int64_t groups = divide_up(tiles, std::int64_t{workers(schedule)} * schedule.waves_per_group);
  require_few(!schedule.groups.empty() || groups <= most_entries / problem.ranks / problem.ranks, problem,
              searched, "--waves-per-group", std::to_string(schedule.waves_per_group),
              fmt::format("{} groups on each of {} ranks, too many messages to plan", groups, problem.ranks));
  const std::int64_t row_blocks = divide_up(divide_up(problem.m, problem.ranks), entry_rows(schedule));
  if (communicates_first(problem.operation)) {
    require(groups * std::min<std::int64_t>(schedule.rounds, problem.k) <=
                most_entries / problem.ranks / problem.ranks,
            "--rounds", schedule.rounds,
            fmt::format("makes too many messages to plan on {} ranks", problem.ranks));
    return;
  }
  require(std::min<std::int64_t>(schedule.rounds, row_blocks) <= most_slices / problem.ranks / problem.ranks,
          "--rounds", schedule.rounds,
          fmt::format("makes too many slices to plan on {} ranks, at most {} in all", problem.ranks,
                      most_slices));
}

std::vector<int> searched_groups(const Problem& problem, const Schedule& schedule, const Machine& machine) {
  require(schedule.strategy == Strategy::signal, "--search", "(given)",
          fmt::format("only the groups of --strategy signal can be searched, not those of {}",
                      name(schedule.strategy)));
  require(schedule.groups.empty(), "--search", "(given)", "cannot be combined with --groups");
  return best_grouping(problem, schedule, with_results_of_callers(machine)).groups;
}

}  // namespace

PlanOptions::PlanOptions(CLI::App& command, bool reads_plans) : command_(&command) {
  CLI::OptionDefaults& defaults = *command.option_defaults();
  const std::string usual_group = defaults.get_group();
  defaults.group(planned_group);
  add_problem(command);
  defaults.group(schedule_group);
  add_schedule(command);
  defaults.group(usual_group);
  if (reads_plans) {
    add_path(command, "--plan", plan_file_,
             "Plans saved by `flashoverlap plan --save`, instead of OPERATION and its options");
  }
  command
      .add_option("--machine", machine_,
                  fmt::format("The machine's preset ({}) or JSON file", fmt::join(preset_names(), ", ")))
      ->type_name("NAME|FILE")
      ->default_str(machine_);
}

void PlanOptions::add_problem(CLI::App& command) {
  add_enumerator(command, "OPERATION", problem_.operation, "What is computed");
  add_integer(command, "--m", problem_.m, "Rows of A and C", std::int64_t{1}, largest_extent);
  add_integer(command, "--n", problem_.n, "Rows of B, columns of C", std::int64_t{1}, largest_extent);
  add_integer(command, "--k", problem_.k, "Columns of A and B", std::int64_t{1}, largest_extent);
  add_integer(command, "--ranks", problem_.ranks, "World size", 1, max_ranks);
  add_enumerator(command, "--dtype", problem_.data_type, "Data type")->default_str("bf16");
  add_enumerator(command, "--gather", problem_.gathered, "Operand that all_gather_gemm gathers")
      ->default_str("a");
  add_enumerator(command, "--exchange", problem_.exchange, "How an all-to-all cuts its matrix")
      ->default_str("rows");
  add_enumerator(command, "--a-layout", problem_.a_layout, "What is contiguous in A: k, or the rows of A")
      ->default_str("k_contiguous");
  add_enumerator(command, "--b-layout", problem_.b_layout, "What is contiguous in B: k, or the rows of B")
      ->default_str("k_contiguous");
  add_path(command, "--destinations", destinations_file_,
           "Rank that each row goes to (--exchange rows): a JSON list per rank; otherwise equal parts");
  add_integer(command, "--random-destinations", destinations_seed_,
              "Random destinations, or with --experts random experts, from this seed", std::int64_t{0})
      ->type_name("SEED");
  add_integer(command, "--experts", problem_.experts, "Experts on each rank, by which rows are sorted", 1,
              max_experts)
      ->default_str("1");
  add_path(command, "--expert-rows", expert_rows_file_,
           "How many rows each rank has for each expert: a JSON list per rank");
  add_integer(command, "--capacity", problem_.capacity,
              "Most rows that a rank may receive: buffers are made for these", std::int64_t{1},
              largest_extent);
}

void PlanOptions::add_schedule(CLI::App& command) {
  const auto take_strategy = [this](const std::string& text) {
    searches_ = text == best;
    if (searches_) return;
    const auto strategy = from_name<Strategy>(text);
    require(strategy.has_value(), "--strategy", shown(text),
            fmt::format("must be {} or one of {}", best, names_of<Strategy>()));
    schedule_.strategy = *strategy;
  };
  add_text(command, "--strategy", take_strategy,
           fmt::format("How it is overlapped, or what is predicted to be fastest: {}, {}",
                       names_of<Strategy>(), best))
      ->type_name("NAME")
      ->default_str("signal");
  add_enumerator(command, "--layout", schedule_.layout, "Order of the result")->default_str("natural");
  const auto take_tile_text = [this](const std::string& text) { take_tile(text, schedule_); };
  add_text(command, "--tile", take_tile_text, "Part of C that one thread block computes")
      ->type_name("ROWSxCOLS")
      ->default_str("128x256");
  add_integer(command, "--cluster", schedule_.cluster_rows, "Tiles of a cluster, one below the other", 1, 2)
      ->default_str("1");
  add_integer(command, "--multiprocessors", multiprocessors_,
              "Multiprocessors of the GEMM; by default the machine's, less what communication occupies", 1,
              max_multiprocessors);
  add_integer(command, "--first-multiprocessors", schedule_.first_multiprocessors,
              "Multiprocessors that compute the first group (--strategy signal)", 1, max_multiprocessors);
  add_integer(command, "--comm-multiprocessors", comm_multiprocessors_,
              "Most multiprocessors that communication occupies; by default the machine's", 0,
              max_multiprocessors);
  command.add_flag("--share-k", schedule_.share_k,
                   "Workers share the tiles of the last wave, each a part of their k");
  add_integer(command, "--raster", schedule_.raster, "Row blocks computed together, column by column", 1,
              max_raster)
      ->default_str("8");
  add_integer(command, "--waves-per-group", schedule_.waves_per_group, "Size of every group", 1,
              max_group_waves)
      ->default_str("1");
  add_integers(command, "--groups", schedule_.groups,
               "Sizes of the groups in waves, instead of --waves-per-group", 1, max_group_waves);
  add_integer(command, "--rounds", schedule_.rounds,
              "Rounds in which slices are sent and summed, or parts of k that are gathered", 1, max_rounds)
      ->default_str("1");
  add_integer(
      command, "--shots", schedule_.shots,
      "Without slices: all that a rank sends in one shot, or partial results in one and sums in another "
      "(--strategy store; sums also sequential)",
      1, 2);
  command.add_flag("--search", searches_groups_,
                   "Use the groups that are predicted to be fastest (--strategy signal)");
}

Machine PlanOptions::machine() const {
  if (is_preset(machine_)) return preset(machine_);
  std::error_code ignored;
  const auto type = std::filesystem::status(machine_, ignored).type();
  require(type != std::filesystem::file_type::not_found, "--machine", shown(machine_),
          fmt::format("must be a file or one of {}", fmt::join(preset_names(), ", ")));
  return from_file("--machine", machine_, [](const std::string& text) { return machine_from_json(text); });
}

std::vector<NamedFile> PlanOptions::files() const {
  const std::string_view machine_file = is_preset(machine_) ? "" : std::string_view(machine_);
  return {{"--plan", plan_file_},
          {"--machine", machine_file},
          {"--destinations", destinations_file_},
          {"--expert-rows", expert_rows_file_}};
}

Planned PlanOptions::planned() const {
  if (!plan_file_.empty()) return {read_plans()};
  for (const std::string option : {"OPERATION", "--m", "--n", "--k", "--ranks"}) {
    require(command_->count(option) > 0, option, "(missing)", "must be given");
  }
  refuse_idle_options();
  const Problem problem = posed_problem();
  if (!searches_) return {make_plans(problem, chosen_schedule(problem))};
  std::vector<Candidate> candidates = found_schedules(problem);
  return {make_plans(problem, candidates.front().schedule), std::move(candidates)};
}

/// Refuses options that would have no effect.
void PlanOptions::refuse_idle_options() const {
  const auto only_for = [&](const std::string& option, bool applies, std::string_view rule) {
    require(command_->count(option) == 0 || applies, option, "(given)", rule);
  };
  for (const CLI::Option* option : command_->get_options()) {
    const bool is_found = option->get_group() == schedule_group && option->get_name() != "--strategy" &&
                          option->get_name() != "--layout" && option->get_name() != "--comm-multiprocessors";
    only_for(option->get_name(), !searches_ || !is_found,
             "cannot be combined with --strategy best, which finds it");
  }
  only_for("--gather", problem_.operation == Operation::all_gather_gemm, "is for all_gather_gemm");
  only_for("--exchange", is_all_to_all(problem_.operation), "is for gemm_all_to_all and all_to_all_gemm");
  const bool routes = is_all_to_all(problem_.operation) && problem_.exchange == Exchange::rows;
  constexpr auto* by_rows = "is for gemm_all_to_all and all_to_all_gemm, by rows";
  only_for("--destinations", routes, by_rows);
  only_for("--capacity", routes, by_rows);
  only_for("--capacity", !expert_rows_file_.empty() || destinations_seed_,
           "needs --expert-rows or --random-destinations, which say how many rows each rank has");
  const bool sorts = routes || (gathers(problem_, Operand::a) && !gathers_along_k(problem_));
  constexpr auto* by_expert = "is for all-to-alls by rows, and for all_gather_gemm of rows of A";
  only_for("--expert-rows", sorts, by_expert);
  only_for("--experts", sorts || problem_.experts == 1, by_expert);
  only_for("--random-destinations", routes || problem_.experts > 1,
           "is for all-to-alls by rows, and for --experts");
  only_for(
      "--first-multiprocessors",
      schedule_.strategy == Strategy::signal && !communicates_first(problem_.operation),
      "is for --strategy signal after a GEMM: multiprocessors of the first group, before NCCL needs its own");
  only_for("--waves-per-group", schedule_.groups.empty(), "cannot be combined with --groups");
  only_for("--waves-per-group", !searches_groups_, "cannot be combined with --search");
  only_for("--waves-per-group", schedule_.strategy != Strategy::sequential,
           "is not for strategy sequential, which has a single group");
  only_for("--waves-per-group", schedule_.shots == 0,
           "cannot be combined with --shots, which have no groups");
}

void PlanOptions::prove(const std::vector<Plan>& plans) const {
  if (plan_file_.empty()) return validate(plans);
  naming_file("--plan", plan_file_, [&] { validate(plans); });
}

std::vector<Plan> PlanOptions::read_plans() const {
  for (const CLI::Option* option : command_->get_options()) {
    const bool asks_for_plans = option->get_group() == planned_group || option->get_group() == schedule_group;
    require(!asks_for_plans || option->count() == 0, option->get_name(), "(given)",
            "cannot be combined with --plan, which says it already");
  }
  return from_file("--plan", plan_file_, [](const std::string& text) { return plans_from_json(text); });
}

Problem PlanOptions::posed_problem() const {
  Problem problem = problem_;
  const auto seed = static_cast<std::uint64_t>(destinations_seed_.value_or(0));
  const bool from_files = !destinations_file_.empty() || !expert_rows_file_.empty();
  require(!destinations_seed_ || !from_files, "--random-destinations", seed,
          "cannot be combined with --destinations or --expert-rows");
  require(destinations_file_.empty() || expert_rows_file_.empty(), "--destinations", destinations_file_,
          "cannot be combined with --expert-rows");
  require(problem.experts == 1 || destinations_seed_ || !expert_rows_file_.empty(), "--experts",
          problem.experts, "needs --expert-rows, or --random-destinations to draw them");
  if (!expert_rows_file_.empty()) {
    problem.expert_rows = from_file("--expert-rows", expert_rows_file_, read_expert_rows);
    require(!problem.expert_rows.empty(), "--expert-rows", expert_rows_file_,
            "must have a list for each rank");
  } else if (problem.experts > 1 || (destinations_seed_ && problem.capacity > 0)) {
    constexpr double least_share = 0.3;
    problem.expert_rows = uneven_expert_rows(problem, seed, least_share);
  } else if (!destinations_file_.empty()) {
    problem.destinations = from_file("--destinations", destinations_file_, read_destinations);
    require(!problem.destinations.empty(), "--destinations", destinations_file_,
            "must have a list for each rank");
  } else if (destinations_seed_) {
    problem.destinations = random_destinations(problem, seed);
  }
  try {
    validate(problem);
  } catch (const InvalidArgument& error) {
    const auto is_of = [&](std::string_view field) { return error.argument().starts_with(field); };
    const auto throw_naming = [&](const std::string& option, const std::string& value) {
      naming_file(option, value, [&] { throw error; });
    };
    const bool of_rows = is_of("expert_rows") || is_of("rows that rank");
    if (of_rows && !expert_rows_file_.empty()) throw_naming("--expert-rows", expert_rows_file_);
    if (of_rows && destinations_seed_) throw_naming("--random-destinations", std::to_string(seed));
    if (is_of("destinations") && !destinations_file_.empty())
      throw_naming("--destinations", destinations_file_);
    throw;
  }
  return problem;
}

Schedule PlanOptions::chosen_schedule(const Problem& problem) const {
  Schedule schedule = schedule_;
  const Machine target = machine();
  schedule.comm_multiprocessors = comm_multiprocessors_.value_or(0);
  check_tiles(problem, schedule, /*searched=*/false);
  share_multiprocessors(schedule, problem, target);  // makes plans
  if (comm_multiprocessors_) {
    const int asked = *comm_multiprocessors_;
    require(asked < target.multiprocessors, "--comm-multiprocessors", asked,
            fmt::format("must be less than {}, those of {}", target.multiprocessors, target.name));
    if (asked > 0 && schedule.comm_multiprocessors > 0)  // 0: no limit
      schedule.multiprocessors = std::max(target.multiprocessors - asked, schedule.cluster_rows);
    schedule.comm_multiprocessors = asked;
  }
  if (multiprocessors_) schedule.multiprocessors = *multiprocessors_;
  for (const auto& [option, count] : {std::pair{"--multiprocessors", schedule.multiprocessors},
                                      {"--first-multiprocessors", schedule.first_multiprocessors}}) {
    require(count <= target.multiprocessors, option, count,
            fmt::format("must be at most {}, those of {}", target.multiprocessors, target.name));
  }
  validate(schedule);
  check_size(problem, schedule, /*searched=*/false);
  if (searches_groups_) schedule.groups = searched_groups(problem, schedule, target);
  return schedule;
}

std::vector<Candidate> PlanOptions::found_schedules(const Problem& problem) const {
  const Machine target = machine();
  check_size(problem, {.multiprocessors = target.multiprocessors}, /*searched=*/true);
  SearchSpace space;
  if (schedule_.layout != Layout::natural) space.layouts = {Layout::natural, schedule_.layout};
  if (comm_multiprocessors_) {
    require(
        *comm_multiprocessors_ >= 1 && *comm_multiprocessors_ < target.multiprocessors,
        "--comm-multiprocessors", *comm_multiprocessors_,
        fmt::format("must be at least 1 and less than {}, those of {}", target.multiprocessors, target.name));
    space.comm_multiprocessors = {*comm_multiprocessors_};
  }
  std::vector<Candidate> found = search_schedules(problem, target, space);
  const auto has_layout = [this](const Candidate& each) { return each.schedule.layout == schedule_.layout; };
  require(std::ranges::any_of(found, has_layout), "--layout", name(schedule_.layout),
          fmt::format("the search finds no schedule of {} on {} with it: tiled needs an operation that "
                      "communicates after the GEMM, and no experts; partial one that sums, and peer access",
                      name(problem.operation), target.name));
  return found;
}

}  // namespace flashoverlap::cli
