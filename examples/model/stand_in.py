#!/usr/bin/env python3
"""A stand-in for a model: Anthropic's and OpenAI's protocols, answered by rules, not by a model.

For tests and examples of agents where no model can be reached or none should be paid. Needs nothing
but Python. It is deterministic: the same request has the same answer.

    stand_in.py --port 0 --api-key secret --log requests.jsonl

prints `listening on http://127.0.0.1:PORT` and serves, to clients that have the key:

    POST /v1/messages               Anthropic's Messages, streamed and not
    POST /v1/messages/count_tokens
    POST /v1/chat/completions       OpenAI's Chat Completions, streamed and not
    POST /v1/responses              OpenAI's Responses, streamed and not
    GET  /v1/models, /v1/models/ID

Unless it is told something else, it answers with what was said, the number of messages that it was
sent, and how many of them a user typed, so that whoever asks knows what the agent still remembers:

    You said: hello [messages: 3, turns: 2]

A line of what the user says may tell it what to do instead:

    say: TEXT           answer with TEXT; \\n in it is the end of a line
    recall              answer with everything that the user said in this conversation
    system              answer with the system prompt
    run: COMMAND        use the tool Bash; answer with what came of it
    tool: NAME JSON     use any tool with this input; several such lines are several uses;
                        {"$find": "REGEX"} is what its first group finds in an earlier result
    think: TEXT         think TEXT before answering
    stream: N [MS]      answer with N words, MS milliseconds apart
    wait: MS            send nothing for that time
    fail: STATUS [N]    answer with this error, the first N times only if N is given
    cut: N              break the connection off after N words
    step: ONE OF THESE  do this in the first answer to what the user says, the next such line in the
                        second, and so on: for agents that say what came of a tool as a user would

Every request is a line of JSON in the log: what it was, what it had, how it was answered.
"""

import argparse
import json
import socket
import sys
import threading
import time

import openai_protocols as openai
from answer import Answer, Stream, identifier
from conversation import Closed, Conversation, Refused, words

# Requests of agents are some 50 KB; what is larger than any context is refused.
BODY_BYTES_MAX = 64 << 20
HEAD_BYTES_MAX = 64 << 10
IDLE_SECONDS_MAX = 600
MODELS = ["claude-stand-in", "claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5"]
OPENAI_MODELS = ["gpt-stand-in", "gpt-5"]
ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}
REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed"}


# --- how it is answered ---


class Model:
    """What all connections share."""

    def __init__(self, options, log):
        self.options = options
        self.log = log
        self.lock = threading.Lock()
        self.numbers = {"request": 0}
        self.memory = openai.Memory()

    def count(self, key):
        """How many times this was asked for, this time included."""
        with self.lock:
            self.numbers[key] = self.numbers.get(key, 0) + 1
            return self.numbers[key]

    def write(self, entry):
        """Logs a request once, before its last byte is sent: who has the answer finds the line."""
        if "ms" in entry:
            return
        entry["ms"] = round((time.time() - entry["time"]) * 1000, 2)
        line = json.dumps(entry, ensure_ascii=False) + "\n"
        with self.lock:
            self.log.write(line)
            self.log.flush()


class MessagesAnswer(Answer):
    """One answer by the Messages protocol."""

    def message(self, content, stop_reason, output_tokens):
        return {
            "id": identifier("msg", *self.key),
            "type": "message",
            "role": "assistant",
            "model": self.conversation.body["model"],
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": self.usage(output_tokens),
        }

    def usage(self, output_tokens):
        return {
            "input_tokens": self.conversation.input_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": output_tokens,
        }

    def use(self):
        """The block that uses a tool."""
        name, arguments = self.tool
        key = identifier("toolu", *self.key)
        return {"type": "tool_use", "id": key, "name": name, "input": arguments}

    def whole(self):
        content = []
        thought = self.conversation.order("think")
        if thought is not None and not self.conversation.results:
            signature = identifier("sig", thought)
            content.append({"type": "thinking", "thinking": thought, "signature": signature})
        if self.tool:
            content.append(self.use())
            count, reason = 1, "tool_use"
        else:
            pieces = list(self.conversation.answer())
            content.append({"type": "text", "text": "".join(pieces)})
            count, reason = len(pieces), "end_turn"
        self.entry["answer"] = content[-1].get("text", self.tool and self.tool[0])
        self.model.write(self.entry)
        self.connection.json(200, self.message(content, reason, count))

    def stream(self):
        self.connection.head(200, "text/event-stream; charset=utf-8", chunked=True)
        stream = Stream(self.connection)
        stream.event("message_start", message=self.message([], None, 1))
        index, thought = 0, self.conversation.order("think")
        if thought is not None and not self.conversation.results:
            self.think(stream, thought)
            index = 1
        if self.tool:
            count, reason = self.stream_use(stream, index), "tool_use"
        else:
            count, reason = self.stream_text(stream, index), "end_turn"
        delta = {"stop_reason": reason, "stop_sequence": None}
        stream.event("message_delta", delta=delta, usage=self.usage(count))
        stream.event("message_stop")
        self.model.write(self.entry)
        stream.flush()
        self.connection.send(b"0\r\n\r\n")

    def think(self, stream, thought):
        block = {"type": "thinking", "thinking": "", "signature": ""}
        stream.event("content_block_start", index=0, content_block=block)
        for piece in words(thought):
            delta = {"type": "thinking_delta", "thinking": piece}
            stream.event("content_block_delta", index=0, delta=delta)
        delta = {"type": "signature_delta", "signature": identifier("sig", thought)}
        stream.event("content_block_delta", index=0, delta=delta)
        stream.event("content_block_stop", index=0)

    def stream_use(self, stream, index):
        block = self.use()
        arguments = json.dumps(block["input"])
        stream.event("content_block_start", index=index, content_block={**block, "input": {}})
        half = len(arguments) // 2
        for part in ("", arguments[:half], arguments[half:]):
            delta = {"type": "input_json_delta", "partial_json": part}
            stream.event("content_block_delta", index=index, delta=delta)
        stream.event("content_block_stop", index=index)
        self.entry["answer"] = block["name"]
        return len(arguments) // 4

    def stream_text(self, stream, index):
        block = {"type": "text", "text": ""}
        stream.event("content_block_start", index=index, content_block=block)
        stream.event("ping")
        count = 0
        for piece in self.pieces(stream):
            delta = {"type": "text_delta", "text": piece}
            stream.event("content_block_delta", index=index, delta=delta)
            count += 1
        stream.event("content_block_stop", index=index)
        return count


# --- HTTP ---


class Connection:
    """One client. The standard library's parser takes a millisecond for a request."""

    def __init__(self, sock, model):
        self.sock, self.model = sock, model
        self.reader = sock.makefile("rb")

    def send(self, data):
        try:
            self.sock.sendall(data)
        except OSError as error:
            raise Closed(str(error)) from error

    def head(self, status, kind, length=None, chunked=False):
        size = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {length}"
        reason = REASONS.get(status, "Error" if status >= 400 else "OK")
        request = f"request-id: req_{self.model.numbers['request']:06}"
        retry = "x-should-retry: false\r\n" if status in (400, 401, 403, 404) else ""
        lines = f"HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\n{size}\r\n{request}\r\n"
        self.send(f"{lines}{retry}\r\n".encode())

    def json(self, status, value):
        data = json.dumps(value, ensure_ascii=False).encode()
        self.head(status, "application/json", len(data))
        self.send(data)

    def serve(self):
        try:
            while self.request():
                pass
        except (Closed, OSError, ValueError):
            pass
        finally:
            self.reader.close()
            self.sock.close()

    def request(self):
        """One request; False when there is none, and no other can follow."""
        line = self.reader.readline(HEAD_BYTES_MAX).decode("latin-1").split()
        if len(line) != 3:
            return False
        headers, size = {}, 0
        while True:
            field = self.reader.readline(HEAD_BYTES_MAX)
            size += len(field)
            if size > HEAD_BYTES_MAX or not field:
                return False
            if field in (b"\r\n", b"\n"):
                break
            name, _, value = field.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        body = self.body(headers)
        self.answer(line[0], line[1].partition("?")[0], headers, body)
        return headers.get("connection", "").lower() != "close"

    def body(self, headers):
        if headers.get("expect", "").lower() == "100-continue":
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        if headers.get("transfer-encoding", "").lower() != "chunked":
            length = int(headers.get("content-length", 0))
            return self.read(length)
        data = b""
        while True:
            length = int(self.reader.readline(64).partition(b";")[0], 16)
            piece = self.read(length, len(data))
            self.reader.readline(64)
            if not length:
                return data
            data += piece

    def read(self, length, already=0):
        if not 0 <= length <= BODY_BYTES_MAX - already:
            raise Closed("the body is too large")
        data = self.reader.read(length)
        if len(data) != length:
            raise Closed("the client left")
        return data

    def answer(self, method, path, headers, body):
        number = self.model.count("request")
        entry = {"number": number, "time": time.time(), "method": method, "path": path}
        try:
            self.route(method, path, headers, body, entry)
        except Refused as error:
            entry.update(status=error.status, answer=str(error))
            other = "api_error" if error.status >= 500 else "invalid_request_error"
            kind = ERRORS.get(error.status, other)
            detail = {"type": kind, "message": str(error)}
            document = {"type": "error", "error": detail}
            if is_openai(path, headers):
                document = openai.error(error.status, str(error))
            self.model.write(entry)
            self.json(error.status, document)
        except Closed:
            entry["closed"] = True
            raise
        finally:
            self.model.write(entry)

    def route(self, method, path, headers, body, entry):
        if method == "HEAD" or path == "/":
            # Agents look whether anybody is there before they have a key to show.
            entry["status"] = 200
            self.head(200, "text/plain", 0)
            return
        self.check_key(headers, entry)
        if method == "GET" and path.startswith("/v1/models") and is_openai(path, headers):
            self.openai_models(path, entry)
        elif method == "GET" and path.startswith("/v1/models"):
            self.models(path, entry)
        elif method == "POST" and path == "/v1/chat/completions":
            conversation = self.parse(headers, body, entry, openai.chat)
            openai.ChatAnswer(self.model, self, conversation, entry).give()
        elif method == "POST" and path == "/v1/responses":
            memory = self.model.memory
            conversation = self.parse(headers, body, entry, lambda it: openai.responses(it, memory))
            openai.ResponsesAnswer(self.model, self, conversation, entry).give()
        elif method == "POST" and path in ("/v1/messages", "/v1/messages/count_tokens"):
            conversation = self.parse(headers, body, entry)
            if path.endswith("count_tokens"):
                entry["status"] = 200
                self.json(200, {"input_tokens": conversation.input_tokens})
            else:
                MessagesAnswer(self.model, self, conversation, entry).give()
        else:
            raise Refused(404, f"there is no {method} {path}")

    def check_key(self, headers, entry):
        wanted = self.model.options.api_key
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        key = headers.get("x-api-key") or bearer
        entry["key"] = "none" if not key else "right" if wanted in (None, key) else "wrong"
        if wanted is not None and key != wanted:
            raise Refused(401, "invalid x-api-key")

    def parse(self, headers, body, entry, translate=lambda value: value):
        try:
            value = json.loads(body)
        except ValueError as error:
            raise Refused(400, f"the body is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise Refused(400, "the body is not an object")
        conversation = Conversation(translate(value), len(body))
        entry.update(
            session=headers.get("x-claude-code-session-id"),
            model=value["model"],
            stream=value.get("stream") is True,
            messages=len(conversation.messages),
            turns=len(conversation.turns),
            text=conversation.text,
            tools=list(openai.offered(value)),
            system=conversation.system[: self.model.options.log_system],
        )
        if self.model.options.log_bodies:
            entry.update(headers=headers, body=value)
            entry["headers"].pop("x-api-key", None)
            entry["headers"].pop("authorization", None)
        return conversation

    def openai_models(self, path, entry):
        wanted = path.removeprefix("/v1/models").removeprefix("/")
        every = openai.models(OPENAI_MODELS)
        found = [model for model in every["data"] if model["id"] == wanted]
        if wanted and not found:
            raise Refused(404, f"there is no model {wanted}")
        entry["status"] = 200
        self.json(200, found[0] if wanted else every)

    def models(self, path, entry):
        entry["status"] = 200
        made = "2025-01-01T00:00:00Z"
        every = [
            {"type": "model", "id": name, "display_name": name, "created_at": made}
            for name in MODELS
        ]
        if path == "/v1/models":
            ends = {"first_id": MODELS[0], "last_id": MODELS[-1]}
            return self.json(200, {"data": every, "has_more": False, **ends})
        wanted = path.removeprefix("/v1/models/")
        for model in every:
            if model["id"] == wanted:
                return self.json(200, model)
        raise Refused(404, f"there is no model {wanted}")


def is_openai(path, headers):
    """Whether a request is of OpenAI's protocols; some addresses are in both vendors'."""
    if path.startswith("/v1/models"):
        return not ("anthropic-version" in headers or "x-api-key" in headers)
    return path in ("/v1/chat/completions", "/v1/responses")


def options():
    parser = argparse.ArgumentParser(description="Answer the protocols of models by rules.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    parser.add_argument("--api-key", help="refuse other keys; without it every key is right")
    parser.add_argument("--log", default="-", help="file for the log; - is standard output")
    parser.add_argument("--log-bodies", action="store_true", help="have whole requests in the log")
    bound = "characters of the system prompt in the log"
    parser.add_argument("--log-system", type=int, default=1000, help=bound)
    return parser.parse_args()


def main():
    chosen = options()
    log = sys.stdout if chosen.log == "-" else open(chosen.log, "a", encoding="utf-8")
    model = Model(chosen, log)
    listener = socket.create_server((chosen.host, chosen.port), backlog=1024)
    print(f"listening on http://{chosen.host}:{listener.getsockname()[1]}", flush=True)
    try:
        while True:
            sock, _ = listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(IDLE_SECONDS_MAX)
            threading.Thread(target=Connection(sock, model).serve, daemon=True).start()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
