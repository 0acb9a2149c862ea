// Cuts text into the pieces that byte-pair merges never cross. The only file that knows PCRE2.
//
// A pre-tokenizer is a list of patterns. The first one cuts the text into its matches and the gaps
// between them; each further one cuts every piece of the one before in the same way, seeing nothing
// but that piece. Concatenated in order, the pieces are the text.
//
// No text is refused: there is no limit on matching, and a pattern that outgrows the stack of its
// compiled form is matched again by the interpreter, which keeps its state on the heap. The
// patterns are ours (model/pretokenizer_types.cc) and chosen so that the work is linear in the
// text.
//
// Thread rule: const member functions may be called by any number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace model {

/// Steps that encoding took; tests assert that they grow linearly.
struct EncodeWork {
  int64_t matches = 0;        // calls of the matcher
  int64_t matched_bytes = 0;  // bytes that it walked over
  int64_t merge_steps = 0;    // entries taken from merge heaps
};

struct PretokenizerOptions {
  bool compile_to_machine_code = true;  // where the machine permits; same pieces either way
};

class Pretokenizer {
 public:
  /// Errors: kUnsupported with PCRE2's message if a pattern does not compile.
  static base::Result<Pretokenizer> create(std::span<const std::string_view> patterns,
                                           PretokenizerOptions options = {});

  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;
  ~Pretokenizer();

  /// Appends the pieces of `text`; they point into it. REQUIRES: valid UTF-8.
  void split(std::string_view text, std::vector<std::string_view>& pieces, EncodeWork& work) const;

 private:
  struct Pattern;
  explicit Pretokenizer(std::vector<std::unique_ptr<Pattern>> patterns);

  std::vector<std::unique_ptr<Pattern>> patterns_;  // constant after construction
};

}  // namespace model
