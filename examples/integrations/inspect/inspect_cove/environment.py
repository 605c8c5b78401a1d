"""Inspect's contract for sandboxes, kept by sessions of Cove: one session for each sample."""

import posixpath
import signal
import uuid
from typing import Any, Literal, NoReturn, overload

import anyio
import httpx
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel

from .client import CoveClient, CoveError, server

WORKSPACE = "/workspace"
USER = "user"
# Label by which sessions of Inspect are found again, and how they are told apart.
LABEL = "inspect"
# Longest that a command may take: Inspect's "no timeout" is Cove's longest, a day.
TIMEOUT_MS_MAX = 24 * 60 * 60 * 1000
# Input that goes with the request; what is longer, or no text, goes through a file.
INPUT_BYTES_MAX = 1 << 20
# Output that is shown with a timeout.
TIMEOUT_OUTPUT_CHARACTERS = 16 << 10
# Signals as a shell adds them to an exit code.
SIGNALED = 128


class CoveConfig(BaseModel, frozen=True):
    """What a session starts from and what it may have; everything may be left out."""

    template: str | None = None
    """Template: a name, `name:tag` or an id."""
    agent: str | None = None
    """Agent whose files and environment it gets. Excludes a template."""
    env: dict[str, str] = {}
    """Environment of all commands."""
    limits: dict[str, int] = {}
    """`memory_bytes`, `processes`, `disk_bytes`, `disk_inodes`, `tmp_bytes`, `open_files`."""
    grants: list[dict[str, Any]] | None = None
    """What code inside may reach: databases, tables, servers outside."""

    # Inspect groups samples by their configuration.
    def __hash__(self) -> int:
        return hash(self.model_dump_json())


@sandboxenv(name="cove")
class CoveSandboxEnvironment(SandboxEnvironment):
    """A session of Cove. Relative paths begin at `/workspace`."""

    def __init__(self, client: CoveClient, session: str) -> None:
        super().__init__()
        self.client = client
        self.session = session

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return CoveConfig(**config)

    @classmethod
    async def sample_init(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        metadata: dict[str, str],
    ) -> dict[str, SandboxEnvironment]:
        client = CoveClient()
        try:
            session = await client.create(session_request(task_name, config))
        except BaseException:
            await client.close()
            raise
        return {"default": cls(client, session)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            sandbox = environment.as_type(cls)
            try:
                await sandbox.client.end(sandbox.session)
            finally:
                await sandbox.client.close()

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        client = CoveClient()
        try:
            for session in [id] if id else await client.sessions(LABEL, "sample"):
                await client.end(session)
                print(f"ended {session}")
        finally:
            await client.close()

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        check_user(user)
        url, _ = server()
        command = f"cove session exec --server {url} --tty {self.session}"
        return SandboxConnection(type="cove", command=command, container=self.session)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Runs a command. It is not run again after a timeout: that is the command's own."""
        check_user(user)
        body: dict[str, Any] = {
            "argv": cmd,
            "cwd": resolved(cwd or WORKSPACE),
            "env": env or {},
            "timeout_ms": timeout_ms(timeout),
        }
        parked = None
        if input is not None:
            text = as_text(input)
            if text is not None:
                body["stdin"] = text
            else:
                parked = f"{WORKSPACE}/.inspect-input-{uuid.uuid4().hex}"
                content = input if isinstance(input, bytes) else input.encode()
                await self.client.write(self.session, parked, content)
                # Open before it is gone, so that nothing of it is seen by the command.
                script = 'exec < "$0" && rm -f -- "$0" && exec "$@"'
                body["argv"] = ["/bin/sh", "-c", script, parked, *cmd]
        try:
            return await self._run(body, cmd, timeout)
        except (CoveError, httpx.TransportError) as error:
            # What is wrong with the request itself is the caller's.
            if isinstance(error, CoveError) and error.status == 400:
                raise ValueError(str(error)) from error
            raise SandboxUnavailableError(f"session {self.session}: {error}") from error
        finally:
            if parked:
                await self._unpark(parked)

    async def _unpark(self, parked: str) -> None:
        """Removes an input that no command has opened; mostly there is none."""
        try:
            with anyio.CancelScope(shield=True):
                await self.client.remove(self.session, parked)
        except (CoveError, httpx.TransportError):
            pass

    async def _run(
        self, body: dict[str, Any], cmd: list[str], timeout: int | None
    ) -> ExecResult[str]:
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        output = {"stdout": bytearray(), "stderr": bytearray()}
        end: dict[str, Any] | None = None
        async with self.client.run(self.session, body) as events:
            async for event in events:
                kind = event["type"]
                if kind in output:
                    output[kind] += event["data"]
                    if len(output[kind]) > limit:
                        # Leaving the block ends the command.
                        raise OutputLimitExceededError(
                            SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR,
                            decoded(output[kind][:limit]),
                        )
                elif kind == "error":
                    raise SandboxUnavailableError(f"session {self.session}: {event['error']}")
                elif kind == "ended":
                    end = event
        if end is None:
            raise SandboxUnavailableError(f"session {self.session}: the connection was cut")
        stdout, stderr = decoded(output["stdout"]), decoded(output["stderr"])
        if end["timed_out"]:
            error = TimeoutError(f"Command timed out after {timeout} seconds")
            # Inspect shows this to the model.
            setattr(error, "truncated_output", (stdout + stderr)[-TIMEOUT_OUTPUT_CHARACTERS:])
            raise error
        start_error = end.get("start_error")
        denied = "Permission denied"
        if end["exit_code"] == 126 and (start_error or stderr).rstrip().endswith(denied):
            raise PermissionError(f"{cmd[0]}: {start_error or stderr.strip()}")
        if start_error:
            stderr += f"{cmd[0]}: {start_error}\n"
        code = end["exit_code"]
        if code is None:
            code = SIGNALED + getattr(signal, str(end.get("signal")), 0)
        return ExecResult(success=code == 0, returncode=code, stdout=stdout, stderr=stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        path = resolved(file)
        content = contents.encode() if isinstance(contents, str) else contents
        try:
            # Cove replaces a file as a whole; Inspect wants the permissions of the one that is
            # there to hold.
            there = await self.client.stat(self.session, path)
            if there and there["kind"] == "dir":
                raise IsADirectoryError(f"{file}: is a directory")
            if there and there["kind"] == "file" and not there["mode"] & 0o222:
                raise PermissionError(f"{file}: permission denied")
            await self.client.write(self.session, path, content)
        except (CoveError, httpx.TransportError) as error:
            raise_for_file(file, error)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            content = await self.client.read(self.session, resolved(file), limit)
        except (CoveError, httpx.TransportError) as error:
            raise_for_file(file, error)
        if content is None:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return content.decode() if text else content


def session_request(
    task_name: str, config: SandboxEnvironmentConfigType | None
) -> dict[str, Any]:
    """Returns what a session is created with. A plain string names a template."""
    body: dict[str, Any] = {"metadata": {LABEL: "sample", "inspect_task": task_name}}
    if isinstance(config, str):
        return body | {"template": config}
    if config is None:
        return body
    if not isinstance(config, CoveConfig):
        kind = type(config).__name__
        raise TypeError(f"a sandbox of Cove takes a CoveConfig or a template's name, not {kind}")
    return body | config.model_dump(exclude_defaults=True)


def timeout_ms(timeout: float | None) -> int:
    """Returns a time in seconds as Cove wants it."""
    if timeout is None:
        return TIMEOUT_MS_MAX
    return min(max(1, int(timeout * 1000)), TIMEOUT_MS_MAX)


def check_user(user: str | None) -> None:
    """Raises for a user that sandboxes have not: there is one."""
    if user not in (None, USER):
        raise SandboxUserUnsupportedError(f"user {user!r}: the only user of a sandbox is {USER!r}")


def resolved(path: str) -> str:
    """Returns an absolute path."""
    return posixpath.join(WORKSPACE, path)


def as_text(given: str | bytes) -> str | None:
    """Returns input that can go with the request, or None."""
    try:
        text = given.decode() if isinstance(given, bytes) else given
        return text if len(text.encode()) <= INPUT_BYTES_MAX else None
    except UnicodeError:
        return None


def decoded(content: bytes | bytearray) -> str:
    """Returns output as text; bytes that are not UTF-8 are replaced."""
    return content.decode(errors="replace")


def raise_for_file(file: str, error: Exception) -> NoReturn:
    """Raises what Inspect's contract has for this error of the server."""
    if isinstance(error, CoveError):
        message = f"{file}: {error}"
        if error.status == 404:
            raise FileNotFoundError(message) from error
        if error.status == 403:
            raise PermissionError(message) from error
        if error.status == 400 and "is a directory" in str(error):
            raise IsADirectoryError(message) from error
        if error.status == 400 and "not a directory" in str(error):
            raise NotADirectoryError(message) from error
        raise OSError(message) from error
    raise ConnectionError(f"{file}: {error}") from error
