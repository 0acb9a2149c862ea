"""Where the memory of other processes lies, as the kernel says; independent of what numoe reports.

Names of arenas are known here only: classes are told by the last part of the path of a mapping.
"""
import ctypes
import mmap
import os
import re

PAGE = mmap.PAGESIZE
MOVE_PAGES = 279  # x86-64
MOVE_ALL = 4  # also pages that several processes map
ATTEMPTS_MAX = 20
UNKNOWN = -(1 << 20)  # neither a node nor an errno

_CLASSES = (
    ("weights", re.compile(r".*\.arena$")),
    ("kv", re.compile(r"(kv\.\d+|.*\.kv)$")),
    ("exchange", re.compile(r"x\.(?P<rank>\d+)$")),
)


def class_of(path):
    """("weights", None), ("exchange", 1), or None for what is of no rank in particular."""
    name = os.path.basename(path.removesuffix(" (deleted)"))
    for kind, pattern in _CLASSES:
        if found := pattern.match(name):
            rank = found.groupdict().get("rank")
            return kind, None if rank is None else int(rank)
    return None


class Mapping:
    def __init__(self, pid, begin, end, path):
        self.pid, self.begin, self.end, self.path = pid, begin, end, path

    @property
    def pages(self):
        return (self.end - self.begin) // PAGE

    def mapped_on(self):
        """{node: pages} of those that this process has touched, by /proc/PID/numa_maps."""
        counts = {}
        with open(f"/proc/{self.pid}/numa_maps") as lines:
            for line in lines:
                words = line.split()
                if int(words[0], 16) != self.begin:
                    continue
                size = next((int(w.split("=")[1]) for w in words if w.startswith("kernelpagesize_kB=")), 4)
                for word in words:
                    if found := re.fullmatch(r"N(\d+)=(\d+)", word):
                        counts[int(found[1])] = int(found[2]) * size * 1024 // PAGE
        return counts

    def all_on(self):
        """{node: pages} of every page of the file, touched by the process or not."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f"/proc/{self.pid}/map_files/{self.begin:x}-{self.end:x}", "rb") as file:
            # Private, so that it is writable for ctypes; reading brings in the pages of the file.
            view = mmap.mmap(file.fileno(), self.end - self.begin, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
        buffer = (ctypes.c_char * len(view)).from_buffer(view)
        counts = {}
        for page in range(self.pages):
            view[page * PAGE]  # a fault
        for node in _page_nodes(libc, 0, ctypes.addressof(buffer), self.pages):
            counts[node] = counts.get(node, 0) + 1
        del buffer
        view.close()
        return counts

    def move(self, first, count, node):
        """Moves pages that the process has mapped, against every policy; how many are there then. Somebody who looks
        at a page at that moment keeps it where it is, and the kernel then gives up those behind it too."""
        libc = ctypes.CDLL(None, use_errno=True)
        moved = 0
        for _ in range(ATTEMPTS_MAX):
            _move_pages(libc, self.pid, self.begin + first * PAGE, count, node)
            moved = _page_nodes(libc, self.pid, self.begin + first * PAGE, count).count(node)
            if moved == count:
                break
        return moved


def _page_nodes(libc, pid, address, count):
    """The node of each page; negative: an errno."""
    return _move_pages(libc, pid, address, count, None)


def _move_pages(libc, pid, address, count, node):
    pages = (ctypes.c_void_p * count)(*(address + i * PAGE for i in range(count)))
    nodes = None if node is None else (ctypes.c_int * count)(*([node] * count))
    # The kernel leaves out those behind a page that it could not move.
    status = (ctypes.c_int * count)(*([UNKNOWN] * count))
    if libc.syscall(MOVE_PAGES, pid, ctypes.c_ulong(count), pages, nodes, status, MOVE_ALL) < 0:
        raise OSError(ctypes.get_errno(), "move_pages")
    return list(status)


def mappings(pid):
    """{("weights", None): [Mapping …], …} of a worker."""
    found = {}
    with open(f"/proc/{pid}/maps") as lines:
        for line in lines:
            words = line.rstrip("\n").split(maxsplit=5)
            if len(words) < 6 or not words[5].startswith("/"):
                continue
            begin, end = (int(part, 16) for part in words[0].split("-"))
            if kind := class_of(words[5]):
                found.setdefault(kind, []).append(Mapping(pid, begin, end, words[5]))
    return found
