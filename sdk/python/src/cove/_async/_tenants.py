"""Tenants of the bouncer: databases whose connections are pooled."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from .. import _operations as ops
from ._transport import AsyncTransport

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .. import types


class AsyncTenants:
    """`/v1/tenants`. For operators."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> builtins.list[types.Tenant]:
        """All tenants."""
        return (await self._transport.call(ops.LIST_TENANTS))["tenants"]

    async def get(self, name: str) -> types.Tenant:
        """One tenant."""
        return await self._transport.call(ops.GET_TENANT, {"name": name})

    async def create(self, **spec: Unpack[types.TenantSpec]) -> types.Tenant:
        """Makes a tenant."""
        return await self._transport.call(ops.CREATE_TENANT, json=spec)

    async def replace(self, name: str, spec: types.TenantSpec) -> types.Tenant:
        """Replaces everything that a tenant is."""
        return await self._transport.call(ops.REPLACE_TENANT, {"name": name}, json=spec)

    async def delete(self, name: str) -> None:
        """Removes a tenant; its clients are told."""
        await self._transport.call(ops.DELETE_TENANT, {"name": name})

    async def stats(self, name: str) -> types.TenantStats:
        """Figures of a tenant."""
        return await self._transport.call(ops.TENANT_STATS, {"name": name})

    async def all_stats(self) -> types.TenantStatsList:
        """Figures of all tenants."""
        return await self._transport.call(ops.ALL_TENANT_STATS)

    async def clients(self, name: str) -> types.BouncerClientList:
        """Clients that are connected."""
        return await self._transport.call(ops.TENANT_CLIENTS, {"name": name})

    async def kill_client(self, name: str, pid: int) -> None:
        """Ends a client's connection."""
        await self._transport.call(ops.KILL_TENANT_CLIENT, {"name": name, "pid": pid})

    async def servers(self, name: str) -> types.BouncerServerList:
        """Connections to the server."""
        return await self._transport.call(ops.TENANT_SERVERS, {"name": name})

    async def pins(self, name: str) -> types.BouncerClientList:
        """Clients that keep a server connection, and why."""
        return await self._transport.call(ops.TENANT_PINS, {"name": name})

    async def health(self, name: str) -> types.TenantHealthReport:
        """Whether its server answers."""
        return await self._transport.call(ops.TENANT_HEALTH, {"name": name})

    async def pause(self, name: str, *, refuse: bool = False) -> types.Tenant:
        """Has its clients wait, or refuses them."""
        return await self._transport.call(
            ops.PAUSE_TENANT, {"name": name}, query={"refuse": refuse or None}
        )

    async def resume(self, name: str) -> types.Tenant:
        """Ends a pause or a drain."""
        return await self._transport.call(ops.RESUME_TENANT, {"name": name})

    async def drain(self, name: str) -> types.Tenant:
        """Takes no new clients and lets those go that are there."""
        return await self._transport.call(ops.DRAIN_TENANT, {"name": name})

    async def reconnect(self, name: str) -> None:
        """Replaces its server connections as they become free."""
        await self._transport.call(ops.RECONNECT_TENANT, {"name": name})

    async def kill(self, name: str) -> None:
        """Ends the connections of all its clients."""
        await self._transport.call(ops.KILL_TENANT, {"name": name})

    async def reload(self) -> types.BouncerReloaded:
        """Reads the configuration of the bouncer again."""
        return await self._transport.call(ops.RELOAD_BOUNCER)
