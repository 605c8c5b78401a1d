"""pgbench as load, and what a pooler spends meanwhile."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time

import machine
from bouncer.poolers import PASSWORD
from rivals import Unavailable

PROGRESS = re.compile(r"progress: ([0-9.]+) s, ([0-9.]+) tps")
RECONNECTION = re.compile(r"^tps = ([0-9.]+) \(including reconnection", re.M)
TICKS = os.sysconf("SC_CLK_TCK")
# To connect a thousand clients, and to end.
MARGIN_SECONDS = 120
# Of how many transactions the time is written down: a file with all of them is work of its own.
SAMPLED = 0.25
# What pgbench says before the clock starts.
WARM_SECONDS = 1
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

    def run(self, during=None):
        """Figures of the seconds after the first. `during(seconds)` is done in them."""
        with self.directory:
            return self._run(during)

    def _run(self, during):
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
            marks, lines, extra = self.watch(process, during)
            out = process.stdout.read()
            status = process.wait()
        finally:
            limit.cancel()
            if process.poll() is None:
                process.kill()
                process.wait()
            process.stdout.close()
            process.stderr.close()
        if (status != 0 and not self.held) or len(marks) < 2:
            raise Failed(f"pgbench ended with {status}: {' / '.join(lines[-3:])}")
        if failed := re.search(r"failed transactions: ([1-9]\d*)", out):
            raise Failed(f"{failed.group(1)} transactions failed")
        return {**self.figures(marks), **extra, **self.reconnections(out)}

    def watch(self, process, during):
        """What was spent at each line of progress within the time that counts."""
        marks, lines, extra, worker = [], [], {}, None

        def work():
            try:
                extra.update(during(self.seconds))
            except (Failed, Unavailable, OSError) as error:
                extra["error"] = error
            if self.held:
                process.terminate()

        for line in process.stderr:
            found = PROGRESS.search(line)
            if not found:
                lines.append(line.strip())
                continue
            if self.held or len(marks) <= self.seconds:
                at, rate = float(found.group(1)), float(found.group(2))
                marks.append((at, rate, time.time(), *spent(self.endpoint.pid)))
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
            "latencies_us": self.latencies(begun, ended),
        }

    def reconnections(self, out):
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
        return found


def system_calls(pid, seconds):
    """How many a process tree makes in so many seconds, by name, as perf counts them."""
    if shutil.which("perf") is None:
        raise Unavailable("`perf` is not installed")
    events = ["raw_syscalls:sys_enter", *(f"syscalls:sys_enter_{name}" for name in SYSTEM_CALLS)]
    pids = ",".join(map(str, machine.descendants(pid)))
    argv = ["perf", "stat", "-j", "-e", ",".join(events), "-p", pids, "--", "sleep", str(seconds)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    counted = {}
    for line in done.stderr.splitlines():
        if line.startswith("{"):
            row = json.loads(line)
            with contextlib.suppress(ValueError, KeyError):
                counted[row["event"].rpartition("sys_enter")[2].lstrip("_")] = float(
                    row["counter-value"]
                )
    if "" not in counted:
        raise Unavailable(f"perf counts no system calls: {done.stderr.strip()[-200:]}")
    return {"all": counted.pop(""), **{k: v for k, v in counted.items() if v}}
