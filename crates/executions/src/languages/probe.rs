//! Runs tools of the host: to detect their versions and to prepare files for sandboxes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use tokio::process::Command;
use tokio::sync::OnceCell;

use super::find::FoundTool;
use super::table::{LoadError, ToolEntry, WayEntry};
use super::template::{ArgumentTemplate, LocatedTool, TemplateValues};

/// Timeout for a tool that hangs: a tool that answers too late counts as missing until the next
/// start, and a JVM needs more than ten seconds on a busy machine.
const VERSION_WAIT: Duration = Duration::from_secs(60);
/// Timeout for preparation: the Go standard library takes a minute of CPU.
const PREPARE_WAIT: Duration = Duration::from_secs(1800);
/// Maximum length of a version in characters.
const VERSION_CHARS_MAX: usize = 120;
/// Marks a prepared directory that can be used.
const READY: &str = ".ready";
/// Marks a prepared directory that is complete. The number changes when `prepare_rest` adds more,
/// so that directories of earlier versions get it too.
const COMPLETE: &str = ".complete-2";

/// Probe of a tool's version, with its result.
#[derive(Debug)]
pub(super) struct VersionProbe {
    argv: Vec<PathBuf>,
    version: OnceCell<Option<String>>,
}

impl VersionProbe {
    pub(super) fn new(
        name: &str,
        tool: &ToolEntry,
        tools: &BTreeMap<String, FoundTool>,
    ) -> VersionProbe {
        let programs = tool.interpreter.iter().map(String::as_str).chain([name]);
        let programs = programs.filter_map(|name| tools.get(name));
        let argv = programs.map(|found| found.host_program.clone());
        let argv = argv.chain(tool.version.iter().map(PathBuf::from)).collect();
        VersionProbe { argv, version: OnceCell::new() }
    }

    /// Returns the version; runs the tool at the first call.
    pub(super) async fn version(&self) -> Option<String> {
        self.version.get_or_init(|| ask(&self.argv)).await.clone()
    }

    /// Returns whether the tool was already run.
    pub(super) fn is_known(&self) -> bool {
        self.version.initialized()
    }

    /// Returns the version, if the tool was already run.
    pub(super) fn known_version(&self) -> Option<String> {
        self.version.get().cloned().flatten()
    }
}

async fn ask(argv: &[PathBuf]) -> Option<String> {
    let (program, args) = argv.split_first()?;
    let output = Command::new(program)
        .args(args)
        .env_clear()
        .env("PATH", super::PATH)
        .current_dir("/")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = match tokio::time::timeout(VERSION_WAIT, output).await {
        Ok(Ok(output)) if output.status.success() => output,
        Ok(Ok(output)) => {
            tracing::warn!(program = %program.display(), status = %output.status, "tool does not tell its version");
            return None;
        }
        Ok(Err(error)) => {
            tracing::warn!(program = %program.display(), %error, "tool cannot be started");
            return None;
        }
        Err(_) => {
            tracing::warn!(program = %program.display(), "tool takes too long to tell its version");
            return None;
        }
    };
    first_line(&output.stdout).or_else(|| first_line(&output.stderr))
}

fn first_line(output: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(output);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().filter(|c| !c.is_control()).take(VERSION_CHARS_MAX).collect())
}

/// Returns whether the first dotted number in `version` is `oldest` or newer.
pub(super) fn at_least(version: &str, oldest: &str) -> bool {
    let numbers = |text: &str| -> Vec<u64> {
        let start = text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len());
        let end = text[start..].find(|c: char| !c.is_ascii_digit() && c != '.');
        let number = &text[start..end.map_or(text.len(), |end| start + end)];
        number.split('.').map_while(|part| part.parse().ok()).collect()
    };
    let version = numbers(version);
    !version.is_empty() && version >= numbers(oldest)
}

/// A directory that a host tool fills once and that sandboxes see read-only.
#[derive(Debug)]
pub(crate) struct PreparedDirectory {
    toolchain: sandbox::Toolchain,
    inside: String,
    argv: Vec<Vec<u8>>,
    /// Command that runs afterwards, while the results of the first one are in use.
    rest: Option<Vec<Vec<u8>>>,
    env: Vec<(String, Vec<u8>)>,
    ready: AtomicBool,
    filling: AtomicBool,
}

impl PreparedDirectory {
    /// Creates the directory. Its name contains the version of the tool: a newer tool uses a new
    /// one.
    pub(super) fn new(
        language: &str,
        way: &WayEntry,
        tools: &BTreeMap<String, FoundTool>,
        cache: &Path,
    ) -> Result<PreparedDirectory, LoadError> {
        let tool = tools.get(&way.version).map(|found| found.host_program.as_path());
        let path = cache.join(format!("{language}-{}", fingerprint(tool.unwrap_or(Path::new("")))));
        let made = fs::create_dir_all(&path)
            // Readable for the users of sandboxes, independent of the umask.
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
            // The tool and the sandbox engine have other working directories.
            .and_then(|()| fs::canonicalize(&path));
        let source = made.map_err(|source| LoadError::Prepared { path, source })?;

        let at = |problem| LoadError::entry(format!("languages.{language}"), problem);
        let directory = source.to_str().ok_or_else(|| at("`cache` is not UTF-8".to_owned()))?;
        let places: BTreeMap<&str, (String, String)> = tools
            .iter()
            .map(|(name, found)| {
                let program = found.host_program.display().to_string();
                (name.as_str(), (program, found.host_directory.display().to_string()))
            })
            .collect();
        let locate = |name: &str| {
            places.get(name).map(|(program, directory)| LocatedTool { program, directory })
        };
        let values = TemplateValues {
            entry: "",
            files: &[],
            args: &[],
            memory_bytes: 0,
            prepared: directory,
        };
        let fill = |arguments: &[String]| {
            let template = ArgumentTemplate::parse(arguments, &locate, &mut Default::default());
            template.map(|template| template.fill(&values)).map_err(at)
        };
        let mut env = Vec::new();
        for (name, value) in &way.compile_env {
            env.push((name.clone(), fill(std::slice::from_ref(value))?.concat()));
        }
        let name = format!("{language}-prepared");
        Ok(PreparedDirectory {
            inside: format!("/opt/{name}"),
            argv: fill(way.prepare.as_deref().unwrap_or_default())?,
            rest: way.prepare_rest.as_deref().map(fill).transpose()?,
            env,
            ready: AtomicBool::new(source.join(READY).exists()),
            filling: AtomicBool::new(false),
            toolchain: sandbox::Toolchain { source, name },
        })
    }

    pub(super) fn toolchain(&self) -> &sandbox::Toolchain {
        &self.toolchain
    }

    /// Returns its path in sandboxes, once it is ready.
    pub(crate) fn inside(&self) -> Option<&str> {
        self.ready.load(Ordering::Acquire).then_some(self.inside.as_str())
    }

    /// Records that it is going to be filled, unless it is complete.
    pub(super) fn announce(&self) {
        let is_complete = match &self.rest {
            Some(_) => self.toolchain.source.join(COMPLETE).exists(),
            None => self.inside().is_some(),
        };
        self.filling.store(!is_complete, Ordering::Release);
    }

    /// Reverts [`Self::announce`].
    pub(super) fn withdraw(&self) {
        self.filling.store(false, Ordering::Release);
    }

    /// Returns whether it is being filled, or is going to be.
    pub(super) fn is_filling(&self) -> bool {
        self.filling.load(Ordering::Acquire)
    }

    /// Fills it, unless it is complete. A failure only affects speed.
    pub(super) async fn fill(&self, language: &str, tie: super::Tie) {
        self.filling.store(true, Ordering::Release);
        let filled = self.fill_all(language, tie).await;
        self.filling.store(false, Ordering::Release);
        if let Err(failure) = filled {
            tracing::warn!(language, failure, "prepare failed; compiling will be slow");
        }
    }

    async fn fill_all(&self, language: &str, tie: super::Tie) -> Result<(), String> {
        if self.inside().is_none() {
            self.run(&self.argv, READY, tie).await?;
            self.ready.store(true, Ordering::Release);
            self.remove_older(language);
            tracing::info!(language, "prepared");
        }
        match &self.rest {
            Some(rest) if !self.toolchain.source.join(COMPLETE).exists() => {
                self.run(rest, COMPLETE, tie).await?;
                tracing::info!(language, "prepared completely");
                Ok(())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Runs a tool that adds to it, and creates a marker file of this name afterwards.
    async fn run(&self, argv: &[Vec<u8>], done: &str, tie: super::Tie) -> Result<(), String> {
        use std::os::unix::ffi::OsStrExt;
        let directory = &self.toolchain.source;
        let text = |bytes: &[u8]| std::ffi::OsStr::from_bytes(bytes).to_owned();
        // The shell lowers the priority and makes the files readable for sandboxes.
        let shell = ["/bin/sh", "-c", "umask 022; exec nice -n 19 \"$@\"", "sh"];
        let shell_arguments = shell.iter().map(std::ffi::OsString::from);
        // Compilers started by the tool would outlive a server that is killed.
        let argv: Vec<_> = shell_arguments.chain(argv.iter().map(|word| text(word))).collect();
        let argv = tie(&argv);
        let Some((program, args)) = argv.split_first() else { return Ok(()) };
        let output = Command::new(program)
            .args(args)
            // Ctrl-C goes to the whole foreground group; only the server ends this process.
            .process_group(0)
            .env_clear()
            .env("PATH", super::PATH)
            .env("HOME", directory)
            .envs(self.env.iter().map(|(name, value)| (name, text(value))))
            .current_dir(directory)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        match tokio::time::timeout(PREPARE_WAIT, output).await {
            Ok(Ok(output)) if output.status.success() => {
                fs::write(directory.join(done), b"").map_err(|error| error.to_string())
            }
            Ok(Ok(output)) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("takes too long".to_owned()),
        }
    }
}

impl PreparedDirectory {
    /// Removes directories prepared by other versions of the tool.
    fn remove_older(&self, language: &str) {
        let own = &self.toolchain.source;
        let entries = own.parent().and_then(|cache| fs::read_dir(cache).ok());
        for entry in entries.into_iter().flatten().flatten() {
            let name = entry.file_name();
            let older = name.to_str().is_some_and(|name| is_prepared(name, language));
            if older
                && entry.path() != *own
                && let Err(error) = fs::remove_dir_all(entry.path())
            {
                tracing::warn!(path = %entry.path().display(), %error, "remove what was prepared before");
            }
        }
    }
}

/// Returns whether `name` is `language` followed by a [`fingerprint`].
fn is_prepared(name: &str, language: &str) -> bool {
    let rest = name.strip_prefix(language).and_then(|rest| rest.strip_prefix('-'));
    let parts: Vec<&str> = rest.map_or(Vec::new(), |rest| rest.split('-').collect());
    let hexadecimal = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_hexdigit());
    parts.len() == 2 && parts.iter().all(hexadecimal)
}

/// Identifies a version of a tool without running it.
pub(super) fn fingerprint(tool: &Path) -> String {
    let meta = fs::metadata(tool).ok();
    let modified = meta.as_ref().and_then(|meta| meta.modified().ok());
    let seconds = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    format!(
        "{:x}-{:x}",
        seconds.map_or(0, |seconds| seconds.as_secs()),
        meta.map_or(0, |meta| meta.len())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_first_number() {
        for (version, oldest, expected) in [
            ("v22.7.0", "22.7", true),
            ("v22.6.9", "22.7", false),
            ("v100.0.0", "22.7", true),
            ("Version 5.10.2", "5.5", true),
            ("gcc (Debian 12.2.0-14) 12.2.0", "12.1", true),
            ("22", "22.7", false),
            ("unknown", "1", false),
        ] {
            assert_eq!(at_least(version, oldest), expected, "{version} {oldest}");
        }
    }

    #[test]
    fn a_version_is_the_first_line_with_something_on_it() {
        assert_eq!(first_line(b"\n  Python 3.11.2 \nmore"), Some("Python 3.11.2".to_owned()));
        assert_eq!(first_line(b" \n"), None);
        assert_eq!(first_line(&[b'x'; 1000]).map(|line| line.len()), Some(VERSION_CHARS_MAX));
    }

    #[test]
    fn only_prepared_directories_of_the_language_are_its_own() {
        for (name, expected) in [
            ("go-6a9-eb8", true),
            ("go-x-6a9-eb8", false),
            ("go-6a9", false),
            ("go-6a9-", false),
            ("golang-6a9-eb8", false),
        ] {
            assert_eq!(is_prepared(name, "go"), expected, "{name}");
        }
        assert!(is_prepared(&format!("x-{}", fingerprint(Path::new(""))), "x"));
    }

    #[tokio::test]
    async fn a_tool_that_fails_has_no_version() {
        assert_eq!(ask(&["/bin/false".into()]).await, None);
        assert_eq!(ask(&["/nowhere".into()]).await, None);
        assert_eq!(ask(&["/bin/echo".into(), "1.2".into()]).await, Some("1.2".to_owned()));
    }
}
