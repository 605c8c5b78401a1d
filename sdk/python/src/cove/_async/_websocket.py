"""A WebSocket on a connection that httpx has upgraded."""

from __future__ import annotations

import json
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any

import httpcore
import httpx

from .._errors import APIConnectionError, ConnectionClosedError
from .._websocket import FrameReader, Opcode, frame
from ._runtime import AsyncNetworkStream, Lock

if TYPE_CHECKING:
    from typing_extensions import Self

#: Bytes that are read at a time.
_CHUNK = 1 << 16
#: Seconds without a byte after which the server counts as gone; it pings every 15 seconds.
_SILENCE = 60.0
#: Seconds to write, and to wait for the server's close.
_WRITE = 60.0
_CLOSE = 5.0


class AsyncWebSocket:
    """Messages in both directions. One task reads; any may send."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._stream: AsyncNetworkStream = response.extensions["network_stream"]
        self._reader = FrameReader()
        self._messages: deque[str | bytes] = deque()
        self._lock = Lock()
        self._closing = False

    async def send(self, message: str | bytes) -> None:
        """Sends text or bytes."""
        if self._closing:
            raise self._reader.closed or ConnectionClosedError(1000, "by this side")
        text = isinstance(message, str)
        payload = message.encode() if isinstance(message, str) else message
        await self._write(frame(Opcode.TEXT if text else Opcode.BINARY, payload))

    async def send_json(self, document: object) -> None:
        """Sends a document as text."""
        await self.send(json.dumps(document))

    async def receive(self) -> str | bytes:
        """The next message.

        Raises `ConnectionClosedError` once the server has closed.
        """
        while not self._messages:
            if self._reader.closed is not None:
                raise self._reader.closed
            await self._feed(_SILENCE)
        return self._messages.popleft()

    async def receive_json(self) -> Any:
        """The next message that is text, as a document."""
        while True:
            message = await self.receive()
            if isinstance(message, str):
                return json.loads(message)

    async def aclose(self, code: int = 1000) -> None:
        """Says goodbye, waits a moment for the answer, and ends the connection."""
        if self._closing and self._reader.closed is None:
            return
        try:
            if not self._closing:
                self._closing = True
                if self._reader.closed is None:
                    await self._write(frame(Opcode.CLOSE, code.to_bytes(2, "big")))
            while self._reader.closed is None:
                await self._feed(_CLOSE)
                self._messages.clear()
        except APIConnectionError:
            # It is closed in any case.
            pass
        finally:
            await self._response.aclose()

    async def _feed(self, limit: float) -> None:
        """Reads once."""
        try:
            chunk = await self._stream.read(_CHUNK, timeout=limit)
        except (httpcore.NetworkError, httpcore.TimeoutException, OSError) as error:
            raise APIConnectionError(f"the WebSocket broke: {error}") from error
        if not chunk:
            self._reader.closed = ConnectionClosedError(1006, "the connection ended")
            return
        self._messages.extend(self._reader.feed(chunk))
        answers, self._reader.answers = self._reader.answers, []
        for answer in answers:
            await self._write(answer)
        if self._reader.closed is not None:
            self._closing = True

    async def _write(self, data: bytes) -> None:
        async with self._lock:
            try:
                await self._stream.write(data, timeout=_WRITE)
            except (httpcore.NetworkError, httpcore.TimeoutException, OSError) as error:
                raise APIConnectionError(f"the WebSocket broke: {error}") from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
