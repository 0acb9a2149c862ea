#include "model/inspect.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <type_traits>

#include "base/cat.h"
#include "model/printable.h"

namespace model {

namespace {

using base::cat;

constexpr size_t kTextEntriesMax = 6;
constexpr size_t kJsonEntriesMax = 16;

struct FormatTotal {
  int64_t tensors = 0;
  uint64_t bytes = 0;
};

std::map<kernels::TensorType, FormatTotal> format_totals(const Directory& directory) {
  std::map<kernels::TensorType, FormatTotal> totals;
  for (const TensorInfo& tensor : directory.tensors) {
    FormatTotal& total = totals[tensor.type];
    ++total.tensors;
    total.bytes += tensor.bytes;
  }
  return totals;
}

std::string_view path_name(const InspectOptions& options, kernels::TensorType type) {
  return options.has_fast_path(type) ? "fast" : "reference";
}

std::string shape_text(const TensorInfo& tensor) {
  std::string out = "[";
  for (int i = 0; i < tensor.dimension_count; ++i) {
    out += cat(i == 0 ? "" : ", ", tensor.shape[i]);
  }
  return out + ']';
}

/// Fills with spaces up to `width` bytes.
std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

/// The first entries of an array, each by `entry()`, with commas.
template <class List, class Entry>
std::string join(const List& list, size_t entries_max, const Entry& entry) {
  std::string out;
  for (size_t i = 0; i < std::min(list.size(), entries_max); ++i) {
    out += cat(i == 0 ? "" : ", ", entry(list[i]));
  }
  return out;
}

template <class T>
constexpr bool kIsList = false;
template <class T>
constexpr bool kIsList<std::vector<T>> = true;

std::string value_text(const Value& value) {
  const auto entry = [](const auto& item) -> std::string {
    if constexpr (std::is_convertible_v<decltype(item), std::string_view>) {
      return cat('"', printable(item, 24), '"');
    } else {
      return cat(item);
    }
  };
  return std::visit(
      [&]<class T>(const T& held) -> std::string {
        if constexpr (std::is_same_v<T, std::string>) {
          return printable(held);
        } else if constexpr (kIsList<T>) {
          const bool whole = held.size() <= kTextEntriesMax;
          return cat('[', join(held, kTextEntriesMax, entry), whole ? "]" : ", ...] ",
                     whole ? "" : cat('(', held.size(), " entries)"));
        } else {
          return cat(held);
        }
      },
      value);
}

/// JSON has no infinities and no NaN: null stands for them.
std::string json_number(double number) {
  return std::isfinite(number) ? cat(number) : "null";
}

std::string json_value(const Value& value) {
  const auto entry = []<class T>(const T& item) -> std::string {
    if constexpr (std::is_same_v<T, std::string>) {
      return json_string(item);
    } else if constexpr (std::is_same_v<T, double>) {
      return json_number(item);
    } else {
      return cat(item);
    }
  };
  return std::visit(
      [&]<class T>(const T& held) -> std::string {
        if constexpr (kIsList<T>) {
          if (held.size() <= kJsonEntriesMax) return cat('[', join(held, held.size(), entry), ']');
          return cat("{\"length\": ", held.size(), ", \"first\": [",
                     join(held, kJsonEntriesMax, entry), "]}");
        } else {
          return entry(held);
        }
      },
      value);
}

/// "4", or "2-4" if layers differ.
template <class Number>
std::string range_over_layers(const ModelSpec& spec, const Number& number) {
  auto low = number(spec.blocks[0]);
  auto high = low;
  for (const Block& block : spec.blocks) {
    low = std::min(low, number(block));
    high = std::max(high, number(block));
  }
  return low == high ? cat(low) : cat(low, '-', high);
}

/// A line about layers that do not attend to all positions; empty if all do.
std::string reach_text(const ModelSpec& spec) {
  const auto bounded = [](const Block& block) { return block.attention.reach != Reach::kAll; };
  const auto count = std::ranges::count_if(spec.blocks, bounded);
  if (count == 0) return "";
  const Attention& first = std::ranges::find_if(spec.blocks, bounded)->attention;
  return cat("reach       ", first.reach == Reach::kWindow ? "the last " : "chunks of ", first.span,
             " positions in ", count, " of ", spec.blocks.size(), " layers\n");
}

std::string summary_text(const Model& model) {
  const ModelSpec& spec = model.spec;
  const auto over = [&](const auto& number) { return range_over_layers(spec, number); };
  std::string out = cat("model       ", printable(spec.name), " (", spec.architecture, ")\n");
  for (const SourceFile& file : model.directory->files) {
    out += cat("file        ", printable(file.path, 4096), ", ", file.bytes, " bytes\n");
  }
  out += cat("shape       ", spec.blocks.size(), " layers, hidden ", spec.hidden, ", ",
             over([](const Block& b) { return b.attention.heads; }), " heads, ",
             over([](const Block& b) { return b.attention.kv_heads; }), " KV heads of ",
             over([](const Block& b) { return b.attention.head_dim; }), "\n");
  if (std::ranges::any_of(spec.blocks, [](const Block& b) { return b.experts.has_value(); })) {
    const auto of = [&](auto Experts::*member) {
      return over([=](const Block& b) { return b.experts.value_or(Experts()).*member; });
    };
    out += cat("experts     ", of(&Experts::count), " of width ", of(&Experts::width), ", ",
               of(&Experts::used), " used per token\n");
  } else {
    out += cat("feed-forward width ", over([](const Block& b) { return b.dense_width; }), "\n");
  }
  out += cat("vocabulary  ", spec.vocabulary, " rows, ", spec.token_count, " tokens, output ",
             model.output == model.token_embedding ? "tied to the embedding" : "of its own", "\n");
  out += cat("context     ", spec.context, " positions\n") + reach_text(spec);
  out += cat("weights     ", weight_bytes(*model.directory), " bytes, ",
             active_bytes_per_token(model), " of them read per decoded token\n");
  return out;
}

std::string json_tensors(const Directory& directory) {
  std::string out;
  for (const TensorInfo& tensor : directory.tensors) {
    out += cat(out.empty() ? "" : ",", "\n    {\"name\": ", json_string(tensor.name),
               ", \"type\": \"", kernels::type_info(tensor.type).name,
               "\", \"shape\": ", shape_text(tensor), ", \"bytes\": ", tensor.bytes,
               ", \"file\": ", tensor.file_index, ", \"offset\": ", tensor.offset, "}");
  }
  return out;
}

}  // namespace

uint64_t weight_bytes(const Directory& directory) {
  uint64_t bytes = 0;
  for (const TensorInfo& tensor : directory.tensors) bytes += tensor.bytes;
  return bytes;
}

uint64_t active_bytes_per_token(const Model& model) {
  uint64_t bytes = weight_bytes(*model.directory);
  const TensorInfo& embedding = *model.token_embedding;
  if (model.output != model.token_embedding) bytes -= embedding.bytes;
  bytes += embedding.bytes / static_cast<uint64_t>(embedding.row_count());
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    const auto& experts = model.spec.blocks[i].experts;
    if (!experts) continue;
    const BlockTensors& block = model.blocks[i];
    for (const TensorInfo* tensor : {block.gate, block.up, block.down, block.gate_up,
                                     block.gate_bias, block.up_bias, block.down_bias}) {
      if (tensor == nullptr) continue;
      const uint64_t tensors = block.down_parts.empty() ? 1 : block.down_parts.size();
      const uint64_t of_one = tensor->bytes * tensors / static_cast<uint64_t>(experts->count);
      bytes -= of_one * static_cast<uint64_t>(experts->count - experts->used);
    }
  }
  return bytes;
}

std::string inspect_report(const Model& model, const InspectOptions& options) {
  const Directory& directory = *model.directory;
  std::string out = summary_text(model) + "\nformats\n";
  for (const auto& [type, total] : format_totals(directory)) {
    out += cat("  ", padded(std::string(kernels::type_info(type).name), 8), ' ',
               padded(cat(total.tensors), 5), " tensors ", total.bytes, " bytes");
    if (options.has_fast_path) out += cat(", ", path_name(options, type), " path");
    out += '\n';
  }
  out += "\nmetadata\n";
  for (const auto& [key, value] : directory.metadata.values()) {
    out += cat("  ", printable(key), " = ", value_text(value), '\n');
  }
  out += "\ntensors\n";
  for (const TensorInfo& tensor : directory.tensors) {
    out += cat("  ", padded(printable(tensor.name), 32), ' ',
               padded(std::string(kernels::type_info(tensor.type).name), 8), ' ',
               padded(shape_text(tensor), 20), ' ', tensor.bytes, " bytes\n");
  }
  return out;
}

std::string inspect_json(const Model& model, const InspectOptions& options) {
  const Directory& directory = *model.directory;
  std::string files, formats, metadata;
  for (const SourceFile& file : directory.files) {
    files += cat(files.empty() ? "" : ", ", "{\"path\": ", json_string(file.path),
                 ", \"bytes\": ", file.bytes, "}");
  }
  for (const auto& [type, total] : format_totals(directory)) {
    formats += cat(formats.empty() ? "" : ", ", '"', kernels::type_info(type).name,
                   "\": {\"tensors\": ", total.tensors, ", \"bytes\": ", total.bytes);
    if (options.has_fast_path) formats += cat(", \"path\": \"", path_name(options, type), '"');
    formats += '}';
  }
  for (const auto& [key, value] : directory.metadata.values()) {
    metadata +=
        cat(metadata.empty() ? "" : ",", "\n    ", json_string(key), ": ", json_value(value));
  }
  return cat("{\n  \"architecture\": ", json_string(model.spec.architecture),
             ",\n  \"name\": ", json_string(model.spec.name), ",\n  \"files\": [", files,
             "],\n  \"weight_bytes\": ", weight_bytes(directory),
             ",\n  \"active_bytes_per_token\": ", active_bytes_per_token(model),
             ",\n  \"vocabulary\": ", model.spec.vocabulary,
             ",\n  \"token_count\": ", model.spec.token_count, ",\n  \"formats\": {", formats,
             "},\n  \"metadata\": {", metadata, "\n  },\n  \"tensors\": [", json_tensors(directory),
             "\n  ]\n}\n");
}

}  // namespace model
