//! Runtimes that are started before their programs arrive, and the programs that each may run.
//!
//! Pure: the engine keeps the runtimes, this module defines them. A runtime only runs a program
//! that could not detect the difference; everything that the interpreter reads at its start must be
//! the same.

use api::{ExecutionMode, LimitSpec};
use sandbox::{
    OutputMode, ProgramLimits, SandboxCommand, SeccompProfile, StdinSource, WARM_STACK_BYTES_MAX,
    WarmKind, WarmRuntime,
};
use serde::Deserialize;

use super::{ConfiguredLanguage, ENVIRONMENT, Languages, TemplateValues, has};
use crate::config::{ConfigError, ExecutionsConfig};
use crate::limits::{LimitRules, LimitTable};

/// Maximum number of copies of one zygote. Each replacement costs one start of the interpreter.
const FORKS_MAX: u32 = 2000;
/// Prefixes of variables that an interpreter, the C library or the loader reads at the start.
const START_PREFIXES: [&str; 8] =
    ["PYTHON", "NODE_", "UV_", "LD_", "LC_", "MALLOC_", "GLIBC_", "SSL_"];
/// Names of further such variables.
const START_NAMES: [&str; 6] = ["LANG", "LANGUAGE", "HOME", "TZ", "TZDIR", "OPENSSL_CONF"];

/// Interpreter of a way that is started ahead.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WarmEntry {
    kind: KindEntry,
    /// Number of sandboxes kept prepared with it, unless the configuration overrides it.
    ready: usize,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum KindEntry {
    PythonFork,
    NodeStart,
    JavaStart,
}

impl Languages {
    /// Returns the runtimes to start ahead: one for each language that can be used here and has
    /// one, with the limits of a request that specifies none. `ready` replaces the table's numbers.
    ///
    /// # Errors
    /// If the configured limits contradict each other.
    pub fn warm_runtimes(
        &self,
        config: &ExecutionsConfig,
        memory_budget_bytes: u64,
        ready: Option<usize>,
    ) -> Result<Vec<WarmRuntime>, ConfigError> {
        let rules = LimitRules::new(
            LimitTable::Run,
            &config.limits,
            &config.limits_max,
            memory_budget_bytes,
        )
        .map_err(ConfigError)?;
        let languages = self.inner.languages.values();
        Ok(languages.filter_map(|language| self.warm_runtime(language, &rules, ready)).collect())
    }

    fn warm_runtime(
        &self,
        language: &ConfiguredLanguage,
        rules: &LimitRules,
        ready: Option<usize>,
    ) -> Option<WarmRuntime> {
        // A way that depends on a version is not chosen yet, and not worth a wait.
        let way = language.ways.get(*language.choice.get()?.as_ref().ok()?)?;
        let warm = way.warm?;
        let limits = rules.resolve("limits", &LimitSpec::default(), &language.limits).ok()?;
        let values = TemplateValues {
            entry: &language.entry,
            files: &[&language.entry],
            args: &[],
            memory_bytes: limits.memory_bytes,
            prepared: "",
        };
        let argv = way.run.fill(&values);
        // Requires that the caller's arguments come after these; otherwise commands would not
        // match.
        let args = ["x".to_owned()];
        let with_args = way.run.fill(&TemplateValues { args: &args, ..values });
        let (last, before) = with_args.split_last()?;
        if last != b"x" || before != argv {
            return None;
        }
        // Their hooks run because the interpreter is about to open this file.
        let opens_entry = match warm.kind {
            KindEntry::PythonFork | KindEntry::NodeStart => true,
            KindEntry::JavaStart => false,
        };
        if opens_entry && argv.last()? != language.entry.as_bytes() {
            return None;
        }
        let base = [("PATH", self.path())].into_iter().chain(ENVIRONMENT);
        let base = base.filter(|(name, _)| !has(&way.env, name));
        let base = base.map(|(name, value)| (name, value.as_bytes().to_vec()));
        let own = way.env.iter().map(|(name, value)| (name.as_str(), value.fill(&values).concat()));
        let env = base.chain(own).map(|(name, value)| [name.as_bytes(), b"=", &value].concat());
        Some(WarmRuntime {
            name: language.name.clone(),
            kind: match warm.kind {
                KindEntry::PythonFork => WarmKind::ForkPython,
                KindEntry::NodeStart => WarmKind::StartNode,
                KindEntry::JavaStart => WarmKind::StartJava,
            },
            argv,
            env: env.collect(),
            limits,
            ready: ready.unwrap_or(warm.ready),
            forks_max: FORKS_MAX,
        })
    }
}

/// Returns the runtime that may run a command: the command begins with its arguments, and its
/// interpreter would start with the same environment and limits.
pub(crate) fn runtime_for<'r>(
    runtimes: &'r [WarmRuntime],
    command: &SandboxCommand,
) -> Option<&'r WarmRuntime> {
    let serves = |runtime: &&WarmRuntime| {
        command.argv.starts_with(&runtime.argv)
            && command.profile == SeccompProfile::Run
            && command.terminal.is_none()
            && command.extra.is_empty()
            && start_env(&command.env) == start_env(&runtime.env)
            && match runtime.kind {
                WarmKind::ForkPython => command.limits.stack_bytes <= WARM_STACK_BYTES_MAX,
                WarmKind::StartNode => {
                    started_for(&runtime.limits, &command.limits) && is_captured(command)
                }
                WarmKind::StartJava => {
                    command.argv == runtime.argv
                        && command.env == runtime.env
                        && started_for(&runtime.limits, &command.limits)
                        && is_captured(command)
                }
            }
    };
    runtimes.iter().find(serves)
}

/// Returns the mode that the answer reports for a program that this runtime ran.
pub(crate) fn mode(runtime: &WarmRuntime) -> ExecutionMode {
    match runtime.kind {
        WarmKind::ForkPython => ExecutionMode::Zygote,
        WarmKind::StartNode | WarmKind::StartJava => ExecutionMode::Prestarted,
    }
}

/// Returns whether the limits of a process are those of its start: they are not set again.
fn started_for(own: &ProgramLimits, requested: &ProgramLimits) -> bool {
    own.memory_bytes == requested.memory_bytes
        && own.processes == requested.processes
        && own.open_files == requested.open_files
        && own.file_size_bytes == requested.file_size_bytes
        && own.stack_bytes == requested.stack_bytes
        && own.cpu >= requested.cpu
}

/// Returns whether the streams are those of every waiting runtime.
fn is_captured(command: &SandboxCommand) -> bool {
    matches!((&command.stdout, &command.stderr), (OutputMode::Capture, OutputMode::Capture))
        && !matches!(command.stdin, StdinSource::Handle(_))
}

/// Returns the variables that matter at the start of an interpreter, in a fixed order.
fn start_env(env: &[Vec<u8>]) -> Vec<&[u8]> {
    let matters = |variable: &&[u8]| {
        let name = variable.split(|byte| *byte == b'=').next().unwrap_or_default();
        START_PREFIXES.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
            || START_NAMES.iter().any(|other| name == other.as_bytes())
    };
    let mut found: Vec<&[u8]> = env.iter().map(Vec::as_slice).filter(matters).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(list: &[&str]) -> Vec<Vec<u8>> {
        list.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    fn runtime() -> WarmRuntime {
        WarmRuntime {
            name: "python".to_owned(),
            kind: WarmKind::ForkPython,
            argv: strings(&["/usr/bin/python3", "main.py"]),
            env: strings(&["PATH=/bin", "HOME=/home/user", "LANG=C.UTF-8", "PYTHONUNBUFFERED=1"]),
            limits: sandbox::ProgramLimits::default(),
            ready: 2,
            forks_max: FORKS_MAX,
        }
    }

    fn command() -> SandboxCommand {
        SandboxCommand { argv: runtime().argv, env: runtime().env, ..SandboxCommand::default() }
    }

    fn check(name: &str, is_served: bool, change: impl Fn(&mut SandboxCommand)) {
        let mut command = command();
        change(&mut command);
        let found = [runtime()];
        assert_eq!(runtime_for(&found, &command).is_some(), is_served, "{name}");
    }

    #[test]
    fn a_runtime_of_its_own_is_for_the_limits_and_streams_that_it_was_started_with() {
        let runtime = WarmRuntime { kind: WarmKind::StartNode, ..runtime() };
        let check = |is_served: bool, change: fn(&mut SandboxCommand)| {
            let mut command = command();
            change(&mut command);
            assert_eq!(runtime_for(std::slice::from_ref(&runtime), &command).is_some(), is_served);
        };
        check(true, |_| {});
        check(true, |command| command.limits.cpu /= 2);
        check(true, |command| command.limits.wall *= 2);
        check(false, |command| command.limits.cpu *= 2);
        check(false, |command| command.limits.memory_bytes += 1);
        check(false, |command| command.limits.open_files -= 1);
        check(false, |command| command.limits.stack_bytes -= 1);
        check(false, |command| command.limits.processes -= 1);
        check(false, |command| command.limits.file_size_bytes -= 1);
        check(false, |command| command.stderr = OutputMode::Stdout);
    }

    #[test]
    fn a_machine_that_cannot_be_told_more_is_for_what_it_was_started_with() {
        let runtime = WarmRuntime { kind: WarmKind::StartJava, ..runtime() };
        let check = |is_served: bool, change: fn(&mut SandboxCommand)| {
            let mut command = command();
            change(&mut command);
            assert_eq!(runtime_for(std::slice::from_ref(&runtime), &command).is_some(), is_served);
        };
        check(true, |_| {});
        check(true, |command| command.limits.cpu /= 2);
        check(false, |command| command.argv.push(b"-x".to_vec()));
        check(false, |command| command.env.push(b"A=1".to_vec()));
        check(false, |command| command.env[0] = b"PATH=/x".to_vec());
        check(false, |command| command.env.clear());
        check(false, |command| command.limits.memory_bytes += 1);
        check(false, |command| command.stderr = OutputMode::Stdout);
    }

    #[test]
    fn a_program_that_could_tell_is_not_run_by_a_waiting_runtime() {
        check("as it is", true, |_| {});
        check("arguments", true, |command| command.argv.push(b"-x".to_vec()));
        check("other variables", true, |command| command.env.push(b"A=1".to_vec()));
        check("another path", true, |command| command.env[0] = b"PATH=/x".to_vec());
        check("another order", true, |command| command.env.swap(0, 3));
        check("another file", false, |command| command.argv[1] = b"a.py".to_vec());
        check("no file", false, |command| drop(command.argv.pop()));
        check("another interpreter", false, |command| command.argv[0] = b"python3".to_vec());
        check("a compiler", false, |command| command.profile = SeccompProfile::Compile);
        check("a deep stack", false, |command| {
            command.limits.stack_bytes = WARM_STACK_BYTES_MAX + 1;
        });
        check("a terminal", false, |command| {
            command.terminal = Some(sandbox::TerminalDimensions { rows: 1, cols: 1 });
        });
        for variable in
            ["PYTHONHASHSEED=1", "LC_ALL=C", "TZ=UTC", "LD_PRELOAD=x", "MALLOC_ARENA_MAX=1"]
        {
            check(variable, false, |command| command.env.push(variable.as_bytes().to_vec()));
        }
        check("another home", false, |command| command.env[1] = b"HOME=/tmp".to_vec());
        check("no language", false, |command| drop(command.env.remove(2)));
        check("buffered", false, |command| drop(command.env.remove(3)));
    }
}
