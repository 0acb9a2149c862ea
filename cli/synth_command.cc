#include "cli/commands.h"

namespace cli {

base::Status synth(Context&) {
  return base::Error{base::Code::kUnsupported, "not yet"};
}

}  // namespace cli
