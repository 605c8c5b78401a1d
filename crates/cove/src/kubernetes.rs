//! Drains this node while its Kubernetes node is cordoned.
//!
//! `kubectl drain` does not evict the pods of a DaemonSet, so a Cove node must detect itself that
//! its machine is cordoned: it watches the machine's object, and requests what `cove node drain`
//! and `cove node undrain` request. It reads only that object, and changes nothing in Kubernetes.
//!
//! # References
//! - <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>

mod machine;
mod watcher;

use std::path::{Path, PathBuf};

use node::cluster::NodeMembership;
use serde::{Deserialize, Deserializer, de};

use self::watcher::MachineWatcher;
use crate::config::{ConfigSource, Environment};

/// Default directory in every pod with a service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Longest name of an object, in bytes (RFC 1123, which Kubernetes follows).
const NAME_BYTES_MAX: usize = 253;

/// The `[cluster.kubernetes]` table.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct KubernetesConfig {
    /// Name of the Kubernetes node that this server runs on. Default: none is watched.
    #[serde(deserialize_with = "object_name")]
    pub(crate) node: Option<String>,
    /// The API server: `https://HOST[:PORT]`. Default: the one in every pod's environment.
    #[serde(deserialize_with = "api_server")]
    pub(crate) server: Option<String>,
    /// Directory with `token` and `ca.crt` of a service account that may get and watch the node.
    pub(crate) service_account: PathBuf,
    /// Keys of taints that have the same effect as a cordon.
    pub(crate) drain_taints: Vec<String>,
}

impl Default for KubernetesConfig {
    fn default() -> KubernetesConfig {
        KubernetesConfig {
            node: None,
            server: None,
            service_account: PathBuf::from(SERVICE_ACCOUNT),
            drain_taints: Vec::new(),
        }
    }
}

fn object_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    // The name becomes part of URLs.
    let fits =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.bytes().all(fits) {
        let message = format!("`{}` is not the name of a Kubernetes node", text.escape_default());
        return Err(de::Error::custom(message));
    }
    Ok(Some(text))
}

fn api_server<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let is_https = text.starts_with("https://") && node::client::check_url(&text).is_ok();
    if !is_https {
        let message = format!("`{text}` is not `https://HOST[:PORT]`");
        return Err(de::Error::custom(message));
    }
    Ok(Some(text.trim_end_matches('/').to_owned()))
}

/// Drains this node while its machine is cordoned, for as long as the server runs. Returns at once
/// if no machine is configured.
pub(crate) async fn follow_machine(
    source: &ConfigSource,
    data_dir: &Path,
    membership: &NodeMembership,
) {
    let config = &source.config.cluster.kubernetes;
    let Some(name) = &config.node else { return };
    let server = config.server.clone().or_else(|| server_of_pod(&source.environment));
    let Some(server) = server else {
        tracing::warn!(
            "`cluster.kubernetes.node` is set, but no variable says where the API server is; set \
             `cluster.kubernetes.server`"
        );
        return;
    };
    MachineWatcher::new(config, name, server, data_dir, membership).run().await;
}

/// Returns the API server that Kubernetes announces in every pod's environment.
fn server_of_pod(environment: &Environment) -> Option<String> {
    let host = environment.get("KUBERNETES_SERVICE_HOST")?;
    let port = environment.get("KUBERNETES_SERVICE_PORT").unwrap_or("443");
    Some(match host.contains(':') {
        true => format!("https://[{host}]:{port}"),
        false => format!("https://{host}:{port}"),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_api_server_is_the_one_that_the_pod_is_told() {
        let server = |host: &str, port: &str| {
            let variables = [("KUBERNETES_SERVICE_HOST", host), ("KUBERNETES_SERVICE_PORT", port)];
            let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
            server_of_pod(&Environment::made_up(BTreeMap::from(variables)))
        };
        assert_eq!(server("10.96.0.1", "6443").as_deref(), Some("https://10.96.0.1:6443"));
        assert_eq!(server("fd00::1", "").as_deref(), Some("https://[fd00::1]:443"));
        assert_eq!(server("", "443"), None);
    }

    #[test]
    fn names_and_servers_are_checked() {
        let read = |text: &str| toml::from_str::<KubernetesConfig>(text);
        for wrong in [
            "node = \"\"",
            "node = \"../secrets\"",
            "node = \"a b\"",
            "server = \"http://10.0.0.1\"",
            "server = \"https://a b\"",
            "serve = \"https://10.0.0.1\"",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let right = read("node = \"ip-10-0-0-7.internal\"\nserver = \"https://10.0.0.1:6443/\"");
        let right = right.unwrap();
        assert_eq!(right.node.as_deref(), Some("ip-10-0-0-7.internal"));
        assert_eq!(right.server.as_deref(), Some("https://10.0.0.1:6443"));
        assert_eq!(right.service_account, Path::new(SERVICE_ACCOUNT));
    }
}
