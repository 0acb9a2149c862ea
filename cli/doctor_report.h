// The findings of `numoe doctor` as text and JSON. Pure functions apart from check_up_here(). Any
// thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options.h"
#include "shm/checkup.h"

namespace cli {

/// What is found on this machine with the options' arena directory. Error: no topology.
base::Result<std::vector<shm::Finding>> check_up_here(const Options& options);

/// What `serve` says about this machine when it starts; nothing if it cannot be looked at.
std::vector<std::string> start_warnings_here(const Options& options);

/// Worst first, each with why and cure on lines of their own.
std::string findings_text(const std::vector<shm::Finding>& findings);

/// One object on one line: counts by level, and all findings.
std::string findings_json(const std::vector<shm::Finding>& findings);

int count_of(const std::vector<shm::Finding>& findings, shm::Level level);

}  // namespace cli
