// A machine profile for people: what the owner of a server reads, and sends when asking why it is
// slow. Plain text without names of hosts or users. Any thread.
#pragma once

#include <string>
#include <vector>

#include "shm/machine_profile.h"

namespace cli {

std::string probe_report(const shm::MachineProfile& profile);

/// Rows of cells with their columns aligned, two blanks in front and between; the first row is the
/// heading. The first column to the left, the others to the right.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace cli
