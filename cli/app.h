// The program: options, the command, the exit code. Thread rule: the main thread.
#pragma once

#include "worker/backend.h"

namespace cli {

/// Exit code: 0, 2 for wrong usage, 128 + n after signal n, 1 for everything else.
int run_app(int argc, const char* const* argv, const worker::BackendFactory& factory);

}  // namespace cli
