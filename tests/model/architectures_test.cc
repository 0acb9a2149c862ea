#include "model/architectures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/cat.h"
#include "tests/model/gguf_builder.h"
#include "tests/model/tiny_model.h"

namespace model_test {
namespace {

using base::cat;
using model::Attention;
using model::Model;
using model::QkNorm;
using model::RopeScaling;
using model::RopeStyle;
using model::RouterScore;

Model load(const GgufFile& file) {
  auto result = load_image(file);
  CHECK(result.ok(), result.error().message);
  return std::move(*result);
}

std::string error_of(const GgufFile& file) {
  const auto result = load_image(file);
  return result.ok() ? "no error" : result.error().message;
}

void expect_error(const GgufFile& file, const std::string& text) {
  EXPECT_NE(error_of(file).find(text), std::string::npos) << error_of(file);
}

void reshape(GgufFile& file, const std::string& name, const std::vector<uint64_t>& shape) {
  GgufFile other;
  file.tensor(name) = other.add_f32(name, shape);
}

TEST(Architectures, AreKnownByName) {
  EXPECT_EQ(model::known_architectures(),
            (std::vector<std::string_view>{"deepseek2", "dots1", "ernie4_5-moe", "glm4moe",
                                           "gpt-oss", "granitemoe", "llama", "llama4", "minimax-m2",
                                           "olmoe", "qwen2", "qwen2moe", "qwen3", "qwen3moe"}));
}

TEST(Architectures, Qwen3moe) {
  const Model model = load(tiny_model("qwen3moe"));
  EXPECT_EQ(model.spec.architecture, "qwen3moe");
  EXPECT_EQ(model.spec.name, "tiny");
  EXPECT_EQ(model.spec.vocabulary, 40);
  EXPECT_EQ(model.spec.token_count, 40);
  EXPECT_EQ(model.spec.hidden, 32);
  EXPECT_EQ(model.spec.context, 128);
  EXPECT_EQ(model.spec.norm_epsilon, 1e-6F);
  ASSERT_EQ(model.spec.blocks.size(), 2U);
  const model::Block& block = model.spec.blocks[1];
  EXPECT_EQ(block.attention.heads, 4);
  EXPECT_EQ(block.attention.kv_heads, 2);
  EXPECT_EQ(block.attention.head_dim, 8);
  EXPECT_EQ(block.attention.value_dim, 8);
  EXPECT_EQ(block.attention.scale, static_cast<float>(1 / std::sqrt(8.0)));
  EXPECT_EQ(block.attention.qk_norm, QkNorm::kPerHead);
  EXPECT_EQ(block.attention.rope.style, RopeStyle::kHalves);
  EXPECT_EQ(block.attention.rope.dims, 8);
  ASSERT_TRUE(block.experts.has_value());
  EXPECT_EQ(block.experts->count, 4);
  EXPECT_EQ(block.experts->used, 2);
  EXPECT_EQ(block.experts->width, 16);
  EXPECT_EQ(block.experts->score, RouterScore::kSoftmax);
  EXPECT_TRUE(block.experts->normalise_weights);
  EXPECT_EQ(block.experts->weight_scale, 1);
  const model::BlockTensors& tensors = model.blocks[1];
  EXPECT_EQ(tensors.q->name, "blk.1.attn_q.weight");
  EXPECT_EQ(tensors.router->name, "blk.1.ffn_gate_inp.weight");
  EXPECT_EQ(tensors.down->name, "blk.1.ffn_down_exps.weight");
  EXPECT_EQ(tensors.k_norm->name, "blk.1.attn_k_norm.weight");
  EXPECT_EQ(tensors.gate_up, nullptr);
  EXPECT_EQ(tensors.q_bias, nullptr);
  EXPECT_EQ(model.output->name, "output.weight");
  EXPECT_EQ(model.rope_factors, nullptr);
}

TEST(Architectures, Olmoe) {
  const Model model = load(tiny_model("olmoe"));
  const model::Block& block = model.spec.blocks[0];
  EXPECT_EQ(block.attention.qk_norm, QkNorm::kFullWidth);
  EXPECT_EQ(block.attention.rope.style, RopeStyle::kHalves);
  ASSERT_TRUE(block.experts.has_value());
  EXPECT_FALSE(block.experts->normalise_weights);
  EXPECT_EQ(block.experts->width, 16);
}

TEST(Architectures, DenseLlamaAndQwen3) {
  const Model llama = load(tiny_model("llama"));
  EXPECT_FALSE(llama.spec.blocks[0].experts.has_value());
  EXPECT_EQ(llama.spec.blocks[0].dense_width, 48);
  EXPECT_EQ(llama.spec.blocks[0].attention.qk_norm, QkNorm::kNone);
  EXPECT_EQ(llama.spec.blocks[0].attention.rope.style, RopeStyle::kInterleaved);
  EXPECT_EQ(llama.blocks[0].router, nullptr);
  EXPECT_EQ(llama.blocks[0].gate->name, "blk.0.ffn_gate.weight");
  const Model qwen3 = load(tiny_model("qwen3"));
  EXPECT_FALSE(qwen3.spec.blocks[0].experts.has_value());
  EXPECT_EQ(qwen3.spec.blocks[0].attention.qk_norm, QkNorm::kPerHead);
  EXPECT_EQ(qwen3.spec.blocks[0].attention.rope.style, RopeStyle::kHalves);
}

TEST(Architectures, LlamaWithExperts) {
  const Model model = load(tiny_model("mixtral"));
  EXPECT_EQ(model.spec.architecture, "llama");
  ASSERT_TRUE(model.spec.blocks[0].experts.has_value());
  EXPECT_TRUE(model.spec.blocks[0].experts->normalise_weights);
  EXPECT_EQ(model.spec.blocks[0].experts->width, 16);
  EXPECT_EQ(model.spec.blocks[0].attention.rope.style, RopeStyle::kInterleaved);
}

TEST(Architectures, AcceptFusedGateAndUp) {
  GgufFile file = tiny_model("qwen3moe");
  file.erase_tensor("blk.0.ffn_gate_exps.weight");
  file.erase_tensor("blk.0.ffn_up_exps.weight");
  file.add_f32("blk.0.ffn_gate_up_exps.weight", {32, 32, 4});
  const Model model = load(file);
  EXPECT_EQ(model.blocks[0].gate, nullptr);
  ASSERT_NE(model.blocks[0].gate_up, nullptr);
  EXPECT_EQ(model.blocks[1].gate_up, nullptr);
  reshape(file, "blk.0.ffn_gate_up_exps.weight", {32, 16, 4});
  expect_error(file, "'blk.0.ffn_gate_up_exps.weight' has shape [32, 16, 4], not [32, 32, 4]");
}

TEST(Architectures, AcceptBiasesAndRopeFactors) {
  GgufFile file = tiny_model("llama");
  file.add_f32("blk.1.attn_q.bias", {32});
  file.add_f32("blk.1.attn_k.bias", {16});
  file.add_f32("blk.1.attn_v.bias", {16});
  file.add_f32("blk.1.attn_output.bias", {32});
  file.add_f32("rope_freqs.weight", {4});
  const Model model = load(file);
  EXPECT_EQ(model.blocks[0].q_bias, nullptr);
  EXPECT_EQ(model.blocks[1].q_bias->name, "blk.1.attn_q.bias");
  EXPECT_EQ(model.blocks[1].v_bias->name, "blk.1.attn_v.bias");
  EXPECT_EQ(model.blocks[1].attention_output_bias->name, "blk.1.attn_output.bias");
  ASSERT_NE(model.rope_factors, nullptr);
}

TEST(Architectures, AcceptFusedQueriesKeysAndValues) {
  GgufFile file = tiny_model("qwen3moe");
  for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"}) {
    file.erase_tensor(name);
  }
  file.add_f32("blk.0.attn_qkv.weight", {32, 64});
  const Model model = load(file);
  EXPECT_EQ(model.blocks[0].q, nullptr);
  EXPECT_EQ(model.blocks[0].qkv->name, "blk.0.attn_qkv.weight");
  reshape(file, "blk.0.attn_qkv.weight", {32, 48});
  expect_error(file, "'blk.0.attn_qkv.weight' has shape [32, 48], not [32, 64]");
}

TEST(Architectures, AcceptATensorPerExpert) {
  GgufFile file = tiny_model("mixtral");
  for (const std::string block : {"blk.0.", "blk.1."}) {
    for (const std::string name : {"gate", "up", "down"}) {
      file.erase_tensor(block + "ffn_" + name + "_exps.weight");
      for (int e = 0; e < 4; ++e) {
        const bool down = name == "down";
        file.add_f32(cat(block, "ffn_", name, '.', e, ".weight"),
                     {down ? 16U : 32U, down ? 32U : 16U});
      }
    }
  }
  const Model model = load(file);
  ASSERT_EQ(model.blocks[1].up_parts.size(), 4U);
  EXPECT_EQ(model.blocks[1].up_parts[3]->name, "blk.1.ffn_up.3.weight");
  EXPECT_EQ(model.blocks[1].gate->name, "blk.1.ffn_gate.0.weight");
  EXPECT_EQ(model.spec.blocks[1].experts->width, 16);
  file.tensor("blk.1.ffn_up.2.weight").type = 1;  // F16
  expect_error(file,
               "'blk.1.ffn_up.2.weight' is F16 but 'blk.1.ffn_up.0.weight' F32; experts of a layer "
               "must be of one type");
  file.erase_tensor("blk.1.ffn_up.2.weight");
  expect_error(file, "tensor 'blk.1.ffn_up.2.weight' is missing");
}

// Row A3: the width of an integer is not its meaning.
TEST(HyperparameterTypes, AnyIntegerWidthAndFloatWidthIsAccepted) {
  GgufFile file = tiny_model("qwen3moe");
  file.set("qwen3moe.block_count", u64(2));
  file.set("qwen3moe.expert_used_count", u16(2));
  file.set("qwen3moe.expert_count", u8(4));
  file.set("qwen3moe.embedding_length", i16(32));
  file.set("qwen3moe.rope.freq_base", f64(1e6));
  file.set("qwen3moe.attention.head_count", i64(4));
  file.set("qwen3moe.attention.head_count_kv", array({i32(2), i32(2)}));
  const Model model = load(file);
  EXPECT_EQ(model.spec.blocks.size(), 2U);
  EXPECT_EQ(model.spec.blocks[0].attention.rope.base, 1e6F);
  EXPECT_EQ(model.spec.blocks[1].attention.kv_heads, 2);
  EXPECT_EQ(model.spec.blocks[1].experts->used, 2);
}

TEST(HyperparameterTypes, PerLayerKvHeadsWorkIfEveryLayersTensorsMatch) {
  GgufFile file = tiny_model("qwen3moe");
  file.set("qwen3moe.attention.head_count_kv", array({i32(2), i32(1)}));
  expect_error(file,
               "'blk.1.attn_k.weight' has shape [32, 16], not [32, 8] as "
               "qwen3moe.attention.head_count_kv (1) of layer 1 says");
  reshape(file, "blk.1.attn_k.weight", {32, 8});
  reshape(file, "blk.1.attn_v.weight", {32, 8});
  const Model model = load(file);
  EXPECT_EQ(model.spec.blocks[0].attention.kv_heads, 2);
  EXPECT_EQ(model.spec.blocks[1].attention.kv_heads, 1);
}

TEST(HyperparameterTypes, BadArraysAreRefusedByName) {
  GgufFile file = tiny_model("qwen3moe");
  file.set("qwen3moe.attention.head_count_kv", array({i32(2)}));
  expect_error(file, "'qwen3moe.attention.head_count_kv' has 1 entries for 2 layers");
  file.set("qwen3moe.attention.head_count_kv", array({i32(2), i32(-1)}));
  expect_error(file, "'qwen3moe.attention.head_count_kv' is -1 for layer 1, not between 1 and");
  file.set("qwen3moe.attention.head_count_kv", array({i32(2), i32(3)}));
  expect_error(file, "'qwen3moe.attention.head_count_kv' is 3 for layer 1, which does not divide");
  file.set("qwen3moe.attention.head_count_kv", array({f32(2), f32(2)}));
  expect_error(file, "is an array of floating-point numbers, not an integer");
}

TEST(Hyperparameters, HaveTheDefaultsOfPublishedFiles) {
  GgufFile file = tiny_model("llama");
  for (const char* key : {"attention.key_length", "attention.value_length", "rope.freq_base",
                          "rope.dimension_count"}) {
    file.erase(cat("llama.", key));
  }
  file.erase("general.name");
  const Attention attention = load(file).spec.blocks[0].attention;
  EXPECT_EQ(attention.head_dim, 8);
  EXPECT_EQ(attention.value_dim, 8);
  EXPECT_EQ(attention.rope.dims, 8);
  EXPECT_EQ(attention.rope.base, 10000);
  EXPECT_EQ(attention.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(attention.rope.factor, 1);

  GgufFile full = tiny_model("llama");
  full.erase("llama.attention.head_count_kv");
  for (const std::string block : {"blk.0.", "blk.1."}) {
    reshape(full, block + "attn_k.weight", {32, 32});
    reshape(full, block + "attn_v.weight", {32, 32});
  }
  EXPECT_EQ(load(full).spec.blocks[1].attention.kv_heads, 4);
}

TEST(Hyperparameters, TheAttentionScaleKeyWins) {
  GgufFile file = tiny_model("llama");
  file.set("llama.attention.scale", f32(0.125F));
  EXPECT_EQ(load(file).spec.blocks[0].attention.scale, 0.125F);
}

TEST(Hyperparameters, HeadsMayBeWiderThanTheirShareOfTheHiddenSize) {
  const auto model = model::load_model(golden_model("qwen3-tied-f16.gguf"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->spec.hidden, 64);
  EXPECT_EQ(model->spec.blocks[0].attention.heads, 4);
  EXPECT_EQ(model->spec.blocks[0].attention.head_dim, 32);
}

TEST(Vocabulary, MayBeTied) {
  GgufFile file = tiny_model("qwen3");
  file.erase_tensor("output.weight");
  const Model model = load(file);
  EXPECT_EQ(model.output, model.token_embedding);
}

TEST(Vocabulary, MayHaveFewerTokensThanRowsButNotMore) {
  GgufFile file = tiny_model("qwen3");
  std::vector<std::string> tokens(39, "x");
  file.set("tokenizer.ggml.tokens", texts(tokens));
  EXPECT_EQ(load(file).spec.token_count, 39);
  EXPECT_EQ(load(file).spec.vocabulary, 40);
  file.erase("tokenizer.ggml.tokens");
  EXPECT_EQ(load(file).spec.token_count, 40);
  tokens.resize(41, "x");
  file.set("tokenizer.ggml.tokens", texts(tokens));
  expect_error(file,
               "'tokenizer.ggml.tokens' has 41 entries but tensor 'token_embd.weight' only "
               "40 rows");
}

TEST(Vocabulary, GoldenModelWithAnOddTiedVocabulary) {
  GgufFile file = read_gguf(golden_model("odd-tied-q4_0.gguf"));
  EXPECT_EQ(load(file).spec.vocabulary, 509);
  file.set("tokenizer.ggml.tokens", texts(std::vector<std::string>(500, "x")));
  EXPECT_EQ(load(file).spec.token_count, 500);
  file.set("tokenizer.ggml.tokens", texts(std::vector<std::string>(512, "x")));
  expect_error(file, "has 512 entries but tensor 'token_embd.weight' only 509 rows");
}

// Row D4: what is not in the file, and what contradicts it.
TEST(ExpertKeys, NormalisationIsTheKeysOrTheFamilys) {
  const std::pair<std::string, bool> families[] = {
      {"qwen3moe", true}, {"olmoe", false}, {"mixtral", true}};
  for (const auto& [name, fallback] : families) {
    GgufFile file = tiny_model(name);
    const std::string key = cat(name == "mixtral" ? "llama" : name, ".expert_weights_norm");
    EXPECT_EQ(load(file).spec.blocks[0].experts->normalise_weights, fallback) << name;
    for (const bool value : {true, false}) {
      file.set(key, boolean(value));
      EXPECT_EQ(load(file).spec.blocks[1].experts->normalise_weights, value) << name;
    }
  }
}

TEST(ExpertKeys, WidthIsItsOwnKeysThenTheTensors) {
  GgufFile qwen = tiny_model("qwen3moe");
  qwen.set("qwen3moe.feed_forward_length", u32(8 * 16));  // of a dense layer, not of an expert
  EXPECT_EQ(load(qwen).spec.blocks[0].experts->width, 16);
  qwen.erase("qwen3moe.expert_feed_forward_length");
  EXPECT_EQ(load(qwen).spec.blocks[0].experts->width, 16);
  qwen.set("qwen3moe.expert_feed_forward_length", u32(17));
  expect_error(qwen,
               "'qwen3moe.expert_feed_forward_length' is 17 but tensor "
               "'blk.0.ffn_down_exps.weight' has experts of width 16");

  GgufFile olmoe = tiny_model("olmoe");
  olmoe.set("olmoe.feed_forward_length", u32(8 * 16));
  expect_error(olmoe,
               "'olmoe.feed_forward_length' is 128 but tensor 'blk.0.ffn_down_exps.weight' "
               "has experts of width 16");
  olmoe.set("olmoe.expert_feed_forward_length", u32(16));
  EXPECT_EQ(load(olmoe).spec.blocks[0].experts->width, 16);
  olmoe.erase("olmoe.expert_feed_forward_length");
  olmoe.erase("olmoe.feed_forward_length");
  EXPECT_EQ(load(olmoe).spec.blocks[0].experts->width, 16);
}

TEST(ExpertKeys, ScaleAndScoreAreRead) {
  GgufFile file = tiny_model("qwen3moe");
  file.set("qwen3moe.expert_weights_scale", f32(2.5F));
  file.set("qwen3moe.expert_gating_func", u32(2));
  EXPECT_EQ(load(file).spec.blocks[0].experts->weight_scale, 2.5F);
  EXPECT_EQ(load(file).spec.blocks[0].experts->score, RouterScore::kSigmoid);
  file.set("qwen3moe.expert_weights_scale", f32(0));
  EXPECT_EQ(load(file).spec.blocks[0].experts->weight_scale, 1);
}

TEST(QkNorms, AreOfTheKindTheirLengthSays) {
  for (const std::string name : {"qwen3moe", "olmoe", "qwen3"}) {
    GgufFile file = tiny_model(name);
    for (const std::string block : {"blk.0.", "blk.1."}) {
      reshape(file, block + "attn_q_norm.weight", {32});
      reshape(file, block + "attn_k_norm.weight", {16});
    }
    EXPECT_EQ(load(file).spec.blocks[1].attention.qk_norm, QkNorm::kFullWidth) << name;
    reshape(file, "blk.1.attn_q_norm.weight", {8});
    reshape(file, "blk.1.attn_k_norm.weight", {8});
    EXPECT_EQ(load(file).spec.blocks[1].attention.qk_norm, QkNorm::kPerHead) << name;
    reshape(file, "blk.1.attn_k_norm.weight", {12});
    expect_error(file,
                 "'blk.1.attn_k_norm.weight' has shape [12], neither [8] (one head) nor "
                 "[16] (all heads)");
  }
}

TEST(QkNorms, WithOneKvHeadTheQueriesDecide) {
  GgufFile file = tiny_model("olmoe");
  file.set("olmoe.attention.head_count_kv", u32(1));
  for (const std::string block : {"blk.0.", "blk.1."}) {
    reshape(file, block + "attn_k.weight", {32, 8});
    reshape(file, block + "attn_v.weight", {32, 8});
    reshape(file, block + "attn_k_norm.weight", {8});
  }
  EXPECT_EQ(load(file).spec.blocks[0].attention.qk_norm, QkNorm::kFullWidth);
}

// What the golden files hold; each is one row of the table in the golden set's description.
TEST(GoldenModels, LoadWithTheirShapes) {
  struct Golden {
    std::string file;
    std::string architecture;
    int64_t hidden, vocabulary;
    int experts;
    QkNorm qk_norm;
  };
  const Golden cases[] = {
      {"qwen3moe-f16", "qwen3moe", 64, 384, 8, QkNorm::kPerHead},
      {"qwen3moe-q8_0", "qwen3moe", 128, 512, 8, QkNorm::kPerHead},
      {"qwen3moe-q4_k", "qwen3moe", 256, 448, 3, QkNorm::kPerHead},
      {"qwen3moe-q6_k", "qwen3moe", 256, 448, 3, QkNorm::kPerHead},
      {"qwen3moe-bf16", "qwen3moe", 64, 384, 8, QkNorm::kPerHead},
      {"olmoe-bf16", "olmoe", 64, 384, 8, QkNorm::kFullWidth},
      {"olmoe-f32", "olmoe", 64, 352, 8, QkNorm::kFullWidth},
      {"qwen3-tied-f16", "qwen3", 64, 384, 0, QkNorm::kPerHead},
      {"mixtral-f16", "llama", 64, 384, 8, QkNorm::kNone},
      {"llama-rope-factors-f16", "llama", 64, 384, 0, QkNorm::kNone},
      {"odd-tied-q4_0", "qwen3moe", 96, 509, 9, QkNorm::kPerHead},
      {"split-f16-00001-of-00003", "qwen3moe", 64, 512, 8, QkNorm::kPerHead},
      {"glm4moe-f16", "glm4moe", 64, 384, 8, QkNorm::kPerHead},
      {"minimax-m2-f16", "minimax-m2", 64, 384, 8, QkNorm::kFullWidth},
      {"qwen2-f16", "qwen2", 64, 384, 0, QkNorm::kNone},
      {"qwen2moe-f16", "qwen2moe", 64, 384, 8, QkNorm::kNone},
      {"dots1-f16", "dots1", 64, 384, 8, QkNorm::kPerHead},
      {"ernie4_5-moe-f16", "ernie4_5-moe", 64, 384, 8, QkNorm::kNone},
      {"granitemoe-f16", "granitemoe", 64, 384, 8, QkNorm::kNone},
      {"deepseek2-lite-f16", "deepseek2", 64, 384, 8, QkNorm::kNone},
      {"deepseek2-v3-mla-f16", "deepseek2", 64, 384, 12, QkNorm::kNone},
  };
  for (const Golden& golden : cases) {
    const auto model = model::load_model(golden_model(golden.file + ".gguf"));
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(model->spec.architecture, golden.architecture) << golden.file;
    EXPECT_EQ(model->spec.hidden, golden.hidden) << golden.file;
    EXPECT_EQ(model->spec.vocabulary, golden.vocabulary) << golden.file;
    EXPECT_EQ(model->spec.token_count, golden.vocabulary) << golden.file;
    const auto& block = model->spec.blocks[1];
    EXPECT_EQ(block.experts ? block.experts->count : 0, golden.experts) << golden.file;
    EXPECT_EQ(block.attention.qk_norm, golden.qk_norm) << golden.file;
    const bool tied = golden.file.find("tied") != std::string::npos;
    EXPECT_EQ(model->output == model->token_embedding, tied) << golden.file;
    const bool factors = golden.file.find("rope-factors") != std::string::npos;
    EXPECT_EQ(model->rope_factors != nullptr, factors) << golden.file;
  }
}

TEST(GoldenModels, AllOfTheFullSetLoadOrAreOfAnUnknownArchitecture) {
  const std::string folder = full_golden_folder();
  if (folder.empty()) GTEST_SKIP() << "the full golden set is not beside the repository";
  int loaded = 0, unknown = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string path = entry.path().string();
    const bool later_part = path.ends_with("-of-00003.gguf") && !path.ends_with("1-of-00003.gguf");
    if (!path.ends_with(".gguf") || later_part) continue;
    const auto directory = model::read_directory(path);
    ASSERT_TRUE(directory.ok()) << directory.error().message;
    const std::string architecture = *directory->metadata.string("general.architecture");
    const auto known = model::known_architectures();
    const auto model = model::load_model(path);
    if (std::ranges::find(known, architecture) != known.end()) {
      EXPECT_TRUE(model.ok()) << model.error().message;
      ++loaded;
    } else {
      ASSERT_FALSE(model.ok()) << path;
      EXPECT_NE(model.error().message.find(cat("'", architecture, "'")), std::string::npos);
      ++unknown;
    }
  }
  EXPECT_EQ(loaded, 83);  // the manifest's cases of these architectures
  EXPECT_EQ(unknown, 7);
}

}  // namespace
}  // namespace model_test
