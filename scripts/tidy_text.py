"""Rules about the text of one file: lengths, words, constructs."""
import re

from tidy_files import CODE, Finding

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
LINE_LENGTH_MAX = 100

# (rule, pattern on code without comments and literals, what to do instead, where it is allowed)
BANNED = [
    ("shared_ptr", r"\b(shared_ptr|make_shared|weak_ptr)\b",
     "own by value or std::unique_ptr, lend a reference", ()),
    ("new", r"(?<!operator )\bnew\b(?!\s*\()", "std::make_unique or a container owns memory", ()),
    ("delete", r"(?<!operator )(?<!= )\bdelete\b(?!\s*\(\s*\)?\s*;)", "let std::unique_ptr or a container free it", ()),
    ("throw", r"\bthrow\b", "return base::Error, or CHECK for our own bugs", ()),
    ("getenv", r"\b(secure_)?getenv\b", "pass an option down from cli/", ("cli/", "tests/")),
    ("endl", r"\bstd::endl\b", "write '\\n'", ()),
    ("using_namespace", r"\busing\s+namespace\b", "name what you use", ()),
    ("assert", r"\bassert\s*\(", "CHECK, which is on in every build", ()),
    ("exit", r"\bstd::(abort|exit|quick_exit|terminate|_Exit)\b|(?<![\w.>:])_?exit\s*\(",
     "return base::Error, or CHECK for our own bugs", ("base/check.cc", "cli/", "tests/", "bench/")),
    ("print", r"\bstd::(cout|cerr|clog)\b|(?<![\w.>])(std::)?f?(printf|puts)\s*\(",
     "hand text to base::Log, or return it to cli/", ("base/check.cc", "cli/", "tests/", "bench/")),
    ("libm", r"\bstd::(exp|exp2|expm1|log|log2|log10|log1p|pow|sin|cos|tan|tanh|sinh|cosh|erf)f?\s*\(",
     "kernels/math.h, whose bits do not depend on the C library", ("kernels/reference.cc", "tests/", "bench/", "cli/", "plan/")),
    ("random", r"\b(std::random_device|s?rand)\b\s*[({]|\bstd::random_device\b",
     "base/rng.h, keyed by a seed", ("cli/", "broker/", "proto/", "shm/", "worker/")),
    ("omp", r"#\s*pragma\s+omp\b", "the thread team of engine/", ()),
]

# A private constructor is out of make_unique's reach.
WRAPPED_NEW = re.compile(r"unique_ptr<[^;]*>(\s*\w+)?\s*[({]\s*new\b")
SLEEP = re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep)\b|(?<![\w.])sleep\s*\(|\btime\.sleep\b")
MARKS = [
    ("todo", re.compile(r"\bTODO\b(?!\(#\d+\))"), "finish it, or write TODO(#issue)"),
    ("fixme", re.compile(r"\bFIXME\b"), "fix it, or write TODO(#issue)"),
    ("xxx", re.compile(r"\bXXX\b"), "say what is wrong, or write TODO(#issue)"),
]
MACHINE_PATH = re.compile(r"(?<![\w.}])/(work|root|home|tmp)/[a-z]")
COMPILER_FLAGS = re.compile(r"-march=native|-ffast-math|-funsafe-math")
# These spell what they look for.
ABOUT_THE_RULES = ("scripts/tidy", "tests/scripts/tidy", "docs/STYLE.md")


def _program_text(tree):
    """Files that people write by hand and machines read, and the pages about them."""
    return [p for p in tree.lines if not p.startswith(("tests/golden/", "models/"))]


def file_length(tree):
    for path in tree.lines:
        if path.endswith(CODE + (".py", ".sh")):
            count = tree.text[path].count("\n")
            if count > FILE_LINES_MAX:
                yield Finding(path, FILE_LINES_MAX, "file_length",
                              f"{count} lines; split it by idea, at most {FILE_LINES_MAX}")


def line_length(tree):
    for path, lines in tree.lines.items():
        if not path.endswith(CODE):
            continue
        for number, line in enumerate(lines, 1):
            if len(line) > LINE_LENGTH_MAX and "://" not in line:
                yield Finding(path, number, "line_length",
                              f"{len(line)} columns; at most {LINE_LENGTH_MAX}")


CONTROL = re.compile(r"^\s*(if|for|while|switch|do|else|try|catch|return|namespace|class|struct|enum|union|"
                     r"extern|case|default|#)\b")


def _function_starts(lines):
    """Indices of lines that open a function body, as clang-format writes them: a signature at column 0,
    or at column 2 inside a class; the line ends in `{`."""
    for index, line in enumerate(lines):
        if not line.rstrip().endswith("{"):
            continue
        first = index
        while first > 0 and (lines[first].startswith("    ") or lines[first].lstrip().startswith(":")):
            first -= 1
        head = " ".join(lines[first:index + 1])
        indent = len(lines[first]) - len(lines[first].lstrip())
        if indent not in (0, 2) or CONTROL.match(head) or "(" not in head:
            continue
        before_call = head.split("(")[0]
        if "=" in before_call and "operator" not in before_call:
            continue
        if indent == 2 and ("[" in head or not re.search(r"\w\s+[\w:~<>&*]+\(|~?\w+\(", head)):
            continue
        yield first, index, indent


def function_length(tree):
    for path in tree.code:
        lines = tree.code[path].split("\n")
        for first, opened, indent in _function_starts(lines):
            closing = " " * indent + "}"
            for end in range(opened + 1, len(lines)):
                if lines[end].startswith(closing):
                    if end - first + 1 > FUNCTION_LINES_MAX:
                        yield Finding(path, first + 1, "function_length",
                                      f"{end - first + 1} lines; at most {FUNCTION_LINES_MAX}")
                    break


def banned_words(tree):
    for path in tree.code:
        for rule, pattern, instead, allowed in BANNED:
            if path.startswith(allowed):
                continue
            for number, line in tree.code_lines(path):
                if line.lstrip().startswith("#include"):
                    continue
                match = re.search(pattern, line)
                if match and not (rule == "new" and WRAPPED_NEW.search(line)):
                    yield Finding(path, number, rule, f"`{match.group(0).strip()}`: {instead}")


def sleep_in_tests(tree):
    for path in tree.lines:
        if not path.startswith("tests/") or not path.endswith(CODE + (".py",)):
            continue
        if path.startswith(ABOUT_THE_RULES):
            continue
        text = tree.code.get(path, tree.text[path])
        for number, line in enumerate(text.split("\n"), 1):
            if SLEEP.search(line):
                yield Finding(path, number, "sleep", "wait for the event itself; sleep synchronises nothing")


def unfinished_marks(tree):
    for path in _program_text(tree):
        if path.startswith(ABOUT_THE_RULES):
            continue
        for number, line in enumerate(tree.lines[path], 1):
            for rule, pattern, instead in MARKS:
                if pattern.search(line):
                    yield Finding(path, number, rule, instead)


def machine_paths(tree):
    for path in _program_text(tree):
        if path.startswith("tests/"):
            continue
        for number, line in enumerate(tree.lines[path], 1):
            if MACHINE_PATH.search(line):
                yield Finding(path, number, "machine_path", "a path of one machine; make it relative or an option")


def compiler_flags(tree):
    for path in tree.lines:
        if path.endswith(("CMakeLists.txt", ".cmake", "CMakePresets.json")):
            for number, line in enumerate(tree.lines[path], 1):
                match = COMPILER_FLAGS.search(line)
                if match and not line.lstrip().startswith("#"):
                    yield Finding(path, number, "compiler_flag",
                                  f"{match.group(0)} makes bits depend on the machine; kernels/isa/ dispatches at run time")


RULES = [file_length, line_length, function_length, banned_words, sleep_in_tests, unfinished_marks,
         machine_paths, compiler_flags]
