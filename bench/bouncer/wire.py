"""A client of PostgreSQL's protocol, for what pgbench does not do: sit idle, be cut off, look."""

import base64
import functools
import hashlib
import hmac
import os
import socket
import struct

from bouncer.poolers import PASSWORD

TIMEOUT_SECONDS = 30
RECEIVE_BYTES = 1 << 16
PROTOCOL = 3 << 16
SASL, SASL_CONTINUE, SASL_FINAL, AUTHENTICATED = 10, 11, 12, 0


class Refused(OSError):
    """An error that was told; the connection stays."""


class Ended(OSError):
    """A connection that is gone."""


@functools.cache
def client_keys(password, salt, iterations):
    """Once for all clients: it is dear, and it is not what is measured."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    client = hmac.digest(salted, b"Client Key", "sha256")
    return client, hashlib.sha256(client).digest()


class Client:
    """One connection, logged in."""

    def __init__(self, endpoint, unix=False, database=None, user=None):
        family = socket.AF_UNIX if unix else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.unread = b""
        try:
            self.socket.settimeout(TIMEOUT_SECONDS)
            self.socket.connect(endpoint.address(unix))
            if not unix:
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            database = database or endpoint.database(unix)
            self.login({"user": user or endpoint.user, "database": database})
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Leaves, as a client does."""
        try:
            self.send(b"X", b"")
        except OSError:
            pass  # It was cut off.
        self.socket.close()

    def send(self, kind, body):
        self.socket.sendall(kind + struct.pack("!I", len(body) + 4) + body)

    def message(self):
        """The next message: its type and its body. Errors are raised."""
        while True:
            if len(self.unread) >= 5:
                end = struct.unpack_from("!I", self.unread, 1)[0] + 1
                if len(self.unread) >= end:
                    kind, body = self.unread[:1], self.unread[5:end]
                    self.unread = self.unread[end:]
                    return kind, body
            if not (piece := self.socket.recv(RECEIVE_BYTES)):
                raise Ended("the connection ended")
            self.unread += piece

    def login(self, parameters):
        words = b"".join(f"{k}\0{v}\0".encode() for k, v in parameters.items()) + b"\0"
        self.socket.sendall(struct.pack("!II", len(words) + 8, PROTOCOL) + words)
        while True:
            kind, body = self.message()
            if kind == b"E":
                raise Refused(error_text(body))
            if kind == b"Z":
                return
            if kind == b"R":
                self.authenticate(struct.unpack_from("!I", body)[0], body[4:])

    def authenticate(self, step, text):
        """SCRAM-SHA-256 without channel binding: RFC 5802 and 7677."""
        if step == SASL:
            nonce = base64.b64encode(os.urandom(18)).decode()
            self.first = f"n=,r={nonce}"
            initial = f"n,,{self.first}".encode()
            mechanism = b"SCRAM-SHA-256\0" + struct.pack("!I", len(initial))
            self.send(b"p", mechanism + initial)
        elif step == SASL_CONTINUE:
            said = dict(part.split("=", 1) for part in text.decode().split(","))
            salt = base64.b64decode(said["s"])
            client, stored = client_keys(PASSWORD, salt, int(said["i"]))
            without_proof = f"c=biws,r={said['r']}"
            message = f"{self.first},{text.decode()},{without_proof}".encode()
            signature = hmac.digest(stored, message, "sha256")
            proof = bytes(a ^ b for a, b in zip(client, signature, strict=True))
            self.send(b"p", f"{without_proof},p={base64.b64encode(proof).decode()}".encode())
        elif step not in (SASL_FINAL, AUTHENTICATED):
            raise Refused(f"an authentication that is not expected: {step}")

    def query(self, text):
        """The rows of a simple query, as lists of values; None is NULL."""
        self.send(b"Q", text.encode() + b"\0")
        rows, error = [], None
        while True:
            kind, body = self.message()
            if kind == b"D":
                rows.append(values(body))
            elif kind == b"E":
                error = error_text(body)
            elif kind == b"Z":
                if error:
                    raise Refused(error)
                return rows


def values(body):
    found, at = [], 2
    for _ in range(struct.unpack_from("!H", body)[0]):
        length = struct.unpack_from("!i", body, at)[0]
        at += 4
        found.append(None if length < 0 else body[at : at + length])
        at += max(length, 0)
    return found


def error_text(body):
    """Code and message of an error, or what is there of them."""
    fields = {part[:1]: part[1:] for part in body.split(b"\0") if part}
    return b" ".join(fields.get(key, b"") for key in (b"C", b"M")).decode(errors="replace")
