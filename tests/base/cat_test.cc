#include "base/cat.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>

namespace base {
namespace {

TEST(Cat, JoinsEveryKindOfText) {
  const char* pointer = "pointer";
  const char array[] = "array";
  EXPECT_EQ(cat("literal ", pointer, ' ', array, ' ', std::string("string"), ' ',
                std::string_view("view-and-more").substr(0, 4)),
            "literal pointer array string view");
  EXPECT_EQ(cat(), "");
  EXPECT_EQ(cat(""), "");
}

TEST(Cat, PrintsBoolsAsWordsAndNothingElseAsOne) {
  EXPECT_EQ(cat(true, ' ', false), "true false");
  const char* text = "text";
  EXPECT_EQ(cat(text), "text");  // a pointer is not a truth value
}

TEST(Cat, PrintsIntegersOfEveryWidth) {
  EXPECT_EQ(cat(uint8_t{200}, ' ', int8_t{-7}, ' ', 42, ' ', -1L, ' ', uint16_t{65535}),
            "200 -7 42 -1 65535");
  EXPECT_EQ(cat(std::numeric_limits<int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(cat(std::numeric_limits<uint64_t>::max()), "18446744073709551615");
}

TEST(Cat, PrintsFloatsInTheShortestFormThatReadsBackEqual) {
  EXPECT_EQ(cat(0.1f, ' ', 0.1, ' ', 1.0, ' ', -0.0), "0.1 0.1 1 -0");
  EXPECT_EQ(cat(std::numeric_limits<double>::infinity()), "inf");
  for (const double number : {1.0 / 3, 5e-324, 1.7976931348623157e308, -123456.789})
    EXPECT_EQ(std::strtod(cat(number).c_str(), nullptr), number);
}

}  // namespace
}  // namespace base
