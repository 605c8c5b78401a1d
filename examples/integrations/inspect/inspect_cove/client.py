"""The part of Cove's HTTP interface that a sandbox of Inspect needs."""

import base64
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import anyio
import httpx

# Times in seconds. A server that is at its limits answers 429 or 503; a sample that waits for a
# place is normal when there are more of them than places.
CREATE_WAIT = 600.0
RETRY_WAIT_MAX = 5.0
CONNECT_TIMEOUT = 10.0
# Between two pieces of an answer other than the output of a command, which may take any time.
READ_TIMEOUT = 120.0


class CoveError(Exception):
    """An error of the server, in its own words, with the status of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def server() -> tuple[str, str]:
    """Returns the address of the server and the token, from the environment."""
    url = os.environ.get("COVE_URL", "http://127.0.0.1:4100").rstrip("/")
    token = os.environ.get("COVE_TOKEN")
    if not token:
        raise RuntimeError("COVE_TOKEN is not set; `cove token` prints a token of a local server")
    return url, token


class CoveClient:
    """Requests to `/v1/sessions`."""

    def __init__(self) -> None:
        url, token = server()
        self._http = httpx.AsyncClient(
            base_url=f"{url}/v1",
            headers={"authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT),
        )

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def create(self, body: dict[str, Any]) -> str:
        """Creates a session, and waits for a place when the server has none; returns its id."""
        deadline = anyio.current_time() + CREATE_WAIT
        while True:
            answer = await self._http.post("/sessions", json=body)
            if answer.status_code not in (429, 503) or anyio.current_time() > deadline:
                return str(checked(answer).json()["id"])
            wait = answer.headers.get("retry-after", "1")
            await anyio.sleep(min(float(wait) if wait.isdigit() else 1.0, RETRY_WAIT_MAX))

    async def end(self, session: str) -> None:
        """Ends a session with its files. One that has ended is no error."""
        answer = await self._http.delete(f"/sessions/{session}")
        if answer.status_code not in (404, 410):
            checked(answer)

    async def sessions(self, label: str, value: str) -> list[str]:
        """Returns the ids of sessions that have a label and have not ended."""
        found: list[str] = []
        params = {f"metadata.{label}": value, "limit": "200", "state": "active,paused,stopped"}
        while True:
            page = checked(await self._http.get("/sessions", params=params)).json()
            found += [session["id"] for session in page["sessions"]]
            if not page.get("next_cursor"):
                return found
            params["cursor"] = page["next_cursor"]

    @asynccontextmanager
    async def run(self, session: str, body: dict[str, Any]) -> AsyncIterator["Events"]:
        """Runs a command. Leaving the block before its end kills it."""
        timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT)
        headers = {"accept": "text/event-stream"}
        path = f"/sessions/{session}/exec"
        stream = self._http.stream("POST", path, json=body, headers=headers, timeout=timeout)
        async with stream as answer:
            if answer.status_code != 200:
                await answer.aread()
            yield Events(checked(answer))

    async def stat(self, session: str, path: str) -> dict[str, Any] | None:
        """Returns what is known of a file, or None where there is none."""
        answer = await self._http.get(file_path(session, path), params={"stat": "true"})
        return None if answer.status_code == 404 else checked(answer).json()

    async def write(self, session: str, path: str, content: bytes) -> None:
        """Writes a file in one step."""
        checked(await self._http.put(file_path(session, path), content=content))

    async def remove(self, session: str, path: str) -> None:
        """Removes a file."""
        checked(await self._http.delete(file_path(session, path)))

    async def read(self, session: str, path: str, size_max: int) -> bytes | None:
        """Returns the content of a file, or None if it is larger than that."""
        async with self._http.stream("GET", file_path(session, path)) as answer:
            if answer.status_code != 200:
                await answer.aread()
            content = bytearray()
            async for piece in checked(answer).aiter_bytes():
                content += piece
                if len(content) > size_max:
                    return None
            return bytes(content)


class Events:
    """What a command does, as server-sent events."""

    def __init__(self, answer: httpx.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        async for line in self._answer.aiter_lines():
            if line.startswith("data:"):
                event = json.loads(line[5:])
                if "data_base64" in event:
                    event["data"] = base64.b64decode(event["data_base64"])
                yield event


def file_path(session: str, path: str) -> str:
    """Returns the address of a file; an absolute path is one segment that begins with %2F."""
    return f"/sessions/{session}/files/{quote(path, safe='')}"


def checked(answer: httpx.Response) -> httpx.Response:
    """Returns the answer if it is none of an error."""
    if answer.is_success:
        return answer
    try:
        message = answer.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = answer.text[:500]
    raise CoveError(answer.status_code, message)
