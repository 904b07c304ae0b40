#include "flashoverlap/host_executor.hpp"

#include <fmt/format.h>

#include "exec/host/host_world.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/validate.hpp"
#include "plan/route_room.hpp"

namespace flashoverlap {
namespace {

std::string describe(std::int64_t rows, std::int64_t cols, DataType data_type) {
  return fmt::format("{} x {} {}", rows, cols, name(data_type));
}

void require_operand(const Matrix& operand, std::string_view operand_name, int rank, const Shape& shape,
                     DataType data_type, std::int64_t least_rows) {
  const bool has_rows = least_rows <= operand.rows() && operand.rows() <= shape.rows;
  require(has_rows && operand.cols() == shape.cols && operand.data_type() == data_type,
          fmt::format("{}[{}]", operand_name, rank),
          describe(operand.rows(), operand.cols(), operand.data_type()),
          fmt::format("must be {}", describe(shape.rows, shape.cols, data_type)));
}

std::vector<Plan> validated(std::vector<Plan> plans) {
  validate(plans);
  return plans;
}

}  // namespace

struct HostExecutor::State {
  HostWorld world;
};

HostExecutor::HostExecutor(std::vector<Plan> plans, const HostOptions& options)
    : state_(new State{HostWorld(validated(std::move(plans)), options)}) {}

HostExecutor::~HostExecutor() = default;
HostExecutor::HostExecutor(HostExecutor&&) noexcept = default;
HostExecutor& HostExecutor::operator=(HostExecutor&&) noexcept = default;

void HostExecutor::route(const std::vector<std::vector<std::int32_t>>& expert_rows) {
  const HostRanks& ranks = state_->world.ranks();
  std::vector<Plan> plans;
  for (int rank = 0; rank < ranks.size(); ++rank)
    flashoverlap::route(plans.emplace_back(ranks.at(rank).plan()), expert_rows);
  *this = HostExecutor(std::move(plans), ranks.options());
}

std::vector<Matrix> HostExecutor::run(std::span<const Matrix> a, std::span<const Matrix> b) {
  const HostRanks& ranks = state_->world.ranks();
  require(std::ssize(a) == ranks.size(), "a.size()", a.size(),
          fmt::format("must be ranks = {}", ranks.size()));
  require(std::ssize(b) == ranks.size(), "b.size()", b.size(),
          fmt::format("must be ranks = {}", ranks.size()));
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const Problem& problem = ranks.at(rank).plan().problem;
    const Shape of_a = a_shape(problem, rank);
    const Shape of_b = b_shape(problem, rank);
    require_operand(a[static_cast<std::size_t>(rank)], "a", rank, of_a, problem.data_type,
                    least_rows_of_a(problem, rank));
    require_operand(b[static_cast<std::size_t>(rank)], "b", rank, of_b, problem.data_type, of_b.rows);
  }
  const HostOperands operands{a, b};
  return std::move(state_->world.run({&operands, 1}).front());
}

}  // namespace flashoverlap
