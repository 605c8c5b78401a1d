"""Cove and Ash as the cases of sessions see them: started, spoken to, stopped.

Both have the same methods, so that a case is written once. What is not timed is a request of a
client's own; what is timed is the one request that is named.
"""

import base64
import contextlib
import json
import os
import pathlib
import pwd
import shlex
import signal
import subprocess
import tempfile
import time

import machine
import rivals
from rivals import Unavailable
from sessions.wire import Refused, Wire

HERE = pathlib.Path(__file__).resolve().parent
COVE, ASH = "cove", "Ash"
PATIENCE_SECONDS = 60
POLL_SECONDS = 0.002
# What a server prepares for executions in the background is no part of this: a library of Go's, and
# interpreters that wait for programs. In its place these languages are ones that need nothing.
PLAIN_LANGUAGES = ("go", "java", "javascript", "python")
PLAIN_LANGUAGE = """\
[languages.{name}]
extensions = ["{name}"]
entry = "main"
[[languages.{name}.ways]]
version = "bash"
run = ["{{bash}}", "{{entry}}"]
"""
# Sessions of one batch, and what else lives at that time.
RESIDENT_MAX = 400
ASH_COMMAND, ASH_KEY = "COVE_BENCH_ASH", "COVE_BENCH_ASH_KEY"
# What Ash's stand-in for an agent sleeps in a turn: twice 50 ms, and once only in every turn but a
# session's first one (packages/bridge/src/sdk.ts).
ASH_SLEEP_US, ASH_SLEEP_FIRST_US = 50_000, 100_000


def until(condition, what, seconds=PATIENCE_SECONDS):
    """What `condition` gives once it gives something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(POLL_SECONDS)
    raise Refused(f"{what} did not come about within {seconds} s")


class Process:
    """A server of ours with a state of its own."""

    def __init__(self, argv, log, env=None):
        self.argv, self.log, self.env, self.process = argv, log, env, None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env
            )

    @property
    def pid(self):
        return self.process.pid

    def stop(self):
        """Ends it and waits; what it started and left is ended, too, and how much that was."""
        if self.process is None:
            return 0
        below = set(machine.descendants(self.pid)) - {self.pid}
        rivals.stop(self.process, self.argv[0])
        self.process = None
        left = [pid for pid in below if pid in machine.processes()]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(left)

    def tail(self):
        return " / ".join(machine.read(self.log).strip().splitlines()[-4:])


# --- Cove


class Cove:
    """`cove serve` with sessions, and its native interface."""

    name, agent = COVE, "clock"
    knows_agent_time = True

    def __init__(
        self, binary, scratch, settings=None, top="", bottom="", name=COVE, env=None, faces=()
    ):
        """`settings` are of the `[sessions]` table; `top` and `bottom` go around it."""
        self.name, self.binary = name, binary
        self._disk = rivals.disk_directory()
        place = pathlib.Path(self._disk.name)
        self.data, config = place / "cove", place / "cove.toml"
        table = {"resident_max": RESIDENT_MAX, **(settings or {})}
        lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()]
        languages = place / "languages.toml"
        plain = (PLAIN_LANGUAGE.format(name=name) for name in PLAIN_LANGUAGES)
        languages.write_text("\n".join(plain), encoding="utf-8")
        executions = f'[executions]\nlanguages = "{languages}"\n'
        parts = [top, executions, "[sessions]", *lines, bottom]
        config.write_text("\n".join(parts), encoding="utf-8")
        argv = [binary, "serve", "--data-dir", self.data, "--config", config]
        argv += ["--http", f"127.0.0.1:{rivals.free_port()}", *faces]
        log = pathlib.Path(scratch) / f"{name.replace(' ', '-').replace(',', '')}.log"
        self.process = Process(argv, log, {**os.environ, **(env or {})})
        self.wire = None

    def start(self):
        """Starts it; what its interface listens on is in `addresses`."""
        addresses = self.data / "addresses.json"
        addresses.unlink(missing_ok=True)
        self.process.start()
        self.addresses = rivals.wait_until(
            lambda: json.loads(addresses.read_text()), self.process.process, self.process.log, COVE
        )
        token = rivals.run([self.binary, "token", "--data-dir", self.data]).strip()
        self.wire = Wire(self.addresses["http"], token)
        return self

    def stop(self):
        """Ends the process; its state stays."""
        if self.wire is not None:
            self.wire.close()
        return self.process.stop()

    def remove(self):
        self.stop()
        self._disk.cleanup()

    def call(self, method, path, body=None, *expected, headers=()):
        """A request that is not timed; its JSON."""
        return self.wire.call(method, path, body, headers).json(*(expected or (200, 201)))

    def deploy(self, ready=0, ready_agents=0, name=None, runtime=None, files=None):
        """Deploys the agent that answers at once, or another one."""
        files = files or [{"path": "clock.py", "content": (HERE / "clock.py").read_text()}]
        settings = {"prewarm_sandboxes": ready, "prewarm_agents": ready_agents}
        body = {"name": name or self.agent, "files": files, "settings": settings}
        body["runtime"] = runtime or {"type": "command", "argv": ["python3", "clock.py"]}
        self.call("POST", "/v1/agents", body)

    def create_request(self, agent=None):
        return "POST", "/v1/sessions", {"agent": agent or self.agent}

    def bare_request(self):
        """A session without an agent."""
        return "POST", "/v1/sessions", {}

    def created(self, answer):
        return answer.json(201)["id"]

    def is_ready(self, ready):
        """Whether so many sandboxes wait for a session."""
        counts = self.call("GET", "/v1/sandboxes")
        return counts["warm"] >= ready and counts["warming"] == 0

    def message(self, session, text, partial=False):
        body = {"content": text, **({"partial": True} if partial else {})}
        return self.wire.call("POST", f"/v1/sessions/{session}/messages", body)

    first_marker, done_marker = b"event: text\n", b"event: done\n"
    token_marker = b"event: text_delta\n"

    def turn(self, answer, text):
        """Microseconds of the agent itself in a turn, whose answer must be `text`."""
        events = answer.events()
        result = one(events, "turn_complete")["data"]["result"]
        times = json.loads(result)
        turns = {event["turn"] for _, event in events}
        if turns != {times["turn"]} or times["reply"] != text or events[-1][0] != "done":
            raise Refused(f"a turn of {text!r} answered {events!r}"[:500])
        return (times["answered"] - times["told"]) / 1000

    def said(self, answer):
        """What the agent answered."""
        return json.loads(one(answer.events(), "turn_complete")["data"]["result"])["reply"]

    def pause(self, session):
        self.call("POST", f"/v1/sessions/{session}/pause")

    def resume(self, session):
        answer = self.wire.call("POST", f"/v1/sessions/{session}/resume")
        if answer.json()["state"] != "active":
            raise Refused(f"resumed, but {answer.body!r}")
        return answer

    def stop_session(self, session):
        answer = self.wire.call("POST", f"/v1/sessions/{session}/stop")
        if answer.json()["state"] != "stopped":
            raise Refused(f"stopped, but {answer.body!r}")
        return answer

    def end(self, session):
        self.call("DELETE", f"/v1/sessions/{session}")

    def exec(self, session, command):
        done = self.call("POST", f"/v1/sessions/{session}/exec", {"command": command})
        if done["exit_code"] != 0:
            raise Refused(f"{command}: {done}")
        return done["stdout"]

    def e2b_environment(self):
        """The three variables of E2B's SDKs."""
        key = rivals.run([self.binary, "token", "--data-dir", self.data, "--e2b"]).strip()
        url = f"http://{self.addresses['e2b']}"
        return {"E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_API_KEY": key}


def one(events, kind):
    """The only event of a type."""
    found = [event for name, event in events if name == kind]
    if len(found) != 1:
        raise Refused(f"{len(found)} events {kind!r} in {[name for name, _ in events]}")
    return found[0]


# --- Ash


class Ash:
    """Ash's own server, built from its source by whoever runs this, with its stand-in for an agent.

    `COVE_BENCH_ASH` is the command that starts it, with `{port}` and `{data}` where they belong.
    """

    name, agent = ASH, "bench"
    # It sleeps, and for how long is known from its source.
    knows_agent_time = False
    extra_env = None

    def __init__(self, scratch, name=ASH, env=None):
        command = os.environ.get(ASH_COMMAND)
        if not command:
            raise Unavailable(
                f"it is in no package registry; built from its source, {ASH_COMMAND} starts it"
            )
        # Not below /tmp, which its sandboxes hide.
        self._disk = tempfile.TemporaryDirectory(prefix="cove-bench-ash-", dir="/var/tmp")
        self.name, self.port = name, rivals.free_port()
        words = {"port": self.port, "data": self._disk.name}
        argv = [word.format(**words) for word in shlex.split(command)]
        log = pathlib.Path(scratch) / f"{name.replace(' ', '-').replace(',', '')}.log"
        self.process = Process(argv, log, {**os.environ, **(env or {})})
        self.wire = None

    def start(self):
        key = os.environ.get(ASH_KEY, "")
        address = f"127.0.0.1:{self.port}"
        self.process.start()
        rivals.wait_until(
            lambda: rivals.get_json(f"http://{address}/health", key),
            self.process.process, self.process.log, ASH,
        )  # fmt: skip
        self.wire = Wire(address, key)
        return self

    def stop(self):
        if self.wire is not None:
            self.wire.close()
        return self.process.stop()

    def remove(self):
        self.stop()
        self._disk.cleanup()

    def call(self, method, path, body=None, *expected):
        return self.wire.call(method, path, body).json(*(expected or (200, 201)))

    def deploy(self, ready=0, ready_agents=0, name=None):
        """Its pool has one level: the process beside the agent.

        It makes one sandbox ready when an agent is new, whatever its configuration says, and one
        for each that is taken; only a server that was started since then keeps to that number.
        """
        text = base64.b64encode(b"# Bench Agent\nRespond with a single word.").decode()
        name = name or self.agent
        body = {"name": name, "files": [{"path": "CLAUDE.md", "content": text}]}
        self.call("POST", "/api/agents", body)
        self.call("PATCH", f"/api/agents/{name}/config", {"preWarmCount": ready})
        self.stop()
        self.start()

    def create_request(self, agent=None):
        body = {"agent": agent or self.agent}
        if self.extra_env:
            body["extraEnv"] = self.extra_env
        return "POST", "/api/sessions", body

    def bare_request(self):
        """It has none without an agent; the agent's own process lives for a turn only."""
        return self.create_request()

    def created(self, answer):
        return answer.json(201)["session"]["id"]

    def is_ready(self, ready):
        pool = self.call("GET", "/health")["pool"]
        return pool["warm"] >= ready and pool["warming"] == 0

    def message(self, session, text, partial=False):
        # Two blocks: it takes one string or one block for a list of strings.
        blocks = [{"type": "text", "text": text}, {"type": "text", "text": "."}]
        body = {"content": blocks, **({"includePartialMessages": True} if partial else {})}
        return self.wire.call("POST", f"/api/sessions/{session}/messages", body)

    first_marker, done_marker = b"event: message", b"event: done"
    token_marker = b"event: text_delta"

    def turn(self, answer, text):
        """What its stand-in sleeps. It does not say what it was told in every turn, so that what can
        be checked is that the turn had an answer and came to its end."""
        events = answer.events()
        kinds = [kind for kind, _ in events]
        said = json.dumps([event for kind, event in events if kind == "message"])
        if kinds[-1] != "done" or "error" in kinds:
            raise Refused(f"a turn of {text!r} ended with {kinds!r}")
        if "[Resumed session]" in said:
            return ASH_SLEEP_US
        if "turn_complete" not in kinds or text not in said:
            raise Refused(f"a turn of {text!r} said {said}"[:500])
        return ASH_SLEEP_FIRST_US

    def pause(self, session):
        self.call("POST", f"/api/sessions/{session}/pause", {})

    def resume(self, session):
        answer = self.wire.call("POST", f"/api/sessions/{session}/resume", {})
        if answer.json()["session"]["status"] != "active":
            raise Refused(f"resumed, but {answer.body!r}")
        return answer

    def end(self, session):
        self.call("DELETE", f"/api/sessions/{session}")

    def exec(self, session, command):
        done = self.call("POST", f"/api/sessions/{session}/exec", {"command": command})
        if done["exitCode"] != 0:
            raise Refused(f"{command}: {done}")
        return done["stdout"]


# --- what they stand on


@contextlib.contextmanager
def postgres(scratch):
    """A PostgreSQL server as Debian ships it, durable as it is by default; a database's address."""
    places = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: p.parts[-2])
    if not places:
        raise Unavailable("PostgreSQL is not installed")
    with rivals.disk_directory() as directory:
        owner = pwd.getpwnam("postgres")
        os.chown(directory, owner.pw_uid, owner.pw_gid)
        for parent in pathlib.Path(directory).parents:
            if not parent.stat().st_mode & 0o001:
                raise Unavailable(f"the user postgres cannot reach {parent.name}")
        data, port = f"{directory}/data", rivals.free_port()
        as_owner = {"user": "postgres", "cwd": directory}
        made = [places[-1] / "initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8"]
        rivals.run([*made, "--no-locale", "--pgdata", data], **as_owner)
        argv = [places[-1] / "postgres", "-D", data, "-p", str(port), "-k", directory]
        log = pathlib.Path(scratch) / "postgres.log"
        with rivals.server([*argv, "-h", "127.0.0.1"], log, **as_owner) as process:
            ready = pathlib.Path(data) / "postmaster.pid"
            rivals.wait_until(
                lambda: ready.read_text().rstrip().endswith("ready"), process, log, "PostgreSQL"
            )
            yield {
                "url": f"postgres://postgres@127.0.0.1:{port}/postgres?sslmode=disable",
                "version": rivals.first_line([places[-1] / "postgres", "--version"]),
            }


@contextlib.contextmanager
def stand_in_model(scratch, key):
    """The stand-in for a model; its address."""
    log = pathlib.Path(scratch) / "model.log"
    script = rivals.ROOT / "examples" / "model" / "stand_in.py"
    argv = ["python3", script, "--port", "0", "--api-key", key]
    with rivals.server(argv, log) as process:
        marker = "listening on "

        def address():
            text = machine.read(log)
            return text.partition(marker)[2].split("\n")[0].strip() if marker in text else None

        yield rivals.wait_until(address, process, log, "the stand-in model")
