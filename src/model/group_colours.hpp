#pragma once

#include <string>
#include <string_view>

namespace flashoverlap {

struct Colour {
  std::string fill;       ///< "#56b4e9"
  std::string_view text;  ///< black or white, whichever contrasts more with the fill
};

/// 35 colours before one repeats. Groups next to each other differ in hue and in lightness, so that
/// colour-blind readers tell them apart too. Grey where the group is `none`.
Colour colour_of_group(int group);

}  // namespace flashoverlap
