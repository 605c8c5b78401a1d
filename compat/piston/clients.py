"""Piston's clients against Cove: one from the package index, one written to the documented protocol.

Needs BASE (http://host:port/compat/piston) and TOKEN in the environment. Ends with 0 and "ok" when
everything was as it should be.
"""

import asyncio
import json
import os
import sys
import time

import piston_rspy
import websockets

BASE, TOKEN = os.environ["BASE"], os.environ["TOKEN"]
SOCKET = BASE.replace("http", "ws", 1) + "/api/v2/connect"
HEADERS = {"Authorization": "Bearer " + TOKEN}


def init(source, language="python", **more):
    return {"type": "init", "language": language, "version": "*", "files": [{"content": source}], **more}


async def connect():
    return await websockets.connect(SOCKET, additional_headers=HEADERS, max_size=None)


async def talk(*messages, then=None):
    """Sends messages, reads to the end: what came, close code and reason."""
    async with await connect() as socket:
        for message in messages:
            await socket.send(message if isinstance(message, (str, bytes)) else json.dumps(message))
        came = []
        try:
            async for text in socket:
                message = json.loads(text)
                came.append(message)
                if then:
                    await then(socket, message)
        except websockets.ConnectionClosed:
            pass
        return came, socket.close_code, socket.close_reason


def output(came, stream="stdout"):
    return "".join(m["data"] for m in came if m["type"] == "data" and m["stream"] == stream)


def equal(seen, expected, what=""):
    assert seen == expected, f"{what}: {seen!r} is not {expected!r}"


async def package():
    client = piston_rspy.Client().with_url_and_key(BASE + "/api/v2", "Bearer " + TOKEN)
    runtimes = await client.fetch_runtimes()
    assert any(r.language == "python" for r in runtimes), runtimes
    executor = piston_rspy.Executor().set_language("python").set_version("*")
    executor = executor.add_file(piston_rspy.File("main.py", "print(input() * 2)")).set_stdin("ab")
    response = await client.execute(executor)
    equal((response.run.stdout, response.run.code), ("abab\n", 0), response)


async def a_run_is_told_from_beginning_to_end():
    came, code, reason = await talk(init("import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.exit(3)"))
    equal(came[0]["type"], "runtime")
    equal(came[0]["language"], "python")
    equal(came[1], {"type": "stage", "stage": "run"})
    equal((output(came), output(came, "stderr")), ("out\n", "err\n"))
    equal(came[-1], {"type": "exit", "stage": "run", "code": 3, "signal": None})
    equal((code, reason), (4999, "Job Completed"))


async def a_compilation_is_a_stage_of_its_own():
    came, code, _ = await talk(init("int main(void){return 5;}", "c"))
    stages = [m["stage"] for m in came if m["type"] == "stage"]
    exits = [(m["stage"], m["code"]) for m in came if m["type"] == "exit"]
    equal((stages, exits, code), (["compile", "run"], [("compile", 0), ("run", 5)], 4999))
    came, code, _ = await talk(init("int main(void){ nonsense }", "c"))
    exits = [(m["stage"], m["code"]) for m in came if m["type"] == "exit"]
    equal((exits, code), ([("compile", 1)], 4999))
    assert "nonsense" in output(came, "stderr"), came


async def input_is_live_and_has_an_end():
    source = "import sys\nfor line in sys.stdin: print('got', line.strip(), flush=True)\nprint('end')"
    said = []

    async def then(socket, message):
        if message["type"] == "stage":
            await socket.send(json.dumps({"type": "data", "stream": "stdin", "data": "one\n"}))
        if message["type"] == "data":
            said.append(message["data"])
            if "one" in message["data"]:
                await socket.send(json.dumps({"type": "data", "stream": "stdin", "data": "two €\n"}))
            if "two" in message["data"]:
                await socket.send(json.dumps({"type": "eof"}))

    came, code, _ = await talk(init(source, stdin="zero\n"), then=then)
    equal((output(came), code), ("got zero\ngot one\ngot two €\nend\n", 4999))
    assert len(said) >= 3, said


async def signals_arrive():
    handled = (
        "import os, signal\nsignal.signal(signal.SIGINT, lambda *_: os.write(1, b'caught\\n'))\n"
        "os.write(1, b'ready\\n')\nsignal.pause()\nsignal.pause()"
    )

    async def then(socket, message):
        if message["type"] == "data":
            name = "SIGINT" if message["data"].startswith("ready") else "SIGKILL"
            await socket.send(json.dumps({"type": "signal", "signal": name}))

    came, code, _ = await talk(init(handled), then=then)
    equal((output(came), code), ("ready\ncaught\n", 4999))
    equal(came[-1], {"type": "exit", "stage": "run", "code": None, "signal": "SIGKILL"})


async def every_close_code():
    wait = init("input()")
    for messages, expected, error in [
        ([wait, wait], 4000, None),
        ([{"type": "data", "stream": "stdin", "data": "x"}], 4003, None),
        ([{"type": "signal", "signal": "SIGINT"}], 4003, None),
        ([{"type": "eof"}], 4003, None),
        ([wait, {"type": "data", "stream": "stdout", "data": "x"}], 4004, None),
        ([wait, {"type": "signal", "signal": "SIGNOPE"}], 4005, None),
        (["not json"], 4002, "not a message"),
        ([b"\xff\xfe"], 4002, "not a message"),
        (["[]"], 4002, "type is required as a string"),
        ([{"type": "other"}], 4002, "there is no message of type"),
        ([{"type": "init"}], 4002, "language is required as a string"),
        ([init("", "cobol")], 4002, "cobol-* runtime is unknown"),
        ([init("", run_timeout=10**9)], 4002, "run_timeout cannot exceed the configured limit of"),
        ([wait, {"type": "data", "stream": "stdin"}], 4002, "data is required as a string"),
    ]:
        came, code, _ = await talk(*messages)
        equal(code, expected, messages)
        errors = [m["message"] for m in came if m["type"] == "error"]
        if error is None:
            equal(errors, [], messages)
        else:
            assert len(errors) == 1 and errors[0].startswith(error), (messages, errors)
    started = time.monotonic()
    _, code, reason = await talk()
    took = time.monotonic() - started
    equal((code, reason), (4001, "Initialization Timeout"))
    assert 0.9 < took < 5, took


async def characters_stay_whole():
    source = (
        "import os, time\nfor byte in 'a€😀é\\n'.encode(): os.write(1, bytes([byte])); time.sleep(0.01)\n"
        "os.write(1, b'\\xff')"
    )
    came, code, _ = await talk(init(source))
    equal((output(came), code), ("a€😀é\n\ufffd", 4999))


async def limits_end_a_run_and_say_so():
    came, code, _ = await talk(init("import time\ntime.sleep(60)", run_timeout=300))
    expected = {"type": "exit", "stage": "run", "code": None, "signal": "SIGKILL"}
    equal((came[-1], code), ({**expected, "error": "Time limit exceeded (wall clock)"}, 4999))


async def a_reader_that_is_slow_stops_the_program_and_loses_nothing():
    size = 4 << 20
    source = f"import sys\nsys.stdout.write('0123456789abcdef' * ({size} // 16))"
    async with await connect() as socket:
        await socket.send(json.dumps(init(source)))
        await asyncio.sleep(1)
        text = ""
        try:
            async for message in socket:
                message = json.loads(message)
                if message["type"] == "data":
                    text += message["data"]
        except websockets.ConnectionClosed:
            pass
        equal((len(text), text[-16:], socket.close_code), (size, "0123456789abcdef", 4999))


async def leaving_ends_the_program():
    marker = f"cove-piston-{os.getpid()}"
    async with await connect() as socket:
        await socket.send(json.dumps(init("echo up; sleep 60", "bash", args=[marker])))
        while json.loads(await socket.recv())["type"] != "data":
            pass
        assert running(marker), "the program should run"
    deadline = time.monotonic() + 10
    while running(marker):
        assert time.monotonic() < deadline, "the program is still there"
        await asyncio.sleep(0.02)


def running(marker):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if marker.encode() in file.read().split(b"\0"):
                    return True
        except OSError:
            pass
    return False


async def many_at_once():
    async def one(number):
        came, code, _ = await talk(init(f"print({number} * 7)"))
        equal((output(came), code), (f"{number * 7}\n", 4999))

    await asyncio.gather(*(one(number) for number in range(30)))


async def main():
    for test in [
        package,
        a_run_is_told_from_beginning_to_end,
        a_compilation_is_a_stage_of_its_own,
        input_is_live_and_has_an_end,
        signals_arrive,
        every_close_code,
        characters_stay_whole,
        limits_end_a_run_and_say_so,
        a_reader_that_is_slow_stops_the_program_and_loses_nothing,
        leaving_ends_the_program,
        many_at_once,
    ]:
        print(test.__name__, flush=True)
        await asyncio.wait_for(test(), 60)
    print("ok")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
