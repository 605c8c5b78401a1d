"""Time to interactive through E2B's unmodified Python SDK: create a sandbox, get one command's
result. Takes the number of sandboxes; prints a line of JSON. The SDK's three variables are set.
"""

import json
import os
import sys
import time

from e2b import Sandbox

WARM_UP = 3


def one():
    text = os.urandom(6).hex()
    began = time.perf_counter_ns()
    sandbox = Sandbox.create(timeout=60)
    try:
        created = time.perf_counter_ns()
        result = sandbox.commands.run(f"echo {text}")
        ended = time.perf_counter_ns()
        if result.stdout != f"{text}\n" or result.exit_code != 0:
            return {"error": f"echo {text} gave {result!r}"}
        times = {"create_us": created - began, "command_us": ended - created}
        times["total_us"] = ended - began
        return {name: value / 1000 for name, value in times.items()}
    finally:
        sandbox.kill()


def main():
    count = int(sys.argv[1])
    # The first ones load the SDK's own modules and open its connections.
    for _ in range(WARM_UP):
        one()
    rows = []
    for _ in range(count):
        try:
            rows.append(one())
        except Exception as error:  # What the SDK raises is a finding.
            rows.append({"error": f"{type(error).__name__}: {error}"[:300]})
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
