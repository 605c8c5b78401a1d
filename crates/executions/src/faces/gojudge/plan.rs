//! Turns a request into programs with their streams, with all checks.
//!
//! Errors of the request itself are refused; a file that cannot be placed is, as in go-judge, the
//! outcome of its program.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::LimitSpec;
use sandbox::{
    EXTRA_MAX, ProgramLimits, SandboxCommand, SeccompProfile, SharedFile, WorkspaceContent,
    WorkspaceFile,
};

use super::config::GojudgeConfig;
use super::elsewhere::BorrowedFiles;
use super::run::RunError;
use super::store::FileStore;
use super::wire::{
    self, CmdFile, FileError, FileErrorKind, GojudgeCommand, GojudgeResult, GojudgeStatus,
    PipeIndex, PipeMap,
};
use crate::limits::LimitRules;

/// Working directories of go-judge's programs: a link to the workspace here, and the workspace.
const WORK_DIRECTORIES: [&str; 2] = ["/w/", "/workspace/"];
/// Longest target of a symbolic link: the kernel's `PATH_MAX` without the NUL.
const TARGET_BYTES_MAX: usize = 4095;
/// Maximum number of descriptors of one program.
const DESCRIPTORS_MAX: usize = 3 + EXTRA_MAX;
/// Shortest CPU and wall limit, so that a tiny value does not become zero.
const TIME_MIN: Duration = Duration::from_millis(1);

/// Context of plans besides the request.
pub(super) struct GojudgePlanner<'a> {
    pub(super) config: &'a GojudgeConfig,
    pub(super) store: &'a FileStore,
    /// Files of other nodes.
    pub(super) borrowed: &'a BorrowedFiles,
    pub(super) tenant: &'a str,
    pub(super) now: Instant,
    /// Limits of programs.
    pub(super) run: &'a LimitRules,
    /// Limits of programs whose products are kept: compilers.
    pub(super) compile: &'a LimitRules,
    /// Maximum number of programs that run concurrently.
    pub(super) running_max: usize,
    /// Maximum number of files of one program.
    pub(super) files_max: usize,
    /// Maximum total bytes of returned files.
    pub(super) outputs_bytes_max: u64,
    /// True if there is a caller to stream to.
    pub(super) has_streams: bool,
}

/// A request that passed all checks.
#[derive(Debug)]
pub(super) struct GojudgePlan {
    pub(super) programs: Vec<GojudgeProgram>,
    pub(super) pipes: Vec<DescriptorPipe>,
    /// Sum of the memory limits of all programs.
    pub(super) memory_bytes: u64,
}

/// A program.
#[derive(Debug)]
pub(super) struct GojudgeProgram {
    /// Complete except for its streams.
    pub(super) command: SandboxCommand,
    /// Streams by descriptor number.
    pub(super) streams: Vec<DescriptorPlan>,
    pub(super) has_terminal: bool,
    /// The files to return, in the order of the command's outputs.
    pub(super) outputs: Vec<CopyOut>,
    /// Errors of files whose names are not valid paths.
    pub(super) refused_outputs: Vec<FileError>,
    /// Names of the files to store rather than send.
    pub(super) cached: HashSet<String>,
    /// Maximum bytes of one returned file.
    pub(super) output_bytes_max: u64,
    /// True if the beginning of a larger file is returned.
    pub(super) truncates: bool,
    /// Maximum bytes kept of a captured stream.
    pub(super) stream_bytes_max: u64,
    /// CPU time above which it exceeds its limit, however it ended.
    pub(super) cpu_max: Duration,
    /// Reason why it is not run.
    pub(super) refused: Option<GojudgeResult>,
}

/// Source or destination of a program's descriptor.
#[derive(Debug)]
pub(super) enum DescriptorPlan {
    /// The descriptor is not open.
    Absent,
    /// Empty input.
    Null,
    /// These bytes.
    Bytes(Vec<u8>),
    /// A stored file.
    Shared(Arc<SharedFile>),
    /// Output that becomes a file of the answer.
    Collect { name: String, bytes_max: u64 },
    /// Input from the caller.
    In,
    /// Output to the caller.
    Out,
    /// End of a pipe.
    Piped,
}

/// A file to return.
#[derive(Debug)]
pub(super) struct CopyOut {
    /// Name as given by the caller.
    pub(super) name: String,
    /// Path for the engine.
    path: String,
    /// True if the file may be missing.
    pub(super) is_optional: bool,
}

#[cfg(test)]
impl CopyOut {
    pub(super) fn new(name: &str, is_optional: bool) -> CopyOut {
        CopyOut { name: name.to_owned(), path: name.to_owned(), is_optional }
    }
}

/// A pipe between two descriptors, each given by a program's index and a number.
#[derive(Debug)]
pub(super) struct DescriptorPipe {
    pub(super) source: (usize, usize),
    pub(super) target: (usize, usize),
    /// True if it goes through the server.
    pub(super) is_relayed: bool,
    /// Part of the traffic that is kept: its name among the files of the source, and its maximum
    /// size.
    pub(super) keep: Option<(String, u64)>,
}

impl GojudgePlanner<'_> {
    /// Checks a request and turns it into programs.
    pub(super) fn plan(&self, request: wire::GojudgeRequest) -> Result<GojudgePlan, RunError> {
        let count = request.cmd.len();
        if count == 0 {
            return Err(RunError::invalid("", "no cmd provided"));
        }
        let cmds_max = self.config.cmds_max.min(self.running_max);
        if count > cmds_max {
            let message = format!("there are {count}, and at most {cmds_max} may run at once");
            return Err(RunError::invalid("cmd", message));
        }
        if request.pipe_mapping.len() > self.config.pipes_max {
            let message = format!("there may be at most {}", self.config.pipes_max);
            return Err(RunError::invalid("pipeMapping", message));
        }
        let mut programs = Vec::with_capacity(count);
        let is_pipe_file = |index: usize, name: &str| {
            let is_from = |pipe: &PipeMap| usize::try_from(pipe.source.index) == Ok(index);
            let mut pipes = request.pipe_mapping.iter();
            pipes.any(|pipe| pipe.proxy && is_from(pipe) && pipe.name == name)
        };
        for (index, cmd) in request.cmd.into_iter().enumerate() {
            let program = self.program(cmd, &|name| is_pipe_file(index, name));
            programs.push(program.map_err(|error| error.within(&format!("cmd[{index}]")))?);
        }
        let mut pipes = Vec::with_capacity(request.pipe_mapping.len());
        for (index, pipe) in request.pipe_mapping.into_iter().enumerate() {
            let pipe = self.pipe(pipe, &mut programs);
            pipes.push(pipe.map_err(|error| error.within(&format!("pipeMapping[{index}]")))?);
        }
        let memory = programs.iter().map(|program| program.command.limits.memory_bytes);
        let memory_bytes = memory.fold(0, u64::saturating_add);
        Ok(GojudgePlan { programs, pipes, memory_bytes })
    }

    fn program(
        &self,
        mut cmd: GojudgeCommand,
        is_pipe_file: &dyn Fn(&str) -> bool,
    ) -> Result<GojudgeProgram, RunError> {
        check_strings(&cmd)?;
        let keeps_products = !cmd.copy_out_cached.is_empty();
        let rules = if keeps_products { self.compile } else { self.run };
        let (limits, stream_bytes_max) = limits(&cmd, rules);
        let files = std::mem::take(&mut cmd.files);
        let streams = self.streams(files, cmd.tty, stream_bytes_max)?;
        let wanted = copy_out(&cmd, &streams, is_pipe_file)?;
        let CopyInFile { files, symlinks, refused } =
            self.copy_in(std::mem::take(&mut cmd.copy_in))?;
        let mut argv: Vec<Vec<u8>> = cmd.args.into_iter().map(String::into_bytes).collect();
        let placed = files.iter().map(|file| &file.path).chain(symlinks.iter().map(|link| &link.0));
        // go-judge looks programs up in the working directory before `PATH`.
        if let Some(name) = argv.first_mut()
            && placed.map(|path| path.as_bytes()).any(|path| !path.contains(&b'/') && path == name)
        {
            name.splice(..0, *b"./");
        }
        let output_bytes_max = match cmd.copy_out_max {
            0 => self.outputs_bytes_max,
            bytes_max => bytes_max.min(self.outputs_bytes_max),
        };
        let command = SandboxCommand {
            argv,
            env: cmd.env.into_iter().map(String::into_bytes).collect(),
            files,
            symlinks,
            outputs: wanted.outputs.iter().map(|output| output.path.clone()).collect(),
            outputs_bytes_max: self.outputs_bytes_max,
            limits,
            profile: if keeps_products { SeccompProfile::Compile } else { SeccompProfile::Run },
            last: true,
            ..SandboxCommand::default()
        };
        Ok(GojudgeProgram {
            command,
            streams,
            has_terminal: cmd.tty,
            outputs: wanted.outputs,
            refused_outputs: wanted.refused,
            cached: wanted.cached,
            output_bytes_max,
            truncates: cmd.copy_out_truncate,
            stream_bytes_max,
            cpu_max: limits.cpu,
            refused,
        })
    }

    fn streams(
        &self,
        files: Vec<Option<CmdFile>>,
        has_terminal: bool,
        bytes_max: u64,
    ) -> Result<Vec<DescriptorPlan>, RunError> {
        if files.len() > DESCRIPTORS_MAX {
            let message = format!("there may be at most {DESCRIPTORS_MAX}");
            return Err(RunError::invalid("files", message));
        }
        let mut streams = Vec::with_capacity(files.len());
        for (fd, file) in files.into_iter().enumerate() {
            let stream = match file {
                None => DescriptorPlan::Absent,
                Some(file) => {
                    let stream = self.stream(file, bytes_max);
                    stream.map_err(|error| error.within(&format!("files[{fd}]")))?
                }
            };
            if has_terminal && fd > 2 && !matches!(stream, DescriptorPlan::Absent) {
                let message = "a program with a terminal has only the first three files";
                return Err(RunError::invalid("tty", message));
            }
            let is_known = |name: &str| streams.iter().any(|other| is_collected_as(other, name));
            // Both output streams may be one file, in the order of writes.
            if let DescriptorPlan::Collect { name, .. } = &stream
                && is_known(name)
                && !(fd == 2 && streams.get(1).is_some_and(|other| is_collected_as(other, name)))
            {
                let message = "is the name of an earlier one";
                return Err(RunError::invalid(&format!("files[{fd}].name"), message));
            }
            streams.push(stream);
        }
        // The program gets copies of these, in the server's memory.
        let host_bytes = streams.iter().map(|stream| match stream {
            DescriptorPlan::Shared(file) if !file.is_sealed() => file.len(),
            _ => 0,
        });
        let host_bytes_max = self.config.stored_file_bytes_max;
        if host_bytes.fold(0, u64::saturating_add) > host_bytes_max {
            let message =
                format!("files of `src` may have at most {host_bytes_max} bytes together");
            return Err(RunError::invalid("files", message));
        }
        Ok(streams)
    }

    fn stream(&self, file: CmdFile, bytes_max: u64) -> Result<DescriptorPlan, RunError> {
        match file {
            CmdFile { stream_in: true, .. } if self.has_streams => Ok(DescriptorPlan::In),
            CmdFile { stream_out: true, .. } if self.has_streams => Ok(DescriptorPlan::Out),
            CmdFile { src: Some(src), .. } if src == "/dev/null" => Ok(DescriptorPlan::Null),
            CmdFile { src: Some(src), .. } => Ok(DescriptorPlan::Shared(self.host_file(&src)?)),
            CmdFile { content: Some(content), .. } => {
                Ok(DescriptorPlan::Bytes(content.into_bytes()))
            }
            CmdFile { file_id: Some(id), .. } => Ok(DescriptorPlan::Shared(self.stored_file(&id)?)),
            CmdFile { name: Some(name), max: Some(max), .. } => {
                let max = u64::try_from(max)
                    .map_err(|_| RunError::invalid("max", "must not be negative"))?;
                Ok(DescriptorPlan::Collect { name, bytes_max: max.min(bytes_max) })
            }
            CmdFile { stream_in: true, .. } | CmdFile { stream_out: true, .. } => {
                Err(RunError::invalid("", "streams need a connection to /stream"))
            }
            CmdFile { .. } => {
                Err(RunError::invalid("", "must have src, content, fileId, or name with max"))
            }
        }
    }

    /// Returns the files and links to place, or the reason why the program cannot be run.
    fn copy_in(&self, files: BTreeMap<String, CmdFile>) -> Result<CopyInFile, RunError> {
        if files.len() > self.files_max {
            let message = format!("there may be at most {} files", self.files_max);
            return Err(RunError::invalid("copyIn", message));
        }
        let mut placed = CopyInFile::default();
        let mut errors = Vec::new();
        let mut paths = BTreeSet::new();
        for (name, file) in files {
            let is_link = file.symlink.is_some();
            let path = match workspace_path(&name).and_then(|path| claim(&mut paths, path)) {
                Ok(path) => path,
                Err(problem) => {
                    let kind = match is_link {
                        true => FileErrorKind::Symlink,
                        false => FileErrorKind::CopyInCreateFile,
                    };
                    let message = format!("{name:?} {problem}");
                    errors.push(FileError { name, kind, message });
                    continue;
                }
            };
            let within = |error: RunError| error.within(&format!("copyIn[{name:?}]"));
            match file.symlink {
                Some(target) => placed.symlinks.push((path, link_target(target).map_err(within)?)),
                None => {
                    let content = self.content(file).map_err(within)?;
                    // All files are executable, as in go-judge, where files have mode 0777.
                    placed.files.push(WorkspaceFile { path, content, executable: true });
                }
            }
        }
        if let Some(first) = errors.first() {
            let mut outcome = GojudgeResult::new(GojudgeStatus::FileError, first.message.clone());
            outcome.file_error = errors;
            placed.refused = Some(outcome);
        }
        Ok(placed)
    }

    fn content(&self, file: CmdFile) -> Result<WorkspaceContent, RunError> {
        match file {
            CmdFile { src: Some(src), .. } if src == "/dev/null" => Ok(WorkspaceContent::default()),
            CmdFile { src: Some(src), .. } => Ok(WorkspaceContent::Shared(self.host_file(&src)?)),
            CmdFile { content: Some(content), .. } => {
                Ok(WorkspaceContent::Bytes(content.into_bytes()))
            }
            CmdFile { file_id: Some(id), .. } => {
                Ok(WorkspaceContent::Shared(self.stored_file(&id)?))
            }
            _ => Err(RunError::invalid("", "must have src, content, fileId or symlink")),
        }
    }

    fn stored_file(&self, id: &str) -> Result<Arc<SharedFile>, RunError> {
        match self.store.get(self.tenant, id, self.now) {
            Some((_, file)) => Ok(file),
            None if self.borrowed.contains_key(id) => Ok(Arc::clone(&self.borrowed[id])),
            None => {
                let id: String = id.chars().take(64).collect();
                Err(RunError::NoSuchFile(format!("file does not exists with id: {id:?}")))
            }
        }
    }

    /// Opens a file of the host, below one of the directories that the operator configured. It is
    /// opened after its links were resolved, and no link is followed then; users who may write to
    /// those directories can expose other files.
    fn host_file(&self, path: &str) -> Result<Arc<SharedFile>, RunError> {
        let refuse = || {
            let path: String = path.chars().take(256).collect();
            let message = format!("file ({path}) is not under a directory of `src_prefixes`");
            RunError::invalid("src", message)
        };
        if self.config.src_prefixes.is_empty() {
            return Err(refuse());
        }
        let resolved = fs::canonicalize(path).map_err(|_| refuse())?;
        let prefixes = self.config.src_prefixes.iter();
        let mut prefixes = prefixes.filter_map(|prefix| fs::canonicalize(prefix).ok());
        if !prefixes.any(|prefix| resolved.starts_with(prefix)) {
            return Err(refuse());
        }
        SharedFile::open(&resolved).map(Arc::new).map_err(|_| refuse())
    }

    fn pipe(
        &self,
        pipe: PipeMap,
        programs: &mut [GojudgeProgram],
    ) -> Result<DescriptorPipe, RunError> {
        let source = take_end(pipe.source, programs).map_err(|error| error.within("in"))?;
        let target = take_end(pipe.target, programs).map_err(|error| error.within("out"))?;
        let max = u64::try_from(pipe.max)
            .map_err(|_| RunError::invalid("max", "must not be negative"))?;
        let kept_max = programs.get(source.0).map_or(0, |program| program.stream_bytes_max);
        let keep = (pipe.proxy && !pipe.name.is_empty()).then(|| (pipe.name, max.min(kept_max)));
        Ok(DescriptorPipe { source, target, is_relayed: pipe.proxy, keep })
    }
}

/// File that is placed before a program starts.
#[derive(Default)]
struct CopyInFile {
    files: Vec<WorkspaceFile>,
    symlinks: Vec<(String, String)>,
    /// Reason why they cannot be placed.
    refused: Option<GojudgeResult>,
}

/// Refuses strings with NUL, and options that this server would have to ignore.
fn check_strings(cmd: &GojudgeCommand) -> Result<(), RunError> {
    if cmd.args.is_empty() {
        return Err(RunError::invalid("args", "must not be empty"));
    }
    for (field, strings) in [("args", &cmd.args), ("env", &cmd.env)] {
        if let Some(index) = strings.iter().position(|word| word.contains('\0')) {
            return Err(RunError::invalid(
                &format!("{field}[{index}]"),
                "contains a NUL character",
            ));
        }
    }
    let memory = "this server limits the memory of all processes together; send memoryLimit alone";
    let unsupported = [
        (!cmd.cpu_set_limit.is_empty(), "cpuSetLimit", "this server binds no program to cores"),
        (
            cmd.cpu_rate_limit != 0,
            "cpuRateLimit",
            "this server limits no program's share of a core",
        ),
        (cmd.address_space_limit, "addressSpaceLimit", memory),
        (cmd.data_segment_limit, "dataSegmentLimit", memory),
        (cmd.strict_memory_limit, "strictMemoryLimit", memory),
    ];
    match unsupported.iter().find(|(is_set, ..)| *is_set) {
        Some((_, field, message)) => Err(RunError::invalid(field, *message)),
        None => Ok(()),
    }
}

/// Returns the limits of a program, within the configured maxima, and the maximum bytes kept of a
/// stream. A limit that is zero or missing has the server's default; without a clock limit, the CPU
/// limit is used for it, as in go-judge.
fn limits(cmd: &GojudgeCommand, rules: &LimitRules) -> (ProgramLimits, u64) {
    let non_zero = |value: u64| (value > 0).then_some(value);
    let ms = |ns: u64| non_zero(ns).map(|ns| ns.div_ceil(1_000_000));
    let clock = [cmd.real_cpu_limit, cmd.clock_limit, cmd.cpu_limit].into_iter().find_map(non_zero);
    let memory = non_zero(cmd.memory_limit);
    let requested = LimitSpec {
        cpu_ms: ms(cmd.cpu_limit),
        wall_ms: ms(clock.unwrap_or(0)),
        memory_bytes: memory,
        processes: non_zero(cmd.proc_limit),
        stack_bytes: non_zero(cmd.stack_limit).map(|stack| stack.min(memory.unwrap_or(stack))),
        output_bytes: Some(u64::MAX),
        ..LimitSpec::default()
    };
    let mut limits = rules.capped(&requested);
    // The rules have a resolution of milliseconds.
    for (limit, requested) in
        [(&mut limits.cpu, non_zero(cmd.cpu_limit)), (&mut limits.wall, clock)]
    {
        if let Some(requested) = requested {
            *limit = Duration::from_nanos(requested).max(TIME_MIN).min(*limit);
        }
    }
    (limits, limits.output_bytes)
}

/// Files requested from a program.
#[derive(Default)]
struct CopyOutFile {
    outputs: Vec<CopyOut>,
    /// Names of files to store.
    cached: HashSet<String>,
    /// Files that cannot be requested.
    refused: Vec<FileError>,
}

fn copy_out(
    cmd: &GojudgeCommand,
    streams: &[DescriptorPlan],
    is_pipe_file: &dyn Fn(&str) -> bool,
) -> Result<CopyOutFile, RunError> {
    let is_collected = |wanted: &str| {
        streams.iter().any(|stream| is_collected_as(stream, wanted)) || is_pipe_file(wanted)
    };
    let split = |name: &str| match name.strip_suffix('?') {
        Some(name) => (name.to_owned(), true),
        None => (name.to_owned(), false),
    };
    let cached: HashSet<String> = cmd.copy_out_cached.iter().map(|name| split(name).0).collect();
    let mut wanted = CopyOutFile { cached, ..CopyOutFile::default() };
    let mut seen = HashSet::new();
    for name in cmd.copy_out.iter().chain(&cmd.copy_out_cached) {
        let (name, is_optional) = split(name);
        // A stream with this name is returned anyway.
        if is_collected(&name) || !seen.insert(name.clone()) {
            continue;
        }
        match workspace_path(&name) {
            Ok(path) => wanted.outputs.push(CopyOut { name, path, is_optional }),
            Err(_) if is_optional => {}
            Err(problem) => {
                let message = format!("{name:?} {problem}");
                wanted.refused.push(FileError { name, kind: FileErrorKind::CopyOutOpen, message });
            }
        }
    }
    if wanted.outputs.len() > sandbox::OUTPUTS_MAX {
        let message = format!("there may be at most {} files", sandbox::OUTPUTS_MAX);
        return Err(RunError::invalid("copyOut", message));
    }
    Ok(wanted)
}

/// Returns whether a stream is returned as a file of this name.
pub(super) fn is_collected_as(stream: &DescriptorPlan, wanted: &str) -> bool {
    matches!(stream, DescriptorPlan::Collect { name, .. } if name == wanted)
}

/// Reserves a descriptor of a program for a pipe.
fn take_end(end: PipeIndex, programs: &mut [GojudgeProgram]) -> Result<(usize, usize), RunError> {
    let index = usize::try_from(end.index).ok().filter(|index| *index < programs.len());
    let Some((index, program)) = index.and_then(|index| Some((index, programs.get_mut(index)?)))
    else {
        return Err(RunError::invalid("index", format!("cmd[{}] does not exist", end.index)));
    };
    let fd = usize::try_from(end.fd).ok().filter(|fd| *fd < DESCRIPTORS_MAX);
    let Some(fd) = fd else {
        let message = format!("must be from 0 to {}", DESCRIPTORS_MAX - 1);
        return Err(RunError::invalid("fd", message));
    };
    if program.has_terminal {
        let message = format!("cmd[{index}] has a terminal, which takes the place of pipes");
        return Err(RunError::invalid("index", message));
    }
    if program.streams.len() <= fd {
        program.streams.resize_with(fd + 1, || DescriptorPlan::Absent);
    }
    match program.streams.get_mut(fd) {
        Some(stream @ DescriptorPlan::Absent) => *stream = DescriptorPlan::Piped,
        _ => {
            let message = format!("{fd} of cmd[{index}] is something else already");
            return Err(RunError::invalid("fd", message));
        }
    }
    Ok((index, fd))
}

/// Converts a path of a program to one relative to the workspace: relative, or below `/w` or
/// `/workspace`.
fn workspace_path(path: &str) -> Result<String, &'static str> {
    let prefix = WORK_DIRECTORIES.iter().find_map(|prefix| path.strip_prefix(prefix));
    let relative = prefix.unwrap_or(path);
    if relative.starts_with('/') && prefix.is_none() {
        return Err("is outside of the working directory /w");
    }
    let parts = relative.split('/').filter(|part| !part.is_empty() && *part != ".");
    let path = parts.collect::<Vec<&str>>().join("/");
    crate::plan::check_path(&path)?;
    Ok(path)
}

/// Records a path: a file cannot be a directory, and no path may occur twice.
fn claim(paths: &mut BTreeSet<String>, path: String) -> Result<String, &'static str> {
    let mut parents = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
    let below = format!("{path}/");
    let has_below = paths.range(below.clone()..).next().is_some_and(|it| it.starts_with(&below));
    if has_below || paths.contains(&path) || parents.any(|parent| paths.contains(parent)) {
        return Err("is in the way of another file");
    }
    paths.insert(path.clone());
    Ok(path)
}

fn link_target(target: String) -> Result<String, RunError> {
    let problem = match &*target {
        "" => "must not be empty",
        target if target.contains('\0') => "contains a NUL character",
        target if target.len() > TARGET_BYTES_MAX => "is too long",
        _ => return Ok(target),
    };
    Err(RunError::invalid("symlink", problem))
}

#[cfg(test)]
mod tests;
