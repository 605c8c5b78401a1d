"""Ash's Python client, unmodified, against Cove: its methods and what its own integration tests ask.

Needs ASH_SERVER_URL and ASH_API_KEY in the environment, and a server whose agents answer as
examples/model/stand_in.py does: with what they were told, and what they remember of it. ASH_RESTART is
a command that restarts the server and returns when it answers; with it, what must outlive that is
checked too. Arguments are parts of names: only those checks are done. Prints one line of JSON for each
check, {name, ok, detail}, and ends with 1 if one failed.
"""

import asyncio
import base64
import json
import os
import subprocess
import sys
import time
import traceback
import uuid

import httpx
from ash_sdk import AshClient
from ash_sdk.client import AuthenticatedClient
from ash_sdk.api.agents import get_api_agents_name_files, post_api_agents
from ash_sdk.api.credentials import get_api_credentials, post_api_credentials
from ash_sdk.api.queue import get_api_queue_stats
from ash_sdk.api.sessions import (
    get_api_sessions_id_events,
    get_api_sessions_id_files,
    get_api_sessions_id_logs,
    get_api_sessions_id_messages,
    patch_api_sessions_id_config,
    post_api_sessions_id_exec,
    post_api_sessions_id_files,
)
from ash_sdk.api.usage import get_api_usage, get_api_usage_stats
from ash_sdk.models.patch_api_sessions_id_config_body import PatchApiSessionsIdConfigBody
from ash_sdk.models.post_api_agents_body import PostApiAgentsBody
from ash_sdk.models.post_api_credentials_body import PostApiCredentialsBody
from ash_sdk.models.post_api_credentials_body_type import check_post_api_credentials_body_type
from ash_sdk.models.post_api_sessions_id_exec_body import PostApiSessionsIdExecBody
from ash_sdk.models.post_api_sessions_id_files_body import PostApiSessionsIdFilesBody
from ash_sdk.streaming import DoneEvent, ErrorEvent, MessageEvent, SessionStartEvent
from ash_sdk.streaming import TextDeltaEvent, ToolResultEvent, ToolUseEvent, TurnCompleteEvent

URL, KEY = os.environ["ASH_SERVER_URL"], os.environ["ASH_API_KEY"]
RESTART = os.environ.get("ASH_RESTART")
AGENT = f"agent-{uuid.uuid4().hex[:8]}"
NOBODY = "00000000-0000-0000-0000-000000000000"
client = AshClient(URL, token=KEY)
generated = AuthenticatedClient(base_url=URL, token=KEY, raise_on_unexpected_status=True)
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def equal(seen, expected):
    assert seen == expected, f"{seen!r} is not {expected!r}"


def refuses(status, call, *arguments):
    """The call is answered with this status; its text is the result."""
    try:
        value = call(*arguments)
    except httpx.HTTPStatusError as error:
        equal(error.response.status_code, status)
        if error.response.is_closed and not error.response.is_stream_consumed:
            return ""  # The client left the answer to a stream unread.
        body = error.response.json()
        equal((body["statusCode"], isinstance(body["error"], str)), (status, True))
        return body["error"]
    raise AssertionError(f"{value!r} instead of {status}")


def deploy(name=AGENT):
    """An agent with these files; the client can only name directories of the server."""
    prompt = base64.b64encode(b"# Test agent\nBe brief.\n").decode()
    files = [{"path": "CLAUDE.md", "content": prompt}]
    body = PostApiAgentsBody.from_dict({"name": name, "files": files})
    return post_api_agents.sync(client=generated, body=body).agent


class session:
    """A session for one check."""

    def __init__(self, **options):
        self.options = options

    def __enter__(self):
        if AGENT not in [agent.name for agent in client.list_agents()]:
            deploy()
        self.session = client.create_session(AGENT, **self.options)
        return self.session

    def __exit__(self, *_):
        client.end_session(self.session.id)


def send(one, text, **options):
    return list(client.send_message_stream(one.id, text, **options))


def said(events):
    """The text of the answer."""
    messages = [event.data for event in events if isinstance(event, MessageEvent)]
    blocks = [
        block for data in messages if data["type"] == "assistant" for block in data["message"]["content"]
    ]
    return "".join(block["text"] for block in blocks if block["type"] == "text")


def run(one, command):
    body = PostApiSessionsIdExecBody(command=command)
    return post_api_sessions_id_exec.sync(one.id, client=generated, body=body)


def write(one, path, content):
    files = [{"path": path, "content": base64.b64encode(content.encode()).decode()}]
    body = PostApiSessionsIdFilesBody.from_dict({"files": files})
    response = post_api_sessions_id_files.sync_detailed(one.id, client=generated, body=body)
    equal(response.status_code, 200)
    equal(json.loads(response.content)["files"][0]["written"], True)


# --- lifecycle ---


@check
def health_says_ok_without_a_key():
    health = AshClient(URL).health()
    equal(health["status"], "ok")
    states = ("total", "cold", "warming", "warm", "waiting", "running", "maxCapacity")
    assert all(isinstance(health["pool"][state], int) for state in states), health


@check
def keys_are_asked_for():
    text = refuses(401, AshClient(URL).list_agents)
    assert "Missing Authorization header" in text, text
    text = refuses(401, AshClient(URL, token="wrong-key").list_agents)
    assert "Invalid API key" in text, text
    assert isinstance(client.list_agents(), list)


@check
def agents_are_deployed_listed_and_deleted():
    name = f"brief-{uuid.uuid4().hex[:8]}"
    first, second = deploy(name), deploy(name)
    equal((first.name, first.version, second.version, first.id), (name, 1, 2, second.id))
    equal(client.get_agent(name).version, 2)
    assert name in [agent.name for agent in client.list_agents()]
    files = get_api_agents_name_files.sync(name, client=generated).files
    assert "CLAUDE.md" in [file.path for file in files], files
    client.delete_agent(name)
    refuses(404, client.get_agent, name)
    refuses(404, client.delete_agent, name)
    refuses(404, client.create_session, name)
    refuses(400, client.deploy_agent, "no/name", "nowhere")


@check
def a_session_lives_and_ends():
    with session() as one:
        equal((one.status, one.agent_name), ("active", AGENT))
        equal(client.get_session(one.id).id, one.id)
        assert one.id in [other.id for other in client.list_sessions(agent=AGENT)]
        equal(client.end_session(one.id).status, "ended")
        refuses(400, send, one, "hello?")
        refuses(410, client.resume_session, one.id)
        equal(client.get_session(one.id).status, "ended")


@check
def what_is_unknown_is_not_found():
    for call in (client.get_session, client.pause_session, client.resume_session, client.fork_session):
        refuses(404, call, NOBODY)
    refuses(404, lambda: list(client.send_message_stream(NOBODY, "hello")))


@check
def a_message_is_answered_as_a_stream():
    with session() as one:
        events = send(one, "hello")
        assert isinstance(events[0], SessionStartEvent), events[0]
        equal((events[0].session_id, events[-1]), (str(one.id), DoneEvent(session_id=str(one.id))))
        assert "You said: hello" in said(events), events
        turns = [event for event in events if isinstance(event, TurnCompleteEvent)]
        equal((len(turns), "You said: hello" in turns[0].result), (1, True))
        assert not [event for event in events if isinstance(event, TextDeltaEvent)], "nobody asked"


@check
def partial_messages_add_up_to_the_answer():
    with session() as one:
        events = send(one, "stream: 50", include_partial_messages=True)
        deltas = [event.delta for event in events if isinstance(event, TextDeltaEvent)]
        equal(("".join(deltas), len(deltas) > 1), (said(events), True))


@check
def line_separators_do_not_break_the_stream():
    with session() as one:
        text = "say: a\u2028b\u2029c\u0085d"
        assert "a\u2028b\u2029c\u0085d" in said(send(one, text)), "the message was cut"


@check
def tools_are_told_of():
    with session() as one:
        events = send(one, "run: echo from the tool")
        uses = [event for event in events if isinstance(event, ToolUseEvent)]
        results = [event for event in events if isinstance(event, ToolResultEvent)]
        equal((len(uses), len(results)), (1, 1))
        equal((uses[0].name, uses[0].id), ("Bash", results[0].tool_use_id))
        assert "from the tool" in str(results[0].content), results
        assert "from the tool" in said(events), events


# --- conversations ---


@check
def a_conversation_goes_on():
    with session() as one:
        send(one, "I am ALPHA")
        send(one, "I like BRAVO")
        text = said(send(one, "recall"))
        assert "ALPHA" in text and "BRAVO" in text, text


@check
def conversations_do_not_mix():
    with session() as one, session() as other:
        send(one, "I am Sarah")
        send(other, "I am Carlos")
        texts = said(send(one, "recall")), said(send(other, "recall"))
        equal(["Sarah" in text for text in texts], [True, False])
        equal(["Carlos" in text for text in texts], [False, True])


@check
def two_messages_at_once_each_have_their_answer():
    async def both(one):
        async def ask(text):
            events = [event async for event in client.asend_message_stream(one.id, text)]
            return [event for event in events if isinstance(event, DoneEvent)], said(events)

        return await asyncio.gather(ask("stream: 20 20"), ask("the second"))

    with session() as one:
        (first_done, first), (second_done, second) = asyncio.run(both(one))
        equal((len(first_done), len(second_done)), (1, 1))
        equal(("word19" in first, "the second" in second), (True, True))
        equal(("the second" in first, "word19" in second), (False, False))


@check
def a_command_beside_a_message_disturbs_neither():
    async def both(one):
        stream = client.asend_message_stream(one.id, "stream: 30 30")
        await stream.__anext__()
        result = await asyncio.to_thread(run, one, "echo beside")
        return result, [event async for event in stream]

    with session() as one:
        result, events = asyncio.run(both(one))
        equal(result.stdout, "beside\n")
        assert "word29" in said(events) and isinstance(events[-1], DoneEvent), events[-1]


# --- restore ---


@check
def a_warm_resume_keeps_everything():
    with session() as one:
        send(one, "I am ALPHA")
        run(one, "echo kept > kept.txt")
        for _ in range(3):
            equal(client.pause_session(one.id).status, "paused")
            equal(client.resume_session(one.id).status, "active")
        equal(run(one, "cat kept.txt").stdout, "kept\n")
        assert "ALPHA" in said(send(one, "recall"))


@check
def a_cold_resume_keeps_everything():
    with session() as one:
        send(one, "I am ALPHA")
        run(one, "mkdir -p .git node_modules; for f in kept.txt yarn.lock .git/HEAD node_modules/x; do echo $f > $f; done")
        equal(client.stop_session(one.id).status, "stopped")
        refuses(400, send, one, "hello?")
        equal(client.resume_session(one.id).status, "active")
        names = run(one, "cat kept.txt yarn.lock .git/HEAD node_modules/x").stdout.split()
        equal(names, ["kept.txt", "yarn.lock", ".git/HEAD", "node_modules/x"])
        text = said(send(one, "recall"))
        assert "ALPHA" in text, text


@check
def resuming_what_is_active_changes_nothing():
    with session() as one:
        equal(client.resume_session(one.id).status, "active")


@check
def a_paused_session_is_told_so():
    with session() as one:
        client.pause_session(one.id)
        refuses(400, send, one, "hello?")
        text = refuses(400, client.pause_session, one.id)
        assert "paused" in text, text


@check
def the_pool_counts_resumes():
    with session() as one:
        before = client.health()["pool"]
        client.pause_session(one.id)
        client.resume_session(one.id)
        client.stop_session(one.id)
        client.resume_session(one.id)
        after = client.health()["pool"]
        moved = {name: after[name] - before[name] for name in ("resumeWarmHits", "resumeColdHits")}
        equal(moved, {"resumeWarmHits": 1, "resumeColdHits": 1})


@check
def a_fork_has_files_and_conversation():
    with session() as one:
        send(one, "I am ALPHA")
        run(one, "echo parent > file.txt")
        fork = client.fork_session(one.id)
        try:
            equal((str(fork.parent_session_id), fork.id != one.id), (str(one.id), True))
            client.resume_session(fork.id)
            equal(run(fork, "cat file.txt; echo child > file.txt").stdout, "parent\n")
            equal(run(one, "cat file.txt").stdout, "parent\n")
            text = said(send(fork, "recall"))
            assert "ALPHA" in text, text
        finally:
            client.end_session(fork.id)


@check
def a_restart_loses_nothing():
    with session() as one:
        send(one, "I am ALPHA")
        write(one, "kept.txt", "kept")
        subprocess.run(RESTART, shell=True, check=True, timeout=60)
        equal(client.get_session(one.id).id, one.id)
        equal(client.resume_session(one.id).status, "active")
        equal(run(one, "cat kept.txt").stdout, "kept")
        text = said(send(one, "recall"))
        assert "ALPHA" in text, text


# --- isolation ---


@check
def sessions_do_not_see_each_other():
    with session() as one, session() as other:
        secret = f"secret-{uuid.uuid4().hex}"
        write(one, "secret.txt", secret)
        equal(run(one, "cat secret.txt").stdout, secret)
        search = "find / -path /proc -prune -o -name secret.txt -print -exec cat {} + 2>/dev/null; ls ../.."
        found = run(other, search)
        assert secret not in found.stdout and "secret.txt" not in found.stdout, found
        run(other, "echo HACKED > $(pwd)/secret.txt; echo HACKED > ../secret.txt")
        equal(run(one, "cat secret.txt").stdout, secret)


@check
def a_session_sees_no_key_and_no_server():
    with session() as one:
        port = URL.rsplit(":", 1)[-1].split("/")[0]
        script = f"env; cat /proc/1/environ 2>/dev/null; (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>&1 && echo REACHED"
        found = run(one, f"bash -c '{script}'")
        assert KEY not in found.stdout + found.stderr, "the key is seen"
        assert "REACHED" not in found.stdout, "the server is reached"


# --- the rest of the interface ---


@check
def environment_and_prompt_of_a_session_are_its_own():
    with session(extra_env={"MINE": "yes"}, system_prompt="Answer as a pirate.") as one, session() as other:
        equal(run(one, "echo $MINE").stdout, "yes\n")
        equal(run(other, "echo $MINE").stdout, "\n")
        equal("pirate" in said(send(one, "system")), True)
        equal("pirate" in said(send(other, "system")), False)


@check
def commands_have_results_and_limits():
    with session() as one:
        result = run(one, "echo out; echo err >&2; exit 3")
        equal((result.stdout, result.stderr, result.exit_code), ("out\n", "err\n", 3))
        started = time.monotonic()
        body = PostApiSessionsIdExecBody(command="sleep 60", timeout=500)
        response = post_api_sessions_id_exec.sync_detailed(one.id, client=generated, body=body)
        took = time.monotonic() - started
        ended = response.status_code != 200 or json.loads(response.content)["exitCode"] != 0
        equal((ended, took < 10), (True, True))


@check
def messages_events_logs_and_files_are_listed():
    with session() as one:
        send(one, "run: echo x > made.txt")
        messages = get_api_sessions_id_messages.sync(one.id, client=generated).messages
        equal(messages[0].role, "user")
        equal("run: echo x" in messages[0].content, True)
        assert {"user", "assistant"} == {message.role for message in messages}, messages
        numbers = [message.sequence for message in messages]
        equal(numbers, sorted(set(numbers)))
        after = get_api_sessions_id_messages.sync(one.id, client=generated, after=numbers[0])
        equal([message.sequence for message in after.messages], numbers[1:])
        events = get_api_sessions_id_events.sync(one.id, client=generated).events
        kinds = {event.type_ for event in events}
        assert {"lifecycle", "tool_start", "tool_result", "text", "turn_complete"} <= kinds, kinds
        logs = get_api_sessions_id_logs.sync(one.id, client=generated)
        assert isinstance(logs.logs, list), logs
        listed = get_api_sessions_id_files.sync(one.id, client=generated)
        assert "made.txt" in [file.path for file in listed.files], listed
        equal(listed.source, "sandbox")


@check
def usage_is_counted():
    with session() as one:
        send(one, "hello")
        stats = get_api_usage_stats.sync(client=generated, session_id=one.id).stats
        assert stats.total_input_tokens > 0 and stats.total_output_tokens > 0, stats
        events = get_api_usage.sync(client=generated, session_id=one.id).events
        assert "input_tokens" in {event.event_type for event in events}, events


@check
def the_configuration_of_a_session_changes():
    with session() as one:
        body = PatchApiSessionsIdConfigBody(model="claude-haiku-4-5")
        changed = patch_api_sessions_id_config.sync(one.id, client=generated, body=body)
        equal(changed.session.id, one.id)
        equal(isinstance(send(one, "hello")[-1], DoneEvent), True)


@check
def credentials_are_kept_and_not_told():
    secret = f"sk-{uuid.uuid4().hex}"
    kind = check_post_api_credentials_body_type("custom")
    body = PostApiCredentialsBody(type_=kind, key=secret, label="mine")
    made = post_api_credentials.sync_detailed(client=generated, body=body)
    equal((made.status_code, secret.encode() in made.content), (201, False))
    identifier = json.loads(made.content)["credential"]["id"]
    listed = get_api_credentials.sync_detailed(client=generated)
    equal((identifier.encode() in listed.content, secret.encode() in listed.content), (True, False))
    with session(credential_id=identifier) as one:
        equal(run(one, "echo $ASH_CUSTOM_API_KEY").stdout, secret + "\n")
    refuses(400, lambda: client.create_session(AGENT, credential_id=NOBODY))
    headers = {"Authorization": f"Bearer {KEY}"}
    equal(httpx.delete(f"{URL}/api/credentials/{identifier}", headers=headers).is_success, True)


@check
def the_queue_has_figures():
    stats = get_api_queue_stats.sync(client=generated).stats
    equal(all(isinstance(value, int) for value in stats.to_dict().values()), True)


@check
def errors_of_the_model_end_the_stream():
    with session() as one:
        events = send(one, "fail: 400")
        assert isinstance(events[-1], DoneEvent), events[-1]
        assert [event for event in events if isinstance(event, ErrorEvent)], events
        # What failed is a part of the conversation, and asks for its error again; the session goes on.
        assert isinstance(send(one, "still here")[-1], DoneEvent)
        equal((client.get_session(one.id).status, run(one, "echo on").stdout), ("active", "on\n"))


def main():
    wanted, failed = sys.argv[1:], 0
    for function in CHECKS:
        name = function.__name__
        if wanted and not any(part in name for part in wanted):
            continue
        if function is a_restart_loses_nothing and RESTART is None:
            continue
        started = time.monotonic()
        try:
            function()
            line = {"name": name, "ok": True, "detail": f"{(time.monotonic() - started) * 1000:.0f} ms"}
        except Exception as error:  # Whatever a check does, the next ones are made.
            failed += 1
            frames = traceback.extract_tb(error.__traceback__)
            here = [frame.lineno for frame in frames if frame.filename == __file__]
            line = {"name": name, "ok": False, "detail": f"line {here[-1:]}: {type(error).__name__}: {error}"}
        print(json.dumps(line, ensure_ascii=False), flush=True)
    if AGENT in [agent.name for agent in client.list_agents()]:
        client.delete_agent(AGENT)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
