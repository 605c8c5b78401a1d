//! Tables.

use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::answer;
use super::moment::as_of;
use super::request::Input;
use super::tail::{End, Tail};
use crate::cache::Snapshots;
use crate::error::{Error, Kind, Result};
use crate::ident::TableIdent;
use crate::service::Told;
use crate::store::RelationKind;

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct List {
    identifiers: Vec<TableIdent>,
    next_page_token: Option<String>,
}

/// What gets another name.
#[derive(Deserialize)]
pub(super) struct Rename {
    pub(super) source: TableIdent,
    pub(super) destination: TableIdent,
}

/// Where no secrets are handed out, because there are none that a client would need.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Credentials {
    storage_credentials: [(); 0],
}

pub(super) async fn list(input: &Input<'_>) -> Result<Response> {
    list_of(input, RelationKind::Table).await
}

/// Names of tables or views.
pub(super) async fn list_of(input: &Input<'_>, kind: RelationKind) -> Result<Response> {
    let (warehouse, namespace, page) = (input.warehouse()?, input.namespace()?, input.page()?);
    let catalog = &input.ground.catalog;
    if let Some(moment) = as_of(input)? {
        let what = (kind, &namespace);
        let list = catalog.list_at(&input.who, &warehouse, what, moment, &page).await?;
        return answer::of(&List { identifiers: list.items, next_page_token: list.next });
    }
    let make = async || {
        let list = catalog.list(&input.who, &warehouse, kind, &namespace, &page).await?;
        answer::body(&List { identifiers: list.items, next_page_token: list.next })
    };
    if page.token.is_some() {
        return make().await.map(answer::of_json);
    }
    let told = match kind {
        RelationKind::Table => Told::Tables,
        RelationKind::View => Told::Views,
    };
    let what = (told, Some(&namespace));
    catalog.ready(&input.who, &warehouse, what, make).await.map(answer::of_json)
}

pub(super) async fn create(input: &Input<'_>) -> Result<Response> {
    let (warehouse, namespace) = (input.warehouse()?, input.namespace()?);
    let (call, body) = (input.call()?, input.json()?);
    let entry = input.ground.catalog.create_table(&call, &warehouse, &namespace, &body).await?;
    answer::table(input, &entry, Snapshots::All, &End::default()).await
}

pub(super) async fn load(input: &Input<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let snapshots = match input.query("snapshots")? {
        None | Some("all") => Snapshots::All,
        Some("refs") => Snapshots::Refs,
        Some(_) => {
            return Err(Error::new(Kind::BadRequest, "`snapshots` is `all` or `refs`"));
        }
    };
    let (catalog, kind) = (&input.ground.catalog, RelationKind::Table);
    let entry = match as_of(input)? {
        Some(moment) => catalog.load_at(&input.who, &warehouse, (kind, &ident), moment).await?,
        None => catalog.load(&input.who, &warehouse, kind, &ident).await?,
    };
    let mut tail = Tail::default();
    if let Some(restrictions) = catalog.restrictions_for(&input.who, &warehouse, &ident) {
        tail.put("read-restrictions", &*restrictions)?;
    }
    let end = tail.finish()?;
    let tag = end.tag(entry.etag(snapshots));
    if input.has(&tag) {
        return answer::not_modified(&tag);
    }
    answer::table(input, &entry, snapshots, &end).await
}

pub(super) async fn exists(input: &Input<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    input.ground.catalog.table_exists(&input.who, &warehouse, &ident).await?;
    Ok(answer::done())
}

pub(super) async fn commit(input: &Input<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let (call, body) = (input.call()?, input.json()?);
    let entry = input.ground.catalog.commit_table(&call, &warehouse, &ident, &body).await?;
    answer::table(input, &entry, Snapshots::All, &End::default()).await
}

pub(super) async fn commit_all(input: &Input<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    let (call, body) = (input.call()?, input.json()?);
    input.ground.catalog.commit_transaction(&call, &warehouse, &body).await?;
    Ok(answer::done())
}

pub(super) async fn drop(input: &Input<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let purge = input.flag("purgeRequested")?;
    input.ground.catalog.drop_table(&input.call()?, &warehouse, &ident, purge).await?;
    Ok(answer::done())
}

pub(super) async fn register(input: &Input<'_>) -> Result<Response> {
    let (warehouse, namespace) = (input.warehouse()?, input.namespace()?);
    let (call, body) = (input.call()?, input.json()?);
    let entry = input.ground.catalog.register_table(&call, &warehouse, &namespace, &body).await?;
    answer::table(input, &entry, Snapshots::All, &End::default()).await
}

pub(super) async fn unregister(input: &Input<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let entry = input.ground.catalog.unregister_table(&input.call()?, &warehouse, &ident).await?;
    answer::document(input, &entry, Snapshots::All, &End::default()).await
}

pub(super) async fn rename(input: &Input<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    let Rename { source, destination } = input.body()?;
    let (catalog, call) = (&input.ground.catalog, input.call()?);
    let kind = RelationKind::Table;
    catalog.rename(&call, &warehouse, kind, (&source, &destination)).await?;
    Ok(answer::done())
}

pub(super) async fn credentials(input: &Input<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let catalog = &input.ground.catalog;
    catalog.table_exists(&input.who, &warehouse, &ident).await?;
    catalog.require_unrestricted(&input.who, &warehouse, &ident)?;
    answer::of(&Credentials { storage_credentials: [] })
}

pub(super) async fn report(input: &Input<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let report = input.json()?;
    input.ground.catalog.report_metrics(&input.who, &warehouse, &ident, &report).await?;
    Ok(answer::done())
}
