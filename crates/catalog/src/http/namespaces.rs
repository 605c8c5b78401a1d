//! Namespaces.

use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::answer;
use super::moment::as_of;
use super::request::Input;
use crate::error::Result;
use crate::ident::NamespaceIdent;
use crate::service::Told;
use crate::store::Properties;

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct List {
    namespaces: Vec<NamespaceIdent>,
    next_page_token: Option<String>,
}

#[derive(Deserialize)]
struct Create {
    namespace: NamespaceIdent,
    #[serde(default)]
    properties: Option<Properties>,
}

#[derive(Serialize)]
struct Namespace<'a> {
    namespace: &'a NamespaceIdent,
    properties: Properties,
}

#[derive(Deserialize)]
struct Update {
    #[serde(default)]
    removals: Option<Vec<String>>,
    #[serde(default)]
    updates: Option<Properties>,
}

#[derive(Serialize)]
struct Updated {
    updated: Vec<String>,
    removed: Vec<String>,
    missing: Vec<String>,
}

pub(super) async fn list(input: &Input<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    let parent = input.query("parent")?.filter(|text| !text.is_empty());
    let parent = parent.map(|text| input.split(text)).transpose()?;
    let page = input.page()?;
    let catalog = &input.ground.catalog;
    if let Some(moment) = as_of(input)? {
        let (who, parent) = (&input.who, parent.as_ref());
        let list = catalog.list_namespaces_at(who, &warehouse, parent, moment, &page).await?;
        return answer::of(&List { namespaces: list.items, next_page_token: list.next });
    }
    let make = async || {
        let list = catalog.list_namespaces(&input.who, &warehouse, parent.as_ref(), &page).await?;
        answer::body(&List { namespaces: list.items, next_page_token: list.next })
    };
    if page.token.is_some() || !catalog.sees_all(&input.who, &warehouse, parent.as_ref()) {
        return make().await.map(answer::of_json);
    }
    let what = (Told::Namespaces, parent.as_ref());
    catalog.ready(&input.who, &warehouse, what, make).await.map(answer::of_json)
}

pub(super) async fn create(input: &Input<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    let Create { namespace, properties } = input.body()?;
    let properties = properties.unwrap_or_default();
    let catalog = &input.ground.catalog;
    let properties =
        catalog.create_namespace(&input.call()?, &warehouse, &namespace, properties).await?;
    answer::of(&Namespace { namespace: &namespace, properties })
}

pub(super) async fn load(input: &Input<'_>) -> Result<Response> {
    let (warehouse, namespace) = (input.warehouse()?, input.namespace()?);
    let catalog = &input.ground.catalog;
    let make = async || {
        let properties = catalog.load_namespace(&input.who, &warehouse, &namespace).await?;
        answer::body(&Namespace { namespace: &namespace, properties })
    };
    let what = (Told::Properties, Some(&namespace));
    catalog.ready(&input.who, &warehouse, what, make).await.map(answer::of_json)
}

pub(super) async fn exists(input: &Input<'_>) -> Result<Response> {
    let (warehouse, namespace) = (input.warehouse()?, input.namespace()?);
    input.ground.catalog.namespace_exists(&input.who, &warehouse, &namespace).await?;
    Ok(answer::done())
}

pub(super) async fn drop(input: &Input<'_>) -> Result<Response> {
    let (warehouse, namespace) = (input.warehouse()?, input.namespace()?);
    input.ground.catalog.drop_namespace(&input.call()?, &warehouse, &namespace).await?;
    Ok(answer::done())
}

pub(super) async fn update(input: &Input<'_>) -> Result<Response> {
    let (warehouse, namespace) = (input.warehouse()?, input.namespace()?);
    let Update { removals, updates } = input.body()?;
    let (removals, updates) = (removals.unwrap_or_default(), updates.unwrap_or_default());
    let catalog = &input.ground.catalog;
    let call = input.call()?;
    let changed =
        catalog.update_namespace(&call, &warehouse, &namespace, removals, updates).await?;
    answer::of(&Updated {
        updated: changed.updated,
        removed: changed.removed,
        missing: changed.missing,
    })
}
