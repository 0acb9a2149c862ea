// How far a request is suspected of bringing its workers down, and what follows from that.
//
// Some input may crash every worker that computes it. A request that was sent to a group that was
// lost is blamed for it a little; one that has got on since then is not. After two crashes in a
// row it must run alone, so that it takes nobody with it; after three, or ten in all, it is given
// up. What the leader said does not count: its last words die with it. An innocent one is cleared
// as soon as it runs alone. Thread rule: a value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace broker {

/// Generated tokens after which a request has nothing to do with the crashes before.
inline constexpr uint64_t kClearedAfter = 16;
inline constexpr int kCrashesAlone = 2;    // in a row: runs alone from then on
inline constexpr int kCrashesGivenUp = 3;  // in a row
inline constexpr int kCrashesMax = 10;     // in all

class Blame {
 public:
  /// The group it was sent to was lost when `generated` tokens had come of it.
  void on_crash(uint64_t generated);
  /// So many tokens have come of it by now.
  void on_progress(uint64_t generated);

  bool must_run_alone() const { return in_row_ >= kCrashesAlone; }
  /// Why it is not tried again; nothing: it is.
  std::optional<std::string> given_up() const;

  int in_row() const { return in_row_; }
  int in_all() const { return in_all_; }

 private:
  int in_row_ = 0, in_all_ = 0;
  uint64_t generated_then_ = 0;  // at the last crash
};

}  // namespace broker
