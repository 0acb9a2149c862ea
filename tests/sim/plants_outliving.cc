// Bugs of replay, blame and adoption, planted at the seams.
#include <algorithm>
#include <map>
#include <utility>

#include "tests/sim/plants.h"

namespace sim {

namespace {

using proto::Envelope;
using Envelopes = std::vector<Envelope>;
using Events = std::vector<broker::Event>;

/// Changes requests that go on after a crash, on their way to the leader.
Plant replay_plant(const char* name, std::function<void(proto::GenerateRequest&)> change) {
  return {.name = name, .wire = [change = std::move(change)](Envelope envelope) {
            auto* request = std::get_if<proto::GenerateRequest>(&envelope.body);
            if (request != nullptr && !request->generated.empty()) change(*request);
            return Envelopes{std::move(envelope)};
          }};
}

Plant usage_since_crash() {
  return {.name = "usage begins anew after a crash",
          .wire = [before = std::map<uint64_t, size_t>()](Envelope envelope) mutable {
            if (const auto* request = std::get_if<proto::GenerateRequest>(&envelope.body))
              before[request->request_id] = request->generated.size();
            if (auto* chunk = std::get_if<proto::TokenChunk>(&envelope.body))
              chunk->usage.generated_tokens -= std::min<int64_t>(
                  chunk->usage.generated_tokens, static_cast<int64_t>(before[chunk->request_id]));
            return Envelopes{std::move(envelope)};
          }};
}

/// The requests that clients have had tokens of, by events: how many chunks, how many groups lost.
struct Running {
  struct One {
    uint64_t chunks = 0;
    int losses = 0;
  };
  std::map<uint64_t, One> open;

  void see(const broker::Event& event) {
    if (std::holds_alternative<broker::GroupLostEvent>(event))
      for (auto& [id, one] : open) one.losses++;
    const auto* token = std::get_if<broker::TokenEvent>(&event);
    if (token == nullptr) return;
    open[token->chunk.request_id].chunks = token->chunk.index + 1;
    if (token->chunk.finish != proto::Finish::kNone) open.erase(token->chunk.request_id);
  }
  broker::Event end(uint64_t id) {
    const broker::TokenEvent event{{.request_id = id,
                                    .index = open[id].chunks,
                                    .finish = proto::Finish::kError,
                                    .error = {base::Code::kPeerLost, "this request is given up"}}};
    open.erase(id);
    return event;
  }
};

Plant others_go_down() {
  return {.name = "a request that is given up takes another one with it",
          .events = [running = Running()](Events& events) mutable {
            for (size_t i = 0; i < events.size(); i++) {
              running.see(events[i]);
              const auto* token = std::get_if<broker::TokenEvent>(&events[i]);
              if (token == nullptr || running.open.empty() ||
                  token->chunk.error.message.find("given up") == std::string::npos)
                continue;
              events.push_back(running.end(running.open.begin()->first));
              return;
            }
          }};
}

Plant blame_stays() {
  return {.name = "blame is never cleared",
          .events = [running = Running()](Events& events) mutable {
            for (size_t i = 0; i < events.size(); i++) {
              running.see(events[i]);
              if (!std::holds_alternative<broker::GroupLostEvent>(events[i])) continue;
              for (const auto& [id, one] : running.open) {
                if (one.losses < 3) continue;
                events.insert(events.begin() + static_cast<std::ptrdiff_t>(i), running.end(id));
                return;
              }
            }
          }};
}

Plant one_name_for_all_groups() {
  return {.name = "all groups have one name", .wire = [](Envelope envelope) {
            auto* hello = std::get_if<proto::Hello>(&envelope.body);
            if (hello != nullptr && !hello->group_id.empty()) hello->group_id = "group";
            return Envelopes{std::move(envelope)};
          }};
}

Plant leaves_its_epoch() {
  return {.name = "a worker is asked to leave the epoch that it belongs to",
          .wire = [](Envelope envelope) {
            Envelopes out{envelope};
            if (std::holds_alternative<proto::ReadyReply>(envelope.body)) {
              out.push_back(envelope);
              out[1].body = proto::Rejoin{};
            }
            return out;
          }};
}

/// As if joining the next broker did not free everything.
Plant keeps_old_requests() {
  constexpr uint64_t kOld = 1'000'000;
  return {.name = "a request of the broker before stays in the leader",
          .wire = [joins = false](Envelope envelope) mutable {
            Envelopes out{envelope};
            if (std::holds_alternative<proto::Rejoin>(envelope.body)) joins = true;
            const auto* ack = std::get_if<proto::Ack>(&envelope.body);
            const auto* cancel = std::get_if<proto::Cancel>(&envelope.body);
            if ((ack != nullptr && ack->request_id == kOld) ||
                (cancel != nullptr && cancel->request_id == kOld))
              return Envelopes{};
            if (joins && std::holds_alternative<proto::ReadyReply>(envelope.body)) {
              out.push_back(envelope);
              out[1].body = proto::GenerateRequest{.request_id = kOld, .prompt = {1}};
            }
            return out;
          }};
}

}  // namespace

std::vector<Plant> planted_outliving_bugs() {
  std::vector<Plant> plants;
  plants.push_back(replay_plant("a generated token is lost at replay",
                                [](auto& request) { request.generated.pop_back(); }));
  plants.push_back(replay_plant("a generated token is repeated at replay", [](auto& request) {
    request.generated.push_back(request.generated.back());
  }));
  plants.push_back(replay_plant("draws go on at the wrong position", [](auto& request) {
    request.prompt.insert(request.prompt.begin(), 1);
    request.generated.pop_back();
  }));
  plants.push_back(
      replay_plant("the seed is another one after a crash", [](auto& r) { r.sampling.seed++; }));
  plants.push_back(
      replay_plant("chunks are counted anew after a crash", [](auto& r) { r.first_index = 0; }));
  plants.push_back(replay_plant("the limit is counted anew after a crash", [](auto& request) {
    if (request.max_tokens > 0)
      request.max_tokens += static_cast<int64_t>(request.generated.size());
  }));
  plants.push_back(replay_plant("stop tokens are forgotten at replay",
                                [](auto& request) { request.stop_tokens.clear(); }));
  plants.push_back(usage_since_crash());
  plants.push_back(others_go_down());
  plants.push_back(blame_stays());
  plants.push_back(one_name_for_all_groups());
  plants.push_back(leaves_its_epoch());
  plants.push_back(keeps_old_requests());
  plants.push_back(
      {.name = "nobody is asked to join the next broker", .wire = [](Envelope envelope) {
         return std::holds_alternative<proto::Rejoin>(envelope.body)
                    ? Envelopes{}
                    : Envelopes{std::move(envelope)};
       }});
  plants.push_back(
      {.name = "sealed blocks are found in the wrong order",
       .sealed = [](std::vector<int32_t>& ids) { std::reverse(ids.begin(), ids.end()); }});
  return plants;
}

}  // namespace sim
