//! Routing of requests to servers: which session a request addresses, and which server owns it.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use node::clock;
use node::http::FastHead;
use node::store::{SqlStore, SqlStoreError};
use parking_lot::Mutex;

use crate::error::SessionError;
use crate::faces::{ash, e2b};
use crate::service::Sessions;
use crate::store::SessionStore;

/// Path prefix of sessions in the native interface.
const NATIVE: &str = "/v1/sessions/";
/// Path prefix of sessions in Ash's interface.
const ASH: &str = "/api/sessions/";
/// Longest accepted id.
const ID_BYTES_MAX: usize = 64;
/// Time for which a session's owner is cached. A former owner reports that it has lost the session.
const OWNER_AGE: Duration = Duration::from_secs(30);
/// Maximum number of cached owners.
const OWNERS_MAX: usize = 100_000;

/// Interface that received a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionInterface {
    /// The native interface, with Ash's.
    Main,
    /// E2B's.
    E2b,
}

/// Returns the session that a request addresses by its path or host name.
#[must_use]
pub fn session_of(interface: SessionInterface, request: FastHead<'_>) -> Option<String> {
    let path = request.uri.path();
    let id = match interface {
        SessionInterface::Main => match path.strip_prefix(NATIVE) {
            Some(rest) => first_part(rest).to_owned(),
            None => ash::session_id(first_part(path.strip_prefix(ASH)?))?,
        },
        SessionInterface::E2b => e2b::sandbox_of(request)?,
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let is_id = !id.is_empty() && id.len() <= ID_BYTES_MAX && id.bytes().all(plain);
    is_id.then_some(id)
}

fn first_part(path: &str) -> &str {
    path.split('/').next().unwrap_or_default()
}

/// Server that owns a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionHolder {
    /// This one.
    This,
    /// Another one, by its id.
    Other(String),
    /// None: the server that receives the request may claim it.
    Nobody,
}

/// Owners of sessions, from the store and a cache.
pub struct SessionOwners {
    sessions: Sessions,
    store: SessionStore,
    known: Mutex<HashMap<String, KnownOwner>>,
}

struct KnownOwner {
    server: String,
    at: Instant,
}

impl fmt::Debug for SessionOwners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionOwners")
    }
}

impl SessionOwners {
    /// Opens the store of sessions, which a server without sessions can read, too.
    ///
    /// # Errors
    /// If its tables cannot be migrated.
    pub async fn open(store: &SqlStore, sessions: Sessions) -> Result<Self, SqlStoreError> {
        let store = SessionStore::open(store.clone()).await?;
        Ok(SessionOwners { sessions, store, known: Mutex::default() })
    }

    /// Returns the owner of a session; `Nobody` for one that does not exist. `is_fresh` bypasses
    /// the cache.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn owner(&self, id: &str, is_fresh: bool) -> Result<SessionHolder, SessionError> {
        if self.sessions.has_here(id) {
            return Ok(SessionHolder::This);
        }
        let now = clock::now();
        if !is_fresh {
            let known = self.known.lock();
            let owner = known.get(id).filter(|owner| now.duration_since(owner.at) < OWNER_AGE);
            if let Some(owner) = owner {
                return Ok(SessionHolder::Other(owner.server.clone()));
            }
        }
        let owner = match self.store.owner(id).await? {
            Some(server) if server == self.sessions.server() => SessionHolder::This,
            Some(server) => SessionHolder::Other(server),
            None => SessionHolder::Nobody,
        };
        let mut known = self.known.lock();
        match &owner {
            SessionHolder::Other(server) => {
                // Cleared as a whole, which costs each entry one query.
                if known.len() >= OWNERS_MAX {
                    known.clear();
                }
                known.insert(id.to_owned(), KnownOwner { server: server.clone(), at: now });
            }
            SessionHolder::This | SessionHolder::Nobody => drop(known.remove(id)),
        }
        Ok(owner)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{Request, header};

    use super::*;

    #[test]
    fn a_request_is_about_the_session_in_its_path() {
        let native = "ses_01M804ZD7HDBNWX72N11NHQYP8";
        let uuid = "01a2004f-b4f1-6aeb-ce9c-5508ab8bf2c8";
        let check = |interface, host: &str, target: &str, expected: Option<&str>| {
            let request = Request::get(target).header(header::HOST, host).body(()).unwrap();
            let (method, uri, headers) = (request.method(), request.uri(), request.headers());
            let found = session_of(interface, FastHead { method, uri, headers });
            assert_eq!(found.as_deref(), expected, "{host} {target}");
        };
        for (target, expected) in [
            (format!("/v1/sessions/{native}"), Some(native)),
            (format!("/v1/sessions/{native}/files/a/b?x=y"), Some(native)),
            ("/v1/sessions".to_owned(), None),
            ("/v1/sessions/".to_owned(), None),
            ("/v1/sessions/a%2Fb".to_owned(), None),
            (format!("/v1/sessions/{}", "a".repeat(65)), None),
            (format!("/v1/snapshots/{native}"), None),
            ("/api/sessions/x".to_owned(), None),
            ("/api/sessions".to_owned(), None),
        ] {
            check(SessionInterface::Main, "localhost", &target, expected);
            check(SessionInterface::E2b, "localhost", &target, None);
        }
        let of_uuid = ash::session_id(uuid).unwrap();
        let target = format!("/api/sessions/{uuid}/exec");
        check(SessionInterface::Main, "localhost", &target, Some(&of_uuid));

        let sandbox = "i0m804zd7hdbnwx72n11n";
        let id = e2b::some_id();
        for (host, target, expected) in [
            ("localhost".to_owned(), format!("/sandboxes/{id}"), Some(&*id)),
            ("localhost".to_owned(), format!("/sandboxes/{id}/pause"), Some(&*id)),
            ("localhost".to_owned(), format!("/v2/sandboxes/{id}/logs"), Some(&*id)),
            (format!("8080-{id}.localhost:4600"), "/sandboxes/other".to_owned(), Some(&*id)),
            ("localhost".to_owned(), "/sandboxes/metrics".to_owned(), None),
            ("localhost".to_owned(), format!("/templates/{sandbox}"), None),
        ] {
            check(SessionInterface::E2b, &host, &target, expected);
            check(SessionInterface::Main, &host, &target, None);
        }
    }
}
