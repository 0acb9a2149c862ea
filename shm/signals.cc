#include "shm/signals.h"

namespace shm {

base::Wait GroupSignals::state() const {
  // Acquire pairs with the exchange in raise(): who sees the end also sees what led to it.
  const uint32_t value = word_->value.load(std::memory_order_acquire);
  if (value == 0) [[likely]]
    return base::Wait::kOk;
  return value >= kLost ? base::Wait::kPeerLost : base::Wait::kAborted;
}

base::Wait GroupSignals::examine() const {
  if (peers_ != nullptr && state() == base::Wait::kOk) {
    const int rank = peers_->lost_rank();
    if (rank >= 0) raise(kLost + static_cast<uint32_t>(rank));
  }
  return state();
}

int GroupSignals::lost_rank() const {
  const uint32_t value = word_->value.load(std::memory_order_acquire);
  return value >= kLost ? static_cast<int>(value - kLost) : -1;
}

void GroupSignals::raise(uint32_t reason) const {
  uint32_t none = 0;
  word_->value.compare_exchange_strong(none, reason, std::memory_order_seq_cst);
}

}  // namespace shm
