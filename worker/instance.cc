#include "worker/instance.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>

#include "base/cat.h"
#include "base/limits.h"
#include "proto/zmq_channel.h"

namespace worker {

namespace {

constexpr std::string_view kLifeline = "worker.";
constexpr int kLockAttempts = 50;

std::string lifeline_path(const std::string& directory, int rank) {
  return base::cat(directory, "/", kLifeline, rank);
}

/// Nothing unless all of `text` is a number from 0 on.
std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

bool is_locked(const shm::File& file) {
  if (!shm::try_lock(file, shm::Lock::kShared)) return true;
  shm::unlock(file);
  return false;
}

}  // namespace

std::string instance_head(uint64_t incarnation, std::string_view group_id) {
  return base::cat(incarnation, " ", group_id);
}

shm::File lock_instance(const std::string& directory, Patience patience) {
  const int attempts = patience == Patience::kNone ? 1 : kLockAttempts;
  for (int attempt = 0; attempt < attempts; attempt++) {
    auto file = shm::open_file(directory, O_RDONLY | O_DIRECTORY);
    if (!file.ok()) return {};
    if (shm::try_lock(*file, shm::Lock::kExclusive))
      return shm::is_named(*file, directory) ? std::move(*file) : shm::File();
    const timespec millisecond{.tv_sec = 0, .tv_nsec = 1'000'000};
    nanosleep(&millisecond, nullptr);
  }
  return {};
}

std::vector<InstanceHolder> instance_holders(const std::string& directory) {
  std::vector<InstanceHolder> holders;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kLifeline)) continue;
    const auto rank = number(std::string_view(name).substr(kLifeline.size()));
    if (!rank || *rank >= base::kRanksMax) continue;
    const auto file = shm::open_file(entry.path(), O_RDONLY);
    if (!file.ok() || !is_locked(*file)) continue;
    char digits[16];
    const ssize_t count = pread(file->fd(), digits, sizeof digits, 0);
    const auto pid = number({digits, static_cast<size_t>(std::max<ssize_t>(count, 0))});
    if (pid && *pid > 0) holders.push_back({*rank, *pid});
  }
  std::sort(holders.begin(), holders.end(),
            [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return holders;
}

bool is_held(const std::string& directory, const InstanceHolder& holder) {
  const std::vector<InstanceHolder> holders = instance_holders(directory);
  return std::any_of(holders.begin(), holders.end(), [&](const InstanceHolder& found) {
    return found.rank == holder.rank && found.pid == holder.pid;
  });
}

void remove_instance(const std::string& directory, const std::string& broker_endpoint) {
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  if (!proto::check_ipc_endpoint(broker_endpoint).ok()) return;
  // Ranks that were killed while they met left sockets beside the broker's.
  const auto sockets =
      std::filesystem::path(broker_endpoint.substr(proto::kIpc.size())).parent_path();
  if (sockets.filename().string().starts_with("serve-"))
    std::filesystem::remove_all(sockets, ignored);
}

base::Result<InstanceMember> InstanceMember::join(const std::string& directory, int rank) {
  ASSIGN_OR_RETURN(shm::File directory_file, shm::open_file(directory, O_RDONLY | O_DIRECTORY));
  const std::string path = lifeline_path(directory, rank);
  const std::string unnamed = base::cat(path, ".new");
  unlink(unnamed.c_str());
  ASSIGN_OR_RETURN(shm::File file, shm::open_file(unnamed, O_RDWR | O_CREAT | O_EXCL));
  const std::string pid = base::cat(getpid());
  // Locked and complete before it has its name: whoever finds it sees either all of it or a death.
  if (!shm::try_lock(file, shm::Lock::kExclusive) ||
      write(file.fd(), pid.data(), pid.size()) != static_cast<ssize_t>(pid.size()) ||
      rename(unnamed.c_str(), path.c_str()) != 0) {
    const int error_number = errno;
    unlink(unnamed.c_str());
    return shm::system_error("cannot hold the lifeline", path, error_number);
  }
  return InstanceMember(directory, rank, std::move(directory_file), std::move(file));
}

bool InstanceMember::has_broker() const {
  return is_locked(directory_file_);
}

std::string InstanceMember::head() const {
  const auto plan = shm::read_text(base::cat(directory_, "/", kInstancePlan));
  return plan.ok() ? plan->substr(0, plan->find('\n')) : std::string();
}

void InstanceMember::leave(const std::string& broker_endpoint) {
  const std::string path = lifeline_path(directory_, rank_);
  if (shm::is_named(lifeline_, path)) unlink(path.c_str());
  lifeline_ = shm::File();
  if (has_broker()) return;  // it will do it
  directory_file_ = shm::File();
  // Everybody lets go before looking, so the last one sees nobody.
  const shm::File lock = lock_instance(directory_, Patience::kMoment);
  if (lock.is_open() && instance_holders(directory_).empty())
    remove_instance(directory_, broker_endpoint);
}

}  // namespace worker
