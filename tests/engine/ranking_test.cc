// The best of many scores against a full sort.
#include "engine/ranking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace engine {
namespace {

/// All that are in the ranking, best first, the lower id on a tie.
std::vector<Ranked> sorted(std::span<const float> scores) {
  std::vector<Ranked> all;
  for (size_t i = 0; i < scores.size(); i++)
    if (scores[i] != Ranking::kOut) all.push_back({scores[i], static_cast<int32_t>(i)});
  std::stable_sort(all.begin(), all.end(),
                   [](const Ranked& a, const Ranked& b) { return a.score > b.score; });
  return all;
}

/// Ranks what stands in `ranking`, and compares the places asked for with a full sort.
void expect_in_order(Ranking& ranking, const std::vector<int64_t>& places) {
  const auto expected = sorted(ranking.scores());
  ranking.begin(static_cast<int64_t>(expected.size()));
  EXPECT_EQ(ranking.best().id, expected[0].id);
  EXPECT_EQ(ranking.best().score, expected[0].score);
  for (const int64_t place : places) {
    if (place >= ranking.count()) continue;
    ASSERT_EQ(ranking.at(place).id, expected[static_cast<size_t>(place)].id) << "place " << place;
    ASSERT_EQ(ranking.at(place).score, expected[static_cast<size_t>(place)].score);
  }
}

TEST(Ranking, IsTheBeginningOfAFullSort) {
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal;
  for (const int64_t size : {1, 2, 63, 64, 65, 200, 5000, 70000}) {
    Ranking ranking(size);
    for (int round = 0; round < 6; round++) {
      // Many ties, no ties, ascending, and most of them out.
      for (int64_t i = 0; i < size; i++) {
        float& score = ranking.scores()[static_cast<size_t>(i)];
        score = round < 2 ? static_cast<float>(random() % 7) : normal(random);
        if (round == 4) score = static_cast<float>(i);
        if (round == 5 && i != size / 2 && random() % 100 != 0) score = Ranking::kOut;
      }
      std::vector<int64_t> places = {0, 1, 39, 62, 63, 64, 65, 255, 256, 1093, 1094, 4999, 60000};
      if (round % 2 == 1) std::reverse(places.begin(), places.end());
      expect_in_order(ranking, places);
    }
  }
}

TEST(Ranking, EveryPlaceOfAFew) {
  std::mt19937_64 random(4);
  Ranking ranking(700);
  std::vector<int64_t> places(700);
  for (size_t i = 0; i < places.size(); i++) places[i] = static_cast<int64_t>(i);
  for (int round = 0; round < 20; round++) {
    for (float& score : ranking.scores()) score = static_cast<float>(random() % 300) - 150;
    expect_in_order(ranking, places);
  }
}

TEST(Ranking, TheSmallestNumberIsRankedAndWhatIsOutIsNot) {
  Ranking ranking(100);
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  for (float& score : ranking.scores()) score = kLowest;
  ranking.scores()[0] = ranking.scores()[99] = Ranking::kOut;
  expect_in_order(ranking, {0, 1, 97});
  EXPECT_EQ(ranking.best().id, 1);
  EXPECT_EQ(ranking.at(97).id, 98);
}

}  // namespace
}  // namespace engine
