// Synthetic models are what their architecture demands: every tensor and no other, in the types of
// published files, with a whole vocabulary; the same request gives the same bytes.
#include "model/synth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "base/cat.h"
#include "kernels/ops.h"
#include "model/architectures.h"
#include "model/inspect.h"
#include "model/synth_types.h"
#include "tests/model/gguf_builder.h"
#include "tests/model/tiny_synth.h"
#include "tests/model/tokenizer_support.h"

namespace model {
namespace {

using kernels::TensorType;
using model_test::kTinyOlmoe;
using model_test::kTinyQwen;

Metadata small_vocabulary() {
  return model_test::byte_pair_vocabulary(
      {.merges = {"a b", "ab c"}, .extra = {{"<|im_end|>", 3}}});
}

SynthPlan plan_of(const SynthShape& shape, const SynthRequest& request) {
  auto plan = plan_synth(shape, request, small_vocabulary());
  CHECK(plan.ok(), plan.error().message);
  return std::move(*plan);
}

base::Result<Model> bind(const SynthPlan& plan) {
  return build_model(std::make_unique<const Directory>(synth_directory(plan)));
}

std::string error_of(const SynthShape& shape, const SynthRequest& request,
                     const Metadata& vocabulary = small_vocabulary()) {
  const auto plan = plan_synth(shape, request, vocabulary);
  return plan.ok() ? "" : plan.error().message;
}

QkNorm norm_of(std::string_view architecture, const SynthShape& shape) {
  if (architecture == "olmoe" || architecture == "minimax-m2") return QkNorm::kFullWidth;
  return architecture == "qwen3moe" || shape.norms_heads ? QkNorm::kPerHead : QkNorm::kNone;
}

TEST(Synth, EveryPresetIsAModelOfItsArchitecturesInEveryType) {
  for (SynthShape shape : synth_presets()) {
    EXPECT_GE(shape.vocabulary, 32000);
    shape.vocabulary = 512;  // filling up takes most of the time
    for (const std::string_view architecture : shape.architectures) {
      if (architecture.empty()) continue;
      for (const char* type : model_test::kSynthTypes) {
        SCOPED_TRACE(base::cat(shape.preset, " as ", architecture, " in ", type));
        // Binding refuses a missing tensor as well as one too many.
        const auto model =
            bind(plan_of(shape, {.architecture = architecture, .weight_type = type}));
        ASSERT_TRUE(model.ok()) << model.error().message;
        const ModelSpec& spec = model->spec;
        EXPECT_EQ(spec.architecture, architecture);
        EXPECT_EQ(std::ssize(spec.blocks), shape.layers);
        EXPECT_EQ(spec.hidden, shape.hidden);
        EXPECT_EQ(spec.vocabulary, shape.vocabulary);
        EXPECT_EQ(spec.token_count, shape.vocabulary);
        EXPECT_EQ(spec.context, shape.context);
        EXPECT_EQ(spec.norm_epsilon, static_cast<float>(shape.norm_epsilon));
        const Block& block = spec.blocks.back();
        EXPECT_EQ(block.attention.heads, shape.heads);
        EXPECT_EQ(block.attention.kv_heads, shape.kv_heads);
        EXPECT_EQ(block.attention.head_dim, shape.head_dim);
        EXPECT_EQ(block.attention.rope.base, static_cast<float>(shape.rope_base));
        EXPECT_EQ(block.attention.rope.dims,
                  shape.rope_dims > 0 ? shape.rope_dims : shape.head_dim);
        EXPECT_EQ(block.attention.rope.factor, static_cast<float>(shape.yarn.factor));
        EXPECT_EQ(block.attention.qk_norm, norm_of(architecture, shape));
        EXPECT_EQ(spec.blocks[0].attention.span, shape.window);
        EXPECT_EQ(block.attention.latent.has_value(), shape.latent.rank > 0);
        ASSERT_TRUE(block.experts.has_value());
        EXPECT_EQ(block.experts->count, shape.experts);
        EXPECT_EQ(block.experts->used, shape.experts_used);
        EXPECT_EQ(block.experts->width, shape.expert_width);
        EXPECT_EQ(block.experts->shared_width, shape.shared_experts * shape.expert_width);
        EXPECT_EQ(block.experts->groups, shape.router.groups);
        EXPECT_EQ(block.experts->weight_scale, static_cast<float>(shape.router.scale));
        EXPECT_EQ(spec.blocks[0].experts.has_value(), shape.leading_dense == 0);
      }
    }
  }
}

// The widths multiply to what the models' authors say their models have, in billions of weights
// (layers that predict further tokens not counted).
TEST(Synth, ShapesHaveThePublishedNumberOfWeights) {
  const struct {
    const char* preset;
    double billions;
  } published[] = {
      {"olmoe-1b-7b", 6.92},      {"qwen3-30b-a3b", 30.53}, {"qwen3-235b-a22b", 235.1},
      {"mixtral-8x7b", 46.70},    {"kimi-k2", 1026},        {"deepseek-v2-lite", 15.71},
      {"deepseek-v3", 671.0},     {"gpt-oss-20b", 20.91},   {"gpt-oss-120b", 116.83},
      {"glm-4.5-air", 106.9},     {"minimax-m2", 228.7},    {"glm-4.5", 352.8},
      {"deepseek-r1-671b", 671.0}};
  EXPECT_EQ(std::size(published), synth_presets().size());
  for (const auto& [preset, billions] : published) {
    const auto described = describe_synth(*find_synth_preset(preset), "");
    ASSERT_TRUE(described.ok());
    double weights = 0;
    for (const SynthTensor& tensor : described->tensors) {
      double product = 1;
      for (const int64_t n : tensor.shape) product *= static_cast<double>(n);
      weights += product;
    }
    EXPECT_NEAR(weights * 1e-9, billions, billions * 0.003) << preset;
  }
}

// The first layers of a model whose first layers are dense.
TEST(Synth, LeadingDenseLayersAreCutToo) {
  const SynthShape deepseek = *find_synth_preset("deepseek-v3");
  for (const int64_t layers : {2, 3, 4}) {
    const auto model = bind(plan_of(deepseek, {.layers = layers}));
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(model->spec.blocks.back().experts.has_value(), layers == 4);
  }
}

// Files of these shapes were measured with other engines before: 697, 1259 and 480 MB a token.
TEST(Synth, ActiveBytesAreThoseThatOtherGeneratorsGave) {
  const auto active = [](const SynthShape& shape, const SynthRequest& request) {
    return (active_bytes_per_token(*bind(plan_of(shape, request))) + 500'000) / 1'000'000;
  };
  const SynthShape olmoe = *find_synth_preset("olmoe-1b-7b");
  EXPECT_EQ(active(olmoe, {.architecture = "llama"}), 697u);
  EXPECT_EQ(active(olmoe, {.architecture = "llama", .weight_type = "q8_0"}), 1259u);
  SynthShape qwen = *find_synth_preset("qwen3-30b-a3b");
  qwen.vocabulary = olmoe.vocabulary;  // as it was measured
  EXPECT_EQ(active(qwen, {.layers = 12}), 480u);
}

std::string type_of(const SynthPlan& plan, std::string_view name) {
  for (const TensorInfo& tensor : plan.tensors)
    if (tensor.name == name) return std::string(kernels::type_info(tensor.type).name);
  return "no such tensor";
}

TEST(Synth, TypesAreThoseOfPublishedFiles) {
  const struct {
    const char *type, *matrix, *embedding, *down, *head;
  } cases[] = {
      {"q4_k", "Q4_K", "Q4_K", "Q5_0", "Q6_K"},         {"q5_k", "Q5_K", "Q5_K", "Q5_1", "Q6_K"},
      {"q6_k", "Q6_K", "Q6_K", "Q8_0", "Q6_K"},         {"q2_k", "Q2_K", "Q2_K", "IQ4_NL", "Q6_K"},
      {"q8_0", "Q8_0", "Q8_0", "Q8_0", "Q8_0"},         {"q4_0", "Q4_0", "Q4_0", "Q4_0", "Q6_K"},
      {"iq2_xs", "IQ2_XS", "IQ2_XS", "IQ4_NL", "Q5_K"}, {"f16", "F16", "F16", "F16", "F16"},
      {"mxfp4", "Q8_0", "Q8_0", "MXFP4", "Q8_0"}};
  for (const auto& row : cases) {
    const SynthPlan plan = plan_of(kTinyQwen, {.weight_type = row.type});  // experts of width 96
    EXPECT_EQ(type_of(plan, "blk.0.attn_q.weight"), row.matrix);
    EXPECT_EQ(type_of(plan, "token_embd.weight"), row.embedding);
    EXPECT_EQ(type_of(plan, "blk.3.ffn_down_exps.weight"), row.down);
    EXPECT_EQ(type_of(plan, "output.weight"), row.head);
    EXPECT_EQ(type_of(plan, "blk.0.ffn_gate_inp.weight"), "F32");
    EXPECT_EQ(type_of(plan, "blk.0.attn_q_norm.weight"), "F32");
  }
  SynthShape odd = kTinyQwen;  // no whole block of any type
  odd.expert_width = 72;
  EXPECT_EQ(type_of(plan_of(odd, {}), "blk.0.ffn_down_exps.weight"), "F16");
  odd.hidden = 96;
  EXPECT_EQ(type_of(plan_of(odd, {}), "output.weight"), "Q8_0");
}

TEST(Synth, LayersAreCut) {
  for (const int64_t layers : {1, 3}) {
    const auto model = bind(plan_of(kTinyOlmoe, {.layers = layers}));
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(std::ssize(model->blocks), layers);
  }
  EXPECT_EQ(error_of(kTinyOlmoe, {.layers = 5}), "tiny-olmoe has 4 layers; it cannot be cut to 5");
}

TEST(Synth, WhatCannotBeWrittenIsRefusedWithWhatCan) {
  EXPECT_EQ(error_of(kTinyOlmoe, {.architecture = "qwen3moe"}),
            "tiny-olmoe cannot be written as architecture 'qwen3moe'; it can be written as olmoe, "
            "llama");
  EXPECT_EQ(error_of(kTinyQwen, {.architecture = "llama"}),
            "tiny-qwen cannot be written as architecture 'llama'; it can be written as qwen3moe");
  const std::string message = error_of(kTinyOlmoe, {.weight_type = "q7_k"});
  EXPECT_NE(message.find("'q7_k'"), std::string::npos);
  for (const std::string type : model_test::kSynthTypes)
    EXPECT_NE(message.find(type), std::string::npos) << type;
  EXPECT_TRUE(synth_weight_type("Q4_K").ok());
}

TEST(Synth, TheVocabularyIsFilledUpWithUnusedTokens) {
  const SynthPlan plan = plan_of(kTinyOlmoe, {});
  const auto& tokens = *plan.metadata.strings("tokenizer.ggml.tokens");
  const auto& types = *plan.metadata.integers("tokenizer.ggml.token_type");
  EXPECT_EQ(tokens.size(), 512u);
  EXPECT_EQ(types.size(), 512u);
  EXPECT_EQ(std::set<std::string>(tokens.begin(), tokens.end()).size(), 512u) << "all different";
  EXPECT_EQ(tokens.back(), "[PAD511]");
  EXPECT_EQ(types.back(), 5);
  const Tokenizer padded = model_test::make_tokenizer(plan.metadata);
  const Tokenizer original = model_test::make_tokenizer(small_vocabulary());
  for (const std::string text : {"abc abd", "[PAD511]<|im_end|>"})
    EXPECT_EQ(padded.encode(text, {.parse_special = true}),
              original.encode(text, {.parse_special = true}));
  const auto of_pieces = plan_synth(kTinyOlmoe, {}, model_test::spm_vocabulary({}));
  ASSERT_TRUE(of_pieces.ok());
  EXPECT_EQ(of_pieces->metadata.numbers("tokenizer.ggml.scores")->size(), 512u);
}

TEST(Synth, VocabulariesThatDoNotFitAreRefused) {
  SynthShape small = kTinyOlmoe;
  small.vocabulary = 100;
  const std::string message = error_of(small, {});
  EXPECT_NE(message.find("259 tokens"), std::string::npos) << message;
  EXPECT_NE(message.find("100"), std::string::npos) << message;
  EXPECT_NE(error_of(kTinyOlmoe, {}, Metadata()).find("--vocab"), std::string::npos);
}

class Written : public testing::Test {
 protected:
  std::string write(const SynthPlan& plan, const std::string& name,
                    const SynthWriteOptions& options = {}) const {
    const std::string path = folder_.file(name);
    const auto bytes = write_synth(plan, path, options);
    CHECK(bytes.ok(), bytes.error().message);
    CHECK(*bytes == std::filesystem::file_size(path), "another size than told");
    return path;
  }
  const model_test::TemporaryFolder folder_;
};

TEST_F(Written, TheSameRequestGivesTheSameBytes) {
  SynthShape shape = kTinyOlmoe;
  shape.vocabulary = 32000;  // tensors of several parts
  const SynthPlan plan = plan_of(shape, {.weight_type = "q8_0", .layers = 2});
  const auto one = model_test::read_bytes(write(plan, "one", {.threads = 1}));
  EXPECT_TRUE(one == model_test::read_bytes(write(plan, "three", {.threads = 3})));
  EXPECT_TRUE(one != model_test::read_bytes(write(plan, "other", {.threads = 3, .seed = 2})));
}

TEST_F(Written, EveryTypeReadsBackWithItsDeviations) {
  for (const SynthShape& shape : {kTinyOlmoe, kTinyQwen, model_test::kTinyGptOss}) {
    for (const char* type : model_test::kSynthTypes) {
      SCOPED_TRACE(base::cat(shape.preset, " ", type));
      const SynthPlan plan = plan_of(shape, {.weight_type = type, .layers = 1});
      const std::string path = write(plan, "model.gguf", {.replace = true});
      const auto model = load_model(path);
      ASSERT_TRUE(model.ok()) << model.error().message;
      const auto bytes = model_test::read_bytes(path);
      for (size_t i = 0; i < plan.tensors.size(); i++) {
        const TensorInfo& tensor = model->directory->tensors[i];
        ASSERT_EQ(tensor.name, plan.tensors[i].name);
        std::vector<float> values(static_cast<size_t>(tensor.row_length() * tensor.row_count()));
        kernels::dequantise_row(tensor.type, bytes.data() + tensor.offset,
                                static_cast<int64_t>(values.size()), values.data());
        double squares = 0;
        for (const float value : values) squares += static_cast<double>(value) * value;
        const double found = std::sqrt(squares / static_cast<double>(values.size()));
        const double wanted = plan.deviations[i] > 0 ? plan.deviations[i] : 1;
        // Of a few numbers the deviation is only so near to that of all.
        const double sampling = 3 / std::sqrt(2 * static_cast<double>(values.size()));
        EXPECT_NEAR(found / wanted, 1, 0.05 + sampling) << tensor.name;
      }
    }
  }
}

TEST_F(Written, StoppedWritingLeavesNothing) {
  uint64_t told = 0;
  const auto result = write_synth(plan_of(kTinyOlmoe, {}), folder_.file("model.gguf"),
                                  {.on_progress = [&](uint64_t, uint64_t total) {
                                    told = total;
                                    return false;
                                  }});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, base::Code::kCancelled);
  EXPECT_GT(told, 0u);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.file(".")));
}

}  // namespace
}  // namespace model
