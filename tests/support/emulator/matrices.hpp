// Matrices of 8 rows of 16 bytes between shared memory and the registers of a warp, and asynchronous copies
// and products of Ampere.
#pragma once

#include "support/emulator/launch.hpp"

namespace flashoverlap::testing::emulator {

/// 8 lanes' chunks of 16 bytes, which go at once if they lie in different banks.
inline void count_banks(Launch& launch, const Lanes& all, std::size_t first_lane) {
  std::uint32_t banks = 0;
  for (std::size_t lane = first_lane; lane < first_lane + 8; ++lane)
    banks |= 1u << all[lane].address / 16 % 8;
  if (banks != 0xff) ++launch.counts.conflicts;
}

/// 4 words for each lane.
template <bool Transposed>
void load_matrices(Launch& launch, bool blocks, std::uint32_t* to, std::uint32_t address) {
  launch.together(blocks, {{to}, 0, address}, [&launch](const Lanes& all) {
    for (std::size_t matrix = 0; matrix < 4; ++matrix) {
      std::uint16_t elements[8][8];
      for (std::size_t row = 0; row < 8; ++row)
        std::memcpy(elements[row], launch.shared_at(all[matrix * 8 + row].address, 16), 16);
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        const std::size_t row = lane / 4;
        const std::size_t col = lane % 4 * 2;
        const std::uint16_t low = Transposed ? elements[col][row] : elements[row][col];
        const std::uint16_t high = Transposed ? elements[col + 1][row] : elements[row][col + 1];
        static_cast<std::uint32_t*>(all[lane].pointers[0])[matrix] = low | std::uint32_t{high} << 16;
      }
      count_banks(launch, all, matrix * 8);
    }
    launch.counts.loads += 4;
  });
}

/// The inverse, untransposed. What is written may be read by the TMA after a fence only.
inline void store_matrices(Launch& launch, const std::array<std::uint32_t, 4>& words, std::uint32_t address) {
  const std::array<std::uint32_t, 4> own = words;
  launch.fiber().unfenced.push_back((address - shared_begin) / 16);
  launch.together(true, {{const_cast<std::uint32_t*>(own.data())}, 0, address}, [&launch](const Lanes& all) {
    for (std::size_t matrix = 0; matrix < 4; ++matrix) {
      for (std::size_t row = 0; row < 8; ++row) {
        std::uint32_t chunk[4];
        for (std::size_t pair = 0; pair < 4; ++pair)
          chunk[pair] = static_cast<const std::uint32_t*>(all[row * 4 + pair].pointers[0])[matrix];
        const std::uint32_t to = all[matrix * 8 + row].address;
        std::memcpy(launch.shared_at(to, 16), chunk, 16);
        launch.block().unfenced.at((to - shared_begin) / 16) = true;
      }
      count_banks(launch, all, matrix * 8);
    }
    launch.counts.loads += 4;
  });
}

/// 16 bytes of each lane, when what the warp has multiplied before is there.
template <typename Move>
void move_sums(Launch& launch, std::uint32_t address, Move move) {
  launch.together(true, {{}, 0, address}, [&launch](const Lanes& all) {
    for (std::size_t lane = 0; lane < lanes; lane += 8) count_banks(launch, all, lane);
    launch.counts.loads += lanes / 8;
  });
  move(launch.shared_at(address, 16));
}

/// As the PTX ISA says how the fragments of m16n8k16 are distributed.
inline void multiply(Launch& launch, float* sum, const std::uint32_t* a, const std::uint32_t* b0,
                     const std::uint32_t* b1, float (*to_float)(std::uint16_t)) {
  const Brought own{
      {sum, const_cast<std::uint32_t*>(a), const_cast<std::uint32_t*>(b0), const_cast<std::uint32_t*>(b1)}};
  launch.together(false, own, [&launch, to_float](const Lanes& all) {
    float rows[16][16];  // [row][k]
    float cols[8][16];   // [col][k]
    const auto unpack = [&](std::uint32_t word, float* to) {
      to[0] = to_float(static_cast<std::uint16_t>(word));
      to[1] = to_float(static_cast<std::uint16_t>(word >> 16));
    };
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const std::size_t row = lane / 4;
      const std::size_t k = lane % 4 * 2;
      const auto word = [&](std::size_t pointer) {
        return static_cast<const std::uint32_t*>(all[lane].pointers[pointer]);
      };
      for (std::size_t each = 0; each < 4; ++each)
        unpack(word(1)[each], &rows[row + each % 2 * 8][k + each / 2 * 8]);
      for (std::size_t each = 0; each < 2; ++each) unpack(*word(2 + each), &cols[row][k + each * 8]);
    }
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      for (std::size_t value = 0; value < 4; ++value) {
        const std::size_t row = lane / 4 + value / 2 * 8;
        const std::size_t col = lane % 4 * 2 + value % 2;
        float& total = static_cast<float*>(all[lane].pointers[0])[value];
        for (std::size_t k = 0; k < 16; ++k) total += rows[row][k] * cols[col][k];
      }
    }
    ++launch.counts.products;
  });
}

/// Arrives when it is waited for; what it overwrites is gone at once.
inline void copy_async(Launch& launch, std::uint32_t to, const void* from, bool present) {
  AsyncCopy copy{.to = to, .bytes = {}};
  if (present) launch.load(copy.bytes.data(), from, copy.bytes.size());
  std::memset(launch.shared_at(to, copy.bytes.size()), 0xff, copy.bytes.size());
  for (const auto& group : launch.fiber().copies) {
    if (std::ranges::find(group, to, &AsyncCopy::to) != group.end())
      launch.error("two asynchronous copies to the same place, which arrive in any order");
  }
  launch.fiber().copies.back().push_back(copy);
  launch.together(false, {{}, 0, to}, [&launch](const Lanes& all) {
    for (std::size_t lane = 0; lane < lanes; lane += 8) count_banks(launch, all, lane);
    launch.counts.copies += lanes / 8;
  });
}

inline void copy_wait(Launch& launch, std::size_t pending) {
  auto& groups = launch.fiber().copies;
  for (; groups.size() > pending + 1; groups.pop_front()) {
    for (const AsyncCopy& copy : groups.front())
      std::memcpy(launch.shared_at(copy.to, copy.bytes.size()), copy.bytes.data(), copy.bytes.size());
  }
}

}  // namespace flashoverlap::testing::emulator
