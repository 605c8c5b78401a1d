"""The client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import httpx

from .. import _core
from .. import _operations as ops
from .._config import find_token, find_url
from .._errors import APIError
from .._result import Result
from ._agents import AsyncAgents
from ._audit import AsyncAudit
from ._catalog import AsyncCatalog
from ._executions import AsyncExecution, AsyncExecutions, AsyncQueue
from ._nodes import AsyncNodes
from ._runtime import AsyncHttpClient
from ._sessions import AsyncSession, AsyncSessions
from ._templates import AsyncTemplates
from ._tenants import AsyncTenants
from ._transport import AsyncTransport

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from .. import types


class AsyncCove:
    """A client of one server.

    `url` and `token` are, where they are left out, those of `COVE_URL` and `COVE_TOKEN`, else what
    the data directory of a server on this machine says (`COVE_DATA_DIR`), as for `cove`.

    Connections are kept and used again; close the client, or use it with `async with`.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float | None = _core.TIMEOUT,
        max_retries: int = _core.MAX_RETRIES,
        headers: Mapping[str, str] | None = None,
        http_client: AsyncHttpClient | None = None,
    ) -> None:
        found = find_url(url)
        self._owns_http = http_client is None
        transport = AsyncTransport(
            http_client if http_client is not None else AsyncHttpClient(),
            url=found,
            token=find_token(token, found),
            timeout=timeout,
            max_retries=max_retries,
            headers=headers or {},
        )
        self._use(transport)

    def _use(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self.executions = AsyncExecutions(transport)
        self.queue = AsyncQueue(transport)
        self.sessions = AsyncSessions(transport)
        self.agents = AsyncAgents(transport)
        self.templates = AsyncTemplates(transport)
        self.tenants = AsyncTenants(transport)
        self.catalog = AsyncCatalog(transport)
        self.audit = AsyncAudit(transport)
        self.nodes = AsyncNodes(transport)

    @property
    def url(self) -> str:
        """The server's address."""
        return self._transport.url

    def with_options(
        self,
        *,
        timeout: float | None = None,
        max_retries: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncCove:
        """The same connections with other options: `cove.with_options(timeout=5).whoami()`."""
        other = object.__new__(AsyncCove)
        other._owns_http = False
        other._use(self._transport.copy(timeout=timeout, max_retries=max_retries, headers=headers))
        return other

    def with_raw_response(self) -> AbstractAsyncContextManager[list[httpx.Response]]:
        """Collects the answers to the requests that are sent within, with status and headers.

        `async with cove.with_raw_response() as raw:` and then `raw[-1].headers`.
        """
        return self._transport.capture()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        json: object = None,
        content: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> httpx.Response:
        """The answer to any request, with the client's token, repetitions and errors."""
        return await self._transport.request(
            method,
            path,
            query=query,
            json=json,
            content=content,
            headers={**self._transport.headers, **(headers or {})},
            timeout=timeout,
            repeatable=method.upper() in ("GET", "HEAD", "PUT", "DELETE"),
        )

    # -- short ways

    async def run(
        self, *, timeout: float | None = None, **request: Unpack[types.ExecutionRequest]
    ) -> Result:
        """Runs a program and answers with what it did: `executions.run`."""
        return await self.executions.run(timeout=timeout, **request)

    async def submit(
        self, *, idempotency_key: str | None = None, **request: Unpack[types.ExecutionRequest]
    ) -> AsyncExecution:
        """Queues a program: `executions.submit`."""
        return await self.executions.submit(idempotency_key=idempotency_key, **request)

    @asynccontextmanager
    async def session(self, **request: Unpack[types.CreateSession]) -> AsyncGenerator[AsyncSession]:
        """A session for the length of a block, which is ended then."""
        async with await self.sessions.create(**request) as session:
            yield session

    # -- the server

    async def whoami(self) -> types.Whoami:
        """What the token is for, and which services the server has."""
        return await self._transport.call(ops.WHOAMI)

    async def doctor(self, *, run: bool = False) -> types.Doctor:
        """What the server's machine offers and lacks; for operators. `run` checks anew."""
        if run:
            # A run that is under way already is joined.
            return await self._transport.call(ops.RUN_DOCTOR, repeatable=True)
        return await self._transport.call(ops.GET_DOCTOR)

    async def config(self) -> types.Config:
        """The server's configuration in force, without secrets; for operators."""
        return await self._transport.call(ops.GET_CONFIG)

    async def reload(self) -> types.ConfigReloaded:
        """Has the server read its configuration again; for operators.

        Settings of `restart_needed_for` changed and hold from the next start on.
        """
        return await self._transport.call(ops.RELOAD_CONFIG)

    @asynccontextmanager
    async def backup(self) -> AsyncGenerator[AsyncIterator[bytes]]:
        """A copy of the server, piece by piece; for operators with every scope.

        An archive that was cut off can look like a whole one: `cove backup verify` tells.
        """
        # Its store is copied before the first byte.
        response = await self._transport.send(
            ops.GET_BACKUP, headers={"accept": "*/*"}, timeout=600.0, stream=True
        )
        try:
            yield response.aiter_bytes()
        finally:
            await response.aclose()

    async def tokens(self) -> types.TokenList:
        """All API tokens, without their secrets; for operators with the scope `tokens`."""
        return await self._transport.call(ops.LIST_TOKENS)

    async def history(
        self,
        *series: str,
        window: str | None = None,
        step: str | None = None,
        tenant: str | None = None,
    ) -> types.HistoryReport:
        """What the server measured in the last 24 hours, by series.

        Names may end with `*`; without any, all that the token may see. `window` and `step` are
        such as `"1h"` and `"20s"`; `tenant` is one of the bouncer's.
        """
        query = {
            "series": ",".join(series) or None,
            "window": window,
            "step": step,
            "tenant": tenant,
        }
        return await self._transport.call(ops.GET_HISTORY, query=query)

    async def grant_offers(self) -> types.GrantOfferList:
        """What the token may grant to sandboxes."""
        return await self._transport.call(ops.LIST_GRANT_OFFERS)

    async def check_grants(self, *grants: types.Grant) -> types.GrantCheckReport:
        """Whether each of these would be given, and why not. Nothing is made."""
        return await self._transport.call(
            ops.CHECK_GRANTS, json={"grants": list(grants)}, repeatable=True
        )

    async def is_live(self) -> bool:
        """Whether the server's process serves."""
        return await self._health(ops.LIVE)

    async def is_ready(self) -> bool:
        """Whether the server takes work."""
        return await self._health(ops.READY)

    async def _health(self, operation: Any) -> bool:
        once = self._transport.copy(max_retries=0)
        try:
            await once.send(operation)
        except APIError:
            return False
        return True

    async def metrics(self) -> str:
        """The server's figures, as Prometheus reads them."""
        response = await self._transport.send(ops.METRICS, headers={"accept": "*/*"})
        return response.text

    async def webhook_secret(self) -> str:
        """Secret that webhooks are signed with."""
        return (await self._transport.call(ops.GET_WEBHOOK_SECRET))["secret"]

    async def aclose(self) -> None:
        """Closes the connections."""
        if self._owns_http:
            await self._transport.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
