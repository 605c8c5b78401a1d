"""pgbench as load, what a pooler spends meanwhile, and what any program of load has in common."""

import contextlib
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import machine
from bouncer.poolers import PASSWORD
from rivals import Unavailable

RECONNECTION = re.compile(r"^tps = ([0-9.]+) \(including reconnection", re.M)
TICKS = os.sysconf("SC_CLK_TCK")
# To connect a thousand clients, and to end.
MARGIN_SECONDS = 120
# Of how many transactions the time is written down: a file with all of them is work of its own.
SAMPLED = 0.25
# What pgbench says before the clock starts.
WARM_SECONDS = 1
# For perf to do as it is told.
ORDER_SECONDS = 10
SYSTEM_CALLS = (
    "recvfrom", "recvmsg", "read", "readv", "sendto", "sendmsg", "write", "writev", "epoll_wait",
    "epoll_pwait", "epoll_ctl", "poll", "futex", "getsockopt", "setsockopt", "clock_nanosleep",
)  # fmt: skip


class Failed(Exception):
    """A load that did not run as it must."""


def spent(pid):
    """CPU seconds of a process tree in user mode and in the kernel, and its context switches."""
    user = kernel = switches = 0
    for member in machine.descendants(pid):
        fields = machine.read(f"/proc/{member}/stat").rpartition(")")[2].split()
        if len(fields) < 13:
            continue
        user, kernel = user + int(fields[11]), kernel + int(fields[12])
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{member}/task"):
                status = machine.read(f"/proc/{member}/task/{task}/status")
                found = re.findall(r"^(?:non)?voluntary_ctxt_switches:\s*(\d+)", status, re.M)
                switches += sum(map(int, found))
    return user / TICKS, kernel / TICKS, switches


class Load:
    """One run of pgbench against an endpoint."""

    program = "pgbench"
    # The time so far and the transactions of a second, in a line for each second, and where.
    progress = re.compile(r"progress: ([0-9.]+) s, ([0-9.]+) tps")
    tells_on, other = "stderr", "stdout"

    def __init__(self, server, endpoint, seconds, arguments, **options):
        unix = options.get("unix", False)
        self.endpoint, self.seconds = endpoint, max(int(round(seconds)), 1)
        self.directory = tempfile.TemporaryDirectory(prefix="cove-bench-load-")
        self.sampled = options.get("sampled", SAMPLED)
        # Goes on for as long as something else is done, and is ended then.
        self.held = options.get("held", False)
        run_seconds = self.seconds + (MARGIN_SECONDS if self.held else WARM_SECONDS + 1)
        database = options.get("database") or endpoint.database(unix)
        argv = [server.programs / "pgbench", "-n", "-P", "1", "-h", endpoint.host(unix)]
        argv += ["-p", str(endpoint.port), "-U", options.get("user") or endpoint.user]
        argv += ["-T", str(run_seconds)]
        argv += ["--log", "--log-prefix", f"{self.directory.name}/log"]
        if self.sampled < 1:
            argv += ["--sampling-rate", str(self.sampled)]
        self.argv = [*map(str, argv), *arguments, database]

    def run(self, during=None, meter=None):
        """Figures of the seconds after the first.

        `during(seconds)` is done in them, and `meter` begins and ends with them.
        """
        with self.directory:
            return self._run(during, meter)

    def _run(self, during, meter):
        environment = {**os.environ, "PGPASSWORD": PASSWORD, "PGSSLMODE": "disable"}
        process = subprocess.Popen(
            self.argv,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        limit = threading.Timer(self.seconds + MARGIN_SECONDS, process.kill)
        limit.start()
        try:
            marks, lines, extra = self.watch(process, during, meter)
            out = getattr(process, self.other).read()
            status = process.wait()
        finally:
            limit.cancel()
            if process.poll() is None:
                process.kill()
                process.wait()
            process.stdout.close()
            process.stderr.close()
        if (status != 0 and not self.held) or len(marks) < 2:
            said = " / ".join([*lines[-3:], *out.splitlines()[-3:]])
            raise Failed(f"{self.program} ended with {status}: {said}")
        if failed := re.search(r"failed transactions: ([1-9]\d*)", out):
            raise Failed(f"{failed.group(1)} transactions failed")
        return {**self.figures(marks), **extra, **self.summary(out, lines)}

    def watch(self, process, during, meter):
        """What was spent at each line of progress within the time that counts."""
        marks, lines, extra, worker = [], [], {}, None

        def work():
            try:
                extra.update(during(self.seconds))
            except (Failed, Unavailable, OSError) as error:
                extra["error"] = error
            if self.held:
                process.terminate()

        for line in getattr(process, self.tells_on):
            found = self.progress.search(line)
            if not found:
                lines.append(line.strip())
                continue
            if self.held or len(marks) <= self.seconds:
                at, rate = float(found.group(1)), float(found.group(2))
                if meter and len(marks) == self.seconds:
                    meter.end()
                marks.append((at, rate, time.time(), *spent(self.endpoint.pid)))
                if meter and len(marks) == 1:
                    meter.begin()
            if during and worker is None:
                worker = threading.Thread(target=work)
                worker.start()
        if worker:
            worker.join()
        if error := extra.pop("error", None):
            raise error
        return marks, lines, extra

    def figures(self, marks):
        (first_at, _, begun, *before), (last_at, _, ended, *after) = marks[0], marks[-1]
        transactions, at = 0, first_at
        for mark in marks[1:]:
            transactions += mark[1] * (mark[0] - at)
            at = mark[0]
        if not transactions:
            raise Failed("no transaction within the time")
        user, kernel, switches = (b - a for a, b in zip(before, after, strict=True))
        return {
            "seconds": last_at - first_at,
            "transactions": transactions,
            "per_second": transactions / (last_at - first_at),
            "user_us": user * 1e6 / transactions,
            "kernel_us": kernel * 1e6 / transactions,
            "cpu_us": (user + kernel) * 1e6 / transactions,
            "switches": switches / transactions,
            **self.latencies(begun, ended),
        }

    def summary(self, out, _lines):
        """Figures of what the program says in the end."""
        found = RECONNECTION.search(out)
        return {"connections_per_second": float(found.group(1))} if found else {}

    def latencies(self, begun, ended):
        """Times of transactions that ended while it counted; `client no time script epoch us`."""
        found = []
        for path in pathlib.Path(self.directory.name).iterdir():
            with open(path, encoding="utf-8") as file:
                for line in file:
                    fields = line.split()
                    # The last line of a run that was ended may be half a line.
                    if not line.endswith("\n"):
                        continue
                    if begun <= int(fields[4]) + int(fields[5]) / 1e6 <= ended:
                        found.append(int(fields[2]))
        return {"latencies_us": found}


class Calls:
    """Counts the system calls of a process tree by name, with perf, between `begin` and `end`."""

    def __init__(self, pid, names=SYSTEM_CALLS):
        if shutil.which("perf") is None:
            raise Unavailable("`perf` is not installed")
        self.directory = tempfile.TemporaryDirectory(prefix="cove-bench-perf-")
        orders, answers = (f"{self.directory.name}/{name}" for name in ("orders", "answers"))
        for path in (orders, answers):
            os.mkfifo(path)
        events = [f"syscalls:sys_enter_{name}" for name in names]
        pids = ",".join(map(str, machine.descendants(pid)))
        argv = ["perf", "stat", "-j", "-D", "-1", "--control", f"fifo:{orders},{answers}"]
        argv += ["-e", ",".join(["raw_syscalls:sys_enter", *events]), "-p", pids]
        self.out = open(f"{self.directory.name}/out", "w+", encoding="utf-8")
        self.process = subprocess.Popen(argv, stdout=self.out, stderr=self.out)
        # Either side waits for the other to open its end; for both directions at once it does not.
        self.orders = os.open(orders, os.O_RDWR)
        self.answers = os.open(answers, os.O_RDWR)

    def begin(self):
        self.order(b"enable\n")

    def end(self):
        self.order(b"disable\n")

    def order(self, word):
        os.write(self.orders, word)
        if not select.select([self.answers], [], [], ORDER_SECONDS)[0]:
            raise Failed(f"perf does not answer: {self.said()[-200:]}")
        os.read(self.answers, 64)

    def said(self):
        self.out.seek(0)
        return self.out.read()

    def close(self):
        """Ends perf, and gives what it counted."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        text = self.said()
        os.close(self.orders)
        os.close(self.answers)
        self.out.close()
        self.directory.cleanup()
        counted = {}
        for line in text.splitlines():
            if line.startswith("{"):
                row = json.loads(line)
                with contextlib.suppress(ValueError):
                    name = row["event"].rpartition("sys_enter")[2].lstrip("_")
                    counted[name or "all"] = float(row["counter-value"])
        if "all" not in counted:
            raise Unavailable(f"perf counts no system calls: {text.strip()[-200:]}")
        return {name: n for name, n in counted.items() if n}
