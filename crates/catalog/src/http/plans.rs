//! Planning of scans.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>

use axum::http::Method;
use axum::response::Response;
use iceberg::json::{put_name, put_string};
use iceberg::plan::ScanRequest;
use node::http::FastHead;
use serde::Deserialize;

use super::answer;
use super::operations::PREFIX;
use super::request::CatalogRequest;
use crate::error::{CatalogError, Result};
use crate::service::plans::{PlanOutcome, PlanTasks};

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct FetchTasks {
    plan_task: String,
}

/// Position in a request of the plan's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanReference {
    /// The id itself, in the path.
    Id(String),
    /// In the body ([`plan_in`]).
    InBody,
}

/// Returns the position of the plan's id in a request, if the request concerns a plan.
#[must_use]
pub fn plan_of(request: FastHead<'_>) -> Option<PlanReference> {
    let mut parts = request.uri.path().strip_prefix(PREFIX)?.rsplit('/');
    let (last, before) = (parts.next()?, parts.next()?);
    match before {
        "plan" => Some(PlanReference::Id(last.to_owned())),
        _ if last == "tasks" && request.method == Method::POST => Some(PlanReference::InBody),
        _ => None,
    }
}

/// Returns the token of a task in a body.
#[must_use]
pub fn plan_in(body: &[u8]) -> Option<String> {
    serde_json::from_slice::<FetchTasks>(body).ok().map(|it| it.plan_task)
}

pub(super) async fn plan(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let catalog = &input.context.catalog;
    // A caller that may not see the table learns nothing from its request.
    catalog.relations().table_exists(&input.who, &warehouse, &ident).await?;
    let request = ScanRequest::parse(&input.json()?)?;
    let plan = catalog.plans().plan_scan(&input.who, &warehouse, &ident, &request).await?;
    let tasks = match &plan.state {
        PlanOutcome::Completed(scan) => {
            Some(catalog.plans().first_tasks(&warehouse, &plan.id, scan).await?)
        }
        _ => None,
    };
    Ok(plan_answer(&plan.state, Some(&plan.id), tasks))
}

pub(super) async fn fetch(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let (catalog, id) = (&input.context.catalog, input.param("plan-id")?);
    let state = catalog.plans().plan(&input.who, &warehouse, &ident, id).await?;
    let tasks = match &state {
        PlanOutcome::Completed(scan) => {
            Some(catalog.plans().first_tasks(&warehouse, id, scan).await?)
        }
        _ => None,
    };
    Ok(plan_answer(&state, None, tasks))
}

pub(super) async fn cancel(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let id = input.param("plan-id")?;
    input.context.catalog.plans().cancel_plan(&input.who, &warehouse, &ident, id).await?;
    Ok(answer::done())
}

pub(super) async fn tasks(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let catalog = &input.context.catalog;
    catalog.relations().table_exists(&input.who, &warehouse, &ident).await?;
    let FetchTasks { plan_task } = input.body()?;
    let tasks = catalog.plans().tasks(&input.who, &warehouse, &ident, &plan_task).await?;
    let mut text = b"{".to_vec();
    tasks.page.put(&tasks.plan_tasks, &mut text);
    text.push(b'}');
    Ok(answer::of_json(text.into()))
}

/// Builds the response with a plan, by its outcome.
fn plan_answer(state: &PlanOutcome, id: Option<&str>, tasks: Option<PlanTasks>) -> Response {
    let mut text = b"{".to_vec();
    put_name(&mut text, "status");
    put_string(
        &mut text,
        match state {
            PlanOutcome::Submitted => "submitted",
            PlanOutcome::Completed(_) => "completed",
            PlanOutcome::Failed(..) => "failed",
            PlanOutcome::Cancelled => "cancelled",
        },
    );
    if let Some(id) = id {
        put_name(&mut text, "plan-id");
        put_string(&mut text, id);
    }
    if let PlanOutcome::Failed(kind, message) = state {
        put_name(&mut text, "error");
        answer::put_error(&mut text, &CatalogError::new(*kind, message.as_str()));
    }
    if let Some(tasks) = tasks {
        tasks.page.put(&tasks.plan_tasks, &mut text);
    }
    text.push(b'}');
    answer::of_json(text.into())
}
