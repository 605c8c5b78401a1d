//! Jobs that look after tables.

use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;

use super::answer;
use super::request::CatalogRequest;
use crate::error::{CatalogError, Result};
use crate::service::{JobReport, MaintenanceRequest};

#[derive(Serialize)]
struct StartedJob {
    id: String,
}

pub(super) async fn start(input: &CatalogRequest<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    let request: MaintenanceRequest = input.body()?;
    let call = input.call()?;
    let id =
        input.context.catalog.maintenance().start_maintenance(&call, &warehouse, request).await?;
    let text = serde_json::to_vec(&StartedJob { id }).map_err(CatalogError::internal)?;
    Ok(answer::other(StatusCode::ACCEPTED, &[], text))
}

#[derive(Serialize)]
struct JobList {
    jobs: Vec<JobReport>,
}

pub(super) async fn list(input: &CatalogRequest<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    answer::of(&JobList {
        jobs: input.context.catalog.maintenance().maintenance_jobs(&input.who, &warehouse).await?,
    })
}

pub(super) async fn load(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, id) = (input.warehouse()?, input.param("job")?);
    // A caller that waits for the end does not need the lists every time.
    let is_listed = match input.query("items")? {
        None => true,
        Some(_) => input.flag("items")?,
    };
    let report =
        input.context.catalog.maintenance().maintenance(&input.who, &warehouse, id).await?;
    answer::of(&if is_listed { report } else { report.without_lists() })
}

pub(super) async fn cancel(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, id) = (input.warehouse()?, input.param("job")?);
    input.context.catalog.maintenance().cancel_maintenance(&input.who, &warehouse, id).await?;
    Ok(answer::done())
}
