"""The catalogs: how each is found, configured, started and stopped.

Each keeps tables in files of this machine and its state in files, too. Cove asks for a client's
access token; the Java reference server knows no authentication, and rustberg's is switched off.
"""

import base64
import contextlib
import json
import os
import pathlib
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import rivals
from rivals import Unavailable

COVE, BARE, DISK = "cove", "bare server", "fdatasync"
RUSTBERG, JAVA = "rustberg", "Java reference"
ANSWER_SECONDS_MAX = 60
JAVA_MAIN = "org.apache.iceberg.rest.RESTCatalogServer"


class Server:
    """Where a catalog listens, what its paths begin with, and what its requests carry."""

    def __init__(self, name, process, address, base, token=None):
        self.name, self.process, self.address, self.base = name, process, address, base
        self.pid, self.token, self.prefix, self.version = process.pid, token, "", ""
        # Where its tables are, and how it is started again.
        self.root, self.argv, self.environment = None, None, None

    def headers(self):
        return {"authorization": f"Bearer {self.token}"} if self.token else {}

    def path(self, rest):
        return f"{self.base}/v1/{self.prefix}{rest}"

    def ask(self, method, path, body=None, kind="application/json"):
        """The bytes of an answer."""
        return self.answer(method, path, body, kind=kind)[0]

    def answer(self, method, path, body=None, headers=None, kind="application/json"):
        """The bytes of an answer and how they are packed; an error of the server's is `OSError`."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        all_headers = {**self.headers(), "content-type": kind, **(headers or {})}
        url = f"http://{self.address}{path}"
        request = urllib.request.Request(url, data=data, headers=all_headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS_MAX) as reply:
                return reply.read(), reply.headers.get("content-encoding")
        except urllib.error.HTTPError as error:
            words = error.read()[:300].decode(errors="replace")
            raise OSError(f"{method} {path}: {error.code} {words}") from error


def directory(scratch, name):
    made = scratch / f"{name.replace(' ', '-')}-{os.urandom(3).hex()}"
    made.mkdir()
    return made


@contextlib.contextmanager
def cove(scratch, options, durability="power"):
    """`cove catalog serve`, whose commits wait for the disk unless it is told otherwise."""
    binary = rivals.cove_binary(options.cove)
    place = directory(scratch, COVE)
    with rivals.disk_directory() as disk:
        disk = pathlib.Path(disk)
        config = place / "cove.toml"
        config.write_text(f'[store]\ndurability = "{durability}"\n', encoding="utf-8")
        data, address = disk / "cove", f"127.0.0.1:{rivals.free_port()}"
        argv = [binary, "catalog", "serve", "--data-dir", data, "--http", address]
        argv += ["--config", config]
        log = place / "cove.log"
        with rivals.server(argv, log) as process:
            found = data / "addresses.json"
            rivals.wait_until(lambda: found.read_text(), process, log, COVE)
            token = rivals.run([binary, "token", "--data-dir", data]).strip()
            server = Server(COVE, process, address, "/catalog", token)
            server.argv, server.environment = argv, None
            server.prefix, server.root = "main/", data / "warehouse" / "main"
            server.token = client_token(server)
            server.version = rivals.first_line([binary, "--version"])
            yield server


def client_token(server):
    """The access token of a client who has rights by grants, as others than operators do."""
    management = f"{server.base}/management/v1"
    made = json.loads(server.ask("POST", f"{management}/clients", {"name": "bench"}))
    rights = {"principal": made["principal"], "rights": ["manage"]}
    server.ask("POST", f"{management}/main/grants", rights)
    form = {
        "grant_type": "client_credentials",
        "client_id": made["client-id"],
        "client_secret": made["client-secret"],
    }
    body = urllib.parse.urlencode(form).encode()
    kind = "application/x-www-form-urlencoded"
    path = f"{server.base}/v1/oauth/tokens"
    return json.loads(server.ask("POST", path, body, kind=kind))["access_token"]


@contextlib.contextmanager
def rustberg(scratch, _options):
    binary = os.environ.get("COVE_BENCH_RUSTBERG")
    if not binary:
        raise Unavailable("COVE_BENCH_RUSTBERG does not say where it is")
    with rivals.disk_directory() as disk:
        disk, port = pathlib.Path(disk), rivals.free_port()
        for name in ("state", "warehouse"):
            (disk / name).mkdir()
        config = disk / "rustberg.toml"
        limit = "requests_per_second = 100000000\nburst_size = 100000000\n"
        config.write_text(f"[rate_limit]\n{limit}", encoding="utf-8")
        argv = [
            binary, "--config", config, "--catalog-url", f"file://{disk}/state",
            "--warehouse", f"file://{disk}/warehouse", "--host", "127.0.0.1",
            "--port", str(port), "--insecure-http", "--no-auth", "--dev",
        ]  # fmt: skip
        log = directory(scratch, RUSTBERG) / "rustberg.log"
        environment = {**os.environ, "RUST_LOG": "error"}
        with rivals.server(argv, log, env=environment) as process:
            server = Server(RUSTBERG, process, f"127.0.0.1:{port}", "")
            rivals.wait_until(lambda: server.ask("GET", "/v1/config"), process, log, RUSTBERG)
            server.version = rivals.first_line([binary, "--version"])
            server.root, server.argv, server.environment = disk / "warehouse", argv, environment
            yield server


@contextlib.contextmanager
def java(scratch, _options):
    """Iceberg's own server of its tests, on a file of SQLite."""
    classes = os.environ.get("COVE_BENCH_ICEBERG_CLASSPATH")
    if not classes:
        raise Unavailable("COVE_BENCH_ICEBERG_CLASSPATH does not name a file with a class path")
    with rivals.disk_directory() as disk:
        disk, port = pathlib.Path(disk), rivals.free_port()
        (disk / "warehouse").mkdir()
        environment = {
            **os.environ,
            "CATALOG_WAREHOUSE": f"file://{disk}/warehouse",
            "CATALOG_URI": f"jdbc:sqlite:{disk}/catalog.db",
            "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
            "CATALOG_REST_PORT": str(port),
        }
        text = pathlib.Path(classes).read_text(encoding="utf-8").strip()
        log = directory(scratch, JAVA) / "java.log"
        argv = ["java", "-cp", text, JAVA_MAIN]
        with rivals.server(argv, log, env=environment) as process:
            server = Server(JAVA, process, f"127.0.0.1:{port}", "")
            rivals.wait_until(lambda: server.ask("GET", "/v1/config"), process, log, JAVA)
            server.version = "RESTCatalogServer"
            server.root, server.argv, server.environment = disk / "warehouse", argv, environment
            yield server


MAKERS = {COVE: cove, RUSTBERG: rustberg, JAVA: java}


@contextlib.contextmanager
def bare(scratch, tool, bodies):
    """A server that answers with these bytes: path, body, content type, encoding."""
    place = directory(scratch, BARE)
    answers = {}
    for path, (body, kind, encoding) in bodies.items():
        name = base64.urlsafe_b64encode(os.urandom(9)).decode()
        (place / name).write_bytes(body)
        answers[path] = {"file": str(place / name), "content_type": kind, "encoding": encoding}
    argv = [tool, "bare"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            process.stdin.write(json.dumps(answers) + "\n")
            process.stdin.flush()
            address = process.stdout.readline().strip()
            if not address:
                raise Unavailable("it did not start")
            server = Server(BARE, process, address, "")
            server.version = "the catalog's stack, with its bytes and nothing else"
            yield server
        finally:
            process.stdin.close()
            process.wait()


@contextlib.contextmanager
def disk_place():
    """A directory on the disk that servers have theirs on."""
    with rivals.disk_directory() as made:
        yield made


