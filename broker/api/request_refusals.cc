#include "base/cat.h"
#include "broker/api/request_parts.h"

namespace broker {

namespace {

/// The value of a field that asks for what happens anyway.
enum class Neutral { kNone, kFalse, kTrue, kZero, kOne, kNotPositive, kEmpty };

enum class Where { kBoth, kCompletions, kChat };

struct Unsupported {
  std::string_view key;
  Neutral neutral;
  std::string_view instead;
  Where where = Where::kBoth;
};

constexpr std::string_view kNoConstraint =
    "answers are not constrained to a grammar; ask for the form in the prompt";
constexpr std::string_view kOtherSampler =
    "the samplers are top_k, top_p, min_p and temperature, in this order";
constexpr std::string_view kNoLogprobs = "log-probabilities are not given; leave it out";

constexpr Unsupported kUnsupported[] = {
    // Of the OpenAI API.
    {"suffix", Neutral::kEmpty, "text is only generated after a prompt; leave it out"},
    {"logprobs", Neutral::kFalse, kNoLogprobs},
    {"top_logprobs", Neutral::kZero, kNoLogprobs},
    {"functions", Neutral::kEmpty, "give tools instead"},
    {"audio", Neutral::kNone, "answers are text only; leave it out"},
    {"web_search_options", Neutral::kNone, "nothing is searched; leave it out"},
    {"messages", Neutral::kNone, "conversations go to /v1/chat/completions", Where::kCompletions},
    {"tools", Neutral::kEmpty, "tools go to /v1/chat/completions", Where::kCompletions},
    {"prompt", Neutral::kNone, "prompts go to /v1/completions", Where::kChat},
    {"echo", Neutral::kFalse, "it is a field of /v1/completions", Where::kChat},
    // Of other servers.
    {"prompt_logprobs", Neutral::kNone, kNoLogprobs},
    {"n_probs", Neutral::kZero, kNoLogprobs},
    {"grammar", Neutral::kEmpty, kNoConstraint},
    {"json_schema", Neutral::kEmpty, kNoConstraint},
    {"structured_outputs", Neutral::kEmpty, kNoConstraint},
    {"guided_json", Neutral::kEmpty, kNoConstraint},
    {"guided_regex", Neutral::kEmpty, kNoConstraint},
    {"guided_choice", Neutral::kEmpty, kNoConstraint},
    {"guided_grammar", Neutral::kEmpty, kNoConstraint},
    {"samplers", Neutral::kEmpty, kOtherSampler},
    {"typical_p", Neutral::kOne, kOtherSampler},
    {"tfs_z", Neutral::kOne, kOtherSampler},
    {"top_n_sigma", Neutral::kNotPositive, kOtherSampler},
    {"xtc_probability", Neutral::kZero, kOtherSampler},
    {"dry_multiplier", Neutral::kZero, kOtherSampler},
    {"dynatemp_range", Neutral::kZero, kOtherSampler},
    {"mirostat", Neutral::kZero, kOtherSampler},
    {"use_beam_search", Neutral::kFalse, "answers are sampled; leave it out"},
    {"min_tokens", Neutral::kZero, "answers end where the model ends them; see ignore_eos"},
    {"include_stop_str_in_output", Neutral::kFalse, "the stop is never part of the answer"},
    {"skip_special_tokens", Neutral::kTrue, "control tokens are never part of the answer"},
    {"truncate_prompt_tokens", Neutral::kNone, "prompts are never cut; shorten the prompt"},
    {"logits_processors", Neutral::kEmpty, "use logit_bias"},
    {"allowed_token_ids", Neutral::kEmpty, "use logit_bias"},
    {"bad_words", Neutral::kEmpty, "use logit_bias"},
    {"prompt_embeds", Neutral::kEmpty, "give text or token ids"},
    {"continue_final_message", Neutral::kFalse,
     "render the conversation yourself and send it to /v1/completions"},
    {"chat_template", Neutral::kNone, "the template is the model file's", Where::kChat},
    {"documents", Neutral::kEmpty, "give it in chat_template_kwargs", Where::kChat},
    {"parse_special", Neutral::kFalse, "what messages say never becomes a control token",
     Where::kChat},
};

bool is_neutral(const Json& value, Neutral neutral) {
  const std::optional<double> number = value.number();
  switch (neutral) {
    case Neutral::kNone: return false;
    case Neutral::kFalse: return value.boolean() != nullptr && !*value.boolean();
    case Neutral::kTrue: return value.boolean() != nullptr && *value.boolean();
    case Neutral::kZero: return number == 0.0;
    case Neutral::kOne: return number == 1.0;
    case Neutral::kNotPositive: return number && *number <= 0;
    case Neutral::kEmpty:
      return (value.string() != nullptr && value.string()->empty()) ||
             (value.array() != nullptr && value.array()->empty()) ||
             (value.object() != nullptr && value.object()->empty());
  }
  return false;
}

bool is_text(const Json& value, std::string_view text) {
  return value.string() != nullptr && *value.string() == text;
}

void refuse_response_format(Fields& body) {
  const Json* const format = body.object("response_format");
  if (format == nullptr) return;
  const Json* const type = format->find("type");
  if (type != nullptr && is_text(*type, "text")) return;
  body.fail("response_format.type",
            base::cat("response_format.type is ", type == nullptr ? "missing" : describe(*type),
                      "; only \"text\" is supported: ", kNoConstraint));
}

void refuse_modalities(Fields& body) {
  const Json* const list = body.array("modalities");
  if (list == nullptr) return;
  for (size_t i = 0; i < list->array()->size(); i++) {
    const Json& item = (*list->array())[i];
    if (is_text(item, "text")) continue;
    const std::string path = at("modalities", i);
    body.fail(path, base::cat(path, " is ", describe(item), "; answers are \"text\" only"));
  }
}

/// What a model is asked to do with tools is up to it: nothing makes it call one.
void refuse_forced_calls(Fields& body) {
  for (const char* const key : {"tool_choice", "function_call"}) {
    const Json* const choice = body.find(key);
    if (choice != nullptr && !is_text(*choice, "auto") && !is_text(*choice, "none"))
      body.wrong(key, "only \"auto\" and \"none\" are supported: calls cannot be forced");
  }
}

}  // namespace

void refuse_unsupported(Endpoint endpoint, Fields& body) {
  const Where here = endpoint == Endpoint::kCompletions ? Where::kCompletions : Where::kChat;
  for (const Unsupported& field : kUnsupported) {
    if (field.where != Where::kBoth && field.where != here) continue;
    const Json* const value = body.find(field.key);
    if (value != nullptr && !is_neutral(*value, field.neutral))
      body.wrong(field.key, base::cat("this is not supported: ", field.instead));
  }
  refuse_response_format(body);
  refuse_modalities(body);
  if (endpoint == Endpoint::kChatCompletions) refuse_forced_calls(body);
}

}  // namespace broker
