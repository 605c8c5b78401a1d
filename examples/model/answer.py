"""What the answers of all protocols share: for the stand-in for a model beside this."""

import hashlib
import json
import time

from conversation import Closed, Refused


def identifier(prefix, *of):
    """An id that is the same for the same request."""
    digest = hashlib.sha256("\n".join(map(str, of)).encode()).hexdigest()
    return f"{prefix}_{digest[:24]}"


class Stream:
    """The events of a streamed answer, as chunks."""

    def __init__(self, connection):
        self.connection = connection
        self.pending = []

    def event(self, kind, **fields):
        self.named(kind, {"type": kind, **fields})

    def named(self, name, value):
        """An event with a name, or without one where that is None."""
        data = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        event = f"event: {name}\n" if name else ""
        self.pending.append(f"{event}data: {data}\n\n".encode())

    def flush(self):
        data = b"".join(self.pending)
        self.pending.clear()
        if data:
            self.connection.send(b"%x\r\n%s\r\n" % (len(data), data))


class Answer:
    """One answer to one conversation; `whole` and `stream` give it in the words of a protocol."""

    def __init__(self, model, connection, conversation, entry):
        self.model, self.connection, self.entry = model, connection, entry
        self.conversation = conversation
        last = json.dumps(conversation.messages[-1])
        self.key = (conversation.text, len(conversation.messages), len(conversation.results), last)
        self.tool = conversation.tool()

    def give(self):
        conversation = self.conversation
        status, times = conversation.number("fail"), conversation.number("fail", 1)
        if status is not None:
            seen = self.model.count(("fail", conversation.text, len(conversation.turns)))
            if times is None or seen <= times:
                raise Refused(status, "the conversation asks for this error")
        time.sleep(conversation.number("wait", default=0) / 1000)
        self.entry["status"] = 200
        if conversation.body.get("stream") is True:
            self.stream()
        else:
            self.whole()

    def pieces(self, stream):
        """The words of a streamed answer when they are due; what became of one is sent then."""
        pause = self.conversation.number("stream", 1, 0) / 1000
        cut = self.conversation.number("cut")
        start = []
        for count, piece in enumerate(self.conversation.answer()):
            if count == cut:
                stream.flush()
                raise Closed("the conversation asks for it")
            yield piece
            if count < 20:
                start.append(piece)
                self.entry["answer"] = "".join(start)
            # Without pauses all of it is one write, but for what nobody would hold in memory.
            if pause or len(stream.pending) >= 1000:
                stream.flush()
            time.sleep(pause)
