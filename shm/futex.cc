#include "shm/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace shm {

namespace {

timespec to_timespec(base::TimeNs ns) {
  constexpr base::TimeNs kSecond = 1'000'000'000;
  ns = std::max<base::TimeNs>(ns, 0);
  return {.tv_sec = static_cast<time_t>(ns / kSecond), .tv_nsec = static_cast<long>(ns % kSecond)};
}

}  // namespace

// Not FUTEX_PRIVATE_FLAG: the word is found by its page, so that other processes see the sleeper.
void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, base::TimeNs timeout_ns) {
  const timespec timeout = to_timespec(timeout_ns);
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

// FUTEX_WAIT_BITSET takes an absolute time of CLOCK_MONOTONIC, which is what the steady clock
// reads.
void futex_wait_until(const std::atomic<uint32_t>& word, uint32_t expected, base::TimeNs deadline) {
  const timespec timeout = to_timespec(deadline);
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, expected, &timeout, nullptr, FUTEX_BITSET_MATCH_ANY);
}

int futex_wake_all(const std::atomic<uint32_t>& word) {
  const long woken = syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  return woken < 0 ? 0 : static_cast<int>(woken);
}

}  // namespace shm
