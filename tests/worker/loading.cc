#include "tests/worker/loading.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/limits.h"
#include "kernels/ops.h"

namespace worker {

namespace fs = std::filesystem;

std::vector<std::string> golden_paths() {
  std::vector<fs::path> folders = {fs::path(NUMOE_SOURCE_DIR) / "tests/golden/models"};
  if (std::getenv("NUMOE_FULL") != nullptr) {
    folders.push_back(fs::path(NUMOE_SOURCE_DIR) / "../shared/golden/models");
  }
  std::vector<std::string> paths;
  for (const fs::path& folder : folders) {
    if (!fs::exists(folder)) continue;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename();
      const bool later_part =
          name.find("-of-") != std::string::npos && name.find("-00001-of-") == std::string::npos;
      if (entry.path().extension() == ".gguf" && !later_part &&
          model::load_model(entry.path()).ok()) {
        paths.push_back(entry.path());
      }
    }
  }
  std::ranges::sort(paths);
  return paths;
}

std::string golden_path(const std::string& name) {
  return fs::path(NUMOE_SOURCE_DIR) / "tests/golden/models" / (name + ".gguf");
}

model::Model load_good(const std::string& path) {
  auto model = model::load_model(path);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return std::move(*model);
}

plan::Plan plan_of(const model::Model& model, const std::vector<double>& shares,
                   plan::Strategy strategy) {
  auto plan = plan::split(
      model.spec,
      {.strategy = strategy, .rank_count = static_cast<int>(shares.size()), .shares = shares});
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  return std::move(*plan);
}

engine::WeightMap map_of(const model::Model& model, const plan::Plan& plan, int rank) {
  return engine::map_weights(model, plan.ranks[static_cast<size_t>(rank)],
                             **kernels::find_ops("auto"));
}

Bytes read_file(const std::string& path) {
  Bytes bytes(fs::file_size(path));
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  EXPECT_TRUE(file.good()) << path;
  return bytes;
}

void write_file(const std::string& path, const Bytes& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  EXPECT_TRUE(file.good()) << path;
}

namespace {

std::vector<Bytes> read_files(const model::Model& model) {
  std::vector<Bytes> files;
  for (const model::SourceFile& file : model.directory->files) {
    files.push_back(read_file(file.path));
  }
  return files;
}

}  // namespace

Bytes simple_path(const model::Model& model, const engine::WeightMap& map) {
  const std::vector<Bytes> files = read_files(model);
  Bytes memory(map.bytes);
  for (const engine::WeightSlice& slice : map.slices) {
    for (int64_t m = 0; m < slice.matrix_count; m++) {
      const int64_t number = slice.matrix_number(m);
      const model::TensorInfo& tensor = slice.parts ? *slice.parts[number] : *slice.tensor;
      const int64_t row_bytes = kernels::row_bytes(tensor.type, tensor.row_length());
      const int64_t matrix_first = slice.parts ? 0 : number * slice.matrix_rows;
      const std::byte* rows = files[static_cast<size_t>(tensor.file_index)].data() + tensor.offset +
                              matrix_first * row_bytes;
      std::vector<std::byte> turned;
      if (slice.transposed) {
        const auto size = static_cast<size_t>(slice.row_length * row_bytes);
        turned = engine::transposed_rows(tensor.type, {rows, size}, tensor.row_length());
        rows = turned.data();
      }
      const int64_t stride = kernels::row_bytes(slice.type, slice.row_length);
      std::byte* out = memory.data() + slice.offset + static_cast<size_t>(m) * slice.matrix_bytes;
      for (int64_t row = slice.rows.begin; row < slice.rows.end; row += kernels::kPanelRows) {
        const int64_t count = std::min<int64_t>(kernels::kPanelRows, slice.rows.end - row);
        kernels::pack_panel(slice.layout, slice.type, rows + row * stride, static_cast<int>(count),
                            slice.row_length, out);
        out += slice.panel_bytes;
      }
    }
  }
  return memory;
}

shm::Hash128 content_of_files(const model::Model& model) {
  using Wide = unsigned __int128;
  const std::vector<Bytes> files = read_files(model);
  const engine::WeightMap map = map_of(model, plan_of(model, {1}), 0);
  std::set<const model::TensorInfo*> used;
  for (const engine::WeightSlice& slice : map.slices) {
    used.insert(slice.tensor);
    for (int64_t m = 0; slice.parts != nullptr && m < slice.matrix_count; m++) {
      used.insert(slice.parts[m]);
    }
  }
  Wide sum = 0;
  uint64_t number = 0;
  for (const model::TensorInfo& tensor : model.directory->tensors) {
    const Bytes& bytes = files[static_cast<size_t>(tensor.file_index)];
    const int64_t row_bytes = kernels::row_bytes(tensor.type, tensor.row_length());
    for (int64_t matrix = 0; matrix < tensor.shape[2] * tensor.shape[3]; matrix++) {
      for (int64_t row = 0; row < tensor.shape[1]; row += base::kSliceRows) {
        const int64_t rows = std::min<int64_t>(base::kSliceRows, tensor.shape[1] - row);
        const std::byte* begin =
            bytes.data() + tensor.offset + (matrix * tensor.shape[1] + row) * row_bytes;
        const auto hash = shm::hash128({begin, static_cast<size_t>(rows * row_bytes)});
        const uint64_t numbered[] = {number++, hash.low, hash.high};
        const auto term = shm::hash128(std::as_bytes(std::span(numbered)));
        if (used.contains(&tensor)) sum += Wide{term.high} << 64 | term.low;
      }
    }
  }
  return {.low = static_cast<uint64_t>(sum), .high = static_cast<uint64_t>(sum >> 64)};
}

Folder::Folder(const std::string& parent) {
  std::string name = (parent.empty() ? ::testing::TempDir() : parent + "/") + "numoe-load-XXXXXX";
  EXPECT_NE(mkdtemp(name.data()), nullptr) << name;
  path_ = name;
}

Folder::~Folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

namespace {

/// A descriptor for as long as it takes.
template <class Use>
void with_file(const std::string& path, const Use& use) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0) << path;
  use(fd);
  close(fd);
}

}  // namespace

void evict(const std::string& path) {
  with_file(path, [](int fd) {
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  });
}

std::vector<bool> cached_pages(const std::string& path) {
  const size_t bytes = fs::file_size(path);
  std::vector<unsigned char> resident((bytes + 4095) / 4096);
  with_file(path, [&](int fd) {
    void* mapping = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    ASSERT_NE(mapping, MAP_FAILED);
    EXPECT_EQ(mincore(mapping, bytes, resident.data()), 0);
    munmap(mapping, bytes);
  });
  std::vector<bool> pages;
  for (const unsigned char page : resident) pages.push_back((page & 1) != 0);
  return pages;
}

size_t count(const std::vector<bool>& pages) {
  return static_cast<size_t>(std::ranges::count(pages, true));
}

bool has_cold_files(const std::string& folder) {
  const std::string path = folder + "/cold";
  write_file(path, Bytes(1 << 16, std::byte{1}));
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd >= 0) close(fd);
  evict(path);
  const bool cold = fd >= 0 && count(cached_pages(path)) == 0;
  fs::remove(path);
  return cold;
}

}  // namespace worker
