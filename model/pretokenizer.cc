#include "model/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <limits>
#include <utility>

#include "base/check.h"

namespace model {

namespace {

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct MatchContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, CodeDeleter>;
using MatchData = std::unique_ptr<pcre2_match_data, MatchDataDeleter>;
using MatchContext = std::unique_ptr<pcre2_match_context, MatchContextDeleter>;

std::string error_message(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

/// State of one call of split(), so that a pretokenizer can be shared by threads.
class Matcher {
 public:
  explicit Matcher(const pcre2_code* code)
      : code_(code),
        data_(pcre2_match_data_create_from_pattern(code, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    CHECK(data_ && context_, "out of memory for the pre-tokenizer");
    // The defaults protect against hostile patterns; ours are known, the text is what is hostile.
    pcre2_set_match_limit(context_.get(), std::numeric_limits<uint32_t>::max());
    pcre2_set_depth_limit(context_.get(), std::numeric_limits<uint32_t>::max());
    pcre2_set_heap_limit(context_.get(), std::numeric_limits<uint32_t>::max());
  }

  /// The next match at or after `start`; false if there is none.
  bool find(std::string_view subject, size_t start, size_t& begin, size_t& end) {
    int status = match(subject, start, PCRE2_NO_UTF_CHECK);
    if (status == PCRE2_ERROR_JIT_STACKLIMIT) {
      status = match(subject, start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
    }
    if (status == PCRE2_ERROR_NOMATCH) return false;
    CHECK(status > 0, "the pre-tokenizer's matcher failed: ", error_message(status));
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data_.get());
    begin = offsets[0];
    end = offsets[1];
    return true;
  }

 private:
  int match(std::string_view subject, size_t start, uint32_t options) {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(subject.data()), subject.size(), start,
                       options, data_.get(), context_.get());
  }

  const pcre2_code* code_;
  MatchData data_;
  MatchContext context_;
};

}  // namespace

struct Pretokenizer::Pattern {
  Code code;
};

base::Result<Pretokenizer> Pretokenizer::create(std::span<const std::string_view> patterns,
                                                PretokenizerOptions options) {
  std::vector<std::unique_ptr<Pattern>> compiled;
  for (const std::string_view pattern : patterns) {
    int error = 0;
    PCRE2_SIZE error_offset = 0;
    Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                            PCRE2_UTF | PCRE2_UCP, &error, &error_offset, nullptr));
    if (!code) {
      return base::Error{base::Code::kUnsupported,
                         base::cat("pre-tokenizer pattern fails at offset ", error_offset, ": ",
                                   error_message(error))};
    }
    // Where machine code is forbidden this fails, and matching is interpreted.
    if (options.compile_to_machine_code) pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
    compiled.push_back(std::make_unique<Pattern>(Pattern{std::move(code)}));
  }
  return Pretokenizer(std::move(compiled));
}

Pretokenizer::Pretokenizer(std::vector<std::unique_ptr<Pattern>> patterns)
    : patterns_(std::move(patterns)) {}
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

void Pretokenizer::split(std::string_view text, std::vector<std::string_view>& pieces,
                         EncodeWork& work) const {
  if (text.empty()) return;
  std::vector<std::string_view> current = {text};
  std::vector<std::string_view> next;
  for (const auto& pattern : patterns_) {
    Matcher matcher(pattern->code.get());
    next.clear();
    for (const std::string_view piece : current) {
      size_t done = 0;
      size_t begin = 0, end = 0;
      while (done < piece.size()) {
        ++work.matches;
        if (!matcher.find(piece, done, begin, end)) break;
        CHECK(end > begin && begin >= done, "a pre-tokenizer pattern matches nothing");
        if (begin > done) next.push_back(piece.substr(done, begin - done));
        next.push_back(piece.substr(begin, end - begin));
        done = end;
      }
      if (done < piece.size()) next.push_back(piece.substr(done));
      work.matched_bytes += static_cast<int64_t>(piece.size());
    }
    current.swap(next);
  }
  pieces.insert(pieces.end(), current.begin(), current.end());
}

}  // namespace model
