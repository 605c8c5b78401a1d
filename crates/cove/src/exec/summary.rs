//! Text output about executions.

use api::{ExecutionRecord, StageOutcome};

use crate::remote::{place, plain};
use crate::run::judgement;
use crate::values::{columns, human_bytes};

/// Describes an execution, without the output of its program.
pub(super) fn summary(record: &ExecutionRecord) -> String {
    let mut text = format!("{}  {}\n", record.id, state(record));
    let mut line = |name: &str, value: &str| text.push_str(&format!("  {name:10}  {value}\n"));
    line("language", &plain(&record.language));
    if let Some(label) = &record.label {
        line("label", &plain(label));
    }
    if record.priority != 0 {
        line("priority", &record.priority.to_string());
    }
    line("created", &record.created_at);
    for (name, time) in [
        ("started", &record.started_at),
        ("finished", &record.finished_at),
        ("kept until", &record.expires_at),
    ] {
        if let Some(time) = time {
            line(name, time);
        }
    }
    if record.attempts > 1 {
        line("attempts", &record.attempts.to_string());
    }
    if let Some(message) = &record.message {
        line("message", &plain(message));
    }
    let Some(result) = &record.result else { return text };
    line("mode", result.mode.as_str());
    if !result.tests.is_empty() {
        text.push_str(&tests(result));
    }
    text
}

/// Returns the queue position, or the outcome, in a few words.
fn state(record: &ExecutionRecord) -> String {
    if let Some(result) = &record.result {
        return plain(&judgement(&result.outcome));
    }
    let place = place(record.position, record.estimated_start_ms);
    format!("{}{place}", record.state.as_str())
}

/// Formats a line for each test case.
fn tests(result: &api::Execution) -> String {
    let passed = result.tests.iter().filter(|test| test.outcome.verdict == api::Verdict::Ok);
    let heading = format!("{} of {} passed", passed.count(), result.tests.len());
    let mut rows = vec![["test", "verdict", "cpu", "wall", "memory", ""].map(str::to_owned)];
    for test in &result.tests {
        let StageOutcome { verdict, cpu_ms, wall_ms, memory_peak_bytes, message, .. } =
            &test.outcome;
        rows.push([
            plain(&test.name),
            verdict.to_string(),
            format!("{cpu_ms} ms"),
            format!("{wall_ms} ms"),
            human_bytes(*memory_peak_bytes),
            plain(message.as_deref().unwrap_or_default()),
        ]);
    }
    format!("  tests       {heading}\n{}", columns(&rows, "    "))
}

/// Formats a page of a list.
pub(super) fn table(records: &[ExecutionRecord], heading: bool) -> String {
    let mut rows = Vec::new();
    if heading {
        rows.push(["id", "state", "language", "created", "label"].map(str::to_owned));
    }
    for record in records {
        rows.push([
            record.id.0.clone(),
            record.state.as_str().to_owned(),
            plain(&record.language),
            record.created_at.clone(),
            plain(record.label.as_deref().unwrap_or_default()),
        ]);
    }
    columns(&rows, "")
}

#[cfg(test)]
mod tests {
    //! Layout of the text output.

    use api::{ExecutionId, ExecutionState};

    use super::*;

    #[test]
    fn what_waits_says_for_how_long() {
        let record = ExecutionRecord {
            id: ExecutionId("ex_1".to_owned()),
            state: ExecutionState::Queued,
            language: "python".to_owned(),
            priority: 5,
            label: Some("a\x1bb".to_owned()),
            created_at: "2026-01-01T00:00:00.000Z".to_owned(),
            started_at: None,
            finished_at: None,
            expires_at: None,
            attempts: 0,
            position: Some(3),
            estimated_start_ms: Some(12_000),
            verdict: None,
            message: None,
            request: None,
            result: None,
        };
        assert_eq!(
            summary(&record),
            "ex_1  queued, 3 before it, starts in about 12 s\n  \
             language    python\n  \
             label       a\u{fffd}b\n  \
             priority    5\n  \
             created     2026-01-01T00:00:00.000Z\n"
        );
        assert_eq!(
            table(&[record], true),
            "id    state   language  created                   label\n\
             ex_1  queued  python    2026-01-01T00:00:00.000Z  a\u{fffd}b\n"
        );
    }
}
