"""Client of Cove: sandboxes, agent sessions, executions, databases and tables.

    from cove import Cove

    with Cove() as cove:
        print(cove.run(language="python", source="print(6 * 7)").stdout)

`AsyncCove` has the same names. Documents are dictionaries with the types of `cove.types`; errors
are in `cove.errors`.
"""

from . import errors
from ._async._client import AsyncCove
from ._async._contexts import AsyncContext
from ._async._executions import AsyncExecution
from ._async._sessions import AsyncProcess, AsyncSession, AsyncTurn
from ._async._streams import AsyncEventStream, AsyncPager
from ._async._terminal import AsyncAttachedExecution, AsyncTerminal
from ._errors import APIConnectionError, APIError, APITimeoutError, CoveError
from ._result import Result, chunk_bytes
from ._sync._client import Cove
from ._sync._contexts import Context
from ._sync._executions import Execution
from ._sync._sessions import Process, Session, Turn
from ._sync._streams import EventStream, Pager
from ._sync._terminal import AttachedExecution, Terminal
from ._version import __version__

__all__ = [
    "APIConnectionError",
    "APIError",
    "APITimeoutError",
    "AsyncAttachedExecution",
    "AsyncContext",
    "AsyncCove",
    "AsyncEventStream",
    "AsyncExecution",
    "AsyncPager",
    "AsyncProcess",
    "AsyncSession",
    "AsyncTerminal",
    "AsyncTurn",
    "AttachedExecution",
    "Context",
    "Cove",
    "CoveError",
    "EventStream",
    "Execution",
    "Pager",
    "Process",
    "Result",
    "Session",
    "Terminal",
    "Turn",
    "__version__",
    "chunk_bytes",
    "errors",
]
