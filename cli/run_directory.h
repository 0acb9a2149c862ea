// A directory that goes with the process that made it, however that ends.
//
// It is locked while it exists. Removing it is the destructor's work; what a killed process left is
// removed by the next one that makes a directory in the same place. Thread rule: one thread.
#pragma once

#include <string>

#include "base/result.h"
#include "shm/file.h"

namespace cli {

class RunDirectory {
 public:
  /// Makes run-<random> in `parent`, mode 0700, after removing what nobody holds any more.
  static base::Result<RunDirectory> create(const std::string& parent);
  /// Removes what nobody holds any more.
  static void remove_leftovers(const std::string& parent);
  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&&) = delete;
  ~RunDirectory();

  const std::string& path() const { return path_; }
  /// The random part of its name: [0-9a-f]{12}.
  std::string id() const { return path_.substr(path_.size() - 12); }

 private:
  RunDirectory(std::string path, shm::File lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;  // empty if moved from
  shm::File lock_;
};

/// Random bits from the kernel.
uint64_t random_bits();
/// [0-9a-f]{12}
std::string random_id();

}  // namespace cli
