#include "broker/http/report_pages.h"

#include <utility>

#include "broker/api/json_writer.h"

namespace broker {

namespace {

void add_node(JsonWriter& json, int os_node) {
  json.key("node");
  if (os_node < 0)
    json.null();
  else
    json.value(os_node);
}

void add_rank(JsonWriter& json, const RankStatus& rank) {
  json.begin_object().field("group", rank.group).field("rank", rank.rank);
  add_node(json, rank.os_node);
  json.field("pid", rank.pid).field("cpus", rank.cpus);
  json.field("weight_bytes", rank.ready.arena_bytes).field("kv_bytes", rank.ready.kv_bytes);
  json.field("huge_page_bytes", rank.ready.huge_page_bytes);
  json.field("attached_bytes", rank.ready.attached_bytes);
  json.field("memory", rank.ready.memory_placement);
  const proto::StatsReply& stats = rank.stats;
  json.key("steps").begin_object().field("count", stats.steps);
  for (const auto& [name, ns] :
       {std::pair("seconds", stats.step_ns), std::pair("product_seconds", stats.matmul_ns),
        std::pair("attention_seconds", stats.attention_ns),
        std::pair("exchange_seconds", stats.exchange_ns),
        std::pair("barrier_seconds", stats.barrier_ns),
        std::pair("between_seconds", stats.sample_ns)})
    json.field(name, static_cast<double>(ns) / 1e9);
  json.field("weight_bytes_read", stats.weight_bytes).field("threads", stats.threads);
  json.end_object().end_object();
}

void add_model(JsonWriter& json, const ServedModel& model, const GroupStatus& status) {
  json.key("model").begin_object().field("id", model.id);
  json.field("architecture", model.architecture).field("size_bytes", model.size_bytes);
  json.key("context_length");
  if (status.context == 0)
    json.null();  // not loaded yet
  else
    json.value(status.context);
  json.end_object();
}

void add_stats(JsonWriter& json, const proto::StatsReply& stats) {
  json.key("kv_blocks").begin_object().field("used", stats.kv_blocks_used);
  json.field("peak", stats.kv_blocks_peak).field("total", stats.kv_block_count);
  json.field("reused", stats.kv_blocks_reused).end_object();
  json.key("steps").begin_object().field("count", stats.steps);
  json.field("positions", stats.columns).field("seconds", static_cast<double>(stats.step_ns) / 1e9);
  json.field("waiting_seconds", static_cast<double>(stats.wait_ns) / 1e9).end_object();
}

void add_group(JsonWriter& json, int number, const GroupReport& group) {
  json.begin_object().field("group", number);
  json.field("status", state_name(group.status.state));
  json.field("message", state_sentence(group.status)).field("restarts", group.restarts);
  json.field("requests", group.load.requests).field("tokens", group.load.tokens);
  add_stats(json, group.stats);
  json.end_object();
}

/// Bytes on the nodes that have any, by the nodes' numbers.
void add_bytes_by_node(JsonWriter& json, const std::vector<uint64_t>& bytes_on_node) {
  json.key("bytes_on_node").begin_object();
  for (size_t node = 0; node < bytes_on_node.size(); node++)
    if (bytes_on_node[node] > 0) json.field(base::cat(node), bytes_on_node[node]);
  json.end_object();
}

void add_misplaced(JsonWriter& json, const Misplaced& misplaced, int os_node) {
  json.key("misplaced_percent");
  if (os_node < 0 || misplaced.present == 0)
    json.null();  // there is no right place, or nothing is known
  else
    json.value(misplaced.percent());
}

}  // namespace

Response status_page(const ServedModel& model, const GroupStatus& status,
                     const ServerStatus& server) {
  JsonWriter json;
  json.begin_object().field("object", "status").field("status", state_name(status.state));
  json.field("message", state_sentence(status));
  add_model(json, model, status);
  json.key("loading").begin_object().field("bytes_done", status.bytes_done);
  json.field("bytes_total", status.bytes_total).end_object();
  json.field("version", server.version).field("pid", server.pid);
  json.field("uptime_seconds", static_cast<double>(server.now - server.started_at) / 1e9);
  json.field("restarts", server.restarts);
  json.key("answers").begin_object().field("live", server.answers_live);
  json.field("limit", server.answers_max).end_object();
  add_stats(json, server.stats);
  json.key("exchange");
  if (server.ranks.empty() || server.ranks[0].ready.exchange.empty())
    json.null();
  else
    json.value(server.ranks[0].ready.exchange);
  json.key("groups").begin_array();
  for (size_t group = 0; group < server.groups.size(); group++)
    add_group(json, static_cast<int>(group), server.groups[group]);
  json.end_array().key("ranks").begin_array();
  for (const RankStatus& rank : server.ranks) add_rank(json, rank);
  return {.body = json.end_array().end_object().take()};
}

namespace {

void add_expert_use(JsonWriter& json, int number, const proto::LayerUse& layer) {
  json.begin_object().field("layer", number).key("choices").begin_array();
  for (const uint64_t count : layer.choices) json.value(count);
  json.end_array().key("owners");
  if (layer.owners.empty()) {
    json.null();  // every rank has rows of every expert
  } else {
    json.begin_array();
    for (const int32_t owner : layer.owners) json.value(owner);
    json.end_array();
  }
  json.end_object();
}

}  // namespace

Response experts_page(const ServerStatus& server) {
  JsonWriter json;
  json.begin_object().field("object", "expert_use").key("groups").begin_array();
  for (size_t group = 0; group < server.groups.size(); group++) {
    json.begin_object().field("group", static_cast<int>(group)).key("layers").begin_array();
    const auto& layers = server.groups[group].stats.expert_use;
    for (size_t l = 0; l < layers.size(); l++) add_expert_use(json, static_cast<int>(l), layers[l]);
    json.end_array().end_object();
  }
  return {.body = json.end_array().end_object().take()};
}

namespace {

void add_placement(JsonWriter& json, int group, const proto::PlacementReply& rank) {
  json.begin_object().field("group", group).field("rank", rank.rank);
  add_node(json, rank.os_node);
  json.field("source", rank.source).field("sample", is_sample(rank));
  json.field("page_bytes", rank.page_bytes).field("huge_page_bytes", rank.huge_bytes);
  add_misplaced(json, misplaced_in(rank), rank.os_node);
  json.key("classes").begin_array();
  for (const proto::PlacementClass& own : rank.classes) {
    json.begin_object().field("name", own.name).field("bytes", own.bytes);
    add_bytes_by_node(json, own.bytes_on_node);
    json.field("bytes_absent", own.bytes_absent).field("bytes_asked", own.bytes_asked);
    add_misplaced(json, misplaced_in(own, rank.os_node), rank.os_node);
    json.end_object();
  }
  json.end_array().end_object();
}

}  // namespace

Response placement_page(const std::vector<GroupPlacement>& groups) {
  JsonWriter json;
  json.begin_object().field("object", "placement").key("ranks").begin_array();
  for (size_t group = 0; group < groups.size(); group++)
    for (const proto::PlacementReply& rank : groups[group])
      add_placement(json, static_cast<int>(group), rank);
  return {.body = json.end_array().end_object().take()};
}

}  // namespace broker
