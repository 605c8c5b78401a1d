"""What a model was asked, whichever protocol asked it: for the stand-in for a model beside this."""

import json
import re

# A word each; a line of a test that asks for more than this is a mistake.
STREAM_WORDS_MAX = 1_000_000
DIRECTIVES = {"say", "run", "tool", "think", "stream", "wait", "fail", "cut"}
# What agents put into a conversation beside what a user said.
REMINDER = "<system-reminder>"
INTERRUPTED = "[Request interrupted by user"


class Refused(Exception):
    """An answer that is an error of the protocol."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class Closed(Exception):
    """The connection is over: the client left, or it is to be broken off."""


def blocks(content):
    """The blocks of a message; a string is one block of text."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise Refused(400, "messages: content must be a string or a list of blocks")
    return content


def plain(content):
    """The text of content, one block a line."""
    texts = [b.get("text", "") for b in blocks(content) if b.get("type") == "text"]
    return "\n".join(texts)


def said(message):
    """What a user typed in this message, without what the agent added; None if nothing."""
    if message.get("role") != "user":
        return None
    texts = []
    for block in blocks(message.get("content", "")):
        text = block.get("text", "").strip() if block.get("type") == "text" else ""
        if text.startswith(INTERRUPTED):
            # What was asked before was taken back, and agents merge it with what is asked now.
            texts = []
        elif text and not text.startswith(REMINDER):
            texts.append(text)
    return "\n".join(texts) or None


class Conversation:
    """One request, understood."""

    def __init__(self, body, size):
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise Refused(400, "messages: at least one message is required")
        if not isinstance(body.get("model"), str):
            raise Refused(400, "model: Field required")
        if not all(isinstance(message, dict) for message in messages):
            raise Refused(400, "messages: every message must be an object")
        self.body = body
        # Four bytes are a token, as everywhere where nobody counts.
        self.input_tokens = max(1, size // 4)
        self.messages = messages
        self.turns = [text for text in map(said, messages) if text]
        self.text = self.turns[-1] if self.turns else ""
        self.system = plain(body.get("system") or "")
        self.results = self.results_of_this_turn()
        self.take_step()
        self.orders = list(self.directives())

    def results_of_this_turn(self):
        """Results of tools that were used since the user said something."""
        results = []
        for message in reversed(self.messages):
            found = [
                block
                for block in blocks(message.get("content", ""))
                if message.get("role") == "user" and block.get("type") == "tool_result"
            ]
            if said(message):
                break
            results = found + results
        return results

    def take_step(self):
        """Puts the step that is next, where the user laid down steps, in the place of the text."""
        answers = 0
        for message in reversed(self.messages):
            text = said(message) or ""
            lines = [line.strip().partition(":") for line in text.split("\n")]
            steps = [rest.strip() for name, _, rest in lines if name == "step"]
            if steps:
                if answers < len(steps):
                    self.text, self.results = steps[answers], []
                return
            answers += message.get("role") == "assistant"

    def directives(self):
        # Not splitlines(): it ends lines at characters that are text here.
        for line in self.text.split("\n"):
            name, colon, rest = line.strip().partition(":")
            if colon and name in DIRECTIVES:
                yield name, rest.strip()
            elif line.strip() in ("recall", "system"):
                yield line.strip(), ""

    def order(self, *names):
        """The first directive of these names, or None."""
        return next((rest for name, rest in self.orders if name in names), None)

    def number(self, name, index=0, default=None):
        """A number of a directive."""
        parts = (self.order(name) or "").split()
        if len(parts) <= index:
            return default
        if not parts[index].isdigit():
            raise Refused(400, f"messages: {name}: {parts[index]!r} is not a number")
        return int(parts[index])

    def tool(self):
        """The use of a tool that is next: name and input, or None."""
        uses = [(name, rest) for name, rest in self.orders if name in ("run", "tool")]
        if len(self.results) >= len(uses):
            return None
        kind, rest = uses[len(self.results)]
        if kind == "run":
            return "Bash", {"command": rest, "description": "Run what was asked"}
        name, _, arguments = rest.partition(" ")
        try:
            value = json.loads(arguments or "{}")
        except ValueError as error:
            raise Refused(400, f"messages: tool: input of {name}: {error}") from error
        return name, self.filled(value)

    def filled(self, value):
        """The value with what earlier results of this turn have in the places that ask for it."""
        if isinstance(value, dict) and list(value) == ["$find"]:
            for result in reversed(self.results):
                found = re.search(value["$find"], plain(result.get("content") or ""))
                if found:
                    return int(found[1]) if found[1].isdigit() else found[1]
            raise Refused(400, f"messages: tool: no result has {value['$find']!r}")
        if isinstance(value, dict):
            return {name: self.filled(inner) for name, inner in value.items()}
        return [self.filled(inner) for inner in value] if isinstance(value, list) else value

    def answer(self):
        """The words to answer with."""
        asked = {name for name, _ in self.orders}
        if "stream" in asked:
            count = min(self.number("stream", default=1), STREAM_WORDS_MAX)
            return (f"word{index} " for index in range(count))
        if "say" in asked:
            text = self.order("say").replace("\\n", "\n")
        elif self.results:
            last = self.results[-1]
            verb = "failed" if last.get("is_error") else "said"
            result = plain(last.get("content") or "").partition(REMINDER)[0]
            text = f"The tool {verb}: {result.rstrip()}"
        elif "recall" in asked:
            text = "I remember: " + " | ".join(self.turns)
        elif "system" in asked:
            text = "My system prompt: " + self.system
        else:
            counts = f"[messages: {len(self.messages)}, turns: {len(self.turns)}]"
            text = f"You said: {self.text} {counts}"
        return words(text)


def words(text):
    """The text in pieces which, put together, are the text."""
    start = 0
    for index, character in enumerate(text):
        if character in " \n" and index + 1 < len(text) and text[index + 1] not in " \n":
            yield text[start : index + 1]
            start = index + 1
    if start < len(text) or not text:
        yield text[start:]
