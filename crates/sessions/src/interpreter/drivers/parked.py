"""Parked interpreter: imports modules that most cells need, and forks contexts with these modules.

The socket on descriptor 0 preserves message boundaries. A request to fork carries three
descriptors: the context's socket, its standard output and its standard error.

A process that forks must have one thread: a lock that another thread holds would stay locked in the
copy forever. Environment variables keep libraries from starting threads. If a library starts one
nevertheless, this process reports the module and exits before it forks.
"""

import select

# Variables that keep libraries from starting one thread per processor, which most of them do while
# they are imported.
THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)
for name in THREAD_VARIABLES:
    os.environ[name] = "1"

# Makes a process the parent of descendants whose own parent has ended (prctl(2)).
PR_SET_CHILD_SUBREAPER = 36


def threads():
    return len(os.listdir("/proc/self/task"))


def preload(modules):
    """Imports modules that are installed. Returns them, and the one that started a thread."""
    loaded = []
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception:
            # Not installed, or broken: the cell that imports the module gets the error.
            continue
        if threads() > 1:
            return loaded, name
        loaded.append(name)
    return loaded, None


class Parked:
    """The parked interpreter."""

    def __init__(self, fd):
        self.socket = socket.socket(fileno=fd)
        self.children = {}
        self.shell = None

    def send(self, message):
        self.socket.send(json.dumps(message).encode())

    def serve(self):
        start = json.loads(self.socket.recv(1 << 16))
        # A collection during the imports would leave holes in pages that copies share:
        # https://docs.python.org/3/library/gc.html#gc.freeze
        gc.disable()
        try:
            self.shell = make_ipython()
        except ImportError:
            self.shell = None
        loaded, culprit = preload(start["preload"])
        if threads() > 1:
            self.send({"event": "threads", "module": culprit or "IPython"})
            os._exit(1)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            # The first product allocates buffers, which the copies then share.
            numpy.dot(numpy.ones((32, 32)), numpy.ones((32, 32)))
            if threads() > 1:
                self.send({"event": "threads", "module": "numpy"})
                os._exit(1)
        gc.collect()
        # Copies exclude the present objects from garbage collection, so that their pages stay
        # shared.
        gc.freeze()
        gc.enable()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Copies of contexts become children of this process.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        self.send({"event": "ready", "loaded": loaded})
        poll = select.poll()
        poll.register(self.socket.fileno(), select.POLLIN)
        poll.register(wake, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == wake:
                    os.read(wake, 4096)
                    self.reap()
                else:
                    self.request(wake, woken)

    def reap(self):
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            number = self.children.pop(pid, None)
            if number is None:
                # An orphan of a cell's program, or a copy that ended before it was adopted.
                continue
            code = os.waitstatus_to_exitcode(status)
            self.send({
                "event": "ended", "id": number,
                "code": code if code >= 0 else None,
                "signal": -code if code < 0 else None,
                "memory_bytes": used.ru_maxrss << 10,
            })

    def request(self, wake, woken):
        data, rights = receive_with_fds(self.socket, 1 << 18)
        if not data:
            # The server has exited, or needs no more contexts.
            for pid in self.children:
                self.signal(pid, signal.SIGKILL)
            os._exit(0)
        request = json.loads(data)
        if request["op"] == "signal":
            for pid, number in self.children.items():
                if number == request["id"]:
                    self.signal(pid, request["signal"])
        elif request["op"] == "adopt":
            self.adopt(request["id"], request["pid"])
        elif request["op"] == "fork":
            self.fork(request, list(rights), wake, woken)
            rights = []
        for fd in rights:
            os.close(fd)

    @staticmethod
    def signal(pid, number):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            # The context has not called `setsid` yet.
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def adopt(self, number, pid):
        """Registers a copy of a context as a context."""
        try:
            with open("/proc/%d/stat" % pid) as file:
                # The program's name, in parentheses, may contain any character.
                parent = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            parent = None
        if parent == os.getpid() and pid not in self.children:
            self.children[pid] = number
        else:
            self.send({"event": "ended", "id": number, "code": None, "signal": None})

    def fork(self, request, fds, wake, woken):
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            for fd in fds:
                os.close(fd)
            self.send({"event": "failed", "id": request["id"], "message": str(error)})
            return
        if pid:
            self.children[pid] = request["id"]
            for fd in fds:
                os.close(fd)
            return
        try:
            self.become(request, fds, parent, wake, woken)
        finally:
            os._exit(1)

    def become(self, request, fds, parent, wake, woken):
        """Turns this forked process into a context."""
        global parked_pid

        parked_pid = parent
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        # A context does not outlive the parked interpreter, which reports its end.
        end_with_parent(parent)
        self.socket.close()
        os.close(wake)
        os.close(woken)
        control, stdout, stderr = fds
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.close(stdout)
        os.close(stderr)
        seed_again()
        self.children = {}
        importlib.invalidate_caches()
        for name in list(sys.path_importer_cache):
            sys.path_importer_cache.pop(name, None)
        shell = self.shell
        make = make_runner if shell is None else lambda output: IPythonRunner(shell, output)
        serve(Channel(control), request, make)


def serve_parked():
    fd = os.dup(0)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    Parked(fd).serve()
