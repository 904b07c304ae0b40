#include "comm/shared_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "flashoverlap/error.hpp"

namespace flashoverlap {
namespace {

constexpr std::size_t last = SharedWords::count - 1;

TEST(SharedWords, NewOnesAreZeroAndHaveANameOfTheirOwn) {
  const SharedWords some;
  const SharedWords others;
  EXPECT_NE(some.name(), others.name());
  for (std::size_t index = 0; index < SharedWords::count; ++index) {
    ASSERT_EQ(some[index], 0u);
    some[index] = 1;
    ASSERT_EQ(others[index], 0u);
  }
}

TEST(SharedWords, WhatOneWritesTheOtherReads) {
  const SharedWords made;
  const SharedWords opened(made.name());
  made[3] = 5;
  opened[last] = 7;
  EXPECT_EQ(opened[3], 5u);
  EXPECT_EQ(made[last], 7u);
}

TEST(SharedWords, AreSharedByProcesses) {
  const SharedWords made;
  const pid_t child = fork();
  if (child == 0) {
    const SharedWords opened(made.name());
    opened[1] = 9;
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(made[1], 9u);
}

TEST(SharedWords, LastAsLongAsAnyoneHasOpenedThemThoughTheirNameIsForgotten) {
  auto made = std::make_unique<SharedWords>();
  const SharedWords opened(made->name());
  made->forget_name();
  EXPECT_THROW(SharedWords late(opened.name()), CommunicationError);
  (*made)[2] = 4;
  made.reset();
  EXPECT_EQ(opened[2], 4u);
}

TEST(SharedWords, AnUnknownNameIsAnErrorThatNamesIt) {
  const SharedWords::Name unknown{"/flashoverlap-nobodys"};
  try {
    const SharedWords words(unknown);
    ADD_FAILURE() << "opened";
  } catch (const CommunicationError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("/flashoverlap-nobodys: No such file"));
  }
}

}  // namespace
}  // namespace flashoverlap
