"""What the programs of this directory share: checks that are run one by one, with a line of JSON each."""

import json
import sys
import time
import traceback

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def equal(found, expected):
    assert found == expected, f"{found!r} instead of {expected!r}"


def run(*arguments):
    """Calls the checks, or those whose name has one of the words of the command line; whether all held."""
    wanted, failed = sys.argv[1:], 0
    for function in CHECKS:
        name = function.__name__
        if wanted and not any(part in name for part in wanted):
            continue
        started = time.monotonic()
        try:
            function(*arguments)
            line = {"name": name, "ok": True, "detail": f"{(time.monotonic() - started) * 1000:.0f} ms"}
        except BaseException as error:  # Whatever a check does, the next ones are made.
            failed += 1
            file = function.__code__.co_filename
            here = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
            line = {"name": name, "ok": False, "detail": f"line {here[-1:]}: {type(error).__name__}: {error}"}
            if isinstance(error, KeyboardInterrupt):
                raise
        print(json.dumps(line, ensure_ascii=False), flush=True)
    return not failed
