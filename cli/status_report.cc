#include "cli/status_report.h"

#include <algorithm>
#include <vector>

#include "base/cat.h"
#include "broker/api/json.h"
#include "cli/probe_report.h"
#include "shm/arena_room.h"

namespace cli {

namespace {

/// A value somewhere in a JSON object; what is missing is nothing.
class Reader {
 public:
  explicit Reader(const broker::Json* json) : json_(json) {}
  Reader operator[](std::string_view key) const {
    return Reader(json_ == nullptr ? nullptr : json_->find(key));
  }
  bool is_there() const { return json_ != nullptr && !json_->is_null(); }
  std::string text() const {
    const std::string* own = json_ == nullptr ? nullptr : json_->string();
    return own == nullptr ? std::string() : *own;
  }
  int64_t count() const { return json_ == nullptr ? 0 : json_->integer().value_or(0); }
  double number() const { return json_ == nullptr ? 0 : json_->number().value_or(0); }
  std::string size() const {
    return shm::memory_text(static_cast<uint64_t>(std::max<int64_t>(count(), 0)));
  }
  std::vector<Reader> array() const {
    std::vector<Reader> all;
    if (json_ != nullptr && json_->array() != nullptr)
      for (const broker::Json& own : *json_->array()) all.emplace_back(&own);
    return all;
  }

 private:
  const broker::Json* json_;
};

/// "3 d 4 h", "2 h 5 min", "12 s".
std::string duration_text(double seconds) {
  const auto all = static_cast<int64_t>(seconds);
  if (all >= 86400) return base::cat(all / 86400, " d ", all % 86400 / 3600, " h");
  if (all >= 3600) return base::cat(all / 3600, " h ", all % 3600 / 60, " min");
  if (all >= 60) return base::cat(all / 60, " min ", all % 60, " s");
  return base::cat(all, " s");
}

void add_line(std::string& text, std::string name, const std::string& value) {
  name.resize(12, ' ');
  text += base::cat("  ", name, value, "\n");
}

std::string ranks_table(const std::vector<Reader>& ranks, const std::vector<Reader>& groups) {
  std::vector<std::vector<std::string>> rows = {{"rank", "node", "process", "CPUs", "weights",
                                                 "attached", "in huge pages", "KV cache",
                                                 "memory"}};
  for (const Reader& rank : ranks) {
    rows.push_back({base::cat(rank["rank"].count()),
                    rank["node"].is_there() ? base::cat(rank["node"].count()) : "-",
                    base::cat(rank["pid"].count()), rank["cpus"].text(),
                    rank["weight_bytes"].size(), rank["attached_bytes"].size(),
                    rank["huge_page_bytes"].size(), rank["kv_bytes"].size(),
                    rank["memory"].text()});
  }
  if (groups.size() > 1) {
    rows[0].insert(rows[0].begin(), "replica");
    for (size_t i = 0; i < ranks.size(); i++)
      rows[i + 1].insert(rows[i + 1].begin(), base::cat(ranks[i]["group"].count()));
  }
  return text_table(rows);
}

std::string groups_table(const std::vector<Reader>& groups) {
  std::vector<std::vector<std::string>> rows = {
      {"replica", "requests", "tokens", "KV blocks", "positions", "restarts", "state"}};
  for (const Reader& group : groups) {
    const Reader blocks = group["kv_blocks"];
    const std::string state = group["status"].text();
    rows.push_back({base::cat(group["group"].count()), base::cat(group["requests"].count()),
                    base::cat(group["tokens"].count()),
                    base::cat(blocks["used"].count(), " of ", blocks["total"].count()),
                    base::cat(group["steps"]["positions"].count()),
                    base::cat(group["restarts"].count()),
                    state == "ready" ? state : group["message"].text()});
  }
  return text_table(rows);
}

}  // namespace

base::Result<std::string> status_text(std::string_view url, std::string_view json) {
  broker::Json parsed;
  const auto error = broker::parse_json(json, {}, parsed);
  const Reader status(error ? nullptr : &parsed);
  if (status["object"].text() != "status")
    return base::Error{base::Code::kUnsupported,
                       base::cat(url, " tells no status; is it a numoe of this version?")};
  const std::string state = status["status"].text();
  std::string text = base::cat("numoe ", status["version"].text(), " at ", url, ": ",
                               state == "ready" ? state : status["message"].text(), "\n");
  const Reader model = status["model"];
  add_line(text, "model",
           base::cat(model["id"].text(), ", ", model["architecture"].text(), ", ",
                     model["size_bytes"].size(),
                     model["context_length"].is_there()
                         ? base::cat(", context ", model["context_length"].count())
                         : ""));
  add_line(text, "running",
           base::cat(duration_text(status["uptime_seconds"].number()), ", process ",
                     status["pid"].count(), ", workers restarted ", status["restarts"].count(),
                     " times"));
  const Reader loading = status["loading"];
  if (state != "ready" && loading["bytes_total"].count() > 0)
    add_line(text, "loaded",
             base::cat(loading["bytes_done"].size(), " of ", loading["bytes_total"].size()));
  add_line(text, "answers",
           base::cat(status["answers"]["live"].count(), " under way or waiting, at most ",
                     status["answers"]["limit"].count()));
  const Reader blocks = status["kv_blocks"];
  add_line(text, "KV blocks",
           base::cat(blocks["used"].count(), " of ", blocks["total"].count(), " used, at most ",
                     blocks["peak"].count()));
  const Reader steps = status["steps"];
  add_line(text, "steps",
           base::cat(steps["count"].count(), " with ", steps["positions"].count(), " positions in ",
                     duration_text(steps["seconds"].number())));
  if (status["exchange"].is_there()) add_line(text, "exchange", status["exchange"].text());
  const std::vector<Reader> groups = status["groups"].array();
  if (groups.size() > 1) text += groups_table(groups);
  const std::vector<Reader> ranks = status["ranks"].array();
  if (!ranks.empty()) text += ranks_table(ranks, groups);
  return text;
}

}  // namespace cli
