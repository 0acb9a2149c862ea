#include "cli/expert_use.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>

#include "base/cat.h"
#include "base/limits.h"
#include "broker/api/json.h"
#include "cli/probe_report.h"

namespace cli {

namespace {

constexpr size_t kShown = 4;  // experts of a layer

base::Error broken(std::string what) {
  return {base::Code::kBrokenFile,
          base::cat("this is not what numoe status --experts --json prints: ", std::move(what))};
}

/// Counts of an array; an error names `what` it should be.
base::Result<std::vector<uint64_t>> counts(const broker::Json* json, std::string_view what,
                                           int64_t most) {
  if (json == nullptr || json->array() == nullptr)
    return broken(base::cat(what, " is missing or no array"));
  if (json->array()->size() > static_cast<size_t>(base::kExpertsMax))
    return broken(base::cat(what, " has more than ", base::kExpertsMax, " entries"));
  std::vector<uint64_t> values;
  for (const broker::Json& own : *json->array()) {
    const auto number = own.integer();
    if (!number || *number < 0 || *number > most)
      return broken(base::cat(what, " holds ", broker::describe(own)));
    values.push_back(static_cast<uint64_t>(*number));
  }
  return values;
}

base::Result<proto::LayerUse> layer_of(const broker::Json& json) {
  proto::LayerUse layer;
  // Sums of counts stay exact as double.
  ASSIGN_OR_RETURN(layer.choices, counts(json.find("choices"), "choices", int64_t{1} << 48));
  const broker::Json* owners = json.find("owners");
  if (owners == nullptr || owners->is_null()) return layer;
  ASSIGN_OR_RETURN(const auto ranks, counts(owners, "owners", base::kRanksMax - 1));
  layer.owners.assign(ranks.begin(), ranks.end());
  if (layer.owners.size() != layer.choices.size())
    return broken("owners and choices differ in length");
  return layer;
}

using Group = std::vector<proto::LayerUse>;

base::Result<std::vector<Group>> groups_of(std::string_view text) {
  broker::Json json;
  if (const auto error = broker::parse_json(text, {}, json)) return broken(error->message);
  const broker::Json* object = json.find("object");
  if (object == nullptr || object->string() == nullptr || *object->string() != "expert_use")
    return broken("its object is not expert_use");
  const broker::Json* groups = json.find("groups");
  if (groups == nullptr || groups->array() == nullptr) return broken("groups are missing");
  std::vector<Group> all;
  for (const broker::Json& group : *groups->array()) {
    const broker::Json* layers = group.find("layers");
    if (layers == nullptr || layers->array() == nullptr) return broken("layers are missing");
    if (layers->array()->size() > static_cast<size_t>(base::kLayersMax))
      return broken(base::cat("more than ", base::kLayersMax, " layers"));
    all.emplace_back();
    for (const broker::Json& own : *layers->array()) {
      ASSIGN_OR_RETURN(proto::LayerUse layer, layer_of(own));
      all.back().push_back(std::move(layer));
    }
  }
  return all;
}

uint64_t total_of(const proto::LayerUse& layer) {
  return std::accumulate(layer.choices.begin(), layer.choices.end(), uint64_t{0});
}

std::string decimals(double value, int places) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", places, value);
  return text;
}

std::string percent(uint64_t part, uint64_t whole) {
  return decimals(100 * static_cast<double>(part) / static_cast<double>(whole), 1) + " %";
}

/// The most used first, the lower number on ties.
std::vector<size_t> by_use(const proto::LayerUse& layer) {
  std::vector<size_t> order(layer.choices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater<>{}, [&](size_t e) { return layer.choices[e]; });
  return order;
}

std::string table_of(const Group& group) {
  std::vector<std::vector<std::string>> rows = {
      {"layer", "choices", "evenly", "most used", "never", "ranks: most/mean"}};
  for (size_t number = 0; number < group.size(); number++) {
    const proto::LayerUse& layer = group[number];
    const uint64_t total = total_of(layer);
    if (total == 0) continue;
    std::string most;
    const std::vector<size_t> order = by_use(layer);
    for (size_t i = 0; i < std::min(kShown, order.size()); i++) {
      most += base::cat(i == 0 ? "" : ", ", order[i], " (", percent(layer.choices[order[i]], total),
                        ")");
    }
    rows.push_back({base::cat(number), base::cat(total), percent(1, layer.choices.size()), most,
                    base::cat(std::ranges::count(layer.choices, uint64_t{0})),
                    layer.owners.empty() ? "-" : decimals(rank_imbalance(layer), 2)});
  }
  if (rows.size() == 1) return "no expert was chosen yet\n";
  return text_table(rows);
}

}  // namespace

void complete(std::vector<proto::LayerUse>& layers, const std::vector<proto::LayerUse>& of_other) {
  if (layers.size() < of_other.size()) layers.resize(of_other.size());
  for (size_t l = 0; l < of_other.size(); l++)
    if (layers[l].choices.empty()) layers[l] = of_other[l];
}

double rank_imbalance(const proto::LayerUse& layer) {
  const uint64_t total = total_of(layer);
  if (layer.owners.empty() || total == 0) return 1;
  std::map<int32_t, std::pair<uint64_t, uint64_t>> ranks;  // choices, experts
  for (size_t e = 0; e < layer.owners.size(); e++) {
    auto& [choices, experts] = ranks[layer.owners[e]];
    choices += layer.choices[e];
    experts++;
  }
  const double mean = static_cast<double>(total) / static_cast<double>(layer.choices.size());
  double most = 0;
  for (const auto& [rank, own] : ranks)
    most = std::max(most, static_cast<double>(own.first) / static_cast<double>(own.second) / mean);
  return most;
}

base::Result<std::vector<std::vector<double>>> expert_use_from_json(std::string_view json) {
  ASSIGN_OR_RETURN(const std::vector<Group> groups, groups_of(json));
  if (groups.empty()) return broken("it has no group");
  // One that loads, or is started again, has nothing to tell yet.
  const auto told = std::ranges::find_if_not(groups, &Group::empty);
  if (told == groups.end())
    return base::Error{base::Code::kBrokenFile,
                       "no expert was counted yet; take the counts after some answers"};
  std::vector<std::vector<double>> use;
  for (const proto::LayerUse& layer : *told) use.emplace_back(layer.choices.size(), 0.0);
  for (const Group& group : groups) {
    if (group.empty()) continue;
    bool fits = group.size() == use.size();
    for (size_t l = 0; fits && l < use.size(); l++) {
      fits = group[l].choices.size() == use[l].size();
      for (size_t e = 0; fits && e < use[l].size(); e++)
        use[l][e] += static_cast<double>(group[l].choices[e]);
    }
    if (!fits) return broken("its groups differ in layers or experts");
  }
  return use;
}

base::Result<std::string> expert_use_table(std::string_view json) {
  ASSIGN_OR_RETURN(const std::vector<Group> groups, groups_of(json));
  std::string text;
  for (size_t group = 0; group < groups.size(); group++) {
    text += base::cat(group == 0 ? "" : "\n", "experts");
    if (groups.size() > 1) text += base::cat(" of replica ", group);
    text += base::cat(":\n", table_of(groups[group]));
  }
  return text;
}

std::string expert_use_line(std::span<const proto::LayerUse> layers) {
  size_t hottest = layers.size();
  double share = 0, imbalance = 1;
  for (size_t l = 0; l < layers.size(); l++) {
    const uint64_t total = total_of(layers[l]);
    if (total == 0) continue;
    const double own =
        static_cast<double>(std::ranges::max(layers[l].choices)) / static_cast<double>(total);
    if (own > share) hottest = l, share = own;
    imbalance = std::max(imbalance, rank_imbalance(layers[l]));
  }
  if (hottest == layers.size()) return {};
  const proto::LayerUse& layer = layers[hottest];
  return base::cat(
      "experts:   most used is ", by_use(layer)[0], " of layer ", hottest, ", ",
      decimals(100 * share, 1),
      " % of its choices (evenly: ", decimals(100.0 / static_cast<double>(layer.choices.size()), 1),
      " %)",
      layer.owners.empty() ? "" : base::cat("; ranks: most/mean up to ", decimals(imbalance, 2)),
      "\n");
}

}  // namespace cli
