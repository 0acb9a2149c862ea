// The numbers of an architecture, read from metadata and checked on their own.
//
// Whether they agree with the tensors' shapes is checked by model/model_builder.h. Pure functions;
// every error names the key.
#pragma once

#include <string>
#include <string_view>
#include <vector>

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
  /// A finite number above zero that float can hold; the fallback if absent.
  base::Result<float> positive_or(std::string_view suffix, float fallback) const;
  /// A finite number of at least zero that float can hold; the fallback if absent.
  base::Result<float> not_negative_or(std::string_view suffix, float fallback) const;

 private:
  base::Result<float> number_or(std::string_view suffix, float fallback) const;

  const Metadata& metadata_;
  std::string prefix_;
};

/// What all layers share.
struct CommonNumbers {
  int64_t layers = 0, hidden = 0, context = 0;
  float norm_epsilon = 0;
};
base::Result<CommonNumbers> read_common(const Keys& keys);

/// Heads, widths, scale and rope of every layer; qk_norm stays kNone.
base::Result<std::vector<Attention>> read_attention(const Keys& keys, const CommonNumbers& common,
                                                    RopeStyle style);

/// Router numbers; `width` stays 0. `normalise_weights` is the value if the file has no key.
base::Result<Experts> read_experts(const Keys& keys, bool normalise_weights);

/// Refuses keys whose values change the result in a way that no architecture here applies, such as
/// a sliding window. Errors: kUnsupported.
base::Status refuse_unapplied(const Keys& keys, const CommonNumbers& common);

}  // namespace model
