// Sizes of everything a rank and its threads allocate, once, before the first step.
#include <algorithm>
#include <numeric>

#include "engine/pass.h"
#include "plan/footprint.h"

namespace engine {

namespace {

int64_t entries_per_column(const model::Block& block) {
  return block.experts ? block.experts->used : 1;
}

int64_t width_of(const model::Block& block) {
  return block.experts ? block.experts->width : block.dense_width;
}

// Of a column that chooses as many of a rank's whole experts as there are.
int64_t slots_max(const model::Block& block, const plan::BlockShare& own) {
  return std::min(entries_per_column(block), static_cast<int64_t>(own.owned.size()));
}

void raise(int64_t& limit, int64_t value) {
  limit = std::max(limit, value);
}

RankLimits limits_of(const model::ModelSpec& spec, const plan::RankShare& share) {
  // What is needed before and behind the layers.
  RankLimits limits{.input_width = spec.hidden, .entries = 1, .experts = 1};
  for (size_t layer = 0; layer < spec.blocks.size(); layer++) {
    const model::Block& block = spec.blocks[layer];
    const model::Attention& attention = block.attention;
    const plan::BlockShare& own = share.blocks[layer];
    raise(limits.experts, block.experts ? block.experts->count : 1);  // counted of all layers
    if (!own.takes_part) continue;
    const int64_t head = std::max(attention.head_dim, attention.value_dim);
    raise(limits.head, head);
    raise(limits.heads, own.heads.size());
    raise(limits.value_dim, attention.value_dim);
    raise(limits.input_width,
          std::max(spec.hidden, int64_t{attention.heads} * attention.output_dim()));
    if (const auto& latent = attention.latent) {
      raise(limits.heads_width, own.heads.size() * attention.query_dim());
      raise(limits.latent_width, own.heads.size() * attention.head_dim);
      raise(limits.up_width, std::max(latent->plain_dim, latent->rank));
      raise(limits.input_width, latent->query_rank);
    } else {
      raise(limits.heads_width, own.heads.size() * head);
      raise(limits.kv_width, own.kv_heads.size() * head);
    }
    if (attention.qk_norm == model::QkNorm::kFullWidth) {
      raise(limits.full_width, int64_t{attention.heads} * attention.head_dim);
    }
    raise(limits.hidden_rows, own.hidden.size());
    raise(limits.entries, entries_per_column(block));
    if (!own.whole_experts) raise(limits.down_entries, entries_per_column(block));
    raise(limits.width, width_of(block));
    raise(limits.shared_width, block.experts ? block.experts->shared_width : 0);
  }
  return limits;
}

// YaRN stretches positions; models with a latent widen their scores with it.
float scale_of(const model::Attention& attention) {
  if (!attention.latent) return attention.scale;
  const double factor = static_cast<double>(attention.rope.factor);
  const double widening = 1 + attention.latent->score_log * kernels::log_f64(factor);
  return static_cast<float>(static_cast<double>(attention.scale) * widening * widening);
}

kernels::RopeSpec rope_spec(const model::Rope& rope, const float* factors) {
  kernels::RopeSpec spec;
  spec.dims = rope.dims;
  spec.base = static_cast<double>(rope.base);
  switch (rope.scaling) {
    case model::RopeScaling::kNone: spec.scaling = kernels::RopeScaling::kNone; break;
    case model::RopeScaling::kLinear: spec.scaling = kernels::RopeScaling::kLinear; break;
    case model::RopeScaling::kYarn: spec.scaling = kernels::RopeScaling::kYarn; break;
    case model::RopeScaling::kLong: spec.scaling = kernels::RopeScaling::kLong; break;
  }
  spec.factor = static_cast<double>(rope.factor);
  spec.original_context = rope.original_context;
  spec.ext_factor = static_cast<double>(rope.ext_factor);
  spec.attention_factor = static_cast<double>(rope.attention_factor);
  spec.magnitude_log = rope.magnitude_log;
  spec.beta_fast = static_cast<double>(rope.beta_fast);
  spec.beta_slow = static_cast<double>(rope.beta_slow);
  if (factors != nullptr) spec.factors.assign(factors, factors + rope.dims / 2);
  return spec;
}

// LongRoPE has other factors for sequences that may outgrow what it was first trained on.
const float* rope_factors(const Weights& weights, const model::Rope& rope, int64_t context) {
  const bool is_long = rope.scaling == model::RopeScaling::kLong && context > rope.original_context;
  return is_long ? weights.rope_factors_long : weights.rope_factors;
}

bool same_rope(const model::Rope& a, const model::Rope& b) {
  return a.style == b.style && a.dims == b.dims && a.base == b.base && a.scaling == b.scaling &&
         a.factor == b.factor && a.original_context == b.original_context &&
         a.ext_factor == b.ext_factor && a.attention_factor == b.attention_factor &&
         a.magnitude_log == b.magnitude_log && a.beta_fast == b.beta_fast &&
         a.beta_slow == b.beta_slow;
}

// Room for a few columns at the end of the context, as far as that is not too much.
int64_t attended_slots(const RankLimits& limits, const RankOptions& options) {
  if (options.threads == 1) return 0;
  const int64_t context = options.shape.context;
  const int64_t segments = (context - 1) / kernels::kSegmentPositions + 1;
  const auto bytes = static_cast<int64_t>(sizeof(kernels::Attended)) + limits.value_dim * 4;
  return std::min(kRedundantColumns * limits.heads * segments,
                  int64_t{plan::kAttendedBytesMax} / bytes);
}

}  // namespace

Activations::Activations(size_t columns, int64_t k_max) {
  const size_t floats = round_up(as_size(k_max), 16);
  const auto whole_blocks = static_cast<int64_t>(round_up(floats, 32));
  f32_stride = floats;
  q8_stride = kernels::activation_bytes(kernels::ActivationFormat::kQ8, whole_blocks);
  q8_32_stride = kernels::activation_bytes(kernels::ActivationFormat::kQ8_32, whole_blocks);
  f32 = Buffer<float>(columns * f32_stride);
  q8 = Buffer<std::byte>(columns * q8_stride);
  q8_32 = Buffer<std::byte>(columns * q8_32_stride);
}

const std::byte* Activations::column(kernels::ActivationFormat format, size_t index) const {
  switch (format) {
    case kernels::ActivationFormat::kQ8: return q8.data() + index * q8_stride;
    case kernels::ActivationFormat::kQ8_32: return q8_32.data() + index * q8_32_stride;
    case kernels::ActivationFormat::kF32: break;
  }
  return reinterpret_cast<const std::byte*>(f32.data() + index * f32_stride);
}

Choice::Choice(size_t columns, size_t entries_per_column)
    : chosen(columns * entries_per_column),
      weight(columns * entries_per_column),
      shared_weight(columns),
      finite(columns) {}

void Choice::copy(const Choice& from, size_t columns, size_t entries_per_column) {
  std::copy_n(from.chosen.data(), columns * entries_per_column, chosen.data());
  std::copy_n(from.weight.data(), columns * entries_per_column, weight.data());
  std::copy_n(from.shared_weight.data(), columns, shared_weight.data());
  std::copy_n(from.finite.data(), columns, finite.data());
}

size_t slice_bytes_max(const model::ModelSpec& spec, const plan::Plan& plan, int columns_max) {
  int64_t floats = columns_max * spec.hidden;  // token embeddings come as whole rows
  for (const plan::RankShare& share : plan.ranks) {
    floats = std::max(floats, share.vocabulary.size());  // at least one column of logits
    for (size_t layer = 0; layer < spec.blocks.size(); layer++) {
      const model::Block& block = spec.blocks[layer];
      const plan::BlockShare& own = share.blocks[layer];
      const int64_t per_column[] = {
          own.heads.size() * block.attention.output_dim(),
          block.attention.qk_norm == model::QkNorm::kFullWidth
              ? (own.heads.size() + own.kv_heads.size()) * block.attention.head_dim
              : 0,
          own.hidden.size() + (plan.has_stages() ? 1 : 0),  // and the fault of a column
          own.query_rank.size() + own.latent.size(),
          own.experts.size() + own.shared_router.size(),
          own.whole_experts
              ? std::max(slots_max(block, own) * spec.hidden, own.shared_width.size())
              : entries_per_column(block) * own.width.size() + own.shared_width.size()};
      for (const int64_t n : per_column) floats = std::max(floats, columns_max * n);
    }
  }
  return as_size(floats) * sizeof(float);
}

Rank::Rank(const RankOptions& o)
    : options(o),
      spec(*o.spec),
      share(o.plan->ranks[as_size(o.rank)]),
      ops(*o.ops),
      limits(limits_of(spec, share)),
      has_stages(o.plan->has_stages()),
      barrier(o.threads) {
  const size_t columns = as_size(o.shape.columns_max);
  const size_t entries = columns * as_size(limits.entries);
  hidden = Buffer<float>(columns * as_size(limits.hidden_rows));
  q = Buffer<float>(columns * as_size(limits.heads_width));
  k = Buffer<float>(columns * as_size(limits.kv_width));
  v = Buffer<float>(columns * as_size(limits.kv_width));
  latent_heads = Buffer<float>(columns * as_size(limits.latent_width));
  const int64_t slots = attended_slots(limits, o);
  attended = Buffer<kernels::Attended>(as_size(slots));
  attended_values = Buffer<float>(as_size(slots * limits.value_dim));
  down = Buffer<float>(columns * as_size(limits.down_entries * limits.hidden_rows));
  normed = Activations(columns, limits.input_width);
  intermediate = Activations(entries, limits.width);
  if (limits.shared_width > 0) {
    shared_down = Buffer<float>(columns * as_size(limits.hidden_rows));
    shared_intermediate = Activations(columns, limits.shared_width);
  }
  if (o.keeps_logits) logits = Buffer<float>(as_size(o.shape.logit_columns_max * spec.vocabulary));
  if (columns > as_size(kRedundantColumns)) choice = Choice(columns, as_size(limits.entries));
  fault_layer = Buffer<int32_t>(columns);
  expert_use = Buffer<uint64_t>(spec.blocks.size() * as_size(limits.experts));
  bad_logits = Buffer<int32_t>(as_size(o.shape.logit_columns_max));
  identity = Buffer<int32_t>(entries);
  std::iota(identity.data(), identity.data() + entries, 0);

  expert_owner.resize(spec.blocks.size());
  for (size_t layer = 0; layer < spec.blocks.size(); layer++) {
    if (!share.blocks[layer].whole_experts) continue;
    expert_owner[layer].resize(as_size(spec.blocks[layer].experts->count));
    for (int r = 0; r < o.plan->rank_count(); r++) {
      for (const int32_t expert : o.plan->ranks[as_size(r)].blocks[layer].owned)
        expert_owner[layer][as_size(expert)] = r;
    }
  }
  for (size_t layer = 0; layer < spec.blocks.size(); layer++) {
    score_scale.push_back(scale_of(spec.blocks[layer].attention));
    const model::Rope& rope = spec.blocks[layer].attention.rope;
    if (rope.dims == 0) {  // never looked up
      rope_table_of.push_back(-1);
      continue;
    }
    size_t first = 0;  // the first layer with the same rope
    while (!same_rope(spec.blocks[first].attention.rope, rope)) first++;
    if (first == layer) {
      rope_table_of.push_back(static_cast<int>(rope_tables.size()));
      rope_tables.emplace_back(rope_spec(rope, rope_factors(*o.weights, rope, o.shape.context)));
      rope_pairs_max = std::max<int64_t>(rope_pairs_max, rope.dims / 2);
    } else {
      rope_table_of.push_back(rope_table_of[first]);
    }
  }
  ones = Buffer<float>(as_size(limits.head));
  std::fill_n(ones.data(), limits.head, 1.0f);
  const size_t angles = rope_tables.size() * columns * as_size(rope_pairs_max);
  cos = Buffer<float>(angles);
  sin = Buffer<float>(angles);
}

ThreadScratch::ThreadScratch(const Rank& rank, int thread_index) : thread(thread_index) {
  const RankLimits& limits = rank.limits;
  const size_t columns = as_size(rank.options.shape.columns_max);
  const size_t entries = columns * as_size(limits.entries);
  const size_t few = std::min<size_t>(kRedundantColumns, columns);
  normed = Activations(few, limits.input_width);
  intermediate = Activations(few * as_size(limits.entries), limits.width);
  q = Buffer<float>(few * as_size(limits.heads_width));
  k = Buffer<float>(few * as_size(limits.kv_width));
  if (limits.shared_width > 0) shared_intermediate = Activations(few, limits.shared_width);
  if (limits.up_width > 0) head_input = Activations(columns, limits.up_width);
  full = Buffer<float>(as_size(std::max(limits.full_width, limits.experts)));
  keys = Buffer<float>(as_size(2 * limits.experts));
  heads = Buffer<float>(as_size(kQueriesTogether * limits.head));
  attended = Buffer<float>(as_size(kQueriesTogether * limits.value_dim));
  up = Buffer<float>(std::max(entries * kUpRows, few * as_size(limits.entries) * kUpRowsOfFew));
  choice = Choice(columns, as_size(limits.entries));
  grouped = Buffer<int32_t>(entries);
  group_begin = Buffer<int32_t>(as_size(limits.experts) + 1);
  place = Buffer<int32_t>(entries);
  grouped_place = Buffer<int32_t>(entries);
  rank_entries = Buffer<int32_t>(as_size(rank.options.plan->rank_count()));
  hidden_rows = Buffer<float>(as_size(limits.hidden_rows));
  faults = Buffer<int32_t>(columns);
  x = Buffer<const std::byte*>(entries);
  y = Buffer<float*>(entries);
}

}  // namespace engine
