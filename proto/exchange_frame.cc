#include "proto/exchange_frame.h"

#include <cstring>

#include "base/cat.h"

namespace proto {

const char* frame_kind_name(FrameKind kind) {
  switch (kind) {
    case FrameKind::kHello: return "hello";
    case FrameKind::kVote: return "vote";
    case FrameKind::kSlice: return "slice";
    case FrameKind::kRecord: return "record";
    case FrameKind::kRead: return "read";
    case FrameKind::kAbort: return "abort";
  }
  return "?";
}

FrameHeader make_header(const FrameStamp& stamp, FrameKind kind, uint64_t sequence,
                        size_t payload_bytes) {
  FrameHeader header = {};
  std::memcpy(header.magic, kFrameMagic, sizeof kFrameMagic);
  header.version = kFrameVersion;
  header.kind = static_cast<uint32_t>(kind);
  header.sender = static_cast<uint32_t>(stamp.sender);
  header.nonce = stamp.nonce;
  header.sequence = sequence;
  header.payload_bytes = payload_bytes;
  return header;
}

base::Result<Frame> check_frame(std::span<const std::byte> bytes, const FrameStamp& expected) {
  const auto refuse = [&](const auto&... what) {
    return base::Error{base::Code::kUnsupported,
                       base::cat("rank ", expected.sender, " sent ", what...)};
  };
  FrameHeader header;
  if (bytes.size() < sizeof header) {
    return refuse("a frame of ", bytes.size(), " bytes, which has no header");
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kFrameMagic, sizeof kFrameMagic) != 0) {
    return refuse("a frame that is none of the exchange");
  }
  if (header.version != kFrameVersion) {
    return refuse("a frame of version ", header.version, ", this program knows ", kFrameVersion);
  }
  if (header.kind < static_cast<uint32_t>(FrameKind::kHello) ||
      header.kind > static_cast<uint32_t>(FrameKind::kAbort)) {
    return refuse("a frame of the unknown kind ", header.kind);
  }
  if (header.sender != static_cast<uint32_t>(expected.sender)) {
    return refuse("a frame in the name of rank ", header.sender);
  }
  if (header.nonce != expected.nonce) return refuse("a frame of another group");
  if (header.reserved != 0 || header.reserved_end != 0) {
    return refuse("a frame with unknown fields");
  }
  const std::span<const std::byte> payload = bytes.subspan(sizeof header);
  if (header.payload_bytes != payload.size()) {
    return refuse("a frame that announces ", header.payload_bytes, " bytes and has ",
                  payload.size());
  }
  return Frame{static_cast<FrameKind>(header.kind), header.sequence, payload};
}

}  // namespace proto
