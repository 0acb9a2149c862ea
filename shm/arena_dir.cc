#include "shm/arena_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>

#include "base/cat.h"
#include "shm/arena.h"
#include "shm/group.h"
#include "shm/mounts.h"

namespace shm {

namespace {

constexpr char kSuffix[] = ".arena";

/// Whether files of a mount get huge pages without being asked in the right order.
bool gives_huge_pages(const Mount& mount, const std::string& shmem_enabled) {
  if (mount.type == "hugetlbfs") return true;
  if (mount.type != "tmpfs") return false;
  const auto text = read_text(shmem_enabled);
  const std::string enabled = text.ok() ? *text : "";
  if (enabled.find("[deny]") != std::string::npos) return false;
  if (enabled.find("[force]") != std::string::npos) return true;
  const std::string huge = mount_option(mount, "huge");
  return huge == "within_size" || huge == "always";
}

std::string describe(const Mount& mount) {
  const std::string huge = mount_option(mount, "huge");
  return huge.empty() ? mount.type : base::cat(mount.type, " huge=", huge);
}

std::string gigabytes(uint64_t bytes) {
  const uint64_t tenths = bytes * 10 / (uint64_t{1} << 30);
  return base::cat(tenths / 10, ".", tenths % 10, " GiB");
}

/// The user's own directory below `parent`: made if it is not there, checked if it is.
base::Result<std::string> own_directory(const std::string& parent) {
  const std::string path = base::cat(parent, "/numoe-", geteuid());
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return system_error("cannot make the arena directory", path, errno);
  }
  struct stat status;
  if (lstat(path.c_str(), &status) != 0) return system_error("cannot look at", path, errno);
  if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 077) != 0) {
    return base::Error{base::Code::kInvalidArgument,
                       base::cat(path,
                                 " must be a directory of this user with mode 0700; remove "
                                 "it or name another place with --arena-dir")};
  }
  return path;
}

std::string small_page_warning(const ArenaDir& dir, const std::string& place, bool is_default) {
  return base::cat(is_default ? "/run/numoe is not mounted; " : "", "weights go to ", place, " (",
                   dir.file_system, ") in pages of ", sysconf(_SC_PAGESIZE) / 1024,
                   " KiB, which read about a quarter slower than huge ones, and at most ",
                   gigabytes(dir.free_bytes),
                   " fit; run scripts/setup, or mount a tmpfs with huge=within_size as "
                   "deploy/README.md tells");
}

}  // namespace

base::Result<ArenaDir> choose_arena_dir(const ArenaDirOptions& options) {
  std::string parent = options.directory;
  const bool is_default = parent.empty();
  if (is_default) {
    const auto run = mount_of(options.mounts, options.run_directory);
    const bool mounted = run.has_value() && run->point == options.run_directory &&
                         gives_huge_pages(*run, options.shmem_enabled);
    const bool writable = access(options.run_directory.c_str(), W_OK | X_OK) == 0;
    parent = mounted && writable ? options.run_directory : options.shm_directory;
  } else {
    char* real = realpath(parent.c_str(), nullptr);  // a link hides its mount
    if (real == nullptr) return system_error("cannot use the arena directory", parent, errno);
    parent = real;
    std::free(real);
  }
  const auto mount = mount_of(options.mounts, parent);
  ArenaDir dir;
  ASSIGN_OR_RETURN(dir.directory, own_directory(parent));
  ASSIGN_OR_RETURN(dir.free_bytes, free_bytes(dir.directory));
  if (!mount.has_value()) {
    dir.file_system = "unknown file system";
  } else {
    dir.file_system = describe(*mount);
    dir.huge_pages = gives_huge_pages(*mount, options.shmem_enabled);
    dir.hugetlb = mount->type == "hugetlbfs";
  }
  if (mount.has_value() && mount->type != "tmpfs" && mount->type != "hugetlbfs") {
    dir.warning = base::cat("weights go to ", parent, " on ", mount->type,
                            ", which writes them to a disk; take a tmpfs");
  } else if (!dir.huge_pages) {
    dir.warning = small_page_warning(dir, parent, is_default);
  }
  return dir;
}

std::vector<ArenaListing> list_arenas(const std::string& directory) {
  std::vector<ArenaListing> arenas;
  DIR* dir = opendir(directory.c_str());
  if (dir == nullptr) return arenas;
  while (const dirent* entry = readdir(dir)) {
    const std::string file_name = entry->d_name;
    if (!file_name.ends_with(kSuffix)) continue;
    // Whatever lies there: opening a pipe must not block.
    const auto file = open_file(base::cat(directory, "/", file_name), O_RDONLY | O_NONBLOCK);
    struct stat status;
    if (!file.ok() || fstat(file->fd(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    ArenaListing listing;
    listing.name = file_name.substr(0, file_name.size() - sizeof kSuffix + 1);
    listing.file_bytes = static_cast<uint64_t>(status.st_size);
    listing.allocated_bytes = static_cast<uint64_t>(status.st_blocks) * 512;
    listing.changed_at = status.st_mtim.tv_sec;
    listing.in_use = !try_lock(*file, Lock::kExclusive);
    if (const auto header = peek_header(*file); header.ok()) {
      listing.state = static_cast<ArenaState>(header->state);
      listing.progress_bytes = header->progress_bytes;
      listing.data_bytes = header->data_bytes;
      listing.keep = header->keep != 0;
      listing.node = header->node;
      listing.label = header->label;
      listing.content = header->content;
      listing.identity = header->identity;
    } else {
      listing.damage = header.error().message;
    }
    arenas.push_back(std::move(listing));
  }
  closedir(dir);
  std::sort(arenas.begin(), arenas.end(),
            [](const ArenaListing& a, const ArenaListing& b) { return a.name < b.name; });
  return arenas;
}

base::Result<void> remove_arena(const std::string& directory, const std::string& name) {
  ASSIGN_OR_RETURN(const std::string path, arena_path(directory, name));
  ASSIGN_OR_RETURN(const File file, open_file(path, O_RDONLY | O_NONBLOCK));
  // Who lists or verifies arenas holds the lock for a moment too.
  for (int attempt = 0; !try_lock(file, Lock::kExclusive); ++attempt) {
    if (attempt == 20) {
      return base::Error{base::Code::kUnavailable,
                         base::cat(path, " is in use; end the processes that map it first")};
    }
    const timespec millisecond = {.tv_sec = 0, .tv_nsec = 1'000'000};
    nanosleep(&millisecond, nullptr);
  }
  if (is_named(file, path)) unlink(path.c_str());
  return {};
}

Leftovers remove_leftovers(const std::string& directory, Kept kept) {
  Leftovers removed;
  for (const ArenaListing& arena : list_arenas(directory)) {
    const bool sealed = arena.damage.empty() && arena.state == ArenaState::kReady;
    if (arena.in_use || (sealed && arena.keep && kept == Kept::kStay)) continue;
    if (!remove_arena(directory, arena.name).ok()) continue;
    ++removed.arenas;
    removed.bytes += arena.file_bytes;
  }
  removed.groups = remove_dead_groups(directory);
  return removed;
}

}  // namespace shm
