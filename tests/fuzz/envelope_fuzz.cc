// Any frames as a message: refused with a sentence, or an envelope that survives being sent on.
#include "proto/envelope.h"
#include "tests/fuzz/bytes.h"

namespace {

/// Up to three raw frames in front, each two bytes of length and its bytes; the rest is the
/// envelope.
proto::Message message_of(fuzz::Bytes bytes) {
  proto::Message message{{""}};
  for (size_t count = bytes.below(4); count > 0; count--)
    message.frames.emplace_back(bytes.take(bytes.number<uint16_t>()));
  message.frames.front() = bytes.rest();
  return message;
}

void check_sentence(const base::Error& error) {
  CHECK(!error.message.empty(), "an error without a sentence");
}

/// What was read can be written, and is then read again as the same.
void check_round_trip(const proto::Envelope& envelope) {
  const proto::Message sent = proto::encode(envelope);
  const auto received = proto::parse(sent);
  CHECK(received.ok(), "not readable once sent on: ", received.error().message);
  CHECK(received->body.index() == envelope.body.index(), "another kind of message came back");
  CHECK(proto::encode(*received).frames == sent.frames, "sent on twice, it is not the same");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const proto::Message message = message_of({data, size});
  auto envelope = proto::parse(message);
  if (envelope.ok()) {
    check_round_trip(*envelope);
    return 0;
  }
  check_sentence(envelope.error());
  if (auto refusal = proto::refuse_request(message, envelope.error())) {
    refusal->header.node_id = "worker";
    check_round_trip(*refusal);
  }
  return 0;
}
