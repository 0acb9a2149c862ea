#!/usr/bin/env python3
"""Each rule of scripts/tidy.py on a small tree that breaks it, and on one that breaks none."""
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
import tidy  # noqa: E402
import tidy_files  # noqa: E402

README = """# {0}: one line

## What it is
## Picture
## Includes, and never knows

Includes {1}.

## Life of one thing
## How to test and measure
"""

GOOD = {
    "docs/architecture.md": """# Architecture
## Folders and who may include whom
| folder | what | may include |
|---|---|---|
| `base/` | a | – |
| `kernels/` | b | `base` |
| `model/` | c | `base`, `kernels/formats` |
| `proto/` | d | `base` |
## Other
| `evil/` | not in the table | `base` |
""",
    "docs/README.md": "# docs\n",
    "scripts/README.md": "# scripts\n",
    "tests/README.md": "# tests\n",
    "base/README.md": README.format("base", "nothing"),
    "base/CMakeLists.txt": "numoe_library(base SOURCES a.cc)\n",
    "base/a.h": "// What it is.\n#pragma once\n#include <vector>\n",
    "base/a.cc": '#include "base/a.h"\n\n#include <unistd.h>\n\nint f() { return 0; }\n',
    "kernels/README.md": README.format("kernels", "base"),
    "kernels/CMakeLists.txt": "numoe_library(kernels\n  SOURCES isa/x.cc\n  LINKS base)\n",
    "kernels/formats.h": '// Formats.\n#pragma once\n#include "base/a.h"\n',
    "kernels/ops.h": "// Operations.\n#pragma once\n",
    "kernels/isa/x.cc": "#include <immintrin.h>\n",
    "model/README.md": README.format("model", "base, kernels/formats"),
    "model/CMakeLists.txt": "numoe_library(model SOURCES m.cc seam.cc LINKS base kernels PkgConfig::PCRE2)\n",
    "model/m.cc": '#include "base/a.h"\n#include "kernels/formats.h"\n',
    "model/seam.cc": "#include <pcre2.h>\n",
    "proto/README.md": README.format("proto", "nothing"),
    "proto/CMakeLists.txt": "numoe_library(proto SOURCES p.cc)\n",
    "proto/p.cc": '#include "proto/numoe.pb.h"\n',
    "tests/base/CMakeLists.txt": "numoe_test(base_a_test SOURCES a_test.cc LINKS base)\n",
    "tests/base/a_test.cc": '#include "base/a.h"\n#include <gtest/gtest.h>\n',
}


def findings(**changes):
    """Findings of the good tree with `changes`: path (with __ for / and _dot_ for .) to text, None to delete."""
    files = dict(GOOD)
    for key, text in changes.items():
        files[key.replace("__", "/").replace("_dot_", ".")] = text
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            if text is not None:
                (Path(root) / path).parent.mkdir(parents=True, exist_ok=True)
                (Path(root) / path).write_text(text, encoding="utf-8")
        return tidy.check(root)


def code(text):
    """Findings when base/a.cc has this in addition."""
    return findings(base__a_dot_cc=GOOD["base/a.cc"] + text)


class Tidy(unittest.TestCase):
    def expect(self, found, rule, count=1):
        self.assertEqual([f.rule for f in found], [rule] * count, "\n".join(map(str, found)))

    def test_the_good_tree_has_no_finding(self):
        self.assertEqual(findings(), [])

    def test_banned_constructs(self):
        for text, rule in [
                ("std::shared_ptr<int> p;", "shared_ptr"), ("auto p = std::make_shared<int>(1);", "shared_ptr"),
                ("int* p = new int;", "new"), ("return new Thing(1);", "new"), ("delete p;", "delete"),
                ("delete[] p;", "delete"), ("throw 1;", "throw"), ('std::getenv("A");', "getenv"),
                ("std::cerr << std::endl;", None), ("using namespace std;", "using_namespace"),
                ("assert(x);", "assert"), ("std::abort();", "exit"), ("exit(1);", "exit"),
                ('printf("x");', "print"), ("std::cout << 1;", "print"), ("std::exp(1.0f);", "libm"),
                ("std::random_device device;", "random"), ("rand();", "random"), ("#pragma omp parallel", "omp")]:
            with self.subTest(text):
                found = [f.rule for f in code("\n" + text + "\n")]
                self.assertEqual(found, [rule] if rule else ["endl", "print"])

    def test_what_only_looks_banned(self):
        for text in ["// throw it away, then delete the new file: shared_ptr", 'auto s = "throw new std::endl";',
                     "new (place) Thing;", "Thing(const Thing&) = delete;", "static_assert(true);",
                     "std::unique_ptr<Thing> t(new Thing(1));", "void operator delete(void* p) noexcept;",
                     "exchange->abort();", "int newest, renew, thrown;", "snprintf(a, 1, b);", "log.exp(1);",
                     "kernels::exp_f32(1);", 'R"(throw new x)";', "int x = 1'000'000; int renewed;",
                     "std::string brand();"]:
            with self.subTest(text):
                self.assertEqual(code("\n" + text + "\n"), [])

    def test_where_banned_constructs_belong(self):
        text = GOOD["tests/base/a_test.cc"] + 'void f() { std::getenv("NUMOE_FULL"); std::exp(1.0); }\n'
        self.assertEqual(findings(tests__base__a_test_dot_cc=text), [])

    def test_excuses_need_a_reason(self):
        self.assertEqual(code("throw 1;  // tidy: allow throw because the library wants it\n"), [])
        self.expect(code("throw 1;  // tidy: allow throw because\n"), "throw")
        self.expect(code("throw 1;  // tidy: allow new because of reasons\n"), "throw")

    def test_unfinished_marks(self):
        self.expect(code("// TODO: later\n"), "todo")
        self.assertEqual(code("// TODO(#12): later\n"), [])
        self.expect(code("// FIXME\n"), "fixme")
        self.expect(code("// XXX\n"), "xxx")
        self.expect(findings(docs__README_dot_md="# docs\nTODO\n"), "todo")

    def test_sleep_in_tests(self):
        for line in ["std::this_thread::sleep_for(x);", "usleep(3);", "sleep(1);", "nanosleep(&a, &b);"]:
            self.expect(findings(tests__base__a_test_dot_cc=GOOD["tests/base/a_test.cc"] + line + "\n"), "sleep")
        self.expect(findings(tests__base__help_dot_py="import time\ntime.sleep(1)\n"), "sleep")

    def test_lengths(self):
        self.expect(code("// x\n" * 500), "file_length")
        self.expect(code("//" + "x" * 99 + "\n"), "line_length")
        self.assertEqual(code("//" + "ü" * 98 + "\n"), [])
        body = "  g();\n" * 69
        self.expect(code("void f() {\n" + body + "}\n"), "function_length")
        self.expect(code("Result<int> A::f(int a,\n              int b) const {\n" + body + "}\n"), "function_length")
        self.expect(code("class A {\n  void f() const {\n" + body + "  }\n};\n"), "function_length")
        self.expect(code("TEST(A, B) {\n" + body + "}\n"), "function_length")
        self.assertEqual(code("void f() {\n" + "  g();\n" * 68 + "}\n"), [])
        self.assertEqual(code("namespace a {\nvoid f();\n" + body + "}\n"), [])

    def test_machine_paths(self):
        self.expect(findings(docs__README_dot_md="# docs\nSee /home/anna/numoe.\n"), "machine_path")
        self.assertEqual(findings(docs__README_dot_md="# docs\nSee /run/numoe and a/tmp/b.\n"), [])

    def test_compiler_flags(self):
        page = GOOD["base/CMakeLists.txt"] + "target_compile_options(base PRIVATE -march=native)\n"
        self.expect(findings(base__CMakeLists_dot_txt=page), "compiler_flag")

    def test_include_graph(self):
        header = "// A.\n#pragma once\n"
        self.expect(findings(base__a_dot_h=header + '#include "model/x.h"\n', model__x_dot_h=header,
                             base__CMakeLists_dot_txt="numoe_library(base SOURCES a.cc LINKS model)\n",
                             base__README_dot_md=README.format("base", "model")), "include_graph")
        self.expect(findings(model__m_dot_cc=GOOD["model/m.cc"] + '#include "kernels/ops.h"\n'), "include_graph")
        self.expect(findings(base__a_dot_h=header + '#include "tests/base/help.h"\n', tests__base__help_dot_h=header,
                             base__README_dot_md=README.format("base", "tests")), "include_graph")
        self.expect(findings(base__a_dot_h=header + '#include "a.h"\n'), "include_path")
        self.expect(findings(base__a_dot_h=header + '#include "base/gone.h"\n'), "include_path")
        self.assertIn("include_graph", [f.rule for f in findings(docs__architecture_dot_md="# no table\n")])

    def test_links_are_the_includes(self):
        self.expect(findings(model__CMakeLists_dot_txt="numoe_library(model SOURCES m.cc seam.cc LINKS base)\n"),
                    "link_list")
        self.expect(findings(proto__CMakeLists_dot_txt="numoe_library(proto SOURCES p.cc LINKS base)\n"), "link_list")

    def test_readmes_name_the_includes(self):
        self.expect(findings(model__README_dot_md=README.format("model", "base")), "readme")
        self.expect(findings(model__README_dot_md=None), "readme")
        self.expect(findings(scripts__README_dot_md=None, scripts__x_dot_py="\n"), "readme")
        for heading in ["## Picture", "## Life of one thing", "# model: one line"]:
            page = GOOD["model/README.md"].replace(heading, "text")
            self.expect(findings(model__README_dot_md=page), "readme")

    def test_seams(self):
        self.expect(findings(model__m_dot_cc=GOOD["model/m.cc"] + "#include <pcre2.h>\n"), "seam")
        self.assertEqual(findings(model__m_dot_cc=GOOD["model/m.cc"] + "#include <sys/mman.h>\n#include <map>\n"), [])
        self.expect(findings(model__m_dot_cc=GOOD["model/m.cc"] + "#include <boost/json/value.hpp>\n",
                             model__seam_dot_cc=GOOD["model/seam.cc"] + "#include <boost/json/src.hpp>\n"), "seam")
        self.expect(code("#include <immintrin.h>\n"), "intrinsics")
        self.expect(findings(kernels__ops_dot_h="// A.\n#pragma once\n#include <xmmintrin.h>\n"), "intrinsics")
        self.expect(code('#include "proto/numoe.pb.h"\n'), "protobuf")

    def test_headers(self):
        self.expect(findings(base__a_dot_h="// What it is.\nint f();\n"), "pragma_once")
        self.expect(findings(base__a_dot_h="#pragma once\n"), "header_comment")

    def test_everything_is_built(self):
        self.expect(findings(base__b_dot_cc="\n"), "not_built")
        self.expect(findings(tests__base__b_test_dot_cc="\n"), "not_built")
        self.expect(findings(tests__base__b_test_dot_py="\n"), "not_built")
        self.expect(findings(kernels__isa__y_dot_cc="\n"), "not_built")

    def test_ways_to_name_what_is_built(self):
        page = GOOD["tests/base/CMakeLists.txt"]
        script = page + "add_test(NAME b COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/b_test.py)\n"
        self.assertEqual(findings(tests__base__b_test_dot_py="\n", tests__base__CMakeLists_dot_txt=script), [])
        other = page + "add_test(NAME b COMMAND python3 sub/b_test.py)\n"
        self.expect(findings(tests__base__b_test_dot_py="\n", tests__base__CMakeLists_dot_txt=other), "not_built")

    def test_strays(self):
        self.expect(findings(tool_dot_whl="x"), "stray")

    def test_excluded_folders(self):
        self.assertEqual(findings(build__x_dot_cc="throw 1;", **{"build-me__x_dot_cc": "throw 1;"}), [])

    def test_findings_name_the_place(self):
        finding = code("\n\nthrow 1;\n")[0]
        self.assertEqual((finding.path, finding.line), ("base/a.cc", GOOD["base/a.cc"].count("\n") + 3))
        self.assertIn("base::Error", str(finding))

    def test_stripping_keeps_lines_and_columns(self):
        text = 'int a; /* x\n y */ int b; // c\nconst char* s = "\\"//"; char q = \'"\'; int d;\n'
        stripped = tidy_files.strip_comments_and_strings(text)
        self.assertEqual(stripped.count("\n"), text.count("\n"))
        for name in ["int a;", "int b;", "int d;"]:
            self.assertEqual(stripped.index(name), text.index(name))
        self.assertNotIn("c\n", stripped.replace("\n", " \n").replace("const", "").replace("char", ""))


if __name__ == "__main__":
    unittest.main()
