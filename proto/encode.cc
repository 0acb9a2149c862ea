#include <string>
#include <string_view>

#include "proto/codec.h"

namespace proto {

namespace {

template <class Numbers, class Field>
void copy_to(const Numbers& from, Field* to) {
  to->Reserve(static_cast<int>(from.size()));
  for (const auto value : from) to->Add(static_cast<typename Field::value_type>(value));
}

/// Bytes of the UTF-8 character that starts `text`, 0 if it is none.
size_t character_bytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const size_t bytes = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (lead > 0xf4 || bytes > text.size()) return 0;
  for (size_t i = 1; i < bytes; i++)
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  if (bytes < 3) return bytes;
  const auto second = static_cast<unsigned char>(text[1]);
  const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool surrogate = lead == 0xed && second >= 0xa0;
  const bool too_large = lead == 0xf4 && second >= 0x90;
  return overlong || surrogate || too_large ? 0 : bytes;
}

/// Text for people, made fit for protobuf: a receiver refuses what is no UTF-8, and an error that
/// names a file of odd bytes must still arrive. Longer sentences say enough with their start.
std::string text(std::string_view from) {
  std::string to;
  while (!from.empty() && to.size() + 4 <= kTextBytesMax) {
    const size_t bytes = character_bytes(from);
    if (bytes == 0) {
      to += '?';
    } else {
      to += from.substr(0, bytes);
    }
    from.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return to;
}

void fill(const base::Error& from, wire::Error* to) {
  to->set_code(base::code_name(from.code));
  to->set_message(text(from.message));
}

wire::Finish to_wire(Finish finish) {
  switch (finish) {
    case Finish::kNone: return wire::FINISH_NONE;
    case Finish::kStop: return wire::FINISH_STOP;
    case Finish::kLength: return wire::FINISH_LENGTH;
    case Finish::kCancelled: return wire::FINISH_CANCELLED;
    case Finish::kError: return wire::FINISH_ERROR;
  }
  return wire::FINISH_ERROR;
}

void put(const Hello& from, wire::Envelope& out) {
  auto* to = out.mutable_hello();
  to->set_rank(static_cast<uint32_t>(from.rank));
  to->set_rank_count(static_cast<uint32_t>(from.rank_count));
  to->set_numerics_version(from.numerics_version);
  to->set_model_fingerprint(text(from.model_fingerprint));
  to->set_program_version(text(from.program_version));
  to->set_group_id(text(from.group_id));
}

void put(const HelloReply& from, wire::Envelope& out) {
  auto* to = out.mutable_hello_reply();
  to->set_accepted(from.accepted);
  to->set_reason(text(from.reason));
  to->set_plan_epoch(from.plan_epoch);
}

void put(const LoadProgress& from, wire::Envelope& out) {
  auto* to = out.mutable_load_progress();
  to->set_bytes_done(from.bytes_done);
  to->set_bytes_total(from.bytes_total);
}

void put(const Ready& from, wire::Envelope& out) {
  auto* to = out.mutable_ready();
  to->set_vocabulary(static_cast<uint64_t>(from.vocabulary));
  to->set_context(static_cast<uint64_t>(from.context));
  to->set_kv_block_count(static_cast<uint32_t>(from.kv_block_count));
  to->set_columns_max(static_cast<uint32_t>(from.columns_max));
  to->set_arena_bytes(from.arena_bytes);
  to->set_kv_bytes(from.kv_bytes);
  to->set_huge_page_bytes(from.huge_page_bytes);
  to->set_memory_placement(text(from.memory_placement));
  to->set_binding_denied(from.binding_denied);
  to->set_exchange(text(from.exchange));
  to->set_exchange_note(text(from.exchange_note));
  to->set_attached_bytes(from.attached_bytes);
  to->set_content_low(from.content_low);
  to->set_content_high(from.content_high);
}

void put(const ReadyReply&, wire::Envelope& out) {
  out.mutable_ready_reply();
}

void put(const Rejoin&, wire::Envelope& out) {
  out.mutable_rejoin();
}

void put(const WorkerFailed& from, wire::Envelope& out) {
  fill(from.error, out.mutable_worker_failed()->mutable_error());
}

void put(const Shutdown& from, wire::Envelope& out) {
  out.mutable_shutdown()->set_reason(text(from.reason));
}

void fill(const Sampling& from, wire::Sampling* to) {
  to->set_temperature(from.temperature);
  to->set_top_k(static_cast<uint32_t>(from.top_k));
  to->set_top_p(from.top_p);
  to->set_min_p(from.min_p);
  to->set_repeat_penalty(from.repeat_penalty);
  to->set_presence_penalty(from.presence_penalty);
  to->set_frequency_penalty(from.frequency_penalty);
  to->set_penalty_window(from.penalty_window);
  to->set_seed(from.seed);
  for (const auto& [id, bias] : from.logit_bias) {
    auto* entry = to->add_logit_bias();
    entry->set_id(static_cast<uint32_t>(id));
    entry->set_bias(bias);
  }
}

void put(const GenerateRequest& from, wire::Envelope& out) {
  auto* to = out.mutable_generate_request();
  to->set_request_id(from.request_id);
  copy_to(from.prompt, to->mutable_prompt());
  fill(from.sampling, to->mutable_sampling());
  to->set_max_tokens(static_cast<uint64_t>(from.max_tokens));
  copy_to(from.stop_tokens, to->mutable_stop_tokens());
  to->set_prompt_index(from.prompt_index);
  to->set_choice_index(from.choice_index);
  to->set_prefill_chunk(static_cast<uint32_t>(from.prefill_chunk));
  copy_to(from.generated, to->mutable_generated());
  to->set_first_index(from.first_index);
}

void put(const ScoreRequest& from, wire::Envelope& out) {
  auto* to = out.mutable_score_request();
  to->set_request_id(from.request_id);
  copy_to(from.tokens, to->mutable_tokens());
  to->set_first_scored(static_cast<uint64_t>(from.first_scored));
  to->set_want_top(from.want_top);
  to->set_want_last(from.want_last);
  to->set_chunk(static_cast<uint32_t>(from.chunk));
}

void put(const Accepted& from, wire::Envelope& out) {
  out.mutable_accepted()->set_request_id(from.request_id);
}

void put(const TokenChunk& from, wire::Envelope& out) {
  auto* to = out.mutable_token_chunk();
  to->set_request_id(from.request_id);
  to->set_index(from.index);
  copy_to(from.tokens, to->mutable_tokens());
  to->set_finish(to_wire(from.finish));
  if (from.finish == Finish::kNone) return;
  to->mutable_usage()->set_prompt_tokens(static_cast<uint64_t>(from.usage.prompt_tokens));
  to->mutable_usage()->set_generated_tokens(static_cast<uint64_t>(from.usage.generated_tokens));
  if (from.finish == Finish::kError) fill(from.error, to->mutable_error());
}

void put(const ScoreChunk& from, wire::Envelope& out) {
  auto* to = out.mutable_score_chunk();
  to->set_request_id(from.request_id);
  to->set_index(from.index);
  to->set_first_position(static_cast<uint64_t>(from.first_position));
  to->set_position_count(static_cast<uint32_t>(from.position_count));
  copy_to(from.log_probabilities, to->mutable_log_probabilities());
  to->set_top_count(static_cast<uint32_t>(from.top_count));
  copy_to(from.top_ids, to->mutable_top_ids());
  copy_to(from.top_logits, to->mutable_top_logits());
  to->set_finish(to_wire(from.finish));
  if (from.finish == Finish::kError) fill(from.error, to->mutable_error());
}

void put(const Ack& from, wire::Envelope& out) {
  out.mutable_ack()->set_request_id(from.request_id);
  out.mutable_ack()->set_next_index(from.next_index);
}

void put(const Cancel& from, wire::Envelope& out) {
  out.mutable_cancel()->set_request_id(from.request_id);
}

void put(const StatsRequest&, wire::Envelope& out) {
  out.mutable_stats_request();
}

void put(const StatsReply& from, wire::Envelope& out) {
  auto* to = out.mutable_stats_reply();
  to->set_steps(from.steps);
  to->set_columns(from.columns);
  to->set_step_ns(from.step_ns);
  to->set_prefill_columns(from.prefill_columns);
  to->set_prefill_ns(from.prefill_ns);
  to->set_decode_columns(from.decode_columns);
  to->set_decode_ns(from.decode_ns);
  to->set_wait_ns(from.wait_ns);
  to->set_waits_per_layer(from.waits_per_layer);
  to->set_kv_blocks_used(static_cast<uint32_t>(from.kv_blocks_used));
  to->set_kv_blocks_peak(static_cast<uint32_t>(from.kv_blocks_peak));
  to->set_kv_block_count(static_cast<uint32_t>(from.kv_block_count));
  to->set_kv_blocks_reused(from.kv_blocks_reused);
  to->set_matmul_ns(from.matmul_ns);
  to->set_attention_ns(from.attention_ns);
  to->set_exchange_ns(from.exchange_ns);
  to->set_barrier_ns(from.barrier_ns);
  to->set_sample_ns(from.sample_ns);
  to->set_weight_bytes(from.weight_bytes);
  to->set_threads(static_cast<uint32_t>(from.threads));
  for (const LayerUse& layer : from.expert_use) {
    auto* own = to->add_expert_use();
    own->mutable_choices()->Add(layer.choices.begin(), layer.choices.end());
    for (const int32_t owner : layer.owners) own->add_owners(static_cast<uint32_t>(owner));
  }
}

void put(const PlacementRequest&, wire::Envelope& out) {
  out.mutable_placement_request();
}

void put(const PlacementReply& from, wire::Envelope& out) {
  auto* to = out.mutable_placement_reply();
  to->set_rank(static_cast<uint32_t>(from.rank));
  to->set_os_node(from.os_node);
  to->set_page_bytes(from.page_bytes);
  to->set_huge_bytes(from.huge_bytes);
  to->set_source(text(from.source));
  for (const PlacementClass& own : from.classes) {
    auto* entry = to->add_classes();
    entry->set_name(text(own.name));
    entry->set_bytes(own.bytes);
    copy_to(own.bytes_on_node, entry->mutable_bytes_on_node());
    entry->set_bytes_absent(own.bytes_absent);
    entry->set_bytes_asked(own.bytes_asked);
  }
}

}  // namespace

void to_wire(const Body& body, wire::Envelope& out) {
  std::visit([&](const auto& message) { put(message, out); }, body);
}

}  // namespace proto
