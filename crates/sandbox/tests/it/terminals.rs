//! Terminals: what a program and its caller can do with one, and what they cannot.

use sandbox::{
    Engine, LimitBreach, ProgramControl, ProgramExit, ProgramLimits, SandboxCommand, StdinSource,
    TerminalDimensions,
};

use crate::support::{Live, command, python, run, shell, tests, text};

tests![
    a_program_sees_a_terminal_of_the_size_that_was_asked_for,
    a_new_size_reaches_the_program,
    control_c_interrupts_by_the_terminal,
    the_end_of_input_is_typed,
    a_line_that_was_begun_is_not_the_end,
    an_interactive_shell_works_with_job_control,
    bytes_come_back_as_they_are_in_raw_mode,
    more_terminals_can_be_made_and_not_too_many,
    a_second_command_has_a_terminal_of_its_own,
    without_a_terminal_there_is_none,
    flooding_a_terminal_ends_at_the_output_limit,
    input_that_nobody_reads_holds_up_nothing,
];

const SIZE: TerminalDimensions = TerminalDimensions { rows: 33, cols: 101 };

/// Returns the command with a terminal.
pub(crate) fn at_terminal(command: SandboxCommand) -> SandboxCommand {
    SandboxCommand { terminal: Some(SIZE), ..command }
}

async fn a_program_sees_a_terminal_of_the_size_that_was_asked_for(engine: Engine) {
    let script = "stty size; tty; for n in 0 1 2; do [ -t $n ] && echo $n; done; \
                  stat -c '%u %a' $(tty); id -u; echo own > /dev/tty; echo error >&2; \
                  ps -o tty= -p $$ 2>/dev/null; exit 7";
    let exit = run(&engine, at_terminal(shell(script))).await;
    assert_eq!(exit.code, Some(7), "{exit:?}");
    let stdout = text(&exit.stdout);
    let lines: Vec<&str> = stdout.split("\r\n").collect();
    assert_eq!(lines[..5], ["33 101", "/dev/pts/0", "0", "1", "2"], "{stdout:?}");
    // Its own, and no other user may open it.
    assert_eq!(lines[5], format!("{} 600", lines[6]), "{stdout:?}");
    assert_eq!(lines[7..9], ["own", "error"], "{stdout:?}");
    assert!(exit.stderr.is_empty());
}

async fn a_new_size_reaches_the_program(engine: Engine) {
    let script = "import os, signal\n\
                  signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])\n\
                  print('ready')\n\
                  signal.sigwait([signal.SIGWINCH])\n\
                  print('size', os.get_terminal_size())";
    let program = Live::start(&engine, at_terminal(python(script))).await;
    program.sink.wait_for("ready").await;
    program.ask(ProgramControl::Resize(TerminalDimensions { rows: 5, cols: 7 })).await;
    let sink = program.sink.clone();
    assert_eq!(program.exit().await.code, Some(0));
    assert!(sink.text().contains("columns=7, lines=5"), "{}", sink.text());
}

async fn control_c_interrupts_by_the_terminal(engine: Engine) {
    let script = "import time\n\
                  try:\n    print('ready'); time.sleep(60)\n\
                  except KeyboardInterrupt:\n    print('caught')";
    let program = Live::start(&engine, at_terminal(python(script))).await;
    program.sink.wait_for("ready").await;
    program.write("\x03").await;
    let exit = program.exit().await;
    assert_eq!(exit.code, Some(0));
    assert!(text(&exit.stdout).contains("^Ccaught"), "{exit:?}");
}

async fn the_end_of_input_is_typed(engine: Engine) {
    let script = "import sys\n\
                  print('asked', input('? '))\n\
                  print('rest', repr(sys.stdin.read()))\n\
                  print('still writes')";
    let mut program = Live::start(&engine, at_terminal(python(script))).await;
    program.sink.wait_for("? ").await;
    program.write("me\n").await;
    program.sink.wait_for("asked me").await;
    program.write("a\nb\n").await;
    program.end_input();
    let exit = program.exit().await;
    assert_eq!(exit.code, Some(0));
    let stdout = text(&exit.stdout);
    assert!(stdout.contains("rest 'a\\nb\\n'\r\nstill writes"), "{stdout:?}");
}

async fn a_line_that_was_begun_is_not_the_end(engine: Engine) {
    for (input, expected) in [("", "''"), ("a\n", "'a\\n'"), ("a\nb", "'a\\nb'")] {
        let stdin = StdinSource::Bytes(input.into());
        let script = "import sys; print('read', repr(sys.stdin.read()))";
        let exit = run(&engine, at_terminal(SandboxCommand { stdin, ..python(script) })).await;
        let stdout = text(&exit.stdout);
        assert!(stdout.contains(&format!("read {expected}\r\n")), "{input:?}: {stdout:?}");
    }
}

async fn an_interactive_shell_works_with_job_control(engine: Engine) {
    let mut shell = command(&["/bin/bash", "--norc", "--noprofile", "-i"]);
    // A counting prompt, so that the test can distinguish prompts.
    shell.env.push(b"PS1=<\\#> ".to_vec());
    let mut program = Live::start(&engine, at_terminal(shell)).await;
    program.sink.wait_for("<1> ").await;
    assert!(!program.sink.text().contains("no job control"), "{}", program.sink.text());
    // The key interrupts the job in the foreground, and not the shell.
    program.write("sh -c 'echo be\"\"gin; exec sleep 60'; echo status $?\n").await;
    program.sink.wait_for("begin").await;
    program.write("\x03").await;
    program.sink.wait_for("<2> ").await;
    program.write("echo next $((6 * 7))\n").await;
    program.sink.wait_for("<3> ").await;
    assert!(program.sink.text().contains("next 42"), "{}", program.sink.text());
    program.write("exit 9\n").await;
    program.end_input();
    let exit = program.exit().await;
    assert_eq!(exit.code, Some(9), "{exit:?}: {}", text(&exit.stdout));
}

async fn bytes_come_back_as_they_are_in_raw_mode(engine: Engine) {
    let script = "import os, sys, tty\n\
                  tty.setraw(0)\n\
                  os.write(1, b'ready')\n\
                  got = b''\n\
                  while len(got) < 256: got += os.read(0, 256)\n\
                  os.write(1, got)";
    let program = Live::start(&engine, at_terminal(python(script))).await;
    program.sink.wait_for("ready").await;
    let all: Vec<u8> = (0..=255).collect();
    program.write_bytes(&all).await;
    let exit = program.exit().await;
    assert_eq!(exit.stdout.strip_prefix(b"ready"), Some(all.as_slice()));
}

async fn more_terminals_can_be_made_and_not_too_many(engine: Engine) {
    let script = "import os, pty\n\
                  made = []\n\
                  try:\n    while len(made) < 100: made.append(pty.openpty())\n\
                  except OSError: print('end')\n\
                  print(len(made), os.ttyname(made[0][1]), sorted(os.listdir('/dev/pts'))[-1])";
    let exit = run(&engine, at_terminal(python(script))).await;
    let stdout = text(&exit.stdout);
    // In addition to the program's own.
    assert!(stdout.contains("end\r\n15 /dev/pts/1 ptmx\r\n"), "{stdout:?}");
}

async fn a_second_command_has_a_terminal_of_its_own(engine: Engine) {
    let mut sandbox = engine.sandbox().await.unwrap();
    let at = |last| SandboxCommand { last, ..at_terminal(shell("tty; stty size; ls /dev/pts")) };
    for last in [false, true] {
        let exit = sandbox.run(at(last), &mut ()).await.unwrap();
        assert_eq!(text(&exit.stdout), "/dev/pts/0\r\n33 101\r\n0  ptmx\r\n");
    }
}

async fn without_a_terminal_there_is_none(engine: Engine) {
    let script = "tty; ls /dev/pts; (: < /dev/tty) 2>&1; (: < /dev/ptmx) 2>&1; echo looked";
    let exit = run(&engine, shell(script)).await;
    let stdout = text(&exit.stdout);
    assert!(stdout.starts_with("not a tty\n") && stdout.ends_with("looked\n"), "{stdout}");
    assert!(stdout.contains("/dev/tty: No such device or address"), "{stdout}");
    assert!(stdout.contains("/dev/ptmx: No such file or directory"), "{stdout}");
}

fn is_cut(exit: &ProgramExit) -> bool {
    exit.breaches.contains(&LimitBreach::Output) && exit.stdout_truncated
}

async fn flooding_a_terminal_ends_at_the_output_limit(engine: Engine) {
    let limits = ProgramLimits { output_bytes: 100_000, ..shell("").limits };
    let exit = run(&engine, at_terminal(SandboxCommand { limits, ..shell("yes") })).await;
    assert!(is_cut(&exit), "{exit:?}");
    assert_eq!(exit.stdout.len(), 100_000);
    assert!(!exit.stopped);
}

/// Input fills the terminal, but the program must still end, and its output must arrive.
async fn input_that_nobody_reads_holds_up_nothing(engine: Engine) {
    for raw in ["", "stty raw -echo; "] {
        let script = format!("{raw}echo begin; read -t 0.3 line < /dev/null; echo end");
        let stdin = StdinSource::Bytes(b"0123456789abcde\n".repeat(1 << 16));
        let exit = run(&engine, at_terminal(SandboxCommand { stdin, ..shell(&script) })).await;
        assert_eq!(exit.code, Some(0));
        assert!(text(&exit.stdout).contains("end"), "{raw}");
    }
}
