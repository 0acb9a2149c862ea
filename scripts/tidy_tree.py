"""Rules about the tree: who includes whom, what is built, what is described, what may lie about."""
import posixpath
import re

from tidy_files import CODE, Finding

TABLE_PAGE = "docs/architecture.md"
TABLE_HEADING = "## Folders and who may include whom"
README_HEADINGS = ["# {folder}", "## What it is", "## Picture", "## Includes, and never knows",
                   "## Life of one", "## How to test and measure"]
PROTOBUF_FOLDERS = ("proto", "worker", "broker", "cli")
BINARY = (".whl", ".o", ".a", ".so", ".pyc", ".zip", ".tar", ".gz", ".exe")
# Headers of the C library and of Linux: not third-party.
SYSTEM = re.compile(r"(sys|linux|asm|netinet|arpa|net)/|(unistd|fcntl|signal|sched|time|errno|dirent|poll|pthread|"
                    r"stdlib|stdio|string|stdint|stddef|cpuid|immintrin|termios|spawn|dlfcn|pwd|limits|netdb|locale|"
                    r"ucontext|execinfo|fnmatch|glob|getopt|math|malloc|float)\.h$")
INTRINSICS = re.compile(r"([a-z]*mmintrin|immintrin|x86intrin|x86gprintrin|arm_neon|arm_sve)\.h$")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes(tree, path):
    """(line, is_system, header) of every include."""
    for number, line in tree.code_lines(path):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == "<", match.group(2)


def include_table(tree):
    """folder -> what it may include (`folder` or `folder/header`), from the table of TABLE_PAGE."""
    table, inside = {}, False
    for line in tree.lines.get(TABLE_PAGE, []):
        if line.startswith("## "):
            inside = line.startswith(TABLE_HEADING)
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if inside and line.startswith("|") and len(cells) == 3 and cells[0].startswith("`"):
            table[cells[0].strip("`/")] = [part.strip("/") for part in re.findall(r"`([^`]+)`", cells[2])]
    return table


def code_folders(tree):
    return sorted(f for f in include_table(tree) if any(tree.folder(p) == f for p in tree.paths))


def _allowed(header, allowances):
    folder = header.split("/")[0]
    return any(a == folder or ("/" in a and header.startswith(a + ".")) for a in allowances)


def include_graph(tree):
    table = include_table(tree)
    if not table:
        yield Finding(TABLE_PAGE, 1, "include_graph", f'no table under "{TABLE_HEADING}"')
    for path in tree.code:
        folder = tree.folder(path)
        for number, is_system, header in includes(tree, path):
            if is_system:
                continue
            target = header.split("/")[0]
            if header.endswith(".pb.h"):
                if folder not in PROTOBUF_FOLDERS and folder != "tests":
                    yield Finding(path, number, "protobuf", "generated headers only in " + ", ".join(PROTOBUF_FOLDERS))
                continue
            if "/" not in header:
                yield Finding(path, number, "include_path", f'write the path from the root, "{folder}/{header}"')
            elif header not in tree.text:
                yield Finding(path, number, "include_path", f"{header} does not exist")
            elif target == "tests" and folder not in ("tests", "bench"):
                yield Finding(path, number, "include_graph", "the program does not include its tests")
            elif folder in table and target != folder and not _allowed(header, table[folder]):
                yield Finding(path, number, "include_graph",
                              f"{folder}/ may not include {header}; the table in {TABLE_PAGE} says what it may")


def _used_folders(tree, folder):
    """folder -> one place where this folder includes it."""
    used = {}
    for path in tree.code:
        if tree.folder(path) == folder:
            for number, is_system, header in includes(tree, path):
                target = header.split("/")[0]
                if not is_system and "/" in header and target != folder and not header.endswith(".pb.h"):
                    used.setdefault(target, (path, number))
    return used


def _linked(tree, folder, names):
    """Folders that the CMakeLists.txt of a folder links."""
    text = re.sub(r"#[^\n]*", "", tree.text.get(folder + "/CMakeLists.txt", ""))
    linked = set()
    for call in re.findall(r"(?:numoe_library|target_link_libraries)\s*\(([^)]*)\)", text):
        words = call.split()
        words = words[words.index("LINKS") + 1:] if "LINKS" in words else words[1:]
        linked |= {w for w in words if w in names}
    return linked - {folder}


def link_lists(tree):
    table = include_table(tree)
    for folder in code_folders(tree):
        used = _used_folders(tree, folder)
        linked = _linked(tree, folder, table)
        page = folder + "/CMakeLists.txt"
        if page not in tree.text:
            continue
        for target in sorted(set(used) & set(table) - linked):
            path, number = used[target]
            yield Finding(path, number, "link_list", f"{page} does not list {target} under LINKS")
        for target in sorted(linked - set(used)):
            yield Finding(page, 1, "link_list", f"LINKS names {target}, which nothing here includes")


def seams(tree):
    """Each third-party header family in one file of its folder."""
    where = {}
    for path in tree.code:
        folder = tree.folder(path)
        for number, is_system, header in includes(tree, path):
            if INTRINSICS.match(header) and not path.startswith("kernels/isa/"):
                yield Finding(path, number, "intrinsics", f"<{header}> only in kernels/isa/; write in the vocabulary")
            if not is_system or folder in ("tests", "bench"):
                continue
            if "." not in header and "/" not in header or SYSTEM.match(header):
                continue
            parts = header.split("/")
            family = "/".join(parts[:2]).split(".")[0] if parts[0] == "boost" else re.split(r"[./_]", header)[0]
            first = where.setdefault((folder, family), path)
            if first != path:
                yield Finding(path, number, "seam", f"<{header}>: {first} is the seam to {family} in {folder}/")


def headers(tree):
    for path in tree.code:
        if not path.endswith(".h"):
            continue
        lines = tree.lines[path]
        if "#pragma once" not in lines:
            yield Finding(path, 1, "pragma_once", "a header has #pragma once")
        if not lines[0].startswith("//"):
            yield Finding(path, 1, "header_comment", "a header begins with what it is, its contract and thread rule")


def readmes(tree):
    for folder in code_folders(tree):
        page = folder + "/README.md"
        if page not in tree.lines:
            yield Finding(page, 1, "readme", "missing; every folder has its one page")
            continue
        headings = [line for line in tree.lines[page] if line.startswith("#")]
        for wanted in README_HEADINGS:
            wanted = wanted.format(folder=folder)
            if not any(line.startswith(wanted) for line in headings):
                yield Finding(page, 1, "readme", f'no heading "{wanted}"')
        section = re.search(r"^## Includes, and never knows\n(.*?)(?=^## |\Z)", tree.text[page], re.DOTALL | re.MULTILINE)
        named = set(re.findall(r"[a-z]+", section.group(1))) if section else set()
        for target, (path, number) in sorted(_used_folders(tree, folder).items()):
            if section and target not in named:
                yield Finding(path, number, "readme", f'{page} does not name {target} under "Includes"')
    for folder in sorted({tree.folder(p) for p in tree.paths} - {"", ".ci"} - set(include_table(tree))):
        if folder + "/README.md" not in tree.lines:
            yield Finding(folder + "/README.md", 1, "readme", "missing; every folder has its one page")


def built(tree):
    """Every source and test is named in a CMakeLists.txt of its folder or one above."""
    for path in tree.paths:
        is_test = path.startswith("tests/") and re.search(r"_test\.(cc|py)$", path)
        is_source = path.endswith(".cc") and tree.folder(path) != "bench"
        if not (is_test or is_source):
            continue
        folder, named = posixpath.dirname(path), False
        while folder:
            page = tree.text.get(folder + "/CMakeLists.txt", "")
            relative = posixpath.relpath(path, folder)
            named = named or re.search(rf"(?<!\w)(?<!\w/){re.escape(relative)}\b", page) is not None
            folder = posixpath.dirname(folder)
        if not named:
            yield Finding(path, 1, "not_built", "no CMakeLists.txt names it; add it or delete it")


def strays(tree):
    for path in tree.paths:
        if path.endswith(BINARY):
            yield Finding(path, 1, "stray", "a binary that something downloads or builds; not part of the tree")


RULES = [include_graph, link_lists, seams, headers, readmes, built, strays]
