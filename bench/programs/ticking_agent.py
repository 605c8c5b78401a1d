"""An agent that answers, or says something ten times a second until its turn is ended (`tick`)."""

import json
import signal
import sys
import time
import uuid

TICK_SECONDS = 0.1


class Interrupted(Exception):
    """Somebody wants the turn to end."""


def interrupt(_signal, _frame):
    raise Interrupted


def say(**line):
    print(json.dumps(line), flush=True)


def tick():
    number = 0
    while True:
        number += 1
        block = {"type": "text", "text": f"tick {number}"}
        say(type="assistant", message={"role": "assistant", "content": [block]})
        time.sleep(TICK_SECONDS)


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    start = json.loads(sys.stdin.readline())
    say(type="system", subtype="init", session_id=start["conversation"] or uuid.uuid4().hex)
    for line in sys.stdin:
        line = json.loads(line)
        if line["type"] != "user":
            continue
        signal.signal(signal.SIGINT, interrupt)
        try:
            if line["message"]["content"] == "tick":
                tick()
            say(type="result", is_error=False, result="done", num_turns=1)
        except Interrupted:
            say(type="result", is_error=True, result="interrupted", num_turns=1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main()
