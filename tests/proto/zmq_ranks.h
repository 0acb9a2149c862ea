// Groups over ZeroMQ whose ranks are threads of one process: sockets in a directory of their own.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/cat.h"
#include "proto/zmq_channel.h"
#include "proto/zmq_group.h"

namespace proto {

/// A directory for sockets that goes with this object.
class SocketDirectory {
 public:
  SocketDirectory() {
    char name[] = "/tmp/numoe-test-XXXXXX";
    CHECK(mkdtemp(name) != nullptr, "no directory in /tmp");
    path_ = name;
  }
  ~SocketDirectory() { std::filesystem::remove_all(path_); }
  SocketDirectory(const SocketDirectory&) = delete;
  SocketDirectory& operator=(const SocketDirectory&) = delete;

  const std::string& path() const { return path_; }
  bool is_empty() const { return std::filesystem::is_empty(path_); }
  std::string endpoint(int low, int high) const {
    return *ipc_endpoint(path_, base::cat(low, "-", high));
  }
  /// Of `rank` with each other.
  std::vector<std::string> endpoints(int rank, int ranks) const {
    std::vector<std::string> all;
    for (int peer = 0; peer < ranks; peer++)
      all.push_back(endpoint(std::min(rank, peer), std::max(rank, peer)));
    return all;
  }

 private:
  std::string path_;
};

/// All ranks of a group, each met by a thread of its own. `options` as of any rank.
inline base::Result<std::vector<std::unique_ptr<ZmqGroup>>> meet_in_threads(
    const SocketDirectory& directory, const ZmqGroupOptions& options, int threads_per_rank) {
  const auto ranks = static_cast<size_t>(options.ranks);
  std::vector<std::unique_ptr<ZmqGroup>> groups(ranks);
  std::vector<base::Status> ends(ranks);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks; rank++) {
    threads.emplace_back([&, rank] {
      ends[rank] = [&]() -> base::Status {
        ZmqGroupOptions own = options;
        own.rank = static_cast<int>(rank);
        own.endpoints = directory.endpoints(own.rank, own.ranks);
        ASSIGN_OR_RETURN(groups[rank], ZmqGroup::meet(own));
        return groups[rank]->start(threads_per_rank);
      }();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const base::Status& end : ends) RETURN_IF_ERROR(end);
  return groups;
}

}  // namespace proto
