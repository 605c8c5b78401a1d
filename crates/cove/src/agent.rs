//! `cove agent`: deploys folders as agents of a server.

pub(crate) mod folder;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use api::{
    AgentFileList, AgentList, AgentOptions, AgentRuntime, AgentSettings, AgentUpdate,
    AgentVersionList, AgentView, DeployRequest, Grant, SessionLimits,
};
use axum::http::Method;
use serde::Deserialize;

use self::folder::AgentFolder;
use crate::cli::{AgentArgs, AgentCommand, AgentUpdateArgs, DeployArgs};
use crate::config::{CoveConfig, Environment};
use crate::messages::remark;
use crate::plain_text::plain_json;
use crate::remote::progress::ProgressLine;
use crate::remote::{self, Remote, plain};
use crate::run::print_json;
use crate::usage_error::UsageError;
use crate::values::{columns, human_bytes};

/// File of the folder that describes its agent.
const MANIFEST: &str = "agent.toml";
/// Largest manifest, in bytes.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// Response timeout: the server runs `install.sh` first, for as long as its limits allow.
const DEPLOY_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Runs one command.
pub(crate) fn run(args: &AgentArgs, config: &CoveConfig, environment: &Environment) -> ExitCode {
    remote::with_server(&args.server, config, environment, async |server| {
        execute(args, &server).await.map(|()| 0)
    })
}

async fn execute(args: &AgentArgs, server: &Remote) -> Result<()> {
    match &args.command {
        AgentCommand::Deploy(deployed) => deploy(deployed, server, args.json).await,
        AgentCommand::List => {
            let list: AgentList = server.call(Method::GET, "/v1/agents").await?;
            if args.json {
                return list.agents.iter().try_for_each(print_line);
            }
            Ok(write!(io::stdout(), "{}", table(&list.agents))?)
        }
        AgentCommand::Info { name, files: false, .. } => info(server, name, args.json).await,
        AgentCommand::Info { name, version, .. } => {
            let query = version.map(|number| format!("?version={number}")).unwrap_or_default();
            let path = format!("/v1/agents/{name}/files{query}");
            let list: AgentFileList = server.call(Method::GET, &path).await?;
            if args.json {
                return Ok(print_json(&list)?);
            }
            for file in &list.files {
                let mode = if file.executable { "x" } else { "-" };
                writeln!(io::stdout(), "{mode} {:>10}  {}", file.size, plain(&file.path))?;
            }
            Ok(())
        }
        AgentCommand::Update(changed) => update(changed, server, args.json).await,
        AgentCommand::Delete { names } => {
            for name in names {
                let request = server.request(Method::DELETE, &format!("/v1/agents/{name}"));
                server.open(request).await?;
                if !args.json {
                    writeln!(io::stdout(), "deleted {name}")?;
                }
            }
            Ok(())
        }
    }
}

/// Prints a document as one line of JSON.
pub(crate) fn print_line(document: &impl serde::Serialize) -> Result<()> {
    let text = plain_json(&serde_json::to_string(document)?);
    Ok(writeln!(io::stdout(), "{text}")?)
}

/// `agent.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AgentManifest {
    name: Option<String>,
    description: Option<String>,
    runtime: Option<AgentRuntime>,
    template: Option<String>,
    env: BTreeMap<String, String>,
    limits: SessionLimits,
    settings: AgentSettings,
    options: AgentOptions,
}

impl AgentManifest {
    fn read(directory: &Path) -> Result<AgentManifest> {
        let path = directory.join(MANIFEST);
        let path_text = path.display();
        match std::fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(AgentManifest::default());
            }
            Err(error) => return Err(error).with_context(|| format!("read `{path_text}`")),
            Ok(found) if found.len() > MANIFEST_BYTES_MAX => {
                return Err(UsageError(format!("`{path_text}` is too large")).into());
            }
            Ok(_) => {}
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("read `{path_text}`"))?;
        toml::from_str(&text).map_err(|error| UsageError(format!("`{path_text}`: {error}")).into())
    }
}

async fn deploy(args: &DeployArgs, server: &Remote, json: bool) -> Result<()> {
    let mut progress = ProgressLine::new(json);
    progress.show("reading the folder");
    let AgentUpload { request, bytes, left_out } = request(args)?;
    let noun = if request.files.len() == 1 { "file" } else { "files" };
    let size = format!("{} {noun}, {}", request.files.len(), human_bytes(bytes));
    if !left_out.is_empty() {
        progress.clear();
        remark(&format!(
            "left out {}; a line such as `!{}` in `{}` takes it along",
            plain(&left_out.join(", ")),
            plain(left_out.first().map_or("", |path| path)),
            folder::IGNORE
        ));
    }
    progress.show(&format!("deploying {}: {size}", request.name));
    let mut request = server.request_with(Method::POST, "/v1/agents", &request)?;
    request.timeout = DEPLOY_TIMEOUT;
    let agent: AgentView = server.ask(request).await.map_err(|failure| {
        failure.with_remedy_for_size(&format!(
            "the folder has {size}: name what is not needed in `{}`, or raise \
             `limits.body_bytes_max` of the server",
            folder::IGNORE
        ))
    })?;
    progress.clear();
    if agent.runtime == AgentRuntime::None {
        remark(&format!(
            "{} has no runtime, because the folder has neither a `CLAUDE.md` nor an `{MANIFEST}` with \
             `runtime`: its sessions run commands and keep files, but take no messages",
            plain(&agent.name)
        ));
    }
    if json {
        return Ok(print_json(&agent)?);
    }
    writeln!(io::stdout(), "{} is version {} ({size})", plain(&agent.name), agent.version)?;
    Ok(())
}

/// Deploy request made from a folder.
struct AgentUpload {
    request: DeployRequest,
    /// Total size of the files.
    bytes: u64,
    /// Paths that the built-in rules exclude, without a line of `.coveignore`.
    left_out: Vec<String>,
}

fn request(args: &DeployArgs) -> Result<AgentUpload> {
    let manifest = AgentManifest::read(&args.directory)?;
    let folder = AgentFolder::read(&args.directory, &[MANIFEST, folder::IGNORE])?;
    let name = match args.name.clone().or(manifest.name) {
        Some(name) => name,
        None => folder::name_of(&args.directory)?,
    };
    let mut env = manifest.env;
    env.extend(args.env.iter().cloned());
    let request = DeployRequest {
        name,
        description: args.description.clone().or(manifest.description),
        files: folder.files,
        env,
        runtime: manifest.runtime,
        limits: manifest.limits,
        settings: manifest.settings,
        options: manifest.options,
        grants: args.grants.chosen(),
        template: manifest.template,
    };
    Ok(AgentUpload { request, bytes: folder.bytes, left_out: folder.left_out })
}

async fn update(args: &AgentUpdateArgs, server: &Remote, json: bool) -> Result<()> {
    let update = AgentUpdate {
        description: args.description.clone(),
        version: args.active_version,
        grants: args.grants.chosen(),
        ..AgentUpdate::default()
    };
    let path = format!("/v1/agents/{}", args.name);
    let agent: AgentView = server.ask(server.request_with(Method::PATCH, &path, &update)?).await?;
    if json {
        return Ok(print_json(&agent)?);
    }
    Ok(writeln!(io::stdout(), "updated {}", plain(&agent.name))?)
}

async fn info(server: &Remote, name: &str, json: bool) -> Result<()> {
    let agent: AgentView = server.call(Method::GET, &format!("/v1/agents/{name}")).await?;
    let path = format!("/v1/agents/{name}/versions");
    let list: AgentVersionList = server.call(Method::GET, &path).await?;
    if json {
        let document = serde_json::json!({ "agent": agent, "versions": list.versions });
        return Ok(print_json(&document)?);
    }
    write!(io::stdout(), "{}", details(&agent, &list))?;
    Ok(())
}

/// Returns a short description of the program that an agent starts.
fn runtime(runtime: &AgentRuntime) -> String {
    match runtime {
        AgentRuntime::Claude => "claude".to_owned(),
        AgentRuntime::Command { argv } => plain(&argv.join(" ")),
        AgentRuntime::None => "none".to_owned(),
    }
}

fn table(agents: &[AgentView]) -> String {
    let mut rows =
        vec![["name", "version", "runtime", "updated", "description"].map(str::to_owned)];
    for agent in agents {
        rows.push([
            plain(&agent.name),
            agent.version.to_string(),
            runtime(&agent.runtime),
            plain(&agent.updated_at),
            plain(agent.description.as_deref().unwrap_or_default()),
        ]);
    }
    columns(&rows, "")
}

/// Returns grants as a comma-separated list of labels.
pub(crate) fn labels(grants: &[Grant]) -> String {
    grants.iter().map(Grant::label).collect::<Vec<_>>().join(", ")
}

fn details(agent: &AgentView, versions: &AgentVersionList) -> String {
    let mut text = format!("{}  {}\n", plain(&agent.name), plain(&agent.id));
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            text.push_str(&format!("  {name:<12}{}\n", plain(value)));
        }
    };
    line("description", agent.description.as_deref().unwrap_or_default());
    line("runtime", &runtime(&agent.runtime));
    line("env", &agent.env.join(", "));
    line("grants", &labels(&agent.grants));
    let set = |document: serde_json::Result<String>| {
        document.ok().filter(|text| text != "{}").unwrap_or_default()
    };
    line("limits", &set(serde_json::to_string(&agent.limits)));
    line("settings", &set(serde_json::to_string(&agent.settings)));
    line("options", &set(serde_json::to_string(&agent.options)));
    line("created", &agent.created_at);
    line("updated", &agent.updated_at);
    let mut rows = vec![["version", "", "files", "size", "created"].map(str::to_owned)];
    for version in &versions.versions {
        let mark = if version.active { "active" } else { "" };
        rows.push([
            version.version.to_string(),
            mark.to_owned(),
            version.files.to_string(),
            human_bytes(version.bytes),
            plain(&version.created_at),
        ]);
    }
    text.push_str(&columns(&rows, "  "));
    text
}

#[cfg(test)]
mod tests {
    //! Reading an agent's folder, and the text output about an agent.

    use testkit::Scratch;

    use super::*;

    #[test]
    fn a_manifest_says_what_the_command_line_does_not() {
        let scratch = Scratch::new();
        let manifest = "name = \"echo\"\nruntime = { type = \"command\", argv = [\"a\", \"b\"] }\n\
            env = { A = \"1\", B = \"2\" }\nsettings = { prewarm_agents = 1 }\n";
        scratch.file("agent.toml", manifest);
        scratch.file("a.txt", "a");
        let args = DeployArgs {
            directory: scratch.path().to_owned(),
            name: None,
            env: vec![("B".to_owned(), "3".to_owned())],
            description: Some("d".to_owned()),
            grants: Default::default(),
        };
        let AgentUpload { request: found, bytes, .. } = request(&args).unwrap();
        assert_eq!((found.name.as_str(), found.description.as_deref()), ("echo", Some("d")));
        let argv = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(found.runtime, Some(AgentRuntime::Command { argv }));
        let env: Vec<_> = found.env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(env, [("A", "1"), ("B", "3")]);
        assert_eq!((found.settings.prewarm_agents, found.grants), (1, None));
        let files: Vec<_> = found.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(files, ["a.txt"], "what is for deploying is not deployed");
        assert_eq!(bytes, 1);
        scratch.file("agent.toml", "nmae = \"echo\"\n");
        let error = request(&args).err().unwrap();
        assert!(error.is::<UsageError>() && format!("{error:#}").contains("nmae"), "{error:#}");
    }
}
