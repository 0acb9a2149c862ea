#include "worker/backend.h"

#include <algorithm>
#include <limits>

namespace worker {

namespace {

class RankHostBackend final : public Backend {
 public:
  explicit RankHostBackend(std::unique_ptr<RankHost> host) : host_(std::move(host)) {}

  std::string fingerprint() const override { return host_->fingerprint(); }

  int32_t token_count() const override {
    // Rows of the embedding without a piece exist in files that round the vocabulary up.
    const model::Model& model = host_->model();
    const auto* pieces = model.directory->metadata.strings("tokenizer.ggml.tokens");
    const auto count = pieces == nullptr
                           ? std::numeric_limits<int64_t>::max()
                           : std::max(static_cast<int64_t>(pieces->size()), int64_t{1});
    return static_cast<int32_t>(std::min(count, model.spec.vocabulary));
  }

  base::Status load(const LoadWatch& watch) override { return host_->load(watch); }
  engine::StepRunner& runner() override { return host_->runner(); }
  SealedBlocks* sealed_blocks() override { return host_->sealed_blocks(); }
  base::Result<bool> follow(base::TimeNs slice) override { return host_->follow(slice); }
  RankReport report() const override { return host_->report(); }
  std::vector<proto::LayerUse> expert_use() const override { return host_->expert_use(); }
  base::Result<std::string> check_room(const RoomQuestion& question) const override {
    return worker::check_room(host_->memory(), question);
  }
  std::vector<ArenaNeed> room_needs(const RoomQuestion& question) const override {
    return arena_needs(host_->memory(), question);
  }
  std::string weights_prefix() const override { return host_->weights_prefix(); }
  void release_weights() override { host_->release_weights(); }
  proto::PlacementReply placement() const override { return host_->placement(); }

 private:
  std::unique_ptr<RankHost> host_;
};

}  // namespace

base::Result<std::unique_ptr<Backend>> open_rank_host(const RankHostOptions& options) {
  ASSIGN_OR_RETURN(auto host, RankHost::open(options));
  return std::unique_ptr<Backend>(std::make_unique<RankHostBackend>(std::move(host)));
}

}  // namespace worker
