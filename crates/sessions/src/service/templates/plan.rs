//! Steps of a template as commands with the keys of their layers. Pure.
//!
//! A step that changes files makes a layer. Its key is a hash of all inputs of the layer: the
//! previous key, the step's action, and its environment and directory. Steps that only set
//! properties (`ENV`, `WORKDIR`, `USER`) change the inputs of later steps.

use std::collections::BTreeMap;

use api::{BuildTemplate, TemplateStep};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::error::SessionError;
use crate::service::limits;

/// Maximum number of steps of one template.
const STEPS_MAX: usize = 256;
/// Maximum number of layers of one template, including those of its base: a sandbox has room for
/// 64, and a session needs some for snapshots.
const LAYERS_MAX: usize = 48;
/// Maximum bytes of a command. The kernel's limit for one argument is 128 KiB (`MAX_ARG_STRLEN`).
const COMMAND_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of a path.
const PATH_BYTES_MAX: usize = 1024;
/// Maximum characters of a step in its public description.
const SHOWN_MAX: usize = 200;
/// Maximum number of packages in one step.
const PACKAGES_MAX: usize = 1000;
/// Prefix of the command for a step that installs Python packages.
pub(super) const PIP_INSTALL: &str = "pip install ";
/// Directories whose files are preserved.
const KEPT: [&str; 2] = ["/workspace", "/home/user"];
/// Default directory of commands.
const WORKSPACE: &str = "/workspace";
/// The user of a sandbox.
const USER: &str = "user";
/// Programs that require root, or that manage the host's packages.
const OF_ROOT: [&str; 8] = ["apt", "apt-get", "apk", "dnf", "dpkg", "su", "sudo", "yum"];
/// Variable with the search path of programs.
const PATH: &str = "PATH";
/// Search path in a sandbox, including programs installed for its user.
const PATH_WITH_LOCAL: &str = "/home/user/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:\
    /usr/bin:/sbin:/bin";

/// Build on which a template is based.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TemplateBase {
    /// Key of its last step.
    pub(crate) key: String,
    /// Layers of the build.
    pub(crate) chain: Vec<String>,
    /// Environment of the build.
    pub(crate) env: BTreeMap<String, String>,
    /// Working directory of the build.
    pub(crate) workdir: Option<String>,
    /// Start and ready commands of the build, which the new template may override.
    pub(crate) commands: (Option<String>, Option<String>),
}

/// Step that makes a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LayerStep {
    /// Number of the step in the request, from 1.
    pub(crate) number: u32,
    /// Public description of the step.
    pub(crate) shown: String,
    /// Action of the step.
    pub(crate) action: StepAction,
    /// Environment that the template adds.
    pub(crate) env: BTreeMap<String, String>,
    /// Directory in which it runs; created if it is missing.
    pub(crate) workdir: String,
    /// Hash of all inputs of its layer.
    pub(crate) key: String,
    /// True to run it even if its layer exists.
    pub(crate) is_forced: bool,
}

/// Action of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StepAction {
    /// Runs a command with `bash`.
    Run(String),
    /// Runs `pip install` with these arguments, or `uv` with the same if it is installed.
    PipInstall(String),
    /// Unpacks files of an archive.
    Copy {
        /// Name of the archive in the store.
        archive: String,
        /// Path in the archive.
        source: String,
        /// Absolute destination path.
        to: String,
        /// Mode in octal digits.
        mode: Option<String>,
    },
    /// Creates the working directory.
    MakeWorkdir,
}

/// Complete plan of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TemplatePlan {
    /// Steps that make layers.
    pub(crate) steps: Vec<LayerStep>,
    /// Environment of sessions.
    pub(crate) env: BTreeMap<String, String>,
    /// Working directory of commands in sessions.
    pub(crate) workdir: Option<String>,
    /// Command that each new session runs in the background.
    pub(crate) start: Option<String>,
    /// Command that succeeds once the start command is ready.
    pub(crate) ready: Option<String>,
    /// Key of the last step.
    pub(crate) key: String,
}

/// A build request, with parameters that only faces set.
#[derive(Clone, Debug, Default)]
pub(crate) struct BuildSpec {
    /// The request.
    pub(crate) request: BuildTemplate,
    /// Namespace of the names of its archives.
    pub(crate) archives: ArchiveHash,
    /// Numbers of steps, from 1, that run even if their layers exist.
    pub(crate) forced: Vec<u32>,
    /// True if values of variables may refer to earlier variables.
    pub(crate) expands: bool,
    /// Initial working directory of commands.
    pub(crate) workdir: Option<String>,
}

/// Meaning of an archive's hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ArchiveHash {
    /// Hash of its bytes, which is verified.
    #[default]
    Content,
    /// Hash of its files, as E2B's clients compute it.
    Files,
}

impl ArchiveHash {
    /// Returns the name of an archive in the store.
    ///
    /// # Errors
    /// If `hash` is not a SHA-256 in lower-case hexadecimal digits.
    pub(crate) fn name(self, hash: &str) -> Result<String, SessionError> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if hash.len() != 64 || !hash.bytes().all(is_digit) {
            let message = "must be a SHA-256 of 64 hexadecimal digits in lower case";
            return Err(SessionError::invalid("archive", message));
        }
        Ok(match self {
            ArchiveHash::Content => format!("content:{hash}"),
            ArchiveHash::Files => format!("files:{hash}"),
        })
    }
}

/// Plans a request over a base. `host` identifies the host's programs.
///
/// # Errors
/// The invalid or unsupported step, with the reason.
pub(crate) fn plan(
    spec: &BuildSpec,
    base: TemplateBase,
    host: &str,
) -> Result<TemplatePlan, SessionError> {
    let request = &spec.request;
    if request.steps.len() > STEPS_MAX {
        return Err(SessionError::invalid("steps", format!("more than {STEPS_MAX}")));
    }
    for (field, command) in [("start", &request.start), ("ready", &request.ready)] {
        if let Some(command) = command {
            check_command(command, field)?;
        }
    }
    let key = if base.key.is_empty() { hash(&("base", host)) } else { base.key };
    let mut planner = Planner {
        spec,
        env: base.env,
        workdir: base.workdir.or_else(|| spec.workdir.clone()),
        made: None,
        is_forced: request.force,
        key,
        steps: Vec::new(),
    };
    planner.env.entry(PATH.to_owned()).or_insert_with(|| PATH_WITH_LOCAL.to_owned());
    for (index, step) in request.steps.iter().enumerate() {
        planner.add(index, step)?;
    }
    planner.make_workdir(request.steps.len());
    if base.chain.len() + planner.steps.len() > LAYERS_MAX {
        let message = format!(
            "more than {LAYERS_MAX} layers, with those of the template that it begins with; put \
             commands together with `&&`"
        );
        return Err(SessionError::invalid("steps", message));
    }
    limits::check_env(&planner.env, "steps")?;
    let (start, ready) = match &request.start {
        Some(start) => (Some(start.clone()), request.ready.clone()),
        None => (base.commands.0, request.ready.clone().or(base.commands.1)),
    };
    Ok(TemplatePlan {
        steps: planner.steps,
        env: planner.env,
        workdir: planner.workdir,
        start,
        ready,
        key: planner.key,
    })
}

struct Planner<'a> {
    spec: &'a BuildSpec,
    env: BTreeMap<String, String>,
    workdir: Option<String>,
    /// Working directory that a step has created.
    made: Option<String>,
    is_forced: bool,
    key: String,
    steps: Vec<LayerStep>,
}

impl Planner<'_> {
    fn add(&mut self, index: usize, step: &TemplateStep) -> Result<(), SessionError> {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        self.is_forced |= self.spec.forced.contains(&number);
        let field = format!("steps[{index}]");
        match step {
            TemplateStep::Env { values } => self.set_env(values, &field)?,
            TemplateStep::Workdir { path } => {
                self.workdir = Some(self.kept(path, &format!("{field}.path"))?);
            }
            TemplateStep::User { name } => check_user(name, &format!("{field}.name"))?,
            TemplateStep::Run { command } => {
                check_command(command, &format!("{field}.command"))?;
                refuse_root_command(command, &format!("{field}.command"))?;
                self.layer(number, format!("RUN {command}"), StepAction::Run(command.clone()));
            }
            TemplateStep::Copy { archive, source, to, mode } => {
                let action = self.copy(archive, source, to, mode.as_ref(), &field)?;
                self.layer(number, format!("COPY {source} {to}"), action);
            }
            TemplateStep::PipInstall { packages } => {
                let command = install(&["pip", "install"], packages, Some("."), &field)?;
                // Options of pip may not exist in uv.
                let has_options = packages.iter().any(|word| word.starts_with('-'));
                let action = match command.strip_prefix(PIP_INSTALL) {
                    Some(words) if !has_options => StepAction::PipInstall(words.to_owned()),
                    _ => StepAction::Run(command.clone()),
                };
                self.layer(number, format!("RUN {command}"), action);
            }
            TemplateStep::NpmInstall { packages, global } => {
                let program: &[&str] = match global {
                    true => &["npm", "install", "-g"],
                    false => &["npm", "install"],
                };
                let command = install(program, packages, None, &field)?;
                self.layer(number, format!("RUN {command}"), StepAction::Run(command));
            }
            TemplateStep::GitClone { url, path, branch, depth } => {
                let path = match path {
                    Some(path) => Some(self.kept(path, &format!("{field}.path"))?),
                    None => None,
                };
                let command = clone(url, path.as_deref(), branch.as_deref(), *depth);
                check_command(&command, &format!("{field}.url"))?;
                self.layer(number, format!("RUN {command}"), StepAction::Run(command));
            }
        }
        Ok(())
    }

    fn layer(&mut self, number: u32, shown: String, action: StepAction) {
        let workdir = self.workdir.clone().unwrap_or_else(|| WORKSPACE.to_owned());
        self.key = hash(&(&self.key, &action, &self.env, &workdir));
        self.made = Some(workdir.clone());
        self.steps.push(LayerStep {
            number,
            shown: first_of(&shown),
            action,
            env: self.env.clone(),
            workdir,
            key: self.key.clone(),
            is_forced: self.is_forced,
        });
    }

    /// Creates the last working directory if no step runs in it.
    fn make_workdir(&mut self, steps: usize) {
        let Some(workdir) = self.workdir.clone() else { return };
        if self.made.as_ref() == Some(&workdir) || KEPT.contains(&workdir.as_str()) {
            return;
        }
        let number = u32::try_from(steps).unwrap_or(u32::MAX);
        self.layer(number, format!("WORKDIR {workdir}"), StepAction::MakeWorkdir);
    }

    fn set_env(
        &mut self,
        values: &BTreeMap<String, String>,
        field: &str,
    ) -> Result<(), SessionError> {
        limits::check_env(values, &format!("{field}.values"))?;
        let before = self.env.clone();
        for (name, value) in values {
            let value = match self.spec.expands {
                true => expanded(value, &before),
                false => value.clone(),
            };
            self.env.insert(name.clone(), value);
        }
        limits::check_env(&self.env, &format!("{field}.values"))
    }

    fn copy(
        &self,
        archive: &str,
        source: &str,
        to: &str,
        mode: Option<&String>,
        field: &str,
    ) -> Result<StepAction, SessionError> {
        let name = self.spec.archives.name(archive);
        let name = name.map_err(|error| {
            SessionError::invalid(format!("{field}.archive"), error.to_string())
        })?;
        if source.is_empty() || source.starts_with('/') || !is_path(source) {
            let message = "must be a relative path or pattern without `..`";
            return Err(SessionError::invalid(format!("{field}.source"), message));
        }
        let is_octal = |mode: &&String| {
            (3..=4).contains(&mode.len()) && mode.bytes().all(|byte| (b'0'..=b'7').contains(&byte))
        };
        if mode.is_some() && mode.filter(is_octal).is_none() {
            let message = "must have three or four octal digits, such as `0755`";
            return Err(SessionError::invalid(format!("{field}.mode"), message));
        }
        let mut kept = self.kept(to, &format!("{field}.to"))?;
        if to.ends_with('/') || to == "." {
            kept.push('/');
        }
        Ok(StepAction::Copy {
            archive: name,
            source: source.to_owned(),
            to: kept,
            mode: mode.cloned(),
        })
    }

    /// Returns an absolute path below the preserved directories.
    fn kept(&self, path: &str, field: &str) -> Result<String, SessionError> {
        let workdir = self.workdir.as_deref().unwrap_or(WORKSPACE);
        let whole = match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("{workdir}/{path}"),
        };
        let parts: Vec<&str> =
            whole.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        let plain = format!("/{}", parts.join("/"));
        let is_below = |directory: &str| {
            plain
                .strip_prefix(directory)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if path.is_empty() || !is_path(&whole) {
            let message = format!("must be a path without `..`, of at most {PATH_BYTES_MAX} bytes");
            return Err(SessionError::invalid(field, message));
        }
        match KEPT.iter().any(|directory| is_below(directory)) {
            true => Ok(plain),
            false => Err(SessionError::invalid(
                field,
                format!(
                    "`{}` is not kept: a template has files below /workspace and /home/user, and \
                     all else is the host's and cannot be changed",
                    first_of(&plain)
                ),
            )),
        }
    }
}

fn is_path(path: &str) -> bool {
    path.len() <= PATH_BYTES_MAX && !path.contains('\0') && path.split('/').all(|part| part != "..")
}

/// Rejects every user except the sandbox's only one.
///
/// # Errors
/// Explains why no other user exists.
pub(crate) fn check_user(name: &str, field: &str) -> Result<(), SessionError> {
    if name.is_empty() || name == USER || name == "user:user" {
        return Ok(());
    }
    let message = format!(
        "there is no user `{}`: a sandbox has one user without rights over the host, `user`, and \
         steps run as that",
        first_of(name)
    );
    Err(SessionError::invalid(field, message))
}

/// Rejects a command that would run as another user. A command that only installs packages runs as
/// the sandbox's user.
///
/// # Errors
/// Explains the rejection.
pub(crate) fn check_run(command: &str, user: &str, field: &str) -> Result<(), SessionError> {
    refuse_root_command(command, field)?;
    match is_install(command) {
        true => Ok(()),
        false => check_user(user, field),
    }
}

/// Returns whether a command installs packages into the user's own directories, which needs no
/// root.
pub(crate) fn is_install(command: &str) -> bool {
    let is_plain = !command.contains(['&', ';', '|', '\n', '`', '$']);
    is_plain
        && ["pip install", "pip3 install", "npm install"].iter().any(|program| {
            command
                .strip_prefix(program)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        })
}

fn check_command(command: &str, field: &str) -> Result<(), SessionError> {
    if command.trim().is_empty() || command.len() > COMMAND_BYTES_MAX || command.contains('\0') {
        let message = format!("must be a command of at most {COMMAND_BYTES_MAX} bytes without NUL");
        return Err(SessionError::invalid(field, message));
    }
    Ok(())
}

/// Rejects commands that begin with a program that could only fail, to give a clear reason.
fn refuse_root_command(command: &str, field: &str) -> Result<(), SessionError> {
    for part in command.split(['&', ';', '|', '\n', '(']) {
        let is_assignment = |word: &&str| {
            let name = word.split_once('=').map(|(name, _)| name).unwrap_or_default();
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let program = part.split_whitespace().find(|word| !is_assignment(word));
        if let Some(program) = program.filter(|program| OF_ROOT.contains(program)) {
            let message = format!(
                "`{program}` needs root, which there is not in a sandbox: system packages are the \
                 host's, so install them there"
            );
            return Err(SessionError::invalid(field, message));
        }
    }
    Ok(())
}

fn install(
    program: &[&str],
    packages: &[String],
    without: Option<&str>,
    field: &str,
) -> Result<String, SessionError> {
    let field = format!("{field}.packages");
    if packages.len() > PACKAGES_MAX {
        return Err(SessionError::invalid(field, format!("more than {PACKAGES_MAX}")));
    }
    let mut words: Vec<String> = program.iter().map(|&word| word.to_owned()).collect();
    words.extend(packages.iter().map(|package| quoted(package)));
    if packages.is_empty() {
        words.extend(without.map(str::to_owned));
    }
    let command = words.join(" ");
    check_command(&command, &field)?;
    Ok(command)
}

fn clone(url: &str, path: Option<&str>, branch: Option<&str>, depth: Option<u32>) -> String {
    let mut command = "git clone".to_owned();
    if let Some(branch) = branch {
        command.push_str(&format!(" --branch {} --single-branch", quoted(branch)));
    }
    if let Some(depth) = depth {
        command.push_str(&format!(" --depth {depth}"));
    }
    command.push_str(&format!(" -- {}", quoted(url)));
    if let Some(path) = path {
        command.push_str(&format!(" {}", quoted(path)));
    }
    command
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"@%+=:,./-_[]".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Expands `$NAME` and `${NAME}` in a value; undefined variables are empty.
fn expanded(value: &str, env: &BTreeMap<String, String>) -> String {
    let mut text = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.find('$') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let (name, behind) = match rest.strip_prefix('{').and_then(|it| it.split_once('}')) {
            Some(parts) => parts,
            None => {
                let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
                rest.split_at(rest.bytes().position(|byte| !is_name(byte)).unwrap_or(rest.len()))
            }
        };
        if name.is_empty() {
            text.push('$');
            continue;
        }
        text.push_str(env.get(name).map_or("", String::as_str));
        rest = behind;
    }
    text.push_str(rest);
    text
}

/// Returns the beginning of a text, on one line.
fn first_of(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown.replace('\n', " ")
}

fn hash(parts: &impl Serialize) -> String {
    // Cannot fail: the maps have string keys.
    let json = serde_json::to_vec(parts).unwrap_or_default();
    node::hex::encode(&Sha256::digest(&json))
}

#[cfg(test)]
mod tests {
    //! Plans of valid requests, and rejected ones.

    use super::*;

    fn run(command: &str) -> TemplateStep {
        TemplateStep::Run { command: command.to_owned() }
    }

    fn of(steps: Vec<TemplateStep>) -> Result<TemplatePlan, SessionError> {
        let request = BuildTemplate { steps, ..BuildTemplate::default() };
        plan(&BuildSpec { request, ..BuildSpec::default() }, TemplateBase::default(), "host")
    }

    fn env(name: &str, value: &str) -> TemplateStep {
        TemplateStep::Env { values: [(name.to_owned(), value.to_owned())].into() }
    }

    fn workdir(path: &str) -> TemplateStep {
        TemplateStep::Workdir { path: path.to_owned() }
    }

    fn copy(source: &str, to: &str, mode: Option<&str>) -> TemplateStep {
        TemplateStep::Copy {
            archive: "0".repeat(64),
            source: source.to_owned(),
            to: to.to_owned(),
            mode: mode.map(str::to_owned),
        }
    }

    #[test]
    fn keys_depend_on_all_that_a_layer_comes_from_and_on_nothing_else() {
        let keys = |steps| -> Vec<String> {
            of(steps).unwrap().steps.into_iter().map(|step| step.key).collect()
        };
        let plain = keys(vec![run("a"), run("b")]);
        assert_eq!(keys(vec![run("a"), run("b")]), plain);
        assert_eq!(keys(vec![run("a"), run("c")])[0], plain[0]);
        assert_ne!(keys(vec![run("a"), run("c")])[1], plain[1]);
        assert_ne!(keys(vec![run("c"), run("b")])[1], plain[1]);
        assert_eq!(keys(vec![run("a"), env("X", "1"), run("b")])[0], plain[0]);
        assert_ne!(keys(vec![run("a"), env("X", "1"), run("b")])[1], plain[1]);
        assert_ne!(keys(vec![run("a"), workdir("sub"), run("b")])[1], plain[1]);
    }

    #[test]
    fn a_working_directory_is_made_where_no_step_runs_in_it() {
        let made = of(vec![run("a"), workdir("/workspace/app")]).unwrap();
        assert_eq!(made.steps[1].action, StepAction::MakeWorkdir);
        assert_eq!(made.workdir.as_deref(), Some("/workspace/app"));
        assert_eq!(of(vec![workdir("app"), run("a")]).unwrap().steps.len(), 1);
        assert_eq!(of(vec![workdir("/home/user")]).unwrap().steps.len(), 0);
    }

    #[test]
    fn steps_that_there_are_not_are_refused_with_their_field() {
        let check = |step: TemplateStep, field: &str| match of(vec![step]) {
            Err(SessionError::Refused(refusal)) => assert_eq!(refusal.field, field),
            other => panic!("{other:?} instead of a refusal of {field}"),
        };
        check(TemplateStep::User { name: "root".to_owned() }, "steps[0].name");
        for command in ["apt-get update", "true && DEBIAN=x apt install y", "a; sudo b", "", "\0"] {
            check(run(command), "steps[0].command");
        }
        for path in ["/", "/app", "/tmp/x", "../x", "/workspace/../etc", "", "/workspaces"] {
            check(workdir(path), "steps[0].path");
            check(copy(".", path, None), "steps[0].to");
        }
        for source in ["", "/etc/passwd", "../x", "a/../../b"] {
            check(copy(source, ".", None), "steps[0].source");
        }
        for mode in ["", "9", "0999", "07777"] {
            check(copy(".", ".", Some(mode)), "steps[0].mode");
        }
        check(env("1X", ""), "steps[0].values.1X");
        let broken = TemplateStep::Copy {
            archive: "../x".to_owned(),
            source: ".".to_owned(),
            to: ".".to_owned(),
            mode: None,
        };
        check(broken, "steps[0].archive");
        assert!(of(vec![run("echo apt"), run("x=1 echo sudo")]).is_ok());
    }

    #[test]
    fn words_of_packages_are_no_commands() {
        let step = TemplateStep::PipInstall { packages: vec!["a; rm -rf ~".to_owned()] };
        let made = of(vec![step]).unwrap();
        assert_eq!(made.steps[0].action, StepAction::PipInstall("'a; rm -rf ~'".to_owned()));
        for (command, expected) in [
            ("pip install numpy 'pandas<3'", true),
            ("npm install -g typescript", true),
            ("pip install x && rm y", false),
            ("pip installer", false),
            ("mkdir /app", false),
        ] {
            assert_eq!(is_install(command), expected, "{command}");
        }
    }

    #[test]
    fn variables_are_expanded_from_those_before() {
        let env = [("A".to_owned(), "1".to_owned())].into();
        for (value, expected) in [
            ("$A", "1"),
            ("${A}x$B", "1x"),
            ("$", "$"),
            ("a$A-", "a1-"),
            ("${A", "${A"),
            ("é$A", "é1"),
        ] {
            assert_eq!(expanded(value, &env), expected, "{value}");
        }
    }
}
