// What numoe holds in shared memory, for people and as JSON: `numoe shm ls`.
//
// shm_holdings() looks at a directory and at /proc, and maps a sample of each arena; the rest are
// pure functions. Thread rule: one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "shm/arena_dir.h"
#include "shm/arena_users.h"
#include "shm/kv_arena.h"

namespace cli {

struct HeldArena {
  shm::ArenaListing listing;
  std::string pages = {};        // "4 KiB", "huge", "mixed", "2.0 MiB"; empty: not ready
  std::vector<pid_t> pids = {};  // that map it
};

/// The directory of a server or of another command, with KV cache and exchange.
struct HeldGroup {
  std::string name;
  bool in_use = false;  // somebody holds its lock, or maps what is in it
  uint64_t bytes = 0;   // of memory, of what has a name
  std::vector<pid_t> pids = {};
};

/// The KV cache of one rank of a server, in the directory of its group.
struct HeldKv {
  std::string name;            // with the directory
  uint64_t bytes = 0;          // of memory
  std::string damage = {};     // why its header is not one; then the next says nothing
  shm::KvIdentity holds = {};  // for whom, and how much
  std::vector<pid_t> pids = {};
};

struct ShmHoldings {
  std::string directory, file_system;
  uint64_t free_bytes = 0;
  std::vector<HeldArena> arenas = {};
  std::vector<HeldGroup> groups = {};
  std::vector<HeldKv> kv = {};
  std::vector<shm::MappedFile> nameless = {};  // mapped, but deleted by somebody, or private
};

ShmHoldings shm_holdings(const shm::ArenaDir& directory);

/// Tables; ages count from `now`, seconds since 1970.
std::string holdings_text(const ShmHoldings& holdings, int64_t now);
std::string holdings_json(const ShmHoldings& holdings);

/// "ready", "loading 37 %", "half-loaded", "damaged"
std::string state_text(const shm::ArenaListing& arena);

}  // namespace cli
