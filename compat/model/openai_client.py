"""OpenAI's Python SDK, unmodified, against the stand-in for a model, as a table of named checks.

What the stand-in sends is held against the SDK's published types, which the SDK itself does not do.
Needs OPENAI_BASE_URL and OPENAI_API_KEY in the environment. Prints `ok`, or says what is wrong.
"""

import json

import openai
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

MODEL = "gpt-stand-in"
PARAMETERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FUNCTION = {"name": "double", "description": "Doubles n.", "parameters": PARAMETERS}
CHAT_TOOL = {"type": "function", "function": FUNCTION}
TOOL = {"type": "function", "strict": False, **FUNCTION}
PATCH = {"type": "custom", "name": "patch", "description": "Takes a patch."}
TWICE = 'tool: double {"n": 3}\ntool: double {"n": 6}'

client = openai.OpenAI(max_retries=0)


def checked(kind, value):
    TypeAdapter(kind).validate_python(value.to_dict(), strict=True)
    return value


def chat(messages, streamed, **options):
    """The message that answers, from a whole answer or from the pieces of a streamed one."""
    if not streamed:
        answer = client.chat.completions.create(model=MODEL, messages=messages, **options)
        checked(ChatCompletion, answer)
        assert answer.usage.total_tokens > answer.usage.prompt_tokens > 0
        message = answer.choices[0].message.to_dict()
        return {key: message[key] for key in ("role", "content", "tool_calls") if key in message}
    message, calls, usage, reasons = {"role": "assistant", "content": ""}, [], None, []
    stream = client.chat.completions.create(
        model=MODEL, messages=messages, stream=True, stream_options={"include_usage": True}, **options)
    for chunk in stream:
        checked(ChatCompletionChunk, chunk)
        usage = chunk.usage or usage
        for choice in chunk.choices:
            message["content"] += choice.delta.content or ""
            reasons += [choice.finish_reason] if choice.finish_reason else []
            for call in choice.delta.tool_calls or []:
                if call.id:
                    calls.append(call.to_dict())
                    calls[-1].pop("index")
                else:
                    calls[call.index]["function"]["arguments"] += call.function.arguments
    assert usage.completion_tokens > 0
    assert reasons == ["tool_calls" if calls else "stop"], reasons
    return {**message, "tool_calls": calls} if calls else message


def chat_uses_tools_one_after_another(streamed):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TWICE}]
    for number in (3, 6):
        message = chat(messages, streamed, tools=[CHAT_TOOL])
        (call,) = message["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"n": number}, call
        messages += [message, {"role": "tool", "tool_call_id": call["id"], "content": str(2 * number)}]
    message = chat(messages, streamed, tools=[CHAT_TOOL])
    assert message["content"] == "The tool said: 12", message
    messages += [message, {"role": "user", "content": "system"}]
    assert chat(messages, streamed)["content"] == "My system prompt: Be brief."


def chat_takes_steps(streamed):
    asked = "Do it.\nstep: say: first\\nline\nstep: say: second"
    messages = [{"role": "user", "content": [{"type": "text", "text": asked}]}]
    for wanted in ("first\nline", "second"):
        message = chat(messages, streamed)
        assert message["content"] == wanted, message
        messages += [message, {"role": "user", "content": "Observation: done"}]
    assert chat(messages, streamed)["content"].startswith("You said: Observation: done")


def respond(given, streamed, **options):
    """The answer by Responses, from a whole one or from the last event of a streamed one."""
    if not streamed:
        return checked(Response, client.responses.create(model=MODEL, input=given, **options))
    pieces = []
    for number, event in enumerate(
        client.responses.create(model=MODEL, input=given, stream=True, **options)
    ):
        checked(ResponseStreamEvent, event)
        assert event.sequence_number == number, event
        if event.type == "response.output_text.delta":
            pieces.append(event.delta)
    assert event.type == "response.completed" and "".join(pieces) == event.response.output_text
    return event.response


def responses_use_tools_one_after_another(streamed):
    given = [{"role": "user", "content": TWICE}]
    for number in (3, 6):
        answer = respond(given, streamed, tools=[TOOL, PATCH], instructions="Be brief.")
        (call,) = answer.output
        assert json.loads(call.arguments) == {"n": number}, call
        output = {"type": "function_call_output", "call_id": call.call_id, "output": str(2 * number)}
        given += [call.to_dict(), output]
    assert respond(given, streamed, tools=[TOOL]).output_text == "The tool said: 12"
    by_reference = [{"type": "item_reference", "id": call.id}, output]
    answer = respond([given[0], *by_reference], streamed, tools=[TOOL])
    (call,) = answer.output
    assert json.loads(call.arguments) == {"n": 6}, call


def responses_take_text_for_a_custom_tool(streamed):
    answer = respond('think: hard\ntool: patch "*** Begin"', streamed, tools=[PATCH])
    reasoning, call = answer.output
    assert reasoning.summary[0].text == "hard" and call.input == "*** Begin", answer
    output = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "applied"}
    after = respond([output], streamed, previous_response_id=answer.id)
    assert after.output_text == "The tool said: applied"


def errors_are_openai_s(streamed):
    for status, kind, message in [
        (400, openai.BadRequestError, "is not offered; there is: double"),
        (404, openai.NotFoundError, "Previous response"),
        (429, openai.RateLimitError, "asks for this error"),
        (500, openai.InternalServerError, "asks for this error"),
    ]:
        options = {"previous_response_id": "resp_none"} if status == 404 else {}
        asked = "tool: triple {}" if status == 400 else f"fail: {status}"
        try:
            respond(asked, streamed, tools=[TOOL], **options)
        except kind as error:
            assert error.status_code == status and message in str(error), error
        else:
            raise AssertionError(f"{status}: there was no error")
    result = {"role": "tool", "tool_call_id": "call_none", "content": "12"}
    try:
        chat([{"role": "user", "content": "hello"}, result], streamed)
    except openai.BadRequestError as error:
        assert "no tool call found" in str(error), error
    else:
        raise AssertionError("a result of nothing was taken")


assert MODEL in [model.id for model in client.models.list()]
for check in [
    chat_uses_tools_one_after_another,
    chat_takes_steps,
    responses_use_tools_one_after_another,
    responses_take_text_for_a_custom_tool,
    errors_are_openai_s,
]:
    for streamed in (False, True):
        check(streamed)
try:
    client.with_options(api_key="wrong").models.list()
except openai.AuthenticationError as error:
    assert error.code == "invalid_api_key", error
print("ok")
