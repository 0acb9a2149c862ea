#include "plan/planner.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/cat.h"
#include "plan/evaluate.h"

namespace plan {

namespace {

using base::cat;

/// Speeds within this factor count as the same; then the simpler way is the better one.
constexpr double kSame = 1.02;

double score(const Candidate& candidate, Objective objective) {
  return objective == Objective::kLatency ? candidate.one.decode : candidate.all.decode;
}

int bucket(double speed) {
  return speed > 0 ? static_cast<int>(std::floor(std::log(speed) / std::log(kSame))) : -1'000'000;
}

int host_count(const Machine& machine, const std::vector<size_t>& nodes) {
  std::set<int> hosts;
  for (const size_t n : nodes) hosts.insert(machine.nodes[n].host);
  return static_cast<int>(hosts.size());
}

int package_count(const Machine& machine, const std::vector<size_t>& nodes) {
  std::set<std::pair<int, int>> packages;
  for (const size_t n : nodes) packages.insert({machine.nodes[n].host, machine.nodes[n].package});
  return static_cast<int>(packages.size());
}

class Shapes {
 public:
  explicit Shapes(const Question& question)
      : machine_(question.machine), request_(question.request) {}

  std::vector<Shape> all() {
    const auto count = static_cast<int>(machine_.nodes.size());
    for (int ranks = count; ranks >= 1; ranks--) {
      if (!makes_sense(ranks, count)) continue;
      const int most = count / ranks;
      for (int replicas = 1; replicas <= most; replicas++) {
        const bool wished = replicas == request_.replicas || ranks * replicas == request_.nodes;
        if (replicas != 1 && replicas != most && !wished) continue;
        if (request_.replicas > 0 && replicas != request_.replicas) continue;
        if (request_.nodes > 0 && ranks * replicas != request_.nodes) continue;
        add(ranks, replicas);
      }
    }
    return std::move(shapes_);
  }

 private:
  /// Equal parts of the machine, whole hosts, whole sockets, and what was wished for.
  bool makes_sense(int ranks, int count) const {
    if (count % ranks == 0) return true;
    if (request_.nodes > 0 && request_.nodes % ranks == 0) return true;
    const auto of_host =
        std::ranges::count(machine_.nodes, machine_.nodes[0].host, &MachineNode::host);
    return ranks == of_host;
  }

  /// Neighbouring nodes; of one replica those that read fastest.
  std::vector<std::vector<size_t>> groups(int ranks, int replicas) const {
    std::vector<std::vector<size_t>> all;
    for (size_t first = 0; first + static_cast<size_t>(ranks) <= machine_.nodes.size();
         first += static_cast<size_t>(ranks)) {
      std::vector<size_t>& group = all.emplace_back();
      for (size_t n = first; n < first + static_cast<size_t>(ranks); n++) group.push_back(n);
    }
    const auto speed = [&](const std::vector<size_t>& group) {
      double sum = 0;
      for (const size_t n : group)
        sum += read_gb_per_s(machine_.nodes[n], machine_.nodes[n].threads);
      return sum;
    };
    std::ranges::stable_sort(all,
                             [&](const auto& a, const auto& b) { return speed(a) > speed(b); });
    all.resize(static_cast<size_t>(replicas));
    std::ranges::sort(all);
    return all;
  }

  void add(int ranks, int replicas) {
    const auto nodes = groups(ranks, replicas);
    if (is_wished(Strategy::kRows)) shapes_.push_back({Strategy::kRows, nodes, 1});
    if (ranks > 1 && is_wished(Strategy::kExperts))
      shapes_.push_back({Strategy::kExperts, nodes, 1});
    if (ranks == 1 && is_wished(Strategy::kExperts) && !is_wished(Strategy::kRows))
      shapes_.push_back({Strategy::kExperts, nodes, 1});
    if (!is_wished(Strategy::kLayers)) return;
    // Stages take turns, so fewer nodes or several replicas are never better by them.
    const bool whole = ranks == static_cast<int>(machine_.nodes.size());
    if (!whole && !request_.strategy && request_.nodes == 0) return;
    std::set<int> stages = {host_count(machine_, nodes[0]), package_count(machine_, nodes[0]),
                            ranks};
    if (request_.stages > 0) stages = {request_.stages};
    for (const int count : stages)
      if (count <= ranks && (count > 1 || request_.stages == 1 || !is_wished(Strategy::kRows)))
        shapes_.push_back({Strategy::kLayers, nodes, count});
  }

  bool is_wished(Strategy strategy) const {
    return !request_.strategy || *request_.strategy == strategy;
  }

  const Machine& machine_;
  const Request& request_;
  std::vector<Shape> shapes_;
};

}  // namespace

std::vector<Shape> shapes_of(const Question& question) {
  return Shapes(question).all();
}

std::string Candidate::name() const {
  const int ranks_each = ranks_per_replica();
  std::string each;
  if (strategy == Strategy::kLayers && stages < ranks_each) {
    each = cat("layers in ", stages, " stages x rows over ", ranks_each / stages);
  } else if (ranks_each == 1) {
    each = "one node";
  } else {
    each = cat(strategy_name(strategy), " over ", ranks_each);
  }
  return replicas == 1 ? each : cat(replicas, " replicas of ", each);
}

int decode_threads(const Candidate& candidate, const Machine& machine) {
  if (machine.read_origin != Origin::kMeasured || machine.simulated) return 0;
  int most = 0;
  bool fewer = false;
  for (const RankPlan& rank : candidate.ranks) {
    most = std::max(most, rank.decode_threads);
    fewer = fewer || rank.decode_threads < rank.threads;
  }
  return fewer ? most : 0;
}

SplitOptions split_options(const Candidate& candidate, const Request& request) {
  SplitOptions options{.strategy = candidate.strategy,
                       .rank_count = candidate.ranks_per_replica(),
                       .stages = candidate.strategy == Strategy::kLayers ? candidate.stages : 0};
  for (int r = 0; r < options.rank_count; r++)
    options.shares.push_back(candidate.ranks[static_cast<size_t>(r)].share);
  const auto [least, most] = std::ranges::minmax(options.shares);
  if (most - least < 1e-9) options.shares.clear();
  if (candidate.strategy == Strategy::kExperts) options.expert_use = request.expert_use;
  return options;
}

base::Result<std::vector<Candidate>> candidates(const model::Model& model, const Machine& machine,
                                                const Packing& packing, const Request& request) {
  const Question question{model, machine, packing, request};
  if (!request.expert_use.empty())
    RETURN_IF_ERROR(check_expert_use(model.spec, request.expert_use));
  std::vector<Candidate> all;
  std::optional<base::Error> refused;
  for (const Shape& shape : shapes_of(question)) {
    auto candidate = evaluate(question, shape);
    if (candidate.ok()) {
      all.push_back(std::move(*candidate));
    } else if (!refused) {
      refused = candidate.error();
    }
  }
  if (all.empty() && refused) return *refused;
  if (all.empty())
    return base::Error{
        base::Code::kInvalidArgument,
        cat("there is no such split of ", machine.nodes.size(),
            machine.nodes.size() == 1 ? " node" : " nodes", "; ask for fewer nodes or replicas")};
  std::ranges::stable_sort(all, [&](const Candidate& a, const Candidate& b) {
    const auto key = [&](const Candidate& c) {
      return std::tuple(c.fits() ? 0 : 1, -bucket(score(c, request.objective)), c.ranks.size(),
                        -score(c, request.objective));
    };
    return key(a) < key(b);
  });
  return all;
}

Choice choose(const std::vector<Candidate>& candidates, const Request& request) {
  if (candidates.empty()) return {};
  const Candidate& best = candidates.front();
  if (!best.fits())
    return {std::nullopt, cat("no split fits: with ", best.name(), ", ", best.misfit)};
  const bool latency = request.objective == Objective::kLatency;
  const double speed = score(best, request.objective);
  std::string why =
      cat(best.name(), ": ", decimal(speed, 1), " tokens/s ",
          latency ? "for a single request" : cat("together for ", request.parallel, " requests"));
  const auto next = std::ranges::find_if(candidates.begin() + 1, candidates.end(),
                                         [](const Candidate& c) { return c.fits(); });
  if (next == candidates.end()) {
    why += candidates.size() > 1 ? ", and no other split fits" : "";
  } else if (const double other = score(*next, request.objective); bucket(other) == bucket(speed)) {
    why += cat(", as many as ", next->name(), ", which takes ",
               next->ranks.size() > best.ranks.size() ? "more nodes" : "no fewer nodes");
  } else {
    why += cat(", ", decimal(speed / std::max(other, 1e-9), 2), " times those of ", next->name());
  }
  return {0, why + "; limit: " + best.limit};
}

}  // namespace plan
