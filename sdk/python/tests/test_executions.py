"""Executions, batches and the queue, as a caller uses them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

import pytest

from cove import AsyncCove, Cove, chunk_bytes, errors

ADD = "print(sum(map(int, input().split())))"


def test_a_program_gets_its_verdict(cove: Cove) -> None:
    result = cove.run(
        language="python",
        source="import sys; print(6 * 7); sys.stderr.write('oh')\n"
        "open('made', 'wb').write(b'\\xff')",
        outputs=["made", "missing"],
        limits={"cpu_ms": 2000},
    )
    assert (result.verdict, result.stdout, result.stderr, result.exit_code) == (
        "OK",
        "42\n",
        "oh",
        0,
    )
    assert result.ok
    assert result.check() is result
    assert result.files == {"made": b"\xff"}
    assert result.cpu_ms > 0
    assert result.memory_peak_bytes > 0
    assert result.stages[-1]["name"] == "run"

    binary = cove.run(argv=["/bin/sh", "-c", "printf '\\377\\000'; exit 3"])
    assert (binary.stdout_bytes, binary.exit_code, binary.verdict) == (b"\xff\x00", 3, "RE")
    with pytest.raises(errors.VerdictError, match="exit code 3") as caught:
        binary.check()
    assert caught.value.verdict == "RE"
    late = cove.run(argv=["/bin/sh", "-c", "sleep 100"], limits={"wall_ms": 300})
    assert (late.verdict, late.limit, late.signal) == ("TLE", "wall", "SIGKILL")


def test_test_cases_are_judged_one_by_one(cove: Cove) -> None:
    result = cove.run(
        language="python",
        source=ADD,
        comparison={"mode": "tokens"},
        tests=[
            {"name": "small", "stdin": "1 2\n", "expected": "3"},
            {"name": "wrong", "stdin": "40 2\n", "expected": "43"},
        ],
    )
    assert result.verdict == "WA"
    assert [(it["name"], it["verdict"]) for it in result.tests] == [
        ("small", "OK"),
        ("wrong", "WA"),
    ]


def test_errors_say_what_is_wrong(cove: Cove) -> None:
    with pytest.raises(errors.UnknownLanguageError) as caught:
        cove.run(language="klingon", source="x")
    assert (caught.value.status, caught.value.code) == (400, "unknown_language")
    assert caught.value.request_id
    with pytest.raises(errors.InvalidRequestError) as caught_field:
        cove.submit(language="python", source="", limits={"cpu_ms": 0})
    assert caught_field.value.field == "limits.cpu_ms"
    with pytest.raises(errors.NotFoundError):
        cove.executions.get("ex_01JD5N3V9Q4ZK6T8R2W7XYABCD")
    with Cove(token="wrong") as other, pytest.raises(errors.UnauthenticatedError):
        other.whoami()


def test_a_queued_program_is_followed_and_awaited(cove: Cove) -> None:
    label = uuid.uuid4().hex
    source = "import sys\nfor i in range(3):\n    print(i, flush=True)"
    execution = cove.submit(language="python", source=source, label=label)
    events = list(execution.events())
    assert events[0]["type"] == "queued"
    last = events[-1]
    assert last["type"] == "verdict"
    assert last["verdict"] == "OK"
    output = b"".join(chunk_bytes(event) for event in events if event["type"] == "stdout")
    assert output == b"0\n1\n2\n"
    assert execution.wait().stdout == "0\n1\n2\n"
    after = list(execution.events(after=events[-2]["seq"]))
    assert [event["type"] for event in after] == ["verdict"]

    again = cove.executions.get(execution.id, include_request=True)
    assert again.state == "finished"
    assert [it["id"] for it in cove.executions.list(label=label)] == [execution.id]
    with pytest.raises(errors.ConflictError):
        execution.cancel()


def test_the_same_key_is_the_same_execution(cove: Cove) -> None:
    key = uuid.uuid4().hex
    one = cove.submit(language="python", source="print(1)", idempotency_key=key)
    two = cove.submit(language="python", source="print(1)", idempotency_key=key)
    assert one.id == two.id
    with pytest.raises(errors.ConflictError) as caught:
        cove.submit(language="python", source="print(2)", idempotency_key=key)
    assert caught.value.field == "idempotency-key"
    # A key of the client's own choice, for one call.
    headers = {"Idempotency-Key": key}
    assert (
        cove.with_options(headers=headers).submit(language="python", source="print(1)").id == one.id
    )


def test_lists_are_fetched_page_by_page(cove: Cove) -> None:
    label = uuid.uuid4().hex
    batch = cove.executions.batch(
        [{"language": "python", "source": "print(1)", "label": label} for _ in range(5)]
    )
    assert [it.wait().verdict for it in batch] == ["OK"] * 5
    listed = cove.executions.list(label=label, limit=2)
    assert [len(page) for page in listed.pages()] == [2, 2, 1]
    assert {it["id"] for it in listed} == {it.id for it in batch}
    assert len(listed.to_list(3)) == 3
    first = listed.first()
    assert first is not None
    assert cove.executions.list(label=uuid.uuid4().hex).first() is None


def test_a_program_is_typed_into_and_cancelled(cove: Cove) -> None:
    source = "name = input('who? ')\nprint('hello', name)"
    execution = cove.submit(language="python", source=source, terminal={"rows": 24, "cols": 80})
    with execution.attach() as attached:
        assert attached.read_until("who? ").endswith("who? ")
        attached.resize(40, 120)
        attached.send("Ada\n")
        assert "hello Ada" in attached.read_until("hello Ada")
        list(attached)
        assert attached.result is not None
        assert attached.result["verdict"] == "OK"

    cat = cove.submit(argv=["/bin/cat"], interactive=True)
    with cat.attach() as attached:
        attached.send(b"\x00\xff" * 40_000)
        attached.eof()
        chunks = [chunk_bytes(it) for it in attached if it["type"] == "stdout"]
    whole = b"".join(chunks)
    assert whole == (b"\x00\xff" * 40_000)[: len(whole)]
    assert len(whole) >= 65_536

    endless = cove.submit(argv=["/bin/sleep", "1000"], interactive=True)
    with endless.attach() as attached:
        attached.signal("SIGTERM")
        list(attached)
        assert attached.result is not None
        assert attached.result["signal"] == "SIGTERM"
    gone = cove.submit(argv=["/bin/sleep", "1000"], interactive=True)
    with gone.attach() as attached:
        attached.cancel()
        assert [event["type"] for event in attached][-1] == "ended"
    with pytest.raises(errors.ExecutionEndedError, match="is cancelled"):
        gone.wait()
    with pytest.raises(errors.ConnectionClosedError):
        attached.send("too late")


def test_the_queue_is_paused_drained_and_resumed(
    cove: Cove, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    try:
        assert cove.queue.pause()["paused"]
        waiting = cove.submit(language="python", source="print(1)")
        assert cove.queue.stats()["queued"] >= 1
        with pytest.raises(errors.APITimeoutError):
            waiting.wait(timeout=0.5)
        assert cove.queue.drain() >= 1
        with pytest.raises(errors.ExecutionEndedError) as caught:
            waiting.wait()
        assert caught.value.state == "cancelled"
    finally:
        assert not cove.queue.resume()["paused"]
    cove.queue.retry()
    assert cove.queue.retry() == 0
    after = cove.submit(language="python", source="print(2)")
    assert after.wait().stdout == "2\n"
    eventually(lambda: cove.queue.stats(all_tenants=True)["queued"] == 0)


def test_the_asynchronous_client_does_the_same_at_the_same_time() -> None:
    async def main() -> None:
        async with AsyncCove() as cove:
            runs = (cove.run(language="python", source=f"print({n})") for n in range(4))
            assert [it.stdout for it in await asyncio.gather(*runs)] == ["0\n", "1\n", "2\n", "3\n"]
            execution = await cove.submit(
                language="python", source="print(input())", interactive=True
            )
            async with await execution.attach() as attached:
                await attached.send("typed\n")
                assert "typed" in await attached.read_until("typed")
            followed = await cove.submit(language="python", source="print(1)")
            kinds = [event["type"] async for event in followed.events()]
            assert kinds[-1] == "verdict"
            assert (await followed.wait()).ok
            with pytest.raises(errors.UnknownLanguageError):
                await cove.run(language="klingon", source="x")
            records = await cove.executions.list(limit=1).to_list(3)
            assert len(records) == 3

    asyncio.run(main())


def test_answers_and_options_are_there_for_who_wants_them(cove: Cove) -> None:
    with cove.with_raw_response() as raw:
        who = cove.whoami()
    assert raw[-1].status_code == 200
    assert raw[-1].headers["x-request-id"]
    assert raw[-1].json() == who
    assert cove.request("GET", "/v1/whoami").json() == who
    with pytest.raises(errors.NotFoundError):
        cove.request("GET", "/v1/nothing")
    assert cove.is_live()
    assert cove.is_ready()
    assert "cove_" in cove.metrics()
    assert cove.webhook_secret()
    assert any(it["name"] == "python" for it in cove.executions.languages())
    assert [it["is_this"] for it in cove.nodes.list()] == [True]
    with pytest.raises(errors.APITimeoutError):
        cove.run(argv=["/bin/sleep", "20"], timeout=0.3)
