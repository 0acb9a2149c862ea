// Any bytes on a connection: the same requests, bodies and ends wherever the network cuts them, and
// an answer for each, within limits.
#include <vector>

#include "broker/http/message_reader.h"
#include "broker/http/response.h"
#include "broker/http/rules.h"
#include "tests/fuzz/bytes.h"

namespace {

using broker::MessageReader;
using State = MessageReader::State;

constexpr size_t kRequestsMax = 8;

/// What came of one request.
struct Outcome {
  State state = State::kHead;
  bool has_head = false;
  broker::RequestHead head;
  std::string body;
  int status = 0;
  size_t end = 0;  // bytes of the connection used so far
};

/// Reads requests from a connection that gives `piece` bytes at a time.
std::vector<Outcome> read_all(std::string_view bytes, size_t piece,
                              const broker::MessageLimits& limits) {
  std::vector<Outcome> outcomes;
  size_t begin = 0, end = 0;  // what has come and was not used
  for (bool more = true; more && outcomes.size() < kRequestsMax;) {
    MessageReader reader(limits);
    Outcome& outcome = outcomes.emplace_back();
    while (reader.state() != State::kDone && reader.state() != State::kFailed) {
      const size_t used = reader.put(bytes.substr(begin, end - begin));
      CHECK(used <= end - begin, "more was used than there is");
      begin += used;
      if (used > 0) continue;
      if (reader.state() == State::kDone || reader.state() == State::kFailed) break;
      more = end < bytes.size();
      if (!more) break;
      end = std::min(end + piece, bytes.size());
    }
    outcome.state = reader.state();
    outcome.has_head = reader.has_head();
    if (reader.has_head()) outcome.head = reader.head();
    if (reader.state() == State::kDone) outcome.body = reader.take_body();
    if (reader.state() == State::kFailed) outcome.status = reader.error().status;
    outcome.end = begin;
    more = more && reader.state() == State::kDone;
    if (reader.state() == State::kDone && begin == bytes.size()) break;
  }
  return outcomes;
}

/// Errors may be noticed earlier or later, but a request is one wherever it was cut.
void check_same(const Outcome& a, const Outcome& b) {
  const bool done = a.state == State::kDone;
  CHECK(done == (b.state == State::kDone), "only once a request: ", a.status, " and ", b.status);
  if (a.has_head && b.has_head)
    CHECK(a.head.method == b.head.method && a.head.target == b.head.target &&
              a.head.fields == b.head.fields && a.head.keep_alive == b.head.keep_alive,
          "another head");
  CHECK(a.body == b.body, "another body");
  if (done) CHECK(a.has_head && b.has_head && a.end == b.end, "the next begins elsewhere");
}

void check_limits(const Outcome& outcome, const broker::MessageLimits& limits) {
  if (outcome.state == State::kFailed)
    CHECK(outcome.status >= 400 && outcome.status < 600, "status ", outcome.status);
  if (outcome.state != State::kDone) return;
  CHECK(outcome.body.size() <= limits.body_bytes_max, "a body of ", outcome.body.size());
  CHECK(outcome.head.fields.size() <= limits.fields_max, "too many fields");
  CHECK(outcome.head.target.size() <= limits.target_bytes_max, "a long target");
  if (!outcome.head.chunked && outcome.head.content_length)
    CHECK(outcome.body.size() == *outcome.head.content_length, "a body of another length");
}

/// What the server does with a head; an error becomes bytes that hold no line of the client's.
void check_rules(const broker::RequestHead& head, const broker::ApiKeys& keys) {
  broker::Destination destination;
  const auto refusal = broker::check_request(head, keys, {.guard_loopback = true}, destination);
  broker::expectation_of(head);
  const std::string id = broker::request_id_of(head);
  CHECK(id.find_first_of("\r\n ") == id.npos, "a request id that ends a header line");
  if (!refusal) return;
  CHECK(refusal->error.status >= 400 && refusal->error.status < 600, refusal->error.status);
  const std::string answer = broker::serialise(*refusal, 1, {.request_id = id});
  CHECK(answer.starts_with("HTTP/1.1 ") && answer.find("\r\n\r\n") != answer.npos, answer);
  const std::string_view answer_head = std::string_view(answer).substr(0, answer.find("\r\n\r\n"));
  for (size_t at = 0; (at = answer_head.find('\n', at)) != answer_head.npos; at++)
    CHECK(at > 0 && answer_head[at - 1] == '\r', "a line end of the client's: ", answer_head);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto keys = broker::ApiKeys::from_text("secret-key-1\n# comment\nanother\n");
  static const broker::ApiKeys no_keys;
  fuzz::Bytes bytes(data, size);
  const uint8_t flags = bytes.byte();
  const size_t piece = 1 + bytes.byte();
  const broker::MessageLimits small = {
      .head_bytes_max = 512, .fields_max = 8, .target_bytes_max = 64, .body_bytes_max = 128};
  const broker::MessageLimits limits = (flags & 1) != 0 ? small : broker::MessageLimits{};
  const std::string_view connection = bytes.rest();
  const auto whole = read_all(connection, connection.size() + 1, limits);
  const auto pieces = read_all(connection, piece, limits);
  CHECK(whole.size() == pieces.size(), whole.size(), " requests, in pieces ", pieces.size());
  for (size_t i = 0; i < whole.size(); i++) {
    check_limits(whole[i], limits);
    check_same(whole[i], pieces[i]);
    if (whole[i].has_head) check_rules(whole[i].head, (flags & 2) != 0 ? *keys : no_keys);
  }
  // A file of keys is as untrusted as its editor.
  if ((flags & 4) != 0 && broker::ApiKeys::from_text(connection).ok())
    CHECK(!broker::ApiKeys::from_text(connection)->allow(""), "no key opens the door");
  return 0;
}
