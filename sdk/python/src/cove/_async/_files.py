"""Files of a session."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from .. import _operations as ops
from ._streams import AsyncEventStream
from ._transport import AsyncTransport

if TYPE_CHECKING:
    import httpx

    from .. import types

_BYTES = {"content-type": "application/octet-stream"}


class AsyncFiles:
    """Files of one session. Paths are relative to `/workspace`, absolute, or begin with `~/`."""

    def __init__(self, transport: AsyncTransport, session: str) -> None:
        self._transport = transport
        self._session = session

    def _at(self, path: str) -> dict[str, str | int]:
        return {"id": self._session, "path": path}

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """The bytes of a file, or a part of them."""
        end = "" if length is None else str(start + length - 1)
        is_part = start > 0 or length is not None
        response = await self._transport.send(
            ops.READ_FILE,
            self._at(path),
            headers={"accept": "*/*", **({"range": f"bytes={start}-{end}"} if is_part else {})},
        )
        return response.content

    async def read_text(self, path: str) -> str:
        """A file as text of UTF-8."""
        return (await self.read(path)).decode()

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        """The bytes of a file piece by piece, however large it is."""
        response = await self._transport.send(
            ops.READ_FILE, self._at(path), headers={"accept": "*/*"}, stream=True
        )
        try:
            yield response.aiter_bytes()
        finally:
            await response.aclose()

    async def write(
        self,
        path: str,
        content: str | bytes | AsyncIterator[bytes],
        *,
        create: bool = False,
        append: bool = False,
        mode: str | None = None,
    ) -> types.FileEntry:
        """Writes a file in one step; with `create` only when it is new."""
        return await self._transport.call(
            ops.WRITE_FILE,
            self._at(path),
            query={"create": create or None, "append": append or None, "mode": mode},
            content=content.encode() if isinstance(content, str) else content,
            headers=_BYTES,
            # The second time it would be there, or there twice.
            repeatable=not (append or create),
        )

    async def mkdir(self, path: str) -> types.FileEntry:
        """Makes a directory, with those above it."""
        return await self._transport.call(
            ops.WRITE_FILE, self._at(path), query={"directory": True}, headers=_BYTES
        )

    async def stat(self, path: str) -> types.FileEntry:
        """What a file is."""
        response = await self._transport.send(ops.READ_FILE, self._at(path), query={"stat": True})
        entry: types.FileEntry = response.json()
        return entry

    async def list(
        self, path: str | None = None, *, depth: int | None = None, limit: int | None = None
    ) -> builtins.list[types.FileEntry]:
        """Files of a directory, and of those below it to this depth."""
        answer = await self._transport.call(
            ops.LIST_FILES,
            {"id": self._session},
            query={"path": path, "depth": depth, "limit": limit},
        )
        return answer["entries"]

    async def move(self, source: str, target: str) -> types.FileEntry:
        """Gives a file another name."""
        return await self._transport.call(
            ops.MOVE_FILE, self._at("move"), json={"from": source, "to": target}
        )

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Removes a file; with `recursive` a directory with all that is in it."""
        await self._transport.call(
            ops.REMOVE_FILE, self._at(path), query={"recursive": recursive or None}
        )

    def watch(
        self, path: str | None = None, *, recursive: bool = False
    ) -> AsyncEventStream[types.FileChange]:
        """Changes of a directory as they happen. Changes have no numbers: a break is an error."""

        async def open_stream(last: int | None) -> httpx.Response:
            return await self._transport.send(
                ops.WATCH_FILES,
                {"id": self._session},
                query={"path": path, "recursive": recursive or None},
                headers={"accept": "text/event-stream"},
                stream=True,
            )

        return AsyncEventStream(open_stream, is_last=lambda _: False, resumable=False)

    async def download(self, path: str | None = None) -> bytes:
        """A directory as a tar archive."""
        response = await self._transport.send(
            ops.EXPORT_ARCHIVE,
            {"id": self._session},
            query={"path": path},
            headers={"accept": "*/*"},
        )
        return response.content

    async def upload(
        self, archive: bytes | AsyncIterator[bytes], path: str | None = None
    ) -> types.ArchiveImported:
        """Unpacks a tar archive into a directory."""
        return await self._transport.call(
            ops.IMPORT_ARCHIVE,
            {"id": self._session},
            query={"path": path},
            content=archive,
            headers={"content-type": "application/x-tar"},
        )
