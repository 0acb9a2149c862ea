#include "cli/commands.h"
#include "model/inspect.h"
#include "model/model.h"

namespace cli {

base::Status inspect(Context& context) {
  ASSIGN_OR_RETURN(const model::Model model, model::load_model(context.options.model));
  return print(context.options.json ? model::inspect_json(model) + "\n"
                                    : model::inspect_report(model));
}

}  // namespace cli
