"""HTTP/1.1 over one kept connection, with as little of its own as Python allows.

Everything that is timed goes through here: a request is bytes before the clock starts, an answer is
looked at after it has stopped. A library's client costs a third of a millisecond for each request,
which is as much as what is to be measured.
"""

import json
import re
import select
import selectors
import socket
import time

RECEIVE_BYTES = 1 << 18
TIMEOUT_SECONDS = 120
HEAD_END = b"\r\n\r\n"
LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
CHUNKED = re.compile(rb"(?i)\r\ntransfer-encoding: *chunked")
# What ends a body in chunks; no trailers are expected.
LAST_CHUNK = b"\r\n0\r\n\r\n"


class Refused(Exception):
    """An answer that was not the expected one."""


class Answer:
    """Status, body, and when it was sent for and complete, in nanoseconds of the monotonic clock."""

    def __init__(self, began, ended, raw, head_end, arrivals):
        self.began, self.ended = began, ended
        self.status = int(raw[9:12])
        head, body = raw[:head_end], raw[head_end + len(HEAD_END) :]
        self.body = unchunked(body) if CHUNKED.search(head) else body
        self._raw, self._arrivals = raw, arrivals

    @property
    def microseconds(self):
        return (self.ended - self.began) / 1000

    def arrived(self, marker):
        """When the bytes up to the first `marker` were there, in microseconds after the request."""
        at = self._raw.find(marker)
        if at < 0:
            raise Refused(f"no {marker!r} in {self.body[-300:]!r}")
        when = next(when for when, length in self._arrivals if length >= at + len(marker))
        return (when - self.began) / 1000

    def json(self, *expected):
        """The JSON of an answer with one of these statuses; 200 when none is named."""
        if self.status not in (expected or (200,)):
            raise Refused(f"status {self.status}: {self.body[:300]!r}")
        return json.loads(self.body) if self.body.strip() else None

    def events(self):
        """Type and JSON of each server-sent event."""
        if self.status != 200:
            raise Refused(f"status {self.status}: {self.body[:300]!r}")
        kind, found = "message", []
        for line in self.body.decode().splitlines():
            if line.startswith("event:"):
                kind = line[6:].strip()
            elif line.startswith("data:"):
                found.append((kind, json.loads(line[5:])))
        return found


def unchunked(body):
    """A body without its chunks' frames: RFC 9112, section 7.1."""
    parts, at = [], 0
    while True:
        line_end = body.index(b"\r\n", at)
        size = int(body[at:line_end].split(b";")[0], 16)
        if size == 0:
            return b"".join(parts)
        parts.append(body[line_end + 2 : line_end + 2 + size])
        at = line_end + 2 + size + 2


class Incoming:
    """An answer as it comes in."""

    def __init__(self):
        self.data, self.arrivals = bytearray(), []
        self.head_end, self.length = -1, None

    def add(self, piece, now):
        """Takes a piece; whether the answer is complete."""
        self.data += piece
        self.arrivals.append((now, len(self.data)))
        if self.head_end < 0:
            self.head_end = self.data.find(HEAD_END)
            if self.head_end < 0:
                return False
            head = bytes(self.data[: self.head_end])
            if not CHUNKED.search(head):
                found = LENGTH.search(head)
                self.length = int(found.group(1)) if found else 0
        if self.length is None:
            return self.data.endswith(LAST_CHUNK)
        return len(self.data) >= self.head_end + len(HEAD_END) + self.length

    def answer(self, began, ended):
        return Answer(began, ended, bytes(self.data), self.head_end, self.arrivals)


class Wire:
    """Requests to one server, one at a time. A connection that broke is made anew."""

    def __init__(self, address, token):
        host, _, port = address.rpartition(":")
        self.place, self.token, self.socket = (host, int(port)), token, None

    def bytes_of(self, method, path, body=None, headers=()):
        """A request, ready to be sent. A body is JSON, or the bytes of a file."""
        is_file = isinstance(body, bytes)
        content = body if is_file else b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", f"host: {self.place[0]}:{self.place[1]}"]
        lines += [f"authorization: Bearer {self.token}", f"content-length: {len(content)}"]
        if body is not None:
            kind = "octet-stream" if is_file else "json"
            lines.append(f"content-type: application/{kind}")
        lines += [f"{name}: {value}" for name, value in headers]
        return "\r\n".join([*lines, "", ""]).encode() + content

    def connect(self):
        """A new connection; whoever has one sends what is ready at once."""
        connection = socket.create_connection(self.place, TIMEOUT_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def was_closed(self):
        """Whether the server has let an idle connection go."""
        # Nothing is to be read before there is a request, but for the end.
        return bool(select.select([self.socket], [], [], 0)[0])

    def call(self, method, path, body=None, headers=()):
        """Sends a request and waits for all of its answer."""
        request = self.bytes_of(method, path, body, headers)
        if self.socket is None or self.was_closed():
            self.close()
            self.socket = self.connect()
        incoming, connection, clock = Incoming(), self.socket, time.monotonic_ns
        try:
            began = clock()
            connection.sendall(request)
            while True:
                piece = connection.recv(RECEIVE_BYTES)
                now = clock()
                if not piece:
                    raise Refused(f"{method} {path}: the connection was closed")
                if incoming.add(piece, now):
                    return incoming.answer(began, now)
        except (OSError, Refused):
            self.close()
            raise

    def all_at_once(self, requests):
        """Sends requests over connections of their own at the same time.

        The answers in the order of the requests; an error in place of one that did not come. The
        connections are there before the clock starts.
        """
        connections = [self.connect() for _ in requests]
        incoming, answers = [Incoming() for _ in requests], [None] * len(requests)
        try:
            with selectors.DefaultSelector() as selector:
                for number, connection in enumerate(connections):
                    selector.register(connection, selectors.EVENT_READ, number)
                began = time.monotonic_ns()
                for connection, request in zip(connections, requests, strict=True):
                    connection.sendall(request)
                while selector.get_map() and time.monotonic_ns() - began < TIMEOUT_SECONDS * 10**9:
                    for key, _ in selector.select(1):
                        self._receive(key, selector, incoming, answers, began)
        finally:
            for connection in connections:
                connection.close()
        lost = Refused(f"no answer within {TIMEOUT_SECONDS} s")
        return [lost if answer is None else answer for answer in answers]

    @staticmethod
    def _receive(key, selector, incoming, answers, began):
        number = key.data
        try:
            piece = key.fileobj.recv(RECEIVE_BYTES)
        except OSError as error:
            piece, answers[number] = b"", error
        now = time.monotonic_ns()
        if not piece:
            answers[number] = answers[number] or Refused("the connection was closed")
        elif incoming[number].add(piece, now):
            answers[number] = incoming[number].answer(began, now)
        else:
            return
        selector.unregister(key.fileobj)

    def close(self):
        """Lets the connection go."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None
