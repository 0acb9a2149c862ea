// Binds the tensors of a directory to a model, step by step, checking every shape.
//
// An architecture (model/architectures.cc) is a short sequence of these steps. A tensor that no
// step asked for is an error, because ignoring it would silently change the result. One thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/hyperparameters.h"
#include "model/model.h"

namespace model {

struct ExpertRule {
  bool normalise_weights = false;  // unless expert_weights_norm says otherwise
  // feed_forward_length is the width of an expert where expert_feed_forward_length is missing.
  bool width_from_feed_forward = false;
};

class ModelBuilder {
 public:
  ModelBuilder(std::unique_ptr<const Directory> directory, std::string architecture);

  const Keys& keys() const { return keys_; }
  int layer_count() const { return static_cast<int>(model_.spec.blocks.size()); }

  /// Common numbers, attention of every layer, embedding, output, rope factors. First step.
  base::Status start(RopeStyle rope_style);
  /// Norm, projections and their optional biases of one layer.
  base::Status attention(int layer);
  /// Norms of queries and keys of one layer, per head or over the full width.
  base::Status qk_norm(int layer);
  base::Status dense_feed_forward(int layer);
  base::Status expert_feed_forward(int layer, const ExpertRule& rule);
  /// Refuses tensors that no step asked for, and gives the model away. Last step.
  base::Result<Model> finish();

 private:
  struct Shape {
    int64_t length = 1, rows = 1, matrices = 1;
  };

  /// The tensor, marked as used; nullptr if there is none.
  const TensorInfo* take(const std::string& name);
  // `because` tells in errors where the shape comes from.
  base::Result<const TensorInfo*> require(const std::string& name, const Shape& shape,
                                          std::string_view because);
  base::Result<const TensorInfo*> vector(const std::string& name, int64_t length,
                                         std::string_view because);
  base::Result<const TensorInfo*> optional_vector(const std::string& name, int64_t length,
                                                  std::string_view because);
  base::Status bind_vocabulary();
  base::Status bind_rope_factors();
  base::Result<QkNorm> norm_kind(const std::string& name, int64_t head_dim, int64_t heads);
  base::Result<int64_t> expert_width(int layer, const ExpertRule& rule, const TensorInfo& down);

  Model model_;
  Keys keys_;
  std::map<std::string_view, const TensorInfo*> unused_;
};

}  // namespace model
