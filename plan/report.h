// A plan for people: the candidates as a table, the choice and why, what each node holds, and what
// was measured, given or assumed. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "plan/planner.h"

namespace plan {

struct ReportOf {
  const model::Model& model;
  const Machine& machine;
  const Request& request;
  const std::vector<Candidate>& candidates;
};

/// Everything.
std::string report(const ReportOf& of, const Choice& choice);

/// Only what was chosen, in some lines, for a program that goes on to do it.
std::string choice_report(const ReportOf& of, const Choice& choice);

/// "measured", "given", "assumed"
const char* origin_name(Origin origin);

}  // namespace plan
