//! Versions of an agent in Ash's sense: numbered prompts, one of which is active. The versions of
//! the folder are different, and counted in the agent's `version`.

use api::{AgentUpdate, AgentView};
use axum::Json;
use axum::extract::Path;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::agents::AshAgentExtra;
use super::call::{Answer, AshBody, AshCaller, AshFailure, created, flat_and_named, removed};
use super::time;
use crate::error::SessionError;
use crate::service::{FaceDocument, Sessions};

/// Kind of version documents; the parent is the agent.
pub(super) const KIND: &str = "ash.version";
/// Maximum number of versions of one agent.
const VERSIONS_MAX: usize = 1000;
/// Maximum bytes of a name, of notes, and of a prompt; maximum number of knowledge files.
const NAME_BYTES_MAX: usize = 255;
const NOTES_BYTES_MAX: usize = 10_000;
const PROMPT_BYTES_MAX: usize = 500_000;
const KNOWLEDGE_MAX: usize = 1000;

/// Stored form of a version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct AshVersion {
    number: u32,
    name: String,
    prompt: Option<String>,
    notes: Option<String>,
    knowledge: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AshVersionFields {
    name: Option<String>,
    system_prompt: Option<String>,
    release_notes: Option<String>,
    knowledge_files: Option<Vec<String>>,
    /// Number or id of the version to clone.
    clone_from: Option<Value>,
}

impl AshVersionFields {
    fn check(&self) -> Result<(), AshFailure> {
        let rows = [
            ("name", &self.name, NAME_BYTES_MAX),
            ("systemPrompt", &self.system_prompt, PROMPT_BYTES_MAX),
            ("releaseNotes", &self.release_notes, NOTES_BYTES_MAX),
        ];
        for (name, text, max) in rows {
            if text.as_ref().is_some_and(|text| text.len() > max) {
                return Err(AshFailure::bad(format!("{name}: has more than {max} bytes")));
            }
        }
        if self.knowledge_files.as_ref().is_some_and(|files| files.len() > KNOWLEDGE_MAX) {
            return Err(AshFailure::bad(format!("knowledgeFiles: has more than {KNOWLEDGE_MAX}")));
        }
        Ok(())
    }
}

/// A version with its document.
struct StoredAshVersion {
    document: FaceDocument,
    version: AshVersion,
}

impl AshCaller {
    async fn versions(&self, agent: &AgentView) -> Result<Vec<StoredAshVersion>, AshFailure> {
        let documents = self.documents(KIND, Some(&agent.id)).await?;
        let kept = |document: FaceDocument| {
            let version = serde_json::from_value(document.body.clone()).ok()?;
            Some(StoredAshVersion { document, version })
        };
        Ok(documents.into_iter().filter_map(kept).collect())
    }

    /// Returns a version by its number or id.
    async fn version(
        &self,
        agent: &AgentView,
        wanted: &str,
    ) -> Result<StoredAshVersion, AshFailure> {
        let versions = self.versions(agent).await?;
        let is_it = |kept: &StoredAshVersion| {
            kept.document.id == wanted || kept.version.number.to_string() == wanted
        };
        let found = versions.into_iter().find(is_it);
        found.ok_or_else(|| AshFailure::not_found("Version not found"))
    }

    async fn keep_version(
        &self,
        agent: &AgentView,
        id: &str,
        version: &AshVersion,
    ) -> Result<(), AshFailure> {
        let body = serde_json::to_value(version).map_err(AshFailure::internal)?;
        let parent = Some(&*agent.id);
        Ok(self.sessions().documents()?.put(&self.tenant, KIND, id, parent, body).await?)
    }

    /// Sets the prompt of new sessions.
    async fn prompt(&self, agent: &AgentView, prompt: Option<String>) -> Result<(), AshFailure> {
        if agent.options.system_prompt == prompt {
            return Ok(());
        }
        let options = api::AgentOptions { system_prompt: prompt, ..agent.options.clone() };
        let update = AgentUpdate { options: Some(options), ..AgentUpdate::default() };
        self.sessions().agents()?.update(&self.tenant, &agent.name, update).await?;
        Ok(())
    }
}

/// Returns the prompt of a version; none if it has none of its own.
pub(super) async fn prompt(
    sessions: &Sessions,
    tenant: &str,
    agent: &str,
    number: u32,
) -> Result<Option<String>, SessionError> {
    let versions =
        sessions.documents()?.list(tenant, KIND, Some(agent), None, VERSIONS_MAX).await?;
    let mut versions = versions
        .into_iter()
        .filter_map(|kept| serde_json::from_value::<AshVersion>(kept.body).ok());
    let version = versions.find(|version| version.number == number);
    Ok(version.ok_or(SessionError::NotFound("agent version"))?.prompt)
}

/// `GET /api/agents/{name}/versions`.
pub(super) async fn list(caller: AshCaller, Path(name): Path<String>) -> Answer {
    let agent = caller.agent(&name).await?;
    let extra = caller.extra(&agent).await?;
    let versions = caller.versions(&agent).await?;
    // Newest first.
    let shown: Vec<Value> = versions.iter().rev().map(|kept| shape(&agent, &extra, kept)).collect();
    Ok(Json(json!({ "versions": shown })))
}

/// `POST /api/agents/{name}/versions`.
pub(super) async fn create(
    caller: AshCaller,
    Path(name): Path<String>,
    AshBody(fields): AshBody<AshVersionFields>,
) -> Result<Response, AshFailure> {
    fields.check()?;
    let _one_at_a_time = caller.lock_agent(&name).await;
    let agent = caller.agent(&name).await?;
    let mut extra = caller.extra(&agent).await?;
    let origin = match &fields.clone_from {
        None | Some(Value::Null) => None,
        Some(wanted) => {
            let wanted = wanted.as_str().map_or_else(|| wanted.to_string(), str::to_owned);
            let missing = |_| {
                AshFailure::bad(format!(
                    "Source version {} not found",
                    super::sessions::shown(&wanted)
                ))
            };
            Some(caller.version(&agent, &wanted).await.map_err(missing)?.version)
        }
    };
    if caller.versions(&agent).await?.len() >= VERSIONS_MAX {
        return Err(AshFailure::bad(format!("an agent has at most {VERSIONS_MAX} versions")));
    }
    extra.last_version += 1;
    let (prompt, knowledge) =
        origin.map_or((None, None), |origin| (origin.prompt, origin.knowledge));
    let version = AshVersion {
        number: extra.last_version,
        name: fields.name.unwrap_or_else(|| format!("v{}", extra.last_version)),
        prompt: fields.system_prompt.or(prompt),
        notes: fields.release_notes,
        knowledge: fields.knowledge_files.or(knowledge),
    };
    let id = caller.new_id();
    // The number is stored first, so that none is assigned twice.
    caller.keep_extra(&agent, &extra).await?;
    caller.keep_version(&agent, &id, &version).await?;
    let kept = caller.version(&agent, &id).await?;
    Ok(created(flat_and_named("version", shape(&agent, &extra, &kept))))
}

/// `GET /api/agents/{name}/versions/{version}`.
pub(super) async fn get(caller: AshCaller, Path((name, wanted)): Path<(String, String)>) -> Answer {
    let agent = caller.agent(&name).await?;
    let extra = caller.extra(&agent).await?;
    let kept = caller.version(&agent, &wanted).await?;
    Ok(Json(flat_and_named("version", shape(&agent, &extra, &kept))))
}

/// `PATCH /api/agents/{name}/versions/{version}`.
pub(super) async fn update(
    caller: AshCaller,
    Path((name, wanted)): Path<(String, String)>,
    AshBody(fields): AshBody<AshVersionFields>,
) -> Answer {
    fields.check()?;
    let _one_at_a_time = caller.lock_agent(&name).await;
    let agent = caller.agent(&name).await?;
    let extra = caller.extra(&agent).await?;
    let StoredAshVersion { document, version } = caller.version(&agent, &wanted).await?;
    let version = AshVersion {
        number: version.number,
        name: fields.name.unwrap_or(version.name),
        prompt: fields.system_prompt.or(version.prompt),
        notes: fields.release_notes.or(version.notes),
        knowledge: fields.knowledge_files.or(version.knowledge),
    };
    caller.keep_version(&agent, &document.id, &version).await?;
    if extra.active_version == Some(version.number) {
        caller.prompt(&agent, version.prompt).await?;
    }
    let kept = caller.version(&agent, &document.id).await?;
    Ok(Json(flat_and_named("version", shape(&agent, &extra, &kept))))
}

/// `DELETE /api/agents/{name}/versions/{version}`.
pub(super) async fn remove(
    caller: AshCaller,
    Path((name, wanted)): Path<(String, String)>,
) -> Answer {
    let _one_at_a_time = caller.lock_agent(&name).await;
    let agent = caller.agent(&name).await?;
    let mut extra = caller.extra(&agent).await?;
    let kept = caller.version(&agent, &wanted).await?;
    if extra.active_version == Some(kept.version.number) {
        extra.active_version = None;
        caller.keep_extra(&agent, &extra).await?;
        caller.prompt(&agent, None).await?;
    }
    caller.sessions().documents()?.delete(&caller.tenant, KIND, &kept.document.id).await?;
    Ok(removed())
}

/// `POST /api/agents/{name}/versions/{version}/activate`.
pub(super) async fn activate(
    caller: AshCaller,
    Path((name, wanted)): Path<(String, String)>,
) -> Answer {
    let _one_at_a_time = caller.lock_agent(&name).await;
    let agent = caller.agent(&name).await?;
    let mut extra = caller.extra(&agent).await?;
    let StoredAshVersion { version, .. } = caller.version(&agent, &wanted).await?;
    caller.prompt(&agent, version.prompt).await?;
    extra.active_version = Some(version.number);
    caller.keep_extra(&agent, &extra).await?;
    Ok(Json(json!({ "activated": true, "versionNumber": version.number })))
}

fn shape(agent: &AgentView, extra: &AshAgentExtra, kept: &StoredAshVersion) -> Value {
    let StoredAshVersion { document, version } = kept;
    json!({
        "id": document.id,
        "tenantId": agent.tenant,
        "agentName": agent.name,
        "versionNumber": version.number,
        "name": version.name,
        "systemPrompt": version.prompt,
        "releaseNotes": version.notes,
        "isActive": extra.active_version == Some(version.number),
        "knowledgeFiles": version.knowledge,
        "createdBy": null,
        "createdAt": time::shown(document.created_ms),
        "updatedAt": time::shown(document.updated_ms),
    })
}
