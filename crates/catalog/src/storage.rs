//! Client access to files of a warehouse in buckets: with credentials that are good for one table
//! and a short time, or with a signature for one request.
//!
//! A warehouse's own key never leaves the server. What clients get is scoped by a session policy
//! (`policy`) that the token service (`sts`) enforces with the object store; or the server looks
//! at a request and signs it (`signer`), and then all that the request names has to be the
//! table's. Which places are a table's is decided once, for both (`scope`).
//!
//! | file | what it is |
//! |---|---|
//! | `settings` | what is said of a warehouse in buckets |
//! | `scope` | which places are a table's |
//! | `policy`, `sts`, `vend` | credentials: for what, from whom, kept for how long |
//! | `signer` | requests that the server signs |
//! | `relay` | requests that the server sends on itself |
//! | `xml` | as much of it as services that speak S3's protocol use |

mod policy;
mod relay;
mod scope;
mod settings;
mod signer;
mod sts;
mod vend;
mod xml;

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::Uri;
use node::client::{AddressGuard, HttpClient, TlsRoots};
use node::clock;
use node::objects::sign::sha256;
use node::objects::{BucketStyle, ObjectsUrl, S3Location, SigningCredentials};
use parking_lot::Mutex;

pub use self::policy::POLICY_BYTES_MAX;
pub(crate) use self::relay::StoreReply;
pub use self::scope::{FilePermission, PATHS, TableScope};
pub use self::settings::{CREDENTIALS_SECONDS_MAX, CREDENTIALS_SECONDS_MIN, StorageSettings};
pub(crate) use self::signer::parameters;
pub use self::signer::{SignRequest, SignResult};
use self::sts::StsClient;
pub use self::sts::TemporaryCredentials;
use self::vend::{CredentialRequest, VendedCache};
pub(crate) use self::xml::XML_BYTES_MAX;
use crate::error::{CatalogError, ErrorReason, Result};

/// Time that a table is taken to be alone in its places once that was seen, in milliseconds:
/// clients ask for a signature with every file.
const APART_MS: u64 = 60_000;

/// Most tables of which that is known.
const APART_MAX: usize = 4096;

/// Access that a warehouse in buckets gives to clients.
#[derive(Debug)]
pub struct BucketStorage {
    settings: StorageSettings,
    /// Location of the warehouse's root; the rest of the warehouse is in the same service.
    location: S3Location,
    /// The warehouse's own.
    credentials: SigningCredentials,
    sts: Option<StsClient>,
    vended: VendedCache,
    /// For requests that are sent on.
    client: HttpClient,
    /// Tables in whose places no other one was, and until when that is taken to be so.
    apart: Mutex<HashMap<Box<str>, (TableScope, u64)>>,
}

impl BucketStorage {
    /// Creates the storage of a warehouse with this root, in the form of [`ObjectsUrl`].
    ///
    /// # Errors
    /// `BadRequest` when the root is in no bucket.
    pub fn new(
        root: &str,
        settings: StorageSettings,
        credentials: SigningCredentials,
    ) -> Result<BucketStorage> {
        let location = bucket(root)?;
        let roots = location.ca.clone().map_or(TlsRoots::Machine, TlsRoots::File);
        let sts = settings.has_token_service().then(|| StsClient::new(&location, &settings));
        Ok(BucketStorage {
            settings,
            location,
            credentials,
            sts,
            vended: VendedCache::default(),
            // The place is the owner's configuration.
            client: HttpClient::with_roots(AddressGuard::Open, roots),
            apart: Mutex::default(),
        })
    }

    /// Returns what was said of it.
    #[must_use]
    pub fn settings(&self) -> &StorageSettings {
        &self.settings
    }

    /// Returns what every client has to know of the service, in the words of Iceberg's clients.
    #[must_use]
    pub fn client_config(&self) -> Vec<(&'static str, String)> {
        let S3Location { region, endpoint, style, .. } = &self.location;
        let mut config = vec![("client.region", region.clone())];
        if *endpoint != amazon_endpoint(region) {
            config.push(("s3.endpoint", endpoint.clone()));
        }
        config.push(("s3.path-style-access", (*style == BucketStyle::Path).to_string()));
        config
    }

    /// Credentials for a table's places.
    ///
    /// # Errors
    /// `UnsupportedOperation` when the warehouse gives none, `ServiceUnavailable` when the token
    /// service does not, `BadRequest` when the places do not fit a policy.
    pub async fn vend(
        &self,
        scope: TableScope,
        permission: FilePermission,
    ) -> Result<Arc<TemporaryCredentials>> {
        let sts = self.sts.as_ref().ok_or_else(|| {
            CatalogError::new(
                ErrorReason::UnsupportedOperation,
                "the warehouse has no token service",
            )
        })?;
        let role = self.settings.role_arn.as_deref();
        let policy = policy::session_policy(&scope, permission, role)?;
        let wanted = CredentialRequest { scope, permission };
        // The store's own log calls them by this, for all credentials of the same places.
        let places: String = wanted.scope.texts().collect::<Vec<_>>().join(" ");
        let session = format!("cove-{}", &sha256(places.as_bytes())[..16]);
        self.vended
            .get(&wanted, async || sts.assume(&self.credentials, &policy, &session).await)
            .await
    }

    /// Returns whether it was seen lately that no other table is in these places.
    pub(crate) fn is_known_apart(&self, id: &str, scope: &TableScope) -> bool {
        let apart = self.apart.lock();
        apart
            .get(id)
            .is_some_and(|(known, until_ms)| known == scope && clock::wall_ms() < *until_ms)
    }

    /// Says that it was seen now. A table that is not there yet has no id to know it by.
    pub(crate) fn note_apart(&self, id: &str, scope: &TableScope) {
        if id.is_empty() {
            return;
        }
        let mut apart = self.apart.lock();
        if apart.len() >= APART_MAX {
            apart.clear();
        }
        apart.insert(id.into(), (scope.clone(), clock::wall_ms() + APART_MS));
    }

    /// Signs a request to the object store, once it is clear that it asks for nothing but what the
    /// permission is to.
    ///
    /// Where the warehouse vends credentials, the signature is one of credentials for the same
    /// places: so the store refuses what is added to the request afterwards.
    ///
    /// # Errors
    /// `Forbidden` when it asks for more, `BadRequest` when it is none; those of
    /// [`BucketStorage::vend`].
    pub async fn sign(
        &self,
        scope: TableScope,
        permission: FilePermission,
        request: &SignRequest,
    ) -> Result<SignResult> {
        let examined = signer::examine(request, &self.location, &scope, permission)?;
        match self.settings.vended_credentials {
            false => Ok(signer::signed(request, &examined, &self.location, &self.credentials)),
            true => {
                let found = self.vend(scope, permission).await?;
                Ok(signer::signed(request, &examined, &self.location, &found.credentials))
            }
        }
    }
}

/// Returns where a root in a bucket is.
///
/// # Errors
/// `BadRequest` when it is in none.
pub(crate) fn bucket(root: &str) -> Result<S3Location> {
    let refuse = |why: String| {
        CatalogError::new(ErrorReason::BadRequest, format!("the location `{root}`: {why}"))
    };
    // Other names of the same protocol, which clients use, are none to the object store.
    let rest = root.split_once("://").map_or(root, |(_, rest)| rest);
    let url: ObjectsUrl =
        format!("s3://{rest}").parse().map_err(|error| refuse(format!("{error}")))?;
    match url {
        ObjectsUrl::S3(location) => Ok(location),
        ObjectsUrl::Directory(_) => Err(refuse("it is no bucket".to_owned())),
    }
}

/// Returns where Amazon's own service is.
fn amazon_endpoint(region: &str) -> String {
    format!("https://s3.{region}.amazonaws.com")
}

/// The host of an endpoint as requests name it: without the port that is the usual one.
fn host(endpoint: &str) -> String {
    let uri: Uri = endpoint.parse().unwrap_or_default();
    let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    let name = uri.host().unwrap_or_default().to_ascii_lowercase();
    match uri.port_u16().filter(|port| *port != usual) {
        Some(port) => format!("{name}:{port}"),
        None => name,
    }
}
