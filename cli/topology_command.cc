#include "cli/commands.h"
#include "cli/topology_report.h"

namespace cli {

base::Status topology(Context& context) {
  const Options& options = context.options;
  ASSIGN_OR_RETURN(const Machine machine, read_machine(options.topology));
  ASSIGN_OR_RETURN(const shm::Placement placement, place_ranks(machine, place_options(options)));
  return print(options.json ? topology_json(machine, placement) + "\n"
                            : topology_text(machine, placement));
}

}  // namespace cli
