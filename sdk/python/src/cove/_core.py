"""What the asynchronous and the blocking client decide alike, without reading or writing.

Which requests are tried again and when, how paths and queries are written, and which error an
answer is.
"""

from __future__ import annotations

import email.utils
import json
import random
import time
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from ._error_codes import BY_CODE, BY_STATUS
from ._errors import APIError, document_of
from ._operation import Operation
from ._version import __version__

#: Seconds that a request waits for the server, unless the client or the call says otherwise.
TIMEOUT = 60.0
#: Seconds that the client waits for a program, a build or a turn of an agent at a time.
WAIT_TIMEOUT = 3600.0
#: Seconds without a byte after which a stream counts as broken; the server sends a comment every
#: 15 seconds.
STREAM_TIMEOUT = 60.0
#: How often a request is sent again.
MAX_RETRIES = 3
#: How often in succession a stream that broke is opened again, without an event in between.
STREAM_RETRIES = 8
#: Seconds before the first repetition; each one after it waits twice as long, up to the maximum.
BACKOFF_FIRST = 0.25
BACKOFF_MAX = 8.0
#: The longest `retry-after` that is waited for; a longer one is the caller's matter.
RETRY_AFTER_MAX = 60.0
#: Answers that refuse before anything is done, so that every request may be sent again.
_REFUSED = frozenset({429, 503})
#: Answers after which nobody knows what was done.
_UNCERTAIN = frozenset({502, 504})

QueryValue = str | int | float | bool | list[str] | None
Query = Mapping[str, QueryValue]


def delay(attempt: int, retry_after: float | None) -> float:
    """Seconds to wait before repetition `attempt`, from 0: exponential, with jitter."""
    if retry_after is not None:
        # Those who were refused together do not come back together.
        return retry_after + random.uniform(0.0, BACKOFF_FIRST)
    bound: float = min(BACKOFF_MAX, BACKOFF_FIRST * 2.0**attempt)
    return random.uniform(bound / 2.0, bound)


def may_repeat(error: APIError, *, repeatable: bool) -> bool:
    """Whether a request that was answered with this error is sent again."""
    if error.retry_after is not None and error.retry_after > RETRY_AFTER_MAX:
        return False
    if error.status in _REFUSED:
        return error.retry is not False
    return error.status in _UNCERTAIN and repeatable


def path_of(operation: Operation[Any], values: Mapping[str, str | int]) -> str:
    """The operation's path with these values in it."""
    path = operation.path
    for name, value in values.items():
        path = path.replace("{" + name + "}", _segment(name, str(value)))
    if "{" in path:
        raise ValueError(f"{operation.name}: a part of {operation.path} is missing")
    return path


def _segment(name: str, value: str) -> str:
    if not value:
        raise ValueError(f"{name} must not be empty")
    if name == "path":
        # A path of a session's files has levels. One that begins with `/` is absolute; `.` and
        # `..` are the server's to judge and would otherwise be resolved on the way to it.
        lead = "%2F" if value.startswith("/") else ""
        levels = value.removeprefix("/").split("/")
        return lead + "/".join(_dots(quote(level, safe="~")) for level in levels)
    return _dots(quote(value, safe="~"))


def _dots(segment: str) -> str:
    return segment.replace(".", "%2E") if segment in (".", "..") else segment


def query_of(query: Query | None) -> dict[str, str | list[str]]:
    """Parameters as the server reads them; what is `None` is left out."""
    written: dict[str, str | list[str]] = {}
    for name, value in (query or {}).items():
        if isinstance(value, list):
            written[name] = value
        elif value is not None:
            written[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return written


def headers_of(token: str | None, extra: Mapping[str, str]) -> dict[str, str]:
    """Headers of every request of a client."""
    headers = {"user-agent": f"cove-sdk-python/{__version__}", "accept": "application/json"}
    if token:
        headers["authorization"] = f"Bearer {token}"
    return {**headers, **{name.lower(): value for name, value in extra.items()}}


def new_key() -> str:
    """A new idempotency key."""
    return str(uuid.uuid4())


def error_of(status: int, headers: Mapping[str, str], content: bytes) -> APIError:
    """The error that an answer is: by its code, else by its status."""
    body: Any
    try:
        body = json.loads(content)
    except ValueError:
        body = content.decode("utf-8", "replace")
    found = document_of(body)
    # The catalog's documents have the status as `code` and their kind as `type`.
    code = found.get("code") if isinstance(found.get("code"), str) else found.get("type")
    message = found.get("message")
    if not isinstance(message, str):
        message = body[:200] if isinstance(body, str) and body else f"answered with {status}"
    kind = BY_CODE.get(code or "") or BY_STATUS.get(status) or APIError
    retry = found.get("retry")
    return kind(
        message,
        status=status,
        code=code if isinstance(code, str) else None,
        field=found.get("field"),
        retry=retry if isinstance(retry, bool) else None,
        retry_after=_retry_after(headers.get("retry-after")),
        request_id=headers.get("x-request-id"),
        body=body,
        headers=headers,
    )


def _retry_after(value: str | None) -> float | None:
    """Seconds, or a date."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (TypeError, ValueError):
            return None
    return max(0.0, seconds) if seconds == seconds else None
