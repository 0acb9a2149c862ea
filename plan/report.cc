#include "plan/report.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/cat.h"
#include "model/inspect.h"
#include "plan/evaluate.h"

namespace plan {

namespace {

using base::cat;
using Rows = std::vector<std::vector<std::string>>;

std::string gb(double bytes) {
  const double value = bytes / 1e9;
  return decimal(value, value < 10 ? 2 : value < 100 ? 1 : 0);
}

std::string gib(uint64_t bytes) {
  const double value = static_cast<double>(bytes) / (1024.0 * 1024 * 1024);
  return decimal(value, value < 9.95 ? 1 : 0);
}

std::string speed(double tokens_per_s) {
  return decimal(tokens_per_s, tokens_per_s < 9.95 ? 2 : tokens_per_s < 99.5 ? 1 : 0);
}

/// Columns aligned, the first and the last to the left, the others to the right.
std::string table(const Rows& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i + 1 < row.size(); i++) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); i++) {
      const bool last = i + 1 == row.size();
      const std::string blanks(last ? 0 : widths[i] - row[i].size(), ' ');
      line += cat(i == 0 ? "" : "  ", i == 0 || last ? row[i] : blanks,
                  i == 0 || last ? blanks : row[i]);
    }
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

/// "4 x 92", "96 + 95": values of all nodes, equal ones once.
template <class Value>
std::string each(const std::vector<MachineNode>& nodes, Value value) {
  std::string text;
  for (size_t i = 0; i < nodes.size();) {
    size_t same = 1;
    while (i + same < nodes.size() && value(nodes[i + same]) == value(nodes[i])) same++;
    text += cat(text.empty() ? "" : " + ", same > 1 ? cat(same, " x ") : std::string(),
                value(nodes[i]));
    i += same;
  }
  return text;
}

std::string head(const ReportOf& of) {
  const Machine& machine = of.machine;
  const Request& request = of.request;
  const Question question{of.model, machine, {}, request};
  const model::ModelSpec& spec = of.model.spec;
  std::string text = cat(
      "model    ", spec.name.empty() ? spec.architecture : spec.name, ", ", spec.blocks.size(),
      " layers, ", gib(model::weight_bytes(*of.model.directory)), " GiB of weights, ",
      gb(static_cast<double>(model::active_bytes_per_token(of.model))), " GB read for a token\n");
  text += "machine  ";
  if (machine.hosts.size() > 1) text += cat(machine.hosts.size(), " hosts, ");
  text +=
      cat(machine.nodes.size(), machine.nodes.size() == 1 ? " node" : " nodes",
          machine.simulated ? " (parts of one)" : "", ", ",
          each(machine.nodes, [](const MachineNode& n) { return cat(n.threads); }), " threads\n");
  text += cat("         reading ",
              each(machine.nodes,
                   [](const MachineNode& n) { return decimal(read_gb_per_s(n, n.threads), 0); }),
              " GB/s (", origin_name(machine.read_origin), "), kernels ",
              origin_name(machine.kernel_origin), ", waits ", origin_name(machine.meeting_origin),
              "\n");
  const bool known =
      std::ranges::all_of(machine.nodes, [](const MachineNode& n) { return n.memory_bytes > 0; });
  text += known ? cat("         memory ",
                      each(machine.nodes, [](const MachineNode& n) { return gib(n.memory_bytes); }),
                      " GiB (", origin_name(machine.memory_origin), ")\n")
                : "         memory not known: nothing is said about whether it fits\n";
  text += cat("wanted   ",
              request.objective == Objective::kLatency
                  ? "the fastest answer to a single request"
                  : cat("most tokens for ", request.parallel, " requests together"),
              "; room for ", request.parallel, request.parallel == 1 ? " sequence" : " sequences",
              " of ", question.context(), " positions, KV cache ", request.kv.name, "\n");
  text +=
      cat("         speeds in tokens/s after ", question.depth(), " positions, prefill of as many",
          request.expert_use.empty() ? "" : "; experts chosen as often as was counted", "\n");
  return text;
}

std::string candidate_table(const ReportOf& of) {
  const bool several = of.request.parallel > 1;
  Rows rows = {{"  split", "nodes", "GiB a node", "KV", "GB a token", "waits", "decode"}};
  if (several) rows[0].push_back(cat("all ", of.request.parallel));
  rows[0].insert(rows[0].end(), {"prefill", "limit of decode"});
  for (const Candidate& one : of.candidates) {
    const bool best = &one == &of.candidates.front() && one.fits();
    uint64_t most = 0, kv = 0, read = 0;
    for (const RankPlan& rank : one.ranks) {
      most = std::max(most, rank.memory.total());
      kv = std::max(kv, rank.memory.kv);
      read = std::max(read, rank.active_bytes);
    }
    Rows::value_type row = {cat(best ? "> " : "  ", one.name()),
                            cat(one.ranks.size()),
                            gib(most),
                            gib(kv),
                            gb(static_cast<double>(read)),
                            cat(one.waits),
                            speed(one.one.decode)};
    if (several) row.push_back(speed(one.all.decode));
    row.push_back(speed(one.one.prefill));
    row.push_back(one.fits() ? one.limit : cat("DOES NOT FIT: ", one.misfit));
    rows.push_back(std::move(row));
  }
  return table(rows);
}

/// Ranks that are alike in one line.
std::string ranks_of(const ReportOf& of, const Candidate& candidate) {
  std::string text;
  const auto line = [&](const RankPlan& rank) {
    std::string out = cat(decimal(100 * rank.share, 1), " % of ",
                          candidate.replicas > 1 ? "a replica" : "the work", ", ", rank.threads,
                          rank.threads == 1 ? " thread" : " threads");
    const int decoding = decode_threads(candidate, of.machine);
    if (decoding > 0 && decoding < rank.threads) {
      out += cat(", of which ", decoding, " decode");
    } else if (decoding == 0 && rank.decode_threads < rank.threads) {
      out += cat(" (decode is as fast with ", rank.decode_threads, ")");
    }
    out += cat(", ", gib(rank.memory.total()), " GiB");
    if (rank.node_bytes > 0) out += cat(" of ", gib(rank.node_bytes));
    return out + cat(": weights ", gib(rank.memory.weights), ", KV ", gib(rank.memory.kv),
                     ", exchange ", gib(rank.memory.exchange), ", buffers ",
                     gib(rank.memory.scratch), "; reads ",
                     gb(static_cast<double>(rank.active_bytes)), " GB of weights and ",
                     gb(static_cast<double>(rank.kv_read_bytes)), " GB of KV a token");
  };
  for (size_t i = 0; i < candidate.ranks.size();) {
    const RankPlan& rank = candidate.ranks[i];
    size_t same = 1;
    while (i + same < candidate.ranks.size() && line(candidate.ranks[i + same]) == line(rank))
      same++;
    std::string name = node_name(of.machine, static_cast<size_t>(rank.node));
    if (same > 1)
      name += cat(" to ",
                  node_name(of.machine, static_cast<size_t>(candidate.ranks[i + same - 1].node)),
                  ", each");
    text += cat("  ", name, ": ", line(rank), "\n");
    i += same;
  }
  return text;
}

}  // namespace

const char* origin_name(Origin origin) {
  switch (origin) {
    case Origin::kMeasured: return "measured";
    case Origin::kGiven: return "given";
    case Origin::kAssumed: break;
  }
  return "assumed";
}

std::string choice_report(const ReportOf& of, const Choice& choice) {
  if (!choice.index) return cat("plan: ", choice.why, "\n");
  const Candidate& chosen = of.candidates[*choice.index];
  std::string text = cat("plan: ", choice.why, "\n", ranks_of(of, chosen));
  text += cat("  prefill ", speed(chosen.one.prefill), " tokens/s: ", chosen.prefill_limit, "\n");
  for (const std::string& remark : chosen.remarks) text += cat("  ", remark, "\n");
  return text;
}

std::string report(const ReportOf& of, const Choice& choice) {
  std::string text = head(of) + "\n" + candidate_table(of) + "\n" + choice_report(of, choice);
  if (!of.machine.notes.empty()) text += "\nwhat was assumed\n";
  for (const std::string& note : of.machine.notes) text += cat("  - ", note, "\n");
  return text;
}

}  // namespace plan
