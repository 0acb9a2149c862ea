// Equal bits over several segments of positions: threads that share a context, by parts of it or by
// heads, ranks, steps of any size, instruction sets, the types of keys and values. The first
// segment's share of it is equality_test's.
#include <gtest/gtest.h>

#include <cstring>
#include <ostream>

#include "tests/engine/golden.h"
#include "tests/engine/local_ranks.h"

namespace engine {
namespace {

constexpr int64_t kContext = 1664;  // three segments and a part of a fourth
constexpr size_t kTokens = 1600;
// Positions that are computed one at a time, as in decode, and compared.
constexpr size_t kDecoded = 6;

struct Way {
  const char* name;
  LocalRanksOptions options;
  int chunk;
};

std::vector<Way> ways() {
  std::vector<Way> all = {
      {"threads 5", {.threads = 5}, 128},
      {"threads 2, small steps", {.threads = 2}, 7},
      {"ranks 2, threads 3", {.ranks = 2, .threads = 3}, 61},
      {"threads 3, avx2", {.threads = 3, .isa = "avx2"}, 100},
      {"ranks 3, threads 2", {.ranks = 3, .threads = 2}, 128},
      {"ranks 2 uneven, threads 5", {.ranks = 2, .threads = 5, .shares = {0.7, 0.3}}, 128},
      {"ranks 2, experts", {.ranks = 2, .threads = 2, .strategy = plan::Strategy::kExperts}, 128},
  };
  for (Way& way : all) {
    way.options.context = kContext;
    way.options.kv_blocks = kContext / base::kKvBlockPositions;
  }
  return all;
}

std::vector<int32_t> some_tokens(int64_t vocabulary) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < kTokens; i++)
    tokens.push_back(static_cast<int32_t>(static_cast<int64_t>(i * 37 % 251) % vocabulary));
  return tokens;
}

/// The logits of the last positions: the first of them as the end of a step of many, the others
/// alone.
std::vector<std::vector<float>> last_logits(const model::Model& model, const Way& way,
                                            kernels::KvType type) {
  LocalRanksOptions options = way.options;
  options.kv_type = type;
  auto ranks = LocalRanks::start(model, options);
  EXPECT_TRUE(ranks.ok()) << ranks.error().message;
  const auto tokens = some_tokens(model.spec.vocabulary);
  const auto split = tokens.end() - static_cast<std::ptrdiff_t>(kDecoded);
  std::vector<std::vector<float>> out;
  const auto keep = [&](base::Result<Logits> logits, size_t count) {
    EXPECT_TRUE(logits.ok()) << logits.error().message;
    for (size_t i = logits->positions.size() - count; i < logits->positions.size(); i++)
      out.push_back(logits->positions[i]);
  };
  keep((*ranks)->forward({tokens.begin(), split}, way.chunk), 1);
  keep((*ranks)->forward({split, tokens.end()}, 1, 0, static_cast<int64_t>(kTokens - kDecoded)),
       kDecoded);
  return out;
}

class LongEquality : public ::testing::TestWithParam<const char*> {};

TEST_P(LongEquality, BitsAreThoseOfOneThread) {
  auto model = model::load_model(golden_case(GetParam()).path);
  ASSERT_TRUE(model.ok()) << model.error().message;
  model->spec.context = kContext;
  for (const kernels::KvType type : {kernels::KvType::kF16, kernels::KvType::kQ8_0}) {
    Way alone{"one thread", {}, 128};
    alone.options.context = kContext;
    alone.options.kv_blocks = kContext / base::kKvBlockPositions;
    const auto expected = last_logits(*model, alone, type);
    for (const Way& way : ways()) {
      SCOPED_TRACE(std::string(way.name) + ", " + kernels::kv_type_name(type));
      const auto got = last_logits(*model, way, type);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); i++) {
        ASSERT_EQ(std::memcmp(got[i].data(), expected[i].data(), got[i].size() * sizeof(float)), 0)
            << "position " << kTokens - kDecoded - 1 + i;
      }
    }
  }
}

// Groups of heads; a norm over all heads, whose keys are stored by whoever attends; a latent;
// windows and sinks; a temperature.
INSTANTIATE_TEST_SUITE_P(Cases, LongEquality,
                         ::testing::Values("qwen3moe-f16", "olmoe-bf16", "deepseek2-lite-f16",
                                           "gpt-oss-f16", "llama4-f16"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace engine
