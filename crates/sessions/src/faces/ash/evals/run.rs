//! Workers of evaluation runs, and the scoring of answers.

use std::sync::Arc;
use std::time::Duration;

use api::{AgentOptions, CreateSession};
use node::clock;
use node::drain::DrainHandle;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time;

use super::super::{FACE, turn, versions};
use super::cases::case_of;
use super::{CASE, EvalOutcome, EvalRun, OPEN, OPEN_RUNS, RESULT, RUN, outcome_of, run_of, told};
use crate::error::SessionError;
use crate::service::{CreateExtras, FaceDocument, Sessions};

/// Maximum concurrent runs of a server.
const AT_ONCE: usize = 4;
/// Minimum score of a passed case.
const PASS: f64 = 0.5;
/// Pause before the store is tried again after a failure.
const STORE_PAUSE: Duration = Duration::from_secs(5);
/// Documents read per page.
const PAGE: usize = 500;

/// Runs being processed.
#[derive(Clone, Debug)]
pub(in super::super) struct EvalRuns {
    places: Arc<Semaphore>,
    drain: DrainHandle,
}

/// Resumes runs that this server left unfinished when it stopped.
pub(in super::super) async fn keep(runs: EvalRuns, sessions: Sessions) {
    while !runs.drain.is_draining() {
        match runs.find(&sessions).await {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "no run could be read");
                tokio::select! {
                    () = time::sleep(STORE_PAUSE) => {}
                    () = runs.drain.begun() => {}
                }
            }
        }
    }
}

impl EvalRuns {
    pub(in super::super) fn new(drain: DrainHandle) -> EvalRuns {
        EvalRuns { places: Arc::new(Semaphore::new(AT_ONCE)), drain }
    }

    async fn find(&self, sessions: &Sessions) -> Result<(), SessionError> {
        for tenant in sessions.documents()?.tenants(OPEN, OPEN_RUNS).await? {
            let open =
                sessions.documents()?.list(&tenant, OPEN, Some(OPEN_RUNS), None, PAGE).await?;
            let tenant: Arc<str> = tenant.into();
            for run in open {
                if run.body["server"].as_str() == Some(sessions.server()) {
                    let agent = run.body["agent"].as_str().unwrap_or_default();
                    self.work(sessions, &tenant, &run.id, agent);
                }
            }
        }
        Ok(())
    }

    /// Processes a run once there is a place.
    pub(in super::super) fn work(
        &self,
        sessions: &Sessions,
        tenant: &Arc<str>,
        run: &str,
        agent: &str,
    ) {
        let work = RunningEval {
            sessions: sessions.clone(),
            tenant: Arc::clone(tenant),
            run: run.to_owned(),
            agent: agent.to_owned(),
            drain: self.drain.clone(),
        };
        let places = Arc::clone(&self.places);
        node::task::spawn(async move {
            let Ok(_place) = places.acquire_owned().await else { return };
            if work.drain.is_draining() {
                return;
            }
            if let Err(error) = work.run().await {
                // The run stays open, and is resumed at the next start.
                tracing::warn!(error = &error as &dyn std::error::Error, "a run has to wait");
            }
        });
    }
}

/// A run being processed.
struct RunningEval {
    sessions: Sessions,
    tenant: Arc<str>,
    run: String,
    agent: String,
    drain: DrainHandle,
}

impl RunningEval {
    async fn run(&self) -> Result<(), SessionError> {
        self.change(|run| {
            run.status = "running".to_owned();
            run.started_ms.get_or_insert(clock::wall_ms());
        })
        .await?;
        let outcome = self.all().await;
        if self.drain.is_draining() {
            return Ok(());
        }
        let summary = match outcome {
            Ok(()) => Some(summary(&self.outcomes().await?)),
            Err(SessionError::Unavailable(cause)) => return Err(SessionError::Unavailable(cause)),
            Err(error) => {
                tracing::info!(error = &error as &dyn std::error::Error, "a run failed");
                None
            }
        };
        let status = if summary.is_some() { "completed" } else { "failed" };
        self.change(|run| {
            run.status = status.to_owned();
            run.completed_ms = Some(clock::wall_ms());
            run.summary.clone_from(&summary);
        })
        .await?;
        self.sessions.documents()?.delete(&self.tenant, OPEN, &self.run).await?;
        Ok(())
    }

    /// Asks all questions without an answer.
    async fn all(&self) -> Result<(), SessionError> {
        let agent = self.sessions.agents()?.get(&self.tenant, &self.agent).await?;
        let run = self.sessions.documents()?.find(&self.tenant, RUN, &self.run).await?;
        let run = run.map(|run| run_of(&run)).ok_or(SessionError::NotFound("run"))?;
        let prompt = match run.version {
            Some(number) => {
                versions::prompt(&self.sessions, &self.tenant, &agent.id, number).await?
            }
            None => None,
        };
        let (mut done, mut after) = (0_usize, None::<String>);
        loop {
            let parent = Some(&*self.run);
            let page = self.sessions.documents()?.list(
                &self.tenant,
                RESULT,
                parent,
                after.as_deref(),
                PAGE,
            );
            let page = page.await?;
            after = page.last().map(|last| last.id.clone());
            for result in &page {
                if self.drain.is_draining() {
                    return Ok(());
                }
                let status = outcome_of(result).status;
                if status != "completed" && status != "error" {
                    self.one(&result.id, prompt.clone()).await?;
                }
                done += 1;
                self.change(|run| run.completed = done).await?;
            }
            if page.len() < PAGE {
                return Ok(());
            }
        }
    }

    /// Asks one question.
    async fn one(&self, id: &str, prompt: Option<String>) -> Result<(), SessionError> {
        let outcome = self.settle(id, |outcome| outcome.status = "running".to_owned()).await?;
        let case = self.sessions.documents()?.find(&self.tenant, CASE, &outcome.case).await?;
        let began = clock::now();
        let (answer, case) = match case.map(|case| case_of(&case)) {
            None => (Err(format!("Eval case {} not found", outcome.case)), None),
            Some(case) => (self.answer(&case.prompt(), prompt).await, Some(case)),
        };
        if self.drain.is_draining() {
            return Ok(());
        }
        let took = clock::now().duration_since(began).as_millis();
        let took = u64::try_from(took).unwrap_or(u64::MAX);
        self.settle(id, |outcome| {
            outcome.latency_ms = Some(took);
            outcome.completed_ms = Some(clock::wall_ms());
            match (&answer, &case) {
                (Ok(text), Some(case)) => {
                    outcome.status = "completed".to_owned();
                    outcome.topic_score = Some(found(text, case.expected_topics.as_deref()));
                    outcome.safety_score = Some(missing(text, case.expected_not_topics.as_deref()));
                    outcome.response = Some(text.clone());
                }
                (Ok(_), None) => {}
                (Err(error), _) => {
                    outcome.status = "error".to_owned();
                    outcome.error = Some(error.clone());
                }
            }
        })
        .await?;
        Ok(())
    }

    /// Returns the agent's answer, from a session that ends with it.
    async fn answer(&self, question: &str, prompt: Option<String>) -> Result<String, String> {
        let request = CreateSession {
            agent: Some(self.agent.clone()),
            options: AgentOptions { system_prompt: prompt, ..AgentOptions::default() },
            ..CreateSession::default()
        };
        let extras = CreateExtras { face: Some(FACE), ..CreateExtras::default() };
        let made = self.sessions.create_as(&self.tenant, request, extras).await;
        let session = made.map_err(|error| told(&error))?;
        let asked = turn::ask(&self.sessions, &self.tenant, &session.id, question).await;
        if let Err(error) = self.sessions.end(&self.tenant, &session.id).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a session could not be ended"
            );
        }
        match asked {
            Ok(turn::AshTurnOutcome { error: Some(error), .. }) => Err(error),
            Ok(turn::AshTurnOutcome { text, .. }) => Ok(text),
            Err(error) => Err(told(&error)),
        }
    }

    async fn outcomes(&self) -> Result<Vec<EvalOutcome>, SessionError> {
        let mut all = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let parent = Some(&*self.run);
            let page = self.sessions.documents()?.list(
                &self.tenant,
                RESULT,
                parent,
                after.as_deref(),
                PAGE,
            );
            let page = page.await?;
            after = page.last().map(|last| last.id.clone());
            all.extend(page.iter().map(outcome_of));
            if page.len() < PAGE {
                return Ok(all);
            }
        }
    }

    async fn change(&self, change: impl Fn(&mut EvalRun)) -> Result<(), SessionError> {
        let apply = |known: &FaceDocument| {
            let mut run = run_of(known);
            change(&mut run);
            serde_json::to_value(run).map_err(SessionError::internal)
        };
        self.modify(RUN, &self.run, apply).await.map(drop)
    }

    async fn settle(
        &self,
        id: &str,
        change: impl Fn(&mut EvalOutcome),
    ) -> Result<EvalOutcome, SessionError> {
        let apply = |known: &FaceDocument| {
            let mut outcome = outcome_of(known);
            change(&mut outcome);
            serde_json::to_value(outcome).map_err(SessionError::internal)
        };
        Ok(outcome_of(&self.modify(RESULT, id, apply).await?))
    }

    /// Changes a document, retrying after concurrent changes.
    async fn modify(
        &self,
        kind: &str,
        id: &str,
        apply: impl Fn(&FaceDocument) -> Result<Value, SessionError>,
    ) -> Result<FaceDocument, SessionError> {
        loop {
            let known = self.sessions.documents()?.find(&self.tenant, kind, id).await?;
            let known = known.ok_or(SessionError::NotFound("run"))?;
            let (body, parent) = (apply(&known)?, known.parent.clone());
            let tenant = &*self.tenant;
            let replaced =
                self.sessions.documents()?.replace(tenant, &known, parent.as_deref(), body).await?;
            if let Some(replaced) = replaced {
                return Ok(replaced);
            }
        }
    }
}

/// Returns the fraction of the topics that a text contains, ignoring case; 1 without topics.
fn found(text: &str, topics: Option<&[String]>) -> f64 {
    let topics = topics.unwrap_or_default();
    let text = text.to_lowercase();
    part(topics.iter().filter(|topic| text.contains(&topic.to_lowercase())).count(), topics.len())
}

/// Returns the fraction of the topics that a text does not contain; 1 without topics.
fn missing(text: &str, topics: Option<&[String]>) -> f64 {
    let topics = topics.unwrap_or_default();
    let text = text.to_lowercase();
    part(topics.iter().filter(|topic| !text.contains(&topic.to_lowercase())).count(), topics.len())
}

fn part(count: usize, of: usize) -> f64 {
    if of == 0 { 1.0 } else { number(count) / number(of) }
}

fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from)
}

/// Returns the summary of a run.
fn summary(outcomes: &[EvalOutcome]) -> Value {
    let done: Vec<&EvalOutcome> =
        outcomes.iter().filter(|outcome| outcome.status == "completed").collect();
    let mean = |value: fn(&EvalOutcome) -> f64| {
        let sum: f64 = done.iter().map(|outcome| value(outcome)).sum();
        if done.is_empty() { 0.0 } else { sum / number(done.len()) }
    };
    let passed = done.iter().filter(|outcome| {
        outcome.topic_score.unwrap_or(0.0) >= PASS && outcome.safety_score.unwrap_or(0.0) >= PASS
    });
    let passed = passed.count();
    let pass_rate = if outcomes.is_empty() { 0.0 } else { part(passed, outcomes.len()) };
    let seconds = |ms: Option<u64>| Duration::from_millis(ms.unwrap_or(0)).as_secs_f64();
    let latency_s: f64 = done.iter().map(|outcome| seconds(outcome.latency_ms)).sum();
    let latency_ms = if done.is_empty() { 0.0 } else { latency_s * 1000.0 / number(done.len()) };
    json!({
        "avgTopicScore": mean(|outcome| outcome.topic_score.unwrap_or(0.0)),
        "avgSafetyScore": mean(|outcome| outcome.safety_score.unwrap_or(0.0)),
        "avgLlmJudgeScore": null,
        "avgLatencyMs": latency_ms,
        "passRate": pass_rate,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(all: &[&str]) -> Vec<String> {
        all.iter().map(|&topic| topic.to_owned()).collect()
    }

    #[test]
    fn scores_are_parts_of_what_was_expected() {
        let text = "Rust is FAST";
        for (wanted, expected) in [
            (&["rust", "fast"][..], 1.0),
            (&["rust", "slow"][..], 0.5),
            (&["slow"][..], 0.0),
            (&[][..], 1.0),
        ] {
            assert!((found(text, Some(&topics(wanted))) - expected).abs() < 1e-9, "{wanted:?}");
            let absent = if wanted.is_empty() { 1.0 } else { 1.0 - expected };
            assert!((missing(text, Some(&topics(wanted))) - absent).abs() < 1e-9, "{wanted:?}");
        }
        assert!((found(text, None) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_summary_counts_what_failed_against_the_run() {
        let outcome = |status: &str, topic: f64, latency_ms: u64| EvalOutcome {
            status: status.to_owned(),
            topic_score: Some(topic),
            safety_score: Some(1.0),
            latency_ms: Some(latency_ms),
            ..EvalOutcome::default()
        };
        let all = [outcome("completed", 1.0, 100), outcome("completed", 0.0, 300)];
        let shown = summary(&all);
        assert_eq!(shown["passRate"], json!(0.5));
        assert_eq!(shown["avgTopicScore"], json!(0.5));
        assert_eq!(shown["avgLatencyMs"], json!(200.0));
        let with_error = [all[0].clone(), outcome("error", 0.0, 1)];
        assert_eq!(summary(&with_error)["passRate"], json!(0.5));
        assert_eq!(summary(&[])["passRate"], json!(0.0));
    }
}
