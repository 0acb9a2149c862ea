// Values that other engines stumble over: scores that are not numbers, activations beyond half
// precision, shapes that do not divide, weights that are not numbers, metadata in other clothes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/limits.h"
#include "model/synth.h"
#include "tests/engine/edited_files.h"
#include "tests/engine/golden.h"
#include "tests/engine/local_ranks.h"
#include "tests/model/gguf_builder.h"
#include "tests/model/tiny_synth.h"

namespace engine {
namespace {

using model_test::GgufFile;
using model_test::TemporaryFolder;

void scale(std::span<float> values, float factor) {
  for (float& value : values) value *= factor;
}

struct RouterFaultCase {
  const char* name;
  int layer;  // of the fault
  LocalRanksOptions options;
};

class RouterFault : public testing::TestWithParam<RouterFaultCase> {};

INSTANTIATE_TEST_SUITE_P(
    , RouterFault,
    testing::Values(
        RouterFaultCase{"Rows", 0, {.ranks = 2}},
        RouterFaultCase{"FirstStage", 0, {.ranks = 2, .strategy = plan::Strategy::kLayers}},
        RouterFaultCase{
            "LastStage",
            1,
            {.ranks = 4, .threads = 2, .strategy = plan::Strategy::kLayers, .stages = 2}}),
    [](const auto& info) { return std::string(info.param.name); });

// A router score that is not a number, for one token only: that column reports its layer, whichever
// rank computed it, and another sequence of the same step is equal to its solo run.
TEST_P(RouterFault, EndsOneColumnAndNotItsNeighbours) {
  const GoldenCase one = golden_case("olmoe-f32");
  GgufFile file = model_test::read_gguf(one.path);
  // Token 7 points all into dimension 5, which one expert's scores weigh beyond the range of float:
  // its score is infinite, those of the other tokens are merely large.
  auto embedding = file.tensor("token_embd.weight").floats();
  for (size_t i = 0; i < 64; i++) embedding[7 * 64 + i] = i == 5 ? 100.0f : 0.0f;
  const int layer = GetParam().layer;
  file.tensor(base::cat("blk.", layer, ".ffn_gate_inp.weight")).floats()[5] = 6e37f;
  const TemporaryFolder folder;
  const std::string path = folder.file("model.gguf");
  model_test::write_bytes(path, file.image().bytes);
  auto model = model::load_model(path);
  ASSERT_TRUE(model.ok()) << model.error().message;
  auto ranks = LocalRanks::start(*model, GetParam().options);
  ASSERT_TRUE(ranks.ok());
  const std::vector<int32_t> good = {3, 4, 5};
  auto alone = (*ranks)->forward(good);
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(alone->fault_layer, (std::vector<int32_t>{-1, -1, -1}));

  Step step;
  step.block_tables = {{5}, {6}};
  for (int32_t p = 0; p < 3; p++) {
    step.columns.push_back({.token = good[static_cast<size_t>(p)],
                            .sequence = 0,
                            .position = p,
                            .wants_logits = p == 2});
  }
  step.columns.push_back({.token = 7, .sequence = 1, .position = 0, .wants_logits = 1});
  auto output = (*ranks)->runner().run(step);
  ASSERT_TRUE(output.ok());
  for (size_t c = 0; c < 3; c++) EXPECT_EQ(output->fault_layer[c], -1);
  EXPECT_EQ(output->fault_layer[3], layer);
  EXPECT_EQ(std::memcmp(output->logits.data(), alone->last().data(),
                        alone->last().size() * sizeof(float)),
            0);
  // The next request in the blocks of the one that failed.
  auto again = (*ranks)->forward(good, 0, 6);
  expect_equal_logits(again, alone);
}

// Logits that are not numbers are a fault of their column, too.
TEST(LogitsFault, MarksTheColumn) {
  const GoldenCase one = golden_case("qwen3-tied-f16");
  GgufFile file = model_test::read_gguf(one.path);
  for (float& weight : file.tensor("output_norm.weight").floats()) weight = 3e38f;
  const auto got = run_file(file, {1, 2, 3}, {.ranks = 2, .threads = 2});
  ASSERT_TRUE(got.ok()) << got.error().message;
  for (const int32_t fault : got->fault_layer) EXPECT_EQ(fault, kLogitsFault);
}

TEST(LoaderFault, NamesATensorThatIsNotANumber) {
  const GoldenCase one = golden_case("olmoe-f32");
  GgufFile file = model_test::read_gguf(one.path);
  file.tensor("blk.1.ffn_gate_inp.weight").floats()[5] = NAN;
  auto got = run_file(file, {1}, {});
  ASSERT_FALSE(got.ok());
  EXPECT_NE(got.error().message.find("blk.1.ffn_gate_inp.weight"), std::string::npos);

  GgufFile quantised = model_test::read_gguf(golden_case("qwen3moe-q8_0").path);
  auto& data = quantised.tensor("blk.0.ffn_down_exps.weight").data;
  data[34 * 7] = std::byte{0x00};
  data[34 * 7 + 1] = std::byte{0x7e};  // the scale of block 7 becomes NaN
  got = run_file(quantised, {1}, {});
  ASSERT_FALSE(got.ok());
  EXPECT_NE(got.error().message.find("blk.0.ffn_down_exps.weight"), std::string::npos);
}

// Up projections times 2^14 and down projections times 2^-14 give the same bits: powers of two are
// exact, so any difference is an overflow of a scale or sum on the way.
TEST(LargeActivations, SurviveUnharmed) {
  const GoldenCase one = golden_case("olmoe-f32");
  GgufFile file = model_test::read_gguf(one.path);
  const auto original = run_file(file, one.reference[1].tokens, {.ranks = 2});
  for (const char* layer : {"blk.0.", "blk.1."}) {
    scale(file.tensor(layer + std::string("ffn_up_exps.weight")).floats(), 0x1p14f);
    scale(file.tensor(layer + std::string("ffn_down_exps.weight")).floats(), 0x1p-14f);
  }
  expect_equal_logits(run_file(file, one.reference[1].tokens, {.ranks = 2}), original);
}

// The same for quantised types: scales of the up rows times 2^k against those of the down rows.
TEST(LargeActivations, SurviveQuantised) {
  struct Kind {
    const char* name;
    size_t block_bytes;
    std::vector<size_t> scales;
  };
  for (const Kind& kind : {Kind{"qwen3moe-q8_0", 34, {0}}, Kind{"qwen3moe-q4_k", 144, {0, 2}}}) {
    SCOPED_TRACE(kind.name);
    const GoldenCase one = golden_case(kind.name);
    const auto scaled = [&](const char* tensor, int exponent) {
      GgufFile file = model_test::read_gguf(one.path);
      for (const char* layer : {"blk.0.", "blk.1."}) {
        auto& data = file.tensor(layer + std::string(tensor)).data;
        for (size_t block = 0; block < data.size(); block += kind.block_bytes) {
          for (const size_t at : kind.scales) {
            uint16_t half;
            std::memcpy(&half, data.data() + block + at, 2);
            // Times 2^exponent, where the half is normal and stays so.
            const int biased = (half >> 10) & 31;
            if (biased == 0) continue;
            EXPECT_LT(biased + exponent, 31);
            half = static_cast<uint16_t>(half + (exponent << 10));
            std::memcpy(data.data() + block + at, &half, 2);
          }
        }
      }
      return run_file(file, one.reference[1].tokens, {.ranks = 2});
    };
    expect_equal_logits(scaled("ffn_up_exps.weight", 10), scaled("ffn_down_exps.weight", 10));
  }
}

// Keys beyond the range of half precision are clamped in an f16 cache, never infinite.
TEST(LargeActivations, KeysAreClampedInTheCache) {
  GgufFile file = model_test::read_gguf(golden_case("olmoe-f32").path);
  scale(file.tensor("blk.0.attn_k_norm.weight").floats(), 0x1p20f);
  auto got = run_file(file, {1, 2, 3, 4}, {.kv_type = kernels::KvType::kF16});
  ASSERT_TRUE(got.ok()) << got.error().message;
  for (const auto& row : got->positions) {
    for (const float logit : row) ASSERT_TRUE(std::isfinite(logit));
  }
}

// Fewer KV heads than ranks, widths that do not divide, more ranks than slices.
TEST(Sharding, AnyRankCountGivesEqualBits) {
  for (const char* name :
       {"odd-tied-q4_0", "qwen3moe-q4_k", "mixtral-f16", "olmoe-f32", "qwen2moe-f16",
        "deepseek2-v3-mla-f16", "deepseek2-lite-f16", "gpt-oss-f16", "llama4-f16"}) {
    SCOPED_TRACE(name);
    const GoldenCase one = golden_case(name);
    auto model = model::load_model(one.path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    base::Result<Logits> alone = base::Error{};
    for (const int count : {1, 3, 5, 6, 8}) {
      SCOPED_TRACE(count);
      auto ranks = LocalRanks::start(*model, {.ranks = count});
      ASSERT_TRUE(ranks.ok()) << ranks.error().message;
      auto got = (*ranks)->forward(one.reference[1].tokens);
      if (count == 1) {
        alone = std::move(got);
      } else {
        expect_equal_logits(got, alone);
      }
    }
  }
}

// Shapes whose every width, also of experts and their biases, is cut by several ranks.
TEST(Sharding, EveryWidthIsCut) {
  auto vocabulary = model::read_directory(golden_case("llama4-f16").path);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
  for (const auto& [architecture, type] : {std::pair{"gpt-oss", "mxfp4"},
                                           {"gpt-oss", "f16"},
                                           {"deepseek2", "q8_0"},
                                           {"glm4moe", "f16"},
                                           {"minimax-m2", "mxfp4"}}) {
    SCOPED_TRACE(std::string(architecture) + " " + type);
    const model::SynthShape& shape = model_test::tiny_shape(architecture);
    const auto plan =
        model::plan_synth(shape, {.weight_type = type, .layers = 2}, vocabulary->metadata);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const TemporaryFolder folder;
    const std::string path = folder.file("model.gguf");
    ASSERT_TRUE(model::write_synth(*plan, path, {}).ok());
    auto model = model::load_model(path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    ASSERT_GT(shape.expert_width, 2 * base::kSliceRows);
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 70; i++) tokens.push_back(i * 31 % 256);
    base::Result<Logits> alone = base::Error{};
    for (const int count : {1, 2, 3, 4}) {
      SCOPED_TRACE(count);
      auto ranks = LocalRanks::start(*model, {.ranks = count, .threads = 2});
      ASSERT_TRUE(ranks.ok()) << ranks.error().message;
      auto got = (*ranks)->forward(tokens, count == 3 ? 7 : 0);
      if (count == 1) {
        alone = std::move(got);
      } else {
        expect_equal_logits(got, alone);
      }
    }
  }
}

// What a tensor of a golden file holds, in another cut.
struct Cut {
  std::string name;
  std::vector<uint64_t> shape;
};

// Replaces tensors by one that holds their matrices in turn: matrix m of each, for every m.
void fuse(GgufFile& file, const std::vector<std::string>& names, const Cut& into, size_t matrices) {
  model_test::FileTensor fused{.name = into.name,
                               .shape = into.shape,
                               .type = file.tensor(names[0]).type,
                               .data = {},
                               .offset = {}};
  for (size_t m = 0; m < matrices; m++) {
    for (const std::string& name : names) {
      const auto& data = file.tensor(name).data;
      const size_t bytes = data.size() / matrices;
      fused.data.insert(fused.data.end(), data.begin() + static_cast<ptrdiff_t>(m * bytes),
                        data.begin() + static_cast<ptrdiff_t>((m + 1) * bytes));
    }
  }
  for (const std::string& name : names) file.erase_tensor(name);
  file.tensors.push_back(std::move(fused));
}

void expect_equal_runs(const GgufFile& file, const GgufFile& other,
                       const std::vector<int32_t>& tokens) {
  const auto original = run_file(file, tokens, {});
  for (const int ranks : {1, 3}) {
    expect_equal_logits(run_file(other, tokens, {.ranks = ranks, .threads = 2}), original);
  }
  expect_equal_logits(
      run_file(
          other, tokens,
          {.ranks = 3, .threads = 2, .strategy = plan::Strategy::kExperts, .shares = {2, 1, 2}}),
      original);
}

// Tensors fused or apart do not change a bit.
TEST(FileForms, FusedTensorsGiveEqualBits) {
  const GoldenCase one = golden_case("qwen3moe-f16");
  GgufFile file = model_test::read_gguf(one.path);
  for (const std::string block : {"blk.0.", "blk.1."}) {
    auto shape = file.tensor(block + "ffn_gate_exps.weight").shape;
    shape[1] *= 2;
    fuse(file, {block + "ffn_gate_exps.weight", block + "ffn_up_exps.weight"},
         {block + "ffn_gate_up_exps.weight", shape}, shape[2]);
    shape = file.tensor(block + "attn_q.weight").shape;
    shape[1] += 2 * file.tensor(block + "attn_k.weight").shape[1];
    fuse(file, {block + "attn_q.weight", block + "attn_k.weight", block + "attn_v.weight"},
         {block + "attn_qkv.weight", shape}, 1);
  }
  expect_equal_runs(model_test::read_gguf(one.path), file, one.reference[1].tokens);
}

TEST(FileForms, ATensorPerExpertGivesEqualBits) {
  const GoldenCase one = golden_case("mixtral-f16");
  GgufFile file = model_test::read_gguf(one.path);
  for (const std::string block : {"blk.0.", "blk.1."}) {
    for (const std::string name : {"ffn_gate", "ffn_up", "ffn_down"}) {
      const model_test::FileTensor all = file.tensor(block + name + "_exps.weight");
      file.erase_tensor(all.name);
      const size_t bytes = all.data.size() / all.shape[2];
      for (size_t e = 0; e < all.shape[2]; e++) {
        const auto begin = all.data.begin() + static_cast<ptrdiff_t>(e * bytes);
        file.tensors.push_back({.name = block + name + '.' + std::to_string(e) + ".weight",
                                .shape = {all.shape[0], all.shape[1]},
                                .type = all.type,
                                .data = {begin, begin + static_cast<ptrdiff_t>(bytes)},
                                .offset = {}});
      }
    }
  }
  expect_equal_runs(model_test::read_gguf(one.path), file, one.reference[1].tokens);
}

// Projections of one F16 layer's latent per head, as the joint tensor holds them.
model_test::Bytes joint_projections(const model_test::FileTensor& key,
                                    const model_test::FileTensor& value) {
  const size_t plain = key.shape[0], latent = key.shape[1], heads = key.shape[2];
  const size_t value_bytes = value.data.size() / heads;
  model_test::Bytes data;
  for (size_t h = 0; h < heads; h++) {
    for (size_t i = 0; i < plain * latent; i++) {
      const size_t at = 2 * ((h * latent + i % latent) * plain + i / latent);
      data.push_back(key.data[at]);
      data.push_back(key.data[at + 1]);
    }
    const auto begin = value.data.begin() + static_cast<ptrdiff_t>(h * value_bytes);
    data.insert(data.end(), begin, begin + static_cast<ptrdiff_t>(value_bytes));
  }
  return data;
}

// The same weights per head and as one tensor, whose keys are expanded to float32: exactly.
TEST(FileForms, JointProjectionsOfALatentGiveEqualBits) {
  const GoldenCase one = golden_case("deepseek2-v3-mla-f16");
  GgufFile file = model_test::read_gguf(one.path);
  for (const std::string block : {"blk.0.", "blk.1.", "blk.2."}) {
    const auto key = file.tensor(block + "attn_k_b.weight");
    const auto value = file.tensor(block + "attn_v_b.weight");
    file.erase_tensor(key.name);
    file.erase_tensor(value.name);
    file.tensors.push_back({.name = block + "attn_kv_b.weight",
                            .shape = {key.shape[1], key.shape[2] * (key.shape[0] + value.shape[1])},
                            .type = key.type,
                            .data = joint_projections(key, value),
                            .offset = {}});
  }
  expect_equal_runs(model_test::read_gguf(one.path), file, one.reference[2].tokens);
}

// Alignment, integer widths and per-layer arrays do not change a bit.
TEST(Metadata, OtherClothesGiveEqualBits) {
  const GoldenCase one = golden_case("olmoe-f32");
  const auto& tokens = one.reference[1].tokens;
  const auto original = run_file(model_test::read_gguf(one.path), tokens, {});
  for (const uint32_t alignment : {8u, 64u, 4096u}) {
    SCOPED_TRACE(alignment);
    GgufFile file = model_test::read_gguf(one.path);
    file.set("filler", model_test::text(std::string(13, 'x')));
    file.align(alignment);
    expect_equal_logits(run_file(file, tokens, {}), original);
  }
  GgufFile file = model_test::read_gguf(one.path);
  file.set("olmoe.attention.head_count_kv",
           model_test::array({model_test::i32(4), model_test::i32(4)}));
  file.set("olmoe.block_count", model_test::u64(2));
  file.set("olmoe.expert_used_count", model_test::u16(4));
  file.set("olmoe.rope.freq_base", model_test::f64(10000.0));
  expect_equal_logits(run_file(file, tokens, {}), original);
}

// LongRoPE divides frequencies by short factors, or, where a sequence may outgrow the original
// context, by long ones: then the file is as one whose factors are those.
TEST(Metadata, LongRopeTakesTheFactorsOfTheContext) {
  const GoldenCase one = golden_case("llama-rope-factors-f16");
  const auto& tokens = one.reference[1].tokens;
  const GgufFile plain = model_test::read_gguf(one.path);
  const auto with_factors = [&](float step) {
    GgufFile file = plain;
    std::span<float> factors = file.tensor("rope_freqs.weight").floats();
    for (size_t i = 0; i < factors.size(); i++) factors[i] = 1 + step * static_cast<float>(i);
    return file;
  };
  GgufFile file = with_factors(0.125F);
  file.set("llama.rope.scaling.type", model_test::text("longrope"));
  file.set("llama.rope.scaling.original_context_length", model_test::u32(96));
  file.tensor("rope_freqs.weight").name = "rope_factors_short.weight";
  auto long_factors = with_factors(0.75F).tensor("rope_freqs.weight");
  long_factors.name = "rope_factors_long.weight";
  file.tensors.push_back(long_factors);

  const auto shorter = run_file(file, tokens, {.ranks = 2, .context = 96});
  const auto longer = run_file(file, tokens, {.context = 97});
  expect_equal_logits(shorter, run_file(with_factors(0.125F), tokens, {}));
  expect_equal_logits(longer, run_file(with_factors(0.75F), tokens, {}));
  EXPECT_NE(shorter->last(), longer->last());
  file.set("llama.rope.scaling.attn_factor", model_test::f32(1.5F));
  EXPECT_NE(run_file(file, tokens, {.context = 97})->last(), longer->last());
}

// Whether weights of chosen experts are normalised: the family's default, unless the key says.
TEST(Metadata, ExpertWeightsNormFollowsTheFamilyUnlessGiven) {
  for (const auto& [name, prefix, by_default] :
       {std::tuple{"olmoe-f32", "olmoe", false}, std::tuple{"qwen3moe-f16", "qwen3moe", true}}) {
    SCOPED_TRACE(name);
    const GoldenCase one = golden_case(name);
    const auto& tokens = one.reference[1].tokens;
    const auto absent = run_file(model_test::read_gguf(one.path), tokens, {});
    ASSERT_TRUE(absent.ok()) << absent.error().message;
    for (const bool value : {true, false}) {
      GgufFile file = model_test::read_gguf(one.path);
      file.set(std::string(prefix) + ".expert_weights_norm", model_test::boolean(value));
      const auto given = run_file(file, tokens, {});
      ASSERT_TRUE(given.ok()) << given.error().message;
      EXPECT_EQ(given->last() == absent->last(), value == by_default);
    }
  }
}

}  // namespace
}  // namespace engine
