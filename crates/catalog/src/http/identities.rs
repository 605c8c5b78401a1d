//! API keys, for operators and for their clients, and roles, for operators.

use std::time::Duration;

use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::answer;
use super::manage::RotateRequest;
use super::request::CatalogRequest;
use crate::access::{KeyRecord, RoleRecord};
use crate::error::Result;

#[derive(Serialize)]
struct ApiKeyList {
    keys: Vec<KeyRecord>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct NewApiKeyRequest {
    name: String,
    #[serde(default)]
    expires_seconds: Option<u64>,
}

#[derive(Serialize)]
struct RoleList {
    roles: Vec<RoleRecord>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewRole {
    name: String,
    #[serde(default)]
    members: Vec<String>,
}

pub(super) fn list_keys(input: &CatalogRequest<'_>) -> Result<Response> {
    let keys = input.context.access.api_keys().keys(&input.who, input.param("client")?)?;
    answer::of(&ApiKeyList { keys })
}

pub(super) async fn create_key(input: &CatalogRequest<'_>) -> Result<Response> {
    let NewApiKeyRequest { name, expires_seconds } = input.body()?;
    let (client, lifetime) = (input.param("client")?, expires_seconds.map(Duration::from_secs));
    answer::of(
        &input.context.access.api_keys().create_key(&input.who, client, &name, lifetime).await?,
    )
}

pub(super) async fn rotate_key(input: &CatalogRequest<'_>) -> Result<Response> {
    let RotateRequest { grace_seconds } = input.body()?;
    let (client, key) = (input.param("client")?, input.param("key")?);
    let grace = Duration::from_secs(grace_seconds);
    answer::of(&input.context.access.api_keys().rotate_key(&input.who, client, key, grace).await?)
}

pub(super) async fn delete_key(input: &CatalogRequest<'_>) -> Result<Response> {
    let (client, key) = (input.param("client")?, input.param("key")?);
    input.context.access.api_keys().delete_key(&input.who, client, key).await?;
    Ok(answer::done())
}

pub(super) fn list_roles(input: &CatalogRequest<'_>) -> Result<Response> {
    answer::of(&RoleList { roles: input.context.access.roles().list(&input.who)? })
}

pub(super) async fn create_role(input: &CatalogRequest<'_>) -> Result<Response> {
    let NewRole { name, members } = input.body()?;
    input.context.access.roles().create_role(&input.who, &name, &members).await?;
    Ok(answer::done())
}

pub(super) async fn change_members(input: &CatalogRequest<'_>) -> Result<Response> {
    let role = input.param("role")?;
    input.context.access.roles().change_members(&input.who, role, &input.body()?).await?;
    Ok(answer::done())
}

pub(super) async fn delete_role(input: &CatalogRequest<'_>) -> Result<Response> {
    input.context.access.roles().delete_role(&input.who, input.param("role")?).await?;
    Ok(answer::done())
}
