"""What is not the same word in blocking and in asynchronous code; written by hand in both."""

from __future__ import annotations

import asyncio
from asyncio import Lock

from httpcore import AsyncNetworkStream
from httpx import AsyncClient as AsyncHttpClient

__all__ = ["AsyncHttpClient", "AsyncNetworkStream", "Lock", "sleep"]


async def sleep(seconds: float) -> None:
    """Waits."""
    await asyncio.sleep(seconds)
