// Pins the calling thread to one CPU.
#pragma once

#include "base/result.h"

namespace shm {

/// From here on the thread runs on OS CPU `cpu` only. Error: kInvalidArgument when the CPU does not
/// exist or is not allowed; the thread then runs where it did.
base::Result<void> pin_thread(int cpu);

/// The CPU the thread runs on now; -1 if the system does not say.
int current_cpu();

}  // namespace shm
