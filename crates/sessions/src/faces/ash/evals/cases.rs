//! Evaluation questions.

use api::AgentView;
use axum::Json;
use axum::extract::Path;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::call::{
    Answer, AshBody, AshCaller, AshFailure, AshQuery, created, flat_and_named, removed,
};
use super::super::time;
use super::{CASE, find};
use crate::service::FaceDocument;

/// Maximum number of questions of one agent, and bytes of one with its fields.
const CASES_MAX: u64 = 1000;
const CASE_BYTES_MAX: usize = 64 << 10;

/// Stored form of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in super::super) struct EvalCase {
    pub(super) question: String,
    pub(super) expected_topics: Option<Vec<String>>,
    pub(super) expected_not_topics: Option<Vec<String>>,
    reference_answer: Option<String>,
    pub(super) category: Option<String>,
    pub(super) tags: Option<Vec<String>>,
    chat_history: Option<Vec<EvalTurn>>,
    #[serde(default = "yes")]
    pub(super) is_active: bool,
}

/// Earlier turn of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct EvalTurn {
    role: String,
    content: String,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
pub(in super::super) struct ImportCases {
    cases: Vec<EvalCase>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in super::super) struct EvalCaseList {
    category: Option<String>,
    is_active: Option<String>,
}

impl EvalCase {
    /// Returns the prompt for an agent, including earlier turns.
    pub(super) fn prompt(&self) -> String {
        let Some(history) = self.chat_history.as_ref().filter(|history| !history.is_empty()) else {
            return self.question.clone();
        };
        let said: Vec<String> =
            history.iter().map(|turn| format!("{}: {}", turn.role, turn.content)).collect();
        format!("{}\nuser: {}", said.join("\n"), self.question)
    }

    fn check(&self) -> Result<Value, AshFailure> {
        if self.question.is_empty() {
            return Err(AshFailure::bad("question: is empty"));
        }
        let body = serde_json::to_value(self).map_err(AshFailure::internal)?;
        if body.to_string().len() > CASE_BYTES_MAX {
            return Err(AshFailure::bad(format!("a case has at most {CASE_BYTES_MAX} bytes")));
        }
        Ok(body)
    }
}

/// Returns the questions of an agent, oldest first.
pub(super) async fn of(
    caller: &AshCaller,
    agent: &AgentView,
) -> Result<Vec<(FaceDocument, EvalCase)>, AshFailure> {
    let documents = caller.documents(CASE, Some(&agent.id)).await?;
    Ok(documents.into_iter().map(|document| (document.clone(), case_of(&document))).collect())
}

pub(super) fn case_of(document: &FaceDocument) -> EvalCase {
    serde_json::from_value(document.body.clone()).unwrap_or_default()
}

async fn room(caller: &AshCaller, agent: &AgentView, more: usize) -> Result<(), AshFailure> {
    let sessions = caller.sessions();
    let known = sessions.documents()?.count(&caller.tenant, CASE, Some(&agent.id)).await?;
    let more = u64::try_from(more).unwrap_or(u64::MAX);
    match known.saturating_add(more) > CASES_MAX {
        true => Err(AshFailure::bad(format!("an agent has at most {CASES_MAX} cases"))),
        false => Ok(()),
    }
}

/// `POST /api/agents/{name}/eval-cases`.
pub(in super::super) async fn create(
    caller: AshCaller,
    Path(name): Path<String>,
    AshBody(case): AshBody<EvalCase>,
) -> Result<Response, AshFailure> {
    let agent = caller.agent(&name).await?;
    let body = case.check()?;
    room(&caller, &agent, 1).await?;
    let id = caller.new_id();
    caller.sessions().documents()?.put(&caller.tenant, CASE, &id, Some(&agent.id), body).await?;
    let kept = find(&caller, CASE, &agent.id, &id, "Eval case").await?;
    Ok(created(flat_and_named("case", shape(&name, &kept))))
}

/// `GET /api/agents/{name}/eval-cases`.
pub(in super::super) async fn list(
    caller: AshCaller,
    Path(name): Path<String>,
    AshQuery(listing): AshQuery<EvalCaseList>,
) -> Answer {
    let agent = caller.agent(&name).await?;
    let category = listing.category.filter(|category| !category.is_empty());
    let is_active = listing.is_active.as_deref().map(|text| text == "true");
    let is_wanted = |case: &EvalCase| {
        category.as_ref().is_none_or(|wanted| case.category.as_ref() == Some(wanted))
            && is_active.is_none_or(|wanted| case.is_active == wanted)
    };
    let cases = of(&caller, &agent).await?;
    let cases: Vec<Value> = cases
        .iter()
        .filter(|(_, case)| is_wanted(case))
        .map(|(document, _)| shape(&name, document))
        .collect();
    Ok(Json(json!({ "cases": cases })))
}

/// `GET /api/agents/{name}/eval-cases/export`.
pub(in super::super) async fn export(caller: AshCaller, path: Path<String>) -> Answer {
    list(caller, path, AshQuery(EvalCaseList::default())).await
}

/// `POST /api/agents/{name}/eval-cases/import`.
pub(in super::super) async fn import(
    caller: AshCaller,
    Path(name): Path<String>,
    AshBody(import): AshBody<ImportCases>,
) -> Answer {
    let agent = caller.agent(&name).await?;
    // Imports either all questions or none.
    let bodies: Result<Vec<Value>, AshFailure> = import.cases.iter().map(EvalCase::check).collect();
    let bodies = bodies?;
    room(&caller, &agent, bodies.len()).await?;
    let imported = bodies.len();
    for body in bodies {
        let (id, parent) = (caller.new_id(), Some(&*agent.id));
        caller.sessions().documents()?.put(&caller.tenant, CASE, &id, parent, body).await?;
    }
    Ok(Json(json!({ "imported": imported })))
}

/// `GET /api/agents/{name}/eval-cases/{id}`.
pub(in super::super) async fn get(
    caller: AshCaller,
    Path((name, id)): Path<(String, String)>,
) -> Answer {
    let agent = caller.agent(&name).await?;
    let kept = find(&caller, CASE, &agent.id, &id, "Eval case").await?;
    Ok(Json(flat_and_named("case", shape(&name, &kept))))
}

/// `PATCH /api/agents/{name}/eval-cases/{id}`.
pub(in super::super) async fn update(
    caller: AshCaller,
    Path((name, id)): Path<(String, String)>,
    AshBody(changes): AshBody<serde_json::Map<String, Value>>,
) -> Answer {
    let _one_at_a_time = caller.lock_agent(&name).await;
    let agent = caller.agent(&name).await?;
    let kept = find(&caller, CASE, &agent.id, &id, "Eval case").await?;
    let mut fields = serde_json::to_value(case_of(&kept)).map_err(AshFailure::internal)?;
    if let Value::Object(fields) = &mut fields {
        fields.extend(changes);
    }
    let case: EvalCase = serde_json::from_value(fields)
        .map_err(|error| AshFailure::bad(format!("body: {error}")))?;
    let body = case.check()?;
    caller.sessions().documents()?.put(&caller.tenant, CASE, &id, Some(&agent.id), body).await?;
    let kept = find(&caller, CASE, &agent.id, &id, "Eval case").await?;
    Ok(Json(flat_and_named("case", shape(&name, &kept))))
}

/// `DELETE /api/agents/{name}/eval-cases/{id}`.
pub(in super::super) async fn remove(
    caller: AshCaller,
    Path((name, id)): Path<(String, String)>,
) -> Answer {
    let agent = caller.agent(&name).await?;
    let kept = find(&caller, CASE, &agent.id, &id, "Eval case").await?;
    caller.sessions().documents()?.delete(&caller.tenant, CASE, &kept.id).await?;
    Ok(removed())
}

fn shape(agent: &str, document: &FaceDocument) -> Value {
    let case = case_of(document);
    json!({
        "id": document.id,
        "agentName": agent,
        "question": case.question,
        "expectedTopics": case.expected_topics,
        "expectedNotTopics": case.expected_not_topics,
        "referenceAnswer": case.reference_answer,
        "category": case.category,
        "tags": case.tags,
        "chatHistory": case.chat_history,
        "isActive": case.is_active,
        "createdAt": time::shown(document.created_ms),
        "updatedAt": time::shown(document.updated_ms),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_what_was_said_before() {
        let case = |history: Value| -> EvalCase {
            serde_json::from_value(json!({"question": "And now?", "chatHistory": history})).unwrap()
        };
        assert!(case(Value::Null).is_active, "unless it says otherwise");
        assert_eq!(case(json!([])).prompt(), "And now?");
        let said = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]);
        assert_eq!(case(said).prompt(), "user: a\nassistant: b\nuser: And now?");
    }

    #[test]
    fn a_question_asks_something() {
        assert!(EvalCase::default().check().is_err());
        let long = EvalCase { question: "x".repeat(CASE_BYTES_MAX), ..EvalCase::default() };
        assert!(long.check().is_err());
    }
}
