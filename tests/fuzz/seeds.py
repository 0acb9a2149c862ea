#!/usr/bin/env python3
"""seeds.py FOLDER: writes FOLDER/TARGET/… for each fuzz target: valid inputs, from the golden files where there are some.

A fuzzer starts from these and from the committed corpus.
"""
import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden"
SEPARATOR = b"\n__ggml_vocab_test__\n"
KINDS = 32  # at least the tokenizers of tokenizer_fuzz.cc


# --- GGUF ---

def skip_value(data, at, kind):
    """The position after a metadata value."""
    if kind == 8:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    if kind == 9:
        element, count = struct.unpack_from("<IQ", data, at)
        at += 12
        for _ in range(count):
            at = skip_value(data, at, element)
        return at
    return at + [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8][kind]


def header(data):
    """A GGUF file without its tensors' data."""
    tensors, keys = struct.unpack_from("<QQ", data, 8)
    at = 24
    for _ in range(keys):
        at += 8 + struct.unpack_from("<Q", data, at)[0]
        at = skip_value(data, at + 4, struct.unpack_from("<I", data, at)[0])
    for _ in range(tensors):
        at += 8 + struct.unpack_from("<Q", data, at)[0]
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 12
    return data[:at]


def string(text):
    return struct.pack("<Q", len(text)) + text


def every_type():
    """A header with one key of every value type."""
    values = [(0, b"\1"), (1, b"\xff"), (2, b"\1\0"), (3, b"\xff\xff"), (4, b"\1\0\0\0"), (5, b"\xff" * 4),
              (6, struct.pack("<f", 1.5)), (7, b"\1"), (8, string(b"text")), (10, b"\1" + b"\0" * 7), (11, b"\xff" * 8),
              (12, struct.pack("<d", -2.5)), (9, struct.pack("<IQ", 8, 2) + string(b"a") + string(b"")),
              (9, struct.pack("<IQ", 7, 3) + b"\0\1\0"), (9, struct.pack("<IQ", 6, 1) + struct.pack("<f", 0.25))]
    keys = b"".join(string(b"k%d" % i) + struct.pack("<I", kind) + value for i, (kind, value) in enumerate(values))
    tensor = string(b"t") + struct.pack("<IQQIQ", 2, 4, 2, 0, 0)
    return b"GGUF" + struct.pack("<IQQ", 3, 1, len(values)) + keys + tensor


def gguf():
    yield every_type()
    for path in sorted((GOLDEN / "models").glob("*.gguf")):
        yield header(path.read_bytes())


# --- messages ---

def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out + bytes([number]))


def message(*fields):
    """Fields as (number, value): int, bytes, float (as fixed32), or ("fixed64", int)."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        elif isinstance(value, bytes):
            out += varint(number << 3 | 2) + varint(len(value)) + value
        elif isinstance(value, float):
            out += varint(number << 3 | 5) + struct.pack("<f", value)
        else:
            out += varint(number << 3 | 1) + struct.pack("<Q", value[1])
    return out


def body_numbers():
    """Field number of each message in the envelope's oneof, from the .proto file."""
    inside = (ROOT / "proto/numoe.proto").read_text().split("oneof body {")[1].split("}")[0]
    rows = [line.split(";")[0].split() for line in inside.splitlines() if "=" in line]
    return {row[0]: int(row[3]) for row in rows}


def envelope():
    sampling = message((1, 0.8), (2, 40), (3, 0.95), (4, 0.05), (5, 1.0), (9, ("fixed64", 7)),
                       (10, message((1, 5), (2, -1.0))))
    error = message((1, b"broken_file"), (2, b"a sentence"))
    bodies = {
        "Hello": message((1, 1), (2, 2), (3, 1), (4, b"f"), (5, b"0.1.0"), (6, b"group")),
        "HelloReply": message((1, 1), (2, b"why"), (3, 9)),
        "LoadProgress": message((1, 5), (2, 10)),
        "Ready": message((1, 4096), (2, 512), (3, 16), (4, 128), (5, 1 << 30), (6, 1 << 20), (8, b"node 0"),
                         (12, 1 << 20), (13, ("fixed64", 1 << 63)), (14, ("fixed64", 3))),
        "WorkerFailed": message((1, error)),
        "Shutdown": message((1, b"bye")),
        "GenerateRequest": message((1, 1), (2, b"\1\2\3"), (3, sampling), (4, 10), (5, b"\2"), (8, 64),
                                   (9, b"\4\5"), (10, 2)),
        "ScoreRequest": message((1, 1), (2, b"\1\2\3"), (3, 1), (4, 1), (5, 1), (6, 2)),
        "Accepted": message((1, 1)),
        "TokenChunk": message((1, 1), (2, 0), (3, b"\5"), (4, 2), (5, message((1, 3), (2, 1))), (6, error)),
        "ScoreChunk": message((1, 1), (3, 0), (4, 1), (5, struct.pack("<f", -1.5)), (6, bytes(range(8))),
                              (7, struct.pack("<8f", *range(8))), (8, 8), (9, 1)),
        "Ack": message((1, 1), (2, 4)),
        "Cancel": message((1, 1)),
        "StatsReply": message((1, 5), (2, 6), (3, 7), (9, 3)),
        "PlacementReply": message((1, 1), (2, 1), (3, 4096), (5, b"move_pages"),
                                  (6, message((1, b"experts"), (2, 8192), (3, b"\0\x80\x40"), (5, 4096)))),
    }
    head = ((1, 1), (2, 0), (3, b"worker"), (4, ("fixed64", 3)), (5, 2), (6, b"trace"), (7, 8))
    for name, number in body_numbers().items():
        yield b"\0" + message(*head, (number, bodies.get(name, b"")))


# --- text ---

def texts():
    for path in sorted((GOLDEN / "tokenizers").rglob("*.inp")):
        yield from path.read_bytes().split(SEPARATOR)


def tokenizer():
    for i, text in enumerate(sorted(set(texts()))):
        yield bytes([i % KINDS, i % 32]) + text[:400]
    for i, text in enumerate([b"a<|c|>b<u>c", b"\xff\xfe a\xe2\x96\x81b", b"    x", b"999999", b"\xe5\xad\x97" * 9,
                              "a\u0301a\u0301 \U0001F600'S it's".encode()]):
        yield from (bytes([kind, i]) + text for kind in range(KINDS))


def vocabulary():
    for model in range(2):
        yield bytes([model, 0]) + bytes(8) + bytes([4, 4, 2, 65, 66, 1, 0, 0, 0, 0]) * 3 + b"some text"


def command_line():
    yield from (b"--version", b"--help", b"run\n--help", b"nosuch", b"worker\nm\n--rank\n0")
    yield b"run\nm.gguf\n-p\ntext\n-n\n5\n--temp\n0.5\n--seed\n7\n--nodes=2\n--isa\nscalar\n--kv-type\nf16"
    yield b"logits\nm.gguf\n--tokens\n1 2 3\n--ctx\n512\n--chunk\n64\n--stats"
    yield b"detokenize\nm.gguf\n1\n2\n3"
    yield b"perplexity\nm.gguf\n-f\ntext\n--exchange\nzmq"
    yield b"serve\nm.gguf\n--port\n0\n--host\n::1\n--parallel\n2\n--top-k\n5\n--min-p\n0.1"
    yield b"synth\nolmoe-1b-7b\nout.gguf\n--layers\n2\n--type\nq8_0\n--force"
    yield b"completion\nzsh"


def arena():
    """Loaded arenas of one tensor and of three; flags 3: size and checksum are made right."""
    identity = bytes(16) + struct.pack("<QIIII", 1, 0, 1, 1, 1)
    for count in (1, 3):
        data, size = 1024, 512 * count
        head = b"NUMOEARN" + struct.pack("<IIQQQQII", 1, 256, data + size, 256, data, size, count, 192) + identity
        head += struct.pack("<Ii", 0, -1) + bytes(32 + 8 + 48) + struct.pack("<IIQ", 2, 0, size) + bytes(48)
        entries = (b"t%d" % i for i in range(count))
        yield b"\3" + head + b"".join(name.ljust(96, b"\0") + struct.pack("<IIQQQQQ", 0, 0, 4, 32, 0, 512 * i, 512) + bytes(48)
                                      for i, name in enumerate(entries))


def kv_arena():
    """Headers of the leader's and of another rank's pool, flags 2: the checksum is made right; tables and what is asked of
    them."""
    for flags, pool, rank in ((3, 5 << 20, 0), (7, 100000, 0), (11, 5 << 20, 1), (19, 5 << 20, 0)):
        entries = 0 if rank else 8
        data = 4096
        size = -(-(data + pool) // (2 << 20)) * (2 << 20) if data + pool >= 2 << 20 else -(-(data + pool) // 4096) * 4096
        yield bytes([flags]) + (b"NUMOEKVC" + struct.pack("<IIQQQII", 1, 256, size, 256, data, entries, 320) +
                                struct.pack("<QQQQIIIIIIIi", 1, 2, 0, pool, 1, 0, 0, 64, 8, rank, 2, -1) +
                                struct.pack("<QQ", 77, 0) + bytes(128))
    chain = bytes([1, 1]) + b"".join(bytes([2, i, i % 4]) for i in range(7))
    asked = b"".join(bytes([3, 1, 0, 1, 2, 255, i]) for i in range(8))
    yield b"\x20" + chain + asked
    yield b"\x20" + chain.replace(b"\2", b"\3") + asked
    yield b"\x20" + b"\0" + bytes(320) + bytes([1, 1]) * 7 + asked


def exchange_frame():
    for kind in range(1, 7):
        head = b"NUMOEXCZ" + struct.pack("<IIIIQQQQQ", 1, kind, 2, 0, 5, 6, 9, 3, 0)
        yield struct.pack("<BBHH", 0, 2, 5, 6) + head + b"abc"
        yield struct.pack("<BBHH", 1, 2, 5, 6) + head + b"abc"


# --- HTTP and JSON ---

BODIES = [
    b'{"model":"m","prompt":"Once","max_tokens":5,"temperature":0.5,"top_p":0.9,"n":2,"stop":["a","b"],"stream":true}',
    b'{"prompt":[1,2,3],"stop":"end","seed":7,"logit_bias":{"5":-100},"echo":true,"logprobs":null,"user":"u"}',
    b'{"prompt":["a","b"],"stream_options":{"include_usage":true},"presence_penalty":1,"frequency_penalty":-1.5e0}',
    b'{"prompt":[[1],[2,3]],"stop_token_ids":[4],"ignore_eos":true,"top_k":40,"min_p":0.05,"repeat_penalty":1.1}',
    b'{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"hi \\u00e9\\ud83d\\ude00"}]}',
    b'{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":null,'
    b'"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},'
    b'{"role":"tool","tool_call_id":"1","content":"2"}],"tools":[{"type":"function","function":{"name":"f",'
    b'"parameters":{"type":"object"}}}],"max_completion_tokens":9,"chat_template_kwargs":{"enable_thinking":false}}',
    b'[null,true,false,0,-1,1.5,1e10,18446744073709551615,"\\n",{"a":{"b":[]}}]',
]


def json():
    yield from BODIES


def request():
    yield from BODIES[:-1]


def answer():
    yield from (bytes([endpoint, stops] + [3, 0, 1, 2, 0, 1, 2, 1, 4] + [1, simple] + list(range(40)))
                for endpoint in range(2) for stops in range(4) for simple in range(2))


def http():
    length = str(len(BODIES[0])).encode()
    post = b"POST /v1/completions HTTP/1.1\r\nHost: localhost:8080\r\nContent-Type: application/json\r\n"
    connections = [
        b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Request-Id: abc\r\n\r\nGET /live HTTP/1.0\r\n\r\n",
        post + b"Content-Length: " + length + b"\r\n\r\n" + BODIES[0],
        post + b"Transfer-Encoding: chunked\r\nAuthorization: Bearer secret-key-1\r\n\r\n5\r\n{\"a\":\r\n2;x=y\r\n1}\r\n0\r\n"
               b"T: v\r\n\r\n",
        post + b"Expect: 100-continue\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
        b"OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: [::1]:80\r\nOrigin: http://evil.example\r\n\r\n",
        b"HEAD /v1/models/a%2Fb HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ]
    for i, connection in enumerate(connections):
        yield from (bytes([flags, piece]) + connection for flags, piece in ((0, 0), (1, 3), (2, 30), (7, 200)))


def profile():
    """Of the smallest machine; whole profiles are in the committed corpus."""
    yield b'{"format":"numoe-machine-profile","version":2}'


TARGETS = (answer, arena, command_line, envelope, exchange_frame, gguf, http, json, kv_arena, profile, request, tokenizer, vocabulary)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__.strip())
        return 2
    for target in TARGETS:
        folder = Path(sys.argv[1]) / target.__name__
        folder.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(target()):
            (folder / f"seed-{number:03}").write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
