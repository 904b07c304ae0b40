#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "flashoverlap/plan.hpp"
#include "flashoverlap/simulate.hpp"

namespace flashoverlap {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Simulation two_ranks() {
  Simulation simulation{.latency_us = 100, .gemm_us = 80};
  for (int rank : {0, 1}) {
    simulation.timeline.push_back({rank, Lane::gemm, 0, "group 0", 0, 50});
    simulation.timeline.push_back({rank, Lane::gemm, 1, "group 1", 40, 80});
    simulation.timeline.push_back({rank, Lane::communication, 0, "all_reduce 8.4 MB", 52, 60});
    simulation.timeline.push_back({rank, Lane::communication, none, "copy 1.0 kB", 82, 100});
  }
  return simulation;
}

std::size_t count(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return static_cast<std::size_t>(std::distance(std::sregex_iterator(text.begin(), text.end(), regex), {}));
}

/// Whether every element is closed, in the order in which elements were opened.
bool is_well_formed(const std::string& xml) {
  static const std::regex tag("<(/?)([a-z]+)([^<>]*?)(/?)>");
  std::vector<std::string> open;
  std::string rest = std::regex_replace(xml, tag, "");
  if (rest.find_first_of("<>") != std::string::npos) return false;
  for (auto match = std::sregex_iterator(xml.begin(), xml.end(), tag); match != std::sregex_iterator();
       ++match) {
    const std::string element = (*match)[2];
    if ((*match)[1] == "/") {
      if (open.empty() || open.back() != element) return false;
      open.pop_back();
    } else if ((*match)[4] != "/") {
      open.push_back(element);
    }
  }
  return open.empty();
}

TEST(TimelineSvgTest, DrawsEveryIntervalWithItsTimes) {
  const std::string svg = timeline_svg(two_ranks(), "two ranks");
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_EQ(count(svg, "<g><title>"), 8u);
  EXPECT_THAT(svg, HasSubstr("<title>rank 1, group 0, all_reduce 8.4 MB: 52.0 to 60.0 µs, 8.0 µs</title>"));
  EXPECT_THAT(svg, HasSubstr("<title>rank 0, copy 1.0 kB: 82.0 to 100.0 µs, 18.0 µs</title>"));
}

TEST(TimelineSvgTest, NamesTitleRanksLanesAndTimes) {
  const std::string svg = timeline_svg(two_ranks(), "two ranks");
  for (const char* text :
       {">two ranks<", ">rank 0<", ">rank 1<", ">GEMM<", ">comm.<", ">time in µs<", ">100<", ">20<"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  EXPECT_THAT(svg, HasSubstr("all ranks done after 100.0 µs, GEMM after 80.0 µs"));
}

TEST(TimelineSvgTest, BringsItsOwnBackground) {
  EXPECT_THAT(timeline_svg(two_ranks(), ""),
              HasSubstr("<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"));
}

TEST(TimelineSvgTest, EscapesTitleAndLabels) {
  Simulation simulation = two_ranks();
  simulation.timeline[0].label = "a<b>&\"c\"";
  const std::string svg = timeline_svg(simulation, "x & y < z \"q\"");
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_THAT(svg, HasSubstr("x &amp; y &lt; z &quot;q&quot;"));
  EXPECT_THAT(svg, HasSubstr("a&lt;b&gt;&amp;&quot;c&quot;"));
}

TEST(TimelineSvgTest, DrawsOverlappingGroupsBelowEachOther) {
  const std::string svg = timeline_svg(two_ranks(), "");
  std::smatch first;
  std::smatch second;
  ASSERT_TRUE(std::regex_search(
      svg, first, std::regex("group 0, group 0:[^<]*</title><rect x=\"[0-9.]+\" y=\"([0-9.]+)\"")));
  ASSERT_TRUE(std::regex_search(
      svg, second, std::regex("group 1, group 1:[^<]*</title><rect x=\"[0-9.]+\" y=\"([0-9.]+)\"")));
  EXPECT_GT(std::stod(second[1]), std::stod(first[1]));
}

TEST(TimelineSvgTest, GivesTilesAndCommunicationOfAGroupTheSameColour) {
  const std::string svg = timeline_svg(two_ranks(), "");
  const auto fill_after = [&](const std::string& title) {
    std::smatch match;
    EXPECT_TRUE(
        std::regex_search(svg, match, std::regex(title + ":[^<]*</title><rect[^>]*fill=\"(#[0-9a-f]+)\"")))
        << title;
    return match[1].str();
  };
  EXPECT_EQ(fill_after("rank 0, group 0, group 0"), fill_after("rank 0, group 0, all_reduce 8.4 MB"));
  EXPECT_NE(fill_after("rank 0, group 0, group 0"), fill_after("rank 0, group 1, group 1"));
}

TEST(TimelineSvgTest, LeavesOutLabelsThatDoNotFit) {
  Simulation simulation = two_ranks();
  for (Interval& interval : simulation.timeline) interval.end_us = interval.start_us + 0.1;
  EXPECT_THAT(timeline_svg(simulation, ""), Not(HasSubstr(">group 0</text>")));
}

TEST(TimelineSvgTest, DrawsAnEmptyTimeline) {
  EXPECT_TRUE(is_well_formed(timeline_svg({}, "empty")));
}

nlohmann::json parsed_trace(const Simulation& simulation, const std::string& title) {
  return nlohmann::json::parse(chrome_trace(simulation, title));
}

std::vector<nlohmann::json> events_of_phase(const Simulation& simulation, const std::string& phase) {
  const nlohmann::json trace = parsed_trace(simulation, "");
  std::vector<nlohmann::json> events;
  std::ranges::copy_if(trace["traceEvents"], std::back_inserter(events),
                       [&](const nlohmann::json& event) { return event["ph"] == phase; });
  return events;
}

TEST(ChromeTraceTest, HasOneCompleteEventPerInterval) {
  const Simulation simulation = two_ranks();
  const auto complete = events_of_phase(simulation, "X");
  ASSERT_EQ(complete.size(), simulation.timeline.size());
  for (std::size_t i = 0; i < complete.size(); ++i) {
    const Interval& interval = simulation.timeline[i];
    EXPECT_EQ(complete[i]["name"], interval.label);
    EXPECT_EQ(complete[i]["pid"], interval.rank);
    EXPECT_EQ(complete[i]["tid"], interval.lane == Lane::gemm ? 0 : 1);
    EXPECT_EQ(complete[i]["ts"], interval.start_us);
    EXPECT_EQ(complete[i]["dur"], interval.end_us - interval.start_us);
    EXPECT_EQ(complete[i]["args"]["group"], interval.group);
  }
}

TEST(ChromeTraceTest, NamesRanksAndLanes) {
  std::map<std::string, int> names;
  for (const nlohmann::json& event : events_of_phase(two_ranks(), "M")) ++names[event["args"]["name"]];
  const std::map<std::string, int> expected{{"rank 0", 1}, {"rank 1", 1}, {"GEMM", 2}, {"communication", 2}};
  EXPECT_EQ(names, expected);
}

TEST(ChromeTraceTest, CarriesAnyTitle) {
  EXPECT_EQ(parsed_trace({}, "a \"b\" \\ c")["otherData"]["title"], "a \"b\" \\ c");
  EXPECT_NO_THROW(parsed_trace({}, "\xff"));
}

}  // namespace
}  // namespace flashoverlap
