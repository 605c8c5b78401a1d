"""Executions: programs that run once, at once or in the queue."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import httpx

from .. import _core
from .. import _operations as ops
from .._errors import APITimeoutError, ExecutionEndedError
from .._result import Result
from ._streams import AsyncEventStream, AsyncPager
from ._terminal import AsyncAttachedExecution
from ._transport import AsyncTransport

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .. import types

#: States that an execution does not leave, but for a retry.
_OVER = ("finished", "cancelled", "expired", "dead")


class AsyncExecution:
    """An execution of the queue."""

    def __init__(self, transport: AsyncTransport, record: types.ExecutionRecord) -> None:
        self._transport = transport
        #: The record as it was last seen; `refresh` looks again.
        self.record = record

    @property
    def id(self) -> str:
        """Its id."""
        return self.record["id"]

    @property
    def state(self) -> types.ExecutionState:
        """Its state when it was last seen."""
        return self.record["state"]

    async def refresh(self, *, include_request: bool = False) -> types.ExecutionRecord:
        """Looks again."""
        include = "request" if include_request else None
        self.record = await self._transport.call(
            ops.GET_EXECUTION, {"id": self.id}, query={"include": include}
        )
        return self.record

    async def wait(self, timeout: float | None = None) -> Result:
        """Its result, once it has ended.

        Raises `ExecutionEndedError` when it ended without one, and `APITimeoutError` when it has
        not ended within `timeout` seconds.
        """
        limit = _core.WAIT_TIMEOUT if timeout is None else timeout
        transport = self._transport
        if transport.max_retries > 0:
            # A server that is started again answers who comes back, as it does for streams.
            transport = transport.copy(max_retries=max(transport.max_retries, _core.STREAM_RETRIES))
        while self.state not in _OVER or (self.state == "finished" and not self._result()):
            self.record = await transport.call(
                ops.GET_EXECUTION, {"id": self.id}, query={"wait": True}, timeout=limit
            )
            if timeout is not None and self.state not in _OVER:
                raise APITimeoutError(f"{self.id} is {self.state} after {timeout} seconds")
        result = self._result()
        if result is None:
            raise ExecutionEndedError(self.id, self.state, self.record.get("message"))
        return Result(result)

    def _result(self) -> types.Execution | None:
        return self.record.get("result")

    def events(self, after: int | None = None) -> AsyncEventStream[types.ExecutionEvent]:
        """What happens to it, from the beginning or after an event, to its end."""

        async def open_stream(last: int | None) -> httpx.Response:
            return await self._transport.send(
                ops.FOLLOW_EXECUTION,
                {"id": self.id},
                query={"after": last},
                headers={"accept": "text/event-stream"},
                stream=True,
            )

        return AsyncEventStream(
            open_stream, is_last=lambda it: it["type"] in ("verdict", "ended"), after=after or 0
        )

    async def attach(self) -> AsyncAttachedExecution:
        """Attaches this side as the source of its input; it ends with the connection."""
        socket = await self._transport.websocket(
            ops.FOLLOW_EXECUTION, {"id": self.id}, {"attach": True}
        )
        return AsyncAttachedExecution(socket)

    async def cancel(self) -> types.ExecutionRecord:
        """Ends it."""
        self.record = await self._transport.call(
            ops.CANCEL_EXECUTION, {"id": self.id}, repeatable=False
        )
        return self.record

    async def retry(self) -> types.ExecutionRecord:
        """Queues it again, when it is dead."""
        self.record = await self._transport.call(ops.RETRY_EXECUTION, {"id": self.id})
        return self.record

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}: {self.state}>"


class AsyncExecutions:
    """`/v1/executions`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def run(
        self, *, timeout: float | None = None, **request: Unpack[types.ExecutionRequest]
    ) -> Result:
        """Runs a program and answers with what it did. Nothing of it is stored."""
        document: Any = await self._transport.call(
            ops.CREATE_EXECUTION,
            query={"wait": True},
            json=request,
            timeout=_core.WAIT_TIMEOUT if timeout is None else timeout,
            # Whoever asks like this has no key, and a program with grants may have done things.
            repeatable=False,
            keyed=False,
        )
        return Result(document)

    async def submit(
        self, *, idempotency_key: str | None = None, **request: Unpack[types.ExecutionRequest]
    ) -> AsyncExecution:
        """Queues a program; the answer comes when that is durable."""
        record: Any = await self._transport.call(
            ops.CREATE_EXECUTION, json=request, headers=_key(idempotency_key)
        )
        return AsyncExecution(self._transport, record)

    async def batch(
        self, requests: Iterable[types.ExecutionRequest], *, idempotency_key: str | None = None
    ) -> builtins.list[AsyncExecution]:
        """Queues many programs in one step, all or none."""
        answer = await self._transport.call(
            ops.CREATE_BATCH,
            json={"executions": list(requests)},
            headers=_key(idempotency_key),
        )
        return [AsyncExecution(self._transport, record) for record in answer["executions"]]

    async def get(self, execution: str, *, include_request: bool = False) -> AsyncExecution:
        """One execution of the queue."""
        include = "request" if include_request else None
        record = await self._transport.call(
            ops.GET_EXECUTION, {"id": execution}, query={"include": include}
        )
        return AsyncExecution(self._transport, record)

    def list(
        self,
        *,
        state: str | None = None,
        language: str | None = None,
        label: str | None = None,
        verdict: str | None = None,
        id: str | None = None,
        text: str | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        order: str | None = None,
        tenant: str | None = None,
        limit: int | None = None,
    ) -> AsyncPager[types.ExecutionRecord]:
        """Records of executions, the newest first, page by page; `limit` is that of one page."""
        query: dict[str, str | int | None] = {
            "state": state,
            "language": language,
            "label": label,
            "verdict": verdict,
            "id": id,
            "text": text,
            "from_ms": from_ms,
            "to_ms": to_ms,
            "order": order,
            "tenant": tenant,
            "limit": limit,
        }

        async def fetch(cursor: str | None) -> types.ExecutionList:
            return await self._transport.call(
                ops.LIST_EXECUTIONS, query={**query, "cursor": cursor}
            )

        return AsyncPager(fetch, items="executions", following="next_cursor")

    async def languages(self) -> builtins.list[types.Language]:
        """Languages of the server, and which of them this host has the tools for."""
        answer = await self._transport.call(ops.LIST_LANGUAGES)
        return answer["languages"]


class AsyncQueue:
    """`/v1/queue`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def stats(self, *, all_tenants: bool = False) -> types.QueueStats:
        """How much waits, runs and has ended; for operators also of all tenants."""
        return await self._transport.call(ops.GET_QUEUE, query={"all": all_tenants or None})

    async def pause(self) -> types.QueueStats:
        """Starts nothing from the queue until `resume`. For operators."""
        return await self._transport.call(ops.PAUSE_QUEUE)

    async def resume(self) -> types.QueueStats:
        """Starts what waits again. For operators."""
        return await self._transport.call(ops.RESUME_QUEUE)

    async def drain(self, *, all_tenants: bool = False) -> int:
        """Cancels what waits; how many executions that were."""
        answer = await self._transport.call(ops.DRAIN_QUEUE, query={"all": all_tenants or None})
        return answer["changed"]

    async def retry(self, *, all_tenants: bool = False) -> int:
        """Queues again what is dead; how many executions that were."""
        answer = await self._transport.call(ops.RETRY_DEAD, query={"all": all_tenants or None})
        return answer["changed"]


def _key(key: str | None) -> dict[str, str] | None:
    return None if key is None else {"idempotency-key": key}
