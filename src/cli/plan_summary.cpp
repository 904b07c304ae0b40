#include "cli/plan_summary.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <type_traits>
#include <vector>

#include "cli/format.hpp"
#include "flashoverlap/gpu_support.hpp"
#include "flashoverlap/workspace_bytes.hpp"
#include "plan/grouping.hpp"
#include "plan/json/plan_keys.hpp"
#include "plan/message_rules.hpp"
#include "plan/readable.hpp"

namespace flashoverlap::cli {
namespace {

/// What differs between ranks: "16" or "12 to 19".
struct Span {
  std::int64_t least = 0;
  std::int64_t most = 0;

  std::string text() const {
    if (least == most) return grouped_digits(least);
    return grouped_digits(least) + " to " + grouped_digits(most);
  }
};

template <typename Count>
Span over_ranks(std::span<const Plan> plans, const Count& count) {
  std::vector<std::int64_t> counts;
  for (const Plan& plan : plans) counts.push_back(static_cast<std::int64_t>(count(plan)));
  const auto [least, most] = std::ranges::minmax(counts);
  return {least, most};
}

std::int64_t waves_of(const Plan& plan) { return wave_count(plan.schedule, product_count(plan)); }

std::int64_t tile_count(const Plan& plan) { return std::ssize(plan.tiles); }

std::int64_t counter_count(const Plan& plan) { return std::ssize(plan.counters); }

double size_of_buffer(const Plan& plan, BufferRole role) {
  const Buffer& buffer = plan.buffer(role);
  return static_cast<double>(buffer.rows) * static_cast<double>(buffer.cols) *
         size_of(plan.problem.data_type);
}

std::map<MessageKind, Span> message_counts(std::span<const Plan> plans) {
  std::map<MessageKind, Span> counts;
  for (const MessageKind kind : enumerators<MessageKind>) {
    const Span span = over_ranks(
        plans, [kind](const Plan& plan) { return std::ranges::count(plan.messages, kind, &Message::kind); });
    if (span.most > 0) counts[kind] = span;
  }
  return counts;
}

/// ", asked for as 1, 2, 4 waves"; empty where all have the same size. Small groups may have been joined, and
/// a list is for each slice.
std::string listed_sizes(const Schedule& schedule) {
  if (schedule.groups.empty()) return "";
  return fmt::format(", asked for as {} waves", readable_list(schedule.groups));
}

/// The rank's plan whose buffer is the largest.
const Plan& largest(std::span<const Plan> plans, BufferRole role) {
  return *std::ranges::max_element(plans, {},
                                   [role](const Plan& plan) { return size_of_buffer(plan, role); });
}

/// Enumerators by name, numbers as they are; where rows go, which can be millions of numbers, is left out,
/// and so is what is usual.
class KeyCollector {
 public:
  nlohmann::ordered_json json;

  void operator()(std::string_view key, const auto& field) {
    if constexpr (std::is_enum_v<std::remove_cvref_t<decltype(field)>>) {
      json[std::string(key)] = name(field);
    } else {
      json[std::string(key)] = field;
    }
  }
  void unless_none(std::string_view key, std::integral auto field, std::int32_t absent) {
    if (field != absent) json[std::string(key)] = field;
  }
  void unless_none(std::string_view key, const auto& field) {
    using Field = std::remove_cvref_t<decltype(field)>;
    if constexpr (std::is_enum_v<Field>) {
      if (field != Field{}) (*this)(key, field);
    }
  }
};

nlohmann::ordered_json keys_of(const auto& fields) {
  KeyCollector collector;
  visit_keys(collector, fields);
  return collector.json;
}

WorkspaceBytes workspace_of(std::span<const Plan> plans) {
  WorkspaceBytes bytes;
  bytes.add(plans);
  return bytes;
}

nlohmann::ordered_json span_json(const Span& span) { return {{"least", span.least}, {"most", span.most}}; }

}  // namespace

std::string describe_shape(const Problem& problem) {
  return fmt::format("m {}, n {}, k {}, {} ranks, {}", problem.m, problem.n, problem.k, problem.ranks,
                     name(problem.data_type));
}

std::string describe(const Problem& problem) {
  std::string text = fmt::format("{}, {}", name(problem.operation), describe_shape(problem));
  if (problem.operation == Operation::all_gather_gemm)
    text += fmt::format(", gathers {}", name(problem.gathered));
  if (is_all_to_all(problem.operation)) text += fmt::format(", exchanges {}", name(problem.exchange));
  if (problem.experts > 1) text += fmt::format(", {} experts on each rank", problem.experts);
  for (const Operand operand : enumerators<Operand>) {
    if (layout_of(problem, operand) == OperandLayout::row_contiguous)
      text += fmt::format(", rows of {} contiguous", name(operand));
  }
  return text;
}

std::string describe(const Schedule& schedule) {
  const int more = schedule.first_multiprocessors;
  return fmt::format(
      "{}, {}, tiles of {}x{}{}{}, {} multiprocessors{}", strategy_text(schedule), name(schedule.layout),
      schedule.tile_rows, schedule.tile_cols,
      schedule.cluster_rows > 1 ? fmt::format(" in clusters of {}", schedule.cluster_rows) : "",
      schedule.share_k ? ", k shared" : "", schedule.multiprocessors,
      more > 0 ? fmt::format(" ({} for the first group)", more) : "");
}

std::string options_of(const Schedule& schedule) {
  const Schedule usual;
  std::string options = fmt::format("--strategy {}", name(schedule.strategy));
  const auto add = [&](std::string_view option, const auto& value) {
    options += fmt::format(" {} {}", option, value);
  };
  const auto add_unless = [&](std::string_view option, int value, int absent) {
    if (value != absent) add(option, value);
  };
  if (schedule.layout != usual.layout) add("--layout", name(schedule.layout));
  add("--tile", fmt::format("{}x{}", schedule.tile_rows, schedule.tile_cols));
  add_unless("--cluster", schedule.cluster_rows, usual.cluster_rows);
  if (schedule.share_k) options += " --share-k";
  add("--multiprocessors", schedule.multiprocessors);
  add_unless("--first-multiprocessors", schedule.first_multiprocessors, usual.first_multiprocessors);
  add("--comm-multiprocessors", schedule.comm_multiprocessors);
  add_unless("--raster", schedule.raster, usual.raster);
  add_unless("--rounds", schedule.rounds, usual.rounds);
  add_unless("--shots", schedule.shots, usual.shots);
  const bool has_groups = schedule.strategy != Strategy::sequential && schedule.shots == 0;
  if (!schedule.groups.empty()) {
    add("--groups", fmt::format("{}", fmt::join(schedule.groups, ",")));
  } else if (has_groups) {
    add_unless("--waves-per-group", schedule.waves_per_group, usual.waves_per_group);
  }
  return options;
}

std::string summary_text(std::span<const Plan> plans) {
  const Plan& first = plans.front();
  std::string text;
  const auto line = [&text](std::string_view label, std::string_view value) {
    text += labelled_line(label, value);
  };
  line("problem", describe(first.problem));
  const int cluster = first.schedule.cluster_rows;
  line("schedule", describe(first.schedule));
  line("options", options_of(first.schedule));
  line("tiles", fmt::format("{}{} on each rank", over_ranks(plans, tile_count).text(),
                            cluster > 1 ? fmt::format(" clusters of {}", cluster) : ""));
  line("waves", fmt::format("{} of {} {}", over_ranks(plans, waves_of).text(), workers(first.schedule),
                            cluster > 1 ? "clusters" : "tiles"));
  line("groups", over_ranks(plans, group_count).text() + listed_sizes(first.schedule));
  for (const auto& [kind, count] : message_counts(plans)) {
    line("messages", fmt::format("{} {}", count.text(), name(kind)));
  }
  line("counters", over_ranks(plans, counter_count).text());
  for (const BufferRole role : enumerators<BufferRole>) {
    const Buffer& buffer = largest(plans, role).buffer(role);
    if (buffer == Buffer{}) continue;
    line("buffer", fmt::format("{}: {} x {}, {}{}", name(role), buffer.rows, buffer.cols,
                               readable_bytes(size_of_buffer(largest(plans, role), role)),
                               buffer.peer_written ? ", written by peers" : ""));
  }
  const WorkspaceBytes workspace = workspace_of(plans);
  line("workspace",
       fmt::format("{} bytes: {} written by peers, {} of collectives, {} shares, {} others, {} counters",
                   grouped_digits(workspace.total()), grouped_digits(workspace.peer_written),
                   grouped_digits(workspace.collective), grouped_digits(workspace.shares),
                   grouped_digits(workspace.device), grouped_digits(workspace.counters)));
  return text;
}

nlohmann::ordered_json schedule_json(const Schedule& schedule) { return keys_of(schedule); }

nlohmann::ordered_json summary_json(std::span<const Plan> plans) {
  const Plan& first = plans.front();
  nlohmann::ordered_json json;
  json["problem"] = keys_of(first.problem);
  json["schedule"] = schedule_json(first.schedule);
  json["tiles"] = span_json(over_ranks(plans, tile_count));
  json["waves"] = span_json(over_ranks(plans, waves_of));
  json["groups"] = span_json(over_ranks(plans, group_count));
  json["counters"] = span_json(over_ranks(plans, counter_count));
  auto& messages = json["messages"] = nlohmann::ordered_json::object();
  for (const auto& [kind, count] : message_counts(plans))
    messages[std::string(name(kind))] = span_json(count);
  auto& buffers = json["largest_buffers"] = nlohmann::ordered_json::object();
  for (const BufferRole role : enumerators<BufferRole>) {
    const Buffer& buffer = largest(plans, role).buffer(role);
    if (buffer != Buffer{}) buffers[std::string(name(role))] = keys_of(buffer);
  }
  const WorkspaceBytes workspace = workspace_of(plans);
  json["workspace_bytes"] = {{"peer_written", workspace.peer_written},
                             {"collective", workspace.collective},
                             {"device", workspace.device},
                             {"shares", workspace.shares},
                             {"counters", workspace.counters}};
  return json;
}

std::string gpus_text(std::span<const Plan> plans, const Machine& machine) {
  const auto obstacle = gpu_obstacle(plans, machine);
  return labelled_line("GPUs", obstacle ? fmt::format("of {} cannot run this: {}", machine.name, *obstacle)
                                        : fmt::format("of {} can run this", machine.name));
}

nlohmann::ordered_json gpus_json(std::span<const Plan> plans, const Machine& machine) {
  const auto obstacle = gpu_obstacle(plans, machine);
  return {{"machine", machine.name}, {"can_run", !obstacle}, {"obstacle", obstacle.value_or("")}};
}

}  // namespace flashoverlap::cli
