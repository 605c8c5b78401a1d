//! The web console: a page that uses Cove's own HTTP interface with the token of whoever opened it.
//!
//! The crate serves files and nothing else: it never answers for a service, reads no token, and
//! sets no cookie. What the console shows and does is done by the script in the browser, over the
//! same routes, with the same rights, as every other client.
//!
//! - [`ConsoleConfig`]: the `[console]` table.
//! - `assets`: the built files of `dist/`, compressed once; their addresses change with them.
//! - `page`: the shell, with a nonce of its own for every request, and the headers of all answers.
//!
//! The sources are in `ui/`; `make console` builds `dist/` from them, and `xtask tidy` compares the
//! two without Node.

mod assets;
mod config;
mod page;

use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use node::http::{HostNames, RouteTable, get};

use crate::assets::AssetStore;

pub use crate::config::{ConsoleConfig, ConsolePathError};

/// Path of the console at this server; a proxy in front may add a prefix, which `base_path` names.
pub const PATH: &str = "/console";

/// Returns the routes of the console under the names of its server; none where it is disabled.
pub fn routes(config: &ConsoleConfig, hosts: HostNames) -> Router {
    if !config.enabled {
        return Router::new();
    }
    let base: Arc<str> = config.base_path.as_str().into();
    let store = Arc::new(AssetStore::new(config.directory.clone()));
    let shell = {
        let store = Arc::clone(&store);
        move || {
            let response = page::shell(&store, &base);
            async move { response }
        }
    };
    let licences = {
        let store = Arc::clone(&store);
        move |headers: HeaderMap| {
            let response = page::asset(&store, assets::LICENCES, &headers);
            async move { response }
        }
    };
    let asset = move |Path((version, name)): Path<(String, String)>, headers: HeaderMap| {
        // The script of another build must not be mixed with the files of this one.
        let response: Response = match version == store.version() {
            true => page::asset(&store, &name, &headers),
            false => page::refusal(StatusCode::NOT_FOUND, "no such file in this build"),
        };
        async move { response }
    };
    let routes = Router::new()
        .at("/console", get(shell.clone()))
        .at("/console/", get(shell.clone()))
        .at("/console/{*path}", get(shell))
        .at("/console/licences", get(licences))
        .at("/console/assets/{version}/{name}", get(asset));
    hosts.guard(routes)
}

#[cfg(test)]
mod tests;
