// Where machine profiles are kept between runs: one file a machine, named by its fingerprint.
//
// A file appears whole or not at all. What is read back was measured on this machine by this
// version, or it is an error with a sentence. Any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "shm/machine_profile.h"

namespace cli {

/// $XDG_STATE_HOME/numoe, else $HOME/.local/state/numoe. A relative path counts as none, as the
/// XDG rules say. Error: kNotFound when there is neither.
base::Result<std::string> state_directory();

/// Makes it and its parents, for its owner only, and tries to write there. Error: kSystem naming
/// the path.
base::Status make_state_directory(const std::string& directory);

/// "DIRECTORY/probe-FINGERPRINT.json"
std::string profile_path(const std::string& directory, const std::string& fingerprint);

/// Replaces the file of that machine in a directory that exists; returns its path. Errors: kSystem
/// and kNoSpace naming the path.
base::Result<std::string> save_profile(const std::string& directory,
                                       const shm::MachineProfile& profile);

/// The profile of the machine with that fingerprint. Errors: kNotFound when none was saved;
/// kBrokenFile; kUnsupported for another version; kInvalidArgument for one of another machine.
base::Result<shm::MachineProfile> load_profile(const std::string& directory,
                                               const std::string& fingerprint);

}  // namespace cli
