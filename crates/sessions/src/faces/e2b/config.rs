//! Settings of this face.

use serde::{Deserialize, Deserializer, de};

/// Longest time in seconds that an operator may give a cell: that of the native interface.
const CELL_TIMEOUT_S_MAX: u64 = 24 * 60 * 60;

/// The `[compat.e2b.settings]` table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct E2bConfig {
    /// Domain after `PORT-ID.` in host names, with a port where it needs one. Left out: what the
    /// caller reached the server by, or `localhost` where that was an address.
    pub domain: Option<String>,
    /// Address of this interface as clients reach it, such as `https://e2b.example.com`, for uploads
    /// of templates. Left out: `http` with the host that the caller named, or `https` where a proxy
    /// before it says so by `x-forwarded-proto`.
    pub url: Option<String>,
    /// Longest time to live that a sandbox may ask for at a time.
    pub timeout_s_max: u64,
    /// Seconds after which a cell of the code interpreter is interrupted; clients send no limit.
    #[serde(deserialize_with = "cell_seconds")]
    pub cell_timeout_s: u64,
    /// True if a sandbox reaches all of the internet that is offered to its tenant, unless it says
    /// otherwise, as with E2B. Left out: what it names.
    pub internet: bool,
    /// Connections from outside to ports of sandboxes that are open at a time. One tenant's
    /// sandboxes have at most as many as are left free for others.
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
            // Half of what a listener takes by default.
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
