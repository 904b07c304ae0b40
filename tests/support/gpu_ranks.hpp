// The buffers and counters of all ranks of a plan, filled with random data: on one GPU, or the first rank's
// on another.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cuda/device_array.hpp"
#include "cuda/download.hpp"
#include "cuda/on_device.hpp"
#include "flashoverlap/matrix.hpp"
#include "flashoverlap/plan.hpp"
#include "gemm/gemm_kernel.hpp"

namespace flashoverlap::testing {

using Element = std::uint16_t;  // bits of a 16-bit element

/// With what lies between rows.
inline std::span<const Element> elements_of(const Matrix& matrix) {
  return {reinterpret_cast<const Element*>(matrix.row(0)),
          static_cast<std::size_t>(matrix.rows() * matrix.pitch())};
}

inline DeviceArray<Element> upload(const Matrix& matrix) { return DeviceArray<Element>(elements_of(matrix)); }

inline Matrix download(DataType data_type, const Buffer& shape, const DeviceArray<Element>& array) {
  return flashoverlap::download(data_type, shape.rows, shape.cols, array.data());
}

/// A pitch for rows with at least this much padding, or none, that begin at multiples of 16 bytes.
inline std::int64_t pitch_with(std::int64_t padding, std::int64_t cols) {
  return padding == 0 ? cols : (cols + padding + 7) / 8 * 8;
}

class GpuRanks {
 public:
  /// `padding`: of every row of every buffer. `first_ranks_gpu`: the others' is the current one.
  GpuRanks(const std::vector<Plan>& plans, std::uint64_t seed, std::int64_t padding = 0,
           int first_ranks_gpu = 0)
      : plans_(plans) {
    for (const Plan& plan : plans) {
      std::optional<OnDevice> on;
      if (plan.rank == 0) on.emplace(first_ranks_gpu);
      auto& inputs = inputs_.emplace_back();
      auto& arrays = arrays_.emplace_back();
      memory_.buffers.emplace_back();
      for (std::size_t role = 0; role < buffer_count; ++role) {
        const Buffer& buffer = plan.buffers[role];
        const bool written = role == static_cast<std::size_t>(BufferRole::out) ||
                             role == static_cast<std::size_t>(BufferRole::staging);
        inputs.push_back(with_pitch(random_matrix(plan.problem.data_type, buffer.rows, buffer.cols, ++seed),
                                    pitch_with(padding, buffer.cols)));
        if (written) inputs.back().poison();
        arrays.push_back(upload_with_guards(inputs.back()));
        memory_.buffers.back()[role] = {arrays.back().data() + guard(inputs.back()), buffer.rows, buffer.cols,
                                        inputs.back().pitch()};
      }
      counters_.emplace_back(plan.counters.size() + 1);
      memory_.counters.push_back(counters_.back().data());
      set_counters(plan.rank, 0);
    }
  }

  const GemmMemory& memory() const { return memory_; }
  const Matrix& input(std::int32_t rank, BufferRole role) const {
    return inputs_[index(rank)][static_cast<std::size_t>(role)];
  }
  Matrix result(std::int32_t rank, BufferRole role) const {
    const Plan& plan = plans_[index(rank)];
    return flashoverlap::download(plan.problem.data_type, plan.buffer(role).rows, plan.buffer(role).cols,
                                  memory_.buffers[index(rank)][static_cast<std::size_t>(role)].base,
                                  input(rank, role).pitch());
  }
  /// Whether nothing was written next to a buffer, which lies between rows that are not numbers.
  bool guards_are_untouched() const {
    for (std::size_t rank = 0; rank < arrays_.size(); ++rank) {
      for (std::size_t role = 0; role < buffer_count; ++role) {
        const DeviceArray<Element>& array = arrays_[rank][role];
        const std::size_t count = guard(inputs_[rank][role]);
        std::vector<Element> guards(2 * count);
        for (const std::size_t side : {0, 1}) {
          FLASHOVERLAP_CUDA(cudaMemcpy(guards.data() + side * count,
                                       array.data() + side * (array.size() - count), count * sizeof(Element),
                                       cudaMemcpyDeviceToHost));
        }
        if (std::ranges::any_of(guards, [](Element element) { return element != 0xffff; })) return false;
      }
    }
    return true;
  }
  std::uint32_t* counter(std::int32_t rank, std::int32_t counter) const {
    return memory_.counters[index(rank)] + counter;
  }

  std::vector<std::uint32_t> counters(std::int32_t rank) const {
    std::vector<std::uint32_t> values(counters_[index(rank)].size());
    FLASHOVERLAP_CUDA(cudaMemcpy(values.data(), counters_[index(rank)].data(),
                                 values.size() * sizeof(std::uint32_t), cudaMemcpyDeviceToHost));
    return values;
  }
  void set_counters(std::int32_t rank, std::uint32_t value) {
    const std::vector<std::uint32_t> values(counters_[index(rank)].size(), value);
    counters_[index(rank)].set(values);
  }

 private:
  static std::size_t index(std::int32_t rank) { return static_cast<std::size_t>(rank); }

  /// Elements before and after a matrix: a row, and such that it begins at a multiple of 256 bytes.
  static std::size_t guard(const Matrix& matrix) {
    return matrix.rows() == 0 ? 0 : (static_cast<std::size_t>(matrix.pitch()) + 127) / 128 * 128;
  }
  static DeviceArray<Element> upload_with_guards(const Matrix& matrix) {
    const std::span<const Element> elements = elements_of(matrix);
    std::vector<Element> all(elements.size() + 2 * guard(matrix), 0xffff);
    std::ranges::copy(elements, all.begin() + static_cast<std::ptrdiff_t>(guard(matrix)));
    return DeviceArray<Element>(all);
  }

  const std::vector<Plan>& plans_;
  std::vector<std::vector<Matrix>> inputs_;                // [rank][role]
  std::vector<std::vector<DeviceArray<Element>>> arrays_;  // [rank][role]
  std::vector<DeviceArray<std::uint32_t>> counters_;       // [rank]
  GemmMemory memory_;
};

}  // namespace flashoverlap::testing
