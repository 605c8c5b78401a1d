//! Messages on the WebSocket of `/v1/live`.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::ErrorDetail;

/// Message of a client on the WebSocket of `/v1/live`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum LiveClientMessage {
    /// Follows a topic.
    Subscribe(LiveSubscribe),
    /// Stops following. Nothing of this subscription is sent any more; an `id` that is not known
    /// is no error, because the topic may have ended meanwhile.
    Unsubscribe {
        /// The `id` of the subscription.
        id: String,
    },
}

/// A topic, and what of it is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct LiveSubscribe {
    /// Name of the subscription, chosen by the client: 1 to 64 bytes, unique on the socket.
    pub id: String,
    /// `executions`, `execution.events`, `sessions`, `session.events`, `session.files`, `audit`,
    /// `tenants` or `catalog.changes`.
    pub topic: String,
    /// Parameters of the topic, as the query of its route has them.
    #[serde(flatten)]
    pub parameters: Map<String, Value>,
}

/// Message of the server on the WebSocket of `/v1/live`: `id`, and one of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct LiveServerMessage {
    /// The `id` of the subscription.
    pub id: String,
    /// True once, when the topic is followed: the token may, and what it names is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ok: Option<bool>,
    /// Event, as the route of the topic has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Value>,
    /// Number of times that the topic was not looked at because this client did not read; the
    /// next event has what is current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lagged: Option<u64>,
    /// Why the topic is not followed, or not any more. The last message of the subscription.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorDetail>,
    /// True when nothing more can happen. The last message of the subscription.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<bool>,
}
