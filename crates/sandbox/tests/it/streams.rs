//! Streams, signals and descriptors: input, output, and ends.

use std::io::{BufRead, BufReader, Read, Write, pipe};
use std::os::fd::OwnedFd;
use std::time::Duration;

use sandbox::{
    EXTRA_MAX, Engine, LimitBreach, OutputMode, ProgramControl, ProgramExit, ProgramLimits,
    SandboxCommand, SandboxError, StdinSource, TerminalDimensions,
};

use crate::support::{Live, Sink, python, run, shell, tests, text};

tests![
    two_sandboxes_talk_through_pipes_until_one_ends,
    a_pipe_ends_with_its_program_and_not_with_its_sandbox,
    a_writer_ends_when_nobody_reads,
    streams_can_be_opened_by_name,
    errors_keep_their_place_among_the_output,
    descriptors_have_the_numbers_that_were_asked_for,
    commands_that_cannot_be_are_refused,
    a_signal_that_is_handled_ends_nothing,
    a_signal_reaches_the_group_and_what_is_no_signal_does_nothing,
    a_stopped_program_goes_on_when_told,
    stopping_ends_a_program_and_says_so,
    a_program_waits_while_the_sink_has_no_room,
    the_sink_gets_all_and_the_answer_what_is_kept,
    live_input_and_output_take_turns,
    a_flood_does_not_delay_a_stop,
];

fn stdin(read: impl Into<OwnedFd>) -> StdinSource {
    StdinSource::Handle(read.into())
}

fn handle(write: impl Into<OwnedFd>) -> OutputMode {
    OutputMode::Handle(write.into())
}

/// Reads everything up to the end of a pipe.
async fn read_all(mut from: std::io::PipeReader) -> Vec<u8> {
    let reading = tokio::task::spawn_blocking(move || {
        let mut all = Vec::new();
        from.read_to_end(&mut all).unwrap();
        all
    });
    reading.await.unwrap()
}

async fn two_sandboxes_talk_through_pipes_until_one_ends(engine: Engine) {
    let asks = "import sys\n\
                for n in range(1000):\n    \
                print(n, flush=True); answer = sys.stdin.readline()\n    \
                assert answer == f'{n * n}\\n', answer\n\
                print('done', file=sys.stderr)";
    let answers = "import sys\n\
                   for line in sys.stdin: print(int(line) ** 2, flush=True)\n\
                   print('end of input', file=sys.stderr)";
    let (there, from_asker) = pipe().unwrap();
    let (back, from_answerer) = pipe().unwrap();
    let asker = SandboxCommand { stdin: stdin(back), stdout: handle(from_asker), ..python(asks) };
    let answerer =
        SandboxCommand { stdin: stdin(there), stdout: handle(from_answerer), ..python(answers) };
    let (asker, answerer) = tokio::join!(run(&engine, asker), run(&engine, answerer));
    assert_eq!((asker.code, text(&asker.stderr)), (Some(0), "done\n".into()));
    assert_eq!((answerer.code, text(&answerer.stderr)), (Some(0), "end of input\n".into()));
}

async fn a_pipe_ends_with_its_program_and_not_with_its_sandbox(engine: Engine) {
    let mut sandbox = engine.sandbox().await.unwrap();
    for (last, expected) in [(false, "first\n"), (true, "second\n")] {
        let (read, write) = pipe().unwrap();
        let script = format!("printf {expected:?}; sleep 60 &");
        let command = SandboxCommand { stdout: handle(write), last, ..shell(&script) };
        let exit = sandbox.run(command, &mut ()).await.unwrap();
        assert_eq!((exit.code, exit.stdout.len()), (Some(0), 0));
        // The sandbox still exists.
        assert_eq!(text(&read_all(read).await), expected);
    }
    drop(sandbox);
}

async fn a_writer_ends_when_nobody_reads(engine: Engine) {
    let (read, write) = pipe().unwrap();
    let running = run(&engine, SandboxCommand { stdout: handle(write), ..shell("exec yes") });
    let reading = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        BufReader::new(read).read_line(&mut line).unwrap();
        line
    });
    let (exit, line) = tokio::join!(running, reading);
    assert_eq!((exit.signal, line.unwrap()), (Some(SIGPIPE), "y\n".into()));
}

const SIGPIPE: i32 = 13;

async fn streams_can_be_opened_by_name(engine: Engine) {
    let (read, mut write) = pipe().unwrap();
    let (taken, write_end) = pipe().unwrap();
    write.write_all(b"by name\n").unwrap();
    drop(write);
    let script = "cat /dev/stdin > /dev/stdout; echo error > /dev/stderr; echo extra > /dev/fd/7";
    let (more, extra) = pipe().unwrap();
    let command = SandboxCommand {
        stdin: stdin(read),
        stdout: handle(write_end),
        extra: vec![(7, extra.into())],
        ..shell(script)
    };
    let exit = run(&engine, command).await;
    assert_eq!((exit.code, text(&exit.stderr)), (Some(0), "error\n".into()));
    assert_eq!(text(&read_all(taken).await), "by name\n");
    assert_eq!(text(&read_all(more).await), "extra\n");
    // The ordinary ones, too.
    let bytes = StdinSource::Bytes(b"bytes\n".to_vec());
    let exit =
        run(&engine, SandboxCommand { stdin: bytes, ..shell("cat /dev/stdin > /dev/stdout") })
            .await;
    assert_eq!(text(&exit.stdout), "bytes\n");
}

async fn errors_keep_their_place_among_the_output(engine: Engine) {
    let script = "for n in 1 2 3 4 5; do echo out $n; echo error $n >&2; done";
    let exit = run(&engine, SandboxCommand { stderr: OutputMode::Stdout, ..shell(script) }).await;
    let expected: String = (1..=5).map(|n| format!("out {n}\nerror {n}\n")).collect();
    assert_eq!((text(&exit.stdout), text(&exit.stderr)), (expected, String::new()));
    let (read, write) = pipe().unwrap();
    let command = SandboxCommand {
        stdout: handle(write),
        stderr: OutputMode::Stdout,
        ..shell("ls /none; pwd")
    };
    assert_eq!(run(&engine, command).await.code, Some(0));
    let both = text(&read_all(read).await);
    assert!(both.contains("/none") && both.ends_with("/workspace\n"), "{both}");
}

async fn descriptors_have_the_numbers_that_were_asked_for(engine: Engine) {
    let script = "import os\n\
                  def is_open(n):\n    \
                  try: os.fstat(n); return True\n    \
                  except OSError: return False\n\
                  print([n for n in range(256) if is_open(n)])\n\
                  os.write(5, os.read(3, 100).upper())";
    let (read, mut write) = pipe().unwrap();
    let (taken, write_end) = pipe().unwrap();
    write.write_all(b"through three to five").unwrap();
    drop(write);
    let extra = vec![(5, write_end.into()), (3, read.into())];
    let exit = run(&engine, SandboxCommand { extra, ..python(script) }).await;
    assert_eq!((exit.code, text(&exit.stdout)), (Some(0), "[0, 1, 2, 3, 5]\n".into()), "{exit:?}");
    assert_eq!(text(&read_all(taken).await), "THROUGH THREE TO FIVE");
    // The maximum number, in an order in which each has another's number.
    let numbers: Vec<u32> = (3..).take(EXTRA_MAX).collect();
    let mut extra = Vec::new();
    let mut readers = Vec::new();
    for number in numbers.iter().rev() {
        let (read, write) = pipe().unwrap();
        extra.push((*number, write.into()));
        readers.push((*number, read));
    }
    // Not the shell, which uses numbers from 10 on itself.
    let script = "import os\nfor n in range(3, 19): os.write(n, f'is {n}\\n'.encode())";
    let exit = run(&engine, SandboxCommand { extra, ..python(script) }).await;
    assert_eq!((exit.code, text(&exit.stderr)), (Some(0), String::new()));
    for (number, read) in readers {
        assert_eq!(text(&read_all(read).await), format!("is {number}\n"));
    }
}

async fn commands_that_cannot_be_are_refused(engine: Engine) {
    let fd = || OwnedFd::from(pipe().unwrap().1);
    let with_extra = |numbers: &[u32]| SandboxCommand {
        extra: numbers.iter().map(|number| (*number, fd())).collect(),
        ..shell("true")
    };
    let too_many: Vec<u32> = (3..=19).collect();
    let terminal = Some(TerminalDimensions { rows: 1, cols: 1 });
    for (command, expected) in [
        (with_extra(&too_many), "extra: too many"),
        (with_extra(&[2]), "extra: a number is not"),
        (with_extra(&[256]), "extra: a number is not"),
        (with_extra(&[u32::MAX]), "extra: a number is not"),
        (with_extra(&[4, 3, 4]), "extra: a number occurs twice"),
        (SandboxCommand { stdout: OutputMode::Stdout, ..shell("true") }, "stdout: "),
        (SandboxCommand { terminal, stdout: handle(fd()), ..shell("true") }, "terminal: "),
        (SandboxCommand { terminal, stderr: OutputMode::Stdout, ..shell("true") }, "terminal: "),
        (SandboxCommand { terminal, stdin: stdin(fd()), ..shell("true") }, "terminal: "),
    ] {
        let mut sandbox = engine.sandbox().await.unwrap();
        let error = sandbox.run(command, &mut ()).await.unwrap_err();
        let SandboxError::Command(message) = error else { panic!("{expected}: {error}") };
        assert!(message.starts_with(expected), "{message}");
    }
}

async fn a_signal_that_is_handled_ends_nothing(engine: Engine) {
    let script = "import signal\n\
                  try:\n    print('ready')\n    while True: signal.pause()\n\
                  except KeyboardInterrupt:\n    print('goes on')\n\
                  print(input())";
    let program = Live::start(&engine, python(script)).await;
    program.sink.wait_for("ready").await;
    program.ask(ProgramControl::Signal(2)).await;
    program.sink.wait_for("goes on").await;
    program.write("to its end\n").await;
    let exit = program.exit().await;
    assert_eq!((exit.code, exit.stopped), (Some(0), false));
    assert!(text(&exit.stdout).ends_with("to its end\n"));
}

async fn a_signal_reaches_the_group_and_what_is_no_signal_does_nothing(engine: Engine) {
    let script = "trap 'wait; echo parent; exit 5' TERM\n\
                  (trap 'echo child; exit' TERM; echo ready >&2; while :; do sleep 0.01; done) &\n\
                  wait";
    let program = Live::start(&engine, shell(script)).await;
    program.sink.wait_for("ready").await;
    for number in [0, -1, 32, 64, 256 + 9, i32::MAX, i32::MIN] {
        program.ask(ProgramControl::Signal(number)).await;
    }
    program.ask(ProgramControl::Resize(TerminalDimensions { rows: 1, cols: 1 })).await;
    program.ask(ProgramControl::Signal(15)).await;
    let control = program.control.clone();
    let exit = program.exit().await;
    assert_eq!((exit.code, text(&exit.stdout)), (Some(5), "child\nparent\n".into()), "{exit:?}");
    // Sending too late is only an error for the sender.
    assert!(control.send(ProgramControl::Signal(9)).await.is_err());
    let killed = Live::start(&engine, shell("echo ready; sleep 60")).await;
    killed.sink.wait_for("ready").await;
    killed.ask(ProgramControl::Signal(9)).await;
    let exit = killed.exit().await;
    assert_eq!((exit.signal, exit.stopped, exit.oom_kills), (Some(9), false, 0));
    assert!(exit.breaches.is_empty(), "{exit:?}");
}

async fn a_stopped_program_goes_on_when_told(engine: Engine) {
    let program = Live::start(&engine, shell("echo ready; kill -STOP $$; echo again")).await;
    program.sink.wait_for("ready").await;
    // It may not have stopped itself yet. The last of them arrive after its end, and are no error
    // either.
    while program.control.send(ProgramControl::Signal(18)).await.is_ok() {
        tokio::task::yield_now().await;
    }
    let exit = program.exit().await;
    assert_eq!((exit.code, text(&exit.stdout)), (Some(0), "ready\nagain\n".into()));
}

async fn stopping_ends_a_program_and_says_so(engine: Engine) {
    let script = "trap '' TERM INT HUP; echo ready; while :; do sleep 60; done";
    let program = Live::start(&engine, shell(script)).await;
    program.sink.wait_for("ready").await;
    program.ask(ProgramControl::Stop).await;
    let exit = program.exit().await;
    assert_eq!((exit.signal, exit.stopped, exit.breaches.len()), (Some(9), true, 0), "{exit:?}");
    assert_eq!(text(&exit.stdout), "ready\n");
    // The sandbox can run another command, as after any other end.
    let mut sandbox = engine.sandbox().await.unwrap();
    for (last, stop) in [(false, true), (true, false)] {
        let (control, requests) = tokio::sync::mpsc::channel(1);
        let script = if stop { "sleep 60" } else { "echo fine" };
        if stop {
            control.send(ProgramControl::Stop).await.unwrap();
        }
        // Dropping it has no effect.
        drop(control);
        let command = SandboxCommand { control: Some(requests), last, ..shell(script) };
        let exit = sandbox.run(command, &mut ()).await.unwrap();
        assert_eq!((exit.stopped, exit.code), (stop, (!stop).then_some(0)), "{exit:?}");
    }
}

/// Returns the private memory of this process, and the processor time that it has used.
fn own_use() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let rss = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let kib: u64 = rss.trim().trim_end_matches(" kB").parse().unwrap();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks = |field: usize| fields[field].parse::<u64>().unwrap();
    (kib << 10, ticks(11) + ticks(12))
}

async fn a_program_waits_while_the_sink_has_no_room(engine: Engine) {
    let limits =
        ProgramLimits { wall: Duration::from_secs(2), output_bytes: 1 << 40, ..shell("").limits };
    // Ends when the program does.
    let (read, write) = pipe().unwrap();
    let command = SandboxCommand {
        stderr: handle(write),
        limits,
        kept_bytes: Some(1 << 20),
        ..shell("exec yes")
    };
    let sink = Sink::without_room();
    let sandbox = engine.sandbox().await.unwrap();
    let (bytes_before, ticks_before) = own_use();
    let program = Live::start_in(sandbox, command, sink.clone());
    assert!(read_all(read).await.is_empty());
    let (bytes, ticks) = own_use();
    assert!(bytes < bytes_before + (8 << 20), "{bytes_before} bytes before, {bytes} after");
    // In ticks of 10 ms: far less than the two seconds.
    assert!(ticks < ticks_before + 50, "{} ticks", ticks - ticks_before);
    assert_eq!(sink.text(), "");
    sink.make_room();
    let exit = program.exit().await;
    assert_eq!(exit.breaches, [LimitBreach::Wall], "{exit:?}");
    // The content of the pipe, without any loss.
    assert!((1..=64 << 10).contains(&exit.stdout.len()), "{} bytes", exit.stdout.len());
    assert_eq!(text(&exit.stdout), sink.text());
    assert!(!exit.stdout_truncated && exit.cpu < Duration::from_millis(500), "{exit:?}");
}

async fn the_sink_gets_all_and_the_answer_what_is_kept(engine: Engine) {
    let all: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    let mut sink = Sink::new();
    let command = SandboxCommand { kept_bytes: Some(10), ..shell("seq 100000; echo error >&2") };
    let exit = engine.sandbox().await.unwrap().run(command, &mut sink).await.unwrap();
    assert_eq!(
        (text(&exit.stdout), text(&exit.stderr)),
        ("1\n2\n3\n4\n5\n".into(), "error\n".into())
    );
    assert!(!exit.stdout_truncated && exit.breaches.is_empty());
    assert_eq!(sink.text().replace("error\n", ""), all);
    let limits = ProgramLimits { output_bytes: 100, ..shell("").limits };
    let mut sink = Sink::new();
    let command = SandboxCommand { kept_bytes: Some(10), limits, ..shell("yes") };
    let exit = engine.sandbox().await.unwrap().run(command, &mut sink).await.unwrap();
    assert_eq!((exit.stdout.len(), sink.text().len()), (10, 100));
    assert!(is_cut(&exit), "{exit:?}");
}

fn is_cut(exit: &ProgramExit) -> bool {
    exit.stdout_truncated && exit.breaches == [LimitBreach::Output]
}

async fn live_input_and_output_take_turns(engine: Engine) {
    let mut program =
        Live::start(&engine, shell("while read line; do echo got $line; done; echo end")).await;
    for n in 0..50 {
        program.write(&format!("{n}\n")).await;
        program.sink.wait_for(&format!("got {n}\n")).await;
    }
    program.end_input();
    let exit = program.exit().await;
    assert!(text(&exit.stdout).ends_with("got 49\nend\n"));
}

async fn a_flood_does_not_delay_a_stop(engine: Engine) {
    let limits = ProgramLimits { output_bytes: 1 << 40, ..shell("").limits };
    let command = SandboxCommand { limits, kept_bytes: Some(0), ..shell("exec yes") };
    let (control, requests) = tokio::sync::mpsc::channel(1);
    let mut sandbox = engine.sandbox().await.unwrap();
    let command = SandboxCommand { control: Some(requests), ..command };
    let running = tokio::spawn(async move { sandbox.run(command, &mut ()).await.unwrap() });
    control.send(ProgramControl::Stop).await.unwrap();
    let exit = running.await.unwrap();
    assert!(exit.stopped && exit.wall < Duration::from_secs(10), "{exit:?}");
}
