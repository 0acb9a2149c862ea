// A machine profile as JSON and back: what `numoe probe --json` prints and `--save` keeps.
//
// docs/probe.md describes every field. One table of fields serves both directions. The seam to
// Boost.JSON. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "shm/machine_profile.h"

namespace cli {

/// One object on one line, without a newline.
std::string profile_to_json(const shm::MachineProfile& profile);

/// Errors: kBrokenFile naming the field that is missing, of another type or impossible;
/// kUnsupported for another version of the profile. Unknown fields are passed over.
base::Result<shm::MachineProfile> profile_from_json(std::string_view text);

}  // namespace cli
