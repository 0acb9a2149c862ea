// Counts heap allocations of the whole test program, by replacing the global operator new.
//
// Link allocations.cc into a test that must show that something allocates nothing. Any thread.
#pragma once

#include <cstdint>

namespace engine {

/// Allocations so far, of all threads.
int64_t allocation_count();

}  // namespace engine
