// Sleeping on and waking a 32-bit word in shared memory, across processes.
//
// std::atomic::wait is private to a process, so ranks cannot use it. Every wait here is bounded:
// callers loop, look at their abort word and peers, and come again. Any thread; allocates nothing.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace shm {

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4,
              "a futex word is a plain 32-bit integer");

/// Sleeps while `word` holds `expected`, for at most `timeout_ns`. May return early for no reason:
/// the caller looks at the word again. Orders nothing; the caller's loads do.
void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, base::TimeNs timeout_ns);

/// The same until `deadline` of the steady clock.
void futex_wait_until(const std::atomic<uint32_t>& word, uint32_t expected, base::TimeNs deadline);

/// Wakes everyone who sleeps on `word`; returns how many.
int futex_wake_all(const std::atomic<uint32_t>& word);

/// Tells the core that this is a spin loop.
inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace shm
