//! The decision whether an answer is right: by a rule, a checker afterwards, an interactor
//! meanwhile. Pure: how they ended goes in, a verdict comes out.

pub(crate) mod compare;

use std::time::Duration;

use api::{LimitHit, StageOutcome, Verdict};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::verdict::output_bytes;

/// Names of the files that a checker or interactor gets: the test's input, the program's output,
/// the expected output. Their names follow its own arguments in this order, which is that of
/// testlib's `registerTestlibCmd` and `registerInteraction`. The output file of an interactor is
/// its own to write.
pub(crate) const INPUT: &str = "input.txt";
/// See [`INPUT`].
pub(crate) const OUTPUT: &str = "output.txt";
/// See [`INPUT`].
pub(crate) const ANSWER: &str = "answer.txt";

/// Time that a program and its interactor may go on when the other one has ended. Enough to read
/// what is left in the pipe and to exit; a judge that has all it needs does not compute for long.
pub(crate) const PEER_GRACE: Duration = Duration::from_secs(2);
/// Delay with which the end of a program may be noticed on a busy machine. Two ends that are nearer
/// than this have no order; then an interactor's refusal counts, because a program that finds
/// nobody to talk to fails within that time, and a program's failure counts before an interactor's.
const NOTICED_WITHIN: Duration = Duration::from_millis(20);
/// Bytes that are kept of what a checker or interactor writes, of each stream.
pub(crate) const SAID_BYTES_MAX: u64 = 4096;

/// Codes of a checker or interactor: testlib's "wrong answer" and "presentation error".
const REFUSES: [i32; 2] = [1, 2];
/// Signal that ends a program that writes to a pipe without a reader.
const BROKEN_PIPE: &str = "SIGPIPE";

/// The program of two that ended first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstToEnd {
    Program,
    /// Unknown: the end of each is noticed a little after it.
    Together,
    Interactor,
}

impl FirstToEnd {
    /// From when the end of each was noticed. `by_limit` tells that the program was ended for one
    /// of its limits: that is noticed before the end, so the interactor's can only follow.
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

/// Amount of what a program has said to its interactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TalkVolume {
    /// No more than it may write.
    WithinLimit,
    /// More than its output limit, which is this: it is passed on, at the program's risk.
    BeyondLimit(u64),
    /// More than is passed on, so that it was stopped.
    TooMuch(u64),
}

/// The ends of a program and its interactor, and what led to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TalkEnding {
    pub(crate) first: FirstToEnd,
    /// True when the program was stopped for going on after the interactor.
    pub(crate) stopped: bool,
    pub(crate) volume: TalkVolume,
}

/// Opinion of a checker or interactor, by its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JudgeOpinion {
    Right,
    Wrong,
    /// Failed at its own task.
    Broken,
    /// Cove failed at running it.
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

/// Lays the opinion of a checker over the outcome of a program that ended well.
pub(crate) fn apply_checker(program: &mut StageOutcome, checker: &StageOutcome) {
    program.verdict = match opinion(checker) {
        JudgeOpinion::Right => Verdict::Ok,
        JudgeOpinion::Wrong => Verdict::Wa,
        JudgeOpinion::Broken => Verdict::Jf,
        JudgeOpinion::Lost => Verdict::Ie,
    };
    program.message = message_of("checker", checker);
}

/// Lays the opinion of an interactor over the outcome of the program it talked to.
///
/// The program's own failure counts, unless it follows from the interactor's end: then that had
/// decided before. An interactor that reaches one of its limits over a program that says more than
/// its output limit has not failed: the program has.
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

/// The outcome of a program that was not run, because its judge could not be compiled.
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

/// Returns the message of a judge: its standard error, else its standard output, else how it ended.
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

/// Leaves the output out of `outcome` when the answer holds too much of it already; `left` is what
/// it may still hold.
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

/// The exact bytes of an outcome's standard output.
pub(crate) fn stdout_bytes(outcome: &StageOutcome) -> Vec<u8> {
    // What is in `stdout_base64` was written by this server, and decodes.
    let exact = outcome.stdout_base64.as_ref().and_then(|text| BASE64.decode(text).ok());
    exact.unwrap_or_else(|| outcome.stdout.as_bytes().to_vec())
}

#[cfg(test)]
mod tests;
