"""The cases: what one operation is, what is timed of it, and what must be true of its outcome.

A case gets a server that is running and a `Samples` to fill. It checks everything it gets back; what
is wrong is a failure, and in no latency.
"""

import contextlib
import json
import os
import resource
import subprocess
import time

import machine
from sessions.servers import until
from sessions.wire import Refused

FAILURE_EXAMPLES = 3
SETTLE_SECONDS = 2.0
# A look of its own at what is at rest, so that what a server does afterwards is not in the next one.
QUIET_SECONDS_MAX = 30
MEBIBYTE = 1 << 20


class Samples:
    """What one batch of a case found."""

    def __init__(self, case, rival):
        self.case, self.rival = case, rival
        self.times, self.parts, self.notes = [], {}, {}
        self.failures, self.examples = 0, []
        self.cpu_ms = self.seconds = 0.0
        self.load_average = machine.load_average()[0]

    def add(self, microseconds, **parts):
        """One operation that was right, and other times of it by their names."""
        self.times.append(microseconds)
        for name, value in parts.items():
            self.parts.setdefault(name, []).append(value)

    def fail(self, error):
        """One operation that was wrong, or did not come to its end."""
        self.failures += 1
        if len(self.examples) < FAILURE_EXAMPLES:
            self.examples.append(f"{type(error).__name__}: {error}"[:300])

    @contextlib.contextmanager
    def operation(self):
        """What goes wrong in it is counted."""
        try:
            yield
        except (Refused, OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
            self.fail(error)

    @contextlib.contextmanager
    def metered(self):
        """Counts the CPU time of the whole machine less this program's own."""
        busy, own, began = busy_seconds(), own_seconds(), time.monotonic()
        try:
            yield
        finally:
            others = busy_seconds() - busy - (own_seconds() - own)
            self.cpu_ms += 1000 * max(others, 0.0)
            self.seconds += time.monotonic() - began

    def document(self):
        """As it stands in the results."""
        return {
            "case": self.case,
            "rival": self.rival,
            "load_average": self.load_average,
            "times_us": self.times,
            "parts_us": self.parts,
            "notes": self.notes,
            "failures": self.failures,
            "failure_examples": self.examples,
            "others_cpu_ms": self.cpu_ms,
            "seconds": self.seconds,
        }


def busy_seconds():
    """CPU time of all cores that was neither idle, nor waiting, nor stolen: proc_stat(5)."""
    fields = machine.cpu_fields(machine.read("/proc/stat"))
    user, nice, system, _idle, _iowait, irq, softirq = fields[:7]
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def nonce():
    return os.urandom(6).hex()


# --- from nothing to an answer


def create(server, samples, n, agent=None, ready=0):
    """`POST` of a session, one at a time; then its first message, and its end.

    With `ready`, it is sent once so many sandboxes wait for it.
    """
    with samples.metered():
        for _ in range(n):
            with samples.operation():
                if ready:
                    until(lambda: server.is_ready(ready), "a full pool")
                created = server.wire.call(*server.create_request(agent))
                session = server.created(created)
                try:
                    text = nonce()
                    message = server.message(session, text)
                    server.turn(message, text)
                    first = message.arrived(server.first_marker)
                    samples.add(created.microseconds, first_message=first)
                finally:
                    server.end(session)


def concurrent(server, samples, n, agent=None):
    """`n` sessions asked for at the same moment. All must be there, and each one must work."""
    began_load = own_seconds()
    requests = [server.wire.bytes_of(*server.create_request(agent)) for _ in range(n)]
    with samples.metered():
        answers = server.wire.all_at_once(requests)
    sessions, ended = [], []
    for answer in answers:
        with samples.operation():
            if isinstance(answer, Exception):
                raise answer
            sessions.append((server.created(answer), answer))
            ended.append(answer.microseconds)
    samples.notes = {"total_ms": max(ended, default=0) / 1000, "own_s": own_seconds() - began_load}
    for session, answer in sessions:
        with samples.operation():
            try:
                text = nonce()
                if server.exec(session, f"echo {text}").strip() != text:
                    raise Refused(f"session {session} does not work")
                samples.add(answer.microseconds)
            finally:
                server.end(session)


# --- back to work


def warm_resume(server, samples, n, agent=None):
    """One session, paused and resumed; its agent must be the one that it was."""
    with samples.operation():
        session = server.created(server.wire.call(*server.create_request(agent)))
        server.message(session, f"remember {nonce()}").events()
        with samples.metered():
            for _ in range(n):
                with samples.operation():
                    server.pause(session)
                    samples.add(server.resume(session).microseconds)
        text = nonce()
        server.turn(server.message(session, text), text)
        server.end(session)


def recalled(server, session, text):
    """The message that asks the agent what it was told; that and the file must be `text`."""
    message = server.message(session, "recall")
    if server.knows_agent_time:
        if server.said(message).strip() != text:
            raise Refused(f"{session} remembers {server.said(message)!r}, not {text}")
    else:
        server.turn(message, "recall")
    if server.exec(session, "cat kept.txt").strip() != text:
        raise Refused(f"{session} has lost its file")
    return message


def cold_resume(server, samples, n, agent=None):
    """Sessions that were paused, resumed after the server was stopped and started.

    Their files must be there, and what the agent was told before.
    """
    sessions = []
    for _ in range(n):
        with samples.operation():
            session, text = server.created(server.wire.call(*server.create_request(agent))), nonce()
            server.message(session, f"remember {text}").events()
            server.exec(session, f"echo {text} > kept.txt")
            server.pause(session)
            sessions.append((session, text))
    samples.notes["left_by_stop"] = server.stop()
    server.start()
    quiet(server)
    with samples.metered():
        for session, text in sessions:
            with samples.operation():
                resumed = server.resume(session)
                first = recalled(server, session, text).arrived(server.first_marker)
                samples.add(resumed.microseconds, first_message=first)
                server.end(session)


def stop(server, samples, n, agent=None):
    """Stops of sessions whose agent has answered and kept something; resumed, they have it."""
    with samples.metered():
        for _ in range(n):
            with samples.operation():
                created, text = server.wire.call(*server.create_request(agent)), nonce()
                session = server.created(created)
                try:
                    server.message(session, f"remember {text}").events()
                    server.exec(session, f"echo {text} > kept.txt")
                    stopped = server.stop_session(session)
                    resumed = server.resume(session)
                    recalled(server, session, text)
                    samples.add(stopped.microseconds, resumed=resumed.microseconds)
                finally:
                    server.end(session)


def quiet(server):
    """Waits until the processes of a server use next to no CPU time."""
    deadline = time.monotonic() + QUIET_SECONDS_MAX
    while time.monotonic() < deadline:
        before = machine.tree_cpu_seconds(server.process.pid)
        time.sleep(0.25)
        if machine.tree_cpu_seconds(server.process.pid) - before <= 0.01:
            return


# --- messages


def messages(server, samples, n, agent=None):
    """Messages of one session, one after the other.

    What is counted is the time from the request to `done`, less the time of the agent itself in
    that very turn. The first message is left out: the agent starts with it.
    """
    with samples.operation():
        session = server.created(server.wire.call(*server.create_request(agent)))
        for _ in range(2):
            server.message(session, "hello").events()
        with samples.metered():
            for _ in range(n):
                with samples.operation():
                    text = nonce()
                    message = server.message(session, text)
                    agents = server.turn(message, text)
                    done = message.arrived(server.done_marker)
                    first = message.arrived(server.first_marker)
                    samples.add(done - agents, end_to_end=done, agent=agents, first_event=first)
        server.end(session)


def claude_later(server, samples, n, agent):
    """Turns of one session of the real Claude CLI: the time to the first piece of text."""
    with samples.operation():
        session = server.created(server.wire.call(*server.create_request(agent)))
        server.message(session, "hello", partial=True).events()
        with samples.metered():
            for _ in range(n):
                with samples.operation():
                    ask_claude(server, session, samples)
        server.end(session)


def claude_first(server, samples, n, agent, ready):
    """New sessions whose Claude was started ahead: the time to the first piece of text."""
    with samples.metered():
        for _ in range(n):
            with samples.operation():
                until(lambda: server.is_ready(ready), "a full pool")
                # Claude goes on with its own start for a while after it has said that it is ready.
                quiet(server)
                created = server.wire.call(*server.create_request(agent))
                session = server.created(created)
                try:
                    ask_claude(server, session, samples, created=created.microseconds)
                finally:
                    server.end(session)


def ask_claude(server, session, samples, **parts):
    """One turn of Claude's, which must have said what it was told."""
    text = nonce()
    message = server.message(session, text, partial=True)
    events = message.events()
    if events[-1][0] != "done" or not any(text in json.dumps(event) for _, event in events):
        raise Refused(f"{text} was answered by {[kind for kind, _ in events]}")
    said = [event for kind, event in events if kind == "message"]
    if not any("You said" in json.dumps(event) for event in said):
        raise Refused(f"no answer of the stand-in in {said!r}"[:300])
    first, done = message.arrived(server.token_marker), message.arrived(server.done_marker)
    samples.add(first, done=done, **parts)


# --- copies


def fork(server, samples, n, agent=None):
    """Forks of one live session that has 16 MiB of files; a fork has them too, as its own."""
    with samples.operation():
        session, text = server.created(server.wire.call(*server.create_request(agent))), nonce()
        fill(server, session, text)
        with samples.metered():
            for _ in range(n):
                with samples.operation():
                    forked = server.wire.call("POST", f"/v1/sessions/{session}/fork", {})
                    child = forked.json(201)["sessions"][0]["id"]
                    try:
                        seen = server.exec(child, "cat text; stat -c %s data; echo theirs > text")
                        if seen.split() != [text, str(16 * MEBIBYTE)]:
                            raise Refused(f"the fork has {seen!r}")
                        if server.exec(session, "cat text").strip() != text:
                            raise Refused("the fork wrote into its parent")
                        samples.add(forked.microseconds)
                    finally:
                        server.end(child)
        server.end(session)


def snapshot(server, samples, n, agent=None):
    """Snapshots of one live session that has 16 MiB of files; a session made of one has them."""
    with samples.operation():
        session, text = server.created(server.wire.call(*server.create_request(agent))), nonce()
        fill(server, session, text)
        path = f"/v1/sessions/{session}/snapshots"
        with samples.metered():
            for number in range(n):
                with samples.operation():
                    server.exec(session, f"echo {number} > number")
                    taken = server.wire.call("POST", path, {})
                    name = taken.json(201)["id"]
                    child = server.call("POST", "/v1/sessions", {"snapshot": name})["id"]
                    try:
                        if server.exec(child, "cat text number").split() != [text, str(number)]:
                            raise Refused(f"snapshot {number} is another one")
                        samples.add(taken.microseconds)
                    finally:
                        server.end(child)
                        server.wire.call("DELETE", f"/v1/snapshots/{name}")
        server.end(session)


def fill(server, session, text):
    server.exec(session, f"echo {text} > text; head -c {16 * MEBIBYTE} /dev/urandom > data; sync")


# --- memory


def memory(server, samples, n):
    """What each of `n` idle sessions adds to a server's processes, and to the kernel.

    Its time is KiB here: the proportional share (PSS) of all processes of the server, before and
    with the sessions, divided by their number. Sessions have no agent where a server can have that.
    """

    def one_session():
        return server.created(server.wire.call(*server.bare_request()))

    with samples.operation():
        # What a server allocates once is no session's.
        for session in [one_session() for _ in range(3)]:
            server.end(session)
        time.sleep(SETTLE_SECONDS)
        quiet(server)
        before, kernel = machine.memory_of(server.process.pid), kernel_kib()
        with samples.metered():
            sessions = [one_session() for _ in range(n)]
        time.sleep(SETTLE_SECONDS)
        quiet(server)
        after, kernel_after = machine.memory_of(server.process.pid), kernel_kib()
        for session in sessions[:: max(n // 5, 1)]:
            if server.exec(session, "echo here").strip() != "here":
                raise Refused(f"{session} does not work")
        per_session = (after["tree_pss_kib"] - before["tree_pss_kib"]) / n
        samples.add(per_session)
        samples.notes = {
            "sessions": n,
            "processes_each": (after["processes"] - before["processes"]) / n,
            "server_rss_kib_each": (after["rss_kib"] - before["rss_kib"]) / n,
            "kernel_kib_each": (kernel_after - kernel) / n,
        }
        for session in sessions:
            server.end(session)


def kernel_kib():
    """Memory of the kernel itself; whatever else runs on the machine is in it, too."""
    names = ("Slab", "KernelStack", "PageTables", "Percpu")
    lines = (line.split() for line in machine.read("/proc/meminfo").splitlines())
    return sum(int(words[1]) for words in lines if words[0].rstrip(":") in names)


# --- E2B's SDK


def e2b(server, samples, n, python, script):
    """E2B's own Python SDK, in a process of its own: a new sandbox, and its first command."""
    environment = {**os.environ, **server.e2b_environment()}
    with samples.metered():
        done = subprocess.run(
            [python, script, str(n)],
            env=environment, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
    if done.returncode != 0:
        samples.fail(Refused(done.stderr.strip()[-300:] or f"status {done.returncode}"))
        return
    for row in json.loads(done.stdout):
        if "error" in row:
            samples.fail(Refused(row["error"]))
        else:
            samples.add(row["total_us"], create=row["create_us"], command=row["command_us"])

