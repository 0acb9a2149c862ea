// The sampler against a slow, separate statement of the same rules, and against exact frequencies.
#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "kernels/math.h"
#include "tests/engine/allocations.h"

namespace engine {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Probabilities by id, in double, from the documented rules. Sorts, copies and erases: no idea in
/// common with the sampler but the order of the filters.
std::map<int32_t, double> exact_distribution(std::vector<float> logits, const SamplingParams& p,
                                             std::vector<int32_t> history) {
  std::vector<std::pair<double, int32_t>> list;  // (logit, id)
  bool forced = false;
  for (const auto& [id, bias] : p.logit_bias) forced = forced || bias == 100;
  for (int32_t id = 0; id < static_cast<int32_t>(logits.size()); id++) {
    double logit = static_cast<double>(logits[static_cast<size_t>(id)]);
    if (std::isnan(logit)) logit = -1e30;
    bool banned = false, chosen = !forced;
    for (const auto& [biased, bias] : p.logit_bias) {
      if (biased != id) continue;
      logit += static_cast<double>(bias);
      banned = bias == -100;
      chosen = chosen || bias == 100;
    }
    if (p.penalty_window >= 0 && history.size() > static_cast<size_t>(p.penalty_window))
      history.erase(history.begin(), history.end() - p.penalty_window);
    const auto count = std::count(history.begin(), history.end(), id);
    if (count > 0) {
      logit = logit > 0 ? logit / static_cast<double>(p.repeat_penalty)
                        : logit * static_cast<double>(p.repeat_penalty);
      logit -= static_cast<double>(count) * static_cast<double>(p.frequency_penalty);
      logit -= static_cast<double>(p.presence_penalty);
    }
    if (!banned && chosen) list.emplace_back(logit, id);
  }
  std::sort(list.begin(), list.end(), [](auto a, auto b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  if (p.temperature == 0) return {{list[0].second, 1.0}};
  if (p.top_k > 0 && list.size() > static_cast<size_t>(p.top_k))
    list.resize(static_cast<size_t>(p.top_k));
  const double best = list[0].first;
  double sum = 0;
  for (const auto& [logit, id] : list) sum += std::exp(logit - best);
  if (p.top_p < 1) {
    double reached = 0;
    size_t keep = 0;
    while (keep < list.size() && (keep == 0 || reached < static_cast<double>(p.top_p) * sum))
      reached += std::exp(list[keep++].first - best);
    list.resize(keep);
  }
  std::erase_if(list, [&](const auto& entry) {
    return entry.second != list[0].second &&
           std::exp(entry.first - best) < static_cast<double>(p.min_p);
  });
  std::map<int32_t, double> probability;
  sum = 0;
  for (const auto& [logit, id] : list)
    sum += probability[id] = std::exp((logit - best) / static_cast<double>(p.temperature));
  for (auto& [id, value] : probability) value /= sum;
  return probability;
}

std::vector<float> random_logits(int count, uint32_t seed) {
  std::vector<float> logits;
  for (int i = 0; i < count; i++) {
    double sum = -6;  // twelve uniforms less six: near enough to a normal distribution
    for (uint32_t j = 0; j < 12; j++)
      sum += base::draw_uniform({seed, j, 0, static_cast<uint64_t>(i)});
    logits.push_back(static_cast<float>(2 * sum));
  }
  return logits;
}

SamplingParams unfiltered() {
  return {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .logit_bias = {}};
}

int32_t sample_once(const std::vector<float>& logits, const SamplingParams& params,
                    const base::DrawKey& key = {}, const std::vector<int32_t>& history = {}) {
  Sampler sampler(static_cast<int64_t>(logits.size()), static_cast<int64_t>(logits.size()));
  return sampler.sample(logits, params, history, key);
}

/// Chi-square of `draws` samples against the exact distribution, per degree of freedom. Draws
/// outside the support fail at once.
double chi_square(const std::vector<float>& logits, const SamplingParams& params,
                  const std::vector<int32_t>& history, const std::map<int32_t, double>& expected) {
  constexpr int kDraws = 40000;
  Sampler sampler(static_cast<int64_t>(logits.size()), static_cast<int64_t>(logits.size()));
  std::map<int32_t, int> seen;
  for (uint64_t position = 0; position < kDraws; position++)
    seen[sampler.sample(logits, params, history, {.seed = 11, .position = position})]++;
  for (const auto& [id, count] : seen) EXPECT_TRUE(expected.contains(id)) << "id " << id;

  // Rare tokens share one class, so that every class expects enough draws.
  double chi = 0, rare_expected = 0, rare_seen = 0;
  int classes = 0;
  for (const auto& [id, probability] : expected) {
    const double want = probability * kDraws;
    const double got = seen.contains(id) ? seen.at(id) : 0;
    if (want < 10) {
      rare_expected += want;
      rare_seen += got;
      continue;
    }
    chi += (got - want) * (got - want) / want;
    classes++;
  }
  if (rare_expected > 1) {
    chi += (rare_seen - rare_expected) * (rare_seen - rare_expected) / rare_expected;
    classes++;
  }
  return classes > 1 ? chi / (classes - 1) : chi;
}

/// The token that is drawn, bit by bit: all candidates sorted, and sums in the order in which they
/// have always been made. For logits that are numbers, without bias and penalties.
int32_t drawn_by_sorting(const std::vector<float>& logits, const SamplingParams& p,
                         const base::DrawKey& key) {
  struct Candidate {
    float logit;
    int32_t id;
  };
  std::vector<Candidate> list;
  for (const float logit : logits) list.push_back({logit, static_cast<int32_t>(list.size())});
  const float best = *std::max_element(logits.begin(), logits.end());
  const auto weight = [&](const Candidate& candidate, float temperature) {
    return static_cast<double>(kernels::exp_f32((candidate.logit - best) / temperature));
  };
  const bool every = p.top_k == 0 || p.top_k >= static_cast<int32_t>(list.size());
  if (!every || p.top_p < 1 || p.min_p > 0) {
    double total = 0;  // of all in order of id, or of what top-k keeps, the best first
    if (every)
      for (const Candidate& candidate : list) total += weight(candidate, 1);
    std::stable_sort(list.begin(), list.end(),
                     [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
    if (!every) list.resize(static_cast<size_t>(p.top_k));
    if (!every)
      for (const Candidate& candidate : list) total += weight(candidate, 1);
    double mass = 0;
    size_t kept = 0;
    while (kept < list.size() &&
           (kept == 0 || p.top_p == 1 || mass < static_cast<double>(p.top_p) * total)) {
      const double w = weight(list[kept], 1);
      if (kept > 0 && w < static_cast<double>(p.min_p)) break;
      mass += w;
      kept++;
    }
    list.resize(kept);
    std::reverse(list.begin(), list.end());
  }
  double total = 0, mass = 0;
  for (const Candidate& candidate : list) total += weight(candidate, p.temperature);
  const double target = base::draw_uniform(key) * total;
  for (const Candidate& candidate : list) {
    mass += weight(candidate, p.temperature);
    if (target < mass) return candidate.id;
  }
  return -1;
}

TEST(Sampler, DrawsTheTokensThatSortingAllWouldDraw) {
  std::vector<SamplingParams> cases;
  for (const float temperature : {0.8f, 1.0f})
    for (const int32_t top_k : {0, 1, 40, 700})
      for (const float top_p : {0.5f, 0.95f, 1.0f})
        for (const float min_p : {0.0f, 0.05f}) {
          cases.push_back(unfiltered());
          cases.back().temperature = temperature;
          cases.back().top_k = top_k;
          cases.back().top_p = top_p;
          cases.back().min_p = min_p;
        }
  std::vector<float> rounded = random_logits(6000, 21);
  for (float& logit : rounded) logit = std::nearbyint(logit * 4) / 4;  // many ties
  const std::vector<std::vector<float>> inputs = {random_logits(6000, 20), rounded,
                                                  random_logits(100, 22)};
  for (const auto& logits : inputs) {
    const auto size = static_cast<int64_t>(logits.size());
    Sampler sampler(size, size);
    for (size_t i = 0; i < cases.size(); i++) {
      for (uint64_t position = 0; position < 8; position++) {
        const base::DrawKey key{.seed = i, .position = position};
        ASSERT_EQ(sampler.sample(logits, cases[i], {}, key),
                  drawn_by_sorting(logits, cases[i], key))
            << "case " << i << " of " << size;
      }
    }
  }
}

TEST(Sampler, FrequenciesMatchTheExactDistribution) {
  const std::vector<int32_t> history = {3, 3, 7, 1, 3, 50, 7};
  std::vector<SamplingParams> cases;
  cases.push_back(unfiltered());
  for (const float temperature : {0.5f, 2.0f})
    for (const int32_t top_k : {0, 12})
      for (const float top_p : {0.8f, 1.0f})
        for (const float min_p : {0.0f, 0.1f}) {
          SamplingParams p = unfiltered();
          p.temperature = temperature;
          p.top_k = top_k;
          p.top_p = top_p;
          p.min_p = min_p;
          cases.push_back(p);
          p.repeat_penalty = 1.3f;
          p.frequency_penalty = 0.4f;
          p.presence_penalty = -0.5f;
          p.penalty_window = 5;
          p.logit_bias = {{7, 3.0f}, {2, -100.0f}, {9, 1.5f}};
          cases.push_back(p);
        }
  const std::vector<float> logits = random_logits(60, 5);
  for (size_t i = 0; i < cases.size(); i++) {
    const auto expected = exact_distribution(logits, cases[i], history);
    // 2.5 per degree of freedom is beyond 1e-5 for 12 of them; the draws are fixed.
    EXPECT_LT(chi_square(logits, cases[i], history, expected), 2.5) << "case " << i;
  }
}

TEST(Sampler, FrequencyTestNoticesAnotherDistribution) {
  const std::vector<float> logits = random_logits(60, 5);
  SamplingParams slightly = unfiltered();
  slightly.temperature = 1.05f;
  const auto expected = exact_distribution(logits, slightly, {});
  EXPECT_GT(chi_square(logits, unfiltered(), {}, expected), 2.5);
}

TEST(Sampler, EveryExtremeCombinationStaysInsideTheSupport) {
  std::vector<std::vector<float>> inputs = {{1, 5, 2, 5, 0},                 // two equal best ones
                                            {0, 0, 0, 0, 0},                 // all equal
                                            {-kInf, 3, kNan, 1, -kInf},      // hostile
                                            {-3e38f, 3e38f, 0, 1e-38f, -1},  // differences overflow
                                            {2},
                                            random_logits(500, 9)};
  for (const auto& logits : inputs)
    for (const float temperature : {0.0f, 1e-9f, 0.7f, 2.0f})
      for (const int32_t top_k : {0, 1, 1000000000})
        for (const float top_p : {0.0f, 1e-9f, 1.0f})
          for (const float min_p : {0.0f, 1.0f}) {
            SamplingParams p = unfiltered();
            p.temperature = temperature;
            p.top_k = top_k;
            p.top_p = top_p;
            p.min_p = min_p;
            ASSERT_TRUE(check(p, 500).ok());
            const auto support = exact_distribution(logits, p, {});
            for (uint64_t position = 0; position < 20; position++) {
              const int32_t id = sample_once(logits, p, {.seed = 3, .position = position});
              ASSERT_TRUE(support.contains(id) && support.at(id) > 0)
                  << id << " of " << logits.size() << " at " << temperature << ' ' << top_k << ' '
                  << top_p << ' ' << min_p;
              if (temperature == 0 || top_k == 1 || top_p == 0) {
                ASSERT_EQ(id, support.begin()->first);
              }
            }
          }
}

TEST(Sampler, LogitsThatAreNotNumbersNeverWin) {
  for (const float temperature : {0.0f, 1.0f}) {
    SamplingParams p = unfiltered();
    p.temperature = temperature;
    for (uint64_t i = 0; i < 50; i++)
      EXPECT_EQ(sample_once({kNan, -kInf, -5, kNan}, p, {.position = i}), 2);
    const int32_t id = sample_once({kNan, kNan, kNan}, p);
    EXPECT_TRUE(id >= 0 && id < 3);
  }
}

TEST(Sampler, GreedyTakesTheLowestIdOfATieWhateverTheSeed) {
  SamplingParams p = unfiltered();
  p.temperature = 0;
  for (uint64_t seed = 0; seed < 20; seed++)
    EXPECT_EQ(sample_once({1, 4, 4, 4}, p, {.seed = seed, .position = seed * 7}), 1);
}

TEST(Sampler, TopKBreaksTiesByTheLowerId) {
  SamplingParams p = unfiltered();
  p.top_k = 2;
  std::map<int32_t, int> seen;
  for (uint64_t i = 0; i < 200; i++) seen[sample_once({0, 4, 4, 4}, p, {.position = i})]++;
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_TRUE(seen.contains(1) && seen.contains(2));
}

TEST(Sampler, TopKOffEqualsTopKOfTheWholeVocabulary) {
  const std::vector<float> logits = random_logits(300, 2);
  for (uint64_t i = 0; i < 500; i++) {
    SamplingParams off = unfiltered(), huge = unfiltered();
    huge.top_k = i % 2 == 0 ? 300 : 1000000000;
    off.top_p = huge.top_p = i % 3 == 0 ? 0.9f : 1.0f;
    EXPECT_EQ(sample_once(logits, off, {.position = i}),
              sample_once(logits, huge, {.position = i}));
  }
}

TEST(Sampler, AHotTemperatureLetsNothingThroughMinP) {
  // Probabilities 1 : e^-1 : e^-4; min-p 0.2 keeps two of them however flat they are drawn from.
  SamplingParams p = unfiltered();
  p.temperature = 50;
  p.min_p = 0.2f;
  std::map<int32_t, int> seen;
  for (uint64_t i = 0; i < 500; i++) seen[sample_once({0, 3, 4}, p, {.position = i})]++;
  EXPECT_EQ(seen[0], 0);
  EXPECT_GT(seen[1], 200);
}

TEST(Sampler, OneSamplerForABatchEqualsOneEach) {
  const std::vector<float> logits = random_logits(200, 4);
  std::vector<SamplingParams> batch(4, unfiltered());
  batch[0].temperature = 0;
  batch[1].top_k = 1;
  batch[2].min_p = 1;
  batch[3].logit_bias = {{5, 100.0f}, {6, 100.0f}};
  batch[3].repeat_penalty = 1.2f;
  const std::vector<int32_t> history = {5, 5, 9};
  Sampler shared(200, 200);
  for (uint64_t i = 0; i < 400; i++) {
    const base::DrawKey key{.seed = 1, .position = i};
    EXPECT_EQ(shared.sample(logits, batch[i % 4], history, key),
              sample_once(logits, batch[i % 4], key, history));
  }
}

TEST(Sampler, MinusAHundredBansAndAHundredForces) {
  // The best logit leads by more than a hundred, so that adding alone would do neither.
  const std::vector<float> logits = {500, 1, 2, 0};
  for (const float temperature : {0.0f, 0.7f}) {
    SamplingParams p;
    p.temperature = temperature;
    p.logit_bias = {{0, -100.0f}};
    for (uint64_t i = 0; i < 50; i++) EXPECT_NE(sample_once(logits, p, {.position = i}), 0);
    p.logit_bias = {{3, 100.0f}};
    for (uint64_t i = 0; i < 50; i++) EXPECT_EQ(sample_once(logits, p, {.position = i}), 3);
    p.logit_bias = {{0, -100.0f}, {1, -100.0f}, {2, -100.0f}, {3, -100.0f}};
    const int32_t id = sample_once(logits, p);
    EXPECT_TRUE(id >= 0 && id < 4) << "there is always a token";
  }
  SamplingParams p = unfiltered();
  p.temperature = 0;
  p.logit_bias = {{2, 498.5f - 400.0f}};
  EXPECT_EQ(sample_once({100, 1, 2, 0}, p), 2);
}

TEST(Sampler, RowsWithoutAPieceAreNeverProduced) {
  std::vector<float> logits(509, 0.0f);
  for (size_t i = 500; i < 509; i++) logits[i] = 100;
  Sampler sampler(500, 509);
  SamplingParams p = unfiltered();
  p.temperature = 2;
  p.repeat_penalty = 1.1f;
  const std::vector<int32_t> history = {508, -1, 3};  // ids without a candidate are passed over
  for (uint64_t i = 0; i < 1000; i++)
    EXPECT_LT(sampler.sample(logits, p, history, {.position = i}), 500);
  p.temperature = 0;
  EXPECT_EQ(sampler.sample(logits, p, history, {}), 0);
}

TEST(Sampler, PenaltiesLookAtTheWindowOnly) {
  SamplingParams p = unfiltered();
  p.temperature = 0;
  p.frequency_penalty = 1;
  const std::vector<float> logits = {3, 2.5f, 0.2f};
  const std::vector<int32_t> history = {0, 0, 1, 2};
  p.penalty_window = 2;
  EXPECT_EQ(sample_once(logits, p, {}, history), 0);
  p.penalty_window = 3;  // one 0: 2.0, 1: 1.5
  EXPECT_EQ(sample_once(logits, p, {}, history), 0);
  p.penalty_window = 4;  // two 0: 1.0, 1: 1.5
  EXPECT_EQ(sample_once(logits, p, {}, history), 1);
  p.penalty_window = -1;
  EXPECT_EQ(sample_once(logits, p, {}, history), 1);
  p.penalty_window = 0;
  EXPECT_EQ(sample_once(logits, p, {}, history), 0);
}

TEST(Sampler, DrawsDependOnSeedPromptChoiceAndPositionAlone) {
  const std::vector<float> logits(1000, 1.0f);
  const auto text = [&](uint64_t seed, uint32_t prompt, uint32_t choice) {
    std::vector<int32_t> ids;
    for (uint64_t position = 10; position < 18; position++)
      ids.push_back(sample_once(logits, unfiltered(), {seed, prompt, choice, position}));
    return ids;
  };
  const auto first = text(7, 0, 0);
  EXPECT_EQ(first, text(7, 0, 0));
  EXPECT_NE(first, text(7, 0, 1));
  EXPECT_NE(first, text(7, 1, 0));
  EXPECT_NE(first, text(0, 0, 0));
  EXPECT_NE(first, text(7 + (uint64_t{1} << 32), 0, 0));
  EXPECT_NE(text(7, 0, 1), text(7, 1, 0));
  EXPECT_NE(first[0], first[1]);
}

TEST(Sampler, AllocatesNothingWhileSampling) {
  const std::vector<float> logits = random_logits(2000, 8);
  const std::vector<int32_t> history = {1, 2, 3, 1};
  Sampler sampler(2000, 2000);
  SamplingParams p;
  p.repeat_penalty = 1.1f;
  p.logit_bias = {{4, 2.0f}, {5, -100.0f}};
  const int64_t before = allocation_count();
  int64_t sum = 0;
  for (uint64_t i = 0; i < 100; i++) {
    p.top_k = i % 2 == 0 ? 40 : 0;
    sum += sampler.sample(logits, p, history, {.position = i});
  }
  EXPECT_EQ(allocation_count(), before);
  EXPECT_GT(sum, 0);
}

TEST(SamplingParams, TheDefaultsPass) {
  EXPECT_TRUE(check(SamplingParams{}, 10).ok());
}

/// What check() says about default parameters changed by `change`.
template <class Change>
std::string complaint(Change change) {
  SamplingParams params;
  change(params);
  const auto result = check(params, 100);
  return result.ok() ? "ok" : result.error().message;
}

TEST(SamplingParams, EachBadValueIsNamed) {
  using P = SamplingParams;
  const auto names = [](const std::string& message, const char* field, const char* value) {
    EXPECT_NE(message.find(field), std::string::npos) << message;
    EXPECT_NE(message.find(value), std::string::npos) << message;
  };
  for (const float x : {-0.5f, kInf, kNan}) {
    const std::string value = base::cat(x);
    names(complaint([&](P& p) { p.temperature = x; }), "temperature", value.c_str());
    names(complaint([&](P& p) { p.top_p = x; }), "top_p", value.c_str());
    names(complaint([&](P& p) { p.min_p = x; }), "min_p", value.c_str());
    names(complaint([&](P& p) { p.repeat_penalty = x; }), "repeat_penalty", value.c_str());
  }
  names(complaint([](P& p) { p.top_k = -3; }), "top_k", "-3");
  names(complaint([](P& p) { p.top_p = 1.5f; }), "top_p", "1.5");
  names(complaint([](P& p) { p.min_p = 1.5f; }), "min_p", "1.5");
  names(complaint([](P& p) { p.repeat_penalty = 0; }), "repeat_penalty", "0");
  names(complaint([](P& p) { p.presence_penalty = 2.5f; }), "presence_penalty", "2.5");
  names(complaint([](P& p) { p.frequency_penalty = kNan; }), "frequency_penalty", "nan");
  names(complaint([](P& p) { p.penalty_window = -2; }), "penalty_window", "-2");
  names(complaint([](P& p) { p.logit_bias = {{999999999, 1.0f}}; }), "logit_bias", "999999999");
  names(complaint([](P& p) { p.logit_bias = {{100, 1.0f}}; }), "logit_bias", "100");
  names(complaint([](P& p) { p.logit_bias = {{-1, 1.0f}}; }), "logit_bias", "-1");
  names(complaint([](P& p) { p.logit_bias = {{42, 101.0f}}; }), "42", "101");
  names(complaint([](P& p) { p.logit_bias = {{42, kNan}}; }), "42", "nan");
  names(complaint([](P& p) { p.logit_bias = {{42, 1.0f}, {7, 0.0f}, {42, 2.0f}}; }), "42", "twice");
  EXPECT_EQ(complaint([](P& p) { p.logit_bias = {{99, -100.0f}, {0, 100.0f}}; }), "ok");
}

}  // namespace
}  // namespace engine
