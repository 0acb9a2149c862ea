// What machines that nobody measured are taken to do: stated figures, each with a sentence for the
// plan that uses it. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "plan/machine.h"

namespace plan {

/// Memory of a socket, by its cores: how many channels such processors have.
struct AssumedMemory {
  int channels = 0;
  const char* kind = "";     // "DDR5-4800"
  double gb_per_s = 0;       // that reading reaches, 80 % of the channels' peak
  double gb_per_s_core = 0;  // that one core reaches alone
};
AssumedMemory assumed_memory(int cores_of_socket);

/// From one core to all, if all together read `gb_per_s`.
std::vector<ReadPoint> assumed_read(double gb_per_s, double gb_per_s_core, int threads);

/// Kernels of one core with AVX-512, or of one with AVX2 only.
std::vector<KernelSpeed> assumed_kernels(const std::string& isa);
ThreadSpeed assumed_thread(const std::string& isa);

/// `threads` of the largest rank; ranks on one socket or on several.
MeetingSpeed assumed_meeting(int threads, int packages);

}  // namespace plan
