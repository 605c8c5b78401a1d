"""Streams of events that go on where they broke off, and lists that go on to their end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import httpx

from .. import _core
from .._errors import CoveError, StreamInterruptedError
from .._sse import EventReader
from ._runtime import sleep
from ._transport import is_again

if TYPE_CHECKING:
    from typing_extensions import Self

Event = TypeVar("Event")
Item = TypeVar("Item")

#: Opens a stream: from its beginning, or after the event with this number.
Open = Callable[["int | None"], Awaitable[httpx.Response]]


class AsyncEventStream(Generic[Event]):
    """Events as they happen. Iterate it; leave it with `async with`, or by reading to its end.

    A stream whose events have numbers is opened again after the last one when the connection
    breaks or the server restarts. Any other one raises `StreamInterruptedError` then.
    """

    def __init__(
        self,
        open_stream: Open,
        *,
        is_last: Callable[[Event], bool],
        after: int | None = None,
        resumable: bool = True,
        ends_quietly: bool = False,
        is_wanted: Callable[[Event], bool] | None = None,
        number: str = "seq",
    ) -> None:
        self._open = open_stream
        self._is_last = is_last
        self._resumable = resumable
        self._ends_quietly = ends_quietly
        self._is_wanted = is_wanted
        self._number = number
        #: Opened, and not read from yet.
        self._response: httpx.Response | None = None
        self._is_open = False
        #: Number of the last event; give it as `after` to go on another time.
        self.last_seq = after
        #: How often the stream was opened again.
        self.reconnects = 0
        self._events = self._run()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        return await self._events.__anext__()

    async def __aenter__(self) -> Self:
        """Opens the stream, so that what happens from now on is in it."""
        await self.open()
        return self

    async def open(self) -> None:
        """Opens the stream, unless it is open; asking for the first event does so as well."""
        if self._response is None and not self._is_open:
            self._response = await self._open(self.last_seq)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the stream."""
        await self._events.aclose()
        response, self._response = self._response, None
        if response is not None:
            await response.aclose()

    async def _run(self) -> AsyncGenerator[Event, None]:
        failures = 0
        self._is_open = True
        # A number that was given counts as one that was seen.
        is_numbered = self.last_seq is not None
        while True:
            failure: Exception | None = None
            response: httpx.Response | None = None
            try:
                response, self._response = self._response, None
                if response is None:
                    response = await self._open(self.last_seq)
                reader = EventReader()
                async for chunk in response.aiter_bytes():
                    for one in reader.feed(chunk):
                        event = one.data
                        if isinstance(event.get(self._number), int):
                            self.last_seq = event[self._number]
                            is_numbered = True
                        failures = 0
                        if self._is_wanted is None or self._is_wanted(event):
                            yield event
                        if self._is_last(event):
                            return
            except (httpx.TransportError, CoveError) as error:
                if not is_again(error):
                    raise
                failure = error
            finally:
                if response is not None:
                    await response.aclose()
            if failure is None and self._ends_quietly:
                return
            if response is None and failure is not None and self.reconnects == 0:
                # It was never open; the transport has tried as often as it may.
                raise failure
            failures += 1
            if not (self._resumable and is_numbered) or failures > _core.STREAM_RETRIES:
                why = failure or "the server closed it"
                raise StreamInterruptedError(f"the stream broke off: {why}") from failure
            self.reconnects += 1
            await sleep(_core.delay(failures, None))


class AsyncPager(Generic[Item]):
    """A list that is fetched page by page while it is iterated."""

    def __init__(
        self, fetch: Callable[[Any], Awaitable[Any]], *, items: str, following: str
    ) -> None:
        self._fetch = fetch
        self._items = items
        self._following = following

    async def pages(self) -> AsyncIterator[list[Item]]:
        """The pages as they come; one may be empty although more follow."""
        position: Any = None
        while True:
            document = await self._fetch(position)
            yield document[self._items]
            position = document.get(self._following)
            if position is None:
                return

    async def __aiter__(self) -> AsyncIterator[Item]:
        async for page in self.pages():
            for item in page:
                yield item

    async def to_list(self, most: int | None = None) -> list[Item]:
        """All items, or the first ones."""
        found: list[Item] = []
        if most is not None and most <= 0:
            return found
        async for item in self:
            found.append(item)
            if len(found) == most:
                break
        return found

    async def first(self) -> Item | None:
        """The first item; `None` of an empty list."""
        found = await self.to_list(1)
        return found[0] if found else None
