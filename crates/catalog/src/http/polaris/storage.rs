//! The storage of a catalog in Polaris's terms: `storageConfigInfo`.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::missing;
use crate::error::{Result, bad};
use crate::service::WarehouseRecord;
use crate::storage::StorageSettings;

/// Type of storage in a directory of the server.
const FILE: &str = "FILE";

/// Type of storage in a bucket.
const S3: &str = "S3";

/// Storage fields of a request. A field without an equivalent here causes a rejection, whatever its
/// value: to ignore an encryption key would be to promise encryption.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct StorageFields {
    storage_type: String,
    pub(super) allowed_locations: Option<Vec<String>>,
    role_arn: Option<String>,
    external_id: Option<String>,
    region: Option<String>,
    endpoint: Option<String>,
    endpoint_internal: Option<String>,
    sts_endpoint: Option<String>,
    sts_unavailable: Option<bool>,
    path_style_access: Option<bool>,
    /// Ignored: nothing is encrypted with keys of clients.
    #[serde(rename = "kmsUnavailable")]
    _kms_unavailable: IgnoredAny,
    storage_name: Option<IgnoredAny>,
    user_arn: Option<IgnoredAny>,
    current_kms_key: Option<IgnoredAny>,
    allowed_kms_keys: Option<Vec<IgnoredAny>>,
}

/// Storage fields of a response.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StorageInfo {
    storage_type: &'static str,
    allowed_locations: Vec<String>,
    #[serde(flatten)]
    bucket: Option<BucketFields>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BucketFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    role_arn: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    external_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sts_endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_style_access: Option<bool>,
    sts_unavailable: bool,
}

impl StorageInfo {
    pub(super) fn of(record: &WarehouseRecord) -> StorageInfo {
        let locations = std::iter::once(&record.root).chain(&record.locations);
        let is_bucket = record.root.starts_with("s3");
        let StorageSettings { role_arn, external_id, region, endpoint, sts_endpoint, .. } =
            record.storage.clone();
        let bucket = is_bucket.then_some(BucketFields {
            role_arn,
            external_id,
            region,
            endpoint,
            sts_endpoint,
            path_style_access: record.storage.path_style,
            sts_unavailable: !record.storage.vended_credentials,
        });
        StorageInfo {
            storage_type: if is_bucket { S3 } else { FILE },
            allowed_locations: locations.cloned().collect(),
            bucket,
        }
    }
}

/// Parses the fields of a request.
///
/// # Errors
/// `NotImplemented` for unsupported fields, by name; `BadRequest` for invalid ones.
pub(super) fn read(text: serde_json::Value) -> Result<StorageFields> {
    match text.get("storageType").and_then(serde_json::Value::as_str) {
        Some(FILE | S3) => {}
        Some(other @ ("GCS" | "AZURE")) => {
            let message = format!("`storageType`: there is no storage of type {other}");
            return Err(missing(message));
        }
        _ => return Err(bad("`storageType` is FILE or S3")),
    }
    let fields: StorageFields = serde_json::from_value(text)
        .map_err(|error| bad(format!("`storageConfigInfo`: {error}")))?;
    let elsewhere =
        fields.endpoint_internal.as_ref().filter(|it| fields.endpoint.as_ref() != Some(it));
    for (name, is_there) in [
        ("storageName", fields.storage_name.is_some()),
        ("userArn", fields.user_arn.is_some()),
        ("currentKmsKey", fields.current_kms_key.is_some()),
        ("allowedKmsKeys", fields.allowed_kms_keys.as_ref().is_some_and(|it| !it.is_empty())),
        ("endpointInternal", elsewhere.is_some()),
    ] {
        if is_there {
            return Err(missing(format!(
                "`storageConfigInfo.{name}` is nothing that there is here"
            )));
        }
    }
    let of_buckets = [
        ("roleArn", fields.role_arn.is_some()),
        ("externalId", fields.external_id.is_some()),
        ("region", fields.region.is_some()),
        ("endpoint", fields.endpoint.is_some()),
        ("stsEndpoint", fields.sts_endpoint.is_some()),
        ("stsUnavailable", fields.sts_unavailable.is_some()),
        ("pathStyleAccess", fields.path_style_access.is_some()),
    ];
    match of_buckets.into_iter().find(|(_, is_there)| *is_there && fields.storage_type == FILE) {
        Some((name, _)) => Err(bad(format!("`storageConfigInfo.{name}` does not exist for FILE"))),
        None => Ok(fields),
    }
}

/// Rejects a storage type that does not fit the location.
pub(super) fn require_kind(fields: &StorageFields, root: &str) -> Result<()> {
    match root.starts_with("s3") == (fields.storage_type == S3) {
        true => Ok(()),
        false => Err(bad(format!("`storageType` {} does not fit {root}", fields.storage_type))),
    }
}

/// Returns the additional locations beside the root.
pub(super) fn others(fields: &StorageFields, root: &str) -> Vec<String> {
    let all = fields.allowed_locations.iter().flatten().map(|it| it.trim_end_matches('/'));
    all.filter(|it| *it != root).map(str::to_owned).collect()
}

/// Returns the settings of client access. Settings unknown to Polaris are taken from `now`.
pub(super) fn settings(fields: &StorageFields, now: Option<&StorageSettings>) -> StorageSettings {
    let now = now.cloned().unwrap_or_else(|| StorageSettings {
        // Polaris's tools expect tables in plain locations.
        plain_locations: true,
        ..StorageSettings::default()
    });
    if fields.storage_type == FILE {
        return now;
    }
    let mut settings = StorageSettings {
        endpoint: fields.endpoint.clone(),
        region: fields.region.clone(),
        path_style: fields.path_style_access,
        role_arn: fields.role_arn.clone(),
        external_id: fields.external_id.clone(),
        sts_endpoint: fields.sts_endpoint.clone(),
        ..now
    };
    settings.vended_credentials =
        settings.has_token_service() && !fields.sts_unavailable.unwrap_or(false);
    settings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::ErrorReason;

    #[test]
    fn what_there_is_not_is_refused_by_name() {
        for (text, expected) in [
            (json!({"storageType": "FILE"}), None),
            (json!({"storageType": "FILE", "allowedLocations": null}), None),
            (json!({"storageType": "S3", "roleArn": "arn:aws:iam::1:role/x"}), None),
            (json!({"storageType": "S3", "kmsUnavailable": true, "allowedKmsKeys": []}), None),
            (json!({"storageType": "S3", "endpoint": "h", "endpointInternal": "h"}), None),
            (json!({"storageType": "GCS", "gcsServiceAccount": "x"}), Some((501, "GCS"))),
            (json!({"storageType": "AZURE", "tenantId": "x"}), Some((501, "AZURE"))),
            (json!({"storageType": "S3", "currentKmsKey": "k"}), Some((501, "currentKmsKey"))),
            (json!({"storageType": "S3", "allowedKmsKeys": ["k"]}), Some((501, "allowedKmsKeys"))),
            (json!({"storageType": "S3", "userArn": "k"}), Some((501, "userArn"))),
            (json!({"storageType": "FILE", "storageName": "k"}), Some((501, "storageName"))),
            (
                json!({"storageType": "S3", "endpoint": "h", "endpointInternal": "i"}),
                Some((501, "endpointInternal")),
            ),
            (json!({"storageType": "FILE", "region": "x"}), Some((400, "region"))),
            (json!({"storageType": "FILE", "secret": "x"}), Some((400, "secret"))),
            (json!({"storageType": "TAPE"}), Some((400, "storageType"))),
            (json!({}), Some((400, "storageType"))),
            (json!([]), Some((400, "storageType"))),
        ] {
            let refused = read(text.clone()).err();
            let refused = refused.map(|error| (error.kind.status(), error.message));
            match (refused, expected) {
                (None, None) => {}
                (Some((status, message)), Some((wanted, part))) => {
                    assert_eq!(status, wanted, "{text} {message}");
                    assert!(message.contains(part), "{text} {message}");
                }
                (refused, _) => panic!("{text} {refused:?}"),
            }
        }
    }

    #[test]
    fn places_and_settings_are_those_of_a_warehouse() {
        let fields = read(json!({"storageType": "S3", "roleArn": "arn:aws:iam::1:role/x",
            "allowedLocations": ["s3://b/w/", "s3://b/other/"], "pathStyleAccess": true}));
        let fields = fields.unwrap();
        assert_eq!(others(&fields, "s3://b/w"), ["s3://b/other"]);
        let made = settings(&fields, None);
        assert!(made.plain_locations && made.vended_credentials, "{made:?}");
        assert_eq!((made.path_style, made.remote_signing), (Some(true), false));
        let now = StorageSettings { remote_signing: true, ..StorageSettings::default() };
        let kept = settings(&fields, Some(&now));
        assert!(kept.remote_signing && !kept.plain_locations, "{kept:?}");
        let without = read(json!({"storageType": "S3", "endpoint": "http://h",
            "stsUnavailable": true}));
        assert!(!settings(&without.unwrap(), None).vended_credentials);
        require_kind(&fields, "s3://b/w").unwrap();
        let refused = require_kind(&fields, "file:///w").unwrap_err();
        assert_eq!(refused.kind, ErrorReason::BadRequest);
    }
}
