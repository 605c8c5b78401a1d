#!/usr/bin/env python3
"""Runs Cove and its rivals side by side, checks every answer, and writes down what it saw.

    python3 bench/run.py                 everything; writes RESULTS.md and results/*.json
    python3 bench/run.py --only bouncer  one part; writes RESULTS-bouncer.md
    python3 bench/run.py --quick         two short rounds, for a first look; writes below .cache
    python3 bench/run.py --only noop     one workload; writes below .cache
    python3 bench/run.py --list          what there is to run

Needs root (sandboxes do), Cargo, gcc and /usr/bin/python3. README.md beside this file says more.
"""

import argparse
import contextlib
import datetime
import fcntl
import json
import os
import pathlib
import random
import shlex
import signal
import subprocess
import sys
import time
from collections import namedtuple

import bouncer
import bouncer.figures
import catalog
import catalog.figures
import durability
import gateway
import gateway.figures
import machine
import report
import rivals
import sessions
import sessions.figures
import slow_reader
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
POOL_SECONDS_MAX = 1800
OTHERS = (
    "durability", "slow-reader", "memory", "pool", *sessions.NAMES, *bouncer.NAMES,
    *catalog.NAMES, *gateway.NAMES,
)  # fmt: skip
# Parts of a run that take long and speak for themselves: run alone, each has a page of its own.
PARTS = ("sessions", "bouncer", "catalog", "gateway")


def parse_arguments(argv):
    names = [*dict.fromkeys(cell.workload for cell in CELLS), *OTHERS]
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="two short rounds; writes below .cache only"
    )
    parser.add_argument("--rounds", type=int, help="rounds of batches (5, or 2 with --quick)")
    parser.add_argument("--seconds", type=float, help="length of a batch (2, or 0.5 with --quick)")
    parser.add_argument(
        "--only", action="append", metavar="NAME", choices=names, help="only this; may be repeated"
    )
    parser.add_argument(
        "--rival",
        action="append",
        metavar="NAME",
        choices=(*EVERYBODY, *bouncer.RIVALS, *catalog.RIVALS),
        help="only this one; may be repeated",
    )
    parser.add_argument(
        "--parallelism", type=int, default=os.cpu_count(), help="jobs at a time, on every side"
    )
    parser.add_argument(
        "--cove", metavar="PATH", help="the cove to run (otherwise this checkout's, built first)"
    )
    parser.add_argument(
        "--go-judge", metavar="PATH", help="the go-judge to run (otherwise the one on PATH)"
    )
    parser.add_argument(
        "--no-install", action="store_true", help="install no Debian package that is missing"
    )
    parser.add_argument("--seed", type=int, help="order of the batches (otherwise drawn)")
    parser.add_argument("--list", action="store_true", help="say what there is to run, and stop")
    options = parser.parse_args(argv)
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.seconds = options.seconds or (0.5 if options.quick else 2.0)
    options.seed = (
        random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    )
    options.part = part_of(options)
    options.partial = bool(options.quick or options.only or options.rival) and not options.part
    return options


def part_of(options):
    """The part that has a page of its own, if all its cases are run and nothing else is."""
    if options.quick or options.only is None or len(options.only) != 1:
        return None
    return options.only[0] if options.only[0] in PARTS else None


def list_everything():
    for cell in CELLS:
        print(f"{cell.workload:15} {cell.clients:3} clients  {', '.join(cell.rivals)}")
    print("durability                   a queue that is worked off while its server is killed")
    print("slow-reader                  the server's memory while a flood is read slowly")
    print("memory                       the servers, idle after their start and after their work")
    print("pool                         the pool against Go (bench/pool)")
    print("sessions                     sessions, and Ash beside them; or one of")
    for case in sessions.CASES:
        print(f"  {f'sessions-{case.name}':26} {', '.join(case.rivals)}")
    print("bouncer                      the bouncer, and other poolers beside it; or one of")
    for case in bouncer.CASES:
        print(f"  {f'bouncer-{case.name}':26} {', '.join(case.rivals)}")
    print("catalog                      the catalog, and others beside it; or one of")
    for case in catalog.CASES:
        print(f"  {f'catalog-{case.name}':26} {', '.join(case.rivals)}")
    print("gateway                      databases from inside of sandboxes; or one of")
    for case in gateway.CASES:
        print(f"  gateway-{case.name}")


def wanted(options, name):
    return not options.only or name in options.only


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
        return failed(rival, cell, f"no figures within {limit:.0f} s", load_average)
    if done.returncode != 0:
        return failed(rival, cell, done.stderr.strip()[-500:], load_average)
    figures = json.loads(done.stdout)
    return {**identity(rival, cell, load_average), **figures}


def identity(rival, cell, load_average):
    names = {"rival": rival["name"], "workload": cell.workload, "clients": cell.clients}
    return {**names, "load_average": load_average}


def failed(rival, cell, message, load_average):
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
    """Every cell and every rival once a round, in a new order each time."""
    cells = wanted_cells(options)
    results, busy = [], []
    for number in range(options.rounds + 1) if cells else []:
        warmup = number == 0
        title = "warm-up" if warmup else f"round {number}/{options.rounds}"
        busy.append(machine.background_busy())
        say(f"{title}: machine {busy[-1]:.0f} % busy before it")
        order.shuffle(cells)
        for cell in cells:
            # A fixed number of jobs does not get shorter by warming up, and new sources do not
            # get warmer.
            if cell.workload in report.SEED if warmup else number > (cell.rounds or number):
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


# --- memory and pool


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


def pool(options, scratch):
    """The pool's own benchmark, which stands beside this one."""
    script = rivals.BENCH / "pool" / "run.py"
    if not wanted(options, "pool") or options.rival:
        return None
    if not script.exists():
        return {"error": "bench/pool/run.py does not exist"}
    out = scratch / "pool.json"
    say("pool")
    argv = [sys.executable, script, "--rounds", str(options.rounds), "--out", out]
    try:
        done = subprocess.run(argv, stdout=sys.stderr, timeout=POOL_SECONDS_MAX, check=False)
        if done.returncode != 0:
            return {"error": f"bench/pool/run.py ended with status {done.returncode}"}
        return {"figures": json.loads(out.read_text(encoding="utf-8"))}
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return {"error": str(error)}


def scenarios(options, scratch):
    """What is no batch: the queue under kills, and the slow reader. Each has its own server."""
    n, found = options.parallelism, {}
    if wanted(options, "durability") and not options.rival:
        jobs = DURABILITY_JOBS_QUICK if options.quick else durability.JOBS
        found["durability"] = durability.measure(scratch, n, options.cove, jobs)
    if wanted(options, "slow-reader") and not options.rival:
        seconds = SLOW_READER_SECONDS_QUICK if options.quick else slow_reader.SECONDS
        found["slow_reader"] = slow_reader.measure(scratch, n, options.cove, seconds)
    names = [name for name in sessions.NAMES if wanted(options, name)]
    if names and not options.rival:
        found["sessions"] = sessions.measure(scratch, options)
    rivals_of_it = set(options.rival or bouncer.RIVALS) & set(bouncer.RIVALS)
    if rivals_of_it and any(wanted(options, name) for name in bouncer.NAMES):
        found["bouncer"] = bouncer.measure(scratch, options)
    rivals_of_it = set(options.rival or catalog.RIVALS) & set(catalog.RIVALS)
    if rivals_of_it and any(wanted(options, name) for name in catalog.NAMES):
        found["catalog"] = catalog.measure(scratch, options)
    if any(wanted(options, name) for name in gateway.NAMES) and not options.rival:
        found["gateway"] = gateway.measure(scratch, options)
    return found


# --- the run and what it leaves


def git(*arguments):
    argv = ["git", "-C", str(rivals.ROOT), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def about_this_run(options, argv):
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": git("rev-parse", "--short", "HEAD") or "unknown",
        "dirty": bool(git("status", "--porcelain", "--untracked-files=no")),
        "command": shlex.join(["python3", "bench/run.py", *hidden_paths(argv)]),
        "machine": machine.describe(),
        "load_start": machine.load_average(),
        "rounds": options.rounds,
        "seed": options.seed,
        "parallelism": options.parallelism,
        "batch_seconds": options.seconds,
        "partial": options.partial,
        "part": options.part,
        "limits": {"all": LIMITS, **LIMITS_OF},
        "environment": {"all": ENVIRONMENT, **ENVIRONMENT_OF},
    }


def hidden_paths(argv):
    """Arguments without the directories of this machine."""
    return [pathlib.Path(word).name if word.startswith("/") else word for word in argv]


def measure(options, about):
    """Runs everything that was asked for; the document without its summary."""
    before = machine.cgroup_directories() | machine.mounts()
    readings = {}
    order = random.Random(options.seed)
    with contextlib.ExitStack() as stack:
        scratch = pathlib.Path(stack.enter_context(rivals.scratch_directory()))
        about["pool"] = pool(options, scratch)
        about["scenarios"] = scenarios(options, scratch)
        results, busy, running, missing = [], [], {}, {}
        cells = wanted_cells(options)
        if cells or wanted(options, "memory"):
            load = rivals.build_load()
            stack.enter_context(rivals.programs())
            tools = rivals.tools(scratch, tool_names(cells))
            names = [n for n in EVERYBODY if any(n in cell.rivals for cell in cells)]
            if wanted(options, "memory"):
                names += [n for n in SERVERS if n in (options.rival or SERVERS)]
            running, missing = open_rivals(stack, options, scratch, names)
            about["idle_after_seconds"] = settle(running)
            if wanted(options, "memory"):
                memory_readings(running, "idle after start", readings)
            results, busy = rounds(load, tools, with_variants(running), options, order)
            if wanted(options, "memory") and results:
                settle(running)
                memory_readings(running, "idle after its work", readings)
    about["rivals"] = {n: {k: r[k] for k in ("version", "options")} for n, r in running.items()}
    about["unavailable"] = missing
    for part in PARTS:
        busy = [*busy, *about["scenarios"].get(part, {}).get("busy_percent", [])]
    about["batches"], about["background_busy_percent"], about["memory"] = results, busy, readings
    about["load_end"] = machine.load_average()
    after = machine.cgroup_directories() | machine.mounts()
    about["left_behind"] = left_behind(before, after, running)
    if about["left_behind"]:
        say(f"left behind: {', '.join(about['left_behind'])}")


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


def write(about, options):
    """The page and the figures; below .cache unless all was run, or all of a part."""
    directory = rivals.BENCH / ".cache" / "partial" if options.partial else rivals.BENCH
    page = directory / (f"RESULTS-{options.part}.md" if options.part else "RESULTS.md")
    (directory / "results").mkdir(parents=True, exist_ok=True)
    of_sessions = about["scenarios"].get("sessions", {})
    of_bouncer = about["scenarios"].get("bouncer", {})
    of_catalog = about["scenarios"].get("catalog", {})
    of_gateway = about["scenarios"].get("gateway", {})
    parts = [
        (sessions.figures, of_sessions), (bouncer.figures, of_bouncer),
        (catalog.figures, of_catalog), (gateway.figures, of_gateway),
    ]  # fmt: skip
    more_goals = [goal for figures, found in parts for goal in figures.goals(found)]
    more_text = [line for figures, found in parts for line in figures.text(found)]
    text = report.document(about, more_goals, more_text)
    page.write_text(text, encoding="utf-8")
    figures = report.group(about["batches"])
    # Single latencies would make the file a hundred times as long and say little more.
    without_samples = [
        {k: v for k, v in b.items() if k not in ("latencies_us", "reported_cpu_ms")}
        for b in about["batches"]
    ]
    scenarios = {
        **about["scenarios"],
        "sessions": sessions.figures.without_samples(of_sessions),
        "bouncer": bouncer.figures.without_samples(of_bouncer),
        "gateway": gateway.figures.without_samples(of_gateway),
    }
    document = {
        **about,
        "scenarios": scenarios,
        "batches": without_samples,
        "figures": [
            {"workload": workload, "clients": clients, "rivals": by_rival}
            for (workload, clients), by_rival in figures.items()
        ],
        "goals": [
            goal._asdict() for goal in (*report.goals(figures, about), *more_goals)
        ],
    }
    name = "-".join([about["date"][:10], about["commit"], *filter(None, [options.part])])
    path = directory / "results" / f"{name}.json"
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(text)
    for written in (page, path):
        say(f"written: {written.relative_to(rivals.ROOT)}")


def main(argv):
    options = parse_arguments(argv)
    if options.list:
        list_everything()
        return 0
    if os.geteuid() != 0:
        say("bench: sandboxes need root; run this as root")
        return 2
    # A stop by SIGTERM unwinds like any other end, so that servers and control groups go away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cache = rivals.BENCH / ".cache"
    cache.mkdir(exist_ok=True)
    with open(cache / "lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("bench: another run is under way; two at a time would measure each other")
            return 2
        about = about_this_run(options, argv)
        try:
            measure(options, about)
        except rivals.Unavailable as reason:
            say(f"bench: {reason}")
            return 1
        write(about, options)
    # Goals that were not met are figures; what could not be measured or was wrong is an error.
    cove_failed = any(b["rival"].startswith(COVE) and b["failures"] for b in about["batches"])
    cove_failed |= any(map(report.scenario_failed, about["scenarios"].values()))
    cove_failed |= sessions.figures.failed(about["scenarios"].get("sessions"))
    cove_failed |= bouncer.figures.failed(about["scenarios"].get("bouncer"))
    cove_failed |= catalog.figures.failed(about["scenarios"].get("catalog"))
    cove_failed |= gateway.figures.failed(about["scenarios"].get("gateway"))
    return 1 if cove_failed or COVE in about["unavailable"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
