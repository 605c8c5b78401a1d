"""Sessions, agents, templates, the code interpreter, and what a session may reach."""

from __future__ import annotations

import asyncio
import io
import tarfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from cove import AsyncCove, Cove, Session, errors
from cove.types import Grant

#: The agent that the product's own examples deploy.
ECHO = Path(__file__).resolve().parents[3] / "examples/agents/echo/agent.py"
SHOP: Grant = {"kind": "postgres", "tenant": "shop"}


@pytest.fixture
def session(cove: Cove) -> Iterator[Session]:
    """A session without an agent."""
    with cove.session(metadata={"of": "tests"}) as it:
        yield it


def test_a_session_ends_with_its_block_and_is_found_before_that(cove: Cove) -> None:
    mark = uuid.uuid4().hex
    with cove.session(metadata={"mark": mark}) as session:
        found = cove.sessions.list(metadata={"mark": mark}, state="active").to_list()
        assert [it["id"] for it in found] == [session.id]
        other = cove.sessions.connect(session.id)
        assert other.update(metadata={"mark": mark, "more": "yes"})["metadata"]["more"] == "yes"  # pyright: ignore[reportTypedDictNotRequiredAccess]
        assert session.pause()["state"] == "paused"
        assert session.resume()["state"] == "active"
        assert session.stop()["state"] == "stopped"
        with pytest.raises(errors.ConflictError, match="resume it first"):
            session.exec("true")
        assert session.resume()["state"] == "active"
        assert session.exec("echo still")["stdout"] == "still\n"
        assert session.metrics()["disk_total_bytes"] > 0
    assert session.state == "ended"
    assert other.refresh()["state"] == "ended"
    with pytest.raises(errors.GoneError):
        other.exec("true")
    assert cove.sessions.sandboxes()["total"] >= 0
    assert cove.sessions.usage()["total"]["turns"] >= 0


def test_commands_run_to_their_end_and_beside(session: Session) -> None:
    done = session.exec("cat; echo $WHO; pwd; exit 3", stdin="in\n", env={"WHO": "me"}, cwd="/tmp")
    assert (done["stdout"], done["exit_code"]) == ("in\nme\n/tmp\n", 3)
    assert session.exec(["printf", "%s", "a b"])["stdout"] == "a b"
    assert session.exec("sleep 100", timeout_ms=200)["timed_out"]

    with session.start("echo begun; sleep 1000") as process:
        assert process.pid
        assert process.read_until("begun") == "begun\n"
    short = session.start("echo out; echo err >&2; exit 4")
    ended = short.wait()
    assert (ended["exit_code"], ended["stdout"], ended["stderr"]) == (4, "out\n", "err\n")
    assert short.result == ended


def test_files_are_written_read_listed_and_watched(session: Session) -> None:
    files = session.files
    assert files.write("src/a.txt", "hello \u00e9")["size"] == 8
    assert files.read_text("src/a.txt") == "hello \u00e9"
    assert files.read("src/a.txt", start=1, length=4) == b"ello"
    files.write("src/a.txt", b"!", append=True)
    assert files.read("src/a.txt").endswith(b"!")
    with pytest.raises(errors.ConflictError):
        files.write("src/a.txt", "x", create=True)
    assert files.mkdir("deep/er")["kind"] == "dir"
    assert {it["path"] for it in files.list(depth=2)} >= {
        "/workspace/src/a.txt",
        "/workspace/deep/er",
    }
    assert files.move("src/a.txt", "src/b.txt")["path"].endswith("b.txt")
    assert files.stat("src/b.txt")["size"] == 9
    odd = "odd/\u00e9 %2F?#.txt"
    files.write(odd, "odd")
    assert files.read_text(odd) == "odd"
    with files.stream("src/b.txt") as chunks:
        assert b"".join(chunks) == files.read("src/b.txt")

    archive = files.download("src")
    files.upload(archive, "copy")
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        assert any(name.endswith("b.txt") for name in opened.getnames())
    assert files.read("copy/b.txt") == files.read("src/b.txt")
    files.remove("src", recursive=True)
    with pytest.raises(errors.NotFoundError):
        files.read("src/b.txt")
    with files.watch() as changes:
        files.write("new.txt", "x")
        assert next(changes)["path"] == "new.txt"


def test_a_terminal_is_typed_into(session: Session) -> None:
    with session.terminal(["/bin/sh"], rows=30, cols=100) as terminal:
        terminal.send("stty size\n")
        assert "30 100" in terminal.read_until("30 100")
        terminal.resize(50, 120)
        terminal.send("stty size\n")
        assert "50 120" in terminal.read_until("50 120")
        terminal.send("exit 7\n")
        assert b"".join(terminal) is not None
        assert terminal.exit_code == 7
    # From another thread than the one that reads.
    with session.terminal(["/bin/cat"]) as terminal:
        typist = threading.Thread(target=lambda: terminal.send("typed\n"))
        typist.start()
        assert "typed" in terminal.read_until("typed")
        typist.join()


def test_cells_keep_what_they_define(session: Session) -> None:
    assert session.run_code("x = 20")["verdict"] == "OK"
    shown = session.run_code("print('out'); x + 22")
    assert (shown["stdout"], shown["results"][0]["data"]["text/plain"]) == ("out\n", "42")
    failed = session.run_code("1 / 0")
    error = failed.get("error")
    assert error is not None
    assert error["name"] == "ZeroDivisionError"
    assert session.run_code("echo $((6 * 7))", language="bash")["stdout"] == "42\n"

    context = session.contexts.create(language="python")
    kinds = [event["type"] for event in context.stream("y = 1\nprint(y)\ny")]
    assert kinds == ["started", "stdout", "result", "ended"]
    copy = context.fork()
    assert copy.run("y + 1")["results"][0]["data"]["text/plain"] == "2"
    assert {it.id for it in session.contexts.list()} >= {context.id, copy.id}
    context.restart()
    assert context.run("y")["verdict"] == "RE"
    assert session.contexts.get(copy.id).refresh()["executions"] >= 1
    assert not context.interrupt()
    copy.delete()
    with pytest.raises(errors.NotFoundError):
        copy.refresh()


def test_an_agent_is_deployed_and_spoken_with(cove: Cove) -> None:
    name = f"echo-{uuid.uuid4().hex[:8]}"
    agent = cove.agents.deploy(
        name=name,
        files=[{"path": "agent.py", "content": ECHO.read_text()}],
        runtime={"type": "command", "argv": ["python3", "agent.py"]},
    )
    try:
        assert agent["version"] == 1
        assert [it["path"] for it in cove.agents.files(name)] == ["agent.py"]
        assert cove.agents.read_file(name, "agent.py") == ECHO.read_bytes()
        assert cove.agents.update(name, description="says it again")["version"] == 1
        assert len(cove.agents.versions(name)) == 1
        assert name in {it["name"] for it in cove.agents.list()}
        with cove.session(agent=name) as session:
            turn = session.send("hello", partial=True)
            kinds = [event["type"] for event in turn]
            assert kinds[0] == "turn_start"
            assert "text_delta" in kinds
            assert kinds[-1] == "done"
            assert session.send("again").text() == "You said: again [messages: 2]"
            answer = session.ask([{"type": "text", "text": "third"}])
            assert answer.get("result") == "You said: third [messages: 3]"
            assert [it["role"] for it in session.messages()][:2] == ["user", "assistant"]
            past: list[str] = []
            with session.events(kinds=["text", "done"]) as events:
                while past.count("done") < 3:
                    past.append(next(events)["type"])
            assert past == ["text", "done"] * 3
            assert isinstance(session.logs()["lines"], list)

            (copy,) = session.fork()
            with copy:
                assert copy.ask("fourth").get("result") == "You said: fourth [messages: 4]"
            assert not session.interrupt()
    finally:
        cove.agents.delete(name)
    with pytest.raises(errors.NotFoundError):
        cove.agents.get(name)


def test_snapshots_attachments_and_secrets_outlive_what_made_them(
    cove: Cove, session: Session
) -> None:
    session.files.write("kept.txt", "kept")
    snapshot = session.snapshot("mine")
    assert [it["id"] for it in session.snapshots()] == [snapshot["id"]]
    assert snapshot["id"] in {it["id"] for it in cove.sessions.snapshots()}
    with cove.session(snapshot=snapshot["id"]) as other:
        assert other.files.read_text("kept.txt") == "kept"
    cove.sessions.delete_snapshot(snapshot["id"])

    attached = session.attach_file("plan.txt", b"plan")
    assert [it["id"] for it in session.attachments()] == [attached["id"]]
    assert cove.sessions.read_attachment(attached["id"]) == b"plan"
    cove.sessions.delete_attachment(attached["id"])
    secret = cove.sessions.create_credential(kind="custom", label="tests", secret="s3cret")
    assert secret["id"] in {it["id"] for it in cove.sessions.credentials()}
    cove.sessions.delete_credential(secret["id"])


def test_a_template_is_built_with_its_log(cove: Cove) -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        info = tarfile.TarInfo("page.html")
        info.size = 2
        archive.addfile(info, io.BytesIO(b"hi"))
    digest = cove.templates.upload(packed.getvalue())
    assert cove.templates.upload(packed.getvalue()) == digest
    lines: list[str] = []
    build = cove.templates.build(
        name=name,
        steps=[
            {"type": "copy", "archive": digest, "source": "page.html", "to": "site/"},
            {"type": "run", "command": "echo from-the-step; touch made"},
        ],
        on_log=lambda line: lines.append(line["message"]),
    )
    try:
        assert build["status"] == "ready"
        assert any("from-the-step" in line for line in lines)
        with cove.session(template=name) as session:
            assert session.files.read("site/page.html") == b"hi"
        assert cove.templates.tag(name, build["id"], ["v1"])["tags"]["v1"] == build["id"]
        assert cove.templates.get_build(name, "v1")["id"] == build["id"]
        cove.templates.untag(name, "v1")
        assert [it["id"] for it in cove.templates.builds(name)] == [build["id"]]
        assert name in {it["name"] for it in cove.templates.list()}
        with pytest.raises(errors.TemplateBuildError) as caught:
            cove.templates.build(name=name, steps=[{"type": "run", "command": "exit 3"}])
        assert caught.value.build["status"] == "error"
    finally:
        cove.templates.delete(name)
    with pytest.raises(errors.NotFoundError):
        cove.templates.get(name)


def test_a_database_is_granted_read_taken_back_and_audited(cove: Cove, session: Session) -> None:
    with pytest.raises(errors.APIError):
        session.query("postgres:shop", "SELECT 1")
    assert session.grant(SHOP)[0]["kind"] == "postgres"
    result = session.query(
        "postgres:shop", "SELECT id, name FROM items WHERE id <= $1 ORDER BY id", [2]
    )
    assert result["rows"] == [[1, "item 1"], [2, "item 2"]]
    assert [it["name"] for it in result["columns"]] == ["id", "name"]
    assert session.query("postgres:shop", "SELECT * FROM items", max_rows=5)["truncated"]
    assert any(it["name"].endswith("items") for it in session.describe("postgres:shop")["objects"])
    with pytest.raises(errors.InvalidRequestError) as caught:
        session.query("postgres:shop", "DELETE FROM items")
    assert caught.value.field == "sql"

    statements = cove.audit.list(holder=session.id, event="statement", limit=1).to_list()
    assert len(statements) >= 2
    newest = cove.audit.list(holder=session.id, order="desc").first()
    assert newest is not None
    assert newest["seq"] >= statements[-1]["seq"]
    groups = cove.audit.summary(by="grant", holder=session.id)["groups"]
    assert [it["name"] for it in groups] == ["postgres:shop"]
    followed = cove.audit.follow(after=newest["seq"], holder=session.id)
    assert session.revoke(SHOP) == []
    assert next(followed)["event"] in ("revoked", "disconnect")


def test_the_asynchronous_session_does_the_same() -> None:
    async def main() -> None:
        async with AsyncCove() as cove, cove.session() as session:
            await session.files.write("a.txt", "hello")
            assert await session.files.read_text("a.txt") == "hello"
            async with session.files.watch() as changes:
                await session.files.write("b.txt", "x")
                assert (await anext(changes))["path"] == "b.txt"
            async with await session.terminal(["/bin/sh"]) as terminal:
                reading = asyncio.create_task(terminal.read_until("42"))
                await terminal.send("echo $((6 * 7))\n")
                assert "42" in await reading
            process = await session.start("echo out")
            assert (await process.wait())["stdout"] == "out\n"
            assert (await session.run_code("6 * 7"))["results"][0]["data"]["text/plain"] == "42"
            await session.grant(SHOP)
            counted = await session.query("postgres:shop", "SELECT count(*) FROM items")
            assert counted["rows"] == [[100]]
            (copy,) = await session.fork()
            async with copy:
                assert await copy.files.read("a.txt") == b"hello"
            records = [it async for it in cove.audit.list(holder=session.id)]
            assert records

    asyncio.run(main())
