"""What is shown of limits from outside, in a real NUMA kernel: scenarios of scenarios.py. Runs in the guest, as root."""
import glob
import re
import subprocess

from server import SECONDS_MAX, Cgroup, equal, numbers, read, workers

MIB = 1 << 20


# ---------------------------------------------------------------- CPUs: two threads a core, 3, 1 and 1 cores

def both_threads_of_two_cores(lab):
    serve_on(lab, "0-3", [(0, {0, 2})])


def three_cores_and_one_and_none(lab):
    serve_on(lab, "1,3,5-7", [(0, {1, 3, 5}), (1, {6})])


def a_single_cpu(lab):
    messages = serve_on(lab, "9", [(2, {9})])
    equal(messages.count("CPU 9 is all there is: the broker shares it with the compute thread"), 1, "it is told")


def serve_on(lab, cpus, ranks):
    """All threads, also the broker's, may use nothing but the cpuset, and have used nothing else."""
    group = Cgroup("numoe-odd-serve", cpuset_cpus=cpus)
    with lab.serve(cgroup=group) as server:
        lab.check_all(server, ranks)
        for pid in [server.process.pid] + [worker.pid for worker in workers()]:
            stray = {name for name, allowed, last in threads_of(pid) if not (allowed | {last}) <= numbers(cpus)}
            equal(stray, set(), f"threads outside cpuset {cpus}")
        return server.messages()


def threads_of(pid):
    """(name, CPUs that it may use, the CPU that it used last) of each thread of a process."""
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*"):
        status = read(f"{path}/status")
        fields = read(f"{path}/stat").rpartition(")")[2].split()
        allowed = numbers(re.search(r"^Cpus_allowed_list:\s*(.*)$", status, re.M)[1])
        found.append((re.match(r"Name:\s*(.*)", status)[1], allowed, int(fields[36])))
    return found


# ---------------------------------------------------------------- memory

def the_memory_of_a_cgroup(lab):
    """memory.max of a parent, smaller than what the model needs, while the nodes and /dev/shm have enough."""
    limited = Cgroup("numoe-memory")
    group = Cgroup("numoe-memory/service")
    command = [lab.binary, "run", lab.model, "-p", "x", "-n", "1", "--ctx", "32768", "--arena-dir", "/dev/shm"]
    limited.set("memory.max", str(100 * MIB))
    refused = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, preexec_fn=group.enter)
    equal(refused.returncode, 1, f"exit code, where it says {refused.stderr}")
    for pattern in (r"the model needs \d+\.\d MiB", r"limit of 100\.0 MiB leaves \d+\.\d MiB",
                    r"memory\.max in /sys/fs/cgroup/numoe-memory", "docker run --memory"):
        if not re.search(pattern, refused.stderr):
            raise AssertionError(f"no {pattern!r} in {refused.stderr}")
    equal(limited.events("oom_kill"), 0, "processes killed")
    equal(glob.glob("/dev/shm/numoe-*/*"), [], "what is left")
