"""Options of methods that are a part of a document only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from . import types


class MessageOptions(TypedDict, total=False):
    """Fields of a message beside its content."""

    model: str | None
    """Model from this message on."""
    partial: bool
    """Whether to be told of texts while they grow."""
    on_disconnect: types.OnDisconnect | None
    """What becomes of the turn when nobody listens any more."""
    extra: dict[str, Any]
    """Given to the agent as it is."""


class AuditFilter(TypedDict, total=False):
    """Which records of the audit to look at."""

    holder: str
    """Only of this session or execution."""
    tenant: str
    """Only of this tenant's sandboxes; another one's, for an operator."""
    grant: str
    """Only of this grant, such as `postgres:shop`."""
    event: types.AuditEvent
    """Only of this kind."""
    outcome: types.AuditOutcome
    """Only what ended so."""
    text: str
    """Only with this in the text or the error."""
    from_ms: int
    """Only what ended at this time or later."""
    to_ms: int
    """Only what ended before this time."""
