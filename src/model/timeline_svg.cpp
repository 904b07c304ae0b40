#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <iterator>

#include "flashoverlap/simulate.hpp"
#include "model/pictures.hpp"

namespace flashoverlap {
namespace {

constexpr double picture_width = 1200;
constexpr double margin = 20;
constexpr double left = 130;                  ///< of the time axis
constexpr double right = picture_width - 90;  ///< leaves room for the time at the end of a bar
constexpr double top = 116;                   ///< of the first rank
constexpr double single_track_height = 26;
constexpr double track_height = 18;  ///< where a lane has several
constexpr double lane_gap = 2;
constexpr double rank_gap = 14;
constexpr double font_size = 13;
constexpr double title_font_size = 20;
constexpr double character_width = 0.56;       ///< on average, of the font size
constexpr double bold_character_width = 0.65;  ///< the same in the title

using Rgb = std::array<double, 3>;  // from 0 to 255

/// Okabe and Ito's palette without black, in an order that keeps similar hues apart.
constexpr std::array<Rgb, 7> hues{{{0x56, 0xb4, 0xe9},
                                   {0xd5, 0x5e, 0x00},
                                   {0xcc, 0x79, 0xa7},
                                   {0xe6, 0x9f, 0x00},
                                   {0x00, 0x72, 0xb2},
                                   {0xf0, 0xe4, 0x42},
                                   {0x00, 0x9e, 0x73}}};

/// Shares of white (or, where negative, of black) that are mixed into a hue. As 5 and 7 have no common
/// factor, 35 groups in turn have 35 pairs of hue and share.
constexpr std::array<double, 5> shares{0, 0.25, 0.5, -0.5, -0.3};

constexpr double grey = 0xbb;

double mixed(double channel, double share) {
  return std::round(share < 0 ? channel * (1 + share) : channel + (255 - channel) * share);
}

/// From 0 to 1, near enough to the relative luminance of WCAG 2.
double luminance(const Rgb& rgb) {
  return (0.2126 * rgb[0] * rgb[0] + 0.7152 * rgb[1] * rgb[1] + 0.0722 * rgb[2] * rgb[2]) / (255 * 255);
}

struct Colour {
  std::string fill;       ///< "#56b4e9"
  std::string_view text;  ///< black or white, whichever contrasts more with the fill
};

/// 35 colours before one repeats. Groups next to each other differ in hue and in lightness, so that
/// colour-blind readers tell them apart too. Grey where the group is `none`.
Colour colour_of_group(int group) {
  Rgb rgb{grey, grey, grey};
  if (group >= 0) {
    const auto index = static_cast<std::size_t>(group);
    rgb = hues[index % hues.size()];
    for (double& channel : rgb) channel = mixed(channel, shares[index % shares.size()]);
  }
  constexpr double equal_contrast = 0.2;  // of black and of white text
  return {fmt::format("#{:02x}{:02x}{:02x}", static_cast<int>(rgb[0]), static_cast<int>(rgb[1]),
                      static_cast<int>(rgb[2])),
          luminance(rgb) > equal_contrast ? "#000000" : "#ffffff"};
}

std::string escaped(std::string_view text) {
  std::string xml;
  for (const char c : text) {
    switch (c) {
      case '&': xml += "&amp;"; break;
      case '<': xml += "&lt;"; break;
      case '>': xml += "&gt;"; break;
      case '"': xml += "&quot;"; break;
      default: xml += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return xml;
}

/// 1, 2 or 5 times a power of ten, so that at most twelve steps make up the whole.
double tick_step(double whole) {
  const double least = whole / 12;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least) return factor * power;
  }
  return 10 * power;
}

class Picture {
 public:
  Picture(const Simulation& simulation, const TimelineCaption& caption)
      : simulation_(simulation), caption_(caption), tracks_(lay_out(simulation.timeline)) {
    measure();
    open();
    ticks();
    end_of_run();
    for (int rank = 0; rank < ranks_; ++rank) rank_names(rank);
    for (std::size_t i = 0; i < tracks_.size(); ++i) block(simulation.timeline[i], tracks_[i]);
    if (caption.sequential) sequential_bar(*caption.sequential);
    add("</svg>\n");
  }

  std::string take() { return std::move(svg_); }

 private:
  struct Strip {
    double upper;
    double height;

    /// Base line of text that is centred on the strip.
    double base_line() const { return upper + height / 2 + font_size * 0.35; }
  };

  template <typename... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Values>(values)...);
  }

  void measure() {
    end_us_ = std::max(simulation_.latency_us, 1e-3);
    if (caption_.sequential) end_us_ = std::max(end_us_, caption_.sequential->total_us);
    for (std::size_t i = 0; i < tracks_.size(); ++i) {
      const Interval& interval = simulation_.timeline[i];
      ranks_ = std::max(ranks_, interval.rank + 1);
      end_us_ = std::max(end_us_, interval.end_us);
      int& most = lane_tracks_[static_cast<std::size_t>(interval.lane)];
      most = std::max(most, tracks_[i] + 1);
    }
  }

  double x(double time_us) const { return left + (right - left) * time_us / end_us_; }

  int tracks(Lane lane) const { return lane_tracks_[static_cast<std::size_t>(lane)]; }
  double height_of_track(Lane lane) const { return tracks(lane) == 1 ? single_track_height : track_height; }
  double height(Lane lane) const { return tracks(lane) * height_of_track(lane); }

  Strip strip(int rank) const {
    const double rank_height = height(Lane::gemm) + lane_gap + height(Lane::communication);
    return {top + rank * (rank_height + rank_gap), rank_height};
  }
  Strip strip(int rank, Lane lane) const {
    const double upper = strip(rank).upper + (lane == Lane::gemm ? 0 : height(Lane::gemm) + lane_gap);
    return {upper, height(lane)};
  }
  double bottom() const {
    return strip(ranks_).upper + (caption_.sequential ? single_track_height + rank_gap : 0);
  }

  void open() {
    const std::string title = headline(caption_);
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
        "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"{2}\" fill=\"#222222\">\n",
        picture_width, bottom() + 32, font_size);
    add("<title>{0}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n", escaped(title));
    header_line(32, title, title_font_size, bold_character_width, " font-weight=\"bold\"");
    header_line(54, caption_.subtitle, font_size + 1, character_width, "");
    header_line(76, summary(), font_size + 1, character_width, "");
  }

  /// Text over the whole width, smaller where it would not fit.
  void header_line(double base_line, const std::string& text, double size, double width,
                   std::string_view attributes) {
    if (text.empty()) return;
    const double fitting = (picture_width - 2 * margin) / (width * static_cast<double>(text.size()));
    add("<text x=\"{}\" y=\"{}\" font-size=\"{:.3g}\"{}>{}</text>\n", margin, base_line,
        std::min(size, fitting), attributes, escaped(text));
  }

  std::string summary() const {
    std::string text = fmt::format("GEMM done after {:.1f} µs, all ranks after {:.1f} µs",
                                   simulation_.gemm_us, simulation_.latency_us);
    if (caption_.sequential && simulation_.latency_us > 0) {
      text +=
          fmt::format(": {:.2f} times as fast as sequential ({:.1f} µs)",
                      caption_.sequential->total_us / simulation_.latency_us, caption_.sequential->total_us);
    }
    return text + ". Each colour is a group of tiles and its communication.";
  }

  void ticks() {
    const double step = tick_step(end_us_);
    for (int i = 0; i * step <= end_us_ * (1 + 1e-9); ++i) {
      const double at = x(i * step);
      add("<path d=\"M{0:.1f} {1}V{2}\" stroke=\"#dddddd\"/>\n", at, top - 6, bottom());
      add("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:g}</text>\n", at, bottom() + 18, i * step);
    }
    add("<text x=\"{}\" y=\"{}\">time in µs</text>\n", margin, bottom() + 18);
  }

  void rank_names(int rank) {
    add("<text x=\"{}\" y=\"{:.1f}\" font-weight=\"bold\">rank {}</text>\n", margin, strip(rank).base_line(),
        rank);
    for (const auto& [lane, lane_name] : {std::pair{Lane::gemm, "GEMM"}, {Lane::communication, "comm."}}) {
      const Strip lane_strip = strip(rank, lane);
      add("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", left - 8, lane_strip.base_line(),
          lane_name);
      add("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#000000\" fill-opacity=\"0.04\"/>\n",
          left, lane_strip.upper, right - left, lane_strip.height);
    }
  }

  void block(const Interval& interval, int track) {
    const double track_upper =
        strip(interval.rank, interval.lane).upper + track * height_of_track(interval.lane);
    const bool grouped = interval.group != none;
    const std::string where =
        fmt::format("rank {}{}", interval.rank, grouped ? fmt::format(", group {}", interval.group) : "");
    draw(interval, where, {track_upper, height_of_track(interval.lane)}, colour_of_group(interval.group),
         {interval.label, grouped ? std::to_string(interval.group) : ""});
  }

  void sequential_bar(const SequentialRun& run) {
    const Strip bar{strip(ranks_).upper, single_track_height};
    add("<text x=\"{}\" y=\"{:.1f}\" font-weight=\"bold\">sequential</text>\n", margin, bar.base_line());
    for (const Interval& interval : intervals(run, ranks_)) {
      const std::string time = fmt::format("{:.1f} µs", interval.end_us - interval.start_us);
      draw(interval, "sequential", bar,
           interval.lane == Lane::gemm ? Colour{"#666666", "#ffffff"} : Colour{"#cccccc", "#000000"},
           {interval.label + " " + time, interval.label, time});
    }
    add("<text x=\"{:.1f}\" y=\"{:.1f}\">{:.1f} µs</text>\n", x(run.total_us) + 6, bar.base_line(),
        run.total_us);
  }

  /// A line through all rows where the slowest rank is done.
  void end_of_run() {
    const double at = x(simulation_.latency_us);
    add("<path d=\"M{0:.1f} {1}V{2}\" stroke=\"#222222\" stroke-dasharray=\"4 3\"/>\n", at, top - 6,
        bottom());
    add("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.1f} µs</text>\n", at, top - 10,
        simulation_.latency_us);
  }

  /// A block with its times as tooltip and the first of the labels for which it has room.
  void draw(const Interval& interval, std::string_view where, const Strip& track, const Colour& colour,
            std::initializer_list<std::string> labels) {
    const double from = x(interval.start_us);
    const double width = std::max(x(interval.end_us) - from, 0.5);
    add("<g><title>{}, {}: {:.1f} to {:.1f} µs, {:.1f} µs</title>", where, escaped(interval.label),
        interval.start_us, interval.end_us, interval.end_us - interval.start_us);
    add("<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" stroke=\"#ffffff\" "
        "stroke-width=\"0.8\"/>",
        from, track.upper, width, track.height, colour.fill);
    const auto fits = [width](const std::string& text) {
      return !text.empty() && static_cast<double>(text.size()) * character_width * font_size + 4 <= width;
    };
    const auto* label = std::ranges::find_if(labels, fits);
    if (label != labels.end()) {
      add("<text x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"{}\">{}</text>", from + width / 2,
          track.base_line(), colour.text, escaped(*label));
    }
    add("</g>\n");
  }

  const Simulation& simulation_;
  const TimelineCaption& caption_;
  std::vector<int> tracks_;  ///< of each interval
  double end_us_ = 0;        ///< of the time axis
  int ranks_ = 0;
  std::array<int, 2> lane_tracks_{1, 1};  ///< by lane, the most that any rank needs
  std::string svg_;
};

}  // namespace

std::string timeline_svg(const Simulation& simulation, const TimelineCaption& caption) {
  return Picture(simulation, caption).take();
}

}  // namespace flashoverlap
