#include "cli/bench_report.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/cat.h"
#include "broker/api/json_writer.h"
#include "cli/commands.h"

namespace cli {

namespace {

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

/// Right- or left-aligned in a cell.
std::string cell(const std::string& text, int width) {
  const auto size = static_cast<size_t>(std::abs(width));
  // What people count as one column may be several bytes: only the sign of a deviation is.
  const size_t columns = text.size() - (text.find("±") != std::string::npos ? 1 : 0);
  const std::string blanks(size > columns ? size - columns : 0, ' ');
  return width < 0 ? text + blanks : blanks + text;
}

struct Column {
  const char* title;
  int width;  // negative: left-aligned
};
constexpr Column kColumns[] = {{"model", -20}, {"size", 10},   {"params", 10}, {"nodes", 5},
                               {"threads", 7}, {"isa", -10},   {"test", 18},   {"t/s", 16},
                               {"GB/s", 6},    {"of read", 7}, {"pages", -6}};

int threads_of(const BenchSetting& setting, const BenchResult& result) {
  return result.test.prompt == 0 ? setting.decode_threads : setting.threads;
}

std::string gib(uint64_t bytes) {
  return base::cat(fixed(static_cast<double>(bytes) / (uint64_t{1} << 30), 2), " GiB");
}

std::string billions(uint64_t count) {
  return base::cat(fixed(static_cast<double>(count) / 1e9, 2), " B");
}

std::string markdown_head() {
  std::string head = "|", line = "|";
  for (const auto& [title, width] : kColumns) {
    head += base::cat(" ", cell(title, width), " |");
    line += base::cat(" ", std::string(static_cast<size_t>(std::abs(width)) - (width > 0), '-'),
                      width > 0 ? ":" : "", " |");
  }
  return base::cat(head, "\n", line, "\n");
}

std::string markdown_row(const BenchSetting& setting, const BenchResult& result) {
  const BenchMean speed = mean_of(result.tokens_per_second());
  const bool reads = result.gb_per_s > 0;
  const std::string texts[] = {setting.model_type,
                               gib(setting.model_bytes),
                               billions(setting.model_weights),
                               base::cat(setting.nodes),
                               base::cat(threads_of(setting, result)),
                               setting.isa,
                               result.test.name(),
                               base::cat(fixed(speed.mean, 2), " ± ", fixed(speed.deviation, 2)),
                               reads ? fixed(result.gb_per_s, 1) : "",
                               reads ? base::cat(fixed(100 * result.ceiling_share(), 0), " %") : "",
                               setting.pages};
  std::string row = "|";
  for (size_t i = 0; i < std::size(texts); i++)
    row += base::cat(" ", cell(texts[i], kColumns[i].width), " |");
  return row + "\n";
}

struct Field {
  const char* name;
  std::string value;
  bool is_text = false;
};

template <class Number>
std::string number_text(Number number) {
  return base::cat(number);
}

/// Those of llama-bench by its names first; `n_batch` and `n_ubatch` are the positions of a step.
std::vector<Field> fields_of(const BenchSetting& setting, const BenchResult& result) {
  std::vector<double> ns(result.samples.begin(), result.samples.end());
  const BenchMean time = mean_of(ns), speed = mean_of(result.tokens_per_second());
  const auto text = [](const char* name, std::string value) {
    return Field{name, std::move(value), true};
  };
  return {text("build_commit", setting.version),
          {"build_number", "0"},
          text("cpu_info", setting.cpu),
          text("gpu_info", ""),
          text("backends", "CPU"),
          text("model_filename", setting.model_path),
          text("model_type", setting.model_type),
          {"model_size", number_text(setting.model_bytes)},
          {"model_n_params", number_text(setting.model_weights)},
          {"n_batch", number_text(setting.chunk)},
          {"n_ubatch", number_text(setting.chunk)},
          {"n_threads", number_text(threads_of(setting, result))},
          text("type_k", setting.kv_type),
          text("type_v", setting.kv_type),
          {"n_prompt", number_text(result.test.prompt)},
          {"n_gen", number_text(result.test.generated)},
          {"n_depth", number_text(result.test.depth)},
          text("test_time", result.started_at),
          {"avg_ns", number_text(static_cast<int64_t>(time.mean))},
          {"stddev_ns", number_text(static_cast<int64_t>(time.deviation))},
          {"avg_ts", fixed(speed.mean, 6)},
          {"stddev_ts", fixed(speed.deviation, 6)},
          text("test", result.test.name()),
          {"n_seq", number_text(result.test.sequences)},
          {"n_nodes", number_text(setting.nodes)},
          text("isa", setting.isa),
          text("strategy", setting.strategy),
          text("exchange", setting.exchange),
          text("pages", setting.pages),
          {"seed", number_text(setting.seed)},
          {"active_bytes", number_text(setting.active_bytes)},
          {"gb_per_s", fixed(result.gb_per_s, 3)},
          {"ceiling_gb_per_s", fixed(result.ceiling_gb_per_s, 3)},
          {"ceiling_share", fixed(result.ceiling_share(), 4)},
          {"step_reads", fixed(result.step_reads, 4)}};
}

void add_samples(broker::JsonWriter& json, const BenchResult& result) {
  json.key("samples_ns").begin_array();
  for (const base::TimeNs ns : result.samples) json.value(ns);
  json.end_array().key("samples_ts").begin_array();
  for (const double speed : result.tokens_per_second()) json.value(speed);
  json.end_array();
}

void add_ranks(broker::JsonWriter& json, const BenchResult& result) {
  json.key("ranks").begin_array();
  for (const proto::StatsReply& rank : result.stats) {
    json.begin_object().field("steps", rank.steps).field("columns", rank.columns);
    json.field("step_ns", rank.step_ns).field("matmul_ns", rank.matmul_ns);
    json.field("attention_ns", rank.attention_ns).field("exchange_ns", rank.exchange_ns);
    json.field("barrier_ns", rank.barrier_ns).field("sample_ns", rank.sample_ns);
    json.field("weight_bytes", rank.weight_bytes).field("threads", rank.threads).end_object();
  }
  json.end_array();
}

std::string json_object(const BenchSetting& setting, const BenchResult& result) {
  broker::JsonWriter json;
  json.begin_object();
  for (const Field& field : fields_of(setting, result)) {
    json.key(field.name);
    if (field.is_text)
      json.value(field.value);
    else
      json.raw(field.value);
  }
  add_samples(json, result);
  add_ranks(json, result);
  return json.end_object().take();
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

template <class Text>
std::string csv_line(const std::vector<Field>& fields, Text text_of) {
  std::string line;
  for (const Field& field : fields) line += base::cat(line.empty() ? "" : ",", text_of(field));
  return line + "\n";
}

}  // namespace

BenchFormat bench_format(const std::string& name) {
  if (name == "json") return BenchFormat::kJson;
  if (name == "jsonl") return BenchFormat::kJsonLines;
  return name == "csv" ? BenchFormat::kCsv : BenchFormat::kMarkdown;
}

std::string bench_head(const BenchSetting& setting, BenchFormat format) {
  switch (format) {
    case BenchFormat::kMarkdown: return markdown_head();
    case BenchFormat::kJson: return "[\n";
    case BenchFormat::kJsonLines: return "";
    case BenchFormat::kCsv: break;
  }
  return csv_line(fields_of(setting, {}), [](const Field& field) { return field.name; });
}

std::string bench_row(const BenchSetting& setting, const BenchResult& result, BenchFormat format) {
  switch (format) {
    case BenchFormat::kMarkdown: return markdown_row(setting, result);
    case BenchFormat::kJson: return json_object(setting, result);
    case BenchFormat::kJsonLines: return json_object(setting, result) + "\n";
    case BenchFormat::kCsv: break;
  }
  return csv_line(fields_of(setting, result),
                  [](const Field& field) { return quoted(field.value); });
}

std::string bench_separator(BenchFormat format) {
  return format == BenchFormat::kJson ? ",\n" : "";
}

std::string bench_tail(const BenchSetting& setting, BenchFormat format) {
  switch (format) {
    case BenchFormat::kMarkdown: return base::cat("\nbuild: numoe ", setting.version, "\n");
    case BenchFormat::kJson: return "\n]\n";
    case BenchFormat::kJsonLines:
    case BenchFormat::kCsv: break;
  }
  return "";
}

std::string bench_phases(const BenchResult& result) {
  std::string text;
  for (size_t rank = 0; rank < result.stats.size(); rank++)
    text += base::cat("  rank ", rank, ": ", phases_text(result.stats[rank]), "\n");
  return text;
}

}  // namespace cli
