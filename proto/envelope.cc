#include "proto/envelope.h"

#include <bit>
#include <cstring>
#include <iterator>

#include "base/cat.h"
#include "base/check.h"
#include "proto/codec.h"

// Raw frames are little-endian floats, as memory is on every machine that this program runs on.
static_assert(std::endian::native == std::endian::little);

namespace proto {

namespace {

base::Error bad(std::string sentence) {
  return {base::Code::kInvalidArgument, std::move(sentence)};
}

base::Status check_frames(const wire::Envelope& envelope, const Message& message) {
  const size_t raw_count = message.frames.size() - 1;
  if (static_cast<size_t>(envelope.raw_bytes_size()) != raw_count)
    return bad(base::cat("an envelope announces ", envelope.raw_bytes_size(), " raw frames, ",
                         raw_count, " came"));
  for (size_t i = 0; i < raw_count; i++) {
    const uint64_t announced = envelope.raw_bytes(static_cast<int>(i));
    if (message.frames[i + 1].size() != announced)
      return bad(base::cat("raw frame ", i, " has ", message.frames[i + 1].size(), " bytes, ",
                           announced, " were announced"));
  }
  return {};
}

base::Status attach_frames(const Message& message, Body& body) {
  const size_t raw_count = message.frames.size() - 1;
  auto* score = std::get_if<ScoreChunk>(&body);
  if (raw_count == 0) return {};
  if (score == nullptr || raw_count > 1)
    return bad(base::cat("a message came with ", raw_count, " raw frames that it must not have"));
  const std::string& frame = message.frames[1];
  if (frame.size() % sizeof(float) != 0)
    return bad(base::cat("ScoreChunk: ", frame.size(), " bytes of logits are no whole float32s"));
  score->last_logits.resize(frame.size() / sizeof(float));
  std::memcpy(score->last_logits.data(), frame.data(), frame.size());
  return {};
}

}  // namespace

Message encode(const Envelope& envelope) {
  const Header& header = envelope.header;
  CHECK(!header.node_id.empty() && header.node_id.size() <= kNodeIdBytesMax, "node id");
  wire::Envelope out;
  out.set_wire_major(kWireMajor);
  out.set_wire_minor(kWireMinor);
  out.set_node_id(header.node_id);
  out.set_incarnation(header.incarnation);
  out.set_plan_epoch(header.plan_epoch);
  out.set_trace_id(header.trace_id);
  out.set_sequence(header.sequence);
  to_wire(envelope.body, out);
  Message message;
  message.frames.emplace_back();
  if (const auto* score = std::get_if<ScoreChunk>(&envelope.body);
      score != nullptr && !score->last_logits.empty()) {
    const size_t bytes = score->last_logits.size() * sizeof(float);
    out.add_raw_bytes(bytes);
    message.frames.emplace_back(bytes, '\0');
    std::memcpy(message.frames.back().data(), score->last_logits.data(), bytes);
  }
  CHECK(out.SerializeToString(&message.frames.front()), "an envelope that cannot be serialised");
  return message;
}

base::Result<Envelope> parse(const Message& message) {
  if (message.frames.empty() || message.frames.size() > kFramesMax)
    return bad(base::cat("a message of ", message.frames.size(), " frames"));
  if (message.frames.front().size() > kMessageBytesMax)
    return bad(base::cat("an envelope of ", message.frames.front().size(), " bytes"));
  // What a peer sent is an error value, not a line on our stderr.
  const google::protobuf::LogSilencer silencer;
  wire::Envelope in;
  const bool readable = in.ParseFromString(message.frames.front());
  // Even if the rest cannot be read: fields 1 and 2 come first and keep their place in every
  // version.
  if (in.wire_major() != 0 && in.wire_major() != kWireMajor)
    return base::Error{base::Code::kUnsupported,
                       base::cat("the peer speaks wire version ", in.wire_major(), ".",
                                 in.wire_minor(), ", this program ", kWireMajor, ".", kWireMinor,
                                 "; run the same numoe on every host")};
  if (!readable || in.wire_major() == 0) return bad("bytes that are no envelope");
  if (in.node_id().empty() || in.node_id().size() > kNodeIdBytesMax)
    return bad(base::cat("a node id of ", in.node_id().size(), " bytes, 1 … ", kNodeIdBytesMax,
                         " are allowed"));
  if (in.trace_id().size() > kTextBytesMax) return bad("a trace id that is too long");
  RETURN_IF_ERROR(check_frames(in, message));
  ASSIGN_OR_RETURN(Body body, from_wire(in));
  RETURN_IF_ERROR(attach_frames(message, body));
  Header header{in.node_id(), in.incarnation(), in.plan_epoch(), in.trace_id(), in.sequence()};
  return Envelope{std::move(header), std::move(body)};
}

std::optional<Envelope> refuse_request(const Message& message, const base::Error& why) {
  if (message.frames.empty() || message.frames.front().size() > kMessageBytesMax)
    return std::nullopt;
  const google::protobuf::LogSilencer silencer;
  wire::Envelope in;
  if (!in.ParseFromString(message.frames.front()) || in.wire_major() != kWireMajor ||
      in.trace_id().size() > kTextBytesMax)
    return std::nullopt;
  Envelope out{.header = {.plan_epoch = in.plan_epoch(), .trace_id = in.trace_id()}};
  if (in.has_generate_request() && in.generate_request().request_id() != 0) {
    out.body = TokenChunk{.request_id = in.generate_request().request_id(),
                          .index = in.generate_request().first_index(),
                          .finish = Finish::kError,
                          .error = why};
    return out;
  }
  if (in.has_score_request() && in.score_request().request_id() != 0) {
    out.body = ScoreChunk{
        .request_id = in.score_request().request_id(), .finish = Finish::kError, .error = why};
    return out;
  }
  return std::nullopt;
}

std::string peer_name(std::string_view node_id, uint64_t incarnation) {
  return base::cat(node_id, "#", incarnation);
}

const char* finish_name(Finish finish) {
  switch (finish) {
    case Finish::kNone: return "none";
    case Finish::kStop: return "stop";
    case Finish::kLength: return "length";
    case Finish::kCancelled: return "cancelled";
    case Finish::kError: return "error";
  }
  return "?";
}

}  // namespace proto
