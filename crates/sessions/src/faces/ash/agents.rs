//! Agents: deployment, changes, lists, removal, and the files of their folders.

use std::collections::{BTreeMap, HashMap};

use api::{AgentFile, AgentRuntime, AgentUpdate, AgentView, DeployRequest, SessionLimits};
use axum::Json;
use axum::extract::Path;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::call::{Answer, AshBody, AshCaller, AshFailure, AshQuery, created, removed};
use super::files::{ArchiveFormat, NewFile, download, too_large};
use super::sessions::shown;
use super::{evals, folder, ids, media, versions};
use crate::error::SessionError;

/// Kind of the documents with Ash-specific data of agents.
const KIND: &str = "ash.agent";
/// File that every Claude agent has.
const CLAUDE_MD: &str = "CLAUDE.md";
/// Maximum bytes of a file in a JSON answer.
const JSON_BYTES_MAX: usize = 1 << 20;
/// Maximum stored bytes of an agent's configuration.
const CONFIG_BYTES_MAX: usize = 256 << 10;
/// Values of an agent's status.
const STATUSES: [&str; 3] = ["active", "inactive", "archived"];

/// Ash-specific data of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct AshAgentExtra {
    slug: Option<String>,
    backend: Option<String>,
    system_prompt: Option<String>,
    status: Option<String>,
    config: Map<String, Value>,
    /// Number of the version whose prompt new sessions use.
    pub(super) active_version: Option<u32>,
    /// Last assigned version number.
    pub(super) last_version: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AshDeploy {
    name: String,
    path: Option<String>,
    files: Option<Vec<NewFile>>,
    #[serde(flatten)]
    update: AshAgentUpdate,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AshAgentUpdate {
    slug: Option<String>,
    description: Option<String>,
    model: Option<String>,
    backend: Option<String>,
    system_prompt: Option<String>,
    status: Option<String>,
    config: Option<Map<String, Value>>,
    env: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct AshAgentPatch {
    name: Option<String>,
    #[serde(flatten)]
    update: AshAgentUpdate,
}

#[derive(Debug, Deserialize)]
pub(super) struct AshUpload {
    files: Vec<NewFile>,
}

/// Settings of a configuration that have an effect.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AshAgentSettings {
    runtime: Option<AgentRuntime>,
    limits: Option<SessionLimits>,
    pre_warm_count: Option<u32>,
}

impl AshAgentExtra {
    /// Applies the Ash-specific fields of an update.
    fn take(&mut self, update: &AshAgentUpdate) -> Result<(), AshFailure> {
        if let Some(status) = &update.status
            && !STATUSES.contains(&status.as_str())
        {
            return Err(AshFailure::bad(format!("status: `{}` is none", shown(status))));
        }
        let fields = [
            (&mut self.slug, &update.slug),
            (&mut self.backend, &update.backend),
            (&mut self.system_prompt, &update.system_prompt),
            (&mut self.status, &update.status),
        ];
        for (field, new) in fields {
            if new.is_some() {
                field.clone_from(new);
            }
        }
        self.config.extend(update.config.clone().unwrap_or_default());
        if Value::Object(self.config.clone()).to_string().len() > CONFIG_BYTES_MAX {
            return Err(AshFailure::bad(format!("config: has more than {CONFIG_BYTES_MAX} bytes")));
        }
        self.meaning().map(drop)
    }

    fn meaning(&self) -> Result<AshAgentSettings, AshFailure> {
        let meaning = serde_json::from_value(Value::Object(self.config.clone()));
        meaning.map_err(|error| AshFailure::bad(format!("config: {error}")))
    }
}

impl AshAgentSettings {
    /// Applies the settings to a deployment.
    fn apply(self, request: &mut DeployRequest) {
        request.runtime = self.runtime.or(request.runtime.take());
        request.limits = self.limits.unwrap_or(request.limits);
        let wanted = self.pre_warm_count;
        request.settings.prewarm_agents = wanted.unwrap_or(request.settings.prewarm_agents);
    }
}

impl AshCaller {
    /// Serializes changes of an agent.
    pub(super) async fn lock_agent(&self, name: &str) -> tokio::sync::MutexGuard<'_, ()> {
        self.face.shared.locks.lock(&(&*self.tenant, name)).await
    }

    pub(super) async fn extra(&self, agent: &AgentView) -> Result<AshAgentExtra, AshFailure> {
        let kept = self.sessions().documents()?.find(&self.tenant, KIND, &agent.id).await?;
        Ok(kept.and_then(|kept| serde_json::from_value(kept.body).ok()).unwrap_or_default())
    }

    pub(super) async fn keep_extra(
        &self,
        agent: &AgentView,
        extra: &AshAgentExtra,
    ) -> Result<(), AshFailure> {
        let body = serde_json::to_value(extra).map_err(AshFailure::internal)?;
        Ok(self.sessions().documents()?.put(&self.tenant, KIND, &agent.id, None, body).await?)
    }

    pub(super) async fn agent(&self, name: &str) -> Result<AgentView, AshFailure> {
        Ok(self.sessions().agents()?.get(&self.tenant, name).await?)
    }

    /// Redeploys an existing agent with changes.
    async fn deploy_again(
        &self,
        name: &str,
        change: impl FnOnce(&mut DeployRequest),
    ) -> Result<AgentView, AshFailure> {
        let mut request = self.sessions().agents()?.deployed(&self.tenant, name).await?;
        change(&mut request);
        Ok(self.sessions().agents()?.deploy(&self.tenant, request).await?)
    }

    async fn answer(&self, agent: &AgentView, extra: &AshAgentExtra) -> Answer {
        Ok(Json(json!({ "agent": shape(agent, extra) })))
    }
}

/// `POST /api/agents`.
pub(super) async fn deploy(
    caller: AshCaller,
    AshBody(body): AshBody<AshDeploy>,
) -> Result<Response, AshFailure> {
    let AshDeploy { name, path, files, update } = body;
    let _one_at_a_time = caller.lock_agent(&name).await;
    let known = match caller.sessions().agents()?.deployed(&caller.tenant, &name).await {
        Ok(request) => Some(request),
        Err(SessionError::NotFound(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let mut extra = match known.is_some() {
        true => caller.extra(&caller.agent(&name).await?).await?,
        false => AshAgentExtra::default(),
    };
    extra.take(&update)?;
    let mut request =
        known.unwrap_or_else(|| DeployRequest { name: name.clone(), ..DeployRequest::default() });
    extra.meaning()?.apply(&mut request);
    request.description = update.description.or(request.description);
    request.options.model = update.model.or(request.options.model);
    request.env = update.env.unwrap_or(request.env);
    let is_claude = matches!(request.runtime, None | Some(AgentRuntime::Claude));
    if let Some(path) = path.filter(|path| !path.is_empty()) {
        request.files = folder::read(caller.face.shared.config.agents.as_deref(), &path).await?;
        if is_claude && !has_prompt(&request.files) {
            return Err(AshFailure::bad("Agent directory must contain CLAUDE.md"));
        }
    } else {
        let prompt = update.system_prompt.filter(|prompt| !prompt.is_empty());
        if let Some(prompt) = prompt {
            set(&mut request.files, text_file(CLAUDE_MD, prompt));
        }
        for file in files.unwrap_or_default() {
            set(&mut request.files, sent_file(file));
        }
        if is_claude && !has_prompt(&request.files) {
            set(&mut request.files, text_file(CLAUDE_MD, format!("# {name}\n")));
        }
    }
    let agent = caller.sessions().agents()?.deploy(&caller.tenant, request).await?;
    caller.keep_extra(&agent, &extra).await?;
    Ok(created(json!({ "agent": shape(&agent, &extra) })))
}

/// `GET /api/agents`.
pub(super) async fn list(caller: AshCaller) -> Answer {
    let agents = caller.sessions().agents()?.list(&caller.tenant).await?;
    let mut extras: HashMap<String, AshAgentExtra> = HashMap::new();
    for kept in caller.documents(KIND, None).await? {
        if let Ok(extra) = serde_json::from_value(kept.body) {
            extras.insert(kept.id, extra);
        }
    }
    let none = AshAgentExtra::default();
    let agents: Vec<Value> =
        agents.iter().map(|agent| shape(agent, extras.get(&agent.id).unwrap_or(&none))).collect();
    Ok(Json(json!({ "agents": agents })))
}

/// `GET /api/agents/{name}`.
pub(super) async fn get(caller: AshCaller, Path(name): Path<String>) -> Answer {
    let agent = caller.agent(&name).await?;
    let extra = caller.extra(&agent).await?;
    caller.answer(&agent, &extra).await
}

/// `PATCH /api/agents/{name}`.
pub(super) async fn update(
    caller: AshCaller,
    Path(name): Path<String>,
    AshBody(body): AshBody<AshAgentPatch>,
) -> Answer {
    if body.name.is_some_and(|new| new != name) {
        return Err(AshFailure::bad("name: an agent keeps its name"));
    }
    let (agent, extra) = change(&caller, &name, body.update).await?;
    caller.answer(&agent, &extra).await
}

/// Changes an agent.
async fn change(
    caller: &AshCaller,
    name: &str,
    update: AshAgentUpdate,
) -> Result<(AgentView, AshAgentExtra), AshFailure> {
    let _one_at_a_time = caller.lock_agent(name).await;
    let mut agent = caller.agent(name).await?;
    let mut extra = caller.extra(&agent).await?;
    let before = extra.meaning()?.runtime;
    extra.take(&update)?;
    let AshAgentSettings { runtime, limits, pre_warm_count } = extra.meaning()?;
    // Runtime and prompt belong to a version, so a change of either needs a new one.
    let new_runtime = runtime.clone().filter(|_| runtime != before);
    if update.system_prompt.is_some() || new_runtime.is_some() {
        let prompt = update.system_prompt.clone();
        agent = caller
            .deploy_again(name, |request| {
                request.runtime = new_runtime.or(request.runtime.take());
                if let Some(prompt) = prompt {
                    set(&mut request.files, text_file(CLAUDE_MD, prompt));
                }
            })
            .await?;
    }
    let options =
        update.model.map(|model| api::AgentOptions { model: Some(model), ..agent.options.clone() });
    let settings = pre_warm_count.filter(|count| *count != agent.settings.prewarm_agents);
    let settings =
        settings.map(|prewarm_agents| api::AgentSettings { prewarm_agents, ..agent.settings });
    let limits = limits.filter(|limits| *limits != agent.limits);
    let change = AgentUpdate {
        description: update.description,
        env: update.env,
        limits,
        settings,
        options,
        ..AgentUpdate::default()
    };
    if change != AgentUpdate::default() {
        agent = caller.sessions().agents()?.update(&caller.tenant, name, change).await?;
    }
    caller.keep_extra(&agent, &extra).await?;
    Ok((agent, extra))
}

/// `DELETE /api/agents/{name}`.
pub(super) async fn remove(caller: AshCaller, Path(name): Path<String>) -> Answer {
    let _one_at_a_time = caller.lock_agent(&name).await;
    let agent = caller.agent(&name).await?;
    caller.sessions().agents()?.delete(&caller.tenant, &name).await?;
    caller.forget(versions::KIND, &agent.id).await?;
    evals::forget(&caller, &agent.id).await?;
    caller.sessions().documents()?.delete(&caller.tenant, KIND, &agent.id).await?;
    Ok(removed())
}

/// `GET /api/agents/{name}/config`.
pub(super) async fn config(caller: AshCaller, Path(name): Path<String>) -> Answer {
    let agent = caller.agent(&name).await?;
    Ok(Json(json!({ "config": caller.extra(&agent).await?.config })))
}

/// `PATCH /api/agents/{name}/config`.
pub(super) async fn configure(
    caller: AshCaller,
    Path(name): Path<String>,
    AshBody(config): AshBody<Map<String, Value>>,
) -> Answer {
    let update = AshAgentUpdate { config: Some(config), ..AshAgentUpdate::default() };
    let (_, extra) = change(&caller, &name, update).await?;
    Ok(Json(json!({ "config": extra.config })))
}

/// `GET /api/agents/{name}/files`.
pub(super) async fn files(caller: AshCaller, Path(name): Path<String>) -> Answer {
    let agent = caller.agent(&name).await?;
    let files = caller.sessions().agents()?.files(&caller.tenant, &name, None).await?;
    let file = |file: &crate::service::FolderEntry| {
        // All files were deployed together, with the version.
        json!({ "path": file.path, "size": file.size, "modifiedAt": agent.updated_at })
    };
    let files: Vec<Value> = files.iter().map(file).collect();
    Ok(Json(json!({ "files": files, "source": "agent" })))
}

/// `GET /api/agents/{name}/files/{path}`.
pub(super) async fn file(
    caller: AshCaller,
    Path((name, path)): Path<(String, String)>,
    AshQuery(ArchiveFormat { format }): AshQuery<ArchiveFormat>,
) -> Result<Response, AshFailure> {
    if !super::files::is_inside(&path) {
        return Err(AshFailure::bad("Invalid file path"));
    }
    let content = caller.sessions().agents()?.file(&caller.tenant, &name, None, &path).await?;
    if format.as_deref() == Some("raw") {
        let mut headers = download(media::type_of(&path), &path);
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(content.len()));
        return Ok((headers, content).into_response());
    }
    if content.len() > JSON_BYTES_MAX {
        return Err(AshFailure::bad(too_large(u64::try_from(content.len()).unwrap_or(u64::MAX))));
    }
    let text = String::from_utf8_lossy(&content);
    let answer = json!({ "path": path, "content": text, "size": content.len() });
    Ok(Json(answer).into_response())
}

/// `POST /api/agents/{name}/files`.
pub(super) async fn upload(
    caller: AshCaller,
    Path(name): Path<String>,
    AshBody(body): AshBody<AshUpload>,
) -> Answer {
    let _one_at_a_time = caller.lock_agent(&name).await;
    let written = body.files.len();
    if written > 0 {
        let merge = |request: &mut DeployRequest| {
            for file in body.files {
                set(&mut request.files, sent_file(file));
            }
        };
        caller.deploy_again(&name, merge).await?;
    } else {
        caller.agent(&name).await?;
    }
    Ok(Json(json!({ "written": written })))
}

/// `DELETE /api/agents/{name}/files/{path}`.
pub(super) async fn remove_file(
    caller: AshCaller,
    Path((name, path)): Path<(String, String)>,
) -> Answer {
    if !super::files::is_inside(&path) {
        return Err(AshFailure::bad("Path escapes agent directory"));
    }
    let _one_at_a_time = caller.lock_agent(&name).await;
    let files = caller.sessions().agents()?.files(&caller.tenant, &name, None).await?;
    if !files.iter().any(|file| file.path == path) {
        return Err(AshFailure::not_found("File not found"));
    }
    let remove = |request: &mut DeployRequest| request.files.retain(|file| file.path != path);
    caller.deploy_again(&name, remove).await?;
    Ok(Json(json!({ "deleted": true })))
}

/// Returns an agent in Ash's format.
fn shape(agent: &AgentView, extra: &AshAgentExtra) -> Value {
    let env: Map<String, Value> =
        agent.env.iter().map(|name| (name.clone(), json!("***"))).collect();
    json!({
        "id": ids::uuid(&agent.id),
        "name": agent.name,
        "tenantId": agent.tenant,
        "version": agent.version,
        "path": format!("agents/{}", agent.name),
        "createdAt": agent.created_at,
        "updatedAt": agent.updated_at,
        "slug": extra.slug,
        "description": agent.description,
        "model": agent.options.model,
        "backend": extra.backend,
        "systemPrompt": extra.system_prompt,
        "status": extra.status.as_deref().unwrap_or("active"),
        "config": extra.config,
        "env": if env.is_empty() { Value::Null } else { Value::Object(env) },
    })
}

fn has_prompt(files: &[AgentFile]) -> bool {
    files.iter().any(|file| file.path == CLAUDE_MD)
}

fn text_file(path: &str, content: String) -> AgentFile {
    AgentFile { path: path.to_owned(), content, ..AgentFile::default() }
}

/// Converts an uploaded file. Scripts become executable, because requests carry no mode.
fn sent_file(file: NewFile) -> AgentFile {
    let start = BASE64.decode(file.content.get(..4).unwrap_or_default()).unwrap_or_default();
    AgentFile {
        path: file.path,
        content: file.content,
        base64: true,
        executable: start.starts_with(b"#!"),
    }
}

/// Adds a file to a folder, replacing one with the same path.
fn set(files: &mut Vec<AgentFile>, file: AgentFile) {
    match files.iter_mut().find(|known| known.path == file.path) {
        Some(known) => *known = file,
        None => files.push(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_says_how_an_agent_is_run() {
        let mut extra = AshAgentExtra::default();
        let config = json!({
            "runtime": {"type": "command", "argv": ["python3", "agent.py"]},
            "preWarmCount": 2,
            "limits": {"processes": 9},
            "anything": {"else": true},
        });
        let config = config.as_object().cloned();
        extra.take(&AshAgentUpdate { config, ..AshAgentUpdate::default() }).unwrap();
        let mut request = DeployRequest::default();
        extra.meaning().unwrap().apply(&mut request);
        let argv = vec!["python3".to_owned(), "agent.py".to_owned()];
        assert_eq!(request.runtime, Some(AgentRuntime::Command { argv }));
        assert_eq!((request.settings.prewarm_agents, request.limits.processes), (2, Some(9)));
        let config = json!({"preWarmCount": 3}).as_object().cloned();
        extra.take(&AshAgentUpdate { config, ..AshAgentUpdate::default() }).unwrap();
        assert_eq!(extra.config["anything"], json!({"else": true}), "only what is named changes");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for update in [
            json!({"status": "gone"}),
            json!({"config": {"preWarmCount": -1}}),
            json!({"config": {"runtime": "node"}}),
            json!({"config": {"limits": {"speed": 1}}}),
            json!({"config": {"x": "x".repeat(CONFIG_BYTES_MAX)}}),
        ] {
            let parsed: AshAgentUpdate = serde_json::from_value(update.clone()).unwrap();
            assert!(AshAgentExtra::default().take(&parsed).is_err(), "{update}");
        }
    }

    #[test]
    fn files_replace_those_of_their_path() {
        let sent = |path: &str, content: &str| {
            sent_file(NewFile { path: path.to_owned(), content: BASE64.encode(content) })
        };
        let mut files = vec![text_file(CLAUDE_MD, "old".to_owned())];
        set(&mut files, sent(CLAUDE_MD, "new"));
        set(&mut files, sent("run.sh", "#!/bin/sh\n"));
        let seen: Vec<_> = files.iter().map(|file| (&*file.path, file.executable)).collect();
        assert_eq!(seen, [(CLAUDE_MD, false), ("run.sh", true)]);
        assert!(files[0].base64);
    }
}
