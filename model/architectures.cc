#include "model/architectures.h"

#include <algorithm>

#include "base/cat.h"
#include "base/limits.h"
#include "model/model_builder.h"
#include "model/printable.h"

namespace model {

namespace {

using base::cat;
using base::Code;
using base::Error;
using base::Result;
using base::Status;

// Qwen3 with experts: queries and keys normed per head, the chosen weights sum to 1.
Status build_qwen3moe(ModelBuilder& builder) {
  RETURN_IF_ERROR(builder.start(RopeStyle::kHalves));
  for (int layer = 0; layer < builder.layer_count(); ++layer) {
    RETURN_IF_ERROR(builder.attention(layer));
    RETURN_IF_ERROR(builder.qk_norm(layer));
    RETURN_IF_ERROR(builder.expert_feed_forward(layer, {.normalise_weights = true}));
  }
  return {};
}

Status build_qwen3(ModelBuilder& builder) {
  RETURN_IF_ERROR(builder.start(RopeStyle::kHalves));
  for (int layer = 0; layer < builder.layer_count(); ++layer) {
    RETURN_IF_ERROR(builder.attention(layer));
    RETURN_IF_ERROR(builder.qk_norm(layer));
    RETURN_IF_ERROR(builder.dense_feed_forward(layer));
  }
  return {};
}

// OLMoE: queries and keys normed over their full width, weights used as the softmax gave them.
Status build_olmoe(ModelBuilder& builder) {
  RETURN_IF_ERROR(builder.start(RopeStyle::kHalves));
  for (int layer = 0; layer < builder.layer_count(); ++layer) {
    RETURN_IF_ERROR(builder.attention(layer));
    RETURN_IF_ERROR(builder.qk_norm(layer));
    RETURN_IF_ERROR(builder.expert_feed_forward(layer, {.width_from_feed_forward = true}));
  }
  return {};
}

// Llama, Mistral and, with experts, Mixtral. Their converters permute the rows of q and k so that
// rope turns neighbouring elements.
Status build_llama(ModelBuilder& builder) {
  RETURN_IF_ERROR(builder.start(RopeStyle::kInterleaved));
  const std::string key = builder.keys().name("expert_count");
  ASSIGN_OR_RETURN(const int64_t experts,
                   builder.keys().metadata().integer_or(key, 0, 0, base::kExpertsMax));
  const ExpertRule rule = {.normalise_weights = true, .width_from_feed_forward = true};
  for (int layer = 0; layer < builder.layer_count(); ++layer) {
    RETURN_IF_ERROR(builder.attention(layer));
    RETURN_IF_ERROR(experts > 0 ? builder.expert_feed_forward(layer, rule)
                                : builder.dense_feed_forward(layer));
  }
  return {};
}

struct Architecture {
  std::string_view name;
  Status (*build)(ModelBuilder&);
};
constexpr Architecture kArchitectures[] = {
    {"llama", build_llama},
    {"olmoe", build_olmoe},
    {"qwen3", build_qwen3},
    {"qwen3moe", build_qwen3moe},
};

Result<Model> build(std::unique_ptr<const Directory> directory) {
  ASSIGN_OR_RETURN(std::string name, directory->metadata.string("general.architecture"));
  const auto* found = std::ranges::find(kArchitectures, name, &Architecture::name);
  if (found == std::end(kArchitectures)) {
    std::string known;
    for (const Architecture& a : kArchitectures) known += cat(known.empty() ? "" : ", ", a.name);
    return Error{Code::kUnsupported, cat("metadata key 'general.architecture' is '",
                                         printable(name), "'; known are ", known)};
  }
  ModelBuilder builder(std::move(directory), std::move(name));
  RETURN_IF_ERROR(found->build(builder));
  return builder.finish();
}

}  // namespace

Result<Model> build_model(std::unique_ptr<const Directory> directory) {
  const std::string path = directory->files.empty() ? "model" : directory->files[0].path;
  auto model = build(std::move(directory));
  if (model.ok()) return model;
  return Error{model.error().code, cat(path, ": ", model.error().message)};
}

Result<Model> load_model(const std::string& path) {
  ASSIGN_OR_RETURN(Directory directory, read_directory(path));
  return build_model(std::make_unique<const Directory>(std::move(directory)));
}

std::vector<std::string_view> known_architectures() {
  std::vector<std::string_view> names;
  for (const Architecture& architecture : kArchitectures) names.push_back(architecture.name);
  return names;
}

}  // namespace model
