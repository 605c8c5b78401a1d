"""Inspect's own checks of a sandbox environment, over Cove: one sandbox for each check.

Prints a line for each; ends with 1 if one ends otherwise than it should.
"""

import sys
import traceback

import anyio
from inspect_ai.util import SandboxUserUnsupportedError
from inspect_ai.util._sandbox import self_check
from inspect_cove import CoveConfig, CoveSandboxEnvironment

AT_ONCE = 16
# Files of 50 MiB, and what a program holds of them.
LIMITS = {"disk_bytes": 256 << 20, "disk_inodes": 4096, "memory_bytes": 512 << 20}
# What Cove has not, and how Inspect's contract wants that to be said.
UNSUPPORTED = {"test_exec_as_user": SandboxUserUnsupportedError}


async def check(name: str, failed: list[str], places: anyio.Semaphore) -> None:
    expected = UNSUPPORTED.get(name, ())
    config = CoveConfig(limits=LIMITS)
    async with places:
        environments = await CoveSandboxEnvironment.sample_init("self_check", config, {})
        said = "ok"
        try:
            await getattr(self_check, name)(environments["default"])
            if expected:
                said = "passed, and is expected not to"
                failed.append(name)
        except expected:
            said = "not supported, as expected"
        except Exception:
            said = traceback.format_exc()
            failed.append(name)
        finally:
            with anyio.CancelScope(shield=True):
                await CoveSandboxEnvironment.sample_cleanup(
                    "self_check", config, environments, False
                )
    print(f"{name}: {said}", flush=True)


async def main() -> None:
    failed: list[str] = []
    places = anyio.Semaphore(AT_ONCE)
    async with anyio.create_task_group() as group:
        # Those that wait for seconds come first.
        for name in sorted(self_check.__all__, key=lambda name: "timeout" not in name):
            group.start_soon(check, name, failed, places)
    print(f"{len(self_check.__all__)} checks, {len(failed)} failed {failed}")
    sys.exit(1 if failed else 0)


anyio.run(main)
