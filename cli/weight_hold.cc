#include "cli/weight_hold.h"

#include <fcntl.h>

#include <utility>

#include "base/cat.h"
#include "shm/arena_dir.h"

namespace cli {

void WeightHold::take(const std::string& directory, const std::string& prefix) {
  std::vector<Held> held;
  for (const shm::ArenaListing& arena : shm::list_arenas(directory)) {
    if (!arena.name.starts_with(prefix) || arena.state != shm::ArenaState::kReady) continue;
    std::string path = base::cat(directory, "/", arena.name, ".arena");
    auto file = shm::open_file(path, O_RDONLY);
    if (file.ok() && shm::try_lock(*file, shm::Lock::kShared) && shm::is_named(*file, path))
      held.push_back({std::move(path), std::move(*file)});
  }
  held_ = std::move(held);
}

void WeightHold::release_removed() {
  std::erase_if(held_, [](const Held& held) { return !shm::is_named(held.file, held.path); });
}

void remove_other_weights(const std::string& directory, const std::string& prefix) {
  for (const shm::ArenaListing& arena : shm::list_arenas(directory)) {
    const bool stays = arena.damage.empty() && arena.keep && arena.state == shm::ArenaState::kReady;
    if (arena.in_use || stays || !arena.name.starts_with("w-") || arena.name.starts_with(prefix))
      continue;
    [[maybe_unused]] const auto removed = shm::remove_arena(directory, arena.name);
  }
}

}  // namespace cli
