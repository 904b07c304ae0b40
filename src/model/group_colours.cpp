#include "model/group_colours.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace flashoverlap {

namespace {

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

}  // namespace

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

}  // namespace flashoverlap
