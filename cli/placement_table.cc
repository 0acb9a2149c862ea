#include "cli/placement_table.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

#include "base/cat.h"
#include "broker/api/json.h"
#include "broker/report.h"
#include "cli/probe_report.h"
#include "shm/arena_room.h"

namespace cli {

namespace {

using proto::PlacementClass;
using proto::PlacementReply;
using Rows = std::vector<std::vector<std::string>>;

/// "12.3 %"; what is not nothing is never shown as 0.
std::string percent_text(double percent) {
  if (percent == 0) return "0 %";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", percent);
  return percent < 0.1 ? "< 0.1 %" : text;
}

double share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

std::vector<uint64_t> bytes_by_node(const PlacementReply& rank) {
  std::vector<uint64_t> bytes;
  for (const PlacementClass& own : rank.classes) {
    if (bytes.size() < own.bytes_on_node.size()) bytes.resize(own.bytes_on_node.size());
    for (size_t node = 0; node < own.bytes_on_node.size(); node++)
      bytes[node] += own.bytes_on_node[node];
  }
  return bytes;
}

/// "node 1", or "node 0 12.3 %, node 1 87.7 %".
std::string nodes_text(const PlacementReply& rank) {
  const std::vector<uint64_t> bytes = bytes_by_node(rank);
  uint64_t all = 0;
  for (const uint64_t own : bytes) all += own;
  std::string text;
  for (size_t node = 0; node < bytes.size(); node++) {
    if (bytes[node] == 0) continue;
    text += base::cat(text.empty() ? "" : ", ", "node ", node);
    if (bytes[node] < all) text += base::cat(" ", percent_text(share(bytes[node], all)));
  }
  return text.empty() ? "unknown" : text;
}

std::string pages_text(const PlacementReply& rank) {
  uint64_t weights = 0;
  for (const PlacementClass& own : rank.classes)
    if (own.name != "KV cache" && own.name != "exchange") weights += own.bytes;
  if (rank.page_bytes == 0) return "unknown";
  if (rank.huge_bytes == 0 || rank.page_bytes > 65536) return shm::memory_text(rank.page_bytes);
  if (rank.huge_bytes >= weights) return "huge";
  return base::cat("mixed, ", percent_text(share(rank.huge_bytes, weights)), " huge");
}

const PlacementClass* find_class(const PlacementReply& rank, const std::string& name) {
  for (const PlacementClass& own : rank.classes)
    if (own.name == name) return &own;
  return nullptr;
}

std::string class_text(const PlacementReply& rank, const std::string& name) {
  const PlacementClass* own = find_class(rank, name);
  if (own == nullptr) return "-";
  const broker::Misplaced misplaced = broker::misplaced_in(*own, rank.os_node);
  std::string text = shm::memory_text(own->bytes);
  if (misplaced.elsewhere > 0)
    text += base::cat(" (", percent_text(misplaced.percent()), " elsewhere)");
  if (own->bytes_absent > 0)
    text += base::cat(" (", percent_text(share(own->bytes_absent, own->bytes_asked)), " absent)");
  return text;
}

/// All names, in the order in which ranks tell them.
std::vector<std::string> class_names(const std::vector<PlacementReply>& ranks) {
  std::vector<std::string> names;
  for (const PlacementReply& rank : ranks)
    for (const PlacementClass& own : rank.classes)
      if (std::find(names.begin(), names.end(), own.name) == names.end()) names.push_back(own.name);
  return names;
}

std::string title(const std::vector<PlacementReply>& ranks) {
  std::string source = ranks.empty() ? "nobody" : ranks[0].source;
  bool sample = false, simulated = true;
  for (const PlacementReply& rank : ranks) {
    if (rank.source != source) source = base::cat(ranks[0].source, " and ", rank.source);
    sample = sample || broker::is_sample(rank);
    simulated = simulated && rank.os_node < 0;
  }
  return base::cat("placement of memory by ", source,
                   source == "numa_maps" ? ", whole mappings"
                   : sample              ? ", a sample of the pages"
                                         : ", every page",
                   simulated ? "; the nodes are simulated, so it is bound nowhere" : "", "\n");
}

}  // namespace

std::string placement_table(const std::vector<PlacementReply>& ranks) {
  Rows rows(1);
  const auto add_row = [&](std::string name, auto cell) {
    rows.push_back({std::move(name)});
    for (const PlacementReply& rank : ranks) rows.back().push_back(cell(rank));
  };
  rows[0].push_back("");
  for (const PlacementReply& rank : ranks)
    rows[0].push_back(rank.os_node < 0 ? base::cat("rank ", rank.rank)
                                       : base::cat("rank ", rank.rank, " on node ", rank.os_node));
  for (const std::string& name : class_names(ranks))
    add_row(name, [&](const PlacementReply& rank) { return class_text(rank, name); });
  add_row("lies on", nodes_text);
  add_row("pages", pages_text);
  add_row("misplaced", [](const PlacementReply& rank) {
    const broker::Misplaced misplaced = broker::misplaced_in(rank);
    return rank.os_node < 0 || misplaced.present == 0 ? std::string("-")
                                                      : percent_text(misplaced.percent());
  });
  return title(ranks) + text_table(rows);
}

std::vector<std::string> placement_warnings(const std::vector<PlacementReply>& ranks) {
  std::vector<std::string> lines;
  for (const PlacementReply& rank : ranks) {
    std::string wrong;
    for (const PlacementClass& own : rank.classes) {
      for (size_t node = 0; node < own.bytes_on_node.size(); node++) {
        const uint64_t bytes = own.bytes_on_node[node];
        if (rank.os_node < 0 || node == static_cast<size_t>(rank.os_node) || bytes == 0) continue;
        const uint64_t present = broker::misplaced_in(own, rank.os_node).present;
        wrong += base::cat(wrong.empty() ? "" : ", ", percent_text(share(bytes, present)), " of ",
                           own.name, " on node ", node);
      }
    }
    if (wrong.empty()) continue;
    lines.push_back(
        base::cat("memory of rank ", rank.rank, " should lie on node ", rank.os_node, ", but ",
                  wrong, "; it is read across the nodes' link. Free memory on node ", rank.os_node,
                  ", see by numoe doctor whether memory can be bound, and start again"));
  }
  return lines;
}

namespace {

uint64_t count_at(const broker::Json& json, std::string_view key) {
  const broker::Json* member = json.find(key);
  return member == nullptr
             ? 0
             : static_cast<uint64_t>(std::max<int64_t>(member->integer().value_or(0), 0));
}

std::string text_at(const broker::Json& json, std::string_view key) {
  const broker::Json* member = json.find(key);
  const std::string* text = member == nullptr ? nullptr : member->string();
  return text == nullptr ? std::string() : *text;
}

PlacementClass class_from(const broker::Json& json) {
  PlacementClass own{.name = text_at(json, "name"),
                     .bytes = count_at(json, "bytes"),
                     .bytes_absent = count_at(json, "bytes_absent"),
                     .bytes_asked = count_at(json, "bytes_asked")};
  const broker::Json* nodes = json.find("bytes_on_node");
  if (nodes == nullptr || nodes->object() == nullptr) return own;
  for (const broker::Json::Member& member : *nodes->object()) {
    size_t node = 0;
    const char* const end = member.key.data() + member.key.size();
    if (std::from_chars(member.key.data(), end, node).ptr != end ||
        node >= proto::kPlacementNodesMax)
      continue;
    if (own.bytes_on_node.size() <= node) own.bytes_on_node.resize(node + 1);
    own.bytes_on_node[node] = count_at(*nodes, member.key);
  }
  return own;
}

PlacementReply rank_from(const broker::Json& json) {
  PlacementReply rank{.rank = static_cast<int>(count_at(json, "rank")),
                      .page_bytes = count_at(json, "page_bytes"),
                      .huge_bytes = count_at(json, "huge_page_bytes"),
                      .source = text_at(json, "source")};
  const broker::Json* node = json.find("node");
  if (node != nullptr && node->integer()) rank.os_node = static_cast<int>(*node->integer());
  const broker::Json* classes = json.find("classes");
  if (classes != nullptr && classes->array() != nullptr)
    for (const broker::Json& own : *classes->array()) rank.classes.push_back(class_from(own));
  return rank;
}

}  // namespace

base::Result<std::vector<broker::GroupPlacement>> placement_from_json(std::string_view text) {
  broker::Json json;
  const auto error = broker::parse_json(text, {}, json);
  const broker::Json* list = error ? nullptr : json.find("ranks");
  if (list == nullptr || list->array() == nullptr)
    return base::Error{base::Code::kUnsupported,
                       "the server's answer is no placement; is it a numoe of this version?"};
  std::vector<broker::GroupPlacement> groups;
  std::optional<uint64_t> group;  // the ranks of a group follow each other
  for (const broker::Json& entry : *list->array()) {
    const uint64_t own = count_at(entry, "group");
    if (group != own) groups.emplace_back();
    group = own;
    groups.back().push_back(rank_from(entry));
  }
  return groups;
}

}  // namespace cli
