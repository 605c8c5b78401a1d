//! Information about the server, as far as it is public.

use std::collections::BTreeMap;

use api::ExecutionState as JobState;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use node::auth::TokenPrincipal;
use serde_json::{Value, json};

use super::render::{STATUSES, status};
use super::{Answer, Judge0Context, Judge0Failure, LISTED_MAX, PathSegment, languages};

/// The version whose interface this is; clients choose language numbers by it.
const JUDGE0_VERSION: &str = "1.13.1";
/// Maximum number of submissions whose languages `/statistics` counts: each is read individually.
const NUMBERED_MAX: usize = 1_000;

fn ok(body: Value) -> Answer {
    Ok((StatusCode::OK, axum::Json(body)))
}

pub(super) async fn languages(State(face): State<Judge0Context>, _who: TokenPrincipal) -> Answer {
    ok(face.languages().await.iter().map(languages::brief).collect())
}

pub(super) async fn all_languages(
    State(face): State<Judge0Context>,
    _who: TokenPrincipal,
) -> Answer {
    ok(face.languages().await.iter().map(languages::listed).collect())
}

pub(super) async fn language(
    State(face): State<Judge0Context>,
    _who: TokenPrincipal,
    PathSegment(id): PathSegment,
) -> Answer {
    let languages = face.languages().await;
    let number: Option<u64> = id.parse().ok();
    let found = languages.iter().find(|language| Some(language.id) == number);
    let found = found.ok_or_else(|| {
        let message = format!("there is no language with the id {:?}", super::excerpt(&id));
        Judge0Failure::new(StatusCode::NOT_FOUND, message)
    })?;
    ok(languages::full(found))
}

pub(super) async fn statuses(_who: TokenPrincipal) -> Answer {
    ok((1..=STATUSES.len()).map(status).collect())
}

/// Returns architecture and number of cores, which a caller can also see inside a sandbox.
pub(super) async fn system_info(_who: TokenPrincipal) -> Answer {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    ok(json!({ "Architecture": std::env::consts::ARCH, "CPU(s)": cores.to_string() }))
}

pub(super) async fn config_info(State(face): State<Judge0Context>, _who: TokenPrincipal) -> Answer {
    let config = &*face.config;
    ok(json!({
        "maintenance_mode": false,
        "enable_wait_result": true,
        "enable_compiler_options": true,
        "allowed_languages_for_compile_options": [],
        "enable_command_line_arguments": true,
        "enable_submission_delete": config.enable_submission_delete,
        "enable_callbacks": true,
        "callbacks_max_tries": 3,
        "callbacks_timeout": 5.0,
        "enable_additional_files": true,
        "enable_batched_submissions": true,
        "max_submission_batch_size": config.max_submission_batch_size,
        "max_queue_size": config.max_queue_size,
        "cpu_time_limit": config.cpu_time_limit,
        "max_cpu_time_limit": config.max_cpu_time_limit,
        "cpu_extra_time": config.cpu_extra_time,
        "max_cpu_extra_time": config.max_cpu_extra_time,
        "wall_time_limit": config.wall_time_limit,
        "max_wall_time_limit": config.max_wall_time_limit,
        "memory_limit": config.memory_limit,
        "max_memory_limit": config.max_memory_limit,
        "stack_limit": config.stack_limit,
        "max_stack_limit": config.max_stack_limit,
        "max_processes_and_or_threads": config.max_processes_and_or_threads,
        "max_max_processes_and_or_threads": config.max_max_processes_and_or_threads,
        "enable_per_process_and_thread_time_limit": false,
        "allow_enable_per_process_and_thread_time_limit": true,
        "enable_per_process_and_thread_memory_limit": false,
        "allow_enable_per_process_and_thread_memory_limit": true,
        "max_file_size": config.max_file_size,
        "max_max_file_size": config.max_max_file_size,
        "enable_network": false,
        "allow_enable_network": false,
        "number_of_runs": config.number_of_runs,
        "max_number_of_runs": config.max_number_of_runs,
        "redirect_stderr_to_stdout": false,
        "max_extract_size": config.max_extract_size,
        "submission_cache_duration": 0.0,
        "use_docs_as_homepage": false,
    }))
}

/// Returns figures of the caller's own newest [`LISTED_MAX`] submissions; for languages, of the
/// newest [`NUMBERED_MAX`].
pub(super) async fn statistics(State(face): State<Judge0Context>, who: TokenPrincipal) -> Answer {
    let mut by_state: BTreeMap<JobState, u64> = BTreeMap::new();
    let mut by_language: BTreeMap<u64, u64> = BTreeMap::new();
    let mut by_day: BTreeMap<String, u64> = BTreeMap::new();
    let mut newest = Vec::new();
    face.each(&who, LISTED_MAX, |job| {
        *by_state.entry(job.state).or_default() += 1;
        if newest.len() < NUMBERED_MAX {
            newest.push(job.id.clone());
        }
        let day = crate::jobs::date(job.created_ms).chars().take(10).collect();
        *by_day.entry(day).or_default() += 1;
    })
    .await?;
    // Their numbers are stored with the jobs and in no list: one job in memory at a time.
    for id in newest {
        if let Some(number) = face.language_of(&who, &id).await? {
            *by_language.entry(number).or_default() += 1;
        }
    }
    let today: String = node::clock::rfc3339(node::clock::wall()).chars().take(10).collect();
    let total: u64 = by_state.values().sum();
    let names = face.languages().await;
    let languages = by_language.iter().map(|(id, count)| {
        let name = names.iter().find(|language| language.id == *id).map(|it| &it.name);
        json!({ "language": { "id": id, "name": name }, "count": count })
    });
    // The outcome of a submission is in its result, which is not read for this.
    let states = by_state.iter().map(|(state, count)| json!({ "state": state, "count": count }));
    ok(json!({
        "submissions": {
            "total": total,
            "today": by_day.get(&today).copied().unwrap_or(0),
            "last_30_days": by_day.iter().rev().take(30).collect::<BTreeMap<_, _>>(),
        },
        "languages": languages.collect::<Vec<_>>(),
        "states": states.collect::<Vec<_>>(),
    }))
}

pub(super) async fn workers(State(face): State<Judge0Context>, who: TokenPrincipal) -> Answer {
    let stats = face.jobs.stats(Some(&who.token_id)).await?;
    let workers = u64::try_from(face.service.running_max()).unwrap_or(u64::MAX);
    ok(json!([{
        "queue": JUDGE0_VERSION,
        "size": stats.queued,
        "available": workers,
        "idle": workers.saturating_sub(stats.running),
        "working": stats.running,
        "paused": if stats.paused { workers } else { 0 },
        "failed": stats.dead,
    }]))
}

pub(super) async fn about(_who: TokenPrincipal) -> Answer {
    ok(json!({
        "version": JUDGE0_VERSION,
        "homepage": "",
        "source_code": "",
        "maintainer": concat!("Cove ", env!("CARGO_PKG_VERSION")),
    }))
}

pub(super) async fn version(_who: TokenPrincipal) -> impl IntoResponse {
    JUDGE0_VERSION
}

/// Returns the text in place of the version of Judge0's sandbox.
pub(super) async fn isolate(_who: TokenPrincipal) -> impl IntoResponse {
    concat!("Cove ", env!("CARGO_PKG_VERSION"), ", its own sandbox\n")
}

pub(super) async fn license(_who: TokenPrincipal) -> impl IntoResponse {
    "Cove is licensed under the Apache License, Version 2.0.\n"
}
