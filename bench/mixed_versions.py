#!/usr/bin/env python3
"""Two versions side by side: whether an upgrade of one node after the other, and the way back, is seen by clients.

Two nodes share a store: first one of each version, then both of the new one, then one of each again, the other way
round. In each of the three, clients use through either node what the other one has: sessions, tenants of the bouncer
and its console, namespaces of the catalog, executions. Nothing is measured; it ends at the first answer that is wrong.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import cluster
import rivals
from bouncer import poolers
from client import Client
from sessions.servers import Process

SOON_SECONDS = 15
QUERY_SECONDS = 20


class Node:
    """A server with all services, that becomes another version."""

    def __init__(self, scratch, name, database):
        self.scratch, self.name = pathlib.Path(scratch), name
        self.data = self.scratch / name
        self.config = self.scratch / f"{name}.toml"
        self.port, self.bouncer = rivals.free_port(), rivals.free_port()
        self.config.write_text(
            f"store.url = {json.dumps(database)}\nobjects.url = \"{scratch}/objects\"\n"
            f"secrets_key = \"{cluster.KEY}\"\nexecutions.jobs.webhook_key = \"{cluster.KEY}\"\n"
            "cluster.listen = \"127.0.0.1:0\"\nsandbox.warm_runtimes = false\n"
            f"catalog.root = \"file://{scratch}/lake\"\n"
            f"bouncer.listen = \"127.0.0.1:{self.bouncer}\"\nbouncer.mysql.listen = \"127.0.0.1:0\"\n"
            "bouncer.console.admin_users = [{ name = \"ann\", password = \"pw\" }]\n",
            encoding="utf-8",
        )
        self.process = None

    def start(self, binary):
        """Starts it, after the version before has stopped."""
        self.stop()
        addresses = self.data / "addresses.json"
        addresses.unlink(missing_ok=True)
        argv = [binary, "serve", "--data-dir", self.data, "--config", self.config]
        argv += ["--http", f"127.0.0.1:{self.port}"]
        self.process = Process(argv, self.scratch / f"{self.name}.log")
        self.process.start()
        found = rivals.wait_until(lambda: json.loads(addresses.read_text()),
                                  self.process.process, self.process.log, "cove")
        self.address = found["http"]

    def stop(self):
        if self.process is not None:
            self.process.stop()
            self.process = None

    def sql(self, database, user, statement):
        """What a client of the bouncer is answered."""
        target = f"host=127.0.0.1 port={self.bouncer} user={user} dbname={database}"
        psql = subprocess.run(["psql", "-XAtq", "-d", target, "-c", statement], capture_output=True,
                              text=True, timeout=QUERY_SECONDS, check=True,
                              env={**os.environ, "PGPASSWORD": "pw"})
        return psql.stdout.strip()


def soon(what, is_so):
    """Waits for what another node has to hear of first."""
    started = time.monotonic()
    while not is_so():
        if time.monotonic() - started > SOON_SECONDS:
            raise SystemExit(f"{what}: not within {SOON_SECONDS} s")
        time.sleep(0.02)
    print(f"  {what}: after {time.monotonic() - started:.2f} s")


def use_session(here, there):
    """A session of one node, through the other."""
    session = cluster.place_at_first(here, there)
    path = f"/v1/sessions/{session}"
    said = there.json("POST", f"{path}/exec", {"command": "echo kept > f; cat f"})
    assert said["stdout"] == "kept\n", said
    assert there.json("GET", path)["id"] == session
    status, content = there.request("GET", f"{path}/files/f")
    assert (status, content) == (200, b"kept\n"), (status, content)
    status, _ = there.request("DELETE", path)
    assert status in (200, 204), status


def use_all(nodes, token, backend, round_name):
    """Everything that clients do, at either node."""
    one, two = (Client(node.address, token) for node in nodes)
    for number, (here, there) in enumerate(((one, two), (two, one))):
        use_session(here, there)
        name = f"{round_name}{number}"
        users = [{"name": "postgres", "auth": "trust"}]
        here.json("POST", "/v1/tenants", {"name": name, "server": f"127.0.0.1:{backend}",
                                          "database": "postgres", "users": users}, status=201)
        soon(f"the tenant {name} is known", lambda: there.request("GET", f"/v1/tenants/{name}")[0] == 200)
        assert [node.sql(name, "postgres", "SELECT 6 * 7") for node in nodes] == ["42", "42"]
        here.json("POST", "/catalog/v1/main/namespaces", {"namespace": [name]})
        assert [name] in there.json("GET", "/catalog/v1/main/namespaces")["namespaces"]
        done = here.json("POST", "/v1/executions?wait=true", {"argv": ["echo", name]})
        assert done["stdout"] == f"{name}\n", done
    for node in nodes:
        assert f"{round_name}0" in node.sql("pgbouncer", "ann", "SHOW DATABASES")
        node.sql("pgbouncer", "ann", f"PAUSE {round_name}0")
        node.sql("pgbouncer", "ann", f"RESUME {round_name}0")
    for node in nodes:
        assert node.sql(f"{round_name}0", "postgres", "SELECT 1") == "1"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("old", help="the binary of the version before")
    parser.add_argument("new", nargs="?", default="target/debug/cove", help="the other one (%(default)s)")
    given = parser.parse_args()
    old, new = (str(pathlib.Path(binary).resolve()) for binary in (given.old, given.new))
    with tempfile.TemporaryDirectory(prefix="cove-mixed-") as scratch, poolers.postgres(scratch) as database:
        database.sql("CREATE DATABASE cove", database="postgres")
        url = f"postgres://postgres@127.0.0.1:{database.port}/cove"
        nodes = [Node(scratch, name, url) for name in ("one", "two")]
        try:
            token = None
            for name, started in (("before", ((0, old), (1, new))), ("after", ((0, new),)), ("back", ((1, old),))):
                print(f"{name}: " + ", ".join(f"node {index + 1} is {binary}" for index, binary in started))
                for index, binary in started:
                    nodes[index].start(binary)
                token = token or rivals.run([old, "token", "--data-dir", nodes[0].data]).strip()
                client = Client(nodes[0].address, token)
                cluster.wait_for_nodes(client, len(nodes))
                if name == "before":
                    files = [{"path": "agent.py", "content": (cluster.ECHO / "agent.py").read_text()}]
                    runtime = {"type": "command", "argv": ["python3", "agent.py"]}
                    client.json("POST", "/v1/agents", {"name": "echo", "files": files, "runtime": runtime}, status=201)
                use_all(nodes, token, database.port, name)
        finally:
            for node in nodes:
                node.stop()
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
