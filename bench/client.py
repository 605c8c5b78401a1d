"""A small client of Cove for the scenarios: JSON over one kept connection, and WebSockets."""

import base64
import contextlib
import http.client
import json
import os
import socket
import struct

TIMEOUT_SECONDS = 60
# RFC 6455, section 5.2.
OPCODE_TEXT, OPCODE_CLOSE = 1, 8


class Refused(Exception):
    """An answer that was not the expected one."""


class Client:
    """Speaks to the server at `address` with `token`; not for several threads at a time."""

    def __init__(self, address, token):
        self.address, self.token, self.connection = address, token, None

    def request(self, method, path, body=None, headers=()):
        """Status and bytes of an answer. A connection that broke is not used again."""
        if self.connection is None:
            self.connection = http.client.HTTPConnection(self.address, timeout=TIMEOUT_SECONDS)
        everything = {"authorization": f"Bearer {self.token}", **dict(headers)}
        if isinstance(body, bytes):
            everything["content-type"] = "application/octet-stream"
        elif body is not None:
            everything["content-type"] = "application/json"
            body = json.dumps(body)
        try:
            self.connection.request(method, path, body, everything)
            reply = self.connection.getresponse()
            return reply.status, reply.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise

    def json(self, method, path, body=None, headers=(), status=200):
        """The JSON of an answer with that status."""
        got, text = self.request(method, path, body, headers)
        if got != status:
            raise Refused(f"{method} {path}: status {got} {text[:200]!r}")
        return json.loads(text)

    def close(self):
        """Lets the connection go."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    @contextlib.contextmanager
    def websocket(self, path, receive_bytes=None):
        """A socket that has become a WebSocket; frames are for the caller to read.

        `receive_bytes` is the size of its receive buffer: a small one makes the server feel a slow
        reader soon.
        """
        host, port = self.address.rsplit(":", 1)
        with contextlib.closing(socket.socket()) as connection:
            if receive_bytes is not None:
                # Before connecting, since it decides the window that is offered.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            connection.settimeout(TIMEOUT_SECONDS)
            connection.connect((host, int(port)))
            key = base64.b64encode(os.urandom(16)).decode()
            connection.sendall(
                f"GET {path} HTTP/1.1\r\nhost: {self.address}\r\n"
                f"authorization: Bearer {self.token}\r\nconnection: Upgrade\r\n"
                f"upgrade: websocket\r\nsec-websocket-version: 13\r\n"
                f"sec-websocket-key: {key}\r\n\r\n".encode()
            )
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                byte = connection.recv(1)
                if not byte:
                    raise Refused(f"{path}: the server closed the connection")
                head += byte
            if not head.startswith(b"HTTP/1.1 101"):
                raise Refused(f"{path}: {head.splitlines()[0]!r}")
            yield connection


def frames(data):
    """Opcode and payload of every whole frame of a server in `data`; the rest is left out."""
    at = 0
    while at + 2 <= len(data):
        opcode, length = data[at] & 0x0F, data[at + 1] & 0x7F
        start = at + {126: 4, 127: 10}.get(length, 2)
        if start > len(data):
            return
        if length >= 126:
            length = struct.unpack_from(">H" if length == 126 else ">Q", data, at + 2)[0]
        if start + length > len(data):
            return
        yield opcode, data[start : start + length]
        at = start + length


def events(data):
    """The events in what a WebSocket of Cove's has sent."""
    return [json.loads(payload) for opcode, payload in frames(data) if opcode == OPCODE_TEXT]
