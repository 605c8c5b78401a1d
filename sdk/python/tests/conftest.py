"""A real server: one that is there (`COVE_URL`, `COVE_TOKEN`), and others of `COVE_BINARY` to kill.

`crates/cove/tests/it/sdk_python.rs` starts the first one and runs all of this against the packed
wheel.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import FaultProxy, OwnServer

from cove import Cove


@pytest.fixture
def cove() -> Iterator[Cove]:
    """A client of the server that is there."""
    with Cove() as client:
        yield client


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    """A proxy before that server, which does harm on demand."""
    with FaultProxy(os.environ["COVE_URL"]) as it:
        yield it


@pytest.fixture
def own_server() -> Iterator[OwnServer]:
    """A server of one's own."""
    with tempfile.TemporaryDirectory() as directory, OwnServer(Path(directory)) as server:
        yield server


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Waits for a state, with a deadline."""
    from support import wait_until

    return wait_until
