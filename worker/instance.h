// The directory of one running `numoe serve`: how its broker and its workers know of each other
// beyond the life of either.
//
//   <arena directory>/serve-<key>.<n>/   locked by the broker while it lives
//     plan                               which start of the workers, with what; by the broker
//     worker.<rank>                      locked by that rank while it lives; its pid
//
// Workers stay when their broker is killed: they look whether somebody holds the directory, and go
// if nobody comes. Whoever goes last removes it. Locks are flocks: the kernel lets go when a
// process ends for whatever reason. Thread rule: one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "shm/file.h"

namespace worker {

inline constexpr std::string_view kInstancePlan = "plan";  // the file of that name
/// Its first line begins so: which start of the workers it is about. A blank and the name of the
/// broker follow.
std::string instance_head(uint64_t incarnation, std::string_view group_id);

enum class Patience { kNone, kMoment };
/// Opens and locks a directory that still has this name; a closed file if that cannot be now. A
/// moment of patience, because others lock it for as long as a look takes.
shm::File lock_instance(const std::string& directory, Patience patience);

/// A rank that holds its lifeline.
struct InstanceHolder {
  int rank = 0;
  pid_t pid = 0;
};
/// The ranks that live, by rank.
std::vector<InstanceHolder> instance_holders(const std::string& directory);
/// Whether that rank still lives. Asked after the pid was pinned (pidfd), this proves whose it is.
bool is_held(const std::string& directory, const InstanceHolder& holder);

/// Removes the directory and the one of its sockets. REQUIRES: it is locked by the caller, and no
/// rank lives.
void remove_instance(const std::string& directory, const std::string& broker_endpoint);

/// A rank in an instance; held until leave() or the end of the process.
class InstanceMember {
 public:
  /// Takes the place of one of the same rank that has died. Errors: kSystem, kNotFound.
  static base::Result<InstanceMember> join(const std::string& directory, int rank);

  /// Whether somebody holds the directory. A few system calls.
  bool has_broker() const;
  /// The first line of the plan; empty if there is none.
  std::string head() const;
  /// Lets go. The last one of a directory that no broker holds removes it.
  void leave(const std::string& broker_endpoint);

 private:
  InstanceMember(std::string directory, int rank, shm::File directory_file, shm::File lifeline)
      : directory_(std::move(directory)),
        rank_(rank),
        directory_file_(std::move(directory_file)),
        lifeline_(std::move(lifeline)) {}

  std::string directory_;
  int rank_;
  shm::File directory_file_, lifeline_;
};

}  // namespace worker
