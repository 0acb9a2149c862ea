// Loads that end because nobody wants them any more.
#include "tests/worker/weight_arena_fixture.h"

namespace worker {
namespace {

using base::Code;

TEST_F(WeightArenaTest, WhoIsNotWantedAnyMoreStopsWaitingReservingAndLooking) {
  ASSERT_EQ(pipe(release_), 0);
  const pid_t loader = start_loader(1);
  const auto not_wanted = [] { return base::Status(base::Error{Code::kCancelled, "not wanted"}); };
  steps_.on_progress = [&](uint64_t, uint64_t) { return not_wanted(); };
  auto ended = acquire();
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, Code::kCancelled);
  end(loader);
  options_.arena.keep_on = not_wanted;
  ended = acquire();
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, Code::kCancelled);
  EXPECT_TRUE(files().empty());
  options_.arena.keep_on = {};
  steps_.on_progress = {};
  expect(false, 0x11);
  // What is there must not be taken for other content.
  options_.arena.identity.source = {7, 7};
  steps_.hash = [&]() -> base::Result<shm::Hash128> { return not_wanted().error(); };
  ended = acquire();
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, Code::kCancelled);
  EXPECT_EQ(files(), std::vector<std::string>{path()});
}

}  // namespace
}  // namespace worker
