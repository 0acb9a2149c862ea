#include "model/metadata.h"

#include <gtest/gtest.h>

#include <limits>

namespace model {
namespace {

using testing::Test;

class MetadataTest : public Test {
 protected:
  template <class Result>
  static std::string error_of(const Result& result) {
    return result.ok() ? "no error" : result.error().message;
  }

  Metadata metadata_;
};

TEST_F(MetadataTest, IntegersAreCheckedAgainstTheirRange) {
  metadata_.set("n", int64_t{7});
  EXPECT_EQ(*metadata_.integer("n", 7, 7), 7);
  EXPECT_EQ(error_of(metadata_.integer("n", 8, 9)), "metadata key 'n' is 7, not between 8 and 9");
  EXPECT_EQ(error_of(metadata_.integer("n", 0, 6)), "metadata key 'n' is 7, not between 0 and 6");
  EXPECT_EQ(error_of(metadata_.integer("m", 0, 6)), "metadata key 'm' is missing");
  EXPECT_EQ(*metadata_.integer_or("m", -5, 0, 6), -5);
}

TEST_F(MetadataTest, AnIntegerBeyond63BitsIsOutOfRangeNotNegative) {
  metadata_.set("n", std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(error_of(metadata_.integer("n", -1, std::numeric_limits<int64_t>::max())),
            "metadata key 'n' is 18446744073709551615, not between -1 and 9223372036854775807");
}

TEST_F(MetadataTest, AWrongTypeIsNamed) {
  metadata_.set("n", std::string("7"));
  metadata_.set("list", std::vector<std::string>{"a"});
  EXPECT_EQ(error_of(metadata_.integer("n", 0, 9)), "metadata key 'n' is a string, not an integer");
  EXPECT_EQ(error_of(metadata_.string("list")),
            "metadata key 'list' is an array of strings, not a string");
  EXPECT_EQ(error_of(metadata_.number("n")), "metadata key 'n' is a string, not a number");
  EXPECT_EQ(error_of(metadata_.boolean_or("n", true)),
            "metadata key 'n' is a string, not a boolean");
}

TEST_F(MetadataTest, NumbersAreFiniteAndMayBeWrittenAsIntegers) {
  metadata_.set("integer", int64_t{10000});
  metadata_.set("nan", std::numeric_limits<double>::quiet_NaN());
  metadata_.set("inf", -std::numeric_limits<double>::infinity());
  EXPECT_EQ(*metadata_.number("integer"), 10000.0);
  EXPECT_EQ(*metadata_.number_or("absent", 2.5), 2.5);
  EXPECT_EQ(error_of(metadata_.number_or("nan", 1)), "metadata key 'nan' is nan, not finite");
  EXPECT_EQ(error_of(metadata_.number("inf")), "metadata key 'inf' is -inf, not finite");
}

TEST_F(MetadataTest, BooleansMayBeWrittenAsIntegers) {
  metadata_.set("yes", true);
  metadata_.set("one", int64_t{1});
  metadata_.set("two", int64_t{2});
  EXPECT_TRUE(*metadata_.boolean_or("yes", false));
  EXPECT_TRUE(*metadata_.boolean_or("one", false));
  EXPECT_FALSE(*metadata_.boolean_or("absent", false));
  EXPECT_FALSE(metadata_.boolean_or("two", false).ok());
}

TEST_F(MetadataTest, AScalarCountsForAllLayersAndAnArrayNeedsOneEntryPerLayer) {
  metadata_.set("scalar", int64_t{4});
  metadata_.set("array", std::vector<int64_t>{1, 2, 3});
  EXPECT_EQ(*metadata_.per_layer("scalar", 3, 1, 4), (std::vector<int64_t>{4, 4, 4}));
  EXPECT_EQ(*metadata_.per_layer("array", 3, 1, 4), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(error_of(metadata_.per_layer("array", 4, 1, 4)),
            "metadata key 'array' has 3 entries for 4 layers");
  EXPECT_EQ(error_of(metadata_.per_layer("array", 2, 1, 4)),
            "metadata key 'array' has 3 entries for 2 layers");
  EXPECT_EQ(error_of(metadata_.per_layer("array", 3, 1, 2)),
            "metadata key 'array' is 3 for layer 2, not between 1 and 2");
}

TEST_F(MetadataTest, ListsAreFoundByTheirType) {
  metadata_.set("texts", std::vector<std::string>{"a", "b"});
  metadata_.set("integers", std::vector<int64_t>{1});
  metadata_.set("numbers", std::vector<double>{0.5});
  ASSERT_NE(metadata_.strings("texts"), nullptr);
  EXPECT_EQ(metadata_.strings("texts")->at(1), "b");
  EXPECT_EQ(metadata_.integers("integers")->at(0), 1);
  EXPECT_EQ(metadata_.numbers("numbers")->at(0), 0.5);
  EXPECT_EQ(metadata_.strings("integers"), nullptr);
  EXPECT_EQ(metadata_.integers("absent"), nullptr);
}

}  // namespace
}  // namespace model
