"""What the cases stand on: databases as Debian ships them, a Cove before them, and the client."""

import contextlib
import os
import pathlib
import platform
import pwd
import shutil
import subprocess
import tempfile

import machine
import rivals
from bouncer.mysql import secret as mysql_secret
from bouncer.poolers import Endpoint
from rivals import Unavailable
from sessions.servers import Cove

HERE = pathlib.Path(__file__).resolve().parent
# A role without rights of its own, as a grant should have.
USER, PASSWORD = "clerk", "known-to-everybody"
DATABASE = "shop"
# Server connections that all sandboxes share.
POOL = 20
CLIENT = "client"
CONFIG = """
[bouncer]
listen = "127.0.0.1:{port}"
[bouncer.mysql]
listen = "127.0.0.1:{mysql_port}"
# A check has a connection of its own, which would be counted with those of the pool.
[bouncer.health]
interval_s = 0
[bouncer.defaults.limits]
server_connections_max = {pool}
[[bouncer.tenants]]
name = "shop"
server = "127.0.0.1:{postgres}"
database = "{database}"
users = [{{ name = "{user}", password = "{password}" }}]
"""
MYSQL_CONFIG = """
[[bouncer.tenants]]
name = "judge"
engine = "mysql"
server = "127.0.0.1:{mariadb}"
database = "{database}"
users = [{{ name = "{user}", password = "{password}" }}]
"""


def build_client():
    """The path of the client, which needs no library of wherever it runs."""
    rivals.say("building the gateway's client")
    target = f"{platform.machine()}-unknown-linux-gnu"
    argv = ["cargo", "build", "--release", "--locked", "--target", target]
    argv += ["--target-dir", rivals.BENCH / "target"]
    env = {**os.environ, "RUSTFLAGS": "-C target-feature=+crt-static"}
    rivals.run(argv, cwd=HERE, env=env)
    return rivals.BENCH / "target" / target / "release" / "bench-gateway"


class Database(Endpoint):
    """A server of ours."""

    def cpu_us(self):
        """CPU time of its processes, and of those that have ended."""
        return machine.tree_cpu_seconds(self.pid) * 1e6


@contextlib.contextmanager
def place(*owners):
    """A directory that a server has to itself, as the first of these users that there is."""
    with tempfile.TemporaryDirectory(prefix="cove-bench-database-") as directory:
        known = {user.pw_name: user for user in pwd.getpwall()}
        owner = next(known[name] for name in owners if name in known)
        os.chown(directory, owner.pw_uid, owner.pw_gid)
        yield {"user": owner.pw_name, "cwd": directory}


@contextlib.contextmanager
def postgres(scratch):
    """PostgreSQL with its defaults, of which one is a hundred connections, and a role."""
    places = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: p.parts[-2])
    if not places:
        raise Unavailable("PostgreSQL is not installed")
    programs = places[-1]
    with place("postgres") as as_owner:
        directory, port = as_owner["cwd"], rivals.free_port()
        data = f"{directory}/data"
        made = [programs / "initdb", "--username=postgres", "--encoding=UTF8", "--no-locale"]
        made += ["--auth-local=trust", "--auth-host=scram-sha-256", "--no-sync"]
        rivals.run([*made, "--pgdata", data], **as_owner)
        argv = [programs / "postgres", "-D", data, "-p", str(port), "-k", directory]
        argv += ["-h", "127.0.0.1"]
        log = pathlib.Path(scratch) / f"postgres-{port}.log"
        with rivals.server(argv, log, **as_owner) as process:
            ready = pathlib.Path(data) / "postmaster.pid"
            rivals.wait_until(
                lambda: ready.read_text().rstrip().endswith("ready"), process, log, "PostgreSQL"
            )
            version = rivals.first_line([programs / "postgres", "--version"])
            psql = [programs / "psql", "-XAtq", "-h", directory, "-p", str(port), "-U", "postgres"]
            made = f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'"
            rivals.run([*psql, "-c", made, "-c", f"CREATE DATABASE {DATABASE}"])
            yield Database("postgres", port, directory, process.pid, version, user="postgres")


@contextlib.contextmanager
def mariadb(scratch):
    """MariaDB with its defaults, and a user with a password."""
    for name in ("mariadbd", "mariadb-install-db", "mariadb"):
        if shutil.which(name) is None:
            raise Unavailable(f"`{name}` is not installed")
    # Whoever unpacked it without installing it has no user for it.
    with place("mysql", "nobody") as as_owner:
        directory, port = as_owner["cwd"], rivals.free_port()
        data = f"--datadir={directory}/data"
        made = ["mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal"]
        rivals.run([*made, "--skip-test-db", data], **as_owner)
        socket = f"--socket={directory}/mysql.sock"
        argv = [shutil.which("mariadbd"), "--no-defaults", data, f"--port={port}", socket]
        argv += ["--bind-address=127.0.0.1", f"--pid-file={directory}/pid", "--skip-name-resolve"]
        log = pathlib.Path(scratch) / "mariadb.log"
        with rivals.server(argv, log, **as_owner) as process:
            client = ["mariadb", "--no-defaults", "--user=root", socket, "-e"]

            def answers():
                with contextlib.suppress(Unavailable):
                    rivals.run([*client, "SELECT 1"])
                    return True
                return False

            rivals.wait_until(answers, process, log, "MariaDB")
            made = f"CREATE DATABASE {DATABASE}; CREATE USER {USER}@'%' IDENTIFIED BY PASSWORD"
            made += f" '{mysql_secret(PASSWORD)}'; GRANT ALL ON {DATABASE}.* TO {USER}@'%'"
            rivals.run([*client, made])
            version = rivals.first_line(["mariadbd", "--version"])
            yield Database("mysql", port, directory, process.pid, version, user="root")


class Gateway(Cove):
    """`cove serve` with sessions and a bouncer before these databases."""

    def __init__(self, binary, scratch, postgres, mariadb):
        self.port, self.mysql_port = rivals.free_port(), rivals.free_port()
        words = {"port": self.port, "mysql_port": self.mysql_port, "pool": POOL}
        words |= {"user": USER, "password": PASSWORD, "database": DATABASE}
        config = CONFIG.format(**words, postgres=postgres.port)
        if mariadb:
            config += MYSQL_CONFIG.format(**words, mariadb=mariadb.port)
        super().__init__(binary, scratch, {"ready": 0}, bottom=config)

    def cpu_us(self):
        """CPU time of the server's own process, of all threads that it has: proc_pid_schedstat."""
        threads = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        spent = (machine.read(thread / "schedstat").split() for thread in threads)
        return sum(int(fields[0]) for fields in spent if fields) / 1e3

    def session(self, grants=(), **more):
        return self.call("POST", "/v1/sessions", {"grants": list(grants), **more})["id"]

    def upload(self, session, name, content):
        """A program into the directory where commands run."""
        path = f"/v1/sessions/{session}/files/{name}?mode=0755"
        self.call("PUT", path, content, 200, 201, 204)

    def exec_request(self, session, argv):
        return "POST", f"/v1/sessions/{session}/exec", {"argv": argv}


def arguments(protocol, address, password="", **more):
    """What the client is told on its command line."""
    words = {"protocol": protocol, "address": address, "user": USER, "database": DATABASE}
    return [f"{key}={value}" for key, value in {**words, "password": password, **more}.items()]


def outside(client, words):
    """The client outside of any sandbox, as a process that was started."""
    pipe = subprocess.PIPE
    return subprocess.Popen([client, *words], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
