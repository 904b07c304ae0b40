// One rank of GEMM + AllReduce on GPUs, as a launcher of one process per GPU starts it. Without one it stops
// at the first variable that is missing.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <iostream>

#include "flashoverlap/communicator.hpp"
#include "flashoverlap/operator.hpp"
#include "flashoverlap/planner.hpp"

using namespace flashoverlap;

void* allocate(std::int64_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, static_cast<std::size_t>(bytes));
  if (status != cudaSuccess) throw Error(cudaGetErrorString(status));
  return memory;
}

int main() {
  try {
    const Communicator communicator = Communicator::from_environment();
    const Problem problem{.operation = Operation::gemm_all_reduce,
                          .m = 2048,
                          .n = 4096,
                          .k = 4096,
                          .ranks = communicator.ranks()};
    Operator all_reduce(make_plans(problem, Schedule{.strategy = Strategy::signal, .multiprocessors = 116}),
                        communicator);
    void* const a = allocate(2 * problem.m * problem.k);
    void* const b = allocate(2 * problem.n * problem.k);
    void* const out = allocate(2 * problem.m * problem.n);
    all_reduce.run(a, b, out, nullptr);
    all_reduce.wait();
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
