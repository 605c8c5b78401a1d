"""Result of a program, with its bytes decoded."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from ._errors import VerdictError

if TYPE_CHECKING:
    from . import types


class Result:
    """What a program did. `document` is the answer as it came."""

    __slots__ = ("document",)

    def __init__(self, document: types.Execution) -> None:
        self.document = document

    @property
    def id(self) -> str:
        """Id of the execution."""
        return self.document["id"]

    @property
    def verdict(self) -> types.Verdict:
        """How it ended: `OK`, `WA`, `TLE`, ..."""
        return self.document["verdict"]

    @property
    def ok(self) -> bool:
        """Whether the verdict is `OK`."""
        return self.document["verdict"] == "OK"

    @property
    def stdout(self) -> str:
        """Standard output as text; `stdout_bytes` is exact."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """Standard error as text; `stderr_bytes` is exact."""
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def stdout_bytes(self) -> bytes:
        """Standard output, byte for byte."""
        return _exact(self.document["stdout"], self.document.get("stdout_base64"))

    @property
    def stderr_bytes(self) -> bytes:
        """Standard error, byte for byte."""
        return _exact(self.document["stderr"], self.document.get("stderr_base64"))

    @property
    def exit_code(self) -> int | None:
        """Code that it exited with; `None` when a signal ended it."""
        return self.document["exit_code"]

    @property
    def signal(self) -> str | None:
        """Signal that ended it."""
        return self.document["signal"]

    @property
    def message(self) -> str | None:
        """Why, in words, where there is more to say than the verdict."""
        return self.document.get("message")

    @property
    def limit(self) -> types.LimitHit | None:
        """The limit that it reached."""
        return self.document["limit"]

    @property
    def cpu_ms(self) -> float:
        """Processor time of all its processes."""
        return self.document["cpu_ms"]

    @property
    def wall_ms(self) -> float:
        """Time from its start to its end."""
        return self.document["wall_ms"]

    @property
    def memory_peak_bytes(self) -> int:
        """The most memory that it had."""
        return self.document["memory_peak_bytes"]

    @property
    def mode(self) -> types.ExecutionMode:
        """Which short cuts were taken."""
        return self.document["mode"]

    @property
    def stages(self) -> list[types.StageResult]:
        """All of this for each stage."""
        return self.document["stages"]

    @property
    def tests(self) -> list[types.TestResult]:
        """All of this for each test case; empty without test cases."""
        return self.document.get("tests", [])

    @property
    def files(self) -> dict[str, bytes]:
        """Files that `outputs` asked for and that were there, by their names."""
        found: dict[str, bytes] = {}
        for file in self.document.get("files", []):
            content = file["content"]
            if content is not None:
                is_base64 = file["encoding"] == "base64"
                found[file["name"]] = base64.b64decode(content) if is_base64 else content.encode()
        return found

    def check(self) -> Result:
        """Itself when the verdict is `OK`; else raises `VerdictError` with what is known."""
        if self.ok:
            return self
        why = self.message or self.stderr[-2000:].strip() or f"exit code {self.exit_code}"
        raise VerdictError(self.verdict, f"{self.verdict}: {why}")

    def __repr__(self) -> str:
        return f"<Result {self.id}: {self.verdict}, {self.cpu_ms:.1f} ms cpu>"


def _exact(text: str, encoded: str | None) -> bytes:
    return text.encode() if encoded is None else base64.b64decode(encoded)


def chunk_bytes(event: types.ExecutionEventStdout | types.ExecutionEventStderr) -> bytes:
    """The bytes of a chunk of output."""
    return _exact(event.get("data") or "", event.get("data_base64"))
