#include "cli/progress.h"

#include <gtest/gtest.h>

#include <memory>

namespace cli {
namespace {

/// What `draw` writes.
template <class Draw>
std::string written(Draw draw) {
  const auto close = [](FILE* file) { std::fclose(file); };
  const std::unique_ptr<FILE, decltype(close)> file(std::tmpfile());
  draw(file.get());
  std::string text(static_cast<size_t>(std::ftell(file.get())), '\0');
  std::rewind(file.get());
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file.get()), text.size());
  return text;
}

TEST(Progress, PlainLinesEveryTenPercent) {
  const std::string text = written([](FILE* out) {
    Progress progress(out, ProgressStyle::kLines, "loading");
    for (uint64_t done = 0; done <= 1000; done++) progress.update(done * 12'345, 12'345'000, "MB");
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10);
  EXPECT_NE(text.find("numoe: loading: 50 % (6.2 of 12.3 MB)\n"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("numoe: loading: 100 % (12.3 of 12.3 MB)\n")) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(Progress, ABarIsRedrawnAndClearedAway) {
  const std::string text = written([](FILE* out) {
    Progress progress(out, ProgressStyle::kBar, "measuring");
    progress.update(1, 2, "chunks");
    progress.update(1, 2, "chunks");
    progress.update(2, 2, "chunks");
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 3) << "two drawings and the clearing";
  EXPECT_NE(text.find("measuring [###############               ] 50 % (1 of 2 chunks)"),
            std::string::npos)
      << text;
  EXPECT_TRUE(text.ends_with("\r\x1b[K"));
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST(Progress, ANoteGoesBehindTheAmount) {
  EXPECT_EQ(written([](FILE* out) {
              Progress(out, ProgressStyle::kLines, "writing")
                  .update(50'000'000, 100'000'000, "MB", "612 MB/s");
            }),
            "numoe: writing: 50 % (50.0 of 100.0 MB, 612 MB/s)\n");
}

TEST(Progress, NothingToDoIsDone) {
  EXPECT_NE(written([](FILE* out) {
              Progress(out, ProgressStyle::kLines, "loading").update(0, 0, "MB");
            }).find("100 %"),
            std::string::npos);
  EXPECT_EQ(written([](FILE* out) { Progress(out, ProgressStyle::kBar, "loading").finish(); }), "");
}

TEST(Progress, AFileIsNoTerminal) {
  EXPECT_EQ(written([](FILE* out) { EXPECT_EQ(style_for(out), ProgressStyle::kLines); }), "");
}

}  // namespace
}  // namespace cli
