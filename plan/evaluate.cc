#include "plan/evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>

#include "base/cat.h"
#include "base/check.h"
#include "base/limits.h"

namespace plan {

namespace {

using base::cat;

constexpr int64_t kDefaultContextMax = 4096;  // as workers have it
constexpr int64_t kDefaultDepth = 512;
constexpr double kAsFast = 0.99;    // of the speed with all threads
constexpr double kFullNode = 0.97;  // of its memory, where its share has to follow that
constexpr int kRounds = 6;          // of looking for shares that fit

/// A replica being counted.
class Counting {
 public:
  Counting(const Question& question, const Shape& shape, const std::vector<size_t>& nodes)
      : question_(question), shape_(shape), nodes_(nodes), shares_(shares_by_speed()) {}

  /// Splits, and once more where a node cannot hold its share.
  base::Status split_up() {
    ASSIGN_OR_RETURN(plan_, split(question_.model.spec, options()));
    return move_shares_from_full_nodes();
  }

  const Plan& plan() const { return plan_; }
  double share(size_t rank) const {
    return shares_[rank] / std::accumulate(shares_.begin(), shares_.end(), 0.0);
  }
  const MachineNode& node(size_t rank) const { return question_.machine.nodes[nodes_[rank]]; }

  RankMemory memory(size_t rank) const {
    const Request& request = question_.request;
    const model::ModelSpec& spec = question_.model.spec;
    const RankShare& own = plan_.ranks[rank];
    const KvBlocks blocks = kv_blocks(
        spec, {.context = question_.context(), .sequences = sequences(), .chunk = request.chunk});
    return {.weights = footprint(question_.model, own, question_.packing).weight_bytes,
            .kv = kv_pool_bytes(spec, own, request.kv, blocks),
            .exchange = exchange_bytes(spec, plan_, request.chunk),
            .scratch = scratch_bytes(
                spec, own,
                {.threads = node(rank).threads, .chunk = request.chunk, .leads = rank == 0})};
  }

  /// That one replica has to bear.
  int64_t sequences() const {
    const auto replicas = static_cast<int>(shape_.replicas.size());
    return std::max(1, (question_.request.parallel + replicas - 1) / replicas);
  }

  /// What people may wonder about.
  std::vector<std::string> remarks() const;

 private:
  double speed(size_t rank) const { return read_gb_per_s(node(rank), node(rank).threads); }

  std::vector<double> shares_by_speed() const {
    if (question_.request.shares.size() == nodes_.size()) return question_.request.shares;
    std::vector<double> shares;
    for (size_t r = 0; r < nodes_.size(); r++) shares.push_back(speed(r));
    const auto [least, most] = std::ranges::minmax(shares);
    // Differences of a few percent are noise, and equal slices are simpler to look at.
    if (most <= 1.05 * least) shares.assign(nodes_.size(), 1.0);
    return shares;
  }

  SplitOptions options() const {
    SplitOptions options{.strategy = shape_.strategy,
                         .rank_count = static_cast<int>(nodes_.size()),
                         .shares = shares_,
                         .stages = shape_.strategy == Strategy::kLayers ? shape_.stages : 0};
    if (shape_.strategy == Strategy::kExperts) options.expert_use = question_.request.expert_use;
    return options;
  }

  std::optional<double> expert_imbalance() const;
  std::vector<double> limited_shares(const std::vector<double>& limits) const;
  base::Status move_shares_from_full_nodes();

  const Question& question_;
  const Shape& shape_;
  const std::vector<size_t>& nodes_;
  std::vector<double> shares_;
  Plan plan_;
};

// Shares by speed, but of those that are limited no more than that; they sum to 1.
std::vector<double> Counting::limited_shares(const std::vector<double>& limits) const {
  const std::vector<double> wanted = shares_by_speed();
  std::vector<bool> capped(nodes_.size(), false);
  std::vector<double> shares(nodes_.size());
  for (bool again = true; again;) {
    again = false;
    double left = 1, open = 0;
    for (size_t r = 0; r < nodes_.size(); r++) (capped[r] ? left -= limits[r] : open += wanted[r]);
    for (size_t r = 0; r < nodes_.size(); r++) {
      shares[r] = capped[r] ? limits[r] : left * wanted[r] / open;
      if (!capped[r] && shares[r] > limits[r]) again = capped[r] = true;
    }
  }
  return shares;
}

// What nodes hold by their share of the speed may be more than they have. Then those take what they
// can, and the others share the rest by their speed.
base::Status Counting::move_shares_from_full_nodes() {
  if (!question_.request.shares.empty() || nodes_.size() < 2) return {};
  if (shape_.strategy == Strategy::kLayers) return {};
  std::vector<double> limits(nodes_.size(), 1.0);
  for (int round = 0; round < kRounds; round++) {
    bool full = false;
    for (size_t r = 0; r < nodes_.size(); r++) {
      const uint64_t room = node(r).memory_bytes, bytes = memory(r).total();
      if (room == 0 || bytes <= room) continue;
      full = true;
      limits[r] = std::min(
          limits[r], kFullNode * share(r) * static_cast<double>(room) / static_cast<double>(bytes));
    }
    // Nothing to do, or there is not enough in all.
    if (!full || std::accumulate(limits.begin(), limits.end(), 0.0) <= 1) return {};
    shares_ = limited_shares(limits);
    ASSIGN_OR_RETURN(plan_, split(question_.model.spec, options()));
  }
  return {};
}

// How much more than its share the busiest rank has to do of whole experts, over all layers.
std::optional<double> Counting::expert_imbalance() const {
  const auto& use = question_.request.expert_use;
  if (shape_.strategy != Strategy::kExperts || use.empty()) return std::nullopt;
  double all = 0, slowest = 0;
  for (size_t layer = 0; layer < use.size(); layer++) {
    all += std::accumulate(use[layer].begin(), use[layer].end(), 0.0);
    double most = 0;
    for (size_t r = 0; r < nodes_.size(); r++) {
      double own = 0;
      for (const int32_t expert : plan_.ranks[r].blocks[layer].owned)
        own += use[layer][static_cast<size_t>(expert)];
      most = std::max(most, own / share(r));
    }
    slowest += most;
  }
  if (all <= 0) return std::nullopt;
  return slowest / all;
}

std::vector<std::string> Counting::remarks() const {
  const model::ModelSpec& spec = question_.model.spec;
  std::vector<std::string> out;
  if (nodes_.size() < 2 || spec.blocks.empty() || plan_.has_stages()) return out;
  if (const auto most = expert_imbalance())
    out.push_back(
        cat("experts are dealt out by their counted use: the busiest rank of each layer "
            "has ",
            decimal(100 * (*most - 1), 1), " % more choices than its share"));
  const model::Attention& attention = spec.blocks[0].attention;
  int64_t kept = 0;
  double worst = 1;
  for (size_t r = 0; r < nodes_.size(); r++) {
    const BlockShare& own = plan_.ranks[r].blocks[0];
    kept += own.kv_heads.size();
    worst = std::max(worst, static_cast<double>(own.heads.size()) / attention.heads / share(r));
  }
  if (worst > 1.02)
    out.push_back(cat(attention.heads, " query heads over ", nodes_.size(), " ranks: one has ",
                      std::lround(100 * (worst - 1)), " % more of attention than its share"));
  if (attention.latent) {
    out.push_back(cat("every rank keeps the whole latent of each position: ", nodes_.size(),
                      " times the KV cache"));
  } else if (kept > attention.kv_heads) {
    out.push_back(cat(attention.kv_heads, " KV heads over ", nodes_.size(),
                      " ranks: ", decimal(static_cast<double>(kept) / attention.kv_heads, 1),
                      " times the KV cache"));
  }
  return out;
}

std::string part_text(const TimeParts& time) {
  struct Part {
    double seconds;
    const char* name;
  };
  const Part parts[] = {{time.weights, "reading weights"},
                        {time.kv, "reading the KV cache"},
                        {time.compute, "computing"},
                        {time.waits, "waits"},
                        {time.handed, "handing on activations"}};
  const Part& most = *std::ranges::max_element(parts, {}, &Part::seconds);
  return cat(most.name, ", ", std::lround(100 * most.seconds / time.total()), " %");
}

/// The same for people who want to know of which node.
std::string limit_text(const Question& question, const StepCost& token,
                       const std::vector<size_t>& nodes) {
  std::string text = part_text(token.time);
  const auto slowest = std::ranges::max_element(token.read_seconds) - token.read_seconds.begin();
  const size_t index = nodes[static_cast<size_t>(slowest)];
  const MachineNode& node = question.machine.nodes[index];
  if (text.starts_with("reading"))
    text += cat(" (", node_name(question.machine, index), " at ",
                decimal(read_gb_per_s(node, node.threads), 0), " GB/s)");
  if (text.starts_with("waits"))
    text +=
        cat(" (", token.waits, " of ", decimal(1e6 * token.time.waits / token.waits, 1), " us)");
  return text;
}

/// The fewest threads a rank, from `least` on, with which a step takes hardly longer.
int fewest_threads(const Replica& replica, const Load& load, int least, int most) {
  const double enough = replica.step(load).time.total() / kAsFast;
  int low = least, high = most;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (replica.step_with(load, middle).time.total() <= enough) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

class Evaluation {
 public:
  Evaluation(const Question& question, const Shape& shape) : question_(question), shape_(shape) {
    out_.strategy = shape.strategy;
    out_.stages = shape.stages;
    out_.replicas = static_cast<int>(shape.replicas.size());
  }

  base::Status add(const std::vector<size_t>& nodes) {
    Counting counting(question_, shape_, nodes);
    RETURN_IF_ERROR(counting.split_up());
    std::vector<Replica::Rank> ranks;
    int most = 1;
    for (size_t r = 0; r < nodes.size(); r++) {
      ranks.push_back({counting.node(r), counting.node(r).threads});
      most = std::max(most, counting.node(r).threads);
    }
    const Replica replica(question_, counting.plan(), std::move(ranks));
    const Load load{.position = question_.depth()};
    const StepCost token = replica.step(load);
    const int alone = fewest_threads(replica, load, 1, most);
    const int decode_threads = fewest_threads(replica, together(counting.sequences()), alone, most);
    for (size_t r = 0; r < nodes.size(); r++) {
      const MachineNode& node = counting.node(r);
      RankPlan rank{.node = static_cast<int>(nodes[r]),
                    .threads = node.threads,
                    .decode_threads = std::min(decode_threads, node.threads),
                    .share = counting.share(r),
                    .memory = counting.memory(r),
                    .node_bytes = node.memory_bytes,
                    .active_bytes = token.read_bytes[r],
                    .kv_read_bytes = kv_read_bytes(question_.model.spec, counting.plan().ranks[r],
                                                   question_.request.kv, load.position),
                    .read_seconds = token.read_seconds[r]};
      if (node.memory_bytes > 0 && rank.memory.total() > node.memory_bytes && out_.misfit.empty())
        out_.misfit =
            cat(node_name(question_.machine, nodes[r]), " has ", gib_text(node.memory_bytes),
                ", its rank needs ", gib_text(rank.memory.total()));
      out_.ranks.push_back(std::move(rank));
    }
    for (std::string& remark : counting.remarks())
      if (std::ranges::count(out_.remarks, remark) == 0) out_.remarks.push_back(std::move(remark));
    add_speeds(replica, counting.sequences(), token, nodes);
    return {};
  }

  Candidate take() { return std::move(out_); }

 private:
  /// One more token of each sequence.
  Load together(int64_t sequences) const {
    return {.columns = sequences,
            .sequences = sequences,
            .position = question_.depth(),
            .logits = sequences};
  }

  void add_speeds(const Replica& replica, int64_t sequences, const StepCost& token,
                  const std::vector<size_t>& nodes) {
    const int64_t depth = question_.depth();
    const int64_t columns = std::min<int64_t>(question_.request.chunk, std::max<int64_t>(depth, 1));
    const StepCost chunk = replica.step({.columns = columns, .position = depth / 2, .logits = 0});
    const StepCost step = replica.step(together(sequences));
    const Speed one{1 / token.time.total(), static_cast<double>(columns) / chunk.time.total()};
    out_.all.decode +=
        static_cast<double>(question_.request.parallel) / out_.replicas / step.time.total();
    out_.all.prefill += one.prefill;
    // A single request goes to the best replica; of uneven ones not the same for both.
    out_.one.prefill = std::max(out_.one.prefill, one.prefill);
    if (one.decode <= out_.one.decode) return;
    out_.one.decode = one.decode;
    out_.waits = token.waits;
    out_.gathered_bytes = token.gathered_bytes;
    out_.decode_time = token.time;
    out_.limit = limit_text(question_, token, nodes);
    out_.prefill_limit = part_text(chunk.time);
  }

  const Question& question_;
  const Shape& shape_;
  Candidate out_;
};

}  // namespace

int64_t Question::context() const {
  if (request.context > 0) return request.context;
  return model.spec.context > 0 ? std::min(model.spec.context, kDefaultContextMax)
                                : kDefaultContextMax;
}

int64_t Question::depth() const {
  return std::min(request.depth > 0 ? request.depth : kDefaultDepth, context());
}

base::Result<Candidate> evaluate(const Question& question, const Shape& shape) {
  Evaluation evaluation(question, shape);
  for (const std::vector<size_t>& nodes : shape.replicas) RETURN_IF_ERROR(evaluation.add(nodes));
  return evaluation.take();
}

std::string node_name(const Machine& machine, size_t index) {
  const MachineNode& node = machine.nodes[index];
  std::string name = machine.simulated ? cat("part ", index, " of node ", node.os_index)
                                       : cat("node ", node.os_index);
  if (machine.hosts.size() > 1)
    name += cat(" of ", machine.hosts[static_cast<size_t>(node.host)].name);
  return name;
}

std::string decimal(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::string gib_text(uint64_t bytes) {
  const double value = static_cast<double>(bytes) / (1024.0 * 1024 * 1024);
  return cat(decimal(value, value < 10 ? 1 : 0), " GiB");
}

}  // namespace plan
