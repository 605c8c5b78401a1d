# Context of a code interpreter: runs cells of Python sequentially in one namespace. The server puts
# the definitions of `PlainCells` before this file.
#
# The server and the context exchange lines of JSON on one socket. Standard output and standard
# error are separate pipes, so the server also receives output of child processes and native code.
#
# If IPython is installed, it runs the cells, with magics, `!`, rich display and its tracebacks.
# Otherwise `PlainCells` runs them.

import array
import ctypes
import gc
import json
import resource
import signal
import socket
import threading
import time
import warnings

# Longest representations. Longer plain text is cut; other longer representations are left out. The
# server decodes JSON representations, with its own, larger limit.
TEXT_MAX = 4 << 20
JSON_MAX = 1 << 20
RESULT_MAX = 8 << 20
# Longest message, with its JSON escapes.
MESSAGE_MAX = 11 << 20
# Longest text of an error.
ERROR_MAX = 256 << 10
# MIME types whose value is JSON rather than text.
JSON_TYPES = ("application/json", "e2b/data", "e2b/chart")
# Descriptors of a context: its socket, its standard output and its standard error.
CONTEXT_FDS = 3
# Most threads that the message of a refused fork names.
NAMED_THREADS_MAX = 8
# Option of prctl(2): the signal that a process gets when its parent ends.
PR_SET_PDEATHSIG = 1

# Process id of the parked interpreter; set in processes that were forked from it.
parked_pid = None


class Channel:
    """The socket to the server."""

    def __init__(self, fd):
        self.socket = socket.socket(fileno=fd)
        self.pending = b""
        # Descriptors received with the last message.
        self.fds = array.array("i")

    def receive(self):
        """Returns the next message, or None when the server has closed its end."""
        parts = [self.pending]
        self.fds = array.array("i")
        while b"\n" not in parts[-1]:
            part, fds = receive_with_fds(self.socket, 1 << 16)
            if not part:
                return None
            parts.append(part)
            self.fds += fds
        line, _, self.pending = b"".join(parts).partition(b"\n")
        return json.loads(line)

    def send(self, message):
        # A lone surrogate has no UTF-8 form.
        data = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")
        if len(data) > MESSAGE_MAX:
            return False
        self.socket.sendall(data + b"\n")
        return True


def receive_with_fds(source, bytes_max):
    """Receives bytes and the descriptors that came with them."""
    fds = array.array("i")
    data, control, _, _ = source.recvmsg(
        bytes_max, socket.CMSG_SPACE(CONTEXT_FDS * fds.itemsize), socket.MSG_CMSG_CLOEXEC)
    for level, kind, payload in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    return data, fds


def plain_json(value, depth=0):
    """Converts a value to JSON types: no NaN or infinity, no types of NumPy or pandas."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if depth > 60:
        raise ValueError("nested too deeply")
    if isinstance(value, dict):
        return {plain_key(key): plain_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(item, depth + 1) for item in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return plain_json(value.tolist(), depth + 1)
    raise TypeError("has no JSON form")


def plain_key(key):
    if isinstance(key, str):
        return key
    if isinstance(key, (int, float, bool)) or key is None:
        return json.dumps(key)
    return str(key)


def extra_data(value):
    """Returns representations of a value beside those that the value itself provides."""
    data = {}
    try:
        if is_of(value, "pandas", "DataFrame"):
            data["e2b/data"] = plain_json(value.to_dict(orient="list"))
        elif is_of(value, "matplotlib.figure", "Figure"):
            data["e2b/chart"] = chart_of(value)
        elif isinstance(value, (list, dict)):
            data["application/json"] = plain_json(value)
    except Exception:
        # The value's other representations are shown.
        pass
    return {name: item for name, item in data.items() if item is not None}


def bounded(data):
    """Returns representations as text, and the MIME types that were truncated or left out."""
    texts, left_out, total = {}, [], 0
    for mime, value in data.items():
        mime = str(mime)
        is_json = mime in JSON_TYPES or mime.endswith("+json")
        try:
            if is_json:
                value = json.dumps(plain_json(value), ensure_ascii=False)
            elif isinstance(value, bytes):
                value = base64.b64encode(value).decode()
            elif not isinstance(value, str):
                value = str(value)
        except Exception:
            continue
        most = JSON_MAX if is_json else TEXT_MAX
        if len(value.encode("utf-8", "replace")) > most:
            left_out.append(mime)
            if mime != "text/plain":
                continue
            value = value[: most // 4]
        total += len(value.encode("utf-8", "replace"))
        if total > RESULT_MAX or len(texts) >= 24 or len(mime) > 120:
            left_out.append(mime[:120])
            continue
        texts[mime] = value
    return texts, left_out[:24]


class Output:
    """Sends results, displayed values and errors of cells to the server."""

    def __init__(self, channel):
        self.channel = channel
        self.has_failed = False

    def show(self, data, is_main):
        texts, left_out = bounded(data)
        if not texts:
            return
        flush()
        message = {"type": "result", "is_main_result": is_main, "data": texts}
        if left_out:
            message["truncated"] = left_out
        if not self.channel.send(message):
            message["truncated"] = list(texts)[:24]
            message["data"] = {"text/plain": texts.get("text/plain", "")[:ERROR_MAX]}
            self.channel.send(message)

    def fail(self, name, value, lines):
        flush()
        self.has_failed = True
        self.channel.send({
            "type": "error",
            "name": str(name)[:1000],
            "value": str(value)[:ERROR_MAX],
            "traceback": str(lines)[:ERROR_MAX],
        })


# ---- pictures ------------------------------------------------------------------------------------


def patch_matplotlib(matplotlib, output):
    """Patches matplotlib to send figures and their data as results."""

    def show_figure(figure):
        output.show({**figure_bundle(figure), **extra_data(figure)}, False)

    draw_in_memory(matplotlib, show_figure)
    if "matplotlib.pyplot" in sys.modules:
        watch_boxes()


def patch_pillow(module, output):
    """Patches Pillow to display images that a cell shows or saves to a file."""
    save = module.Image.save

    def bundle(image):
        buffer = io.BytesIO()
        save(image, buffer, "PNG")
        return {"text/plain": repr(image), "image/png": buffer.getvalue()}

    def show(image, *_args, **_kwargs):
        output.show(bundle(image), False)

    def save_and_show(image, fp, *args, **kwargs):
        save(image, fp, *args, **kwargs)
        if isinstance(fp, (str, os.PathLike)):
            try:
                output.show(bundle(image), False)
            except Exception:
                # PNG does not support the picture's mode. The file is saved; nothing is shown.
                pass

    module.Image.show = show
    module.Image.save = save_and_show


def patch_modules(output):
    """Patches modules that are already imported, and those imported later."""
    patches = {
        "matplotlib.axes": lambda _axes: watch_boxes(),
        "matplotlib": lambda module: patch_matplotlib(module, output),
        "PIL.Image": lambda module: patch_pillow(module, output),
    }
    for name in list(patches):
        if name in sys.modules:
            patches.pop(name)(sys.modules[name])
    sys.meta_path.insert(0, ImportHook(patches))


# ---- cells ---------------------------------------------------------------------------------------


class EarlyInterrupts:
    """Interrupts that arrive before a cell's own code runs.

    IPython first runs callbacks, and continues when one of them is interrupted.
    """

    has_come = False
    #: Number of cells that run: a callback may run cells as well.
    depth = 0

    def begin(self):
        self.has_come = False
        self.depth = 0
        signal.signal(signal.SIGINT, self.heed)

    def heed(self, _number, _frame):
        self.has_come = True
        raise KeyboardInterrupt

    def reach_code(self):
        """Raises an interrupt that has arrived. Later interrupts are raised in the code."""
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and self.depth == 1 and signal.getsignal(signal.SIGINT) == self.heed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if self.has_come:
                raise KeyboardInterrupt


def make_ipython():
    """Creates IPython's shell, without prompts and without a history file."""
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.history import HistoryManager
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    # The thread and the file of the history would not survive a fork.
    HistoryManager.enabled = False

    class ResultHook(DisplayHook):
        def write_output_prompt(self):
            pass

        def write_format_data(self, format_dict, md_dict=None):
            self.shell.output.show(format_dict, True)

        def finish_displayhook(self):
            pass

    class ResultPublisher(DisplayPublisher):
        def publish(self, data, metadata=None, source=None, *, transient=None, **_ignored):
            self.shell.output.show(data, False)

        def clear_output(self, wait=False):
            pass

    class ContextShell(InteractiveShell):
        output = None
        interrupts = EarlyInterrupts()

        def run_cell(self, *arguments, **options):
            self.interrupts.depth += 1
            try:
                return super().run_cell(*arguments, **options)
            finally:
                self.interrupts.depth -= 1

        async def run_code(self, *arguments, **options):
            self.interrupts.reach_code()
            return await super().run_code(*arguments, **options)

        def system(self, command):
            code = shell_command(self.var_expand(command, depth=1))
            self.user_ns["_exit_code"] = code

        def _showtraceback(self, etype, evalue, stb):
            self.output.fail(etype.__name__, evalue, "\n".join(stb))

        def show_usage_error(self, exc):
            self.output.fail("UsageError", exc, "UsageError: %s" % exc)

        def init_virtualenv(self):
            pass

    config = Config()
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.xmode = "Context"
    ContextShell.displayhook_class = ResultHook
    ContextShell.display_pub_class = ResultPublisher
    # `get_ipython` and `display` use the singleton instance.
    shell = ContextShell.instance(config=config)
    formatter = shell.display_formatter.format

    def format(value, include=None, exclude=None):
        data, metadata = formatter(value, include=include, exclude=exclude)
        if include is None:
            data = {**data, **extra_data(value)}
        if is_of(value, "matplotlib.figure", "Figure"):
            data.update(figure_bundle(value))
        return data, metadata

    shell.display_formatter.format = format
    shell.register_magic_function(lambda _line: None, "line", "matplotlib")
    return shell


class IPythonRunner:
    """Runs cells with IPython."""

    def __init__(self, shell, output):
        self.shell = shell
        shell.output = output
        self.output = output
        shell.user_ns["__name__"] = "__main__"

    def leave_loop(self):
        """Removes and returns the event loop of `await`; the next cell creates a new one."""
        helpers = sys.modules.get("IPython.core.async_helpers")
        loop = getattr(helpers, "_asyncio_event_loop", None)
        if loop is not None:
            helpers._asyncio_event_loop = None
        return loop

    def run(self, code, count):
        self.shell.execution_count = count
        self.shell.interrupts.begin()
        result = self.shell.run_cell(code, store_history=True)
        error = result.error_before_exec or result.error_in_exec
        if error is not None and not self.output.has_failed:
            self.output.fail(type(error).__name__, error, "%s: %s" % (type(error).__name__, error))
        show_open_figures()


class PlainRunner:
    """Runs cells with the standard library."""

    def __init__(self, output):
        def fail(name, value, lines):
            output.fail(name, value, "".join(lines))

        cells = PlainCells(output.show, fail, extra_data)
        self.run = cells.run
        self.leave_loop = cells.leave_loop
        # At the end, so that the real modules take precedence if a cell installs them.
        sys.meta_path.append(DisplayModules(cells))


def usage():
    """Returns the processor time of this process and of its children, in microseconds."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        total += used.ru_utime + used.ru_stime
    return int(total * 1e6)


def reset_peak():
    try:
        with open("/proc/self/clear_refs", "wb", 0) as file:
            # Resets the peak to the current resident memory (proc_pid_clear_refs(5)).
            file.write(b"5")
    except OSError:
        pass


def peak_bytes():
    try:
        with open("/proc/self/status", "rb") as file:
            for line in file:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) << 10
    except (OSError, ValueError):
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def open_streams():
    """Creates the context's own streams on descriptors 1 and 2."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = io.TextIOWrapper(
            io.BufferedWriter(io.FileIO(number, "w", closefd=False), 1 << 13),
            "utf-8", "backslashreplace", "\n", line_buffering=True,
        )
        stream.mode = "w"
        setattr(sys, name, stream)
        setattr(sys, "__%s__" % name, stream)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)


def set_environment(variables):
    for name in list(os.environ):
        if name not in variables:
            del os.environ[name]
    os.environ.update(variables)


def serve(channel, start, make_runner):
    """Runs cells until the server closes its end."""
    try:
        os.chdir(start["cwd"])
    except OSError as error:
        channel.send({"type": "failed", "message": "cwd: %s" % error.strerror})
        os._exit(1)
    set_environment(start["env"])
    if "" not in sys.path:
        sys.path.insert(0, "")
    open_streams()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output = Output(channel)
    patch_modules(output)
    runner = make_runner(output)
    channel.send({"type": "ready"})
    while True:
        request = channel.receive()
        if request is None:
            os._exit(0)
        if "fork" in request:
            channel = output.channel = fork_context(request["fork"], channel, runner)
        else:
            run_cell(request, channel, output, runner)


def run_cell(request, channel, output, runner):
    kept = {name: os.environ.get(name) for name in request["env"]}
    os.environ.update(request["env"])
    output.has_failed = False
    reset_peak()
    began = usage()
    try:
        try:
            # Outside of cells, interrupts are ignored; the server delays one until `running`.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            channel.send({"type": "running"})
            runner.run(request["code"], request["count"])
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt as error:
        # Raised before `SIG_IGN` was set, if the interrupt arrived as the cell ended.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if not output.has_failed:
            output.fail("KeyboardInterrupt", error, "KeyboardInterrupt")
    flush()
    for name, value in kept.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    channel.send({
        "type": "done",
        "failed": output.has_failed,
        "cpu_us": max(usage() - began, 0),
        "memory_bytes": peak_bytes(),
    })


# ---- copies --------------------------------------------------------------------------------------

# Objects that a copy must not close, because its origin still uses them.
left_alone = []


def end_with_parent(parent):
    """Requests SIGKILL for the end of the parent process; exits if the parent has ended already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def seed_again():
    """Seeds NumPy's legacy generator again after a fork; `random` does so itself."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def other_tasks():
    """Returns the names of the threads of this process except the current one, by id."""
    known = {thread.native_id: thread.name for thread in threading.enumerate()}
    own, names = threading.get_native_id(), {}
    for task in map(int, os.listdir("/proc/self/task")):
        if task == own:
            continue
        name = known.get(task)
        if name is None:
            try:
                with open("/proc/self/task/%d/comm" % task) as file:
                    name = "%s (native)" % file.read().strip()
            except OSError:
                # The thread has ended meanwhile.
                continue
        names[task] = name
    return names


def fork_context(request, channel, runner):
    """Forks this process between two cells. Returns the channel to serve: in the copy, a new one.

    The child forks again and exits, so the copy becomes a child of the parked interpreter, which is
    a subreaper (prctl(2)). The copy does not depend on this process.
    """
    fds = list(channel.fds)
    others = list(other_tasks().values())
    try:
        if others and not request["force"]:
            names = ", ".join(others[:NAMED_THREADS_MAX])
            raise OSError("threads: %d thread%s: %s%s" % (
                len(others), "s run in it" if len(others) > 1 else " runs in it", names,
                ", ..." if len(others) > NAMED_THREADS_MAX else ""))
        if parked_pid is None or len(fds) != CONTEXT_FDS:
            raise OSError("it was not forked from a parked interpreter")
        flush()
        with warnings.catch_warnings():
            # Newer interpreters warn about threads; the caller has forced the fork.
            warnings.simplefilter("ignore")
            child = os.fork()
    except OSError as error:
        channel.send({"type": "failed", "message": str(error)})
    else:
        if child == 0:
            return become_copy(channel, fds, runner)
        if has_failed(child):
            channel.send({"type": "failed", "message": "the session has no room for a process"})
        else:
            channel.send({"type": "forked"})
    for fd in fds:
        os.close(fd)
    return channel


def has_failed(child):
    """Waits for a child. Returns whether it has failed."""
    try:
        return os.waitpid(child, 0)[1] != 0
    except ChildProcessError:
        # The child was reaped already, for example because a cell ignores SIGCHLD.
        return False


def become_copy(channel, fds, runner):
    """Forks again; the copy takes over these descriptors. Returns the channel of the copy."""
    try:
        between = os.getpid()
        if os.fork() != 0:
            os._exit(0)
        while os.getppid() == between:
            time.sleep(0.0002)
        os.setsid()
        end_with_parent(parked_pid)
        channel.socket.close()
        control, stdout, stderr = fds
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.close(stdout)
        os.close(stderr)
        seed_again()
        # Both processes share the loop's epoll instance: if the copy closed or used the loop, the
        # set of descriptors that the origin waits for would change.
        left_alone.append(runner.leave_loop())
        copied = Channel(control)
        copied.send({"type": "ready", "pid": os.getpid()})
        return copied
    except BaseException:
        os._exit(1)


def make_runner(output):
    """Creates the runner of cells, with IPython if it is installed."""
    try:
        return IPythonRunner(make_ipython(), output)
    except ImportError:
        return PlainRunner(output)


def serve_alone():
    """Serves a context that runs as its own program; the socket is its standard input."""
    fd = os.dup(0)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    channel = Channel(fd)
    serve(channel, channel.receive(), make_runner)
