//! Client access to files of a warehouse in buckets: with short-lived credentials for one table, or
//! with a signature for one request.
//!
//! A warehouse's own key never leaves the server. The credentials of clients are scoped by a
//! session policy (`policy`) that the token service (`sts`) enforces with the object store; or the
//! server checks a request and signs it (`signer`), which requires that all objects in the request
//! belong to the table. The locations of a table are determined in one place, for both (`scope`).
//!
//! | file | what it is |
//! |---|---|
//! | `settings` | settings of a warehouse in buckets |
//! | `scope` | the locations of a table |
//! | `policy`, `sts`, `vend` | session policies, the token service, cached credentials |
//! | `signer` | requests that the server signs |
//! | `relay` | requests that the server forwards itself |
//! | `xml` | the part of XML that services with S3's protocol use |

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

/// Time for which the result of the check that a table shares its locations with no other is
/// cached, in milliseconds: clients request a signature with every file.
const APART_MS: u64 = 60_000;

/// Most tables with a cached result of that check.
const APART_MAX: usize = 4096;

/// Access that a warehouse in buckets gives to clients.
#[derive(Debug)]
pub struct BucketStorage {
    settings: StorageSettings,
    /// Location of the warehouse's root; the rest of the warehouse is in the same service.
    location: S3Location,
    /// Credentials of the warehouse itself.
    credentials: SigningCredentials,
    sts: Option<StsClient>,
    vended: VendedCache,
    /// Client for forwarded requests.
    client: HttpClient,
    /// Tables known to share their locations with no other, and the end of validity of that check.
    apart: Mutex<HashMap<Box<str>, (TableScope, u64)>>,
}

impl BucketStorage {
    /// Creates the storage of a warehouse with this root, in the form of [`ObjectsUrl`].
    ///
    /// # Errors
    /// `BadRequest` if the root is not in a bucket.
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
            // The location comes from the owner's configuration.
            client: HttpClient::with_roots(AddressGuard::Open, roots),
            apart: Mutex::default(),
        })
    }

    /// Returns its settings.
    #[must_use]
    pub fn settings(&self) -> &StorageSettings {
        &self.settings
    }

    /// Returns the settings of the service that every client needs, by the names of Iceberg's
    /// clients.
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

    /// Returns credentials for a table's locations.
    ///
    /// # Errors
    /// `UnsupportedOperation` if the warehouse vends none, `ServiceUnavailable` if the token
    /// service does not respond, `BadRequest` if the locations do not fit into a policy.
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
        // The session name in the store's own log; the same for all credentials of the same
        // locations.
        let places: String = wanted.scope.texts().collect::<Vec<_>>().join(" ");
        let session = format!("cove-{}", &sha256(places.as_bytes())[..16]);
        self.vended
            .get(&wanted, async || sts.assume(&self.credentials, &policy, &session).await)
            .await
    }

    /// Returns whether a recent check found no other table in these locations.
    pub(crate) fn is_known_apart(&self, id: &str, scope: &TableScope) -> bool {
        let apart = self.apart.lock();
        apart
            .get(id)
            .is_some_and(|(known, until_ms)| known == scope && clock::wall_ms() < *until_ms)
    }

    /// Records that no other table was found. A table that does not exist yet has no id to record
    /// it by.
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

    /// Signs a request to the object store after checking that it needs no more than the
    /// permission.
    ///
    /// If the warehouse vends credentials, the request is signed with credentials for the same
    /// locations: so the store rejects later additions to the request.
    ///
    /// # Errors
    /// `Forbidden` if it needs more, `BadRequest` if it is invalid; those of
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

/// Parses a root in a bucket.
///
/// # Errors
/// `BadRequest` if it is in none.
pub(crate) fn bucket(root: &str) -> Result<S3Location> {
    let refuse = |why: String| {
        CatalogError::new(ErrorReason::BadRequest, format!("the location `{root}`: {why}"))
    };
    // Clients use other schemes for the same protocol, which the object store client does not know.
    let rest = root.split_once("://").map_or(root, |(_, rest)| rest);
    let url: ObjectsUrl =
        format!("s3://{rest}").parse().map_err(|error| refuse(format!("{error}")))?;
    match url {
        ObjectsUrl::S3(location) => Ok(location),
        ObjectsUrl::Directory(_) => Err(refuse("it is no bucket".to_owned())),
    }
}

/// Returns the endpoint of Amazon's own service.
fn amazon_endpoint(region: &str) -> String {
    format!("https://s3.{region}.amazonaws.com")
}

/// Returns the host of an endpoint as in requests: without the default port.
fn host(endpoint: &str) -> String {
    let uri: Uri = endpoint.parse().unwrap_or_default();
    let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    let name = uri.host().unwrap_or_default().to_ascii_lowercase();
    match uri.port_u16().filter(|port| *port != usual) {
        Some(port) => format!("{name}:{port}"),
        None => name,
    }
}
