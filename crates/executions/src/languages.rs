//! Languages: the language table, matched with the tools of this host.

mod find;
mod probe;
mod table;
mod template;
pub(crate) mod warm;

use node::task::Boxed;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::ErrorCode;
use tokio::sync::OnceCell;

pub(crate) use self::table::CompileArtifacts;
pub use self::table::LoadError;
pub(crate) use self::template::{ArgumentTemplate, TemplateValues};

use self::find::FoundTool;
use self::probe::{PreparedDirectory, VersionProbe};
use self::table::{LanguageEntry, LanguageTable, ToolEntry, WayEntry};
use self::template::LocatedTool;
use self::warm::WarmEntry;
use crate::error::RequestRefusal;

/// `PATH` in sandboxes, before the directories of the languages' own tools.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Environment of every program besides `PATH`; its language and its caller can override it.
pub(crate) const ENVIRONMENT: [(&str, &str); 2] = [("HOME", "/home/user"), ("LANG", "C.UTF-8")];

/// Host in which tools are searched.
#[derive(Clone, Debug, Default)]
pub struct ToolHost {
    /// The home directory whose toolchains sandboxes may see (`~` in the table).
    pub home: Option<PathBuf>,
    /// Directory for prepared files of languages, such as a compiled standard library. Without it,
    /// languages start without prepared files in every sandbox.
    pub cache: Option<PathBuf>,
}

/// Turns a command of the host into one that ends with this process, together with its children:
/// [`sandbox::tied`] if `main` supports it.
pub type Tie = fn(&[OsString]) -> Vec<OsString>;

/// All configured languages and the locations of their tools. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Languages {
    inner: Arc<LanguagesInner>,
}

#[derive(Debug)]
struct LanguagesInner {
    languages: BTreeMap<String, Arc<ConfiguredLanguage>>,
    /// Canonical name by name and alias.
    names: BTreeMap<String, String>,
    /// Canonical name by file name extension.
    extensions: BTreeMap<String, String>,
    probes: BTreeMap<String, VersionProbe>,
    toolchains: Vec<sandbox::Toolchain>,
    path: String,
}

/// A configured language.
#[derive(Debug)]
pub(crate) struct ConfiguredLanguage {
    pub(crate) name: String,
    pub(crate) aliases: Vec<String>,
    pub(crate) extensions: Vec<String>,
    pub(crate) entry: String,
    pub(crate) limits: api::LimitSpec,
    pub(crate) compile_limits: api::LimitSpec,
    hint: Option<String>,
    ways: Vec<LanguageVariant>,
    /// Index of the chosen way, or the reason why there is none. Empty until a required version is
    /// known.
    choice: OnceCell<Result<usize, String>>,
}

/// A way to run a language.
#[derive(Debug)]
pub(crate) struct LanguageVariant {
    pub(crate) compile: Option<ArgumentTemplate>,
    pub(crate) run: ArgumentTemplate,
    pub(crate) env: Vec<(String, ArgumentTemplate)>,
    pub(crate) compile_env: Vec<(String, ArgumentTemplate)>,
    pub(crate) prepared: Option<PreparedDirectory>,
    /// Files that compiling makes, if the table lists them.
    pub(crate) artifacts: Option<CompileArtifacts>,
    /// Interpreter to start before programs arrive.
    warm: Option<WarmEntry>,
    /// The programs of the host that it uses.
    programs: Vec<PathBuf>,
    version: String,
    missing: Vec<String>,
    at_least: Vec<(String, String)>,
}

/// A language with the way that is used here.
#[derive(Clone, Debug)]
pub(crate) struct LanguageProgram {
    pub(crate) language: Arc<ConfiguredLanguage>,
    way: usize,
}

impl LanguageProgram {
    pub(crate) fn way(&self) -> &LanguageVariant {
        &self.language.ways[self.way]
    }

    /// Returns a text that identifies its tools and their versions. Programs that these call in
    /// turn are assumed to change with them.
    pub(crate) fn tools(&self) -> String {
        let tools = self.way().programs.iter();
        let tools = tools.map(|path| format!("{} {}\n", path.display(), probe::fingerprint(path)));
        tools.collect()
    }
}

impl Languages {
    /// Reads the built-in table and `user_file`, and looks for the tools. Starts no process:
    /// versions are detected on demand.
    ///
    /// # Errors
    /// If a table cannot be read or contradicts itself.
    pub fn load(user_file: Option<&Path>, host: &ToolHost) -> Result<Languages, LoadError> {
        let table = LanguageTable::load(user_file)?;
        let tools = find::find_all(&table.tools, host.home.as_deref());
        let mut languages = BTreeMap::new();
        let mut toolchains: Vec<sandbox::Toolchain> = Vec::new();
        for (name, entry) in &table.languages {
            let language = ConfiguredLanguage::new(name, entry, &table, &tools, host)?;
            for way in &language.ways {
                toolchains.extend(way.prepared.iter().map(|prepared| prepared.toolchain().clone()));
            }
            languages.insert(name.clone(), Arc::new(language));
        }
        for tool in tools.values().filter_map(|found| found.toolchain.as_ref()) {
            if !toolchains.contains(tool) {
                toolchains.push(tool.clone());
            }
        }
        let probes = table.tools.iter().filter(|(name, _)| tools.contains_key(*name));
        let probes =
            probes.map(|(name, tool)| (name.clone(), VersionProbe::new(name, tool, &tools)));
        let inner = LanguagesInner {
            names: index(&languages, |language| {
                std::iter::once(&language.name).chain(&language.aliases).cloned().collect()
            }),
            extensions: index(&languages, |language| language.extensions.clone()),
            path: search_path(&tools),
            probes: probes.collect(),
            languages,
            toolchains,
        };
        Ok(Languages { inner: Arc::new(inner) })
    }

    /// Returns the directories that sandboxes must show so that the tools exist there.
    pub fn toolchains(&self) -> Vec<sandbox::Toolchain> {
        self.inner.toolchains.clone()
    }

    /// Returns the canonical name of the language of files called `*.extension`.
    pub fn by_extension(&self, extension: &str) -> Option<&str> {
        self.inner.extensions.get(extension).map(String::as_str)
    }

    /// Returns every language with its current state, without versions that are not known yet.
    pub fn list(&self) -> api::LanguageList {
        let languages = self.inner.languages.values().map(|language| self.describe(language));
        api::LanguageList { languages: languages.collect() }
    }

    /// Returns every language, after all versions are detected.
    pub async fn list_with_versions(&self) -> api::LanguageList {
        self.probe().await;
        self.list()
    }

    /// Selects the way of every language. Runs only the tools whose version decides; those of other
    /// tools are detected when they are first asked for, because a Java compiler that tells its
    /// version takes more CPU than the start of a server.
    pub fn choose_ways<'a>(&'a self) -> Boxed<'a, ()> {
        Box::pin(async move {
            for language in self.inner.languages.values() {
                // A language that cannot be used has its reason in the list.
                drop(self.choose_way(language).await);
            }
        })
    }

    /// Detects the versions of all tools in use, concurrently. Later calls return at once.
    fn probe<'a>(&'a self) -> Boxed<'a, ()> {
        Box::pin(async move {
            let mut tools = BTreeSet::new();
            for language in self.inner.languages.values() {
                // If a way depends on a version, that version is detected here.
                if let Ok(way) = self.choose_way(language).await {
                    tools.insert(language.ways[way].version.clone());
                }
            }
            let mut running_probes = tokio::task::JoinSet::new();
            for tool in tools {
                if self.inner.probes.get(&tool).is_none_or(VersionProbe::is_known) {
                    continue;
                }
                let languages = self.clone();
                running_probes.spawn(async move {
                    if let Some(probe) = languages.inner.probes.get(&tool) {
                        probe.version().await;
                    }
                });
            }
            running_probes.join_all().await;
        })
    }

    /// Marks languages with prepared files as being prepared, before the first request:
    /// [`Languages::prepare`] begins only when ways are chosen.
    pub fn announce_preparation(&self) {
        for language in self.inner.languages.values() {
            language
                .ways
                .iter()
                .filter_map(|way| way.prepared.as_ref())
                .for_each(|it| it.announce());
        }
    }

    /// Fills the directories of languages with prepared files, one after the other and at low
    /// priority. Until it has finished, those languages work, but slower. Dropping it stops the
    /// running tool.
    pub fn prepare<'a>(&'a self, tie: Tie) -> Boxed<'a, ()> {
        Box::pin(async move {
            for language in self.inner.languages.values() {
                let chosen = self.choose_way(language).await.ok();
                for (index, way) in language.ways.iter().enumerate() {
                    match &way.prepared {
                        Some(prepared) if chosen == Some(index) => {
                            prepared.fill(&language.name, tie).await;
                        }
                        Some(prepared) => prepared.withdraw(),
                        None => {}
                    }
                }
            }
        })
    }

    /// Returns the search path in sandboxes: the usual directories, then those of every tool that
    /// was found.
    pub(crate) fn path(&self) -> &str {
        &self.inner.path
    }

    /// Returns the language called `name`, if it can be used here.
    pub(crate) async fn choose(&self, name: &str) -> Result<LanguageProgram, RequestRefusal> {
        let language = self.inner.names.get(name).and_then(|name| self.inner.languages.get(name));
        let Some(language) = language else {
            // The caller's text is cut: it may be as long as a whole body.
            let excerpt: String = name.chars().take(64).collect();
            let message = format!("there is no language {excerpt:?} here; see GET /v1/languages");
            return Err(RequestRefusal::new(ErrorCode::UnknownLanguage, "language", message));
        };
        match self.choose_way(language).await {
            Ok(way) => Ok(LanguageProgram { language: Arc::clone(language), way }),
            Err(reason) => {
                let message = format!("{} is not available here: {reason}", language.name);
                Err(RequestRefusal::new(ErrorCode::LanguageUnavailable, "language", message))
            }
        }
    }

    async fn choose_way(&self, language: &ConfiguredLanguage) -> Result<usize, String> {
        language.choice.get_or_init(|| self.decide(language)).await.clone()
    }

    /// Returns the first way whose tools all exist and are new enough.
    async fn decide(&self, language: &ConfiguredLanguage) -> Result<usize, String> {
        let mut reasons = Vec::new();
        for (index, way) in language.ways.iter().enumerate() {
            let mut reason = way.missing.first().map(|tool| format!("`{tool}` is not installed"));
            for (tool, oldest) in &way.at_least {
                if reason.is_none() {
                    reason = self.too_old(tool, oldest).await;
                }
            }
            match reason {
                None => return Ok(index),
                Some(reason) if reasons.contains(&reason) => {}
                Some(reason) => reasons.push(reason),
            }
        }
        let hint = language.hint.iter().map(|hint| format!(" (try `{hint}`)"));
        Err(reasons.join(", ") + &hint.collect::<String>())
    }

    async fn too_old(&self, tool: &str, oldest: &str) -> Option<String> {
        let version = match self.inner.probes.get(tool) {
            Some(probe) => probe.version().await,
            None => return Some(format!("`{tool}` is not installed")),
        };
        match version {
            Some(version) if probe::at_least(&version, oldest) => None,
            Some(_) => Some(format!("`{tool}` is older than {oldest}")),
            None => Some(format!("`{tool}` does not tell its version")),
        }
    }

    fn describe(&self, language: &ConfiguredLanguage) -> api::LanguageView {
        let undecided = Err("its tools' versions are not known yet".to_owned());
        let choice = language.choice.get().unwrap_or(&undecided);
        let way = choice.as_ref().ok().map(|&way| &language.ways[way]);
        let probe = way.and_then(|way| self.inner.probes.get(&way.version));
        api::LanguageView {
            name: language.name.clone(),
            aliases: language.aliases.clone(),
            extensions: language.extensions.clone(),
            version: probe.and_then(VersionProbe::known_version),
            compiled: way.or(language.ways.first()).is_some_and(|way| way.compile.is_some()),
            available: way.is_some(),
            preparing: way.is_some_and(LanguageVariant::is_preparing),
            reason: choice.as_ref().err().cloned(),
        }
    }
}

impl ConfiguredLanguage {
    fn new(
        name: &str,
        entry: &LanguageEntry,
        table: &LanguageTable,
        tools: &BTreeMap<String, FoundTool>,
        host: &ToolHost,
    ) -> Result<ConfiguredLanguage, LoadError> {
        let at = |problem| LoadError::entry(format!("languages.{name}"), problem);
        let mut ways = Vec::new();
        for way in &entry.ways {
            let mut built = LanguageVariant::new(way, &table.tools, tools).map_err(at)?;
            if let (Some(_), Some(cache), []) = (&way.prepare, &host.cache, &*built.missing) {
                built.prepared = Some(PreparedDirectory::new(name, way, tools, cache)?);
            }
            ways.push(built);
        }
        let mut language = ConfiguredLanguage {
            name: name.to_owned(),
            aliases: entry.aliases.clone(),
            extensions: entry.extensions.clone(),
            entry: entry.entry.clone(),
            limits: entry.limits,
            compile_limits: entry.compile_limits,
            hint: entry.hint.clone(),
            ways,
            choice: OnceCell::new(),
        };
        language.choose_by_existence();
        Ok(language)
    }

    /// Chooses at once if no version matters, which is the case for nearly all languages.
    fn choose_by_existence(&mut self) {
        for (index, way) in self.ways.iter().enumerate() {
            match (way.missing.is_empty(), way.at_least.is_empty()) {
                (false, _) => {}
                (true, true) => {
                    self.choice = OnceCell::new_with(Some(Ok(index)));
                    return;
                }
                (true, false) => return,
            }
        }
        let mut missing: Vec<String> = Vec::new();
        for tool in self.ways.iter().filter_map(|way| way.missing.first()) {
            let reason = format!("`{tool}` is not installed");
            if !missing.contains(&reason) {
                missing.push(reason);
            }
        }
        let hint = self.hint.iter().map(|hint| format!(" (try `{hint}`)"));
        let reason = missing.join(", ") + &hint.collect::<String>();
        self.choice = OnceCell::new_with(Some(Err(reason)));
    }
}

impl LanguageVariant {
    /// Returns whether files that the compiler uses are being prepared.
    pub(crate) fn is_preparing(&self) -> bool {
        self.prepared.as_ref().is_some_and(PreparedDirectory::is_filling)
    }

    fn new(
        entry: &WayEntry,
        known: &BTreeMap<String, ToolEntry>,
        tools: &BTreeMap<String, FoundTool>,
    ) -> Result<LanguageVariant, String> {
        let mut used: BTreeSet<String> = entry.needs.iter().cloned().collect();
        used.extend(entry.at_least.keys().cloned());
        // A known tool that is missing becomes empty text: such a way is never used.
        let locate = |name: &str| match tools.get(name) {
            Some(found) => {
                Some(LocatedTool { program: &found.program, directory: &found.directory })
            }
            None => known.contains_key(name).then_some(LocatedTool { program: "", directory: "" }),
        };
        let environment = |env: &BTreeMap<String, String>, used: &mut BTreeSet<String>| {
            env.iter()
                .map(|(name, value)| {
                    crate::plan::check_env_name(name)
                        .map_err(|problem| format!("env: {problem}"))?;
                    let word = ArgumentTemplate::parse(std::slice::from_ref(value), &locate, used)?;
                    Ok((name.clone(), word))
                })
                .collect::<Result<Vec<_>, String>>()
        };
        let mut env = environment(&entry.env, &mut used)?;
        let mut compile_env = environment(&entry.compile_env, &mut used)?;
        let run = ArgumentTemplate::parse(&entry.run, &locate, &mut used)?;
        let compile = entry.compile.as_ref();
        let compile = compile
            .map(|arguments| ArgumentTemplate::parse(arguments, &locate, &mut used))
            .transpose()?;
        for arguments in entry.prepare.iter().chain(&entry.prepare_rest) {
            ArgumentTemplate::parse(arguments, &locate, &mut used)?;
        }
        for (name, tool) in used.clone().iter().filter_map(|name| known.get_key_value(name)) {
            // Parsed for every tool, so that a mistake is detected on every host.
            let relocated = environment(&tool.relocated_env, &mut used)?;
            if tools.get(name).is_some_and(|found| found.toolchain.is_some()) {
                for env in [&mut env, &mut compile_env] {
                    let new = relocated.iter().filter(|(name, _)| !has(env, name));
                    let new: Vec<_> = new.cloned().collect();
                    env.extend(new);
                }
            }
        }
        Ok(LanguageVariant {
            compile,
            run,
            env,
            compile_env,
            prepared: None,
            artifacts: entry.artifacts.clone(),
            warm: entry.warm,
            programs: used
                .iter()
                .filter_map(|name| Some(tools.get(name)?.host_program.clone()))
                .collect(),
            version: entry.version.clone(),
            missing: used.into_iter().filter(|name| !tools.contains_key(name)).collect(),
            at_least: entry.at_least.clone().into_iter().collect(),
        })
    }
}

fn has(env: &[(String, ArgumentTemplate)], name: &str) -> bool {
    env.iter().any(|(other, _)| other == name)
}

/// Maps each of the texts that `keys` returns for a language to its canonical name.
fn index(
    languages: &BTreeMap<String, Arc<ConfiguredLanguage>>,
    keys: impl Fn(&ConfiguredLanguage) -> Vec<String>,
) -> BTreeMap<String, String> {
    let entries = languages
        .values()
        .flat_map(|language| keys(language).into_iter().map(|key| (key, language.name.clone())));
    entries.collect()
}

fn search_path(tools: &BTreeMap<String, FoundTool>) -> String {
    let mut path = PATH.to_owned();
    for found in tools.values() {
        let directory = Path::new(&found.program).parent().and_then(Path::to_str);
        if let Some(directory) = directory
            && !path.split(':').any(|known| known == directory)
        {
            path.push(':');
            path.push_str(directory);
        }
    }
    path
}

#[cfg(test)]
mod tests;
