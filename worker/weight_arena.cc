#include "worker/weight_arena.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "base/cat.h"
#include "shm/arena_dir.h"

namespace worker {

namespace {

// Arenas of one name and different content that can be in use at once.
constexpr int kNamesMax = 8;
constexpr base::TimeNs kLookAgain = 10'000'000;

struct Look {
  enum {
    kNextName,  // this name belongs to others
    kAgain,     // something changed meanwhile, or somebody loads: look again after a while
    kLoad,      // ours to load; `file` is locked exclusively
    kAttached,
  } verdict = kNextName;
  shm::File file = {};
  std::optional<shm::Arena> arena = {};
};

bool same_but_source(shm::ArenaIdentity a, const shm::ArenaIdentity& b) {
  a.source = b.source;
  return a == b;
}

bool is_ready(const shm::ArenaHeader& header) {
  return header.state == static_cast<uint32_t>(shm::ArenaState::kReady);
}

/// How far a file has come: bytes that its header tells, and pages that it has.
std::pair<uint64_t, uint64_t> loaded(const shm::File& file) {
  struct stat status = {};
  if (!file.is_open() || fstat(file.fd(), &status) != 0) return {};
  const auto header = shm::peek_header(file);
  return {header.ok() ? header->progress_bytes : 0, static_cast<uint64_t>(status.st_blocks)};
}

bool is_own(const struct stat& status) {
  return status.st_uid == geteuid();
}

void sleep_for(base::TimeNs duration) {
  const timespec time = {.tv_sec = 0, .tv_nsec = static_cast<long>(duration)};
  nanosleep(&time, nullptr);
}

class Acquisition {
 public:
  Acquisition(const WeightArenaOptions& options, const shm::ArenaPlan& plan,
              const WeightSteps& steps)
      : options_(options), plan_(plan), steps_(steps) {}

  base::Result<WeightArena> run() {
    for (int n = 1; n <= kNamesMax && !options_.directory.empty(); ++n) {
      const std::string name = n == 1 ? options_.name : base::cat(options_.name, ".", n);
      ASSIGN_OR_RETURN(const std::string path, shm::arena_path(options_.directory, name));
      ASSIGN_OR_RETURN(Look look, settle(path));
      if (look.verdict == Look::kAttached) return WeightArena{std::move(*look.arena), true};
      if (look.verdict == Look::kLoad) return load_in(std::move(look.file), path);
    }
    if (options_.named) {
      return base::Error{
          base::Code::kUnavailable,
          base::cat("all of ", options_.directory, "/", options_.name, ".arena and ", kNamesMax - 1,
                    " more are in use with other weights; take another --arena-dir")};
    }
    return load_private();
  }

 private:
  /// Looks until it is clear what becomes of `path`.
  base::Result<Look> settle(const std::string& path) {
    const base::SteadyClock clock;
    base::TimeNs moved_at = clock.now();
    std::pair<uint64_t, uint64_t> last = {};
    for (int looks = 0;; ++looks) {
      ASSIGN_OR_RETURN(Look found, look(path));
      if (found.verdict != Look::kAgain) return found;
      const std::pair<uint64_t, uint64_t> now = loaded(found.file);
      if (now != last || looks == 0) moved_at = clock.now();
      last = now;
      if (steps_.on_progress) {
        RETURN_IF_ERROR(
            steps_.on_progress(std::min(now.first, plan_.data_bytes()), plan_.data_bytes()));
      }
      if (clock.now() - moved_at > options_.stall_max) {
        return base::Error{
            base::Code::kTimeout,
            base::cat("another process holds ", path, " and has loaded nothing for ",
                      options_.stall_max / 1'000'000'000,
                      " s; numoe shm ls names it: end it, or take another --arena-dir")};
      }
      sleep_for(kLookAgain);
    }
  }

  base::Result<Look> look(const std::string& path) {
    auto file = shm::open_file(path, O_RDWR | O_NONBLOCK | (options_.named ? O_CREAT : 0));
    struct stat status = {};
    if (!file.ok() || fstat(file->fd(), &status) != 0 || !S_ISREG(status.st_mode)) {
      if (!options_.named) return Look{.verdict = Look::kNextName};
      if (lstat(path.c_str(), &status) != 0 || (S_ISREG(status.st_mode) && is_own(status))) {
        // Too many open files, no inode left: that says nothing about what it holds.
        if (!file.ok()) return file.error();
        return Look{.verdict = Look::kAgain};
      }
      // A link, a pipe, a file of another user: none of ours.
      return Look{.verdict = unlink(path.c_str()) == 0 ? Look::kAgain : Look::kNextName};
    }
    return look_at(std::move(*file), path);
  }

  base::Result<Look> look_at(shm::File opened, const std::string& path) {
    auto file = base::Result<shm::File>(std::move(opened));
    if (!shm::try_lock(*file, shm::Lock::kShared)) return look_at_loading(std::move(*file));
    if (!shm::is_named(*file, path)) return Look{.verdict = Look::kAgain};
    const auto header = shm::peek_header(*file);
    if (header.ok() && is_wanted(*header) && is_ready(*header)) {
      ASSIGN_OR_RETURN(Look found, attach(std::move(*file), path));
      if (found.verdict != Look::kNextName || !options_.named) return found;
      // Other content, or damage behind the header.
      file = shm::open_file(path, O_RDWR | O_NONBLOCK);
      if (!file.ok()) return Look{.verdict = Look::kAgain};
    }
    if (!options_.named) return Look{.verdict = Look::kNextName};
    return take(std::move(*file), path, header);
  }

  bool is_wanted(const shm::ArenaHeader& header) const {
    return same_but_source(header.identity, options_.arena.identity) &&
           header.node == options_.arena.node && header.data_bytes == plan_.data_bytes() &&
           header.tensor_count == plan_.table().size();
  }

  /// What a file is that another process has locked exclusively.
  Look look_at_loading(shm::File file) {
    const auto header = shm::peek_header(file);
    if (!options_.named && !(header.ok() && is_ready(*header) && is_wanted(*header))) {
      return {.verdict = Look::kNextName};
    }
    if (header.ok()) {
      const bool same = is_wanted(*header) && header->identity == options_.arena.identity;
      // Who holds a ready one so only looks at it, or is about to make it anew.
      return {.verdict = same || is_ready(*header) ? Look::kAgain : Look::kNextName,
              .file = std::move(file)};
    }
    // Its loader has not come as far as the header; or it is none of ours.
    char magic[sizeof shm::kArenaMagic] = {};
    const char nothing[sizeof magic] = {};
    const ssize_t count = pread(file.fd(), magic, sizeof magic, 0);
    const bool begun = count < static_cast<ssize_t>(sizeof magic) ||
                       std::memcmp(magic, nothing, sizeof magic) == 0 ||
                       std::memcmp(magic, shm::kArenaMagic, sizeof magic) == 0;
    return {.verdict = begun ? Look::kAgain : Look::kNextName, .file = std::move(file)};
  }

  /// A ready arena with the wanted identity, but for the source. kNextName: it is not to be used.
  base::Result<Look> attach(shm::File file, const std::string& path) {
    auto arena = shm::Arena::attach_in(std::move(file), path);
    if (!arena.ok() || !has_planned_table(*arena)) return Look{.verdict = Look::kNextName};
    if (!(arena->header().identity == options_.arena.identity)) {
      if (!steps_.hash) return Look{.verdict = Look::kNextName};
      const auto content = steps_.hash();
      if (!content.ok() && content.error().code == base::Code::kCancelled) return content.error();
      if (!content.ok() || *content == shm::Hash128{} || !(*content == arena->header().content)) {
        return Look{.verdict = Look::kNextName};
      }
      if (!arena->renew_source(options_.arena.identity.source).ok()) {
        return Look{.verdict = Look::kAgain};
      }
    }
    if (options_.named && options_.arena.keep && !arena->set_keep().ok()) {
      return Look{.verdict = Look::kAgain};
    }
    return Look{.verdict = Look::kAttached, .arena = std::move(*arena)};
  }

  bool has_planned_table(const shm::Arena& arena) const {
    return std::equal(arena.tensors().begin(), arena.tensors().end(), plan_.table().begin(),
                      plan_.table().end(), [](shm::TensorEntry a, const shm::TensorEntry& b) {
                        a.checksum = b.checksum;
                        return std::memcmp(&a, &b, sizeof a) == 0;
                      });
  }

  /// Takes a file that holds nothing of use, if nobody else has it. `rejected` is what its header
  /// was when that was found out.
  Look take(shm::File file, const std::string& path,
            const base::Result<shm::ArenaHeader>& rejected) const {
    if (!shm::try_lock(file, shm::Lock::kExclusive)) {
      const bool in_use = rejected.ok() && is_ready(*rejected);
      return {.verdict = in_use ? Look::kNextName : Look::kAgain, .file = std::move(file)};
    }
    if (!shm::is_named(file, path)) return {.verdict = Look::kAgain};
    // Before the lock was ours somebody may have loaded what we want.
    const auto header = shm::peek_header(file);
    const bool changed =
        header.ok() && !(rejected.ok() && std::memcmp(&*header, &*rejected, sizeof *header) == 0);
    if (changed && is_wanted(*header) && is_ready(*header)) return {.verdict = Look::kAgain};
    return {.verdict = Look::kLoad, .file = std::move(file)};
  }

  base::Result<WeightArena> load_in(shm::File file, const std::string& path) {
    ASSIGN_OR_RETURN(shm::Arena arena,
                     shm::Arena::create_in(std::move(file), path, plan_, options_.arena));
    return fill(std::move(arena));
  }

  base::Result<WeightArena> load_private() {
    ASSIGN_OR_RETURN(shm::Arena arena,
                     shm::Arena::create(options_.private_directory, options_.private_name, plan_,
                                        options_.arena));
    arena.unlink_name();
    return fill(std::move(arena));
  }

  base::Result<WeightArena> fill(shm::Arena arena) {
    auto content = steps_.load(arena);
    base::Status sealed = content.ok() ? arena.seal(*content) : base::Status(content.error());
    if (!sealed.ok()) {
      arena.unlink_name();  // under the exclusive lock: nobody waits for half of it
      return sealed.error();
    }
    return WeightArena{std::move(arena), false};
  }

  const WeightArenaOptions& options_;
  const shm::ArenaPlan& plan_;
  const WeightSteps& steps_;
};

}  // namespace

base::Result<WeightArena> acquire_weights(const WeightArenaOptions& options,
                                          const shm::ArenaPlan& plan, const WeightSteps& steps) {
  return Acquisition(options, plan, steps).run();
}

int remove_unused_weights(const std::string& directory, const std::string& prefix) {
  int removed = 0;
  for (const shm::ArenaListing& arena : shm::list_arenas(directory)) {
    const bool stays = arena.damage.empty() && arena.keep && arena.state == shm::ArenaState::kReady;
    if (!arena.name.starts_with(prefix) || arena.in_use || stays) continue;
    if (shm::remove_arena(directory, arena.name).ok()) ++removed;
  }
  return removed;
}

}  // namespace worker
