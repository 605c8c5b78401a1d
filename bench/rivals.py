"""The rivals: how each is found, started, spoken to and cleaned up after.

Nothing here is chosen to suit one of them. Every sandbox shows the host's /usr read-only, has a
private /proc, /dev and /tmp and no network; every one runs as many jobs at a time; limits are those
of the batch wherever a rival has such a limit.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import machine
from client import Client

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parent
# Below /usr, which every sandbox shows: the same file is run by all of them.
PROGRAMS = pathlib.Path("/usr/local/lib/cove-bench")
WORKDIR_INSIDE = "/w"
# Where tools are looked for, as Cove does: what a sandbox does not see is no use to it.
TOOL_PLACES = "/usr/local/go/bin:/usr/lib/go/bin:/usr/bin:/usr/local/bin"
TMPFS_BYTES = 128 << 20
OPEN_FILES = 256
START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 15

COVE, GO_JUDGE, BARE, BUBBLEWRAP, RUNC = "cove", "go-judge", "bare process", "bubblewrap", "runc"
COVE_FRESH, COVE_POLL = "cove, fresh", "cove, long poll"
COVE_WEBSOCKET, COVE_EVENTS = "cove, WebSocket", "cove, server-sent events"
COVE_20, GO_JUDGE_20 = "cove, 20 workers", "go-judge, 20 workers"
COVE_20_WEBSOCKET = "cove, 20 workers, WebSocket"
BULLMQ = "BullMQ"
SERVERS = (COVE, GO_JUDGE)
# Everybody who can run one program and answer.
ALL = (COVE, GO_JUDGE, BARE, BUBBLEWRAP, RUNC)
# Another way to use a server of the same run, and what it changes in the load generator's words.
VARIANTS = {
    COVE_FRESH: (COVE, {"fresh": True}),
    COVE_WEBSOCKET: (COVE, {"via": "websocket"}),
    COVE_EVENTS: (COVE, {"via": "events"}),
    COVE_POLL: (COVE, {"via": "poll"}),
    COVE_20_WEBSOCKET: (COVE_20, {"via": "websocket"}),
}
# The order in which they are always named.
EVERYBODY = (
    COVE, COVE_FRESH, COVE_WEBSOCKET, COVE_EVENTS, COVE_POLL, COVE_20_WEBSOCKET, GO_JUDGE,
    GO_JUDGE_20, BULLMQ, BARE, BUBBLEWRAP, RUNC,
)  # fmt: skip
# As many as the seed's second run had.
WORKERS = 20
# So many jobs that do nothing are as good as at once for one thread; it is BullMQ's best case.
BULLMQ_CONCURRENCY = 100
PACKAGES = {BUBBLEWRAP: ("bwrap", "bubblewrap"), RUNC: ("runc", "runc")}


class Unavailable(Exception):
    """A rival that cannot take part, with the reason that goes into the report."""


def say(text):
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


def run(argv, **options):
    """Runs a command; its output is the error when it fails."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, **options)
    except OSError as error:
        raise Unavailable(f"`{argv[0]}` cannot be started: {error.strerror}") from error
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()[-5:]
        raise Unavailable(f"`{' '.join(map(str, argv))}` failed: {' / '.join(lines)}")
    return done.stdout


def first_line(argv):
    """What a program prints first about itself."""
    return run(argv).strip().splitlines()[0]


# --- programs and the load generator


def build_load():
    """The load generator's path, built if need be."""
    target = BENCH / "target"
    say("building the load generator")
    manifest = BENCH / "load" / "Cargo.toml"
    run(
        [
            "cargo",
            "build",
            "--release",
            "--locked",
            "--manifest-path",
            manifest,
            "--target-dir",
            target,
        ]
    )
    return target / "release" / "load"


@contextlib.contextmanager
def programs():
    """The workloads' own programs, below /usr for as long as the benchmark runs."""
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    try:
        for source in sorted((BENCH / "programs").glob("*.c")):
            run(["gcc", "-O2", "-static", "-o", PROGRAMS / source.stem, source])
        yield PROGRAMS
    finally:
        shutil.rmtree(PROGRAMS)


def scratch_directory():
    """A directory in memory where there is one: every server's working directories are, too."""
    in_memory = "/dev/shm" if os.path.ismount("/dev/shm") else None
    return tempfile.TemporaryDirectory(prefix="cove-bench-", dir=in_memory)


def disk_directory():
    """A directory on a disk, for what must be durable; in memory that would cost nothing."""
    cache = BENCH / ".cache"
    cache.mkdir(exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="cove-bench-", dir=cache)


def tools(scratch, names):
    """Paths of what languages need, for rivals that know none; Go's library is built beforehand.

    `names` are those that are wanted: `go`, `node`, `java`. What is not installed is left out, and
    the batches that need it say so.
    """
    found, places = {}, TOOL_PLACES
    if "go" in names and (go := shutil.which("go", path=places)):
        cache = PROGRAMS / "gocache"
        env = {**os.environ, "GOCACHE": str(cache), "GOPATH": str(scratch / "go")}
        env |= {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOTELEMETRY": "off", "GOFLAGS": ""}
        say("building what Go programs import")
        run([go, "build", "-ldflags=-s -w", "fmt", "os", "strings"], env=env, cwd=scratch)
        found |= {"go": os.path.realpath(go), "gocache": str(cache)}
    if "node" in names and (node := shutil.which("node", path=places)):
        found["node"] = os.path.realpath(node)
    if "java" in names:
        for name in ("java", "javac"):
            if path := shutil.which(name, path=places):
                found[name] = os.path.realpath(path)
    return found


# --- servers


def free_port():
    """A port of the loopback interface that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def server(argv, log_path, **options):
    """A server process that is stopped, gently first, when the block ends."""
    with open(log_path, "wb") as log:
        try:
            process = subprocess.Popen(
                argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, **options
            )
        except OSError as error:
            raise Unavailable(f"`{argv[0]}` cannot be started: {error.strerror}") from error
        try:
            yield process
        finally:
            stop(process, argv[0])


def stop(process, name):
    """Ends a process, gently first."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        say(f"{name} did not stop within {STOP_SECONDS_MAX} s and is killed")
        process.kill()
        process.wait()


def wait_until(ready, process, log_path, name):
    """Waits for a server until `ready` returns something, and returns that."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError, ValueError):
            if found := ready():
                return found
        time.sleep(0.02)
    tail = " / ".join(machine.read(log_path).strip().splitlines()[-5:])
    raise Unavailable(f"{name} did not start: {tail or 'no message'}")


def get_json(url, token):
    """A JSON document that a server of ours shows."""
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=5) as reply:
        return json.load(reply)


# Instead of Cove's own C: the same command line as for every other rival (`COMPILE` of the load
# generator).
C_LANGUAGE_TOML = """\
[languages.c]
extensions = ["c"]
entry = "main.c"
[[languages.c.ways]]
version = "gcc"
compile = ["{gcc}", "-O1", "-o", "program", "main.c"]
artifacts = { programs = ["program"] }
run = ["./program", "{args}"]
"""


def cove_binary(path=None):
    """The cove to run: `path`, or this checkout's, built in release."""
    if path is None:
        say("building cove")
        run(["cargo", "build", "--release", "--locked", "-p", "cove"], cwd=ROOT)
    return os.path.abspath(path or ROOT / "target" / "release" / "cove")


def cove_command(binary, directory, workers, more="", http="127.0.0.1:0"):
    """The command line of a server with its state below `directory`."""
    languages, config = directory / "languages.toml", directory / "cove.toml"
    languages.write_text(C_LANGUAGE_TOML, encoding="utf-8")
    config.write_text(
        f'[executions]\nrunning_max = {workers}\nlanguages = "{languages}"\n{more}',
        encoding="utf-8",
    )
    data = directory / "cove"
    return [binary, "serve", "--data-dir", data, "--http", http, "--config", config]


@contextlib.contextmanager
def cove(directory, workers, path=None, more="", name=COVE):
    """`cove serve` with an empty data directory on a disk, which is where its queue is.

    `more` is added to its configuration.
    """
    binary = cove_binary(path)
    log = directory / "cove.log"
    with disk_directory() as disk:
        disk = pathlib.Path(disk)
        data = disk / "cove"
        with server(cove_command(binary, disk, workers, more), log) as process:
            addresses = data / "addresses.json"
            address = wait_until(
                lambda: json.loads(addresses.read_text())["http"], process, log, name
            )
            token = run([binary, "token", "--data-dir", data]).strip()
            yield {
                "name": name,
                "pid": process.pid,
                "version": first_line([binary, "--version"]),
                "options": f"serve with running_max = {workers}; data on disk",
                "spec": {"kind": "cove", "address": address, "token": token},
            }


class Restartable:
    """A `cove serve` that can be killed and started again, with the same state and address."""

    def __init__(self, directory, workers, path=None):
        self.binary = cove_binary(path)
        self.disk = disk_directory()
        self.log = directory / "restarted.log"
        http = f"127.0.0.1:{free_port()}"
        place = pathlib.Path(self.disk.name)
        self.argv = cove_command(self.binary, place, workers, http=http)
        self.address, self.data, self.process = http, place / "cove", None

    def start(self, wait=True):
        """The process and a client of it. Without `wait` it may not listen yet."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        if wait:
            addresses = self.data / "addresses.json"
            wait_until(lambda: addresses.read_text(), self.process, self.log, COVE)
        token = run([self.binary, "token", "--data-dir", self.data]).strip()
        return self.process, Client(self.address, token)

    def stop(self):
        """Stops it for good and removes its state. May be called twice."""
        if self.process is not None:
            stop(self.process, COVE)
            self.process = None
        self.disk.cleanup()


@contextlib.contextmanager
def go_judge(directory, parallelism, path=None, name=GO_JUDGE):
    """go-judge with its default mounts, in memory, without logs, with prepared containers."""
    binary = path or shutil.which("go-judge")
    if binary is None:
        raise Unavailable(
            "no `go-judge` on PATH: install it as its documentation says, or use --go-judge"
        )
    working, log = directory / name, directory / f"{name}.log"
    # An empty directory: a mount.yaml found in it would replace the default mounts.
    working.mkdir()
    address, token = f"127.0.0.1:{free_port()}", hashlib.sha256(os.urandom(16)).hexdigest()
    prefix = f"cove-bench-gojudge-{os.getpid()}-{parallelism}"
    options = ["-parallelism", str(parallelism), "-pre-fork", str(2 * parallelism), "-silent"]
    argv = [os.path.abspath(binary), "-http-addr", address, "-cgroup-prefix", prefix, *options]
    # The token goes through the environment, so that no process list shows it.
    environment = {**os.environ, "ES_AUTH_TOKEN": token}
    try:
        with server(argv, log, cwd=working, env=environment) as process:
            about = wait_until(
                lambda: get_json(f"http://{address}/version", token), process, log, name
            )
            yield {
                "name": name,
                "pid": process.pid,
                "version": f"{about.get('buildVersion')}, {about.get('goVersion')}",
                "options": " ".join(options),
                "spec": {"kind": "go-judge", "address": address, "token": token},
            }
    finally:
        remove_cgroups(prefix)


@contextlib.contextmanager
def bullmq(directory, install):
    """A Redis server of our own and a Node worker that does nothing, each a process."""
    for program in ("node", "npm", "redis-server"):
        if shutil.which(program) is None:
            raise Unavailable(f"`{program}` is not installed")
    scripts = bullmq_scripts(install)
    port, queue = free_port(), "bench"
    # A job that was accepted survives the process, as in Cove's store.
    durable = ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
    log, worker_log = directory / "redis.log", directory / "bullmq.log"
    with disk_directory() as disk, contextlib.ExitStack() as stack:
        argv = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", disk, *durable]
        redis = stack.enter_context(server(argv, log))
        wait_until(lambda: socket.create_connection(("127.0.0.1", port)).close() or True,
                   redis, log, "redis-server")  # fmt: skip
        argv = ["node", scripts / "worker.mjs", str(port), queue, str(BULLMQ_CONCURRENCY)]
        worker = stack.enter_context(server(argv, worker_log))
        wait_until(lambda: "ready" in machine.read(worker_log), worker, worker_log, BULLMQ)
        version = json.loads((scripts / "package.json").read_text())["dependencies"]["bullmq"]
        yield {
            "name": BULLMQ,
            "pid": worker.pid,
            "version": f"{version}, node {first_line(['node', '--version'])}, "
            f"redis {first_line(['redis-server', '--version']).split('v=')[-1].split()[0]}",
            "options": f"worker concurrency {BULLMQ_CONCURRENCY}; Redis with appendfsync everysec",
            "spec": {"kind": "bullmq", "port": port, "queue": queue},
            "load": ["node", scripts / "producer.mjs"],
        }


def bullmq_scripts(install):
    """Where the scripts are with what they import beside them, installed if need be."""
    source, target = BENCH / "bullmq", BENCH / ".cache" / "bullmq"
    target.mkdir(parents=True, exist_ok=True)
    lock = (source / "package-lock.json").read_bytes()
    done = target / "installed"
    for path in source.iterdir():
        shutil.copy(path, target / path.name)
    if not done.exists() or done.read_bytes() != lock:
        if not install:
            raise Unavailable("BullMQ is not installed (without --no-install it would be)")
        say("installing BullMQ")
        # Not `ci`: it wants builds for other systems in the lock file, which are left out of it.
        run(["npm", "install", "--ignore-scripts", "--no-progress"], cwd=target)
        done.write_bytes(lock)
    return target


def remove_cgroups(name):
    """Removes the empty control groups that a rival called `name` left in any hierarchy."""
    for path in sorted(machine.cgroup_directories(), key=len, reverse=True):
        if f"/{name}" in path:
            with contextlib.suppress(OSError):
                os.rmdir(path)


# --- rivals that are started anew for every job


def ensure_package(name, install):
    """The path of a program that a Debian package brings, installed if need be."""
    program, package = PACKAGES[name]
    # Some users' PATH lacks the directory that runc is in.
    search = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    if (path := shutil.which(program, path=search)) is not None:
        return path
    if not install or shutil.which("apt-get") is None or os.geteuid() != 0:
        raise Unavailable(f"`{program}` is not installed (package {package})")
    say(f"installing {package}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "install", "-y", "--no-install-recommends", package], env=quiet)
    if (path := shutil.which(program, path=search)) is None:
        raise Unavailable(f"package {package} brought no `{program}`")
    return path


def process_rival(name, version, options, launcher, scratch, parallelism):
    """A rival that the load generator starts itself."""
    spec = {
        "kind": "process",
        "launcher": launcher,
        "scratch": str(scratch),
        "parallelism": parallelism,
    }
    return {"name": name, "version": version, "options": options, "spec": spec}


def bare(scratch, parallelism):
    """No sandbox at all: what the program costs by itself."""
    return process_rival(
        BARE, "fork and exec", "no isolation, no limits", {"kind": "bare"}, scratch, parallelism
    )


def root_links():
    """Names in / that are links into /usr, as merged systems have them."""
    return [
        (n, os.readlink(f"/{n}"))
        for n in ("bin", "lib", "lib64", "sbin")
        if os.path.islink(f"/{n}")
    ]


def extra_binds():
    """What of the host programs need besides /usr."""
    wanted = ["/etc/alternatives", "/etc/ld.so.cache"]
    wanted += [f"/{n}" for n in ("bin", "lib", "lib64", "sbin") if not os.path.islink(f"/{n}")]
    return [path for path in wanted if os.path.exists(path)]


def bubblewrap(scratch, parallelism, install):
    """bwrap with every namespace, no capabilities, /usr read-only and the job's directory at /w."""
    path = ensure_package(BUBBLEWRAP, install)
    argv = [path, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    argv += ["--ro-bind", "/usr", "/usr"]
    for name, target in root_links():
        argv += ["--symlink", target, f"/{name}"]
    for source in extra_binds():
        argv += ["--ro-bind", source, source]
    argv += ["--proc", "/proc", "--dev", "/dev", "--size", str(TMPFS_BYTES), "--tmpfs", "/tmp"]
    argv += ["--bind", "{workdir}", WORKDIR_INSIDE, "--chdir", WORKDIR_INSIDE, "--"]
    options = "all namespaces, no capabilities; it has no memory, process or CPU limits"
    launcher = {"kind": "prefix", "argv": argv}
    return process_rival(
        BUBBLEWRAP, first_line([path, "--version"]), options, launcher, scratch, parallelism
    )


@contextlib.contextmanager
def runc(scratch, parallelism, limits, install):
    """runc on a minimal bundle: what `runc spec` writes, with the mounts of the other rivals."""
    path = ensure_package(RUNC, install)
    bundle, state = scratch / "runc", scratch / "runc-state"
    (bundle / "rootfs").mkdir(parents=True)
    run([path, "spec", "--bundle", bundle])
    for name, target in root_links():
        (bundle / "rootfs" / name).symlink_to(target)
    config = json.loads((bundle / "config.json").read_text())
    template = bundle / "template.json"
    template.write_text(
        json.dumps(runc_config(config, bundle / "rootfs", limits)), encoding="utf-8"
    )
    parent = f"/cove-bench-runc-{os.getpid()}"
    launcher = {
        "kind": "runc",
        "argv": [path, "--root", str(state)],
        "template": str(template),
        "workdir_inside": WORKDIR_INSIDE,
        "cgroup_parent": parent,
    }
    options = "`runc spec` without capabilities, memory and process limits by cgroup"
    try:
        yield process_rival(
            RUNC, first_line([path, "--version"]), options, launcher, scratch, parallelism
        )
    finally:
        remove_cgroups(parent.lstrip("/"))


def runc_config(config, rootfs, limits):
    """The bundle's configuration for any job; what differs between jobs is filled in later."""
    config["root"] = {"path": str(rootfs), "readonly": True}
    process = config["process"]
    process["terminal"] = False
    process["noNewPrivileges"] = True
    process["capabilities"] = {}
    process["rlimits"] = [{"type": "RLIMIT_NOFILE", "hard": OPEN_FILES, "soft": OPEN_FILES}]
    config["hostname"] = "sandbox"

    def bind(source, destination, mode):
        options = ["bind", mode, "nosuid", "nodev"]
        return {"destination": destination, "type": "bind", "source": source, "options": options}

    # No job needs these, and no other rival mounts them.
    left_out = ("/sys", "/sys/fs/cgroup", "/dev/mqueue")
    mounts = [m for m in config["mounts"] if m["destination"] not in left_out]
    mounts += [bind(source, source, "ro") for source in ("/usr", *extra_binds())]
    tmpfs = ["nosuid", "nodev", f"size={TMPFS_BYTES}"]
    mounts.append({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": tmpfs})
    mounts.append(bind("", WORKDIR_INSIDE, "rw"))
    config["mounts"] = mounts
    config["linux"]["resources"] = {
        "memory": {"limit": limits["memory_bytes"]},
        "pids": {"limit": limits["processes"]},
    }
    return config
