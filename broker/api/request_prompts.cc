#include <limits>
#include <utility>

#include "base/cat.h"
#include "broker/api/request_parts.h"

namespace broker {

namespace {

constexpr std::string_view kForms =
    "it must be text, an array of texts, an array of token ids, or an array of such arrays";

void empty(Fields& body, std::string path) {
  std::string sentence = base::cat(path, " is empty; an answer needs something to go on from");
  body.fail(std::move(path), std::move(sentence));
}

/// Ids in `list`, each checked to be one; against the vocabulary later.
std::vector<int32_t> read_ids(Fields& body, const std::string& path, const Json::Array& list) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (size_t i = 0; i < list.size(); i++) {
    const std::optional<int64_t> id = list[i].integer();
    if (!id || *id < 0 || *id > std::numeric_limits<int32_t>::max()) {
      const std::string place = at(path, i);
      const bool other_kind = i > 0 && !list[i].is_number();
      body.fail(place,
                base::cat(place, " is ", describe(list[i]),
                          other_kind ? base::cat(", but ", path, "[0] is a token id; ", kForms)
                                     : "; token ids are integers from 0"));
      return {};
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  if (ids.empty()) empty(body, path);
  return ids;
}

/// One prompt of a list whose first is of the same kind.
PromptInput read_item(Fields& body, const Json& item, const std::string& path, bool texts) {
  if (texts && item.string() != nullptr) {
    if (item.string()->empty()) empty(body, path);
    return *item.string();
  }
  if (!texts && item.array() != nullptr) return read_ids(body, path, *item.array());
  body.fail(path, base::cat(path, " is ", describe(item), ", but prompt[0] is ",
                            texts ? "text; " : "an array; ", kForms));
  return {};
}

}  // namespace

void read_prompts(Fields& body, const RequestLimits& limits, CompletionRequest& request) {
  const Json* const prompt = body.find("prompt");
  if (prompt == nullptr || (prompt->string() == nullptr && prompt->array() == nullptr))
    return body.wrong("prompt", kForms);
  if (prompt->string() != nullptr) {
    if (prompt->string()->empty()) empty(body, "prompt");
    request.prompts.emplace_back(*prompt->string());
    return;
  }
  const Json::Array& list = *prompt->array();
  if (list.empty()) return empty(body, "prompt");
  if (list[0].is_number()) {
    request.prompts.emplace_back(read_ids(body, "prompt", list));
    return;
  }
  const bool texts = list[0].string() != nullptr;
  if (!texts && list[0].array() == nullptr)
    return body.fail("prompt[0]",
                     base::cat("prompt[0] is ", describe(list[0]), "; prompt: ", kForms));
  if (list.size() > limits.prompts_max)
    return body.fail("prompt", base::cat("prompt has ", list.size(), " prompts, at most ",
                                         limits.prompts_max, " are allowed"));
  const auto answers = static_cast<int64_t>(list.size()) * request.choice_count;
  if (answers > limits.answers_max)
    return body.fail(
        "n", base::cat(list.size(), " prompts with n = ", request.choice_count, " are ", answers,
                       " answers, at most ", limits.answers_max, " are allowed in one request"));
  request.prompt_list = true;
  for (size_t i = 0; i < list.size() && body.ok(); i++)
    request.prompts.push_back(read_item(body, list[i], at("prompt", i), texts));
}

}  // namespace broker
