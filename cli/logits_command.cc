#include <cmath>

#include "base/cat.h"
#include "cli/commands.h"

namespace cli {

namespace {

/// Reads back to the same float32; JSON has no other word for what is not finite.
std::string number(float value) {
  return std::isfinite(value) ? base::cat(value) : "null";
}

std::string to_json(const Scored& scored) {
  const auto per_position = static_cast<size_t>(scored.top_count);
  std::string json = "{\"positions\":[";
  for (size_t i = 0; i < scored.top_ids.size(); i++) {
    if (i % per_position == 0) json += i == 0 ? "{\"top\":[" : "]},{\"top\":[";
    if (i % per_position != 0) json += ',';
    json += base::cat("[", scored.top_ids[i], ",", number(scored.top_logits[i]), "]");
  }
  if (!scored.top_ids.empty()) json += "]}";
  json += "],\"last\":[";
  for (size_t i = 0; i < scored.last_logits.size(); i++)
    json += base::cat(i == 0 ? "" : ",", number(scored.last_logits[i]));
  return json + "]}\n";
}

}  // namespace

base::Status logits(Context& context) {
  ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                   parse_ids("--tokens", context.options.tokens, 0));
  ASSIGN_OR_RETURN(const auto cluster, start_cluster(context));
  ASSIGN_OR_RETURN(const Scored scored,
                   cluster->score({.tokens = tokens, .want_top = true, .want_last = true}, {}));
  RETURN_IF_ERROR(print(to_json(scored)));
  if (context.options.stats) RETURN_IF_ERROR(print_stats(*cluster));
  return {};
}

}  // namespace cli
