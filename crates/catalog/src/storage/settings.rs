//! Settings of a warehouse in buckets: where its service is, and what clients may get.

use node::client::check_url;
use node::objects::sign::escaped;
use serde::{Deserialize, Serialize};

use crate::error::{CatalogError, ErrorReason, Result};

/// Shortest lifetime of credentials, in seconds: the limit of token services.
pub const CREDENTIALS_SECONDS_MIN: u64 = 900;

/// Longest lifetime of credentials, in seconds.
pub const CREDENTIALS_SECONDS_MAX: u64 = 43_200;

/// Longest text of a setting, in bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// Client access to files in buckets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct StorageSettings {
    /// `http://…` or `https://…` of the service; Amazon's own when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// For signatures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// True if the bucket is part of paths and not of the host's name. Where there is an endpoint,
    /// it is unless this says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_style: Option<bool>,
    /// The role that clients' credentials are for. Some services need none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_arn: Option<String>,
    /// External id that the role demands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// Endpoint of the STS, when it is not the bucket's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sts_endpoint: Option<String>,
    /// True if clients get credentials.
    pub vended_credentials: bool,
    /// True if the server signs requests of clients.
    pub remote_signing: bool,
    /// Time that credentials are good for.
    pub credentials_seconds: u64,
    /// True if new tables are in directories of their own names, below those of their namespaces,
    /// where no other one is and none has left files.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plain_locations: bool,
}

impl Default for StorageSettings {
    fn default() -> StorageSettings {
        StorageSettings {
            endpoint: None,
            region: None,
            path_style: None,
            role_arn: None,
            external_id: None,
            sts_endpoint: None,
            vended_credentials: false,
            remote_signing: false,
            credentials_seconds: 3600,
            plain_locations: false,
        }
    }
}

impl StorageSettings {
    /// Rejects invalid settings.
    ///
    /// # Errors
    /// `BadRequest`, which names the field.
    pub fn check(&self) -> Result<()> {
        let texts = [
            ("endpoint", &self.endpoint),
            ("region", &self.region),
            ("role-arn", &self.role_arn),
            ("external-id", &self.external_id),
            ("sts-endpoint", &self.sts_endpoint),
        ];
        for (name, text) in texts {
            let Some(text) = text else { continue };
            let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
            if text.is_empty() || text.len() > TEXT_BYTES_MAX || !is_visible {
                return refuse(name, "has from 1 to 1024 visible ASCII characters");
            }
        }
        for (name, url) in [("endpoint", &self.endpoint), ("sts-endpoint", &self.sts_endpoint)] {
            let is_url = |url: &String| check_url(url).is_ok() && !url.contains(['?', '#', '@']);
            if url.as_ref().is_some_and(|url| !is_url(url)) {
                return refuse(name, "is not `http://HOST[:PORT]` or `https://HOST[:PORT]`");
            }
        }
        if self.role_arn.as_ref().is_some_and(|arn| !arn.starts_with("arn:")) {
            return refuse("role-arn", "begins with `arn:`");
        }
        let seconds = CREDENTIALS_SECONDS_MIN..=CREDENTIALS_SECONDS_MAX;
        if !seconds.contains(&self.credentials_seconds) {
            return refuse("credentials-seconds", "is from 900 to 43200");
        }
        if self.vended_credentials && !self.has_token_service() {
            return refuse(
                "vended-credentials",
                "needs a `role-arn`, or the endpoint of a service that needs none",
            );
        }
        Ok(())
    }

    /// Adds the settings in the parameters of a configured root.
    #[must_use]
    pub fn for_root(mut self, root: &str) -> StorageSettings {
        if let Some(location) = root.starts_with("s3").then(|| super::bucket(root).ok()).flatten()
            && location.endpoint != super::amazon_endpoint(&location.region)
        {
            self.endpoint.get_or_insert(location.endpoint);
        }
        self
    }

    /// Returns whether credentials for clients can be requested at all.
    #[must_use]
    pub fn has_token_service(&self) -> bool {
        self.role_arn.is_some() || self.sts_endpoint.is_some() || self.endpoint.is_some()
    }

    /// Returns a location with the parameters that an object store needs. A location that has
    /// parameters is unchanged.
    #[must_use]
    pub fn locate(&self, location: &str) -> String {
        if location.contains('?') || !location.starts_with("s3") {
            return location.to_owned();
        }
        let style = self.path_style.map(|it| if it { "path" } else { "virtual" });
        let known = [
            ("endpoint", self.endpoint.as_deref()),
            ("region", self.region.as_deref()),
            ("style", style),
        ];
        let known = known.iter().filter_map(|(name, value)| Some((name, (*value)?)));
        let query: Vec<String> =
            known.map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        if query.is_empty() {
            return location.to_owned();
        }
        format!("{location}?{}", query.join("&"))
    }
}

fn refuse<T>(field: &str, why: &str) -> Result<T> {
    Err(CatalogError::new(ErrorReason::BadRequest, format!("`storage.{field}` {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_be_meant_are_refused() {
        for (json, expected) in [
            ("{}", None),
            (r#"{"endpoint":"http://h:9","vended-credentials":true}"#, None),
            (r#"{"role-arn":"arn:aws:iam::1:role/x","vended-credentials":true}"#, None),
            (r#"{"vended-credentials":true}"#, Some("storage.vended-credentials")),
            (r#"{"remote-signing":true,"credentials-seconds":900}"#, None),
            (r#"{"credentials-seconds":899}"#, Some("storage.credentials-seconds")),
            (r#"{"credentials-seconds":43201}"#, Some("storage.credentials-seconds")),
            (r#"{"endpoint":"ftp://h"}"#, Some("storage.endpoint")),
            (r#"{"endpoint":"http://u@h"}"#, Some("storage.endpoint")),
            (r#"{"endpoint":""}"#, Some("storage.endpoint")),
            (r#"{"sts-endpoint":"h"}"#, Some("storage.sts-endpoint")),
            (r#"{"role-arn":"x"}"#, Some("storage.role-arn")),
            (r#"{"region":"a b"}"#, Some("storage.region")),
            (r#"{"external-id":"é"}"#, Some("storage.external-id")),
        ] {
            let settings: StorageSettings = serde_json::from_str(json).unwrap();
            let refused = settings.check().map_err(|error| error.message);
            match expected {
                None => refused.unwrap(),
                Some(field) => assert!(refused.unwrap_err().contains(field), "{json}"),
            }
        }
        assert!(serde_json::from_str::<StorageSettings>(r#"{"secret":"x"}"#).is_err());
    }

    #[test]
    fn a_location_is_found_by_what_was_said() {
        let json = r#"{"endpoint":"http://h:9","region":"eu","path-style":false}"#;
        let settings: StorageSettings = serde_json::from_str(json).unwrap();
        let expected = "s3://b/p?endpoint=http%3A%2F%2Fh%3A9&region=eu&style=virtual";
        assert_eq!(settings.locate("s3://b/p"), expected);
        assert_eq!(settings.locate("s3://b/p?region=x"), "s3://b/p?region=x");
        assert_eq!(settings.locate("file:///w"), "file:///w");
        assert_eq!(StorageSettings::default().locate("s3://b"), "s3://b");
    }
}
