// The content hash is the same for every split, and another for any other content.
#include "worker/content_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/limits.h"

#include "tests/worker/loading.h"
#include "worker/loader.h"

namespace worker {
namespace {

shm::Hash128 content_of(const model::Model& model, const std::vector<double>& shares,
                        plan::Strategy strategy = plan::Strategy::kRows) {
  const plan::Plan plan = plan_of(model, shares, strategy);
  auto team = engine::ThreadTeam::start({-1});
  EXPECT_TRUE(team.ok());
  shm::Hash128 sum;
  for (int rank = 0; rank < plan.rank_count(); rank++) {
    const engine::WeightMap map = map_of(model, plan, rank);
    const auto content =
        hash_weights({model, plan, rank, map}, {.team = team->get(), .on_progress = {}});
    EXPECT_TRUE(content.ok()) << content.error().message;
    add(sum, *content);
  }
  return sum;
}

TEST(Add, CarriesIntoTheHighHalf) {
  shm::Hash128 sum{.low = ~uint64_t{0}, .high = 1};
  add(sum, {.low = 2, .high = 3});
  EXPECT_EQ(sum, (shm::Hash128{.low = 1, .high = 5}));
  add(sum, {.low = 0, .high = ~uint64_t{0}});
  EXPECT_EQ(sum, (shm::Hash128{.low = 1, .high = 4}));
}

// Among the models: KV heads on several ranks, keys and values in one tensor of a latent, tied
// embeddings with and without a second copy, split files, experts in tensors of their own.
TEST(ContentHash, IsTheSameForEverySplit) {
  std::mt19937 random(4711);
  for (const std::string& path : golden_paths()) {
    SCOPED_TRACE(path);
    const model::Model model = load_good(path);
    const shm::Hash128 whole = content_of_files(model);
    EXPECT_EQ(content_of(model, {1}), whole);
    for (const int ranks : {2, 3, 4}) {
      std::vector<double> shares(static_cast<size_t>(ranks), 1);
      EXPECT_EQ(content_of(model, shares), whole) << ranks;
      for (int trial = 0; trial < 3; trial++) {
        for (double& share : shares) share = std::uniform_real_distribution(0.05, 1.0)(random);
        EXPECT_EQ(content_of(model, shares), whole) << ::testing::PrintToString(shares);
      }
    }
  }
}

// Experts as a whole, in lists that interleave; and ranks that have none.
TEST(ContentHash, IsTheSameForWholeExperts) {
  int models = 0;
  for (const std::string& path : golden_paths()) {
    SCOPED_TRACE(path);
    const model::Model model = load_good(path);
    if (std::ranges::none_of(model.spec.blocks,
                             [](const auto& b) { return b.experts.has_value(); }))
      continue;
    models++;
    const shm::Hash128 whole = content_of_files(model);
    for (const std::vector<double>& shares :
         std::vector<std::vector<double>>{{1}, {1, 1}, {1, 5, 2}, {100, 1}, {1, 1, 1, 1}}) {
      EXPECT_EQ(content_of(model, shares, plan::Strategy::kExperts), whole)
          << ::testing::PrintToString(shares);
    }
  }
  EXPECT_GE(models, 10);
}

// Every block counts, also those that several ranks hold.
TEST(ContentHash, ChangesWithEveryTensor) {
  const Folder folder;
  const std::string path = folder.file("model.gguf");
  for (const char* name : {"qwen3moe-q4_k", "deepseek2-lite-f16", "odd-tied-q4_0"}) {
    const Bytes good = read_file(golden_path(name));
    write_file(path, good);
    const model::Model model = load_good(path);
    const shm::Hash128 whole = content_of(model, {1, 2, 1});
    for (const model::TensorInfo& tensor : model.directory->tensors) {
      Bytes bad = good;
      // The last byte is of the last row of the last expert or head.
      bad[tensor.offset + tensor.bytes - 1] ^= std::byte{1};
      write_file(path, bad);
      EXPECT_NE(content_of(load_good(path), {1, 2, 1}), whole) << tensor.name;
    }
  }
}

TEST(ContentHash, ChangesWhenBlocksTradePlaces) {
  const Folder folder;
  const std::string path = folder.file("model.gguf");
  Bytes bytes = read_file(golden_path("qwen3moe-q4_k"));
  write_file(path, bytes);
  const model::Model model = load_good(path);
  const shm::Hash128 whole = content_of(model, {1, 1});
  const model::TensorInfo* tensor = model.directory->find("token_embd.weight");
  ASSERT_NE(tensor, nullptr);
  const auto block =
      kernels::row_bytes(tensor->type, tensor->row_length()) * int64_t{base::kSliceRows};
  const auto first = bytes.begin() + static_cast<int64_t>(tensor->offset);
  ASSERT_NE(Bytes(first, first + block), Bytes(first + block, first + 2 * block));
  std::swap_ranges(first, first + block, first + block);
  write_file(path, bytes);
  EXPECT_NE(content_of(load_good(path), {1, 1}), whole);
}

}  // namespace
}  // namespace worker
