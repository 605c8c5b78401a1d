//! A program and its interactor: two concurrent sandboxes, each reading the other's output.
//!
//! The interactor's output goes through a kernel pipe, of which no end stays in this process. The
//! program's output is passed on and counted ([`super::dialogue`]).

use std::io;
use std::pin::Pin;

use tokio::time;

use super::dialogue::{SentBytes, pass_on};
use super::*;
use crate::judge::{FirstToEnd, PEER_GRACE, TalkEnding, TalkVolume, apply_interactor};

/// Ends of two programs.
struct PairEnds {
    program: ProgramExit,
    interactor: ProgramExit,
    /// True if the program was stopped because it sent too much to the interactor.
    is_flood: bool,
}

/// Passes on the output of a program; resolves to whether there was too much of it.
type AnswersRelay<'a> = Pin<Box<dyn Future<Output = io::Result<bool>> + Send + 'a>>;

/// Contents of `outputs`, as far as they exist.
type Contents = Vec<Result<Vec<u8>, String>>;

impl ExecutionRun<'_> {
    /// Runs the only run of a program, with its interactor.
    pub(super) async fn single_pair(
        &mut self,
        ready: &ReadyProgram,
        single: SingleRun,
        other: &ReadyProgram,
        other_start: &ProgramStart,
    ) -> Result<(), SandboxFailure> {
        let SingleRun { start, outputs, outputs_bytes_max, .. } = single;
        let output_request = (outputs.clone(), outputs_bytes_max);
        let other = (other, other_start, Vec::new());
        let ran = self.pair((ready, start), other, output_request, None).await;
        match ran {
            Ok(((program, contents), interactor)) => {
                self.push(StageName::Interactor, ExecutionMode::Fresh, interactor);
                self.push(StageName::Run, ExecutionMode::Fresh, program);
                self.output_files(outputs, contents).await;
                Ok(())
            }
            Err(failure) => {
                self.push(StageName::Run, ExecutionMode::Fresh, verdict::infrastructure_failure());
                Err(failure)
            }
        }
    }

    /// Runs both to their ends. The outcome of the program includes the interactor's judgement.
    pub(super) async fn pair(
        &mut self,
        (ready, start): (&ReadyProgram, ProgramStart),
        (other, other_start, files): (&ReadyProgram, &ProgramStart, Vec<WorkspaceFile>),
        (outputs, outputs_bytes_max): (Vec<String>, u64),
        test: Option<u32>,
    ) -> Result<((StageOutcome, Contents), StageOutcome), SandboxFailure> {
        let mut program = self.command(start, ready.files.clone(), ready.is_compiled);
        let mut interactor = self.judge_command(other, other_start, files);
        let pipe = || std::io::pipe().map_err(|error| SandboxFailure::Infrastructure(error.into()));
        let (reads_answers, writes_answers) = pipe()?;
        let (reads_passed, passes_on) = pipe()?;
        let (reads_questions, writes_questions) = pipe()?;
        program.stdin = StdinSource::Handle(reads_questions.into());
        program.stdout = OutputMode::Handle(writes_answers.into());
        program.outputs = outputs;
        program.outputs_bytes_max = outputs_bytes_max;
        interactor.stdin = StdinSource::Handle(reads_passed.into());
        interactor.stdout = OutputMode::Handle(writes_questions.into());
        let sent = SentBytes::new();
        let sent_max = self.machine.interaction_bytes_max;
        let answers = pass_on(reads_answers.into(), passes_on.into(), sent_max, sent.clone());
        let allowed = program.limits.output_bytes;
        let serving = self.attach(&mut program)?;
        let names = (program_name(&program), program_name(&interactor));

        let (mut one, mut two) = {
            let turn = self.machine.pairs.acquire().await;
            let leased = self.sandbox_with(program.listen.is_some()).await?;
            let both = (leased, self.sandbox().await?);
            drop(turn);
            both
        };
        let mut span = self.stage_span(StageName::Run, test);
        traces::pass_on(&span, &mut program);
        let bound = serving.as_ref().and_then(|_| span.bind(&self.id.0));
        self.progress.stage(StageName::Interactor, test);
        self.progress.stage(StageName::Run, test);
        let mut sink = ProgramOutputSink(&mut *self.progress);
        let ends =
            both(&mut *one, program, serving, &mut sink, &mut *two, interactor, Box::pin(answers))
                .await;
        drop(bound);
        self.since = self.machine.metrics.observe(TimedPart::Run, self.since);
        let PairEnds { program: mut exit, interactor, is_flood } = ends?;
        // By the clock, not by the order of reports: a report takes longer if processes remain to
        // be killed.
        let first = FirstToEnd::by_clock(exit.ended, interactor.ended, !exit.breaches.is_empty());
        let volume = match sent.get() {
            _ if is_flood => TalkVolume::TooMuch(sent_max),
            sent if sent > allowed => TalkVolume::BeyondLimit(allowed),
            _ => TalkVolume::WithinLimit,
        };
        let ending = TalkEnding { first, stopped: exit.stopped, volume };
        let contents = std::mem::take(&mut exit.outputs);
        let mut outcome = judged(self.id, StageName::Run, names.0, exit).await;
        let interactor = judged(self.id, StageName::Interactor, names.1, interactor).await;
        apply_interactor(&mut outcome, &interactor, ending);
        traces::describe(&mut span, &outcome);
        self.progress.exit(StageName::Interactor, test, ExecutionMode::Fresh, &interactor);
        self.progress.exit(StageName::Run, test, ExecutionMode::Fresh, &outcome);
        Ok(((outcome, contents), interactor))
    }
}

/// Runs two commands concurrently. When one has ended, the other has a short time left.
async fn both(
    one: &mut dyn LeasedSandbox,
    mut program: SandboxCommand,
    serving: Option<GrantSockets>,
    sink: &mut dyn OutputSink,
    two: &mut dyn LeasedSandbox,
    mut interactor: SandboxCommand,
    mut answers: AnswersRelay<'_>,
) -> Result<PairEnds, SandboxFailure> {
    let (stop_program, control) = mpsc::channel(1);
    program.control = Some(control);
    let (stop_interactor, control) = mpsc::channel(1);
    interactor.control = Some(control);
    let mut nothing = ();
    let mut one = grants::run(one, program, serving, sink);
    let mut two = two.run(interactor, &mut nothing);
    let mut is_flood = false;
    let (program, interactor) = loop {
        tokio::select! {
            ended = two.as_mut() => {
                let interactor = ended?;
                // The program's output has no reader any more; the end of its pipe shows that to
                // the program.
                drop(answers);
                break (finish(one.as_mut(), &stop_program).await?, interactor);
            }
            ended = one.as_mut() => {
                let program = ended?;
                // Its last output may not have been passed on yet.
                let passing = async {
                    drop(answers.as_mut().await);
                    std::future::pending::<()>().await;
                };
                let interactor = tokio::select! {
                    ended = finish(two.as_mut(), &stop_interactor) => ended?,
                    // Unreachable: the future never resolves.
                    () = passing => continue,
                };
                break (program, interactor);
            }
            passed = answers.as_mut() => {
                is_flood = passed.map_err(|error| SandboxFailure::Infrastructure(error.into()))?;
                // The pipes of the relay are closed by now.
                answers = Box::pin(std::future::pending());
                if is_flood {
                    stop_program.try_send(ProgramControl::Stop).ok();
                }
            }
        }
    };
    Ok(PairEnds { program, interactor, is_flood })
}

/// Waits for the end, and stops the program after a grace period.
async fn finish(
    mut run: Pin<&mut (dyn Future<Output = Result<ProgramExit, SandboxFailure>> + Send)>,
    stop: &mpsc::Sender<ProgramControl>,
) -> Result<ProgramExit, SandboxFailure> {
    if let Ok(ended) = time::timeout(PEER_GRACE, run.as_mut()).await {
        return ended;
    }
    // There is no other sender, so there is room; a closed channel means that the program has
    // ended.
    stop.try_send(ProgramControl::Stop).ok();
    run.await
}
