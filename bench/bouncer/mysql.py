"""MariaDB and Cove before it, sysbench as load, and the cases of MySQL's side.

As with PostgreSQL: pooling of transactions, 20 server connections, no TLS, a user who logs in by a
secret. Beside it stands Cove before PostgreSQL under the same load: sysbench speaks both protocols.
"""

import contextlib
import hashlib
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import tempfile

import rivals
from bouncer.load import WARM_SECONDS, Failed, Load
from bouncer.poolers import (
    CLIENTS_MAX, COVE, PASSWORD, POOL, SERVER_CLIENTS_MAX, USER, WAIT_SECONDS, Endpoint, Place,
    started,
)  # fmt: skip
from rivals import Unavailable

COVE_MYSQL, DIRECT_MYSQL = "cove, MySQL", "direct, MySQL"
ALL = (COVE_MYSQL, DIRECT_MYSQL)
# Who takes part in the case.
RIVALS = (*ALL, COVE)

SELECT, READ_WRITE = "point_select", "read_write"
# sysbench's words for statements that are prepared and that are not.
PREPARED, TEXT = "auto", "disable"
CLIENTS = (1, 10, 100, 1000)
# Of which PostgreSQL's relay is beside MySQL's.
COMPARED_CLIENTS = (10, 100)
TABLES, TABLE_ROWS = 4, 25_000
DATABASE, DIRECT_USER = "bench", "direct"
# Each client of sysbench prepares all statements for each table.
STATEMENTS_MAX = 100_000


def secret(password=PASSWORD):
    """As `mysql_native_password` keeps it."""
    twice = hashlib.sha1(hashlib.sha1(password.encode()).digest())
    return f"*{twice.hexdigest().upper()}"


# --- the server


class Server(Endpoint):
    """MariaDB, as Debian ships it but for what it may hold; it flushes nothing."""

    def address(self, unix):
        """As a client takes it on its command line."""
        if unix:
            return [f"--socket={self.directory}/mysql.sock"]
        return ["--host=127.0.0.1", f"--port={self.port}"]

    def client(self, user="root", unix=True):
        argv = ["mariadb", "--no-defaults", "-NB", "-n", f"--user={user}"]
        if user != "root":
            argv.append(f"--password={PASSWORD}")
        return [*argv, *self.address(unix)]

    def sql(self, text, **options):
        """What the client prints of a statement."""
        return rivals.run([*self.client(**options), "-e", text]).strip()


@contextlib.contextmanager
def mariadb(scratch):
    """A server with the tables of sysbench."""
    for name in ("mariadbd", "mariadb-install-db", "mariadb", "sysbench"):
        if shutil.which(name) is None:
            raise Unavailable(f"`{name}` is not installed")
    owner = pwd.getpwnam("mysql")
    with tempfile.TemporaryDirectory(prefix="cove-bench-mariadb-") as directory:
        os.chown(directory, owner.pw_uid, owner.pw_gid)
        os.chmod(directory, 0o755)
        as_owner = {"user": "mysql", "cwd": directory}
        data, port = f"--datadir={directory}/data", rivals.free_port()
        made = ["mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal"]
        rivals.run([*made, "--skip-test-db", data], **as_owner)
        argv = [shutil.which("mariadbd"), "--no-defaults", data, f"--port={port}"]
        argv += [f"--socket={directory}/mysql.sock", f"--pid-file={directory}/pid"]
        argv += ["--bind-address=127.0.0.1", f"--max-connections={SERVER_CLIENTS_MAX}"]
        argv += ["--skip-name-resolve", "--skip-log-bin", "--innodb-buffer-pool-size=384M"]
        argv += ["--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0"]
        argv += ["--innodb-flush-method=nosync", "--table-open-cache=8000"]
        argv += [f"--max-prepared-stmt-count={STATEMENTS_MAX}", "--open-files-limit=20000"]
        log = pathlib.Path(scratch) / "mariadb.log"
        with rivals.server(argv, log, **as_owner) as process:
            version = rivals.first_line(["mariadbd", "--version"])
            server = Server(DIRECT_MYSQL, port, directory, process.pid, version, DIRECT_USER)
            rivals.wait_until(lambda: answers(server), process, log, "MariaDB")
            server.sql(f"CREATE DATABASE {DATABASE}")
            for name in (USER, DIRECT_USER):
                server.sql(
                    f"CREATE USER {name}@'%' IDENTIFIED BY PASSWORD '{secret()}';"
                    f"GRANT ALL ON {DATABASE}.* TO {name}@'%'"
                )
            fill(server)
            yield server


def answers(server, **options):
    with contextlib.suppress(Unavailable):
        return server.sql("SELECT 1", **options) == "1"
    return False


@contextlib.contextmanager
def peak(server):
    """The most connections that a server had at one time, but for the one that asks for that."""
    argv = server.client()
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as asking:

        def ask(text):
            asking.stdin.write(f"{text};\n")
            asking.stdin.flush()
            return asking.stdout.readline().split()[-1]

        ask("FLUSH STATUS; SELECT 1")
        yield lambda: int(ask("SHOW GLOBAL STATUS LIKE 'Max_used_connections'")) - 1
        asking.stdin.close()


@contextlib.contextmanager
def cove(scratch, server, path=None):
    binary = path or rivals.cove_binary()
    place = Place(scratch, COVE_MYSQL)
    config = place.write(
        "cove.toml",
        f"""[bouncer]
listen = "127.0.0.1:{rivals.free_port()}"
unix_socket_dir = "{place.directory}"
clients_max = {CLIENTS_MAX}
[bouncer.mysql]
listen = "127.0.0.1:{place.port}"
# A check has a connection of its own, which would be counted with those of the pool.
[bouncer.health]
interval_s = 0
[bouncer.defaults.limits]
server_connections_max = {POOL}
wait_s = {WAIT_SECONDS}
[[bouncer.tenants]]
name = "{DATABASE}"
engine = "mysql"
server = "127.0.0.1:{server.port}"
database = "{DATABASE}"
users = [{{ name = "{USER}", password = "{secret()}" }}]
""",
    )
    data = place.directory / "data"
    argv = [binary, "serve", "--data-dir", data, "--http", "127.0.0.1:0", "--config", config]
    version = rivals.first_line([binary, "--version"])

    def reached(endpoint, unix):
        return answers(endpoint, user=USER, unix=unix)

    with started(COVE_MYSQL, place, argv, version, reached, Server) as endpoint:
        yield endpoint


# --- the load


class Sysbench(Load):
    """One run of sysbench against an endpoint."""

    program = "sysbench"
    progress = re.compile(r"^\[ (\d+)s \] thds: \d+ tps: ([0-9.]+)")
    tells_on, other = "stdout", "stderr"
    held = False

    def __init__(self, endpoint, seconds, workload, mode, clients):
        self.endpoint, self.seconds = endpoint, max(int(round(seconds)), 1)
        self.directory = tempfile.TemporaryDirectory(prefix="cove-bench-load-")
        self.argv = command(endpoint, f"oltp_{workload}")
        self.argv += [f"--threads={clients}", f"--time={self.seconds + WARM_SECONDS + 1}"]
        self.argv += [f"--db-ps-mode={mode}", "--report-interval=1", "--percentile=99", "run"]

    def latencies(self, _begun, _ended):
        """It writes down no single times."""
        return {}

    def summary(self, _out, lines):
        """Of the whole run, its first second as well."""
        said = "\n".join(lines)
        if lost := re.search(r"reconnects:\s+([1-9]\d*)", said):
            raise Failed(f"{lost.group(1)} connections were lost")
        names = {
            "mean_ms": r"avg:\s+([0-9.]+)",
            "p99_ms": r"99th percentile:\s+([0-9.]+)",
            "ignored": r"ignored errors:\s+(\d+)",
        }
        found = {name: re.search(pattern, said) for name, pattern in names.items()}
        return {name: float(match.group(1)) for name, match in found.items() if match}


def command(endpoint, script):
    """sysbench against an endpoint of either protocol."""
    kind = "mysql" if isinstance(endpoint, Server) else "pgsql"
    values = {"host": "127.0.0.1", "port": endpoint.port, "user": endpoint.user}
    values |= {"password": PASSWORD, "db": DATABASE}
    argv = ["sysbench", script, f"--db-driver={kind}", "--rand-type=uniform"]
    argv += [f"--tables={TABLES}", f"--table-size={TABLE_ROWS}"]
    return [*argv, *(f"--{kind}-{name}={value}" for name, value in values.items())]


def fill(server):
    rivals.run([*command(server, "oltp_read_write"), "prepare"])


def fill_postgres(server):
    """The same tables, once."""
    if server.sql("SELECT to_regclass('sbtest1') IS NULL") == "t":
        fill(server)
        server.sql("GRANT ALL ON ALL TABLES IN SCHEMA public TO public")


# --- the case


def cells(options):
    """Each workload, kind of statements and number of clients; fewer for a first look."""
    numbers = COMPARED_CLIENTS if options.quick else CLIENTS
    modes, workloads = (PREPARED, TEXT), (SELECT, READ_WRITE)
    return [(False, w, mode, n) for w in workloads for n in numbers for mode in modes]


def load(server, endpoint, samples, options, cell):
    """Point selects, and transactions of 20 statements that read and write."""
    _, workload, mode, clients = cell
    if endpoint.name == COVE:
        if workload != SELECT or clients not in COMPARED_CLIENTS:
            return
        fill_postgres(server)
    run = Sysbench(endpoint, options.seconds, workload, mode, clients)
    if endpoint.name == COVE_MYSQL:
        with peak(server) as connections:
            figures = run.run()
            figures["server_connections"] = connections()
    else:
        figures = run.run()
    samples.add((workload, mode, clients), figures)
