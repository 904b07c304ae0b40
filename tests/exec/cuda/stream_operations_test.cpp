// The kernel that stands in for a stream's memory operations, in the emulator.
#include "exec/cuda/stream_operations.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace flashoverlap {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint32_t wait = 1;
constexpr std::uint32_t write = 0;

template <std::size_t count>
StreamOperations listed(const std::array<StreamOperation, count>& operations, std::uint32_t* expired) {
  StreamOperations list{};
  std::ranges::copy(operations, list.operations);
  list.count = static_cast<int>(count);
  list.expired = expired;
  list.wait_limit_ns = 1'000'000;
  return list;
}

/// As one thread of a kernel.
testing::emulator::Grid kernel(const StreamOperations& list) {
  return {.blocks = 1, .kernel = [&list] {
            if (threadIdx.x == 0) work_off(list);
          }};
}

std::vector<std::string> run(const std::vector<testing::emulator::Grid>& kernels, std::uint64_t seed) {
  testing::emulator::Launch launch(seed);
  launch.run(kernels);
  return launch.errors();
}

TEST(StreamOperations, AreDoneInOrder) {
  std::array<std::uint32_t, 2> words{};
  std::uint32_t expired = 0;
  const StreamOperations list = listed(
      std::array<StreamOperation, 4>{
          {{&words[0], 5, write}, {&words[0], 3, wait}, {&words[1], 7, write}, {&words[0], 0, write}}},
      &expired);
  EXPECT_THAT(run({kernel(list)}, 1), IsEmpty());
  EXPECT_THAT(words, ElementsAre(0, 7));
  EXPECT_EQ(expired, 0U);
}

// Two streams that hand a turn to each other: neither may go on before the other has written.
TEST(StreamOperations, WaitForWhatAnotherStreamWrites) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::array<std::uint32_t, 3> words{};
    std::uint32_t expired = 0;
    const StreamOperations first = listed(
        std::array<StreamOperation, 3>{{{&words[0], 1, write}, {&words[1], 1, wait}, {&words[2], 1, write}}},
        &expired);
    const StreamOperations second = listed(
        std::array<StreamOperation, 4>{
            {{&words[0], 1, wait}, {&words[2], 9, write}, {&words[1], 1, write}, {&words[0], 0, write}}},
        &expired);
    EXPECT_THAT(run({kernel(first), kernel(second)}, seed), IsEmpty());
    EXPECT_THAT(words, ElementsAre(0, 1, 1)) << "the first writes its last word after the second";
    EXPECT_EQ(expired, 0U);
  }
}

TEST(StreamOperations, CountOnBeyondTheLargestNumber) {
  std::array<std::uint32_t, 2> words{2, 0};
  std::uint32_t expired = 0;
  const StreamOperations list = listed(
      std::array<StreamOperation, 2>{{{words.data(), 0xfffffffe, wait}, {&words[1], 1, write}}}, &expired);
  run({kernel(list)}, 1);
  EXPECT_EQ(words[1], 1U);
  EXPECT_EQ(expired, 0U);
}

TEST(StreamOperations, EndWhereWhatTheyWaitForDoesNotCome) {
  std::array<std::uint32_t, 2> words{1, 0};
  std::uint32_t expired = 0;
  const StreamOperations list =
      listed(std::array<StreamOperation, 2>{{{words.data(), 2, wait}, {&words[1], 1, write}}}, &expired);
  EXPECT_THAT(run({kernel(list)}, 1), IsEmpty());
  EXPECT_EQ(expired, 1U);
  EXPECT_EQ(words[1], 0U) << "what comes after must not be done";

  words[0] = 2;
  run({kernel(list)}, 1);
  EXPECT_EQ(words[1], 0U) << "and nothing of later runs";
}

TEST(StreamOperations, WithoutWaitsNeedNoWordForThoseThatExpire) {
  std::uint32_t word = 0;
  const StreamOperations list = listed(std::array<StreamOperation, 1>{{{&word, 4, write}}}, nullptr);
  EXPECT_THAT(run({kernel(list)}, 1), IsEmpty());
  EXPECT_EQ(word, 4U);
}

}  // namespace
}  // namespace flashoverlap
