// Stop strings in text that arrives in pieces, against a search of the whole text.
#include "broker/api/stop_matcher.h"

#include <gtest/gtest.h>

#include "tests/broker/api_support.h"

namespace broker {
namespace {

struct Found {
  std::string text;
  bool matched = false;
  bool operator==(const Found&) const = default;
};

/// The text in front of the leftmost stop, by looking at all of it.
Found search(const std::string& whole, const std::vector<std::string>& stops) {
  size_t end = std::string::npos;
  for (const std::string& stop : stops) end = std::min(end, whole.find(stop));
  return {whole.substr(0, end), end != std::string::npos};
}

Found in_pieces(const std::vector<std::string>& pieces, const std::vector<std::string>& stops) {
  StopMatcher matcher(stops);
  Found found;
  for (const std::string& piece : pieces) found.text += matcher.push(piece);
  found.text += matcher.finish();
  found.matched = matcher.matched();
  return found;
}

TEST(RowG1, StopsInPieces) {
  EXPECT_EQ(in_pieces({"a", "aa", "b"}, {"aab"}), (Found{"a", true}));
  EXPECT_EQ(in_pieces({"one tw", "o th", "ree"}, {"two three"}), (Found{"one ", true}));
  EXPECT_EQ(in_pieces({"xyz"}, {"y"}), (Found{"x", true}));
  EXPECT_EQ(in_pieces({"ends in st"}, {"stop"}), (Found{"ends in st", false}));
  EXPECT_EQ(in_pieces({"a b"}, {"b", "a"}), (Found{"", true}));
  EXPECT_EQ(in_pieces({"gr\xC3\xBC\xC3\x9F"}, {"\xC3\x9F"}), (Found{"gr\xC3\xBC", true}));
  EXPECT_EQ(in_pieces({"abc"}, {"q", "w", "e", "r", "c"}), (Found{"ab", true}));
  EXPECT_EQ(in_pieces({"ab", "c"}, {}), (Found{"abc", false}));
  EXPECT_EQ(in_pieces({}, {"x"}), (Found{"", false}));
}

TEST(RowG1, OnlyWhatCanStillBecomeAStopIsHeld) {
  StopMatcher matcher({"stop", "topping"});
  EXPECT_EQ(matcher.push("a s"), "a ");
  EXPECT_EQ(matcher.push("t"), "");
  EXPECT_EQ(matcher.push("x"), "stx");
  EXPECT_EQ(matcher.push("ss"), "s");
  EXPECT_EQ(matcher.push("topp"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(RowG1, ALaterStopWaitsForALongerOneThatBeganBefore) {
  EXPECT_EQ(in_pieces({"ab", "c", "d"}, {"abcd", "bc"}), (Found{"", true}));
  EXPECT_EQ(in_pieces({"ab", "c", "x"}, {"abcd", "bc"}), (Found{"a", true}));
  EXPECT_EQ(in_pieces({"ab", "c"}, {"abcd", "bc"}), (Found{"a", true}));
}

TEST(RowG1, AnyCutGivesWhatTheWholeTextGives) {
  api_test::Random random(1);
  const std::string_view alphabets[] = {"ab", "abc", "aaab", "abcdefgh"};
  int matched = 0;
  for (int round = 0; round < 30'000; round++) {
    const std::string_view alphabet = random.pick(alphabets);
    const auto text = [&](size_t length) {
      std::string out;
      while (out.size() < length) out += random.pick(alphabet);
      return out;
    };
    const std::string whole = text(random.below(40));
    std::vector<std::string> stops;
    for (size_t n = random.below(4); n > 0; n--) stops.push_back(text(1 + random.below(6)));
    std::vector<std::string> pieces;
    for (size_t at = 0; at < whole.size();) {
      const size_t length = std::min(whole.size() - at, random.below(5));
      pieces.push_back(whole.substr(at, length));
      at += length;
    }
    const Found expected = search(whole, stops);
    ASSERT_EQ(in_pieces(pieces, stops), expected) << whole;
    matched += expected.matched;
    // What came out after each piece is all but the suffix that may become a stop.
    StopMatcher matcher(stops);
    std::string sent, so_far;
    for (const std::string& piece : pieces) {
      sent += matcher.push(piece);
      so_far += piece;
      size_t held = so_far.size();
      for (size_t i = so_far.size(); i-- > 0;)
        for (const std::string& stop : stops)
          if (stop.starts_with(so_far.substr(i))) held = i;
      ASSERT_EQ(sent, so_far.substr(0, std::min(held, search(so_far, stops).text.size())));
      if (matcher.matched()) break;
    }
  }
  EXPECT_GT(matched, 10'000);
}

TEST(RowG1, ALongTextOfOneCharacterIsNoWorkOfItsSquare) {
  // 16 stops of the longest length that almost match everywhere; would take minutes if the text so
  // far were looked at again.
  const std::vector<std::string> stops(16, std::string(1023, 'a') + "b");
  StopMatcher matcher(stops);
  size_t sent = 0;
  for (int i = 0; i < 100'000; i++) sent += matcher.push("a").size();
  EXPECT_EQ(sent, 100'000u - 1023u);
  EXPECT_EQ(matcher.finish().size(), 1023u);
}

}  // namespace
}  // namespace broker
