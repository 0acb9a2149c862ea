#include "cli/commands.h"
#include "cli/completion.h"

namespace cli {

base::Status completion(Context& context) {
  return print(completion_script(context.options.shell));
}

}  // namespace cli
