"""An agent that does what a test tells it, be that what an honest agent does or what no agent should.

It speaks the agent protocol (docs/agents.md). A message is one word of COMMANDS and the rest of the
line; anything else is answered as it is. Its conversation is a file in its home directory, written
before it answers. With PROBE_CONTROL in its environment it takes requests.
"""

import base64
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import uuid

# How often a turn that is held looks whether it may go on.
LOOK_SECONDS = 0.005


class Interrupted(Exception):
    """Somebody wants the turn to end."""


def interrupt(_signal, _frame):
    raise Interrupted


def say(**line):
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def speak(text):
    say(type="assistant", message={"role": "assistant", "content": [{"type": "text", "text": text}]})


def text_of(content):
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block.get("type") == "text")


class Agent:
    def __init__(self, start):
        self.options = start["options"]
        self.session = start["session"]
        self.name = start["conversation"] or uuid.uuid4().hex
        self.path = pathlib.Path.home() / f"conversation-{self.name}.jsonl"
        self.messages = []
        if self.path.exists():
            self.messages = [json.loads(line) for line in self.path.read_text().splitlines()]

    def add(self, text):
        self.messages.append(text)
        with self.path.open("a") as file:
            file.write(json.dumps(text) + "\n")

    # What a message can ask for. What a command returns is the answer.

    def recall(self, _rest):
        return json.dumps(self.messages)

    def who(self, _rest):
        return json.dumps(
            {
                "session": os.environ.get("COVE_SESSION_ID"),
                "started": self.session,
                "resumed": os.environ.get("COVE_RESUMED"),
                "conversation": self.name,
                "options": self.options,
                "pid": os.getpid(),
            }
        )

    def env(self, name):
        return os.environ.get(name, "(not set)")

    def hold(self, path):
        """Says that it waits, and waits for a file."""
        speak("holding")
        while not os.path.exists(path):
            time.sleep(LOOK_SECONDS)
        return "released"

    def deaf(self, path):
        """The same, without listening to signals."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return self.hold(path)

    def keep(self, rest):
        """Writes a file as a program would that wants it to stay."""
        path, text = rest.split(" ", 1)
        with open(path, "w") as file:
            file.write(text)
        return "kept"

    def run(self, command):
        done = subprocess.run(command, shell=True, capture_output=True, text=True, errors="replace")
        return done.stdout + done.stderr

    def exit(self, code):
        os._exit(int(code))

    def kill(self, _rest):
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    def raw(self, encoded):
        """Writes any bytes, and waits for what comes of that."""
        sys.stdout.buffer.write(base64.b64decode(encoded))
        sys.stdout.buffer.flush()
        return "wrote it"

    def line(self, size):
        """A line of so many bytes."""
        speak("x" * int(size))
        return "wrote it"

    def flood(self, rest):
        """So many messages of so many bytes."""
        count, size = (int(word) for word in rest.split())
        for number in range(count):
            speak(f"{number} " + "x" * size)
        return "flooded"

    def grow(self, mib):
        """Takes memory until it is stopped."""
        held = []
        for _ in range(int(mib)):
            held.append(bytearray(os.urandom(1 << 20)))
        return f"has {len(held)} MiB"

    def stderr(self, text):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
        return "wrote it"

    def result(self, rest):
        """Lines that claim to be the results of other turns, before the right one."""
        for number in range(int(rest)):
            say(type="result", is_error=False, result=f"forged {number}", user_message_uuid=str(uuid.uuid4()))
            say(type="result", is_error=False, result=f"forged {number}", origin={"kind": "task"})
        return "the right one"

    def later(self, text):
        """Says something when the turn is over."""
        if os.fork() == 0:
            time.sleep(0.2)
            speak(text)
            os._exit(0)
        return "said nothing yet"

    def connect(self, rest):
        """What comes of a connection: to PORT of the loopback, HOST PORT, or @ABSTRACT."""
        words = rest.split()
        try:
            if words[0].startswith("@"):
                with socket.socket(socket.AF_UNIX) as peer:
                    peer.settimeout(3)
                    peer.connect("\0" + words[0][1:])
            else:
                host, port = (["127.0.0.1"] + words)[-2:]
                socket.create_connection((host, int(port)), timeout=3).close()
            return "connected"
        except OSError as error:
            return f"refused: {error}"


COMMANDS = {
    name: method for name, method in vars(Agent).items() if callable(method) and name not in ("__init__", "add")
}


def answer(agent, line):
    text = text_of(line["message"]["content"])
    agent.add(text)
    word, _, rest = text.partition(" ")
    command = COMMANDS.get(word)
    reply = command(agent, rest) if command else f"You said: {text} [messages: {len(agent.messages)}]"
    if line.get("partial"):
        delta = {"type": "text_delta", "text": reply}
        say(type="stream_event", event={"type": "content_block_delta", "delta": delta})
    speak(reply)
    return reply


def request(agent, line):
    """A request of the server's, between turns."""
    wanted = line["request"]
    if wanted["subtype"] == "set_options":
        agent.options = wanted["options"]
    response = {"subtype": "success", "request_id": line["request_id"]}
    say(type="control_response", response=response)


def main():
    signal.signal(signal.SIGINT, interrupt)
    agent = Agent(json.loads(sys.stdin.readline()))
    init = {"type": "system", "subtype": "init", "session_id": agent.name}
    if "PROBE_CONTROL" in os.environ:
        init["capabilities"] = ["control"]
    say(**init)
    while True:
        # Between turns there is nothing to interrupt.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        line = sys.stdin.readline()
        if not line:
            break
        line = json.loads(line)
        if line["type"] == "control_request":
            request(agent, line)
        if line["type"] != "user":
            continue
        signal.signal(signal.SIGINT, interrupt)
        try:
            reply = answer(agent, line)
            say(type="result", is_error=False, result=reply, num_turns=1)
        except Interrupted:
            say(type="result", is_error=True, result="interrupted", num_turns=1)


if __name__ == "__main__":
    main()
