#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "flashoverlap/simulate.hpp"
#include "model/tracks.hpp"

namespace flashoverlap {

namespace {

constexpr double picture_width = 1200;
constexpr double left = 150;  ///< of the time axis
constexpr double right = picture_width - 30;
constexpr double top = 76;  ///< of the first rank
constexpr double single_track_height = 20;
constexpr double track_height = 14;  ///< where a lane has several
constexpr double lane_gap = 2;
constexpr double rank_gap = 12;
constexpr double font_size = 11;
constexpr double character_width = 6.2;  ///< on the average, at that size

struct Colour {
  std::string_view fill;
  std::string_view text;
};

/// Okabe and Ito's palette without black: told apart by colour-blind readers too.
constexpr std::array<Colour, 7> palette{{{"#56b4e9", "#000000"},
                                         {"#e69f00", "#000000"},
                                         {"#009e73", "#000000"},
                                         {"#cc79a7", "#000000"},
                                         {"#f0e442", "#000000"},
                                         {"#0072b2", "#ffffff"},
                                         {"#d55e00", "#000000"}}};
constexpr Colour no_group{"#bbbbbb", "#000000"};

Colour colour_of(int group) {
  return group < 0 ? no_group : palette[static_cast<std::size_t>(group) % palette.size()];
}

std::string escaped(std::string_view text) {
  std::string xml;
  for (const char c : text) {
    switch (c) {
      case '&':
        xml += "&amp;";
        break;
      case '<':
        xml += "&lt;";
        break;
      case '>':
        xml += "&gt;";
        break;
      case '"':
        xml += "&quot;";
        break;
      default:
        xml += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
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
  Picture(const Simulation& simulation, const std::string& title)
      : simulation_(simulation),
        end_us_(std::max(simulation.latency_us, 1e-3)),
        tracks_(lay_out(simulation)) {
    measure();
    open(title);
    ticks();
    for (int rank = 0; rank < ranks_; ++rank) rank_names(rank);
    for (std::size_t i = 0; i < simulation.timeline.size(); ++i) block(simulation.timeline[i], tracks_[i]);
    add("</svg>\n");
  }

  std::string take() { return std::move(svg_); }

 private:
  template <typename... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Values>(values)...);
  }

  void measure() {
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
  double rank_height() const { return height(Lane::gemm) + lane_gap + height(Lane::communication); }
  double y(int rank) const { return top + rank * (rank_height() + rank_gap); }
  double y(int rank, Lane lane) const {
    return y(rank) + (lane == Lane::gemm ? 0 : height(Lane::gemm) + lane_gap);
  }
  double bottom() const { return y(ranks_); }

  /// Base line of text that is centred on a strip.
  static double base_line(double upper, double strip_height) {
    return upper + strip_height / 2 + font_size / 3;
  }

  void open(const std::string& title) {
    const double height = bottom() + 40;
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
        "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"{2}\" fill=\"#222222\">\n",
        picture_width, height, font_size);
    add("<title>{0}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n", escaped(title));
    add("<text x=\"20\" y=\"30\" font-size=\"{:.3g}\" font-weight=\"bold\">{}</text>\n", title_size(title),
        escaped(title));
    add("<text x=\"20\" y=\"50\" fill=\"#555555\">all ranks done after {:.1f} µs, GEMM after {:.1f} µs; a "
        "colour is a "
        "group of tiles and its communication</text>\n",
        simulation_.latency_us, simulation_.gemm_us);
  }

  /// The largest at which it fits, as bold letters are 0.7 of their size wide.
  static double title_size(const std::string& title) {
    constexpr double largest = 17;
    return std::min(largest, (picture_width - 40) / (0.7 * static_cast<double>(title.size())));
  }

  void ticks() {
    const double step = tick_step(end_us_);
    const double axis = bottom();
    for (int i = 0; i * step <= end_us_ * (1 + 1e-9); ++i) {
      const double at = x(i * step);
      add("<path d=\"M{0:.1f} {1}V{2}\" stroke=\"#dddddd\"/>\n", at, top - 6, axis);
      add("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:g}</text>\n", at, axis + 16, i * step);
    }
    add("<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#555555\">time in µs</text>\n", right, axis + 32);
  }

  void rank_names(int rank) {
    add("<text x=\"20\" y=\"{:.1f}\" font-weight=\"bold\">rank {}</text>\n",
        base_line(y(rank), rank_height()), rank);
    for (const auto& [lane, lane_name] : {std::pair{Lane::gemm, "GEMM"}, {Lane::communication, "comm."}}) {
      add("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", left - 8,
          base_line(y(rank, lane), height(lane)), lane_name);
      add("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#000000\" fill-opacity=\"0.04\"/>\n",
          left, y(rank, lane), right - left, height(lane));
    }
  }

  void block(const Interval& interval, std::ptrdiff_t track) {
    const Colour colour = colour_of(interval.group);
    const double from = x(interval.start_us);
    const double width = std::max(x(interval.end_us) - from, 0.5);
    const double strip_height = height_of_track(interval.lane);
    const double upper = y(interval.rank, interval.lane) + static_cast<double>(track) * strip_height;
    const std::string group = interval.group == none ? "" : fmt::format(", group {}", interval.group);
    add("<g><title>rank {}{}, {}: {:.1f} to {:.1f} µs, {:.1f} µs</title>", interval.rank, group,
        escaped(interval.label), interval.start_us, interval.end_us, interval.end_us - interval.start_us);
    add("<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" stroke=\"#ffffff\" "
        "stroke-width=\"0.8\"/>",
        from, upper, width, strip_height, colour.fill);
    if (const std::string text = fitting_label(interval, width); !text.empty()) {
      add("<text x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"{}\">{}</text>", from + width / 2,
          base_line(upper, strip_height), colour.text, escaped(text));
    }
    add("</g>\n");
  }

  /// The label, or only the group where there is no room for it, or nothing.
  static std::string fitting_label(const Interval& interval, double width) {
    const auto fits = [width](const std::string& text) {
      return static_cast<double>(text.size()) * character_width + 6 <= width;
    };
    if (fits(interval.label)) return interval.label;
    const std::string group = interval.group < 0 ? "" : std::to_string(interval.group);
    return fits(group) ? group : "";
  }

  const Simulation& simulation_;
  double end_us_;
  int ranks_ = 0;
  std::array<int, 2> lane_tracks_{1, 1};  ///< by lane, the most that any rank needs
  std::vector<int> tracks_;               ///< of each interval
  std::string svg_;
};

}  // namespace

std::string timeline_svg(const Simulation& simulation, const std::string& title) {
  return Picture(simulation, title).take();
}

}  // namespace flashoverlap
