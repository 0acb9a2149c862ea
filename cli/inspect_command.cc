#include "cli/commands.h"
#include "kernels/ops.h"
#include "model/inspect.h"
#include "model/model.h"

namespace cli {

base::Status inspect(Context& context) {
  ASSIGN_OR_RETURN(const model::Model model, model::load_model(context.options.model));
  ASSIGN_OR_RETURN(const kernels::Ops* const ops, kernels::find_ops("auto"));
  const model::InspectOptions options{.has_fast_path = [ops](kernels::TensorType type) {
    return kernels::layout_for(type, *ops) != kernels::Layout::kRows;
  }};
  return print(context.options.json ? model::inspect_json(model, options) + "\n"
                                    : model::inspect_report(model, options));
}

}  // namespace cli
