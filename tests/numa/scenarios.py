"""What is shown in a real NUMA kernel, by shape of the machine. Runs in the guest, as root.

A scenario is a function of a Lab; those of one shape share a boot. `SHAPES` tells numa-lab how to make the machine.
"""
import json
import os
import re
import subprocess

import limits
import memory
import pages
from server import SECONDS_MAX, Cgroup, Server, equal, numbers, read, wait_until, workers

PROMPT = "Once upon a time"
TOKENS = 12


class Lab:
    def __init__(self, binary, model, expected, deny_calls):
        self.binary, self.model, self.expected, self.deny_calls = binary, model, expected, deny_calls

    def serve(self, *options, **how):
        # On all nodes, where a model of this size would be faster on one.
        return Server(self.binary, self.model, "--strategy", "rows", *options, **how)

    def topology(self, *options, cgroup=None):
        """`numoe topology --json` as seen from a cgroup: (object, "")  or (None, what it complains about)."""
        result = subprocess.run([self.binary, "topology", "--json", *options], capture_output=True, text=True,
                                timeout=SECONDS_MAX, preexec_fn=cgroup.enter if cgroup else None)
        return (json.loads(result.stdout) if result.returncode == 0 else None), result.stderr

    def placement(self, server):
        """`numoe status --placement --json`, of a server whose workers are still the first."""
        result = subprocess.run([self.binary, "status", "--placement", "--json", "--port", str(server.port)],
                                capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
        equal(result.returncode, 0, f"numoe status says {result.stderr}")
        both = json.loads(result.stdout)
        equal(both["status"]["restarts"], 0, "restarts")
        return both["placement"]["ranks"]

    def check_output(self, server):
        equal(server.complete(PROMPT, TOKENS), self.expected, "the text is that of the host on one node")

    def check_all(self, server, ranks):
        """Everything on its node: threads, each page of weights, KV cache and exchange, and the report. `ranks`: for
        each rank its node and CPUs, by the system's numbers."""
        self.check_output(server)
        equal([worker.rank for worker in workers()], list(range(len(ranks))), "ranks")
        for worker, (node, cpus) in zip(workers(), ranks, strict=True):
            threads = worker.thread_cpus()
            equal({cpu for own in threads if len(own) == 1 for cpu in own}, cpus, f"CPUs of rank {worker.rank}")
            equal([own for own in threads if len(own) > 1], [], f"threads of rank {worker.rank} that are not pinned")
            for kind, found in own_mappings(worker).items():
                for one in found:
                    what = f"{kind} of rank {worker.rank} ({one.path})"
                    equal(set(one.mapped_on()), {node}, f"nodes of {what} by numa_maps")
                    equal(one.all_on(), {node: one.pages}, f"pages of {what} by node")
        for rank, (node, _) in zip(self.placement(server), ranks, strict=True):
            equal(rank["node"], node, f"node of rank {rank['rank']} in the report")
            equal({"experts", "KV cache"} - {kind["name"] for kind in rank["classes"]}, set(), "classes without a report")
            for kind in rank["classes"]:
                equal(kind["misplaced_percent"], 0, f"misplaced {kind['name']} of rank {rank['rank']}")
                equal(list(kind["bytes_on_node"]), [str(node)], f"{kind['name']} of rank {rank['rank']}")


def own_mappings(worker):
    """By class, of what belongs to this rank. Others' exchange slices are mapped too."""
    own = {}
    for (kind, rank), found in memory.mappings(worker.pid).items():
        if rank in (None, worker.rank):
            own[kind] = found
    for kind in ("weights", "kv"):
        if len(own.get(kind, [])) != 1:
            raise AssertionError(f"rank {worker.rank} maps {own.get(kind)} as {kind}: {read(f'/proc/{worker.pid}/maps')}")
    return own


# ---------------------------------------------------------------- two nodes of two CPUs

def both_nodes(lab):
    with lab.serve() as server:
        lab.check_all(server, [(0, {0, 1}), (1, {2, 3})])


def misplaced_weights_are_told(lab):
    with lab.serve() as server:
        equal([worker.rank for worker in workers()], [0, 1], "ranks")
        weights = own_mappings(workers()[1])["weights"][0]
        half = weights.pages // 2
        moved = weights.move(0, half, node=0)
        if moved < half * 9 // 10:
            raise AssertionError(f"only {moved} of {half} pages could be moved")
        equal(weights.all_on(), {0: moved, 1: weights.pages - moved}, "pages after the move")
        other, rank = lab.placement(server)
        wrong = sum(kind["bytes_on_node"].get("0", 0) for kind in rank["classes"])
        pages = wrong / memory.PAGE
        # What lies in front of the weights belongs to no class.
        if not moved * 0.95 <= pages <= moved * 1.01:
            raise AssertionError(f"{moved} pages are misplaced (now {weights.all_on()}), the report says {pages}: {rank}")
        if not 30 < rank["misplaced_percent"] < 60:
            raise AssertionError(f"misplaced by the report: {rank['misplaced_percent']} %")
        equal(other["misplaced_percent"], 0, "rank 0 is where it was")
        lab.check_output(server)


def first_touch_without_rights(lab):
    """Where the system forbids mbind, move_pages and the like, as containers do: pages lie where pinned threads touched
    them first, which is right, and one line says so."""
    with lab.serve(prefix=[lab.deny_calls, "all"]) as server:
        lab.check_output(server)
        equal([worker.rank for worker in workers()], [0, 1], "ranks")
        for worker in workers():
            for kind, found in own_mappings(worker).items():
                for one in found:
                    what = f"{kind} of rank {worker.rank} ({one.path})"
                    equal(set(one.mapped_on()), {worker.rank}, f"nodes of {what} by numa_maps")
                    equal(one.all_on(), {worker.rank: one.pages}, f"pages of {what} by node")
        for rank in lab.placement(server):
            equal(rank["source"], "numa_maps", f"source of the report of rank {rank['rank']}")
            equal(rank["misplaced_percent"], 0, f"misplaced of rank {rank['rank']} by the report")
        equal(server.messages().count("the system forbids mbind"), 1, "lines about what is forbidden")


def numactl_one_node(lab):
    with lab.serve(prefix=["numactl", "-N", "1", "-m", "1"]) as server:
        lab.check_all(server, [(1, {2, 3})])


def a_quota_of_the_parent(lab):
    """cpu.max of 1.5 CPUs on a parent: one thread in all. How often the group is stopped is only printed here: threads
    are charged for the time in which their emulated CPU waits for a real one, so that a wake-up of microseconds counts
    as milliseconds. tests/cluster/limits_test.py expects next to nothing, on real CPUs."""
    limited = Cgroup("numoe-quota", cpu_max="150000 100000")
    group = Cgroup("numoe-quota/service")
    with lab.serve(cgroup=group) as server:
        lab.check_output(server)
        threads = [cpus for worker in workers() for cpus in worker.thread_cpus()]
        equal(len(set().union(*threads)), 1, "CPUs that compute")
        server.await_text("1.5 CPUs of time: 1 of 2 compute threads")
        before = limited.stat("nr_throttled"), limited.stat("nr_periods")
        lab.check_output(server)
        after = limited.stat("nr_throttled"), limited.stat("nr_periods")
        print(f"   throttled in {after[0] - before[0]} of {after[1] - before[1]} periods while decoding", flush=True)
    topology, _ = lab.topology("--nodes", "2", "--threads-per-node", "2", cgroup=group)
    equal("the cgroup grants 1.5 CPUs" in topology["warning"], True, f"threads above the quota: {topology['warning']}")


# ---------------------------------------------------------------- four nodes of one CPU

def four_nodes(lab):
    with lab.serve() as server:
        lab.check_all(server, [(node, {node}) for node in range(4)])


def numactl_nodes_1_and_3(lab):
    with lab.serve(prefix=["numactl", "-N", "1,3", "-m", "1,3"]) as server:
        lab.check_all(server, [(1, {1}), (3, {3})])


def memory_of_node_2_only(lab):
    with lab.serve(cgroup=Cgroup("numoe-mems", cpuset_mems="2")) as server:
        lab.check_all(server, [(2, {2})])


def a_cpuset_of_two_nodes(lab):
    with lab.serve(cgroup=Cgroup("numoe-cpuset", cpuset_cpus="2-3", cpuset_mems="2-3")) as server:
        lab.check_all(server, [(2, {2}), (3, {3})])


def options_choose_within_that(lab):
    group = Cgroup("numoe-cpuset", cpuset_cpus="1-3", cpuset_mems="1-3")
    topology, _ = lab.topology("--numa-nodes", "1,3", cgroup=group)
    equal([rank["os_node"] for rank in topology["ranks"]], [1, 3], "chosen nodes")
    for option, value, allowed in (("--numa-nodes", "0,1", "1-3"), ("--cpus", "0", "1-3")):
        _, complaint = lab.topology(option, value, cgroup=group)
        if option not in complaint or allowed not in complaint:
            raise AssertionError(f"{option} {value}: {complaint}")


def memory_far_from_the_cpu(lab):
    """numactl -N 0 -m 3: numoe does as it is told."""
    with lab.serve(prefix=["numactl", "-N", "0", "-m", "3"]) as server:
        lab.check_all(server, [(3, {0})])


# ---------------------------------------------------------------- three CPUs, one CPU, memory only

def uneven_nodes_and_memory_only(lab):
    with lab.serve() as server:
        lab.check_all(server, [(0, {0, 1, 2}), (1, {3})])
        server.await_text("uneven NUMA nodes: CPUs to compute with are 3 on node 0, 1 on node 1")
        server.await_text("no rank on NUMA node 2: memory without a CPU")


def no_rank_without_a_cpu(lab):
    _, complaint = lab.topology("--numa-nodes", "0,2")
    if "--numa-nodes: node 2 has memory but no CPU" not in complaint:
        raise AssertionError(complaint)


def only_the_memory_of_a_node_without_cpus(lab):
    with lab.serve(prefix=["numactl", "-m", "2"]) as server:
        lab.check_all(server, [(2, {1, 2, 3})])


# ---------------------------------------------------------------- two threads a core: 3, 1 and 1 cores

def odd_cpusets(lab):
    group = Cgroup("numoe-odd")
    for cpus, ranks in (
            ("0-3", [(0, [0, 2])]),  # both threads of two cores
            ("0,2,4,6", [(0, [0, 2, 4]), (1, [6])]),  # one thread of four cores
            ("1,3,5-7", [(0, [1, 3, 5]), (1, [6])]),  # 3 + 1 + 0 cores
            ("9", [(2, [9])])):
        group.set("cpuset.cpus", cpus)
        topology, complaint = lab.topology(cgroup=group)
        equal([(rank["os_node"], rank["cpus"]) for rank in topology["ranks"]], ranks, f"cpuset {cpus} {complaint}")
    equal([remark for remark in topology["remarks"] if "the broker shares it" in remark] != [], True,
          f"one CPU is told: {topology['remarks']}")


def a_cpuset_that_shrinks(lab):
    """Under a running server, down to one CPU; then a worker is killed and must come back on what is left."""
    group = Cgroup("numoe-shrinks", cpuset_cpus="0,2,4,6", cpuset_mems="0-1")
    with lab.serve(cgroup=group) as server:
        lab.check_all(server, [(0, {0, 2, 4}), (1, {6})])
        group.set("cpuset.cpus", "2")
        equal(set().union(*(cpus for worker in workers() for cpus in worker.thread_cpus())), {2}, "CPUs left")
        equal(numbers(re.search(r"Cpus_allowed_list:\s*(.*)", read(f"/proc/{server.process.pid}/status"))[1]), {2},
              "the broker's CPUs")
        lab.check_output(server)
        killed = workers()[1].pid
        os.kill(killed, 9)

        def is_restarted():
            now = workers()
            return len(now) == 2 and now[1].pid != killed
        wait_until(is_restarted, "the worker is started again")
        wait_until(lambda: server.request("GET", "/ready")[0] == 200, "the group is ready again")
        lab.check_output(server)


SHAPES = {
    "two": {
        "lab": ["--node", "2:768M", "--node", "2:768M"],
        "scenarios": [both_nodes, misplaced_weights_are_told, first_touch_without_rights, numactl_one_node,
                      a_quota_of_the_parent, limits.the_memory_of_a_cgroup, pages.small_whatever_the_kernel_says],
    },
    "four": {
        "lab": ["--node", "1:640M", "--node", "1:512M", "--node", "1:512M", "--node", "1:512M"],
        "scenarios": [four_nodes, numactl_nodes_1_and_3, memory_of_node_2_only, a_cpuset_of_two_nodes,
                      options_choose_within_that, memory_far_from_the_cpu,
                      pages.from_the_page_cache_or_from_a_file_system_in_memory],
    },
    "uneven": {
        "lab": ["--node", "3:768M", "--node", "1:512M", "--node", "0:512M", "--dist", "0:2:40", "--dist", "1:2:40"],
        "scenarios": [uneven_nodes_and_memory_only, no_rank_without_a_cpu, only_the_memory_of_a_node_without_cpus,
                      pages.huge_and_mixed_are_told_for_each_node, pages.too_few_huge_pages_on_one_node],
    },
    "threads": {
        "lab": ["--node", "6:768M", "--node", "2:512M", "--node", "2:512M", "--smt", "2"],
        "scenarios": [odd_cpusets, limits.both_threads_of_two_cores, limits.three_cores_and_one_and_none,
                      limits.a_single_cpu, a_cpuset_that_shrinks],
    },
}
