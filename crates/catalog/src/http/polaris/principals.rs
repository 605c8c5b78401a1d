//! Principals: clients, by their names.
//!
//! # References
//! - <https://github.com/apache/polaris/blob/main/spec/polaris-management-service.yml>

use std::time::Duration;

use axum::response::Response;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::{EntityUpdate, EntityVersion, answer, missing, roles};
use crate::access::{
    ClientRecord, EntityKey, EntityKind, EntityRecord, MembersChange, NewSecret, only_operators,
};
use crate::error::{Result, bad};
use crate::http::request::CatalogRequest;
use crate::store::Properties;

#[derive(Serialize)]
struct PolarisPrincipalList {
    principals: Vec<PolarisPrincipal>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PolarisPrincipal {
    name: String,
    client_id: String,
    #[serde(flatten)]
    versioned: EntityVersion,
}

#[derive(Serialize)]
struct WithCredentials {
    principal: PolarisPrincipal,
    credentials: PolarisCredentials,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PolarisCredentials {
    client_id: String,
    client_secret: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CreatePrincipalRequest {
    principal: NewPrincipal,
    #[serde(default)]
    credential_rotation_required: Option<bool>,
}

/// Definition of a new principal; fields that only responses have are ignored, but an id is
/// rejected.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewPrincipal {
    name: String,
    #[serde(default)]
    client_id: Option<String>,
    #[serde(default)]
    properties: Option<Properties>,
    #[serde(default, rename = "createTimestamp")]
    _created: IgnoredAny,
    #[serde(default, rename = "lastUpdateTimestamp")]
    _updated: IgnoredAny,
    #[serde(default, rename = "entityVersion")]
    _version: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResetCredentialsRequest {
    #[serde(default)]
    client_id: Option<IgnoredAny>,
    #[serde(default)]
    client_secret: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AssignRoleRequest {
    principal_role: roles::NewPolarisRole,
}

impl PolarisPrincipal {
    fn of(client: ClientRecord, entity: EntityRecord) -> PolarisPrincipal {
        PolarisPrincipal {
            name: client.name,
            client_id: client.client_id,
            versioned: EntityVersion::of(entity, Some(client.created_ms)),
        }
    }
}

pub(super) async fn list(input: &CatalogRequest<'_>) -> Result<Response> {
    let all = input.context.access.clients().list(&input.who)?;
    answer::of(&all_of(input, all).await?)
}

async fn all_of(
    input: &CatalogRequest<'_>,
    all: Vec<ClientRecord>,
) -> Result<PolarisPrincipalList> {
    let mut entities = input.context.access.entities().list(EntityKind::Client, "").await?;
    let principals = all.into_iter().map(|client| {
        let entity = entities.remove(&client.client_id).unwrap_or_default();
        PolarisPrincipal::of(client, entity)
    });
    Ok(PolarisPrincipalList { principals: principals.collect() })
}

/// Returns the principal in the path.
fn principal_of_path(input: &CatalogRequest<'_>) -> Result<ClientRecord> {
    input.context.access.clients().client_named(&input.who, input.param("principal")?)
}

async fn load(input: &CatalogRequest<'_>, client: ClientRecord) -> Result<PolarisPrincipal> {
    let entity =
        input.context.access.entities().entity(EntityKey::client(&client.client_id)).await?;
    Ok(PolarisPrincipal::of(client, entity))
}

async fn with_secret(input: &CatalogRequest<'_>, new: NewSecret) -> Result<WithCredentials> {
    input.note_credentials();
    let credentials = PolarisCredentials {
        client_id: new.client.client_id.clone(),
        client_secret: new.client_secret,
    };
    Ok(WithCredentials { principal: load(input, new.client).await?, credentials })
}

pub(super) async fn get(input: &CatalogRequest<'_>) -> Result<Response> {
    answer::of(&load(input, principal_of_path(input)?).await?)
}

pub(super) async fn create(input: &CatalogRequest<'_>) -> Result<Response> {
    only_operators(&input.who)?;
    let CreatePrincipalRequest { principal, credential_rotation_required } = input.body()?;
    if credential_rotation_required == Some(true) {
        let message = "`credentialRotationRequired`: a secret is good for everything or nothing";
        return Err(missing(message));
    }
    if principal.client_id.is_some() {
        return Err(bad("`clientId` is assigned by the server"));
    }
    let properties = principal.properties.unwrap_or_default();
    let access = &input.context.access;
    let made =
        access.clients().create_named_client(&input.who, &principal.name, properties).await?;
    answer::made(&with_secret(input, made).await?)
}

pub(super) async fn update(input: &CatalogRequest<'_>) -> Result<Response> {
    only_operators(&input.who)?;
    let client = principal_of_path(input)?;
    let (key, change) = (EntityKey::client(&client.client_id), input.body::<EntityUpdate>()?);
    let entity =
        input.context.access.entities().update_entity(&input.who, key, change.into()).await?;
    answer::of(&PolarisPrincipal::of(client, entity))
}

pub(super) async fn delete(input: &CatalogRequest<'_>) -> Result<Response> {
    only_operators(&input.who)?;
    input
        .context
        .access
        .clients()
        .delete_client(&input.who, &principal_of_path(input)?.client_id)
        .await?;
    Ok(answer::done())
}

pub(super) async fn rotate(input: &CatalogRequest<'_>) -> Result<Response> {
    let client = principal_of_path(input)?;
    new_secret(input, &client.client_id).await
}

pub(super) async fn reset(input: &CatalogRequest<'_>) -> Result<Response> {
    only_operators(&input.who)?;
    let client = principal_of_path(input)?;
    if input.has_body() {
        let ResetCredentialsRequest { client_id, client_secret } = input.body()?;
        if client_id.is_some() || client_secret.is_some() {
            let message = "`clientId` and `clientSecret`: only the server generates credentials";
            return Err(missing(message));
        }
    }
    new_secret(input, &client.client_id).await
}

/// Replaces the secret. The old one becomes invalid immediately.
async fn new_secret(input: &CatalogRequest<'_>, id: &str) -> Result<Response> {
    let made = input.context.access.clients().rotate_client(&input.who, id, Duration::ZERO).await?;
    answer::of(&with_secret(input, made).await?)
}

pub(super) async fn list_roles(input: &CatalogRequest<'_>) -> Result<Response> {
    only_operators(&input.who)?;
    let (principal, all) =
        (principal_of_path(input)?.principal, input.context.access.roles().list(&input.who)?);
    let names = all.into_iter().filter(|it| it.members.contains(&principal)).map(|it| it.name);
    roles::answer_with(input, names.collect()).await
}

pub(super) async fn assign_role(input: &CatalogRequest<'_>) -> Result<Response> {
    only_operators(&input.who)?;
    let principal = principal_of_path(input)?.principal;
    let AssignRoleRequest { principal_role } = input.body()?;
    let change = MembersChange { add: vec![principal], remove: Vec::new() };
    input.context.access.roles().change_members(&input.who, &principal_role.name, &change).await?;
    Ok(answer::made_so())
}

pub(super) async fn revoke_role(input: &CatalogRequest<'_>) -> Result<Response> {
    only_operators(&input.who)?;
    let change =
        MembersChange { add: Vec::new(), remove: vec![principal_of_path(input)?.principal] };
    input.context.access.roles().change_members(&input.who, input.param("role")?, &change).await?;
    Ok(answer::done())
}

/// Returns the principals that have a role. Other members are not principals of Polaris.
pub(super) async fn list_of_role(input: &CatalogRequest<'_>) -> Result<Response> {
    let role = roles::role_of_path(input)?;
    let mut all = input.context.access.clients().list(&input.who)?;
    all.retain(|client| role.members.contains(&client.principal));
    answer::of(&all_of(input, all).await?)
}
