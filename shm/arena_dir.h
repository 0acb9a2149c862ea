// Where arenas live: which directory, what pages it gives, how much is free, and what others left.
//
// The default is /run/numoe if that is a tmpfs with huge pages (deploy/ mounts it), else /dev/shm
// with a warning. Inside, every user has a directory of mode 0700 of his own. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "shm/arena_format.h"

namespace shm {

struct ArenaDirOptions {
  std::string directory;  // --arena-dir; empty: the default
  // Where to look; other values only in tests.
  std::string run_directory = "/run/numoe";
  std::string shm_directory = "/dev/shm";
  std::string mounts = "/proc/self/mountinfo";
  std::string shmem_enabled = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
};

struct ArenaDir {
  std::string directory;    // of this user, exists
  std::string file_system;  // for people, for example "tmpfs huge=within_size"
  bool huge_pages = false;  // expected; page_report() says what came of it
  bool hugetlb = false;     // a hugetlbfs: for large files only
  uint64_t free_bytes = 0;
  std::string warning;  // one sentence with the cure; empty if all is well
};

/// Chooses and makes the directory of this user. Errors: kNotFound, kSystem; kInvalidArgument when
/// the directory belongs to somebody else or others may enter it.
base::Result<ArenaDir> choose_arena_dir(const ArenaDirOptions& options);

struct ArenaListing {
  std::string name;
  uint64_t file_bytes = 0;
  uint64_t allocated_bytes = 0;  // of memory
  int64_t changed_at = 0;        // seconds since 1970: made, or loaded anew
  bool in_use = false;           // somebody holds its lock
  std::string damage;            // why its header is not one; then the fields below say nothing
  ArenaState state = ArenaState::kLoading;
  uint64_t progress_bytes = 0, data_bytes = 0;
  bool keep = false;
  int node = -1;
  std::string label;
  Hash128 content;
  ArenaIdentity identity;
};

/// The arenas of a directory by name. Takes no lock for longer than a look.
std::vector<ArenaListing> list_arenas(const std::string& directory);

struct Leftovers {
  int arenas = 0;
  int groups = 0;
  uint64_t bytes = 0;  // of the arenas
};

enum class Kept { kStay, kRemove };

/// Removes arenas and groups that nobody holds. Sealed arenas made with `keep` stay if asked.
Leftovers remove_leftovers(const std::string& directory, Kept kept);

/// Removes one arena. Errors: kNotFound; kUnavailable while somebody holds it.
base::Result<void> remove_arena(const std::string& directory, const std::string& name);

}  // namespace shm
