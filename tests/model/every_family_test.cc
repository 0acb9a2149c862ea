// What can be wrong in a file of any architecture, tried on the smallest file of each.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/cat.h"
#include "model/architectures.h"
#include "tests/model/damage.h"

namespace model_test {
namespace {

using base::cat;

struct FamilyCase {
  std::string name;          // as tiny_model() knows it
  std::string architecture;  // its prefix of keys
};

void PrintTo(const FamilyCase& one, std::ostream* out) {
  *out << one.name;
}

std::vector<FamilyCase> family_cases() {
  std::vector<FamilyCase> cases;
  for (const std::string_view name : model::known_architectures())
    cases.push_back({std::string(name), std::string(name)});
  cases.push_back({"mixtral", "llama"});
  cases.push_back({"deepseek2-joint", "deepseek2"});
  return cases;
}

class EveryFamily : public testing::TestWithParam<FamilyCase> {
 protected:
  GgufFile file() const { return tiny_model(GetParam().name); }
  std::string key(std::string_view suffix) const {
    return cat(GetParam().architecture, '.', suffix);
  }
  bool has_experts() const { return file().has_tensor("blk.1.ffn_gate_inp.weight"); }

  /// What is said of the file with another value of a key; it must be refused.
  std::string refusal(std::string_view suffix, const RawValue& value) const {
    GgufFile broken = file();
    broken.set(key(suffix), value);
    return refusal(broken);
  }
  static std::string refusal(const GgufFile& broken) {
    const auto result = load_image(broken);
    EXPECT_FALSE(result.ok()) << "the damaged file was accepted";
    if (result.ok()) return "accepted";
    EXPECT_EQ(result.error().message.find('\n'), std::string::npos) << result.error().message;
    return result.error().message;
  }
  static void expect_names(const std::string& message, std::initializer_list<std::string> any_of) {
    const auto named = [&](const std::string& name) {
      return message.find(name) != std::string::npos;
    };
    EXPECT_TRUE(std::any_of(any_of.begin(), any_of.end(), named)) << message;
  }
};

INSTANTIATE_TEST_SUITE_P(, EveryFamily, testing::ValuesIn(family_cases()), [](const auto& info) {
  std::string name = info.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

TEST_P(EveryFamily, TheWholeFileIsAccepted) {
  const auto model = load_image(file());
  EXPECT_TRUE(model.ok()) << model.error().message;
}

TEST_P(EveryFamily, WrongHeadCountsAreNamed) {
  for (const int32_t heads : {0, -4, 3, 8}) {
    SCOPED_TRACE(heads);
    expect_names(refusal("attention.head_count", i32(heads)), {"attention.head_count", "attn_"});
  }
  if (GetParam().architecture == "deepseek2") return;  // one latent, whatever the file says
  for (const int32_t heads : {0, -2, 3, 8}) {
    SCOPED_TRACE(heads);
    expect_names(refusal("attention.head_count_kv", i32(heads)),
                 {"attention.head_count_kv", "attn_k"});
  }
}

TEST_P(EveryFamily, WrongExpertCountsAreNamed) {
  if (!has_experts()) return;
  for (const int32_t count : {0, -1, 3, 5, 1 << 20}) {
    SCOPED_TRACE(count);
    // Without a count, files of some families are dense: then the tensors of experts are too many.
    // Where experts come in groups, these may not divide the count.
    expect_names(refusal("expert_count", i32(count)),
                 {key("expert_count"), key("expert_group_count"), "ffn_"});
  }
  for (const int32_t used : {0, -1, 5}) {
    SCOPED_TRACE(used);
    expect_names(refusal("expert_used_count", i32(used)), {key("expert_used_count")});
  }
}

TEST_P(EveryFamily, ImpossibleNumbersAreNamed) {
  for (const int32_t dims : {3, -2, 64}) {
    SCOPED_TRACE(dims);
    expect_names(refusal("rope.dimension_count", i32(dims)), {key("rope.dimension_count")});
  }
  for (const float epsilon : {0.0F, -1e-6F, kNan, kInfinity}) {
    SCOPED_TRACE(epsilon);
    expect_names(refusal("attention.layer_norm_rms_epsilon", f32(epsilon)),
                 {key("attention.layer_norm_rms_epsilon")});
  }
  expect_names(refusal("attention.sliding_window", i32(-1)), {key("attention.sliding_window")});
}

TEST_P(EveryFamily, MoreTokensThanRowsAreNamed) {
  GgufFile broken = file();
  broken.set("tokenizer.ggml.tokens", texts(std::vector<std::string>(41, "t")));
  expect_names(refusal(broken), {"has 41 entries but tensor 'token_embd.weight' only 40 rows"});
}

TEST_P(EveryFamily, EachMisshapenTensorIsNamed) {
  for (const FileTensor& tensor : file().tensors) {
    SCOPED_TRACE(tensor.name);
    GgufFile broken = file();
    std::vector<uint64_t> shape = tensor.shape;
    shape[0]++;
    reshape(tensor.name, shape)(broken);
    expect_names(refusal(broken), {cat('\'', tensor.name, '\'')});
  }
}

TEST_P(EveryFamily, EachMissingTensorIsNamed) {
  for (const FileTensor& tensor : file().tensors) {
    SCOPED_TRACE(tensor.name);
    GgufFile broken = file();
    broken.erase_tensor(tensor.name);
    // The output may be the embedding, and there may be no selection bias.
    if (tensor.name == "output.weight" || tensor.name.ends_with("exp_probs_b.bias")) {
      EXPECT_TRUE(load_image(broken).ok());
      continue;
    }
    expect_names(refusal(broken), {cat('\'', tensor.name, '\'')});
  }
}

TEST_P(EveryFamily, AnExtraTensorIsNamed) {
  for (const std::string name : {"blk.1.ssm_a.weight", "blk.2.attn_norm.weight", "cls.weight"}) {
    GgufFile broken = file();
    broken.add_f32(name, {32});
    expect_names(refusal(broken), {cat('\'', name, '\'')});
  }
}

// Whether weights of experts are normalised is not in every file: then as the family does.
TEST_P(EveryFamily, NormalisationIsTheKeysOrTheFamilys) {
  if (!has_experts()) return;
  const bool fallback =
      !(GetParam().architecture == "deepseek2" || GetParam().name == "gpt-oss" ||
        GetParam().name == "llama4" || GetParam().name == "olmoe" || GetParam().name == "qwen2moe");
  GgufFile one = file();
  const auto normalises = [&] {
    const auto model = load_image(one);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return model.ok() && model->spec.blocks[1].experts->normalise_weights;
  };
  EXPECT_EQ(normalises(), fallback);
  for (const bool value : {true, false}) {
    one.set(key("expert_weights_norm"), boolean(value));
    EXPECT_EQ(normalises(), value);
  }
}

// The width of an expert is its own key's, else the tensor's; feed_forward_length is another thing
// where there are dense layers or nothing reads it, and else a contradiction with both numbers.
TEST_P(EveryFamily, WidthOfExpertsIsNotThatOfDenseLayers) {
  if (!has_experts()) return;
  GgufFile other = file();
  other.set(key("feed_forward_length"), u32(8 * 48));
  const auto model = load_image(other);
  if (model.ok()) {
    EXPECT_EQ(model->spec.blocks[1].experts->width, 16);
  } else {
    expect_names(model.error().message, {"384"});
    expect_names(model.error().message, {"16", "48"});
  }
  other = file();
  other.erase(key("expert_feed_forward_length"));
  const auto by_tensor = load_image(other);
  ASSERT_TRUE(by_tensor.ok()) << by_tensor.error().message;
  EXPECT_EQ(by_tensor->spec.blocks[1].experts->width, 16);
  other.set(key("expert_feed_forward_length"), u32(17));
  const std::string message = refusal(other);
  expect_names(message, {"17"});
  expect_names(message, {"16"});
}

}  // namespace
}  // namespace model_test
