// The weights of a rank in shared memory: found, waited for, taken over or loaded.
//
//   w-<model>-<plan>-<slice>of<slices>[.n<node>][.2 …].arena, in the directory of this user
//
//   ready, and what is wanted          -> attached, nothing is read
//   ready, but the files' times differ -> the files are hashed; equal content is attached
//   being loaded by a live process     -> awaited, with its progress; taken over if it dies
//   used by others with other content  -> left alone; the next name
//   anything else (half-loaded, damaged, empty, foreign, outdated) -> discarded and loaded anew
//
// Only locks decide who lives, never names, times or process numbers. A process that wants no named
// arena of its own attaches to a ready one, or loads a private one whose name goes at once, so that
// its memory goes with it. Thread rule: one thread.
#pragma once

#include <functional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "shm/arena.h"

namespace worker {

/// Told how far a load is, bytes and all bytes: by the thread that called for it, several times a
/// second, also while nothing moves. An error ends the load, which returns it.
using LoadWatch = std::function<base::Status(uint64_t, uint64_t)>;

struct WeightArenaOptions {
  std::string directory;          // of named arenas; empty: none is looked for
  std::string name;               // without the suffix that tells arenas of other content apart
  std::string private_directory;  // of an arena that nobody else shall find, for a moment
  std::string private_name;
  bool named = false;                        // loads into a named arena; else only attaches to one
  shm::ArenaOptions arena;                   // identity, node, pages, keep
  base::TimeNs stall_max = 300'000'000'000;  // a loader that gets on no more is given up
};

/// What only the owner of model and threads can do.
struct WeightSteps {
  /// Fills a new arena with bytes and checksums; returns this rank's share of the content hash.
  std::function<base::Result<shm::Hash128>(shm::Arena&)> load;
  /// The same share from the files as they are now; empty: never equal.
  std::function<base::Result<shm::Hash128>()> hash;
  /// While another process loads; may be empty.
  LoadWatch on_progress;
};

struct WeightArena {
  shm::Arena arena;       // sealed
  bool attached = false;  // found loaded
};

/// Errors: of the steps and the watch; kNoSpace with numbers, and nothing is left; kTimeout for a
/// loader that stands still.
base::Result<WeightArena> acquire_weights(const WeightArenaOptions& options,
                                          const shm::ArenaPlan& plan, const WeightSteps& steps);

/// Removes what nobody maps of the arenas with this prefix, except those that shall stay. For the
/// orderly end of a command, when its workers have ended, and of a worker that gives up. Returns
/// how many went.
int remove_unused_weights(const std::string& directory, const std::string& prefix);

}  // namespace worker
