"""Chat Completions and Responses, OpenAI's protocols: for the stand-in for a model beside this.

What they ask is put into the words of the Messages protocol first, so that one conversation has one
meaning. Shapes: https://platform.openai.com/docs/api-reference/chat and …/responses.
"""

import json
import threading
from collections import OrderedDict

from answer import Answer, Stream, identifier
from conversation import Refused, blocks, words

# Dated like the first answer of the protocol's reference: the same request has the same answer.
CREATED = 1_741_476_777
# Responses and items of them that later requests may refer to.
REMEMBERED_MAX = 10_000
ERRORS = {
    400: "invalid_request_error",
    401: "invalid_request_error",
    403: "invalid_request_error",
    404: "invalid_request_error",
    429: "rate_limit_error",
}


def error(status, message):
    """The document of an error."""
    kind = ERRORS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    code = {401: "invalid_api_key", 429: "rate_limit_exceeded"}.get(status)
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def models(names):
    """The list of models."""
    every = [
        {"id": name, "object": "model", "created": CREATED, "owned_by": "stand-in"}
        for name in names
    ]
    return {"object": "list", "data": every}


def texts(content):
    """Content of a message as blocks of the Messages protocol."""
    found = []
    for block in blocks(content if content is not None else ""):
        if "text" in block:
            found.append({"type": "text", "text": block["text"]})
        elif block.get("type") == "refusal":
            found.append({"type": "text", "text": block.get("refusal", "")})
        else:
            found.append({"type": str(block.get("type"))})
    return found


def assistant(content):
    return {"role": "assistant", "content": content}


def use(key, name, arguments):
    """A message of the assistant that uses a tool."""
    try:
        value = json.loads(arguments or "{}")
    except ValueError as broken:
        raise Refused(400, f"arguments of the call {key}: {broken}") from broken
    return assistant([{"type": "tool_use", "id": key, "name": name, "input": value}])


def result(key, content):
    """A message that has the result of a tool."""
    if not isinstance(content, (str, list)):
        content = json.dumps(content)
    block = {"type": "tool_result", "tool_use_id": key, "content": texts(content)}
    return {"role": "user", "content": [block]}


def in_order(messages):
    """Refuses results of tools that nobody used, and uses that have no result, as OpenAI does."""
    waiting = set()
    for message in messages:
        for block in message["content"]:
            if block["type"] == "tool_result" and block["tool_use_id"] not in waiting:
                key = block["tool_use_id"]
                raise Refused(400, f"no tool call found for the tool output with call_id {key}")
            if block["type"] == "tool_result":
                waiting.discard(block["tool_use_id"])
            elif block["type"] == "tool_use":
                waiting.add(block["id"])
    if waiting:
        raise Refused(400, f"no tool output found for the tool calls {sorted(waiting)}")


def offered(body):
    """The tools of a request: kinds of them by name."""
    tools = {}
    for tool in body.get("tools") or []:
        kind = tool.get("type")
        inner = tool.get(kind) if isinstance(tool.get(kind), dict) else tool
        tools[inner.get("name", kind)] = kind
    return tools


class Completed(Answer):
    """What answers by both protocols share."""

    def __init__(self, model, connection, conversation, entry):
        super().__init__(model, connection, conversation, entry)
        tools = offered(conversation.body)
        if self.tool and self.tool[0] not in tools:
            names = ", ".join(tools) or "none"
            raise Refused(400, f"messages: tool: {self.tool[0]} is not offered; there is: {names}")
        self.kind = tools[self.tool[0]] if self.tool else None

    def arguments(self):
        """What the tool is used with: an object as JSON, or the text that a custom tool takes."""
        given = self.tool[1]
        if self.kind == "custom" and isinstance(given, str):
            return given
        if self.kind == "custom" or not isinstance(given, dict):
            raise Refused(400, f"messages: tool: the wrong kind of input for {self.tool[0]}")
        return json.dumps(given, ensure_ascii=False)

    def halves(self):
        arguments = self.arguments()
        half = len(arguments) // 2
        return [piece for piece in (arguments[:half], arguments[half:]) if piece]

    def log(self, answer):
        self.entry["answer"] = answer
        self.model.write(self.entry)

    def finish(self, stream, last=b""):
        self.model.write(self.entry)
        stream.flush()
        self.connection.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(last), last) if last else b"0\r\n\r\n")

    def begin(self):
        self.connection.head(200, "text/event-stream; charset=utf-8", chunked=True)
        return Stream(self.connection)


# --- Chat Completions ---


def chat(body):
    """A request of Chat Completions, in the words of the Messages protocol."""
    messages, system = [], []
    given = body.get("messages")
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise Refused(400, "messages: a list of objects is required")
    if body.get("n") not in (None, 1):
        raise Refused(400, "n: there is one answer at a time")
    for message in given:
        role, content = message.get("role"), message.get("content")
        if role in ("system", "developer"):
            system += texts(content)
        elif role == "user":
            messages.append({"role": "user", "content": texts(content)})
        elif role == "assistant":
            calls = []
            for call in message.get("tool_calls") or []:
                function = call.get("function") or {}
                made = use(call.get("id"), function.get("name"), function.get("arguments"))
                calls += made["content"]
            messages.append(assistant((texts(content) if content else []) + calls))
        elif role == "tool":
            messages.append(result(message.get("tool_call_id"), content))
        else:
            raise Refused(400, f"messages: role: there is no {role!r}")
    in_order(messages)
    return {**body, "messages": messages, "system": system}


class ChatAnswer(Completed):
    """One answer by Chat Completions."""

    def usage(self, count):
        sent = self.conversation.input_tokens
        return {
            "prompt_tokens": sent,
            "completion_tokens": count,
            "total_tokens": sent + count,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": 0,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }

    def document(self, kind, choices, **more):
        return {
            "id": identifier("chatcmpl", *self.key).replace("_", "-"),
            "object": kind,
            "created": CREATED,
            "model": self.conversation.body["model"],
            "choices": choices,
            "service_tier": "default",
            "system_fingerprint": None,
            **more,
        }

    def call(self, arguments):
        function = {"name": self.tool[0], "arguments": arguments}
        if self.kind == "custom":
            raise Refused(400, "messages: tool: custom tools are used by Responses only")
        return {"id": identifier("call", *self.key), "type": "function", "function": function}

    def whole(self):
        message = {"role": "assistant", "content": None, "refusal": None, "annotations": []}
        if self.tool:
            count, reason = 1, "tool_calls"
            message["tool_calls"] = [self.call(self.arguments())]
        else:
            pieces = list(self.conversation.answer())
            message["content"] = "".join(pieces)
            count, reason = len(pieces), "stop"
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        self.log(message["content"] or self.tool[0])
        usage = self.usage(count)
        self.connection.json(200, self.document("chat.completion", [choice], usage=usage))

    def stream(self):
        wants_usage = (self.conversation.body.get("stream_options") or {}).get("include_usage")
        empty = {"usage": None} if wants_usage else {}
        # Refuses what is wrong before an answer has begun.
        call = self.call("") if self.tool else None
        halves = self.halves() if self.tool else []
        stream = self.begin()

        def chunk(delta, reason=None):
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
            stream.named(None, self.document("chat.completion.chunk", [choice], **empty))

        count, reason = 1, "tool_calls"
        if call:
            chunk({"role": "assistant", "content": None, "tool_calls": [{"index": 0, **call}]})
            for half in halves:
                chunk({"tool_calls": [{"index": 0, "function": {"arguments": half}}]})
            self.entry["answer"] = self.tool[0]
        else:
            chunk({"role": "assistant", "content": "", "refusal": None})
            for count, piece in enumerate(self.pieces(stream), 1):
                chunk({"content": piece})
            reason = "stop"
        chunk({}, reason)
        if wants_usage:
            usage = self.usage(count)
            stream.named(None, self.document("chat.completion.chunk", [], usage=usage))
        self.finish(stream, b"data: [DONE]\n\n")


# --- Responses ---


class Memory:
    """Responses and items that later requests may refer to; the oldest are forgotten."""

    def __init__(self):
        self.lock = threading.Lock()
        self.kept = OrderedDict()

    def keep(self, key, value):
        with self.lock:
            self.kept[key] = value
            while len(self.kept) > REMEMBERED_MAX:
                self.kept.popitem(last=False)

    def find(self, kind, key):
        with self.lock:
            if key in self.kept:
                return self.kept[key]
        raise Refused(404, f"{kind} with id {key!r} not found")


def item(given, memory):
    """An item of the input as messages and text of the system, in the words of Messages."""
    kind = given.get("type", "message")
    key = given.get("call_id")
    if kind == "message" and given.get("role") in ("system", "developer"):
        return [], texts(given.get("content"))
    if kind == "message" and given.get("role") in ("user", "assistant"):
        return [{"role": given["role"], "content": texts(given.get("content"))}], []
    if kind == "function_call":
        return [use(key, given.get("name"), given.get("arguments"))], []
    if kind == "custom_tool_call":
        return [use(key, given.get("name"), json.dumps(given.get("input")))], []
    if kind in ("function_call_output", "custom_tool_call_output"):
        return [result(key, given.get("output"))], []
    if kind == "item_reference":
        return item(memory.find("Item", given.get("id")), memory)
    if kind == "reasoning":
        return [], []
    raise Refused(400, f"input: there is no item of type {kind!r} with role {given.get('role')!r}")


def responses(body, memory):
    """A request of Responses, in the words of the Messages protocol."""
    given = body.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise Refused(400, "input: a string or a list of items is required")
    messages = []
    system = texts(body["instructions"]) if body.get("instructions") else []
    if body.get("previous_response_id"):
        messages += memory.find("Previous response", body["previous_response_id"])
    for one in given:
        more, texts_of_system = item(one, memory)
        messages += more
        system += texts_of_system
    in_order(messages)
    return {**body, "messages": messages, "system": system}


class ResponsesAnswer(Completed):
    """One answer by Responses."""

    def usage(self, count):
        sent = self.conversation.input_tokens
        return {
            "input_tokens": sent,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": count,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": sent + count,
        }

    def document(self, status, output, usage=None):
        body = self.conversation.body
        # What a request may say, and what holds where it says nothing.
        defaults = {
            "instructions": None,
            "max_output_tokens": None,
            "max_tool_calls": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "prompt_cache_key": None,
            "reasoning": {"effort": None, "summary": None},
            "safety_identifier": None,
            "store": True,
            "temperature": 1.0,
            "text": {"format": {"type": "text"}, "verbosity": "medium"},
            "tool_choice": "auto",
            "tools": [],
            "top_logprobs": 0,
            "top_p": 1.0,
            "truncation": "disabled",
        }
        said = {name: body[name] for name in defaults if body.get(name) is not None}
        return {
            "id": identifier("resp", *self.key),
            "object": "response",
            "created_at": CREATED,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "model": body["model"],
            "output": output,
            "service_tier": "default",
            "usage": usage,
            **defaults,
            **said,
        }

    def message(self, status, content):
        key = identifier("msg", *self.key)
        return {
            "id": key,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        }

    def text(self, text):
        return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}

    def call(self, status, arguments):
        is_custom = self.kind == "custom"
        return {
            "id": identifier("ctc" if is_custom else "fc", *self.key),
            "type": "custom_tool_call" if is_custom else "function_call",
            "status": status,
            "call_id": identifier("call", *self.key),
            "name": self.tool[0],
            "input" if is_custom else "arguments": arguments,
        }

    def thought(self):
        thought = self.conversation.order("think")
        return None if self.conversation.results else thought

    def reasoning(self, summary):
        return {"id": identifier("rs", *self.key), "type": "reasoning", "summary": summary}

    def remember(self, output):
        """Keeps what a later request may name instead of sending it again."""
        if self.conversation.body.get("store") is False:
            return
        memory, messages = self.model.memory, list(self.conversation.messages)
        for one in output:
            memory.keep(one["id"], one)
            messages += item(one, memory)[0]
        memory.keep(identifier("resp", *self.key), messages)

    def whole(self):
        thought, output = self.thought(), []
        if thought is not None:
            output.append(self.reasoning([{"type": "summary_text", "text": thought}]))
        if self.tool:
            count, answer = 1, self.tool[0]
            output.append(self.call("completed", self.arguments()))
        else:
            pieces = list(self.conversation.answer())
            count, answer = len(pieces), "".join(pieces)
            output.append(self.message("completed", [self.text(answer)]))
        self.remember(output)
        self.log(answer)
        self.connection.json(200, self.document("completed", output, self.usage(count)))

    def stream(self):
        # Refuses what is wrong before an answer has begun.
        halves = self.halves() if self.tool else []
        stream, number = self.begin(), iter(range(1 << 62))

        def event(kind, **fields):
            stream.event(kind, sequence_number=next(number), **fields)

        event("response.created", response=self.document("in_progress", []))
        event("response.in_progress", response=self.document("in_progress", []))
        output = []
        thought = self.thought()
        if thought is not None:
            output.append(self.stream_reasoning(event, thought))
        if self.tool:
            count = 1
            output.append(self.stream_call(event, len(output), halves))
        else:
            count, made = self.stream_message(event, stream, len(output))
            output.append(made)
        self.remember(output)
        whole = self.document("completed", output, self.usage(count))
        event("response.completed", response=whole)
        self.finish(stream)

    def stream_reasoning(self, event, thought):
        at = {"item_id": identifier("rs", *self.key), "output_index": 0, "summary_index": 0}
        kind = "response.reasoning_summary"
        event("response.output_item.added", output_index=0, item=self.reasoning([]))
        event(f"{kind}_part.added", **at, part={"type": "summary_text", "text": ""})
        for piece in words(thought):
            event(f"{kind}_text.delta", **at, delta=piece)
        part = {"type": "summary_text", "text": thought}
        event(f"{kind}_text.done", **at, text=thought)
        event(f"{kind}_part.done", **at, part=part)
        made = self.reasoning([part])
        event("response.output_item.done", output_index=0, item=made)
        return made

    def stream_call(self, event, index, halves):
        made = self.call("completed", "".join(halves))
        at = {"item_id": made["id"], "output_index": index}
        event("response.output_item.added", output_index=index, item=self.call("in_progress", ""))
        is_custom = self.kind == "custom"
        name = "input" if is_custom else "arguments"
        of_it = "custom_tool_call_input" if is_custom else "function_call_arguments"
        kind = f"response.{of_it}"
        for half in halves:
            event(f"{kind}.delta", **at, delta=half)
        event(f"{kind}.done", **at, **{name: made[name]})
        event("response.output_item.done", output_index=index, item=made)
        self.entry["answer"] = self.tool[0]
        return made

    def stream_message(self, event, stream, index):
        item_id = identifier("msg", *self.key)
        at = {"item_id": item_id, "output_index": index, "content_index": 0}
        opened = self.message("in_progress", [])
        event("response.output_item.added", output_index=index, item=opened)
        event("response.content_part.added", **at, part=self.text(""))
        pieces = []
        for piece in self.pieces(stream):
            event("response.output_text.delta", **at, delta=piece, logprobs=[])
            pieces.append(piece)
        text = "".join(pieces)
        event("response.output_text.done", **at, text=text, logprobs=[])
        event("response.content_part.done", **at, part=self.text(text))
        made = self.message("completed", [self.text(text)])
        event("response.output_item.done", output_index=index, item=made)
        return len(pieces), made
