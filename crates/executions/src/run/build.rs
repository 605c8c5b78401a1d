//! Turns a program's files into a program that can be started: compiled now, taken from the cache,
//! or unchanged.

use std::time::Duration;

use super::*;
use crate::cache::{CacheLookup, CompileEnd, CompileLeader, CompiledProgram};
use crate::languages::CompileArtifacts;
use crate::plan::{CompileStage, ProgramRecipe, check_path};
use sandbox::{SharedFile, WorkspaceContent};

/// Maximum bytes of the results of one compilation. Larger ones are run where they were compiled,
/// once.
const ARTIFACTS_BYTES_MAX: u64 = 64 << 20;
/// Wall time of the command that lists the results of a compilation.
const LIST_WALL: Duration = Duration::from_secs(10);
/// Output limit of that command: the maximum number of names, of usual length.
const LIST_OUTPUT_BYTES: u64 = 64 << 10;

/// Outcome of the build of a program.
pub(super) enum BuiltProgram {
    /// The program's files can be placed anywhere, any number of times.
    Ready(ReadyProgram),
    /// The program must run in the sandbox in which it was compiled.
    Here(Box<dyn LeasedSandbox>),
    /// The compiler refused the program; the stage has the reason.
    Refused,
}

impl ExecutionRun<'_> {
    /// Compiles a program if necessary. `stage` determines its role.
    pub(super) async fn build(
        &mut self,
        recipe: ProgramRecipe,
        stage: StageName,
    ) -> Result<BuiltProgram, SandboxFailure> {
        let ProgramRecipe { files, compile } = recipe;
        let Some(CompileStage { start, program }) = compile else {
            return Ok(BuiltProgram::Ready(ReadyProgram { files, is_compiled: false }));
        };
        let artifacts = program.way().artifacts.as_ref();
        let mut command = command(start, Vec::new(), false);
        command.profile = SeccompProfile::Compile;
        command.last = false;
        if let Some(artifacts) = artifacts {
            let names = artifacts.programs.iter().chain(&artifacts.files);
            command.outputs = names.cloned().collect();
            command.outputs_bytes_max = ARTIFACTS_BYTES_MAX;
        }
        let Some(artifacts) = artifacts.filter(|_| !self.fresh) else {
            return self.compile(stage, (command, files), artifacts, None).await;
        };
        let machine = self.machine;
        let mut tools = program.tools();
        if let Some(template) = self.template {
            // The template contains files that a compiler may read, and programs that it may start.
            tools.push_str("\ntemplate\n");
            tools.push_str(&template.key);
        }
        let key = machine.cache.key(self.tenant, &tools, &command, &files);
        match machine.cache.find(key).await {
            CacheLookup::Hit(compiled) | CacheLookup::Joined(CompileEnd::Compiled(compiled)) => {
                let outcome = self.cached(stage, program_name(&command), &compiled.exit).await;
                Ok(self.built(
                    stage,
                    ExecutionMode::Cached,
                    outcome,
                    Some(placed(files, &compiled.files)),
                ))
            }
            CacheLookup::Joined(CompileEnd::Refused(exit)) => {
                let outcome = self.cached(stage, program_name(&command), &exit).await;
                Ok(self.built(stage, ExecutionMode::Cached, outcome, None))
            }
            CacheLookup::Lead(leader) => {
                self.compile(stage, (command, files), Some(artifacts), Some(leader)).await
            }
        }
    }

    /// Returns an earlier outcome of a compiler, with no time for it now.
    async fn cached(
        &mut self,
        stage: StageName,
        program: Vec<u8>,
        exit: &ProgramExit,
    ) -> StageOutcome {
        self.progress.stage(stage, None);
        for (stream, bytes) in
            [(ChunkStream::Stdout, &exit.stdout), (ChunkStream::Stderr, &exit.stderr)]
        {
            if !bytes.is_empty() {
                self.progress.chunk(stream, bytes);
            }
        }
        let exit = ProgramExit {
            cpu: Duration::ZERO,
            wall: Duration::ZERO,
            memory_peak_bytes: 0,
            processes_peak: 0,
            ..exit.clone()
        };
        judged(self.id, StageName::Compile, program, exit).await
    }

    /// Compiles now. `leader` publishes the result, if it may be shared.
    async fn compile(
        &mut self,
        stage: StageName,
        (mut command, files): (SandboxCommand, Vec<WorkspaceFile>),
        artifacts: Option<&CompileArtifacts>,
        leader: Option<CompileLeader<'_>>,
    ) -> Result<BuiltProgram, SandboxFailure> {
        let program = program_name(&command);
        let limits = command.limits;
        let env = command.env.clone();
        command.files.clone_from(&files);
        // Its program may have to run here, too; the compiler itself has no access to the grants.
        let may_stay = stage == StageName::Compile && !self.needs_artifacts;
        let mut sandbox = self.sandbox_with(may_stay && self.granted.is_some()).await?;
        self.progress.stage(stage, None);
        let mut span = self.stage_span(StageName::Compile, None);
        let ran = sandbox.run(command, &mut ProgramOutputSink(&mut *self.progress)).await;
        self.since = self.machine.metrics.observe(TimedPart::Compile, self.since);
        let mut exit = match ran {
            Ok(exit) => exit,
            Err(failure) => {
                self.push(stage, ExecutionMode::Fresh, verdict::infrastructure_failure());
                return Err(failure);
            }
        };
        let contents = std::mem::take(&mut exit.outputs);
        let outcome = judged(self.id, StageName::Compile, program, exit.clone()).await;
        traces::describe(&mut span, &outcome);
        span.end();
        if outcome.verdict != Verdict::Ok {
            if let (Some(leader), Verdict::Ce) = (leader, outcome.verdict) {
                leader.publish(CompileEnd::Refused(Arc::new(exit)));
            }
            return Ok(self.built(stage, ExecutionMode::Fresh, outcome, None));
        }
        let collected = match artifacts {
            None => None,
            Some(artifacts) => {
                let list = (&*artifacts.list, env, limits);
                let listed = listed(&mut *sandbox, list).await?;
                listed.and_then(|listed| collect(artifacts, contents, listed))
            }
        };
        let Some(made) = collected else {
            // Results that cannot be taken out are run in this sandbox.
            if stage != StageName::Compile || self.needs_artifacts {
                let message = format!(
                    "what was compiled cannot be taken over: it must be {} files of {} bytes at \
                     most, at their usual places",
                    sandbox::OUTPUTS_MAX,
                    ARTIFACTS_BYTES_MAX
                );
                let outcome =
                    StageOutcome { verdict: Verdict::Ce, message: Some(message), ..outcome };
                return Ok(self.built(stage, ExecutionMode::Fresh, outcome, None));
            }
            self.built(stage, ExecutionMode::Fresh, outcome, None);
            return Ok(BuiltProgram::Here(sandbox));
        };
        // Only one sandbox is held at a time.
        drop(sandbox);
        let ready = match leader.and_then(|leader| Some((leader, shared(&made)?))) {
            None => placed(files, &made),
            Some((leader, shared)) => {
                let ready = placed(files, &shared);
                leader.publish(CompileEnd::Compiled(Arc::new(CompiledProgram {
                    exit,
                    files: shared,
                })));
                ready
            }
        };
        Ok(self.built(stage, ExecutionMode::Fresh, outcome, Some(ready)))
    }

    /// Reports the end of a compile stage, and returns the program to run.
    fn built(
        &mut self,
        stage: StageName,
        mode: ExecutionMode,
        outcome: StageOutcome,
        ready: Option<ReadyProgram>,
    ) -> BuiltProgram {
        let outcome = match (stage, outcome.verdict) {
            (StageName::Compile | StageName::Run, _) | (_, Verdict::Ok) => outcome,
            (StageName::Checker, _) => judge::not_compiled("checker", &outcome),
            (StageName::Interactor, _) => judge::not_compiled("interactor", &outcome),
        };
        self.progress.exit(stage, None, mode, &outcome);
        let is_ok = outcome.verdict == Verdict::Ok;
        if stage == StageName::Compile {
            self.is_cached = mode == ExecutionMode::Cached;
            self.push(stage, mode, outcome);
        } else if !is_ok {
            self.push(stage, mode, outcome);
        }
        match ready.filter(|_| is_ok) {
            Some(ready) => BuiltProgram::Ready(ready),
            None => BuiltProgram::Refused,
        }
    }
}

/// Returns names and contents of the files that a command lists; `None` if it fails.
async fn listed(
    sandbox: &mut dyn LeasedSandbox,
    (argv, env, limits): (&[String], Vec<Vec<u8>>, ProgramLimits),
) -> Result<Option<Vec<(String, Vec<u8>)>>, SandboxFailure> {
    if argv.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let command = |outputs: Vec<String>| SandboxCommand {
        argv: argv.iter().map(|word| word.as_bytes().to_vec()).collect(),
        env: env.clone(),
        limits: ProgramLimits { wall: LIST_WALL, output_bytes: LIST_OUTPUT_BYTES, ..limits },
        profile: SeccompProfile::Compile,
        outputs,
        outputs_bytes_max: ARTIFACTS_BYTES_MAX,
        ..SandboxCommand::default()
    };
    let exit = sandbox.run(command(Vec::new()), &mut ()).await?;
    if exit.code != Some(0) || !exit.breaches.is_empty() {
        return Ok(None);
    }
    let Some(names) = names(&exit.stdout) else { return Ok(None) };
    // Runs the same command again, for the contents; nothing runs in between that could change
    // them.
    let exit = sandbox.run(command(names.clone()), &mut ()).await?;
    let contents: Result<Vec<_>, _> = exit.outputs.into_iter().collect();
    Ok(contents.ok().map(|contents| names.into_iter().zip(contents).collect()))
}

/// Parses names from a list with a NUL after each. A compiler can be tricked into writing anything,
/// so they are checked like a caller's.
fn names(list: &[u8]) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for name in list.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = std::str::from_utf8(name).ok()?;
        let name = name.strip_prefix("./").unwrap_or(name);
        check_path(name).ok()?;
        names.push(name.to_owned());
    }
    (!names.is_empty() && names.len() <= sandbox::OUTPUTS_MAX).then_some(names)
}

/// Collects the files that a compiler made; `None` if one is missing.
fn collect(
    artifacts: &CompileArtifacts,
    contents: Vec<Result<Vec<u8>, String>>,
    listed: Vec<(String, Vec<u8>)>,
) -> Option<Vec<WorkspaceFile>> {
    let programs = artifacts.programs.iter().map(|name| (name, true));
    let files = artifacts.files.iter().map(|name| (name, false));
    let mut made = Vec::with_capacity(contents.len() + listed.len());
    let mut contents = contents.into_iter();
    for (name, executable) in programs.chain(files) {
        let content = contents.next()?.ok()?;
        made.push(WorkspaceFile { path: name.clone(), content: content.into(), executable });
    }
    made.extend(listed.into_iter().map(|(path, content)| WorkspaceFile {
        path,
        content: content.into(),
        executable: false,
    }));
    Some(made)
}

/// Returns the files as sealed ones; `None` if descriptors or memory for them run out.
fn shared(made: &[WorkspaceFile]) -> Option<Vec<WorkspaceFile>> {
    let share = |file: &WorkspaceFile| -> std::io::Result<WorkspaceFile> {
        let shared = SharedFile::from_bytes(&file.content.read()?)?;
        Ok(WorkspaceFile { content: WorkspaceContent::Shared(Arc::new(shared)), ..file.clone() })
    };
    let shared: std::io::Result<Vec<WorkspaceFile>> = made.iter().map(share).collect();
    match shared {
        Ok(shared) => Some(shared),
        Err(error) => {
            tracing::warn!(%error, "the compiled program is not cached");
            None
        }
    }
}

/// Returns a program's own files with the compiler's; those replace files with the same name.
fn placed(mut files: Vec<WorkspaceFile>, made: &[WorkspaceFile]) -> ReadyProgram {
    files.retain(|file| made.iter().all(|made| made.path != file.path));
    files.extend_from_slice(made);
    ReadyProgram { files, is_compiled: true }
}
