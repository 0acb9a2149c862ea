#!/usr/bin/env python3
"""`numoe serve` as the `openai` package sees it.

Usage: openai_test.py path/to/numoe FOLDER

The package is installed from PyPI into a virtual environment in FOLDER, which is kept for the next time. Without
network the tests are skipped, which they say.
"""
import os
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from processes import MODEL  # noqa: E402
from serving import Service  # noqa: E402

PACKAGE = "openai==1.109.1"
PROMPT = "Once upon a time there was a poor miller who had"
STORY_BEGINS = " three sons. The father was very angry, and said:"
CHAT = [{"role": "user", "content": "Tell me a story."}]
BINARY = None


def environment_python(folder):
    """Python with the package; None and why if it cannot be had."""
    folder = Path(folder)
    python = folder / "bin" / "python"
    mark = folder / "installed"
    if mark.exists() and mark.read_text() == PACKAGE:
        return python, None
    steps = ([sys.executable, "-m", "venv", "--clear", str(folder)],
             [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:",
              "--retries", "1", "--timeout", "20", PACKAGE])
    for step in steps:
        result = subprocess.run(step, cwd=folder.parent, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            return None, (result.stderr.strip().splitlines() or ["no message"])[-1]
    mark.write_text(PACKAGE)
    return python, None


class OpenAi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import openai
        cls.openai = openai
        cls.service = Service(BINARY, "--nodes", 2, "--ctx", 512, "--alias", "tales").__enter__()
        cls.service.wait_ready()
        cls.client = openai.OpenAI(base_url=cls.service.url + "/v1", api_key="none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.service.kill(cls.service.process.pid, 15)
        cls.service.finish()
        cls.service.__exit__()

    def refused(self, call, **fields):
        with self.assertRaises(self.openai.BadRequestError) as raised:
            call(model="tales", **fields)
        self.assertEqual(raised.exception.type, "invalid_request_error")
        return raised.exception

    def test_completion_and_stream(self):
        asked = {"model": "tales", "prompt": PROMPT, "max_tokens": 40, "temperature": 0}
        whole = self.client.completions.create(**asked)
        self.assertTrue(whole.choices[0].text.startswith(STORY_BEGINS))
        self.assertEqual(whole.usage.completion_tokens, 40)
        parts = list(self.client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(part.choices[0].text for part in parts if part.choices), whole.choices[0].text)
        self.assertEqual(parts[-1].usage.completion_tokens, 40)
        self.assertEqual(parts[-1].choices, [])

    def test_chat_and_stream(self):
        asked = {"model": "tales", "messages": CHAT, "max_tokens": 40, "temperature": 0}
        whole = self.client.chat.completions.create(**asked)
        text = whole.choices[0].message.content
        self.assertEqual(whole.choices[0].message.role, "assistant")
        self.assertTrue(text)
        parts = list(self.client.chat.completions.create(**asked, stream=True))
        self.assertEqual(parts[0].choices[0].delta.role, "assistant")
        self.assertEqual("".join(part.choices[0].delta.content or "" for part in parts), text)
        self.assertEqual(parts[-1].choices[0].finish_reason, whole.choices[0].finish_reason)

    def test_several_choices_differ_and_one_seed_repeats_them(self):
        asked = {"model": "tales", "prompt": PROMPT, "max_tokens": 20, "n": 3, "seed": 5}
        first, again = (self.client.completions.create(**asked) for _ in range(2))
        texts = [choice.text for choice in first.choices]
        self.assertEqual([choice.index for choice in first.choices], [0, 1, 2])
        self.assertEqual(len(set(texts)), 3)
        self.assertEqual(texts, [choice.text for choice in again.choices])

    def test_the_list_of_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["tales"])
        self.assertEqual(self.client.models.retrieve("tales").owned_by, "numoe")
        with self.assertRaises(self.openai.NotFoundError):
            self.client.models.retrieve("other")
        with self.assertRaises(self.openai.NotFoundError):
            self.client.completions.create(model="other", prompt="x")
        with self.assertRaises(self.openai.NotFoundError):
            self.client.embeddings.create(model="tales", input="x")

    def test_wrong_fields_are_named(self):
        completions, chats = self.client.completions.create, self.client.chat.completions.create
        for field, value in (("temperature", "hot"), ("max_tokens", -1), ("n", 0), ("top_p", 2), ("stop", 5),
                             ("logit_bias", {"x": 1}), ("stream", "yes")):
            for call, fields in ((completions, {"prompt": "x"}), (chats, {"messages": CHAT})):
                error = self.refused(call, **fields, extra_body={field: value})
                self.assertTrue(error.param.startswith(field), (field, error.param))
        self.assertTrue(self.refused(completions, prompt="").param.startswith("prompt"))
        self.assertTrue(self.refused(chats, messages=[]).param.startswith("messages"))
        self.assertTrue(self.refused(chats, messages=[{"role": "user", "content": 7}]).param
                        .startswith("messages[0]"))

    def test_a_prompt_above_the_context_has_the_code_that_agents_know(self):
        for call, fields in ((self.client.completions.create, {"prompt": PROMPT * 100}),
                             (self.client.chat.completions.create,
                              {"messages": [{"role": "user", "content": PROMPT * 100}]})):
            for stream in (False, True):
                error = self.refused(call, **fields, stream=stream)
                self.assertEqual(error.code, "context_length_exceeded")
                self.assertIn("512", error.message)

    def test_bytes_that_are_no_utf_8_are_refused(self):
        status, body, _ = self.service.request("POST", "/v1/completions", b'{"prompt": "\xff\xfe"}')
        self.assertEqual((status, body["error"]["type"]), (400, "invalid_request_error"))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    if os.environ.get("NUMOE_OPENAI") != "ready":
        chosen, why = environment_python(sys.argv[2])
        if chosen is None:
            print(f"SKIPPED: {PACKAGE} cannot be installed: {why}")
            sys.exit(77)
        os.environ["NUMOE_OPENAI"] = "ready"
        os.execv(chosen, [str(chosen), *sys.argv])
    BINARY = sys.argv.pop(1)
    sys.argv.pop(1)
    unittest.main()
