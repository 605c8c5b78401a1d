//! E2B: sandboxes with processes, files and ports, for its unmodified clients.
//!
//! A sandbox is a session without an agent whose id is in this face's own form. One listener serves
//! everything at its root, since the clients build some addresses from there: where a request goes,
//! the name of its host says, or two headers, and what is left is REST.
//!
//! | file | what it is |
//! |---|---|
//! | `rest` | life of sandboxes: create, connect, pause, fork, list |
//! | `templates` | builds of templates, their status and names |
//! | `envd` | what E2B has inside of a sandbox, by Connect: calls and streams |
//! | `process`, `filesystem`, `transfer` | processes; files; their content |
//! | `ports` | ports of a sandbox by names of hosts |
//! | `interpreter` | the code interpreter, which is at one of them |
//! | `network` | what a sandbox may reach: E2B's rules as a grant, pure |
//! | `figures` | what a sandbox uses, now and in the last hour |
//! | `sandboxes`, `tokens` | what is known of those that live, and what opens them |
//! | `frames`, `errors`, `query` | messages of streams; errors in two forms; parameters |
//!
//! `docs/e2b.md` lists what is different from E2B.
//!
//! # References
//! - <https://e2b.dev/docs>
//! - <https://github.com/e2b-dev/infra/tree/main/packages/envd/spec>

mod config;
mod envd;
mod errors;
mod figures;
mod filesystem;
mod frames;
mod interpreter;
mod network;
mod ports;
mod process;
mod query;
mod rest;
mod sandboxes;
mod templates;
mod tokens;
mod transfer;

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use node::auth::{TokenRegistry, TokenScope};
use node::http::{CredentialBinding, FastHead, Shares, UploadBody};

/// Entry of the fuzz target for Connect's envelopes.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    use super::frames::EnvelopeReader;

    /// Takes messages out of a stream that arrives in parts of `cut` bytes. Answers them as JSON,
    /// and whether the stream is well so far.
    pub fn messages(bytes: &[u8], cut: usize, bytes_max: usize) -> (Vec<String>, bool) {
        let (mut incoming, mut all) = (EnvelopeReader::new(bytes_max), Vec::new());
        for part in bytes.chunks(cut) {
            incoming.push(part);
            loop {
                match incoming.next() {
                    Ok(Some(message)) => all.push(message.to_string()),
                    Ok(None) => break,
                    Err(_) => return (all, false),
                }
            }
        }
        (all, true)
    }
}

pub use self::config::E2bConfig;
pub use self::errors::render as render_error;
use self::figures::{SampleUse, UsageSample, UsageSamples};
use self::ports::{ENVD_PORT, PortTarget};
use self::sandboxes::E2bSandboxes;
use self::tokens::{TokenKeys, TokenPurpose};
pub use self::transfer::signed_at;
use crate::error::SessionError;
use crate::http::fence::{self, FencedInterface};
use crate::routing::SessionInterface;
use crate::service::Sessions;

/// The routes, as they are matched: the shell has to know that their bodies may have any length.
pub const ROUTES: [&str; 2] = ["/", "/{*path}"];

/// The version of E2B's own program in sandboxes that this stands in for. Clients choose by it what
/// they do.
const ENVD_VERSION: &str = "0.6.4";
/// The name that every machine has for itself.
const LOCALHOST: &str = "localhost";
/// Bytes of a refused request that are read, and the time for it.
const DISCARDED_BYTES_MAX: usize = 256 << 10;
const DISCARD_MAX: Duration = Duration::from_secs(1);
/// Purpose of this face's keys.
const KEY_PURPOSE: &str = "compat.e2b";
/// Multiple of the free connections to ports that a tenant may have.
const PORTS_WEIGHT: usize = 1;

/// State that requests share.
struct E2bContext {
    sessions: Sessions,
    tokens: TokenRegistry,
    config: E2bConfig,
    keys: TokenKeys,
    sandboxes: E2bSandboxes,
    /// Places for connections to ports, which need no token.
    ///
    /// A program that never answers keeps a place of the listener for as long as its client likes,
    /// and nobody cuts a connection in the middle of a request. So such connections have fewer
    /// places than the listener, and a tenant has at most as many as it leaves free for others.
    port_places: Arc<Shares>,
}

impl fmt::Debug for E2bContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("E2b").field("config", &self.config).finish_non_exhaustive()
    }
}

/// E2B's paths, and those at which other nodes ask whose sandbox an address was signed for. The
/// shell is to let every request pass: this face has tokens of two kinds, and requests that are for
/// programs in sandboxes.
///
/// # Errors
/// If the kernel gives no random bytes for a key, where sessions have none.
pub fn routes(
    sessions: Sessions,
    tokens: TokenRegistry,
    config: E2bConfig,
) -> Result<(Router, Router), SessionError> {
    let key = match sessions.derived_key(KEY_PURPOSE) {
        Some(key) => key,
        // There are no sandboxes that it could open.
        None => node::auth::random_key().map_err(SessionError::internal)?,
    };
    let keys = TokenKeys::new(&key);
    let sandboxes = E2bSandboxes::default();
    let port_places = Shares::new(config.port_connections_max, PORTS_WEIGHT);
    let interface = SessionInterface::E2b;
    let fenced = FencedInterface { sessions: sessions.clone(), interface };
    let face = Arc::new(E2bContext { sessions, tokens, config, keys, sandboxes, port_places });
    let for_peers = transfer::peer_routes(Arc::clone(&face));
    let [root, below] = ROUTES;
    let routes = Router::new()
        .route(root, any(answer))
        .route(below, any(answer))
        // Files have the limit of the disk they are written to.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(fenced, fence::fenced))
        .with_state(face);
    Ok((routes, for_peers))
}

async fn answer(State(face): State<Arc<E2bContext>>, request: Request) -> Response {
    let target = match ports::target(request.headers(), request.uri()) {
        Ok(target) => target,
        Err(error) => return error.into_response(),
    };
    // Boxed: they differ much in size, and every connection holds one.
    match target {
        PortTarget::Sandbox { id, port: ENVD_PORT } => {
            Box::pin(envd::answer(&face, &id, request)).await
        }
        PortTarget::Sandbox { id, port } => {
            Box::pin(ports::forward(&face, &id, port, request)).await
        }
        PortTarget::Server if request.uri().path() == "/files" => {
            Box::pin(transfer::answer(&face, None, request)).await
        }
        PortTarget::Server if request.uri().path().starts_with(templates::UPLOADS) => {
            Box::pin(templates::upload(&face, request)).await
        }
        PortTarget::Server => Box::pin(rest::answer(&face, request)).await,
    }
}

/// Returns the sandbox that a request is about, as the name of its host, its headers or its path
/// say.
pub(crate) fn sandbox_of(request: FastHead<'_>) -> Option<String> {
    if let Ok(PortTarget::Sandbox { id, .. }) = ports::target(request.headers, request.uri) {
        return Some(id);
    }
    let mut parts = request.uri.path().strip_prefix('/')?.split('/').peekable();
    parts.next_if_eq(&"v2");
    let id = parts.next().filter(|part| *part == "sandboxes").and_then(|_| parts.next())?;
    tokens::is_id(id).then(|| id.to_owned())
}

/// An id of a sandbox, for tests.
#[cfg(test)]
pub(crate) fn some_id() -> String {
    tokens::new_id().unwrap()
}

/// Reads what is left of a refused request, within reason: a connection with an unread request is
/// closed, and the client may have sent its next one on it by then.
async fn discard(mut body: UploadBody) {
    let reading = async {
        let mut left = DISCARDED_BYTES_MAX;
        while let Ok(Some(piece)) = body.chunk().await
            && left > piece.len()
        {
            left -= piece.len();
        }
    };
    drop(tokio::time::timeout(DISCARD_MAX, reading).await);
}

impl E2bContext {
    /// Returns what names of hosts of ports end with.
    fn domain(&self, headers: &HeaderMap) -> String {
        if let Some(domain) = &self.config.domain {
            return domain.clone();
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        domain_of(host.unwrap_or(LOCALHOST))
    }

    /// Returns whether a token that was handed out opens a sandbox. The request then ends with the
    /// API token that it was handed out to.
    fn is_opened(
        &self,
        purpose: TokenPurpose,
        id: &str,
        given: &str,
        binding: &CredentialBinding,
    ) -> bool {
        let holder = self.keys.holder(purpose, id, given);
        holder.is_some_and(|holder| self.is_held(holder, binding))
    }

    /// Returns whether an API token, by its id, is still good for sandboxes. The request ends with
    /// it.
    fn is_held(&self, holder: &str, binding: &CredentialBinding) -> bool {
        let principal = self.tokens.principal(holder);
        let Some(principal) = principal.filter(|it| it.scopes.has(TokenScope::Sessions)) else {
            return false;
        };
        binding.bind(self.tokens.revocation(&principal));
        true
    }

    /// Returns what a sandbox uses now; none when it does not run. The use of the CPU is that since
    /// somebody looked last.
    async fn sample(&self, tenant: &str, id: &str) -> Result<Option<UsageSample>, SessionError> {
        let live = self.sandboxes.known(id);
        let unknown = UsageSamples::default();
        let samples = live.as_ref().map_or(&unknown, |live| &live.samples);
        samples.take(&self.sessions, tenant, id, SampleUse::Shown).await
    }
}

/// CPUs that a sandbox may use: those of the machine.
fn cpu_count() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Returns what the server was reached by, where ports of sandboxes can be reached by it as well:
/// names stand before names, not before addresses.
fn domain_of(host: &str) -> String {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (name, port),
        _ => (host, ""),
    };
    let is_address = name.starts_with('[') || name.parse::<std::net::IpAddr>().is_ok();
    let name = if is_address || name.is_empty() { LOCALHOST } else { name };
    match port {
        "" => name.to_owned(),
        port => format!("{name}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    //! Names.

    use super::*;

    #[test]
    fn ports_are_named_below_what_the_server_was_reached_by() {
        for (host, expected) in [
            ("127.0.0.1:4600", "localhost:4600"),
            ("[::1]:4600", "localhost:4600"),
            ("127.0.0.1", "localhost"),
            ("e2b.example.com", "e2b.example.com"),
            ("e2b.example.com:80", "e2b.example.com:80"),
            ("", "localhost"),
        ] {
            assert_eq!(domain_of(host), expected);
        }
    }
}
