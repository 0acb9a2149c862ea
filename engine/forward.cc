// The way of a step through all layers, and what every part of it uses: gathers, barriers,
// products.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "engine/pass.h"

namespace engine {

namespace {

void multiply_by(float factor, std::span<float> values) {
  if (factor == 1) return;
  for (float& value : values) value *= factor;
}

}  // namespace

base::Wait Pass::run() {
  scratch_.layer_waits = 0;
  scratch_.weight_bytes = 0;
  scratch_.clock.begin(scratch_.thread == 0);
  std::fill_n(scratch_.faults.data(), columns(), -1);
  if (scratch_.thread == 0) std::fill_n(rank_.bad_logits.data(), step_.wanted().size(), 0);
  base::Wait wait = embed();
  if (wait != base::Wait::kOk) return wait;
  scratch_.layer_waits = 0;
  for (size_t layer = 0; layer < rank_.spec.blocks.size(); layer++) {
    wait = run_layer(layer);
    if (wait != base::Wait::kOk) return wait;
  }
  const uint64_t layer_waits = scratch_.layer_waits;
  wait = final_logits();
  scratch_.layer_waits = layer_waits;
  if (scratch_.thread == 0) {
    std::copy_n(scratch_.faults.data(), columns(), rank_.fault_layer.data());
  }
  scratch_.clock.lap(Phase::kOther);
  return wait;
}

// Publishes this rank's part of the current gather and waits for the others'.
base::Wait Pass::gather(size_t floats) {
  scratch_.clock.lap(Phase::kOther);
  scratch_.layer_waits++;
  const base::Wait wait = rank_.options.exchange->arrive_and_wait(
      {.sequence = scratch_.sequence, .bytes = floats * sizeof(float), .members = members_});
  scratch_.sequence++;
  // A single rank has nobody to exchange with: its threads meet.
  scratch_.clock.lap(rank_.options.plan->rank_count() > 1 ? Phase::kExchange : Phase::kBarrier);
  // The other threads of this rank may be at the barrier, where no peer is watched.
  if (wait != base::Wait::kOk) rank_.barrier.abort();
  return wait;
}

base::Wait Pass::barrier() {
  if (threads() == 1) return base::Wait::kOk;
  scratch_.clock.lap(Phase::kOther);
  scratch_.layer_waits++;
  const base::Wait wait = rank_.barrier.arrive_and_wait(scratch_.thread);
  scratch_.clock.lap(Phase::kBarrier);
  return wait;
}

float* Pass::outgoing() {
  return reinterpret_cast<float*>(rank_.options.exchange->outgoing(scratch_.sequence));
}

const float* Pass::incoming(int rank) const {
  return reinterpret_cast<const float*>(
      rank_.options.exchange->incoming(scratch_.sequence - 1, rank));
}

// The rank whose vocabulary rows hold `token`.
int Pass::owner_of(int32_t token) const {
  int rank = 0;
  while (!rank_.options.plan->ranks[as_size(rank)].vocabulary.contains(token)) rank++;
  return rank;
}

// This thread's even part of [0, total).
plan::Range Pass::part(int64_t total) const {
  return {total * scratch_.thread / threads(), total * (scratch_.thread + 1) / threads()};
}

// The rows of some panels of a matrix that has `rows`.
plan::Range Pass::own_rows(plan::Range panels, int64_t rows) const {
  return {std::min(panels.begin * kernels::kPanelRows, rows),
          std::min(panels.end * kernels::kPanelRows, rows)};
}

const plan::BlockShare& Pass::share_of(int rank, size_t layer) const {
  return rank_.options.plan->ranks[as_size(rank)].blocks[layer];
}

std::span<const int32_t> Pass::all_columns() const {
  return {rank_.identity.data(), as_size(columns())};
}

void Pass::multiply(const Product& product) {
  const plan::Range rows = own_rows(product.panels, product.matrix.rows);
  if (rows.empty() || product.entries.empty()) return;
  scratch_.weight_bytes += as_size(product.panels.size()) * product.matrix.panel_bytes;
  for (size_t i = 0; i < product.entries.size(); i++) {
    const int32_t entry = product.entries[i];
    scratch_.x[i] =
        product.x.column(product.matrix.activations, as_size(entry / product.entries_per_column));
    const int32_t output =
        product.outputs.empty() ? entry - product.first_entry : product.outputs[i];
    scratch_.y[i] = product.y + as_size(output) * product.y_stride;
  }
  rank_.ops.matmul[static_cast<size_t>(product.matrix.layout)](
      {.panels = product.matrix.panels + as_size(product.index) * product.matrix.matrix_bytes +
                 as_size(product.panels.begin) * product.matrix.panel_bytes,
       .row_count = rows.size(),
       .k = product.matrix.k,
       .type = product.matrix.type,
       .x = scratch_.x.data(),
       .y = scratch_.y.data(),
       .columns = static_cast<int>(product.entries.size())});
}

// Token embeddings: the rank that owns a token's row publishes it; and the rope angles of the step.
base::Wait Pass::embed() {
  const Matrix& table = rank_.options.weights->token_embedding;
  const int64_t hidden = rank_.spec.hidden;
  const int64_t row_bytes = kernels::row_bytes(table.type, hidden);
  for (int c = 0; c < columns(); c++) {
    if (!mine(c)) continue;
    const Column& column = step_.columns()[as_size(c)];
    for (size_t t = 0; t < rank_.rope_tables.size(); t++) {
      const size_t at = (t * as_size(rank_.options.shape.columns_max) + as_size(c)) *
                        as_size(rank_.rope_pairs_max);
      rank_.rope_tables[t].angles(column.position, rank_.cos.data() + at, rank_.sin.data() + at);
    }
    if (!rank_.share.vocabulary.contains(column.token)) continue;
    const int64_t row = column.token - rank_.share.vocabulary.begin;
    const std::byte* panel = table.panels + as_size(row / kernels::kPanelRows) * table.panel_bytes;
    kernels::dequantise_row(table.type, panel + row % kernels::kPanelRows * row_bytes, hidden,
                            outgoing() + c * hidden);
    multiply_by(rank_.spec.embedding_scale, {outgoing() + c * hidden, as_size(hidden)});
  }
  return gather(as_size(columns() * hidden));
}

// Final norm and output matrix for the columns that want logits, a few columns per gather.
base::Wait Pass::final_logits() {
  const auto wanted = step_.wanted();
  const int64_t vocabulary = rank_.spec.vocabulary, hidden = rank_.spec.hidden;
  const plan::Plan& plan = *rank_.options.plan;
  const Matrix& output = rank_.options.weights->output;
  const float* norm = rank_.options.weights->output_norm;
  // Every wanted column's input is kept before the first gather of logits overwrites the slices.
  Activations& inputs = redundant() ? scratch_.normed : rank_.normed;
  const size_t last = rank_.spec.blocks.size() - 1;
  const auto fill = [&](int64_t i, float* x) {
    const float* from =
        joined([&](int r) { return share_of(r, last).hidden; }, 1, wanted[as_size(i)], x);
    rank_.ops.rms_norm(from, norm, hidden, rank_.spec.norm_epsilon, x);
    return x;
  };
  const Activations* x = nullptr;
  base::Wait wait =
      prepare(inputs, inputs, static_cast<int64_t>(wanted.size()), {&output}, fill, &x);
  if (wait != base::Wait::kOk) return wait;

  int64_t rows_max = 1;
  for (const plan::RankShare& share : plan.ranks) {
    rows_max = std::max(rows_max, share.vocabulary.size());
  }
  const auto slice_floats =
      static_cast<int64_t>(rank_.options.exchange->slice_bytes_max() / sizeof(float));
  const auto batch = as_size(std::max<int64_t>(1, slice_floats / rows_max));
  const plan::Range mine_of_all = part(vocabulary);
  for (size_t first = 0; first < wanted.size(); first += batch) {
    const size_t count = std::min(batch, wanted.size() - first);
    deal(output.panel_count(), [&](plan::Range panels) {
      multiply({.matrix = output,
                .panels = panels,
                .x = *x,
                .entries = {rank_.identity.data() + first, count},
                .first_entry = static_cast<int32_t>(first),
                .y = outgoing() + panels.begin * kernels::kPanelRows,
                .y_stride = as_size(output.rows)});
      const plan::Range rows = own_rows(panels, output.rows);
      for (size_t i = 0; i < count; i++) {
        multiply_by(rank_.spec.logit_scale,
                    {outgoing() + as_size(output.rows) * i + rows.begin, as_size(rows.size())});
      }
    });
    wait = gather(count * as_size(output.rows));
    if (wait != base::Wait::kOk) return wait;
    if (!rank_.options.keeps_logits) continue;
    for (int r = 0; r < plan.rank_count(); r++) {
      const plan::Range rows = plan.ranks[as_size(r)].vocabulary;
      const plan::Range copied{std::max(rows.begin, mine_of_all.begin),
                               std::min(rows.end, mine_of_all.end)};
      for (size_t i = 0; i < count && copied.begin < copied.end; i++) {
        const float* from = incoming(r) + as_size(rows.size()) * i + copied.begin - rows.begin;
        std::copy_n(from, copied.size(),
                    rank_.logits.data() + (first + i) * as_size(vocabulary) + copied.begin);
        const auto finite = [](float logit) { return std::isfinite(logit); };
        if (!std::all_of(from, from + copied.size(), finite)) {
          // Any thread may say so; run() reads it after all threads have ended.
          std::atomic_ref(rank_.bad_logits[first + i]).store(1, std::memory_order_relaxed);
        }
      }
    }
  }
  return wait;
}

}  // namespace engine
