"""Requests with their repetitions, streams that are taken up again, and WebSockets."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import httpx

from .. import _core
from .._core import Query
from .._errors import APIConnectionError, APIError, APITimeoutError
from .._operation import Operation
from .._websocket import upgrade_headers
from ._runtime import AsyncHttpClient, sleep
from ._websocket import AsyncWebSocket

Answer = TypeVar("Answer")

#: Where the answers go that `with_raw_response` asks for.
_captured: ContextVar[list[httpx.Response] | None] = ContextVar("cove_captured", default=None)


class AsyncTransport:
    """Sends the requests of one client with its options. Copies share the connections."""

    def __init__(
        self,
        http: AsyncHttpClient,
        *,
        url: str,
        token: str | None,
        timeout: float | None,
        max_retries: int,
        headers: Mapping[str, str],
    ) -> None:
        self.http = http
        self.url = url
        self.token = token
        self.timeout = timeout
        self.max_retries = max_retries
        self.headers = {name.lower(): value for name, value in headers.items()}

    def copy(
        self,
        *,
        timeout: float | None = None,
        max_retries: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncTransport:
        """The same connections with other options."""
        return AsyncTransport(
            self.http,
            url=self.url,
            token=self.token,
            timeout=self.timeout if timeout is None else timeout,
            max_retries=self.max_retries if max_retries is None else max_retries,
            headers={**self.headers, **{k.lower(): v for k, v in (headers or {}).items()}},
        )

    @asynccontextmanager
    async def capture(self) -> AsyncGenerator[list[httpx.Response]]:
        """Collects the answers to the requests that are sent within."""
        answers: list[httpx.Response] = []
        token = _captured.set(answers)
        try:
            yield answers
        finally:
            _captured.reset(token)

    async def call(
        self,
        operation: Operation[Answer],
        path: Mapping[str, str | int] | None = None,
        *,
        query: Query | None = None,
        json: object = None,
        content: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        repeatable: bool | None = None,
        keyed: bool = True,
    ) -> Answer:
        """The document that an operation is answered with."""
        response = await self.send(
            operation,
            path,
            query=query,
            json=json,
            content=content,
            headers=headers,
            timeout=timeout,
            repeatable=repeatable,
            keyed=keyed,
        )
        document: Any = None
        if response.content and not operation.empty:
            document = response.json()
        # The contract says what a success is: openapi.json, by which `Answer` was made.
        answer: Answer = document
        return answer

    async def send(
        self,
        operation: Operation[Any],
        path: Mapping[str, str | int] | None = None,
        *,
        query: Query | None = None,
        json: object = None,
        content: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        repeatable: bool | None = None,
        keyed: bool = True,
        stream: bool = False,
    ) -> httpx.Response:
        """The answer of an operation; with `stream`, its body is still to be read.

        `repeatable` says whether to send again what may have been done already; left out, the
        operation says it. Without `keyed` no idempotency key is made up.
        """
        all_headers = {**self.headers, **{k.lower(): v for k, v in (headers or {}).items()}}
        if operation.method == "POST" and keyed:
            all_headers.setdefault("idempotency-key", _core.new_key())
        if repeatable is None:
            repeatable = operation.repeatable
        # What is read from an iterator cannot be read twice.
        is_whole = content is None or isinstance(content, (bytes, str))
        return await self.request(
            operation.method,
            _core.path_of(operation, path or {}),
            query=query,
            json=json,
            content=content,
            headers=all_headers,
            timeout=timeout,
            repeatable=repeatable and is_whole,
            retries=self.max_retries if is_whole else 0,
            stream=stream,
            # A repetition that finds nothing to delete: the first one has deleted it.
            gone_is_done=operation.method == "DELETE" and operation.empty,
        )

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        json: object = None,
        content: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        repeatable: bool = False,
        retries: int | None = None,
        stream: bool = False,
        gone_is_done: bool = False,
    ) -> httpx.Response:
        """Sends one request, again where that does no harm, and raises what is no success."""
        limit = self.max_retries if retries is None else retries
        request = self.http.build_request(
            method,
            self.url + path,
            params=_core.query_of(query),
            json=json,
            content=content,
            headers=_core.headers_of(self.token, self.headers if headers is None else headers),
            timeout=self._timeout(timeout, stream),
        )
        was_lost = False
        for attempt in range(limit + 1):
            is_last = attempt == limit
            retry_after: float | None = None
            try:
                response = await self.http.send(request, stream=True)
                if not stream or response.is_error:
                    await self._read(response)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                # Nothing was sent.
                if is_last:
                    raise self._unreachable(error) from error
            except httpx.TransportError as error:
                was_lost = True
                # Who says how long this one answer may take has said how long in all.
                is_late = timeout is not None and isinstance(error, httpx.TimeoutException)
                if is_last or is_late or not repeatable:
                    raise self._broken(error) from error
            else:
                captured = _captured.get()
                if captured is not None:
                    captured.append(response)
                if not response.is_error or (
                    gone_is_done and was_lost and response.status_code in (404, 410)
                ):
                    return response
                failure = _core.error_of(response.status_code, response.headers, response.content)
                if is_last or not _core.may_repeat(failure, repeatable=repeatable):
                    raise failure
                was_lost = was_lost or failure.status >= 500
                retry_after = failure.retry_after
            await sleep(_core.delay(attempt, retry_after))
        raise AssertionError("the last attempt returns or raises")

    async def websocket(
        self, operation: Operation[Any], path: Mapping[str, str | int], query: Query | None = None
    ) -> AsyncWebSocket:
        """Opens a WebSocket on a connection of the client."""
        headers, expected = upgrade_headers()
        headers = _core.headers_of(self.token, {**self.headers, **headers})
        request = self.http.build_request(
            "GET",
            self.url + _core.path_of(operation, path),
            params=_core.query_of(query),
            headers=headers,
            timeout=self._timeout(None, False),
        )
        for attempt in range(self.max_retries + 1):
            is_last = attempt == self.max_retries
            retry_after: float | None = None
            try:
                response = await self.http.send(request, stream=True)
                if response.status_code != 101:
                    await self._read(response)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                if is_last:
                    raise self._unreachable(error) from error
            except httpx.TransportError as error:
                raise self._broken(error) from error
            else:
                if response.status_code == 101:
                    if response.headers.get("sec-websocket-accept") == expected:
                        return AsyncWebSocket(response)
                    await response.aclose()
                    raise APIConnectionError(f"{self.url} did not agree to a WebSocket")
                failure = _core.error_of(response.status_code, response.headers, response.content)
                if is_last or not _core.may_repeat(failure, repeatable=False):
                    raise failure
                retry_after = failure.retry_after
            await sleep(_core.delay(attempt, retry_after))
        raise AssertionError("the last attempt returns or raises")

    async def _read(self, response: httpx.Response) -> None:
        try:
            await response.aread()
        finally:
            await response.aclose()

    def _timeout(self, timeout: float | None, stream: bool) -> httpx.Timeout:
        chosen = self.timeout if timeout is None else timeout
        if not stream:
            return httpx.Timeout(chosen)
        return httpx.Timeout(chosen, read=_core.STREAM_TIMEOUT if timeout is None else timeout)

    def _unreachable(self, error: httpx.TransportError) -> APIConnectionError:
        kind = APITimeoutError if isinstance(error, httpx.TimeoutException) else APIConnectionError
        return kind(f"{self.url} cannot be reached: {error or type(error).__name__}")

    def _broken(self, error: httpx.TransportError) -> APIConnectionError:
        if isinstance(error, httpx.TimeoutException):
            return APITimeoutError(f"{self.url} did not answer in time")
        return APIConnectionError(f"{self.url} did not answer: {error or type(error).__name__}")


def is_again(error: Exception) -> bool:
    """Whether a stream that ended like this is worth opening again."""
    if isinstance(error, APIError):
        return error.status in (429, 502, 503, 504) and error.retry is not False
    return isinstance(error, (httpx.TransportError, APIConnectionError))
