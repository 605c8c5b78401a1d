"""E2B's Python SDK, unmodified, against Cove: every sandbox-related call, as a table of named checks.

Needs E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY in the environment, as any program that uses the
SDK. E2B_TEMPLATE names another template than the default, E2B_PORTS_URL the listener that routes by
host names, where it is not E2B_SANDBOX_URL. Arguments are parts of names: only those checks are done.
Prints one line of JSON for each check, {name, ok, detail}, and ends with 1 if one failed.
"""

import asyncio
import concurrent.futures
import datetime
import http.client
import io
import os
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

import e2b
from e2b import AsyncSandbox, CommandExitException, FileType, NotFoundException, PtySize, Sandbox
from e2b import SandboxQuery, SandboxState, TimeoutException

from checks import check, equal, run

TEMPLATE = os.environ.get("E2B_TEMPLATE")
PORTS = os.environ.get("E2B_PORTS_URL") or os.environ["E2B_SANDBOX_URL"]
DEADLINE = 20
# One sandbox for all checks that leave nothing behind which another would see.
SHARED = {}


def create(**options):
    options.setdefault("timeout", 120)
    return Sandbox.create(TEMPLATE, **options)


def shared():
    if "sandbox" not in SHARED:
        SHARED["sandbox"] = create(metadata={"purpose": "shared"}, envs={"SHARED": "yes"})
    return SHARED["sandbox"]


class own:
    """A sandbox of its own for one check."""

    def __init__(self, **options):
        self.options = options

    def __enter__(self):
        self.sandbox = create(**self.options)
        return self.sandbox

    def __exit__(self, *_):
        self.sandbox.kill()


def refuses(error, call, *arguments, **named):
    """The call raises this error; its text is the result."""
    try:
        value = call(*arguments, **named)
    except error as refusal:
        return str(refusal)
    raise AssertionError(f"{value!r} instead of {error.__name__}")


def until(condition, what):
    """The first true value of the condition. `what` is a text, or a function that returns one at the end."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {DEADLINE} s: {what() if callable(what) else what}")


def place():
    """A directory that no other check uses."""
    return f"/home/user/check-{uuid.uuid4().hex}"


def fetch(url, data=None, headers=None, method=None):
    """Status and body of a request without the SDK."""
    request = urllib.request.Request(url, data, headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


# --- life of a sandbox ---


@check
def create_tells_id_version_and_domain():
    sandbox = shared()
    assert sandbox.sandbox_id and sandbox.sandbox_domain, vars(sandbox)
    assert str(sandbox._envd_version) >= "0.5.7", sandbox._envd_version


@check
def info_has_what_was_asked_for():
    with own(metadata={"user": "ä b&c=d"}, timeout=90) as sandbox:
        info = sandbox.get_info()
        equal(info.sandbox_id, sandbox.sandbox_id)
        equal(info.metadata, {"user": "ä b&c=d"})
        equal(info.state, SandboxState.RUNNING)
        left = (info.end_at - datetime.datetime.now(datetime.timezone.utc)).total_seconds()
        assert 60 < left <= 91, left
        assert info.cpu_count >= 1 and info.memory_mb >= 1, info
        equal(Sandbox.get_info(sandbox.sandbox_id).sandbox_id, sandbox.sandbox_id)


@check
def is_running_until_killed():
    sandbox = create()
    equal(sandbox.is_running(), True)
    equal(sandbox.kill(), True)
    equal(sandbox.is_running(), False)
    equal(sandbox.kill(), False)
    equal(Sandbox.kill(sandbox.sandbox_id), False)


@check
def what_is_gone_is_not_found():
    sandbox = create()
    sandbox.kill()
    refuses(NotFoundException, sandbox.get_info)
    refuses(NotFoundException, sandbox.set_timeout, 60)
    refuses(NotFoundException, Sandbox.connect, sandbox.sandbox_id)
    refuses(e2b.SandboxException, sandbox.commands.run, "true")
    refuses(e2b.SandboxException, sandbox.files.read, "/etc/passwd")


@check
def a_wrong_key_is_refused():
    refuses(e2b.AuthenticationException, Sandbox.create, TEMPLATE, api_key="e2b_" + "0" * 40)


@check
def one_sandbox_does_not_open_another():
    with own() as first, own() as second:
        headers = {"E2b-Sandbox-Id": second.sandbox_id, "E2b-Sandbox-Port": "49983"}
        url = os.environ["E2B_SANDBOX_URL"] + "/files?path=/etc/passwd"
        for token in (first._envd_access_token, "", "x" * 40):
            status, _ = fetch(url, headers={**headers, "X-Access-Token": token})
            assert status in (401, 403, 404), (token, status)


@check
def set_timeout_moves_the_end():
    with own(timeout=60) as sandbox:
        before = sandbox.get_info().end_at
        sandbox.set_timeout(600)
        moved = (sandbox.get_info().end_at - before).total_seconds()
        assert 500 < moved < 560, moved
        Sandbox.set_timeout(sandbox.sandbox_id, 30)
        assert sandbox.get_info().end_at < before


@check
def a_timeout_ends_a_sandbox():
    sandbox = create(timeout=1)
    until(lambda: not sandbox.is_running(), "the sandbox ends")
    until(lambda: not Sandbox.kill(sandbox.sandbox_id), "and is forgotten")


@check
def a_timeout_may_pause():
    with own(timeout=1, lifecycle={"on_timeout": "pause"}) as sandbox:
        until(lambda: sandbox.get_info().state == SandboxState.PAUSED, "the sandbox pauses")
        again = Sandbox.connect(sandbox.sandbox_id, timeout=60)
        equal(again.commands.run("echo back").stdout, "back\n")


@check
def pause_keeps_files_and_connect_resumes():
    with own() as sandbox:
        sandbox.files.write("kept.txt", "kept")
        equal(sandbox.pause(), True)
        equal(sandbox.is_running(), False)
        equal(sandbox.get_info().state, SandboxState.PAUSED)
        equal(sandbox.pause(), False)
        again = Sandbox.connect(sandbox.sandbox_id)
        equal(again.sandbox_id, sandbox.sandbox_id)
        equal(again.files.read("kept.txt"), "kept")
        equal(sandbox.is_running(), True)
        equal(sandbox.commands.run("cat kept.txt").stdout, "kept")


@check
def connect_to_a_running_one():
    with own(envs={"ONE": "1"}) as sandbox:
        other = Sandbox.connect(sandbox.sandbox_id, timeout=240)
        equal(other.commands.run("echo $ONE").stdout, "1\n")
        other.files.write("seen.txt", "by both")
        equal(sandbox.files.read("seen.txt"), "by both")


@check
def list_pages_and_filters():
    mark = uuid.uuid4().hex
    made = [create(metadata={"mark": mark, "number": str(number)}) for number in range(3)]
    try:
        made[2].pause()

        def ids(**options):
            pages, found = Sandbox.list(**options), []
            while pages.has_next:
                found += [info.sandbox_id for info in pages.next_items()]
            return found

        every = {sandbox.sandbox_id for sandbox in made}
        query = {"mark": mark}
        equal(set(ids(query=SandboxQuery(metadata=query))), every)
        found = ids(query=SandboxQuery(metadata=query), limit=1)
        equal((len(found), set(found)), (3, every))
        running = SandboxQuery(metadata=query, state=[SandboxState.RUNNING])
        equal(set(ids(query=running)), every - {made[2].sandbox_id})
        paused = SandboxQuery(metadata=query, state=[SandboxState.PAUSED])
        equal(ids(query=paused), [made[2].sandbox_id])
        equal(ids(query=SandboxQuery(metadata={"mark": mark, "number": "1"})), [made[1].sandbox_id])
        equal(ids(query=SandboxQuery(metadata={"mark": "nobody"})), [])
    finally:
        for sandbox in made:
            sandbox.kill()


@check
def metrics_are_figures():
    sandbox = shared()
    sandbox.commands.run("true")
    metrics = until(sandbox.get_metrics, "there are metrics")
    last = metrics[-1]
    assert last.mem_total > 0 and last.disk_total > 0 and last.cpu_count >= 1, last


@check
def forks_have_the_files_and_go_their_own_way():
    with own() as sandbox:
        sandbox.files.write("state.txt", "common")
        forks = sandbox.fork(count=2)
        try:
            equal(len(forks), 2)
            assert all(isinstance(fork, Sandbox) for fork in forks), forks
            equal(len({sandbox.sandbox_id, *[fork.sandbox_id for fork in forks]}), 3)
            forks[0].files.write("state.txt", "first")
            equal(forks[1].files.read("state.txt"), "common")
            equal(sandbox.files.read("state.txt"), "common")
            equal(forks[0].commands.run("cat state.txt").stdout, "first")
        finally:
            for fork in forks:
                if isinstance(fork, Sandbox):
                    fork.kill()


@check
def snapshots_are_templates():
    with own() as sandbox:
        sandbox.files.write("kept.txt", "then")
        snapshot = sandbox.create_snapshot()
        sandbox.files.write("kept.txt", "now")
        pages = sandbox.list_snapshots()
        assert snapshot.snapshot_id in [item.snapshot_id for item in pages.next_items()]
        copy = Sandbox.create(snapshot.snapshot_id, timeout=60)
        try:
            equal(copy.files.read("kept.txt"), "then")
            equal(sandbox.files.read("kept.txt"), "now")
        finally:
            copy.kill()
        equal(Sandbox.delete_snapshot(snapshot.snapshot_id), True)
        equal(Sandbox.delete_snapshot(snapshot.snapshot_id), False)


@check
def ports_are_reached_by_host_name():
    with own() as sandbox:
        sandbox.files.write("site/index.html", "from inside")
        sandbox.commands.run("python -m http.server 8123 --directory site", background=True)
        host, address = sandbox.get_host(8123), urllib.parse.urlsplit(PORTS)
        assert host.startswith(f"8123-{sandbox.sandbox_id}."), host

        def get():
            connection = http.client.HTTPConnection(address.hostname, address.port, timeout=DEADLINE)
            try:
                connection.request("GET", "/index.html", headers={"Host": host})
                response = connection.getresponse()
                return response.status == 200 and response.read()
            finally:
                connection.close()

        equal(until(get, "the port answers"), b"from inside")


# --- files ---


@check
def files_of_every_content():
    files, root = shared().files, place()
    for number, content in enumerate(["", "text\n", "ä€😀\u2028\n", "a" * (1 << 20)]):
        path = f"{root}/deep/er/file-{number}"
        info = files.write(path, content)
        equal((info.path, info.name), (path, f"file-{number}"))
        equal(files.read(path), content)
    content = bytes(range(256)) * 4096
    files.write(f"{root}/bytes", content)
    equal(bytes(files.read(f"{root}/bytes", format="bytes")), content)
    equal(b"".join(files.read(f"{root}/bytes", format="stream")), content)
    files.write(f"{root}/bytes", b"shorter")
    equal(files.read(f"{root}/bytes"), "shorter")


@check
def files_by_every_way_up():
    files, root = shared().files, place()
    content = os.urandom(3 << 20)
    files.write(f"{root}/multipart", content, use_octet_stream=False)
    files.write(f"{root}/octets", content, use_octet_stream=True)
    files.write(f"{root}/packed", content, gzip=True)
    files.write(f"{root}/file", io.BytesIO(content))
    files.write(f"{root}/chunks", (content[at : at + 65536] for at in range(0, len(content), 65536)))
    for name in ("multipart", "octets", "packed", "file", "chunks"):
        assert bytes(files.read(f"{root}/{name}", format="bytes")) == content, name


@check
def files_with_awkward_names():
    files, root = shared().files, place()
    for name in ["with space", "ünï", "a&b=c?d#e%20", "'quoted\"", "-dash", "..dots", "new\nline"]:
        files.write(f"{root}/{name}", name, use_octet_stream=True)
        equal(files.read(f"{root}/{name}"), name)
    equal(len(files.list(root)), 7)


@check
def several_files_at_once():
    files, root = shared().files, place()
    entries = [{"path": f"{root}/{name}", "data": name * 3} for name in ("a", "b", "c")]
    equal([info.path for info in files.write_files(entries)], [entry["path"] for entry in entries])
    equal([files.read(entry["path"]) for entry in entries], ["aaa", "bbb", "ccc"])
    equal(files.write_files([]), [])


@check
def relative_paths_begin_at_home():
    files = shared().files
    name = f"relative-{uuid.uuid4().hex}"
    files.write(name, "here")
    equal(files.read(f"/home/user/{name}"), "here")
    equal(files.get_info(name).path, f"/home/user/{name}")


@check
def listing_and_depth():
    files, root = shared().files, place()
    for path in ("one", "two/three", "two/four/five"):
        files.write(f"{root}/{path}", path)

    def names(**options):
        return sorted(entry.path.removeprefix(root + "/") for entry in files.list(root, **options))

    equal(names(), ["one", "two"])
    equal(names(depth=2), ["one", "two", "two/four", "two/three"])
    equal(names(depth=3), ["one", "two", "two/four", "two/four/five", "two/three"])
    kinds = {entry.name: entry.type for entry in files.list(root)}
    equal(kinds, {"one": FileType.FILE, "two": FileType.DIR})
    refuses(NotFoundException, files.list, f"{root}/nothing")
    refuses(e2b.InvalidArgumentException, files.list, f"{root}/one")


@check
def what_is_known_of_a_file():
    sandbox, root = shared(), place()
    sandbox.files.write(f"{root}/file", "12345")
    info = sandbox.files.get_info(f"{root}/file")
    equal((info.name, info.path, info.type, info.size), ("file", f"{root}/file", FileType.FILE, 5))
    equal((info.owner, info.mode & 0o777), ("user", 0o644))
    age = (datetime.datetime.now(datetime.timezone.utc) - info.modified_time).total_seconds()
    assert -5 < age < 60, age
    sandbox.commands.run(f"ln -s file {root}/link")
    link = sandbox.files.get_info(f"{root}/link")
    equal((link.type, link.symlink_target is not None), (FileType.SYMLINK, True))
    refuses(NotFoundException, sandbox.files.get_info, f"{root}/nothing")


@check
def directories_move_and_go():
    files, root = shared().files, place()
    equal(files.make_dir(f"{root}/a/b"), True)
    equal(files.make_dir(f"{root}/a/b"), False)
    files.write(f"{root}/a/b/file", "moved")
    equal(files.rename(f"{root}/a/b", f"{root}/c").path, f"{root}/c")
    equal((files.exists(f"{root}/a/b"), files.read(f"{root}/c/file")), (False, "moved"))
    files.remove(f"{root}/c/file")
    equal(files.exists(f"{root}/c/file"), False)
    files.remove(root)
    equal(files.exists(root), False)
    refuses(NotFoundException, files.rename, f"{root}/x", f"{root}/y")
    refuses(NotFoundException, files.read, f"{root}/x")


@check
def files_of_the_system_are_not_the_users():
    files = shared().files
    assert "user" in files.read("/etc/passwd")
    for path in ("/etc/passwd", "/usr/bin/new"):
        refuses(e2b.SandboxException, files.write, path, "mine")
    refuses(e2b.SandboxException, files.read, "/home/user")


@check
def attributes_travel_with_a_file():
    files, path = shared().files, place() + "/file"
    info = files.write(path, "x", metadata={"author": "someone", "kind": "note"})
    equal(info.metadata, {"author": "someone", "kind": "note"})
    equal(files.get_info(path).metadata, {"author": "someone", "kind": "note"})


@check
def watching_by_asking():
    files, root = shared().files, place()
    files.make_dir(f"{root}/sub")
    handle = files.watch_dir(root, recursive=True, include_entry=True)
    seen = []

    def saw(name, kind):
        seen.extend((event.name, event.type.value) for event in handle.get_new_events())
        return (name, kind) in seen

    files.write(f"{root}/new", "1")
    until(lambda: saw("new", "create"), "the file is created")
    files.write(f"{root}/sub/deep", "1")
    until(lambda: saw("sub/deep", "create"), "the file below is created")
    files.write(f"{root}/new", "2")
    until(lambda: saw("new", "write"), "the file is written")
    files.remove(f"{root}/new")
    until(lambda: saw("new", "remove"), "the file is removed")
    handle.stop()
    refuses(e2b.SandboxException, handle.get_new_events)
    refuses(NotFoundException, files.watch_dir, f"{root}/nothing")


@check
def signed_addresses():
    sandbox, root = shared(), place()
    sandbox.files.write(f"{root}/a b", "signed")
    url = sandbox.download_url(f"{root}/a b", use_signature_expiration=60)
    identity = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
    equal(fetch(url, headers=identity), (200, b"signed"))
    # A signature says enough by itself: whoever gets the address need not know the sandbox.
    equal([fetch(url) for _ in range(3)], [(200, b"signed")] * 3)
    equal(fetch(url.replace("a%20b", "other"), headers=identity)[0] in (401, 403), True)
    stale = sandbox.download_url(f"{root}/a b", use_signature_expiration=-10)
    equal(fetch(stale, headers=identity)[0] in (401, 403), True)
    boundary = uuid.uuid4().hex
    body = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="up"\r\n\r\n'
        f"uploaded\r\n--{boundary}--\r\n"
    ).encode()
    kind = {"Content-Type": f"multipart/form-data; boundary={boundary}", **identity}
    status, _ = fetch(sandbox.upload_url(f"{root}/up"), body, kind, "POST")
    equal((status, sandbox.files.read(f"{root}/up")), (200, "uploaded"))
    # What may be read may not be written, and the other way round.
    equal(fetch(url, body, kind, "POST")[0] in (401, 403), True)


# --- commands ---


@check
def output_and_exit_code():
    commands = shared().commands
    result = commands.run("echo out; echo err >&2")
    equal((result.stdout, result.stderr, result.exit_code), ("out\n", "err\n", 0))
    try:
        commands.run("echo before; exit 3")
        raise AssertionError("it should have failed")
    except CommandExitException as error:
        equal((error.exit_code, error.stdout), (3, "before\n"))


@check
def environment_directory_and_user():
    commands = shared().commands
    equal(commands.run("echo $SHARED $MORE", envs={"MORE": "too"}).stdout, "yes too\n")
    equal(commands.run("pwd").stdout, "/home/user\n")
    equal(commands.run("pwd", cwd="/tmp").stdout, "/tmp\n")
    equal(commands.run("whoami").stdout, "user\n")
    equal(commands.run("whoami", user="user").stdout, "user\n")
    refuses(e2b.SandboxException, commands.run, "pwd", cwd="/nowhere")
    refuses(e2b.SandboxException, commands.run, "whoami", user="nobody-we-know")


@check
def output_comes_as_it_is_made():
    texts = []

    def on_stdout(text):
        # The command goes on when what it has said is here.
        if not texts:
            shared().files.write("/tmp/heard", text)
        texts.append(text)

    script = "echo one; until [ -e /tmp/heard ]; do sleep 0.05; done; echo two"
    shared().commands.run(script, on_stdout=on_stdout)
    equal("".join(texts), "one\ntwo\n")
    assert len(texts) > 1, texts


@check
def much_output_is_whole():
    result = shared().commands.run("seq 1 300000", timeout=60)
    lines = result.stdout.splitlines()
    equal((len(lines), lines[0], lines[-1]), (300000, "1", "300000"))


@check
def characters_stay_whole():
    script = "for b in e2 82 ac f0 9f 98 80; do printf \"\\x$b\"; sleep 0.02; done"
    equal(shared().commands.run(script).stdout, "€😀")


@check
def input_reaches_a_command_and_ends():
    commands = shared().commands
    handle = commands.run("while read line; do echo got $line; done; echo end", background=True, stdin=True)
    commands.send_stdin(handle.pid, "one\n")
    handle.send_stdin("two\n")
    commands.stream_input(handle.pid, ["three\n", b"four\n"])
    commands.close_stdin(handle.pid)
    equal(handle.wait().stdout, "got one\ngot two\ngot three\ngot four\nend\n")


@check
def without_stdin_a_command_reads_its_end():
    equal(shared().commands.run("cat; echo done").stdout, "done\n")


@check
def a_background_command_is_listed_and_killed():
    commands = shared().commands
    handle = commands.run("exec sleep 300", background=True)
    mine = [process for process in commands.list() if process.pid == handle.pid]
    equal(len(mine), 1)
    equal(mine[0].args, ["-l", "-c", "exec sleep 300"])
    equal(commands.kill(handle.pid), True)
    refuses(CommandExitException, handle.wait)
    equal(commands.kill(handle.pid), False)
    until(lambda: handle.pid not in [process.pid for process in commands.list()], "it is gone")


@check
def a_command_outlives_its_connection():
    sandbox, go = shared(), place()
    commands = sandbox.commands
    # It goes on when it is connected to again, however long that takes.
    script = f"echo 1; until [ -e {go} ]; do sleep 0.05; done; seq 2 6; exit 7"
    handle = commands.run(script, background=True)
    next(iter(handle))
    handle.disconnect()
    again = commands.connect(handle.pid)
    equal(again.pid, handle.pid)
    sandbox.files.write(go, "")
    try:
        again.wait()
        raise AssertionError("it should have failed")
    except CommandExitException as error:
        equal(error.exit_code, 7)
        assert error.stdout.endswith("6\n"), error.stdout
    refuses(NotFoundException, commands.connect, 999_999)


@check
def a_command_has_a_time_limit():
    refuses(TimeoutException, shared().commands.run, "sleep 600", timeout=1)


@check
def commands_run_side_by_side():
    commands = shared().commands
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        runs = [pool.submit(commands.run, f"sleep 0.3; echo {number}") for number in range(20)]
        equal([run.result().stdout for run in runs], [f"{number}\n" for number in range(20)])


@check
def a_process_that_a_command_left_behind_goes_on():
    sandbox, root = shared(), place()
    sandbox.commands.run(f"mkdir -p {root}; (sleep 0.5; echo late > {root}/late) > /dev/null 2>&1 &")
    until(lambda: sandbox.files.exists(f"{root}/late"), "the file is written")


@check
def nothing_of_the_host_is_seen():
    script = "cat /proc/1/environ 2>/dev/null | tr '\\0' '\\n'; env; ls /proc | grep -c '^[0-9]'"
    output = shared().commands.run(script).stdout
    assert os.environ["E2B_API_KEY"] not in output, "the key is seen"
    assert int(output.split()[-1]) < 50, output


# --- terminals ---


@check
def a_terminal_is_one():
    terminals, output, ready = shared().pty, [], threading.Event()
    handle = terminals.create(PtySize(rows=24, cols=80), timeout=60, envs={"MINE": "yes"}, cwd="/tmp")

    def collect():
        try:
            handle.wait(on_pty=lambda data: (output.append(bytes(data)), ready.set()))
        except Exception:  # It ends as the shell ends.
            pass

    def shows(text):
        until(lambda: text in b"".join(output), lambda: f"{text!r} in {b''.join(output)[-300:]!r}")

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    terminals.send_stdin(handle.pid, b"stty size; tty; echo $MINE-$TERM; pwd\n")
    for text in (b"24 80", b"/dev/pts/", b"yes-xterm-256color", b"/tmp"):
        shows(text)
    terminals.resize(handle.pid, PtySize(rows=40, cols=132))
    terminals.send_stdin(handle.pid, b"stty size\n")
    shows(b"40 132")
    # In the foreground before it is interrupted: until then the signal would be the shell's. One
    # process: dash loses an interrupt that comes while it starts another (it catches the signal,
    # waits for the child all the same, and the child's copy of the handler drops it before execve).
    terminals.send_stdin(handle.pid, b"sh -c 'echo run\"\"ning; exec sleep 100'\n")
    shows(b"running")
    terminals.send_stdin(handle.pid, b"\x03")
    terminals.send_stdin(handle.pid, b"echo inter''rupted\n")
    shows(b"interrupted")
    equal(terminals.kill(handle.pid), True)
    thread.join(DEADLINE)
    assert not thread.is_alive(), "the terminal should have ended"
    equal(terminals.kill(handle.pid), False)


# --- the asynchronous client, where it speaks another way ---


@check
def the_asynchronous_client():
    async def steps():
        sandbox = await AsyncSandbox.create(TEMPLATE, timeout=60)
        try:
            runs = [sandbox.commands.run(f"echo {number}") for number in range(10)]
            results = await asyncio.gather(*runs)
            equal([result.stdout for result in results], [f"{number}\n" for number in range(10)])
            root, events = place(), asyncio.Queue()
            await sandbox.files.make_dir(root)
            handle = await sandbox.files.watch_dir(root, on_event=events.put_nowait)
            await sandbox.files.write(f"{root}/new", "x")
            event = await asyncio.wait_for(events.get(), DEADLINE)
            equal((event.name, event.type.value), ("new", "create"))
            await handle.stop()
            command = await sandbox.commands.run("sleep 300", background=True)
            equal(await command.kill(), True)
        finally:
            await sandbox.kill()

    asyncio.run(steps())


def main():
    held = run()
    if "sandbox" in SHARED:
        SHARED["sandbox"].kill()
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
