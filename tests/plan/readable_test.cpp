#include "plan/readable.hpp"

#include <gtest/gtest.h>

#include <type_traits>

#include "flashoverlap/error.hpp"

namespace flashoverlap {
namespace {

TEST(Readable, LongTextLosesItsMiddle) {
  EXPECT_EQ(shortened("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(shortened("abcdefghi", 8), "ab...ghi");
  EXPECT_EQ(shortened("", 8), "");
  // Characters of two bytes stay whole.
  EXPECT_EQ(shortened("\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4", 8), "\u00e4...\u00e4");
  EXPECT_EQ(shortened("x\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4", 8), "x...\u00e4");
}

TEST(Readable, ErrorsShowLongValuesInShort) {
  const InvalidArgument error("groups", std::string(40'000, '1'), "must be fewer");
  EXPECT_EQ(std::string(error.what()).size(), sizeof("groups = : must be fewer") - 1 + 120);
  EXPECT_EQ(error.argument(), "groups");
  EXPECT_EQ(std::string(error.renamed("--groups").what()).substr(0, 13), "--groups = 11");
}

/// `catch` by type: each is an Error of its own.
TEST(Readable, EveryErrorIsAnError) {
  EXPECT_TRUE((std::is_base_of_v<Error, CudaError>));
  EXPECT_TRUE((std::is_base_of_v<Error, CommunicationError>));
  EXPECT_TRUE((std::is_base_of_v<Error, WaitExpired>));
  EXPECT_TRUE((std::is_base_of_v<Error, InvalidPlan>));
  EXPECT_TRUE((std::is_base_of_v<Error, InvalidArgument>));
}

}  // namespace
}  // namespace flashoverlap
