// The seam to protobuf: plain messages to generated ones and back, checked.
//
// Private to proto/; the generated header is included here and nowhere else.
#pragma once

#include <google/protobuf/stubs/logging.h>

#include "base/result.h"
#include "proto/messages.h"
#include "proto/numoe.pb.h"

namespace proto {

/// Puts `body` into the envelope's oneof.
void to_wire(const Body& body, wire::Envelope& out);

/// Errors: kInvalidArgument naming message and field. Raw frames are not looked at.
base::Result<Body> from_wire(const wire::Envelope& in);

}  // namespace proto
