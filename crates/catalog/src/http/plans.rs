//! Planning of scans.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>

use axum::response::Response;
use iceberg::json::{put_name, put_string};
use iceberg::plan::ScanRequest;
use serde::Deserialize;

use super::answer;
use super::request::CatalogRequest;
use crate::error::{CatalogError, Result};
use crate::service::plans::{PlanOutcome, PlanTasks};

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct FetchTasks {
    plan_task: String,
}

pub(super) async fn plan(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let catalog = &input.ground.catalog;
    // Who may not see the table learns nothing of his request.
    catalog.table_exists(&input.who, &warehouse, &ident).await?;
    let request = ScanRequest::parse(&input.json()?)?;
    let plan = catalog.plan_scan(&input.who, &warehouse, &ident, &request).await?;
    let tasks = match &plan.state {
        PlanOutcome::Completed(scan) => {
            Some(catalog.first_tasks(&warehouse, &plan.id, scan).await?)
        }
        _ => None,
    };
    Ok(told(&plan.state, Some(&plan.id), tasks))
}

pub(super) async fn fetch(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let (catalog, id) = (&input.ground.catalog, input.param("plan-id")?);
    let state = catalog.plan(&input.who, &warehouse, &ident, id).await?;
    let tasks = match &state {
        PlanOutcome::Completed(scan) => Some(catalog.first_tasks(&warehouse, id, scan).await?),
        _ => None,
    };
    Ok(told(&state, None, tasks))
}

pub(super) async fn cancel(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let id = input.param("plan-id")?;
    input.ground.catalog.cancel_plan(&input.who, &warehouse, &ident, id).await?;
    Ok(answer::done())
}

pub(super) async fn tasks(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let catalog = &input.ground.catalog;
    catalog.table_exists(&input.who, &warehouse, &ident).await?;
    let FetchTasks { plan_task } = input.body()?;
    let tasks = catalog.tasks(&input.who, &warehouse, &ident, &plan_task).await?;
    let mut text = b"{".to_vec();
    tasks.page.put(&tasks.plan_tasks, &mut text);
    text.push(b'}');
    Ok(answer::of_json(text.into()))
}

/// A plan, by what became of it.
fn told(state: &PlanOutcome, id: Option<&str>, tasks: Option<PlanTasks>) -> Response {
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
