#include "base/rng.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

namespace base {
namespace {

// The three "philox4x32 10" rows of tests/kat_vectors in Random123 (D. E. Shaw Research).
TEST(Philox, MatchesThePublishedVectors) {
  using Block = std::array<uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(DrawUniform, IsTheTopBitsOfTheBlockOfItsKey) {
  // With all words of counter and key at their maximum the block is the second vector above.
  const DrawKey ones{~uint64_t{0}, ~uint32_t{0}, ~uint32_t{0}, ~uint64_t{0}};
  const uint64_t word = 0x408f276d41c83b0e;
  EXPECT_EQ(draw_uniform(ones), static_cast<double>(word >> 11) / 9007199254740992.0);
}

TEST(DrawUniform, EveryPartOfTheKeyMatters) {
  std::set<double> seen;
  seen.insert(draw_uniform({}));
  for (int bit = 0; bit < 64; bit++) {
    seen.insert(draw_uniform({.seed = uint64_t{1} << bit}));
    seen.insert(draw_uniform({.position = uint64_t{1} << bit}));
  }
  for (int bit = 0; bit < 32; bit++) {
    seen.insert(draw_uniform({.prompt_index = uint32_t{1} << bit}));
    seen.insert(draw_uniform({.choice_index = uint32_t{1} << bit}));
  }
  EXPECT_EQ(seen.size(), 1u + 2 * 64 + 2 * 32);
}

/// Chi-square over 64 equal classes of `count` consecutive positions.
template <class Draw>
double chi_square(Draw draw, int count) {
  std::vector<int> classes(64);
  for (int i = 0; i < count; i++) {
    const double u = draw(i);
    EXPECT_GE(u, 0);
    EXPECT_LT(u, 1);
    classes[static_cast<size_t>(u * 64)]++;
  }
  const double want = count / 64.0;
  double chi = 0;
  for (const int got : classes) chi += (got - want) * (got - want) / want;
  return chi;
}

TEST(DrawUniform, IsUniformAlongEveryPartOfTheKey) {
  // 63 degrees of freedom: 120 is beyond 2e-5, and the draws are fixed.
  const auto at = [](int i) { return static_cast<uint32_t>(i); };
  EXPECT_LT(chi_square([&](int i) { return draw_uniform({.seed = 7, .position = at(i)}); }, 64000),
            120);
  EXPECT_LT(chi_square([&](int i) { return draw_uniform({.seed = at(i)}); }, 64000), 120);
  EXPECT_LT(chi_square([&](int i) { return draw_uniform({.choice_index = at(i)}); }, 64000), 120);
  EXPECT_LT(chi_square([&](int i) { return draw_uniform({.prompt_index = at(i)}); }, 64000), 120);
}

TEST(DrawUniform, TheUniformityTestNoticesASlope) {
  const auto sloped = [](int i) {
    return std::pow(draw_uniform({.position = static_cast<uint32_t>(i)}), 1.05);
  };
  EXPECT_GT(chi_square(sloped, 64000), 120);
}

}  // namespace
}  // namespace base
