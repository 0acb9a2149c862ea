#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "base/cat.h"
#include "base/limits.h"
#include "proto/codec.h"

namespace proto {

namespace {

constexpr uint64_t kInt32Max = std::numeric_limits<int32_t>::max();
constexpr uint64_t kInt64Max = std::numeric_limits<int64_t>::max();

/// Reads fields of one message and remembers the first that is wrong.
class Reader {
 public:
  explicit Reader(const char* message) : message_(message) {}

  template <class Number>
  Number number(const char* field, uint64_t value, uint64_t min, uint64_t max) {
    if (value >= min && value <= max) return static_cast<Number>(value);
    fail(base::cat(field, " is ", value, ", outside ", min, " … ", max));
    return static_cast<Number>(min);
  }
  int count(const char* field, uint64_t value, uint64_t max) {
    return number<int>(field, value, 0, max);
  }
  uint64_t request_id(uint64_t value) {
    return number<uint64_t>("request_id", value, 1, std::numeric_limits<uint64_t>::max());
  }
  const std::string& text(const char* field, const std::string& value) {
    if (value.size() > kTextBytesMax)
      fail(base::cat(field, " has ", value.size(), " bytes, at most ", kTextBytesMax,
                     " are allowed"));
    return value;
  }
  float finite(const char* field, float value) {
    if (!std::isfinite(value)) fail(base::cat(field, " is not finite"));
    return value;
  }
  template <class Field>
  std::vector<int32_t> ids(const char* field, const Field& from, size_t min, size_t max) {
    const auto size = static_cast<size_t>(from.size());
    if (size < min || size > max) {
      fail(base::cat(field, " has ", size, " entries, ", min, " … ", max, " are allowed"));
      return {};
    }
    std::vector<int32_t> to;
    to.reserve(size);
    for (const uint32_t id : from) to.push_back(number<int32_t>(field, id, 0, kInt32Max));
    return to;
  }
  base::Error error(const wire::Error& from) {
    base::Error to{base::Code::kSystem, text("error.message", from.message())};
    for (int code = 0; code <= static_cast<int>(base::Code::kSystem); code++)
      if (from.code() == base::code_name(static_cast<base::Code>(code)))
        to.code = static_cast<base::Code>(code);
    return to;
  }
  void fail(std::string what) {
    if (!error_) error_ = base::Error{base::Code::kInvalidArgument, base::cat(message_, ".", what)};
  }
  base::Result<Body> result(Body body) {
    if (error_) return *error_;
    return body;
  }

 private:
  const char* message_;
  std::optional<base::Error> error_;
};

Finish finish(Reader& reader, wire::Finish from) {
  switch (from) {
    case wire::FINISH_NONE: return Finish::kNone;
    case wire::FINISH_STOP: return Finish::kStop;
    case wire::FINISH_LENGTH: return Finish::kLength;
    case wire::FINISH_CANCELLED: return Finish::kCancelled;
    case wire::FINISH_ERROR: return Finish::kError;
    default: reader.fail(base::cat("finish is ", static_cast<int>(from), ", which is unknown"));
  }
  return Finish::kError;
}

base::Result<Body> read(const wire::Hello& from) {
  Reader r("Hello");
  Hello to;
  to.rank_count = r.number<int>("rank_count", from.rank_count(), 1, base::kRanksMax);
  to.rank = r.count("rank", from.rank(), static_cast<uint64_t>(to.rank_count - 1));
  to.numerics_version = from.numerics_version();
  to.model_fingerprint = r.text("model_fingerprint", from.model_fingerprint());
  to.program_version = r.text("program_version", from.program_version());
  to.group_id = r.text("group_id", from.group_id());
  return r.result(std::move(to));
}

base::Result<Body> read(const wire::HelloReply& from) {
  Reader r("HelloReply");
  return r.result(HelloReply{from.accepted(), r.text("reason", from.reason()), from.plan_epoch()});
}

base::Result<Body> read(const wire::LoadProgress& from) {
  Reader r("LoadProgress");
  const auto total = from.bytes_total();
  return r.result(
      LoadProgress{r.number<uint64_t>("bytes_done", from.bytes_done(), 0, total), total});
}

base::Result<Body> read(const wire::Ready& from) {
  Reader r("Ready");
  Ready to;
  to.vocabulary = r.number<int64_t>("vocabulary", from.vocabulary(), 1, kInt32Max);
  to.context = r.number<int64_t>("context", from.context(), 1, base::kContextMax);
  to.kv_block_count = r.count("kv_block_count", from.kv_block_count(), kInt32Max);
  to.columns_max = r.number<int>("columns_max", from.columns_max(), 1, base::kStepColumnsMax);
  to.arena_bytes = from.arena_bytes();
  to.kv_bytes = from.kv_bytes();
  to.huge_page_bytes = from.huge_page_bytes();
  to.memory_placement = r.text("memory_placement", from.memory_placement());
  to.binding_denied = from.binding_denied();
  to.exchange = r.text("exchange", from.exchange());
  to.exchange_note = r.text("exchange_note", from.exchange_note());
  to.attached_bytes = from.attached_bytes();
  to.content_low = from.content_low();
  to.content_high = from.content_high();
  return r.result(std::move(to));
}

base::Result<Body> read(const wire::WorkerFailed& from) {
  Reader r("WorkerFailed");
  return r.result(WorkerFailed{r.error(from.error())});
}

base::Result<Body> read(const wire::Shutdown& from) {
  Reader r("Shutdown");
  return r.result(Shutdown{r.text("reason", from.reason())});
}

Sampling read(Reader& r, const wire::Sampling& from) {
  Sampling to;
  to.temperature = r.finite("temperature", from.temperature());
  to.top_k = r.number<int32_t>("top_k", from.top_k(), 0, kInt32Max);
  to.top_p = r.finite("top_p", from.top_p());
  to.min_p = r.finite("min_p", from.min_p());
  to.repeat_penalty = r.finite("repeat_penalty", from.repeat_penalty());
  to.presence_penalty = r.finite("presence_penalty", from.presence_penalty());
  to.frequency_penalty = r.finite("frequency_penalty", from.frequency_penalty());
  to.penalty_window = from.penalty_window();
  to.seed = from.seed();
  if (static_cast<size_t>(from.logit_bias_size()) > kLogitBiasMax) {
    r.fail(base::cat("logit_bias has ", from.logit_bias_size(), " entries, at most ", kLogitBiasMax,
                     " are allowed"));
    return to;
  }
  for (const auto& entry : from.logit_bias())
    to.logit_bias.emplace_back(r.number<int32_t>("logit_bias", entry.id(), 0, kInt32Max),
                               r.finite("logit_bias", entry.bias()));
  return to;
}

base::Result<Body> read(const wire::GenerateRequest& from) {
  Reader r("GenerateRequest");
  GenerateRequest to;
  to.request_id = r.request_id(from.request_id());
  to.prompt = r.ids("prompt", from.prompt(), 1, size_t{base::kContextMax});
  to.sampling = read(r, from.sampling());
  to.max_tokens = r.number<int64_t>("max_tokens", from.max_tokens(), 0, kInt64Max);
  to.stop_tokens = r.ids("stop_tokens", from.stop_tokens(), 0, kStopTokensMax);
  to.prompt_index = from.prompt_index();
  to.choice_index = from.choice_index();
  to.prefill_chunk = r.count("prefill_chunk", from.prefill_chunk(), kInt32Max);
  to.generated = r.ids("generated", from.generated(), 0, size_t{base::kContextMax});
  to.first_index = from.first_index();
  return r.result(std::move(to));
}

base::Result<Body> read(const wire::ScoreRequest& from) {
  Reader r("ScoreRequest");
  ScoreRequest to;
  to.request_id = r.request_id(from.request_id());
  to.tokens = r.ids("tokens", from.tokens(), 1, size_t{base::kContextMax});
  to.first_scored = r.number<int64_t>("first_scored", from.first_scored(), 1, kInt64Max);
  to.want_top = from.want_top();
  to.want_last = from.want_last();
  to.chunk = r.count("chunk", from.chunk(), kInt32Max);
  return r.result(std::move(to));
}

base::Result<Body> read(const wire::Accepted& from) {
  Reader r("Accepted");
  return r.result(Accepted{r.request_id(from.request_id())});
}

base::Result<Body> read(const wire::TokenChunk& from) {
  Reader r("TokenChunk");
  TokenChunk to;
  to.request_id = r.request_id(from.request_id());
  to.index = from.index();
  to.tokens = r.ids("tokens", from.tokens(), 0, base::kStepColumnsMax);
  to.finish = finish(r, from.finish());
  to.usage.prompt_tokens =
      r.number<int64_t>("usage.prompt_tokens", from.usage().prompt_tokens(), 0, kInt64Max);
  to.usage.generated_tokens =
      r.number<int64_t>("usage.generated_tokens", from.usage().generated_tokens(), 0, kInt64Max);
  if (to.finish == Finish::kError) to.error = r.error(from.error());
  return r.result(std::move(to));
}

base::Result<Body> read(const wire::ScoreChunk& from) {
  Reader r("ScoreChunk");
  ScoreChunk to;
  to.request_id = r.request_id(from.request_id());
  to.index = from.index();
  to.first_position =
      r.number<int64_t>("first_position", from.first_position(), 0, base::kContextMax);
  to.position_count = r.count("position_count", from.position_count(), base::kStepColumnsMax);
  to.top_count = r.count("top_count", from.top_count(), kTopCount);
  const auto positions = static_cast<size_t>(to.position_count);
  const size_t tops = positions * static_cast<size_t>(to.top_count);
  to.top_ids = r.ids("top_ids", from.top_ids(), tops, tops);
  if (static_cast<size_t>(from.top_logits_size()) != tops)
    r.fail(base::cat("top_logits has ", from.top_logits_size(), " entries, not ", tops));
  if (static_cast<size_t>(from.log_probabilities_size()) > positions)
    r.fail(base::cat("log_probabilities has ", from.log_probabilities_size(), " entries for ",
                     positions, " positions"));
  to.log_probabilities.assign(from.log_probabilities().begin(), from.log_probabilities().end());
  to.top_logits.assign(from.top_logits().begin(), from.top_logits().end());
  to.finish = finish(r, from.finish());
  if (to.finish == Finish::kError) to.error = r.error(from.error());
  return r.result(std::move(to));
}

base::Result<Body> read(const wire::Ack& from) {
  Reader r("Ack");
  return r.result(Ack{r.request_id(from.request_id()), from.next_index()});
}

base::Result<Body> read(const wire::Cancel& from) {
  Reader r("Cancel");
  return r.result(Cancel{r.request_id(from.request_id())});
}

base::Result<Body> read(const wire::StatsReply& from) {
  Reader r("StatsReply");
  StatsReply to;
  to.steps = from.steps();
  to.columns = from.columns();
  to.step_ns = from.step_ns();
  to.prefill_columns = from.prefill_columns();
  to.prefill_ns = from.prefill_ns();
  to.decode_columns = from.decode_columns();
  to.decode_ns = from.decode_ns();
  to.wait_ns = from.wait_ns();
  to.waits_per_layer = from.waits_per_layer();
  if (!std::isfinite(to.waits_per_layer)) r.fail("waits_per_layer is not finite");
  to.kv_blocks_used = r.number<int32_t>("kv_blocks_used", from.kv_blocks_used(), 0, kInt32Max);
  to.kv_blocks_peak = r.number<int32_t>("kv_blocks_peak", from.kv_blocks_peak(), 0, kInt32Max);
  to.kv_block_count = r.number<int32_t>("kv_block_count", from.kv_block_count(), 0, kInt32Max);
  to.kv_blocks_reused = from.kv_blocks_reused();
  to.matmul_ns = from.matmul_ns();
  to.attention_ns = from.attention_ns();
  to.exchange_ns = from.exchange_ns();
  to.barrier_ns = from.barrier_ns();
  to.sample_ns = from.sample_ns();
  to.weight_bytes = from.weight_bytes();
  to.threads = r.number<int>("threads", from.threads(), 0, kInt32Max);
  if (from.expert_use_size() > base::kLayersMax) {
    r.fail(base::cat("expert_use of ", from.expert_use_size(), " layers, at most ",
                     base::kLayersMax, " are allowed"));
    return r.result(to);
  }
  for (const wire::LayerUse& layer : from.expert_use()) {
    if (layer.choices_size() > base::kExpertsMax ||
        (layer.owners_size() != 0 && layer.owners_size() != layer.choices_size())) {
      r.fail(base::cat("expert_use of a layer with ", layer.choices_size(), " experts and ",
                       layer.owners_size(), " owners"));
      break;
    }
    LayerUse own{.choices = {layer.choices().begin(), layer.choices().end()}, .owners = {}};
    for (const uint32_t owner : layer.owners())
      own.owners.push_back(r.number<int32_t>("owners", owner, 0, base::kRanksMax - 1));
    to.expert_use.push_back(std::move(own));
  }
  return r.result(to);
}

base::Result<Body> read(const wire::PlacementReply& from) {
  Reader r("PlacementReply");
  PlacementReply to;
  to.rank = r.count("rank", from.rank(), base::kRanksMax - 1);
  to.os_node = from.os_node();
  if (to.os_node < -1) r.fail(base::cat("os_node is ", to.os_node, ", below -1"));
  to.page_bytes = from.page_bytes();
  to.huge_bytes = from.huge_bytes();
  to.source = r.text("source", from.source());
  if (static_cast<size_t>(from.classes_size()) > kPlacementClassesMax) {
    r.fail(base::cat("classes has ", from.classes_size(), " entries, at most ",
                     kPlacementClassesMax, " are allowed"));
    return r.result(std::move(to));
  }
  for (const auto& entry : from.classes()) {
    PlacementClass own{.name = r.text("classes.name", entry.name()), .bytes = entry.bytes()};
    own.bytes_absent = entry.bytes_absent();
    own.bytes_asked = entry.bytes_asked();
    const auto nodes = static_cast<size_t>(entry.bytes_on_node_size());
    if (nodes > kPlacementNodesMax)
      r.fail(base::cat("classes.bytes_on_node has ", nodes, " entries, at most ",
                       kPlacementNodesMax, " are allowed"));
    else
      own.bytes_on_node.assign(entry.bytes_on_node().begin(), entry.bytes_on_node().end());
    to.classes.push_back(std::move(own));
  }
  return r.result(std::move(to));
}

}  // namespace

base::Result<Body> from_wire(const wire::Envelope& in) {
  switch (in.body_case()) {
    case wire::Envelope::kHello: return read(in.hello());
    case wire::Envelope::kHelloReply: return read(in.hello_reply());
    case wire::Envelope::kLoadProgress: return read(in.load_progress());
    case wire::Envelope::kReady: return read(in.ready());
    case wire::Envelope::kReadyReply: return Body(ReadyReply{});
    case wire::Envelope::kRejoin: return Body(Rejoin{});
    case wire::Envelope::kWorkerFailed: return read(in.worker_failed());
    case wire::Envelope::kShutdown: return read(in.shutdown());
    case wire::Envelope::kGenerateRequest: return read(in.generate_request());
    case wire::Envelope::kScoreRequest: return read(in.score_request());
    case wire::Envelope::kAccepted: return read(in.accepted());
    case wire::Envelope::kTokenChunk: return read(in.token_chunk());
    case wire::Envelope::kScoreChunk: return read(in.score_chunk());
    case wire::Envelope::kAck: return read(in.ack());
    case wire::Envelope::kCancel: return read(in.cancel());
    case wire::Envelope::kStatsRequest: return Body(StatsRequest{});
    case wire::Envelope::kStatsReply: return read(in.stats_reply());
    case wire::Envelope::kPlacementRequest: return Body(PlacementRequest{});
    case wire::Envelope::kPlacementReply: return read(in.placement_reply());
    case wire::Envelope::BODY_NOT_SET: break;
  }
  return base::Error{base::Code::kInvalidArgument,
                     "an envelope without a message that this version knows"};
}

}  // namespace proto
