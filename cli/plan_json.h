// A plan for programs: `numoe plan --json`. docs/planning.md lists the fields. Any thread.
#pragma once

#include <string>

#include "plan/report.h"

namespace cli {

/// One object on one line, without a newline.
std::string plan_json(const plan::ReportOf& of, const plan::Choice& choice);

}  // namespace cli
