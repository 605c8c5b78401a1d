//! Reads of data behind the grants of a session.

use api::{GrantDescription, GrantQuery, GrantQueryResult};
use axum::extract::State;
use axum::http::Uri;
use node::auth::TokenPrincipal;
use node::http::{self, JsonBody};
use serde::Deserialize;

use super::FilePath;
use crate::service::Sessions;

pub(super) async fn query(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    FilePath(id, name): FilePath,
    JsonBody(query): JsonBody<GrantQuery>,
) -> Result<axum::Json<GrantQueryResult>, http::HttpError> {
    // The statement is cancelled if the caller disconnects.
    let result = Box::pin(sessions.grants()?.query(&who.tenant, &id, &name, query)).await?;
    Ok(axum::Json(result))
}

/// Query for a description.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DescribeQuery {
    /// Name of one object; all objects if absent.
    name: Option<String>,
}

pub(super) async fn describe(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    FilePath(id, grant): FilePath,
    uri: Uri,
) -> Result<axum::Json<GrantDescription>, http::HttpError> {
    let DescribeQuery { name } = http::query(&uri)?;
    let described = Box::pin(sessions.grants()?.describe(&who.tenant, &id, &grant, name)).await?;
    Ok(axum::Json(described))
}
