"""The audit: what sandboxes reached by their grants."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Literal

from .. import _operations as ops
from ._runtime import sleep
from ._streams import AsyncPager
from ._transport import AsyncTransport

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .. import types
    from .._options import AuditFilter

#: Seconds between two looks at what is new.
_FOLLOW_INTERVAL = 0.5


class AsyncAudit:
    """`/v1/audit`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(
        self,
        *,
        order: Literal["asc", "desc"] = "asc",
        limit: int | None = None,
        **which: Unpack[AuditFilter],
    ) -> AsyncPager[types.AuditRecord]:
        """Records page by page, the oldest first; `limit` is that of one page."""
        position = "before" if order == "desc" else "after"
        query: dict[str, Any] = {**which, "order": order, "limit": limit}

        async def fetch(at: int | None) -> types.AuditRecordList:
            return await self._transport.call(ops.LIST_AUDIT, query={**query, position: at})

        return AsyncPager(fetch, items="records", following=f"next_{position}")

    async def follow(
        self, after: int | None = None, **which: Unpack[AuditFilter]
    ) -> AsyncIterator[types.AuditRecord]:
        """Records as they are written, after this number or from now on, without an end."""
        query: dict[str, Any] = {**which}
        if after is None:
            after = (await self._transport.call(ops.LIST_AUDIT, query={"limit": 1}))["newest"]
        while True:
            page = await self._transport.call(ops.LIST_AUDIT, query={**query, "after": after})
            for record in page["records"]:
                yield record
                after = record["seq"]
            following = page.get("next_after")
            if following is None:
                after = max(after, page["newest"])
                await sleep(_FOLLOW_INTERVAL)
            else:
                after = following

    async def summary(
        self,
        *,
        by: Literal["target", "holder", "grant"] = "target",
        before: int | None = None,
        limit: int | None = None,
        **which: Unpack[AuditFilter],
    ) -> types.AuditSummaryReport:
        """Counts by target, by session or execution, or by grant."""
        query: dict[str, Any] = {**which, "by": by, "before": before, "limit": limit}
        return await self._transport.call(ops.SUMMARIZE_AUDIT, query=query)
