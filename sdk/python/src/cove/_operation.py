"""What the client knows of an operation: how to ask, and whether it may be asked twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Answer = TypeVar("Answer")

#: Methods that may be repeated by what HTTP says of them.
_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})


@dataclass(frozen=True)
class Operation(Generic[Answer]):
    """One operation of the HTTP interface; `Answer` is the document of a success."""

    name: str
    method: str
    path: str
    #: Whether the server answers a second request with the same `idempotency-key` with what the
    #: first one made.
    keyed: bool
    #: Whether a success has no body.
    empty: bool

    @property
    def repeatable(self) -> bool:
        """Whether a request whose answer was lost may be sent again."""
        return self.keyed or self.method in _REPEATABLE
