#include "base/exchange.h"

namespace base {

const char* wait_name(Wait wait) {
  switch (wait) {
    case Wait::kOk: return "ok";
    case Wait::kAborted: return "aborted";
    case Wait::kPeerLost: return "peer lost";
    case Wait::kTimeout: return "timeout";
    case Wait::kBroken: return "broken";
  }
  return "?";
}

}  // namespace base
