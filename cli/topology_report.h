// A machine, what is allowed of it, and where ranks go, for people and as JSON.
//
// Pure functions. Any thread.
#pragma once

#include <string>

#include "cli/place.h"

namespace cli {

/// A picture: packages, nodes, last-level caches, cores with their CPUs; then distances, limits,
/// and a table of ranks. Lines of at most 100 columns.
std::string topology_text(const Machine& machine, const shm::Placement& placement);

/// The same as one JSON object without line breaks.
std::string topology_json(const Machine& machine, const shm::Placement& placement);

}  // namespace cli
