// An arena: the weights of one slice in shared memory on one node, written once, then read-only.
//
//   ArenaPlan plan; plan.reserve(…) for every tensor
//   Arena::create(dir, name, plan, …)   this process loads, holding an exclusive lock
//     write data(offset) … add_progress() … seal()
//   Arena::attach(dir, name, …)         any number of readers, each holding a shared lock
//
// The lock is a flock on the arena file and dies with its process. A loader that dies half-way
// leaves the state `loading` and no lock; the next create() of that name starts over. Removing
// needs the exclusive lock, so nothing goes while somebody maps it.
// Thread rule: loading threads may write disjoint tensors, call add_progress() and set_checksum()
// (one thread per tensor); everything else by one thread.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "shm/arena_format.h"
#include "shm/region.h"

namespace shm {

/// A tensor to be placed. Errors of reserve(): kInvalidArgument.
struct TensorSpec {
  std::string name;  // at most 95 bytes
  uint32_t type = 0;
  uint32_t layout = 0;
  uint64_t rows = 0;
  uint64_t row_length = 0;
  uint64_t first_row = 0;
  uint64_t bytes = 0;  // as packed
};

/// The tensors of an arena to be, so that its size is known before it exists. A plain value.
class ArenaPlan {
 public:
  /// Places a tensor behind the last one; returns the offset for Arena::data(). A name may come
  /// again with another first_row.
  base::Result<uint64_t> reserve(const TensorSpec& spec);

  uint64_t data_bytes() const { return data_bytes_; }
  uint64_t data_offset() const;
  /// Size of the file, whole huge pages if that large.
  uint64_t file_bytes() const;
  const std::vector<TensorEntry>& table() const { return table_; }

 private:
  std::vector<TensorEntry> table_;
  std::set<std::pair<std::string, uint64_t>> names_;
  uint64_t data_bytes_ = 0;
};

struct ArenaOptions {
  ArenaIdentity identity = {};
  int node = -1;                                     // OS node to bind to
  bool keep = false;                                 // stays when its last process ends
  bool small = false;                                // no huge pages
  std::string label = {};                            // for people; cut to fit
  std::function<base::Result<void>()> keep_on = {};  // of RegionOptions
};

class Arena {
 public:
  /// Makes the arena, or takes over a half-loaded one, and reserves its memory. Errors: kNoSpace;
  /// kUnavailable if another process loads or uses it or it is ready; kBrokenFile.
  static base::Result<Arena> create(const std::string& directory, const std::string& name,
                                    const ArenaPlan& plan, const ArenaOptions& options);
  /// Maps a sealed arena read-only. Errors: kNotFound; kUnavailable while it is loaded, with the
  /// progress; kBrokenFile if its loader died or a check fails; kUnsupported if it is not
  /// `expected`.
  static base::Result<Arena> attach(const std::string& directory, const std::string& name,
                                    const std::optional<ArenaIdentity>& expected = {});

  /// The same in a file that the caller opened for writing and locked: exclusively, then what was
  /// in it is gone, and it has no name any more after an error; or shared.
  static base::Result<Arena> create_in(File file, const std::string& path, const ArenaPlan& plan,
                                       const ArenaOptions& options);
  static base::Result<Arena> attach_in(File file, const std::string& path);

  const ArenaHeader& header() const { return *header_; }
  std::span<const TensorEntry> tensors() const { return table_; }
  /// nullptr if there is none.
  const TensorEntry* find(std::string_view name, uint64_t first_row = 0) const;

  /// Memory at an offset from reserve() or an entry. Written only by the loader, before seal().
  std::byte* data(uint64_t offset) const { return region_.data() + header_->data_offset + offset; }
  std::span<const std::byte> bytes_of(const TensorEntry& entry) const {
    return {data(entry.offset), entry.bytes};
  }

  void add_progress(uint64_t bytes);
  void set_progress(uint64_t bytes);
  uint64_t progress() const;
  ArenaState state() const;
  /// The checksum of tensor `index`, where the loader has it anyway; seal() computes the others.
  void set_checksum(size_t index, const Hash128& checksum);
  /// Ends loading: checksums, read-only, state `ready`, shared lock. Who removes leftovers may come
  /// in between; then nobody else can attach, and the memory goes with this process.
  base::Result<void> seal(const Hash128& content = {});

  // REQUIRES: attached by attach_in().
  /// Makes it stay when its last process ends.
  base::Result<void> set_keep();
  /// Says that files with another identity hold the same. Done only if nobody else uses the arena;
  /// error kUnavailable if it has no name any more.
  base::Result<void> renew_source(const Hash128& source);

  /// Compares every tensor with its checksum. Error: kBrokenFile naming the first that differs.
  base::Result<void> verify() const;

  /// Takes the name away: nobody can attach any more, and the memory goes with its last process.
  void unlink_name();
  /// The same if this process is the last to use it and it shall not stay. True if it went.
  bool unlink_if_last();
  bool was_taken_over() const { return taken_over_; }
  const Region& region() const { return region_; }

 private:
  explicit Arena(Region region);
  /// From exclusive to shared, if the arena has a name still. `header_checksum` is its own. Error:
  /// kUnavailable if somebody took the file meanwhile; its bytes are his then.
  base::Result<void> share_lock(uint64_t header_checksum);
  base::Result<void> change_header(const std::function<void(ArenaHeader&)>& change);

  Region region_;  // its file carries the lock
  ArenaHeader* header_;
  std::span<TensorEntry> table_;
  bool taken_over_ = false;
  bool named_ = true;
};

/// The file of an arena: DIR/<name>.arena. Error: kInvalidArgument for a name that is not
/// [A-Za-z0-9._-]+ of at most 200 bytes or starts with a dot.
base::Result<std::string> arena_path(const std::string& directory, const std::string& name);

/// The header of an arena file, read without mapping and checked. Errors as attach().
base::Result<ArenaHeader> peek_header(const File& file);

}  // namespace shm
