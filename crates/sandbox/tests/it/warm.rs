//! Warm runtimes: a program cannot detect that its interpreter started before it arrived, and is
//! equally confined.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use sandbox::{
    Engine, OutputMode, ProgramExit, ProgramLimits, Sandbox, SandboxCommand, StdinSource, WarmKind,
    WarmRuntime, WorkspaceFile,
};
use tokio::time;

use crate::support::{tests, text};

tests!(
    a_warm_program_is_held_like_a_fresh_one,
    a_warm_program_is_in_the_namespaces_of_its_sandbox,
    python_programs_cannot_tell,
    a_warm_program_gets_its_own_limits,
    what_a_warm_program_uses_before_its_start_is_not_its_own,
    a_second_command_of_a_warm_sandbox_is_started_as_usual,
    a_warm_sandbox_takes_other_programs,
    a_command_that_is_not_for_the_runtime_is_refused,
    a_zygote_that_dies_is_replaced,
    a_zygote_that_has_served_enough_is_replaced,
    a_waiting_runtime_that_died_is_no_fault_of_the_program,
    the_arguments_may_be_large,
    a_runtime_that_cannot_start_is_given_up,
    node_programs_cannot_tell,
    a_started_program_is_held_like_a_fresh_one,
    a_started_runtime_makes_way_for_other_streams,
);

const PYTHON: &str = "/usr/bin/python3";
const NODE: &str = "/usr/bin/node";
/// Number of copies after which the test's zygotes are replaced.
const FORKS_MAX: u32 = 40;
/// Number of serving zygotes: each of the two spawners keeps one for each of the two Python
/// runtimes.
const ZYGOTES: usize = 4;
/// Longest wait for a state.
const STATE_TIMEOUT: Duration = Duration::from_secs(30);

fn byte_strings(list: &[&str]) -> Vec<Vec<u8>> {
    list.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn env() -> Vec<Vec<u8>> {
    byte_strings(&[
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "HOME=/home/user",
        "LANG=C.UTF-8",
        "PYTHONDONTWRITEBYTECODE=1",
        "PYTHONUNBUFFERED=1",
    ])
}

fn runtime(name: &str, program: &str, ready: usize) -> WarmRuntime {
    WarmRuntime {
        name: name.to_owned(),
        kind: WarmKind::ForkPython,
        argv: byte_strings(&[program, "main.py"]),
        env: env(),
        limits: ProgramLimits::default(),
        ready,
        forks_max: FORKS_MAX,
    }
}

/// Returns the runtimes of the engine that tests share.
pub(crate) fn runtimes() -> Vec<WarmRuntime> {
    let mut buffered = runtime("buffered", PYTHON, 0);
    buffered.env.retain(|variable| !variable.starts_with(b"PYTHON"));
    let node = WarmRuntime {
        name: "node".to_owned(),
        kind: WarmKind::StartNode,
        argv: byte_strings(&[NODE, "--max-old-space-size=300", "main.js"]),
        ..runtime("node", NODE, 1)
    };
    let broken = runtime("broken", "/bin/true", 0);
    vec![runtime("python", PYTHON, 1), buffered, broken, node, crate::warm_java::runtime()]
}

/// Returns a Python program, alone in its sandbox.
pub(crate) fn program(source: &str) -> SandboxCommand {
    SandboxCommand {
        argv: byte_strings(&[PYTHON, "main.py"]),
        env: env(),
        files: vec![WorkspaceFile {
            path: "main.py".into(),
            content: source.as_bytes().to_vec().into(),
            executable: false,
        }],
        limits: ProgramLimits { wall: Duration::from_secs(30), ..ProgramLimits::default() },
        last: true,
        ..SandboxCommand::default()
    }
}

async fn warm_sandbox(engine: &Engine) -> Sandbox {
    engine.warm("python").await.unwrap().expect("the runtime can be started here")
}

async fn run_warm(engine: &Engine, command: SandboxCommand) -> ProgramExit {
    let command = SandboxCommand { warm: true, ..command };
    warm_sandbox(engine).await.run(command, &mut ()).await.unwrap()
}

async fn run_fresh(engine: &Engine, command: SandboxCommand) -> ProgramExit {
    engine.sandbox().await.unwrap().run(command, &mut ()).await.unwrap()
}

/// Prints the kernel's data about a process, except values that differ between two runs of one
/// program.
const HELD: &str = r#"
import os, signal, sys
differs = ("Pid", "Tgid", "NStgid", "NSpid", "NSpgid", "NSsid", "FDSize", "Vm", "Rss", "voluntary",
           "nonvoluntary", "SigQ")
for line in open("/proc/self/status"):
    if not line.startswith(differs):
        print(line, end="")
print(open("/proc/self/limits").read())
print(open("/proc/self/cgroup").read())
print(open("/proc/self/oom_score_adj").read(), open("/proc/self/comm").read())
print(sorted(os.listdir("/proc/self/fd")))
for fd in range(3):
    print(fd, os.readlink(f"/proc/self/fd/{fd}").split("[")[0], os.fstat(fd).st_mode)
for fd in range(3, 1024):
    try:
        os.fstat(fd)
        print("open", fd)
    except OSError:
        pass
print(os.getcwd(), os.environ, oct(os.umask(0)), os.getppid())
print(os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid())
print([(s, signal.getsignal(s)) for s in range(1, 32) if s not in (9, 19)])
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
print(sorted(p for p in os.listdir("/proc") if p.isdigit() and int(p) not in (1, os.getpid())))
print(os.readlink("/proc/self/exe"), os.readlink("/proc/self/root"), os.stat("/proc/self").st_uid)
print(os.listdir("/workspace"), os.listdir("/tmp"), os.uname().nodename)
print(os.sched_getaffinity(0), os.nice(0), os.sched_getscheduler(0))
print(os.getpriority(os.PRIO_PROCESS, 0))
for path in ("/", "/usr/x", "/opt/.cove/x", "/proc/self/oom_score_adj"):
    try:
        os.open(path, os.O_WRONLY | os.O_CREAT)
        print("wrote", path)
    except OSError as error:
        print(error)
"#;

/// Replaces the user id, which is the slot's; everything else must be exactly equal.
fn without_users(output: &str) -> String {
    let lines = output.lines().map(|line| match line.split_once(':') {
        Some((name @ ("Uid" | "Gid"), ids)) => {
            let ids: Vec<&str> = ids.split_whitespace().collect();
            assert!(ids.iter().all(|id| *id == ids[0] && *id != "0"), "{line}");
            format!("{name}: the slot's")
        }
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

async fn a_warm_program_is_held_like_a_fresh_one(engine: Engine) {
    // The owner of /proc/self is the one line with the slot's user that is no Uid or Gid.
    let source = HELD
        .replace("os.stat(\"/proc/self\").st_uid", "os.stat(\"/proc/self\").st_uid == os.getuid()");
    let fresh = run_fresh(&engine, program(&source)).await;
    let warm = run_warm(&engine, program(&source)).await;
    assert_eq!(text(&fresh.stderr), "");
    assert_eq!(text(&warm.stderr), "");
    let (fresh, warm) = (without_users(&text(&fresh.stdout)), without_users(&text(&warm.stdout)));
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000", "PPid:\t1"] {
        assert!(warm.contains(line), "{line} is not in {warm}");
    }
    assert_same(&fresh, &warm);
}

fn assert_same(fresh: &str, warm: &str) {
    for (fresh, warm) in fresh.lines().zip(warm.lines()) {
        assert_eq!(fresh, warm);
    }
    assert_eq!(fresh.len(), warm.len());
}

async fn a_warm_program_is_in_the_namespaces_of_its_sandbox(engine: Engine) {
    let source = "import os\nfor n in sorted(os.listdir('/proc/self/ns')): \
                  print(n, os.readlink('/proc/self/ns/' + n))";
    let links = |exit: &ProgramExit| -> Vec<(String, String)> {
        let lines = text(&exit.stdout);
        let pairs = lines.lines().filter_map(|line| line.split_once(' '));
        pairs.map(|(name, link)| (name.to_owned(), link.to_owned())).collect()
    };
    let mut sandbox = warm_sandbox(&engine).await;
    let first = SandboxCommand { warm: true, last: false, ..program(source) };
    let warm = links(&sandbox.run(first, &mut ()).await.unwrap());
    let second = SandboxCommand { files: Vec::new(), ..program(source) };
    let fresh = links(&sandbox.run(second, &mut ()).await.unwrap());
    assert_eq!(warm.len(), fresh.len());
    assert!(warm.len() >= 7, "{warm:?}");
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    for ((name, warm), (_, fresh)) in warm.iter().zip(&fresh) {
        let host = fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        match name.as_str() {
            // Hides groups; without root there are none.
            "cgroup" if !is_root => assert_eq!(warm, fresh, "{name}"),
            // These are created for each command.
            "ipc" | "cgroup" => assert_ne!(warm, host.to_str().unwrap(), "{name}"),
            "user" | "time" | "time_for_children" => assert_eq!(warm, fresh, "{name}"),
            _ => {
                assert_eq!(warm, fresh, "{name}");
                assert_ne!(warm, host.to_str().unwrap(), "{name}");
            }
        }
    }
}

/// A program with its arguments and input.
#[derive(Default)]
struct Case {
    source: &'static str,
    args: &'static [&'static str],
    stdin: Option<&'static str>,
    env: &'static [&'static str],
}

const fn case(source: &'static str) -> Case {
    Case { source, args: &[], stdin: None, env: &[] }
}

const CASES: &[Case] = &[
    case("print('hello')"),
    case(""),
    case("import sys; print(sys.argv, sys.orig_argv, sys.flags, sys.executable, sys.prefix)"),
    case("import sys; print(sys.path, list(sys.modules), list(sys.path_importer_cache))"),
    case(
        "print({k: v for k, v in globals().items() if k != '__loader__'}, __loader__.name, __loader__.path)",
    ),
    case("import sys; print(dir(), dir(sys), dir(__builtins__), sys.warnoptions, sys._xoptions)"),
    case("import sys; print([(k, type(v)) for k, v in vars(sys).items()])"),
    case(
        "import os; print(os.environ, os.environb, os.getenv('LANG')); import posix; print(posix.environ)",
    ),
    case("import site; print({k: v for k, v in vars(site).items() if k.isupper()})"),
    case("import gc; print(gc.isenabled(), gc.get_threshold(), gc.garbage, gc.callbacks)"),
    case(
        "import gc\nclass A: pass\nx = A(); print(any(r is globals() for r in gc.get_referrers(x)), sum(isinstance(o, A) for o in gc.get_objects()))",
    ),
    case("import gc; gc.collect(); a = []; a.append(a); del a; print(gc.collect())"),
    case(
        "import sys, inspect, traceback; print(len(inspect.stack()), sys._getframe().f_back, sys.exc_info()); traceback.print_stack()",
    ),
    case(
        "import sys; print(sys.getrecursionlimit(), sys.getswitchinterval(), sys.gettrace(), sys.getprofile(), sys.getdlopenflags(), sys.getallocatedblocks() > 0)",
    ),
    case("def f(n): return f(n + 1)\nf(0)"),
    case(
        "import sys\nd = 0\ndef f(n):\n  global d\n  d = n\n  f(n + 1)\ntry: f(0)\nexcept RecursionError: print(d)",
    ),
    case("1/0"),
    case("def f():\n    raise ValueError('x') from KeyError('y')\nf()"),
    case("try:\n    1/0\nexcept ZeroDivisionError:\n    [][1]"),
    case("print('a'\n"),
    case("\tx = 1\n  y"),
    case("x = '\u{e9}\u{1F600}'; print(x, len(x), ascii(x))"),
    case("raise SystemExit"),
    case("raise SystemExit(7)"),
    case("raise SystemExit('message')"),
    case("import sys; sys.exit(300)"),
    case("import os; os._exit(9)"),
    case("raise KeyboardInterrupt"),
    case("import os, signal; os.kill(os.getpid(), signal.SIGINT); print('no')"),
    case("import os, signal; os.kill(os.getpid(), signal.SIGTERM)"),
    case("import os; os.abort()"),
    case("import ctypes; ctypes.string_at(0)"),
    case("import atexit; atexit.register(print, 'bye'); print('hi')"),
    case("class A:\n    def __del__(self): print('gone')\na = A(); print('end')"),
    case(
        "class A:\n    def __init__(self): self.me = self\n    def __del__(self): print('gone')\na = A(); b = A(); del b; print('end')",
    ),
    case(
        "import builtins, os, sys\nclass A:\n    def __del__(self): print('gone', os is None, sys is None)\nos.a = A(); sys.b = A(); builtins.c = A(); print('end')",
    ),
    case(
        "import weakref\nclass A: pass\na = A(); a.me = a; weakref.finalize(a, print, 'final'); print('end')",
    ),
    case(
        "def f():\n    try: yield 1\n    finally: print('closed')\ng = f(); next(g); print('end')",
    ),
    case(
        "import threading, time\nt = threading.Thread(target=lambda: (time.sleep(0.05), print('t', threading.main_thread().name)))\nt.start(); print('main', threading.active_count(), threading.current_thread().name)",
    ),
    case("import threading\ndef f(): 1/0\nt = threading.Thread(target=f); t.start(); t.join()"),
    case(
        "import threading; threading.stack_size(); print(threading.stack_size())\nt = threading.Thread(target=lambda: print([l for l in open('/proc/self/limits') if 'stack' in l])); t.start(); t.join()",
    ),
    case(
        "import multiprocessing as m, os\ndef f(x): return x * x\nif __name__ == '__main__':\n    m.set_start_method('fork')\n    with m.Pool(2) as p: print(p.map(f, range(5)))",
    ),
    case(
        "import multiprocessing as m\ndef f(q): q.put(__name__)\nif __name__ == '__main__':\n    c = m.get_context('spawn'); q = c.SimpleQueue(); p = c.Process(target=f, args=(q,)); p.start(); print(q.get()); p.join(); print(p.exitcode)",
    ),
    case(
        "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'import sys, os; print(sys.argv, os.environ)'], capture_output=True, text=True))",
    ),
    case(
        "import os; pid = os.fork()\nif pid == 0: os._exit(3)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
    ),
    case(
        "import asyncio\nasync def f(): await asyncio.sleep(0); return 5\nprint(asyncio.run(f()))",
    ),
    case(
        "import socket, select, struct, _socket, _ctypes, ctypes; a, b = socket.socketpair(); a.send(struct.pack('<I', 7)); print(b.recv(9), ctypes.sizeof(ctypes.c_long), ctypes.CDLL(None).abs(-3), socket.AF_UNIX, ctypes.c_int(5))",
    ),
    case(
        "import ctypes\nclass S(ctypes.Structure): _fields_ = [('a', ctypes.c_int), ('b', ctypes.POINTER(ctypes.c_char))]\nprint(ctypes.sizeof(S), S.a, ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 4)())",
    ),
    case(
        "import json, re, collections, decimal, fractions, datetime, heapq, itertools, bisect, math, statistics, string, random, uuid, tempfile, pathlib; print(json.dumps({'a': [1, 2.5, None]}), pathlib.Path.cwd(), tempfile.gettempdir())",
    ),
    case("import this"),
    case("import zoneinfo, time; print(time.tzname, time.localtime(0)[:6])"),
    case(
        "import locale, sys; print(locale.setlocale(locale.LC_ALL), locale.getpreferredencoding(), sys.getfilesystemencoding(), sys.getdefaultencoding())",
    ),
    case(
        "import sys\nfor s in (sys.stdin, sys.stdout, sys.stderr): print(repr(s), s.encoding, s.errors, s.newlines, s.line_buffering, s.write_through, s.mode, s.name, s.buffer.__class__, s.isatty(), s.seekable(), s.fileno(), s is getattr(sys, '__' + s.name[1:-1] + '__'))",
    ),
    case(
        "import sys; sys.stdout.write('no newline'); sys.stderr.write('e'); sys.stdout.buffer.write(b'\\xff\\xfe')",
    ),
    case("import sys; sys.stdout.close(); print('x')"),
    case("import os; os.close(1); print('x')"),
    case(
        "import warnings; warnings.warn('w'); warnings.warn('d', DeprecationWarning); open('main.py')",
    ),
    case("import logging; logging.warning('x'); logging.getLogger('a').error('e')"),
    case(
        "import faulthandler, signal, os; faulthandler.enable(); os.kill(os.getpid(), signal.SIGSEGV)",
    ),
    case("import helper"),
    case(
        "open('helper.py', 'w').write('x = 5'); import helper; print(helper.x, helper.__file__, helper.__spec__)",
    ),
    case("import usercustomize"),
    case("import sitecustomize"),
    case("import signal; print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGPIPE))"),
    case(
        "import resource; print([resource.getrlimit(getattr(resource, n)) for n in sorted(dir(resource)) if n.startswith('RLIMIT')])",
    ),
    case(
        "import runpy, sys; sys.argv = ['x']; print(runpy.run_path(__file__, run_name='y')['__name__'] if __name__ == '__main__' else __name__)",
    ),
    case("import pdb, code, doctest, unittest; print(doctest.testmod())"),
    case(
        "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(1, 1)\nif __name__ == '__main__': print(unittest.main(argv=['x'], exit=False, testRunner=unittest.TextTestRunner(stream=open('/dev/null', 'w'))).result)",
    ),
    case("exec(compile('1/0', 'other', 'exec'))"),
    case("import pickle\nclass A: pass\nprint(pickle.dumps(A), pickle.loads(pickle.dumps(A)))"),
    case(
        "print(__import__('__main__').__dict__ is globals(), __annotations__, __spec__, __package__)",
    ),
    case("import sys; sys.excepthook = lambda *a: print('hook', a[0]); 1/0"),
    case(
        "import sys; print(sys.implementation, sys.version, sys.hash_info, sys.float_info.max, sys.maxsize, sys.platlibdir)",
    ),
    case(
        "import sysconfig, platform; print(sysconfig.get_paths()['stdlib'], platform.python_implementation())",
    ),
    case("while True: pass"),
    case("x = 'a' * (1 << 31)"),
    Case {
        source: "import sys; print(sys.argv, sys.orig_argv)",
        args: &["a", "", "-c", "\u{e9} b"],
        stdin: None,
        env: &[],
    },
    Case { source: "print(input(), input())", args: &[], stdin: Some("1\n2\n"), env: &[] },
    Case {
        source: "import sys; print(repr(sys.stdin.read()), sys.stdin.seekable(), sys.stdin.buffer.raw)",
        args: &[],
        stdin: Some("a\r\nb"),
        env: &[],
    },
    Case {
        source: "import sys; print(sys.stdin.buffer.read())",
        args: &[],
        stdin: Some(""),
        env: &[],
    },
    Case {
        source: "import os; print(os.environ, os.popen('echo $A $B').read())",
        args: &[],
        stdin: None,
        env: &["A=1", "B=x y=z", "_=", "novalue"],
    },
    Case { source: "input()", args: &[], stdin: None, env: &[] },
];

impl Case {
    fn command(&self, env: Vec<Vec<u8>>) -> SandboxCommand {
        let mut command = program(self.source);
        command.env = env;
        command.env.extend(byte_strings(self.env));
        command.argv.extend(byte_strings(self.args));
        command.limits.cpu = Duration::from_millis(1000);
        command.limits.memory_bytes = 96 << 20;
        if let Some(input) = self.stdin {
            command.stdin = StdinSource::Bytes(input.as_bytes().to_vec());
        }
        command
    }
}

/// Removes addresses, which differ between any two runs.
fn without_addresses(output: &[u8]) -> String {
    let output = text(output);
    let mut parts = output.split("0x");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept.push_str("0x..");
        kept.push_str(part.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
    }
    kept
}

async fn python_programs_cannot_tell(engine: Engine) {
    let mut wrong = Vec::new();
    for (name, env) in [
        ("python", env()),
        (
            "buffered",
            byte_strings(&["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/user", "LANG=C.UTF-8"]),
        ),
    ] {
        for case in CASES {
            let fresh = run_fresh(&engine, case.command(env.clone())).await;
            let mut sandbox = engine.warm(name).await.unwrap().unwrap();
            let command = SandboxCommand { warm: true, ..case.command(env.clone()) };
            let warm = sandbox.run(command, &mut ()).await.unwrap();
            let seen = |exit: &ProgramExit| {
                (
                    without_addresses(&exit.stdout),
                    without_addresses(&exit.stderr),
                    (exit.code, exit.signal, exit.breaches.clone()),
                )
            };
            let (fresh, warm) = (seen(&fresh), seen(&warm));
            if fresh != warm {
                wrong.push(format!("{name}: {}\nfresh {fresh:#?}\nwarm  {warm:#?}", case.source));
            }
        }
    }
    assert!(wrong.is_empty(), "{} programs can tell:\n{}", wrong.len(), wrong.join("\n"));
}

async fn a_warm_program_gets_its_own_limits(engine: Engine) {
    let source = "import resource\nfor n in sorted(dir(resource)):\n  \
                  if n.startswith('RLIMIT'): print(n, resource.getrlimit(getattr(resource, n)))\n\
                  b = bytearray(200 << 20)";
    let limits = ProgramLimits {
        cpu: Duration::from_millis(2500),
        wall: Duration::from_secs(30),
        memory_bytes: 64 << 20,
        processes: 7,
        open_files: 33,
        file_size_bytes: 1 << 16,
        stack_bytes: 200 << 20,
        ..ProgramLimits::default()
    };
    let fresh = run_fresh(&engine, SandboxCommand { limits, ..program(source) }).await;
    let warm = run_warm(&engine, SandboxCommand { limits, ..program(source) }).await;
    assert_same(&text(&fresh.stdout), &text(&warm.stdout));
    assert_eq!(warm.breaches, fresh.breaches);
    assert_eq!(warm.breaches, [sandbox::LimitBreach::Memory]);
}

async fn what_a_warm_program_uses_before_its_start_is_not_its_own(engine: Engine) {
    let sandbox = warm_sandbox(&engine).await;
    time::sleep(Duration::from_millis(300)).await;
    let mut sandbox = sandbox;
    let command = SandboxCommand { warm: true, ..program("pass") };
    let exit = sandbox.run(command, &mut ()).await.unwrap();
    assert!(exit.wall < Duration::from_millis(290), "{:?}", exit.wall);
    assert_eq!((exit.code, exit.processes_peak), (Some(0), 1));
}

async fn a_second_command_of_a_warm_sandbox_is_started_as_usual(engine: Engine) {
    let mut sandbox = warm_sandbox(&engine).await;
    let first =
        SandboxCommand { warm: true, last: false, ..program("open('kept', 'w').write('x')") };
    assert_eq!(sandbox.run(first, &mut ()).await.unwrap().code, Some(0));
    let second = SandboxCommand {
        argv: byte_strings(&["/bin/cat", "kept"]),
        files: Vec::new(),
        ..program("")
    };
    assert_eq!(text(&sandbox.run(second, &mut ()).await.unwrap().stdout), "x");
}

async fn a_warm_sandbox_takes_other_programs(engine: Engine) {
    let mut sandbox = warm_sandbox(&engine).await;
    let command = SandboxCommand { argv: byte_strings(&["/bin/echo", "hi"]), ..program("") };
    let exit = sandbox.run(command, &mut ()).await.unwrap();
    assert_eq!((text(&exit.stdout), exit.processes_peak), ("hi\n".to_owned(), 1));
}

async fn a_command_that_is_not_for_the_runtime_is_refused(engine: Engine) {
    let other = SandboxCommand { argv: byte_strings(&["/bin/echo"]), warm: true, ..program("") };
    assert!(warm_sandbox(&engine).await.run(other, &mut ()).await.is_err());
    let plain = SandboxCommand { warm: true, ..program("") };
    assert!(engine.sandbox().await.unwrap().run(plain, &mut ()).await.is_err());
    let merged = SandboxCommand {
        warm: true,
        stderr: OutputMode::Stdout,
        ..program("import sys\nprint('a')\nprint('b', file=sys.stderr)\nprint('c')")
    };
    let exit = warm_sandbox(&engine).await.run(merged, &mut ()).await.unwrap();
    assert_eq!(text(&exit.stdout), "a\nb\nc\n");
}

/// Returns the zygotes of this process's spawners: their pids on the host.
fn zygotes() -> Vec<i32> {
    let children = |pid: String| -> Vec<String> {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let list = fs::read_to_string(path).unwrap_or_default();
        list.split_whitespace().map(str::to_owned).collect()
    };
    let spawners = fs::read_dir("/proc/self/task").unwrap().flatten().flat_map(|task| {
        let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    });
    let all = spawners.flat_map(children);
    let is_python = |pid: &String| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("python"))
    };
    all.filter(is_python).map(|pid| pid.parse().unwrap()).collect()
}

/// Kills a process, unless it has ended: a zygote with a successor ends on its own.
fn kill(pid: i32) {
    let status = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(status.unwrap().success() || !Path::new(&format!("/proc/{pid}")).exists());
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(time::timeout(STATE_TIMEOUT, waiting).await.is_ok(), "{what}");
}

async fn a_zygote_that_dies_is_replaced(engine: Engine) {
    run_warm(&engine, program("pass")).await;
    let before = zygotes();
    assert!(!before.is_empty());
    for pid in &before {
        kill(*pid);
    }
    until("other zygotes", || {
        let now = zygotes();
        now.len() >= ZYGOTES && !now.iter().any(|pid| before.contains(pid))
    })
    .await;
    for _ in 0..6 {
        let exit = run_warm(&engine, program("print('on')")).await;
        assert_eq!(text(&exit.stdout), "on\n");
    }
}

async fn a_zygote_that_has_served_enough_is_replaced(engine: Engine) {
    run_warm(&engine, program("pass")).await;
    let before = zygotes();
    for _ in 0..2 * FORKS_MAX * 2 {
        let exit = run_warm(&engine, program("print(hash('seed'))")).await;
        assert_eq!(exit.code, Some(0));
    }
    until("the oldest zygotes ended", || {
        let now = zygotes();
        before.iter().filter(|pid| now.contains(pid)).count() < before.len()
    })
    .await;
}

async fn a_waiting_runtime_that_died_is_no_fault_of_the_program(engine: Engine) {
    let mut sandbox = warm_sandbox(&engine).await;
    // All waiting copies: those of other sandboxes are created again.
    let copies = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let is_copy = status.starts_with("Name:\tpython3\n")
            && status.lines().any(|line| line.starts_with("Uid:\t13"));
        is_copy.then_some(pid)
    });
    let copies: Vec<i32> = copies.collect();
    assert!(!copies.is_empty());
    for pid in &copies {
        kill(*pid);
    }
    let is_gone = |pid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status"));
        status.is_err() || status.is_ok_and(|status| status.contains("State:\tZ"))
    };
    until("they have died", || copies.iter().all(is_gone)).await;
    let command = SandboxCommand { warm: true, ..program("print('never')") };
    assert!(sandbox.run(command, &mut ()).await.is_err());
    drop(sandbox);
    // Ready ones have died as well, and are noticed or fail in the same way.
    let mut served = false;
    for _ in 0..8 {
        let mut sandbox = warm_sandbox(&engine).await;
        let command = SandboxCommand { warm: true, ..program("print('on')") };
        served |= sandbox.run(command, &mut ()).await.is_ok_and(|exit| exit.stdout == b"on\n");
    }
    assert!(served);
}

async fn the_arguments_may_be_large(engine: Engine) {
    let mut command = program("import sys, os; print(len(sys.argv[1]), len(os.environ['BIG']))");
    command.argv.push(vec![b'a'; 50_000]);
    command.env.push([b"BIG=".to_vec(), vec![b'b'; 60_000]].concat());
    let exit = run_warm(&engine, command).await;
    assert_eq!((text(&exit.stdout), text(&exit.stderr)), ("50000 60000\n".into(), String::new()));
}

async fn a_runtime_that_cannot_start_is_given_up(engine: Engine) {
    assert!(engine.warm("unknown").await.unwrap().is_none());
    for _ in 0..8 {
        assert!(engine.warm("broken").await.unwrap().is_none());
    }
    assert!(!engine.has_warm("broken"));
    assert!(engine.has_warm("python"));
    assert_eq!(run_fresh(&engine, program("print(1)")).await.stdout, b"1\n");
}

/// Returns a Node.js program, alone in its sandbox.
pub(crate) fn node(source: &str) -> SandboxCommand {
    let mut command = program(source);
    command.argv = byte_strings(&[NODE, "--max-old-space-size=300", "main.js"]);
    command.files[0].path = "main.js".into();
    command
}

const NODE_CASES: &[Case] = &[
    case("console.log('hello')"),
    case(""),
    case("console.error('e'); process.stdout.write('no newline')"),
    case(
        "console.log(process.argv, process.argv0, process.execArgv, process.execPath, process.title)",
    ),
    case("console.log(process.env, process.cwd(), process.umask(), process.ppid)"),
    case(
        "console.log(__filename, __dirname, module.children, module.paths, module.parent, require.main === module)",
    ),
    case(
        "console.log(Object.keys(require.cache), process._preload_modules, module.id, Object.keys(module.constructor._pathCache))",
    ),
    case(
        "console.log(Object.keys(globalThis), Object.keys(process).sort(), process.release.name, process.config.variables.napi_build_version)",
    ),
    case("throw new Error('x')"),
    case("function f() { throw new TypeError('y', { cause: new Error('z') }); } f()"),
    case("console.log(new Error('trace').stack)"),
    case("console.log('a'"),
    case("process.exit(7)"),
    case("process.exitCode = 3; setTimeout(() => console.log('late'), 10)"),
    case("Promise.reject(new Error('no'))"),
    case(
        "process.on('exit', (code) => console.log('exit', code)); process.on('beforeExit', () => console.log('before'))",
    ),
    case("process.kill(process.pid, 'SIGTERM')"),
    case("process.abort()"),
    case("function f(n) { return f(n + 1); } try { f(0) } catch (e) { console.log(e.message) }"),
    case(
        "const fs = require('fs'); console.log(fs.readdirSync('/proc/self/fd').length < 40, fs.readFileSync('/proc/self/limits', 'utf8').includes('core'))",
    ),
    case("import('fs').then((m) => console.log(typeof m.readFileSync))"),
    case("require('./missing')"),
    case(
        "require('fs').writeFileSync('h.js', 'module.exports = 5'); console.log(require('./h'), Object.keys(require.cache))",
    ),
    case(
        "const { Worker, isMainThread, workerData } = require('worker_threads');\nif (isMainThread) { new Worker(__filename, { workerData: 4 }).on('exit', (c) => console.log('worker', c)) } else { console.log('in', workerData, process.execArgv, Object.keys(require.cache), process._preload_modules) }",
    ),
    case(
        "const c = require('child_process');\nconsole.log(c.spawnSync(process.execPath, ['-p', '[process.argv, process.execArgv, process.env]']).stdout.toString())",
    ),
    case(
        "const c = require('child_process');\nif (process.send) { process.send(process.execArgv); process.disconnect() } else c.fork(__filename).on('message', (m) => console.log(m))",
    ),
    case("process.stdin.on('data', (d) => console.log(d)).on('end', () => console.log('end'))"),
    case(
        "console.log(process.stdout.isTTY, process.stderr.isTTY, process.stdin.isTTY, process.stdout.writable, process.stdout.constructor.name)",
    ),
    case(
        "console.log(process.memoryUsage().heapUsed > 0, require('v8').getHeapStatistics().heap_size_limit)",
    ),
    case("console.log(Intl.DateTimeFormat().resolvedOptions().locale, new Date(0).toString())"),
    case("setInterval(() => {}, 1000)"),
    Case {
        source: "console.log(process.argv)",
        args: &["a", "", "--x", "\u{e9} b"],
        stdin: None,
        env: &[],
    },
    Case {
        source: "console.log(process.env); console.log(require('child_process').execSync('echo $A').toString())",
        args: &[],
        stdin: None,
        env: &["A=1", "B=x y=z"],
    },
    Case {
        source: "console.log(JSON.stringify(require('fs').readFileSync(0, 'utf8')))",
        args: &[],
        stdin: Some("1\n2"),
        env: &[],
    },
    Case {
        source: "require('readline').createInterface({ input: process.stdin }).on('line', (l) => console.log('>' + l))",
        args: &[],
        stdin: Some("a\nb\n"),
        env: &[],
    },
];

impl Case {
    fn node(&self) -> SandboxCommand {
        let source = node(self.source);
        let mut command = self.command(env());
        (command.argv, command.files) = (source.argv, source.files);
        command.argv.extend(byte_strings(self.args));
        command.limits.cpu = Duration::from_secs(4);
        command.limits.wall = Duration::from_secs(2);
        command.limits.memory_bytes = ProgramLimits::default().memory_bytes;
        command
    }
}

async fn run_node(engine: &Engine, command: SandboxCommand) -> ProgramExit {
    let mut sandbox = engine.warm("node").await.unwrap().expect("the runtime can be started here");
    sandbox.run(SandboxCommand { warm: true, ..command }, &mut ()).await.unwrap()
}

async fn node_programs_cannot_tell(engine: Engine) {
    let mut wrong = Vec::new();
    for case in NODE_CASES {
        let fresh = run_fresh(&engine, case.node()).await;
        let warm = run_node(&engine, case.node()).await;
        let seen = |exit: &ProgramExit| {
            (
                without_addresses(&exit.stdout),
                without_addresses(&exit.stderr),
                (exit.code, exit.signal, exit.breaches.clone()),
            )
        };
        let (fresh, warm) = (seen(&fresh), seen(&warm));
        if fresh != warm {
            wrong.push(format!("{}\nfresh {fresh:#?}\nwarm  {warm:#?}", case.source));
        }
    }
    assert!(wrong.is_empty(), "{} programs can tell:\n{}", wrong.len(), wrong.join("\n"));
}

async fn a_started_program_is_held_like_a_fresh_one(engine: Engine) {
    // Without the counter of CPU seconds, which begins before the program and has a higher limit.
    let source = "const fs = require('fs');\
        const status = fs.readFileSync('/proc/self/status', 'utf8').split('\\n');\
        const names = /^(Umask|State|Uid|Gid|Groups|PPid|TracerPid|Cap|NoNew|Seccomp|Sig[BIC])/;\
        console.log(status.filter((line) => names.test(line)).join('\\n'));\
        const limits = fs.readFileSync('/proc/self/limits', 'utf8').split('\\n');\
        console.log(limits.filter((line) => !/cpu time/.test(line)).join('\\n'));\
        console.log(fs.readFileSync('/proc/self/cgroup', 'utf8'), fs.readdirSync('/workspace'));";
    let fresh = run_fresh(&engine, node(source)).await;
    let warm = run_node(&engine, node(source)).await;
    assert_eq!((text(&fresh.stderr), text(&warm.stderr)), (String::new(), String::new()));
    assert_same(&without_users(&text(&fresh.stdout)), &without_users(&text(&warm.stdout)));
    assert!(text(&warm.stdout).contains("Seccomp:\t2"));
}

async fn a_started_runtime_makes_way_for_other_streams(engine: Engine) {
    let mut sandbox = engine.warm("node").await.unwrap().unwrap();
    let merged = SandboxCommand {
        warm: true,
        stderr: OutputMode::Stdout,
        ..node("console.log(1); console.error(2)")
    };
    assert_eq!(text(&sandbox.run(merged, &mut ()).await.unwrap().stdout), "1\n2\n");
    let mut large = node("console.log(process.argv[2].length, process.env.BIG.length)");
    large.argv.push(vec![b'a'; 60_000]);
    large.env.push([b"BIG=".to_vec(), vec![b'b'; 50_000]].concat());
    let exit = run_node(&engine, large).await;
    assert_eq!(text(&exit.stdout), "60000 50000\n");
}
