//! Parses `cove run` into a request.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use api::{BytesEncoding, ExecutionRequest, JudgeProgram, LanguageList, LimitSpec, SourceFile};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use executions::Languages;

use crate::cli::{LimitArgs, ProgramArgs};
use crate::usage_error::UsageError;
use crate::values::{human_bytes, milliseconds};

/// Largest file of a request, in bytes: the default size of the working directory.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Default ratio of wall time to CPU time, if only CPU time is specified.
const WALL_PER_CPU: u64 = 2;

/// Languages that are available here or on a server.
pub(crate) struct KnownLanguages {
    list: LanguageList,
    /// Message with the command or route that lists them.
    hint: &'static str,
}

impl KnownLanguages {
    /// Returns the languages of this host.
    pub(super) fn here(languages: &Languages) -> KnownLanguages {
        KnownLanguages { list: languages.list(), hint: "`cove languages` lists them" }
    }

    /// Returns the languages of a server.
    pub(crate) fn there(list: LanguageList) -> KnownLanguages {
        KnownLanguages { list, hint: "the server's GET /v1/languages lists them" }
    }

    /// Returns the language with this name or alias.
    fn named(&self, wanted: &str) -> Result<&api::LanguageView> {
        let found = self.list.languages.iter().find(|language| {
            language.name == wanted || language.aliases.iter().any(|alias| alias == wanted)
        });
        let missing = || UsageError(format!("there is no language `{wanted}`; {}", self.hint));
        Ok(found.ok_or_else(missing)?)
    }

    fn by_extension(&self, extension: &str) -> Option<&str> {
        let has =
            |language: &&api::LanguageView| language.extensions.iter().any(|it| it == extension);
        self.list.languages.iter().find(has).map(|language| language.name.as_str())
    }

    /// Returns the language of a file, by its extension.
    fn of_file(&self, file: &Path) -> Result<String> {
        let extension = file.extension().and_then(OsStr::to_str).unwrap_or_default();
        match self.by_extension(extension) {
            Some(name) => Ok(name.to_owned()),
            None => {
                // A missing file is the more likely mistake.
                fs::metadata(file).with_context(|| format!("open `{}`", file.display()))?;
                let message = format!(
                    "the extension of `{}` names no language; give one with --lang ({})",
                    file.display(),
                    self.hint
                );
                Err(UsageError(message).into())
            }
        }
    }
}

/// Builds the request from the command line.
pub(crate) fn request(
    args: &ProgramArgs,
    limits: &LimitArgs,
    languages: &KnownLanguages,
) -> Result<ExecutionRequest> {
    let mut request = ExecutionRequest {
        env: args.env.iter().cloned().collect(),
        template: args.template.clone(),
        limits: run_limits(limits),
        compile_limits: compile_limits(limits),
        ..ExecutionRequest::default()
    };
    let rest = args.rest.iter().map(|argument| text(argument)).collect::<Result<Vec<_>>>()?;
    match &args.file {
        None if rest.is_empty() => {
            let message = "nothing to run: give a FILE, or a command after `--`; \
                           `--help` shows how";
            return Err(UsageError(message.to_owned()).into());
        }
        None => {
            if args.lang.is_some() {
                let message = "--lang needs a FILE or `-`; the arguments after `--` are a command";
                return Err(UsageError(message.to_owned()).into());
            }
            request.argv = Some(rest);
        }
        Some(file) => {
            request.args = rest;
            request.language = Some(language(args, file, languages)?);
            if file == "-" {
                request.source = Some(source_on_stdin()?);
            } else {
                request.files.push(source_file(None, Path::new(file))?);
            }
        }
    }
    for file in &args.files {
        let (name, path) = match file.to_str().and_then(|text| text.split_once('=')) {
            Some((name, path)) => (Some(name.to_owned()), PathBuf::from(path)),
            None => (None, PathBuf::from(file)),
        };
        request.files.push(source_file(name, &path)?);
    }
    // The entry is the first file. Together with others, a source from standard input needs a name.
    if let Some(source) = request.source.take_if(|_| !request.files.is_empty()) {
        let named = languages.named(request.language.as_deref().unwrap_or_default())?;
        let extension = named.extensions.first().map_or("txt", String::as_str);
        let name = format!("main.{extension}");
        request.files.insert(0, SourceFile { name, content: source, ..SourceFile::default() });
    }
    Ok(request)
}

fn language(args: &ProgramArgs, file: &OsStr, languages: &KnownLanguages) -> Result<String> {
    if let Some(language) = &args.lang {
        return Ok(languages.named(language)?.name.clone());
    }
    if file == "-" {
        return Err(UsageError("a program on standard input needs --lang".to_owned()).into());
    }
    languages.of_file(Path::new(file))
}

/// Returns a checker or an interactor that consists of one file.
pub(crate) fn companion(path: &Path, languages: &KnownLanguages) -> Result<JudgeProgram> {
    Ok(JudgeProgram {
        language: Some(languages.of_file(path)?),
        files: vec![source_file(None, path)?],
        ..JudgeProgram::default()
    })
}

fn source_on_stdin() -> Result<String> {
    let bytes = read_whole(io::stdin().lock(), "standard input")?;
    let not_text = |_| UsageError("the program on standard input is not UTF-8".to_owned());
    Ok(String::from_utf8(bytes).map_err(not_text)?)
}

/// Reads a whole file for a request, or standard input for `-`.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>> {
    if path == Path::new("-") {
        return read_whole(io::stdin().lock(), "standard input");
    }
    let name = format!("`{}`", path.display());
    let file = File::open(path).with_context(|| format!("open {name}"))?;
    read_whole(file, &name)
}

/// Reads to the end, up to a limit: a device may have no end.
fn read_whole(input: impl Read, name: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut input = input.take(FILE_BYTES_MAX + 1);
    input.read_to_end(&mut bytes).with_context(|| format!("read {name}"))?;
    if input.limit() == 0 {
        let max = human_bytes(FILE_BYTES_MAX);
        return Err(UsageError(format!("{name} is larger than {max}")).into());
    }
    Ok(bytes)
}

/// Reads a file for the working directory, under its own name or another one.
fn source_file(name: Option<String>, path: &Path) -> Result<SourceFile> {
    let quoted_path = format!("`{}`", path.display());
    let file = File::open(path).with_context(|| format!("open {quoted_path}"))?;
    let bytes = read_whole(file, &quoted_path)?;
    let name = match name {
        Some(name) => name,
        None => text(path.file_name().unwrap_or(path.as_os_str()))?,
    };
    let (content, encoding) = match String::from_utf8(bytes) {
        Ok(text) => (text, BytesEncoding::Utf8),
        Err(error) => (BASE64.encode(error.as_bytes()), BytesEncoding::Base64),
    };
    Ok(SourceFile { name, content, encoding, executable: false })
}

fn text(argument: &OsStr) -> Result<String> {
    let not_text = || UsageError(format!("`{}` is not UTF-8", OsString::from(argument).display()));
    Ok(argument.to_str().ok_or_else(not_text)?.to_owned())
}

fn run_limits(args: &LimitArgs) -> LimitSpec {
    LimitSpec {
        cpu_ms: args.cpu.map(milliseconds),
        wall_ms: args.wall.map(milliseconds),
        memory_bytes: args.memory,
        processes: args.processes,
        output_bytes: args.output,
        open_files: args.open_files,
        file_size_bytes: args.file_size,
        disk_bytes: args.disk,
        disk_inodes: args.disk_files,
        stack_bytes: args.stack,
    }
}

fn compile_limits(args: &LimitArgs) -> LimitSpec {
    LimitSpec {
        cpu_ms: args.compile_cpu.map(milliseconds),
        wall_ms: args.compile_wall.map(milliseconds),
        memory_bytes: args.compile_memory,
        ..LimitSpec::default()
    }
}

/// Raises the maxima to the requested limits. They protect a server from its callers; here the
/// caller owns the machine.
pub(super) fn lift_maxima(config: &mut executions::ExecutionsConfig, request: &ExecutionRequest) {
    for (requested, max) in [
        (&request.limits, &mut config.limits_max),
        (&request.compile_limits, &mut config.compile_limits_max),
    ] {
        let LimitSpec {
            cpu_ms,
            wall_ms,
            memory_bytes,
            processes,
            output_bytes,
            open_files,
            file_size_bytes,
            disk_bytes,
            disk_inodes,
            stack_bytes,
        } = *requested;
        // An explicitly requested limit is its own maximum.
        max.cpu_ms = cpu_ms.or(max.cpu_ms);
        let wall_for_cpu = cpu_ms.map(|cpu| cpu.saturating_mul(WALL_PER_CPU).max(20_000));
        max.wall_ms = wall_ms.or(wall_for_cpu).or(max.wall_ms);
        max.memory_bytes = memory_bytes.or(max.memory_bytes);
        max.processes = processes.or(max.processes);
        max.output_bytes = output_bytes.or(max.output_bytes);
        max.open_files = open_files.or(max.open_files);
        max.file_size_bytes = file_size_bytes.or(max.file_size_bytes);
        max.disk_bytes = disk_bytes.or(max.disk_bytes);
        max.disk_inodes = disk_inodes.or(max.disk_inodes);
        max.stack_bytes = stack_bytes.or(max.stack_bytes);
    }
    // The configured defaults must not exceed the maxima; requested limits override them anyway.
    config.limits = keep_unasked(&config.limits, &request.limits);
    config.compile_limits = keep_unasked(&config.compile_limits, &request.compile_limits);
    // Only one program runs, so it may use all available space.
    config.stdin_bytes_max = u64::MAX;
    config.files_bytes_max = u64::MAX;
}

/// Returns the configured defaults for limits that are not requested.
fn keep_unasked(defaults: &LimitSpec, requested: &LimitSpec) -> LimitSpec {
    let keep =
        |default: Option<u64>, requested: Option<u64>| default.filter(|_| requested.is_none());
    LimitSpec {
        cpu_ms: keep(defaults.cpu_ms, requested.cpu_ms),
        wall_ms: keep(defaults.wall_ms, requested.wall_ms.or(requested.cpu_ms)),
        memory_bytes: keep(defaults.memory_bytes, requested.memory_bytes),
        processes: keep(defaults.processes, requested.processes),
        output_bytes: keep(defaults.output_bytes, requested.output_bytes),
        open_files: keep(defaults.open_files, requested.open_files),
        file_size_bytes: keep(defaults.file_size_bytes, requested.file_size_bytes),
        disk_bytes: keep(defaults.disk_bytes, requested.disk_bytes),
        disk_inodes: keep(defaults.disk_inodes, requested.disk_inodes),
        stack_bytes: keep(defaults.stack_bytes, requested.stack_bytes),
    }
}

/// Returns the input of the program: a file, no input if the source came from standard input, or
/// standard input itself.
pub(super) fn input(args: &ProgramArgs) -> Result<Option<Box<dyn Read + Send>>> {
    if let Some(path) = &args.stdin_file {
        let file = File::open(path).with_context(|| format!("open `{}`", path.display()))?;
        return Ok(Some(Box::new(file)));
    }
    let source_is_stdin = args.file.as_deref() == Some(OsStr::new("-"));
    Ok(if source_is_stdin { None } else { Some(Box::new(io::stdin())) })
}

#[cfg(test)]
mod tests {
    //! From arguments to requests, with the built-in languages.

    use clap::Parser as _;
    use executions::ToolHost;

    use super::*;
    use crate::cli::{Cli, CliCommand};

    /// Files in a temporary directory, removed after the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, files: &[(&str, &[u8])]) -> Scratch {
            let path = std::env::temp_dir().join(format!("cove-run-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            for (name, content) in files {
                fs::write(path.join(name), content).unwrap();
            }
            Scratch(path)
        }

        fn request(&self, arguments: &str) -> Result<ExecutionRequest> {
            let directory = self.0.display().to_string();
            let arguments = arguments.replace('@', &directory);
            let all = ["cove", "run"].into_iter().chain(arguments.split(' '));
            let CliCommand::Run(run) = Cli::try_parse_from(all)?.command else {
                unreachable!("`run` was asked for")
            };
            let languages = Languages::load(None, &ToolHost::default())?;
            request(&run.program, &run.limits, &KnownLanguages::here(&languages))
        }

        fn refused(&self, arguments: &str, expected: &str) {
            let message = format!("{:#}", self.request(arguments).unwrap_err());
            assert!(message.contains(expected), "{message}");
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn a_file_brings_its_language_and_its_name() {
        let scratch = Scratch::new("file", &[("a.py", b"print(1)")]);
        let request = scratch.request("@/a.py --env A=b --cpu 1s --disk-files 7 -- x -y").unwrap();
        assert_eq!(request.language.as_deref(), Some("python"));
        assert_eq!((&*request.files[0].name, &*request.files[0].content), ("a.py", "print(1)"));
        assert_eq!(request.args, ["x", "-y"]);
        assert_eq!(request.env.get("A").map(String::as_str), Some("b"));
        let limits = LimitSpec { cpu_ms: Some(1000), disk_inodes: Some(7), ..LimitSpec::default() };
        assert_eq!(request.limits, limits);
        assert_eq!(request.compile_limits, LimitSpec::default());
        let other = scratch.request("--lang js --compile-memory 1G @/a.py").unwrap();
        assert_eq!(other.language.as_deref(), Some("javascript"));
        assert_eq!(other.compile_limits.memory_bytes, Some(1 << 30));
    }

    #[test]
    fn further_files_keep_their_name_or_get_one() {
        let files: [(&str, &[u8]); 2] = [("a.py", b""), ("raw", b"\xff\x00")];
        let scratch = Scratch::new("files", &files);
        let request = scratch.request("--file @/raw --file data/in.bin=@/raw @/a.py").unwrap();
        let names: Vec<_> = request.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["a.py", "raw", "data/in.bin"]);
        assert_eq!(
            (request.files[1].encoding, &*request.files[1].content),
            (BytesEncoding::Base64, "/wA=")
        );
    }

    #[test]
    fn a_command_is_taken_as_it_is() {
        let scratch = Scratch::new("command", &[("x", b"1")]);
        let request = scratch.request("--file @/x -- /bin/sh -c ls").unwrap();
        assert_eq!(request.argv.unwrap(), ["/bin/sh", "-c", "ls"]);
        assert_eq!((request.language, request.files.len()), (None, 1));
    }

    #[test]
    fn mistakes_are_explained() {
        let scratch = Scratch::new("mistakes", &[("a.xyz", b""), ("a.py", b"")]);
        scratch.refused("--quiet", "nothing to run");
        scratch.refused("@/a.xyz", "names no language");
        scratch.refused("@/missing.xyz", "missing.xyz");
        scratch.refused("@/missing.py", "missing.py");
        scratch.refused("--lang nope @/a.py", "`nope`");
        scratch.refused("--lang python -- ls", "--lang needs a FILE");
        scratch.refused("-", "needs --lang");
        scratch.refused("--lang python /dev/zero", "larger than 64 MiB");
        scratch.refused("--file @/missing @/a.py", "missing");
    }
}
