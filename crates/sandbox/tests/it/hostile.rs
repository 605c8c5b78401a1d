//! Programs that misuse their resources: terminals above all.

use std::time::Duration;

use sandbox::{Engine, LimitBreach, ProgramControl, ProgramLimits, SandboxCommand, StdinSource};

use crate::support::{Live, Sink, command, python, run, shell, tests, text};
use crate::terminals::at_terminal;

tests![
    a_program_may_close_its_terminal_and_go_on,
    who_keeps_the_terminal_open_delays_nothing,
    nobody_gets_a_terminal_of_somebody_else,
    calls_that_reach_beyond_the_terminal_are_denied,
    a_terminal_whose_output_nobody_takes_ends_at_the_wall_limit,
    a_pipe_to_another_sandbox_gives_no_way_in,
    signals_cannot_be_sent_out_of_the_sandbox_by_its_owner,
    nothing_of_a_command_is_counted_for_the_next,
    arguments_beyond_the_memory_limit_end_the_program_and_nothing_else,
];

async fn a_program_may_close_its_terminal_and_go_on(engine: Engine) {
    let script = "echo before; exec 0<&- 1>&- 2>&-; sleep 0.2; exit 3";
    let exit = run(&engine, at_terminal(shell(script))).await;
    assert_eq!((exit.code, text(&exit.stdout)), (Some(3), "before\r\n".into()));
    // Leaves the session, so that its end hangs up no terminal.
    let script = "import os, time\n\
                  print('before')\n\
                  for n in range(3): os.close(n)\n\
                  if os.fork() == 0:\n    os.setsid(); time.sleep(60)\n\
                  os._exit(4)";
    let exit = run(&engine, at_terminal(python(script))).await;
    assert_eq!((exit.code, text(&exit.stdout)), (Some(4), "before\r\n".into()));
}

async fn who_keeps_the_terminal_open_delays_nothing(engine: Engine) {
    let script = "import os, signal, sys, time\n\
                  signal.signal(signal.SIGHUP, signal.SIG_IGN)\n\
                  read, write = os.pipe()\n\
                  if os.fork() == 0:\n    os.setsid()\n    \
                  if os.fork() == 0:\n        os.write(write, b'.')\n        \
                  while True:\n            \
                  try: os.write(1, b'still here\\n')\n            \
                  except OSError: pass\n            \
                  time.sleep(0.01)\n    os._exit(0)\n\
                  os.read(read, 1)\n\
                  print('main ends')";
    let program = Live::start(&engine, at_terminal(python(script))).await;
    let exit = program.exit().await;
    assert_eq!(exit.code, Some(0));
    assert!(text(&exit.stdout).contains("main ends"));
    assert!(exit.wall < Duration::from_secs(20), "{exit:?}");
}

/// Two sandboxes with a terminal each: programs find only their own.
async fn nobody_gets_a_terminal_of_somebody_else(engine: Engine) {
    let victim = "tty; read secret; echo got $secret";
    let victim = Live::start(&engine, at_terminal(shell(victim))).await;
    victim.sink.wait_for("/dev/pts/0").await;
    let thief = "import os, fcntl, termios\n\
                 for n in range(64):\n    \
                 try: fd = os.open(f'/dev/pts/{n}', os.O_RDWR | os.O_NOCTTY)\n    \
                 except OSError: continue\n    \
                 os.write(fd, b'STOLEN\\n'); print('opened', n)\n\
                 for name in 'console', 'tty0', 'tty1', 'ttyS0', 'vcs':\n    \
                 print(os.path.exists('/dev/' + name), end=' ')\n\
                 print('looked')";
    let exit = run(&engine, at_terminal(python(thief))).await;
    let stdout = text(&exit.stdout).replace("\r\n", "\n");
    // Its own.
    let expected = "STOLEN\nopened 0\nFalse False False False False looked\n";
    assert_eq!(stdout, expected);
    victim.write("secret\n").await;
    let exit = victim.exit().await;
    assert_eq!(text(&exit.stdout), "/dev/pts/0\r\nsecret\r\ngot secret\r\n");
}

async fn calls_that_reach_beyond_the_terminal_are_denied(engine: Engine) {
    // TIOCSTI types, TIOCLINUX and TIOCSETD are kernel surface, TIOCCONS takes the console, and a
    // terminal of another session cannot be stolen.
    let script = "import fcntl, os\n\
                  def answer(request, argument):\n    \
                  try: fcntl.ioctl(0, request, argument); return 'DONE'\n    \
                  except OSError as error: return error.errno\n\
                  word = (0).to_bytes(4, 'little')\n\
                  print(answer(0x5412, b'x'), answer(0x541C, b'\\x02'), end=' ')\n\
                  print(answer(0x5423, word), answer(0x541D, 0))\n\
                  read, write = os.pipe()\n\
                  if os.fork() == 0:\n    \
                  os.setsid(); first = [answer(0x540E, 0), answer(0x540E, 1)]\n    \
                  os.write(write, repr(first).encode()); os._exit(0)\n\
                  print(os.read(read, 100).decode())\n\
                  os.open('/dev/tty', os.O_RDWR); print('still mine')";
    let exit = run(&engine, at_terminal(python(script))).await;
    let stdout = text(&exit.stdout);
    assert_eq!(stdout, "1 1 1 1\r\n[1, 1]\r\nstill mine\r\n", "{exit:?}");
}

async fn a_terminal_whose_output_nobody_takes_ends_at_the_wall_limit(engine: Engine) {
    let limits =
        ProgramLimits { wall: Duration::from_secs(1), output_bytes: 1 << 40, ..shell("").limits };
    // The pipe ends when the program does.
    let (mut read, write) = std::io::pipe().unwrap();
    let extra = vec![(3, write.into())];
    let sink = Sink::without_room();
    let command = at_terminal(SandboxCommand { limits, extra, ..shell("exec yes") });
    let sandbox = engine.sandbox().await.unwrap();
    let program = Live::start_in(sandbox, command, sink.clone());
    let ended = tokio::task::spawn_blocking(move || std::io::Read::read(&mut read, &mut [0; 1]));
    assert_eq!(ended.await.unwrap().unwrap(), 0);
    sink.make_room();
    let exit = program.exit().await;
    assert_eq!(
        (exit.breaches.as_slice(), exit.signal),
        (&[LimitBreach::Wall][..], Some(9)),
        "{exit:?}"
    );
    assert!(exit.stdout.len() < 1 << 20, "{} bytes", exit.stdout.len());
}

/// The reader opens the pipe for writing as well, and cannot do more to the writer than that.
async fn a_pipe_to_another_sandbox_gives_no_way_in(engine: Engine) {
    let (read, write) = std::io::pipe().unwrap();
    // Each line in one write, so that the reader's output does not split a line.
    let writer = "import os\n\
                  for n in range(100): os.write(1, b'%d\\n' % n)\n";
    let reader = "import os, fcntl\n\
                  fd = os.open('/dev/stdin', os.O_WRONLY)\n\
                  os.write(fd, b'own\\n'); os.close(fd)\n\
                  fcntl.fcntl(0, 1031, 4096)\n\
                  data = b''\n\
                  while True:\n    chunk = os.read(0, 4096)\n    \
                  if not chunk: break\n    data += chunk\n\
                  lines = data.decode().split()\n\
                  print(lines.count('own'), [n for n in lines if n != 'own'] == [str(n) for n in range(100)])";
    let writer =
        SandboxCommand { stdout: sandbox::OutputMode::Handle(write.into()), ..python(writer) };
    let reader = SandboxCommand { stdin: StdinSource::Handle(read.into()), ..python(reader) };
    let (writer, reader) = tokio::join!(run(&engine, writer), run(&engine, reader));
    assert_eq!((writer.code, text(&writer.stderr)), (Some(0), String::new()));
    assert_eq!(text(&reader.stdout), "1 True\n", "{reader:?}");
}

/// The program moves its children into groups of their own and exits; a signal reaches only its
/// group, and never the init.
async fn signals_cannot_be_sent_out_of_the_sandbox_by_its_owner(engine: Engine) {
    let script = "import os, time\n\
                  if os.fork() == 0:\n    os.setpgid(0, 0); print('moved'); time.sleep(60)\n\
                  os.wait()";
    let program = Live::start(&engine, python(script)).await;
    program.sink.wait_for("moved").await;
    program.ask(ProgramControl::Signal(15)).await;
    let exit = program.exit().await;
    assert_eq!((exit.signal, exit.stopped), (Some(15), false), "{exit:?}");
    // The number of usable sandboxes is unchanged.
    assert_eq!(text(&run(&engine, shell("echo fine")).await.stdout), "fine\n");
}

/// Control groups stay with their slots, which serve one sandbox after the other.
async fn nothing_of_a_command_is_counted_for_the_next(engine: Engine) {
    let limited = |mut command: SandboxCommand, memory_mib: u64, processes: u64| {
        command.limits.memory_bytes = memory_mib << 20;
        command.limits.processes = processes;
        command
    };
    let fill = "import mmap\nm = mmap.mmap(-1, 48 << 20)\nm.write(bytes(48 << 20))";
    // More than the number of slots, so that each has seen all of them.
    for round in 0..10 {
        let ended = run(&engine, limited(python(fill), 256, 16)).await;
        assert_eq!(ended.code, Some(0), "{round}: {ended:?}");
        assert!(ended.memory_peak_bytes > 48 << 20, "{round}: {ended:?}");
        let ended = run(&engine, limited(python(fill), 24, 16)).await;
        assert!(ended.oom_kills > 0 && ended.code.is_none(), "{round}: {ended:?}");
        let ended = run(&engine, limited(shell("sleep 9 & sleep 9 & kill %1 %2"), 64, 8)).await;
        assert!(ended.processes_peak >= 3, "{round}: {ended:?}");
        // Its files are removed with it; their memory does not count for the next one.
        let ended = run(&engine, limited(shell("head -c 4M /dev/zero > /tmp/x"), 64, 8)).await;
        assert_eq!(ended.code, Some(0), "{round}: {ended:?}");
        for _ in 0..2 {
            let ended = run(&engine, limited(command(&["/bin/true"]), 64, 1)).await;
            assert_eq!((ended.code, ended.processes_peak), (Some(0), 1), "{round}: {ended:?}");
            assert_eq!((ended.oom_kills, ended.breaches.len()), (0, 0), "{round}: {ended:?}");
            assert!(ended.memory_peak_bytes < 3 << 20, "{round}: {ended:?}");
        }
    }
}

/// Before `execve`, the arguments count as the program's memory.
async fn arguments_beyond_the_memory_limit_end_the_program_and_nothing_else(engine: Engine) {
    let words = vec!["x".repeat(100_000); 16];
    let mut argv = vec!["/bin/true"];
    argv.extend(words.iter().map(String::as_str));
    let mut sandbox = engine.sandbox().await.unwrap();
    for memory_bytes in [64 << 10, 1 << 20] {
        let mut too_large = command(&argv);
        too_large.limits.memory_bytes = memory_bytes;
        too_large.last = false;
        let exit = sandbox.run(too_large, &mut ()).await.unwrap();
        assert_eq!(exit.breaches, [LimitBreach::Memory], "{memory_bytes}");
    }
    let exit = sandbox.run(shell("echo still here"), &mut ()).await.unwrap();
    assert_eq!(text(&exit.stdout), "still here\n");
}
