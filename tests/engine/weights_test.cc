// Where the rows of a model lie on a rank: nothing missing, nothing twice but what is said to be.
#include "engine/weights.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "tests/engine/golden.h"

namespace engine {
namespace {

std::vector<WeightMap> maps_of(const model::Model& model, int rank_count, const char* isa) {
  auto ops = kernels::find_ops(isa);
  EXPECT_TRUE(ops.ok());
  auto plan = plan::split(model.spec, {.rank_count = rank_count, .shares = {}});
  EXPECT_TRUE(plan.ok());
  std::vector<WeightMap> maps;
  for (const plan::RankShare& share : plan->ranks) {
    maps.push_back(map_weights(model, share, **ops));
  }
  return maps;
}

// Rows of every tensor over all ranks: each once, apart from vectors (on every rank) and the rows
// of KV heads that two ranks keep. A tied output has panels of its own where there are fast ones.
TEST(WeightMap, EveryRowLiesOnOneRank) {
  for (const char* name : {"qwen3moe-q4_k", "olmoe-f32", "qwen3-tied-f16", "odd-tied-q4_0",
                           "dots1-f16", "qwen2moe-f16", "deepseek2-v3-mla-f16",
                           "deepseek2-lite-f16", "gpt-oss-f16", "llama4-f16"}) {
    SCOPED_TRACE(name);
    auto model = model::load_model(golden_case(name).path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const bool tied = model->output == model->token_embedding;
    for (const auto& [isa, rank_count] :
         {std::pair{"auto", 1}, {"auto", 2}, {"auto", 3}, {"reference", 1}, {"reference", 2}}) {
      std::map<std::string, std::vector<int>> seen;  // how often each row lies somewhere
      for (const WeightMap& map : maps_of(*model, rank_count, isa)) {
        for (const WeightSlice& slice : map.slices) {
          auto& rows = seen[slice.tensor->name];
          rows.resize(static_cast<size_t>(slice.tensor->row_count()));
          // A transposed slice takes other rows of the file than it has itself.
          const plan::Range taken =
              slice.transposed ? plan::Range{0, slice.row_length} : slice.rows;
          for (int64_t m = slice.matrix_begin; m < slice.matrix_begin + slice.matrix_count; m++) {
            for (int64_t r = taken.begin; r < taken.end; r++) {
              rows[static_cast<size_t>(m * slice.matrix_rows + r)]++;
            }
          }
        }
      }
      for (const model::TensorInfo& tensor : model->directory->tensors) {
        const auto& rows = seen[tensor.name];
        ASSERT_EQ(rows.size(), static_cast<size_t>(tensor.row_count())) << tensor.name;
        // The row that weighs shared experts is one of a matrix, and lies on one rank.
        const bool vector = (tensor.row_count() == 1 &&
                             tensor.name.find("ffn_gate_inp_shexp") == std::string::npos) ||
                            tensor.name.ends_with("_exps.bias");
        const bool kv = tensor.name.find("attn_k.") != std::string::npos ||
                        tensor.name.find("attn_v.") != std::string::npos;
        const bool packed_too =
            tied && isa == std::string("auto") && tensor.name == "token_embd.weight";
        for (const int count : rows) {
          if (vector) {
            ASSERT_EQ(count, rank_count) << tensor.name;
          } else if (kv) {
            ASSERT_GE(count, 1) << tensor.name;
          } else {
            ASSERT_EQ(count, packed_too ? 2 : 1) << tensor.name;
          }
        }
      }
    }
  }
}

// Slices do not overlap, are aligned, and end where the map says.
TEST(WeightMap, SlicesFollowEachOther) {
  auto model = model::load_model(golden_case("qwen3moe-q6_k").path);
  ASSERT_TRUE(model.ok()) << model.error().message;
  for (const char* isa : {"scalar", "reference"}) {
    for (const WeightMap& map : maps_of(*model, 3, isa)) {
      uint64_t next = 0;
      for (const WeightSlice& slice : map.slices) {
        EXPECT_EQ(slice.offset % kSliceAlignment, 0u);
        EXPECT_GE(slice.offset, next);
        next = slice.offset + slice.bytes();
      }
      EXPECT_LE(next, map.bytes);
    }
  }
}

}  // namespace
}  // namespace engine
