//! Functions.

use axum::response::Response;
use bytes::Bytes;
use iceberg::json::put_name;
use serde::Serialize;

use super::answer;
use super::request::CatalogRequest;
use crate::error::Result;

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct FunctionListQuery {
    /// Each by the levels of its namespace and its name.
    identifiers: Vec<Vec<String>>,
    next_page_token: Option<String>,
}

pub(super) async fn list(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, namespace, page) = (input.warehouse()?, input.namespace()?, input.page()?);
    let catalog = &input.context.catalog;
    let found =
        catalog.functions().list_functions(&input.who, &warehouse, &namespace, &page).await?;
    let levels = namespace.levels().iter().map(|level| level.to_string());
    let identifier = |name: String| levels.clone().chain([name]).collect();
    let identifiers = found.items.into_iter().map(identifier).collect();
    answer::of(&FunctionListQuery { identifiers, next_page_token: found.next })
}

pub(super) async fn load(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("function")?);
    let document =
        input.context.catalog.functions().load_function(&input.who, &warehouse, &ident).await?;
    Ok(loaded(&document))
}

pub(super) async fn put(input: &CatalogRequest<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    let (call, body) = (input.call()?, input.json()?);
    Ok(loaded(&input.context.catalog.functions().put_function(&call, &warehouse, &body).await?))
}

pub(super) async fn drop(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("function")?);
    input.context.catalog.functions().drop_function(&input.call()?, &warehouse, &ident).await?;
    Ok(answer::done())
}

fn loaded(document: &Bytes) -> Response {
    let mut text = b"{".to_vec();
    put_name(&mut text, "metadata");
    text.extend_from_slice(document);
    text.push(b'}');
    answer::of_json(text.into())
}
