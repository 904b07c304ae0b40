// src/gemm/sm90/wgmma.cuh for the emulator.
#pragma once

#include "gemm/sm90/ptx.cuh"

namespace flashoverlap::sm90 {

/// The four warps of a warpgroup multiply their 16 rows each on their own, which may be further apart than on
/// a GPU. Products read shared memory and write registers at any time until they are waited for.
template <typename Element, int N, bool AIsRowContiguous, bool BIsRowContiguous>
struct Wgmma {
  static void run(float (&d)[N / 2], std::uint32_t a, std::uint32_t b, bool accumulate) {
    launch().together(false, {{&d[0]}, std::uint64_t{a} << 32 | b}, [accumulate](const emulator::Lanes& all) {
      auto& group = launch().warp().products.back();
      const std::size_t warp = launch().place().warp % 4;
      for (const emulator::Brought& lane : all) {
        if (lane.number != all[0].number) launch().error("lanes that multiply different matrices");
      }
      group.push_back([=, &block = launch().block()] { multiply(block, all, warp, accumulate); });
      launch().later([&groups = launch().warp().products] { run_first(groups); });
    });
  }

  static void run_first(std::deque<std::vector<std::function<void()>>>& groups) {
    for (auto& group : groups) {
      if (group.empty()) continue;
      const auto first = std::move(group.front());
      group.erase(group.begin());
      return first();
    }
  }

 private:
  /// The element of a row of the operand and of k, by the descriptor's low half.
  template <bool IsRowContiguous>
  static float element(emulator::Block& block, std::uint32_t descriptor, std::uint32_t row, std::uint32_t k) {
    const std::uint32_t start = (descriptor & 0x3FFF) << 4;
    const std::uint32_t leading = (descriptor >> 16) << 4;
    const std::uint32_t address = IsRowContiguous
                                      ? start + row / 64 * leading + k / 8 * 1024 + k % 8 * 128 + row % 64 * 2
                                      : start + row / 8 * 1024 + row % 8 * 128 + k * 2;
    std::uint16_t bits;
    std::memcpy(&bits, launch().shared_at(block, emulator::swizzled(address), 2), 2);
    return Element::to_float(bits);
  }

  static void multiply(emulator::Block& block, const emulator::Lanes& all, std::size_t warp,
                       bool accumulate) {
    constexpr std::uint32_t depth = 16;
    const auto a = static_cast<std::uint32_t>(all[0].number >> 32);
    const auto b = static_cast<std::uint32_t>(all[0].number);
    float rows[depth][depth];  // [row][k]
    float cols[depth][N];      // [k][col]
    for (std::uint32_t k = 0; k < depth; ++k) {
      for (std::uint32_t row = 0; row < 16; ++row)
        rows[row][k] = element<AIsRowContiguous>(block, a, static_cast<std::uint32_t>(warp) * 16 + row, k);
      for (std::uint32_t col = 0; col < N; ++col) cols[k][col] = element<BIsRowContiguous>(block, b, col, k);
    }
    for (std::size_t row = 0; row < 16; ++row) {
      float sums[N] = {};
      for (std::size_t k = 0; k < depth; ++k) {
        for (std::size_t col = 0; col < N; ++col) sums[col] += rows[row][k] * cols[k][col];
      }
      for (std::size_t col = 0; col < N; ++col) {
        const std::size_t lane = row % 8 * 4 + col % 8 / 2;
        float& d = static_cast<float*>(all[lane].pointers[0])[col / 8 * 4 + row / 8 * 2 + col % 2];
        d = (accumulate ? d : 0) + sums[col];
      }
    }
    ++launch().counts.products;
  }
};

inline void wgmma_fence() {}
inline void wgmma_commit() {
  launch().together(false, {}, [](const emulator::Lanes&) { launch().warp().products.emplace_back(); });
}
template <int Pending>
void wgmma_wait() {
  launch().together(true, {}, [](const emulator::Lanes&) {
    auto& groups = launch().warp().products;
    for (; groups.size() > Pending + 1; groups.pop_front()) {
      for (const auto& product : groups.front()) product();
    }
  });
}

}  // namespace flashoverlap::sm90
