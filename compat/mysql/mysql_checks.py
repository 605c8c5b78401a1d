"""What the Python programs of this directory share: the server's name, and the checks of PostgreSQL's.

The server is named by MYSQL_HOST, MYSQL_PORT, MYSQL_DATABASE, MYSQL_USER and MYSQL_PASSWORD. All
checks hold whether it is MariaDB itself or Cove in front of it, in whichever mode: what differs is not
what a driver sees.
"""

import os
import sys
from pathlib import Path

for name in ("HOST", "PORT", "DATABASE", "USER", "PASSWORD"):
    os.environ["PG" + name] = os.environ["MYSQL_" + name]
sys.path.insert(0, str(Path(__file__).parent.parent / "postgres"))

from checks import CLIENTS, DATABASE, HOST, PASSWORD, PORT, USER  # noqa: E402, F401
from checks import at_once, check, equal, main, report, until  # noqa: E402, F401


def code(error):
    """The server's number of an error of any driver."""
    return error.args[0]


def raises(number, kind, action):
    try:
        action()
    except kind as error:
        equal(code(error), number, str(error))
        return error
    raise AssertionError(f"no {kind.__name__} {number}")
