//! Namespaces.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>

use axum::response::Response;
use iceberg::ident::NamespaceIdent;
use serde::{Deserialize, Serialize};

use super::answer;
use super::moment::as_of;
use super::request::CatalogRequest;
use crate::error::Result;
use crate::service::ListContent;
use crate::store::Properties;

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct NamespaceListQuery {
    namespaces: Vec<NamespaceIdent>,
    next_page_token: Option<String>,
}

#[derive(Deserialize)]
struct CreateNamespaceRequest {
    namespace: NamespaceIdent,
    #[serde(default)]
    properties: Option<Properties>,
}

#[derive(Serialize)]
struct NamespaceAnswer<'a> {
    namespace: &'a NamespaceIdent,
    properties: Properties,
}

#[derive(Deserialize)]
struct UpdatePropertiesRequest {
    #[serde(default)]
    removals: Option<Vec<String>>,
    #[serde(default)]
    updates: Option<Properties>,
}

#[derive(Serialize)]
struct UpdatePropertiesAnswer {
    updated: Vec<String>,
    removed: Vec<String>,
    missing: Vec<String>,
}

pub(super) async fn list(input: &CatalogRequest<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    let parent = input.query("parent")?.filter(|text| !text.is_empty());
    let parent = parent.map(|text| input.split(text)).transpose()?;
    let page = input.page()?;
    let catalog = &input.context.catalog;
    if let Some(moment) = as_of(input)? {
        let (who, parent) = (&input.who, parent.as_ref());
        let list =
            catalog.history().list_namespaces_at(who, &warehouse, parent, moment, &page).await?;
        return answer::of(&NamespaceListQuery {
            namespaces: list.items,
            next_page_token: list.next,
        });
    }
    let make = async || {
        let list = catalog
            .namespaces()
            .list_namespaces(&input.who, &warehouse, parent.as_ref(), &page)
            .await?;
        answer::body(&NamespaceListQuery { namespaces: list.items, next_page_token: list.next })
    };
    if page.token.is_some() || !catalog.rights().sees_all(&input.who, &warehouse, parent.as_ref()) {
        return make().await.map(answer::of_json);
    }
    catalog
        .lists()
        .ready(&input.who, &warehouse, ListContent::Namespaces, parent.as_ref(), make)
        .await
        .map(answer::of_json)
}

pub(super) async fn create(input: &CatalogRequest<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    let CreateNamespaceRequest { namespace, properties } = input.body()?;
    let properties = properties.unwrap_or_default();
    let catalog = &input.context.catalog;
    let properties = catalog
        .namespaces()
        .create_namespace(&input.call()?, &warehouse, &namespace, properties)
        .await?;
    answer::of(&NamespaceAnswer { namespace: &namespace, properties })
}

pub(super) async fn load(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, namespace) = (input.warehouse()?, input.namespace()?);
    let catalog = &input.context.catalog;
    let make = async || {
        let properties =
            catalog.namespaces().load_namespace(&input.who, &warehouse, &namespace).await?;
        answer::body(&NamespaceAnswer { namespace: &namespace, properties })
    };
    catalog
        .lists()
        .ready(&input.who, &warehouse, ListContent::Properties, Some(&namespace), make)
        .await
        .map(answer::of_json)
}

pub(super) async fn exists(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, namespace) = (input.warehouse()?, input.namespace()?);
    input.context.catalog.namespaces().namespace_exists(&input.who, &warehouse, &namespace).await?;
    Ok(answer::done())
}

pub(super) async fn drop(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, namespace) = (input.warehouse()?, input.namespace()?);
    input
        .context
        .catalog
        .namespaces()
        .drop_namespace(&input.call()?, &warehouse, &namespace)
        .await?;
    Ok(answer::done())
}

pub(super) async fn update(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, namespace) = (input.warehouse()?, input.namespace()?);
    let UpdatePropertiesRequest { removals, updates } = input.body()?;
    let (removals, updates) = (removals.unwrap_or_default(), updates.unwrap_or_default());
    let catalog = &input.context.catalog;
    let call = input.call()?;
    let changed = catalog
        .namespaces()
        .update_namespace(&call, &warehouse, &namespace, removals, updates)
        .await?;
    answer::of(&UpdatePropertiesAnswer {
        updated: changed.updated,
        removed: changed.removed,
        missing: changed.missing,
    })
}
