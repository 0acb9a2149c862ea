#include "broker/blame.h"

#include "base/cat.h"

namespace broker {

void Blame::on_crash(uint64_t generated) {
  in_all_++;
  in_row_++;
  generated_then_ = generated;
}

void Blame::on_progress(uint64_t generated) {
  if (in_row_ > 0 && generated >= generated_then_ + kClearedAfter) in_row_ = 0;
}

std::optional<std::string> Blame::given_up() const {
  if (in_row_ >= kCrashesGivenUp)
    return base::cat("it was under way in ", in_row_, " crashes in a row");
  if (in_all_ >= kCrashesMax) return base::cat("it was under way in ", in_all_, " crashes");
  return std::nullopt;
}

}  // namespace broker
