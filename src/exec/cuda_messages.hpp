#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <vector>

#include "flashoverlap/communicator.hpp"
#include "flashoverlap/operator.hpp"
#include "flashoverlap/plan.hpp"
#include "gemm/cuda_handles.hpp"

namespace flashoverlap {

/// A plan's message list on a stream: per message a wait for its counters, then the transfer. Two words of
/// host memory say which run the stream is at, and how many of its messages are done.
class CudaMessages {
 public:
  using Buffers = std::array<void*, buffer_count>;

  /// `counters`: this rank's, on its GPU. `computed_before`: messages follow the GEMM on its stream, and no
  /// counter is raised. `beside_gemm` makes the transfers that meet the GEMM, `alone` the one after its last
  /// tiles, which has the GPU to itself. Throws `InvalidArgument` for messages that need peer memory.
  CudaMessages(const Plan& plan, const Communicator& alone, const Communicator& beside_gemm,
               std::uint32_t* counters, bool computed_before, bool record_times);

  /// Marks the run as under way; the messages' end marks it as over.
  void begin(cudaStream_t stream);

  /// `computed`: recorded when every tile is done. At the end all counters that were waited for are reset.
  void enqueue(const Buffers& buffers, cudaStream_t stream, cudaEvent_t computed) const;
  /// The same on a stream that has computed all tiles before: nothing is waited for.
  void enqueue_after_gemm(const Buffers& buffers, cudaStream_t stream) const;

  /// The number of the run that is under way; 0: none.
  std::uint32_t running() const noexcept { return words_.read(running_word); }
  /// What the run that is under way waits for, as the error to throw. Reads the counters.
  std::exception_ptr report() const;
  /// Lets every wait on the stream pass.
  void release() const noexcept;

  std::vector<MessageTimes> times(const std::function<double(cudaEvent_t)>& since_begin) const;

 private:
  static constexpr std::size_t running_word = 0;
  static constexpr std::size_t done_word = 1;

  struct Times {
    CudaEvent signalled{cudaEventDefault};
    CudaEvent done{cudaEventDefault};
  };

  void check_supported() const;
  bool follows_last_tiles(const Message& message) const;
  void transfer(const Message& message, const Buffers& buffers, cudaStream_t stream) const;
  void* at(const Buffers& buffers, const Region& region) const;
  std::int64_t count(const Region& region) const;
  std::vector<Communicator::Part> parts(const std::vector<Part>& parts, const Buffers& buffers) const;

  const Plan& plan_;
  const Communicator& alone_;
  const Communicator& beside_gemm_;
  std::uint32_t* counters_;
  bool computed_before_;
  MappedWords words_{2};
  std::uint32_t runs_ = 0;
  std::vector<Times> times_;
  CudaStream side_{StreamPriority::high};  // for what must pass while the message stream is stuck
};

}  // namespace flashoverlap
