//! `cove languages`: lists the languages that can be run here.

use std::io::{self, Write as _};

use anyhow::{Context as _, Result};
use executions::{Languages, ToolHost};

use crate::config::{CoveConfig, Environment};

/// Loads the configured languages, and finds their tools on this host.
pub(crate) fn load(config: &CoveConfig, environment: &Environment) -> Result<Languages> {
    let cache = config.data_dir.join("cache");
    let host = ToolHost { home: environment.home(), cache: cache.is_dir().then_some(cache) };
    let user_file = config.executions.languages.as_deref();
    Languages::load(user_file, &host).context("failed to load the languages")
}

/// Prints the languages.
pub(crate) fn run(config: &CoveConfig, environment: &Environment, json: bool) -> Result<()> {
    let languages = load(config, environment)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let list = runtime.block_on(languages.list_with_versions());
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, &list)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", table(&list))?;
    }
    Ok(())
}

/// Returns one line per language: its name, then its version or the reason why it is unavailable.
pub(crate) fn table(list: &api::LanguageList) -> String {
    let width = list.languages.iter().map(|language| language.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for language in &list.languages {
        let says = match (&language.version, &language.reason) {
            (Some(version), _) if language.available => version.clone(),
            (None, _) if language.available => "available".to_owned(),
            (_, Some(reason)) => format!("not available: {reason}"),
            (_, None) => "not available".to_owned(),
        };
        let files: Vec<_> = language.extensions.iter().map(|it| format!(".{it}")).collect();
        let (name, files) = (&language.name, files.join(" "));
        text.push_str(&format!("{name:width$}  {says}  ({files})\n"));
    }
    text
}
