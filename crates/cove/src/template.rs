//! `cove template`: builds and lists templates, from which sessions of a server start.

mod archive;

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use api::{
    BuildTemplate, TemplateBuildList, TemplateBuildStatus, TemplateBuildView, TemplateList,
    TemplateLogLine, TemplateLogList, TemplateStep, TemplateView,
};
use axum::http::Method;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::agent::folder::{self, AgentFolder};
use crate::agent::print_line;
use crate::cli::{TemplateArgs, TemplateBuildArgs, TemplateCommand};
use crate::config::{CoveConfig, Environment};
use crate::output;
use crate::remote::progress::ProgressLine;
use crate::remote::{self, FailureKind, Remote, plain};
use crate::run::print_json;
use crate::usage_error::UsageError;
use crate::values::{columns, human_bytes};

/// File of the folder that describes its template.
const MANIFEST: &str = "template.toml";
/// Largest manifest, in bytes.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// Timeout of an upload.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Exit code if the build failed.
const EXIT_FAILED: u8 = 1;

/// Runs one command.
pub(crate) fn run(args: &TemplateArgs, config: &CoveConfig, environment: &Environment) -> ExitCode {
    remote::with_server(&args.server, config, environment, async |server| {
        execute(args, &server).await
    })
}

async fn execute(args: &TemplateArgs, server: &Remote) -> Result<u8> {
    match &args.command {
        TemplateCommand::Build(build) => return self::build(build, server, args.json).await,
        TemplateCommand::List => {
            let list: TemplateList = server.call(Method::GET, "/v1/templates").await?;
            if args.json {
                list.templates.iter().try_for_each(print_line)?;
            } else {
                write!(io::stdout(), "{}", table(&list.templates))?;
            }
        }
        TemplateCommand::Show { name, logs } => show(server, name, *logs, args.json).await?,
        TemplateCommand::Delete { names } => {
            for name in names {
                let request = server.request(Method::DELETE, &format!("/v1/templates/{name}"));
                server.open(request).await?;
                if !args.json {
                    writeln!(io::stdout(), "deleted {name}")?;
                }
            }
        }
    }
    Ok(0)
}

/// `template.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TemplateManifest {
    name: Option<String>,
    tags: Vec<String>,
    from: Option<String>,
    start: Option<String>,
    ready: Option<String>,
    steps: Vec<toml::Table>,
}

/// Build request, and the archive that its steps copy from.
struct TemplateRequest {
    request: BuildTemplate,
    archive: Option<(String, Vec<u8>)>,
}

fn read(args: &TemplateBuildArgs) -> Result<TemplateRequest> {
    let path = args.directory.join(MANIFEST);
    let path_text = path.display().to_string();
    let found = std::fs::metadata(&path).with_context(|| format!("read `{path_text}`"))?;
    if found.len() > MANIFEST_BYTES_MAX {
        return Err(UsageError(format!("`{path_text}` is too large")).into());
    }
    let text = std::fs::read_to_string(&path).with_context(|| format!("read `{path_text}`"))?;
    let wrong = |error: toml::de::Error| UsageError(format!("`{path_text}`: {error}"));
    let manifest: TemplateManifest = toml::from_str(&text).map_err(wrong)?;
    let copies = |step: &toml::Table| step.get("type").and_then(|it| it.as_str()) == Some("copy");
    let archive = match manifest.steps.iter().any(copies) {
        true => Some(packed(&args.directory)?),
        false => None,
    };
    let mut steps = Vec::with_capacity(manifest.steps.len());
    for mut step in manifest.steps {
        if let Some((hash, _)) = archive.as_ref().filter(|_| copies(&step)) {
            step.insert("archive".to_owned(), hash.clone().into());
        }
        let step: TemplateStep = toml::Value::Table(step).try_into().map_err(wrong)?;
        steps.push(step);
    }
    let name = match args.name.clone().or(manifest.name) {
        Some(name) => name,
        None => folder::name_of(&args.directory)?,
    };
    let mut tags = manifest.tags;
    tags.extend(args.tag.iter().cloned());
    let request = BuildTemplate {
        name,
        tags,
        from: manifest.from,
        steps,
        start: manifest.start,
        ready: manifest.ready,
        force: args.force,
    };
    Ok(TemplateRequest { request, archive })
}

/// Returns the folder as an archive, with its hash.
fn packed(directory: &Path) -> Result<(String, Vec<u8>)> {
    let folder = AgentFolder::read(directory, &[MANIFEST, folder::IGNORE])?;
    let bytes = archive::archive(&folder.files)?;
    Ok((node::hex::encode(&Sha256::digest(&bytes)), bytes))
}

async fn build(args: &TemplateBuildArgs, server: &Remote, json: bool) -> Result<u8> {
    let mut progress = ProgressLine::new(json);
    let TemplateRequest { request, archive } = read(args)?;
    if let Some((hash, bytes)) = archive {
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        progress.show(&format!("uploading {}", human_bytes(size)));
        upload(server, &hash, bytes).await?;
    }
    progress.clear();
    let request = server.request_with(Method::POST, "/v1/templates", &request)?;
    let mut build: TemplateBuildView = server.ask(request).await?;
    if !json {
        build = follow(server, build).await?;
    } else if build.finished_at.is_none() {
        let path = format!("/v1/templates/{}/builds/{}?wait=true", build.template, build.id);
        let mut request = server.request(Method::GET, &path);
        request.timeout = UPLOAD_TIMEOUT;
        build = server.ask(request).await?;
    }
    let is_ready = build.status == TemplateBuildStatus::Ready;
    if json {
        print_json(&build)?;
    } else if is_ready {
        let new = build.steps.iter().filter(|step| !step.cached).count();
        let text = format!("{} layers, {new} of them new", build.steps.len());
        writeln!(
            io::stdout(),
            "{} is ready ({text}, {})",
            build.template,
            human_bytes(build.bytes)
        )?;
    } else if let Some(failure) = &build.failure {
        crate::messages::complain(&plain(&failure.message));
    }
    Ok(if is_ready { 0 } else { EXIT_FAILED })
}

/// Uploads an archive, unless the server has it.
async fn upload(server: &Remote, hash: &str, bytes: Vec<u8>) -> Result<()> {
    let path = format!("/v1/template-files/{hash}");
    match server.open(server.request(Method::GET, &path)).await {
        Ok(_there) => return Ok(()),
        // The archive is missing; any other problem also makes the upload fail.
        Err(failure) if failure.fault == FailureKind::Refused => {}
        Err(failure) => return Err(failure.into()),
    }
    let mut request = server.request(Method::PUT, &path);
    request.body = bytes.into();
    request.timeout = UPLOAD_TIMEOUT;
    server.open(request).await?;
    Ok(())
}

/// Prints the log of a build as it is written, up to its end.
async fn follow(server: &Remote, build: TemplateBuildView) -> Result<TemplateBuildView> {
    let path = format!("/v1/templates/{}/builds/{}", build.template, build.id);
    let mut events = server.events(server.request(Method::GET, &format!("{path}/logs"))).await?;
    while let Some(event) = events.next::<serde_json::Value>().await? {
        match serde_json::from_value::<TemplateLogLine>(event.clone()) {
            Ok(_) if output::is_quiet() => {}
            Ok(line) => print_log(&line)?,
            // The last event is the build.
            Err(_) => return Ok(serde_json::from_value(event)?),
        }
    }
    // The server shuts down, or the template was deleted.
    Ok(server.call(Method::GET, &path).await?)
}

fn print_log(line: &TemplateLogLine) -> Result<()> {
    let step = line.step.map(|step| format!("[{step}] ")).unwrap_or_default();
    Ok(writeln!(io::stderr(), "{step}{}", plain(&line.message))?)
}

async fn show(server: &Remote, name: &str, logs: bool, json: bool) -> Result<()> {
    let path = format!("/v1/templates/{name}");
    let template: TemplateView = server.call(Method::GET, &path).await?;
    let list: TemplateBuildList = server.call(Method::GET, &format!("{path}/builds")).await?;
    if json {
        let document = serde_json::json!({ "template": template, "builds": list.builds });
        return Ok(print_json(&document)?);
    }
    write!(io::stdout(), "{}", details(&template, &list.builds))?;
    let Some(build) = template.build.filter(|_| logs) else { return Ok(()) };
    let mut from = 0;
    loop {
        let path = format!("{path}/builds/{}/logs?from={from}", build.id);
        let page: TemplateLogList = server.call(Method::GET, &path).await?;
        let Some(last) = page.lines.last() else { return Ok(()) };
        from = last.index + 1;
        page.lines.iter().try_for_each(print_log)?;
    }
}

fn table(templates: &[TemplateView]) -> String {
    let mut rows = vec![["name", "status", "tags", "size", "updated"].map(str::to_owned)];
    for template in templates {
        let build = template.build.as_ref();
        let tags: Vec<&str> = template.tags.keys().map(String::as_str).collect();
        rows.push([
            plain(&template.name),
            build.map_or("", |build| build.status.as_str()).to_owned(),
            plain(&tags.join(", ")),
            human_bytes(build.map_or(0, |build| build.bytes)),
            plain(&template.updated_at),
        ]);
    }
    columns(&rows, "")
}

fn details(template: &TemplateView, builds: &[TemplateBuildView]) -> String {
    let mut text = format!("{}  {}\n", plain(&template.name), plain(&template.id));
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            text.push_str(&format!("  {name:<12}{}\n", plain(value)));
        }
    };
    if let Some(build) = &template.build {
        line("env", &build.env.join(", "));
        line("workdir", build.workdir.as_deref().unwrap_or_default());
        line("start", build.start.as_deref().unwrap_or_default());
        line("ready", build.ready.as_deref().unwrap_or_default());
    }
    line("created", &template.created_at);
    let mut rows = vec![["build", "status", "tags", "size", "created"].map(str::to_owned)];
    for build in builds {
        let named = template.tags.iter().filter(|(_, id)| **id == build.id);
        let tags: Vec<&str> = named.map(|(tag, _)| tag.as_str()).collect();
        rows.push([
            plain(&build.id),
            build.status.as_str().to_owned(),
            plain(&tags.join(", ")),
            human_bytes(build.bytes),
            plain(&build.created_at),
        ]);
    }
    text.push_str(&columns(&rows, "  "));
    if let Some(failure) = template.build.as_ref().and_then(|build| build.failure.as_ref()) {
        text.push_str(&format!("{}\n", plain(&failure.message)));
    }
    text
}
