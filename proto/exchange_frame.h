// The frames that ranks send each other over ZeroMQ: a header of 64 bytes, then the payload, in one
// raw frame. See docs/wire-format.md for a picture.
//
// A frame comes from another process: check_frame() looks at every field of the header before a
// byte of the payload is used. Everything is little-endian and trivially copyable; a change of any
// size, offset or meaning bumps kFrameVersion. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/result.h"

namespace proto {

inline constexpr char kFrameMagic[8] = {'N', 'U', 'M', 'O', 'E', 'X', 'C', 'Z'};
inline constexpr uint32_t kFrameVersion = 1;

enum class FrameKind : uint32_t {
  kHello = 1,   // who I am and what I expect; before the nonce is known
  kVote = 2,    // whose memory I see, 64 bits
  kSlice = 3,   // of gather `sequence`
  kRecord = 4,  // step record `sequence`, from rank 0
  kRead = 5,    // record `sequence` has been read, to rank 0
  kAbort = 6,   // the group ends
};

/// "slice", "record", …
const char* frame_kind_name(FrameKind kind);

/// Tells one group from another; made of random bits of all its ranks.
struct FrameNonce {
  uint64_t words[2] = {};
  bool operator==(const FrameNonce&) const = default;
};

struct FrameHeader {
  char magic[8];
  uint32_t version;
  uint32_t kind;    // FrameKind
  uint32_t sender;  // rank
  uint32_t reserved;
  FrameNonce nonce;  // zero in a hello
  uint64_t sequence;
  uint64_t payload_bytes;
  uint64_t reserved_end;
};
static_assert(std::is_trivially_copyable_v<FrameHeader> && sizeof(FrameHeader) == 64);
static_assert(offsetof(FrameHeader, nonce) == 24 && offsetof(FrameHeader, sequence) == 40);

/// What a header says, and where the payload lies.
struct Frame {
  FrameKind kind = FrameKind::kAbort;
  uint64_t sequence = 0;
  std::span<const std::byte> payload;
};

struct FrameStamp {
  int sender = 0;
  FrameNonce nonce = {};
};

FrameHeader make_header(const FrameStamp& stamp, FrameKind kind, uint64_t sequence,
                        size_t payload_bytes);

/// The frame in `bytes` if its header is what this sender may send; the payload is not looked at.
/// Errors: kUnsupported with a sentence about the first field that is wrong.
base::Result<Frame> check_frame(std::span<const std::byte> bytes, const FrameStamp& expected);

}  // namespace proto
