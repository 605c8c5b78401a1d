"""Templates: what sessions and executions begin with."""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import _core
from .. import _operations as ops
from .._error_codes import NotFoundError
from .._errors import TemplateBuildError
from ._streams import AsyncEventStream
from ._transport import AsyncTransport

if TYPE_CHECKING:
    import httpx
    from typing_extensions import Unpack

    from .. import types


class AsyncTemplates:
    """`/v1/templates`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def build(
        self,
        *,
        on_log: Callable[[types.TemplateLogLine], object] | None = None,
        **request: Unpack[types.BuildTemplate],
    ) -> types.TemplateBuild:
        """Builds a template and answers when it is ready; `on_log` gets each line of its log.

        Raises `TemplateBuildError` when a step failed.
        """
        build = await self.start(**request)
        if on_log is not None:
            async for line in self.logs(build["template"], build["id"]):
                on_log(line)
        while build["status"] in ("waiting", "building"):
            build = await self._transport.call(
                ops.GET_TEMPLATE_BUILD,
                {"name": build["template"], "build": build["id"]},
                query={"wait": True},
                timeout=_core.WAIT_TIMEOUT,
            )
        if build["status"] == "error":
            failure = build.get("failure")
            raise TemplateBuildError(failure["message"] if failure else build["id"], build)
        return build

    async def start(self, **request: Unpack[types.BuildTemplate]) -> types.TemplateBuild:
        """Starts a build and answers at once."""
        return await self._transport.call(ops.BUILD_TEMPLATE, json=request)

    def logs(
        self, name: str, build: str, *, start: int = 0
    ) -> AsyncEventStream[types.TemplateLogLine]:
        """Lines of a build's log as they are written, to its end."""

        async def open_stream(last: int | None) -> httpx.Response:
            return await self._transport.send(
                ops.GET_TEMPLATE_BUILD_LOGS,
                {"name": name, "build": build},
                query={"from": 0 if last is None else last + 1},
                headers={"accept": "text/event-stream"},
                stream=True,
            )

        def is_line(event: Any) -> bool:
            # The last event is the build.
            return "message" in event

        return AsyncEventStream(
            open_stream,
            is_last=lambda it: not is_line(it),
            is_wanted=is_line,
            after=start - 1,
            number="index",
        )

    async def list(self) -> builtins.list[types.Template]:
        """All templates."""
        return (await self._transport.call(ops.LIST_TEMPLATES))["templates"]

    async def get(self, name: str) -> types.Template:
        """One template, by its name or id."""
        return await self._transport.call(ops.GET_TEMPLATE, {"name": name})

    async def delete(self, name: str) -> None:
        """Removes a template."""
        await self._transport.call(ops.DELETE_TEMPLATE, {"name": name})

    async def builds(self, name: str) -> builtins.list[types.TemplateBuild]:
        """Builds of a template."""
        return (await self._transport.call(ops.LIST_TEMPLATE_BUILDS, {"name": name}))["builds"]

    async def get_build(self, name: str, build: str) -> types.TemplateBuild:
        """One build, by its id or a tag that it has."""
        return await self._transport.call(ops.GET_TEMPLATE_BUILD, {"name": name, "build": build})

    async def tag(self, name: str, build: str, tags: builtins.list[str]) -> types.Template:
        """Names a build."""
        return await self._transport.call(
            ops.TAG_TEMPLATE, {"name": name}, json={"build": build, "tags": tags}
        )

    async def untag(self, name: str, tag: str) -> None:
        """Takes a name away."""
        await self._transport.call(ops.UNTAG_TEMPLATE, {"name": name, "tag": tag})

    async def upload(self, archive: bytes) -> str:
        """Uploads a tar archive unless it is there; what a step `copy` has as `archive`."""
        digest = hashlib.sha256(archive).hexdigest()
        try:
            await self._transport.call(ops.HAS_TEMPLATE_ARCHIVE, {"archive": digest})
        except NotFoundError:
            await self._transport.call(
                ops.PUT_TEMPLATE_ARCHIVE,
                {"archive": digest},
                content=archive,
                headers={"content-type": "application/x-tar"},
            )
        return digest
