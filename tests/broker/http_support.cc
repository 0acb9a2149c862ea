#include "tests/broker/http_support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cctype>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include "base/cat.h"
#include "broker/api/json.h"
#include "model/model.h"

namespace http_test {

namespace {

constexpr auto kPatience = std::chrono::seconds(30);

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

void LinesLog::write(base::Level, std::string_view message) {
  const std::lock_guard lock(mutex_);
  text_ += base::cat(message, "\n");
}

std::string LinesLog::text() const {
  const std::lock_guard lock(mutex_);
  return text_;
}

const model::Tokenizer& tokenizer() {
  static const model::Tokenizer demo = [] {
    auto directory =
        model::read_directory(NUMOE_SOURCE_DIR "/models/fairy-tales-moe-21m-Q4_K_M.gguf");
    CHECK(directory.ok(), "the demo model");
    base::NullLog log;
    auto made = model::Tokenizer::create(directory->metadata, &log);
    CHECK(made.ok(), "its tokenizer");
    return std::move(*made);
  }();
  return demo;
}

std::string HttpReply::field(std::string_view name) const {
  const std::string wanted = base::cat("\r\n", lower(name), ": ");
  const size_t at = lower(head).find(wanted);
  if (at == std::string::npos) return {};
  const size_t begin = at + wanted.size();
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

Client::Client(int port, const Options& options) {
  const bool v6 = options.host.find(':') != std::string::npos;
  socket_ = ::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (options.receive_buffer_bytes > 0)
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &options.receive_buffer_bytes, sizeof(int));
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(static_cast<uint16_t>(port));
  ::inet_pton(AF_INET6, options.host.c_str(), &six.sin6_addr);
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<uint16_t>(port));
  ::inet_pton(AF_INET, options.host.c_str(), &four.sin_addr);
  const auto* address =
      v6 ? reinterpret_cast<const sockaddr*>(&six) : reinterpret_cast<const sockaddr*>(&four);
  connected_ = ::connect(socket_, address, v6 ? sizeof six : sizeof four) == 0;
}

void Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return;  // the server has closed, which the test sees when it reads
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

bool Client::read_some() {
  pollfd watched{socket_, POLLIN, 0};
  const int ready =
      ::poll(&watched, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count()));
  EXPECT_GT(ready, 0) << "the server says nothing; so far: " << received_;
  char bytes[65536];
  const ssize_t count = ready > 0 ? ::recv(socket_, bytes, sizeof bytes, 0) : -1;
  if (count <= 0) return false;
  received_.append(bytes, static_cast<size_t>(count));
  return true;
}

std::string Client::read_until(std::string_view mark) {
  while (received_.find(mark) == std::string::npos)
    if (!read_some()) return std::exchange(received_, {});
  const size_t end = received_.find(mark) + mark.size();
  std::string text = received_.substr(0, end);
  received_.erase(0, end);
  return text;
}

HttpReply Client::read_reply(bool has_body) {
  HttpReply reply;
  reply.head = read_until("\r\n\r\n");
  if (!reply.head.starts_with("HTTP/1.1 ")) return reply;
  reply.status = std::stoi(reply.head.substr(9, 3));
  const std::string length = reply.field("Content-Length");
  if (!has_body || length.empty()) return reply;
  while (received_.size() < std::stoul(length) && read_some()) {
  }
  reply.body = received_.substr(0, std::stoul(length));
  received_.erase(0, reply.body.size());
  return reply;
}

std::string Client::read_all() {
  while (read_some()) {
  }
  return std::exchange(received_, {});
}

void Client::finish_sending() {
  ::shutdown(socket_, SHUT_WR);
}

void Client::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void Client::reset() {
  const linger at_once{1, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close();
}

Server::Server(Options options) {
  if (!options.keys.empty()) {
    auto made = broker::ApiKeys::from_text(options.keys);
    CHECK(made.ok(), "keys of a test");
    keys = *made;
  }
  auto made = broker::Gate::create(8);
  CHECK(made.ok(), "a gate");
  gate = std::move(*made);
  set_state(options.ready ? broker::GroupStatus::State::kReady
                          : broker::GroupStatus::State::kLoading);
  options.http.times.tick = kSecond / 500;
  broker::HttpParts parts{.gate = *gate,
                          .tokenizer = tokenizer(),
                          .prompts = prompts,
                          .keys = keys,
                          .log = log,
                          .clock = clock,
                          .model = {.id = "tales", .created = 7, .vocabulary = 100},
                          .random_bits = [] { return uint64_t{42}; }};
  auto started = broker::HttpServer::start(options.http, std::move(parts));
  CHECK(started.ok(), "a server: ", started.ok() ? "" : started.error().message);
  server = std::move(*started);
}

HttpReply Server::ask(std::string_view request) const {
  Client client(port());
  client.send(request);
  return client.read_reply(!request.starts_with("HEAD"));
}

void Server::set_state(broker::GroupStatus::State state) {
  broker::GroupStatus status{.state = state, .bytes_done = 25, .bytes_total = 100};
  status.context = 4096;
  status.vocabulary = tokenizer().size();
  if (state == broker::GroupStatus::State::kRestarting) status.reason = "worker 1 was killed";
  gate->set_status(status);
}

bool Server::take() {
  pollfd watched{gate->descriptor(), POLLIN, 0};
  if (::poll(&watched, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) <= 0)
    return false;
  auto came = gate->take();
  for (auto& submission : came.submissions) taken_.submissions.push_back(std::move(submission));
  for (auto& cancel : came.cancels) taken_.cancels.push_back(cancel);
  return true;
}

broker::Submission Server::next() {
  while (taken_.submissions.empty())
    if (!take()) {
      ADD_FAILURE() << "no request came to the gate";
      return {};
    }
  broker::Submission first = std::move(taken_.submissions.front());
  taken_.submissions.erase(taken_.submissions.begin());
  return first;
}

broker::CancelSlots Server::next_cancel() {
  while (taken_.cancels.empty())
    if (!take()) {
      ADD_FAILURE() << "nothing was cancelled";
      return {};
    }
  const broker::CancelSlots first = taken_.cancels.front();
  taken_.cancels.erase(taken_.cancels.begin());
  return first;
}

bool Server::has_cancel() {
  auto came = gate->take();
  for (auto& submission : came.submissions) taken_.submissions.push_back(std::move(submission));
  for (auto& cancel : came.cancels) taken_.cancels.push_back(cancel);
  return !taken_.cancels.empty();
}

void Server::accept(const broker::Submission& submission) {
  gate->reply({.ticket = submission.ticket, .kind = broker::Reply::Kind::kAccepted});
}

void Server::refuse(const broker::Submission& submission, broker::Reply::Kind kind,
                    base::Error error) {
  gate->reply({.ticket = submission.ticket, .kind = kind, .error = std::move(error)});
}

void Server::say(const broker::Submission& submission, std::string_view text, size_t slot) {
  broker::Reply reply{.ticket = submission.ticket, .slot = slot};
  reply.chunk.index = chunks_[submission.ticket]++;
  reply.chunk.tokens = tokenizer().encode(text, {});
  gate->reply(std::move(reply));
}

void Server::finish(const broker::Submission& submission, proto::Finish finish, base::Error error,
                    size_t slot) {
  broker::Reply reply{.ticket = submission.ticket, .slot = slot};
  reply.chunk.index = chunks_[submission.ticket]++;
  reply.chunk.finish = finish;
  reply.chunk.usage = {.prompt_tokens = 3, .generated_tokens = 5};
  reply.chunk.error = std::move(error);
  gate->reply(std::move(reply));
}

bool Server::until_true(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

std::string post(std::string_view target, std::string_view body, std::string_view lines) {
  return base::cat("POST ", target, " HTTP/1.1\r\nHost: localhost\r\nContent-Length: ", body.size(),
                   "\r\n", lines, "\r\n", body);
}

std::string get(std::string_view target, std::string_view lines) {
  return base::cat("GET ", target, " HTTP/1.1\r\nHost: localhost\r\n", lines, "\r\n");
}

std::string completion(std::string_view fields, std::string_view lines) {
  return post("/v1/completions",
              base::cat("{\"prompt\":\"Once\"", fields.empty() ? "" : ",", fields, "}"), lines);
}

std::string stream(std::string_view fields) {
  return completion(base::cat("\"stream\":true", fields.empty() ? "" : ",", fields));
}

std::string streamed_text(std::string_view body) {
  std::string text;
  constexpr std::string_view kData = "data: {";
  for (size_t at = body.find(kData); at != std::string_view::npos; at = body.find(kData, at + 1)) {
    const size_t begin = at + kData.size() - 1;
    broker::Json event;
    const auto wrong =
        broker::parse_json(body.substr(begin, body.find('\n', begin) - begin), {}, event);
    EXPECT_FALSE(wrong.has_value()) << wrong->message;
    const broker::Json* choices = event.find("choices");
    if (choices == nullptr || choices->array() == nullptr) continue;
    for (const broker::Json& choice : *choices->array())
      if (const broker::Json* part = choice.find("text")) text += *part->string();
  }
  return text;
}

}  // namespace http_test
