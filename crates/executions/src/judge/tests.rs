//! Every pair of ends of a program and its judge, and the verdict.

use super::*;
use crate::verdict;

fn outcome(verdict: Verdict, exit_code: Option<i32>, signal: Option<&str>) -> StageOutcome {
    StageOutcome {
        verdict,
        exit_code,
        signal: signal.map(str::to_owned),
        message: None,
        ..verdict::infrastructure_failure()
    }
}

/// Parses `OK`, `RE 3`, `SG SIGPIPE`, `TLE`, as in results.
fn ended(text: &str) -> StageOutcome {
    let (verdict, detail) = text.split_once(' ').unwrap_or((text, ""));
    match verdict {
        "OK" => outcome(Verdict::Ok, Some(0), None),
        "RE" => outcome(Verdict::Re, Some(detail.parse().unwrap()), None),
        "SG" => outcome(Verdict::Sg, None, Some(detail)),
        "TLE" => StageOutcome {
            limit: Some(LimitHit::Wall),
            ..outcome(Verdict::Tle, None, Some("SIGKILL"))
        },
        "MLE" => StageOutcome {
            limit: Some(LimitHit::Memory),
            ..outcome(Verdict::Mle, None, Some("SIGKILL"))
        },
        "IE" => outcome(Verdict::Ie, None, None),
        _ => panic!("{text}"),
    }
}

#[test]
fn a_checker_accepts_refuses_or_fails() {
    for (checker, expected) in [
        ("OK", "OK"),
        ("RE 1", "WA"),
        ("RE 2", "WA"),
        ("RE 3", "JF"),
        ("RE 127", "JF"),
        ("SG SIGSEGV", "JF"),
        ("TLE", "JF"),
        ("MLE", "JF"),
        ("IE", "IE"),
    ] {
        let mut program = ended("OK");
        apply_checker(&mut program, &ended(checker));
        assert_eq!(program.verdict.as_str(), expected, "{checker}");
    }
}

#[test]
fn the_first_to_decide_decides() {
    use FirstToEnd::{Interactor, Program, Together};
    for (program, interactor, first, expected) in [
        ("OK", "OK", Program, "OK"),
        ("OK", "OK", Interactor, "OK"),
        ("OK", "RE 1", Program, "WA"),
        ("OK", "RE 2", Interactor, "WA"),
        ("OK", "RE 3", Program, "JF"),
        ("OK", "SG SIGSEGV", Interactor, "JF"),
        ("OK", "TLE", Program, "JF"),
        // The program failed, and the interactor only saw the end of its input.
        ("RE 1", "RE 1", Program, "RE"),
        ("RE 1", "RE 3", Program, "RE"),
        ("SG SIGSEGV", "OK", Program, "SG"),
        ("TLE", "RE 2", Program, "TLE"),
        ("MLE", "SG SIGPIPE", Program, "MLE"),
        // The interactor had decided, and the program failed because it had no peer.
        ("RE 1", "RE 1", Interactor, "WA"),
        ("SG SIGPIPE", "RE 1", Interactor, "WA"),
        ("SG SIGPIPE", "OK", Interactor, "OK"),
        ("RE 1", "SG SIGSEGV", Interactor, "JF"),
        // The interactor accepted, and the program failed on its own.
        ("RE 1", "OK", Interactor, "RE"),
        ("TLE", "OK", Interactor, "TLE"),
        // The interactor causes a broken pipe, whichever end is noticed first.
        ("SG SIGPIPE", "RE 1", Program, "WA"),
        ("SG SIGPIPE", "RE 3", Program, "JF"),
        ("IE", "RE 1", Interactor, "IE"),
        // The order is unknown: a refusal counts, a failure that may follow from the program's does
        // not.
        ("RE 1", "RE 1", Together, "WA"),
        ("RE 1", "RE 3", Together, "RE"),
        ("OK", "RE 3", Together, "JF"),
        ("OK", "OK", Together, "OK"),
        ("OK", "IE", Program, "IE"),
    ] {
        let mut outcome = ended(program);
        let ending = TalkEnding { first, stopped: false, volume: TalkVolume::WithinLimit };
        apply_interactor(&mut outcome, &ended(interactor), ending);
        let verdict = outcome.verdict.as_str();
        assert_eq!(verdict, expected, "{program}, {interactor}, first {first:?}");
        assert!(outcome.limit.is_none() || ["TLE", "MLE"].contains(&verdict));
    }
}

#[test]
fn ends_have_an_order_when_they_are_far_enough_apart() {
    let ms = Duration::from_millis;
    for (program, interactor, by_limit, expected) in [
        (100, 200, false, FirstToEnd::Program),
        (200, 100, false, FirstToEnd::Interactor),
        (100, 110, false, FirstToEnd::Together),
        (110, 100, false, FirstToEnd::Together),
        (100, 101, true, FirstToEnd::Program),
        (101, 100, true, FirstToEnd::Interactor),
    ] {
        let first = FirstToEnd::by_clock(ms(program), ms(interactor), by_limit);
        assert_eq!(first, expected, "{program} {interactor} {by_limit}");
    }
}

#[test]
fn a_program_that_goes_on_is_stopped_by_the_clock() {
    for (interactor, expected) in [("OK", "TLE"), ("RE 1", "WA"), ("RE 9", "JF")] {
        let mut program = ended("SG SIGKILL");
        let ending = TalkEnding {
            first: FirstToEnd::Interactor,
            stopped: true,
            volume: TalkVolume::WithinLimit,
        };
        apply_interactor(&mut program, &ended(interactor), ending);
        assert_eq!(program.verdict.as_str(), expected, "{interactor}");
        let limit = (expected == "TLE").then_some(LimitHit::Wall);
        assert_eq!(program.limit, limit);
    }
}

/// A contestant whose answer is wrong must not be able to turn it into a failure of the judge.
#[test]
fn a_program_that_says_too_much_fails_by_itself() {
    let (beyond, flood) = (TalkVolume::BeyondLimit(10), TalkVolume::TooMuch(20));
    for (program, interactor, first, stopped, volume, expected) in [
        ("SG SIGPIPE", "MLE", FirstToEnd::Interactor, false, beyond, "OLE"),
        ("SG SIGKILL", "TLE", FirstToEnd::Interactor, true, beyond, "OLE"),
        ("OK", "MLE", FirstToEnd::Program, false, beyond, "OLE"),
        // Python does not die of a broken pipe; it fails with an error.
        ("RE 1", "MLE", FirstToEnd::Interactor, false, beyond, "OLE"),
        ("RE 1", "MLE", FirstToEnd::Together, false, beyond, "OLE"),
        ("SG SIGKILL", "OK", FirstToEnd::Program, true, flood, "OLE"),
        ("SG SIGKILL", "RE 1", FirstToEnd::Program, true, flood, "OLE"),
        ("TLE", "MLE", FirstToEnd::Program, false, flood, "OLE"),
        // Its output was within the limit: the interactor's failure is its own.
        ("SG SIGPIPE", "MLE", FirstToEnd::Interactor, false, TalkVolume::WithinLimit, "JF"),
        // No limit made the interactor fail.
        ("SG SIGPIPE", "RE 3", FirstToEnd::Interactor, false, beyond, "JF"),
        ("OK", "SG SIGSEGV", FirstToEnd::Program, false, beyond, "JF"),
        // Judged before, failed on its own, or correct.
        ("SG SIGPIPE", "RE 1", FirstToEnd::Interactor, false, flood, "WA"),
        ("RE 1", "MLE", FirstToEnd::Program, false, beyond, "RE"),
        ("OK", "OK", FirstToEnd::Program, false, beyond, "OK"),
        ("OK", "IE", FirstToEnd::Program, false, flood, "IE"),
    ] {
        let mut outcome = ended(program);
        apply_interactor(&mut outcome, &ended(interactor), TalkEnding { first, stopped, volume });
        let verdict = outcome.verdict.as_str();
        assert_eq!(verdict, expected, "{program}, {interactor}, first {first:?}, {volume:?}");
        assert_eq!(outcome.limit == Some(LimitHit::Output), expected == "OLE");
    }
}

#[test]
fn the_message_is_what_the_judge_said() {
    let message_of = |judge: &str, stdout: &str, stderr: &str| {
        let mut program = ended("OK");
        let judge =
            StageOutcome { stdout: stdout.to_owned(), stderr: stderr.to_owned(), ..ended(judge) };
        apply_checker(&mut program, &judge);
        program.message
    };
    assert_eq!(message_of("OK", "", ""), None);
    assert_eq!(message_of("RE 1", "out", " err\n").as_deref(), Some("err"));
    assert_eq!(message_of("RE 1", "out\n", " \n").as_deref(), Some("out"));
    assert_eq!(message_of("RE 7", "", "").as_deref(), Some("the checker failed: exited with 7"));
    let message = message_of("TLE", "", "slow").unwrap();
    assert_eq!(message, "the checker failed: reached its wall limit: slow");
}

#[test]
fn an_answer_holds_so_much_output_and_no_more() {
    let mut left = 10;
    let with = |text: &str| StageOutcome { stdout: text.to_owned(), ..ended("OK") };
    let mut first = with("12345678");
    bound_output(&mut first, &mut left);
    assert_eq!((first.stdout.as_str(), left), ("12345678", 2));
    let mut second = with("123");
    bound_output(&mut second, &mut left);
    assert!(second.stdout.is_empty() && second.truncated.stdout && !second.truncated.stderr);
    assert!(second.message.unwrap().contains("left out"));
    let mut third = with("12");
    bound_output(&mut third, &mut left);
    assert_eq!((third.stdout.as_str(), left), ("12", 0));
}

#[test]
fn bytes_survive_the_way_into_text() {
    for bytes in [&b"text"[..], b"\xff\0", b""] {
        let exit =
            sandbox::ProgramExit { code: Some(0), stdout: bytes.to_vec(), ..Default::default() };
        let outcome = verdict::outcome(api::StageName::Run, b"x", exit);
        assert_eq!(stdout_bytes(&outcome), bytes);
    }
}
