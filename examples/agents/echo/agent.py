"""The smallest agent that keeps its promises: it answers with what it was told, and how often.

It speaks the agent protocol (docs/agents.md): a line of JSON for a line of JSON. Its conversation is
a file in its home directory, written before it answers, so that a new process goes on where this
one was, even if it was killed.
"""

import json
import pathlib
import signal
import sys
import uuid


class Interrupted(Exception):
    """Somebody wants the turn to end."""


def interrupt(_signal, _frame):
    raise Interrupted


def say(**line):
    print(json.dumps(line), flush=True)


def text_of(content):
    """What a message says; it is text, or blocks of which some are text."""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block.get("type") == "text")


class Conversation:
    """The messages so far, a line each, in a file."""

    def __init__(self, name):
        self.name = name
        self.path = pathlib.Path.home() / f"conversation-{name}.jsonl"
        self.messages = []
        if self.path.exists():
            self.messages = [json.loads(line) for line in self.path.read_text().splitlines()]

    def add(self, text):
        self.messages.append(text)
        with self.path.open("a") as file:
            print(json.dumps(text), file=file)


def answer(conversation, line):
    text = text_of(line["message"]["content"])
    conversation.add(text)
    reply = f"You said: {text} [messages: {len(conversation.messages)}]"
    if line.get("partial"):
        delta = {"type": "text_delta", "text": reply}
        say(type="stream_event", event={"type": "content_block_delta", "delta": delta})
    block = {"type": "text", "text": reply}
    say(type="assistant", message={"role": "assistant", "content": [block]})
    return reply


def main():
    signal.signal(signal.SIGINT, interrupt)
    start = json.loads(sys.stdin.readline())
    conversation = Conversation(start["conversation"] or uuid.uuid4().hex)
    say(type="system", subtype="init", session_id=conversation.name)
    while True:
        # Between turns there is nothing to interrupt.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        line = sys.stdin.readline()
        if not line:
            break
        line = json.loads(line)
        if line["type"] != "user":
            continue
        signal.signal(signal.SIGINT, interrupt)
        try:
            reply = answer(conversation, line)
            say(type="result", is_error=False, result=reply, num_turns=1)
        except Interrupted:
            say(type="result", is_error=True, result="interrupted", num_turns=1)


if __name__ == "__main__":
    main()
