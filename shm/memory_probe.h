// Proof that two processes map the same memory: a nonce that one writes and the other reads.
//
// A path alone proves nothing: containers of one host have a /dev/shm each, under one name. Thread
// rule: one thread.
#pragma once

#include <string>

#include "base/result.h"
#include "shm/region.h"

namespace shm {

/// A small file with a fresh nonce, as long as this object lives.
class MemoryProbe {
 public:
  /// In `directory`, absolute. Errors: kNoSpace, kUnavailable if the name is taken.
  static base::Result<MemoryProbe> show(const std::string& directory, const std::string& name);
  MemoryProbe(MemoryProbe&& other) noexcept;
  MemoryProbe& operator=(MemoryProbe&&) = delete;
  ~MemoryProbe();

  /// For the others: nonce and path, as text.
  const std::string& offer() const { return offer_; }

  /// Whether this process maps what was offered. `offer` may be anything, by anybody.
  static bool sees(const std::string& offer);
  /// The directory of an offer; empty if it has none.
  static std::string directory_of(const std::string& offer);

 private:
  MemoryProbe(Region region, std::string offer)
      : region_(std::move(region)), offer_(std::move(offer)) {}

  Region region_;
  std::string offer_;  // empty if moved from
};

}  // namespace shm
