//! Sessions whose programs attack the init, the disk, the kernel's memory, and the server's view of
//! them.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use sandbox::{Engine, ListDepth, SessionSandboxLimits, WatchKind};
use tokio::time;

use crate::session::{Live, Output, SOON, pipe, program, read_until};
use crate::support::tests;

tests![
    a_storm_of_orphans_does_not_hold_up_the_init,
    what_waits_in_sockets_is_limited,
    what_a_disk_can_do_beyond_files_is_not_for_programs,
    a_path_that_is_too_long_to_be_told_ends_no_watch,
    a_server_without_descriptors_loses_no_session,
];

fn python(script: &str) -> sandbox::SessionProgram {
    program(&["/usr/bin/python3", "-c", script])
}

/// Processes end as fast as others start, so that there is always one to reap.
async fn a_storm_of_orphans_does_not_hold_up_the_init(engine: Engine) {
    let live = Live::new(&engine).await;
    let storm = "import os\n\
                 for _ in range(6): os.fork()\n\
                 print('storm', flush=True)\n\
                 while True:\n    \
                 try:\n        \
                 if os.fork() == 0:\n            \
                 for _ in range(3): os.fork()\n            \
                 os._exit(0)\n    \
                 except OSError: pass";
    let mut storm = live.start(python(storm)).await;
    read_until(pipe(&mut storm), "storm\n").await;
    for _ in 0..20 {
        live.session.usage().await.unwrap();
    }
    let ended = live.session.ended();
    drop(live);
    time::timeout(SOON, ended).await.unwrap();
}

/// It is kernel memory, and some of it is in no process's account.
async fn what_waits_in_sockets_is_limited(engine: Engine) {
    let pairs = "kept, sent = [], 0\n\
                 for _ in range(count):\n    \
                 a, b = pair(); a.setblocking(False); kept += [a, b]\n    \
                 try:\n        \
                 while True: sent += a.send(bytes(1 << 16))\n    \
                 except BlockingIOError: pass\n\
                 print(sent >> 20)";
    let local = "import socket\ncount, pair = 1500, socket.socketpair\n";
    let loopback = "import socket\n\
                    count = 150\n\
                    l = socket.create_server(('127.0.0.1', 8000))\n\
                    def pair():\n    \
                    a = socket.create_connection(('127.0.0.1', 8000)); return a, l.accept()[0]\n";
    let limits = SessionSandboxLimits { memory_bytes: 64 << 20, ..SessionSandboxLimits::default() };
    for pair in [local, loopback] {
        let live = Live::with(&engine, limits).await;
        let output = Output::of(live.start(python(&[pair, pairs].concat())).await).await;
        // Either it got an error about the limit, or it was killed for lack of memory.
        let sent_mib: Option<u64> = output.stdout.trim().parse().ok();
        let is_held = sent_mib.map_or(output.end.oom_kills > 0, |sent| sent <= 64);
        assert!(is_held, "{pair}: {} {} {:?}", output.stdout, output.stderr, output.end);
    }
}

/// Administrative calls of file systems, markers that an overlay interprets, devices and special
/// bits: none of these works through the mounts of a session.
async fn what_a_disk_can_do_beyond_files_is_not_for_programs(engine: Engine) {
    let live = Live::new(&engine).await;
    let script = "import array, ctypes, fcntl, os, struct\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        def attempt(name, call):\n    \
        try: call(); print(name)\n    \
        except OSError: pass\n\
        open('f', 'w').write('x' * 5000)\n\
        f, d = os.open('f', os.O_RDWR), os.open('.', os.O_RDONLY)\n\
        for call in [0xC0045877, 0xC0045878, 0xC0185879, 0x40086610, 0xC028660F, 0x6611,\n    \
        0x40286608, 0x8004587D, 1, 0xC0C0583B, 0x40087604, 0x41009432, 0x800C6613,\n    \
        0x4004662B, 0x6628, 0x40E8662E, 0x40806685]:\n    \
        for fd in [f, d]:\n        \
        attempt(hex(call), lambda: fcntl.ioctl(fd, call, array.array('B', bytes(256))))\n\
        for flag in [0x10, 0x20, 0x4000, 0x20000000, 0x40000000]:\n    \
        attempt('flag', lambda: fcntl.ioctl(f, 0x40086602, struct.pack('l', flag)))\n\
        caps = struct.pack('<5I', 0x02000001, 1 << 21, 0, 0, 0)\n\
        for name in ['trusted.overlay.opaque', 'trusted.x', 'security.capability']:\n    \
        attempt(name, lambda: os.setxattr('f', name, caps))\n\
        attempt('owner', lambda: os.chown('f', 0, 0))\n\
        attempt('whiteout', lambda: os.mknod('w', 0o20644, 0))\n\
        attempt('device', lambda: os.mknod('w', 0o60644, os.makedev(7, 0)))\n\
        def rename():\n    \
        if libc.renameat2(-100, b'f', -100, b'g', 4): raise OSError\n\
        attempt('whiteout', rename)\n\
        mounts = [line.split() for line in open('/proc/self/mountinfo')]\n\
        print(*[m[4] for m in mounts if 'nosuid' not in m[5].split(',')])\n\
        print(*[m[4] for m in mounts if 'nodev' not in m[5].split(',')])";
    let output = Output::of(live.start(python(script)).await).await;
    // The root is read-only and has the devices that programs need; terminals are devices.
    assert_eq!(output.stdout, "\n/ /dev/pts\n", "{}", output.stderr);
}

/// A path that does not fit into one record: an overflow is reported, and later events are reported
/// again.
async fn a_path_that_is_too_long_to_be_told_ends_no_watch(engine: Engine) {
    let live = Live::new(&engine).await;
    let files = live.session.files().await.unwrap();
    live.shell("mkdir watched").await;
    let mut watch = files.watch("watched", ListDepth::Recursive).await.unwrap();
    let deep = "import os\n\
                os.mkdir('deep'); os.chdir('deep')\n\
                for _ in range(110): os.mkdir('n' * 250); os.chdir('n' * 250)\n\
                os.chdir('/workspace'); os.rename('deep', 'watched/deep')\n\
                open('watched/last', 'w')";
    let output = Output::of(live.start(python(deep)).await).await;
    assert_eq!(output.end.code, Some(0), "{}", output.stderr);
    let mut kinds = Vec::new();
    loop {
        let event = time::timeout(SOON, watch.next()).await.unwrap().expect("it goes on");
        kinds.push(event.kind);
        if event.path.ends_with("last") {
            break;
        }
    }
    assert!(kinds.contains(&WatchKind::Overflow), "{kinds:?}");
}

/// The server has no free descriptors for those that it receives. That fails requests, but ends no
/// session.
async fn a_server_without_descriptors_loses_no_session(engine: Engine) {
    let live = Live::new(&engine).await;
    live.shell("echo content > file").await;
    let files = live.session.files().await.unwrap();
    // Started before, because no process can be started without descriptors.
    let script = "soft=$(prlimit --pid $0 --nofile --noheadings --output=SOFT)\n\
                  prlimit --pid $0 --nofile=0: && echo set && read x\n\
                  prlimit --pid $0 --nofile=$soft: && echo back";
    let mut limiter = Command::new("/bin/bash")
        .args(["-c", script, &std::process::id().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(limiter.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "set");
    let read = files.read("file").await;
    let listening = live.session.listen(8000).await;
    let prepared = engine.session_sandbox().await;
    drop(limiter.stdin.take());
    assert_eq!(lines.next().unwrap().unwrap(), "back");
    assert!(limiter.wait().unwrap().success());
    // One that was prepared before needs no descriptor.
    drop(prepared);
    assert!(read.is_err() && listening.is_err(), "{read:?} {listening:?}");
    assert!(files.is_alive() && live.session.is_alive());
    assert_eq!(files.read("file").await.unwrap().len, 8);
    assert_eq!(live.shell("echo on").await.stdout, "on\n");
    let other = Live::new(&engine).await;
    assert_eq!(other.shell("echo on").await.stdout, "on\n");
}
