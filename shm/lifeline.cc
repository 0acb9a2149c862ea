#include "shm/lifeline.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>

#include "base/cat.h"

namespace shm {

base::Result<Lifeline> Lifeline::hold(const std::string& path) {
  const auto [high, low] = random_128();
  const std::string unnamed = base::cat(path, ".new-", high ^ low);
  ASSIGN_OR_RETURN(File file, open_file(unnamed, O_RDWR | O_CREAT | O_EXCL));
  const bool locked = try_lock(file, Lock::kExclusive);
  // RENAME_NOREPLACE: two ranks that were given the same number must not both believe they hold it.
  if (!locked ||
      renameat2(AT_FDCWD, unnamed.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0) {
    const int error_number = locked ? errno : EAGAIN;
    unlink(unnamed.c_str());
    return system_error("cannot hold the lifeline", path, error_number);
  }
  return Lifeline(std::move(file));
}

base::Result<void> PeerWatch::add(int rank, const std::string& path) {
  ASSIGN_OR_RETURN(File file, open_file(path, O_RDONLY));
  peers_.push_back({rank, std::move(file)});
  return {};
}

int PeerWatch::lost_rank() const {
  for (const Peer& peer : peers_) {
    if (try_lock(peer.file, Lock::kShared)) {
      unlock(peer.file);
      return peer.rank;
    }
  }
  return -1;
}

}  // namespace shm
