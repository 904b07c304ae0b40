#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "flashoverlap/plan.hpp"
#include "flashoverlap/simulate.hpp"

namespace flashoverlap {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TimelineCaption titled(const std::string& title) { return {.title = title}; }

TimelineCaption compared_with(const SequentialRun& run) { return {.title = "compared", .sequential = run}; }

constexpr SequentialRun sequential{.gemm_us = 70, .communication_us = 40, .total_us = 115};

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

/// Whether every element is closed, the last opened first.
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

struct Bar {
  double start;
  double end;
};

/// Where the block whose tooltip begins like this lies on the time axis.
Bar bar(const std::string& svg, const std::string& tooltip) {
  const double start = std::stod(block_attribute(svg, tooltip, "x"));
  return {start, start + std::stod(block_attribute(svg, tooltip, "width"))};
}

TEST(TimelineSvgTest, DrawsEveryIntervalWithItsTimes) {
  const std::string svg = timeline_svg(two_ranks(), titled("two ranks"));
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_EQ(count(svg, "<g><title>"), 8u);
  EXPECT_THAT(svg, HasSubstr("<title>rank 1, group 0, all_reduce 8.4 MB: 52.0 to 60.0 µs, 8.0 µs</title>"));
  EXPECT_THAT(svg, HasSubstr("<title>rank 0, copy 1.0 kB: 82.0 to 100.0 µs, 18.0 µs</title>"));
}

TEST(TimelineSvgTest, NamesTitleRanksLanesAndTimes) {
  const std::string svg = timeline_svg(two_ranks(), titled("two ranks"));
  for (const char* text : {">predicted: two ranks<", ">rank 0<", ">rank 1<", ">GEMM<", ">comm.<",
                           ">time in µs<", ">100<", ">20<"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  EXPECT_THAT(svg, HasSubstr("GEMM done after 80.0 µs, all ranks after 100.0 µs"));
}

TEST(TimelineSvgTest, SaysInItsTitleWhetherItIsPredictedOrMeasured) {
  TimelineCaption caption{.title = "two ranks", .subtitle = "the machine"};
  for (const auto& [source, title] : {std::pair{TimelineSource::predicted, "predicted: two ranks"},
                                      {TimelineSource::measured, "measured: two ranks"}}) {
    caption.source = source;
    const std::string svg = timeline_svg(two_ranks(), caption);
    EXPECT_THAT(svg, HasSubstr(std::string("\n<title>") + title + "</title>"));
    EXPECT_THAT(svg, HasSubstr(std::string(" font-weight=\"bold\">") + title + "</text>"));
    EXPECT_THAT(svg, HasSubstr(">the machine</text>"));
  }
}

TEST(TimelineSvgTest, SetsALongHeaderSmallerSoThatItFits) {
  constexpr double room = 1160;
  const auto width = [](const std::string& base_line, std::size_t letters) {
    const std::string text(letters, 'x');
    const std::string svg = timeline_svg(two_ranks(), {.title = text, .subtitle = text});
    const std::string begin = "y=\"" + base_line + "\" font-size=\"";
    return std::stod(svg.substr(svg.find(begin) + begin.size())) * static_cast<double>(letters);
  };
  constexpr double title_letter = 0.65;  // of the font size
  constexpr double subtitle_letter = 0.56;
  EXPECT_LT(width("32", 20) * title_letter, room / 2);
  for (const std::size_t letters : {200, 400}) {
    EXPECT_LE(width("32", letters) * title_letter, room * 1.01);
    EXPECT_NEAR(width("54", letters) * subtitle_letter, room, room / 100);
  }
}

TEST(TimelineSvgTest, ComparesWithTheSequentialRunOnTheSameScale) {
  const std::string svg = timeline_svg(two_ranks(), compared_with(sequential));
  EXPECT_TRUE(is_well_formed(svg));
  const Bar gemm = bar(svg, "sequential, GEMM: 0.0 to 70.0 µs");
  const Bar communication = bar(svg, "sequential, communication: 75.0 to 115.0 µs");
  const Bar group = bar(svg, "rank 0, group 0, group 0: 0.0 to 50.0 µs");
  EXPECT_NEAR((gemm.end - gemm.start) / (group.end - group.start), 70.0 / 50, 1e-3);
  EXPECT_NEAR((communication.end - gemm.start) / (group.end - group.start), 115.0 / 50, 1e-3);
  EXPECT_LT(gemm.end, communication.start);
  EXPECT_LE(communication.end, 1120) << "no room for its time";
  EXPECT_DOUBLE_EQ(gemm.start, group.start);
  EXPECT_GT(std::stod(block_attribute(svg, "sequential, GEMM", "y")),
            std::stod(block_attribute(svg, "rank 1, copy 1.0 kB", "y")));
  EXPECT_THAT(svg, HasSubstr(">sequential</text>"));
  EXPECT_THAT(svg, HasSubstr(">GEMM 70.0 µs</text>"));
  EXPECT_THAT(svg, HasSubstr(">115.0 µs</text>"));
  EXPECT_THAT(svg, HasSubstr("1.15 times as fast as sequential (115.0 µs)"));
}

TEST(TimelineSvgTest, DrawsTheCommunicationOfASequentialRunFirstWhereItComesFirst) {
  SequentialRun run = sequential;
  run.communicates_first = true;
  const std::string svg = timeline_svg(two_ranks(), compared_with(run));
  EXPECT_LT(bar(svg, "sequential, communication: 0.0 to 40.0 µs").end,
            bar(svg, "sequential, GEMM: 45.0 to 115.0 µs").start);
}

TEST(TimelineSvgTest, KeepsPartsOfASequentialRunThatTakeLongerAloneThanTogetherApart) {
  const std::string svg =
      timeline_svg(two_ranks(), compared_with({.gemm_us = 70, .communication_us = 40, .total_us = 105}));
  EXPECT_LE(bar(svg, "sequential, GEMM").end, bar(svg, "sequential, communication").start + 0.01);
  EXPECT_THAT(svg, HasSubstr("<title>sequential, communication: 70.0 to 105.0 µs"));
}

TEST(TimelineSvgTest, HasNoBarWithoutASequentialRun) {
  EXPECT_THAT(timeline_svg(two_ranks(), titled("alone")), Not(HasSubstr("sequential")));
}

TEST(TimelineSvgTest, LeavesOutTheCommunicationOfASequentialRunThatHasNone) {
  const std::string svg = timeline_svg(two_ranks(), compared_with({.gemm_us = 70, .total_us = 70}));
  EXPECT_THAT(svg, HasSubstr("<title>sequential, GEMM"));
  EXPECT_THAT(svg, Not(HasSubstr("<title>sequential, communication")));
}

TEST(TimelineSvgTest, BringsItsOwnBackground) {
  EXPECT_THAT(timeline_svg(two_ranks(), {}),
              HasSubstr("<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"));
}

TEST(TimelineSvgTest, EscapesTitleAndLabels) {
  Simulation simulation = two_ranks();
  simulation.timeline[0].label = "a<b>&\"c\"";
  const std::string svg = timeline_svg(simulation, titled("x & y < z \"q\""));
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_THAT(svg, HasSubstr("x &amp; y &lt; z &quot;q&quot;"));
  EXPECT_THAT(svg, HasSubstr("a&lt;b&gt;&amp;&quot;c&quot;"));
}

TEST(TimelineSvgTest, DrawsOverlappingGroupsBelowEachOther) {
  const std::string svg = timeline_svg(two_ranks(), {});
  EXPECT_GT(std::stod(block_attribute(svg, "rank 0, group 1, group 1", "y")),
            std::stod(block_attribute(svg, "rank 0, group 0, group 0", "y")));
}

// Measured intervals come by message, not by their start.
TEST(TimelineSvgTest, DrawsIntervalsInAnyOrderWithoutOverlap) {
  Simulation simulation = two_ranks();
  simulation.timeline = {{0, Lane::gemm, 1, "group 1", 40, 80},
                         {0, Lane::communication, 1, "copy", 70, 90},
                         {0, Lane::gemm, 0, "group 0", 0, 40},
                         {0, Lane::gemm, 2, "group 2", 80, 100}};
  const std::string svg = timeline_svg(simulation, {});
  const std::string y = block_attribute(svg, "rank 0, group 0", "y");
  EXPECT_EQ(block_attribute(svg, "rank 0, group 1, group 1", "y"), y);
  EXPECT_EQ(block_attribute(svg, "rank 0, group 2", "y"), y);
}

TEST(TimelineSvgTest, GivesTilesAndCommunicationOfAGroupTheSameColour) {
  const std::string svg = timeline_svg(two_ranks(), {});
  const std::string tiles = block_attribute(svg, "rank 0, group 0, group 0", "fill");
  EXPECT_THAT(tiles, StartsWith("#"));
  EXPECT_EQ(block_attribute(svg, "rank 0, group 0, all_reduce 8.4 MB", "fill"), tiles);
  EXPECT_NE(block_attribute(svg, "rank 0, group 1, group 1", "fill"), tiles);
}

using Rgb = std::array<double, 3>;  // linear, from 0 to 1

Rgb linear(const std::string& fill) {
  Rgb rgb{};
  for (std::size_t i = 0; i < 3; ++i) {
    const double value = std::stoi(fill.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
    rgb[i] = value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4);
  }
  return rgb;
}

Rgb product(const std::array<Rgb, 3>& matrix, const Rgb& rgb) {
  Rgb result{};
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) result[i] += matrix[i][j] * rgb[j];
    result[i] = std::clamp(result[i], 0.0, 1.0);
  }
  return result;
}

double contrast(const std::string& one, const std::string& other) {
  const auto luminance = [](const Rgb& rgb) { return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]; };
  const auto [darker, lighter] = std::minmax({luminance(linear(one)), luminance(linear(other))});
  return (lighter + 0.05) / (darker + 0.05);
}

/// In CIELAB (1976), where 2.3 is just noticeable.
double distance(const Rgb& one, const Rgb& other) {
  const auto lab = [](const Rgb& rgb) {
    constexpr std::array<Rgb, 3> to_xyz{{{0.4339, 0.3762, 0.1899},  // over the white point's
                                         {0.2126, 0.7152, 0.0722},
                                         {0.0177, 0.1094, 0.8729}}};
    Rgb f = product(to_xyz, rgb);
    for (double& value : f) value = value > 0.008856 ? std::cbrt(value) : 7.787 * value + 16.0 / 116;
    return Rgb{116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])};
  };
  const Rgb from = lab(one);
  const Rgb to = lab(other);
  return std::hypot(from[0] - to[0], from[1] - to[1], from[2] - to[2]);
}

struct BlockColours {
  std::vector<std::string> fills;
  std::vector<std::string> texts;
};

BlockColours colours_of(int groups) {
  Simulation simulation;
  for (int group = 0; group < groups; ++group) {
    const double start_us = 10.0 * group;
    simulation.timeline.push_back({0, Lane::gemm, group, "x", start_us, start_us + 10});
  }
  const std::string svg = timeline_svg(simulation, {});
  BlockColours colours;
  for (int group = 0; group < groups; ++group) {
    const std::string tooltip = "rank 0, group " + std::to_string(group) + ", x";
    colours.fills.push_back(block_attribute(svg, tooltip, "fill"));
    const std::size_t text = svg.find("text-anchor=\"middle\" fill=\"", svg.find("<title>" + tooltip));
    colours.texts.push_back(svg.substr(text + 27, 7));
  }
  return colours;
}

TEST(TimelineSvgTest, RepeatsNoColourWithin35Groups) {
  const auto fills = colours_of(35).fills;
  EXPECT_EQ(std::set<std::string>(fills.begin(), fills.end()).size(), 35u);
}

TEST(TimelineSvgTest, WritesReadablyOnEveryColour) {
  const auto [fills, texts] = colours_of(35);
  for (std::size_t i = 0; i < fills.size(); ++i) EXPECT_GE(contrast(fills[i], texts[i]), 4.5) << fills[i];
}

// The matrices simulate the three kinds of colour blindness at full severity (Machado et al., 2009).
TEST(TimelineSvgTest, ColoursNearbyGroupsSoThatColourBlindReadersTellThemApart) {
  const std::map<std::string, std::array<Rgb, 3>> readers{
      {"all colours", {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}}},
      {"protanopia",
       {{{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}}}},
      {"deuteranopia",
       {{{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}}}},
      {"tritanopia",
       {{{1.255528, -0.076749, -0.178779},
         {-0.078411, 0.930809, 0.147602},
         {0.004733, 0.691367, 0.303900}}}}};
  const auto fills = colours_of(38).fills;
  for (const auto& [reader, matrix] : readers) {
    for (std::size_t i = 0; i < 35; ++i) {
      const auto away = [&](std::size_t steps) {
        return distance(product(matrix, linear(fills[i])), product(matrix, linear(fills[i + steps])));
      };
      EXPECT_GT(away(1), 15) << reader << ", groups " << i << " and " << i + 1;
      EXPECT_GT(away(2), 11) << reader << ", groups " << i << " and " << i + 2;
      EXPECT_GT(away(3), 9) << reader << ", groups " << i << " and " << i + 3;
    }
  }
}

TEST(TimelineSvgTest, LeavesOutLabelsThatDoNotFit) {
  Simulation simulation = two_ranks();
  for (Interval& interval : simulation.timeline) interval.end_us = interval.start_us + 0.1;
  EXPECT_THAT(timeline_svg(simulation, {}), Not(HasSubstr(">group 0</text>")));
}

TEST(TimelineSvgTest, DrawsAnEmptyTimeline) {
  EXPECT_TRUE(is_well_formed(timeline_svg({}, titled("empty"))));
}

nlohmann::json parsed_trace(const Simulation& simulation, const TimelineCaption& caption) {
  return nlohmann::json::parse(chrome_trace(simulation, caption));
}

std::vector<nlohmann::json> events_of_phase(const Simulation& simulation, const std::string& phase,
                                            const TimelineCaption& caption = {}) {
  const nlohmann::json trace = parsed_trace(simulation, caption);
  std::vector<nlohmann::json> events;
  std::ranges::copy_if(trace["traceEvents"], std::back_inserter(events),
                       [&](const nlohmann::json& event) { return event["ph"] == phase; });
  return events;
}

std::vector<std::string> names_in(const Simulation& simulation, const TimelineCaption& caption = {}) {
  std::vector<std::string> names;
  for (const nlohmann::json& event : events_of_phase(simulation, "M", caption)) {
    if (event["args"].contains("name")) names.push_back(event["args"]["name"]);
  }
  return names;
}

/// Processes and their threads, named, in the order of their sort indices.
std::vector<std::string> sorted_names(const Simulation& simulation, const TimelineCaption& caption) {
  using Place = std::pair<int, int>;  // of process and thread
  std::map<int, int> process_order;
  std::map<Place, Place> order;
  std::map<Place, std::string> names;
  for (const nlohmann::json& event : events_of_phase(simulation, "M", caption)) {
    const int process = event["pid"];
    const Place place{process, event["tid"]};
    if (event["name"] == "process_sort_index") process_order[process] = event["args"]["sort_index"];
    if (event["name"] == "thread_sort_index") order[place] = {0, event["args"]["sort_index"]};
    if (event["name"] == "thread_name") names[place] = event["args"]["name"];
    if (event["name"] == "process_name") names[{process, -1}] = event["args"]["name"];
  }
  std::map<Place, std::string> sorted;
  for (const auto& [place, name] : names) {
    const bool is_process = place.second == -1;
    sorted[{process_order.at(place.first), is_process ? -1 : order.at(place).second}] = name;
  }
  std::vector<std::string> result;
  for (const auto& [place, name] : sorted) result.push_back(name);
  return result;
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
  EXPECT_THAT(names_in(simulation), ::testing::ElementsAre("rank 0", "GEMM", "GEMM 2", "communication"));
}

TEST(ChromeTraceTest, NamesRanksAndLanes) {
  std::map<std::string, int> names;
  for (const std::string& name : names_in(two_ranks())) ++names[name];
  const std::map<std::string, int> expected{
      {"rank 0", 1}, {"rank 1", 1}, {"GEMM", 2}, {"GEMM 2", 2}, {"communication", 2}};
  EXPECT_EQ(names, expected);
}

TEST(ChromeTraceTest, SortsRanksAndTheGemmBeforeTheCommunication) {
  Simulation simulation = two_ranks();
  std::ranges::reverse(simulation.timeline);
  EXPECT_THAT(sorted_names(simulation, compared_with(sequential)),
              ::testing::ElementsAre("rank 0", "GEMM", "GEMM 2", "communication", "rank 1", "GEMM", "GEMM 2",
                                     "communication", "sequential", "GEMM", "communication"));
}

TEST(ChromeTraceTest, ShowsTheSequentialRunAsAProcessOfItsOwn) {
  const auto complete = events_of_phase(two_ranks(), "X", compared_with(sequential));
  ASSERT_EQ(complete.size(), 10u);
  const nlohmann::json& gemm = complete[8];
  const nlohmann::json& communication = complete[9];
  EXPECT_EQ(gemm["name"], "GEMM");
  EXPECT_EQ(gemm["pid"], 2);
  EXPECT_EQ(gemm["dur"], 70);
  EXPECT_EQ(communication["name"], "communication");
  EXPECT_EQ(communication["pid"], 2);
  EXPECT_EQ(communication["ts"], 75);
  EXPECT_EQ(communication["dur"], 40);
  EXPECT_EQ(parsed_trace(two_ranks(), compared_with(sequential))["otherData"]["sequential_us"], 115);
}

TEST(ChromeTraceTest, SaysWhetherItIsPredictedOrMeasured) {
  TimelineCaption caption = titled("two ranks");
  EXPECT_EQ(parsed_trace({}, caption)["otherData"]["title"], "predicted: two ranks");
  caption.source = TimelineSource::measured;
  EXPECT_EQ(parsed_trace({}, caption)["otherData"]["title"], "measured: two ranks");
  EXPECT_EQ(parsed_trace({}, caption)["otherData"]["source"], "measured");
}

TEST(ChromeTraceTest, CarriesAnyTitle) {
  EXPECT_EQ(parsed_trace({}, titled("a \"b\" \\ c"))["otherData"]["title"], "predicted: a \"b\" \\ c");
  EXPECT_NO_THROW(parsed_trace({}, titled("\xff")));
}

}  // namespace
}  // namespace flashoverlap
