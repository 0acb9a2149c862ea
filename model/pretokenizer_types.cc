#include "model/pretokenizer_types.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/check.h"

namespace model {

namespace {

// White space by Unicode's White_Space property. PCRE2's own \s differs (it has U+180E), so it is
// spelled out; usable inside a class.
#define SPACES \
  "\\t-\\r \\x{85}\\xA0\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define SPACE "[" SPACES "]"
#define NOT_SPACE "[^" SPACES "]"
#define CONTRACTION "'s|'t|'re|'ve|'m|'ll|'d"

// Ends of most patterns: lines with the blanks before them; then a run of blanks but for the last
// one, which belongs to the next word; then what is left.
#define BLANKS SPACE "*[\\r\\n]+|" SPACE "+(?!" NOT_SPACE ")|" SPACE "+"

constexpr std::string_view kGpt2 = CONTRACTION
    "| ?\\p{L}+| ?\\p{N}+| ?[^" SPACES "\\p{L}\\p{N}]+|" SPACE "+(?!" NOT_SPACE ")|" SPACE "+";

#define CL100K(NUMBERS)                                                        \
  "(?i:" CONTRACTION ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" NUMBERS "| ?[^" SPACES \
  "\\p{L}\\p{N}]+[\\r\\n]*|" BLANKS

// A word is capitals, then small letters; letters without case count as both.
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K(SUFFIX, NUMBERS)                                                                  \
  "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER \
  "*" SUFFIX "|" NUMBERS "| ?[^" SPACES "\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS

// The same words without Han characters, whose runs are pieces of their own (Kimi K2).
#define UPPER_BUT_HAN "[^\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{Han}]"
#define LOWER_BUT_HAN "[^\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{Han}]"

// Letters that have upper and lower case, as the DeepSeek LLM tokenizer lists them.
#define CASED_LETTERS                                                                     \
  "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"          \
  "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}"  \
  "\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}"           \
  "\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}"                \
  "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"          \
  "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"          \
  "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}" \
  "\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}"  \
  "\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}"          \
  "\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"           \
  "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}"            \
  "\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}" \
  "\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}"  \
  "\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"           \
  "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}"          \
  "\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}"        \
  "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"  \
  "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"

#define CJK_AND_HANGUL "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"

using Patterns1 = std::array<std::string_view, 1>;
constexpr Patterns1 kGpt2Patterns = {kGpt2};
constexpr Patterns1 kQwen2Patterns = {CL100K("\\p{N}")};
constexpr Patterns1 kLlama3Patterns = {CL100K("\\p{N}{1,3}")};
constexpr Patterns1 kQwen35Patterns = {"(?i:" CONTRACTION
                                       ")|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" SPACES
                                       "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" BLANKS};
constexpr Patterns1 kTekkenPatterns = {O200K("", "\\p{N}")};
constexpr Patterns1 kGpt4oPatterns = {O200K("(?i:" CONTRACTION ")?", "\\p{N}{1,3}")};
constexpr Patterns1 kKimiK2Patterns = {
    "\\p{Han}+|[^\\r\\n\\p{L}\\p{N}]?" UPPER_BUT_HAN "*" LOWER_BUT_HAN "+(?i:" CONTRACTION
    ")?|[^\\r\\n\\p{L}\\p{N}]?" UPPER_BUT_HAN "+" LOWER_BUT_HAN "*(?i:" CONTRACTION
    ")?|\\p{N}{1,3}| ?[^" SPACES "\\p{L}\\p{N}]+[\\r\\n]*|" BLANKS};
constexpr std::array<std::string_view, 2> kStarcoderPatterns = {"\\p{N}", kGpt2};
constexpr std::array<std::string_view, 3> kFalconPatterns = {"[\\p{P}$+<=>^~|`]+", kGpt2,
                                                             "[0-9][0-9][0-9]"};
constexpr std::array<std::string_view, 6> kDeepseekLlmPatterns = {
    "[\\r\\n]",
    SPACE "?[" CASED_LETTERS "]+",
    SPACE "?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
    // Blanks at the end. Tried only where a run of blanks begins and never given back, else a long
    // run with something after it would be walked once per blank.
    "(?<!" SPACE ")" SPACE "++\\z",
    CJK_AND_HANGUL,
    "\\p{N}+",
};
constexpr std::array<std::string_view, 5> kDeepseekCoderPatterns = {
    "[\\r\\n]", SPACE "?\\p{L}+", SPACE "?\\p{P}+", CJK_AND_HANGUL, "\\p{N}"};
constexpr std::array<std::string_view, 3> kDeepseekV3Patterns = {
    "\\p{N}{1,3}",
    "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
    "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
    "[\\r\\n]*|" BLANKS,
};

constexpr PretokenizerType kGpt2Type = {.name = "gpt-2", .patterns = kGpt2Patterns};

constexpr PretokenizerType kTypes[] = {
    kGpt2Type,
    {.name = "qwen2", .patterns = kQwen2Patterns},
    {.name = "llama-bpe", .patterns = kLlama3Patterns, .whole_words_first = true, .adds_bos = true},
    {.name = "deepseek-llm", .patterns = kDeepseekLlmPatterns},
    {.name = "deepseek-coder", .patterns = kDeepseekCoderPatterns},
    {.name = "deepseek-v3", .patterns = kDeepseekV3Patterns},
    {.name = "starcoder", .patterns = kStarcoderPatterns},
    {.name = "refact", .patterns = kStarcoderPatterns},
    {.name = "falcon", .patterns = kFalconPatterns},
    {.name = "mpt", .patterns = kGpt2Patterns},
    {.name = "tekken", .patterns = kTekkenPatterns, .whole_words_first = true, .adds_bos = true},
    {.name = "gpt-4o", .patterns = kGpt4oPatterns},
    {.name = "qwen35", .patterns = kQwen35Patterns},
    {.name = "kimi-k2", .patterns = kKimiK2Patterns},
    // The pattern of Llama 3 without its two habits.
    {.name = "glm4", .patterns = kLlama3Patterns},
};

struct Alias {
  std::string_view name;
  std::string_view type;
};

// Converters name a vocabulary after the model it was first seen in; the pattern is another's.
constexpr Alias kAliases[] = {
    {"gpt2", "gpt-2"},
    {"phi-2", "gpt-2"},
    {"olmo", "gpt-2"},
    {"deepseek-r1-qwen", "qwen2"},
    {"megrez", "qwen2"},
    {"stablelm2", "qwen2"},
    {"llama3", "llama-bpe"},
    {"llama-v3", "llama-bpe"},
    {"falcon3", "llama-bpe"},
    {"pixtral", "llama-bpe"},
    {"lfm2", "llama-bpe"},
    {"dbrx", "glm4"},
    {"smaug-bpe", "glm4"},
    {"chatglm-bpe", "glm4"},
    {"hunyuan-dense", "deepseek-v3"},
    {"smollm", "starcoder"},
    {"command-r", "starcoder"},
    {"llama4", "gpt-4o"},
    {"minimax-m2", "gpt-4o"},
};

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::ranges::equal(a, b, {}, lower, lower);
}

}  // namespace

const PretokenizerType* find_pretokenizer_type(std::string_view name) {
  for (const Alias& alias : kAliases) {
    if (equal_ignoring_case(alias.name, name)) name = alias.type;
  }
  for (const PretokenizerType& type : kTypes) {
    if (equal_ignoring_case(type.name, name)) return &type;
  }
  return nullptr;
}

const PretokenizerType& default_pretokenizer_type() {
  return kGpt2Type;
}

std::string known_pretokenizer_names() {
  std::string names;
  const auto add = [&names](std::string_view name) {
    if (!names.empty()) names += ", ";
    names += name;
  };
  for (const PretokenizerType& type : kTypes) add(type.name);
  for (const Alias& alias : kAliases) add(alias.name);
  return names;
}

}  // namespace model
