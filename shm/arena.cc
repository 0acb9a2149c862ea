#include "shm/arena.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/cat.h"

namespace shm {

namespace {

constexpr uint64_t kSmallPage = 4096;
constexpr uint64_t kHugePage = uint64_t{2} << 20;
/// Far above any machine, far below overflow.
constexpr uint64_t kArenaBytesMax = uint64_t{1} << 46;

uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
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
    const timespec millisecond = {.tv_sec = 0, .tv_nsec = 1'000'000};
    nanosleep(&millisecond, nullptr);
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

base::Result<std::string> arena_path(const std::string& directory, const std::string& name) {
  bool ok = !name.empty() && name.size() <= 200 && name[0] != '.';
  for (const char c : name) {
    ok = ok && ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                c == '.' || c == '_' || c == '-');
  }
  if (!ok) {
    return base::Error{base::Code::kInvalidArgument,
                       base::cat("'", name, "' is no arena name: letters, digits, '.', '_', '-'")};
  }
  return base::cat(directory, "/", name, ".arena");
}

base::Result<ArenaHeader> peek_header(const File& file) {
  struct stat status;
  ArenaHeader header;
  if (fstat(file.fd(), &status) != 0 ||
      pread(file.fd(), &header, sizeof header, 0) != sizeof header) {
    return base::Error{base::Code::kBrokenFile, "the arena is shorter than its header; remove it"};
  }
  RETURN_IF_ERROR(check_header(header, static_cast<uint64_t>(status.st_size)));
  return header;
}

base::Result<uint64_t> ArenaPlan::reserve(const TensorSpec& spec) {
  TensorEntry entry = {};
  if (spec.name.empty() || spec.name.size() >= sizeof entry.name ||
      spec.name.find('\0') != std::string::npos) {
    return base::Error{base::Code::kInvalidArgument,
                       base::cat("the tensor name '", spec.name, "' must have 1 to ",
                                 sizeof entry.name - 1, " bytes")};
  }
  if (spec.rows == 0 || spec.row_length == 0 || spec.bytes == 0 ||
      spec.bytes > kArenaBytesMax - data_bytes_ || table_.size() >= kArenaTensorsMax) {
    return base::Error{
        base::Code::kInvalidArgument,
        base::cat("tensor ", spec.name, " of ", spec.bytes, " bytes does not fit into an arena")};
  }
  if (!names_.emplace(spec.name, spec.first_row).second) {
    return base::Error{base::Code::kInvalidArgument, base::cat("tensor ", spec.name, " from row ",
                                                               spec.first_row, " is there twice")};
  }
  std::memcpy(entry.name, spec.name.data(), spec.name.size());
  entry.type = spec.type;
  entry.layout = spec.layout;
  entry.rows = spec.rows;
  entry.row_length = spec.row_length;
  entry.first_row = spec.first_row;
  entry.offset = round_up(data_bytes_, kTensorAlignment);
  entry.bytes = spec.bytes;
  data_bytes_ = entry.offset + entry.bytes;
  table_.push_back(entry);
  return entry.offset;
}

uint64_t ArenaPlan::data_offset() const {
  return round_up(sizeof(ArenaHeader) + table_.size() * sizeof(TensorEntry), kSmallPage);
}

// A file that ends in the middle of a huge page would end in small ones (huge=within_size).
uint64_t ArenaPlan::file_bytes() const {
  const uint64_t bytes = data_offset() + data_bytes_ + kTensorTail;
  return round_up(bytes, bytes >= kHugePage ? kHugePage : kSmallPage);
}

Arena::Arena(Region region) : region_(std::move(region)) {
  header_ = std::launder(reinterpret_cast<ArenaHeader*>(region_.data()));
}

base::Result<Arena> Arena::create(const std::string& directory, const std::string& name,
                                  const ArenaPlan& plan, const ArenaOptions& options) {
  ASSIGN_OR_RETURN(const std::string path, arena_path(directory, name));
  ASSIGN_OR_RETURN(File file, lock_for_loading(path));
  ASSIGN_OR_RETURN(const bool taken_over, is_half_loaded(file, path));
  auto region = Region::create_in(std::move(file), path,
                                  {.bytes = plan.file_bytes(), .node = options.node, .huge = true});
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
  header.flags = options.keep ? kArenaKeep : 0;
  header.node = options.node;
  header.state = static_cast<uint32_t>(ArenaState::kLoading);
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
  arena.taken_over_ = taken_over;
  return arena;
}

base::Result<Arena> Arena::attach(const std::string& directory, const std::string& name,
                                  const std::optional<ArenaIdentity>& expected) {
  ASSIGN_OR_RETURN(const std::string path, arena_path(directory, name));
  ASSIGN_OR_RETURN(File file, lock_for_reading(path));
  const auto header = peek_header(file);
  if (!header.ok()) return header.error();
  if (header->state != static_cast<uint32_t>(ArenaState::kReady)) {
    return base::Error{base::Code::kBrokenFile,
                       base::cat("the loader of ", path, " died half-way; load it again")};
  }
  if (expected.has_value() && !(header->identity == *expected)) {
    return base::Error{base::Code::kUnsupported,
                       base::cat(path,
                                 " holds another model, plan, slice or program version; "
                                 "remove it or take another --arena-dir")};
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

base::Result<void> Arena::seal(const Hash128& fingerprint) {
  CHECK(state() == ArenaState::kLoading, "sealed twice");
  for (TensorEntry& entry : table_) {
    if (entry.checksum == Hash128{}) entry.checksum = hash128(bytes_of(entry));
  }
  header_->fingerprint = fingerprint;
  header_->table_checksum = checksum_of(tensors());
  header_->header_checksum = checksum_of(*header_);
  std::atomic_ref<uint64_t>(header_->progress_bytes)
      .store(header_->data_bytes, std::memory_order_relaxed);
  // Release pairs with the acquire of attach(): who sees `ready` sees every byte.
  std::atomic_ref<uint32_t>(header_->state)
      .store(static_cast<uint32_t>(ArenaState::kReady), std::memory_order_release);
  RETURN_IF_ERROR(region_.protect());
  // A flock cannot be changed from exclusive to shared in one step. Whoever removes leftovers may
  // come in between; then the memory is still ours, but nobody can attach to it.
  const bool shared = try_lock(region_.file(), Lock::kShared);
  if (named_ && (!shared || !is_named(region_.file(), region_.path()))) {
    return base::Error{
        base::Code::kUnavailable,
        base::cat(region_.path(), " was removed while it was sealed; load it again")};
  }
  return {};
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

}  // namespace shm
