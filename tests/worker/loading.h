// What tests of loading share: golden models, plans, the simple path, and what the page cache
// holds.
#pragma once

#include <string>
#include <vector>

#include "engine/weights.h"
#include "model/model.h"
#include "plan/plan.h"
#include "shm/checksum.h"

namespace worker {

using Bytes = std::vector<std::byte>;

/// Golden model files (first parts of split ones) that load: those of the repository, with
/// NUMOE_FULL=1 also the full set beside it.
std::vector<std::string> golden_paths();
/// One of the repository's by its name without ".gguf".
std::string golden_path(const std::string& name);

/// Loads a model that is known to be good.
model::Model load_good(const std::string& path);

/// The plan for shares, one per rank.
plan::Plan plan_of(const model::Model& model, const std::vector<double>& shares,
                   plan::Strategy strategy = plan::Strategy::kRows);
engine::WeightMap map_of(const model::Model& model, const plan::Plan& plan, int rank);

/// What loading must give, from whole files in memory: matrix by matrix, panel by panel.
Bytes simple_path(const model::Model& model, const engine::WeightMap& map);
/// The content hash of the tensors that the model uses, by its definition, from whole files.
shm::Hash128 content_of_files(const model::Model& model);

Bytes read_file(const std::string& path);
void write_file(const std::string& path, const Bytes& bytes);

/// A folder of this test, removed at its end.
class Folder {
 public:
  /// In `parent`, or where temporary files go.
  explicit Folder(const std::string& parent = "");
  ~Folder();
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Takes a file out of the page cache as far as the system lets us.
void evict(const std::string& path);
/// Which of its pages are in the page cache. [pages]
std::vector<bool> cached_pages(const std::string& path);
size_t count(const std::vector<bool>& pages);
/// Whether files here can be read with O_DIRECT and taken out of the page cache.
bool has_cold_files(const std::string& folder);

}  // namespace worker
