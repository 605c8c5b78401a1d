//! From a request to the commands of its stages: after this there is nothing left to check.
//!
//! Pure: no file, no clock, no lock. Every refusal names the field that is at fault.

use std::collections::{BTreeMap, HashSet};

use api::{Encoding, ExecutionRequest, LimitSpec, SourceFile, StageName};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sandbox::{Command, File, Limits, Profile, Stdin};

use crate::config::{Config, ConfigError};
use crate::error::Refusal;
use crate::languages::{Program, Template, Values};
use crate::limits::{Kind, Rules};

/// One part of a path: Linux's `NAME_MAX`.
const PATH_PART_BYTES_MAX: usize = 255;
/// A whole path: Linux's `PATH_MAX` of 4096 with its NUL, less `/workspace/` before it.
const PATH_BYTES_MAX: usize = 4096 - 1 - "/workspace/".len();
/// Parts of a path. Deeper trees make every walk over them slow.
const PATH_PARTS_MAX: usize = 16;
/// Arguments and environment of one program, pointers to them included. Linux takes this much
/// whatever the stack limit (`ARG_MAX`, 32 pages; see execve(2)).
const ARGUMENT_BYTES_MAX: usize = 128 << 10;
/// What the sandbox needs of its own files and directories.
const INODES_SPARE: u64 = 16;
const PAGE_BYTES: u64 = 4096;

/// Where a program that keeps prepared files finds them while they are not there yet.
const UNPREPARED: &str = "/tmp/prepared";
/// Label of executions without a language.
const NO_LANGUAGE: &str = "argv";

/// What to run: one command per stage.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The stages in order, each with its command; the run stage is the last one.
    pub(crate) stages: Vec<(StageName, Command)>,
    /// The most that any stage may use.
    pub(crate) memory_bytes: u64,
    /// The names of the files to return, as asked for.
    pub(crate) outputs: Vec<String>,
    /// Canonical name of the language, or `argv`.
    pub(crate) language: String,
}

/// Makes plans within the configured limits.
#[derive(Debug)]
pub(crate) struct Planner {
    config: Config,
    run: Rules,
    compile: Rules,
    /// `PATH` inside.
    path: String,
}

impl Planner {
    pub(crate) fn new(
        config: Config,
        memory_budget_bytes: u64,
        path: &str,
    ) -> Result<Planner, ConfigError> {
        let rules = |kind, defaults, maxima| {
            Rules::new(kind, defaults, maxima, memory_budget_bytes).map_err(ConfigError)
        };
        if config.outputs_max > sandbox::OUTPUTS_MAX {
            let problem = format!("outputs_max is above {}", sandbox::OUTPUTS_MAX);
            return Err(ConfigError(problem));
        }
        let run = rules(Kind::Run, &config.limits, &config.limits_max)?;
        let compile = rules(Kind::Compile, &config.compile_limits, &config.compile_limits_max)?;
        Ok(Planner { run, compile, path: path.to_owned(), config })
    }

    /// Checks `request` and turns it into commands. `program` is what its `language` stands for;
    /// `stdin` takes the place of the request's own.
    pub(crate) fn plan(
        &self,
        mut request: ExecutionRequest,
        program: Option<&Program>,
        stdin: Option<Stdin>,
    ) -> Result<Plan, Refusal> {
        check_shape(&request)?;
        check_arguments(&request)?;
        check_outputs(&request.outputs, self.config.outputs_max)?;
        let stdin = self.stdin(&mut request, stdin)?;
        let files = self.files(&mut request, program)?;

        let none = LimitSpec::default();
        let language = program.map(|program| &*program.language);
        let of_language = language.map_or((&none, &none), |it| (&it.limits, &it.compile_limits));
        let limits = self.run.resolve("limits", &request.limits, of_language.0)?;
        let compile_limits =
            self.compile.resolve("compile_limits", &request.compile_limits, of_language.1)?;

        let mut run = Command {
            stdin,
            limits,
            profile: Profile::Run,
            outputs: request.outputs,
            outputs_bytes_max: self.config.outputs_bytes_max,
            last: true,
            ..Command::default()
        };
        let mut stages = Vec::with_capacity(2);
        let mut memory_bytes = limits.memory_bytes;
        match program {
            Some(program) => {
                let names = language_files(&files, &program.language.extensions);
                let values = Values {
                    entry: &files[0].path,
                    files: &names,
                    args: &request.args,
                    memory_bytes: limits.memory_bytes,
                    prepared: prepared(program),
                };
                let way = program.way();
                run.argv = way.run.fill(&values);
                run.env = self.environment(&way.env, &values, &request.env);
                if let Some(template) = &way.compile {
                    let values = Values { memory_bytes: compile_limits.memory_bytes, ..values };
                    memory_bytes = memory_bytes.max(compile_limits.memory_bytes);
                    let compile = Command {
                        argv: template.fill(&values),
                        env: self.environment(&way.compile_env, &values, &BTreeMap::new()),
                        limits: compile_limits,
                        profile: Profile::Compile,
                        ..Command::default()
                    };
                    stages.push((StageName::Compile, compile));
                }
            }
            None => {
                let argv = request.argv.unwrap_or_default();
                run.argv = argv.into_iter().chain(request.args).map(String::into_bytes).collect();
                let values =
                    Values { entry: "", files: &[], args: &[], memory_bytes, prepared: "" };
                run.env = self.environment(&[], &values, &request.env);
            }
        }
        stages.push((StageName::Run, run));
        check_argument_bytes(&stages, program.is_some())?;
        check_room(&stages[0], &files)?;
        stages[0].1.files = files;
        Ok(Plan {
            outputs: stages.last().map(|(_, run)| run.outputs.clone()).unwrap_or_default(),
            stages,
            memory_bytes,
            language: language.map_or(NO_LANGUAGE, |language| &language.name).to_owned(),
        })
    }

    fn stdin(
        &self,
        request: &mut ExecutionRequest,
        given: Option<Stdin>,
    ) -> Result<Stdin, Refusal> {
        let (field, bytes) = match (request.stdin.take(), request.stdin_base64.take(), given) {
            (None, None, given) => return Ok(given.unwrap_or_default()),
            (Some(text), None, None) => ("stdin", text.into_bytes()),
            (None, Some(text), None) => ("stdin_base64", decode("stdin_base64", &text)?),
            (Some(_), _, _) | (None, Some(_), Some(_)) => {
                let message = "standard input is given twice; give one of stdin and stdin_base64";
                return Err(Refusal::invalid("stdin", message));
            }
        };
        if len(&bytes) > self.config.stdin_bytes_max {
            let message = format!("must be at most {} bytes", self.config.stdin_bytes_max);
            return Err(Refusal::invalid(field, message));
        }
        Ok(Stdin::Bytes(bytes))
    }

    /// The files to place, checked and decoded.
    fn files(
        &self,
        request: &mut ExecutionRequest,
        program: Option<&Program>,
    ) -> Result<Vec<File>, Refusal> {
        if let (Some(source), Some(program)) = (request.source.take(), program) {
            if len(source.as_bytes()) > self.config.files_bytes_max {
                return Err(self.too_large("source"));
            }
            let path = program.language.entry.clone();
            let content = source.into_bytes().into();
            return Ok(vec![File { path, content, executable: false }]);
        }
        let files = std::mem::take(&mut request.files);
        if files.len() > self.config.files_max {
            let message = format!("there may be at most {} files", self.config.files_max);
            return Err(Refusal::invalid("files", message));
        }
        check_names(files.iter().map(|file| file.name.as_str()), "files", ".name")?;
        let mut total = 0;
        let mut decoded = Vec::with_capacity(files.len());
        for (index, SourceFile { name, content, encoding, executable }) in
            files.into_iter().enumerate()
        {
            let content = match encoding {
                Encoding::Utf8 => content.into_bytes(),
                Encoding::Base64 => decode(&format!("files[{index}].content"), &content)?,
            };
            total += len(&content);
            if total > self.config.files_bytes_max {
                return Err(self.too_large("files"));
            }
            decoded.push(File { path: name, content: content.into(), executable });
        }
        check_no_file_is_a_directory(&decoded)?;
        Ok(decoded)
    }

    fn too_large(&self, field: &str) -> Refusal {
        let message =
            format!("a program must be at most {} bytes together", self.config.files_bytes_max);
        Refusal::invalid(field, message)
    }

    /// A minimal set, then the language's, then the caller's; the later one of a name counts.
    fn environment(
        &self,
        language: &[(String, Template)],
        values: &Values<'_>,
        caller: &BTreeMap<String, String>,
    ) -> Vec<Vec<u8>> {
        let base = [("PATH", self.path.as_str()), ("HOME", "/home/user"), ("LANG", "C.UTF-8")];
        let mut env = Vec::with_capacity(base.len() + language.len() + caller.len());
        let of_language = |name: &str| language.iter().any(|(other, _)| other == name);
        for (name, value) in base {
            if !of_language(name) && !caller.contains_key(name) {
                env.push(variable(name, value.as_bytes()));
            }
        }
        for (name, template) in language.iter().filter(|(name, _)| !caller.contains_key(name)) {
            env.push(variable(name, &template.fill(values).concat()));
        }
        env.extend(caller.iter().map(|(name, value)| variable(name, value.as_bytes())));
        env
    }
}

fn variable(name: &str, value: &[u8]) -> Vec<u8> {
    let mut variable = Vec::with_capacity(name.len() + 1 + value.len());
    variable.extend_from_slice(name.as_bytes());
    variable.push(b'=');
    variable.extend_from_slice(value);
    variable
}

fn prepared(program: &Program) -> &str {
    let prepared = program.way().prepared.as_ref();
    prepared.and_then(|prepared| prepared.inside()).unwrap_or(UNPREPARED)
}

/// The files a compiler is given: the entry, and every other one with an extension of the language.
fn language_files<'a>(files: &'a [File], extensions: &[String]) -> Vec<&'a str> {
    let of_language = |name: &str| {
        let extension = name.rsplit_once('.').map(|(_, extension)| extension);
        extensions.is_empty() || extensions.iter().any(|known| Some(known.as_str()) == extension)
    };
    let names = files.iter().map(|file| file.path.as_str()).enumerate();
    names.filter(|(index, name)| *index == 0 || of_language(name)).map(|(_, name)| name).collect()
}

/// Exactly one of language and argv, and what belongs to each.
fn check_shape(request: &ExecutionRequest) -> Result<(), Refusal> {
    match (&request.language, &request.argv) {
        (None, None) => {
            return Err(Refusal::invalid("language", "either language or argv is needed"));
        }
        (Some(_), Some(_)) => {
            return Err(Refusal::invalid("argv", "language and argv exclude each other"));
        }
        (Some(_), None) => match (&request.source, &*request.files) {
            (Some(_), [_, ..]) => {
                return Err(Refusal::invalid("files", "source and files exclude each other"));
            }
            (None, []) => {
                return Err(Refusal::invalid("source", "either source or files is needed"));
            }
            (Some(_), []) | (None, [_, ..]) => {}
        },
        (None, Some(argv)) => {
            if request.source.is_some() {
                let message = "a source needs a language; give files along with argv";
                return Err(Refusal::invalid("source", message));
            }
            if argv.first().is_none_or(String::is_empty) {
                return Err(Refusal::invalid("argv", "must begin with the name of a program"));
            }
        }
    }
    Ok(())
}

/// No NUL, which would end an argument early, and no name that is not one.
fn check_arguments(request: &ExecutionRequest) -> Result<(), Refusal> {
    let argv = request.argv.as_deref().unwrap_or_default();
    for (field, words) in [("argv", argv), ("args", &*request.args)] {
        if let Some(index) = words.iter().position(|word| word.contains('\0')) {
            return Err(Refusal::invalid(format!("{field}[{index}]"), "contains a NUL character"));
        }
    }
    for (name, value) in &request.env {
        check_env_name(name).map_err(|problem| Refusal::invalid("env", problem))?;
        if value.contains('\0') {
            return Err(Refusal::invalid(format!("env.{name}"), "contains a NUL character"));
        }
    }
    Ok(())
}

/// Whether `name` can be a variable's: letters, digits and `_`, not beginning with a digit.
pub(crate) fn check_env_name(name: &str) -> Result<(), String> {
    let well_formed = !name.is_empty()
        && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
        && !name.as_bytes()[0].is_ascii_digit();
    if well_formed {
        return Ok(());
    }
    let shown: String = name.chars().take(64).collect();
    Err(format!("{shown:?} cannot be the name of an environment variable"))
}

fn check_outputs(outputs: &[String], outputs_max: usize) -> Result<(), Refusal> {
    if outputs.len() > outputs_max {
        let message = format!("there may be at most {outputs_max} output files");
        return Err(Refusal::invalid("outputs", message));
    }
    check_names(outputs.iter().map(String::as_str), "outputs", "")
}

/// Every name is a path below the workspace, and none occurs twice.
fn check_names<'a>(
    names: impl Iterator<Item = &'a str>,
    list: &str,
    field: &str,
) -> Result<(), Refusal> {
    let mut seen = HashSet::new();
    for (index, name) in names.enumerate() {
        let refuse = |problem| Refusal::invalid(format!("{list}[{index}]{field}"), problem);
        check_path(name).map_err(refuse)?;
        if !seen.insert(name) {
            return Err(refuse("is the name of an earlier one"));
        }
    }
    Ok(())
}

/// Whether `path` is a plain relative path: it cannot lead out of the directory it is used in.
pub(crate) fn check_path(path: &str) -> Result<(), &'static str> {
    if path.is_empty() {
        return Err("is empty");
    }
    if path.len() > PATH_BYTES_MAX {
        return Err("is longer than 4084 bytes");
    }
    if path.contains('\0') {
        return Err("contains a NUL character");
    }
    if path.starts_with('/') {
        return Err("must be relative");
    }
    for (index, part) in path.split('/').enumerate() {
        match part {
            "" => return Err("has an empty part"),
            "." | ".." => return Err("must not have `.` or `..` as a part"),
            _ if part.len() > PATH_PART_BYTES_MAX => {
                return Err("has a part of more than 255 bytes");
            }
            _ if index >= PATH_PARTS_MAX => return Err("has more than 16 parts"),
            _ => {}
        }
    }
    Ok(())
}

/// `a` and `a/b` cannot both be files.
fn check_no_file_is_a_directory(files: &[File]) -> Result<(), Refusal> {
    if files.len() < 2 {
        return Ok(());
    }
    let names: HashSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    for (index, file) in files.iter().enumerate() {
        if directories(&file.path).any(|directory| names.contains(directory)) {
            let message = "needs a directory where there is another file";
            return Err(Refusal::invalid(format!("files[{index}].name"), message));
        }
    }
    Ok(())
}

/// Every directory above `path`: `a` and `a/b` of `a/b/c`.
fn directories(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

/// What `execve` would refuse as too long is refused here, with a name.
fn check_argument_bytes(
    stages: &[(StageName, Command)],
    has_language: bool,
) -> Result<(), Refusal> {
    let bytes = |words: &[Vec<u8>]| -> usize {
        words.iter().map(|word| word.len() + 1 + size_of::<usize>()).sum()
    };
    for (stage, command) in stages {
        let (argv, env) = (bytes(&command.argv), bytes(&command.env));
        if argv + env <= ARGUMENT_BYTES_MAX {
            continue;
        }
        let field = match (stage, has_language) {
            (StageName::Compile, _) => "files",
            (_, _) if env > argv => "env",
            (_, true) => "args",
            (_, false) => "argv",
        };
        let message = format!(
            "arguments and environment of one program must be at most {ARGUMENT_BYTES_MAX} bytes"
        );
        return Err(Refusal::invalid(field, message));
    }
    Ok(())
}

/// The files must fit into the sandbox that they are placed in.
fn check_room(first: &(StageName, Command), files: &[File]) -> Result<(), Refusal> {
    let Limits { disk_bytes, disk_inodes, memory_bytes, .. } = first.1.limits;
    let path = match first.0 {
        StageName::Compile => "compile_limits",
        StageName::Run | StageName::Interactor | StageName::Checker => "limits",
    };
    let pages = files.iter().map(|file| file.content.len().next_multiple_of(PAGE_BYTES));
    let bytes: u64 = pages.sum();
    let above: HashSet<&str> = files.iter().flat_map(|file| directories(&file.path)).collect();
    let inodes = u64::try_from(files.len() + above.len()).unwrap_or(u64::MAX);
    for (field, limit, needed) in [
        ("disk_bytes", disk_bytes, bytes),
        // Files are held in memory, and so is what works on them.
        ("memory_bytes", memory_bytes / 2, bytes),
        ("disk_inodes", disk_inodes, inodes.saturating_add(INODES_SPARE)),
    ] {
        if needed > limit {
            let message =
                format!("is too small for the files of this request, which need {needed}");
            return Err(Refusal::invalid(format!("{path}.{field}"), message));
        }
    }
    Ok(())
}

fn decode(field: &str, text: &str) -> Result<Vec<u8>, Refusal> {
    let refuse = |error| Refusal::invalid(field, format!("is not base64: {error}"));
    BASE64.decode(text).map_err(refuse)
}

fn len(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
