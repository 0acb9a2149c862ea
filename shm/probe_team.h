// Threads that start together on chosen CPUs, for measuring. Thread rule: one caller; the work is
// run by many.
#pragma once

#include <functional>
#include <span>

#include "base/result.h"

namespace shm {

/// Runs work(i) on a thread of its own pinned to cpus[i], for every i; none begins before all are
/// pinned. Returns when all have returned. Errors, then no work was run: kInvalidArgument for a CPU
/// that is not allowed, kUnavailable when the system gives no more threads.
base::Status run_pinned(std::span<const int> cpus, const std::function<void(size_t)>& work);

}  // namespace shm
