#include "shm/arena.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/cat.h"

namespace shm {

namespace {

void sleep_a_millisecond() {
  const timespec millisecond = {.tv_sec = 0, .tv_nsec = 1'000'000};
  nanosleep(&millisecond, nullptr);
}

/// The exclusive lock on an arena file that still has its name; made if it is not there.
base::Result<File> lock_for_loading(const std::string& path) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    ASSIGN_OR_RETURN(File file, open_file(path, O_RDWR | O_CREAT));
    if (!try_lock(file, Lock::kExclusive)) {
      std::string how_far = "is loading it";
      if (const auto header = peek_header(file); header.ok()) {
        how_far = base::cat("has loaded ", header->progress_bytes, " of ", header->data_bytes,
                            " bytes of it");
      }
      return base::Error{base::Code::kUnavailable,
                         base::cat("another process holds ", path, " and ", how_far)};
    }
    // Whoever removed it between open and lock leaves us a file without a name.
    if (is_named(file, path)) return file;
  }
  return base::Error{base::Code::kUnavailable,
                     base::cat(path, " is being removed again and again")};
}

/// The shared lock on an arena file that still has its name. Somebody who lists arenas, or a loader
/// that has just sealed, may hold the exclusive one for a moment: a ready arena is worth a retry.
base::Result<File> lock_for_reading(const std::string& path) {
  for (int attempt = 0;; ++attempt) {
    ASSIGN_OR_RETURN(File file, open_file(path, O_RDONLY));
    if (try_lock(file, Lock::kShared)) {
      if (is_named(file, path)) return file;
      return base::Error{base::Code::kNotFound, base::cat(path, " was removed just now")};
    }
    const auto header = peek_header(file);
    const bool ready = header.ok() && header->state == static_cast<uint32_t>(ArenaState::kReady);
    if (!ready || attempt == 100) {
      std::string how_far;
      if (header.ok()) {
        how_far = base::cat(": ", header->progress_bytes, " of ", header->data_bytes, " bytes");
      }
      return base::Error{base::Code::kUnavailable, base::cat(path, " is being loaded", how_far)};
    }
    sleep_a_millisecond();
  }
}

/// What a locked file holds before it is created anew: true if a loader died in it.
base::Result<bool> is_half_loaded(const File& file, const std::string& path) {
  struct stat status;
  if (fstat(file.fd(), &status) != 0) return system_error("cannot look at", path, errno);
  if (status.st_size == 0) return false;
  char magic[sizeof kArenaMagic] = {};
  const ssize_t count = pread(file.fd(), magic, sizeof magic, 0);
  const char nothing[sizeof kArenaMagic] = {};
  if (count == sizeof magic && std::memcmp(magic, nothing, sizeof magic) == 0) return true;
  ASSIGN_OR_RETURN(const ArenaHeader header, peek_header(file));
  if (header.state == static_cast<uint32_t>(ArenaState::kReady)) {
    return base::Error{base::Code::kUnavailable,
                       base::cat(path, " is ready; attach to it, or remove it first")};
  }
  return true;
}

}  // namespace

Arena::Arena(Region region) : region_(std::move(region)) {
  header_ = std::launder(reinterpret_cast<ArenaHeader*>(region_.data()));
}

base::Result<Arena> Arena::create(const std::string& directory, const std::string& name,
                                  const ArenaPlan& plan, const ArenaOptions& options) {
  ASSIGN_OR_RETURN(const std::string path, arena_path(directory, name));
  ASSIGN_OR_RETURN(File file, lock_for_loading(path));
  ASSIGN_OR_RETURN(const bool taken_over, is_half_loaded(file, path));
  ASSIGN_OR_RETURN(Arena arena, create_in(std::move(file), path, plan, options));
  arena.taken_over_ = taken_over;
  return arena;
}

base::Result<Arena> Arena::create_in(File file, const std::string& path, const ArenaPlan& plan,
                                     const ArenaOptions& options) {
  // Keeps the lock until the name is gone, if that becomes necessary.
  const File guard(fcntl(file.fd(), F_DUPFD_CLOEXEC, 0));
  auto region = Region::create_in(std::move(file), path,
                                  {.bytes = plan.file_bytes(),
                                   .node = options.node,
                                   .huge = !options.small,
                                   .small = options.small,
                                   .keep_on = options.keep_on});
  if (!region.ok()) {
    unlink_region(path);
    return region.error();
  }
  const std::vector<TensorEntry>& table = plan.table();
  ArenaHeader header = {};
  header.layout_version = kArenaLayoutVersion;
  header.header_bytes = sizeof(ArenaHeader);
  header.file_bytes = region->bytes();
  header.table_offset = sizeof(ArenaHeader);
  header.data_offset = plan.data_offset();
  header.data_bytes = plan.data_bytes();
  header.tensor_count = static_cast<uint32_t>(table.size());
  header.entry_bytes = sizeof(TensorEntry);
  header.identity = options.identity;
  header.flags = region->bind() == Bind::kBound ? kArenaBound : 0;
  header.node = options.node;
  std::memcpy(header.label, options.label.data(),
              std::min(options.label.size(), kArenaLabelBytes - 1));
  header.state = static_cast<uint32_t>(ArenaState::kLoading);
  header.keep = options.keep ? 1 : 0;
  std::memcpy(header.magic, kArenaMagic, sizeof kArenaMagic);
  header.header_checksum = checksum_of(header);
  std::memset(header.magic, 0, sizeof header.magic);
  std::memcpy(region->data() + sizeof(ArenaHeader), table.data(),
              table.size() * sizeof(TensorEntry));
  std::memcpy(region->data(), &header, sizeof header);
  // The magic comes last and in one piece: who dies before leaves zeros there, not half a header.
  uint64_t magic;
  std::memcpy(&magic, kArenaMagic, sizeof magic);
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(region->data()))
      .store(magic, std::memory_order_release);
  Arena arena(std::move(*region));
  arena.table_ = {reinterpret_cast<TensorEntry*>(arena.region_.data() + sizeof(ArenaHeader)),
                  table.size()};
  return arena;
}

base::Result<Arena> Arena::attach(const std::string& directory, const std::string& name,
                                  const std::optional<ArenaIdentity>& expected) {
  ASSIGN_OR_RETURN(const std::string path, arena_path(directory, name));
  ASSIGN_OR_RETURN(File file, lock_for_reading(path));
  ASSIGN_OR_RETURN(Arena arena, attach_in(std::move(file), path));
  if (expected.has_value() && !(arena.header().identity == *expected)) {
    return base::Error{base::Code::kUnsupported,
                       base::cat(path,
                                 " holds another model, plan, slice or program version; "
                                 "remove it or take another --arena-dir")};
  }
  return arena;
}

base::Result<Arena> Arena::attach_in(File file, const std::string& path) {
  const auto header = peek_header(file);
  if (!header.ok()) return header.error();
  if (header->state != static_cast<uint32_t>(ArenaState::kReady)) {
    return base::Error{base::Code::kBrokenFile,
                       base::cat("the loader of ", path, " died half-way; load it again")};
  }
  ASSIGN_OR_RETURN(Region region,
                   Region::open_in(std::move(file), path, Access::kReadOnly, header->file_bytes));
  Arena arena(std::move(region));
  // Acquire pairs with the release in seal().
  if (arena.state() != ArenaState::kReady) {
    return base::Error{base::Code::kUnavailable, base::cat(path, " changed while it was opened")};
  }
  arena.table_ = {reinterpret_cast<TensorEntry*>(arena.region_.data() + sizeof(ArenaHeader)),
                  header->tensor_count};
  if (!(checksum_of(arena.tensors()) == header->table_checksum)) {
    return base::Error{base::Code::kBrokenFile,
                       base::cat("the tensor table of ", path, " is damaged; remove it")};
  }
  RETURN_IF_ERROR(check_table(*header, arena.tensors()));
  return arena;
}

const TensorEntry* Arena::find(std::string_view name, uint64_t first_row) const {
  for (const TensorEntry& entry : table_) {
    if (entry.name == name && entry.first_row == first_row) return &entry;
  }
  return nullptr;
}

void Arena::add_progress(uint64_t bytes) {
  std::atomic_ref<uint64_t>(header_->progress_bytes).fetch_add(bytes, std::memory_order_relaxed);
}

void Arena::set_progress(uint64_t bytes) {
  std::atomic_ref<uint64_t>(header_->progress_bytes)
      .store(std::min(bytes, header_->data_bytes), std::memory_order_relaxed);
}

uint64_t Arena::progress() const {
  return std::atomic_ref<uint64_t>(header_->progress_bytes).load(std::memory_order_relaxed);
}

ArenaState Arena::state() const {
  return static_cast<ArenaState>(
      std::atomic_ref<uint32_t>(header_->state).load(std::memory_order_acquire));
}

void Arena::set_checksum(size_t index, const Hash128& checksum) {
  CHECK(state() == ArenaState::kLoading && index < table_.size(), "tensor ", index);
  table_[index].checksum = checksum;
}

base::Result<void> Arena::seal(const Hash128& content) {
  CHECK(state() == ArenaState::kLoading, "sealed twice");
  for (TensorEntry& entry : table_) {
    if (entry.checksum == Hash128{}) entry.checksum = hash128(bytes_of(entry));
  }
  header_->content = content;
  header_->table_checksum = checksum_of(tensors());
  header_->header_checksum = checksum_of(*header_);
  std::atomic_ref<uint64_t>(header_->progress_bytes)
      .store(header_->data_bytes, std::memory_order_relaxed);
  // Release pairs with the acquire of attach(): who sees `ready` sees every byte.
  std::atomic_ref<uint32_t>(header_->state)
      .store(static_cast<uint32_t>(ArenaState::kReady), std::memory_order_release);
  RETURN_IF_ERROR(region_.protect());
  return share_lock(header_->header_checksum);
}

// A flock cannot be changed from exclusive to shared, or back, in one step, and who lists arenas
// holds the exclusive one for a moment. Who takes the file for an arena of his own holds it for
// longer, or has written something else when it is free again. The header is read from the file:
// pages that somebody cut off cannot be touched.
base::Result<void> Arena::share_lock(uint64_t header_checksum) {
  if (!named_) return {};
  bool locked = false;
  for (int attempt = 0; !locked && attempt < 1000; ++attempt) {
    if (attempt > 0) sleep_a_millisecond();
    locked = try_lock(region_.file(), Lock::kShared);
  }
  const auto header = peek_header(region_.file());
  if (!locked || !header.ok() || header->header_checksum != header_checksum) {
    return base::Error{base::Code::kUnavailable,
                       base::cat("another process took ", region_.path(),
                                 " for other weights while its lock was changed; start again")};
  }
  named_ = is_named(region_.file(), region_.path());
  return {};
}

/// Through another mapping, since this one is read-only.
base::Result<void> Arena::change_header(const std::function<void(ArenaHeader&)>& change) {
  File file(fcntl(region_.file().fd(), F_DUPFD_CLOEXEC, 0));
  if (!file.is_open()) return system_error("cannot open again", region_.path(), errno);
  ASSIGN_OR_RETURN(const Region region, Region::open_in(std::move(file), region_.path(),
                                                        Access::kReadWrite, sizeof(ArenaHeader)));
  change(*std::launder(reinterpret_cast<ArenaHeader*>(region.data())));
  return {};
}

base::Result<void> Arena::set_keep() {
  return change_header([](ArenaHeader& header) {
    std::atomic_ref<uint32_t>(header.keep).store(1, std::memory_order_relaxed);
  });
}

base::Result<void> Arena::renew_source(const Hash128& source) {
  base::Result<void> changed;
  uint64_t checksum = header_->header_checksum;
  // Alone, since a header that is half old and half new is a damaged one to everybody who looks.
  if (try_lock(region_.file(), Lock::kExclusive)) {
    changed = change_header([&](ArenaHeader& header) {
      header.identity.source = source;
      checksum = header.header_checksum = checksum_of(header);
    });
  }
  RETURN_IF_ERROR(share_lock(checksum));
  if (!named_) {
    return base::Error{base::Code::kUnavailable,
                       base::cat(region_.path(), " was removed just now")};
  }
  return changed;
}

base::Result<void> Arena::verify() const {
  for (const TensorEntry& entry : table_) {
    if (!(hash128(bytes_of(entry)) == entry.checksum)) {
      return base::Error{base::Code::kBrokenFile,
                         base::cat("the bytes of tensor ", entry.name, " in ", region_.path(),
                                   " are damaged; remove the arena and load it again")};
    }
  }
  return {};
}

void Arena::unlink_name() {
  if (std::exchange(named_, false)) unlink_region(region_.path());
}

bool Arena::unlink_if_last() {
  const bool keep = std::atomic_ref<uint32_t>(header_->keep).load(std::memory_order_relaxed) != 0;
  if (!named_ || keep) return false;
  const uint64_t checksum = header_->header_checksum;
  if (!try_lock(region_.file(), Lock::kExclusive)) {
    // Whoever has taken it meanwhile has it.
    named_ = share_lock(checksum).ok() && named_;
    return false;
  }
  const bool is_ours = is_named(region_.file(), region_.path());
  unlink_name();
  return is_ours;
}

}  // namespace shm
