"""Sessions: sandboxes that keep their files, their processes and a conversation."""

from __future__ import annotations

import base64
import builtins
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import httpx

from .. import _core
from .. import _operations as ops
from .._error_codes import GoneError
from .._errors import StreamInterruptedError
from ._contexts import AsyncContexts, run_cell
from ._files import AsyncFiles
from ._streams import AsyncEventStream, AsyncPager
from ._terminal import AsyncTerminal
from ._transport import AsyncTransport

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from .. import types
    from .._options import MessageOptions

_EVENTS = {"accept": "text/event-stream"}


class AsyncProcess(AsyncEventStream["types.SessionExecEvent"]):
    """A command that runs beside this program. Leaving it ends the command.

    Iterating it gives events; `wait` gives the end.
    """

    #: Number of the process, once it has started.
    pid: int | None = None
    #: How it ended, once it has.
    result: types.SessionExecResult | None = None

    async def __anext__(self) -> types.SessionExecEvent:
        event = await super().__anext__()
        if event["type"] == "started":
            self.pid = event["pid"]
        elif event["type"] == "ended":
            self.result = event
        return event

    async def wait(self) -> types.SessionExecResult:
        """How the command ended, with the output that nobody has read before."""
        written = {"stdout": b"", "stderr": b""}
        async for event in self:
            if event["type"] == "error":
                raise StreamInterruptedError(event["error"])
            if event["type"] == "stdout" or event["type"] == "stderr":
                written[event["type"]] += base64.b64decode(event["data_base64"])
        if self.result is None:
            raise StreamInterruptedError("the command's stream ended without its end")
        self.result["stdout"] = written["stdout"].decode("utf-8", "replace")
        self.result["stderr"] = written["stderr"].decode("utf-8", "replace")
        return self.result

    async def read_until(self, text: str) -> str:
        """Standard output up to and with this text, or to the end of the command."""
        seen = b""
        async for event in self:
            if event["type"] == "stdout":
                seen += base64.b64decode(event["data_base64"])
                if text.encode() in seen:
                    break
        return seen.decode("utf-8", "replace")


class AsyncTurn(AsyncEventStream["types.SessionEvent"]):
    """Events of one turn of the agent, to `done`."""

    async def text(self) -> str:
        """What the agent said in this turn."""
        said: list[str] = []
        async for event in self:
            if event["type"] == "text":
                said.append(event["data"]["text"])
        return "".join(said)


class AsyncSession:
    """A session. With `async with` it is ended at the end of the block."""

    def __init__(self, transport: AsyncTransport, record: types.Session) -> None:
        self._transport = transport
        #: The record as it was last seen; `refresh` looks again.
        self.record = record
        self.files = AsyncFiles(transport, record["id"])
        self.contexts = AsyncContexts(transport, record["id"])

    @property
    def id(self) -> str:
        """Its id."""
        return self.record["id"]

    @property
    def state(self) -> types.SessionState:
        """Its state when it was last seen."""
        return self.record["state"]

    @property
    def grants(self) -> list[types.Grant]:
        """What its sandbox may reach, as it was last seen."""
        return list(self.record.get("grants") or [])

    @property
    def _at(self) -> dict[str, str | int]:
        return {"id": self.id}

    def with_options(
        self,
        *,
        timeout: float | None = None,
        max_retries: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncSession:
        """The same session with other options of its requests."""
        transport = self._transport.copy(timeout=timeout, max_retries=max_retries, headers=headers)
        return AsyncSession(transport, self.record)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.end()

    async def refresh(self) -> types.Session:
        """Looks again."""
        self.record = await self._transport.call(ops.GET_SESSION, self._at)
        return self.record

    async def update(self, **changes: Unpack[types.UpdateSession]) -> types.Session:
        """Changes metadata, options, grants and what else may change."""
        self.record = await self._transport.call(ops.UPDATE_SESSION, self._at, json=changes)
        return self.record

    async def pause(self) -> types.Session:
        """Takes no messages until it is resumed; its sandbox stays while there is room."""
        self.record = await self._transport.call(ops.PAUSE_SESSION, self._at)
        return self.record

    async def resume(self) -> types.Session:
        """Goes on, after a pause, a stop or an error."""
        self.record = await self._transport.call(ops.RESUME_SESSION, self._at)
        return self.record

    async def stop(self) -> types.Session:
        """Gives up its sandbox and keeps its files."""
        self.record = await self._transport.call(ops.STOP_SESSION, self._at)
        return self.record

    async def end(self) -> types.Session:
        """Ends it for ever, with its files. One that has ended already stays so."""
        try:
            self.record = await self._transport.call(ops.END_SESSION, self._at)
        except GoneError:
            self.record = self.record.copy()
            self.record["state"] = "ended"
        return self.record

    async def interrupt(self) -> bool:
        """Ends the turn that runs; whether one did."""
        answer = await self._transport.call(ops.INTERRUPT_SESSION, self._at)
        return answer["interrupted"]

    # -- conversation

    def send(self, content: types.MessageContent, **options: Unpack[MessageOptions]) -> AsyncTurn:
        """Sends a message; iterating the answer gives the events of its turn.

        A turn whose connection breaks is followed from the last event on.
        """
        turn: list[str] = []

        async def open_stream(last: int | None) -> httpx.Response:
            if last is None:
                return await self._transport.send(
                    ops.SEND_MESSAGE,
                    self._at,
                    json={"content": content, **options},
                    headers=_EVENTS,
                    stream=True,
                )
            return await self._follow(last, None)

        def is_wanted(event: types.SessionEvent) -> bool:
            name = event.get("turn")
            if name is not None and not turn:
                turn.append(name)
            return name is not None and name == turn[0]

        return AsyncTurn(
            open_stream,
            is_last=lambda it: it["type"] == "done" and is_wanted(it),
            is_wanted=is_wanted,
        )

    async def ask(
        self,
        content: types.MessageContent,
        *,
        timeout: float | None = None,
        **options: Unpack[MessageOptions],
    ) -> types.MessageAnswer:
        """Sends a message and answers with the end of its turn."""
        return await self._transport.call(
            ops.SEND_MESSAGE,
            self._at,
            query={"wait": True},
            json={"content": content, **options},
            timeout=_core.WAIT_TIMEOUT if timeout is None else timeout,
        )

    def messages(self, after: int | None = None) -> AsyncPager[types.SessionMessage]:
        """The conversation."""

        async def fetch(position: int | None) -> types.SessionMessageList:
            return await self._transport.call(
                ops.LIST_MESSAGES, self._at, query={"after": position or after}
            )

        return AsyncPager(fetch, items="messages", following="next_after")

    def events(
        self, after: int = 0, *, kinds: Iterable[types.SessionEventKind] | None = None
    ) -> AsyncEventStream[types.SessionEvent]:
        """What has happened since `after`, then what happens, without an end."""
        chosen = None if kinds is None else ",".join(kinds)

        async def open_stream(last: int | None) -> httpx.Response:
            return await self._follow(last, chosen)

        return AsyncEventStream(
            open_stream,
            is_last=lambda it: it["type"] == "lifecycle" and it["data"].get("state") == "ended",
            after=after,
        )

    async def _follow(self, after: int | None, kinds: str | None) -> httpx.Response:
        return await self._transport.send(
            ops.FOLLOW_SESSION,
            self._at,
            query={"after": after, "types": kinds},
            headers=_EVENTS,
            stream=True,
        )

    async def logs(self, start: int | None = None) -> types.SessionLogs:
        """What the agent and the start command wrote to standard error."""
        return await self._transport.call(ops.GET_SESSION_LOGS, self._at, query={"from": start})

    # -- commands

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        stdin: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
        timeout: float | None = None,
    ) -> types.SessionExecResult:
        """Runs a command to its end: a line for the shell, or a program with its arguments."""
        return await self._transport.call(
            ops.EXEC_IN_SESSION,
            self._at,
            json=_command(command, stdin, cwd, env, timeout_ms),
            timeout=_core.WAIT_TIMEOUT if timeout is None else timeout,
            repeatable=False,
        )

    async def start(
        self,
        command: str | Sequence[str],
        *,
        stdin: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
    ) -> AsyncProcess:
        """Starts a command and comes back when it runs; it ends with the `AsyncProcess`."""

        async def open_stream(last: int | None) -> httpx.Response:
            return await self._transport.send(
                ops.EXEC_IN_SESSION,
                self._at,
                json=_command(command, stdin, cwd, env, timeout_ms),
                headers=_EVENTS,
                stream=True,
                repeatable=False,
            )

        process = AsyncProcess(
            open_stream, is_last=lambda it: it["type"] in ("ended", "error"), resumable=False
        )
        await anext(process)
        return process

    async def terminal(
        self,
        argv: Sequence[str] = (),
        *,
        cwd: str | None = None,
        rows: int = 24,
        cols: int = 80,
        detach_s: int | None = None,
    ) -> AsyncTerminal:
        """A program on a terminal, a shell without `argv`. It hangs up with the connection, or
        lives on for `detach_s` seconds without one: its first event has the id to attach to.
        """
        socket = await self._transport.websocket(
            ops.OPEN_TERMINAL,
            self._at,
            {"argv": list(argv), "cwd": cwd, "rows": rows, "cols": cols, "detach_s": detach_s},
        )
        return AsyncTerminal(socket)

    async def attach_terminal(self, terminal: str, *, position: int | None = None) -> AsyncTerminal:
        """A terminal that was opened before, with what it has shown lately, or what follows a
        position in its output.
        """
        query: dict[str, Any] = {"attach": terminal, "from": position}
        return AsyncTerminal(await self._transport.websocket(ops.OPEN_TERMINAL, self._at, query))

    async def terminals(self) -> list[types.SessionTerminal]:
        """Terminals that can be attached to, oldest first."""
        answer = await self._transport.call(ops.LIST_TERMINALS, self._at)
        return answer["terminals"]

    async def end_terminal(self, terminal: str) -> None:
        """Ends a terminal and its program."""
        await self._transport.call(ops.END_TERMINAL, {**self._at, "terminal": terminal})

    async def run_code(
        self,
        code: str,
        *,
        language: str = "python",
        env: dict[str, str] | None = None,
        timeout_ms: int | None = None,
        timeout: float | None = None,
    ) -> types.CellReport:
        """Runs a cell in the default context of a language, which keeps what it defines."""
        at = {**self._at, "context": language}
        return await run_cell(self._transport, at, code, env, timeout_ms, timeout)

    # -- copies

    async def fork(self, count: int = 1) -> list[AsyncSession]:
        """Copies of it, with its files and its conversation."""
        answer = await self._transport.call(
            ops.FORK_SESSION, self._at, json={"count": count}, timeout=_core.WAIT_TIMEOUT
        )
        return [AsyncSession(self._transport, record) for record in answer["sessions"]]

    async def snapshot(self, name: str | None = None) -> types.Snapshot:
        """Keeps its files as they are; `sessions.create(snapshot=...)` starts from them."""
        return await self._transport.call(
            ops.CREATE_SNAPSHOT, self._at, json={"name": name}, timeout=_core.WAIT_TIMEOUT
        )

    def snapshots(self) -> AsyncPager[types.Snapshot]:
        """Snapshots that were taken of it."""

        async def fetch(cursor: str | None) -> types.SnapshotList:
            return await self._transport.call(
                ops.LIST_SNAPSHOTS_OF_SESSION, self._at, query={"cursor": cursor}
            )

        return AsyncPager(fetch, items="snapshots", following="next_cursor")

    # -- what it may reach

    async def grant(self, *grants: types.Grant) -> list[types.Grant]:
        """Gives these beside what it has; they hold at once."""
        await self.refresh()
        await self.update(grants=[*self.grants, *grants])
        return self.grants

    async def revoke(self, *grants: types.Grant) -> list[types.Grant]:
        """Takes these back, all without any named; connections over them end at once."""
        await self.refresh()
        kept = [it for it in self.grants if not any(_is_same(it, one) for one in grants)]
        await self.update(grants=kept if grants else [])
        return self.grants

    async def query(
        self,
        grant: str,
        sql: str,
        parameters: Sequence[object] = (),
        *,
        max_rows: int | None = None,
    ) -> types.GrantQueryResult:
        """Reads from a database or warehouse that it was granted, such as `postgres:shop`."""
        body: dict[str, Any] = {"sql": sql, "parameters": list(parameters)}
        if max_rows is not None:
            body["max_rows"] = max_rows
        return await self._transport.call(
            ops.QUERY_GRANT,
            {**self._at, "name": grant},
            json=body,
            # It can only read.
            repeatable=True,
        )

    async def describe(self, grant: str, name: str | None = None) -> types.GrantDescription:
        """Tables behind a grant, or the columns of one."""
        return await self._transport.call(
            ops.DESCRIBE_GRANT, {**self._at, "name": grant}, query={"name": name}
        )

    # -- the rest

    async def metrics(self) -> types.SessionMetrics:
        """What it uses now."""
        return await self._transport.call(ops.GET_SESSION_METRICS, self._at)

    async def attach_file(self, name: str, content: bytes) -> types.SessionAttachment:
        """Keeps a file with the session, beside its workspace."""
        return await self._transport.call(
            ops.ADD_ATTACHMENT,
            self._at,
            query={"name": name},
            content=content,
            headers={"content-type": "application/octet-stream"},
        )

    async def attachments(self) -> list[types.SessionAttachment]:
        """Files that are kept with it."""
        answer = await self._transport.call(ops.LIST_ATTACHMENTS, self._at)
        return answer["attachments"]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}: {self.state}>"


class AsyncSessions:
    """`/v1/sessions`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, **request: Unpack[types.CreateSession]) -> AsyncSession:
        """Makes a session: empty, of an agent, a template or a snapshot."""
        record = await self._transport.call(
            ops.CREATE_SESSION, json=request, timeout=_core.WAIT_TIMEOUT
        )
        return AsyncSession(self._transport, record)

    async def connect(self, session: str) -> AsyncSession:
        """A session that is there."""
        record = await self._transport.call(ops.GET_SESSION, {"id": session})
        return AsyncSession(self._transport, record)

    def list(
        self,
        *,
        state: str | None = None,
        agent: str | None = None,
        metadata: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> AsyncPager[types.Session]:
        """Records of sessions, the newest first, page by page; `limit` is that of one page."""
        query: dict[str, str | int | None] = {"state": state, "agent": agent, "limit": limit}
        query.update({f"metadata.{name}": value for name, value in (metadata or {}).items()})

        async def fetch(cursor: str | None) -> types.SessionList:
            return await self._transport.call(ops.LIST_SESSIONS, query={**query, "cursor": cursor})

        return AsyncPager(fetch, items="sessions", following="next_cursor")

    async def sandboxes(self) -> types.SandboxCounts:
        """How many sandboxes are in which state."""
        return await self._transport.call(ops.COUNT_SANDBOXES)

    async def usage(
        self,
        *,
        session: str | None = None,
        agent: str | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        limit: int | None = None,
    ) -> types.UsageReport:
        """Tokens, cost and tool calls, added up; `limit` lists turns."""
        query: dict[str, str | int | None] = {
            "session": session,
            "agent": agent,
            "from_ms": from_ms,
            "to_ms": to_ms,
            "limit": limit,
        }
        return await self._transport.call(ops.GET_USAGE, query=query)

    def snapshots(self) -> AsyncPager[types.Snapshot]:
        """All snapshots."""

        async def fetch(cursor: str | None) -> types.SnapshotList:
            return await self._transport.call(ops.LIST_SNAPSHOTS, query={"cursor": cursor})

        return AsyncPager(fetch, items="snapshots", following="next_cursor")

    async def delete_snapshot(self, snapshot: str) -> None:
        """Removes a snapshot."""
        await self._transport.call(ops.DELETE_SNAPSHOT, {"id": snapshot})

    async def read_attachment(self, attachment: str) -> bytes:
        """The bytes of a file that is kept with a session."""
        response = await self._transport.send(
            ops.GET_ATTACHMENT, {"id": attachment}, headers={"accept": "*/*"}
        )
        return response.content

    async def delete_attachment(self, attachment: str) -> None:
        """Removes a file that is kept with a session."""
        await self._transport.call(ops.DELETE_ATTACHMENT, {"id": attachment})

    async def credentials(self) -> builtins.list[types.Credential]:
        """Secrets for sessions, without what is secret."""
        answer = await self._transport.call(ops.LIST_CREDENTIALS)
        return answer["credentials"]

    async def create_credential(
        self, **request: Unpack[types.CreateCredential]
    ) -> types.Credential:
        """Keeps a secret that sessions may name."""
        return await self._transport.call(ops.CREATE_CREDENTIAL, json=request)

    async def delete_credential(self, credential: str) -> None:
        """Removes a secret."""
        await self._transport.call(ops.DELETE_CREDENTIAL, {"id": credential})


def _is_same(one: types.Grant, other: types.Grant) -> bool:
    """Whether every field that `other` names is in `one`; the server adds what was left out."""
    known: Mapping[str, Any] = {**one}
    return all(known.get(field) == value for field, value in {**other}.items())


def _command(
    command: str | Sequence[str],
    stdin: str | None,
    cwd: str | None,
    env: Mapping[str, str] | None,
    timeout_ms: int | None,
) -> dict[str, Any]:
    what = {"command": command} if isinstance(command, str) else {"argv": list(command)}
    return {**what, "stdin": stdin, "cwd": cwd, "env": dict(env or {}), "timeout_ms": timeout_ms}
