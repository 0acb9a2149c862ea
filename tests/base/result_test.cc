#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

namespace base {
namespace {

Error broken(std::string sentence) {
  return {Code::kBrokenFile, std::move(sentence)};
}

TEST(Result, HoldsAValue) {
  Result<std::string> result = std::string("abc");
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(static_cast<bool>(result));
  EXPECT_EQ(*result, "abc");
  EXPECT_EQ(result->size(), 3u);
  *result += "d";
  EXPECT_EQ(result.value(), "abcd");
}

TEST(Result, HoldsAnError) {
  const Result<int> result = broken("tensor count is 0");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::kBrokenFile);
  EXPECT_EQ(result.error().message, "tensor count is 0");
}

TEST(Result, ZeroAndEmptyAreValues) {
  const Result<int> zero = 0;
  EXPECT_TRUE(zero.ok());
  const Result<std::string> empty = std::string();
  EXPECT_TRUE(empty.ok());
}

TEST(Result, CarriesValuesThatOnlyMove) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  ASSERT_TRUE(result.ok());
  const std::unique_ptr<int> taken = std::move(*result);
  EXPECT_EQ(*taken, 5);
}

TEST(Result, OfNothingIsASuccessByDefault) {
  EXPECT_TRUE(Status().ok());
  const Status failed = broken("no");
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "no");
}

TEST(ResultDeathTest, TheWrongSideIsABug) {
  EXPECT_DEATH((void)Result<int>(broken("bad magic")).value(),
               "value\\(\\) of an error: bad magic");
  EXPECT_DEATH((void)Result<int>(1).error(), "error\\(\\) of a value");
  EXPECT_DEATH((void)Status().error(), "error\\(\\) of a success");
}

Result<int> half(int number) {
  if (number % 2 != 0) return broken(cat(number, " is odd"));
  return number / 2;
}

Result<int> quarter(int number) {
  ASSIGN_OR_RETURN(const int first, half(number));
  int second = -1;
  ASSIGN_OR_RETURN(second, half(first));
  return second;
}

Status check_even(int number, int* reached) {
  RETURN_IF_ERROR(half(number));
  ++*reached;
  return {};
}

TEST(ResultMacros, AssignOrReturnTheError) {
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_EQ(quarter(5).error().message, "5 is odd");
  EXPECT_EQ(quarter(6).error().message, "3 is odd");
}

TEST(ResultMacros, ReturnIfErrorGoesOnOtherwise) {
  int reached = 0;
  EXPECT_TRUE(check_even(4, &reached).ok());
  EXPECT_EQ(reached, 1);
  EXPECT_EQ(check_even(7, &reached).error().message, "7 is odd");
  EXPECT_EQ(reached, 1);
}

TEST(Codes, EachHasItsOwnName) {
  std::set<std::string> names;
  const auto last = static_cast<int>(Code::kSystem);
  for (int code = 0; code <= last; code++) names.insert(code_name(static_cast<Code>(code)));
  EXPECT_EQ(names.size(), static_cast<size_t>(last) + 1);
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_STREQ(code_name(Code::kBrokenFile), "broken_file");
}

}  // namespace
}  // namespace base
