// An envelope: who sent a message in which incarnation and epoch, and the message itself.
//
// encode() and parse() are the only way between proto::Body and bytes. parse() trusts nothing: it
// answers with an error sentence for anything that another program could have sent wrongly.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "proto/channel.h"
#include "proto/messages.h"

namespace proto {

struct Header {
  std::string node_id = {};  // of the sender; 1 … kNodeIdBytesMax bytes
  uint64_t incarnation = 0;  // of the sender
  uint64_t plan_epoch = 0;   // 0 before the first HelloReply
  std::string trace_id = {};
  uint64_t sequence = 0;  // of the sender's messages, from 1
};

struct Envelope {
  Header header = {};
  Body body = {};
};

/// REQUIRES: the limits of messages.h hold.
Message encode(const Envelope& envelope);

/// Errors: kUnsupported (another major wire version, both named), kInvalidArgument.
base::Result<Envelope> parse(const Message& message);

/// The answer to a request that parse() refused with `why`: its last and only chunk, under the
/// epoch and trace id of the request. Nothing if the message is no request or names no id.
std::optional<Envelope> refuse_request(const Message& message, const base::Error& why);

/// The routing id of one incarnation: a restarted node never meets its own old connection.
std::string peer_name(std::string_view node_id, uint64_t incarnation);

}  // namespace proto
