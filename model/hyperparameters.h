// The numbers of an architecture, read from metadata and checked on their own.
//
// Whether they agree with the tensors' shapes is checked by model/model_builder.h. Pure functions;
// every error names the key.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/architecture.h"
#include "model/metadata.h"
#include "model/model.h"

namespace model {

/// Metadata with the architecture's prefix: integer("block_count") reads "llama.block_count".
class Keys {
 public:
  /// `metadata` must outlive the keys.
  Keys(const Metadata& metadata, std::string architecture)
      : metadata_(metadata), prefix_(std::move(architecture) + '.') {}

  const Metadata& metadata() const { return metadata_; }
  std::string name(std::string_view suffix) const { return prefix_ + std::string(suffix); }
  bool has(std::string_view suffix) const { return metadata_.find(name(suffix)) != nullptr; }
  base::Result<int64_t> integer(std::string_view suffix, int64_t min, int64_t max) const {
    return metadata_.integer(name(suffix), min, max);
  }
  base::Error broken(std::string_view suffix, std::string_view problem) const;
  base::Error unsupported(std::string_view suffix, std::string_view problem) const;
  /// A finite number above zero that float can hold; the fallback if absent.
  base::Result<float> positive_or(std::string_view suffix, float fallback) const;
  /// A finite number of at least zero that float can hold; the fallback if absent.
  base::Result<float> not_negative_or(std::string_view suffix, float fallback) const;

 private:
  base::Result<float> number_or(std::string_view suffix, float fallback) const;

  const Metadata& metadata_;
  std::string prefix_;
};

inline constexpr std::string_view kWindow = "attention.sliding_window";

/// What all layers share.
struct CommonNumbers {
  int64_t file_layers = 0;  // block_count: lists in the metadata have as many entries
  int64_t layers = 0;       // without those that predict further tokens
  int64_t hidden = 0, context = 0;
  float norm_epsilon = 0;
};
base::Result<CommonNumbers> read_common(const Keys& keys, const Architecture& architecture);

/// Heads, widths, scale and rope of every layer; qk_norm stays kNone.
base::Result<std::vector<Attention>> read_attention(const Keys& keys, const CommonNumbers& common,
                                                    const Architecture& architecture);

/// Router numbers; widths stay 0.
base::Result<Experts> read_experts(const Keys& keys, const Architecture& architecture);

/// Whether each layer has experts or is dense.
base::Result<std::vector<bool>> read_expert_layers(const Keys& keys, const CommonNumbers& common,
                                                   const Architecture& architecture);

/// Multipliers of the embedding, the residual stream and the logits.
base::Status read_scales(const Keys& keys, const Architecture& architecture, ModelSpec& spec);

/// Refuses keys whose values change the result in a way that the architecture does not apply, such
/// as a sliding window. Errors: kUnsupported.
base::Status refuse_unapplied(const Keys& keys, const CommonNumbers& common,
                              const Architecture& architecture);

}  // namespace model
