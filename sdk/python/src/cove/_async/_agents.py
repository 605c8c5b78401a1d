"""Agents: folders with versions, from which sessions are made."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from .. import _core
from .. import _operations as ops
from ._transport import AsyncTransport

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .. import types


class AsyncAgents:
    """`/v1/agents`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def deploy(
        self, *, timeout: float | None = None, **request: Unpack[types.DeployRequest]
    ) -> types.Agent:
        """Deploys files as a new agent or a new version of one, and installs it."""
        return await self._transport.call(
            ops.DEPLOY_AGENT,
            json=request,
            timeout=_core.WAIT_TIMEOUT if timeout is None else timeout,
        )

    async def list(self) -> builtins.list[types.Agent]:
        """All agents."""
        return (await self._transport.call(ops.LIST_AGENTS))["agents"]

    async def get(self, name: str) -> types.Agent:
        """One agent."""
        return await self._transport.call(ops.GET_AGENT, {"name": name})

    async def update(self, name: str, **changes: Unpack[types.AgentUpdate]) -> types.Agent:
        """Changes settings or grants without a new version, or goes back to an earlier one."""
        return await self._transport.call(ops.UPDATE_AGENT, {"name": name}, json=changes)

    async def delete(self, name: str) -> None:
        """Removes an agent."""
        await self._transport.call(ops.DELETE_AGENT, {"name": name})

    async def versions(self, name: str) -> builtins.list[types.AgentVersion]:
        """Versions of an agent."""
        answer = await self._transport.call(ops.LIST_AGENT_VERSIONS, {"name": name})
        return answer["versions"]

    async def files(
        self, name: str, *, version: int | None = None
    ) -> builtins.list[types.AgentFileEntry]:
        """Files of a version."""
        answer = await self._transport.call(
            ops.LIST_AGENT_FILES, {"name": name}, query={"version": version}
        )
        return answer["files"]

    async def read_file(self, name: str, path: str, *, version: int | None = None) -> bytes:
        """The bytes of a file of a version."""
        response = await self._transport.send(
            ops.GET_AGENT_FILE,
            {"name": name, "path": path},
            query={"version": version},
            headers={"accept": "*/*"},
        )
        return response.content
