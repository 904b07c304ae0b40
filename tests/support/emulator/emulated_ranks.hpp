// The buffers and counters of all ranks of a plan in host memory, filled with random data.
#pragma once

#include <memory>
#include <vector>

#include "flashoverlap/matrix.hpp"
#include "flashoverlap/plan.hpp"
#include "gemm/gemm_memory.hpp"
#include "support/emulator/launch.hpp"

namespace flashoverlap::testing {

class EmulatedRanks {
 public:
  /// `padding`: of every row of every buffer.
  EmulatedRanks(const std::vector<Plan>& plans, std::uint64_t seed, std::int64_t padding = 0) {
    for (const Plan& plan : plans) {
      auto& inputs = inputs_.emplace_back();
      auto& results = results_.emplace_back();
      memory_.buffers.emplace_back();
      for (std::size_t role = 0; role < buffer_count; ++role) {
        const Buffer& buffer = plan.buffers[role];
        const bool written = role == static_cast<std::size_t>(BufferRole::out) ||
                             role == static_cast<std::size_t>(BufferRole::staging);
        const std::int64_t pitch = padding == 0 ? buffer.cols : (buffer.cols + padding + 7) / 8 * 8;
        inputs.push_back(
            with_pitch(random_matrix(plan.problem.data_type, buffer.rows, buffer.cols, ++seed), pitch));
        if (written) inputs.back().poison();
        results.push_back(inputs.back());
      }
      for (std::size_t role = 0; role < buffer_count; ++role) {
        Matrix& matrix = results[role];
        memory_.buffers.back()[role] = {matrix.rows() > 0 ? matrix.row(0) : nullptr, matrix.rows(),
                                        matrix.cols(), matrix.pitch()};
      }
      counters_.push_back(std::make_unique<std::vector<std::uint32_t>>(plan.counters.size() + 1));
      memory_.counters.push_back(counters_.back()->data());
    }
  }

  const GemmMemory& memory() const { return memory_; }
  /// All buffers may be read and written.
  void allow(emulator::Launch& launch) const {
    for (const auto& buffers : memory_.buffers) {
      for (const DeviceMatrix& buffer : buffers)
        launch.allow(buffer.base, static_cast<std::size_t>(buffer.rows * buffer.pitch * 2));
    }
  }
  const Matrix& input(std::int32_t rank, BufferRole role) const {
    return inputs_[place(rank)][static_cast<std::size_t>(role)];
  }
  /// Gives an operand other values.
  void redraw(std::int32_t rank, BufferRole role, std::uint64_t seed) {
    Matrix& input = inputs_[place(rank)][static_cast<std::size_t>(role)];
    const Matrix drawn = random_matrix(input.data_type(), input.rows(), input.cols(), seed);
    for (Matrix* const matrix : {&input, &result(rank, role)}) {
      for (std::int64_t row = 0; row < drawn.rows(); ++row)
        std::memcpy(matrix->row(row), drawn.row(row), static_cast<std::size_t>(drawn.row_bytes()));
    }
  }
  Matrix& result(std::int32_t rank, BufferRole role) {
    return results_[place(rank)][static_cast<std::size_t>(role)];
  }
  const std::vector<std::vector<Matrix>>& results() const { return results_; }
  std::vector<std::uint32_t>& counters(std::int32_t rank) { return *counters_[place(rank)]; }
  const std::vector<std::uint32_t>& counters(std::int32_t rank) const { return *counters_[place(rank)]; }

 private:
  static std::size_t place(std::int32_t rank) { return static_cast<std::size_t>(rank); }

  std::vector<std::vector<Matrix>> inputs_;   // [rank][role]
  std::vector<std::vector<Matrix>> results_;  // the same, as the kernel finds and leaves them
  std::vector<std::unique_ptr<std::vector<std::uint32_t>>> counters_;
  GemmMemory memory_;
};

}  // namespace flashoverlap::testing
