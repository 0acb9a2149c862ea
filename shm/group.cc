#include "shm/group.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <tuple>

#include "base/cat.h"

namespace shm {

namespace {

constexpr char kMagic[8] = {'N', 'U', 'M', 'O', 'E', 'G', 'R', 'P'};
constexpr uint32_t kVersion = 1;
constexpr size_t kBoardOffset = 16384;
constexpr char kPrefix[] = "group-";

base::TimeNs now() {
  return base::SteadyClock().now();
}

/// Between two looks at a directory while others start.
void nap() {
  const timespec millisecond = {.tv_sec = 0, .tv_nsec = 1'000'000};
  nanosleep(&millisecond, nullptr);
}

bool is_valid_id(const std::string& id) {
  if (id.empty() || id.size() > 64) return false;
  for (const char c : id) {
    const bool ok = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!ok && c != '-') return false;
  }
  return true;
}

/// Opens and locks a group's directory; not open if there is none or somebody removes it just now.
File lock_directory(const std::string& path, Lock lock) {
  auto file = open_file(path, O_RDONLY | O_DIRECTORY);
  if (!file.ok() || !try_lock(*file, lock) || !is_named(*file, path)) return File();
  return std::move(*file);
}

/// Removes the files of a group's directory, then the directory.
void remove_tree(const std::string& path) {
  if (DIR* dir = opendir(path.c_str()); dir != nullptr) {
    while (const dirent* entry = readdir(dir)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") unlink(base::cat(path, "/", name).c_str());
    }
    closedir(dir);
  }
  rmdir(path.c_str());
}

/// A region that gets its name when it is complete, so that nobody finds half of one.
base::Result<Region> create_hidden(const std::string& path, const RegionOptions& options) {
  return Region::create(base::cat(path, ".new"), options);
}
base::Result<void> show(const std::string& path) {
  if (rename(base::cat(path, ".new").c_str(), path.c_str()) != 0) {
    return system_error("cannot name", path, errno);
  }
  return {};
}

}  // namespace

/// Front of the control file; the step board follows at kBoardOffset.
struct Group::Control {
  char magic[8];
  uint32_t version;
  uint32_t ranks;
  uint64_t slice_bytes_max;
  uint64_t record_bytes_max;
  GroupNonce nonce;
  AbortWord abort_word;
  Counter joined[base::kRanksMax];  // 1 once that rank has mapped everything
};

Group::Group(const GroupOptions& options)
    : options_(options),
      path_(base::cat(options.directory, "/", kPrefix, options.id)),
      watched_(static_cast<size_t>(options.shape.ranks)) {}

Group::~Group() {
  // Only a group that never met has names left; whoever leaves last takes them away.
  if (!lock_.is_open()) return;
  if (try_lock(lock_, Lock::kExclusive) && is_named(lock_, path_)) remove_tree(path_);
}

Group::Control& Group::control() const {
  return *std::launder(reinterpret_cast<Control*>(control_region_->data()));
}

std::string Group::file(const char* name, int rank) const {
  return base::cat(path_, "/", name, ".", rank);
}

void Group::abort() {
  exchange_->abort();
  board_->abort();
}

base::Result<std::unique_ptr<Group>> Group::join(const GroupOptions& options) {
  const int ranks = options.shape.ranks;
  CHECK(options.rank >= 0 && options.rank < ranks && ranks <= base::kRanksMax, "rank ",
        options.rank, " of ", ranks);
  if (!is_valid_id(options.id)) {
    return base::Error{base::Code::kInvalidArgument,
                       base::cat("'", options.id, "' is no group id: letters, digits and '-'")};
  }
  const base::TimeNs deadline = now() + options.join_timeout_ns;
  std::unique_ptr<Group> group(new Group(options));
  RETURN_IF_ERROR(group->enter());
  RETURN_IF_ERROR(options.rank == 0 ? group->create_control() : group->open_control(deadline));
  RETURN_IF_ERROR(group->create_own());
  for (int rank = 0; rank < ranks; ++rank) RETURN_IF_ERROR(group->meet(rank, deadline));
  group->assemble();
  RETURN_IF_ERROR(group->await_all_joined(deadline));
  return group;
}

// Somebody may be removing a dead group of this name between mkdir and lock: then again.
base::Result<void> Group::enter() {
  for (int attempt = 0; attempt < 100 && !lock_.is_open(); ++attempt) {
    if (attempt > 0) nap();
    if (mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) {
      return system_error("cannot make", path_, errno);
    }
    lock_ = lock_directory(path_, Lock::kShared);
  }
  if (!lock_.is_open()) {
    return base::Error{base::Code::kUnavailable,
                       base::cat("cannot lock ", path_, "; remove it and start again")};
  }
  ASSIGN_OR_RETURN(Lifeline lifeline, Lifeline::hold(file("life", options_.rank)));
  lifeline_.emplace(std::move(lifeline));
  return {};
}

base::Result<void> Group::create_control() {
  const StepBoardShape board = {options_.shape.ranks, options_.record_bytes_max};
  const std::string path = base::cat(path_, "/control");
  ASSIGN_OR_RETURN(Region region,
                   create_hidden(path, {.bytes = kBoardOffset + StepBoard::bytes(board),
                                        .node = options_.node}));
  auto* control = new (region.data()) Control{};
  std::memcpy(control->magic, kMagic, sizeof kMagic);
  control->version = kVersion;
  control->ranks = static_cast<uint32_t>(options_.shape.ranks);
  control->slice_bytes_max = options_.shape.slice_bytes_max;
  control->record_bytes_max = options_.record_bytes_max;
  std::tie(control->nonce.words[0], control->nonce.words[1]) = random_128();
  StepBoard::format(region.data() + kBoardOffset, board, 0);
  control_region_.emplace(std::move(region));
  return show(path);
}

base::Result<void> Group::open_control(base::TimeNs deadline) {
  const StepBoardShape board = {options_.shape.ranks, options_.record_bytes_max};
  const std::string path = base::cat(path_, "/control");
  RETURN_IF_ERROR(await_file(path, 0, deadline));
  ASSIGN_OR_RETURN(Region region,
                   Region::open(path, Access::kReadWrite, kBoardOffset + StepBoard::bytes(board)));
  control_region_.emplace(std::move(region));
  const Control& found = control();
  if (std::memcmp(found.magic, kMagic, sizeof kMagic) != 0 || found.version != kVersion ||
      found.ranks != static_cast<uint32_t>(options_.shape.ranks) ||
      found.slice_bytes_max != options_.shape.slice_bytes_max ||
      found.record_bytes_max != options_.record_bytes_max) {
    return base::Error{
        base::Code::kUnsupported,
        base::cat("rank 0 made the group for ", found.ranks, " ranks, slices of ",
                  found.slice_bytes_max, " and records of ", found.record_bytes_max,
                  " bytes, rank ", options_.rank, " expects ", options_.shape.ranks, ", ",
                  options_.shape.slice_bytes_max, " and ", options_.record_bytes_max,
                  "; start all ranks from the same plan and program")};
  }
  return {};
}

base::Result<void> Group::create_own() {
  const std::string path = file("x", options_.rank);
  ASSIGN_OR_RETURN(Region region,
                   create_hidden(path, {.bytes = ShmExchange::bytes_per_rank(options_.shape),
                                        .node = options_.node}));
  ShmExchange::format(region.data(), options_.shape,
                      {.rank = options_.rank, .nonce = control().nonce});
  own_.emplace(std::move(region));
  return show(path);
}

base::Result<void> Group::meet(int rank, base::TimeNs deadline) {
  if (rank == options_.rank) {
    regions_.push_back(std::move(*own_));
    return {};
  }
  RETURN_IF_ERROR(await_file(file("x", rank), rank, deadline));
  ASSIGN_OR_RETURN(Region region, Region::open(file("x", rank), Access::kReadWrite,
                                               ShmExchange::bytes_per_rank(options_.shape)));
  RETURN_IF_ERROR(
      ShmExchange::verify(region.data(), options_.shape, {.rank = rank, .nonce = control().nonce}));
  regions_.push_back(std::move(region));
  return {};
}

// A rank holds its lifeline before it shows any other file: where the file is, so is the lifeline.
base::Result<void> Group::await_file(const std::string& path, int rank, base::TimeNs deadline) {
  char& watched = watched_[static_cast<size_t>(rank)];
  while (true) {
    const bool there = access(path.c_str(), F_OK) == 0;
    if (!watched) {
      const auto added = peers_.add(rank, file("life", rank));
      watched = added.ok();
      if (!watched && (there || added.error().code != base::Code::kNotFound)) {
        return added.error();
      }
    }
    if (const int gone = peers_.lost_rank(); gone >= 0) return lost(gone);
    if (there) return {};
    if (now() > deadline) {
      return base::Error{
          base::Code::kTimeout,
          base::cat("rank ", rank, " of ", options_.shape.ranks, " did not come to ", path_,
                    " within ", options_.join_timeout_ns / 1'000'000'000, " s; look at its log")};
    }
    nap();
  }
}

void Group::assemble() {
  std::vector<std::byte*> regions;
  for (const Region& region : regions_) regions.push_back(region.data());
  signals_ = GroupSignals(&control().abort_word, &peers_);
  exchange_ = std::make_unique<ShmExchange>(ShmExchange::Options{.shape = options_.shape,
                                                                 .rank = options_.rank,
                                                                 .regions = std::move(regions),
                                                                 .signals = signals_,
                                                                 .wait = options_.wait});
  board_ = std::make_unique<StepBoard>(
      StepBoard::Options{.shape = {options_.shape.ranks, options_.record_bytes_max},
                         .rank = options_.rank,
                         .board = control_region_->data() + kBoardOffset,
                         .signals = signals_,
                         .wait = options_.wait});
}

base::Result<void> Group::await_all_joined(base::TimeNs deadline) {
  raise(control().joined[options_.rank], 1);
  const WaitOptions options = {.spin_pauses = 0, .timeout_ns = deadline - now()};
  for (int rank = 0; rank < options_.shape.ranks; ++rank) {
    WaitBudget budget(options);
    const base::Wait wait = await(control().joined[rank], 1, signals_, budget);
    if (wait == base::Wait::kPeerLost) return lost(signals_.lost_rank());
    if (wait != base::Wait::kOk) {
      return base::Error{base::Code::kTimeout, base::cat("waiting for rank ", rank, " in ", path_,
                                                         ": ", base::wait_name(wait))};
    }
  }
  // Everyone has mapped everything: without names nothing can be left behind.
  if (options_.rank == 0) remove_tree(path_);
  return {};
}

base::Error Group::lost(int rank) const {
  return {base::Code::kPeerLost, base::cat("rank ", rank, " of ", options_.shape.ranks,
                                           " ended while the group met; look at its log")};
}

int remove_dead_groups(const std::string& directory) {
  int removed = 0;
  DIR* dir = opendir(directory.c_str());
  if (dir == nullptr) return 0;
  while (const dirent* entry = readdir(dir)) {
    const std::string name = entry->d_name;
    if (!name.starts_with(kPrefix)) continue;
    const std::string path = base::cat(directory, "/", name);
    const File lock = lock_directory(path, Lock::kExclusive);
    if (!lock.is_open()) continue;
    remove_tree(path);
    ++removed;
  }
  closedir(dir);
  return removed;
}

}  // namespace shm
