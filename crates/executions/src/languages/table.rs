//! The format of `languages.toml`, and the combination of a user's file with the built-in one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::warm::WarmEntry;

const BUILT_IN: &str = include_str!("../languages.toml");

/// Reason why a language table cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The user's file cannot be read.
    #[error("read language file `{path}`")]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// A file is not TOML, or not in the documented format.
    #[error("parse language file `{path}`")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Place and reason.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// An entry contradicts itself or another one.
    #[error("language table, `{entry}`: {problem}")]
    Entry {
        /// `languages.NAME` or `tools.NAME`.
        entry: String,
        /// Problem.
        problem: String,
    },
    /// The directory for prepared files cannot be created.
    #[error("create directory `{path}` for a language's prepared files")]
    Prepared {
        /// The directory.
        path: PathBuf,
        /// Error of the file system.
        #[source]
        source: std::io::Error,
    },
}

impl LoadError {
    pub(super) fn entry(entry: String, problem: impl Into<String>) -> LoadError {
        LoadError::Entry { entry, problem: problem.into() }
    }
}

/// A whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LanguageTable {
    pub(super) tools: BTreeMap<String, ToolEntry>,
    pub(super) languages: BTreeMap<String, LanguageEntry>,
}

/// Tool that a language needs on the host.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolEntry {
    pub(super) executable: PathBuf,
    pub(super) directories: Vec<String>,
    pub(super) version: Vec<String>,
    pub(super) interpreter: Option<String>,
    #[serde(default)]
    pub(super) relocated_env: BTreeMap<String, String>,
}

/// A language.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LanguageEntry {
    #[serde(default)]
    pub(super) aliases: Vec<String>,
    #[serde(default)]
    pub(super) extensions: Vec<String>,
    pub(super) entry: String,
    pub(super) hint: Option<String>,
    pub(super) ways: Vec<WayEntry>,
    #[serde(default)]
    pub(super) limits: api::LimitSpec,
    #[serde(default)]
    pub(super) compile_limits: api::LimitSpec,
}

/// A way to run a language.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WayEntry {
    pub(super) version: String,
    pub(super) compile: Option<Vec<String>>,
    pub(super) run: Vec<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) compile_env: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) needs: Vec<String>,
    #[serde(default)]
    pub(super) at_least: BTreeMap<String, String>,
    pub(super) prepare: Option<Vec<String>>,
    pub(super) prepare_rest: Option<Vec<String>>,
    pub(super) artifacts: Option<CompileArtifacts>,
    pub(super) warm: Option<WarmEntry>,
}

/// Files that a compile stage makes for the run stage.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CompileArtifacts {
    /// Files that are executed.
    pub(crate) programs: Vec<String>,
    /// Files that are read.
    pub(crate) files: Vec<String>,
    /// A command that prints the names of further files that are read, each with a NUL after it.
    pub(crate) list: Vec<String>,
}

impl LanguageTable {
    /// Returns the built-in table, with the user's entries replacing or adding to its own.
    pub(super) fn load(user_file: Option<&Path>) -> Result<LanguageTable, LoadError> {
        let mut table = LanguageTable::parse(Path::new("languages.toml (built in)"), BUILT_IN)?;
        if let Some(path) = user_file {
            let text = std::fs::read_to_string(path)
                .map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
            let user = LanguageTable::parse(path, &text)?;
            table.tools.extend(user.tools);
            table.languages.extend(user.languages);
        }
        table.check()?;
        Ok(table)
    }

    fn parse(path: &Path, text: &str) -> Result<LanguageTable, LoadError> {
        toml::from_str(text)
            .map_err(|source| LoadError::Parse { path: path.to_owned(), source: Box::new(source) })
    }

    /// Checks that names, aliases and extensions each refer to one language only, and that
    /// references are valid.
    fn check(&self) -> Result<(), LoadError> {
        let mut names = BTreeMap::new();
        let mut extensions = BTreeMap::new();
        for (name, language) in &self.languages {
            let entry = || format!("languages.{name}");
            for alias in std::iter::once(name).chain(&language.aliases) {
                if let Some(other) = names.insert(alias.as_str(), name) {
                    let problem = format!("the name `{alias}` already belongs to `{other}`");
                    return Err(LoadError::entry(entry(), problem));
                }
            }
            for extension in &language.extensions {
                if let Some(other) = extensions.insert(extension.as_str(), name) {
                    let problem =
                        format!("the extension `{extension}` already belongs to `{other}`");
                    return Err(LoadError::entry(entry(), problem));
                }
            }
            if let Err(problem) = crate::plan::check_path(&language.entry) {
                return Err(LoadError::entry(entry(), format!("entry: {problem}")));
            }
            if language.ways.is_empty() {
                return Err(LoadError::entry(entry(), "needs at least one of `ways`"));
            }
            for way in &language.ways {
                self.check_way(way).map_err(|problem| LoadError::entry(entry(), problem))?;
            }
        }
        for (name, tool) in &self.tools {
            let interpreter_known =
                tool.interpreter.as_ref().is_none_or(|other| self.tools.contains_key(other));
            if !interpreter_known || tool.interpreter.as_ref() == Some(name) {
                let problem = "`interpreter` must name another tool";
                return Err(LoadError::entry(format!("tools.{name}"), problem));
            }
            // The name becomes a directory below /opt.
            if name.is_empty() || name.contains(['/', '\0', '{', '}']) || name.starts_with('.') {
                let problem = "a tool's name must be usable as a directory name";
                return Err(LoadError::entry(format!("tools.{name}"), problem));
            }
        }
        Ok(())
    }

    fn check_way(&self, way: &WayEntry) -> Result<(), String> {
        if way.run.is_empty() {
            return Err("`run` is empty".to_owned());
        }
        if way.compile.as_ref().is_some_and(Vec::is_empty) {
            return Err("`compile` is empty".to_owned());
        }
        if let Some(artifacts) = &way.artifacts {
            if way.compile.is_none() {
                return Err("`artifacts` without `compile`".to_owned());
            }
            for name in artifacts.programs.iter().chain(&artifacts.files) {
                crate::plan::check_path(name).map_err(|problem| format!("artifacts: {problem}"))?;
            }
        }
        let named = way.needs.iter().chain(way.at_least.keys()).chain([&way.version]);
        match named.into_iter().find(|name| !self.tools.contains_key(*name)) {
            Some(name) => Err(format!("there is no tool `{name}`")),
            None => Ok(()),
        }
    }
}
