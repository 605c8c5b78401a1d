#!/usr/bin/env python3
"""Runs Cove and its rivals side by side, checks every answer, and writes down what it saw.

    python3 bench/run.py                 all parts, their rounds in turns, for an hour; writes RESULTS.md,
                                         a page for each part, plots/ and results/*.json
    python3 bench/run.py --resume        goes on with one that was stopped
    python3 bench/run.py --only bouncer  one part; writes its page and the summary anew
    python3 bench/run.py --quick         two short rounds, for a first look; writes below .cache
    python3 bench/run.py --only noop     one workload; writes below .cache
    python3 bench/run.py --render        the pages from results/*.json; measures nothing
    python3 bench/run.py --list          what there is to run

Needs root (sandboxes do), Cargo, gcc and /usr/bin/python3. README.md beside this file says more.
"""

import argparse
import copy
import datetime
import fcntl
import json
import os
import pathlib
import random
import shlex
import shutil
import signal
import subprocess
import sys
from collections import namedtuple

import bouncer
import bouncer.figures
import catalog
import catalog.figures
import counts
import executions
import gateway
import gateway.figures
import kept
import machine
import pages
import pool
import report
import rivals
import sessions
import sessions.figures
import spread
from rivals import EVERYBODY, say

# `module` runs and merges rounds; `figures` says what they mean and whether Cove was wrong.
Part = namedtuple("Part", "module figures")
PARTS = {
    "executions": Part(executions, executions),
    "sessions": Part(sessions, sessions.figures),
    "bouncer": Part(bouncer, bouncer.figures),
    "catalog": Part(catalog, catalog.figures),
    "gateway": Part(gateway, gateway.figures),
    "pool": Part(pool, pool),
    "counts": Part(counts, counts),
}
# Parts whose document is a scenario of the run's; the other two are older than that.
SCENARIOS = ("sessions", "bouncer", "catalog", "gateway")
# Runs whose rounds are kept with every sample.
RUNS_KEPT = 3
MINUTES, ROUNDS, ROUNDS_QUICK, ROUNDS_SPREAD, ROUNDS_MAX = 60, 5, 2, 3, 100
# Length of a batch: of one part, of all parts in an hour, for a first look.
SECONDS, SECONDS_SPREAD, SECONDS_QUICK = 2.0, 1.0, 0.5


def parse_arguments(argv):
    names = [name for part in PARTS.values() for name in part.module.NAMES]
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="two short rounds; writes below .cache only"
    )
    parser.add_argument(
        "--minutes", type=float, help="no round begins that ends later (60 when all is run)"
    )
    parser.add_argument("--rounds", type=int, help="at most so many rounds of each part")
    parser.add_argument("--seconds", type=float, help="length of a batch")
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
    parser.add_argument("--seed", type=int, help="order of parts and batches (otherwise drawn)")
    parser.add_argument("--resume", action="store_true", help="go on with the last run of this commit")
    parser.add_argument("--render", action="store_true", help="write the pages anew, and stop")
    parser.add_argument("--list", action="store_true", help="say what there is to run, and stop")
    options = parser.parse_args(argv)
    is_whole = not (options.quick or options.only or options.rival)
    if is_whole and options.minutes is None:
        options.minutes = MINUTES
    planned = ROUNDS_QUICK if options.quick else ROUNDS_SPREAD if options.minutes else ROUNDS
    # Bounded by time alone, a run may have more rounds than are planned.
    options.rounds_max = options.rounds or (ROUNDS_MAX if options.minutes else planned)
    options.rounds = options.rounds or planned
    seconds = SECONDS_QUICK if options.quick else SECONDS_SPREAD if is_whole else SECONDS
    options.seconds = options.seconds or seconds
    options.seed = (
        random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    )
    options.part = part_of(options)
    options.partial = not is_whole and not options.part
    return options


def part_of(options):
    """The part that has a page of its own, if all its cases are run and nothing else is."""
    if options.quick or options.only is None or len(options.only) != 1:
        return None
    return options.only[0] if options.only[0] in PARTS else None


def wanted_parts(options):
    """Parts of which something was asked for."""

    def is_wanted(name, part):
        asked = not options.only or any(it in part.module.NAMES for it in options.only)
        # A rival that was named takes part where it is known.
        known = getattr(part.module, "RIVALS", EVERYBODY if name == "executions" else ())
        return asked and (not options.rival or any(rival in known for rival in options.rival))

    return [name for name, part in PARTS.items() if is_wanted(name, part)]


def list_everything():
    for cell in executions.CELLS:
        print(f"{cell.workload:15} {cell.clients:3} clients  {', '.join(cell.rivals)}")
    print("durability                   a queue that is worked off while its server is killed")
    print("slow-reader                  the server's memory while a flood is read slowly")
    print("calls                        system calls of one execution")
    print("memory                       the servers, idle after their start and after their work")
    print("executions                   all of these")
    print("pool                         the pool against Go (bench/pool)")
    print("counts                       instructions of single operations (bench/counts)")
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


# --- the run and what it leaves


def about_this_run(options, argv):
    return {
        **kept.about(),
        "command": shlex.join(["python3", "bench/run.py", *hidden_paths(argv)]),
        "minutes": options.minutes,
        "seed": options.seed,
        "parallelism": options.parallelism,
        "batch_seconds": options.seconds,
        "partial": options.partial,
        "part": options.part,
        "limits": {"all": executions.LIMITS, **executions.LIMITS_OF},
        "environment": {"all": executions.ENVIRONMENT, **executions.ENVIRONMENT_OF},
    }


def hidden_paths(argv):
    """Arguments without the directories of this machine."""
    return [pathlib.Path(word).name if word.startswith("/") else word for word in argv]


def prepare(options):
    """Builds everything that is measured or measured with, before the first figure."""
    names = wanted_parts(options)
    if set(names) - set(pages.ALONE):
        options.cove = rivals.cove_binary(options.cove)
    for name in names:
        say(f"building what {name} needs")
        try:
            PARTS[name].module.prepare(options)
        except (rivals.Unavailable, OSError, subprocess.SubprocessError) as error:
            # Its rounds say so again, and are the ones that fail.
            say(f"{name}: {error}")


def measure_round(options, name, number):
    """One round of a part, with servers of its own."""
    of_round = copy.copy(options)
    of_round.numbers = [number]
    with rivals.scratch_directory() as scratch:
        return PARTS[name].module.measure(pathlib.Path(scratch), of_round)


def directory_of_rounds(options, about):
    """Where rounds are kept: a new place, or that of the last run of this commit and command."""
    root = rivals.BENCH / ".cache" / "runs"
    same = {name: about[name] for name in ("commit", "dirty", "batch_seconds", "parallelism")}
    same["only"] = options.only
    if options.resume:
        for path in sorted(root.glob("*"), reverse=True):
            try:
                last = json.loads((path / "run.json").read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
            if last["same"] == same:
                options.seed, about["seed"] = last["seed"], last["seed"]
                about["date"] = last["date"]
                return path
        raise rivals.Unavailable("there is no run of this commit and command to go on with")
    for old in sorted(root.glob("*"))[:-RUNS_KEPT]:
        shutil.rmtree(old)
    path = root / datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d-%H%M%S")
    path.mkdir(parents=True)
    text = json.dumps({"same": same, "seed": options.seed, "date": about["date"]})
    (path / "run.json").write_text(text, encoding="utf-8")
    return path


def measure(options, about):
    """Runs everything that was asked for; the document without its summary."""
    done = spread.Kept(directory_of_rounds(options, about))
    prepare(options)
    names = wanted_parts(options)
    plan = spread.Plan(names, options.rounds_max, options.minutes, options.seed)
    rounds, failures = spread.run(plan, done, lambda name, n: measure_round(options, name, n))
    found = {name: PARTS[name].module.merge(of) for name, of in rounds.items() if of}
    of_executions = found.get("executions") or executions.merge([])
    about |= {
        "rounds": max(map(len, rounds.values()), default=0),
        "rounds_of": {name: len(of) for name, of in rounds.items()},
        "seconds_of": {name: [round(it) for it in plan.took[name]] for name in names},
        "failed_rounds": failures,
        "pool": found.get("pool"),
        "counts": found.get("counts"),
        "scenarios": {
            **of_executions["scenarios"],
            **{name: found.get(name, {}) for name in SCENARIOS},
        },
        "busy_of": {name: it["busy_percent"] for name, it in found.items() if it and it.get("busy_percent")},
    }
    about["background_busy_percent"] = [it for of in about["busy_of"].values() for it in of]
    for name in ("rivals", "unavailable", "batches", "memory", "idle_after_seconds", "left_behind"):
        about[name] = of_executions[name]
    about["load_end"] = machine.load_average()
    if about["left_behind"]:
        say(f"left behind: {', '.join(about['left_behind'])}")
    return found


def without_samples(about):
    """The document as it is kept: single latencies would make it a hundred times as long and say
    little more."""
    scenarios = dict(about["scenarios"])
    for name in SCENARIOS:
        strip = getattr(PARTS[name].figures, "without_samples", lambda found: found)
        scenarios[name] = strip(scenarios[name])
    figures = [
        {"workload": workload, "clients": clients, "rivals": by_rival}
        for (workload, clients), by_rival in report.group(about["batches"]).items()
    ]
    rest = report.without(about, "batches")
    return {**rest, "scenarios": scenarios, "figures": figures}


def text_of(document):
    """A document as JSON with a line for each member: indented, those of an hour are megabytes."""
    members = (
        f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in document.items()
    )
    return "{\n" + ",\n".join(members) + "\n}\n"


def write(about, options):
    """The figures and the pages; below .cache unless all was run, or all of a part."""
    directory = rivals.BENCH / ".cache" / "partial" if options.partial else rivals.BENCH
    (directory / "results").mkdir(parents=True, exist_ok=True)
    document = without_samples(about)
    # By what was judged then: pages judge by the goals of today.
    goals = [
        {"part": name, **goal._asdict()}
        for name in pages.RENDERED
        if pages.has(name, document)
        for goal in pages.goals_of(name, document)
    ]
    text = text_of({**document, "goals": goals})
    name = "-".join([about["date"][:10], about["commit"], *filter(None, [options.part])])
    path = directory / "results" / f"{name}.json"
    path.write_text(text, encoding="utf-8")
    # A first look shows itself alone, and all else everything that is kept.
    documents = [json.loads(text)] if options.partial else pages.load(directory / "results")
    for written in (path, *pages.write(pages.render(documents), directory)):
        say(f"written: {written.relative_to(rivals.ROOT)}")


def render():
    """Writes the pages from what is kept."""
    files = pages.render(pages.load(rivals.BENCH / "results"))
    for written in pages.write(files, rivals.BENCH):
        say(f"written: {written.relative_to(rivals.ROOT)}")
    return 0


def main(argv):
    options = parse_arguments(argv)
    if options.list:
        list_everything()
        return 0
    if options.render:
        return render()
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
            found = measure(options, about)
        except rivals.Unavailable as reason:
            say(f"bench: {reason}")
            return 1
        write(about, options)
    # Goals that were not met are figures; what could not be measured or was wrong is an error.
    wrong = [name for name, it in found.items() if PARTS[name].figures.failed(it)]
    for name in wrong:
        say(f"{name}: Cove gave a wrong answer, or could not be measured")
    return 1 if wrong or about["failed_rounds"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
