// GEMM + AllReduce on GPUs of several hosts, one process for each GPU: among all ranks, inside each host, and
// between the hosts. docs/several-nodes.md has the lines for mpirun, torchrun and Slurm that start it.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <vector>

#include "flashoverlap/communicator.hpp"
#include "flashoverlap/host_result.hpp"
#include "flashoverlap/operator.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"

using namespace flashoverlap;

void succeed(cudaError_t status) {
  if (status != cudaSuccess) throw Error(cudaGetErrorString(status));
}

void copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  succeed(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
  succeed(cudaStreamSynchronize(stream));
}

std::size_t bytes_of(const Matrix& matrix) {
  return static_cast<std::size_t>(matrix.rows() * matrix.row_bytes());
}

/// A copy of host memory on the current GPU.
class GpuMemory {
 public:
  GpuMemory(const void* from, std::size_t bytes, cudaStream_t stream) {
    succeed(cudaMalloc(&data_, bytes));
    copy(data_, from, bytes, stream);
  }
  ~GpuMemory() { cudaFree(data_); }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

/// GEMM + AllReduce among the ranks of a group, by a schedule that is good on `machine`. Every element of an
/// operand is a power of two, times 1, 2 or 3 for A of different ranks: results are known and exact in bf16.
class Layer {
 public:
  Layer(const Communicator& group, const Machine& machine, cudaStream_t stream)
      : problem_{.m = 4096, .n = 4096, .k = 1024, .ranks = group.ranks()},  // bf16, gemm_all_reduce
        stream_(stream),
        a_(operand(problem_.m, row_period, factor(group.rank()))),
        b_(operand(problem_.n, col_period, 1)),
        operator_(make_plans(problem_, schedule(problem_, machine)), group, {.own_result = true}) {}

  /// Results stay where the ranks of a host write them for each other.
  static Schedule schedule(const Problem& problem, const Machine& machine) {
    return search_schedules(problem, machine, {.own_result = true}).front().schedule;
  }

  /// Throws if a result is wrong.
  std::string measure() {
    run(1);
    constexpr int runs = 20;
    const auto begin = std::chrono::steady_clock::now();
    run(runs);
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    check();
    const Strategy strategy = operator_.plan().schedule.strategy;
    return fmt::format("{} by {} {:.0f} µs", problem_.ranks, name(strategy), time.count() / runs);
  }

 private:
  static constexpr int row_period = 7;
  static constexpr int col_period = 5;
  static int factor(int rank) { return 1 + rank % 3; }

  /// Row i holds factor · 2^(i mod period).
  GpuMemory operand(std::int64_t rows, int period, int factor) const {
    Matrix matrix(problem_.data_type, rows, problem_.k);
    for (std::int64_t i = 0; i < rows; ++i) {
      const float value = std::ldexp(static_cast<float>(factor), static_cast<int>(i % period));
      matrix.write(i, 0, std::vector<float>(static_cast<std::size_t>(problem_.k), value));
    }
    return GpuMemory(matrix.row(0), bytes_of(matrix), stream_);
  }

  void run(int times) {
    // Null: the result is in the operator's memory, where the ranks of a host can write it for each other.
    for (int time = 0; time < times; ++time) operator_.run(a_.data(), b_.data(), nullptr, stream_);
    operator_.wait();  // throws if anything went wrong on any rank of the group
  }

  void check() const {
    Matrix out(problem_.data_type, problem_.m, problem_.n);
    copy(out.row(0), operator_.result(), bytes_of(out), stream_);
    const Matrix sum = natural_result(operator_.plan().output, out);
    float factors = 0;
    for (int rank = 0; rank < problem_.ranks; ++rank)
      factors += static_cast<float>(problem_.k * factor(rank));
    std::vector<float> values(static_cast<std::size_t>(problem_.n));
    for (int row = 0; row < problem_.m; ++row) {
      sum.read(row, 0, values);
      for (int col = 0; col < problem_.n; ++col) {
        const float expected = std::ldexp(factors, row % row_period + col % col_period);
        if (values[static_cast<std::size_t>(col)] != expected)
          throw Error(fmt::format("sum[{},{}] = {}: must be {}", row, col,
                                  values[static_cast<std::size_t>(col)], expected));
      }
    }
  }

  const Problem problem_;
  const cudaStream_t stream_;
  const GpuMemory a_, b_;
  Operator operator_;
};

using HostName = std::array<char, 64>;

/// NCCL_HOSTID pretends that there are several hosts, to NCCL and to this library.
HostName own_host() {
  HostName host{};
  const char* pretended = std::getenv("NCCL_HOSTID");
  if (pretended == nullptr)
    gethostname(host.data(), host.size() - 1);
  else
    std::string_view(pretended).copy(host.data(), host.size() - 1);
  return host;
}

/// The hosts of all ranks, in rank order.
std::vector<HostName> gather_hosts(const Communicator& world, cudaStream_t stream) {
  std::vector<HostName> hosts(static_cast<std::size_t>(world.ranks()), own_host());
  const GpuMemory memory(hosts.data(), hosts.size() * sizeof(HostName), stream);
  auto* const own = static_cast<HostName*>(memory.data()) + world.rank();
  world.all_gather(own, memory.data(), sizeof(HostName) / sizeof(float), DataType::fp32, stream);
  copy(hosts.data(), memory.data(), hosts.size() * sizeof(HostName), stream);
  return hosts;
}

int main() {
  try {
    // The hosts of a job may start some time apart.
    const Communicator world = Communicator::from_environment({.wait_limit = std::chrono::minutes(2)});
    cudaStream_t stream = nullptr;
    succeed(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

    const std::vector<HostName> hosts = gather_hosts(world, stream);
    const auto own = hosts.begin() + world.rank();
    const auto first_of_host = std::ranges::find(hosts, *own) - hosts.begin();
    const auto place_in_host = std::count(hosts.begin(), own, *own);
    const Communicator host = world.split(static_cast<int>(first_of_host));
    const Communicator across = world.split(static_cast<int>(place_in_host));

    // Schedules for a machine without peer access use NCCL alone, as they must between hosts. A description
    // of the real network would give better ones.
    const Machine network = preset("h200-pcie");
    Layer among_all(world, network, stream);
    Layer inside_host(host, preset("h200-nvlink"), stream);
    Layer between_hosts(across, network, stream);
    std::string times = "all ranks: " + among_all.measure();
    times += "; inside the host: " + inside_host.measure();
    times += "; between hosts: " + between_hosts.measure();

    std::array<char, 32> gpu{};
    succeed(cudaDeviceGetPCIBusId(gpu.data(), gpu.size(), world.device()));
    std::cout << fmt::format("rank {} on {}, GPU {}: {}\n", world.rank(), own->data(), gpu.data(), times)
              << std::flush;
    return 0;
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
