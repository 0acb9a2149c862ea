// `numoe shm`: what numoe holds in shared memory, whether it is sound, and how to free it.
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "base/cat.h"
#include "broker/api/json_writer.h"
#include "cli/commands.h"
#include "cli/shm_report.h"
#include "shm/arena.h"
#include "shm/arena_room.h"
#include "shm/numa.h"

namespace cli {

namespace {

/// The arenas that are meant; nothing named: all. Error: kNotFound.
base::Result<std::vector<shm::ArenaListing>> chosen(const std::string& directory,
                                                    const std::vector<std::string>& names) {
  std::vector<shm::ArenaListing> all = shm::list_arenas(directory);
  if (names.empty()) return all;
  std::vector<shm::ArenaListing> some;
  for (std::string name : names) {
    if (name.ends_with(".arena")) name.resize(name.size() - 6);
    const auto found = std::find_if(
        all.begin(), all.end(), [&](const shm::ArenaListing& arena) { return arena.name == name; });
    if (found == all.end())
      return base::Error{base::Code::kNotFound, base::cat("there is no arena ", name, " in ",
                                                          directory, "; see numoe shm ls")};
    some.push_back(*found);
  }
  return some;
}

/// "node 0: 100 %"; the pages were all read just now.
std::string nodes_text(const shm::Region& region) {
  constexpr size_t kAskedMax = size_t{16} << 30;
  const size_t stride = region.bytes() / kAskedMax + 1;
  shm::PageNodes pages = shm::page_nodes(region.data(), region.bytes(), stride);
  if (!pages.permitted) pages = shm::mapping_nodes(region.data());
  std::string text;
  for (size_t node = 0; node < pages.pages_on_node.size(); node++) {
    if (pages.pages_on_node[node] == 0) continue;
    const double percent = 100 * pages.share_on(static_cast<int>(node));
    text += base::cat(text.empty() ? "" : ", ", "node ", node, ": ",
                      static_cast<double>(static_cast<int64_t>(percent * 10)) / 10, " %");
  }
  return text.empty() ? "nobody knows where its pages are" : text;
}

struct Verdict {
  std::string name = {}, problem = {}, nodes = {}, pages = {};
  uint64_t bytes = 0;
  bool misplaced = false, damaged = false;
};

Verdict verify_one(const std::string& directory, const shm::ArenaListing& listing) {
  Verdict verdict{.name = listing.name, .bytes = listing.data_bytes};
  const auto arena = shm::Arena::attach(directory, listing.name);
  const base::Status sound = arena.ok() ? arena->verify() : base::Status(arena.error());
  if (!sound.ok()) {
    verdict.problem = sound.error().message;
    verdict.damaged = sound.error().code != base::Code::kUnavailable;  // else it is being loaded
    return verdict;
  }
  const shm::Region& region = arena->region();
  verdict.nodes = nodes_text(region);
  const auto pages = shm::page_report(region.data());
  if (pages.ok())
    verdict.pages = base::cat(shm::memory_text(pages->huge_bytes), " of ",
                              shm::memory_text(pages->resident_bytes), " in huge pages");
  verdict.misplaced =
      listing.node >= 0 && !verdict.nodes.starts_with(base::cat("node ", listing.node, ": 100 %"));
  return verdict;
}

base::Status verify(Context& context, const shm::ArenaDir& directory) {
  ASSIGN_OR_RETURN(const auto arenas, chosen(directory.directory, context.options.names));
  broker::JsonWriter json;
  json.begin_object().key("arenas").begin_array();
  std::string text;
  size_t damaged = 0;
  for (const shm::ArenaListing& listing : arenas) {
    const Verdict verdict = verify_one(directory.directory, listing);
    damaged += verdict.damaged ? 1 : 0;
    json.begin_object().field("name", verdict.name).field("sound", verdict.problem.empty());
    json.field("problem", verdict.problem).field("nodes", verdict.nodes);
    json.field("misplaced", verdict.misplaced).field("pages", verdict.pages);
    json.field("data_bytes", verdict.bytes).end_object();
    if (!verdict.problem.empty()) {
      text += base::cat(verdict.name, ": ", verdict.problem, "\n");
      continue;
    }
    text += base::cat(verdict.name, ": all checksums of ", shm::memory_text(verdict.bytes),
                      " are right; ", verdict.nodes,
                      verdict.misplaced ? base::cat(", not on node ", listing.node) : std::string(),
                      "; ", verdict.pages, "\n");
  }
  json.end_array().end_object();
  RETURN_IF_ERROR(print(context.options.json ? json.take() + "\n" : text));
  if (damaged == 0) return {};
  return base::Error{base::Code::kBrokenFile,
                     base::cat(damaged, " of ", arenas.size(), " arenas cannot be used")};
}

enum class InUse { kRefuse, kTakeName };

/// Error: kUnavailable with who uses it.
base::Status remove_one(const std::string& directory, const shm::ArenaListing& listing,
                        InUse in_use) {
  const base::Status removed = shm::remove_arena(directory, listing.name);
  if (removed.ok() || removed.error().code != base::Code::kUnavailable) return removed;
  const std::string path = base::cat(directory, "/", listing.name, ".arena");
  if (in_use == InUse::kTakeName) {
    if (unlink(path.c_str()) == 0) return {};
    return base::Error{base::Code::kSystem, base::cat("cannot remove ", path)};
  }
  std::string users;
  for (const shm::MappedFile& file : shm::mapped_files(directory))
    if (!file.deleted && file.path == path) users = shm::name_processes(file.pids);
  return base::Error{
      base::Code::kUnavailable,
      base::cat(listing.name, " is in use by ",
                users.empty() ? "a process that is not visible here" : users,
                "; end it first, or take only the name away with --force: the memory "
                "then goes with the last process")};
}

base::Status remove(Context& context, const shm::ArenaDir& directory) {
  const Options& options = context.options;
  ASSIGN_OR_RETURN(const auto arenas, chosen(directory.directory, options.names));
  std::string text, refused;
  uint64_t bytes = 0;
  broker::JsonWriter json;
  json.begin_object().key("removed").begin_array();
  const InUse in_use = options.force ? InUse::kTakeName : InUse::kRefuse;
  for (const shm::ArenaListing& listing : arenas) {
    const base::Status status = remove_one(directory.directory, listing, in_use);
    if (status.ok()) {
      bytes += listing.allocated_bytes;
      json.value(listing.name);
      text += base::cat("removed ", listing.name, ", ", shm::memory_text(listing.allocated_bytes),
                        "\n");
    } else if (!options.names.empty()) {
      refused += base::cat(refused.empty() ? "" : "; ", status.error().message);
    } else {
      text += base::cat(status.error().message, "\n");
    }
  }
  json.end_array().field("bytes", bytes).end_object();
  if (text.empty() && refused.empty()) text = "there is nothing to remove\n";
  RETURN_IF_ERROR(print(options.json ? json.take() + "\n" : text));
  if (!refused.empty()) return base::Error{base::Code::kUnavailable, refused};
  return {};
}

}  // namespace

base::Status shm_tool(Context& context) {
  const Options& options = context.options;
  ASSIGN_OR_RETURN(const shm::ArenaDir directory,
                   shm::choose_arena_dir({.directory = options.arena_directory}));
  if (options.action == "verify") return verify(context, directory);
  if (options.action == "rm") return remove(context, directory);
  if (!options.names.empty())
    return base::Error{base::Code::kInvalidArgument, "numoe shm ls takes no names"};
  const ShmHoldings holdings = shm_holdings(directory);
  return print(options.json ? holdings_json(holdings) + "\n"
                            : holdings_text(holdings, static_cast<int64_t>(std::time(nullptr))));
}

}  // namespace cli
