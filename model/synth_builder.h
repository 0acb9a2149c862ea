// The steps in which an architecture writes a shape: keys and tensors of one layer after another.
//
// One thread. The shape and the name must outlive the builder.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "model/synth_shapes.h"

namespace model {

class SynthBuilder {
 public:
  SynthBuilder(const SynthShape& shape, std::string_view architecture)
      : shape_(shape), architecture_(architecture) {}

  const SynthShape& shape() const { return shape_; }
  SynthModel take() { return std::move(model_); }

  void key(std::string_view suffix, Value value) {
    model_.metadata.set(base::cat(architecture_, '.', suffix), std::move(value));
  }

  /// Common numbers, embedding, last norm and head. First step.
  void start();
  void attention(int64_t layer);

  /// Projections of a latent, a matrix per head, as published files have them.
  void latent_attention(int64_t layer);
  void qkv_bias(int64_t layer);

  /// Of the attention's output and of everything behind it, and sinks (gpt-oss).
  void further_biases(int64_t layer);
  void qk_norm(int64_t layer, int64_t q_length, int64_t k_length);

  /// The numbers of the experts; once.
  void expert_keys();

  /// The same of families whose experts have a width of their own.
  void expert_keys_with_widths();
  void head_keys();

  /// How scores become weights, said in the file.
  void router_keys();

  /// Dense in the first layers; experts with what they share behind them.
  void feed_forward(int64_t layer, std::string_view norm_name = "ffn_norm.weight");

 private:
  void expert_feed_forward(int64_t layer, std::string_view norm_name);
  void yarn_keys();

  static double root(int64_t number) { return std::sqrt(static_cast<double>(number)); }
  /// As a 32-bit float, which is what files hold.
  static double rounded(double value) { return static_cast<float>(value); }
  static std::string in_layer(int64_t layer, std::string_view name) {
    return base::cat("blk.", layer, '.', name);
  }
  double residual_gain() const { return 1 / root(2 * shape_.layers); }

  void add(SynthTensor tensor) { model_.tensors.push_back(std::move(tensor)); }
  void norm(std::string name, int64_t length);
  void matrix(std::string name, std::vector<int64_t> shape, double gain);
  void per_head(std::string name, std::vector<int64_t> shape);
  void bias(std::string name, std::vector<int64_t> shape);

  const SynthShape& shape_;
  const std::string_view architecture_;
  SynthModel model_;
};

}  // namespace model
