"""WebSocket protocol of a client, RFC 6455, as a machine that is given bytes and gives bytes.

It speaks over the connection that httpx has upgraded, so that TLS, proxies and limits are those of
every other request, in blocking and in asynchronous code alike. No extension is offered, so that
every frame is what it says.
"""

from __future__ import annotations

import base64
import hashlib
import os
from enum import IntEnum

from ._errors import ConnectionClosedError

#: https://www.rfc-editor.org/rfc/rfc6455#section-1.3
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
#: Bytes of one message, beyond which the connection ends with 1009.
MESSAGE_BYTES_MAX = 64 << 20


class Opcode(IntEnum):
    """Kinds of frames: https://www.rfc-editor.org/rfc/rfc6455#section-11.8"""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


def upgrade_headers() -> tuple[dict[str, str], str]:
    """Headers that ask for a WebSocket, and what the answer must say."""
    key = base64.b64encode(os.urandom(16))
    headers = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-key": key.decode(),
        "sec-websocket-version": "13",
    }
    digest = hashlib.sha1(key + _GUID, usedforsecurity=False).digest()
    return headers, base64.b64encode(digest).decode()


def frame(opcode: Opcode, payload: bytes) -> bytes:
    """A final frame, masked as a client's has to be."""
    size = len(payload)
    head = bytearray([0x80 | opcode])
    if size < 126:
        head.append(0x80 | size)
    elif size < 1 << 16:
        head.append(0x80 | 126)
        head += size.to_bytes(2, "big")
    else:
        head.append(0x80 | 127)
        head += size.to_bytes(8, "big")
    mask = os.urandom(4)
    return bytes(head) + mask + _masked(payload, mask)


def _masked(payload: bytes, mask: bytes) -> bytes:
    """Exclusive or with the repeated mask, as one large number rather than byte by byte."""
    size = len(payload)
    repeated = (mask * (size // 4 + 1))[:size]
    mixed = int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")
    return mixed.to_bytes(size, "big")


class FrameReader:
    """Puts messages together from what the server sends."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._parts = bytearray()
        self._kind: Opcode | None = None
        #: What has to be sent: answers to pings and to a close.
        self.answers: list[bytes] = []
        #: Why the server has closed; set once.
        self.closed: ConnectionClosedError | None = None

    def feed(self, chunk: bytes) -> list[str | bytes]:
        """The messages that end in this chunk."""
        self._buffer += chunk
        messages: list[str | bytes] = []
        while self.closed is None:
            taken = self._take()
            if taken is None:
                break
            self._frame(*taken, messages)
        return messages

    def _take(self) -> tuple[bool, int, bytes] | None:
        """One frame from the buffer, when it is there whole."""
        if len(self._buffer) < 2:
            return None
        first, second = self._buffer[0], self._buffer[1]
        if first & 0x70 or second & 0x80:
            self._fail(1002, "a frame with reserved bits or a mask")
            return None
        size, at = second & 0x7F, 2
        if size >= 126:
            width = 2 if size == 126 else 8
            if len(self._buffer) < at + width:
                return None
            size, at = int.from_bytes(self._buffer[at : at + width], "big"), at + width
        if size + len(self._parts) > MESSAGE_BYTES_MAX:
            self._fail(1009, f"a message of more than {MESSAGE_BYTES_MAX} bytes")
            return None
        if len(self._buffer) < at + size:
            return None
        payload = bytes(self._buffer[at : at + size])
        del self._buffer[: at + size]
        return bool(first & 0x80), first & 0x0F, payload

    def _frame(self, final: bool, code: int, payload: bytes, messages: list[str | bytes]) -> None:
        if code == Opcode.PING:
            self.answers.append(frame(Opcode.PONG, payload))
        elif code == Opcode.PONG:
            pass
        elif code == Opcode.CLOSE:
            self._close(payload)
        elif code in (Opcode.TEXT, Opcode.BINARY) and self._kind is None:
            self._kind = Opcode(code)
            self._part(final, payload, messages)
        elif code == Opcode.CONTINUATION and self._kind is not None:
            self._part(final, payload, messages)
        else:
            self._fail(1002, f"a frame of kind {code} that does not belong here")

    def _part(self, final: bool, payload: bytes, messages: list[str | bytes]) -> None:
        self._parts += payload
        if not final:
            return
        whole, kind = bytes(self._parts), self._kind
        self._parts.clear()
        self._kind = None
        try:
            messages.append(whole.decode() if kind == Opcode.TEXT else whole)
        except UnicodeDecodeError:
            self._fail(1007, "a text message that is not UTF-8")

    def _close(self, payload: bytes) -> None:
        code = int.from_bytes(payload[:2], "big") if len(payload) >= 2 else 1005
        self.answers.append(frame(Opcode.CLOSE, payload[:2]))
        self.closed = ConnectionClosedError(code, payload[2:].decode("utf-8", "replace"))

    def _fail(self, code: int, reason: str) -> None:
        self.answers.append(frame(Opcode.CLOSE, code.to_bytes(2, "big")))
        self.closed = ConnectionClosedError(code, reason)
