// Binds the tensors of a directory to a model, step by step, checking every shape.
//
// Which steps, says the architecture's row (model/architecture.h). A tensor that no step asked for
// is an error, because ignoring it would silently change the result. One thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/hyperparameters.h"
#include "model/model.h"

namespace model {

class ModelBuilder {
 public:
  /// `architecture` must outlive the builder.
  ModelBuilder(std::unique_ptr<const Directory> directory, const Architecture& architecture);

  /// Binds everything and gives the model away. Call once.
  base::Result<Model> build();

 private:
  struct Shape {
    int64_t length = 1, rows = 1, matrices = 1;
  };

  // model_builder.cc
  /// The tensor, marked as used; nullptr if there is none.
  const TensorInfo* take(const std::string& name);
  /// The same without marking it.
  const TensorInfo* peek(const std::string& name) const;
  // `because` tells in errors where the shape comes from.
  base::Result<const TensorInfo*> require(const std::string& name, const Shape& shape,
                                          std::string_view because);
  base::Result<const TensorInfo*> vector(const std::string& name, int64_t length,
                                         std::string_view because);
  base::Result<const TensorInfo*> optional_vector(const std::string& name, int64_t length,
                                                  std::string_view because);
  base::Result<const TensorInfo*> vector_if(Presence presence, const std::string& name,
                                            int64_t length, std::string_view because);
  /// The same for `shape.rows` vectors in one tensor.
  base::Result<const TensorInfo*> vectors_if(Presence presence, const std::string& name,
                                             const Shape& shape, std::string_view because);
  base::Status start();
  base::Status bind_vocabulary();
  base::Status bind_rope_factors();
  base::Status refuse_left_over();

  // build_attention.cc
  base::Status grouped_attention(int layer);
  base::Status qk_norm(int layer);
  base::Result<QkNorm> norm_kind(const std::string& name, int64_t head_dim, int64_t heads);
  base::Status latent_attention(int layer);
  base::Status latent_projections(int layer);

  // build_feed_forward.cc
  base::Status dense_feed_forward(int layer);
  base::Status expert_feed_forward(int layer);
  base::Status expert_tensors(int layer, const Experts& experts);
  base::Status expert_biases(int layer, const Experts& experts);
  base::Status expert_parts(int layer, const Experts& experts);
  base::Status shared_experts(int layer, Experts& experts);
  base::Result<int64_t> expert_width(int layer, const TensorInfo& down);
  base::Result<int64_t> shared_width(int layer, const Experts& experts);
  base::Result<int64_t> width_of_layer(const std::string& key, int layer);

  int64_t hidden() const { return model_.spec.hidden; }
  Block& spec_of(int layer) { return model_.spec.blocks[static_cast<size_t>(layer)]; }
  BlockTensors& tensors_of(int layer) { return model_.blocks[static_cast<size_t>(layer)]; }

  const Architecture& architecture_;
  Model model_;
  Keys keys_;
  CommonNumbers common_;
  std::map<std::string_view, const TensorInfo*> unused_;
};

/// "blk.3.name".
std::string in_layer(int layer, std::string_view name);
/// "[64, 32]".
std::string tensor_shape_text(const TensorInfo& tensor);
base::Error missing_tensor(std::string_view name);

}  // namespace model
