"""The official Python SDK of the Model Context Protocol, unmodified, against Cove.

    client.py http URL TOKEN MODE
    client.py stdio MODE COMMAND [ARGUMENT ...]

MODE is `auto` (the newest revision that both speak, which is the stateless one) or `legacy`
(`initialize`). Prints one line of JSON for each check, {name, ok, detail}, and ends with 1 if one
failed.
"""

import asyncio
import json
import sys
import traceback

import mcp

CHECKS = []
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
    assert reads == {"read_file", "list_files"}, reads


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
async def paths_lead_nowhere_else(client):
    session = "ses_x/../../executions"
    result = await client.call_tool("read_file", {"session": session, "path": "a"})
    assert result.is_error and "no id of a session" in text(result), result


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


async def main():
    if sys.argv[1] == "http":
        import httpx2
        from mcp.client.streamable_http import streamable_http_client
        url, token, mode = sys.argv[2:]
        http = httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=60)
        server = streamable_http_client(url, http_client=http)
    else:
        mode, command, *arguments = sys.argv[2:]
        server = mcp.StdioServerParameters(command=command, args=arguments)
    failed = 0
    async with mcp.Client(server, mode=mode) as client:
        expected = "2025-11-25" if mode == "legacy" else "2026-07-28"
        checks = [*CHECKS]
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
