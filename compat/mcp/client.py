"""The official Python SDK of the Model Context Protocol, unmodified, against Cove.

    client.py http URL TOKEN MODE [POSTGRES MYSQL]
    client.py stdio MODE COMMAND [ARGUMENT ...]

MODE is `auto` (the newest revision that both speak, which is the stateless one) or `legacy`
(`initialize`). POSTGRES and MYSQL are grants of a server that has databases. Prints one line of JSON
for each check, {name, ok, detail}, and ends with 1 if one failed.
"""

import asyncio
import json
import sys
import traceback

import mcp

CHECKS = []
# Of a server with databases.
DATA_CHECKS = []
GRANTS = []
PNG = 'import sys; open("a.png", "wb").write(bytes.fromhex("89504e470d0a1a0a") + b"x" * 20)'


def check(function):
    CHECKS.append(function)
    return function


def text(result):
    return result.content[0].text


@check
async def the_tools_are_few_and_described(client):
    tools = (await client.list_tools()).tools
    names = [tool.name for tool in tools]
    assert names[0] == "run_code" and "edit_file" in names and len(names) <= 10, names
    assert all(tool.description and tool.input_schema for tool in tools)
    reads = {tool.name for tool in tools if tool.annotations.read_only_hint}
    assert reads == {"read_file", "list_files", "query_sql", "describe_data"}, reads


@check
async def a_program_runs(client):
    result = await client.call_tool("run_code", {"language": "py", "code": "print(6 * 7)"})
    assert not result.is_error and text(result).startswith("42\n[verdict OK"), result
    assert result.structured_content["verdict"] == "OK", result


@check
async def a_program_that_fails_is_no_error_of_the_tool(client):
    code = "import sys; print('no', file=sys.stderr); sys.exit(3)"
    result = await client.call_tool("run_code", {"language": "py", "code": code})
    assert not result.is_error and "exit code 3" in text(result), result
    assert "standard error:\nno" in text(result), result


@check
async def limits_and_input_are_heeded(client):
    given = {"language": "py", "code": "while True: pass", "timeout_s": 0.3}
    result = await client.call_tool("run_code", given)
    assert result.structured_content["verdict"] == "TLE", result
    given = {"language": "py", "code": "print(input(), open('data').read())",
             "stdin": "in", "files": {"data": "side"}}
    assert text(await client.call_tool("run_code", given)).startswith("in side\n")


@check
async def long_output_keeps_its_ends(client):
    code = "print('begin'); print('x' * 50000); print('end')"
    shown = text(await client.call_tool("run_code", {"language": "py", "code": code}))
    assert shown.startswith("begin\n") and "end\n[verdict" in shown and len(shown) < 20000
    assert "bytes left out" in shown


@check
async def images_are_images(client):
    given = {"language": "py", "code": PNG, "outputs": ["a.png"]}
    result = await client.call_tool("run_code", given)
    assert [block.type for block in result.content] == ["text", "image"], result
    assert result.content[1].mime_type == "image/png"


@check
async def a_wrong_argument_is_explained_to_the_model(client):
    for given in ({"language": "py"}, {"language": "none", "code": "1"},
                  {"language": "py", "code": "1", "timeout_s": -1}):
        result = await client.call_tool("run_code", given)
        assert result.is_error and text(result), result


@check
async def an_unknown_tool_is_an_error_of_the_protocol(client):
    try:
        result = await client.call_tool("nothing", {})
    except mcp.MCPError as error:
        assert "run_code" in str(error)
    else:
        raise AssertionError(result)


@check
async def a_session_keeps_files_and_is_edited(client):
    made = await client.call_tool("session", {"action": "create"})
    session = made.structured_content["id"]

    async def call(tool, **given):
        return await client.call_tool(tool, {"session": session, **given})

    name = "d ü/note%41.txt"
    assert not (await call("write_file", path=name, content="one\ntwo\n")).is_error
    assert not (await call("edit_file", path=name, old="two", new="three")).is_error
    twice = await call("edit_file", path=name, old="e", new="")
    assert twice.is_error and "occurs 3 times" in text(twice), twice
    read = await call("read_file", path=name)
    assert text(read) == "     1\tone\n     2\tthree\n", read
    link = next(block for block in read.content if block.type == "resource_link")
    content = (await client.read_resource(link.uri)).contents[0]
    assert content.text == "one\nthree\n", content
    assert name in text(await call("list_files", depth=2))
    done = await call("run_command", command="cat 'd ü'/*; exit 4", timeout_s=20)
    assert text(done) == "one\nthree\n[exit code 4]", done
    assert session in text(await client.call_tool("session", {"action": "list"}))
    assert not (await call("session", action="end")).is_error
    gone = await call("read_file", path=name)
    assert gone.is_error, gone


@check
async def cells_of_a_session_keep_what_they_define(client):
    made = await client.call_tool("session", {"action": "create"})
    session = made.structured_content["id"]

    async def cell(code, language="py", **given):
        given = {"session": session, "language": language, "code": code, **given}
        return await client.call_tool("run_code", given)

    assert not (await cell("import sys; x = 20; print('defined')")).is_error
    value = await cell("x + 22")
    assert text(value).startswith("42\n[verdict OK"), value
    assert value.structured_content["execution_count"] == 2, value
    failed = await cell("1 / 0")
    assert "ZeroDivisionError" in text(failed) and "[verdict RE" in text(failed), failed
    assert text(await cell("Y=7", "bash")).startswith("[verdict OK")
    assert text(await cell("echo $Y", "bash")).startswith("7\n[verdict OK")
    assert text(await cell("[1, 2].length", "js")).startswith("2\n[verdict OK")
    slow = await cell("import time; time.sleep(60)", timeout_s=0.5)
    assert "[verdict TLE" in text(slow), slow
    wrong = await cell("1", stdin="no such thing for a cell")
    assert wrong.is_error and "stdin" in text(wrong), wrong
    assert not (await client.call_tool("session", {"action": "end", "session": session})).is_error


@check
async def paths_lead_nowhere_else(client):
    session = "ses_x/../../executions"
    result = await client.call_tool("read_file", {"session": session, "path": "a"})
    assert result.is_error and "not the id of a session" in text(result), result


@check
async def long_work_tells_that_it_goes_on(client):
    told = []

    async def progress(*given):
        told.append(given)

    given = {"language": "bash", "code": "sleep 8; echo late"}
    result = await client.call_tool("run_code", given, progress_callback=progress)
    assert text(result).startswith("late\n") and told, (result, told)


@check
async def many_calls_are_under_way_at_once(client):
    calls = [client.call_tool("run_code", {"language": "py", "code": f"print({number})"})
             for number in range(10)]
    for number, result in enumerate(await asyncio.gather(*calls)):
        assert text(result).startswith(f"{number}\n"), result


@check
async def a_job_runs_in_the_background(client):
    async def job(action, **given):
        return await client.call_tool("job", {"action": action, **given})

    run = {"language": "py", "code": "print(input() * 2)", "stdin": "ab"}
    made = await job("submit", run=run)
    assert not made.is_error and made.structured_content["id"] in text(made), made
    one = made.structured_content["id"]
    done = await job("get", job=one, wait=True)
    assert done.structured_content["state"] == "finished", done
    assert done.content[1].text.startswith("abab\n[verdict OK"), done
    assert done.structured_content["result"]["stdout"] == "abab\n", done
    slow = {"language": "py", "code": "import time; time.sleep(600)", "timeout_s": 5}
    slow = (await job("submit", run=slow)).structured_content["id"]
    ended = await job("cancel", job=slow)
    assert not ended.is_error, ended
    ended = await job("get", job=slow, wait=True)
    assert ended.structured_content["state"] in ("cancelled", "finished"), ended
    listed = text(await job("list"))
    assert one in listed and slow in listed, listed
    for wrong in ({"action": "submit"}, {"action": "get"}, {"action": "get", "job": "ex_none"},
                  {"action": "get", "job": "../sessions"}, {"action": "submit", "run": {}}):
        assert (await client.call_tool("job", wrong)).is_error, wrong


def data_check(function):
    DATA_CHECKS.append(function)
    return function


@data_check
async def databases_are_described_and_queried(client):
    grants = GRANTS
    nothing = await client.call_tool("describe_data", {})
    assert "no session has a grant" in text(nothing), nothing
    wrong = await client.call_tool("session", {"action": "create", "grants": ["shop"]})
    assert wrong.is_error and "postgres:NAME" in text(wrong), wrong
    made = await client.call_tool("session", {"action": "create", "grants": grants})
    assert not made.is_error and made.structured_content["grants"] == grants, made
    session = made.structured_content["id"]
    for given in ({}, {"session": session}):
        listed = await client.call_tool("describe_data", given)
        assert all(grant in text(listed) for grant in [session, *grants]), listed

    async def call(tool, grant, **given):
        return await client.call_tool(tool, {"session": session, "grant": grant, **given})

    postgres, mysql = grants
    assert "table public.items" in text(await call("describe_data", postgres))
    items = await call("describe_data", postgres, name="items")
    assert "  id integer" in text(items), items
    answers = await call("describe_data", mysql, name="answers")
    assert "  answer varchar(9) not null" in text(answers), answers
    given = {"sql": "SELECT id, name, NULL AS n FROM items WHERE id < $1 ORDER BY id",
             "parameters": [4], "max_rows": 2}
    found = await call("query_sql", postgres, **given)
    assert not found.is_error and found.structured_content["truncated"], found
    assert found.structured_content["rows"] == [[1, "item 1", None], [2, "item 2", None]], found
    assert text(found).startswith("id | name | n\n1 | item 1 | NULL\n2 |"), found
    assert "beyond the limit of rows" in text(found), found
    found = await call("query_sql", mysql, sql="SELECT answer FROM answers WHERE id = ?",
                       parameters=[1])
    assert found.structured_content["rows"] == [["forty-two"]], found
    for grant in grants:
        for sql in ("DELETE FROM items", "COMMIT; DELETE FROM items", "SELECT * FROM nothing",
                    "DELETE FROM answers", "SELECT 1; DELETE FROM answers", ""):
            refused = await call("query_sql", grant, sql=sql)
            assert refused.is_error and text(refused).startswith("sql: "), refused
    unknown = await call("query_sql", "postgres:other", sql="SELECT 1")
    assert unknown.is_error and postgres in text(unknown), unknown
    await client.call_tool("session", {"action": "end", "session": session})
    gone = await call("query_sql", postgres, sql="SELECT 1")
    assert gone.is_error, gone


async def main():
    if sys.argv[1] == "http":
        import httpx2
        from mcp.client.streamable_http import streamable_http_client
        url, token, mode, *GRANTS[:] = sys.argv[2:]
        http = httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=60)
        server = streamable_http_client(url, http_client=http)
    else:
        mode, command, *arguments = sys.argv[2:]
        server = mcp.StdioServerParameters(command=command, args=arguments)
    failed = 0
    async with mcp.Client(server, mode=mode) as client:
        expected = "2025-11-25" if mode == "legacy" else "2026-07-28"
        checks = CHECKS + DATA_CHECKS if GRANTS else [*CHECKS]
        print(json.dumps({"name": "revision", "ok": client.protocol_version == expected,
                          "detail": client.protocol_version}))
        for function in checks:
            try:
                await function(client)
                line = {"name": function.__name__, "ok": True}
            except Exception:
                failed += 1
                line = {"name": function.__name__, "ok": False, "detail": traceback.format_exc()}
            print(json.dumps(line), flush=True)
    return failed != 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
