//! Decides whether an answer is right: by a rule, by a checker afterwards, or by an interactor
//! during the run. Pure: turns the ends of programs into a verdict.

pub(crate) mod compare;

use std::time::Duration;

use api::{LimitHit, StageOutcome, Verdict};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::verdict::output_bytes;

/// Names of the files that a checker or interactor gets: the test's input, the program's output,
/// the expected output. The names follow its own arguments in this order, which is that of
/// testlib's `registerTestlibCmd` and `registerInteraction`. An interactor writes the output file
/// itself.
pub(crate) const INPUT: &str = "input.txt";
/// See [`INPUT`].
pub(crate) const OUTPUT: &str = "output.txt";
/// See [`INPUT`].
pub(crate) const ANSWER: &str = "answer.txt";

/// Time that a program or its interactor may continue when the other one has ended. Enough to read
/// the rest of the pipe and to exit; a judge that has its whole input does not compute for long.
pub(crate) const PEER_GRACE: Duration = Duration::from_secs(2);
/// Delay with which the end of a program may be noticed on a busy machine. Two ends within this
/// time have no order; then an interactor's refusal counts, because a program whose interactor has
/// ended fails within that time, and a program's failure counts before an interactor's.
const NOTICED_WITHIN: Duration = Duration::from_millis(20);
/// Maximum bytes that are kept of a checker's or interactor's output, for each stream.
pub(crate) const SAID_BYTES_MAX: u64 = 4096;

/// Exit codes of a checker or interactor: testlib's "wrong answer" and "presentation error".
const REFUSES: [i32; 2] = [1, 2];
/// Signal that ends a program that writes to a pipe without a reader.
const BROKEN_PIPE: &str = "SIGPIPE";

/// Which of two programs ended first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstToEnd {
    Program,
    /// Unknown: the end of each is noticed with a delay.
    Together,
    Interactor,
}

impl FirstToEnd {
    /// Compares the times at which the ends were noticed. `by_limit` is true if the program was
    /// killed for one of its limits: that is noticed before its end, so the interactor's end can
    /// only follow.
    pub(crate) fn by_clock(program: Duration, interactor: Duration, by_limit: bool) -> FirstToEnd {
        let apart = if by_limit { Duration::ZERO } else { NOTICED_WITHIN };
        if program.saturating_add(apart) < interactor {
            FirstToEnd::Program
        } else if interactor.saturating_add(apart) < program {
            FirstToEnd::Interactor
        } else {
            FirstToEnd::Together
        }
    }
}

/// Amount of a program's output to its interactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TalkVolume {
    /// Within its output limit.
    WithinLimit,
    /// More than its output limit, which is this: it is passed on, at the program's risk.
    BeyondLimit(u64),
    /// More than the maximum that is passed on, so the program was stopped.
    TooMuch(u64),
}

/// The order of the ends of a program and its interactor, and their circumstances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TalkEnding {
    pub(crate) first: FirstToEnd,
    /// True if the program was stopped because it continued after the interactor.
    pub(crate) stopped: bool,
    pub(crate) volume: TalkVolume,
}

/// Judgement of a checker or interactor, by its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JudgeOpinion {
    Right,
    Wrong,
    /// The judge itself failed.
    Broken,
    /// Cove failed to run the judge.
    Lost,
}

fn opinion(judge: &StageOutcome) -> JudgeOpinion {
    match (judge.verdict, judge.exit_code) {
        (Verdict::Ok, _) => JudgeOpinion::Right,
        (Verdict::Re, Some(code)) if REFUSES.contains(&code) => JudgeOpinion::Wrong,
        (Verdict::Ie, _) => JudgeOpinion::Lost,
        (_, _) => JudgeOpinion::Broken,
    }
}

/// Applies the judgement of a checker to the outcome of a program that ended well.
pub(crate) fn apply_checker(program: &mut StageOutcome, checker: &StageOutcome) {
    program.verdict = match opinion(checker) {
        JudgeOpinion::Right => Verdict::Ok,
        JudgeOpinion::Wrong => Verdict::Wa,
        JudgeOpinion::Broken => Verdict::Jf,
        JudgeOpinion::Lost => Verdict::Ie,
    };
    program.message = message_of("checker", checker);
}

/// Applies the judgement of an interactor to the outcome of its program.
///
/// The program's own failure counts, unless it follows from the interactor's end: then the
/// interactor had already decided. If an interactor reaches one of its limits because the program
/// sends more than its output limit, the program has failed and not the interactor.
pub(crate) fn apply_interactor(
    program: &mut StageOutcome,
    interactor: &StageOutcome,
    ending: TalkEnding,
) {
    let TalkEnding { first, stopped, volume: talk } = ending;
    let opinion = opinion(interactor);
    let deaf = program.signal.as_deref() == Some(BROKEN_PIPE);
    let flooded = match talk {
        TalkVolume::TooMuch(max) => Some(format!("sent more than {max} bytes to the interactor")),
        TalkVolume::BeyondLimit(max) => {
            interactor.limit.filter(|_| opinion == JudgeOpinion::Broken).map(|limit| {
                format!(
                    "sent more than {max} bytes to the interactor, which reached its {limit} limit"
                )
            })
        }
        TalkVolume::WithinLimit => None,
    };
    let own = program.verdict != Verdict::Ok && !deaf && !stopped;
    let had_decided = opinion == JudgeOpinion::Wrong && first == FirstToEnd::Interactor;
    if let Some(message) = flooded
        && opinion != JudgeOpinion::Lost
        && program.verdict != Verdict::Ie
        && !had_decided
        && (!own || first != FirstToEnd::Program || matches!(talk, TalkVolume::TooMuch(_)))
    {
        program.verdict = Verdict::Ole;
        program.limit = Some(LimitHit::Output);
        program.message = Some(message);
        return;
    }
    let verdict = match (opinion, first) {
        (JudgeOpinion::Lost, _) => Some(Verdict::Ie),
        _ if program.verdict == Verdict::Ie => None,
        (JudgeOpinion::Wrong, FirstToEnd::Interactor | FirstToEnd::Together) => Some(Verdict::Wa),
        (JudgeOpinion::Broken, FirstToEnd::Interactor) => Some(Verdict::Jf),
        _ if own => None,
        (JudgeOpinion::Wrong, FirstToEnd::Program) => Some(Verdict::Wa),
        (JudgeOpinion::Broken, FirstToEnd::Program | FirstToEnd::Together) => Some(Verdict::Jf),
        (JudgeOpinion::Right, _) if stopped => {
            program.limit = Some(LimitHit::Wall);
            program.message = Some("did not end when the interactor had".to_owned());
            program.verdict = Verdict::Tle;
            return;
        }
        (JudgeOpinion::Right, _) => Some(Verdict::Ok),
    };
    if let Some(verdict) = verdict {
        program.verdict = verdict;
        program.limit = None;
        program.message = message_of("interactor", interactor);
    }
}

/// Returns the outcome of a program that was not run because its judge could not be compiled.
pub(crate) fn not_compiled(who: &str, compiler: &StageOutcome) -> StageOutcome {
    let verdict = match compiler.verdict {
        Verdict::Ie => Verdict::Ie,
        _ => Verdict::Jf,
    };
    StageOutcome {
        verdict,
        message: Some(format!("the {who} did not compile")),
        ..compiler.clone()
    }
}

/// Returns the message of a judge: its standard error, else its standard output, else its end.
fn message_of(who: &str, judge: &StageOutcome) -> Option<String> {
    let text = [&judge.stderr, &judge.stdout].into_iter().map(|text| text.trim());
    let text = text.filter(|text| !text.is_empty()).map(str::to_owned).next();
    match opinion(judge) {
        JudgeOpinion::Right | JudgeOpinion::Wrong => text,
        JudgeOpinion::Broken | JudgeOpinion::Lost => {
            let how = match (&judge.message, &judge.signal, judge.exit_code, judge.limit) {
                (Some(message), ..) => message.clone(),
                (None, _, _, Some(limit)) => format!("reached its {limit} limit"),
                (None, Some(signal), ..) => format!("ended by {signal}"),
                (None, None, Some(code), None) => format!("exited with {code}"),
                (None, None, None, None) => "did not end by itself".to_owned(),
            };
            Some(match text {
                Some(text) => format!("the {who} failed: {how}: {text}"),
                None => format!("the {who} failed: {how}"),
            })
        }
    }
}

/// Removes the output from `outcome` if the answer already contains too much of it; `left` is the
/// remaining budget.
pub(crate) fn bound_output(outcome: &mut StageOutcome, left: &mut u64) {
    let bytes = u64::try_from(output_bytes(outcome)).unwrap_or(u64::MAX);
    if bytes <= *left {
        *left -= bytes;
        return;
    }
    outcome.truncated.stdout |= !outcome.stdout.is_empty();
    outcome.truncated.stderr |= !outcome.stderr.is_empty();
    outcome.stdout.clear();
    outcome.stderr.clear();
    outcome.stdout_base64 = None;
    outcome.stderr_base64 = None;
    let note = "its output is left out: that of the test cases before it fills the answer";
    outcome.message = Some(match outcome.message.take() {
        Some(message) => format!("{message}; {note}"),
        None => note.to_owned(),
    });
}

/// Returns the exact bytes of an outcome's standard output.
pub(crate) fn stdout_bytes(outcome: &StageOutcome) -> Vec<u8> {
    // This server wrote `stdout_base64`, so it decodes.
    let exact = outcome.stdout_base64.as_ref().and_then(|text| BASE64.decode(text).ok());
    exact.unwrap_or_else(|| outcome.stdout.as_bytes().to_vec())
}

#[cfg(test)]
mod tests;
