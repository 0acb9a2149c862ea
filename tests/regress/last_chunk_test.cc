// The last chunk of a body that comes byte by byte ended builds with assertions: Beast's parser
// asks its caller for five bytes at once.
#include <gtest/gtest.h>

#include <string>

#include "broker/http/message_reader.h"

namespace broker {
namespace {

constexpr std::string_view kHead =
    "POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Gives `bytes` one after the other, what was not used again with the next one. How many of them
/// were used.
size_t put_one_by_one(MessageReader& reader, std::string_view bytes) {
  size_t used = 0;
  for (size_t end = 1; end <= bytes.size(); end++) {
    while (reader.state() != MessageReader::State::kDone &&
           reader.state() != MessageReader::State::kFailed) {
      const size_t count = reader.put(bytes.substr(used, end - used));
      used += count;
      if (count == 0) break;
    }
  }
  return used;
}

TEST(LastChunk, ComesByteByByte) {
  for (const std::string_view body :
       {"0\r\n\r\n", "2\r\nab\r\n0\r\n\r\n", "1\r\na\r\n00;x=y\r\nT: v\r\n\r\n"}) {
    MessageReader reader({});
    const std::string bytes = std::string(kHead) + std::string(body);
    EXPECT_EQ(put_one_by_one(reader, bytes), bytes.size()) << body;
    ASSERT_EQ(reader.state(), MessageReader::State::kDone) << body;
    EXPECT_EQ(reader.take_body(), body[0] == '0' ? "" : body[0] == '1' ? "a" : "ab");
  }
}

TEST(LastChunk, IsNoneWithATrailerThatIsBroken) {
  MessageReader reader({});
  put_one_by_one(reader, std::string(kHead) + "0\r\n{\"a\":\r\n\r\n");
  EXPECT_EQ(reader.state(), MessageReader::State::kFailed);
}

}  // namespace
}  // namespace broker
