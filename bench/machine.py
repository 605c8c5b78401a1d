"""What the machine is, what else it does, what a process tree weighs. Only reads."""

import os
import platform
import re
import time

PROC = "/proc"
# A server is idle when its processes used this little in that many seconds; long enough for a
# runtime's collector that runs every few seconds to have been by.
IDLE_CPU_SECONDS_MAX = 0.1
IDLE_SECONDS = 6
SETTLE_SECONDS_MAX = 180


def read(path):
    """The text of a file, or the empty string when it cannot be read (a process that ended)."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def describe():
    """Cores, kernel, memory and system, as they stand in the report."""
    model = re.search(r"^model name\s*:\s*(.*)$", read(f"{PROC}/cpuinfo"), re.M)
    total = re.search(r"^MemTotal:\s*(\d+) kB", read(f"{PROC}/meminfo"), re.M)
    name = re.search(r'^PRETTY_NAME="?([^"\n]*)', read("/etc/os-release"), re.M)
    return {
        "cores": os.cpu_count(),
        "cpu": model.group(1).strip() if model else "unknown",
        "memory_mib": int(total.group(1)) // 1024 if total else None,
        "kernel": platform.release(),
        "system": name.group(1) if name else "unknown",
        "cgroups": cgroup_layout(read(f"{PROC}/self/mounts")),
    }


def cgroup_layout(mounts):
    """Which versions of control groups are mounted: `v1`, `v2` or `hybrid`."""
    kinds = {line.split()[2] for line in mounts.splitlines() if len(line.split()) > 2}
    match ("cgroup" in kinds, "cgroup2" in kinds):
        case (True, True):
            return "hybrid"
        case (True, False):
            return "v1"
        case (False, True):
            return "v2"
    return "none"


def load_average():
    """The three load averages."""
    return list(os.getloadavg())


def busy_percent(before, after):
    """Share of all CPUs' time between two readings of /proc/stat that was not idle."""
    deltas = [b - a for a, b in zip(cpu_fields(before), cpu_fields(after), strict=True)]
    total = sum(deltas[:8])
    return 100.0 * (total - deltas[3] - deltas[4]) / total if total else 0.0


def cpu_fields(stat):
    """user, nice, system, idle, iowait, irq, softirq, steal, ... of all CPUs: proc_stat(5)."""
    return [int(field) for field in stat.splitlines()[0].split()[1:]]


def background_busy(seconds=0.5):
    """How busy the machine is while this program waits: what others do to the figures."""
    before = read(f"{PROC}/stat")
    time.sleep(seconds)
    return busy_percent(before, read(f"{PROC}/stat"))


def settle(servers):
    """Waits until process trees are idle: after how many seconds each was, none if it is not."""
    start, took, left = time.monotonic(), {}, dict(servers)
    while left and time.monotonic() - start < SETTLE_SECONDS_MAX:
        before = {name: tree_cpu_seconds(pid) for name, pid in left.items()}
        time.sleep(IDLE_SECONDS)
        for name, pid in list(left.items()):
            # A child that ended in between takes its time along, so less is not idle either.
            if 0 <= tree_cpu_seconds(pid) - before[name] <= IDLE_CPU_SECONDS_MAX:
                took[name] = round(time.monotonic() - start - IDLE_SECONDS)
                del left[name]
    return {**took, **dict.fromkeys(left)}


def descendants(pid):
    """`pid` and every process below it."""
    children = {}
    for name in os.listdir(PROC):
        # The command name in parentheses may hold anything; the parent is two fields behind it.
        fields = read(f"{PROC}/{name}/stat").rpartition(")")[2].split() if name.isdigit() else []
        if len(fields) > 1:
            children.setdefault(int(fields[1]), []).append(int(name))
    found, left = [], [pid]
    while left:
        found.append(left.pop())
        left.extend(children.get(found[-1], []))
    return found


def processes():
    """The number of every process there is, but for those that ended and are not waited for."""
    numbers = [int(name) for name in os.listdir(PROC) if name.isdigit()]
    states = {pid: read(f"{PROC}/{pid}/stat").rpartition(")")[2].split() for pid in numbers}
    return {pid for pid, fields in states.items() if fields and fields[0] != "Z"}


def resident_kib(pid):
    """Resident memory of one process in KiB; nothing when there is no such process."""
    resident = re.search(r"^VmRSS:\s*(\d+) kB", read(f"{PROC}/{pid}/status"), re.M)
    return int(resident.group(1)) if resident else None


def memory_of(pid):
    """Resident memory of a server, and the proportional share of its whole tree, in KiB."""
    tree = descendants(pid)
    shares = (re.search(r"^Pss:\s*(\d+) kB", read(f"{PROC}/{p}/smaps_rollup"), re.M) for p in tree)
    return {
        "rss_kib": resident_kib(pid),
        "tree_pss_kib": sum(int(share.group(1)) for share in shares if share),
        "processes": len(tree),
    }


def tree_cpu_seconds(pid):
    """CPU time of a process tree so far, with that of its children that have ended."""
    total = 0
    for member in descendants(pid):
        # utime, stime, cutime and cstime are fields 14 to 17 of all: proc_pid_stat(5).
        fields = read(f"{PROC}/{member}/stat").rpartition(")")[2].split()[11:15]
        total += sum(map(int, fields))
    return total / os.sysconf("SC_CLK_TCK")


def fine_tree_cpu_seconds(pid):
    """As `tree_cpu_seconds`, for trees of many processes that take less than a tick each.

    The kernel tells in nanoseconds what threads took that live (sched_info, where it is built in). What
    ended is in whole ticks of whoever waited for it.
    """
    tick, total = 1 / os.sysconf("SC_CLK_TCK"), 0.0
    for member in descendants(pid):
        fields = read(f"{PROC}/{member}/stat").rpartition(")")[2].split()[11:15]
        if not fields:
            continue
        own, ended = sum(map(int, fields[:2])) * tick, sum(map(int, fields[2:])) * tick
        try:
            threads = os.listdir(f"{PROC}/{member}/task")
        except OSError:
            threads = []
        took = (read(f"{PROC}/{member}/task/{thread}/schedstat").split() for thread in threads)
        living = sum(int(times[0]) for times in took if times) / 1e9
        # Threads that ended are in the one, parts of ticks in the other.
        total += max(own, living) + ended
    return total


def cgroup_directories(root="/sys/fs/cgroup"):
    """Every control group there is."""
    return {path for path, _, _ in os.walk(root)}


def mounts():
    """Every mount point of this namespace."""
    return {line.split()[4] for line in read(f"{PROC}/self/mountinfo").splitlines()}
