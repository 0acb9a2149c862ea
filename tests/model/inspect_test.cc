#include "model/inspect.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/cat.h"
#include "tests/model/gguf_builder.h"
#include "tests/model/tiny_model.h"

namespace model_test {
namespace {

using base::cat;
using model::inspect_json;
using model::inspect_report;

/// By hand: the F32 tensors of tiny_model() in weights.
constexpr uint64_t kEmbedding = 32 * 40;
constexpr uint64_t kAttention = 32 * 32 + 2 * 32 * 16 + 32 * 32;
constexpr uint64_t kNorms = 2 * 32;
constexpr uint64_t kOneExpert = 3 * 32 * 16;
constexpr uint64_t kRouter = 32 * 4;
constexpr uint64_t kDense = 3 * 32 * 48;

model::Model load(const GgufFile& file) {
  auto result = load_image(file);
  CHECK(result.ok(), result.error().message);
  return std::move(*result);
}

TEST(ActiveBytes, CountTheUsedExpertsAndOneEmbeddingRow) {
  GgufFile file = tiny_model("mixtral");
  file.set("llama.expert_used_count", u32(1));
  const model::Model model = load(file);
  const uint64_t layer = kAttention + kNorms + kRouter;
  EXPECT_EQ(model::weight_bytes(*model.directory),
            4 * (2 * kEmbedding + 32 + 2 * (layer + 4 * kOneExpert)));
  EXPECT_EQ(model::active_bytes_per_token(model),
            4 * (32 + kEmbedding + 32 + 2 * (layer + kOneExpert)));
}

TEST(ActiveBytes, CountAllOfADenseModelAndATiedEmbeddingAsOutput) {
  GgufFile file = tiny_model("llama");
  file.erase_tensor("output.weight");
  const model::Model model = load(file);
  EXPECT_EQ(model::active_bytes_per_token(model),
            4 * (32 + kEmbedding + 32 + 2 * (kAttention + kNorms + kDense)));
}

TEST(ActiveBytes, CountTheBiasesOfUsedExperts) {
  GgufFile file = tiny_model("gpt-oss");
  const uint64_t two = model::active_bytes_per_token(load(file));
  file.set("gpt-oss.expert_used_count", u32(1));
  const uint64_t biases = 2 * 16 + 32;
  EXPECT_EQ(two - model::active_bytes_per_token(load(file)), 4 * 2 * (kOneExpert + biases));
}

TEST(InspectReport, TellsWhichLayersAreBounded) {
  EXPECT_NE(inspect_report(load(tiny_model("gpt-oss")))
                .find("reach       the last 16 positions in 1 of 2 layers\n"),
            std::string::npos);
  EXPECT_NE(inspect_report(load(tiny_model("llama4")))
                .find("reach       chunks of 8192 positions in 2 of 2 layers\n"),
            std::string::npos);
  EXPECT_EQ(inspect_report(load(tiny_model("qwen3moe"))).find("reach"), std::string::npos);
}

TEST(ActiveBytes, CountFusedGateAndUp) {
  GgufFile file = tiny_model("mixtral");
  const uint64_t apart = model::active_bytes_per_token(load(file));
  for (const std::string block : {"blk.0.", "blk.1."}) {
    file.erase_tensor(block + "ffn_gate_exps.weight");
    file.erase_tensor(block + "ffn_up_exps.weight");
    file.add_f32(block + "ffn_gate_up_exps.weight", {32, 32, 4});
  }
  EXPECT_EQ(model::active_bytes_per_token(load(file)), apart);
}

TEST(InspectReport, ShowsShapeBytesFormatsMetadataAndTensors) {
  const auto model = model::load_model(golden_model("qwen3moe-q4_k.gguf"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto only_f32 = [](kernels::TensorType type) { return type == kernels::TensorType::kF32; };
  const std::string report = inspect_report(*model, {.has_fast_path = only_f32});
  for (const std::string line : {
           "model       tiny random qwen3moe-q4_k (qwen3moe)\n",
           "shape       2 layers, hidden 256, 4 heads, 1 KV heads of 64\n",
           "experts     3 of width 256, 2 used per token\n",
           "vocabulary  448 rows, 448 tokens, output of its own\n",
           "  F32      11    tensors 12288 bytes, fast path\n",
           "  Q4_K     16    tensors 976896 bytes, reference path\n",
           "  qwen3moe.expert_count = 3\n",
           "  tokenizer.ggml.add_bos_token = false\n",
           ", ...] (448 entries)\n",
           "  blk.1.ffn_down_exps.weight       Q4_K     [256, 256, 3]        110592 bytes\n",
       }) {
    EXPECT_NE(report.find(line), std::string::npos) << line << " is missing in\n" << report;
  }
  EXPECT_EQ(inspect_report(*model).find(" path\n"), std::string::npos);
}

TEST(InspectReport, ShowsRangesWhereLayersDiffer) {
  GgufFile file = tiny_model("llama");
  file.set("llama.attention.head_count_kv", array({u32(2), u32(4)}));
  for (const std::string name : {"blk.1.attn_k.weight", "blk.1.attn_v.weight"}) {
    GgufFile other;
    file.tensor(name) = other.add_f32(name, {32, 32});
  }
  const std::string report = inspect_report(load(file));
  EXPECT_NE(report.find("4 heads, 2-4 KV heads of 8"), std::string::npos) << report;
  EXPECT_NE(report.find("feed-forward width 48\n"), std::string::npos) << report;
}

TEST(InspectReport, StaysOneLinePerValueWhateverTheFileSays) {
  GgufFile file = tiny_model("llama");
  file.set("general.name", text("two\nlines\x1b[2J"));
  file.set("evil", text(std::string(100'000, '\xff')));
  const std::string report = inspect_report(load(file));
  EXPECT_NE(report.find("model       two?lines?[2J (llama)\n"), std::string::npos) << report;
  EXPECT_NE(report.find(cat("  evil = ", std::string(80, '?'), "...\n")), std::string::npos);
}

TEST(InspectJson, ShortensLongArraysAndEscapesText) {
  GgufFile file = tiny_model("olmoe");
  file.set("general.name", text("a \"name\"\\\n\x01\xff"));
  file.set("short", array({i32(-1), i32(2)}));
  file.set("numbers", array({f64(0.5), f64(std::numeric_limits<double>::quiet_NaN())}));
  file.set("flags", array({boolean(true), boolean(false)}));
  const std::string json =
      inspect_json(load(file), {.has_fast_path = [](kernels::TensorType) { return true; }});
  for (const std::string part : {
           R"("name": "a \"name\"\\\n\u0001)"
           "\xEF\xBF\xBD\"",
           R"("short": [-1, 2])",
           R"("numbers": [0.5, null])",
           R"("flags": [true, false])",
           R"("tokenizer.ggml.tokens": {"length": 40, "first": ["t0", "t1", )",
           R"("token_count": 40)",
           R"("formats": {"F32": {"tensors": 27, "bytes": )",
           R"("path": "fast"}})",
           R"({"name": "blk.0.ffn_gate_exps.weight", "type": "F32", "shape": [32, 16, 4], )"
           R"("bytes": 8192, "file": 0, "offset": )",
       }) {
    EXPECT_NE(json.find(part), std::string::npos) << part << " is missing in\n" << json;
  }
  EXPECT_NE(json.find(R"("t15"]})"), std::string::npos);
  EXPECT_EQ(json.find(R"("t16")"), std::string::npos);
}

}  // namespace
}  // namespace model_test
