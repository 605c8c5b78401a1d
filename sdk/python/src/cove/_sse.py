"""Reader of server-sent events; it is given bytes and never reads any itself.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from __future__ import annotations

import json
from typing import Any

from ._errors import CoveError

#: Bytes of one event, beyond which the other side is not Cove.
EVENT_BYTES_MAX = 256 << 20


class ServerEvent:
    """One event: its number where it has one, and its document."""

    __slots__ = ("data", "id")

    def __init__(self, number: str | None, data: Any) -> None:
        self.id = number
        self.data = data


class EventReader:
    """Cuts bytes into events."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._size = 0
        self._data: list[bytes] = []
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that end in this chunk."""
        searched = len(self._buffer)
        self._buffer += chunk
        events: list[ServerEvent] = []
        start = 0
        while True:
            end = self._buffer.find(b"\n", max(start, searched))
            if end < 0:
                break
            line = bytes(self._buffer[start:end]).removesuffix(b"\r")
            start = end + 1
            if line:
                self._field(line)
            elif self._data:
                events.append(self._event())
        del self._buffer[:start]
        if self._size + len(self._buffer) > EVENT_BYTES_MAX:
            raise CoveError(f"an event has more than {EVENT_BYTES_MAX} bytes")
        return events

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value)
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")

    def _event(self) -> ServerEvent:
        text = b"\n".join(self._data)
        self._data, self._size = [], 0
        number, self._id = self._id, None
        try:
            return ServerEvent(number, json.loads(text))
        except ValueError:
            raise CoveError(f"an event is not JSON: {text[:100]!r}") from None
