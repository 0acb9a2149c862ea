// Shapes of known models and how each architecture writes one: its metadata and its tensors.
//
// Both are tables: a new model is a row of model/synth_presets.cc, a new architecture one small
// function of steps, which model/architectures.cc reads back. Pure functions; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/metadata.h"

namespace model {

/// How scores become a choice, where that is not softmax over all experts.
struct SynthRouter {
  bool sigmoid = false;  // then with a selection bias and normalised weights
  double scale = 1;      // of the weights
  int64_t groups = 1, groups_used = 1;
};

/// Attention through a latent; rank 0: none.
struct SynthLatent {
  int64_t query_rank = 0, rank = 0;
  int64_t plain_dim = 0, value_dim = 0;
};

/// A stretched context; factor 1: none.
struct SynthYarn {
  double factor = 1;
  int64_t original_context = 0;
  double log_multiplier = 0;  // of scores; 0: not written
  double beta_fast = 0;       // 0: not written
};

/// The numbers that make up a model of a known kind; zero where a kind has no such thing.
struct SynthShape {
  std::string_view preset;                        // its name on the command line
  std::string_view title;                         // its name in the file
  std::array<std::string_view, 2> architectures;  // the first is its own; the other may be empty
  int64_t layers = 0, hidden = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;  // of a latent: what is cached
  int64_t rope_dims = 0;                          // 0: head_dim
  int64_t window = 0;
  bool norms_heads = false;  // queries and keys, where members of a family differ in that
  int64_t experts = 0, experts_used = 0, expert_width = 0;
  int64_t dense_width = 0;  // feed_forward_length of models whose experts have a width of their own
  int64_t shared_experts = 0, leading_dense = 0;
  int64_t vocabulary = 0, context = 0;
  double rope_base = 10000, norm_epsilon = 1e-5;
  SynthRouter router = {};
  SynthLatent latent = {};
  SynthYarn yarn = {};
};

std::span<const SynthShape> synth_presets();
/// nullptr if there is none of that name.
const SynthShape* find_synth_preset(std::string_view name);

/// What the values of a tensor are for, which decides their type and size.
enum class SynthRole {
  kNorm,       // F32, near 1
  kRouter,     // F32
  kBias,       // F32, near 0
  kEmbedding,  // the rows are the first hidden states
  kHead,       // to logits
  kMatrix,     // into a layer
  kExperts,    // the same, of all experts
};

struct SynthTensor {
  std::string name;
  std::vector<int64_t> shape;  // [row length, rows, matrices], trailing ones left out
  SynthRole role = SynthRole::kMatrix;
  double deviation = 0;  // of the values, unless a norm
};

/// A shape written as an architecture, without a vocabulary.
struct SynthModel {
  Metadata metadata;
  std::vector<SynthTensor> tensors;
};

/// `architecture` empty: the shape's own. Errors: kInvalidArgument for one that the shape cannot be
/// written as, with those it can.
base::Result<SynthModel> describe_synth(const SynthShape& shape, std::string_view architecture);

}  // namespace model
