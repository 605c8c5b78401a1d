//! E2B: sandboxes with processes, files and ports, for its unmodified clients.
//!
//! A sandbox is a session without an agent whose id has this face's own form. One listener serves
//! everything at its root, since clients build some addresses from there: the host name or two
//! headers select the target of a request, and all other requests are REST.
//!
//! | file | contents |
//! |---|---|
//! | `rest` | life of sandboxes: create, connect, pause, fork, list |
//! | `templates` | builds of templates, their status and names |
//! | `envd` | the services of E2B's daemon in a sandbox, over Connect: calls and streams |
//! | `process`, `filesystem`, `transfer` | processes; files; their content |
//! | `ports` | ports of a sandbox, addressed by host names |
//! | `interpreter` | the code interpreter, which is served at one of the ports |
//! | `network` | network rules of a sandbox: E2B's rules as a grant, pure |
//! | `figures` | resource usage of a sandbox, now and in the last hour |
//! | `sandboxes`, `tokens` | state of live sandboxes, and the tokens that open them |
//! | `frames`, `errors`, `query` | messages of streams; errors in two forms; parameters |
//!
//! `docs/e2b.md` lists the differences from E2B.
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

    /// Reads messages from a stream that arrives in parts of `cut` bytes. Returns them as JSON, and
    /// whether the stream is valid so far.
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

/// Patterns of this face's routes, for which the shell must not limit the length of bodies.
pub const ROUTES: [&str; 2] = ["/", "/{*path}"];

/// Emulated version of E2B's daemon in sandboxes. Clients choose their behaviour by it.
const ENVD_VERSION: &str = "0.6.4";
/// Host name of the local machine.
const LOCALHOST: &str = "localhost";
/// Bytes of a refused request that are read, and the time limit for that.
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
    /// A program that never answers holds a connection of the listener for as long as its client
    /// likes, and requests in progress are not cut off. Therefore such connections have fewer
    /// places than the listener, and a tenant has at most as many as it leaves free for others.
    port_places: Arc<Shares>,
}

impl fmt::Debug for E2bContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("E2b").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Returns the routes of E2B's API, and those at which other nodes ask which sandbox an address was
/// signed for. The shell must let every request pass: this face has two kinds of tokens, and
/// requests for programs in sandboxes.
///
/// # Errors
/// If sessions have no key and the kernel provides no random bytes for one.
pub fn routes(
    sessions: Sessions,
    tokens: TokenRegistry,
    config: E2bConfig,
) -> Result<(Router, Router), SessionError> {
    let key = match sessions.derived_key(KEY_PURPOSE) {
        Some(key) => key,
        // Without sessions there are no sandboxes, so any key serves.
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
        // Files are limited by their disk only.
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
    // Boxed: the futures differ much in size, and every connection holds one.
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

/// Returns the sandbox that a request addresses by its host name, headers or path.
pub(crate) fn sandbox_of(request: FastHead<'_>) -> Option<String> {
    if let Ok(PortTarget::Sandbox { id, .. }) = ports::target(request.headers, request.uri) {
        return Some(id);
    }
    let mut parts = request.uri.path().strip_prefix('/')?.split('/').peekable();
    parts.next_if_eq(&"v2");
    let id = parts.next().filter(|part| *part == "sandboxes").and_then(|_| parts.next())?;
    tokens::is_id(id).then(|| id.to_owned())
}

/// Returns a sandbox id for tests.
#[cfg(test)]
pub(crate) fn some_id() -> String {
    tokens::new_id().unwrap()
}

/// Reads a limited rest of a refused request: a connection with an unread request is closed, and
/// the client may have sent its next request on it by then.
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
    /// Returns the domain below which ports have host names.
    fn domain(&self, headers: &HeaderMap) -> String {
        if let Some(domain) = &self.config.domain {
            return domain.clone();
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        domain_of(host.unwrap_or(LOCALHOST))
    }

    /// Returns whether an issued token opens a sandbox. If so, the request ends when the API token
    /// behind it is revoked.
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

    /// Returns whether an API token, by its id, may still use sandboxes. If so, the request ends
    /// when it is revoked.
    fn is_held(&self, holder: &str, binding: &CredentialBinding) -> bool {
        let principal = self.tokens.principal(holder);
        let Some(principal) = principal.filter(|it| it.scopes.has(TokenScope::Sessions)) else {
            return false;
        };
        binding.bind(self.tokens.revocation(&principal));
        true
    }

    /// Returns a sandbox's current usage; none if it does not run. CPU usage covers the time since
    /// the previous sample.
    async fn sample(&self, tenant: &str, id: &str) -> Result<Option<UsageSample>, SessionError> {
        let live = self.sandboxes.known(id);
        let unknown = UsageSamples::default();
        let samples = live.as_ref().map_or(&unknown, |live| &live.samples);
        samples.take(&self.sessions, tenant, id, SampleUse::Shown).await
    }
}

/// Returns the number of CPUs that a sandbox may use: those of the machine.
fn cpu_count() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Returns the host by which the server was reached, if ports of sandboxes can be reached below it:
/// subdomains exist for names, not for addresses.
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
    //! Host names.

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
