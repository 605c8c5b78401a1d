//! `cove config` and `/v1/config`: the configuration in force, the origins of its values, and its
//! problems.
//!
//! | file | contents |
//! |---|---|
//! | `settings/check.rs` | contradictions of valid values that keep a server from starting |
//! | `settings/text.rs` | a configuration as a TOML file |
//! | `settings/service.rs` | routes of a server: its configuration and its tokens |

mod check;
mod service;
mod text;

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use api::{ConfigReloaded, ConfigView};
use axum::http::Method;
use serde_json::{Value, json};

use crate::cli::{
    ConfigArgs, ConfigCommand, ConfigCommandArgs, ReloadArgs, SettingArgs, ShowConfigArgs,
};
use crate::config::{
    self, ConfigLayers, ConfigProblem, CoveConfig, CoveConfigError, Environment, LoadedConfig,
};
use crate::remote::{self, Remote};
use crate::run::print_json;
use crate::usage_error::UsageError;
use crate::{flags, serve};

pub(crate) use self::check::contradictions;
pub(crate) use self::service::routes;

/// Runs `cove config`.
pub(crate) fn run(args: &ConfigCommandArgs, environment: &Environment) -> Result<ExitCode> {
    match &args.command {
        ConfigCommand::Check { settings, json } => {
            check(&args.config, settings, environment, *json)
        }
        ConfigCommand::Show(show) => match &show.server {
            Some(url) => show_remote(&args.config, show, url, environment),
            None => {
                let view = loaded(&args.config, &show.settings, environment)?.view();
                Ok(remote::conclude(print(view, show).map(|()| 0)))
            }
        },
    }
}

/// Runs `cove reload`.
pub(crate) fn reload(
    args: &ReloadArgs,
    config: &CoveConfig,
    environment: &Environment,
) -> ExitCode {
    remote::with_server(&args.server, config, environment, async |server| {
        let done: ConfigReloaded = server.call(Method::POST, "/v1/reload").await?;
        if args.json {
            print_json(&done)?;
            return Ok(0);
        }
        let mut out = io::stdout().lock();
        match done.taken_over.is_empty() {
            true => writeln!(out, "reloaded; nothing that a reload takes over has changed")?,
            false => writeln!(out, "reloaded: {}", done.taken_over.join(", "))?,
        }
        if !done.restart_needed_for.is_empty() {
            writeln!(out, "a restart is needed for: {}", done.restart_needed_for.join(", "))?;
        }
        Ok(0)
    })
}

fn layers(
    args: &ConfigArgs,
    settings: &SettingArgs,
    environment: &Environment,
) -> Result<ConfigLayers, CoveConfigError> {
    let flags = flags(args, serve::flags(settings))?;
    ConfigLayers::read(args.config.as_deref(), environment, flags)
}

fn loaded(
    args: &ConfigArgs,
    settings: &SettingArgs,
    environment: &Environment,
) -> Result<LoadedConfig, CoveConfigError> {
    let flags = flags(args, serve::flags(settings))?;
    LoadedConfig::read(args.config.as_deref(), environment, flags)
}

/// Reports all problems. Contradictions are searched only among valid values: others could result
/// from the omitted ones.
fn check(
    args: &ConfigArgs,
    settings: &SettingArgs,
    environment: &Environment,
    json: bool,
) -> Result<ExitCode> {
    let mut layers = layers(args, settings, environment)?;
    if layers.problems.is_empty() {
        let LoadedConfig { config, .. } = LoadedConfig::of(layers.clone(), environment)?;
        for (key, message) in contradictions(&config, environment) {
            layers.add_problem(&key, message);
        }
    }
    let file = layers.file.as_ref().map(|path| path.display().to_string());
    let is_valid = layers.problems.is_empty();
    if json {
        let problems: Vec<Value> = layers.problems.iter().map(problem).collect();
        print_json(&json!({
            "ok": is_valid, "file": file, "problems": problems,
            "ignored_variables": layers.ignored_variables,
        }))?;
    } else {
        for variable in &layers.ignored_variables {
            note(&format!("{variable}: looks like a setting, but is unknown"));
        }
        for problem in &layers.problems {
            note(&problem.to_string());
        }
        if is_valid {
            let file = file.as_deref().unwrap_or("no configuration file");
            writeln!(io::stdout(), "{file}: can be served")?;
        }
    }
    Ok(if is_valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn problem(problem: &ConfigProblem) -> Value {
    let ConfigProblem { origin, key, message } = problem;
    let origin = origin.as_ref().map(config::origin_view);
    json!({ "key": key, "message": message, "origin": origin })
}

fn show_remote(
    args: &ConfigArgs,
    show: &ShowConfigArgs,
    url: &str,
    environment: &Environment,
) -> Result<ExitCode> {
    let config = loaded(args, &SettingArgs::default(), environment)?.config;
    let url = Some(url).filter(|url| !url.is_empty());
    let found = Remote::find(url, show.token_file.as_deref(), &config, environment);
    let ask = async |server: Remote| {
        let view: ConfigView = server.call(Method::GET, "/v1/config").await?;
        print(view, show)?;
        Ok(0)
    };
    Ok(remote::conclude(found.and_then(|server| remote::in_runtime(ask(server)))))
}

fn print(view: ConfigView, show: &ShowConfigArgs) -> Result<()> {
    let view = match &show.section {
        Some(section) => within(view, section)?,
        None => view,
    };
    match show.json {
        true => print_json(&view)?,
        false => write!(io::stdout(), "{}", text::file(&view, show.origin))?,
    }
    Ok(())
}

/// Returns the settings of one table, or one setting.
fn within(view: ConfigView, section: &str) -> Result<ConfigView> {
    let is_within = |key: &str| {
        key.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let ConfigView { file, mut settings } = view;
    settings.retain(|it| is_within(&it.key));
    if settings.is_empty() {
        let message = match config::nearest_section(section) {
            Some(meant) => {
                format!("--section: unknown section `{section}`; did you mean `{meant}`?")
            }
            None => format!("--section: unknown section `{section}`"),
        };
        return Err(UsageError(message).into());
    }
    Ok(ConfigView { file, settings })
}

/// Writes to standard error, as a compiler does; a failure is ignored.
fn note(text: &str) {
    drop(writeln!(io::stderr(), "{}", crate::plain_text::plain(text)));
}
