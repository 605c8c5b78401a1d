"""Nodes of a cluster."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from .. import _operations as ops
from ._transport import AsyncTransport

if TYPE_CHECKING:
    from .. import types


class AsyncNodes:
    """`/v1/nodes`. For operators."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> builtins.list[types.Node]:
        """All nodes."""
        return (await self._transport.call(ops.LIST_NODES))["nodes"]

    async def get(self, node: str) -> types.Node:
        """One node."""
        return await self._transport.call(ops.GET_NODE, {"id": node})

    async def drain(self, node: str) -> types.Node:
        """Has it take no more work."""
        return await self._transport.call(ops.DRAIN_NODE, {"id": node})

    async def undrain(self, node: str) -> types.Node:
        """Has it take work again."""
        return await self._transport.call(ops.UNDRAIN_NODE, {"id": node})
