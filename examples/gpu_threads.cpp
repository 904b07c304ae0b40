// GEMM + AllReduce on all GPUs of this machine, a thread of this process for each. The operator owns the
// result.
#include <cuda_runtime_api.h>

#include <atomic>
#include <iostream>
#include <thread>
#include <vector>

#include "flashoverlap/communicator.hpp"
#include "flashoverlap/host_executor.hpp"
#include "flashoverlap/host_result.hpp"
#include "flashoverlap/operator.hpp"
#include "flashoverlap/planner.hpp"

using namespace flashoverlap;

void succeed(cudaError_t status) {
  if (status != cudaSuccess) throw Error(cudaGetErrorString(status));
}

/// A copy of a matrix in the memory of the current GPU.
class GpuMatrix {
 public:
  explicit GpuMatrix(const Matrix& matrix) {
    const auto bytes = static_cast<std::size_t>(matrix.rows() * matrix.row_bytes());
    succeed(cudaMalloc(&data_, bytes));
    succeed(cudaMemcpy(data_, matrix.row(0), bytes, cudaMemcpyHostToDevice));
  }
  ~GpuMatrix() { cudaFree(data_); }
  GpuMatrix(const GpuMatrix&) = delete;
  GpuMatrix& operator=(const GpuMatrix&) = delete;

  const void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

/// What rank `rank` does. Every rank makes its communicator and its operator at the same time.
double run_rank(const Problem& problem, const std::vector<Matrix>& a, const std::vector<Matrix>& b,
                const std::string& key, int rank) {
  succeed(cudaSetDevice(rank));
  const Communicator communicator(key, rank, problem.ranks);
  Operator all_reduce(problem, communicator, {.own_result = true});  // measured once, then kept
  const Plan& plan = all_reduce.plan();

  const GpuMatrix own_a(a[rank]);
  const GpuMatrix own_b(b[rank]);
  cudaStream_t stream = nullptr;
  succeed(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  all_reduce.run(own_a.data(), own_b.data(), nullptr, stream);  // null: the result is the operator's own
  all_reduce.wait();                                            // throws if anything went wrong on any rank

  Matrix out(plan.problem.data_type, plan.buffer(BufferRole::out).rows, plan.buffer(BufferRole::out).cols);
  succeed(cudaMemcpy(out.row(0), all_reduce.result(), static_cast<std::size_t>(out.rows() * out.row_bytes()),
                     cudaMemcpyDeviceToHost));
  succeed(cudaStreamDestroy(stream));
  return relative_error(natural_result(plan.output, out),
                        reference_result(plan.problem, plan.output, a, b, rank));
}

int main() {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    std::cerr << "no GPU can be used here\n";
    return 1;
  }
  const Problem problem{
      .operation = Operation::gemm_all_reduce, .m = 1024, .n = 2048, .k = 512, .ranks = gpus};
  std::vector<Matrix> a, b;
  for (int rank = 0; rank < gpus; ++rank) {
    a.push_back(random_matrix(problem.data_type, problem.m, problem.k, 10 + rank));
    b.push_back(random_matrix(problem.data_type, problem.n, problem.k, 20 + rank));
  }

  const std::string key = Communicator::make_key();
  std::atomic<int> right = 0;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < gpus; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        const double error = run_rank(problem, a, b, key, rank);
        if (error < 1e-2) ++right;
        std::cout << "rank " + std::to_string(rank) + ": relative error " + std::to_string(error) + "\n";
      } catch (const Error& error) {
        std::cerr << error.what() << '\n';
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return right == gpus ? 0 : 1;
}
