#include <algorithm>
#include <charconv>
#include <limits>

#include "base/cat.h"
#include "broker/api/request_parts.h"

namespace broker {

namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
constexpr float kBiasMax = 100;

/// Every integer is a seed, negative ones as their two's complement.
void read_seed(Fields& body, uint64_t random_seed, uint64_t& seed) {
  seed = random_seed & ((uint64_t{1} << 53) - 1);
  const Json* const value = body.find("seed");
  if (value == nullptr) return;
  if (const auto integer = value->integer())
    seed = static_cast<uint64_t>(*integer);
  else if (const auto large = value->large_integer())
    seed = *large;
  else
    body.wrong("seed", "it must be an integer from -2^63 to 2^64 - 1");
}

/// The id that a key spells, in the one way that a number is spelled.
std::optional<int32_t> token_id(std::string_view key) {
  int32_t id = 0;
  const char* const end = key.data() + key.size();
  const auto result = std::from_chars(key.data(), end, id);
  const bool canonical = key == "0" || (!key.empty() && key[0] >= '1' && key[0] <= '9');
  if (result.ec != std::errc() || result.ptr != end || !canonical) return std::nullopt;
  return id;
}

void read_logit_bias(Fields& body, std::vector<std::pair<int32_t, float>>& out) {
  const Json* const biases = body.object("logit_bias");
  if (biases == nullptr) return;
  if (biases->object()->size() > proto::kLogitBiasMax)
    return body.fail("logit_bias",
                     base::cat("logit_bias has ", biases->object()->size(), " entries, at most ",
                               proto::kLogitBiasMax, " are allowed"));
  for (const auto& [key, value] : *biases->object()) {
    const std::optional<double> bias = value.number();
    // What API browsers fill in as an example changes nothing.
    if (key.starts_with("additionalProp") && bias == 0) continue;
    const std::optional<int32_t> id = token_id(key);
    if (!id)
      return body.fail("logit_bias",
                       base::cat("logit_bias has the key ", describe(Json(Json::Value(key))),
                                 "; keys must be token ids in decimal digits"));
    if (!bias || !(*bias >= -kBiasMax && *bias <= kBiasMax)) {
      const std::string path = base::cat("logit_bias.", key);
      return body.fail(
          path, base::cat(path, " is ", describe(value), "; it must be a number from -100 to 100"));
    }
    out.emplace_back(*id, static_cast<float>(*bias));
  }
}

}  // namespace

void read_sampling(Fields& body, uint64_t random_seed, proto::Sampling& sampling) {
  body.number("temperature", {0, 100}, sampling.temperature);
  body.number("top_p", {0, 1}, sampling.top_p);
  body.number("min_p", {0, 1}, sampling.min_p);
  body.number("presence_penalty", {-2, 2}, sampling.presence_penalty);
  body.number("frequency_penalty", {-2, 2}, sampling.frequency_penalty);
  // One thing by two names; the second wins if they differ.
  body.number("repetition_penalty", {0.01, 100}, sampling.repeat_penalty);
  body.number("repeat_penalty", {0.01, 100}, sampling.repeat_penalty);
  // Off is -1 for one half of the clients and 0 for the other.
  if (const auto top_k = body.integer("top_k", {-1, kInt32Max}))
    sampling.top_k = static_cast<int32_t>(std::max<int64_t>(*top_k, 0));
  if (const auto window = body.integer("repeat_last_n", {-1, kInt32Max}))
    sampling.penalty_window = static_cast<int32_t>(*window);
  read_logit_bias(body, sampling.logit_bias);
  read_seed(body, random_seed, sampling.seed);
}

}  // namespace broker
