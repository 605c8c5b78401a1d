//! Clients and grants, for operators and for principals that may grant.

use std::time::Duration;

use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::answer;
use super::request::CatalogRequest;
use crate::access::{ClientRecord, PrincipalGrant};
use crate::error::Result;

#[derive(Serialize)]
struct ClientList {
    clients: Vec<ClientRecord>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewClient {
    name: String,
    #[serde(default)]
    operator: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct RotateRequest {
    #[serde(default)]
    pub(super) grace_seconds: u64,
}

#[derive(Serialize)]
struct GrantList {
    grants: Vec<PrincipalGrant>,
}

pub(super) fn list_clients(input: &CatalogRequest<'_>) -> Result<Response> {
    answer::of(&ClientList { clients: input.context.access.clients().list(&input.who)? })
}

pub(super) async fn create_client(input: &CatalogRequest<'_>) -> Result<Response> {
    let NewClient { name, operator } = input.body()?;
    answer::of(&input.context.access.clients().create_client(&input.who, &name, operator).await?)
}

pub(super) async fn rotate_client(input: &CatalogRequest<'_>) -> Result<Response> {
    let RotateRequest { grace_seconds } = input.body()?;
    let (id, grace) = (input.param("client")?, Duration::from_secs(grace_seconds));
    answer::of(&input.context.access.clients().rotate_client(&input.who, id, grace).await?)
}

pub(super) async fn delete_client(input: &CatalogRequest<'_>) -> Result<Response> {
    input.context.access.clients().delete_client(&input.who, input.param("client")?).await?;
    Ok(answer::done())
}

pub(super) async fn list_grants(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, principal) = (input.warehouse()?, input.query("principal")?);
    let grants = input.context.access.grants(&input.who, &warehouse, principal).await?;
    answer::of(&GrantList { grants })
}

pub(super) async fn grant(input: &CatalogRequest<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    input.context.access.grant(&input.who, &warehouse, &input.body()?).await?;
    Ok(answer::done())
}

pub(super) async fn revoke(input: &CatalogRequest<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    input.context.access.revoke(&input.who, &warehouse, &input.body()?).await?;
    Ok(answer::done())
}
