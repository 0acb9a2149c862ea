#include "worker/rank_kv.h"

#include "base/cat.h"
#include "engine/rank_engine.h"
#include "worker/loader.h"
#include "worker/weight_names.h"

namespace worker {

namespace {

// An earlier process of this rank that was killed still holds its pool while it unmaps it.
constexpr base::TimeNs kDyingMax = 20'000'000'000;

}  // namespace

shm::KvIdentity kv_identity(const KvIdentityOptions& options) {
  const plan::RankShare& share = options.plan->ranks[static_cast<size_t>(options.rank)];
  std::string heads;
  for (const auto& block : share.blocks)
    heads += base::cat(block.kv_heads.begin, ' ', block.kv_heads.end, '\n');
  shm::KvIdentity identity;
  identity.model = {.low = model_fingerprint(*options.model),
                    .high = source_identity(*options.model).low};
  identity.plan_hash = shm::hash64(std::as_bytes(std::span(heads)));
  identity.pool_bytes =
      engine::kv_pool_bytes(options.model->spec, share, options.type, options.counts);
  identity.kv_type = static_cast<uint32_t>(options.type);
  identity.layout = options.ops->is_reference ? 1 : 0;
  identity.block_count = static_cast<uint32_t>(options.counts.blocks);
  identity.rank = static_cast<uint32_t>(options.rank);
  identity.rank_count = static_cast<uint32_t>(options.plan->ranks.size());
  identity.node = options.os_node;
  return identity;
}

base::Result<RankKv> RankKv::find(RankKvOptions options) {
  RankKv kv;
  kv.options_ = std::move(options);
  ASSIGN_OR_RETURN(kv.found_,
                   shm::find_kv_arena(kv.options_.path, kv.options_.identity, kDyingMax));
  if (!kv.options_.named) {
    shm::unlink_region(kv.options_.path);
    kv.found_.stamp = 0;
  }
  if (!kv.found_.why_new.empty()) {
    kv.note_ = base::cat("what an earlier process left is not kept: ", kv.found_.why_new);
  }
  return kv;
}

void RankKv::discard() {
  if (found_.stamp != 0)
    note_ = "what an earlier process left is not kept: another rank has lost its part";
  found_.stamp = 0;
  shm::empty(found_);
}

base::Status RankKv::open(uint64_t stamp, const std::function<base::Status()>& keep_on) {
  CHECK(found_.stamp == 0 || found_.stamp == stamp, "a pool that the group does not keep");
  base::Result<shm::KvArena> arena =
      found_.stamp != 0
          ? shm::KvArena::adopt(std::move(found_))
          : shm::KvArena::create(
                std::move(found_),
                {.stamp = stamp, .small_pages = options_.small_pages, .keep_on = keep_on});
  if (!arena.ok()) return arena.error();
  arena_.emplace(std::move(*arena));
  if (options_.identity.rank != 0) return {};
  sealed_.emplace(arena_->entries(), shm::kv_chain_root(options_.identity), options_.near_count);
  found_blocks_ = sealed_->sealed_count();
  return {};
}

}  // namespace worker
