// Promise 2 over both exchanges: the bits of one rank, whatever carries the slices of several.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/engine/golden.h"
#include "tests/engine/local_ranks.h"

namespace engine {
namespace {

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(ExchangeEquality, SharedMemoryAndZeroMqGiveTheBitsOfOneRank) {
  size_t compared = 0;
  for (const char* name : {"qwen3moe-q4_k", "olmoe-f32", "mixtral-f16", "odd-tied-q4_0"}) {
    const GoldenCase one = golden_case(name);
    auto model = model::load_model(one.path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    std::vector<std::vector<float>> base;  // [prompts]
    for (const char* exchange : {"shm", "zmq"}) {
      for (const int ranks : {1, 2, 3, 4}) {
        for (const int threads : {1, 2}) {
          SCOPED_TRACE(base::cat(name, " ", exchange, " ", ranks, " ranks x ", threads));
          auto group =
              LocalRanks::start(*model, {.ranks = ranks, .threads = threads, .exchange = exchange});
          ASSERT_TRUE(group.ok()) << group.error().message;
          for (size_t prompt = 0; prompt < one.reference.size(); prompt++) {
            const auto& tokens = one.reference[prompt].tokens;
            // All at once, then in pieces that are not a whole prompt, then token by token.
            for (const int chunk : {0, 7, 1}) {
              if (chunk == 1 && (ranks != 2 || tokens.size() > 20)) continue;
              auto got = (*group)->forward(tokens, chunk);
              ASSERT_TRUE(got.ok()) << got.error().message;
              if (base.size() == prompt) base.push_back(got->last());
              ASSERT_TRUE(same_bits(got->last(), base[prompt])) << "prompt " << prompt;
              compared++;
            }
          }
        }
      }
    }
  }
  EXPECT_GE(compared, 400u);
}

}  // namespace
}  // namespace engine
