//! Routes of a server about itself, for operators: the configuration in force, which can be read
//! again, and the tokens.

use std::sync::Arc;

use api::{ConfigReloaded, ConfigView, ErrorCode, TokenList};
use axum::extract::State;
use axum::{Json, Router};
use node::auth::{TokenPrincipal, TokenRegistry};
use node::http::{HttpError, RouteTable, get, post};

use crate::reload::ConfigReloader;
use crate::token;

/// Path of the tokens, for which a token needs the scope `tokens` as well.
pub(crate) const TOKENS_PATH: &str = "/v1/tokens";

/// State of the routes.
struct SettingsService {
    configuration: ConfigReloader,
    tokens: TokenRegistry,
}

/// Returns the routes.
pub(crate) fn routes(configuration: ConfigReloader, tokens: TokenRegistry) -> Router {
    Router::new()
        .at("/v1/config", get(show))
        .at("/v1/reload", post(reload))
        .at("/v1/tokens", get(list))
        .with_state(Arc::new(SettingsService { configuration, tokens }))
}

/// `GET /v1/config`.
async fn show(
    who: TokenPrincipal,
    State(service): State<Arc<SettingsService>>,
) -> Result<Json<ConfigView>, HttpError> {
    for_operators(&who, "the configuration of a server")?;
    Ok(Json(service.configuration.view()))
}

/// `POST /v1/reload`.
async fn reload(
    who: TokenPrincipal,
    State(service): State<Arc<SettingsService>>,
) -> Result<Json<ConfigReloaded>, HttpError> {
    for_operators(&who, "reloading the configuration of a server")?;
    Ok(Json(service.configuration.reload().await?))
}

/// `GET /v1/tokens`.
async fn list(
    who: TokenPrincipal,
    State(service): State<Arc<SettingsService>>,
) -> Result<Json<TokenList>, HttpError> {
    for_operators(&who, "the list of all tokens")?;
    let tokens = service.tokens.list().iter().map(token::view).collect();
    Ok(Json(TokenList { tokens }))
}

fn for_operators(who: &TokenPrincipal, what: &str) -> Result<(), HttpError> {
    match who.operator {
        true => Ok(()),
        false => {
            let message = format!("{what} needs a token of an operator");
            Err(HttpError::new(ErrorCode::Forbidden, message))
        }
    }
}
