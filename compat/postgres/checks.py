"""What the Python programs of this directory share: a list of checks and a line for each.

The server is named by PGHOST, PGPORT, PGDATABASE, PGUSER and PGPASSWORD. All checks hold whether it
is PostgreSQL itself or Cove in front of it, in whichever mode: what differs is not what a driver sees.
"""

import json
import os
import sys
import threading
import time
import traceback

HOST, PORT = os.environ["PGHOST"], int(os.environ["PGPORT"])
DATABASE, USER = os.environ["PGDATABASE"], os.environ["PGUSER"]
PASSWORD = os.environ.get("PGPASSWORD", "")
# Clients at the same time, more than there are connections to the server.
CLIENTS = int(os.environ.get("CLIENTS", "16"))
# Something that is late is wrong.
PATIENCE = 60

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def equal(seen, expected, what=""):
    assert seen == expected, f"{what}: {seen!r} is not {expected!r}"


def report(name, error=None):
    line = {"check": name, "ok": error is None}
    if error is not None:
        line["error"] = error
    print(json.dumps(line), flush=True)


def chosen():
    wanted = sys.argv[1:]
    return [c for c in CHECKS if not wanted or any(word in c.__name__ for word in wanted)]


def main():
    failed = False
    for one in chosen():
        try:
            one()
            report(one.__name__)
        except Exception:
            failed = True
            report(one.__name__, traceback.format_exc(limit=-4))
    sys.exit(failed)


def at_once(count, work):
    """Runs work(0..count) in threads; the first failure is this one's."""
    errors = []

    def one(number):
        try:
            work(number)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + PATIENCE
    for thread in threads:
        thread.join(max(0, deadline - time.monotonic()))
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "some clients never ended"


def until(what, probe):
    """Waits for a state."""
    deadline = time.monotonic() + PATIENCE
    while True:
        seen = probe()
        if seen:
            return seen
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.01)
