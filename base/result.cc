#include "base/result.h"

namespace base {

const char* code_name(Code code) {
  switch (code) {
    case Code::kInvalidArgument: return "invalid_argument";
    case Code::kBrokenFile: return "broken_file";
    case Code::kUnsupported: return "unsupported";
    case Code::kNotFound: return "not_found";
    case Code::kUnavailable: return "unavailable";
    case Code::kNoSpace: return "no_space";
    case Code::kPeerLost: return "peer_lost";
    case Code::kTimeout: return "timeout";
    case Code::kCancelled: return "cancelled";
    case Code::kSystem: return "system";
  }
  return "unknown";
}

}  // namespace base
