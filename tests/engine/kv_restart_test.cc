// Promise 2 over restarts: a group that dies anywhere leaves KV pools from which the next one goes
// on with the same bits, computing only what no full block held.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "shm/checksum.h"
#include "tests/engine/golden.h"
#include "tests/engine/local_ranks.h"
#include "worker/leader.h"
#include "worker/rank_kv.h"

namespace engine {
namespace {

constexpr int64_t kGenerated = 200;
constexpr int32_t kBlocks = 16;

struct Shape {
  int ranks = 1;
  kernels::KvType kv_type = kernels::KvType::kF16;
  bool seals = true;
};

/// Notes a hash of the logits of every position.
class RecordingRunner final : public StepRunner {
 public:
  explicit RecordingRunner(StepRunner& runner) : runner_(runner) {}
  RunnerShape shape() const override { return runner_.shape(); }
  base::Result<StepOutput> run(const Step& step) override {
    auto output = runner_.run(step);
    if (!output.ok()) return output;
    const auto vocabulary = static_cast<size_t>(shape().vocabulary);
    size_t row = 0;
    for (const Column& column : step.columns) {
      if (column.wants_logits == 0) continue;
      const auto logits = output->logits.subspan(row++ * vocabulary, vocabulary);
      logits_[{column.sequence, column.position}] = shm::hash64(std::as_bytes(logits));
    }
    return output;
  }
  /// (sequence of the step, position) -> hash.
  const std::map<std::pair<int32_t, int64_t>, uint64_t>& logits() const { return logits_; }

 private:
  StepRunner& runner_;
  std::map<std::pair<int32_t, int64_t>, uint64_t> logits_;
};

/// A group whose KV pools lie in named files: made, or found again.
class KvGroup {
 public:
  static base::Result<std::unique_ptr<KvGroup>> start(const model::Model& model, const Shape& shape,
                                                      const std::string& directory) {
    std::unique_ptr<KvGroup> group(new KvGroup);
    ASSIGN_OR_RETURN(const kernels::Ops* ops, kernels::find_ops("auto"));
    ASSIGN_OR_RETURN(const plan::Plan plan,
                     plan::split(model.spec, {.rank_count = shape.ranks, .shares = {}}));
    LocalRanksOptions options{.ranks = shape.ranks,
                              .kv_type = shape.kv_type,
                              .context = kBlocks * base::kKvBlockPositions,
                              .kv_blocks = kBlocks};
    for (int rank = 0; rank < shape.ranks; rank++) {
      ASSIGN_OR_RETURN(
          worker::RankKv kv,
          worker::RankKv::find({.path = base::cat(directory, "/kv.", rank),
                                .named = true,
                                .identity = worker::kv_identity({.model = &model,
                                                                 .plan = &plan,
                                                                 .ops = ops,
                                                                 .type = shape.kv_type,
                                                                 .counts = {.blocks = kBlocks},
                                                                 .rank = rank})}));
      RETURN_IF_ERROR(kv.open(5));
      options.kv_memory.push_back(kv.data());
      group->kv_.push_back(std::make_unique<worker::RankKv>(std::move(kv)));
    }
    ASSIGN_OR_RETURN(group->ranks_, LocalRanks::start(model, options));
    group->runner_ = std::make_unique<RecordingRunner>(group->ranks_->runner());
    group->leader_ = std::make_unique<worker::Leader>(
        *group->runner_,
        worker::LeaderOptions{.token_count = static_cast<int32_t>(model.spec.vocabulary),
                              .sealed_blocks = shape.seals ? group->kv_[0]->sealed() : nullptr});
    return group;
  }

  worker::Leader& leader() { return *leader_; }
  worker::RankKv& kv(int rank) { return *kv_[static_cast<size_t>(rank)]; }
  const RecordingRunner& runner() const { return *runner_; }

  /// Runs steps until there are `count` more tokens or all requests have ended.
  std::map<uint64_t, std::vector<int32_t>> generate(size_t count) {
    std::map<uint64_t, std::vector<int32_t>> tokens;
    for (size_t all = 0; all < count && leader_->has_work();) {
      EXPECT_TRUE(leader_->tick(0).ok());
      for (const worker::Traced& sent : leader_->take_outbox()) {
        const auto* chunk = std::get_if<proto::TokenChunk>(&sent.body);
        if (chunk == nullptr) continue;
        EXPECT_NE(chunk->finish, proto::Finish::kError) << chunk->error.message;
        auto& own = tokens[chunk->request_id];
        own.insert(own.end(), chunk->tokens.begin(), chunk->tokens.end());
        all += chunk->tokens.size();
      }
    }
    return tokens;
  }

 private:
  KvGroup() = default;
  std::vector<std::unique_ptr<worker::RankKv>> kv_;  // [ranks]
  std::unique_ptr<LocalRanks> ranks_;
  std::unique_ptr<RecordingRunner> runner_;
  std::unique_ptr<worker::Leader> leader_;
};

proto::GenerateRequest request_for(const std::vector<int32_t>& prompt,
                                   const std::vector<int32_t>& generated = {}) {
  return {.request_id = 1,
          .prompt = prompt,
          .sampling = {.temperature = 1.0f, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 4},
          .max_tokens = kGenerated,
          .generated = generated,
          .first_index = generated.size()};
}

class KvRestart : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/dev/shm/numoe-kv-restart-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  void forget_pools() const {
    for (const auto& file : std::filesystem::directory_iterator(directory_))
      std::filesystem::remove(file);
  }
  void load(const char* name) {
    const GoldenCase one = golden_case(name);
    auto model = model::load_model(one.path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(*model);
    prompt_ = one.reference.back().tokens;
    ASSERT_EQ(prompt_.size(), 70u);
  }
  std::unique_ptr<KvGroup> start(const Shape& shape) const {
    auto group = KvGroup::start(model_, shape, directory_);
    EXPECT_TRUE(group.ok()) << group.error().message;
    return group.ok() ? std::move(*group) : nullptr;
  }

  /// A group of two ranks in a process that is killed when it has told of `more` tokens.
  void run_and_kill(const std::vector<proto::GenerateRequest>& requests, size_t more,
                    std::map<uint64_t, std::vector<int32_t>>& generated) const {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto group = start({.ranks = 2});
      if (group == nullptr) _exit(1);
      for (const auto& request : requests) group->leader().on_generate(request, "", 0);
      for (;;) {
        for (const auto& [id, tokens] : group->generate(1)) {
          for (const int32_t token : tokens) {
            const int32_t record[2] = {static_cast<int32_t>(id), token};
            if (write(pipe_ends[1], record, sizeof record) != sizeof record) _exit(2);
          }
        }
      }
    }
    close(pipe_ends[1]);
    int32_t record[2];
    for (size_t i = 0; i < more; i++) {
      ASSERT_EQ(read(pipe_ends[0], record, sizeof record), ssize_t{sizeof record});
      generated[static_cast<uint64_t>(record[0])].push_back(record[1]);
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(pipe_ends[0]);
  }

  std::string directory_;
  model::Model model_;
  std::vector<int32_t> prompt_;
};

/// Full blocks among the positions that are computed once `generated` tokens were sent.
int64_t full_blocks(size_t prompt, size_t generated) {
  return static_cast<int64_t>(prompt + generated - 1) / base::kKvBlockPositions;
}

// Wherever the group ends: the next one adopts every full block, computes the rest once, and every
// logit and token is that of the group that never ended.
TEST_F(KvRestart, GoesOnWithTheSameBitsFromAnyPoint) {
  const bool long_run = std::getenv("NUMOE_FULL") != nullptr;
  std::vector<size_t> ends = {1, 58, 59, 130, kGenerated};  // 59: a block has just become full
  if (long_run) {
    ends.clear();
    for (size_t end = 1; end < kGenerated; end += 3) ends.push_back(end);
    ends.push_back(kGenerated);
  }
  size_t compared = 0;
  for (const char* name : {"qwen3moe-q4_k", "deepseek2-lite-f16"}) {  // GQA, MLA
    load(name);
    for (const auto kv_type :
         {kernels::KvType::kF16, kernels::KvType::kF32, kernels::KvType::kQ8_0}) {
      forget_pools();
      auto whole = start({.ranks = 1, .kv_type = kv_type});
      ASSERT_NE(whole, nullptr);
      whole->leader().on_generate(request_for(prompt_), "", 0);
      const std::vector<int32_t> tokens = whole->generate(kGenerated)[1];
      ASSERT_EQ(tokens.size(), size_t{kGenerated});
      const auto part = [&](size_t begin, size_t end) {
        return std::vector<int32_t>(tokens.begin() + long(begin), tokens.begin() + long(end));
      };
      for (const int ranks : {1, 2, 3}) {
        forget_pools();  // the first ones lose their names and go with `whole`
        size_t begin = 0;
        for (const size_t end : ends) {
          SCOPED_TRACE(base::cat(name, " kv ", int(kv_type), " ranks ", ranks, " to ", end));
          auto group = start({ranks, kv_type});
          ASSERT_NE(group, nullptr);
          const int64_t adopted = begin == 0 ? 0 : full_blocks(prompt_.size(), begin);
          EXPECT_EQ(group->kv(0).found_blocks(), adopted);
          group->leader().on_generate(request_for(prompt_, part(0, begin)), "", 0);
          ASSERT_EQ(group->generate(end - begin)[1], part(begin, end));
          const auto positions = static_cast<int64_t>(prompt_.size() + end) - 1;
          EXPECT_EQ(group->leader().stats().columns,
                    static_cast<uint64_t>(positions - adopted * base::kKvBlockPositions));
          EXPECT_EQ(group->leader().stats().kv_blocks_reused, static_cast<uint64_t>(adopted));
          for (const auto& [at, hash] : group->runner().logits()) {
            ASSERT_EQ(hash, whole->runner().logits().at(at)) << "position " << at.second;
            compared++;
          }
          begin = end;
        }
      }
    }
  }
  EXPECT_GE(compared, 18 * size_t{kGenerated});
}

// The test above can fail: bits of an adopted block that are not right give other logits.
TEST_F(KvRestart, TheOldMemoryIsWhatIsRead) {
  load("qwen3moe-q4_k");
  std::vector<int32_t> tokens;
  std::map<std::pair<int32_t, int64_t>, uint64_t> logits;
  {
    auto first = start({.ranks = 2});
    ASSERT_NE(first, nullptr);
    first->leader().on_generate(request_for(prompt_), "", 0);
    tokens = first->generate(kGenerated)[1];
    logits = first->runner().logits();
  }
  auto next = start({.ranks = 2});
  ASSERT_NE(next, nullptr);
  std::byte* pool = next->kv(1).data();  // a follower's
  for (size_t i = 0; i < next->kv(1).bytes(); i += 2) pool[i] ^= std::byte{0x40};
  next->leader().on_generate(request_for(prompt_, {tokens.begin(), tokens.begin() + 100}), "", 0);
  (void)next->generate(1);
  ASSERT_EQ(next->runner().logits().size(), 1u);
  const auto& [at, hash] = *next->runner().logits().begin();
  EXPECT_NE(hash, logits.at(at));
}

// Killed with -9 in the middle of steps, while three sequences of one beginning run and old blocks
// are taken anew: whatever was sealed then is right, and all three go on.
TEST_F(KvRestart, KilledInTheMiddleOfSteps) {
  load("qwen3moe-q4_k");
  const auto requests_of = [&](const std::map<uint64_t, std::vector<int32_t>>& generated) {
    std::vector<proto::GenerateRequest> requests;
    for (const uint64_t id : {1, 2, 3}) {
      const auto found = generated.find(id);
      requests.push_back(
          request_for(prompt_, found == generated.end() ? std::vector<int32_t>() : found->second));
      requests.back().request_id = id;
      requests.back().choice_index = static_cast<uint32_t>(id / 2);  // two of them are equal
    }
    return requests;
  };
  std::map<uint64_t, std::vector<int32_t>> whole;
  {
    auto group = start({});
    ASSERT_NE(group, nullptr);
    for (auto& request : requests_of({})) group->leader().on_generate(request, "", 0);
    whole = group->generate(3 * kGenerated);
  }
  ASSERT_EQ(whole[2].size(), size_t{kGenerated});
  EXPECT_EQ(whole[2], whole[3]);
  EXPECT_NE(whole[1], whole[2]);
  forget_pools();
  std::map<uint64_t, std::vector<int32_t>> generated;
  for (const size_t more : {5, 130, 90, 40, 151}) {
    run_and_kill(requests_of(generated), more, generated);
    ASSERT_FALSE(HasFatalFailure());
  }
  auto group = start({.ranks = 2});
  ASSERT_NE(group, nullptr);
  int64_t sent = 0, full = 0;
  for (const uint64_t id : {1, 2, 3}) {
    const auto count = static_cast<int64_t>(generated[id].size());
    sent += count;
    full += full_blocks(prompt_.size(), generated[id].size());
  }
  EXPECT_EQ(sent, 5 + 130 + 90 + 40 + 151);
  EXPECT_GE(group->kv(0).found_blocks(), full);
  for (auto& request : requests_of(generated)) group->leader().on_generate(request, "", 0);
  for (auto& [id, tokens] : group->generate(3 * kGenerated))
    generated[id].insert(generated[id].end(), tokens.begin(), tokens.end());
  for (const uint64_t id : {1, 2, 3}) EXPECT_EQ(generated[id], whole[id]) << "request " << id;
  // All three found their own beginning, though two of them are the same.
  const int64_t positions = 3 * (static_cast<int64_t>(prompt_.size()) + kGenerated - 1);
  EXPECT_EQ(group->leader().stats().columns,
            static_cast<uint64_t>(positions - full * base::kKvBlockPositions));
  EXPECT_EQ(group->leader().stats().kv_blocks_used, 0);
}

// One prompt sent again and again, of lengths around a block: equal tokens, full blocks are found,
// and the last position is always computed.
TEST_F(KvRestart, TheSamePromptAgainGivesTheSameTokens) {
  load("qwen3moe-q4_k");
  std::vector<int32_t> text = prompt_;
  text.insert(text.end(), prompt_.rbegin(), prompt_.rend());
  auto cold = start({.seals = false});
  ASSERT_NE(cold, nullptr);
  forget_pools();
  auto warm = start({});
  ASSERT_NE(warm, nullptr);
  uint64_t id = 0;
  for (const size_t length : {63, 64, 65, 128}) {
    for (const float temperature : {0.0f, 0.8f}) {
      proto::GenerateRequest request =
          request_for({text.begin(), text.begin() + static_cast<long>(length)});
      request.request_id = ++id;
      request.max_tokens = 20;
      request.sampling.temperature = temperature;
      cold->leader().on_generate(request, "", 0);
      const std::vector<int32_t> computed = cold->generate(20)[id];
      ASSERT_EQ(computed.size(), 20u);
      for (int turn = 0; turn < 3; turn++) {
        SCOPED_TRACE(base::cat(length, " tokens, turn ", turn, ", temperature ", temperature));
        request.request_id = ++id;
        const uint64_t before = warm->leader().stats().columns;
        warm->leader().on_generate(request, "", 0);
        const auto tokens = warm->generate(20)[id];
        EXPECT_EQ(tokens, computed);
        const uint64_t columns = warm->leader().stats().columns - before;
        if (turn > 0) {
          const uint64_t adopted = (length - 1) / 64 * 64;
          EXPECT_EQ(columns, length + 19 - adopted);
        }
      }
    }
  }
  EXPECT_EQ(warm->leader().stats().kv_blocks_used, 0);
}

}  // namespace
}  // namespace engine
