"""Programs that are typed into: attached executions and terminals of sessions."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from .._errors import ConnectionClosedError
from .._result import chunk_bytes
from ._websocket import AsyncWebSocket

if TYPE_CHECKING:
    from typing_extensions import Self

    from .. import types


class _AsyncTyped:
    """What both have: input, signals, the size of the terminal."""

    def __init__(self, socket: AsyncWebSocket) -> None:
        #: The WebSocket under it.
        self.socket = socket

    async def send(self, data: str | bytes) -> None:
        """Types this: standard input."""
        await self.socket.send(data.encode() if isinstance(data, str) else data)

    async def eof(self) -> None:
        """Ends standard input."""
        await self.socket.send_json({"type": "eof"})

    async def signal(self, signal: str) -> None:
        """Sends a signal, such as `SIGINT`."""
        await self.socket.send_json({"type": "signal", "signal": signal})

    async def resize(self, rows: int, cols: int) -> None:
        """Tells the size of the terminal."""
        await self.socket.send_json({"type": "resize", "rows": rows, "cols": cols})

    async def cancel(self) -> None:
        """Ends the program."""
        await self.socket.send_json({"type": "cancel"})

    async def aclose(self) -> None:
        """Hangs up, which ends the program."""
        await self.socket.aclose()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class AsyncAttachedExecution(_AsyncTyped):
    """An execution whose input comes from here. Iterating it gives its events, to the last one."""

    def __init__(self, socket: AsyncWebSocket) -> None:
        super().__init__(socket)
        #: The result, once the event `verdict` was seen.
        self.result: types.Execution | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aiter__(self) -> AsyncIterator[types.ExecutionEvent]:
        while True:
            try:
                event = cast("types.ExecutionEvent", await self.socket.receive_json())
            except ConnectionClosedError as closed:
                if closed.code == 1000:
                    return
                raise
            if event["type"] == "verdict":
                self.result = event["result"]
            yield event

    async def read_until(self, text: str) -> str:
        """Standard output up to and with this text, or to the end of the program."""
        seen = b""
        async for event in self:
            if event["type"] == "stdout":
                seen += chunk_bytes(event)
                if text.encode() in seen:
                    break
        return seen.decode("utf-8", "replace")


class AsyncTerminal(_AsyncTyped):
    """A program of a session on a terminal. Iterating it gives what is shown."""

    def __init__(self, socket: AsyncWebSocket) -> None:
        super().__init__(socket)
        #: Number of the process, once it has started.
        self.pid: int | None = None
        #: The message `ended`, once the program has ended.
        self.ended: dict[str, Any] | None = None

    @property
    def exit_code(self) -> int | None:
        """Code that the program exited with."""
        return self.ended.get("exit_code") if self.ended else None

    async def __aenter__(self) -> Self:
        return self

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self.ended is None:
            try:
                message = await self.socket.receive()
            except ConnectionClosedError as closed:
                if closed.code == 1000:
                    return
                raise
            if isinstance(message, bytes):
                yield message
                continue
            document = json.loads(message)
            if document["type"] == "started":
                self.pid = document.get("pid")
            elif document["type"] == "ended":
                self.ended = document
            elif document.get("data_base64"):
                yield base64.b64decode(document["data_base64"])

    async def read_until(self, text: str) -> str:
        """What is shown up to and with this text, or to the end of the program."""
        seen = b""
        async for chunk in self:
            seen += chunk
            if text.encode() in seen:
                break
        return seen.decode("utf-8", "replace")
