#include "cli/commands.h"

namespace cli {

base::Status probe(Context&) {
  return base::Error{base::Code::kUnsupported, "not yet"};
}

}  // namespace cli
