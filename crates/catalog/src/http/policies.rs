//! Policies, for principals that may grant on their warehouse.

use axum::response::Response;
use iceberg::ident::TableIdent;
use serde::Serialize;

use super::answer;
use super::request::CatalogRequest;
use crate::access::{NewPolicy, PolicyPreviewRequest, PolicyRecord};
use crate::error::Result;

#[derive(Serialize)]
struct PolicyListQuery {
    policies: Vec<PolicyRecord>,
}

pub(super) fn list(input: &CatalogRequest<'_>) -> Result<Response> {
    let policies = input.context.access.policies().list(&input.who, &*input.warehouse()?)?;
    answer::of(&PolicyListQuery { policies })
}

pub(super) async fn put(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, name) = (input.warehouse()?, input.param("policy")?);
    let (access, catalog) = (&input.context.access, &input.context.catalog);
    access.policies().may_restrict(&input.who, &warehouse)?;
    let new: NewPolicy = input.body()?;
    let ident = TableIdent::new(new.namespace.clone(), &new.table)?;
    let schema = catalog.entries().schema_of(&warehouse, &ident).await?;
    answer::of(&access.policies().put_policy(&input.who, &warehouse, name, &new, &schema).await?)
}

pub(super) async fn preview(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, name) = (input.warehouse()?, input.param("policy")?);
    let (access, catalog) = (&input.context.access, &input.context.catalog);
    access.policies().may_restrict(&input.who, &warehouse)?;
    let request: PolicyPreviewRequest = input.body()?;
    let ident = TableIdent::new(request.policy.namespace.clone(), &request.policy.table)?;
    let schema = catalog.entries().schema_of(&warehouse, &ident).await?;
    answer::of(&access.policies().preview_policy(&input.who, &warehouse, name, &request, &schema)?)
}

pub(super) async fn delete(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, name) = (input.warehouse()?, input.param("policy")?);
    input.context.access.policies().delete_policy(&input.who, &warehouse, name).await?;
    Ok(answer::done())
}
