"""Errors that have no code of their own: what they are all made of, and the connection's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def document_of(body: Any) -> dict[str, Any]:
    """The member `error` of a document; empty where there is none."""
    whole = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    error: Any = whole.get("error")
    return cast("dict[str, Any]", error).copy() if isinstance(error, dict) else {}


class CoveError(Exception):
    """Base of all errors of this package."""


class APIError(CoveError):
    """The server answered with an error. Its class says which one, by the code of the document.

    `code` is stable and meant to be matched on; `message` is for people.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str | None = None,
        field: str | None = None,
        retry: bool | None = None,
        retry_after: float | None = None,
        request_id: str | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        #: Path of what is wrong in the request, such as `limits.cpu_ms`.
        self.field = field
        #: Whether the same request may succeed later.
        self.retry = retry
        #: Seconds that the server asks to wait.
        self.retry_after = retry_after
        #: Under this the server's log has the details.
        self.request_id = request_id
        #: The document as it came, or the text where it is none.
        self.body = body
        self.headers = dict(headers or {})

    @property
    def details(self) -> dict[str, Any]:
        """Every field of the error document; empty where there was none."""
        return document_of(self.body)

    def __str__(self) -> str:
        place = f"{self.field}: " if self.field else ""
        known = [str(self.status), *([self.code] if self.code else [])]
        if self.request_id:
            known.append(f"request {self.request_id}")
        return f"{place}{self.message} ({', '.join(known)})"


class APIConnectionError(CoveError):
    """The server could not be reached, or the connection was lost before it answered."""


class APITimeoutError(APIConnectionError):
    """The server did not answer within the client's `timeout`."""


class StreamInterruptedError(APIConnectionError):
    """A stream broke off, and cannot go on where it was."""


class ConnectionClosedError(CoveError):
    """A WebSocket was closed; `code` is its close code, 1006 where there was none."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"closed with {code}" + (f": {reason}" if reason else ""))
        self.code = code
        self.reason = reason


class ExecutionEndedError(CoveError):
    """An execution ended without a result: it was cancelled, expired, or is dead."""

    def __init__(self, execution: str, state: str, message: str | None) -> None:
        super().__init__(f"{execution} is {state}" + (f": {message}" if message else ""))
        self.execution = execution
        self.state = state
        self.message = message


class VerdictError(CoveError):
    """A program ended with another verdict than `OK`; see `Result.check`."""

    def __init__(self, verdict: str, message: str) -> None:
        super().__init__(message)
        self.verdict = verdict


class TemplateBuildError(CoveError):
    """A template could not be built; `build` is the record with its failure."""

    def __init__(self, message: str, build: Any) -> None:
        super().__init__(message)
        self.build = build
