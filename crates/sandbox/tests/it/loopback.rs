//! Executions with a loopback: their caller listens there, and no other process can reach it.

use std::time::Duration;

use sandbox::{
    Engine, LoopbackListen, PORTS_MAX, ProgramExit, Sandbox, SandboxCommand, SandboxError,
    SeccompProfile, TerminalDimensions,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time;

use crate::session::{NO_WAYS_OUT, ways_out};
use crate::support::{Live, Sink, python, run, shell, tests, text};
use crate::warm;

tests![
    a_program_reaches_its_caller_and_nothing_else,
    a_port_belongs_to_one_sandbox,
    a_program_with_a_loopback_has_no_way_out,
    the_next_program_of_the_slot_finds_no_loopback,
    only_the_command_that_asks_has_a_loopback,
    runtimes_that_wait_have_one_too,
    ports_that_make_no_sense_are_refused,
    listeners_that_nobody_takes_are_closed,
];

/// Longest wait for an immediate event.
const SOON: Duration = Duration::from_secs(20);

/// Returns the command with ports, and the receiver of their sockets.
pub(crate) fn with_ports(
    command: SandboxCommand,
    ports: &[u16],
) -> (SandboxCommand, oneshot::Receiver<Vec<TcpListener>>) {
    let (opened, listeners) = oneshot::channel();
    let listen = LoopbackListen { ports: ports.to_vec(), opened };
    (SandboxCommand { listen: Some(listen), ..command }, listeners)
}

/// Answers every connection with the port and its input, in capitals, until it is dropped.
async fn serve(listeners: oneshot::Receiver<Vec<TcpListener>>) {
    let Ok(listeners) = listeners.await else { return };
    let mut serving = JoinSet::new();
    for listener in listeners {
        let port = listener.local_addr().unwrap().port();
        serving.spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let mut buffer = [0; 100];
                let n = connection.read(&mut buffer).await.unwrap();
                let answer = format!("{port} {}", text(&buffer[..n]).to_uppercase());
                connection.write_all(answer.as_bytes()).await.unwrap();
            }
        });
    }
    while serving.join_next().await.is_some() {}
}

async fn served_in(sandbox: &mut Sandbox, command: SandboxCommand, ports: &[u16]) -> ProgramExit {
    let (command, listeners) = with_ports(command, ports);
    let mut nothing = ();
    let run = sandbox.run(command, &mut nothing);
    tokio::select! {
        exit = run => exit.unwrap(),
        () = async { serve(listeners).await; std::future::pending().await } => unreachable!(),
    }
}

async fn served(engine: &Engine, command: SandboxCommand, ports: &[u16]) -> ProgramExit {
    served_in(&mut engine.connected_sandbox().await.unwrap(), command, ports).await
}

/// Connects to each of these ports, and prints the answer or the error.
fn client(ports: &[u16]) -> SandboxCommand {
    python(&format!(
        "import errno, socket\n\
         for port in {ports:?}:\n    \
         try:\n        \
         s = socket.create_connection(('127.0.0.1', port), 10); s.sendall(b'hello')\n        \
         print(s.recv(100).decode())\n    \
         except OSError as e: print(errno.errorcode[e.errno])"
    ))
}

async fn a_program_reaches_its_caller_and_nothing_else(engine: Engine) {
    let exit = served(&engine, client(&[5432, 1024, 5433, 65535]), &[65535, 5432, 1024]).await;
    let expected = "5432 HELLO\n1024 HELLO\nECONNREFUSED\n65535 HELLO\n";
    assert_eq!(text(&exit.stdout), expected, "{}", text(&exit.stderr));
    // By name, and by the other address only if it listens there itself.
    let script = "import socket\n\
                  s = socket.create_connection(('localhost', 5432)); s.sendall(b'a')\n\
                  print(s.recv(9))\n\
                  own = socket.create_server(('127.0.0.1', 0))\n\
                  c = socket.create_connection(own.getsockname())\n\
                  own.accept()[0].sendall(b'own')\n\
                  print(c.recv(9))\n\
                  for address in '127.0.0.1', '0.0.0.0':\n    \
                  try: socket.create_server((address, 5432), reuse_port=True)\n    \
                  except OSError as e: print(e.errno)";
    let exit = served(&engine, python(script), &[5432]).await;
    assert_eq!(text(&exit.stdout), "b'5432 A'\nb'own'\n98\n98\n", "{}", text(&exit.stderr));
}

async fn a_port_belongs_to_one_sandbox(engine: Engine) {
    let (command, listeners) = with_ports(shell("read line; echo $line"), &[5432]);
    let sandbox = engine.connected_sandbox().await.unwrap();
    let mut victim = Live::start_in(sandbox, command, Sink::new());
    let listeners = time::timeout(SOON, listeners).await.unwrap().unwrap();
    let exit = served(&engine, client(&[5432, 5433]), &[5433]).await;
    assert_eq!(text(&exit.stdout), "ECONNREFUSED\n5433 HELLO\n");
    let exit = run(&engine, client(&[5432])).await;
    assert_eq!(text(&exit.stdout), "EAFNOSUPPORT\n");
    let nobody = time::timeout(Duration::from_millis(100), listeners[0].accept()).await;
    assert!(nobody.is_err(), "{nobody:?}");
    victim.write("end\n").await;
    victim.end_input();
    assert_eq!(text(&victim.exit().await.stdout), "end\n");
}

async fn a_program_with_a_loopback_has_no_way_out(engine: Engine) {
    let host = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = host.local_addr().unwrap().port();
    let exit = served(&engine, python(&ways_out(port)), &[5432]).await;
    assert_eq!(text(&exit.stdout), NO_WAYS_OUT, "{}", text(&exit.stderr));
    // The host's port with the same number is a different one.
    let exit = served(&engine, client(&[port]), &[port]).await;
    assert_eq!(text(&exit.stdout), format!("{port} HELLO\n"));
    host.set_nonblocking(true).unwrap();
    assert!(host.accept().is_err());
    // Operations denied to programs without a loopback are denied here, too.
    let script = "import fcntl, os, socket\n\
                  def errno(f):\n    \
                  try: f(); return 0\n    \
                  except OSError as e: return e.errno\n\
                  own = open('/usr/bin/env')\n\
                  print(errno(lambda: fcntl.flock(own, fcntl.LOCK_EX)), end=' ')\n\
                  print(errno(lambda: socket._socket.socketpair(2, 1, 0)), end=' ')\n\
                  request = b'lo'.ljust(16, b'\\0') + bytes(24)\n\
                  down = lambda: fcntl.ioctl(socket.socket(), 0x8914, request)\n\
                  print(errno(down), errno(lambda: os.open('/proc/sys/net/ipv4/ip_forward', 1)))";
    let exit = served(&engine, python(script), &[5432]).await;
    assert_eq!(text(&exit.stdout), "37 97 1 2\n", "{}", text(&exit.stderr));
}

/// Flags and counters of the loopback, and sockets, as a program without one sees them.
const LOOK: &str = "import fcntl, socket, struct\n\
                    request = b'lo'.ljust(16, b'\\0') + bytes(24)\n\
                    flags = fcntl.ioctl(socket.socket(socket.AF_UNIX), 0x8913, request)\n\
                    print(struct.unpack_from('<H', flags, 16)[0] & 1, end=' ')\n\
                    counters = open('/proc/self/net/dev').readlines()[-1].split()[1:]\n\
                    print(sum(map(int, counters)), end=' ')\n\
                    print(len(open('/proc/self/net/tcp').readlines()))";

async fn the_next_program_of_the_slot_finds_no_loopback(engine: Engine) {
    for round in 0..4 {
        // One that ends, one that is killed, and one whose sockets outlive it.
        let exit = served(&engine, client(&[5432]), &[5432]).await;
        assert_eq!(text(&exit.stdout), "5432 HELLO\n");
        let (command, listeners) = with_ports(shell("sleep 60"), &[5432]);
        let mut sandbox = engine.connected_sandbox().await.unwrap();
        let mut nothing = ();
        let kept = tokio::select! {
            exit = sandbox.run(command, &mut nothing) => panic!("{exit:?}"),
            kept = listeners => kept.unwrap(),
        };
        drop(sandbox);
        // More than the number of slots.
        for _ in 0..10 {
            let exit = run(&engine, python(LOOK)).await;
            assert_eq!(text(&exit.stdout), "0 0 1\n", "round {round}: {}", text(&exit.stderr));
        }
        let exit = served(&engine, client(&[5432]), &[5432]).await;
        assert_eq!(text(&exit.stdout), "5432 HELLO\n");
        drop(kept);
    }
}

async fn only_the_command_that_asks_has_a_loopback(engine: Engine) {
    let mut sandbox = engine.connected_sandbox().await.unwrap();
    let more = |command: SandboxCommand| SandboxCommand { last: false, ..command };
    let before = sandbox.run(more(client(&[5432])), &mut ()).await.unwrap();
    assert_eq!(text(&before.stdout), "EAFNOSUPPORT\n");
    let compiler = SandboxCommand { profile: SeccompProfile::Compile, ..more(client(&[5432])) };
    let compiled = sandbox.run(compiler, &mut ()).await.unwrap();
    assert_eq!(text(&compiled.stdout), "EAFNOSUPPORT\n");
    for port in [5432, 5433] {
        let exit = served_in(&mut sandbox, more(client(&[port])), &[port]).await;
        assert_eq!(text(&exit.stdout), format!("{port} HELLO\n"));
    }
    let after = sandbox.run(client(&[5432]), &mut ()).await.unwrap();
    assert_eq!(text(&after.stdout), "EAFNOSUPPORT\n");
}

/// The same for programs with a terminal, and with more output than a message holds.
async fn runtimes_that_wait_have_one_too(engine: Engine) {
    let host = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let script = ways_out(host.local_addr().unwrap().port());
    let hello = "const s = require('net').connect(5432, '127.0.0.1', () => s.write('hello'))\n\
                 s.on('data', (d) => { console.log(String(d)); s.destroy() })";
    for (name, program, source, expected) in [
        ("python", warm::program as fn(&str) -> SandboxCommand, script.as_str(), NO_WAYS_OUT),
        ("node", warm::node, hello, "5432 HELLO\n"),
    ] {
        for _ in 0..3 {
            let mut sandbox = engine.connected_warm(name).await.unwrap().unwrap();
            let command = SandboxCommand { warm: true, ..program(source) };
            let exit = served_in(&mut sandbox, command, &[5432]).await;
            assert_eq!(text(&exit.stdout), expected, "{name}: {}", text(&exit.stderr));
        }
    }
    let terminal = Some(TerminalDimensions { rows: 24, cols: 80 });
    let exit = served(&engine, SandboxCommand { terminal, ..client(&[5432]) }, &[5432]).await;
    assert_eq!(text(&exit.stdout), "5432 HELLO\r\n");
    let large = vec![vec![b'x'; 100_000]];
    let mut command = client(&[5432]);
    command.argv.extend(large);
    let exit = served(&engine, command, &[5432]).await;
    assert_eq!(text(&exit.stdout), "5432 HELLO\n");
}

async fn ports_that_make_no_sense_are_refused(engine: Engine) {
    let many: Vec<u16> = (2000..).take(PORTS_MAX + 1).collect();
    let compile = SeccompProfile::Compile;
    for (ports, profile) in [
        (&[][..], SeccompProfile::Run),
        (&many, SeccompProfile::Run),
        (&[80], SeccompProfile::Run),
        (&[0], SeccompProfile::Run),
        (&[5432, 5433, 5432], SeccompProfile::Run),
        (&[5432], compile),
    ] {
        let (command, _listeners) = with_ports(SandboxCommand { profile, ..shell("true") }, ports);
        let mut sandbox = engine.connected_sandbox().await.unwrap();
        let refused = sandbox.run(command, &mut ()).await;
        assert!(matches!(refused, Err(SandboxError::Command(_))), "{ports:?}: {refused:?}");
    }
    let (command, listeners) = with_ports(shell("true"), &many[..PORTS_MAX]);
    let exit = engine.connected_sandbox().await.unwrap().run(command, &mut ()).await.unwrap();
    assert_eq!((exit.code, listeners.await.unwrap().len()), (Some(0), PORTS_MAX));
    for mut sandbox in
        [engine.sandbox().await.unwrap(), engine.warm("python").await.unwrap().unwrap()]
    {
        let (command, _listeners) = with_ports(shell("true"), &[5432]);
        let refused = sandbox.run(command, &mut ()).await;
        assert!(matches!(refused, Err(SandboxError::Command(_))), "{refused:?}");
    }
}

async fn listeners_that_nobody_takes_are_closed(engine: Engine) {
    let (command, listeners) = with_ports(client(&[5432]), &[5432]);
    drop(listeners);
    let exit = engine.connected_sandbox().await.unwrap().run(command, &mut ()).await.unwrap();
    assert!(text(&exit.stdout).starts_with("ECONN"), "{exit:?}");
    // The sockets of a program that does not start are not sent.
    let file = sandbox::WorkspaceFile {
        path: "large".into(),
        content: vec![0; 1 << 20].into(),
        ..<_>::default()
    };
    let limits = sandbox::ProgramLimits { disk_bytes: 4096, ..shell("").limits };
    let command = SandboxCommand { files: vec![file], limits, ..shell("true") };
    let (command, listeners) = with_ports(command, &[5432]);
    let refused = engine.connected_sandbox().await.unwrap().run(command, &mut ()).await;
    assert!(matches!(refused, Err(SandboxError::File(_))), "{refused:?}");
    assert!(listeners.await.is_err());
}
