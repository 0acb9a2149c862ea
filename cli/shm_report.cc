#include "cli/shm_report.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/cat.h"
#include "broker/api/json_writer.h"
#include "cli/probe_report.h"
#include "shm/arena.h"
#include "shm/arena_room.h"

namespace cli {

namespace {

namespace fs = std::filesystem;

/// By a few pages of the file, which are mapped here for that: what a process that maps it gets.
std::string pages_of(const std::string& directory, const std::string& name) {
  const auto arena = shm::Arena::attach(directory, name);
  if (!arena.ok()) return {};
  const shm::Region& region = arena->region();
  constexpr size_t kSamples = 16;
  unsigned sum = 0;
  for (size_t i = 0; i < kSamples; i++)
    sum += std::to_integer<unsigned>(
        *static_cast<const volatile std::byte*>(region.data() + region.bytes() / kSamples * i));
  const auto report = shm::page_report(region.data());
  if (!report.ok() || sum > kSamples * 255) return {};
  if (report->kernel_page_bytes > size_t{64} << 10)
    return shm::memory_text(report->kernel_page_bytes);
  if (report->huge_bytes == 0) return base::cat(report->kernel_page_bytes / 1024, " KiB");
  return report->huge_bytes == report->resident_bytes ? "huge" : "mixed";
}

std::vector<pid_t> users_of(const std::vector<shm::MappedFile>& mapped, const std::string& path) {
  for (const shm::MappedFile& file : mapped)
    if (!file.deleted && file.path == path) return file.pids;
  return {};
}

bool is_locked(const std::string& directory) {
  const auto file = shm::open_file(directory, O_RDONLY | O_DIRECTORY);
  return file.ok() && !shm::try_lock(*file, shm::Lock::kExclusive);
}

HeldGroup look_at_group(const fs::path& path, const std::vector<shm::MappedFile>& mapped) {
  HeldGroup group{.name = path.filename()};
  std::error_code ignored;
  for (const auto& entry : fs::recursive_directory_iterator(path, ignored)) {
    struct stat status = {};
    if (lstat(entry.path().c_str(), &status) == 0 && S_ISREG(status.st_mode))
      group.bytes += static_cast<uint64_t>(status.st_blocks) * 512;
  }
  for (const shm::MappedFile& file : mapped) {
    if (file.path.starts_with(path.string() + "/"))
      group.pids.insert(group.pids.end(), file.pids.begin(), file.pids.end());
  }
  std::sort(group.pids.begin(), group.pids.end());
  group.pids.erase(std::unique(group.pids.begin(), group.pids.end()), group.pids.end());
  group.in_use = is_locked(path) || !group.pids.empty();
  return group;
}

/// Looks without a lock: what is constant once written.
HeldKv look_at_kv(const fs::path& path, const std::vector<shm::MappedFile>& mapped) {
  HeldKv kv{.name = path.parent_path().filename() / path.filename()};
  struct stat status = {};
  shm::KvArenaHeader header;
  const auto file = shm::open_file(path, O_RDONLY | O_NONBLOCK);
  if (!file.ok() || fstat(file->fd(), &status) != 0 ||
      pread(file->fd(), &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header)) {
    kv.damage = "it is too short";
  } else if (const auto sound = shm::check_kv_header(header, static_cast<uint64_t>(status.st_size),
                                                     header.identity);
             !sound.ok()) {
    kv.damage = sound.error().message;
  } else {
    kv.holds = header.identity;
  }
  kv.bytes = static_cast<uint64_t>(status.st_blocks) * 512;
  kv.pids = users_of(mapped, path);
  return kv;
}

std::vector<HeldKv> kv_of(const fs::path& group, const std::vector<shm::MappedFile>& mapped) {
  std::vector<HeldKv> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(group, ignored)) {
    if (entry.path().filename().string().starts_with("kv.") && entry.is_regular_file(ignored))
      found.push_back(look_at_kv(entry.path(), mapped));
  }
  std::sort(found.begin(), found.end(),
            [](const HeldKv& a, const HeldKv& b) { return a.holds.rank < b.holds.rank; });
  return found;
}

std::string age_text(int64_t seconds) {
  seconds = std::max<int64_t>(seconds, 0);
  if (seconds < 120) return base::cat(seconds, " s");
  if (seconds < 120 * 60) return base::cat(seconds / 60, " min");
  if (seconds < 48 * 3600) return base::cat(seconds / 3600, " h");
  return base::cat(seconds / 86400, " d");
}

std::string pid_text(const std::vector<pid_t>& pids) {
  std::string text;
  for (const pid_t pid : pids) text += base::cat(text.empty() ? "" : " ", pid);
  return text;
}

std::string use_text(const HeldArena& arena) {
  if (!arena.pids.empty()) return pid_text(arena.pids);
  return arena.listing.in_use ? "somebody" : "nobody";
}

std::string arenas_text(const std::vector<HeldArena>& arenas, int64_t now) {
  std::vector<std::vector<std::string>> rows = {
      {"weights", "model", "slice", "size", "state", "node", "pages", "kept", "used by", "age"}};
  for (const HeldArena& held : arenas) {
    const shm::ArenaListing& arena = held.listing;
    const bool known = arena.damage.empty();
    rows.push_back(
        {arena.name, known ? arena.label : "",
         known ? base::cat(arena.identity.slice_index, " of ", arena.identity.slice_count) : "",
         shm::memory_text(arena.allocated_bytes), state_text(arena),
         known && arena.node >= 0 ? base::cat(arena.node) : "any", held.pages,
         arena.keep ? "yes" : "no", use_text(held), age_text(now - arena.changed_at)});
  }
  return text_table(rows);
}

std::string groups_text(const std::vector<HeldGroup>& groups) {
  std::vector<std::vector<std::string>> rows = {{"groups", "size", "used by"}};
  for (const HeldGroup& group : groups) {
    std::string users = pid_text(group.pids);
    if (users.empty()) users = group.in_use ? "somebody" : "nobody";
    rows.push_back({group.name, shm::memory_text(group.bytes), users});
  }
  return text_table(rows);
}

int64_t positions_of(const HeldKv& kv) {
  return int64_t{kv.holds.block_count} * kv.holds.block_positions;
}

std::string kv_text(const std::vector<HeldKv>& all) {
  std::vector<std::vector<std::string>> rows = {
      {"KV cache", "rank", "size", "positions", "node", "used by"}};
  for (const HeldKv& kv : all) {
    const std::string users = kv.pids.empty() ? "nobody" : pid_text(kv.pids);
    if (!kv.damage.empty()) {
      rows.push_back({kv.name, "damaged", shm::memory_text(kv.bytes), "", "", users});
      continue;
    }
    rows.push_back({kv.name, base::cat(kv.holds.rank, " of ", kv.holds.rank_count),
                    shm::memory_text(kv.bytes), base::cat(positions_of(kv)),
                    kv.holds.node >= 0 ? base::cat(kv.holds.node) : "any", users});
  }
  return text_table(rows);
}

std::string nameless_text(const ShmHoldings& holdings) {
  std::vector<std::vector<std::string>> rows = {{"without a name", "size", "used by"}};
  for (const shm::MappedFile& file : holdings.nameless) {
    rows.push_back({file.path.substr(holdings.directory.size() + 1),
                    shm::memory_text(file.mapped_bytes), pid_text(file.pids)});
  }
  return text_table(rows);
}

void write_pids(broker::JsonWriter& json, const std::vector<pid_t>& pids) {
  json.key("pids").begin_array();
  for (const pid_t pid : pids) json.value(pid);
  json.end_array();
}

}  // namespace

std::string state_text(const shm::ArenaListing& arena) {
  if (!arena.damage.empty()) return "damaged";
  if (arena.state == shm::ArenaState::kReady) return "ready";
  if (!arena.in_use) return "half-loaded";
  const uint64_t all = std::max<uint64_t>(arena.data_bytes, 1);
  return base::cat("loading ", arena.progress_bytes / (all / 100 + 1), " %");
}

ShmHoldings shm_holdings(const shm::ArenaDir& directory) {
  ShmHoldings holdings{.directory = directory.directory,
                       .file_system = directory.file_system,
                       .free_bytes = directory.free_bytes};
  std::vector<shm::MappedFile> mapped = shm::mapped_files(directory.directory);
  for (shm::ArenaListing& listing : shm::list_arenas(directory.directory)) {
    HeldArena held{.listing = std::move(listing)};
    held.pids = users_of(mapped, base::cat(directory.directory, "/", held.listing.name, ".arena"));
    if (state_text(held.listing) == "ready")
      held.pages = pages_of(directory.directory, held.listing.name);
    holdings.arenas.push_back(std::move(held));
  }
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory.directory, ignored)) {
    if (!entry.is_symlink(ignored) && entry.is_directory(ignored))
      holdings.groups.push_back(look_at_group(entry.path(), mapped));
  }
  std::sort(holdings.groups.begin(), holdings.groups.end(),
            [](const HeldGroup& a, const HeldGroup& b) { return a.name < b.name; });
  for (const HeldGroup& group : holdings.groups)
    for (HeldKv& kv : kv_of(fs::path(directory.directory) / group.name, mapped))
      holdings.kv.push_back(std::move(kv));
  for (shm::MappedFile& file : mapped)
    if (file.deleted) holdings.nameless.push_back(std::move(file));
  return holdings;
}

std::string holdings_text(const ShmHoldings& holdings, int64_t now) {
  uint64_t bytes = 0;
  for (const HeldArena& arena : holdings.arenas) bytes += arena.listing.allocated_bytes;
  for (const HeldGroup& group : holdings.groups) bytes += group.bytes;
  std::string text =
      base::cat(holdings.directory, " (", holdings.file_system, "): ", shm::memory_text(bytes),
                " held, ", shm::memory_text(holdings.free_bytes), " free\n");
  if (!holdings.arenas.empty()) text += "\n" + arenas_text(holdings.arenas, now);
  if (!holdings.groups.empty()) text += "\n" + groups_text(holdings.groups);
  if (!holdings.kv.empty()) text += "\n" + kv_text(holdings.kv);
  if (!holdings.nameless.empty()) text += "\n" + nameless_text(holdings);
  return text;
}

std::string holdings_json(const ShmHoldings& holdings) {
  broker::JsonWriter json;
  json.begin_object().field("directory", holdings.directory);
  json.field("file_system", holdings.file_system).field("free_bytes", holdings.free_bytes);
  json.key("arenas").begin_array();
  for (const HeldArena& held : holdings.arenas) {
    const shm::ArenaListing& arena = held.listing;
    json.begin_object().field("name", arena.name).field("model", arena.label);
    json.field("slice", arena.identity.slice_index).field("slices", arena.identity.slice_count);
    json.field("file_bytes", arena.file_bytes).field("allocated_bytes", arena.allocated_bytes);
    json.field("state", state_text(arena)).field("damage", arena.damage);
    json.field("progress_bytes", arena.progress_bytes).field("data_bytes", arena.data_bytes);
    json.field("node", arena.node).field("pages", held.pages).field("keep", arena.keep);
    json.field("in_use", arena.in_use).field("changed_at", arena.changed_at);
    write_pids(json, held.pids);
    json.end_object();
  }
  json.end_array().key("groups").begin_array();
  for (const HeldGroup& group : holdings.groups) {
    json.begin_object().field("name", group.name).field("bytes", group.bytes);
    json.field("in_use", group.in_use);
    write_pids(json, group.pids);
    json.end_object();
  }
  json.end_array().key("kv").begin_array();
  for (const HeldKv& kv : holdings.kv) {
    json.begin_object().field("name", kv.name).field("bytes", kv.bytes);
    json.field("damage", kv.damage).field("rank", kv.holds.rank);
    json.field("ranks", kv.holds.rank_count).field("positions", positions_of(kv));
    json.field("node", kv.holds.node);
    write_pids(json, kv.pids);
    json.end_object();
  }
  json.end_array().key("nameless").begin_array();
  for (const shm::MappedFile& file : holdings.nameless) {
    json.begin_object().field("path", file.path).field("bytes", file.mapped_bytes);
    write_pids(json, file.pids);
    json.end_object();
  }
  return json.end_array().end_object().take();
}

}  // namespace cli
