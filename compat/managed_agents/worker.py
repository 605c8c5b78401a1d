"""Anthropic's own worker, from its SDK, at a control plane of the tests.

Usage: worker.py BASE_URL ENVIRONMENT KEY WORKDIR

Runs until it is killed.
"""

import asyncio
import sys

from anthropic import AsyncAnthropic

base_url, environment, key, workdir = sys.argv[1:]


async def main() -> None:
    client = AsyncAnthropic(base_url=base_url, api_key="unused", max_retries=0)
    worker = client.beta.environments.work.worker(
        environment_id=environment,
        environment_key=key,
        workdir=workdir,
        max_idle=1.0,
        memory_sync_interval=None,
    )
    await worker.run()


asyncio.run(main())
