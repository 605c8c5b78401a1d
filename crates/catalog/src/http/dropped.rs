//! Dropped objects that can be restored; protection; retention.

use axum::response::Response;
use iceberg::ident::{NamespaceIdent, TableIdent};
use serde::{Deserialize, Serialize};

use super::answer;
use super::request::CatalogRequest;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::service::ProtectionLevel;
use crate::store::DroppedRelation;

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct DroppedQuery {
    id: String,
    uuid: String,
    #[serde(rename = "type")]
    kind: &'static str,
    namespace: NamespaceIdent,
    name: Box<str>,
    dropped_at_ms: u64,
    purge_at_ms: u64,
    purge_requested: bool,
    is_purging: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<String>,
}

impl DroppedQuery {
    fn new(one: DroppedRelation, is_operator: bool) -> DroppedQuery {
        let DroppedRelation { ident, pointer, dropped_ms, keep, principal, is_purging, .. } = one;
        DroppedQuery {
            id: pointer.id,
            uuid: pointer.uuid,
            kind: pointer.kind.name(),
            namespace: ident.namespace,
            name: ident.name,
            dropped_at_ms: dropped_ms,
            purge_at_ms: keep.until_ms,
            purge_requested: keep.purge,
            is_purging,
            principal: is_operator.then_some(principal),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct DroppedListQuery {
    dropped: Vec<DroppedQuery>,
    next_page_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UndropRequest {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    uuid: Option<String>,
    #[serde(default)]
    namespace: Option<NamespaceIdent>,
    #[serde(default)]
    name: Option<String>,
}

#[derive(Serialize)]
struct UndropAnswer {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    namespace: NamespaceIdent,
    name: Box<str>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProtectRequest {
    namespace: NamespaceIdent,
    #[serde(default)]
    name: Option<String>,
    protected: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ProtectionAnswer {
    protected: bool,
    by_flag: bool,
    by_property: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct RetainRequest {
    undrop_seconds: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct RetentionAnswer {
    undrop_seconds: u64,
}

pub(super) async fn list(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, page) = (input.warehouse()?, input.page()?);
    let namespace = input.query("namespace")?.map(|text| input.split(text)).transpose()?;
    let catalog = &input.context.catalog;
    let found =
        catalog.dropped().list_dropped(&input.who, &warehouse, namespace.as_ref(), &page).await?;
    let dropped =
        found.items.into_iter().map(|it| DroppedQuery::new(it, input.who.operator)).collect();
    answer::of(&DroppedListQuery { dropped, next_page_token: found.next })
}

pub(super) async fn undrop(input: &CatalogRequest<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    let UndropRequest { id, uuid, namespace, name } = input.body()?;
    let wanted = match (id, uuid) {
        (Some(wanted), None) | (None, Some(wanted)) => wanted,
        _ => {
            return Err(CatalogError::new(
                ErrorReason::BadRequest,
                "it takes either `id` or `uuid`",
            ));
        }
    };
    let to = move |was: &TableIdent| {
        let namespace = namespace.unwrap_or_else(|| was.namespace.clone());
        TableIdent::new(namespace, name.as_deref().unwrap_or(&was.name))
    };
    let call = input.call()?;
    let done = input.context.catalog.dropped().undrop(&call, &warehouse, &wanted, to).await?;
    answer::of(&UndropAnswer {
        id: done.id,
        kind: done.kind.name(),
        namespace: done.ident.namespace,
        name: done.ident.name,
    })
}

pub(super) async fn purge(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, wanted) = (input.warehouse()?, input.param("dropped")?);
    input.context.catalog.dropped().purge_dropped(&input.call()?, &warehouse, wanted).await?;
    Ok(answer::done())
}

fn protected(protection: ProtectionLevel) -> Result<Response> {
    let ProtectionLevel { by_flag, by_property } = protection;
    answer::of(&ProtectionAnswer { protected: protection.is_on(), by_flag, by_property })
}

fn named(namespace: &NamespaceIdent, name: Option<&str>) -> Result<Option<TableIdent>> {
    name.map(|name| TableIdent::new(namespace.clone(), name)).transpose()
}

pub(super) async fn protection(input: &CatalogRequest<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    let missing = || CatalogError::new(ErrorReason::BadRequest, "`namespace` is missing");
    let namespace = input.split(input.query("namespace")?.ok_or_else(missing)?)?;
    let ident = named(&namespace, input.query("name")?)?;
    protected(
        input
            .context
            .catalog
            .protection()
            .protection(&input.who, &warehouse, &namespace, ident.as_ref())
            .await?,
    )
}

pub(super) async fn protect(input: &CatalogRequest<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    let ProtectRequest { namespace, name, protected: is_protected } = input.body()?;
    let ident = named(&namespace, name.as_deref())?;
    let call = input.call()?;
    protected(
        input
            .context
            .catalog
            .protection()
            .protect(&call, &warehouse, &namespace, ident.as_ref(), is_protected)
            .await?,
    )
}

pub(super) async fn retention(input: &CatalogRequest<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    let undrop_seconds = input.context.catalog.dropped().retention(&input.who, &warehouse).await?;
    answer::of(&RetentionAnswer { undrop_seconds })
}

pub(super) async fn set_retention(input: &CatalogRequest<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    let RetainRequest { undrop_seconds } = input.body()?;
    let catalog = &input.context.catalog;
    let undrop_seconds =
        catalog.dropped().set_retention(&input.who, &warehouse, undrop_seconds).await?;
    answer::of(&RetentionAnswer { undrop_seconds })
}
