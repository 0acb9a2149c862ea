// Any bytes as a frame of the exchange: refused with a sentence, or one whose header and payload
// are exactly the bytes.
#include "proto/exchange_frame.h"

#include "tests/fuzz/bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Bytes bytes(data, size);
  const uint8_t flags = bytes.byte();
  const proto::FrameStamp expected = {
      .sender = bytes.byte(), .nonce = {{bytes.number<uint16_t>(), bytes.number<uint16_t>()}}};
  std::string frame(bytes.rest());
  if (frame.size() >= sizeof(proto::FrameHeader) && (flags & 1) != 0) {
    // As a peer of this group writes it, but for kind, sequence and one further field.
    proto::FrameHeader sent, header;
    std::memcpy(&sent, frame.data(), sizeof sent);
    header = proto::make_header(expected, static_cast<proto::FrameKind>(sent.kind), sent.sequence,
                                frame.size() - sizeof sent);
    if ((flags & 2) != 0) header.payload_bytes = sent.payload_bytes;
    if ((flags & 4) != 0) header.nonce = sent.nonce;
    if ((flags & 8) != 0) header.reserved_end = sent.reserved_end;
    std::memcpy(frame.data(), &header, sizeof header);
  }
  const std::span received = std::as_bytes(std::span(frame));
  const auto checked = proto::check_frame(received, expected);
  if (!checked.ok()) {
    CHECK(!checked.error().message.empty(), "an error without a sentence");
    return 0;
  }
  CHECK(checked->payload.size() == frame.size() - sizeof(proto::FrameHeader), "a part is missing");
  const proto::FrameHeader again =
      proto::make_header(expected, checked->kind, checked->sequence, checked->payload.size());
  CHECK(std::memcmp(&again, frame.data(), sizeof again) == 0, "a header with more in it");
  CHECK(proto::frame_kind_name(checked->kind) != std::string("?"), "a kind without a name");
  return 0;
}
