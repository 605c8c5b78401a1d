//! Jobs that look after tables.

use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;

use super::answer;
use super::request::Input;
use crate::error::{Error, Result};
use crate::service::{JobReport, Maintenance};

#[derive(Serialize)]
struct Started {
    id: String,
}

pub(super) async fn start(input: &Input<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    let asked: Maintenance = input.body()?;
    let call = input.call()?;
    let id = input.ground.catalog.start_maintenance(&call, &warehouse, asked).await?;
    let text = serde_json::to_vec(&Started { id }).map_err(Error::internal)?;
    Ok(answer::other(StatusCode::ACCEPTED, &[], text))
}

#[derive(Serialize)]
struct Jobs {
    jobs: Vec<JobReport>,
}

pub(super) async fn list(input: &Input<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    answer::of(&Jobs { jobs: input.ground.catalog.maintenance_jobs(&input.who, &warehouse).await? })
}

pub(super) async fn load(input: &Input<'_>) -> Result<Response> {
    let (warehouse, id) = (input.warehouse()?, input.param("job")?);
    // Who only waits for its end need not be sent what is listed time and again.
    let is_listed = match input.query("items")? {
        None => true,
        Some(_) => input.flag("items")?,
    };
    let report = input.ground.catalog.maintenance(&input.who, &warehouse, id).await?;
    answer::of(&if is_listed { report } else { report.without_lists() })
}

pub(super) async fn cancel(input: &Input<'_>) -> Result<Response> {
    let (warehouse, id) = (input.warehouse()?, input.param("job")?);
    input.ground.catalog.cancel_maintenance(&input.who, &warehouse, id).await?;
    Ok(answer::done())
}
