// One thread's walk through a step: what it may read, where it may write, and how it waits.
//
// All threads of all ranks run the same code on the same step; what differs is the share of rows,
// heads and columns. `Rank` holds what the threads of a rank have in common, `ThreadScratch` what
// one thread has to itself, `Pass` ties both to a step.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "base/exchange.h"
#include "engine/attend_items.h"
#include "engine/buffer.h"
#include "engine/kv_cache.h"
#include "engine/parts_done.h"
#include "engine/step_record.h"
#include "engine/step_stats.h"
#include "engine/team.h"
#include "engine/weights.h"
#include "engine/work_split.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "model/model.h"
#include "plan/plan.h"

namespace engine {

/// Up to this many columns every thread normalises and quantises all of them for itself, which
/// saves a wait; beyond, the threads share that work and meet at a barrier.
inline constexpr int kRedundantColumns = 4;

/// Rows of gate, then of up, that one thread computes before it multiplies them.
inline constexpr int64_t kUpRows = 4 * kernels::kPanelRows;
/// The same with few columns: where memory sets the pace, fewer streams of it begin anew.
inline constexpr int64_t kUpRowsOfFew = 32 * kernels::kPanelRows;

/// Columns of activations as the products want them. Strides in elements, 64-byte multiples, the
/// same for every row length up to k_max.
struct Activations {
  Buffer<float> f32;        // [columns][f32_stride]
  Buffer<std::byte> q8;     // [columns][q8_stride]
  Buffer<std::byte> q8_32;  // [columns][q8_32_stride]
  size_t f32_stride = 0;
  size_t q8_stride = 0;
  size_t q8_32_stride = 0;

  Activations() = default;
  Activations(size_t columns, int64_t k_max);
  const std::byte* column(kernels::ActivationFormat format, size_t index) const;
};

/// Which experts the columns of a step go to in one layer.
struct Choice {
  Buffer<int32_t> chosen;       // [columns * entries] expert of each slot
  Buffer<float> weight;         // [columns * entries]
  Buffer<float> shared_weight;  // [columns]
  Buffer<int32_t> finite;       // [columns] 0 if the router's scores were not

  Choice() = default;
  Choice(size_t columns, size_t entries_per_column);
  /// Becomes `from` in the first `columns` columns of so many entries each.
  void copy(const Choice& from, size_t columns, size_t entries_per_column);
};

/// What one layer takes from the exchange, and the largest sizes over all layers.
struct RankLimits {
  int64_t heads_width = 0;  // own heads * max(query_dim, value_dim)
  int64_t kv_width = 0;     // own KV heads * max(head_dim, value_dim)
  int64_t input_width = 0;  // input of any product but down
  int64_t full_width = 0;   // all heads * head_dim where they are normed together
  int64_t head = 0;         // max(head_dim, value_dim)
  int64_t heads = 0;        // own
  int64_t value_dim = 0;
  int64_t latent_width = 0;  // own heads * head_dim where a latent is cached
  int64_t up_width = 0;      // input of a head's product with the latent's projections
  int64_t hidden_rows = 0;   // own hidden rows
  int64_t entries = 0;       // expert slots per column, 1 if dense
  int64_t down_entries = 0;  // the same of layers without whole experts
  int64_t width = 0;         // max width of one expert or dense layer
  int64_t shared_width = 0;  // of the shared experts
  int64_t experts = 0;
};

struct RankOptions {
  const model::ModelSpec* spec = nullptr;
  const plan::Plan* plan = nullptr;
  int rank = 0;
  const Weights* weights = nullptr;
  const KvPool* kv = nullptr;
  const kernels::Ops* ops = nullptr;
  base::Exchange* exchange = nullptr;
  int threads = 1;
  RunnerShape shape;
  bool keeps_logits = false;  // only the leader assembles them
  /// If given, thread 0 writes which experts were chosen: [layers][columns_max][kExpertsUsedMax].
  int32_t* expert_trace = nullptr;
};

/// Bytes of the largest slice that any rank of `plan` publishes.
size_t slice_bytes_max(const model::ModelSpec& spec, const plan::Plan& plan, int columns_max);

/// How often the ranks that compute a layer meet in it, its end included; `share` is that of any
/// of them. A step has one gather more before the layers, and those of the logits behind.
uint64_t gathers_of(const model::Block& block, const plan::BlockShare& share);

/// What the threads of one rank share. Buffers are written in disjoint parts between two waits.
struct Rank {
  explicit Rank(const RankOptions& options);

  // constant after construction; everything pointed to must outlive the rank
  RankOptions options;
  const model::ModelSpec& spec;
  const plan::RankShare& share;
  const kernels::Ops& ops;
  RankLimits limits;
  bool has_stages;  // not all ranks compute all layers
  std::vector<kernels::RopeTable> rope_tables;
  std::vector<int> rope_table_of;  // [layers] index into rope_tables
  int64_t rope_pairs_max = 0;
  std::vector<float> score_scale;              // [layers] of q k
  std::vector<std::vector<int>> expert_owner;  // [layers][experts] rank; empty: they are split
  Buffer<float> ones;                          // [head] the weights of a norm that has none

  int threads = options.threads;  // that take part in the step; written between steps

  // shared between the threads
  Barrier barrier;
  WorkSplit split{options.threads};
  PartsDone slabs_done{as_size(options.threads)};
  Buffer<float> hidden;        // [columns][own hidden rows] residual stream
  Buffer<float> q, k, v;       // [columns][own heads or KV heads * head size]
  Buffer<float> latent_heads;  // [columns][own heads * head_dim] absorbed queries, then results
  // What (column, own head, segment) gave where threads share a context, and who is through with
  // it.
  Buffer<kernels::Attended> attended;
  Buffer<float> attended_values;  // [attended][value_dim]
  PartsDone parts_done{as_size(divided_max(options.threads))};
  Buffer<float> down;               // [columns * entries][own hidden rows], not of whole experts
  Buffer<float> shared_down;        // [columns][own hidden rows]
  Buffer<float> cos, sin;           // [rope tables][columns][rope_pairs_max]
  Activations normed;               // [columns] input of q k v, output, router, gate and up
  Activations intermediate;         // [columns * entries] input of down
  Activations shared_intermediate;  // [columns] the same of the shared experts
  Choice choice;                    // [columns] where the threads share the columns
  Buffer<float> logits;             // [logit columns][vocabulary], leader only
  Buffer<int32_t> bad_logits;       // [logit columns] 1 if one of its logits is not finite
  Buffer<int32_t> fault_layer;      // [columns], written by thread 0
  Buffer<uint64_t> expert_use;      // [layers][experts] how often chosen, counted by thread 0
  Buffer<int32_t> identity;         // [columns * entries] 0, 1, 2, …
};

/// What one thread has to itself; made by that thread, so that it lies on its node.
struct ThreadScratch {
  ThreadScratch(const Rank& rank, int thread);

  int thread;                       // of those that take part in the step
  uint64_t sequence = 0;            // of the next gather; the same on all threads of the group
  uint64_t dispatch = 0;            // number of the last one; the same on all threads of the rank
  Activations normed;               // [kRedundantColumns]
  Activations intermediate;         // [kRedundantColumns * entries]
  Activations shared_intermediate;  // [kRedundantColumns]
  Activations head_input;           // [columns] one head's input of k_up or v_up
  Buffer<float> q, k;      // [kRedundantColumns][own heads or KV heads * head_dim], full-width norm
  Buffer<float> full;      // [full_width] one column of all heads; or of all experts' scores
  Buffer<float> keys;      // [2 * experts] what a router's choice goes by
  Buffer<float> heads;     // [kQueriesTogether][head size] queries, or a key, to be turned
  Buffer<float> attended;  // [kQueriesTogether][value_dim] of one segment
  Buffer<float> up;        // [columns * entries][kUpRows], or of few columns [kUpRowsOfFew]
  Choice choice;           // [columns]
  Buffer<int32_t> grouped;      // [columns * entries] slots ordered by expert
  Buffer<int32_t> group_begin;  // [experts + 1]
  // Of whole experts: the row of an entry's output in the slice of its rank, the same in the order
  // of `grouped`, and how many entries each rank has.
  Buffer<int32_t> place, grouped_place;  // [columns * entries]
  Buffer<int32_t> rank_entries;          // [ranks]
  Buffer<float> hidden_rows;             // [own hidden rows]
  Buffer<int32_t> faults;                // [columns]
  Buffer<const std::byte*> x;            // [columns * entries] arguments of a product
  Buffer<float*> y;

  // statistics of the last step
  uint64_t layer_waits = 0;   // inside layers
  uint64_t weight_bytes = 0;  // read by products
  PhaseClock clock;           // runs on the first thread
};

/// A product of some panels of one matrix with some columns.
struct Product {
  const Matrix& matrix;
  int64_t index = 0;   // which of the matrices
  plan::Range panels;  // of that matrix
  const Activations& x;
  std::span<const int32_t> entries;       // output column of each product, from first_entry on
  std::span<const int32_t> outputs = {};  // instead, if given
  int32_t first_entry = 0;
  int64_t entries_per_column = 1;  // input column = entry / this
  float* y = nullptr;              // first row of the first panel, output column 0
  size_t y_stride = 0;
};

class Pass {
 public:
  Pass(Rank& rank, ThreadScratch& scratch, const StepView& step)
      : rank_(rank),
        scratch_(scratch),
        step_(step),
        members_(base::RankSet::range(0, rank.options.plan->rank_count())) {}

  /// All layers and the logits. Every thread of every rank calls it with the same step.
  base::Wait run();

 private:
  // forward.cc
  base::Wait embed();
  base::Wait final_logits();
  base::Wait gather(size_t floats);
  base::Wait barrier();
  int columns() const { return static_cast<int>(step_.columns().size()); }
  int threads() const { return rank_.threads; }
  bool redundant() const { return columns() <= kRedundantColumns; }
  bool mine(int64_t index) const { return index % threads() == scratch_.thread; }
  plan::Range part(int64_t total) const;
  /// Calls `work(range)` for this thread's share of [0, total), range by range (work_split.h); its
  /// time counts as `phase`.
  template <class Work>
  void deal(int64_t total, Work work, Phase phase = Phase::kMatmul) {
    scratch_.clock.lap(Phase::kOther);
    rank_.split.deal({.number = ++scratch_.dispatch,
                      .total = total,
                      .threads = threads(),
                      .thread = scratch_.thread},
                     work);
    scratch_.clock.lap(phase);
  }
  plan::Range own_rows(plan::Range panels, int64_t rows) const;
  const plan::BlockShare& share_of(int rank, size_t layer) const;
  int owner_of(int32_t token) const;
  float* outgoing();
  const float* incoming(int rank) const;
  void multiply(const Product& product);
  std::span<const int32_t> all_columns() const;
  /// Joins one column of the last gather into `out`; rank r's slice of it was
  /// [columns][range_of(r).size() * unit] floats. Overlapping ranges hold equal values.
  template <class RangeOf>
  void assemble(RangeOf range_of, int64_t unit, int64_t column, float* out) const;
  /// The same column; where one rank has all of it, in its slice, else in `out`.
  template <class RangeOf>
  const float* joined(RangeOf range_of, int64_t unit, int64_t column, float* out) const;

  // stages.cc
  base::Wait run_layer(size_t layer);
  const plan::BlockShare& member_share(size_t layer) const;
  base::Wait walk_past(size_t layer);
  void begin_stage(size_t layer);
  base::Wait end_layer(size_t layer, size_t floats);

  // attention.cc
  base::Wait attention(size_t layer);
  base::Wait attention_input(size_t layer, std::initializer_list<const Matrix*> matrices,
                             const Activations** x);
  base::Wait project(size_t layer);
  void project_part(size_t layer, const Activations& x, plan::Range panels);
  void finish_key(size_t layer, int64_t own_head);
  void finish_value(size_t layer, int64_t own_head);
  base::Wait normalise_full_width(size_t layer);
  void store_key(size_t layer, int column, int64_t own_head, float* key);
  base::Wait attention_output(size_t layer);
  void attention_output_part(size_t layer, const Activations& x, plan::Range panels);
  void add_to_residual(const float* y, int64_t rows, float* residual) const;
  std::span<const int32_t> blocks_of(size_t layer, int32_t sequence) const;
  int32_t block_of(size_t layer, int column) const;

  // attend.cc
  struct Queries;
  struct AttendParts {
    int64_t parts;     // of the positions
    int64_t segments;  // of a column at most
    bool stores;       // keys, before they are read
  };
  void attend(size_t layer);
  bool leaves_keys(size_t layer) const;
  void attend_whole(size_t layer, const AttendItems::Item& item, bool stores);
  void attend_part(size_t layer, const AttendItems::Item& item, const AttendParts& parts);
  void attend_segment(int64_t segment, Queries& queries);
  void call_attend(int64_t segment, const Queries& queries,
                   std::span<const kernels::AttendQuery> reached);
  void add_queries(int column, plan::Range own_heads, Queries& queries);
  float* load_query(size_t layer, int column, int64_t own_head, float* query);
  void store_keys(size_t layer, const AttendItems::Item& item);
  void turn_head(size_t layer, int column, const float* norm, float* head) const;
  void rope(size_t layer, int column, float* head) const;

  // latent_attention.cc
  base::Wait latent_attention(size_t layer);
  base::Wait latent_down(size_t layer);
  base::Wait latent_queries(size_t layer);
  void store_latent(size_t layer, int column);
  void absorb_queries(size_t layer);
  float* load_latent_query(size_t layer, int column, int64_t index, float* query);
  void latent_values(size_t layer);
  /// Where the products of a matrix per head end.
  struct HeadOutput {
    int64_t heads;        // own
    float* y;             // first row of the first own head, column 0
    int64_t head_stride;  // floats
    int64_t column_stride;
  };
  void quantise_for(const Matrix& matrix, Activations& activations, size_t column) const;
  template <class Fill>
  void multiply_heads(const Matrix& matrix, const HeadOutput& output, Fill fill);

  // expert_choice.cc
  base::Wait choose_experts(size_t layer, const Activations& x);
  void choose(size_t layer, int column, Choice& choice);
  void note_choice(size_t layer, int column);
  float shared_weight(size_t layer, int column) const;
  void group_by_expert(int experts, int used);
  std::span<const int32_t> entries_of(int64_t expert) const;
  int64_t entries_per_column(size_t layer) const;

  // feed_forward.cc
  base::Wait feed_forward(size_t layer);
  /// One gate and up matrix, who goes through it and where that ends.
  struct Gated {
    const Matrix& gate;
    const Matrix& up;
    int64_t index;                     // which of the matrices
    std::span<const int32_t> entries;  // of each product
    std::span<const int32_t> places;   // output column of each
    int64_t entries_per_column;
    float* out;  // [places][out_stride], own rows of each
    int64_t out_stride;
    const float* gate_bias = nullptr;  // [own rows]
    const float* up_bias = nullptr;
    const float* weights = nullptr;  // [entries] of what goes in

    /// Of one panel, in products with a column.
    int64_t cost() const;
  };
  Gated gated(size_t layer, int64_t expert);
  int64_t gated_count(size_t layer) const;
  int64_t own_expert_count(size_t layer) const;
  int64_t shared_offset(size_t layer, const plan::BlockShare& share) const;
  void gate_and_up(size_t layer, const Activations& x);
  void gate_and_up_part(size_t layer, const Activations& x, plan::Range cost);
  void multiply_gated(const Gated& one, const model::ActivationSpec& activation, plan::Range panels,
                      const Activations& x);
  void activate(const Gated& one, const model::ActivationSpec& activation, plan::Range rows);
  /// Rows of `up` that a thread computes at a time.
  int64_t up_rows() const { return redundant() ? kUpRowsOfFew : kUpRows; }

  // down.cc
  base::Wait down(size_t layer);
  void down_slabs(size_t layer, const Activations& x, const Activations* shared_x);
  void multiply_down(size_t layer, int64_t expert, plan::Range panels, const Activations& x);
  void down_part(size_t layer, const Activations& x, const Activations* shared_x,
                 plan::Range panels);
  const float* assemble_shared(size_t layer, int64_t column, float* out) const;
  void weigh_and_add(size_t layer, plan::Range rows);

  // whole_experts.cc
  base::Wait whole_experts(size_t layer, const Activations& x);
  base::Wait whole_down(size_t layer);
  void place_entries(size_t layer);
  std::span<const int32_t> places_of(int64_t expert) const;
  const float* slot_output(size_t layer, int64_t entry) const;

  /// Quantises for `matrices` `count` columns of activations: each thread all of its own copy, or
  /// the threads together (then with a barrier). Returns where they are in `*out`. `fill(column,
  /// row)` writes a column into `row`, or says where else it lies.
  template <class Fill>
  base::Wait prepare(Activations& shared, Activations& own, int64_t count,
                     std::initializer_list<const Matrix*> matrices, Fill fill,
                     const Activations** out);

  Rank& rank_;
  ThreadScratch& scratch_;
  const StepView& step_;
  base::RankSet members_;  // of the current gather
};

template <class RangeOf>
void Pass::assemble(RangeOf range_of, int64_t unit, int64_t column, float* out) const {
  for (int r = 0; r < rank_.options.plan->rank_count(); r++) {
    const plan::Range range = range_of(r);
    if (range.empty()) continue;
    const auto floats = static_cast<size_t>(range.size() * unit);
    std::copy_n(incoming(r) + static_cast<size_t>(column) * floats, floats,
                out + range.begin * unit);
  }
}

template <class RangeOf>
const float* Pass::joined(RangeOf range_of, int64_t unit, int64_t column, float* out) const {
  if (rank_.options.plan->rank_count() == 1) {
    return incoming(0) + column * range_of(0).size() * unit;
  }
  assemble(range_of, unit, column, out);
  return out;
}

template <class Fill>
base::Wait Pass::prepare(Activations& shared, Activations& own, int64_t count,
                         std::initializer_list<const Matrix*> matrices, Fill fill,
                         const Activations** out) {
  Activations& target = redundant() ? own : shared;
  int64_t k = 0;
  bool f32 = false, q8 = false, q8_32 = false;
  for (const Matrix* matrix : matrices) {
    if (matrix->empty()) continue;
    k = matrix->k;
    f32 |= matrix->activations == kernels::ActivationFormat::kF32;
    q8 |= matrix->activations == kernels::ActivationFormat::kQ8;
    q8_32 |= matrix->activations == kernels::ActivationFormat::kQ8_32;
  }
  *out = &target;
  for (int64_t i = 0; i < count; i++) {
    if (!redundant() && !mine(i)) continue;
    const auto column = static_cast<size_t>(i);
    float* row = target.f32.data() + column * target.f32_stride;
    const float* x = fill(i, row);
    if (f32 && x != row) std::copy_n(x, k, row);
    if (q8) rank_.ops.quantise(x, k, target.q8.data() + column * target.q8_stride);
    if (q8_32) rank_.ops.quantise_32(x, k, target.q8_32.data() + column * target.q8_32_stride);
  }
  return redundant() ? base::Wait::kOk : barrier();
}

}  // namespace engine
