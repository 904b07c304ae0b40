#include "comm/in_process.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "flashoverlap/error.hpp"
#include "flashoverlap/matrix.hpp"

namespace flashoverlap {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

std::span<std::byte> bytes(Matrix& matrix) {
  return {matrix.row(0), static_cast<std::size_t>(matrix.rows() * matrix.row_bytes())};
}

Matrix row_of(DataType data_type, const std::vector<float>& values) {
  Matrix matrix(data_type, 1, std::ssize(values));
  matrix.write(0, 0, values);
  return matrix;
}

std::vector<float> values_of(const Matrix& matrix) {
  std::vector<float> values(static_cast<std::size_t>(matrix.cols()));
  matrix.read(0, 0, values);
  return values;
}

/// Runs `step(rank)` on a thread of each rank; what each threw, empty where nothing.
std::vector<std::string> run_ranks(InProcessCommunicator& communicator, int ranks,
                                   const std::function<void(int)>& step) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          step(rank);
        } catch (const Stopped&) {
          errors[static_cast<std::size_t>(rank)] = "stopped";
        } catch (const Error& error) {
          errors[static_cast<std::size_t>(rank)] = error.what();
          communicator.stop();
        }
      });
    }
  }
  return errors;
}

std::string caller(int rank) { return fmt::format("rank {}, message 7", rank); }

TEST(InProcess, AllReduceSumsInRankOrderInFp32) {
  // 1e8 + 2 is 1e8 in fp32: in rank order the ones are lost, in the reverse order both would be kept.
  const std::vector<float> parts = {1.0f, 1.0f, 1e8f, -1e8f};
  InProcessCommunicator communicator(4, DataType::fp32, 10s);
  for (int repetition = 0; repetition < 20; ++repetition) {
    std::vector<Matrix> data;
    for (const float part : parts) data.push_back(row_of(DataType::fp32, {part, 2.0f}));
    const auto errors = run_ranks(communicator, 4, [&](int rank) {
      communicator.all_reduce(rank, caller(rank), bytes(data[static_cast<std::size_t>(rank)]));
    });
    EXPECT_THAT(errors, testing::Each(""));
    for (const Matrix& matrix : data) EXPECT_EQ(values_of(matrix), (std::vector<float>{0.0f, 8.0f}));
  }
}

TEST(InProcess, AllReduceRoundsOnce) {
  // In bf16, 256 + 1 rounds to 256; 256 + 1 + 1 = 258 is exact.
  std::vector<Matrix> data;
  for (const float part : {256.0f, 1.0f, 1.0f}) data.push_back(row_of(DataType::bf16, {part}));
  InProcessCommunicator communicator(3, DataType::bf16, 10s);
  run_ranks(communicator, 3, [&](int rank) {
    communicator.all_reduce(rank, caller(rank), bytes(data[static_cast<std::size_t>(rank)]));
  });
  for (const Matrix& matrix : data) EXPECT_EQ(values_of(matrix), std::vector<float>{258.0f});
}

TEST(InProcess, AllReduceSumsEveryElementOfALongRow) {
  std::vector<Matrix> data;
  for (std::uint64_t rank = 0; rank < 2; ++rank) data.push_back(random_matrix(DataType::fp16, 1, 5000, rank));
  const std::vector<float> first = values_of(data[0]);
  const std::vector<float> second = values_of(data[1]);
  std::vector<float> sum(first.size());
  std::ranges::transform(first, second, sum.begin(), std::plus());
  InProcessCommunicator communicator(2, DataType::fp16, 10s);
  run_ranks(communicator, 2, [&](int rank) {
    communicator.all_reduce(rank, caller(rank), bytes(data[static_cast<std::size_t>(rank)]));
  });
  EXPECT_EQ(data[0], row_of(DataType::fp16, sum));
  EXPECT_EQ(data[1], data[0]);
}

TEST(InProcess, ReduceScatterGivesEachRankItsPartOfTheSum) {
  std::vector<Matrix> sources = {row_of(DataType::fp16, {1, 2, 3, 4}),
                                 row_of(DataType::fp16, {10, 20, 30, 40})};
  std::vector<Matrix> destinations(2, Matrix(DataType::fp16, 1, 2));
  InProcessCommunicator communicator(2, DataType::fp16, 10s);
  run_ranks(communicator, 2, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    communicator.reduce_scatter(rank, caller(rank), bytes(sources[r]), bytes(destinations[r]));
  });
  EXPECT_EQ(values_of(destinations[0]), (std::vector<float>{11, 22}));
  EXPECT_EQ(values_of(destinations[1]), (std::vector<float>{33, 44}));
}

TEST(InProcess, AllGatherGivesEveryRankAllPartsInRankOrder) {
  std::vector<Matrix> destinations(3, Matrix(DataType::bf16, 1, 6));
  InProcessCommunicator communicator(3, DataType::bf16, 10s);
  run_ranks(communicator, 3, [&](int rank) {
    Matrix source = row_of(DataType::bf16, {static_cast<float>(rank), 0.5f});
    communicator.all_gather(rank, caller(rank), bytes(source),
                            bytes(destinations[static_cast<std::size_t>(rank)]));
  });
  for (const Matrix& matrix : destinations)
    EXPECT_EQ(values_of(matrix), (std::vector<float>{0, 0.5f, 1, 0.5f, 2, 0.5f}));
}

TEST(InProcess, CollectivesFollowEachOtherWithoutMixing) {
  InProcessCommunicator communicator(3, DataType::fp32, 10s);
  const auto errors = run_ranks(communicator, 3, [&](int rank) {
    for (int i = 0; i < 200; ++i) {
      Matrix data = row_of(DataType::fp32, {static_cast<float>(rank + i)});
      communicator.all_reduce(rank, caller(rank), bytes(data));
      if (values_of(data).front() != static_cast<float>(3 + 3 * i))
        throw Error(fmt::format("wrong at {}", i));
    }
  });
  EXPECT_THAT(errors, testing::Each(""));
}

TEST(InProcess, ExchangeMatchesEachPairInOrder) {
  // Every rank sends two parts to every rank, itself included, and an empty one.
  constexpr int ranks = 4;
  std::vector<std::vector<Matrix>> received(ranks,
                                            std::vector<Matrix>(2 * ranks, Matrix(DataType::fp32, 1, 1)));
  InProcessCommunicator communicator(ranks, DataType::fp32, 10s);
  const auto errors = run_ranks(communicator, ranks, [&](int rank) {
    std::vector<Matrix> sent;
    for (int i = 0; i < 2 * ranks; ++i)
      sent.push_back(row_of(DataType::fp32, {static_cast<float>(100 * rank + i)}));
    std::vector<InProcessCommunicator::Send> sends;
    std::vector<InProcessCommunicator::Receive> receives;
    for (int peer = 0; peer < ranks; ++peer) {
      for (const int part : {2 * peer, 2 * peer + 1}) {
        const auto p = static_cast<std::size_t>(part);
        sends.push_back({peer, bytes(sent[p])});
        receives.push_back({peer, bytes(received[static_cast<std::size_t>(rank)][p])});
      }
      sends.push_back({peer, {}});
      receives.push_back({peer, {}});
    }
    communicator.exchange(rank, caller(rank), sends, receives);
  });
  EXPECT_THAT(errors, testing::Each(""));
  for (int rank = 0; rank < ranks; ++rank) {
    for (int part = 0; part < 2 * ranks; ++part) {
      const Matrix& value = received[static_cast<std::size_t>(rank)][static_cast<std::size_t>(part)];
      EXPECT_EQ(values_of(value).front(), static_cast<float>(100 * (part / 2) + 2 * rank + part % 2));
    }
  }
}

TEST(InProcess, ExchangeIsDoneWhenItsOwnPartsAreMatched) {
  // Rank 1 exchanges with rank 0 and then with rank 2, which waits for rank 0's second exchange with rank 1
  // in turn.
  InProcessCommunicator communicator(3, DataType::fp32, 10s);
  const auto errors = run_ranks(communicator, 3, [&](int rank) {
    Matrix data = row_of(DataType::fp32, {static_cast<float>(rank)});
    const auto send = [&](int peer) {
      const InProcessCommunicator::Send part{peer, bytes(data)};
      communicator.exchange(rank, caller(rank), {&part, 1}, {});
    };
    const auto receive = [&](int peer) {
      const InProcessCommunicator::Receive part{peer, bytes(data)};
      communicator.exchange(rank, caller(rank), {}, {&part, 1});
    };
    if (rank == 0) {
      send(1);
      receive(2);
    } else if (rank == 1) {
      receive(0);
      send(2);
    } else {
      receive(1);
      send(0);
    }
    if (values_of(data).front() != 0.0f) throw Error("rank 0's value did not come round");
  });
  EXPECT_THAT(errors, testing::Each(""));
}

TEST(InProcess, ACollectiveNamesTheRanksThatDidNotJoin) {
  InProcessCommunicator communicator(4, DataType::fp32, 250ms);
  const auto errors = run_ranks(communicator, 4, [&](int rank) {
    if (rank == 1 || rank == 3) return;
    Matrix data(DataType::fp32, 1, 1);
    communicator.all_reduce(rank, caller(rank), bytes(data));
  });
  EXPECT_THAT(errors, testing::Contains(testing::AnyOf("rank 0, message 7: rank 1, 3 missing after 250 ms",
                                                       "rank 2, message 7: rank 1, 3 missing after 250 ms")));
}

TEST(InProcess, AnExchangeNamesThePeersThatDidNotMatch) {
  InProcessCommunicator communicator(4, DataType::fp32, 250ms);
  const auto errors = run_ranks(communicator, 4, [&](int rank) {
    Matrix data(DataType::fp32, 1, 1);
    const InProcessCommunicator::Send to_0{0, bytes(data)};
    if (rank == 1) communicator.exchange(rank, caller(rank), {&to_0, 1}, {});
    if (rank != 0) return;
    std::vector<InProcessCommunicator::Receive> receives;
    for (const int peer : {1, 2, 3}) receives.push_back({peer, bytes(data)});
    communicator.exchange(rank, caller(rank), {}, receives);
  });
  EXPECT_THAT(errors, testing::ElementsAre("rank 0, message 7: no counterpart from rank 2, 3 after 250 ms",
                                           "", "", ""));
}

TEST(InProcess, CollectivesThatDifferAreRefused) {
  InProcessCommunicator communicator(2, DataType::fp32, 10s);
  std::vector<Matrix> data(2, Matrix(DataType::fp32, 1, 4));
  const auto expect_refused = [&](const std::function<void(int)>& step, const auto& matcher) {
    const auto errors = run_ranks(communicator, 2, step);
    EXPECT_THAT(errors, testing::UnorderedElementsAre("stopped", matcher));
    communicator.restart();
  };
  expect_refused(
      [&](int rank) {
        const auto own = bytes(data[static_cast<std::size_t>(rank)]);
        if (rank == 0) return communicator.all_reduce(rank, caller(rank), own);
        communicator.all_gather(rank, caller(rank), own.first(8), own);
      },
      AllOf(HasSubstr("rank 0, message 7 (16 bytes to 16) meets"),
            HasSubstr("rank 1, message 7 (8 bytes to 16)")));
  expect_refused(
      [&](int rank) {
        const auto own = bytes(data[static_cast<std::size_t>(rank)]);
        communicator.all_reduce(rank, caller(rank), rank == 0 ? own : own.first(8));
      },
      HasSubstr("meets"));
  expect_refused(
      [&](int rank) {
        const auto own = bytes(data[static_cast<std::size_t>(rank)]);
        communicator.reduce_scatter(rank, caller(rank), own, own.first(4));
      },
      HasSubstr("do not fit 2 ranks"));
}

TEST(InProcess, PartsOfDifferentSizeAreRefused) {
  InProcessCommunicator communicator(2, DataType::fp32, 10s);
  Matrix data(DataType::fp32, 1, 4);
  const auto errors = run_ranks(communicator, 2, [&](int rank) {
    const InProcessCommunicator::Send send{1, bytes(data)};
    const InProcessCommunicator::Receive receive{0, bytes(data).first(8)};
    if (rank == 0) return communicator.exchange(rank, caller(rank), {&send, 1}, {});
    communicator.exchange(rank, caller(rank), {}, {&receive, 1});
  });
  EXPECT_THAT(errors, testing::UnorderedElementsAre(
                          "stopped", HasSubstr("rank 0 sends 16 bytes to rank 1, which receives 8")));
}

// Whoever comes after a rank has left by an error must not write into memory that the rank has freed since.
TEST(InProcess, NobodyTransfersForARankThatHasLeft) {
  for (const bool gathers : {true, false}) {
    InProcessCommunicator communicator(2, DataType::fp32, 5ms);
    Matrix whole = row_of(DataType::fp32, {7, 7});
    Matrix own = row_of(DataType::fp32, {1});
    const auto take_part = [&](int rank) {
      if (gathers) return communicator.all_gather(rank, caller(rank), bytes(own), bytes(whole));
      const InProcessCommunicator::Send send{0, bytes(own)};
      const InProcessCommunicator::Receive receive{1, bytes(whole).first(4)};
      if (rank == 0) return communicator.exchange(rank, caller(rank), {}, {&receive, 1});
      communicator.exchange(rank, caller(rank), {&send, 1}, {});
    };
    EXPECT_THROW(take_part(0), WaitExpired);
    EXPECT_THROW(take_part(1), Stopped);
    EXPECT_THAT(values_of(whole), testing::ElementsAre(7, 7));
  }
}

TEST(InProcess, IsAsNewAfterARestart) {
  InProcessCommunicator communicator(2, DataType::fp32, 20ms);
  Matrix lost = row_of(DataType::fp32, {5});
  const auto expired = run_ranks(communicator, 2, [&](int rank) {
    const InProcessCommunicator::Send send{1, bytes(lost)};
    if (rank == 0) communicator.exchange(rank, caller(rank), {&send, 1}, {});
    if (rank == 1) communicator.all_reduce(rank, caller(rank), bytes(lost));
  });
  EXPECT_THAT(expired, testing::Not(testing::Contains("")));
  communicator.restart();
  Matrix received(DataType::fp32, 1, 1);
  const auto errors = run_ranks(communicator, 2, [&](int rank) {
    Matrix data = row_of(DataType::fp32, {static_cast<float>(rank)});
    const InProcessCommunicator::Send send{1, bytes(data)};
    const InProcessCommunicator::Receive receive{0, bytes(received)};
    if (rank == 0) communicator.exchange(rank, caller(rank), {&send, 1}, {});
    if (rank == 1) communicator.exchange(rank, caller(rank), {}, {&receive, 1});
    communicator.all_reduce(rank, caller(rank), bytes(data));
  });
  EXPECT_THAT(errors, testing::Each(""));
  EXPECT_EQ(values_of(received).front(), 0.0f);
}

}  // namespace
}  // namespace flashoverlap
