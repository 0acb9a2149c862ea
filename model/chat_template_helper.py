"""Renders one chat template for the process that started it, as Hugging Face transformers would.

A template is code from a model file, so it runs here: in Jinja2's immutable sandbox, in a process
that may use little memory and time and can open no file. Standard input and output are one socket;
every frame is its length in ASCII digits, a newline, and that many bytes.

  in   JSON: template, special_tokens {name: text}, control_literals [text], now (ISO time or null),
       memory_bytes, cpu_seconds
  out  "ok\\n" or "error\\n" and a sentence
  then again and again
  in   JSON: messages, tools, variables (each JSON text; null for the last two if there are none),
       add_generation_prompt
  out  "ok " sentinel in hex "\\n" text, or "error\\n" and a sentence

The text still holds the sentinel: see `Guard`. The process ends when its input does.
"""

import datetime
import json
import os
import re
import resource
import signal
import sys

NONCHARACTERS = [*range(0xFDD0, 0xFDF0), *(plane << 16 | low for plane in range(1, 17)
                                           for low in (0xFFFE, 0xFFFF))]
PRIVATE_USE = range(0xE000, 0xF900)
ROLES = {"system", "developer", "user", "assistant", "tool", "function", "ipython", "document"}


def read_exactly(count):
    parts = []
    while count > 0:
        part = os.read(0, min(count, 1 << 20))
        if not part:
            sys.exit(0)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read_frame():
    digits = b""
    while not digits.endswith(b"\n"):
        digits += read_exactly(1)
    return json.loads(read_exactly(int(digits)).decode("utf-8"))


def write_frame(head, text):
    # Surrogate halves can come in by JSON escapes; no UTF-8 text has them.
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    body = (head + "\n" + text).encode("utf-8")
    data = memoryview(b"%d\n" % len(body) + body)
    while data:
        data = data[os.write(1, data):]


class Refused(Exception):
    """The request is at fault, not the template."""


def parse(name, text):
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Refused(f"{name} is not JSON: {error}")
    kind = dict if name == "variables" else list
    if not isinstance(value, kind):
        raise Refused(f"{name} is not a JSON {'object' if kind is dict else 'array'}")
    return value


def check_roles(messages):
    """Templates build control tokens out of roles, so a role is never data."""
    for index, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ROLES:
            raise Refused(f"messages[{index}].role is not one of {', '.join(sorted(ROLES))}")


class Guard:
    """Breaks the literals of control tokens in all data, so that only the template can write them.

    A sentinel goes in after the first character of each literal, and at the end of a text whose
    last characters could begin one. The sentinel is a character that the request does not contain;
    whoever reads the rendered text takes it out after looking for special tokens.
    """

    def __init__(self, literals):
        literals = sorted({text for text in literals if len(text) > 1}, key=len, reverse=True)
        pattern = "|".join(re.escape(text) for text in literals)
        self.starts = re.compile(f"(?={pattern})") if literals else None
        self.prefixes = {text[:i] for text in literals for i in range(1, len(text))}
        self.longest_prefix = max(map(len, self.prefixes), default=0)

    def text(self, text, sentinel):
        if self.starts is None:
            return text
        out, done = [], 0
        for match in self.starts.finditer(text):
            cut = match.start() + 1
            out += [text[done:cut], sentinel]
            done = cut
        out.append(text[done:])
        longest = min(self.longest_prefix, len(text))
        if any(text[-i:] in self.prefixes for i in range(1, longest + 1)):
            out.append(sentinel)
        return "".join(out)

    def value(self, value, sentinel):
        if isinstance(value, str):
            return self.text(value, sentinel)
        if isinstance(value, list):
            return [self.value(item, sentinel) for item in value]
        if isinstance(value, dict):
            return {self.text(key, sentinel): self.value(item, sentinel)
                    for key, item in value.items()}
        return value


def find_sentinel(*texts):
    for code in (*NONCHARACTERS, *PRIVATE_USE):
        if not any(chr(code) in text for text in texts):
            return chr(code)
    raise Refused("the messages hold every noncharacter and private character of Unicode")


def make_environment(state):
    import jinja2
    import jinja2.debug  # imported here, as no file can be opened later
    import jinja2.ext
    import jinja2.nodes
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """`{% generation %}` marks the assistant's text for training; here it is just its body."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.Scope(body, lineno=line)

    def raise_exception(message):
        raise jinja2.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)
        sentinel = state["sentinel"]
        return text.replace(json.dumps(sentinel)[1:-1], sentinel) if ensure_ascii else text

    def strftime_now(form):
        now = state["now"]
        return (datetime.datetime.fromisoformat(now) if now else datetime.datetime.now()).strftime(form)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


def sentence(error):
    """What went wrong, in the template's own words where it has some."""
    kind = type(error).__name__
    module = type(error).__module__
    text = str(error) or kind
    if isinstance(error, MemoryError):
        return "the chat template needs more memory than it may use"
    if isinstance(error, RecursionError):
        return "the chat template calls itself without end"
    if isinstance(error, Refused) or module.startswith("jinja2"):
        return text
    return f"{kind}: {text}"


def limit(memory_bytes):
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    for kind, value in ((resource.RLIMIT_NOFILE, 2), (resource.RLIMIT_FSIZE, 0),
                        (resource.RLIMIT_CORE, 0), (resource.RLIMIT_NPROC, 0)):
        resource.setrlimit(kind, (value, value))


def allow_cpu(seconds):
    usage = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft = int(usage.ru_utime + usage.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard < 0 else min(soft, hard), hard))


def render(template, config, guard, state, request):
    values = {name: parse(name, request[name]) for name in ("messages", "tools", "variables")}
    check_roles(values["messages"])
    flat = json.dumps(values, ensure_ascii=False)
    sentinel = find_sentinel(flat, config["template"], *config["special_tokens"].values())
    state["sentinel"] = sentinel
    values = {name: guard.value(value, sentinel) for name, value in values.items()}
    context = {"documents": None, **(values["variables"] or {}), **config["special_tokens"],
               "messages": values["messages"], "tools": values["tools"],
               "add_generation_prompt": request["add_generation_prompt"]}
    text = template.render(**context)
    return f"ok {ord(sentinel):x}", text


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    config = read_frame()
    state = {"now": config["now"], "sentinel": ""}
    allow_cpu(config["cpu_seconds"])
    try:
        environment = make_environment(state)
        # A first failure loads what Jinja2 needs to report one.
        try:
            environment.from_string("{{ raise_exception('x') }}").render()
        except Exception as error:
            sentence(error)
        guard = Guard(config["control_literals"])
        limit(config["memory_bytes"])
        template = environment.from_string(config["template"])
    except BaseException as error:
        line = getattr(error, "lineno", None)
        write_frame("error", sentence(error) + (f" (line {line})" if line else ""))
        sys.exit(0)
    write_frame("ok", "")
    while True:
        request = read_frame()
        allow_cpu(config["cpu_seconds"])
        try:
            head, text = render(template, config, guard, state, request)
        except Exception as error:
            head, text = "error", sentence(error)
        request = None
        write_frame(head, text[: 1 << 26])


main()
