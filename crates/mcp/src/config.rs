//! Settings of the protocol: the `[mcp]` table.

use serde::Deserialize;

/// The `[mcp]` table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct McpConfig {
    /// Names under which clients know the server, without port. Addresses, `localhost` and what is
    /// below it need not be named. Left out: any name, but for those under which a program of this
    /// machine or a page reaches the server without a proxy.
    pub hosts: Vec<String>,
    /// Address of the endpoint, as clients know it: what they ask issuers for a token for. Left
    /// out: the audience of the first issuer.
    pub resource: Option<String>,
}
