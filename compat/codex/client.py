"""Asks `codex exec-server` for everything a remote environment is used for, inside of a session.

Usage: client.py CODEX

Prints `ok` at the end.
"""

import base64
import json
import subprocess
import sys

server = subprocess.Popen(
    [sys.argv[1], "exec-server", "--listen", "stdio"],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
)
number = 0


def send(message: dict) -> None:
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    server.stdin.flush()


def call(method: str, **params: object) -> dict:
    global number
    number += 1
    send({"id": number, "method": method, "params": params})
    while True:
        answer = json.loads(server.stdout.readline())
        if answer.get("id") == number:
            assert "error" not in answer, (method, answer)
            return answer["result"]


def run(name: str, script: str, tty: bool) -> tuple[int, str]:
    """Starts a program and reads its output up to its end."""
    call(
        "process/start",
        processId=name,
        argv=["/bin/sh", "-c", script],
        cwd="file:///workspace",
        env={"PATH": "/usr/bin:/bin"},
        tty=tty,
        arg0=None,
    )
    output, after = b"", None
    while True:
        read = call("process/read", processId=name, afterSeq=after, maxBytes=None, waitMs=1000)
        for chunk in read["chunks"]:
            output += base64.b64decode(chunk["chunk"])
            after = chunk["seq"]
        if read["closed"]:
            return read["exitCode"], output.decode()


info = call("initialize", clientName="cove")["environmentInfo"]
assert info["cwd"] == "file:///workspace", info
send({"method": "initialized", "params": {}})

assert run("plain", "echo out; exit 3", False) == (3, "out\n")
code, output = run("terminal", "tty; stty size > /dev/null", True)
assert code == 0 and output.startswith("/dev/pts/"), (code, output)

file, copy = "file:///workspace/x.txt", "file:///workspace/d/y.txt"
content = base64.b64encode(b"hello").decode()
call("fs/writeFile", path=file, dataBase64=content)
assert call("fs/readFile", path=file)["dataBase64"] == content
assert call("fs/getMetadata", path=file)["isFile"]
call("fs/createDirectory", path="file:///workspace/d", recursive=True)
call("fs/copy", sourcePath=file, destinationPath=copy, recursive=False)
names = [entry["fileName"] for entry in call("fs/readDirectory", path="file:///workspace/d")["entries"]]
assert names == ["y.txt"], names
call("fs/remove", path="file:///workspace/d", recursive=True, force=True)

call(
    "process/start",
    processId="long",
    argv=["/bin/sleep", "1000"],
    cwd="file:///workspace",
    env={"PATH": "/usr/bin:/bin"},
    tty=False,
    arg0=None,
)
assert call("process/terminate", processId="long")["running"]
server.stdin.close()
assert server.wait() == 0
print("ok")
