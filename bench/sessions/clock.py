"""An agent that answers at once, and says when it was told and when it answered.

It speaks the agent protocol (docs/agents.md). Its times are of the monotonic clock, which is the
same in a sandbox and outside, so that what a message takes less what the agent takes is left. A
message that begins with `remember` goes into a file of its home directory before it is answered;
`recall` answers with what is there.
"""

import json
import os
import pathlib
import time

MEMORY = pathlib.Path.home() / "memory"


def say(*lines):
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    while data:
        data = data[os.write(1, data) :]


def lines():
    """Each line with the time at which its last byte was there."""
    buffer = b""
    while True:
        piece = os.read(0, 1 << 16)
        now = time.monotonic_ns()
        if not piece:
            return
        *whole, buffer = (buffer + piece).split(b"\n")
        for line in whole:
            yield json.loads(line), now


def answer(text):
    if text == "recall":
        return MEMORY.read_text() if MEMORY.exists() else ""
    if text.startswith("remember "):
        with MEMORY.open("a") as file:
            file.write(text.removeprefix("remember ") + "\n")
    return text


def main():
    for line, told in lines():
        if line["type"] == "start":
            name = line["conversation"] or line["session"]
            say({"type": "system", "subtype": "init", "session_id": name})
        elif line["type"] == "user":
            reply = answer(line["message"]["content"])
            block = {"type": "text", "text": reply}
            message = {"type": "assistant", "message": {"role": "assistant", "content": [block]}}
            result = {"type": "result", "is_error": False, "num_turns": 1}
            times = {"turn": line["turn"], "told": told, "reply": reply}
            # The last thing it does before it writes.
            times["answered"] = time.monotonic_ns()
            say(message, {**result, "result": json.dumps(times)})


if __name__ == "__main__":
    main()
