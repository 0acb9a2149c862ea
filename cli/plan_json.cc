#include "cli/plan_json.h"

#include "base/cat.h"
#include "model/printable.h"

namespace cli {

namespace {

using base::cat;
using model::json_string;

template <class Range, class ToText>
std::string array(const Range& range, const ToText& to_text) {
  std::string json = "[";
  for (const auto& element : range) json += cat(json.size() > 1 ? "," : "", to_text(element));
  return json + "]";
}

std::string strings(const std::vector<std::string>& texts) {
  return array(texts, [](const std::string& text) { return json_string(text); });
}

std::string origin(const char* what, plan::Origin origin) {
  return cat("\"", what, "\":\"", plan::origin_name(origin), "\"");
}

std::string machine_json(const plan::Machine& machine) {
  const auto node = [&](const plan::MachineNode& n) {
    return cat("{\"host\":", json_string(machine.hosts[static_cast<size_t>(n.host)].name),
               ",\"os_index\":", n.os_index, ",\"package\":", n.package, ",\"threads\":", n.threads,
               ",\"memory_bytes\":", n.memory_bytes,
               ",\"read_gb_per_s\":", plan::read_gb_per_s(n, n.threads), "}");
  };
  return cat("{\"nodes\":", array(machine.nodes, node),
             ",\"simulated\":", machine.simulated ? "true" : "false", ",\"origins\":{",
             origin("read", machine.read_origin), ",", origin("memory", machine.memory_origin), ",",
             origin("kernels", machine.kernel_origin), ",", origin("waits", machine.meeting_origin),
             "},\"notes\":", strings(machine.notes), "}");
}

std::string rank_json(const plan::RankPlan& rank) {
  return cat("{\"node\":", rank.node, ",\"threads\":", rank.threads,
             ",\"decode_threads\":", rank.decode_threads, ",\"share\":", rank.share,
             ",\"weight_bytes\":", rank.memory.weights, ",\"kv_bytes\":", rank.memory.kv,
             ",\"exchange_bytes\":", rank.memory.exchange,
             ",\"buffer_bytes\":", rank.memory.scratch, ",\"node_bytes\":", rank.node_bytes,
             ",\"active_bytes\":", rank.active_bytes, ",\"kv_read_bytes\":", rank.kv_read_bytes,
             "}");
}

std::string speed_json(const plan::Speed& speed) {
  return cat("{\"decode\":", speed.decode, ",\"prefill\":", speed.prefill, "}");
}

std::string candidate_json(const plan::Candidate& one) {
  const plan::TimeParts& time = one.decode_time;
  return cat(
      "{\"name\":", json_string(one.name()), ",\"strategy\":\"", plan::strategy_name(one.strategy),
      "\",\"replicas\":", one.replicas, ",\"stages\":", one.stages,
      ",\"fits\":", one.fits() ? "true" : "false", ",\"misfit\":", json_string(one.misfit),
      ",\"waits\":", one.waits, ",\"gathered_bytes\":", one.gathered_bytes,
      ",\"one\":", speed_json(one.one), ",\"all\":", speed_json(one.all),
      ",\"decode_seconds\":{\"weights\":", time.weights, ",\"kv\":", time.kv,
      ",\"compute\":", time.compute, ",\"waits\":", time.waits, ",\"handed\":", time.handed,
      "},\"limit\":", json_string(one.limit), ",\"prefill_limit\":", json_string(one.prefill_limit),
      ",\"ranks\":", array(one.ranks, rank_json), ",\"remarks\":", strings(one.remarks), "}");
}

}  // namespace

std::string plan_json(const plan::ReportOf& of, const plan::Choice& choice) {
  return cat("{\"format\":\"numoe-plan\",\"version\":1,\"model\":", json_string(of.model.spec.name),
             ",\"machine\":", machine_json(of.machine),
             ",\"chosen\":", choice.index ? cat(*choice.index) : "null",
             ",\"why\":", json_string(choice.why),
             ",\"candidates\":", array(of.candidates, candidate_json), "}");
}

}  // namespace cli
