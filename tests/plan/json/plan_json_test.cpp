#include "flashoverlap/plan_json.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/validate.hpp"
#include "plan/enumerators.hpp"

namespace flashoverlap {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// Plans of two ranks that use every key of the format. They are well-formed but could not run.
std::vector<Plan> every_key() {
  Plan plan;
  plan.problem = {.operation = Operation::gemm_all_to_all, .m = 2, .n = 5, .k = 6, .ranks = 2};
  plan.problem.destinations = {{0, 1}, {1, 1}};
  plan.schedule.step_depth = 16;
  plan.schedule.groups = {1, 2};
  plan.schedule.shots = 2;
  plan.buffer(BufferRole::a) = {2, 6, false};
  plan.buffer(BufferRole::out) = {3, 5, true};
  plan.a_blocks = {2, 3};
  plan.wait_depth = 3;
  plan.own_k_first = true;
  plan.addends = {1, 4};
  plan.counters = {{CounterRole::arrival, 1, 0, 7}, {CounterRole::tiles, none, none, 1}};
  Tile tile{
      .row = 1, .col = 2, .rows = 3, .cols = 4, .a_row = 5, .b_row = 6, .a_buffer = BufferRole::gathered};
  tile.buffer = BufferRole::staging;
  tile.rank = every_rank;
  tile.store_row = 7;
  tile.store_col = 8;
  tile.row_map = 0;
  tile.part_rows = 2;
  tile.part_stride = 9;
  tile.addend_row = 10;
  tile.start_wait = 0;
  tile.store_wait = 1;
  tile.only_adds = true;
  tile.raise = {every_rank, 0};
  tile.group = 1;
  plan.tiles = {tile, Tile{}};
  plan.row_map = {{1, 2}, {0, 3}};
  const Region region{BufferRole::inbox, 1, 2};
  plan.messages = {Message{.kind = MessageKind::exchange,
                           .after_tiles = true,
                           .group = 0,
                           .waits = {{1, true}},
                           .source = region,
                           .destination = region,
                           .peer = 1,
                           .col = 4,
                           .cols = 2,
                           .sends = {{1, region}},
                           .receives = {{1, region}},
                           .raises = {{0, 1}}},
                   Message{}};
  plan.output = {3, 5, {{1, 0, 2, 1}, {none, 0, 1, 0}}, {2, 5, {0, 2}}};

  Plan second = plan;
  second.rank = 1;
  return {plan, second};
}

/// What reading `text` throws.
InvalidArgument refusal(const std::string& text) {
  try {
    plans_from_json(text);
  } catch (const InvalidArgument& error) {
    return error;
  }
  return {"", "accepted", text.substr(0, 200)};
}

TEST(PlanJson, EveryKeySurvives) {
  const auto plans = every_key();
  EXPECT_EQ(plans_from_json(plans_to_json(plans)), plans);
}

TEST(PlanJson, WritesNothingForNone) {
  const auto plans = every_key();
  const json document = json::parse(plans_to_json(plans));
  const json& plan = document["plans"][0];
  EXPECT_FALSE(plan["buffers"].contains("staging"));
  for (const char* key : {"row_map", "part_rows", "part_stride", "addend_row", "only_adds", "start_wait",
                          "store_wait", "raise"}) {
    EXPECT_TRUE(plan["tiles"][0].contains(key)) << key;
    EXPECT_FALSE(plan["tiles"][1].contains(key)) << key;
  }
  for (const char* key : {"source", "destination", "peer", "col", "cols"}) {
    EXPECT_TRUE(plan["messages"][0].contains(key)) << key;
    EXPECT_FALSE(plan["messages"][1].contains(key)) << key;
  }
}

TEST(PlanJson, PlannedProblemsSurvive) {
  for (const Operation operation : enumerators<Operation>) {
    for (const Strategy strategy : enumerators<Strategy>) {
      for (const Layout layout : enumerators<Layout>) {
        if (!supports({.operation = operation}, strategy, layout)) continue;
        for (const Exchange exchange : enumerators<Exchange>) {
          for (const Operand gathered : enumerators<Operand>) {
            Problem problem{.operation = operation, .m = 60, .n = 36, .k = 24, .ranks = 3};
            problem.exchange = exchange;
            problem.gathered = gathered;
            problem.b_layout =
                gathered == Operand::a ? OperandLayout::row_contiguous : OperandLayout::k_contiguous;
            const Schedule schedule{.strategy = strategy,
                                    .layout = layout,
                                    .tile_rows = 6,
                                    .tile_cols = 8,
                                    .multiprocessors = 5,
                                    .shots = layout == Layout::partial ? 1 : 0};
            const auto plans = make_plans(problem, schedule);
            EXPECT_TRUE(plans_from_json(plans_to_json(plans)) == plans)
                << name(operation) << ' ' << name(strategy) << ' ' << name(layout);
          }
        }
      }
    }
  }
}

// When the format changes, tests/fuzz/make_corpus.sh writes them again.
TEST(PlanJson, FuzzSeedsAreRightPlans) {
  int seeds = 0;
  for (const auto& entry : std::filesystem::directory_iterator(FLASHOVERLAP_FUZZ_CORPUS)) {
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NO_THROW(validate(plans_from_json(text))) << entry.path();
    ++seeds;
  }
  EXPECT_GE(seeds, 10);
}

TEST(PlanJson, RefusesPlansThatDoNotBelongTogether) {
  auto plans = every_key();
  plans[1].problem.m += 1;
  EXPECT_THROW(plans_to_json(plans), InvalidArgument);
  EXPECT_THROW(plans_to_json({}), InvalidArgument);
}

TEST(PlanJson, NamesThePathTheValueAndTheRule) {
  const auto refused = [](const std::string& pointer, const json& value) {
    json document = json::parse(plans_to_json(every_key()));
    document[json::json_pointer(pointer)] = value;
    return std::string(refusal(document.dump()).what());
  };
  EXPECT_EQ(refused("/schema_version", 3),
            "schema_version = 3: must be 5, the version that this program reads");
  EXPECT_EQ(refused("/problem/m", 0), "problem.m = 0: must be between 1 and 1073737727 on 2 ranks");
  EXPECT_EQ(refused("/problem/destinations/1/0", 2),
            "problem.destinations[1][0] = 2: must be a rank between 0 and 1");
  EXPECT_EQ(refused("/schedule/cluster_rows", 3), "schedule.cluster_rows = 3: must be between 1 and 2");
  EXPECT_EQ(refused("/schedule/strategy", "fast"),
            "schedule.strategy = \"fast\": must be one of sequential, signal, copy, store, p2p");
  EXPECT_EQ(refused("/plans/1/tiles/0/row", 2147483648),
            "plans[1].tiles[0].row = 2147483648: must be an integer between 0 and 2147483647");
  EXPECT_EQ(refused("/plans/1/tiles/0/rank", -3),
            "plans[1].tiles[0].rank = -3: must be an integer between -2 and 2147483647");
  EXPECT_EQ(refused("/plans/0/messages/0/waits/0/reset", 1),
            "plans[0].messages[0].waits[0].reset = 1: must be true or false");
  EXPECT_EQ(refused("/plans/0/colour", "red"), "plans[0].colour = \"red\": is not a known key");
  EXPECT_EQ(refused("/plans/0/counters", json::object()),
            "plans[0].counters = object of 0: must be an array");
  EXPECT_EQ(refused("/plans", json::array()), "plans = array of 0: must hold one plan for each of 2 ranks");
}

/// Documents that break one rule each, and the paths that the error may name.
class Malformed {
 public:
  struct Case {
    std::string text;
    std::set<std::string> arguments;
  };

  Malformed() : document_(json::parse(plans_to_json(every_key()))) { mutate(document_, ""); }

  const std::vector<Case>& cases() const { return cases_; }

 private:
  static std::string joined(const std::string& path, const std::string& key) {
    return path.empty() ? key : path + "." + key;
  }

  /// Whether a key may be left out.
  static bool is_optional(const std::string& path, const std::string& key) {
    static const std::set<std::string> keys{
        "row_map",      "part_rows", "part_stride", "addend_row",  "only_adds",  "shots", "start_wait",
        "store_wait",   "raise",     "source",      "destination", "reorder",    "a",     "out",
        "destinations", "group",     "peer",        "wait_depth",  "own_k_first"};
    static const std::set<std::string> keys_of_messages{"col", "cols"};
    const bool in_message = path.ends_with(']') && path.find(".messages[") != std::string::npos;
    const bool in_tile = path.ends_with(']') && path.find(".tiles[") != std::string::npos;
    const bool in_part =
        path.find(".sends[") != std::string::npos || path.find(".receives[") != std::string::npos;
    if (key == "group" && in_tile) return false;
    if (key == "peer" && in_part) return false;
    if (key == "row_map" && !in_tile) return false;
    if (in_message && keys_of_messages.contains(key)) return true;
    if (key == "rank") return path.find(".origins[") != std::string::npos;
    return keys.contains(key);
  }

  void add(std::set<std::string> arguments) { cases_.push_back({document_.dump(), std::move(arguments)}); }

  void mutate(json& value, const std::string& path) {
    if (!path.empty()) replace(value, path);
    if (value.is_object()) {
      const json original = value;
      for (const auto& [key, member] : original.items()) {
        const std::string member_path = joined(path, key);
        value.erase(key);
        if (!is_optional(path, key)) add({member_path});
        value[key + "_"] = member;
        add({member_path, member_path + "_"});
        value = original;
        mutate(value[key], member_path);
      }
    } else if (value.is_array()) {
      for (std::size_t i = 0; i < std::min<std::size_t>(value.size(), 2); ++i) {
        mutate(value[i], path + "[" + std::to_string(i) + "]");
      }
    }
  }

  /// Replaces a value by values of other types, and by numbers that are no integers or out of every field's
  /// range.
  void replace(json& value, const std::string& path) {
    const json original = value;
    std::vector<json> others{nullptr, "text", 1.5, 1e40, -3, -9.2e18, 18446744073709551615u};
    if (!original.is_boolean()) others.push_back(true);
    if (!original.is_array()) others.push_back(json::array());
    if (!original.is_object()) others.push_back(json::object());
    for (const json& other : others) {
      value = other;
      add({path});
    }
    value = original;
  }

  json document_;
  std::vector<Case> cases_;
};

TEST(PlanJson, RefusesEveryMutationByName) {
  const Malformed malformed;
  std::set<std::string> texts;
  for (const auto& [text, arguments] : malformed.cases()) {
    texts.insert(text);
    const InvalidArgument error = refusal(text);
    EXPECT_TRUE(arguments.contains(error.argument())) << error.what() << "\nexpected " << *arguments.begin();
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    EXPECT_LT(std::string_view(error.what()).size(), 400u) << error.what();
  }
  EXPECT_GE(texts.size(), 1000u);
}

TEST(PlanJson, RefusesWhatIsNotJson) {
  const std::string text = plans_to_json(every_key());
  const auto expect_not_json = [](const std::string& broken) {
    const InvalidArgument error = refusal(broken);
    EXPECT_EQ(error.argument(), "plan") << error.what();
    EXPECT_THAT(error.what(), HasSubstr(": is not JSON: "));
    for (const char c : std::string_view(error.what())) EXPECT_TRUE(c >= ' ' && c <= '~') << error.what();
  };
  for (std::size_t length = 0; length < text.size() - 1; length += 7) expect_not_json(text.substr(0, length));
  for (const std::string number :
       {"NaN", "-Infinity", "Infinity", "1e999", "01", "+1", "0x1", ".5", "1.", "'1'"}) {
    expect_not_json("{\"schema_version\":" + number + "}");
  }
  for (const std::string other :
       {"{} {}", "{,}", "[1,]", "// none\n{}", "{\"a\":\"\x01\"}", "{\"a\":\"\xff\"}", "{a:1}",
        "\x7f\x45\x4c\x46", "{\"a\" 1}", "{\"a\":\"\\u12\"}", "nul", "\xef\xbb\xbf"}) {
    expect_not_json(other);
  }
  expect_not_json(std::string("{}\0", 3));
}

TEST(PlanJson, RefusesOtherDocuments) {
  for (const std::string other : {"null", "[]", "3", "\"plan\"", "true", "1.5"}) {
    EXPECT_EQ(refusal(other).argument(), "plan") << other;
  }
  EXPECT_EQ(refusal("{}").argument(), "schema_version");
  EXPECT_THAT(refusal("{\"a\":1,\"a\":2}").what(), HasSubstr("occurs twice"));
  EXPECT_THAT(refusal(std::string(100'000, '[')).what(), HasSubstr("nested"));
  EXPECT_THAT(refusal("{\"a\":" + std::string(100'000, '[')).what(), HasSubstr("nested"));
}

}  // namespace
}  // namespace flashoverlap
