// A model file as checked data: shapes, one block description per layer, and which tensor is which.
//
// Everything an engine needs to know about an architecture is in ModelSpec; no code outside
// model/architectures.cc tests for an architecture's name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/formats.h"
#include "model/metadata.h"

namespace model {

/// One file of a model, with what identifies its content without reading it.
struct SourceFile {
  std::string path;
  uint64_t bytes = 0;
  uint64_t device = 0, inode = 0;
  int64_t mtime_ns = 0, ctime_ns = 0;
};

struct TensorInfo {
  std::string name;
  kernels::TensorType type = kernels::TensorType::kF32;
  int dimension_count = 1;
  int64_t shape[4] = {1, 1, 1, 1};  // shape[0] = weights per row, as GGUF lists them
  int file_index = 0;
  uint64_t offset = 0;  // of the first byte, from the start of its file
  uint64_t bytes = 0;

  int64_t row_length() const { return shape[0]; }
  int64_t row_count() const { return shape[1] * shape[2] * shape[3]; }
};

/// Metadata and tensors of a GGUF file (or of all parts of a split one), every number checked
/// against the files' sizes. No tensor data was read.
struct Directory {
  std::vector<SourceFile> files;
  Metadata metadata;
  std::vector<TensorInfo> tensors;

  /// nullptr if there is none of that name.
  const TensorInfo* find(std::string_view name) const;
};

/// How much of a file has to be there.
enum class Extent {
  kWhole,
  kHeader,  // tensor data may be missing, as at the beginning of a download
};

/// Reads a GGUF v2 or v3 file; for a split file `path` is the first part. Errors: kBrokenFile,
/// kUnsupported, kNotFound, each naming the field.
base::Result<Directory> read_directory(const std::string& path, Extent extent = Extent::kWhole);

enum class RopeStyle { kInterleaved, kHalves };
enum class RopeScaling { kNone, kLinear, kYarn, kLong };
struct Rope {
  RopeStyle style = RopeStyle::kHalves;
  int dims = 0;  // rotated elements of a head; 0: positions do not turn this layer's heads
  float base = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1;
  int64_t original_context = 0;
  float ext_factor = 1;
  float attention_factor = 1;
  double magnitude_log = 0.1;  // YaRN: cos and sin are multiplied by 1 + this * ln(factor)
  float beta_fast = 32;
  float beta_slow = 1;
};

enum class QkNorm {
  kNone,
  kPerHead,    // weights [head_dim], each head on its own
  kFullWidth,  // weights [heads * head_dim], over all heads at once
  kAfterRope,  // no weights, each head on its own once it is turned
};

/// Which positions up to its own a position attends to.
enum class Reach {
  kAll,
  kWindow,  // the last `span` of them, its own included
  kChunk,   // those from the last multiple of `span` on
};

/// Scores that grow with the position p: times 1 + log_factor * ln(floor((p + 1) / length) + 1).
struct Temperature {
  int64_t length = 0;
  double log_factor = 0;
};

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): keys and values of all heads are
/// projections of one normed vector per position, the latent, and of one rotated key part. In the
/// absorbed form the projections are applied to queries and results instead.
struct Latent {
  int query_rank = 0;    // width of the compressed input of queries; 0: the layer's input itself
  int rank = 0;          // width of the latent
  int plain_dim = 0;     // of a head's query and key: the part that is not rotated
  int value_dim = 0;     // of a head's result
  double score_log = 0;  // YaRN: scores are multiplied by (1 + this * ln(rope.factor))^2
};
struct Attention {
  int heads = 0, kv_heads = 0;
  int head_dim = 0;   // of q and k; with a latent: rank + rope.dims
  int value_dim = 0;  // of v; with a latent: rank
  float scale = 0;    // of q k
  QkNorm qk_norm = QkNorm::kNone;
  Rope rope;
  Reach reach = Reach::kAll;
  int64_t span = 0;  // of reach
  std::optional<Temperature> temperature;
  std::optional<Latent> latent;  // then one "KV head", which is the latent itself

  /// Width of a head's query as it is projected, and of a head's result.
  int query_dim() const { return latent ? latent->plain_dim + rope.dims : head_dim; }
  /// Of v as it is cached; 0: the first value_dim elements of the keys are the values.
  int cached_value_dim() const { return latent ? 0 : value_dim; }
  int output_dim() const { return latent ? latent->value_dim : value_dim; }
  /// The first position that `position` attends to.
  int64_t first_position(int64_t position) const {
    switch (reach) {
      case Reach::kWindow: return position < span ? 0 : position - span + 1;
      case Reach::kChunk: return position / span * span;
      case Reach::kAll: break;
    }
    return 0;
  }
};

enum class RouterScore {
  kSoftmax,
  kSigmoid,
  kSoftmaxOfChosen,  // experts are chosen by their logits
};
struct Experts {
  int count = 0, used = 0;
  int64_t width = 0;  // intermediate size of one expert
  RouterScore score = RouterScore::kSoftmax;
  bool normalise_weights = false;  // of the chosen experts, to sum 1
  float weight_scale = 1;
  bool weighs_input = false;  // weights multiply what goes into an expert, not what comes out
  // Experts lie in equal groups; only those of the best groups are chosen.
  int groups = 1, groups_used = 1;
  // Experts that every token uses, as one of this width; 0: none.
  int64_t shared_width = 0;
  bool weighs_shared = false;  // by a sigmoid, as BlockTensors::shared_router says
};

/// From what gate and up give to what down gets.
enum class Activation {
  kSilu,           // silu(gate) * up
  kClampedSwiglu,  // of gpt-oss: both bounded by `limit`, gate * sigmoid(alpha * gate) * (up + 1)
};
struct ActivationSpec {
  Activation kind = Activation::kSilu;
  float alpha = 0, limit = 0;
};

/// One layer: pre-norm attention, then pre-norm feed-forward, each with a residual.
struct Block {
  Attention attention;
  std::optional<Experts> experts;  // a dense feed-forward if absent
  int64_t dense_width = 0;         // intermediate size if dense
  ActivationSpec activation;
};

struct ModelSpec {
  std::string architecture;
  std::string name;
  int64_t vocabulary = 0;  // rows of the token embedding
  // Pieces of the tokenizer, at most `vocabulary`: ids from here on have no text and must never be
  // sampled. Equal to `vocabulary` if the file has no token list.
  int64_t token_count = 0;
  int64_t hidden = 0;
  float norm_epsilon = 0;
  int64_t context = 0;        // positions trained on
  float embedding_scale = 1;  // multiplies what is looked up
  float residual_scale = 1;   // multiplies what attention and feed-forward add
  float logit_scale = 1;      // multiplies the logits
  std::vector<Block> blocks;
};

/// Tensors of one layer, borrowed from the Directory; nullptr where the model has none. Expert
/// tensors have shape [row length, rows, experts].
struct BlockTensors {
  const TensorInfo* attention_norm = nullptr;
  const TensorInfo *q = nullptr, *k = nullptr, *v = nullptr, *attention_output = nullptr;
  const TensorInfo* qkv = nullptr;  // instead of q, k and v: their rows in this order
  const TensorInfo *q_bias = nullptr, *k_bias = nullptr, *v_bias = nullptr;
  const TensorInfo* attention_output_bias = nullptr;
  const TensorInfo *q_norm = nullptr, *k_norm = nullptr;
  const TensorInfo* sinks = nullptr;  // [heads]: a score that takes weight and gives no value
  // Latent attention; q above is then absent if queries have a rank.
  const TensorInfo *q_down = nullptr, *q_down_norm = nullptr;    // [hidden, query rank]
  const TensorInfo* q_up = nullptr;                              // [query rank, heads * query dim]
  const TensorInfo *kv_down = nullptr, *kv_down_norm = nullptr;  // [hidden, rank + rope]
  const TensorInfo* k_up = nullptr;                              // [plain dim, rank, heads]
  const TensorInfo* v_up = nullptr;                              // [rank, value dim, heads]
  const TensorInfo* kv_up = nullptr;  // instead: [rank, heads * (plain dim rows, value dim rows)]
  const TensorInfo* ffn_norm = nullptr;
  const TensorInfo* router = nullptr;          // [hidden, experts]
  const TensorInfo* router_bias = nullptr;     // [experts]
  const TensorInfo* selection_bias = nullptr;  // [experts], added to scores for the choice only
  const TensorInfo* shared_router = nullptr;   // [hidden]: sigmoid of it weighs the shared experts
  const TensorInfo *shared_gate = nullptr, *shared_up = nullptr, *shared_down = nullptr;
  const TensorInfo *gate = nullptr, *up = nullptr, *down = nullptr;  // dense, or of all experts
  const TensorInfo* gate_up = nullptr;  // instead of gate and up: gate rows, then up rows
  const TensorInfo *gate_bias = nullptr, *up_bias = nullptr;  // [width, experts]
  const TensorInfo* down_bias = nullptr;                      // [hidden, experts]
  // Old files: one tensor of one type per expert; gate, up and down are then the first of them.
  std::vector<const TensorInfo*> gate_parts, up_parts, down_parts;
};

/// A model file that was checked against its architecture.
struct Model {
  std::unique_ptr<const Directory> directory;
  ModelSpec spec;
  const TensorInfo* token_embedding = nullptr;
  const TensorInfo* output_norm = nullptr;
  const TensorInfo* output = nullptr;        // the token embedding itself if tied
  const TensorInfo* rope_factors = nullptr;  // rope_freqs.weight; of LongRoPE the short ones
  /// Of LongRoPE, in the place of those where a sequence may be longer than its original context.
  const TensorInfo* rope_factors_long = nullptr;
  std::vector<BlockTensors> blocks;
};

/// Reads the directory, recognises the architecture and checks every tensor's presence and shape.
base::Result<Model> load_model(const std::string& path, Extent extent = Extent::kWhole);

/// Names of the architectures that load_model knows.
std::vector<std::string_view> known_architectures();

}  // namespace model
