"""Contexts of the code interpreter."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from .. import _core
from .. import _operations as ops
from ._streams import AsyncEventStream
from ._transport import AsyncTransport

if TYPE_CHECKING:
    import httpx
    from typing_extensions import Unpack

    from .. import types


class AsyncContext:
    """A context: cells that run in it keep what they define."""

    def __init__(self, transport: AsyncTransport, session: str, context: types.CodeContext) -> None:
        self._transport = transport
        self._session = session
        #: The context as it was last seen.
        self.record = context

    @property
    def id(self) -> str:
        """Its id."""
        return self.record["id"]

    @property
    def _at(self) -> dict[str, str | int]:
        return {"id": self._session, "context": self.id}

    async def run(
        self,
        code: str,
        *,
        env: dict[str, str] | None = None,
        timeout_ms: int | None = None,
        timeout: float | None = None,
    ) -> types.CellReport:
        """Runs a cell and answers when it has ended."""
        return await run_cell(self._transport, self._at, code, env, timeout_ms, timeout)

    def stream(
        self, code: str, *, env: dict[str, str] | None = None, timeout_ms: int | None = None
    ) -> AsyncEventStream[types.CellEvent]:
        """Runs a cell and gives its events. Whoever leaves has the cell interrupted."""

        async def open_stream(last: int | None) -> httpx.Response:
            return await self._transport.send(
                ops.EXECUTE_CELL,
                self._at,
                json=_cell(code, env, timeout_ms),
                headers={"accept": "text/event-stream"},
                stream=True,
                repeatable=False,
            )

        return AsyncEventStream(
            open_stream, is_last=lambda it: it["type"] in ("ended", "gone"), resumable=False
        )

    async def fork(self, *, force: bool = False) -> AsyncContext:
        """Copies it with all that is defined; see the guide for what a copy shares."""
        made = await self._transport.call(ops.FORK_CODE_CONTEXT, self._at, json={"force": force})
        return AsyncContext(self._transport, self._session, made)

    async def interrupt(self) -> bool:
        """Interrupts the cell that runs; whether one did."""
        answer = await self._transport.call(ops.INTERRUPT_CODE_CONTEXT, self._at)
        return answer["interrupted"]

    async def restart(self) -> types.CodeContext:
        """Begins anew with nothing defined."""
        self.record = await self._transport.call(ops.RESTART_CODE_CONTEXT, self._at)
        return self.record

    async def refresh(self) -> types.CodeContext:
        """Looks again."""
        self.record = await self._transport.call(ops.GET_CODE_CONTEXT, self._at)
        return self.record

    async def delete(self) -> None:
        """Removes it."""
        await self._transport.call(ops.DELETE_CODE_CONTEXT, self._at)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}: {self.record['language']}>"


class AsyncContexts:
    """Contexts of one session."""

    def __init__(self, transport: AsyncTransport, session: str) -> None:
        self._transport = transport
        self._session = session

    async def create(self, **request: Unpack[types.CreateCodeContext]) -> AsyncContext:
        """Makes a context and starts it."""
        made = await self._transport.call(
            ops.CREATE_CODE_CONTEXT, {"id": self._session}, json=request
        )
        return AsyncContext(self._transport, self._session, made)

    async def get(self, context: str) -> AsyncContext:
        """A context by its id, or the default one of a language by its name."""
        found = await self._transport.call(
            ops.GET_CODE_CONTEXT, {"id": self._session, "context": context}
        )
        return AsyncContext(self._transport, self._session, found)

    async def list(self) -> builtins.list[AsyncContext]:
        """All contexts, the oldest first."""
        answer = await self._transport.call(ops.LIST_CODE_CONTEXTS, {"id": self._session})
        return [AsyncContext(self._transport, self._session, it) for it in answer["contexts"]]


async def run_cell(
    transport: AsyncTransport,
    at: dict[str, str | int],
    code: str,
    env: dict[str, str] | None,
    timeout_ms: int | None,
    timeout: float | None,
) -> types.CellReport:
    """Runs a cell and answers when it has ended."""
    return await transport.call(
        ops.EXECUTE_CELL,
        at,
        json=_cell(code, env, timeout_ms),
        timeout=_core.WAIT_TIMEOUT if timeout is None else timeout,
        repeatable=False,
    )


def _cell(code: str, env: dict[str, str] | None, timeout_ms: int | None) -> dict[str, Any]:
    return {"code": code, "env": env or {}, "timeout_ms": timeout_ms}
