//! Client access to a table's files: settings of the store and, if the client requests it,
//! credentials or the address of the signer.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>

use axum::http::HeaderMap;
use axum::response::Response;
use iceberg::ident::TableIdent;
use serde::Serialize;
use serde_json::{Map, Value};

use super::answer;
use super::request::{CatalogRequest, encoded};
use super::suffix::ResponseSuffix;
use crate::cache::CachedVersion;
use crate::error::Result;
use crate::guest::session::SandboxSession;
use crate::service::VendedCredentials;
use crate::storage::BucketStorage;
use crate::warehouse::Warehouse;

/// Header with the kinds of access that a client accepts, in order of preference.
const HEADER: &str = "x-iceberg-access-delegation";

#[derive(Clone, Copy)]
enum DelegationMode {
    Vended,
    Signing,
}

/// Credentials with the location that they cover.
#[derive(Serialize)]
struct StorageCredential {
    prefix: String,
    config: Map<String, Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct CredentialsAnswer {
    storage_credentials: Vec<StorageCredential>,
}

pub(super) async fn credentials(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let vended = input.context.catalog.files().credentials(&input.who, &warehouse, &ident).await?;
    let storage_credentials = vended.map(|it| listed(&warehouse, &ident, &it)).unwrap_or_default();
    answer::of(&CredentialsAnswer { storage_credentials })
}

pub(super) async fn sign(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let catalog = &input.context.catalog;
    answer::of(&catalog.files().sign(&input.who, &warehouse, &ident, || input.body()).await?)
}

/// Returns the suffix of a table's response, with the access to its files.
pub(super) async fn suffix(
    input: &CatalogRequest<'_>,
    warehouse: &Warehouse,
    ident: &TableIdent,
    entry: &CachedVersion,
) -> Result<ResponseSuffix> {
    if let Some(session) = input.session {
        if entry.pointer.is_none()
            && warehouse.storage().is_some()
            && let Some(doc) = entry.table()
        {
            session.stage(warehouse, ident, doc)?;
        }
        return Ok(settings_of_guest(input, session, warehouse, ident));
    }
    let suffix = settings(warehouse);
    match warehouse.storage() {
        None => Ok(suffix),
        Some(storage) => {
            Box::pin(add_file_access(input, warehouse, storage, ident, entry, suffix)).await
        }
    }
}

async fn add_file_access(
    input: &CatalogRequest<'_>,
    warehouse: &Warehouse,
    storage: &BucketStorage,
    ident: &TableIdent,
    entry: &CachedVersion,
    mut suffix: ResponseSuffix,
) -> Result<ResponseSuffix> {
    // Files contain all of a table.
    let catalog = &input.context.catalog;
    if catalog.rights().require_unrestricted(&input.who, warehouse, ident).is_err() {
        return Ok(suffix);
    }
    let settings = storage.settings();
    let is_there = |way: &DelegationMode| match way {
        DelegationMode::Vended => settings.vended_credentials,
        DelegationMode::Signing => settings.remote_signing,
    };
    match requested(&input.parts.headers).find(is_there) {
        None => {}
        Some(DelegationMode::Vended) => {
            let vended = catalog.files().vend(&input.who, warehouse, ident, entry).await?;
            if let Some(vended) = vended {
                input.note_credentials();
                // Old clients read these.
                for (name, value) in config(warehouse, ident, &vended) {
                    suffix.configure(name, value);
                }
                suffix.put("storage-credentials", &listed(warehouse, ident, &vended))?;
            }
        }
        Some(DelegationMode::Signing) => {
            let endpoint = path(warehouse, ident, "sign");
            suffix.configure("s3.remote-signing-enabled", "true");
            // Name of the signer class in Python clients.
            suffix.configure("s3.signer", "S3V4RestSigner");
            // Relative to the address of the catalog, which clients know better than the server
            // does.
            suffix.configure("s3.signer.endpoint", endpoint.clone());
            suffix.configure("signer.endpoint", endpoint);
            suffix.put("remote-signing-config", &serde_json::json!({"properties": {}}))?;
        }
    }
    Ok(suffix)
}

/// Returns the settings with which a guest reads a table's files, which contain all of it.
fn settings_of_guest(
    input: &CatalogRequest<'_>,
    session: &SandboxSession,
    warehouse: &Warehouse,
    ident: &TableIdent,
) -> ResponseSuffix {
    let mut suffix = ResponseSuffix::default();
    let catalog = &input.context.catalog;
    if catalog.rights().require_unrestricted(&input.who, warehouse, ident).is_ok() {
        for (name, value) in session.file_settings(warehouse) {
            suffix.configure(name, value);
        }
    }
    suffix
}

/// Returns the suffix for a past version of a table, whose files are today's: settings of the
/// store, without credentials.
pub(super) fn settings_of_past(
    input: &CatalogRequest<'_>,
    warehouse: &Warehouse,
) -> ResponseSuffix {
    if input.session.is_some() { ResponseSuffix::default() } else { settings(warehouse) }
}

/// Returns the settings of the store for clients, without credentials.
pub(super) fn settings(warehouse: &Warehouse) -> ResponseSuffix {
    let mut suffix = ResponseSuffix::default();
    for (name, value) in warehouse.storage().map(|it| it.client_config()).unwrap_or_default() {
        suffix.configure(name, value);
    }
    suffix
}

/// Returns whether the client requests any access to files.
pub(super) fn is_requested(headers: &HeaderMap) -> bool {
    requested(headers).next().is_some()
}

/// Returns the modes that the client requests; unknown ones are skipped.
fn requested(headers: &HeaderMap) -> impl Iterator<Item = DelegationMode> + '_ {
    let values = headers.get_all(HEADER).iter();
    let names = values.filter_map(|value| value.to_str().ok()).flat_map(|it| it.split(','));
    names.filter_map(|word| match word.trim() {
        "vended-credentials" => Some(DelegationMode::Vended),
        "remote-signing" => Some(DelegationMode::Signing),
        _ => None,
    })
}

fn listed(
    warehouse: &Warehouse,
    ident: &TableIdent,
    vended: &VendedCredentials,
) -> Vec<StorageCredential> {
    let mut all = Map::new();
    let storage = warehouse.storage();
    let known = storage.map(|it| it.client_config()).unwrap_or_default();
    for (name, value) in known.into_iter().chain(config(warehouse, ident, vended)) {
        all.insert(name.to_owned(), value.into());
    }
    let prefixes = vended.prefixes.iter();
    prefixes
        .map(|prefix| StorageCredential { prefix: prefix.clone(), config: all.clone() })
        .collect()
}

/// Returns credentials as settings of Iceberg's clients.
fn config(
    warehouse: &Warehouse,
    ident: &TableIdent,
    vended: &VendedCredentials,
) -> Vec<(&'static str, String)> {
    let credentials = &vended.temporary.credentials;
    let mut config = vec![
        ("s3.access-key-id", credentials.access_key_id.clone()),
        ("s3.secret-access-key", credentials.secret_access_key.clone()),
        ("s3.session-token-expires-at-ms", vended.temporary.expires_ms.to_string()),
        ("client.refresh-credentials-endpoint", path(warehouse, ident, "credentials")),
    ];
    config.extend(credentials.session_token.clone().map(|token| ("s3.session-token", token)));
    config
}

/// Returns the path of one of a table's operations, relative to the address of the catalog.
fn path(warehouse: &Warehouse, ident: &TableIdent, operation: &str) -> String {
    let (prefix, namespace) = (encoded(warehouse.name()), encoded(&ident.namespace.key()));
    format!("v1/{prefix}/namespaces/{namespace}/tables/{}/{operation}", encoded(&ident.name))
}
