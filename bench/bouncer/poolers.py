"""PostgreSQL and the poolers before it: how each is found, configured, started and stopped.

All have the same: pooling of transactions, 20 server connections to each database, prepared
statements where they have them, users who log in with SCRAM-SHA-256 by a secret, no TLS, no log of
connections. The database `bench` is reached over TCP on the server's side, `benchu` over its Unix
socket; both are the same database there.
"""

import base64
import contextlib
import functools
import hashlib
import hmac
import os
import pathlib
import pwd
import shutil
import tempfile

import rivals
from rivals import Unavailable

COVE, PGBOUNCER, PGBOUNCER_RESET = "cove", "PgBouncer", "PgBouncer, reset always"
ODYSSEY, PG_DOORMAN, DIRECT = "Odyssey", "pg_doorman", "direct"
# The order in which they are always named.
ALL = (COVE, PGBOUNCER, PG_DOORMAN, ODYSSEY, DIRECT)

POOL = 20
USER, PASSWORD = "bench", "known-to-everybody"
# With `shared`, two tenants share the connections of one server.
TENANTS = ("a", "b")
CLIENTS_MAX = 12_000
SERVER_CLIENTS_MAX = 1_400
# The same server under another address, as Cove counts connections by address.
SHARED_HOST = "127.0.0.2"
SCALE = 10
# A client hashes so often for each login, on the same cores, and with the usual 4096 rounds does
# little else. Whoever has the secret hashes nothing, so a pooler is not spared anything.
ITERATIONS = 64
# Odyssey takes no secret with fewer, and so has no part where logins are measured.
USUAL_ITERATIONS = 4096
# Where they are looked for when the environment does not say.
PLACES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
# After this somebody who waits for a connection is refused.
WAIT_SECONDS = 20
# As an entry of pg_hba.conf is divided: what comes through a pooler is trusted, which costs
# everybody the same, and who comes directly has to log in.
HBA = """local all direct scram-sha-256
host all direct 127.0.0.0/8 scram-sha-256
local all all trust
host all all 127.0.0.0/8 trust
"""


@functools.cache
def scram_secret(password=PASSWORD, iterations=ITERATIONS):
    """A secret as PostgreSQL keeps it: RFC 5802, section 3."""
    salt = hashlib.sha256(password.encode()).digest()[:16]
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    client = hmac.digest(salted, b"Client Key", "sha256")
    stored = hashlib.sha256(client).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    salt, stored, server = (base64.b64encode(part).decode() for part in (salt, stored, server))
    return f"SCRAM-SHA-256${iterations}:{salt}${stored}:{server}"


class Endpoint:
    """Where a pooler listens and who it is."""

    def __init__(self, name, port, directory, pid, version, user=USER):
        self.name, self.port, self.directory = name, port, str(directory)
        self.pid, self.version, self.user = pid, version, user

    def host(self, unix):
        return self.directory if unix else "127.0.0.1"

    def address(self, unix):
        """As `socket.connect` takes it."""
        if unix:
            return f"{self.directory}/.s.PGSQL.{self.port}"
        return ("127.0.0.1", self.port)

    def database(self, unix):
        return "benchu" if unix else "bench"


# --- the server


class Server(Endpoint):
    """PostgreSQL, as Debian ships it but for what it may hold; it flushes nothing."""

    def database(self, _unix):
        return "bench"

    def sql(self, text, database="bench"):
        """What psql prints of a statement, as the superuser."""
        argv = [self.programs / "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", self.directory]
        argv += ["-p", str(self.port), "-U", "postgres", "-d", database, "-c", text]
        return rivals.run(argv).strip()


@contextlib.contextmanager
def postgres(scratch):
    """A server with the tables of pgbench."""
    places = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: p.parts[-2])
    if not places:
        raise Unavailable("PostgreSQL is not installed")
    owner = pwd.getpwnam("postgres")
    with tempfile.TemporaryDirectory(prefix="cove-bench-postgres-") as directory:
        os.chown(directory, owner.pw_uid, owner.pw_gid)
        os.chmod(directory, 0o755)
        as_owner = {"user": "postgres", "cwd": directory}
        data, port = f"{directory}/data", rivals.free_port()
        made = [places[-1] / "initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8"]
        rivals.run([*made, "--no-locale", "--no-sync", "--pgdata", data], **as_owner)
        pathlib.Path(data, "pg_hba.conf").write_text(HBA, encoding="utf-8")
        argv = [places[-1] / "postgres", "-D", data, "-p", str(port), "-k", directory]
        argv += ["-h", f"127.0.0.1,{SHARED_HOST}", "-c", f"max_connections={SERVER_CLIENTS_MAX}"]
        argv += ["-c", "shared_buffers=384MB", "-c", "fsync=off", "-c", "log_min_messages=fatal"]
        log = pathlib.Path(scratch) / "postgres.log"
        with rivals.server(argv, log, **as_owner) as process:
            ready = pathlib.Path(data) / "postmaster.pid"
            rivals.wait_until(
                lambda: ready.read_text().rstrip().endswith("ready"), process, log, "PostgreSQL"
            )
            version = rivals.first_line([places[-1] / "postgres", "--version"])
            server = Server(DIRECT, port, directory, process.pid, version, user="direct")
            server.programs = places[-1]
            fill(server)
            yield server


def fill(server):
    server.sql("CREATE DATABASE bench", database="postgres")
    for name in (USER, "direct", *TENANTS):
        server.sql(f"CREATE ROLE {name} LOGIN PASSWORD '{scram_secret()}'")
        server.sql(f"GRANT ALL ON DATABASE bench TO {name}; GRANT ALL ON SCHEMA public TO {name}")
    argv = [server.programs / "pgbench", "-i", "-q", "-s", str(SCALE), "-h", server.directory]
    rivals.run([*argv, "-p", str(server.port), "-U", "postgres", "bench"])
    server.sql("GRANT ALL ON ALL TABLES IN SCHEMA public TO public")


# --- the poolers


def found(variable, *names):
    """The program of a rival: what the environment names, or what is installed."""
    if named := os.environ.get(variable):
        return named
    for name in names:
        if path := shutil.which(name) or shutil.which(name, path=PLACES):
            return path
    raise Unavailable(f"`{names[0]}` is not installed, and {variable} is not set")


class Place:
    """Where a pooler has its files, owned by whoever it runs as."""

    def __init__(self, scratch, name):
        self.directory = pathlib.Path(scratch) / name.replace(" ", "-").replace(",", "")
        self.directory.mkdir()
        self.log = self.directory / "log"
        self.port = rivals.free_port()

    def write(self, name, text):
        path = self.directory / name
        path.write_text(text, encoding="utf-8")
        return path


def reached(endpoint, unix):
    from bouncer.wire import Client

    with Client(endpoint, unix) as client:
        return client.query("SELECT 1") == [[b"1"]]


@contextlib.contextmanager
def started(name, place, argv, version, reached=reached, kind=Endpoint, **options):
    """A pooler that was started, and reached, and is ended."""
    with rivals.server(argv, place.log, **options) as process:
        endpoint = kind(name, place.port, place.directory, process.pid, version)
        for unix in (False, True):
            rivals.wait_until(lambda: reached(endpoint, unix), process, place.log, name)
        yield endpoint


@contextlib.contextmanager
def pgbouncer(scratch, server, name=PGBOUNCER, more=""):
    binary = found("COVE_BENCH_PGBOUNCER", "pgbouncer")
    place = Place(scratch, name)
    users = "".join(f'"{user}" "{scram_secret()}"\n' for user in (USER, *TENANTS))
    users = place.write("users.txt", users)
    tcp, unix = (
        f"host=127.0.0.1 port={server.port}",
        f"host={server.directory} port={server.port}",
    )
    version = rivals.first_line([binary, "--version"])
    # Debian 12's has no prepared statements in transaction mode.
    number = [int(part) for part in version.split()[-1].split(".")[:2]]
    prepared = "max_prepared_statements = 200\n" if number >= [1, 21] else ""
    ini = place.write(
        "pgbouncer.ini",
        f"""[databases]
bench = {tcp} dbname=bench
benchu = {unix} dbname=bench
shared = {tcp} dbname=bench max_db_connections={POOL}
divided = {tcp} dbname=bench pool_size={POOL // len(TENANTS)}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {place.port}
unix_socket_dir = {place.directory}
auth_type = scram-sha-256
auth_file = {users}
pool_mode = transaction
default_pool_size = {POOL}
max_client_conn = {CLIENTS_MAX}
query_wait_timeout = {WAIT_SECONDS}
log_connections = 0
log_disconnections = 0
log_stats = 0
stats_period = 3600
{prepared}{more}""",
    )
    # It refuses to be root.
    give_away(place)
    with started(name, place, [binary, "-q", ini], version, user="nobody") as endpoint:
        yield endpoint


@contextlib.contextmanager
def pgbouncer_reset(scratch, server):
    more = "server_reset_query_always = 1\n"
    with pgbouncer(scratch, server, PGBOUNCER_RESET, more) as endpoint:
        yield endpoint


def give_away(place):
    owner = pwd.getpwnam("nobody")
    for path in (place.directory, *place.directory.iterdir()):
        os.chown(path, owner.pw_uid, owner.pw_gid)
    os.chmod(place.directory, 0o755)


@contextlib.contextmanager
def odyssey(scratch, server):
    binary = found("COVE_BENCH_ODYSSEY", "odyssey")
    place = Place(scratch, ODYSSEY)
    # It knows one directory for all Unix sockets, its own and the servers'.
    socket = f".s.PGSQL.{server.port}"
    (place.directory / socket).symlink_to(f"{server.directory}/{socket}")
    rule = f"""user "{USER}" {{
    authentication "scram-sha-256"
    password "{scram_secret(iterations=USUAL_ITERATIONS)}"
    storage "STORAGE"
    storage_db "bench"
    storage_user "{USER}"
    pool "transaction"
    pool_size {POOL}
    pool_discard no
    pool_reserve_prepared_statement yes
    log_debug no
  }}"""
    config = place.write(
        "odyssey.conf",
        f"""daemonize no
log_to_stdout yes
log_format "%p %t %l %m\\n"
log_session no
log_query no
log_stats no
stats_interval 3600
workers 1
nodelay yes
unix_socket_dir "{place.directory}"
unix_socket_mode "0777"
locks_dir "{place.directory}"
listen {{
  host "127.0.0.1"
  port {place.port}
  tls "disable"
}}
listen {{
  port {place.port}
  tls "disable"
}}
storage "tcp" {{
  type "remote"
  host "127.0.0.1"
  port {server.port}
}}
storage "unix" {{
  type "remote"
  port {server.port}
}}
database "bench" {{
  {rule.replace("STORAGE", "tcp")}
}}
database "benchu" {{
  {rule.replace("STORAGE", "unix")}
}}
""",
    )
    version = rivals.first_line([binary, "--version"])
    with started(ODYSSEY, place, [binary, config], version) as endpoint:
        yield endpoint


@contextlib.contextmanager
def pg_doorman(scratch, server):
    binary = found("COVE_BENCH_PG_DOORMAN", "pg_doorman")
    place = Place(scratch, PG_DOORMAN)
    pools = "".join(
        f"""
[pools.{database}]
server_host = "{host}"
server_port = {server.port}
server_database = "bench"
pool_mode = "transaction"
[pools.{database}.users.0]
username = "{USER}"
password = "{scram_secret()}"
server_username = "{USER}"
server_password = "{PASSWORD}"
pool_size = {POOL}
"""
        for database, host in (("bench", "127.0.0.1"), ("benchu", server.directory))
    )
    config = place.write(
        "pg_doorman.toml",
        f"""[general]
host = "127.0.0.1"
port = {place.port}
unix_socket_dir = "{place.directory}"
unix_socket_mode = "0777"
max_connections = {CLIENTS_MAX}
log_client_connections = false
log_client_disconnections = false
worker_threads = {os.cpu_count()}
prepared_statements = true
admin_username = "admin"
admin_password = "admin"
[pools]
{pools}""",
    )
    version = rivals.first_line([binary, "--version"])
    with started(PG_DOORMAN, place, [binary, config], version) as endpoint:
        yield endpoint


@contextlib.contextmanager
def cove(scratch, server, path=None):
    binary = path or rivals.cove_binary()
    place = Place(scratch, COVE)
    user = f'{{ name = "NAME", password = "{scram_secret()}" }}'
    tenants = "".join(
        f"""
[[bouncer.tenants]]
name = "{name}"
server = "{address}"
database = "bench"
users = [{user.replace("NAME", login)}]
"""
        for name, address, login in (
            ("bench", f"127.0.0.1:{server.port}", USER),
            ("benchu", f"{server.directory}:{server.port}", USER),
            *((name, "shared", name) for name in TENANTS),
        )
    )
    config = place.write(
        "cove.toml",
        f"""[bouncer]
listen = "127.0.0.1:{place.port}"
unix_socket_dir = "{place.directory}"
clients_max = {CLIENTS_MAX}
[bouncer.servers.shared]
address = "{SHARED_HOST}:{server.port}"
connections_max = {POOL}
[bouncer.defaults.limits]
server_connections_max = {POOL}
wait_s = {WAIT_SECONDS}
{tenants}""",
    )
    data = place.directory / "data"
    argv = [binary, "serve", "--data-dir", data, "--http", "127.0.0.1:0", "--config", config]
    version = rivals.first_line([binary, "--version"])
    with started(COVE, place, argv, version) as endpoint:
        yield endpoint


MAKERS = {
    COVE: cove,
    PGBOUNCER: pgbouncer,
    PGBOUNCER_RESET: pgbouncer_reset,
    ODYSSEY: odyssey,
    PG_DOORMAN: pg_doorman,
}
