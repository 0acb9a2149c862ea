#!/usr/bin/env python3
"""Our SentencePiece merges against the `sentencepiece` package: the same ids and texts for thousands of texts.

Usage: spm_oracle_test.py path/to/spm_tokens FOLDER

FOLDER keeps a virtual environment with the package, made at the first run; without PyPI the test is skipped
(exit code 77). Models are trained here, written as vocabulary-only GGUF files, and asked by both sides.

Known differences, which the texts avoid or the expectations spell out:
- Nothing is normalised here, as in the other engines that read GGUF; so the models are trained with `identity`
  (with NFKC, sentencepiece makes a blank of U+00A0) and keep all blanks.
- U+2581 in a text is the blank for both, so it comes back as one.
- Bytes that are no UTF-8 become byte tokens here and come back; sentencepiece replaces them by U+FFFD.
- After a user-defined symbol a blank is put in front of text here (as engines do that read GGUF; the golden
  vectors say so); sentencepiece puts it in front of the whole text only. See pieces_of().
- An unknown character decodes to nothing here, to U+2047 there.
- A vocabulary without a token for the blank spells it <0x20> here, so that it comes back; there as the bytes of U+2581.
"""
import io
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
SKIPPED = 77
SEED = 20240229
BLANK = "\u2581"
CORPUS = Path(__file__).resolve().parents[1] / "golden" / "heldout.txt"
SYMBOLS = ["<think>", "</think>", "<t", "==>", "\n\n\n"]
HELPER = None


def environment(folder):
    """The interpreter of a virtual environment that has the package; None without PyPI."""
    python = Path(folder) / "bin" / "python"
    if python.exists() and subprocess.run([python, "-c", "import sentencepiece, google.protobuf"],
                                          capture_output=True).returncode == 0:
        return python
    for command in ([sys.executable, "-m", "venv", "--clear", folder],
                    [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1",
                     "--timeout", "15", "--only-binary", ":all:", "sentencepiece", "protobuf"]):
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode != 0:
            print("SKIPPED: the package sentencepiece cannot be installed from PyPI: "
                  + " ".join(made.stderr.split())[-500:])
            return None
    return python


# --- models ---

def corpus():
    lines = CORPUS.read_text(encoding="utf-8").split("\n")
    more = ["Größe naïve façade — “quoted” ‘single’ …", "привет мир, как дела", "日本語の文章と漢字です。", "한국어 문장",
            "0123456789 3.14159 1,000,000", "def f(x):\n\treturn x * 2", "a  b   c    d", "🙂🙃 👩‍👩‍👧‍👦 🇩🇪", "e\u0301 a\u0300"]
    return lines + more * 20


def train(spm, **options):
    model = io.BytesIO()
    settings = dict(sentence_iterator=iter(corpus()), model_writer=model, model_type="bpe", vocab_size=900,
                    normalization_rule_name="identity", remove_extra_whitespaces=False,
                    character_coverage=0.995, max_sentence_length=100000, minloglevel=2, num_threads=1)
    settings.update(options)
    spm.SentencePieceTrainer.train(**settings)
    return model.getvalue()


def changed(serialized, score=None, unused=None):
    """The model with other ordinary pieces: score(rank, piece) is the new score, unused(rank, piece) says whether."""
    from sentencepiece import sentencepiece_model_pb2 as pb
    model = pb.ModelProto()
    model.ParseFromString(serialized)
    for rank, piece in enumerate(model.pieces):
        if piece.type == pb.ModelProto.SentencePiece.NORMAL:
            if score:
                piece.score = score(rank, piece.piece)
            if unused and piece.piece != BLANK and unused(rank, piece.piece):
                piece.type = pb.ModelProto.SentencePiece.UNUSED
    return model.SerializeToString()


def gguf(processor, add_space_prefix):
    """A vocabulary-only file as converters write it."""
    def text(value):
        raw = value.encode("utf-8")
        return struct.pack("<Q", len(raw)) + raw

    def array(kind, form, values):
        return struct.pack("<IIQ", 9, kind, len(values)) + (
            b"".join(map(text, values)) if kind == 8 else struct.pack(f"<{len(values)}{form}", *values))

    ids = range(processor.get_piece_size())
    def kind(i):
        return (2 if processor.is_unknown(i) else 3 if processor.is_control(i) else 5 if processor.is_unused(i)
                else 6 if processor.is_byte(i) else 4 if processor.id_to_piece(i) in SYMBOLS else 1)
    keys = {
        "general.architecture": struct.pack("<I", 8) + text("llama"),
        "tokenizer.ggml.model": struct.pack("<I", 8) + text("llama"),
        "tokenizer.ggml.tokens": array(8, "", [processor.id_to_piece(i) for i in ids]),
        "tokenizer.ggml.scores": array(6, "f", [processor.get_score(i) for i in ids]),
        "tokenizer.ggml.token_type": array(5, "i", [kind(i) for i in ids]),
        "tokenizer.ggml.unknown_token_id": struct.pack("<II", 4, processor.unk_id()),
        "tokenizer.ggml.bos_token_id": struct.pack("<II", 4, processor.bos_id()),
        "tokenizer.ggml.eos_token_id": struct.pack("<II", 4, processor.eos_id()),
        "tokenizer.ggml.add_space_prefix": struct.pack("<IB", 7, add_space_prefix),
    }
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + b"".join(text(k) + v for k, v in keys.items())


# --- texts ---

RANGES = [(0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x400, 0x4FF), (0x590, 0x6FF), (0x900, 0x97F),
          (0x2000, 0x206F), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xE0FF),
          (0xFFF0, 0xFFFD), (0x1F300, 0x1FAFF), (0x10FF00, 0x10FFFF)]


def character(draw):
    while True:
        low, high = draw.choice(RANGES)
        c = chr(draw.randint(low, high))
        if c != BLANK:
            return c


def random_text(draw, words):
    def part():
        kind = draw.randrange(12)
        if kind < 3:
            return draw.choice(words) + " "
        if kind == 3:
            return draw.choice(words)
        if kind == 4:
            return " " * draw.randint(1, 9)
        if kind == 5:
            return draw.choice(["\t", "\n", "\r\n", "\n\n", "\u00a0", "\u3000", "\u200b", "\0", "\x7f", "\ufeff"])
        if kind == 6:
            return "".join(character(draw) for _ in range(draw.randint(1, 6)))
        if kind == 7:
            return draw.choice("abcxyzZ019.,'\"-—é字🙂") * draw.randint(1, 40)
        if kind == 8:
            word = draw.choice(words)
            at = draw.randint(0, len(word))
            return word[:at] + draw.choice(["", " ", "\u0301", "x"]) + word[at:]
        if kind == 9:
            return draw.choice(SYMBOLS)
        if kind == 10:
            return draw.choice(["<s>", "</s>", "<unk>", "<0x41>", "<0xZZ>", "<think", "<", "⁇", " ⁇ "])
        return "".join(draw.choice("etaoin ") for _ in range(draw.randint(1, 30)))
    return "".join(part() for _ in range(draw.randint(0, 12)))


def texts(count):
    draw = random.Random(SEED)
    whole = CORPUS.read_text(encoding="utf-8")
    words = sorted(set(whole.split()))
    fixed = ["", " ", "  ", "\t", "\n", "a", " a", "a ", " a ", "a  b", "Hello world", "\0", "a\0b", "\u00a0", "a\u00a0b",
             "\U0010ffff", "e" * 5000, "字" * 3000, " " * 4000, " " * 4000 + "x", "ab" * 3000, "the " * 2000,
             "aA" * 2000, whole[:20000]]
    slices = []
    for _ in range(count // 5):
        at = draw.randrange(len(whole) - 400)
        slices.append(whole[at:at + draw.randint(1, 400)])
    return fixed + slices + [random_text(draw, words) for _ in range(count)]


# --- both sides ---

def asked(model, inputs):
    """(ids, decoded bytes) of each text, by our tokenizer."""
    frames = b"".join(struct.pack("<I", len(raw)) + raw for raw in inputs)
    run = subprocess.run([HELPER, model], input=frames, capture_output=True)
    if run.returncode != 0:
        raise AssertionError(run.stderr.decode("utf-8", errors="replace"))
    out = run.stdout
    answers, at = [], 0
    for _ in inputs:
        count, = struct.unpack_from("<I", out, at)
        ids = list(struct.unpack_from(f"<{count}i", out, at + 4))
        at += 4 + 4 * count
        length, = struct.unpack_from("<I", out, at)
        answers.append((ids, out[at + 4:at + 4 + length]))
        at += 4 + length
    if at != len(out):
        raise AssertionError("answers and texts do not match")
    return answers


def pieces_of(text, symbols):
    """Ordinary text and user-defined symbols in turn, cut leftmost first, longest first."""
    parts, start, at = [], 0, 0
    while at < len(text):
        found = max((s for s in symbols if text.startswith(s, at)), key=len, default=None)
        if found is None:
            at += 1
            continue
        parts += [(text[start:at], False), (found, True)]
        at += len(found)
        start = at
    parts.append((text[start:], False))
    return [part for part in parts if part[0]]


class Oracle(unittest.TestCase):
    """One model each; compare() is the test."""

    @classmethod
    def setUpClass(cls):
        import sentencepiece
        cls.spm = sentencepiece
        cls.compared = cls.models = 0
        cls.texts = texts(20000 if os.environ.get("NUMOE_FULL") else 2000)

    @classmethod
    def tearDownClass(cls):
        print(f"{cls.compared} texts compared, {len(cls.texts)} different ones with {cls.models} vocabularies, "
              f"sentencepiece {cls.spm.__version__}")

    def compare(self, serialized, add_space_prefix, symbols=()):
        processor = self.spm.SentencePieceProcessor(model_proto=serialized)
        with tempfile.TemporaryDirectory(prefix="numoe-test-") as folder:
            path = Path(folder) / "model.gguf"
            path.write_bytes(gguf(processor, add_space_prefix))
            answers = asked(path, [text.encode("utf-8") for text in self.texts])
            Oracle.models += 1
            for text, (ids, decoded) in zip(self.texts, answers):
                if symbols and add_space_prefix:
                    want = []
                    for part, is_symbol in pieces_of(text, symbols):
                        want += [processor.piece_to_id(part)] if is_symbol else processor.encode(part)
                else:
                    want = processor.encode(text)
                if ids != want:
                    self.fail(f"text {text[:200]!r}: ours {[processor.id_to_piece(i) for i in ids][:40]}, "
                              f"theirs {[processor.id_to_piece(i) for i in want][:40]}")
                Oracle.compared += 1
                if processor.unk_id() not in ids:
                    self.assertEqual(decoded.decode("utf-8"), text)
                    if not (symbols and add_space_prefix):
                        self.assertEqual(decoded.decode("utf-8"), processor.decode(ids))
            self.round_trip_of_bytes(path, processor)

    def round_trip_of_bytes(self, path, processor):
        """Bytes that are no UTF-8: sentencepiece cannot hold them, so they must only come back."""
        draw = random.Random(SEED)
        inputs = [bytes(draw.randrange(256) for _ in range(draw.randint(1, 60))) for _ in range(500)]
        inputs = [raw.replace(BLANK.encode(), b"") for raw in inputs]
        for raw, (ids, decoded) in zip(inputs, asked(path, inputs)):
            if processor.unk_id() not in ids:
                self.assertEqual(decoded, raw)

    def test_bytes_and_a_blank_in_front(self):
        self.compare(train(self.spm, byte_fallback=True), True)

    def test_bytes_and_no_blank_in_front(self):
        self.compare(train(self.spm, byte_fallback=True, add_dummy_prefix=False), False)

    def test_unknown_characters(self):
        self.compare(train(self.spm), True)
        self.compare(train(self.spm, add_dummy_prefix=False), False)

    def test_user_defined_symbols(self):
        for prefix in (True, False):
            model = train(self.spm, byte_fallback=True, add_dummy_prefix=prefix, user_defined_symbols=SYMBOLS)
            self.compare(model, prefix, SYMBOLS)

    def test_pieces_across_blanks(self):
        self.compare(train(self.spm, byte_fallback=True, split_by_whitespace=False, split_by_number=False,
                           split_by_unicode_script=False, allow_whitespace_only_pieces=True,
                           max_sentencepiece_length=24), True)

    def test_scores_in_any_order_and_ties(self):
        model = train(self.spm, byte_fallback=True, allow_whitespace_only_pieces=True)
        draw = random.Random(SEED)
        self.compare(changed(model, score=lambda rank, piece: draw.uniform(-100, 100)), True)
        self.compare(changed(model, score=lambda rank, piece: float(draw.randrange(4))), True)
        self.compare(changed(model, score=lambda rank, piece: float(len(piece))), True)

    def test_unused_pieces_are_taken_apart_again(self):
        draw = random.Random(SEED)
        self.compare(changed(train(self.spm), unused=lambda rank, piece: draw.random() < 0.3), True)
        model = train(self.spm, byte_fallback=True)
        self.compare(changed(model, unused=lambda rank, piece: draw.random() < 0.3), True)
        self.compare(changed(model, unused=lambda rank, piece: len(piece) > 2), True)
        self.compare(changed(model, score=lambda rank, piece: draw.uniform(-9, 9),
                             unused=lambda rank, piece: draw.random() < 0.5), True)

    def test_a_wrong_vocabulary_is_noticed(self):
        model = train(self.spm, byte_fallback=True)
        other = changed(model, score=lambda rank, piece: float(rank))
        processor = self.spm.SentencePieceProcessor(model_proto=model)
        with tempfile.TemporaryDirectory(prefix="numoe-test-") as folder:
            path = Path(folder) / "model.gguf"
            path.write_bytes(gguf(self.spm.SentencePieceProcessor(model_proto=other), True))
            answers = asked(path, [text.encode("utf-8") for text in self.texts])
        different = sum(ids != processor.encode(text) for text, (ids, _) in zip(self.texts, answers))
        self.assertGreater(different, len(self.texts) // 2)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    interpreter = environment(sys.argv[2])
    if interpreter is None:
        sys.exit(SKIPPED)
    if Path(sys.executable).resolve().parent != interpreter.parent and sys.prefix != str(Path(sys.argv[2]).resolve()):
        os.execv(interpreter, [str(interpreter), *sys.argv])
    HELPER = sys.argv.pop(1)
    sys.argv.pop(1)
    unittest.main()
