#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <CLI/CLI.hpp>
#include <cstdio>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/format.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/version.hpp"
#include "plan/readable.hpp"

namespace flashoverlap::cli {
namespace {

/// The option that sets a field of Problem or Schedule, which the library's errors name.
std::string option_for(const std::string& field) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> renamed{{
      {"operation", "OPERATION"},
      {"data_type", "--dtype"},
      {"tile_rows x tile_cols", "--tile"},
      {"gathered", "--gather"},
      {"tile_rows", "--tile"},
      {"tile_cols", "--tile"},
      {"cluster_rows", "--cluster"},
  }};
  for (const auto& [library_name, option] : renamed) {
    if (field == library_name) return std::string(option);
  }
  std::string option = "--" + field;
  std::ranges::replace(option, '_', '-');
  return option;
}

/// An option, or one of the positional COMMAND, OPERATION, ARGUMENT.
bool names_an_option(const std::string& argument) {
  return argument.starts_with("--") || (argument[0] >= 'A' && argument[0] <= 'Z');
}

/// The command that was asked for, which may belong to others.
const CLI::App& innermost(const CLI::App& command) {
  const auto asked_for = command.get_subcommands();
  return asked_for.empty() ? command : innermost(*asked_for.front());
}

/// What the library refuses, in the words of the command's options. A field that none of them sets keeps its
/// name.
std::string in_words_of(const CLI::App& command, const InvalidArgument& error) {
  if (names_an_option(error.argument())) return error.what();
  const std::string option = option_for(error.argument());
  if (innermost(command).get_option_no_throw(option) == nullptr) return error.what();
  std::string text = error.renamed(option).what();
  // The library says 0 where an option is not given.
  for (const auto& [of_library, of_option] :
       {std::pair<std::string_view, std::string_view>{": must be 0;", ": must not be given here;"},
        {": must be 0 ", ": must not be given "}}) {
    if (const std::size_t place = text.find(of_library); place != text.npos)
      text.replace(place, of_library.size(), of_option);
  }
  return text;
}

/// What the parser refuses, in the words of every other refusal.
InvalidArgument explained(const CLI::App& app, const CLI::ParseError& error) {
  const std::string message = error.what();
  const std::string name = message.substr(0, message.find(':'));
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    const auto extras = app.remaining(/*recurse=*/true);
    return {"ARGUMENT", extras.empty() ? "?" : shown(extras.front()), "is not known here; see --help"};
  }
  if (message.ends_with("missing")) return {name, "(missing)", "needs a value"};
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ArgumentMismatch)) {
    return {name, "(several)", "must be given once"};
  }
  return {"ARGUMENT", "(not understood)", message};
}

/// Exactly one line of limited length, whatever the error holds.
int refuse(const std::string& error, int status) {
  std::string line = shortened("flashoverlap: " + error, longest_line);
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
  std::fputs((line + '\n').c_str(), stderr);  // does not throw where stderr cannot be written
  return status;
}

int run(int argc, char** argv) {
  CLI::App app("Overlaps communication with computation on several GPUs.", "flashoverlap");
  app.set_version_flag("--version", "flashoverlap " FLASHOVERLAP_VERSION);
  app.require_subcommand(0, 1);
  app.footer("Each command has its own --help with examples. Try: flashoverlap demo\n");
  const std::vector commands{
      demo_command(app),     plan_command(app),  check_command(app),
      timeline_command(app), bench_command(app), tune_command(app),
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wish) {
    return app.exit(wish);  // --help, --version
  } catch (const CLI::ParseError& error) {
    throw explained(app, error);
  }
  for (const Command& command : commands) {
    if (!command.parser->parsed()) continue;
    try {
      return command.run();
    } catch (const InvalidArgument& error) {
      return refuse(in_words_of(*command.parser, error), exit_wrong_input);
    }
  }
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.parser->get_name());
  throw InvalidArgument("COMMAND", "(missing)",
                        fmt::format("must be one of {}; see --help", fmt::join(names, ", ")));
}

}  // namespace
}  // namespace flashoverlap::cli

int main(int argc, char** argv) {
  using namespace flashoverlap;
  using namespace flashoverlap::cli;
  try {
    const int status = run(argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      return refuse("standard output cannot be written", exit_failure);
    return status;
  } catch (const InvalidArgument& error) {
    return refuse(error.what(), exit_wrong_input);
  } catch (const std::bad_alloc&) {
    return refuse("there is not enough memory for this", exit_failure);
  } catch (const std::exception& error) {
    return refuse(error.what(), exit_failure);
  }
}
