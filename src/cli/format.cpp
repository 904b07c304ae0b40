#include "cli/format.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "plan/readable.hpp"

namespace flashoverlap::cli {

std::string microseconds(double time) {
  if (time < 1000) return fmt::format("{:.1f} us", time);
  return fmt::format("{:.2f} ms", time / 1000);
}

std::string duration(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} seconds", seconds);
  if (seconds < 90 * 60) return fmt::format("{:.0f} minutes", seconds / 60);
  return fmt::format("{:.0f} hours", seconds / 3600);
}

std::string labelled_line(std::string_view label, std::string_view value) {
  return shortened(fmt::format("{:<10} {}", label, value), longest_line) + '\n';
}

void print_json(const nlohmann::ordered_json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

std::string Table::text() const {
  const auto is_number = [](const std::string& cell) {
    return cell.starts_with('-') || (!cell.empty() && cell[0] >= '0' && cell[0] <= '9');
  };
  const std::size_t columns = rows_.front().size();
  std::vector<std::size_t> widths(columns, 0);
  std::vector<bool> right(columns, rows_.size() > 1);
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      const std::string& cell = rows_[row][column];
      widths[column] = std::max(widths[column], cell.size());
      if (row > 0 && !is_number(cell)) right[column] = false;
    }
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t column = 0; column < columns; ++column) {
      line += right[column] ? fmt::format("{:>{}}", row[column], widths[column])
                            : fmt::format("{:<{}}", row[column], widths[column]);
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string strategy_text(const Schedule& schedule) {
  const std::string shots = schedule.shots == 1 ? ", 1 shot" : fmt::format(", {} shots", schedule.shots);
  return fmt::format("{}{}", name(schedule.strategy), schedule.shots > 0 ? shots : "");
}

std::string_view rule_of(Layout layout) {
  switch (layout) {
    case Layout::natural: return "suits any strategy";
    case Layout::tiled: return "needs --strategy signal";
    case Layout::partial: return "needs --strategy store or sequential, and an operation that sums";
  }
  return "";
}

}  // namespace flashoverlap::cli
