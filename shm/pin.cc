#include "shm/pin.h"

#include <sched.h>

#include <cerrno>
#include <system_error>

#include "base/cat.h"

namespace shm {

base::Result<void> pin_thread(int cpu) {
  constexpr int kCpusMax = 4096;  // cpu_set_t alone stops at 1024
  if (cpu < 0 || cpu >= kCpusMax) {
    return base::Error{base::Code::kInvalidArgument, base::cat("there is no CPU ", cpu)};
  }
  cpu_set_t set[kCpusMax / CPU_SETSIZE];
  CPU_ZERO_S(sizeof set, set);
  CPU_SET_S(static_cast<size_t>(cpu), sizeof set, set);
  if (sched_setaffinity(0, sizeof set, set) != 0) {
    return base::Error{
        base::Code::kInvalidArgument,
        base::cat("cannot pin a thread to CPU ", cpu, ": ", std::generic_category().message(errno),
                  "; see Cpus_allowed_list in /proc/self/status")};
  }
  return {};
}

int current_cpu() {
  return sched_getcpu();
}

}  // namespace shm
