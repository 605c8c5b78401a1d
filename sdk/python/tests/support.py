"""What the tests need beside the package: a server to kill, and a proxy that does harm."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx

if TYPE_CHECKING:
    from typing_extensions import Self

#: Every request has a connection of its own.
LIMITS = httpx.Limits(max_keepalive_connections=0)
#: Seconds for what happens at once, on a machine that may be busy with anything.
SOON = 60.0
#: Warnings of a server that was killed, once it is back.
EXPECTED_LOG = ("executions were cut off by the server's end",)


def wait_until(is_so: Callable[[], bool]) -> None:
    """Waits for a state."""
    end = time.monotonic() + SOON
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


class OwnServer:
    """One `cove serve` with a data directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.data.mkdir(mode=0o700)
        (directory / "cove.toml").write_text("[sandbox]\nwarm_runtimes = false\n")
        self.child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, again on the same data."""
        (self.data / "addresses.json").unlink(missing_ok=True)
        arguments = ["serve", "--config", str(self.directory / "cove.toml")]
        arguments += ["--data-dir", str(self.data)]
        for listener in ("--http", "--bouncer", "--bouncer-mysql"):
            arguments += [listener, "127.0.0.1:0"]
        with (self.directory / "log").open("ab") as log:
            self.child = subprocess.Popen(
                [os.environ["COVE_BINARY"], *arguments], stdout=log, stderr=log
            )
        wait_until(self._is_ready)

    def _is_ready(self) -> bool:
        assert self.child is not None
        assert self.child.poll() is None, self.log()
        try:
            return httpx.get(f"{self.url}/health/ready").status_code == 200
        except (OSError, ValueError, httpx.TransportError):
            return False

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{json.loads((self.data / 'addresses.json').read_text())['http']}"

    @property
    def token(self) -> str:
        """Its first token."""
        return (self.data / "token").read_text().strip()

    def log(self) -> str:
        """What it wrote."""
        return (self.directory / "log").read_text()

    def kill(self) -> None:
        """Ends it as a crash would."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self.child is not None and self.child.poll() is None:
            self.child.send_signal(number)
            self.child.wait(SOON)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end(signal.SIGTERM)
        bad = [
            line
            for line in self.log().splitlines()
            if (" WARN " in line or " ERROR " in line)
            and not any(it in line for it in EXPECTED_LOG)
        ]
        assert not bad, "\n".join(bad)


class FaultProxy:
    """A proxy before a server that keeps answers, cuts them short, or gives others."""

    def __init__(self, target: str) -> None:
        self.aim(target)
        self._lock = threading.Lock()
        #: So many answers are kept, and their connections closed.
        self.dropped = 0
        #: So many answers are cut after so many bytes.
        self.cut: tuple[int, int] = (0, 0)
        #: Answers that are given without asking the server.
        self.canned: list[bytes] = []
        #: How many connections were made.
        self.connections = 0
        #: First lines of the requests that came.
        self.requests: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def aim(self, target: str) -> None:
        """Leads to another server from now on."""
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 80)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        while not self._closed:
            with suppress(OSError):
                client, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            first = client.recv(1 << 16)
            if not first:
                return
            self.requests.append(first.split(b"\r\n")[0].decode())
            with self._lock:
                canned = self.canned.pop(0) if self.canned else None
            if canned is not None:
                client.sendall(canned)
                client.shutdown(socket.SHUT_WR)
                while client.recv(1 << 16):
                    pass
                return
            with socket.create_connection(self._target) as server:
                server.sendall(first)
                threading.Thread(target=self._pump, args=(client, server), daemon=True).start()
                try:
                    self._answer(server, client)
                finally:
                    # Closing alone does not end it while the other thread reads.
                    with suppress(OSError):
                        client.shutdown(socket.SHUT_RDWR)

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while chunk := client.recv(1 << 16):
                self.requests += [
                    line.decode() for line in chunk.split(b"\r\n") if line.endswith(b" HTTP/1.1")
                ]
                server.sendall(chunk)
            server.shutdown(socket.SHUT_WR)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        sent = 0
        left = -1
        with self._lock:
            if self.cut[0] > 0:
                self.cut, left = (self.cut[0] - 1, self.cut[1]), self.cut[1]
        while chunk := server.recv(1 << 16):
            with self._lock:
                if self.dropped > 0:
                    self.dropped -= 1
                    client.shutdown(socket.SHUT_RDWR)
                    return
            if left >= 0:
                chunk = chunk[: left - sent]
            client.sendall(chunk)
            sent += len(chunk)
            if sent == left:
                client.shutdown(socket.SHUT_RDWR)
                return
        client.shutdown(socket.SHUT_WR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        # Wakes the thread that accepts.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def without_reuse() -> httpx.Client:
    """Connections for one request each, so that the proxy sees every request begin."""
    return httpx.Client(limits=LIMITS)


def answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    """An answer as it goes over the wire."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body
