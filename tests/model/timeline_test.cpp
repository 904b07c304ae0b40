#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "flashoverlap/plan.hpp"
#include "flashoverlap/simulate.hpp"

namespace flashoverlap {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

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

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t times = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
  return times;
}

/// Whether the text is elements, closed in the reverse of the order in which they were opened, and text
/// between them.
bool is_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t at = 0; (at = xml.find_first_of("<>", at)) != std::string::npos;) {
    const std::size_t end = xml.find_first_of("<>", at + 1);
    if (xml[at] == '>' || end == std::string::npos || xml[end] == '<') return false;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
    at = end + 1;
  }
  return open.empty();
}

/// An attribute of the block whose tooltip begins like this.
std::string block_attribute(const std::string& svg, const std::string& tooltip,
                            const std::string& attribute) {
  const std::size_t title = svg.find("<title>" + tooltip);
  if (title == std::string::npos) return "no such block";
  const std::string begin = " " + attribute + "=\"";
  const std::size_t value = svg.find(begin, svg.find("<rect", title)) + begin.size();
  return svg.substr(value, svg.find('"', value) - value);
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

TEST(TimelineSvgTest, SetsALongTitleSmallerSoThatItFits) {
  const auto title_size = [](std::size_t letters) {
    const std::string svg = timeline_svg(two_ranks(), std::string(letters, 'x'));
    const std::string begin = "y=\"30\" font-size=\"";
    return std::stod(svg.substr(svg.find(begin) + begin.size()));
  };
  EXPECT_EQ(title_size(20), 17);
  constexpr double room = 1160;
  constexpr double letter_width = 0.7;  // of their size
  for (const std::size_t letters : {100, 148, 200, 400})
    EXPECT_NEAR(title_size(letters) * letter_width * static_cast<double>(letters), room, room / 100);
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
  EXPECT_GT(std::stod(block_attribute(svg, "rank 0, group 1, group 1", "y")),
            std::stod(block_attribute(svg, "rank 0, group 0, group 0", "y")));
}

TEST(TimelineSvgTest, GivesTilesAndCommunicationOfAGroupTheSameColour) {
  const std::string svg = timeline_svg(two_ranks(), "");
  const std::string tiles = block_attribute(svg, "rank 0, group 0, group 0", "fill");
  EXPECT_THAT(tiles, StartsWith("#"));
  EXPECT_EQ(block_attribute(svg, "rank 0, group 0, all_reduce 8.4 MB", "fill"), tiles);
  EXPECT_NE(block_attribute(svg, "rank 0, group 1, group 1", "fill"), tiles);
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
    EXPECT_EQ(complete[i]["tid"].get<int>() % 2, interval.lane == Lane::gemm ? 0 : 1);
    EXPECT_EQ(complete[i]["ts"], interval.start_us);
    EXPECT_EQ(complete[i]["dur"], interval.end_us - interval.start_us);
    EXPECT_EQ(complete[i]["args"]["group"], interval.group);
  }
}

TEST(ChromeTraceTest, GivesWhatOverlapsThreadsOfItsOwn) {
  Simulation simulation = two_ranks();
  simulation.timeline = {
      {.rank = 0, .lane = Lane::gemm, .group = 0, .label = "a", .start_us = 0, .end_us = 10},
      {.rank = 0, .lane = Lane::gemm, .group = 1, .label = "b", .start_us = 5, .end_us = 15},
      {.rank = 0, .lane = Lane::gemm, .group = 2, .label = "c", .start_us = 10, .end_us = 20}};
  const auto complete = events_of_phase(simulation, "X");
  ASSERT_EQ(complete.size(), 3u);
  EXPECT_EQ(complete[0]["tid"], complete[2]["tid"]);
  EXPECT_NE(complete[0]["tid"], complete[1]["tid"]);
  std::vector<std::string> names;
  for (const nlohmann::json& event : events_of_phase(simulation, "M")) names.push_back(event["args"]["name"]);
  EXPECT_THAT(names, ::testing::ElementsAre("rank 0", "GEMM", "communication", "GEMM 2"));
}

TEST(ChromeTraceTest, NamesRanksAndLanes) {
  std::map<std::string, int> names;
  for (const nlohmann::json& event : events_of_phase(two_ranks(), "M")) ++names[event["args"]["name"]];
  const std::map<std::string, int> expected{
      {"rank 0", 1}, {"rank 1", 1}, {"GEMM", 2}, {"GEMM 2", 2}, {"communication", 2}};
  EXPECT_EQ(names, expected);
}

TEST(ChromeTraceTest, CarriesAnyTitle) {
  EXPECT_EQ(parsed_trace({}, "a \"b\" \\ c")["otherData"]["title"], "a \"b\" \\ c");
  EXPECT_NO_THROW(parsed_trace({}, "\xff"));
}

}  // namespace
}  // namespace flashoverlap
