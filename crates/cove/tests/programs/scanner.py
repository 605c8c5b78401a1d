"""Looks for secrets wherever a program in a sandbox can look, and at whatever its grants lead to.

Its arguments are the secrets, backwards, and they are never put together here, so that this program
does not find itself. Says where each of them is. `TARGET` is an address that the proxy leads to, when there is one."""
import glob
import http.client
import json
import os
import socket
import sys
import urllib.error
import urllib.request

halves = []
for secret in sys.argv[1:]:
    middle = len(secret) // 2
    halves.append((secret[middle:][::-1].encode(), secret[:middle][::-1].encode()))
found = [set() for _ in halves]


def look(where, data):
    data = data if isinstance(data, bytes) else str(data).encode()
    for (first, second), places in zip(halves, found):
        at = data.find(first)
        while at >= 0:
            if data.startswith(second, at + len(first)):
                places.add(where)
            at = data.find(first, at + 1)


def ask(connection, statements):
    for statement in statements:
        try:
            cursor = connection.cursor()
            cursor.execute(statement)
            look(statement, cursor.fetchall())
        except Exception as error:
            look(statement, repr(error))
        connection.rollback()


def raw(port, said=b""):
    with socket.create_connection(("127.0.0.1", port)) as stream:
        stream.sendall(said)
        look(f"raw {port}", stream.recv(65536))


def fetch(url, body=None):
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    try:
        answer = urllib.request.urlopen(request)
    except urllib.error.HTTPError as error:
        answer = error
    except (OSError, http.client.HTTPException) as error:
        # It broke off before anything of it was there.
        return look(f"error of {url}", repr(error))
    look(f"headers of {url}", answer.headers)
    # What breaks off is looked at as far as it came.
    try:
        while data := answer.read(1):
            look(f"body of {url}", fetched.append(data) or b"".join(fetched[-400:]))
    except (OSError, http.client.HTTPException) as error:
        look(f"end of {url}", repr(error))


def databases():
    import psycopg2
    import pymysql

    statements = ["SELECT nothing", "SELECT * FROM pg_authid", "SELECT 1/0", "SHOW ALL"]
    ask(psycopg2.connect(""), statements)
    statements = ["SELECT nothing", "SHOW VARIABLES", "SHOW PROCESSLIST"]
    ask(pymysql.connect(), statements + ["SELECT * FROM mysql.user"])
    for user in ("clerk", "postgres", "root"):
        try:
            psycopg2.connect(user=user, password="wrong", host="127.0.0.1", dbname="nothing")
        except Exception as error:
            look(user, repr(error))
    raw(5432, b"GET / HTTP/1.0\r\n\r\n")
    raw(3306)


def files():
    for root in ("/etc", "/home", "/tmp", "/workspace", "/dev/shm", "/run", "/var"):
        for base, _, names in os.walk(root):
            for name in names:
                path = f"{base}/{name}"
                try:
                    if os.path.isfile(path):
                        look(path, open(path, "rb").read(1 << 20))
                except OSError:
                    pass


def memory(process):
    """All of it that is there and can be read."""
    try:
        content = open(f"{process}/mem", "rb", 0)
        pages = open(f"{process}/pagemap", "rb", 0)
        lines = open(f"{process}/maps").readlines()
    except OSError:
        return
    for line in lines:
        span, rights = line.split()[:2]
        start, end = (int(it, 16) for it in span.split("-"))
        if "r" not in rights or "[v" in line:
            continue
        last = b""
        for at in range(start, end, PIECE):
            try:
                # Most of what a program has reserved is not there: so says the top byte of eight.
                pages.seek(at // 4096 * 8)
                if max(pages.read(PIECE // 4096 * 8)[7::8], default=0) < 0x40:
                    last = b""
                    continue
                content.seek(at)
                piece = content.read(min(end - at, PIECE))
                # A secret may stand where two pieces meet.
                look(f"memory of {process}", last + piece)
                last = piece[-100:]
            except (OSError, ValueError, OverflowError):
                pass


PIECE = 1 << 20
fetched = []
if "PGHOST" in os.environ:
    databases()
if target := os.environ.get("TARGET"):
    for path in ("/v1/plain", "/v1/echo", "/v1/pieces", "/v1/header", "/admin/echo"):
        fetch(target + path)
    raw(3128, b"nonsense\r\n\r\n")
if model := os.environ.get("ANTHROPIC_BASE_URL"):
    message = {"role": "user", "content": "hello"}
    asked = {"model": "claude-haiku-4-5", "max_tokens": 9, "messages": [message]}
    for path, body in (("messages", asked), ("messages", {}), ("models", None), ("keys", None)):
        fetch(f"{model}/v1/{path}", body if body is None else json.dumps(body).encode())
    raw(8100, b"nonsense\r\n\r\n")
look("environment", os.environ)
for process in glob.glob("/proc/[0-9]*"):
    for name in ("environ", "cmdline", "status", "mountinfo"):
        try:
            look(f"{process}/{name}", open(f"{process}/{name}", "rb").read())
        except OSError:
            pass
for path in glob.glob("/proc/self/net/*"):
    try:
        look(path, open(path, "rb").read())
    except OSError:
        pass
files()
for process in glob.glob("/proc/[0-9]*"):
    memory(process)
found = [sorted(places) for places in found]
print(json.dumps({"found": found, "password": any("PASS" in name for name in os.environ)}))
