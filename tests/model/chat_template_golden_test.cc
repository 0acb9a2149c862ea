// Published templates, rendered like the library that their authors test with.
#include <gtest/gtest.h>

#include <boost/json/src.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/cat.h"
#include "model/chat_template.h"
#include "tests/model/tokenizer_support.h"

namespace model {
namespace {

namespace json = boost::json;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A vocabulary whose special tokens are called like those of the golden renderings. `control` is
/// spelled by no template, so that guarding has something to look for.
Metadata golden_metadata(const std::string& source) {
  Metadata metadata = model_test::byte_pair_vocabulary(
      {.extra = {{"<BOS>", 3}, {"<EOS>", 3}, {"<PAD>", 3}, {"<UNK>", 2}, {"<|im_end|>", 3}}});
  metadata.set("tokenizer.ggml.bos_token_id", int64_t{256});
  metadata.set("tokenizer.ggml.eos_token_id", int64_t{257});
  metadata.set("tokenizer.ggml.padding_token_id", int64_t{258});
  metadata.set("tokenizer.ggml.unknown_token_id", int64_t{259});
  metadata.set("tokenizer.chat_template", source);
  return metadata;
}

ChatRequest request_of(const json::object& conversations, const json::object& entry) {
  const json::value& conversation = conversations.at(entry.at("conversation").as_string());
  ChatRequest request;
  json::object options = entry.at("options").as_object();
  if (const json::value* prompt = options.if_contains("add_generation_prompt")) {
    request.add_generation_prompt = prompt->as_bool();
    options.erase("add_generation_prompt");
  } else {
    request.add_generation_prompt = false;
  }
  request.variables_json = json::serialize(options);
  if (conversation.is_array()) {
    request.messages_json = json::serialize(conversation);
  } else {
    const json::object& parts = conversation.as_object();
    request.messages_json = json::serialize(parts.at("messages"));
    if (const json::value* tools = parts.if_contains("tools"); tools && !tools->is_null()) {
      request.tools_json = json::serialize(*tools);
    }
  }
  if (const json::value* tools = entry.if_contains("tools")) {
    request.tools_json = json::serialize(*tools);
  }
  return request;
}

TEST(ChatTemplateGolden, EveryRenderingIsExact) {
  const std::filesystem::path folder = model_test::shared_golden_folder() + "/chat-templates";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not here";
  const json::object conversations =
      json::parse(read_file(folder / "conversations.json")).as_object();
  int rendered = 0, refused = 0, templates = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".jinja") continue;
    ++templates;
    const std::string name = file.path().stem();
    const json::object golden = json::parse(read_file(folder / (name + ".json"))).as_object();
    const Metadata metadata = golden_metadata(read_file(file.path()));
    const Tokenizer tokenizer = model_test::make_tokenizer(metadata);
    auto chat = ChatTemplate::create(metadata, tokenizer, {.now = "2026-01-02T03:04:05"});
    for (const json::value& value : golden.at("renders").as_array()) {
      const json::object& entry = value.as_object();
      const std::string what = base::cat(name, " ", json::serialize(entry.at("conversation")), " ",
                                         json::serialize(entry.at("options")));
      if (entry.contains("error")) {
        if (!chat.ok()) {
          ++refused;
          continue;
        }
        const auto result = chat->render(request_of(conversations, entry));
        EXPECT_FALSE(result.ok()) << what;
        ++refused;
        continue;
      }
      ASSERT_TRUE(chat.ok()) << what << ": " << chat.error().message;
      const auto result = chat->render(request_of(conversations, entry));
      ASSERT_TRUE(result.ok()) << what << ": " << result.error().message;
      EXPECT_EQ(result->text, std::string(entry.at("expected").as_string())) << what;
      ++rendered;
    }
  }
  RecordProperty("rendered", rendered);
  RecordProperty("refused", refused);
  std::printf("%d templates: %d renderings, %d refusals\n", templates, rendered, refused);
  EXPECT_GE(templates, 30);
  EXPECT_GE(rendered, 200);
}

}  // namespace
}  // namespace model
