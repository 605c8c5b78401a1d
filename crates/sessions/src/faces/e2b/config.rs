//! Settings of this face.

use serde::{Deserialize, Deserializer, de};

/// Maximum time limit of a cell in seconds, as in the native interface.
const CELL_TIMEOUT_S_MAX: u64 = 24 * 60 * 60;

/// The `[compat.e2b.settings]` table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct E2bConfig {
    /// Domain after `PORT-ID.` in host names, with a port if needed. By default, the host by which
    /// the caller reached the server, or `localhost` if that was an address.
    pub domain: Option<String>,
    /// URL by which clients reach this interface, such as `https://e2b.example.com`, for uploads of
    /// templates. By default, `http` with the caller's host, or `https` if a proxy sets
    /// `x-forwarded-proto`.
    pub url: Option<String>,
    /// Maximum lifetime that a request may set, in seconds.
    pub timeout_s_max: u64,
    /// Seconds after which a cell of the code interpreter is interrupted; clients send no limit.
    #[serde(deserialize_with = "cell_seconds")]
    pub cell_timeout_s: u64,
    /// True if a sandbox may by default reach all of the internet that is offered to its tenant, as
    /// with E2B; otherwise it reaches only destinations that it names.
    pub internet: bool,
    /// Maximum number of open connections to ports of sandboxes. One tenant may have at most as
    /// many as remain free for others.
    pub port_connections_max: usize,
}

impl Default for E2bConfig {
    fn default() -> E2bConfig {
        E2bConfig {
            domain: None,
            url: None,
            timeout_s_max: 24 * 60 * 60,
            cell_timeout_s: 30 * 60,
            internet: false,
            // Half of a listener's default.
            port_connections_max: 512,
        }
    }
}

fn cell_seconds<'de, D: Deserializer<'de>>(input: D) -> Result<u64, D::Error> {
    let seconds = u64::deserialize(input)?;
    if (1..=CELL_TIMEOUT_S_MAX).contains(&seconds) {
        return Ok(seconds);
    }
    let message = format!("cell_timeout_s must be between 1 and {CELL_TIMEOUT_S_MAX}");
    Err(de::Error::custom(message))
}
