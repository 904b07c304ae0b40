// The second half of a Llama block with tensor and sequence parallelism, a thread of this process for each
// GPU: attention's output projection + ReduceScatter, RMSNorm, AllGather + gate and up projection, SwiGLU,
// down projection + ReduceScatter, and the RMSNorm that the next block begins with. Each RMSNorm adds the
// residual while it reads the result of the ReduceScatter. Checked against a plain computation on the host.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <iostream>
#include <thread>
#include <vector>

#include "flashoverlap/communicator.hpp"
#include "flashoverlap/matrix.hpp"
#include "flashoverlap/operator.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/result_reader.hpp"
#include "flashoverlap/swiglu.hpp"
#include "flashoverlap/tuner.hpp"

using namespace flashoverlap;

constexpr std::int64_t tokens = 256;
constexpr std::int64_t hidden = 512;
constexpr std::int64_t ffn = 1024;
constexpr float eps = 1e-5F;
constexpr DataType bf16 = DataType::bf16;

void succeed(cudaError_t status) {
  if (status != cudaSuccess) throw Error(cudaGetErrorString(status));
}

/// Memory of the current GPU.
class GpuMatrix {
 public:
  GpuMatrix(std::int64_t rows, std::int64_t cols) : matrix_(bf16, rows, cols) {
    succeed(cudaMalloc(&data_, bytes()));
  }
  explicit GpuMatrix(const Matrix& matrix) : GpuMatrix(matrix.rows(), matrix.cols()) {
    succeed(cudaMemcpy(data_, matrix.row(0), bytes(), cudaMemcpyHostToDevice));
  }
  ~GpuMatrix() { cudaFree(data_); }
  GpuMatrix(const GpuMatrix&) = delete;
  GpuMatrix& operator=(const GpuMatrix&) = delete;

  void* data() const { return data_; }

  Matrix read() {
    succeed(cudaMemcpy(matrix_.row(0), data_, bytes(), cudaMemcpyDeviceToHost));
    return matrix_;
  }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(matrix_.rows() * matrix_.row_bytes()); }

  Matrix matrix_;
  void* data_ = nullptr;
};

/// Rows [row, row + rows) and columns [col, col + cols) of a matrix, as a matrix of its own.
Matrix part(const Matrix& matrix, std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) {
  Matrix part(matrix.data_type(), rows, cols);
  std::vector<float> values(static_cast<std::size_t>(cols));
  for (std::int64_t i = 0; i < rows; ++i) {
    matrix.read(row + i, col, values);
    part.write(i, 0, values);
  }
  return part;
}

/// The first matrix above the second.
Matrix stacked(const Matrix& above, const Matrix& below) {
  Matrix both(above.data_type(), above.rows() + below.rows(), above.cols());
  std::vector<float> values(static_cast<std::size_t>(above.cols()));
  for (std::int64_t i = 0; i < both.rows(); ++i) {
    i < above.rows() ? above.read(i, 0, values) : below.read(i - above.rows(), 0, values);
    both.write(i, 0, values);
  }
  return both;
}

/// Random, so small that products with it are about as large as what they multiply.
Matrix random_weight(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  Matrix weight = random_matrix(bf16, rows, cols, seed);
  std::vector<float> values(static_cast<std::size_t>(cols));
  for (std::int64_t i = 0; i < rows; ++i) {
    weight.read(i, 0, values);
    for (float& value : values) value *= std::sqrt(3.0F / static_cast<float>(cols));
    weight.write(i, 0, values);
  }
  return weight;
}

/// The whole layer and its input, as one GPU would hold them.
struct Layer {
  Matrix attention = random_matrix(bf16, tokens, hidden, 1);  ///< what attention has computed
  Matrix residual = random_matrix(bf16, tokens, hidden, 2);   ///< what came into the block
  Matrix projection = random_weight(hidden, hidden, 3);
  Matrix gate = random_weight(ffn, hidden, 4);
  Matrix up = random_weight(ffn, hidden, 5);
  Matrix down = random_weight(hidden, ffn, 6);
  Matrix mlp_norm = random_matrix(bf16, 1, hidden, 7);
  Matrix next_norm = random_matrix(bf16, 1, hidden, 8);
};

// On the host, in fp64 and without any library's help.

using Values = std::vector<double>;

Values values_of(const Matrix& matrix) {
  Values all;
  std::vector<float> row(static_cast<std::size_t>(matrix.cols()));
  for (std::int64_t i = 0; i < matrix.rows(); ++i) {
    matrix.read(i, 0, row);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

/// x · weightᵀ.
Values times(const Values& x, const Matrix& weight) {
  const auto k = static_cast<std::size_t>(weight.cols());
  const Values w = values_of(weight);
  Values product;
  for (std::size_t row = 0; row < x.size(); row += k) {
    for (std::size_t col = 0; col < w.size(); col += k) {
      double sum = 0;
      for (std::size_t i = 0; i < k; ++i) sum += x[row + i] * w[col + i];
      product.push_back(sum);
    }
  }
  return product;
}

Values plus(Values x, const Values& y) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  return x;
}

Values rms_norm(Values x, const Matrix& weight) {
  const Values w = values_of(weight);
  for (std::size_t row = 0; row < x.size(); row += w.size()) {
    double squares = 0;
    for (std::size_t i = 0; i < w.size(); ++i) squares += x[row + i] * x[row + i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(w.size()) + eps);
    for (std::size_t i = 0; i < w.size(); ++i) x[row + i] *= scale * w[i];
  }
  return x;
}

struct Expected {
  Values residual;    ///< that the block hands on
  Values normalized;  ///< for the next block
};

Expected expected_of(const Layer& layer) {
  const Values x = plus(times(values_of(layer.attention), layer.projection), values_of(layer.residual));
  const Values normalized = rms_norm(x, layer.mlp_norm);
  Values activation = times(normalized, layer.gate);
  const Values up = times(normalized, layer.up);
  for (std::size_t i = 0; i < activation.size(); ++i) activation[i] *= up[i] / (1 + std::exp(-activation[i]));
  Values residual = plus(times(activation, layer.down), x);
  return {residual, rms_norm(residual, layer.next_norm)};
}

/// The rows of one rank.
Values rows_of(const Values& all, int ranks, int rank) {
  const auto each = static_cast<std::ptrdiff_t>(all.size()) / ranks;
  return {all.begin() + rank * each, all.begin() + (rank + 1) * each};
}

// On GPUs.

/// What rank `rank` does; the larger of the relative errors of both results.
double run_rank(const Layer& layer, const Expected& expected, const std::string& key, int ranks, int rank) {
  succeed(cudaSetDevice(rank));
  const Communicator communicator(key, rank, ranks);
  const std::int64_t own_tokens = tokens / ranks;
  const std::int64_t own_hidden = hidden / ranks;
  const std::int64_t own_ffn = ffn / ranks;

  // The operators never run at the same time, and none reads another's result itself: one workspace is
  // enough.
  Tuner tuner(communicator);
  const auto plans_of = [&](Operation operation, std::int64_t n, std::int64_t k) {
    const Problem problem{.operation = operation, .m = tokens, .n = n, .k = k, .ranks = ranks};
    return make_plans(problem, tuner.schedule(problem));
  };
  const std::vector<Plan> projection_plans = plans_of(Operation::gemm_reduce_scatter, hidden, own_hidden);
  const std::vector<Plan> gate_up_plans = plans_of(Operation::all_gather_gemm, 2 * own_ffn, hidden);
  const std::vector<Plan> down_plans = plans_of(Operation::gemm_reduce_scatter, hidden, own_ffn);
  WorkspaceBytes bytes;
  for (const auto* plans : {&projection_plans, &gate_up_plans, &down_plans})
    bytes.add(*plans, /*own_result=*/true);
  const OperatorOptions options{.own_result = true, .workspace = Workspace(bytes, communicator)};
  Operator projection(projection_plans, communicator, options);
  Operator gate_up(gate_up_plans, communicator, options);
  Operator down(down_plans, communicator, options);
  const ResultReader projected(projection.plan());
  const ResultReader lowered(down.plan());

  // Weights are divided by columns or rows, tokens by rows.
  const GpuMatrix attention(part(layer.attention, 0, tokens, rank * own_hidden, own_hidden));
  const GpuMatrix projection_weight(part(layer.projection, 0, hidden, rank * own_hidden, own_hidden));
  const GpuMatrix gate_up_weight(stacked(part(layer.gate, rank * own_ffn, own_ffn, 0, hidden),
                                         part(layer.up, rank * own_ffn, own_ffn, 0, hidden)));
  const GpuMatrix down_weight(part(layer.down, 0, hidden, rank * own_ffn, own_ffn));
  const GpuMatrix mlp_norm(layer.mlp_norm);
  const GpuMatrix next_norm(layer.next_norm);
  GpuMatrix residual(part(layer.residual, rank * own_tokens, own_tokens, 0, hidden));
  GpuMatrix normalized(own_tokens, hidden);
  const GpuMatrix activation(tokens, own_ffn);

  cudaStream_t stream = nullptr;
  succeed(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const auto norm = [&](const GpuMatrix& weight) {
    return RmsNorm{
        .weight = weight.data(), .eps = eps, .residual = residual.data(), .residual_out = residual.data()};
  };
  projection.run(attention.data(), projection_weight.data(), nullptr, stream);
  projected.rms_norm(projection.result(), norm(mlp_norm), normalized.data(), stream);
  gate_up.run(normalized.data(), gate_up_weight.data(), nullptr, stream);
  swiglu(gate_up.result(), activation.data(), {tokens, own_ffn}, bf16, stream);
  down.run(activation.data(), down_weight.data(), nullptr, stream);
  lowered.rms_norm(down.result(), norm(next_norm), normalized.data(), stream);
  for (const Operator* each : {&projection, &gate_up, &down}) each->wait();  // throws if anything went wrong
  succeed(cudaStreamSynchronize(stream));
  succeed(cudaStreamDestroy(stream));
  return std::max(relative_error(residual.read(), rows_of(expected.residual, ranks, rank)),
                  relative_error(normalized.read(), rows_of(expected.normalized, ranks, rank)));
}

int main() {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    std::cerr << "no GPU can be used here\n";
    return 1;
  }
  const auto ranks = static_cast<int>(std::bit_floor(static_cast<unsigned>(std::min(gpus, 16))));
  const Layer layer;
  const Expected expected = expected_of(layer);
  const std::string key = Communicator::make_key();
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const double error = run_rank(layer, expected, key, ranks, rank);
        if (error < 2e-2) ++right;
        std::cout << "rank " + std::to_string(rank) + ": relative error " + std::to_string(error) + "\n";
      } catch (const Error& error) {
        std::cerr << error.what() << '\n';
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return right == ranks ? 0 : 1;
}
