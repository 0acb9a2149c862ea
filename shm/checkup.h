// What a system's settings mean for numoe, and what to do about them: one finding for each thing
// looked at, good or bad.
//
// Pure functions of the facts. Any thread.
#pragma once

#include <string>
#include <vector>

#include "shm/health_facts.h"

namespace shm {

enum class Level {
  kOk,
  kNote,     // nothing is wrong; good to know
  kWarning,  // works, but slower, or less safe, than it could
  kProblem,  // does not work
};
/// "ok", "note", "warning", "problem".
const char* level_name(Level level);

struct Finding {
  std::string id;  // [a-z_]+, never changes its meaning
  Level level = Level::kOk;
  std::string found = {};  // value and where it is from
  std::string why = {};    // one sentence on what that does; may be empty if all is well
  std::string cure = {};   // a command or what to change; empty if there is nothing to do
};

/// Everything that was looked at, in the order of a report.
std::vector<Finding> check_up(const HealthFacts& facts);

/// "FOUND: WHY; cure: CURE" of what a server says when it starts: warnings about settings that it
/// does not find out by itself while it loads.
std::vector<std::string> start_warnings(const std::vector<Finding>& findings);

// The parts of check_up(), in its order.
void check_kernel(const HealthFacts& facts, std::vector<Finding>& findings);
void check_memory(const HealthFacts& facts, std::vector<Finding>& findings);
void check_arena(const HealthFacts& facts, std::vector<Finding>& findings);
void check_limits(const HealthFacts& facts, std::vector<Finding>& findings);

}  // namespace shm
