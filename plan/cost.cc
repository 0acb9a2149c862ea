#include "plan/cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace plan {

namespace {

bool same_shares(const BlockShare& a, const BlockShare& b) {
  return a.heads.size() == b.heads.size() && a.kv_heads.size() == b.kv_heads.size() &&
         a.hidden.size() == b.hidden.size() && a.owned.size() == b.owned.size();
}

bool same_attention(const model::Attention& a, const model::Attention& b) {
  return a.reach == b.reach && a.span == b.span && a.heads == b.heads && a.head_dim == b.head_dim &&
         a.value_dim == b.value_dim && a.qk_norm == b.qk_norm;
}

bool same_piece(const Piece& a, const Piece& b) {
  return a.phase == b.phase && a.type == b.type && a.row_length == b.row_length &&
         a.rows == b.rows && a.matrices == b.matrices && a.matrix_bytes == b.matrix_bytes;
}

/// From counts of choices, of which each token made experts.used, no two alike.
std::vector<double> chances_of(const std::vector<double>& use, const model::Experts& experts) {
  const double all = std::accumulate(use.begin(), use.end(), 0.0);
  if (all <= 0) return {};
  std::vector<double> chances;
  for (const double count : use) chances.push_back(std::min(1.0, count * experts.used / all));
  return chances;
}

}  // namespace

Replica::Replica(const Question& question, const Plan& plan, std::vector<Rank> ranks)
    : machine_(question.machine),
      ranks_(std::move(ranks)),
      hidden_(question.model.spec.hidden),
      vocabulary_(question.model.spec.vocabulary),
      kv_(question.request.kv) {
  const model::Model& model = question.model;
  CHECK(ranks_.size() == plan.ranks.size());
  std::vector<RankFootprint> footprints;
  for (const RankShare& share : plan.ranks) {
    footprints.push_back(footprint(model, share, question.packing));
    ends_.pieces.push_back(footprints.back().ends);
    ends_.members.push_back(ends_.members.size());
  }
  for (size_t layer = 0; layer < model.blocks.size(); layer++) {
    Kind kind{.layer = layer, .count = 1, .block = model.spec.blocks[layer]};
    kind.handed = handed_floats(model.spec, plan, layer);
    if (kind.block.experts && !question.request.expert_use.empty())
      kind.chances = chances_of(question.request.expert_use[layer], *kind.block.experts);
    for (size_t r = 0; r < ranks_.size(); r++) {
      kind.pieces.push_back(footprints[r].layers[layer]);
      kind.shares.push_back(plan.ranks[r].blocks[layer]);
      if (plan.members[layer].contains(static_cast<int>(r))) kind.members.push_back(r);
    }
    if (layer > 0 && plan.members[layer] != plan.members[layer - 1]) stages_++;
    const auto known =
        std::ranges::find_if(kinds_, [&](const Kind& other) { return alike(kind, other); });
    if (known == kinds_.end()) {
      kinds_.push_back(std::move(kind));
    } else {
      known->count++;
    }
  }
}

bool Replica::alike(const Kind& kind, const Kind& other) const {
  if (kind.members != other.members || kind.chances != other.chances) return false;
  if (!same_attention(kind.block.attention, other.block.attention)) return false;
  if (kind.block.experts.has_value() != other.block.experts.has_value()) return false;
  for (size_t r = 0; r < ranks_.size(); r++) {
    if (!same_shares(kind.shares[r], other.shares[r])) return false;
    if (!std::ranges::equal(kind.pieces[r], other.pieces[r], same_piece)) return false;
  }
  return true;
}

StepCost Replica::step(const Load& load) const {
  int most = 1;
  for (const Rank& rank : ranks_) most = std::max(most, rank.threads);
  return step_with(load, most);
}

StepCost Replica::step_with(const Load& load, int threads_max) const {
  StepCost cost;
  cost.read_seconds.assign(ranks_.size(), 0);
  cost.read_bytes.assign(ranks_.size(), 0);
  for (const Kind& kind : kinds_) {
    StepCost one;
    one.read_seconds.assign(ranks_.size(), 0);
    one.read_bytes.assign(ranks_.size(), 0);
    add_layer(kind, load, threads_max, one);
    cost.time.weights += kind.count * one.time.weights;
    cost.time.kv += kind.count * one.time.kv;
    cost.time.compute += kind.count * one.time.compute;
    cost.time.waits += kind.count * one.time.waits;
    cost.time.handed += kind.count * one.time.handed;
    cost.waits += kind.count * one.waits;
    cost.gathered_bytes += static_cast<uint64_t>(kind.count) * one.gathered_bytes;
    for (size_t r = 0; r < ranks_.size(); r++) {
      cost.read_seconds[r] += kind.count * one.read_seconds[r];
      cost.read_bytes[r] += static_cast<uint64_t>(kind.count) * one.read_bytes[r];
    }
  }
  add_ends(load, threads_max, cost);
  return cost;
}

void Replica::add_layer(const Kind& kind, const Load& load, int threads_max, StepCost& cost) const {
  const model::Attention& attention = kind.block.attention;
  const auto product = [&](Phase phase, int64_t values) {
    add_prepared(values, load, threads_max, cost);
    add_phase(kind, phase, load, threads_max, cost);
  };
  const auto gather = [&](int64_t floats) { add_gather(kind.members, floats, load, cost); };

  product(Phase::kInput, hidden_);
  if (attention.latent) {
    gather(kind.handed.input);
    product(Phase::kQueries, attention.latent->query_rank);
    add_barrier(cost);
    add_phase(kind, Phase::kAbsorb, load, threads_max, cost);
    add_barrier(cost);
    add_attention(kind, load, threads_max, cost);
    add_barrier(cost);
    add_phase(kind, Phase::kValues, load, threads_max, cost);
  } else {
    if (kind.handed.input > 0) {
      gather(kind.handed.input);
    } else {
      add_barrier(cost);
    }
    add_attention(kind, load, threads_max, cost);
  }
  gather(kind.handed.heads);
  product(Phase::kOutput, int64_t{attention.heads} * attention.output_dim());
  gather(kind.handed.hidden);

  add_prepared(hidden_, load, threads_max, cost);
  const auto& experts = kind.block.experts;
  if (experts) {
    add_phase(kind, Phase::kRouter, load, threads_max, cost);
    gather(kind.handed.router);
    cost.time.compute += shared_columns(load, threads_max, cost) *
                         static_cast<double>(experts->count) / (machine_.thread.route * 1e9);
  }
  const bool whole = kind.shares[kind.members.front()].whole_experts;
  add_phase(kind, Phase::kGateUp, load, threads_max, cost);
  const int64_t slots = experts ? experts->used : 1;
  const int64_t middle = slots * (experts ? experts->width : kind.block.dense_width) +
                         (experts ? experts->shared_width : 0);
  if (whole) add_barrier(cost);
  if (!whole) gather(kind.handed.middle);
  product(Phase::kDown, middle);
  if (whole) gather(kind.handed.middle);
  add_outputs(kind, load, threads_max, cost);
  gather(kind.handed.hidden);
}

void Replica::add_ends(const Load& load, int threads_max, StepCost& cost) const {
  add_gather(ends_.members, hidden_, load, cost);  // what tokens stand for
  for (int stage = 1; stage < stages_; stage++) add_gather(ends_.members, hidden_, load, cost);
  if (load.logits == 0) return;
  // The leader draws one token after the other.
  cost.time.compute +=
      static_cast<double>(load.logits * vocabulary_) / (machine_.thread.sample * 1e9);
  Kind ends = ends_;
  ends.shares.resize(ranks_.size());
  Load last = load;
  last.columns = load.logits;
  add_prepared(hidden_, last, threads_max, cost);
  add_phase(ends, Phase::kLogits, last, threads_max, cost);
  int64_t rows = 0;
  for (const auto& pieces : ends_.pieces)
    for (const Piece& piece : pieces) rows += piece.phase == Phase::kLogits ? piece.rows : 0;
  add_gather(ends_.members, rows, last, cost);
}

}  // namespace plan
