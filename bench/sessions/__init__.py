"""Sessions of Cove, and Ash beside it: five benchmarks of Ash's made anew, and what it never measured.

`measure` runs the cases that are wanted in rounds, every rival of a case next to the other, and
gives a document for `sessions.figures`, which says what the figures mean.
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import traceback
from collections import namedtuple

import machine
import report
import rivals
from rivals import Unavailable, say
from sessions import cases, servers
from sessions.servers import ASH, COVE, Ash, Cove

HERE = pathlib.Path(__file__).resolve().parent
COVE_POSTGRES, COVE_CLAUDE, COVE_IDLE = "cove on PostgreSQL", "cove with Claude", "cove, idle"
ASH_CLAUDE, ASH_IDLE = "Ash with Claude", "Ash, idle"
COVE_DEFAULT = "cove as it comes"
POOLED = "pooled"
# So many wait for a session where there is a pool. Ash's own default is one.
READY = 2
QUICK_SHARE = 10
POOL_OVERHEAD_SECONDS = 900
POOL_OVERHEAD = ["cargo", "test", "--release", "--locked", "--quiet", "-p", "sessions", "--lib"]
CLAUDE_KEY = "sk-ant-bench"
SDK = "e2b==2.63.0"

# `n` samples in all rounds together of a rival; `slow` of those that take seconds each.
Case = namedtuple("Case", "name rivals n slow")
CASES = [
    Case("create-ready", (COVE, COVE_POSTGRES, ASH), 100, {}),
    Case("create", (COVE, COVE_POSTGRES, ASH), 100, {}),
    Case("warm-resume", (COVE, COVE_POSTGRES, ASH), 500, {ASH: 100}),
    Case("cold-resume", (COVE, COVE_POSTGRES, ASH), 100, {ASH: 50}),
    Case("message", (COVE, COVE_POSTGRES, ASH), 1000, {ASH: 100}),
    Case("stop", (COVE, COVE_POSTGRES), 100, {}),
    Case("fork", (COVE,), 100, {}),
    Case("snapshot", (COVE,), 100, {}),
    Case("e2b", (COVE_DEFAULT, COVE), 100, {}),
    Case("claude-later", (COVE_CLAUDE, ASH_CLAUDE), 100, {ASH_CLAUDE: 20}),
    Case("claude-first", (COVE_CLAUDE,), 100, {}),
    # A hundred at once is one sample of the whole; Ash leaves sandboxes behind, so it goes last.
    Case("concurrent", (COVE, ASH), 500, {ASH: 100}),
    Case("memory", (COVE_IDLE, ASH_IDLE), 50, {}),
]
NAMES = ["sessions", *(f"sessions-{case.name}" for case in CASES), "sessions-pool"]
AT_ONCE = 100


def measure(scratch, options):
    """Everything about sessions that was asked for."""
    asked = options.only or ["sessions"]
    chosen = [c for c in CASES if "sessions" in asked or f"sessions-{c.name}" in asked]
    found = {"batches": [], "unavailable": {}, "versions": {}, "left": [], "busy_percent": []}
    with contextlib.ExitStack() as stack:
        binary = rivals.cove_binary(options.cove)
        found["versions"][COVE] = rivals.first_line([binary, "--version"])
        scratch = pathlib.Path(scratch) / "sessions"
        scratch.mkdir()
        running = Running(stack, scratch, binary, options, found)
        for number in options.numbers:
            found["busy_percent"].append(machine.background_busy())
            busy = f"machine {found['busy_percent'][-1]:.0f} % busy before it"
            say(f"sessions, round {number + 1}: {busy}")
            for case in chosen:
                one_case(case, running, found, number, options)
        running.stop()
    if has_books(options) and options.numbers[0] == 0:
        found["pool"] = pool_overhead()
    return found


def has_books(options):
    """Whether the books alone are measured: compiling their tests takes long."""
    if options.only is None:
        return not options.quick
    return "sessions" in options.only and not options.quick or "sessions-pool" in options.only


def prepare(options):
    """Builds and installs what is measured with, so that no compiler runs beside a figure."""
    install, asked = not options.no_install, options.only or ["sessions"]
    for name, make in (("claude", claude_directory), ("e2b", sdk_python)):
        if "sessions" in asked or any(it.startswith(f"sessions-{name}") for it in asked):
            # Whoever cannot be had is told of when it would take part.
            with contextlib.suppress(Unavailable):
                make(install)
    if has_books(options):
        rivals.run([*POOL_OVERHEAD[:5], "--no-run", *POOL_OVERHEAD[5:]], cwd=rivals.ROOT)


def merge(founds):
    """One document of those of several rounds."""
    return report.joined(founds)


def one_case(case, running, found, number, options):
    """One round of a case: each rival once, the first of them last in the next round."""
    order = case.rivals if number % 2 == 0 else case.rivals[::-1]
    for rival in order:
        wanted = case.slow.get(rival, case.n)
        share = max(wanted // (QUICK_SHARE if options.quick else options.rounds), 2)
        if case.name == "memory":
            share = wanted
        if case.name in ("memory",) and number > 0:
            continue
        if case.name == "concurrent":
            # A hundred each time, or there is nothing that is tried.
            if number * AT_ONCE >= wanted:
                continue
            share = AT_ONCE
        try:
            server = running.get(rival)
            samples = cases.Samples(case.name, rival)
            RUNS[case.name](running, server, samples, share)
        except Unavailable as reason:
            if found["unavailable"].get(rival) != str(reason):
                found["unavailable"][rival] = str(reason)
                say(f"  {case.name}, {rival} can not take part: {reason}")
            continue
        except Exception as error:  # One case that breaks must not lose the others' figures.
            traceback.print_exc(file=sys.stderr)
            samples.fail(error)
            running.drop(rival)
        found["batches"].append(samples.document())
        say(f"  {case.name}, {rival}: {told(samples)}")


def told(samples):
    times = sorted(samples.times)
    middle = f"{times[len(times) // 2]:.0f}" if times else "–"
    text = f"n {len(times)}, p50 {middle}"
    if samples.notes:
        text += f", {samples.notes}"
    if samples.failures:
        text += f", {samples.failures} FAILURES: {samples.examples[0]}"
    return text


class Running:
    """The servers of a run, each started when it is needed first."""

    def __init__(self, stack, scratch, binary, options, found):
        self.stack, self.scratch, self.binary = stack, scratch, binary
        self.options, self.found = options, found
        self.servers, self.postgres, self.model = {}, None, None

    def get(self, name):
        if name not in self.servers:
            reason = self.found["unavailable"].get(name)
            if reason:
                raise Unavailable(reason)
            server = getattr(self, MAKERS[name])()
            self.servers[name] = server
            server.start()
            self.prepare(name, server)
            # What it prepares after its start would be in the first figures.
            cases.quiet(server)
        return self.servers[name]

    def prepare(self, name, server):
        if name in (COVE_CLAUDE, ASH_CLAUDE):
            self.prepare_claude(name, server)
            return
        server.deploy()
        if name not in (COVE_IDLE, COVE_DEFAULT, ASH_IDLE):
            # Its own agent, so that nothing is kept ready for the other one.
            server.deploy(ready=READY, name=POOLED)
            servers.until(lambda: server.is_ready(READY), "a full pool")

    def prepare_claude(self, name, server):
        if name == ASH_CLAUDE:
            server.deploy()
            return
        text = "# Bench Agent\nRespond with a single word."
        files = [{"path": "CLAUDE.md", "content": text}]
        server.deploy(runtime={"type": "claude"}, files=files)
        server.deploy(runtime={"type": "claude"}, files=files, ready_agents=1, name=POOLED)

    # How each is made.

    def cove(self):
        return Cove(self.binary, self.scratch, {"ready": 0}, **self.e2b_listener())

    def cove_default(self):
        """With what it keeps ready by itself."""
        return Cove(self.binary, self.scratch, name=COVE_DEFAULT, **self.e2b_listener())

    def e2b_listener(self):
        return {"faces": ["--e2b", "127.0.0.1:0"]} if has_e2b(self.binary) else {}

    def cove_idle(self):
        return Cove(self.binary, self.scratch, {"ready": 0}, name=COVE_IDLE)

    def cove_postgres(self):
        if self.postgres is None:
            self.postgres = self.stack.enter_context(servers.postgres(self.scratch))
            self.found["versions"]["PostgreSQL"] = self.postgres["version"]
        top = f'[store]\nurl = "{self.postgres["url"]}"\n'
        return Cove(self.binary, self.scratch, {"ready": 0}, top=top, name=COVE_POSTGRES)

    def stand_in(self):
        if self.model is None:
            self.model = self.stack.enter_context(
                servers.stand_in_model(self.scratch, CLAUDE_KEY)
            )
        return self.model

    def cove_claude(self):
        directory = claude_directory(not self.options.no_install)
        version = rivals.first_line([directory / "claude", "--version"])
        self.found["versions"]["Claude's command line"] = version
        model = f'\n[sessions.model]\nurl = "{self.stand_in()}"\napi_key = "env:BENCH_MODEL_KEY"\n'
        settings = {"ready": 0, "claude": str(directory)}
        env = {"BENCH_MODEL_KEY": CLAUDE_KEY}
        return Cove(
            self.binary, self.scratch, settings, bottom=model, name=COVE_CLAUDE, env=env
        )

    def ash(self):
        return Ash(self.scratch)

    def ash_idle(self):
        return Ash(self.scratch, name=ASH_IDLE)

    def ash_claude(self):
        env = {"ASH_REAL_SDK": "1", "ANTHROPIC_API_KEY": CLAUDE_KEY, "IS_SANDBOX": "1"}
        env["ANTHROPIC_BASE_URL"] = self.stand_in()
        server = Ash(self.scratch, name=ASH_CLAUDE, env=env)
        server.extra_env = {"IS_SANDBOX": "1"}
        return server

    def drop(self, name):
        """A server that broke: the next case gets a new one."""
        server = self.servers.pop(name, None)
        if server is not None:
            server.remove()

    def stop(self):
        """Ends all of them; says what they left."""
        for name in list(self.servers):
            server = self.servers.pop(name)
            if left := server.stop():
                self.found["left"].append(f"{name}: {left} processes after its end")
            server.remove()


MAKERS = {
    COVE: "cove",
    COVE_DEFAULT: "cove_default",
    COVE_POSTGRES: "cove_postgres",
    COVE_CLAUDE: "cove_claude",
    COVE_IDLE: "cove_idle",
    ASH: "ash",
    ASH_CLAUDE: "ash_claude",
    ASH_IDLE: "ash_idle",
}


def run_e2b(running, server, samples, n):
    if "e2b" not in server.addresses:
        raise Unavailable("this server has no interface of E2B's")
    cases.e2b(server, samples, n, sdk_python(not running.options.no_install), HERE / "tti.py")


RUNS = {
    "create-ready": lambda _, s, samples, n: cases.create(s, samples, n, POOLED, READY),
    "create": lambda _, s, samples, n: cases.create(s, samples, n),
    "concurrent": lambda _, s, samples, n: cases.concurrent(s, samples, n),
    "warm-resume": lambda _, s, samples, n: cases.warm_resume(s, samples, n),
    "cold-resume": lambda _, s, samples, n: cases.cold_resume(s, samples, n),
    "message": lambda _, s, samples, n: cases.messages(s, samples, n),
    "claude-later": lambda _, s, samples, n: cases.claude_later(s, samples, n, s.agent),
    "claude-first": lambda _, s, samples, n: cases.claude_first(s, samples, n, POOLED, 1),
    "stop": lambda _, s, samples, n: cases.stop(s, samples, n),
    "fork": lambda _, s, samples, n: cases.fork(s, samples, n),
    "snapshot": lambda _, s, samples, n: cases.snapshot(s, samples, n),
    "memory": lambda _, s, samples, n: cases.memory(s, samples, n),
    "e2b": run_e2b,
}


# --- what has to be installed


def has_e2b(binary):
    """Whether this cove has E2B's interface."""
    return "--e2b" in rivals.run([binary, "serve", "--help"])


def claude_directory(install):
    """Where Claude's program is: the npm package of its Linux build, installed if need be."""
    source, target = rivals.ROOT / "compat" / "claude", rivals.BENCH / ".cache" / "claude"
    target.mkdir(parents=True, exist_ok=True)
    lock, done = (source / "package-lock.json").read_bytes(), target / "installed"
    if not done.exists() or done.read_bytes() != lock:
        if not install:
            raise Unavailable("Claude's package is not installed (without --no-install it would be)")
        if shutil.which("npm") is None:
            raise Unavailable("`npm` is not installed")
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, target / name)
        say("installing Claude's command line")
        rivals.run(["npm", "ci", "--ignore-scripts", "--no-progress"], cwd=target)
        done.write_bytes(lock)
    found = sorted(target.glob("node_modules/@anthropic-ai/claude-code-*/claude"))
    if not found:
        raise Unavailable("Claude's package has no program for this machine")
    return found[0].parent


def sdk_python(install):
    """A Python that has E2B's SDK, in an environment of its own."""
    target = rivals.BENCH / ".cache" / "e2b"
    python, done = target / "bin" / "python", target / "installed"
    if not done.exists() or done.read_text() != SDK:
        if not install:
            raise Unavailable("E2B's SDK is not installed (without --no-install it would be)")
        say("installing E2B's SDK")
        rivals.run([sys.executable, "-m", "venv", "--clear", target])
        rivals.run([python, "-m", "pip", "install", "--quiet", SDK])
        done.write_text(SDK)
    return python


def pool_overhead():
    """The books and the write-behind alone, as a test of the crate that prints its figures."""
    say("sessions, the books alone")
    argv = [*POOL_OVERHEAD, "service::overhead::figures", "--"]
    argv += ["--ignored", "--exact", "--nocapture"]
    try:
        out = rivals.run(argv, cwd=rivals.ROOT, timeout=POOL_OVERHEAD_SECONDS)
        rows = next(line for line in out.splitlines() if line.startswith("[{"))
        return {"rows": json.loads(rows)}
    except (Unavailable, StopIteration, ValueError, subprocess.TimeoutExpired) as error:
        return {"error": str(error)}
