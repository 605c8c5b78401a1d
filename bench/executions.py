"""Executions: programs and queued jobs by Cove and by its rivals, in batches.

`measure` runs what is wanted of some rounds, each with servers of its own, and gives a document for
`report`, which says what the figures mean. `merge` makes one of those of several rounds.
"""

import contextlib
import json
import os
import pathlib
import random
import subprocess
from collections import namedtuple

import durability
import machine
import report
import rivals
import slow_reader
from bouncer.load import Calls, Failed
from client import Client, Refused
from rivals import (
    ALL, BARE, BUBBLEWRAP, BULLMQ, COVE, COVE_20, COVE_20_WEBSOCKET, COVE_EVENTS, COVE_FRESH,
    COVE_POLL, COVE_WEBSOCKET, EVERYBODY, GO_JUDGE, GO_JUDGE_20, RUNC, SERVERS, VARIANTS, WORKERS,
    say,
)  # fmt: skip

# `rounds` is for what takes long: it takes part in so many rounds only.
Cell = namedtuple("Cell", "workload clients rivals jobs rounds", defaults=(None,))

SEED_10, SEED_20 = (COVE_WEBSOCKET, GO_JUDGE), (COVE_20_WEBSOCKET, GO_JUDGE_20)
QUEUES = (COVE_WEBSOCKET, COVE_EVENTS, COVE_POLL, BULLMQ)

# `jobs` bounds a batch from above, its seconds bound it as well; whichever comes first ends it.
# Process rivals have no queue, so a hundred clients of theirs would measure the load generator's.
CELLS = [
    Cell("noop", 1, ALL, 1000),
    Cell("noop", 10, ALL, 4000),
    Cell("noop", 100, SERVERS, 4000),
    Cell("true", 1, ALL, 1000),
    Cell("true", 10, ALL, 4000),
    Cell("true", 100, SERVERS, 4000),
    Cell("python", 1, (COVE_FRESH, *ALL), 400),
    Cell("python", 10, (COVE_FRESH, *ALL), 400),
    Cell("c", 1, ALL, 200),
    Cell("c", 10, ALL, 200),
    Cell("c-repeated", 1, SERVERS, 400),
    Cell("c-repeated", 10, SERVERS, 1000),
    Cell("node", 1, (COVE, COVE_FRESH, GO_JUDGE, BARE), 100),
    Cell("node-paced", 1, (COVE, GO_JUDGE, BARE), 100),
    Cell("java-repeated", 1, (COVE, COVE_FRESH, BARE), 20),
    Cell("stdin", 1, (COVE, GO_JUDGE, BARE), 400),
    Cell("stdin", 10, SERVERS, 400),
    Cell("output", 1, (COVE, GO_JUDGE, BARE), 1000),
    Cell("output", 10, SERVERS, 2000),
    Cell("cpu-limit", 1, SERVERS, 5),
    # The seed's benchmark: so many jobs, however long they take.
    Cell("go-50", 10, (*SEED_10, BARE), 50, rounds=2),
    Cell("go-100", 10, SEED_20, 100, rounds=2),
    Cell("go-repeated-50", 10, SEED_10, 50),
    Cell("go-repeated-100", 10, SEED_20, 100),
    Cell("python-50", 10, SEED_10, 50),
    Cell("python-100", 10, SEED_20, 100),
    Cell("c-50", 10, SEED_10, 50, rounds=2),
    Cell("c-100", 10, SEED_20, 100, rounds=2),
    Cell("c-repeated-50", 10, SEED_10, 50),
    Cell("c-repeated-100", 10, SEED_20, 100),
    Cell("queue", 1, QUEUES, 1000),
    Cell("queue", 100, (*QUEUES, COVE_20_WEBSOCKET), 4000),
]
LIMITS = {
    "cpu_ms": 10_000,
    "wall_ms": 20_000,
    "memory_bytes": 256 << 20,
    "processes": 64,
    "output_bytes": 64 << 10,
}
# A compiler of Go needs more threads and memory than the programs.
GO_LIMITS = {"memory_bytes": 768 << 20, "processes": 128}
# Where a workload needs another limit than the others; outputs have room to spare on both sides.
LIMITS_OF = {
    "go": GO_LIMITS,
    "go-repeated": GO_LIMITS,
    # Cove's own default: what waits for a program has the limits that it was started with.
    "javascript": {"memory_bytes": 512 << 20},
    "java-repeated": {"memory_bytes": 512 << 20},
    "cpu-limit": {"cpu_ms": report.CPU_LIMIT_MS},
    "stdin": {"output_bytes": 2 << 20},
    "output": {"output_bytes": 128 << 10},
}
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
ENVIRONMENT_OF = {
    # What Cove's Python has by itself; the others get it too.
    "python": {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"},
}
WARMUP_PER_CLIENT = 2
WARMUP_SECONDS = 0.2
# No job of the seed's benchmark starts later than this after the first one.
SEED_SECONDS_MAX = 120.0
DURABILITY_JOBS_QUICK = 1000
SLOW_READER_SECONDS_QUICK = 5.0
BATCH_SECONDS_MARGIN = 180
SCENARIOS = ("durability", "slow-reader", "memory", "calls")
# Executions over which system calls are counted, and what of them is told by name.
CALLS_JOBS = 200
CALLS_NAMED = (
    "clone", "clone3", "execve", "exit_group", "mount", "umount", "openat", "close", "read", "write",
    "mkdirat", "mkdir", "unlinkat", "rmdir", "epoll_wait", "futex", "recvmsg", "sendmsg", "wait4",
    "waitid", "mmap", "munmap", "prctl", "seccomp", "unshare", "setns",
)  # fmt: skip
NAMES = ["executions", *dict.fromkeys(cell.workload for cell in CELLS), *SCENARIOS]


def wanted(options, name):
    """Whether a workload or a scenario was asked for, by its name or with its part."""
    return not options.only or name in options.only or "executions" in options.only


# --- starting the rivals


def open_rivals(stack, options, scratch, names):
    """Starts what can be started of `names`; says of the rest why it can not."""

    def entered(manager):
        return stack.enter_context(manager)

    def own(name):
        directory = scratch / name.replace(" ", "-").replace(",", "")
        directory.mkdir()
        return directory

    n, install = options.parallelism, not options.no_install
    makers = {
        COVE: lambda: entered(rivals.cove(scratch, n, options.cove)),
        COVE_20: lambda: entered(rivals.cove(own(COVE_20), WORKERS, options.cove, name=COVE_20)),
        GO_JUDGE: lambda: entered(rivals.go_judge(scratch, n, options.go_judge)),
        GO_JUDGE_20: lambda: entered(
            rivals.go_judge(scratch, WORKERS, options.go_judge, GO_JUDGE_20)
        ),
        BULLMQ: lambda: entered(rivals.bullmq(scratch, install)),
        BARE: lambda: rivals.bare(scratch, n),
        BUBBLEWRAP: lambda: rivals.bubblewrap(scratch, n, install),
        RUNC: lambda: entered(rivals.runc(scratch, n, LIMITS, install)),
    }
    running, missing = {}, {}
    for name in dict.fromkeys(VARIANTS.get(name, (name,))[0] for name in names):
        try:
            running[name] = makers[name]()
            say(f"{name}: {running[name]['version']}")
        except rivals.Unavailable as reason:
            missing[name] = str(reason)
            say(f"{name} can not take part: {reason}")
    return running, missing


def with_variants(running):
    """The rivals and their variants, as batches name them."""
    variants = {
        name: {**running[base], "name": name, "spec": {**running[base]["spec"], **change}}
        for name, (base, change) in VARIANTS.items()
        if base in running
    }
    return {**running, **variants}


def wanted_cells(options):
    """Cells with those of their rivals that were asked for."""
    asked = options.rival or EVERYBODY
    cells = (
        cell._replace(rivals=tuple(name for name in cell.rivals if name in asked))
        for cell in CELLS
        if wanted(options, cell.workload)
    )
    return [cell for cell in cells if cell.rivals]


# --- batches


def batch(load, tools, rival, cell, seconds):
    """One batch; a generator that fails is a finding about the rival and not the end of the run."""
    seed, workload = cell.workload in report.SEED, report.workload_of(cell.workload)
    seconds = SEED_SECONDS_MAX if seed else seconds
    spec = {
        "rival": rival["spec"],
        "workload": workload,
        "clients": cell.clients,
        "jobs": cell.jobs,
        "seconds": seconds,
        # A source that is repeated was compiled once before; one that is new was never seen.
        "warmup_per_client": 0 if seed else WARMUP_PER_CLIENT,
        "warmup_once": int("repeated" in workload),
        "pause_ms": report.PAUSES_MS.get(cell.workload, 0),
        "nonce": f"b{os.urandom(6).hex()}",
        "programs": str(rivals.PROGRAMS),
        "limits": {**LIMITS, **LIMITS_OF.get(workload, {})},
        "env": {**ENVIRONMENT, **ENVIRONMENT_OF.get(workload, {})},
        "tools": tools,
    }
    text, limit = json.dumps(spec), seconds + BATCH_SECONDS_MARGIN
    load_average = machine.load_average()[0]
    try:
        done = subprocess.run(
            rival.get("load", [load]),
            input=text,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return failed_batch(rival, cell, f"no figures within {limit:.0f} s", load_average)
    if done.returncode != 0:
        return failed_batch(rival, cell, done.stderr.strip()[-500:], load_average)
    figures = json.loads(done.stdout)
    return {**identity(rival, cell, load_average), **figures}


def identity(rival, cell, load_average):
    names = {"rival": rival["name"], "workload": cell.workload, "clients": cell.clients}
    return {**names, "load_average": load_average}


def failed_batch(rival, cell, message, load_average):
    nothing = {
        "jobs": 0,
        "failures": 1,
        "failure_examples": [message],
        "seconds": 0.0,
        "latencies_us": [],
        "modes": {},
    }
    costs = {"reported_cpu_ms": [], "others_cpu_ms": 0.0, "own_cpu_ms": 0.0, "stolen_cpu_ms": 0.0}
    return {**identity(rival, cell, load_average), **nothing, **costs}


def told(result):
    """A batch in one line."""
    f = report.summarise([result])
    text = f"p50 {report.number(f['p50_ms'])} ms, {report.number(f['jobs_per_second'])} jobs/s"
    if f["modes"]:
        text += f" ({report.modes(f)})"
    if f["failures"]:
        text += f", {f['failures']} FAILURES: {f['failure_examples'][0]}"
    return text


def rounds(load, tools, running, options, order):
    """Every cell and every rival once a round, in a new order each time, after a short one."""
    cells = wanted_cells(options)
    results, busy = [], []
    for number in [None, *options.numbers] if cells else []:
        warmup = number is None
        title = "warm-up" if warmup else f"round {number + 1}"
        busy.append(machine.background_busy())
        say(f"executions, {title}: machine {busy[-1]:.0f} % busy before it")
        order.shuffle(cells)
        for cell in cells:
            # A fixed number of jobs does not get shorter by warming up, and new sources do not
            # get warmer.
            if warmup and cell.workload in report.SEED:
                continue
            if not warmup and cell.rounds and number >= cell.rounds:
                continue
            names = [name for name in cell.rivals if name in running]
            order.shuffle(names)
            for name in names:
                seconds = WARMUP_SECONDS if warmup else options.seconds
                result = batch(load, tools, running[name], cell, seconds)
                say(f"  {cell.workload} x{cell.clients} {name}: {told(result)}")
                if not warmup:
                    results.append(result)
                elif result["failures"]:
                    say("    (in the warm-up; not counted)")
    return results, busy


# --- memory


def settle(running):
    """Waits until the servers are idle: what one still prepares would be in everybody's figures."""
    names = (*SERVERS, COVE_20, GO_JUDGE_20)
    servers = {name: running[name]["pid"] for name in names if name in running}
    took = machine.settle(servers)
    for name in took:
        if took[name] is None:
            say(f"{name} is not idle yet; its figures are what they are")
    say(f"idle after seconds: {took}")
    return took


def memory_readings(running, when, readings):
    for name in SERVERS:
        if name in running:
            readings.setdefault(name, {})[when] = machine.memory_of(running[name]["pid"])


def calls_of(rival):
    """System calls of all processes of Cove's for one execution of a program that does nothing: the
    sandbox that is made for the next one is in it, the load generator is not."""
    spec = rival["spec"]
    client = Client(spec["address"], spec["token"])
    body = {"argv": [str(rivals.PROGRAMS / "noop")]}
    try:
        counter = Calls(rival["pid"], CALLS_NAMED)
        try:
            counter.begin()
            for _ in range(CALLS_JOBS):
                result = client.json("POST", "/v1/executions?wait=true", body)
                if result["verdict"] != "OK":
                    raise Refused(f"the verdict is {result['verdict']}")
            counter.end()
        finally:
            counted = counter.close()
            client.close()
    except (rivals.Unavailable, Failed, Refused, OSError) as error:
        return {"error": str(error)}
    return {"jobs": CALLS_JOBS, "calls": {name: n / CALLS_JOBS for name, n in counted.items()}}


def tool_names(cells):
    """Tools that the workloads of some cells need."""
    workloads = {report.workload_of(cell.workload).removesuffix("-repeated") for cell in cells}
    names = {"go": "go", "javascript": "node", "java": "java"}
    return {tool for workload, tool in names.items() if workload in workloads}


def left_behind(before, after, running):
    """Names of new control groups and mounts that carry our name or that of our server."""
    servers = ((name.split(",")[0], r["pid"]) for name, r in running.items() if "pid" in r)
    ours = ["cove-bench-", *(f"{name}-{pid}-" for name, pid in servers)]
    return sorted({pathlib.Path(p).name for p in after - before if any(name in p for name in ours)})


# --- the part of a run


def prepare(options):
    """Builds and installs what is measured with, so that no compiler runs beside a figure."""
    rivals.build_load()
    install = not options.no_install
    makers = {
        BUBBLEWRAP: lambda: rivals.ensure_package(BUBBLEWRAP, install),
        RUNC: lambda: rivals.ensure_package(RUNC, install),
        BULLMQ: lambda: rivals.bullmq_scripts(install),
    }
    names = {name for cell in wanted_cells(options) for name in cell.rivals}
    for name in names & set(makers):
        # Whoever cannot be had is told of when it would take part.
        with contextlib.suppress(rivals.Unavailable):
            makers[name]()


def measure(scratch, options):
    """Some rounds of what was asked for, and in the first one the scenarios."""
    before = machine.cgroup_directories() | machine.mounts()
    found, readings, is_first = {"scenarios": {}}, {}, options.numbers[0] == 0
    order = random.Random(f"{options.seed} {options.numbers[0]}")
    if is_first:
        found["scenarios"] = scenarios(options, scratch)
    weighs = is_first and wanted(options, "memory")
    counts = is_first and wanted(options, "calls") and not options.rival
    cells = wanted_cells(options)
    results, busy, running, missing = [], [], {}, {}
    with contextlib.ExitStack() as stack:
        if cells or weighs or counts:
            load = rivals.build_load()
            stack.enter_context(rivals.programs())
            tools = rivals.tools(scratch, tool_names(cells))
            names = [n for n in EVERYBODY if any(n in cell.rivals for cell in cells)]
            if weighs:
                names += [n for n in SERVERS if n in (options.rival or SERVERS)]
            names += [COVE] if counts else []
            running, missing = open_rivals(stack, options, scratch, names)
            found["idle_after_seconds"] = settle(running)
            if weighs:
                memory_readings(running, "idle after start", readings)
            if counts and COVE in running:
                found["scenarios"]["calls"] = calls_of(running[COVE])
                settle({COVE: running[COVE]})
            results, busy = rounds(load, tools, with_variants(running), options, order)
            if weighs and results:
                settle(running)
                memory_readings(running, "idle after its work", readings)
    after = machine.cgroup_directories() | machine.mounts()
    found["rivals"] = {n: {k: r[k] for k in ("version", "options")} for n, r in running.items()}
    found |= {"unavailable": missing, "batches": results, "busy_percent": busy, "memory": readings}
    found["left_behind"] = left_behind(before, after, running)
    return found


def scenarios(options, scratch):
    """What is no batch: the queue under kills, and the slow reader. Each has its own server."""
    n, found = options.parallelism, {}
    if wanted(options, "durability") and not options.rival:
        jobs = DURABILITY_JOBS_QUICK if options.quick else durability.JOBS
        found["durability"] = durability.measure(scratch, n, options.cove, jobs)
    if wanted(options, "slow-reader") and not options.rival:
        seconds = SLOW_READER_SECONDS_QUICK if options.quick else slow_reader.SECONDS
        found["slow_reader"] = slow_reader.measure(scratch, n, options.cove, seconds)
    return found


def merge(founds):
    """One document of those of several rounds."""
    merged = {"scenarios": {}, "rivals": {}, "unavailable": {}, "memory": {}, "idle_after_seconds": {}}
    for name in merged:
        for found in founds:
            merged[name] |= found.get(name, {})
    for name in ("batches", "busy_percent", "left_behind"):
        merged[name] = [it for found in founds for it in found.get(name, [])]
    return merged


def failed(found):
    """Whether Cove gave a wrong answer anywhere, or could not take part."""
    wrong = any(b["rival"].startswith(COVE) and b["failures"] for b in found["batches"])
    # Where nothing counts system calls, nothing is wrong.
    scenarios = (it for name, it in found["scenarios"].items() if name != "calls")
    wrong |= any(map(report.scenario_failed, scenarios))
    return wrong or COVE in found["unavailable"]
