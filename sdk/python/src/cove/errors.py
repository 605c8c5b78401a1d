"""All errors of this package: those of the server by their codes, and those of the connection."""

from . import _error_codes
from ._error_codes import *  # noqa: F403
from ._errors import (
    APIConnectionError,
    APIError,
    APITimeoutError,
    ConnectionClosedError,
    CoveError,
    ExecutionEndedError,
    StreamInterruptedError,
    TemplateBuildError,
    VerdictError,
)

__all__: list[str] = [
    "APIConnectionError",
    "APIError",
    "APITimeoutError",
    "ConnectionClosedError",
    "CoveError",
    "ExecutionEndedError",
    "StreamInterruptedError",
    "TemplateBuildError",
    "VerdictError",
]
__all__ += _error_codes.__all__
