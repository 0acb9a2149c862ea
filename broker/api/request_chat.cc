// Messages as clients of many kinds send them, in the one form that templates were written for.
#include <utility>

#include "base/cat.h"
#include "broker/api/request_parts.h"

namespace broker {

namespace {

constexpr std::string_view kRoles[] = {"system", "user", "assistant", "tool"};

void set(Json::Object& object, std::string_view key, Json value) {
  for (Json::Member& member : object)
    if (member.key == key) {
      member.value = std::move(value);
      return;
    }
  object.push_back({std::string(key), std::move(value)});
}

/// A role is what templates make control tokens of, so it is one of few.
std::string read_role(Fields& message) {
  std::string role;
  message.text("role", role);
  if (role == "developer") role = "system";
  for (const std::string_view known : kRoles)
    if (role == known) return role;
  message.wrong("role",
                "it must be \"system\", \"developer\", \"user\", \"assistant\" or \"tool\"");
  return role;
}

/// The texts of all parts, one after the other: the parts of a text that was cut are that text.
std::string join_parts(Fields& message, const Json::Array& parts, std::optional<ApiError>& error) {
  std::string text;
  for (size_t i = 0; i < parts.size(); i++) {
    const std::string path = at(message.path("content"), i);
    Fields part(parts[i], path, error);
    const Json* const type = part.find("type");
    if (parts[i].object() == nullptr) {
      message.fail(path, base::cat(path, " is ", describe(parts[i]),
                                   R"(; it must be an object {"type":"text","text":…})"));
    } else if (type == nullptr || type->string() == nullptr || *type->string() != "text") {
      part.wrong("type", "only parts of type \"text\" are supported");
    } else if (part.find("text") == nullptr || part.find("text")->string() == nullptr) {
      part.wrong("text", "it must be a string");
    } else {
      text += *part.find("text")->string();
    }
  }
  return text;
}

/// Absent, null and empty are the same for an assistant, who may have said nothing beside a call.
std::string read_content(Fields& message, bool may_be_empty, std::optional<ApiError>& error) {
  const Json* const content = message.find("content");
  if (content != nullptr && content->string() != nullptr) return *content->string();
  const Json::Array* const parts = content == nullptr ? nullptr : content->array();
  if (parts != nullptr && (may_be_empty || !parts->empty()))
    return join_parts(message, *parts, error);
  if (content != nullptr || !may_be_empty)
    message.wrong("content", "it must be a string or an array of text parts");
  return {};
}

void check_tool_calls(Fields& message, std::optional<ApiError>& error) {
  const Json* const calls = message.array("tool_calls");
  if (calls == nullptr) return;
  for (size_t i = 0; i < calls->array()->size(); i++) {
    const std::string path = at(message.path("tool_calls"), i);
    const Json& item = (*calls->array())[i];
    Fields call(item, path, error);
    const Json* const function = call.object("function");
    if (item.object() == nullptr || function == nullptr) {
      call.fail(path, base::cat(path, " is ", describe(item),
                                R"(; it must be {"type":"function","function":{"name":…}})"));
      continue;
    }
    Fields named(*function, call.path("function"), error);
    if (named.find("name") == nullptr || named.find("name")->string() == nullptr)
      named.wrong("name", "it must be a string");
    const Json* const arguments = named.find("arguments");
    if (arguments != nullptr && arguments->string() == nullptr && arguments->object() == nullptr)
      named.wrong("arguments", "it must be a string that holds a JSON object");
  }
}

/// Nulls and an empty list of calls say nothing; templates ask whether the key is there.
void drop_what_is_empty(Json::Object& message) {
  std::erase_if(message, [](const Json::Member& member) {
    const Json::Array* const list = member.value.array();
    return member.value.is_null() ||
           (member.key == "tool_calls" && list != nullptr && list->empty());
  });
}

Json read_message(const Json& json, const std::string& path, std::optional<ApiError>& error) {
  Fields message(json, path, error);
  if (json.object() == nullptr) {
    message.fail(path, base::cat(path, " is ", describe(json),
                                 "; it must be an object with role and content"));
    return {};
  }
  const std::string role = read_role(message);
  const bool assistant = role == "assistant";
  std::string content = read_content(message, assistant, error);
  if (message.find("function_call") != nullptr)
    message.wrong("function_call", "give tool_calls instead");
  if (!assistant && message.find("tool_calls") != nullptr)
    message.wrong("tool_calls", "only an assistant calls tools");
  check_tool_calls(message, error);
  Json out = json;
  set(*out.object(), "role", Json(Json::Value(role)));
  set(*out.object(), "content", Json(Json::Value(std::move(content))));
  drop_what_is_empty(*out.object());
  return out;
}

Json* member(Json* json, std::string_view key) {
  if (json == nullptr || json->object() == nullptr) return nullptr;
  for (Json::Member& item : *json->object())
    if (item.key == key) return &item.value;
  return nullptr;
}

/// Of the arguments of one call: a request may have many.
constexpr JsonLimits kArgumentsLimits{.values_max = size_t{1} << 16};

/// Makes objects of the arguments of calls, which the API writes as text and most templates read as
/// objects. Says whether there were any.
bool open_arguments(Json& message) {
  Json* const calls = member(&message, "tool_calls");
  if (calls == nullptr || calls->array() == nullptr) return false;
  bool opened = false;
  for (Json& call : *calls->array()) {
    Json* const arguments = member(member(&call, "function"), "arguments");
    if (arguments == nullptr || arguments->string() == nullptr) continue;
    const std::string& text = *arguments->string();
    const bool blank = text.find_first_not_of(" \t\r\n") == std::string::npos;
    Json object;
    // What is no object stays the text that it is.
    if (parse_json(blank ? "{}" : text, kArgumentsLimits, object) || object.object() == nullptr)
      continue;
    *arguments = std::move(object);
    opened = true;
  }
  return opened;
}

void read_messages(Fields& body, std::optional<ApiError>& error, CompletionRequest& request) {
  const Json* const list = body.array("messages");
  if (list == nullptr || list->array()->empty()) {
    body.fail("messages", base::cat("messages is ", list == nullptr ? "missing" : "empty",
                                    "; it must be an array of at least one message"));
    return;
  }
  Json messages{Json::Value(Json::Array())};
  for (size_t i = 0; i < list->array()->size() && body.ok(); i++)
    messages.array()->push_back(read_message((*list->array())[i], at("messages", i), error));
  if (!body.ok()) return;
  request.chat.messages_json = to_text(messages);
  bool opened = false;
  for (Json& message : *messages.array()) opened |= open_arguments(message);
  if (!opened) return;
  request.messages_with_text_arguments =
      std::exchange(request.chat.messages_json, to_text(messages));
}

std::string read_tools(Fields& body, std::optional<ApiError>& error) {
  const Json* const tools = body.array("tools");
  if (tools == nullptr || tools->array()->empty()) return {};
  for (size_t i = 0; i < tools->array()->size(); i++) {
    const std::string path = at("tools", i);
    const Json& item = (*tools->array())[i];
    Fields tool(item, path, error);
    if (item.object() == nullptr) {
      tool.fail(path, base::cat(path, " is ", describe(item), "; it must be an object"));
      continue;
    }
    const Json* const type = tool.find("type");
    if (type == nullptr || type->string() == nullptr || *type->string() != "function")
      tool.wrong("type", "it must be \"function\"");
    const Json* const function = tool.object("function");
    if (function == nullptr) {
      tool.wrong("function", "it must be an object with name, description and parameters");
      continue;
    }
    Fields named(*function, tool.path("function"), error);
    if (named.find("name") == nullptr || named.find("name")->string() == nullptr)
      named.wrong("name", "it must be a string");
    named.object("parameters");
  }
  // A model that does not see the tools does not call them.
  const Json* const choice = body.find("tool_choice");
  const bool hidden =
      choice != nullptr && choice->string() != nullptr && *choice->string() == "none";
  return hidden || !body.ok() ? std::string() : to_text(*tools);
}

/// Switches that clients also give beside the object that holds them.
std::string read_variables(Fields& body) {
  const Json* const given = body.object("chat_template_kwargs");
  Json variables = given == nullptr ? Json(Json::Value(Json::Object())) : *given;
  std::string effort;
  body.text("reasoning_effort", effort);
  if (!effort.empty() && variables.find("reasoning_effort") == nullptr)
    set(*variables.object(), "reasoning_effort", Json(Json::Value(effort)));
  bool thinking = false;
  body.boolean("enable_thinking", thinking);
  if (body.find("enable_thinking") != nullptr && variables.find("enable_thinking") == nullptr)
    set(*variables.object(), "enable_thinking", Json(Json::Value(thinking)));
  return variables.object()->empty() ? std::string() : to_text(variables);
}

}  // namespace

void read_chat(Fields& body, std::optional<ApiError>& error, CompletionRequest& request) {
  read_messages(body, error, request);
  model::ChatRequest& chat = request.chat;
  chat.tools_json = read_tools(body, error);
  chat.variables_json = read_variables(body);
  body.boolean("add_generation_prompt", chat.add_generation_prompt);
}

}  // namespace broker
