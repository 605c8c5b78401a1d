//! Warehouses, for operators and for those who look after one.

use axum::response::Response;
use serde::Serialize;

use super::answer;
use super::request::CatalogRequest;
use crate::error::Result;
use crate::service::WarehouseRecord;

#[derive(Serialize)]
struct WarehouseListQuery {
    warehouses: Vec<WarehouseRecord>,
}

pub(super) async fn list(input: &CatalogRequest<'_>) -> Result<Response> {
    let warehouses = input.context.catalog.warehouses().list(&input.who).await?;
    answer::of(&WarehouseListQuery { warehouses })
}

pub(super) async fn create(input: &CatalogRequest<'_>) -> Result<Response> {
    // Before the body is parsed: other callers learn nothing about valid bodies.
    crate::access::only_operators(&input.who)?;
    answer::of(&input.context.catalog.warehouses().create(&input.who, input.body()?).await?)
}

pub(super) async fn load(input: &CatalogRequest<'_>) -> Result<Response> {
    let name = input.param("warehouse")?;
    answer::of(&input.context.catalog.warehouses().show(&input.who, name).await?)
}

pub(super) async fn update(input: &CatalogRequest<'_>) -> Result<Response> {
    crate::access::only_operators(&input.who)?;
    let name = input.param("warehouse")?;
    answer::of(&input.context.catalog.warehouses().update(&input.who, name, input.body()?).await?)
}

pub(super) async fn delete(input: &CatalogRequest<'_>) -> Result<Response> {
    crate::access::only_operators(&input.who)?;
    let (name, insist) = (input.param("warehouse")?, input.flag("force")?);
    input.context.catalog.warehouses().delete(&input.who, name, insist).await?;
    Ok(answer::done())
}
