//! Routes of a server about itself, for operators: the configuration in force, which can be
//! reloaded, and the tokens.

use std::sync::Arc;

use api::operations::server as table;
use api::{ConfigReloaded, ConfigView, TokenList};
use axum::extract::State;
use axum::{Json, Router};
use node::auth::TokenRegistry;
use node::http::{HttpError, OperationRoutes};

use crate::reload::ConfigReloader;
use crate::token;

/// State of the routes.
struct SettingsService {
    configuration: ConfigReloader,
    tokens: TokenRegistry,
}

/// Returns the routes.
pub(crate) fn routes(configuration: ConfigReloader, tokens: TokenRegistry) -> Router {
    handlers().with_state(Arc::new(SettingsService { configuration, tokens }))
}

fn handlers() -> Router<Arc<SettingsService>> {
    OperationRoutes::of(table::SETTINGS)
        .serve(&table::GET_CONFIG, show)
        .serve(&table::RELOAD_CONFIG, reload)
        .serve(&table::LIST_TOKENS, list)
        .routes()
}

/// `GET /v1/config`.
async fn show(State(service): State<Arc<SettingsService>>) -> Result<Json<ConfigView>, HttpError> {
    Ok(Json(service.configuration.view()))
}

/// `POST /v1/reload`.
async fn reload(
    State(service): State<Arc<SettingsService>>,
) -> Result<Json<ConfigReloaded>, HttpError> {
    Ok(Json(service.configuration.reload().await?))
}

/// `GET /v1/tokens`.
async fn list(State(service): State<Arc<SettingsService>>) -> Result<Json<TokenList>, HttpError> {
    let tokens = service.tokens.list().iter().map(token::view).collect();
    Ok(Json(TokenList { tokens }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_handler() {
        drop(handlers());
    }
}
