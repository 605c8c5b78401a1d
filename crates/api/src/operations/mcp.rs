//! The Model Context Protocol.

use super::{
    ApiOperation, KeyedRequests, OperationGroup, OperationRight, bytes, events_or, json, operations,
};

/// Messages of the protocol: which tools there are is decided by the scopes of the token.
const PROTOCOL: OperationGroup = OperationGroup::new("mcp", OperationRight::AnyToken);

operations! {
    /// Operations of the endpoint.
    MCP:

    /// Send a message of the Model Context Protocol
    SEND_MCP_MESSAGE = PROTOCOL.post("/mcp", "sendMcpMessage")
        .takes("McpRequest")
        .answers(&[
            events_or("McpResponse", "McpResponse"),
            bytes(202, "text/plain"),
            json(400, "McpResponse"),
            json(403, "McpResponse"),
            json(404, "McpResponse"),
            json(413, "McpResponse"),
        ])
        .keys(KeyedRequests::Ignored);

    /// Open a stream without a request; there is none
    OPEN_MCP_STREAM = PROTOCOL.get("/mcp", "openMcpStream").answers(&[json(405, "McpResponse")]);

    /// End a session of the protocol; there are none
    END_MCP_SESSION = PROTOCOL.delete("/mcp", "endMcpSession")
        .answers(&[json(405, "McpResponse")]);
}
