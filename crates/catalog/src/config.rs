//! The `[catalog]` table: where tables are, and what may be kept in memory.

use node::issuers::IssuerConfig;
use serde::{Deserialize, Serialize};

/// Settings of the catalog. Every limit has its name here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CatalogConfig {
    /// True if there is a catalog at all.
    pub enabled: bool,
    /// Name of the default warehouse.
    pub warehouse: String,
    /// Location: `file:///DIRECTORY`, or `s3://BUCKET/PREFIX?endpoint=…&region=…`. Left out: a
    /// directory in the data directory.
    pub root: Option<String>,
    /// Other roots that clients may have tables below, in the same form.
    pub locations: Vec<String>,
    /// Directories (`file:///DIRECTORY`) below which warehouses may be made while serving. None: in
    /// the data directory.
    pub warehouse_roots: Vec<String>,
    /// Separator of namespace levels in a path, beside the character "unit separator" that always
    /// does.
    pub namespace_separator: Option<String>,
    /// For buckets: names the key. References are taken for all three. Without any of them they are
    /// those of the variables `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`.
    pub access_key_id: Option<String>,
    /// The key.
    #[serde(deserialize_with = "api::secret_setting")]
    pub secret_access_key: Option<String>,
    /// With keys that are for a time only.
    #[serde(deserialize_with = "api::secret_setting")]
    pub session_token: Option<String>,
    /// True if new tables of the configured warehouse are at `NAMESPACE/TABLE`, without anything in
    /// the name of the directory that is theirs alone.
    pub plain_locations: bool,
    /// True if clients get credentials for a configured warehouse in a bucket, each for one table.
    pub vended_credentials: bool,
    /// True if the server signs their requests to it.
    pub remote_signing: bool,
    /// The role that credentials of clients are for.
    pub role_arn: Option<String>,
    /// External id that the role demands.
    pub external_id: Option<String>,
    /// Endpoint of the STS, when it is not the bucket's.
    pub sts_endpoint: Option<String>,
    /// Time that credentials of clients are good for, in seconds.
    pub credentials_seconds: u64,
    /// Bytes of documents in memory. What is not in memory is read from the store.
    pub cache_bytes_max: usize,
    /// True if a table is loaded only when its metadata file is there. Files in buckets are taken
    /// to be there.
    pub check_files: bool,
    /// Milliseconds, where servers share a store, for which a server may answer readers without
    /// asking the store whether another server has changed something. 0: it asks each time. Changes
    /// are never made on something older.
    pub pointer_cache_ms: u32,
    /// For how long a table or view that was dropped can come back, in seconds; 0 for not at all.
    pub undrop_seconds: u64,
    /// For how long the log of changes is kept, in seconds.
    pub log_retention_seconds: u64,
    /// Days for which changes and refusals are kept; 0 to write nothing down.
    pub audit_days: u64,
    /// Most lines of that.
    pub audit_lines_max: u64,
    /// Identity providers whose signed tokens are honoured.
    pub issuers: Vec<IssuerConfig>,
}

impl Default for CatalogConfig {
    fn default() -> CatalogConfig {
        CatalogConfig {
            enabled: true,
            warehouse: "main".to_owned(),
            root: None,
            locations: Vec::new(),
            warehouse_roots: Vec::new(),
            namespace_separator: None,
            access_key_id: None,
            secret_access_key: None,
            session_token: None,
            plain_locations: false,
            vended_credentials: false,
            remote_signing: false,
            role_arn: None,
            external_id: None,
            sts_endpoint: None,
            credentials_seconds: 3600,
            cache_bytes_max: 128 << 20,
            check_files: true,
            pointer_cache_ms: 0,
            undrop_seconds: 7 * 24 * 3600,
            log_retention_seconds: 30 * 24 * 3600,
            audit_days: 90,
            audit_lines_max: 1_000_000,
            issuers: Vec::new(),
        }
    }
}
