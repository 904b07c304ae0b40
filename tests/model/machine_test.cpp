#include "flashoverlap/machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "flashoverlap/error.hpp"
#include "model/costs.hpp"
#include "support/refused_argument.hpp"

namespace flashoverlap {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double mib = 1 << 20;

// Curves

const Curve curve{{{100, 10}, {200, 14}, {400, 30}}};

TEST(CurveTest, AnswersItsPointsExactly) {
  for (const Curve::Point& point : curve.points)
    EXPECT_EQ(curve.microseconds(point.size), point.microseconds);
}

TEST(CurveTest, IsLinearBetweenPoints) {
  EXPECT_DOUBLE_EQ(curve.microseconds(150), 12);
  EXPECT_DOUBLE_EQ(curve.microseconds(350), 26);
}

TEST(CurveTest, NeverGoesBelowTheFirstTime) {
  EXPECT_EQ(curve.microseconds(0), 10);
  EXPECT_EQ(curve.microseconds(99), 10);
}

TEST(CurveTest, KeepsTheLastTwoPointsBandwidthBeyondThem) {
  EXPECT_DOUBLE_EQ(curve.microseconds(1400), 30 + 1000 * 16 / 200.0);
}

TEST(CurveTest, IsProportionalBeyondAnOnlyPoint) {
  const Curve single{{{100, 10}}};
  EXPECT_EQ(single.microseconds(50), 10);
  EXPECT_DOUBLE_EQ(single.microseconds(300), 30);
}

TEST(CurveTest, TakesNoLongerForLessThanForMore) {
  const Curve noisy{{{100, 10}, {200, 8}, {300, 9}, {400, 18}}};
  for (const double size : {1, 100, 150, 200}) EXPECT_EQ(noisy.microseconds(size), 8);
  EXPECT_DOUBLE_EQ(noisy.microseconds(250), 8.5);
  EXPECT_DOUBLE_EQ(noisy.microseconds(500), 27);
}

TEST(CurveTest, RefusesToAnswerWithoutPoints) { EXPECT_THROW(Curve{}.microseconds(1), InvalidArgument); }

// World sizes

Machine with_all_reduce(const CurvesByRanks& curves) {
  Machine machine = preset("rtx4090");
  machine.collectives[MessageKind::all_reduce] = curves;
  machine.collectives[MessageKind::reduce_scatter] = curves;
  return machine;
}

TEST(CollectiveTest, ReadsAMeasuredWorldSizeAsItIs) {
  const Machine machine = with_all_reduce({{2, curve}, {8, {{{100, 50}, {200, 60}}}}});
  EXPECT_EQ(machine.collective_microseconds(MessageKind::all_reduce, 2, 200), 14);
  EXPECT_EQ(machine.collective_microseconds(MessageKind::all_reduce, 8, 200), 60);
}

// From 4 to 8 ranks, a rank's share of the traffic grows from 3/4 to 7/8 of the matrix (AllReduce: twice
// that).
TEST(CollectiveTest, TakesTheTimeOfEqualTrafficBeyondTheMeasuredWorldSizes) {
  const Machine machine = with_all_reduce({{4, curve}});
  for (const MessageKind kind : {MessageKind::all_reduce, MessageKind::reduce_scatter}) {
    EXPECT_DOUBLE_EQ(machine.collective_microseconds(kind, 8, 180), curve.microseconds(210));
    EXPECT_DOUBLE_EQ(machine.collective_microseconds(kind, 2, 180), curve.microseconds(120));
  }
}

// 3/4 of the matrix are two thirds of the way from 1/2 to 7/8.
TEST(CollectiveTest, LiesBetweenTheMeasuredWorldSizesAroundIt) {
  const Machine machine = with_all_reduce({{2, {{{1, 5}, {1e9, 6}}}}, {8, {{{1, 20}, {1e9, 24}}}}});
  for (const MessageKind kind : {MessageKind::all_reduce, MessageKind::reduce_scatter}) {
    EXPECT_DOUBLE_EQ(machine.collective_microseconds(kind, 4, 1), 15);
    EXPECT_DOUBLE_EQ(machine.collective_microseconds(kind, 4, 1e9), 18);
  }
}

TEST(CollectiveTest, CostsNothingOnOneRank) {
  EXPECT_EQ(preset("a800").collective_microseconds(MessageKind::all_reduce, 1, 1e6), 0);
}

TEST(CopyTest, LiesBetweenTheMeasuredWorldSizesOrTakesTheTimeOfTheLast) {
  const Machine machine = preset("h200-nvlink");
  EXPECT_EQ(machine.copy_microseconds(8, 16 * mib), 103.6);
  EXPECT_EQ(machine.copy_microseconds(16, 16 * mib), 103.6);
  EXPECT_EQ(machine.copy_microseconds(2, 16 * mib), 46.2);
  EXPECT_EQ(machine.store_microseconds(2, 8 * mib), 20.6);
  EXPECT_DOUBLE_EQ(machine.copy_microseconds(6, 16 * mib), 49.8 + (103.6 - 49.8) * 2 / 3);
}

// Presets

TEST(Machine, WithResultsOfCallersHasTheirCurvesInPlaceOfTheOthers) {
  Machine machine = preset("h200-nvlink");
  const auto curves = [](double us) { return CurvesByRanks{{2, {{{1e6, us}, {1e8, 100 * us}}}}}; };
  machine.capped[4] = {{MessageKind::all_reduce, curves(10)}, {MessageKind::all_gather, curves(20)}};
  machine.during_gemm[4] = {{MessageKind::all_reduce, curves(30)}};
  machine.capped_for_callers[4][MessageKind::all_reduce] = curves(15);
  machine.during_gemm_for_callers[4][MessageKind::all_reduce] = curves(45);
  const Machine seen = with_results_of_callers(machine);
  EXPECT_EQ(seen.capped.at(4).at(MessageKind::all_reduce), curves(15));
  EXPECT_EQ(seen.capped.at(4).at(MessageKind::all_gather), curves(20));
  EXPECT_EQ(seen.during_gemm.at(4).at(MessageKind::all_reduce), curves(45));
  EXPECT_EQ(seen.collectives, machine.collectives);
  EXPECT_EQ(with_results_of_callers(seen), seen);
}

TEST(PresetTest, HasTheMeasuredAndThePublishedMachines) {
  EXPECT_THAT(preset_names(), ElementsAre("h200-nvlink", "h200-pcie", "h100-nvlink", "h100-pcie", "a100",
                                          "a800", "l40s", "rtx3090", "rtx4090"));
}

TEST(PresetTest, RefusesAnUnknownNameAndListsTheKnownOnes) {
  try {
    preset("h100");
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "machine");
    EXPECT_THAT(
        error.what(),
        HasSubstr("h200-nvlink, h200-pcie, h100-nvlink, h100-pcie, a100, a800, l40s, rtx3090, rtx4090"));
  }
}

TEST(PresetTest, EveryPresetIsAMachineThatCanBe) {
  for (const std::string& name : preset_names()) {
    EXPECT_NO_THROW(validate(preset(name))) << name;
    EXPECT_EQ(preset(name).name, name);
  }
}

/// Whether what a source begins with, fields or "every field but" some, includes this one.
bool includes(const std::string& fields, const std::string& field) {
  return (fields.find(field) == std::string::npos) == fields.starts_with("every field but");
}

TEST(PresetTest, EveryFigureSaysWhereItComesFrom) {
  for (const std::string& name : preset_names()) {
    std::vector<std::string> all;
    for (const std::string& source : preset(name).sources) {
      EXPECT_THAT(source, AnyOf(HasSubstr(": measured"), HasSubstr(": published"), HasSubstr(": datasheet"),
                                HasSubstr(": derived")))
          << name;
      all.push_back(source.substr(0, source.find(": ")));
    }
    for (const char* field : {"multiprocessors", "teraflops", "tile_microseconds", "launch_microseconds",
                              "signal_microseconds", "memory_gigabytes_per_second", "comm_multiprocessors"}) {
      EXPECT_TRUE(std::ranges::any_of(all, [&](const auto& fields) { return includes(fields, field); }))
          << name << ' ' << field;
    }
  }
}

double gemm_microseconds(const Machine& machine, int m, int n, int k) {
  const Schedule schedule{.multiprocessors = machine.multiprocessors};
  const auto waves = static_cast<std::int64_t>(
      std::ceil(std::ceil(m / 128.0) * std::ceil(n / 256.0) / machine.multiprocessors));
  return machine.gemm_launch_microseconds +
         static_cast<double>(waves) *
             tile_entry_microseconds({.m = m, .n = n, .k = k}, 0, schedule, machine, waves);
}

// Of bench/results/gemm-h200-2026-11-21.json, with tiles of 256 columns.
TEST(PresetTest, H200MeetsMeasuredGemmsWithin10Percent) {
  struct Gemm {
    int m, n, k;
    double microseconds;
  };
  for (const Gemm& gemm :
       {Gemm{1024, 4096, 7168, 77.7}, Gemm{2048, 8192, 4096, 172.5}, Gemm{4096, 4096, 7168, 318.7},
        Gemm{2048, 8192, 14336, 642.8}, Gemm{16384, 4096, 7168, 1335.4}, Gemm{16384, 26624, 16384, 20352}}) {
    const double predicted = gemm_microseconds(preset("h200-nvlink"), gemm.m, gemm.n, gemm.k);
    EXPECT_NEAR(predicted / gemm.microseconds, 1, 0.1) << gemm.m << " " << gemm.n << " " << gemm.k;
  }
}

TEST(PresetTest, A800MeetsThePublishedGemmTimesWithin8Percent) {
  EXPECT_NEAR(gemm_microseconds(preset("a800"), 8192, 8192, 4096) / 2361, 1, 0.08);
  EXPECT_NEAR(gemm_microseconds(preset("a800"), 16384, 8192, 4096) / 4513, 1, 0.08);
}

TEST(PresetTest, H200CollectivesAreTheMeasuredOnes) {
  const Machine machine = preset("h200-nvlink");
  EXPECT_EQ(machine.collective_microseconds(MessageKind::all_reduce, 2, 256 * mib), 891);
  EXPECT_EQ(machine.collective_microseconds(MessageKind::reduce_scatter, 8, 134.2e6), 385);
  EXPECT_EQ(preset("h200-pcie").collective_microseconds(MessageKind::all_reduce, 4, 64 * mib), 4076);
}

TEST(PresetTest, OneTileReaches13PercentOfTheBandwidthOnFourRtx4090) {
  const Machine machine = preset("rtx4090");
  const double tile = 192 * 1024;
  const double whole = 256 * mib;
  const double tile_rate = tile / machine.collective_microseconds(MessageKind::all_reduce, 4, tile);
  const double whole_rate = whole / machine.collective_microseconds(MessageKind::all_reduce, 4, whole);
  EXPECT_NEAR(tile_rate / whole_rate, 0.13, 0.001);
}

// JSON

TEST(MachineJsonTest, ReadsBackWhatItWrote) {
  for (const std::string& name : preset_names()) {
    const Machine machine = preset(name);
    EXPECT_EQ(machine_from_json(machine_to_json(machine)), machine) << name;
  }
}

/// The preset "a800" as JSON with one value replaced, or removed where `value` is discarded.
std::string changed(const std::string& pointer, const nlohmann::json& value) {
  nlohmann::json document = nlohmann::json::parse(machine_to_json(preset("a800")));
  document[nlohmann::json::json_pointer(pointer)] = value;
  return document.dump();
}

std::string without(const std::string& key) {
  nlohmann::json document = nlohmann::json::parse(machine_to_json(preset("a800")));
  document.erase(key);
  return document.dump();
}

TEST(MachineJsonTest, NamesTheKeyOfAWrongValue) {
  struct Case {
    const char* pointer;
    nlohmann::json value;
    const char* argument;
  };
  const nlohmann::json point = {{"size", 1}, {"microseconds", 1}};
  const std::vector<Case> cases = {
      {"/schema_version", 1, "schema_version"},
      {"/schema_version", "2", "schema_version"},
      {"/compute_capability", -1, "compute_capability"},
      {"/compute_capability", 1000, "compute_capability"},
      {"/name", "", "name"},
      {"/name", 5, "name"},
      {"/sources", "measured", "sources"},
      {"/sources/0", 1, "sources[0]"},
      {"/multiprocessors", 0, "multiprocessors"},
      {"/multiprocessors", -1, "multiprocessors"},
      {"/multiprocessors", 108.5, "multiprocessors"},
      {"/multiprocessors", 1e30, "multiprocessors"},
      {"/teraflops", 0, "teraflops"},
      {"/teraflops", 1e-308, "teraflops"},
      {"/teraflops", "NaN", "teraflops"},
      {"/teraflops", nullptr, "teraflops"},
      {"/tile_microseconds", -0.5, "tile_microseconds"},
      {"/launch_microseconds", 0, "launch_microseconds"},
      {"/signal_microseconds", true, "signal_microseconds"},
      {"/memory_gigabytes_per_second", -1, "memory_gigabytes_per_second"},
      {"/block_store_gigabytes_per_second", -1, "block_store_gigabytes_per_second"},
      {"/comm_multiprocessors", 0, "comm_multiprocessors"},
      {"/comm_multiprocessors", 108, "comm_multiprocessors"},
      {"/peer_access", 1, "peer_access"},
      {"/peer_access", false, "copy_engine"},
      {"/collectives", nlohmann::json::array(), "collectives"},
      {"/collectives/copy", {{"2", {point}}}, "collectives.copy"},
      {"/collectives/broadcast", {{"2", {point}}}, "collectives.broadcast"},
      {"/collectives/all_gather", nlohmann::json::object(), "collectives.all_gather"},
      {"/collectives/all_reduce/1", {point}, "collectives.all_reduce.1"},
      {"/collectives/all_reduce/65", {point}, "collectives.all_reduce.65"},
      {"/collectives/all_reduce/02", {point}, "collectives.all_reduce.02"},
      {"/collectives/all_reduce/two", {point}, "collectives.all_reduce.two"},
      {"/collectives/all_reduce/2", nlohmann::json::array(), "collectives.all_reduce.2"},
      {"/collectives/all_reduce/2", 3, "collectives.all_reduce.2"},
      {"/collectives/all_reduce/2/0/size", 0, "collectives.all_reduce.2[0].size"},
      {"/collectives/all_reduce/2/1/size", 1, "collectives.all_reduce.2[1].size"},
      {"/collectives/all_reduce/2/0/microseconds", -1, "collectives.all_reduce.2[0].microseconds"},
      {"/collectives/all_reduce/2/2/microseconds", 740, "collectives.all_reduce.2[2].microseconds"},
      {"/collectives/all_reduce/2/0/milliseconds", 1, "collectives.all_reduce.2[0].milliseconds"},
      {"/copy_engine", nlohmann::json::object(), "copy_engine"},
      {"/collective_slowdowns/0", nlohmann::json::object(), "collective_slowdowns.0"},
      {"/collective_slowdowns/108", nlohmann::json::object(), "collective_slowdowns.108"},
      {"/collective_slowdowns/04", nlohmann::json::object(), "collective_slowdowns.04"},
      {"/collective_slowdowns/4", {{"copy", 1}}, "collective_slowdowns.4.copy"},
      {"/collective_slowdowns/4", {{"broadcast", 1}}, "collective_slowdowns.4.broadcast"},
      {"/collective_slowdowns/4", {{"all_reduce", 0.9}}, "collective_slowdowns.4.all_reduce"},
      {"/collective_slowdowns/4", {{"all_reduce", "1"}}, "collective_slowdowns.4.all_reduce"},
      {"/store/2", {{{"size", 1}}}, "store.2[0].microseconds"},
      {"/colour", "green", "colour"},
  };
  for (const Case& each : cases) {
    EXPECT_EQ(refused_argument([&] { machine_from_json(changed(each.pointer, each.value)); }), each.argument)
        << each.pointer << " = " << each.value;
  }
}

TEST(MachineJsonTest, NamesAKeyThatIsMissing) {
  const nlohmann::json document = nlohmann::json::parse(machine_to_json(preset("a800")));
  for (const auto& [key, value] : document.items()) {
    EXPECT_EQ(refused_argument([&] { machine_from_json(without(key)); }), key);
  }
}

TEST(MachineJsonTest, RefusesWhatIsNotAMachine) {
  for (const char* text :
       {"", "{", "[]", "null", "{} {}", "{\"teraflops\": NaN}", "\xff", "{\"name\":\"a\",\"name\":\"b\"}"}) {
    EXPECT_THROW(machine_from_json(text), InvalidArgument) << text;
  }
}

}  // namespace
}  // namespace flashoverlap
