"""Start hook of the warm Python: waits, forks, and lets the copy go on as `python main.py`.

Run by `site`, as the last thing an interpreter does before it opens its program, in a process that
was started with exactly the arguments of that program. So nothing of this file is above the program
on the stack, and everything from opening it to the exit code is the interpreter's own work.

Descriptor 3 brings requests, 4 is the pid namespace of this process, 5 is `/proc`. A request comes
from the first process of a sandbox, with what to enter; the copy does the steps of `payload.rs` in
its order, and waits once more, for the program's arguments, environment and streams.
"""

import io
import os
import sys


def _hook():
    before = set(sys.modules), set(sys.path_importer_cache)
    import _socket
    import ctypes
    import gc

    here = os.path.dirname(__file__)
    requests = _socket.socket(fileno=3)
    numbers = {}
    for line in requests.recv(65536).split(b"\n"):
        name, _, value = line.partition(b"=")
        numbers[name.decode()] = int(value)
    filters = [requests.recv(65536), requests.recv(65536)]
    libc = ctypes.PyDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long

    def call(name, *args):
        args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
        result = libc.syscall(ctypes.c_long(numbers[name]), *args)
        if result < 0:
            raise OSError(ctypes.get_errno(), name)
        return result

    def receive(channel, size):
        data, control, _, _ = channel.recvmsg(size, 4096, _socket.MSG_CMSG_CLOEXEC)
        fds = []
        for _, _, payload in control:
            for at in range(0, len(payload) - 3, 4):
                fds.append(int.from_bytes(payload[at : at + 4], sys.byteorder))
        return data, fds

    def word(data, at):
        return int.from_bytes(data[at : at + 4], "little"), at + 4

    def limit(resource, value):
        pair = (ctypes.c_uint64 * 2)(value, value)
        try:
            call("prlimit64", 0, resource, pair, 0)
        except PermissionError:
            # Above the host's own, which stays.
            old = (ctypes.c_uint64 * 2)()
            call("prlimit64", 0, resource, 0, old)
            value = min(value, old[1])
            call("prlimit64", 0, resource, (ctypes.c_uint64 * 2)(value, value), 0)

    def touched():
        """Ranges of memory that this process has written to: what copies will write to as well."""
        page, ranges = 4096, []
        text = b""
        while chunk := os.read(files[0], 1 << 16):
            text += chunk
        for line in text.splitlines():
            span, mode = line.split(None, 2)[:2]
            if mode != b"rw-p" or line.endswith(b"]") and not line.endswith(b"[heap]"):
                continue
            start, end = (int(part, 16) for part in span.split(b"-"))
            entries = os.pread(files[1], (end - start) // page * 8, start // page * 8)
            for index in range(0, len(entries), 8):
                # Present, and neither shared nor of a file.
                if entries[index + 7] & 0xA0 == 0x80:
                    at = start + index // 8 * page
                    if ranges and ranges[-1][1] == at:
                        ranges[-1][1] = at + page
                    else:
                        ranges.append([at, at + page])
        for fd in files:
            os.close(fd)
        return [tuple(map(ctypes.c_long, (at, end - at, 23))) for at, end in ranges]

    # While it may: what cannot be traced belongs to root.
    files = [os.open(name, os.O_RDONLY, dir_fd=5) for name in ("self/maps", "self/pagemap")]
    # It dies with its spawner: by this, and because nobody is left who could ask.
    call("prctl", 1, 9, 0, 0, 0)
    call("prctl", 4, 0, 0, 0, 0)

    # Everything as a fresh start has it, before there are copies.
    sys.path[:] = [entry for entry in sys.path if entry != here]
    for name in set(sys.modules) - before[0]:
        del sys.modules[name]
    for name in set(sys.path_importer_cache) - before[1] | {here}:
        sys.path_importer_cache.pop(name, None)

    # What every program starts with is no garbage, and walking it when a program ends would write to
    # each page of it. The program's own globals stay where its collector looks.
    gc.freeze()
    names = ctypes.py_object(sys.modules["__main__"].__dict__)
    ctypes.pythonapi.PyObject_GC_UnTrack(names)
    ctypes.pythonapi.PyObject_GC_Track(names)
    copied = touched()
    os.close(5)
    populate = libc.madvise
    requests.send(b"R")
    while True:
        data, fds = receive(requests, 4096)
        if not data:
            os._exit(0)
        try:
            call("setns", fds[1], numbers["CLONE_NEWPID"])
            child = os.fork()
            if child == 0:
                # Twice, so that the copy's parent is the first process of its pid namespace.
                try:
                    if os.fork() == 0:
                        break
                except BaseException:
                    os._exit(1)
                os._exit(0)
            os.waitpid(child, 0)
        except OSError:
            # Whoever asked notices, by the end of its connection.
            pass
        try:
            # So that the namespace of a sandbox that ends does not stay until the next request.
            call("setns", 4, numbers["CLONE_NEWPID"])
        except PermissionError:
            # Without root it is another's. The way to the next sandbox's is open all the same.
            pass
        for fd in fds:
            os.close(fd)

    # ---- the copy --------------------------------------------------------------------------------
    requests.detach()
    channel = _socket.socket(fileno=fds[0])

    def fail(error, step):
        code = getattr(error, "errno", None) or 5
        channel.send(b"\1" + code.to_bytes(4, "little") + step.encode())
        os._exit(125)

    def close_all_but(fd):
        if fd > 3:
            call("close_range", 3, fd - 1, 0)
        call("close_range", fd + 1, 0x7FFFFFFF, 0)

    step = "enter the sandbox"
    try:
        flags, at = word(data, 0)
        init, at = word(data, at)
        user, at = word(data, at)
        namespaces, at = word(data, at)
        spaces, rest = fds[1 : 1 + namespaces], fds[1 + namespaces :]
        landlock = rest.pop(0) if flags & 2 else None
        step = "enter the control groups"
        if flags & 4:
            # Version 1 wants whoever opened the entrance, the guest init, to be one of our users.
            os.setresuid(-1, -1, init)
        for fd in rest:
            os.write(fd, b"0")
        step = "enter the namespaces"
        for fd in spaces[1:]:
            call("setns", fd, 0)
        step = "hide the control groups"
        if flags & 1:
            call("unshare", numbers["CLONE_NEWCGROUP"])
        step = "start a session"
        os.setsid()
        step = "set resource limits"
        for name, value in numbers.items():
            if name.startswith("limit"):
                limit(int(name[5:]), value)
        step = "enter the workspace"
        os.chdir("/workspace")
        if flags & 4:
            step = "give up the user id"
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        step = "give up capabilities"
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        call("capset", header, (ctypes.c_uint32 * 6)())
        step = "restrict the file system"
        call("prctl", 38, 1, 0, 0, 0)
        if landlock is not None:
            call("landlock_restrict_self", landlock, 0)
        step = "wait for the first process"
        # Its parent is about to exit; a program must never see it.
        while os.getppid() != 1:
            os.sched_yield()
        step = "restrict system calls"
        waiting = channel.fileno()
        close_all_but(waiting)

        program = filters[flags >> 3 & 1]

        class Program(ctypes.Structure):
            _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

        filter = Program(len(program) // 8, program)
        call("seccomp", 1, 0, ctypes.byref(filter))
    except BaseException as error:
        fail(error, step)
    # Copied now, while nobody waits, and at one go: a fault for each page costs more. A kernel that
    # cannot do so copies when they are written to.
    for span in copied:
        if populate(*span) != 0:
            break
    channel.send(b"\0" + os.getpid().to_bytes(4, "little"))

    # ---- the command -----------------------------------------------------------------------------
    def strings(data, at):
        count, at = word(data, at)
        found = []
        for _ in range(count):
            size, at = word(data, at)
            found.append(data[at : at + size])
            at += size
        return found, at

    def become(data, fds):
        if data[0] == 2:
            data = os.pread(fds[-1], os.fstat(fds[-1]).st_size, 0)
        has_stdin, merged = data[1] & 1, data[1] & 2
        count, at = word(data, 10)
        limits = []
        for _ in range(count):
            resource, at = word(data, at)
            limits.append((resource, int.from_bytes(data[at : at + 8], "little")))
            at += 8
        arguments, at = strings(data, at)
        environment, at = strings(data, at)
        fds = fds[:]
        stdout = fds.pop(0)
        stderr = stdout if merged else fds.pop(0)
        stdin = fds.pop(0) if has_stdin else os.open("/dev/null", os.O_RDONLY)
        for number, fd in enumerate((stdin, stdout, stderr)):
            os.dup2(fd, number)
        close_all_but(waiting)
        # As the C library sizes the stacks of threads: by the limit at its start.
        size = int.from_bytes(data[2:10], "little")
        size = max((size + 4095) // 4096 * 4096, 16384)
        attributes = (ctypes.c_uint64 * 16)()
        if libc.pthread_attr_init(attributes) == 0:
            libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(size))
            libc.pthread_setattr_default_np(attributes)
        arguments = [os.fsdecode(argument) for argument in arguments]
        sys.argv[1:] = arguments
        if hasattr(sys, "orig_argv"):
            sys.orig_argv.extend(arguments)
        # The first of a name counts.
        variables = {}
        for variable in environment:
            name, equals, value = variable.partition(b"=")
            if equals and name:
                variables.setdefault(name, value)
        for name in list(os.environb):
            del os.environb[name]
        for name, value in variables.items():
            os.environb[name] = value
        # The streams look at what they stand on when they are made.
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            old = getattr(sys, name)
            raw = number and not hasattr(old.buffer, "raw")
            mode = "wb" if number else "rb"
            binary = io.open(number, mode, 0 if raw else -1, closefd=False)
            (binary if raw else binary.raw).name = "<%s>" % name
            text = io.TextIOWrapper(
                binary, old.encoding, old.errors, "\n", old.line_buffering, old.write_through
            )
            text.mode = "w" if number else "r"
            setattr(sys, name, text)
            setattr(sys, "__%s__" % name, text)
        for resource, value in limits:
            limit(resource, value)
        # An exec would have made it so.
        call("prctl", 4, 1, 0, 0, 0)

    data, fds = receive(channel, 65536)
    if not data:
        os._exit(125)
    try:
        become(data, fds)
    except BaseException as error:
        fail(error, "set the program up")
    channel.close()


_hook()
# As if there were no such module, which is what a fresh start finds.
raise ImportError("no module", name="usercustomize")
