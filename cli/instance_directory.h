// The directory of one running `numoe serve`, from the side of its broker; worker/instance.h draws
// it.
//
// It is found again by a later server of the same model and options, together with workers that
// outlived the one before. Locked while this object lives; removing it, with its sockets, is the
// destructor's work. Thread rule: one thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "shm/file.h"

namespace cli {

class InstanceDirectory {
 public:
  struct Options {
    std::string parent;       // arena directory of this user
    std::string runtime;      // XDG_RUNTIME_DIR or empty: sockets lie below it
    std::string fingerprint;  // of what is served: its hash is the key
  };
  /// The first of this fingerprint that no broker holds, made if need be. Others that nobody holds
  /// are removed. Errors: kSystem.
  static base::Result<InstanceDirectory> take(const Options& options);
  InstanceDirectory(InstanceDirectory&& other) noexcept;
  InstanceDirectory& operator=(InstanceDirectory&&) = delete;
  ~InstanceDirectory();

  const std::string& path() const { return path_; }
  /// Of the broker: the same for every broker that takes this directory.
  const std::string& endpoint() const { return endpoint_; }

  /// What the workers were started with, as the broker before this one wrote it; may be empty.
  std::string plan() const;
  /// Replaces it at once, and shows workers that there is another broker.
  base::Status write_plan(std::string_view text);
  /// Makes the directory again if somebody has removed it. Errors: kUnavailable if another server
  /// has taken its name; kSystem. REQUIRES: no worker lives; its parent is there.
  base::Status restore();
  /// Removes what a group that is gone left, but for its caches. REQUIRES: no worker lives.
  void clean();

 private:
  InstanceDirectory(std::string path, std::string endpoint, shm::File lock)
      : path_(std::move(path)), endpoint_(std::move(endpoint)), lock_(std::move(lock)) {}

  std::string path_;  // empty if moved from
  std::string endpoint_;
  shm::File lock_;
};

}  // namespace cli
