#!/usr/bin/env python3
"""How fast is numoe beside other engines on the same file, the same CPUs, in the same minutes?

Runs `numoe bench` and the llama-bench programs given with --peer in turn (A B A B …), one sample each a round, so that
whatever else the machine does meets all of them, and prints medians and ratios of one run as Markdown, ready for
docs/performance.md. Parts (--parts):

  main        pp512 and tg64 of every engine; numoe as 1 node x T threads and as 2 nodes x T/2
  neighbour   tg of every engine alone, and with a foreign busy process on the last CPU
  batch       numoe: 8 sequences generating together against 1; a peer's with --batched-peer
  depth       pp128 and tg32 behind 128, 4096 and 8192 positions (--depths); a peer's prompts with --sweep-peer, or if
              its llama-bench knows -d
  threads     pp128 and tg32 with two threads per CPU, against --threads

Usage: compare.py path/to/numoe MODEL… [--peer NAME='COMMAND …']… [--threads T] [--rounds N] [--parts LIST] [--json FILE]

A peer's command gets `-m MODEL -t T -o json -r 1 -p N -n N` behind it. Runs in which other processes took more than
--foreign CPUs are repeated, --retries times at most; what was taken all the same is in the table.
"""
import argparse
import datetime
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from compare_engines import CHUNK, TIME_LIMIT, Numoe, Peer, Run, Sweep, Test, fail, named_command, note  # noqa: E402

PARTS = ("main", "neighbour", "batch", "depth", "threads")


class Figures:
    """Samples by (engine, model, what)."""

    def __init__(self):
        self.samples, self.rows, self.foreign = {}, {}, {}

    def add(self, key, run, wants_prompt):
        row = run.row(wants_prompt)
        if row is None:
            return
        self.samples.setdefault(key, []).append(float(row["avg_ts"]))
        self.rows.setdefault(key, []).append(row)
        self.foreign.setdefault(key, []).append(run.foreign)

    def median(self, key):
        return statistics.median(self.samples[key]) if key in self.samples else None

    def field(self, key, name):
        values = [float(row[name]) for row in self.rows.get(key, []) if name in row]
        return statistics.median(values) if values else None

    def text(self, key):
        if key not in self.samples:
            return "–"
        samples = self.samples[key]
        return f"{statistics.median(samples):.1f} [{min(samples):.1f}–{max(samples):.1f}]"


def ratio_text(value, base):
    return "–" if not value or not base else f"{value / base:.2f}"


def measured(arguments, engine, model, test, own_foreign=0.0):
    """A run that others left alone, if one of a few is."""
    best = None
    for _ in range(arguments.retries + 1):
        run = Run(engine, model, test, own_foreign)
        if best is None or run.foreign < best.foreign:
            best = run
        if best.foreign <= arguments.foreign:
            break
    return best


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def percent(value):
    return "–" if not value else f"{100 * value:.0f} %"


def main_part(arguments, engines, model, out):
    figures = Figures()
    prompt, generated = arguments.prompt, arguments.generated
    for number in range(arguments.rounds):
        for engine in engines:
            run = measured(arguments, engine, model, Test(prompt, generated))
            figures.add((engine.name, "pp"), run, True)
            figures.add((engine.name, "tg"), run, False)
            note(f"main {os.path.basename(model)} round {number + 1} {engine.name}: "
                 f"pp {figures.samples[(engine.name, 'pp')][-1]:.1f} tg {figures.samples[(engine.name, 'tg')][-1]:.1f}"
                 f" (others {run.foreign:.2f} CPU)")
    rows = []
    for engine in engines:
        pp, tg = (engine.name, "pp"), (engine.name, "tg")
        reads = figures.field(tg, "gb_per_s")
        rows.append([engine.name, figures.text(pp), figures.text(tg), "–" if not reads else f"{reads:.1f}",
                     percent(figures.field(tg, "ceiling_share")), f"{statistics.median(figures.foreign[tg]):.2f}"])
    out.append(table(["engine", f"pp{prompt} tok/s", f"tg{generated} tok/s", "tg GB/s", "of the read ceiling",
                      "others' CPUs"], rows))
    best = {}
    for what in ("pp", "tg"):
        peers = [(figures.median((engine.name, what)), engine.name) for engine in engines if not engine.is_numoe]
        best[what] = max(peers) if peers else None
    rows = []
    own = [engine for engine in engines if engine.is_numoe]
    for engine in own:
        for what, title in (("tg", f"tg{generated}"), ("pp", f"pp{prompt}")):
            value = figures.median((engine.name, what))
            if best[what]:
                rows.append([f"{title}: {engine.name} / {best[what][1]}", ratio_text(value, best[what][0])])
            if engine is not own[0]:
                rows.append([f"{title}: {engine.name} / {own[0].name}",
                             ratio_text(value, figures.median((own[0].name, what)))])
    if rows:
        out.append(table(["ratio of medians", ""], rows))
    return figures


class Neighbour:
    """A busy process on one CPU."""

    def __init__(self, cpu):
        self.cpu, self.process = cpu, None

    def __enter__(self):
        program = f"import os\nos.sched_setaffinity(0, {{{self.cpu}}})\nwhile True: pass"
        self.process = subprocess.Popen([sys.executable, "-c", program])
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def neighbour_part(arguments, engines, model, out):
    figures = Figures()
    cpu = max(os.sched_getaffinity(0))
    test = Test(generated=arguments.neighbour_generated)
    for number in range(arguments.rounds):
        for engine in engines:
            figures.add((engine.name, "alone"), measured(arguments, engine, model, test), False)
            with Neighbour(cpu):
                # What the neighbour takes is meant; it is not known exactly, so this run is never repeated.
                figures.add((engine.name, "disturbed"), Run(engine, model, test), False)
            note(f"neighbour round {number + 1} {engine.name}: {figures.samples[(engine.name, 'alone')][-1]:.1f} alone, "
                 f"{figures.samples[(engine.name, 'disturbed')][-1]:.1f} disturbed")
    rows = [[engine.name, figures.text((engine.name, "alone")), figures.text((engine.name, "disturbed")),
             ratio_text(figures.median((engine.name, "disturbed")), figures.median((engine.name, "alone")))]
            for engine in engines]
    out.append(table(["engine", f"tg{test.generated} alone", f"busy process on CPU {cpu}", "ratio"], rows))
    return figures


def batched_peer_speeds(command, model, generated):
    """{sequences: tok/s} of llama-batched-bench: the column S_TG by the column B."""
    full = [*command, "-m", model, "-npp", "16", "-ntg", str(generated), "-npl", "1,8"]
    done = subprocess.run(full, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                          timeout=TIME_LIMIT)
    speeds, names = {}, None
    for line in done.stdout.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if "B" in cells and any(cell.startswith("S_TG") for cell in cells):
            names = cells
        elif names and len(cells) == len(names) and re.fullmatch(r"\d+", cells[names.index("B")]):
            speed = next(index for index, name in enumerate(names) if name.startswith("S_TG"))
            speeds[int(cells[names.index("B")])] = float(cells[speed])
    if not {1, 8} <= set(speeds):
        fail(f"{shlex.join(full)} gave no table:\n{done.stdout[-2000:]}")
    return speeds


def batch_part(arguments, engines, model, out):
    figures = Figures()
    generated = arguments.batch_generated
    own = [engine for engine in engines if engine.is_numoe]
    peer = {1: [], 8: []}
    for number in range(arguments.rounds):
        for engine in own:
            for sequences in (1, 8):
                run = measured(arguments, engine, model, Test(generated=generated, sequences=sequences))
                figures.add((engine.name, sequences), run, False)
        for command in arguments.batched_peer:
            for sequences, speed in batched_peer_speeds(shlex.split(command), model, generated).items():
                peer[sequences].append(speed)
        note(f"batch round {number + 1}")
    rows = []
    for engine in own:
        reads = figures.field((engine.name, 8), "step_reads")
        rows.append([engine.name, figures.text((engine.name, 1)), figures.text((engine.name, 8)),
                     ratio_text(figures.median((engine.name, 8)), figures.median((engine.name, 1))),
                     "–" if not reads else f"{8 / reads:.2f}"])
    if peer[8]:
        one, eight = statistics.median(peer[1]), statistics.median(peer[8])
        rows.append(["peer", f"{one:.1f}", f"{eight:.1f}", ratio_text(eight, one), "–"])
    out.append(table(["engine", f"tg{generated} x1", f"tg{generated} x8, all sequences", "ratio",
                      "allowed by what the steps read"], rows))
    out.append("Allowed: 8 / (weights read by a step of 8 sequences / by a step of one), as the router chose in these "
               "runs; counted, not estimated.\n")
    return figures


def add_both(figures, name, run, *place):
    """The prompt and the tokens of a run."""
    figures.add((name, "pp", *place), run, True)
    figures.add((name, "tg", *place), run, False)
    return " ".join(f"{what} {figures.samples[(name, what, *place)][-1]:.1f}" for what in ("pp", "tg")
                    if (name, what, *place) in figures.samples)


def cache_text(engine, row):
    attention = {None: "", 0: ", no flash attention"}.get(row.get("flash_attn"), ", flash attention")
    return f"{engine.name} {row.get('type_k', 'f16')}/{row.get('type_v', 'f16')}{attention}"


def depth_part(arguments, engines, model, out):
    figures, caches = Figures(), {}
    sweeps = {engine.name: engine for engine in arguments.sweeps}
    engines = [sweeps.pop(engine.name, engine) for engine in engines] + list(sweeps.values())
    for number in range(arguments.depth_rounds):
        for engine in engines:
            for depth in arguments.depths:
                run = measured(arguments, engine, model, Test(CHUNK, 32, depth))
                caches[engine.name] = cache_text(engine, run.rows[0])
                note(f"depth round {number + 1} {engine.name} at {depth}: {add_both(figures, engine.name, run, depth)}")
    rows = []
    for what in ("tg", "pp"):
        for engine in engines:
            key = (engine.name, what)
            if (*key, arguments.depths[0]) not in figures.samples:
                continue
            medians = [figures.median((*key, depth)) for depth in arguments.depths]
            rows.append([engine.name, "tg32" if what == "tg" else f"pp{CHUNK}",
                         *[figures.text((*key, depth)) for depth in arguments.depths],
                         *[ratio_text(median, medians[0]) for median in medians[1:]]])
    out.append(table(["engine", "test", *[f"@ {depth}" for depth in arguments.depths],
                      *[f"{depth} / {arguments.depths[0]}" for depth in arguments.depths[1:]]], rows))
    out.append(f"Keys and values: {'; '.join(caches.values())}. Each begins behind that many positions.\n")
    return figures


def threads_part(arguments, engines, model, out):
    """No collapse where there are more threads than CPUs."""
    figures = Figures()
    few, many = arguments.threads, 2 * max(arguments.threads, len(os.sched_getaffinity(0)))
    pairs = list(zip(engines, engines_of(arguments, many)))
    for number in range(arguments.rounds):
        for pair in pairs:
            for threads, engine in zip((few, many), pair):
                run = measured(arguments, engine, model, Test(CHUNK, 32))
                note(f"threads round {number + 1} {engine.name} {threads}: "
                     f"{add_both(figures, pair[0].name, run, threads)}")
    rows = [[f"{one.name}, {other.name}" if one.is_numoe else one.name, f"{what}{size}",
             *[figures.text((one.name, what, threads)) for threads in (few, many)],
             ratio_text(figures.median((one.name, what, many)), figures.median((one.name, what, few)))]
            for one, other in pairs for what, size in (("tg", 32), ("pp", CHUNK))]
    out.append(table(["engine", "test", f"{few} threads", f"{many} threads", "ratio"], rows))
    return figures


def machine_text():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = re.findall(r"^model name\s*: (.*)$", file.read(), re.MULTILINE)
    with open("/proc/meminfo", encoding="ascii") as file:
        memory = int(re.search(r"^MemTotal: +(\d+) kB", file.read(), re.MULTILINE).group(1)) / 2**20
    with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="ascii") as file:
        pages = file.read().strip()
    policy = {os.SCHED_OTHER: "SCHED_OTHER", os.SCHED_BATCH: "SCHED_BATCH", os.SCHED_IDLE: "SCHED_IDLE"}
    scheduling = policy.get(os.sched_getscheduler(0), "another class")
    return (f"{names[0] if names else platform.machine()}, {len(os.sched_getaffinity(0))} CPUs, {memory:.0f} GiB, "
            f"Linux {platform.release()}, transparent huge pages {pages}, {scheduling} nice {os.nice(0)} for all, "
            f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, load {os.getloadavg()[0]:.1f}")


def parse_arguments():
    about, _, usage = __doc__.partition("Usage: ")
    parser = argparse.ArgumentParser(usage=usage.strip(), description=about,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numoe")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND", help="a llama-bench and its options, "
                        "flash attention and f16 keys and values among them if they are not its defaults")
    parser.add_argument("--batched-peer", action="append", default=[], metavar="COMMAND",
                        help="a llama-batched-bench, for batch")
    parser.add_argument("--sweep-peer", action="append", default=[], metavar="NAME=COMMAND",
                        help="a llama-sweep-bench, for depth, in the place of the peer of that name; gets `-m MODEL -t T -c N "
                        f"-ub {CHUNK} -n 32 --sweep-stride N --output-format jsonl -ctk f16 -ctv f16 -fa on` behind it")
    parser.add_argument("--numoe-options", default="", help="of every numoe bench")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--depths", default="128,4096,8192", help="multiples of 128")
    parser.add_argument("--depth-rounds", type=int, default=1, help="of depth, which takes long; --rounds of the others")
    parser.add_argument("--parts", default="main", help=f"of {','.join(PARTS)}")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generated", type=int, default=64)
    parser.add_argument("--neighbour-generated", type=int, default=32)
    parser.add_argument("--batch-generated", type=int, default=32)
    parser.add_argument("--foreign", type=float, default=0.25)
    parser.add_argument("--retries", type=int, default=1)
    parser.add_argument("--no-two-nodes", action="store_true")
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()
    arguments.parts = arguments.parts.split(",")
    arguments.depths = [int(depth) for depth in arguments.depths.split(",")]
    for part in arguments.parts:
        if part not in PARTS:
            parser.error(f"there is no part {part}; there are {', '.join(PARTS)}")
    if not os.access(arguments.numoe, os.X_OK):
        parser.error(f"{arguments.numoe} is no program")
    return arguments


def engines_of(arguments, threads):
    options = shlex.split(arguments.numoe_options)
    one = [arguments.numoe, "bench", "--nodes", "1", "-t", str(threads), *options]
    engines = [Numoe(f"numoe 1x{threads}", one)]
    if threads >= 2 and not arguments.no_two_nodes:
        two = [arguments.numoe, "bench", "--nodes", "2", "-t", str(threads // 2), *options]
        engines.append(Numoe(f"numoe 2x{threads // 2}", two))
    for peer in arguments.peer:
        name, command = named_command("--peer", peer)
        engines.append(Peer(name, [*command, "-t", str(threads)]))
    return engines


def sweeps_of(arguments):
    commands = [named_command("--sweep-peer", peer) for peer in arguments.sweep_peer]
    return [Sweep(name, [*command, "-t", str(arguments.threads)]) for name, command in commands]


def main():
    arguments = parse_arguments()
    engines = engines_of(arguments, arguments.threads)
    arguments.sweeps = sweeps_of(arguments)
    out, kept = [], {}
    parts = {"main": main_part, "neighbour": neighbour_part, "batch": batch_part, "depth": depth_part,
             "threads": threads_part}
    begin, machine = time.monotonic(), machine_text()
    for model in arguments.models:
        for part in arguments.parts:
            out.append(f"### {os.path.basename(model)}: {part}\n")
            figures = parts[part](arguments, engines, model, out)
            kept[f"{os.path.basename(model)} {part}"] = {" ".join(map(str, key)): rows
                                                         for key, rows in figures.rows.items()}
    print(f"Machine: {machine}.\n")
    print(f"Command: `{shlex.join(sys.argv)}` ({(time.monotonic() - begin) / 60:.0f} min). Medians [least–most] of "
          f"{arguments.rounds} interleaved rounds, at depths of {arguments.depth_rounds}.\n")
    for engine in [*engines, *arguments.sweeps]:
        where = " at depths" if engine in arguments.sweeps else ""
        build = f", build {engine.version}" if engine.version else ""
        print(f"- {engine.name}{where}: `{shlex.join(engine.command)}`{build}")
    print()
    print("\n".join(out))
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(kept, file, indent=1)


if __name__ == "__main__":
    main()
