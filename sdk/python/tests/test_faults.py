"""What goes wrong between the client and the server, and what must not come of it."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid

import httpx
import pytest
from support import LIMITS, FaultProxy, OwnServer, answer, wait_until, without_reuse

from cove import AsyncCove, Cove, _core, _operations, errors, types

SLOW = "import time\nfor i in range(40):\n    print(i, flush=True)\n    time.sleep(0.05)\n"


def refusal(status: str, code: str, *headers: str, retry: bool = True) -> bytes:
    body = {"error": {"code": code, "message": "not now", "retry": retry}}
    return answer(status, json.dumps(body).encode(), "content-type: application/json", *headers)


def test_refusals_are_waited_out_and_named_when_they_do_not_end(proxy: FaultProxy) -> None:
    proxy.canned = [
        refusal("429 Too Many Requests", "too_many_requests", "retry-after: 0"),
        refusal("503 Service Unavailable", "overloaded", "retry-after: 0"),
    ]
    with Cove(proxy.url, http_client=without_reuse()) as cove:
        assert cove.run(language="python", source="print(6 * 7)").stdout == "42\n"
        assert len(proxy.requests) == 3

        proxy.canned = [refusal("429 Too Many Requests", "too_many_requests")] * 2
        with pytest.raises(errors.TooManyRequestsError) as caught:
            cove.with_options(max_retries=1).whoami()
        assert (caught.value.status, caught.value.code) == (429, "too_many_requests")

        # What will not get better, and what takes too long, is not waited for.
        never = refusal("503 Service Unavailable", "overloaded", retry=False)
        late = refusal("503 Service Unavailable", "overloaded", "retry-after: 3600")
        for one in (never, late):
            proxy.canned, proxy.requests = [one], []
            with pytest.raises(errors.OverloadedError):
                cove.whoami()
            assert len(proxy.requests) == 1


def test_what_may_have_been_done_is_asked_again_only_where_that_does_no_harm(
    proxy: FaultProxy,
) -> None:
    lost = refusal("502 Bad Gateway", "node_lost", retry=False)
    with Cove(proxy.url, http_client=without_reuse()) as cove:
        proxy.canned = [lost]
        assert cove.whoami()["tenant"]
        proxy.canned = [lost]
        with pytest.raises(errors.NodeLostError):
            cove.run(language="python", source="print(1)")


def test_an_execution_whose_answer_is_lost_is_made_once(proxy: FaultProxy, cove: Cove) -> None:
    label = uuid.uuid4().hex
    with Cove(proxy.url, http_client=without_reuse()) as client:
        proxy.dropped = 2
        execution = client.submit(language="python", source="print(6 * 7)", label=label)
        assert execution.wait().stdout == "42\n"
        proxy.dropped = 1
        one: types.ExecutionRequest = {"language": "python", "source": "print(1)", "label": label}
        batch = client.executions.batch([one, one])
        assert [it.wait().stdout for it in batch] == ["1\n", "1\n"]
    made = {record["id"] for record in cove.executions.list(label=label)}
    assert made == {execution.id, *(it.id for it in batch)}
    assert len(proxy.requests) >= 5


def test_a_session_whose_answer_is_lost_is_made_once(proxy: FaultProxy, cove: Cove) -> None:
    mark = uuid.uuid4().hex
    with Cove(proxy.url, http_client=without_reuse()) as client:
        proxy.dropped = 1
        if _operations.CREATE_SESSION.keyed:
            client.sessions.create(metadata={"mark": mark})
        else:
            # The server would make a second one.
            with pytest.raises(errors.APIConnectionError):
                client.sessions.create(metadata={"mark": mark})
    made = cove.sessions.list(metadata={"mark": mark}).to_list()
    assert len(made) == 1
    session = cove.sessions.connect(made[0]["id"])
    with Cove(proxy.url, http_client=without_reuse()) as client:
        proxy.dropped = 1
        assert client.sessions.connect(session.id).state == "active"
        session.files.write("a", "1")
        proxy.dropped = 1
        # The second one finds nothing, because the first one has removed it.
        client.sessions.connect(session.id).files.remove("a")
        assert session.files.list() == []
    assert session.end()["state"] == "ended"
    assert session.end()["state"] == "ended"


def test_a_program_that_runs_at_once_is_not_run_twice(proxy: FaultProxy) -> None:
    with Cove(proxy.url, http_client=without_reuse()) as cove:
        proxy.dropped = 1
        with pytest.raises(errors.APIConnectionError):
            cove.run(language="python", source="print(1)")
        assert len([it for it in proxy.requests if it.startswith("POST")]) == 1


def test_connections_are_used_again_also_after_streams(proxy: FaultProxy) -> None:
    with Cove(proxy.url) as cove:
        for _ in range(5):
            cove.whoami()
        execution = cove.submit(language="python", source="print(1)")
        assert list(execution.events())[-1]["type"] == "verdict"
        assert execution.wait().ok
        # The stream was left at its last event, which the connection may not survive.
        assert proxy.connections <= 2
        with cove.with_options(headers={"x-of": "tests"}).session() as session:
            session.exec("true")
        assert proxy.connections <= 2


def test_who_is_not_there_cannot_be_reached() -> None:
    with Cove("http://127.0.0.1:9", "token", max_retries=1) as cove:
        with pytest.raises(errors.APIConnectionError, match="cannot be reached"):
            cove.whoami()
        with pytest.raises(errors.APIConnectionError, match="cannot be reached"):
            list(cove.sessions.list())


def test_a_stream_that_is_cut_goes_on_after_the_last_event(proxy: FaultProxy) -> None:
    with Cove(proxy.url, http_client=without_reuse()) as cove:
        execution = cove.submit(language="python", source=SLOW)
        proxy.cut = (3, 900)
        stream = execution.events()
        events = list(stream)
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert events[-1]["type"] == "verdict"
        assert stream.reconnects >= 2

    async def follow() -> None:
        async with AsyncCove(proxy.url, http_client=httpx.AsyncClient(limits=LIMITS)) as cove:
            followed = await cove.executions.get(execution.id)
            proxy.cut = (2, 600)
            stream = followed.events()
            again = [event async for event in stream]
            assert [event["seq"] for event in again] == [event["seq"] for event in events]
            assert stream.reconnects == 2

    asyncio.run(follow())


def test_a_stream_without_numbers_is_interrupted_and_says_so(proxy: FaultProxy) -> None:
    with (
        Cove(proxy.url, http_client=without_reuse()) as cove,
        cove.session() as session,
    ):
        proxy.cut = (1, 4000)
        process = session.start("yes")
        with pytest.raises(errors.StreamInterruptedError, match="broke off"):
            process.wait()


def test_a_stream_outlives_the_server(own_server: OwnServer) -> None:
    with (
        FaultProxy(own_server.url) as proxy,
        Cove(proxy.url, own_server.token, http_client=without_reuse()) as cove,
    ):
        execution = cove.submit(language="python", source=SLOW)
        stream = execution.events()
        seen = [next(stream)["type"] for _ in range(6)]
        assert "stdout" in seen
        verdicts: list[str] = []
        waiting = threading.Thread(
            target=lambda: verdicts.append(cove.executions.get(execution.id).wait().verdict),
            daemon=True,
        )
        waiting.start()
        wait_until(lambda: any("wait=true" in line for line in proxy.requests))
        own_server.kill()
        own_server.start()
        proxy.aim(own_server.url)
        rest = list(stream)
        assert rest[-1]["type"] == "verdict"
        assert stream.reconnects > 0
        # The server failed, not the program: it ran again, from its beginning.
        assert any(event["type"] == "started" and event["attempt"] == 2 for event in rest)
        assert execution.wait().verdict == "OK"
        assert execution.record["attempts"] == 2
        waiting.join(timeout=120)
        assert verdicts == ["OK"]


def test_waiting_grows_and_ends() -> None:
    for attempt in range(12):
        bound = min(_core.BACKOFF_MAX, _core.BACKOFF_FIRST * 2**attempt)
        waits = [_core.delay(attempt, None) for _ in range(100)]
        assert bound / 2 <= min(waits) < max(waits) <= bound
    assert 7 <= _core.delay(0, 7.0) <= 7 + _core.BACKOFF_FIRST
