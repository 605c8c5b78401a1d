//! Every verdict, and which one wins.

use super::*;

fn exited(code: i32) -> ProgramExit {
    ProgramExit { code: Some(code), ..ProgramExit::default() }
}

fn killed(signal: i32) -> ProgramExit {
    ProgramExit { signal: Some(signal), ..ProgramExit::default() }
}

/// Verdict, limit, exit code and signal of `exit` as run stage, and its verdict as compile stage.
fn check(exit: ProgramExit, run: &str, compile: &str) {
    let judged = outcome(StageName::Run, b"program", exit.clone());
    let summary = format!(
        "{}/{}/{}/{}",
        judged.verdict,
        judged.limit.map_or("-", LimitHit::as_str),
        judged.exit_code.map_or("-".to_owned(), |code| code.to_string()),
        judged.signal.as_deref().unwrap_or("-"),
    );
    assert_eq!(summary, run, "{exit:?}");
    let judged = outcome(StageName::Compile, b"program", exit.clone());
    assert_eq!(judged.verdict.as_str(), compile, "{exit:?}");
}

#[test]
fn the_strongest_of_what_holds_is_the_verdict() {
    use LimitBreach::{Cpu, Memory, Output, Wall};
    let with = |exit: ProgramExit, breaches: &[LimitBreach]| ProgramExit {
        breaches: breaches.to_vec(),
        ..exit
    };
    for (exit, run, compile) in [
        (exited(0), "OK/-/0/-", "OK"),
        (exited(1), "RE/-/1/-", "CE"),
        (exited(255), "RE/-/255/-", "CE"),
        (killed(11), "SG/-/-/SIGSEGV", "CE"),
        (killed(9), "SG/-/-/SIGKILL", "CE"),
        (with(killed(9), &[Memory]), "MLE/memory/-/SIGKILL", "CE"),
        (ProgramExit { oom_kills: 1, ..exited(0) }, "MLE/memory/0/-", "CE"),
        (with(killed(9), &[Cpu]), "TLE/cpu/-/SIGKILL", "CE"),
        (with(killed(9), &[Wall]), "TLE/wall/-/SIGKILL", "CE"),
        (with(killed(9), &[Wall, Cpu]), "TLE/wall/-/SIGKILL", "CE"),
        (with(killed(9), &[Memory, Cpu]), "TLE/cpu/-/SIGKILL", "CE"),
        (with(killed(9), &[Output]), "OLE/output/-/SIGKILL", "CE"),
        (with(exited(0), &[Memory, Wall, Output]), "OLE/output/0/-", "CE"),
        (ProgramExit { stdout_truncated: true, ..exited(0) }, "OLE/output/0/-", "CE"),
        (ProgramExit { stderr_truncated: true, ..killed(9) }, "OLE/output/-/SIGKILL", "CE"),
        (ProgramExit { exec_errno: Some(2), ..ProgramExit::default() }, "RE/-/127/-", "CE"),
        (ProgramExit { exec_errno: Some(13), ..ProgramExit::default() }, "RE/-/126/-", "CE"),
        (ProgramExit { exec_errno: Some(999), ..ProgramExit::default() }, "RE/-/126/-", "CE"),
        // Neither exited nor killed: not caused by the program, in no stage.
        (ProgramExit::default(), "IE/-/-/-", "IE"),
    ] {
        check(exit, run, compile);
    }
}

#[test]
fn a_program_that_could_not_start_says_why() {
    for (errno, says) in [
        (2, "start `program`: there is no such program"),
        (8, "nor a script"),
        (13, "not an executable file"),
        (999, "errno 999"),
    ] {
        let exit = ProgramExit { exec_errno: Some(errno), ..ProgramExit::default() };
        let message = outcome(StageName::Run, b"program", exit).message.unwrap();
        assert!(message.contains(says), "{message}");
    }
    assert_eq!(outcome(StageName::Run, b"program", exited(1)).message, None);
}

#[test]
fn output_that_is_not_text_is_exact_in_base64() {
    let exit = ProgramExit { stdout: "héllo".into(), stderr: b"a\xffb\0".to_vec(), ..exited(0) };
    let outcome = outcome(StageName::Run, b"", exit);
    assert_eq!((outcome.stdout.as_str(), outcome.stdout_base64), ("héllo", None));
    assert_eq!(outcome.stderr, "a\u{fffd}b\0");
    assert_eq!(outcome.stderr_base64.as_deref(), Some("Yf9iAA=="));
}

/// A NUL is six bytes in JSON, and an answer contains each stream twice.
#[test]
fn no_output_makes_an_answer_several_times_as_large() {
    let mib = 1 << 20;
    for (bytes, twice) in [
        (vec![0; 16 * mib], false),
        (vec![0xff; 16 * mib], false),
        ("\n".repeat(mib).into_bytes(), false),
        (vec![0; 60 << 10], true),
        (vec![0xff; 64 << 10], true),
        ("é\u{1b}[1mx".repeat(8 << 10).into_bytes(), true),
    ] {
        let length = bytes.len();
        let mut inner =
            outcome(StageName::Run, b"", ProgramExit { stdout: bytes.clone(), ..exited(0) });
        assert_eq!(crate::judge::stdout_bytes(&inner), bytes);
        let (top, is_moved) = move_to_top(&mut inner);
        assert_eq!(is_moved, !twice);
        assert_eq!(crate::judge::stdout_bytes(&top), bytes);
        let json = |outcome: &StageOutcome| serde_json::to_vec(outcome).unwrap().len();
        let all = json(&top) + json(&inner);
        let most = if twice { 9 * length } else { 2 * length };
        assert!(all < most + (300 << 10), "{length} bytes became {all}");
        let file = output_file("x".to_owned(), Ok(bytes));
        assert!(serde_json::to_vec(&file).unwrap().len() < 2 * length + 100);
    }
}

#[test]
fn text_is_whole_unless_json_would_be_much_longer() {
    let long = "\u{0}".repeat(5000);
    for (text, text_bytes, has_exact) in [
        ("\u{0}".repeat(4096), 4096, false),
        (long.clone(), 4096, true),
        ("x".repeat(1 << 20), 1 << 20, false),
        ("\u{1}ab".repeat(2000), 4096, true),
        ("\u{1}abcde\n".repeat(2000), 14_000, false),
    ] {
        let exit = ProgramExit { stdout: text.clone().into_bytes(), ..exited(0) };
        let outcome = outcome(StageName::Run, b"", exit);
        assert_eq!(outcome.stdout.len(), text_bytes);
        assert_eq!(outcome.stdout_base64.is_some(), has_exact);
        assert!(text.starts_with(&outcome.stdout));
    }
    for text in [long.as_str(), "é€\u{7f}\"\\\n\r\t\u{8}\u{c}\u{1f} x"] {
        assert_eq!(json_len(text) + 2, serde_json::to_string(text).unwrap().len());
    }
}

#[test]
fn figures_have_one_decimal() {
    for (micros, ms) in [(0, 0.0), (49, 0.0), (50, 0.1), (1_249, 1.2), (300_000, 300.0)] {
        assert_eq!(milliseconds(Duration::from_micros(micros)), ms);
    }
    let exit = ProgramExit {
        cpu: Duration::from_micros(1_260),
        wall: Duration::from_micros(2_010),
        memory_peak_bytes: 5,
        processes_peak: 6,
        ..exited(0)
    };
    let outcome = outcome(StageName::Run, b"", exit);
    assert_eq!((outcome.cpu_ms, outcome.wall_ms), (1.3, 2.0));
    assert_eq!((outcome.memory_peak_bytes, outcome.processes_peak), (5, 6));
}

#[test]
fn signals_have_their_linux_names() {
    for (signal, name) in
        [(1, "SIGHUP"), (6, "SIGABRT"), (9, "SIGKILL"), (25, "SIGXFSZ"), (31, "SIGSYS")]
    {
        assert_eq!(signal_name(signal), name);
    }
    assert_eq!(signal_name(34), "SIG34");
    assert_eq!(signal_name(0), "SIG0");
}

#[test]
fn an_output_file_is_text_or_base64_or_a_reason() {
    let file = output_file("a".to_owned(), Ok(b"x".to_vec()));
    assert_eq!((file.content.as_deref(), file.encoding), (Some("x"), BytesEncoding::Utf8));
    let file = output_file("a".to_owned(), Ok(vec![255]));
    assert_eq!((file.content.as_deref(), file.encoding), (Some("/w=="), BytesEncoding::Base64));
    let file = output_file("a".to_owned(), Err("missing".to_owned()));
    assert_eq!((file.content, file.error.as_deref()), (None, Some("missing")));
}
