//! Evaluations of agents: questions, runs, and their results.
//!
//! The server that accepted a run processes it, one question after the other, each in a session of
//! its own that ends with it. A server resumes its unfinished runs when it starts.

mod cases;
mod run;

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::Path;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::cases::EvalCase;
pub(super) use self::cases::{
    create as create_case, export, get as get_case, import, list as list_cases,
    remove as remove_case, update as update_case,
};
pub(super) use self::run::{EvalRuns, keep};
use super::call::{Answer, AshBody, AshCaller, AshFailure, AshQuery, created, flat_and_named};
use super::{time, versions};
use crate::error::SessionError;
use crate::service::FaceDocument;

/// Kind of question documents; the parent is the agent.
pub(super) const CASE: &str = "ash.eval_case";
/// Kind of run documents; the parent is the agent.
const RUN: &str = "ash.eval_run";
/// Kind of result documents; the parent is the run.
const RESULT: &str = "ash.eval_result";
/// Kind of documents that mark unfinished runs; the parent is [`OPEN_RUNS`].
const OPEN: &str = "ash.eval_open";
const OPEN_RUNS: &str = "runs";
/// Maximum number of runs of one agent.
const RUNS_MAX: u64 = 1000;
/// Range of scores given by people.
const SCORES: std::ops::RangeInclusive<f64> = 1.0..=5.0;
/// Maximum bytes of their notes.
const NOTES_BYTES_MAX: usize = 10_000;

/// Stored form of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct EvalRun {
    version: Option<u32>,
    /// `pending`, `running`, `completed` or `failed`.
    status: String,
    total: usize,
    completed: usize,
    summary: Option<Value>,
    started_ms: Option<u64>,
    completed_ms: Option<u64>,
}

/// Stored form of a result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct EvalOutcome {
    case: String,
    /// `pending`, `running`, `completed` or `error`.
    status: String,
    response: Option<String>,
    topic_score: Option<f64>,
    safety_score: Option<f64>,
    latency_ms: Option<u64>,
    error: Option<String>,
    human_score: Option<f64>,
    human_notes: Option<String>,
    completed_ms: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct StartEval {
    version_number: Option<u32>,
    categories: Option<Vec<String>>,
    tags: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct EvalScore {
    result_id: Option<String>,
    human_score: Option<f64>,
    human_notes: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CompareEvals {
    run_a: String,
    run_b: String,
}

impl EvalScore {
    fn check(&self) -> Result<(), AshFailure> {
        if self.human_score.is_none() && self.human_notes.is_none() {
            return Err(AshFailure::bad("Provide humanScore and/or humanNotes"));
        }
        if self.human_score.is_some_and(|score| !SCORES.contains(&score)) {
            return Err(AshFailure::bad("humanScore: must be between 1 and 5"));
        }
        if self.human_notes.as_ref().is_some_and(|notes| notes.len() > NOTES_BYTES_MAX) {
            return Err(AshFailure::bad(format!(
                "humanNotes: has more than {NOTES_BYTES_MAX} bytes"
            )));
        }
        Ok(())
    }
}

/// `POST /api/agents/{name}/eval-runs`.
pub(super) async fn start(
    caller: AshCaller,
    Path(name): Path<String>,
    AshBody(start): AshBody<StartEval>,
) -> Result<Response, AshFailure> {
    let agent = caller.agent(&name).await?;
    if let Some(number) = start.version_number {
        let known = versions::prompt(caller.sessions(), &caller.tenant, &agent.id, number).await;
        known.map_err(|error| match error {
            SessionError::NotFound(_) => {
                AshFailure::not_found(format!("Agent version {number} not found"))
            }
            other => other.into(),
        })?;
    }
    let (sessions, tenant) = (caller.sessions(), &*caller.tenant);
    if sessions.documents()?.count(tenant, RUN, Some(&agent.id)).await? >= RUNS_MAX {
        return Err(AshFailure::bad(format!("an agent has at most {RUNS_MAX} runs")));
    }
    let wanted = |case: &EvalCase| {
        let in_category = start.categories.as_ref().is_none_or(|categories| {
            categories.is_empty()
                || case.category.as_ref().is_some_and(|it| categories.contains(it))
        });
        let tagged = start.tags.as_ref().is_none_or(|tags| {
            tags.is_empty() || case.tags.iter().flatten().any(|tag| tags.contains(tag))
        });
        case.is_active && in_category && tagged
    };
    let cases = cases::of(&caller, &agent).await?;
    let cases = cases.into_iter().filter(|(_, case)| wanted(case));
    let cases: Vec<String> = cases.map(|(document, _)| document.id).collect();
    let id = caller.new_id();
    for case in &cases {
        let outcome = EvalOutcome {
            case: case.clone(),
            status: "pending".to_owned(),
            ..EvalOutcome::default()
        };
        let body = serde_json::to_value(outcome).map_err(AshFailure::internal)?;
        sessions.documents()?.put(tenant, RESULT, &caller.new_id(), Some(&id), body).await?;
    }
    let run = EvalRun {
        version: start.version_number,
        status: "pending".to_owned(),
        total: cases.len(),
        ..EvalRun::default()
    };
    let body = serde_json::to_value(run).map_err(AshFailure::internal)?;
    sessions.documents()?.put(tenant, RUN, &id, Some(&agent.id), body).await?;
    let open = json!({ "agent": agent.name, "server": sessions.server() });
    sessions.documents()?.put(tenant, OPEN, &id, Some(OPEN_RUNS), open).await?;
    let document = find(&caller, RUN, &agent.id, &id, "Eval run").await?;
    let shown = run_shape(&agent.name, &document);
    caller.face.shared.runs.work(&caller.face.sessions, &caller.tenant, &id, &agent.name);
    Ok(created(flat_and_named("run", shown)))
}

/// `GET /api/agents/{name}/eval-runs`.
pub(super) async fn list(caller: AshCaller, Path(name): Path<String>) -> Answer {
    let agent = caller.agent(&name).await?;
    let runs = caller.documents(RUN, Some(&agent.id)).await?;
    let runs: Vec<Value> = runs.iter().rev().map(|run| run_shape(&name, run)).collect();
    Ok(Json(json!({ "runs": runs })))
}

/// `GET /api/agents/{name}/eval-runs/{id}`.
pub(super) async fn get(caller: AshCaller, Path((name, id)): Path<(String, String)>) -> Answer {
    let agent = caller.agent(&name).await?;
    let run = find(&caller, RUN, &agent.id, &id, "Eval run").await?;
    Ok(Json(flat_and_named("run", run_shape(&name, &run))))
}

/// `GET /api/agents/{name}/eval-runs/{id}/results`.
pub(super) async fn results(caller: AshCaller, Path((name, id)): Path<(String, String)>) -> Answer {
    let agent = caller.agent(&name).await?;
    let run = find(&caller, RUN, &agent.id, &id, "Eval run").await?;
    let results = caller.documents(RESULT, Some(&run.id)).await?;
    let results: Vec<Value> = results.iter().map(result_shape).collect();
    Ok(Json(json!({ "results": results })))
}

/// `GET /api/agents/{name}/eval-runs/compare`.
pub(super) async fn compare(
    caller: AshCaller,
    Path(name): Path<String>,
    AshQuery(compare): AshQuery<CompareEvals>,
) -> Answer {
    let agent = caller.agent(&name).await?;
    let run_a = find(&caller, RUN, &agent.id, &compare.run_a, "Eval run A").await?;
    let run_b = find(&caller, RUN, &agent.id, &compare.run_b, "Eval run B").await?;
    // By question: the results in both runs.
    let mut pairs: BTreeMap<String, [Value; 2]> = BTreeMap::new();
    for (place, run) in [&run_a, &run_b].into_iter().enumerate() {
        for result in caller.documents(RESULT, Some(&run.id)).await? {
            let case = outcome_of(&result).case;
            let pair = pairs.entry(case).or_insert([Value::Null, Value::Null]);
            pair[place] = result_shape(&result);
        }
    }
    let mut results = Vec::with_capacity(pairs.len());
    for (case, [result_a, result_b]) in pairs {
        let known = caller.sessions().documents()?.find(&caller.tenant, CASE, &case).await?;
        let question = known.map(|known| cases::case_of(&known).question).unwrap_or_default();
        results.push(json!({
            "caseId": case, "question": question, "resultA": result_a, "resultB": result_b,
        }));
    }
    let comparison = json!({
        "runA": run_shape(&name, &run_a),
        "runB": run_shape(&name, &run_b),
        "results": results,
    });
    Ok(Json(flat_and_named("comparison", comparison)))
}

/// `POST /api/agents/{name}/eval-runs/{id}/score`.
pub(super) async fn score(
    caller: AshCaller,
    Path((name, id)): Path<(String, String)>,
    AshBody(score): AshBody<EvalScore>,
) -> Answer {
    score.check()?;
    let agent = caller.agent(&name).await?;
    let run = find(&caller, RUN, &agent.id, &id, "Eval run").await?;
    let mut results = caller.documents(RESULT, Some(&run.id)).await?;
    if let Some(wanted) = &score.result_id {
        results.retain(|result| result.id == *wanted);
        if results.is_empty() {
            return Err(AshFailure::not_found("Eval result not found in this run"));
        }
    }
    let mut scored = Vec::with_capacity(results.len());
    for result in results {
        scored.push(result_shape(&judge(&caller, &result.id, &score).await?));
    }
    Ok(Json(json!({ "scored": scored.len(), "results": scored })))
}

/// `PATCH /api/agents/{name}/eval-results/{id}`.
pub(super) async fn score_result(
    caller: AshCaller,
    Path((name, id)): Path<(String, String)>,
    AshBody(score): AshBody<EvalScore>,
) -> Answer {
    score.check()?;
    let agent = caller.agent(&name).await?;
    let missing = || AshFailure::not_found("Eval result not found");
    let known = caller.sessions().documents()?.find(&caller.tenant, RESULT, &id).await?;
    let run = known.ok_or_else(missing)?.parent.ok_or_else(missing)?;
    find(&caller, RUN, &agent.id, &run, "Eval result").await?;
    let changed = judge(&caller, &id, &score).await?;
    Ok(Json(json!({ "result": result_shape(&changed) })))
}

/// Adds a person's score to a result, retrying after concurrent changes.
async fn judge(
    caller: &AshCaller,
    id: &str,
    score: &EvalScore,
) -> Result<FaceDocument, AshFailure> {
    let (sessions, tenant) = (caller.sessions(), &*caller.tenant);
    loop {
        let known = sessions.documents()?.find(tenant, RESULT, id).await?;
        let known = known.ok_or_else(|| AshFailure::not_found("Eval result not found"))?;
        let mut outcome = outcome_of(&known);
        outcome.human_score = score.human_score.or(outcome.human_score);
        outcome.human_notes = score.human_notes.clone().or(outcome.human_notes);
        let body = serde_json::to_value(outcome).map_err(AshFailure::internal)?;
        let parent = known.parent.as_deref();
        if let Some(done) = sessions.documents()?.replace(tenant, &known, parent, body).await? {
            return Ok(done);
        }
    }
}

/// Returns a document of this parent.
async fn find(
    caller: &AshCaller,
    kind: &str,
    parent: &str,
    id: &str,
    what: &str,
) -> Result<FaceDocument, AshFailure> {
    let found = caller.sessions().documents()?.find(&caller.tenant, kind, id).await?;
    let found = found.filter(|document| document.parent.as_deref() == Some(parent));
    found.ok_or_else(|| AshFailure::not_found(format!("{what} not found")))
}

/// Removes all evaluation documents of an agent.
pub(super) async fn forget(caller: &AshCaller, agent: &str) -> Result<(), AshFailure> {
    for run in caller.documents(RUN, Some(agent)).await? {
        caller.forget(RESULT, &run.id).await?;
    }
    caller.forget(RUN, agent).await?;
    caller.forget(CASE, agent).await
}

/// Returns the number of runs by status.
pub(super) async fn count(caller: &AshCaller) -> Result<BTreeMap<String, u64>, AshFailure> {
    let mut counts = BTreeMap::new();
    for run in caller.documents(RUN, None).await? {
        *counts.entry(run_of(&run).status).or_default() += 1;
    }
    Ok(counts)
}

fn run_of(document: &FaceDocument) -> EvalRun {
    serde_json::from_value(document.body.clone()).unwrap_or_default()
}

fn outcome_of(document: &FaceDocument) -> EvalOutcome {
    serde_json::from_value(document.body.clone()).unwrap_or_default()
}

fn run_shape(agent: &str, document: &FaceDocument) -> Value {
    let run = run_of(document);
    json!({
        "id": document.id,
        "agentName": agent,
        "versionNumber": run.version,
        "status": run.status,
        "totalCases": run.total,
        "completedCases": run.completed,
        "summary": run.summary,
        "createdAt": time::shown(document.created_ms),
        "startedAt": run.started_ms.map(time::shown),
        "completedAt": run.completed_ms.map(time::shown),
    })
}

fn result_shape(document: &FaceDocument) -> Value {
    let outcome = outcome_of(document);
    json!({
        "id": document.id,
        "evalRunId": document.parent,
        "evalCaseId": outcome.case,
        "agentResponse": outcome.response,
        "topicScore": outcome.topic_score,
        "safetyScore": outcome.safety_score,
        // As in Ash, no model judges answers here.
        "llmJudgeScore": null,
        "latencyMs": outcome.latency_ms,
        "status": outcome.status,
        "error": outcome.error,
        "humanScore": outcome.human_score,
        "humanNotes": outcome.human_notes,
        "createdAt": time::shown(document.created_ms),
        "completedAt": outcome.completed_ms.map(time::shown),
    })
}

/// Returns an error's text for the record.
fn told(error: &SessionError) -> String {
    error.to_string()
}
