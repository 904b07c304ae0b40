// Every rank is a thread of this process with a GPU of its own.
#include "flashoverlap/communicator.hpp"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "cuda/device_array.hpp"
#include "cuda/graph.hpp"
#include "data_type/elements.hpp"
#include "flashoverlap/matrix.hpp"
#include "support/gpu_threads.hpp"

namespace flashoverlap {
namespace {

using testing::gpu_count;
using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using Values = std::vector<float>;

/// Elements on the current GPU.
class Elements {
 public:
  Elements(DataType data_type, const Values& values)
      : data_type_(data_type), count_(values.size()), bytes_(count_ * size_of_element()) {
    std::vector<std::byte> host(bytes_.size());
    write_elements(data_type, values, host.data());
    bytes_.set(host);
  }
  Values values() const {
    std::vector<std::byte> host(bytes_.size());
    FLASHOVERLAP_CUDA(cudaMemcpy(host.data(), bytes_.data(), host.size(), cudaMemcpyDeviceToHost));
    Values values(count_);
    read_elements(data_type_, host.data(), values);
    return values;
  }
  void* at(std::int64_t element) const { return bytes_.data() + element * size_of_element(); }

 private:
  std::int64_t size_of_element() const { return size_of(data_type_); }

  DataType data_type_;
  std::size_t count_;
  DeviceArray<std::byte> bytes_;
};

/// Ordered with the copies that `Elements` makes.
class OwnStream {
 public:
  OwnStream() { FLASHOVERLAP_CUDA(cudaStreamCreate(&stream_)); }
  ~OwnStream() { cudaStreamDestroy(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  operator Stream() const { return stream_; }
  void wait() const { FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream_)); }

 private:
  Stream stream_ = nullptr;
};

/// Fails the test if the step of any rank throws.
void on_gpus(int ranks, const std::function<void(int)>& step) {
  for (const std::string& error : testing::errors_on_gpus(ranks, step)) EXPECT_EQ(error, "");
}

void on_ranks(int ranks, const std::function<void(const Communicator&)>& step,
              const CommunicatorOptions& options = {}) {
  const std::string key = Communicator::make_key();
  on_gpus(ranks, [&](int rank) { step(Communicator(key, rank, ranks, options)); });
}

/// Small integers, whose sums over 8 ranks are exact in every type.
Values numbers(int rank, std::int64_t count) {
  Values values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((rank * 7 + i) % 23);
  return values;
}

Values sum_of_numbers(int ranks, std::int64_t count) {
  Values sum(static_cast<std::size_t>(count));
  for (int rank = 0; rank < ranks; ++rank) {
    const Values part = numbers(rank, count);
    std::ranges::transform(sum, part, sum.begin(), std::plus<>());
  }
  return sum;
}

Values slice(const Values& values, std::int64_t begin, std::int64_t count) {
  return {values.begin() + begin, values.begin() + begin + count};
}

class EachType : public ::testing::TestWithParam<DataType> {};

TEST_P(EachType, Collectives) {
  const int ranks = gpu_count();
  constexpr std::int64_t count = 1000;
  on_ranks(ranks, [&](const Communicator& communicator) {
    const int rank = communicator.rank();
    const OwnStream stream;
    EXPECT_EQ(communicator.ranks(), ranks);
    EXPECT_EQ(communicator.device(), rank);
    const Values sum = sum_of_numbers(ranks, ranks * count);

    const Elements reduced(GetParam(), numbers(rank, ranks * count));
    const Elements source(GetParam(), numbers(rank, ranks * count));
    const Elements scattered(GetParam(), Values(count));
    const Elements gathered(GetParam(), Values(static_cast<std::size_t>(ranks * count)));
    communicator.all_reduce(reduced.at(0), ranks * count, GetParam(), stream);
    communicator.reduce_scatter(source.at(0), scattered.at(0), count, GetParam(), stream);
    communicator.all_gather(source.at(0), gathered.at(0), count, GetParam(), stream);
    stream.wait();

    EXPECT_EQ(reduced.values(), sum);
    EXPECT_EQ(scattered.values(), slice(sum, rank * count, count));
    for (int peer = 0; peer < ranks; ++peer) {
      EXPECT_EQ(slice(gathered.values(), peer * count, count), numbers(peer, count));
    }
    EXPECT_NO_THROW(communicator.throw_if_failed());
  });
}

INSTANTIATE_TEST_SUITE_P(Communicator, EachType,
                         ::testing::Values(DataType::bf16, DataType::fp16, DataType::fp32));

TEST(Communicator, CollectivesOfNothingDoNothing) {
  on_ranks(gpu_count(), [](const Communicator& communicator) {
    const OwnStream stream;
    communicator.all_reduce(nullptr, 0, DataType::bf16, stream);
    communicator.reduce_scatter(nullptr, nullptr, 0, DataType::bf16, stream);
    communicator.all_gather(nullptr, nullptr, 0, DataType::bf16, stream);
    communicator.exchange({}, {}, DataType::bf16, stream);
    stream.wait();
  });
}

/// Rank s sends rank d two parts, of (s + 2 d) mod 4 and of s + d elements.
TEST(Communicator, ExchangesUnevenAndEmptyParts) {
  const int ranks = gpu_count();
  const auto counts = [](int source, int destination) {
    return std::array<std::int64_t, 2>{(source + 2 * destination) % 4, source + destination};
  };
  constexpr std::int64_t room = 16;
  on_ranks(ranks, [&](const Communicator& communicator) {
    const int rank = communicator.rank();
    const OwnStream stream;
    const Elements source(DataType::bf16, numbers(rank, 2 * room * ranks));
    const Elements destination(DataType::bf16, Values(static_cast<std::size_t>(2 * room * ranks), -1.0F));
    std::vector<Communicator::Part> sends, receives;
    for (int peer = 0; peer < ranks; ++peer) {
      for (int part = 0; part < 2; ++part) {
        const std::int64_t place = (2 * peer + part) * room;
        sends.push_back({peer, source.at(place), counts(rank, peer)[static_cast<std::size_t>(part)]});
        receives.push_back({peer, destination.at(place), counts(peer, rank)[static_cast<std::size_t>(part)]});
      }
    }
    communicator.exchange(sends, receives, DataType::bf16, stream);
    stream.wait();

    const Values received = destination.values();
    for (int peer = 0; peer < ranks; ++peer) {
      const Values sent = numbers(peer, 2 * room * ranks);
      for (int part = 0; part < 2; ++part) {
        const std::int64_t count = counts(peer, rank)[static_cast<std::size_t>(part)];
        Values expected = slice(sent, (2 * rank + part) * room, count);
        expected.resize(room, -1.0F);
        EXPECT_EQ(slice(received, (2 * peer + part) * room, room), expected) << peer << " to " << rank;
      }
    }
  });
}

TEST(Communicator, RefusesPartsToItselfThatDoNotMatch) {
  on_ranks(gpu_count(), [](const Communicator& communicator) {
    const OwnStream stream;
    const Elements data(DataType::bf16, Values(8));
    const auto part = [&](std::int64_t count) {
      return Communicator::Part{communicator.rank(), data.at(0), count};
    };
    EXPECT_THROW(communicator.exchange({part(2)}, {part(3)}, DataType::bf16, stream), InvalidArgument);
    EXPECT_THROW(communicator.exchange({part(2)}, {}, DataType::bf16, stream), InvalidArgument);
    EXPECT_THROW(communicator.exchange({}, {part(2)}, DataType::bf16, stream), InvalidArgument);
  });
}

TEST(Communicator, SplitsIntoGroups) {
  const int ranks = gpu_count();
  on_ranks(ranks, [&](const Communicator& communicator) {
    const int color = communicator.rank() % 2;
    const Communicator group = communicator.split(color);
    EXPECT_EQ(group.rank(), communicator.rank() / 2);
    EXPECT_EQ(group.ranks(), (ranks + 1 - color) / 2);
    EXPECT_EQ(group.device(), communicator.device());
    EXPECT_FALSE(communicator.options().concurrent_collectives);
    EXPECT_EQ(group.options().concurrent_collectives, ranks > 1) << "other groups' run at the same time";
    EXPECT_FALSE(communicator.split(0).options().concurrent_collectives) << "the same ranks";

    const OwnStream stream;
    const Elements data(DataType::fp32, {static_cast<float>(1 << communicator.rank())});
    for (const Communicator& one : {group, group.capped(2)}) {
      one.all_reduce(data.at(0), 1, DataType::fp32, stream);
    }
    stream.wait();
    float sum = 0;
    for (int rank = color; rank < ranks; rank += 2) sum += static_cast<float>(1 << rank);
    EXPECT_THAT(data.values(), ElementsAre(sum * static_cast<float>(group.ranks())));
    EXPECT_THROW(communicator.split(-1), InvalidArgument);
  });
}

TEST(Communicator, CapsCollectives) {
  const int ranks = gpu_count();
  constexpr std::int64_t count = 1 << 20;
  on_ranks(ranks, [&](const Communicator& communicator) {
    const OwnStream stream;
    for (const int thread_blocks : {4, 1, 4, 0}) {
      const Communicator capped = communicator.capped(thread_blocks);
      EXPECT_EQ(capped.rank(), communicator.rank());
      EXPECT_EQ(capped.ranks(), ranks);
      const Elements data(DataType::bf16, numbers(communicator.rank(), count));
      capped.all_reduce(data.at(0), count, DataType::bf16, stream);
      stream.wait();
      EXPECT_EQ(data.values(), sum_of_numbers(ranks, count));
    }
    EXPECT_THROW(communicator.capped(-1), InvalidArgument);
  });
}

TEST(Communicator, SumsInMemoryOfItsOwn) {
  const int ranks = gpu_count();
  constexpr std::int64_t count = 100'000;
  on_ranks(ranks, [&](const Communicator& communicator) {
    const OwnStream stream;
    const Values own = numbers(communicator.rank(), ranks * count);
    const Values sum = sum_of_numbers(ranks, ranks * count);
    for (const int thread_blocks : {0, 4}) {
      const Communicator capped = communicator.capped(thread_blocks);
      const auto bytes = static_cast<std::size_t>(ranks * count * size_of(DataType::bf16));
      const std::shared_ptr<void> source = capped.allocate(bytes).data;
      const std::shared_ptr<void> destination = capped.allocate(bytes).data;
      EXPECT_EQ(capped.allocate(0).data, nullptr);
      const Elements given(DataType::bf16, own);
      const Elements taken(DataType::bf16, Values(own.size()));
      const auto copy = [&](void* to, const void* from) {
        FLASHOVERLAP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
      };
      copy(source.get(), given.at(0));
      capped.reduce_scatter(source.get(), destination.get(), count, DataType::bf16, stream);
      copy(taken.at(0), destination.get());
      stream.wait();
      EXPECT_EQ(slice(taken.values(), 0, count), slice(sum, communicator.rank() * count, count));
      capped.all_reduce(source.get(), ranks * count, DataType::bf16, stream);
      copy(taken.at(0), source.get());
      stream.wait();
      EXPECT_EQ(taken.values(), sum);
    }
  });
}

TEST(Communicator, IsReplayedFromAGraph) {
  const int ranks = gpu_count();
  constexpr std::int64_t count = 1000;
  on_ranks(ranks, [&](const Communicator& communicator) {
    const OwnStream stream;
    const Elements data(DataType::fp32, Values(count, 1.0F));
    communicator.all_reduce(data.at(0), count, DataType::fp32, stream);  // connects the ranks
    stream.wait();

    const CudaGraph graph(stream,
                          [&] { communicator.all_reduce(data.at(0), count, DataType::fp32, stream); });
    for (int replay = 0; replay < 3; ++replay) graph.launch(stream);
    stream.wait();

    const auto expected = static_cast<float>(ranks * ranks * ranks * ranks);
    EXPECT_EQ(data.values(), Values(count, expected));
  });
}

TEST(Communicator, AbsentRankIsReportedInTime) {
  const std::string key = Communicator::make_key();
  on_gpus(1, [&](int) {
    const auto begin = Clock::now();
    try {
      const Communicator communicator(key, 0, 2, {.wait_limit = 2s});
      ADD_FAILURE() << "joined a rank that does not exist";
    } catch (const CommunicationError& error) {
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("rank 0 of 2"), HasSubstr("not all ranks have joined within 2000 ms")));
    }
    EXPECT_LT(Clock::now() - begin, 5s);
  });
}

TEST(Communicator, ARankThatDoesNotSplitIsReportedInTime) {
  const int ranks = gpu_count();
  if (ranks < 2) GTEST_SKIP() << "needs 2 GPUs";
  on_ranks(ranks,
           [&](const Communicator& communicator) {
             if (communicator.rank() == 1) {
               std::this_thread::sleep_for(5s);
               return;
             }
             EXPECT_THROW(communicator.split(0), CommunicationError);
             EXPECT_THROW(communicator.split(0), CommunicationError);
           },
           {.wait_limit = 2s});
}

TEST(Communicator, AbortReleasesACollectiveWhosePartnerNeverComes) {
  const int ranks = gpu_count();
  if (ranks < 2) GTEST_SKIP() << "needs 2 GPUs";
  on_ranks(ranks, [&](const Communicator& communicator) {
    const OwnStream stream;
    const Elements data(DataType::fp32, Values(1000));
    const Communicator capped = communicator.capped(2);
    for (const Communicator& one : {communicator, capped}) {
      one.all_reduce(data.at(0), 1000, DataType::fp32, stream);  // connects the ranks
    }
    stream.wait();
    if (communicator.rank() != 0) return;

    communicator.all_reduce(data.at(0), 1000, DataType::fp32, stream);
    capped.all_reduce(data.at(0), 1000, DataType::fp32, stream);
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
    const auto begin = Clock::now();
    std::thread([&] { communicator.abort("rank 1 was lost"); }).join();
    communicator.abort("again");
    stream.wait();
    EXPECT_LT(Clock::now() - begin, 5s);

    const auto expect_reason = [](const std::function<void()>& call) {
      EXPECT_THAT(call, ::testing::ThrowsMessage<CommunicationError>("rank 1 was lost"));
    };
    expect_reason([&] { communicator.throw_if_failed(); });
    expect_reason([&] { capped.throw_if_failed(); });
    expect_reason([&] { communicator.all_reduce(data.at(0), 1, DataType::fp32, stream); });
    expect_reason([&] { capped.exchange({}, {}, DataType::fp32, stream); });
    expect_reason([&] { communicator.split(0); });
    expect_reason([&] { communicator.capped(3); });
  });
}

/// Rank 0 makes a call that waits on the host for ranks which never come.
void expect_released_by_abort(const std::function<void(const Communicator&, Stream)>& call) {
  on_ranks(gpu_count(), [&](const Communicator& communicator) {
    const Communicator capped = communicator.capped(4);
    if (communicator.rank() != 0) return;
    const OwnStream stream;
    std::atomic<bool> aborts = false;
    std::thread watchdog([&] {
      std::this_thread::sleep_for(1s);
      aborts = true;
      communicator.abort("rank 1 was lost");
    });
    const auto begin = Clock::now();
    try {
      call(capped, stream);
    } catch (const CommunicationError& error) {
      EXPECT_STREQ(error.what(), "rank 1 was lost");
    }
    EXPECT_TRUE(aborts) << "the call has not waited";
    watchdog.join();
    stream.wait();
    EXPECT_LT(Clock::now() - begin, 10s);
  });
}

TEST(Communicator, AbortReleasesAHostThatWaitsForAConnection) {
  if (gpu_count() < 2) GTEST_SKIP() << "needs 2 GPUs";
  expect_released_by_abort([](const Communicator& communicator, Stream stream) {
    const Elements data(DataType::fp32, Values(1000));
    communicator.all_reduce(data.at(0), 1000, DataType::fp32, stream);  // the first connects the ranks
  });
}

TEST(Communicator, AbortReleasesAHostThatWaitsToShareMemory) {
  if (gpu_count() < 2) GTEST_SKIP() << "needs 2 GPUs";
  expect_released_by_abort([](const Communicator& communicator, Stream) { communicator.allocate(1 << 20); });
}

TEST(Communicator, RefusesWhatBreaksARule) {
  const std::string key = Communicator::make_key();
  EXPECT_THROW(Communicator("short", 0, 1), InvalidArgument);
  EXPECT_THROW(Communicator(key, 1, 1), InvalidArgument);
  EXPECT_THROW(Communicator(key, -1, 1), InvalidArgument);
  EXPECT_THROW(Communicator(key, 0, 0), InvalidArgument);
  EXPECT_THROW(Communicator(key, 0, 1, {.wait_limit = 0ms}), InvalidArgument);
  EXPECT_THROW(Communicator(key, 0, 1, {.wait_limit = 25h}), InvalidArgument);
}

}  // namespace
}  // namespace flashoverlap
