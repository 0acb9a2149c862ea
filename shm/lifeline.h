// A lock that says "I live": held by a rank, tested by its peers, released by the kernel when the
// process ends for whatever reason.
//
// A lifeline is a flock on a small file. The holder locks the file before it gets its name, so
// whoever can open it finds it locked or finds its holder dead. Locks belong to open file
// descriptions, so holder and peers may be threads of one process; a child made by fork() after
// hold() keeps the lock alive until it execs or ends, so hold lifelines after forking.
#pragma once

#include <string>
#include <vector>

#include "base/limits.h"
#include "base/result.h"
#include "shm/file.h"

namespace shm {

/// Held as long as this object lives. One thread at a time.
class Lifeline {
 public:
  /// Creates `path` and locks it. Errors: kUnavailable if the name is taken.
  static base::Result<Lifeline> hold(const std::string& path);
  /// Lets go, as if the process had died.
  void release() { file_ = File(); }

 private:
  explicit Lifeline(File file) : file_(std::move(file)) {}
  File file_;
};

/// The lifelines of others. add() by one thread before sharing; lost_rank() by any thread.
class PeerWatch {
 public:
  /// Watches the lifeline at `path`; later removal of the name does not matter. Error: kNotFound
  /// if there is none (yet).
  base::Result<void> add(int rank, const std::string& path);

  /// The lowest watched rank whose holder is gone, or -1. Takes a system call or two per peer.
  int lost_rank() const;

 private:
  struct Peer {
    int rank;
    File file;
  };
  std::vector<Peer> peers_;  // constant once shared
};

}  // namespace shm
