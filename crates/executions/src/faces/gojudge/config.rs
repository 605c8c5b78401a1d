//! The settings of the go-judge face.

use std::path::PathBuf;

use serde::Deserialize;

/// Limits of the go-judge face.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GojudgeConfig {
    /// Maximum number of programs of one request; each has a sandbox of its own, and all run
    /// concurrently.
    pub cmds_max: usize,
    /// Maximum number of pipes between the programs of one request.
    pub pipes_max: usize,
    /// Maximum number of stored files of one token.
    pub stored_files_max_per_tenant: usize,
    /// Maximum number of stored files in total. Each costs the server a descriptor.
    pub stored_files_max: usize,
    /// Maximum bytes of one stored file, and of a program's streams from files of the host.
    pub stored_file_bytes_max: u64,
    /// Maximum bytes of stored files of one token. They are in memory.
    pub stored_bytes_max_per_tenant: u64,
    /// Maximum bytes of stored files in total.
    pub stored_bytes_max: u64,
    /// Seconds for which a stored file is kept. Default: until it is deleted, or the server ends.
    pub stored_file_ttl_s: Option<u64>,
    /// Directories of the host whose files requests may name with `src`. Empty: no such files.
    pub src_prefixes: Vec<PathBuf>,
    /// Maximum bytes of one message of a WebSocket. Each connection may make the server buffer as
    /// many while the rest of a message arrives.
    pub message_bytes_max: usize,
    /// Maximum number of pending requests on one WebSocket.
    pub socket_requests_max: usize,
    /// Maximum bytes in one stream of `/stream`.
    pub stream_bytes_max: u64,
}

impl Default for GojudgeConfig {
    fn default() -> GojudgeConfig {
        GojudgeConfig {
            cmds_max: 16,
            pipes_max: 32,
            stored_files_max_per_tenant: 256,
            stored_files_max: 512,
            stored_file_bytes_max: 64 << 20,
            stored_bytes_max_per_tenant: 256 << 20,
            stored_bytes_max: 512 << 20,
            stored_file_ttl_s: None,
            src_prefixes: Vec::new(),
            message_bytes_max: 4 << 20,
            socket_requests_max: 128,
            stream_bytes_max: 1 << 30,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_table_is_the_default_and_unknown_keys_are_errors() {
        assert_eq!(toml::from_str::<GojudgeConfig>("").unwrap(), GojudgeConfig::default());
        assert!(toml::from_str::<GojudgeConfig>("cmd_max = 1").is_err());
    }
}
