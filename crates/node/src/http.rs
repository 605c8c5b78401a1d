//! The HTTP server shell: processing of a request before and after its service.
//!
//! [`BoundListener`] accepts connections and bounds them; [`HttpShell`] wraps the routes: request
//! ids, authentication of everything below `/v1`, refusal of large bodies before they are read,
//! metrics, panics, draining. [`OperationRoutes`] routes to handlers by the tables of operations
//! ([`api::operations`]), and checks their required scopes. [`JsonBody`] reads a body and reports
//! its errors; [`UploadBody`] streams one of any length. Every answer with a status of 400 or above
//! has an [`api::ErrorBody`].
//!
//! Faces of other systems have their own errors and authentication ([`CompatFace`]), below a path
//! or at listeners of their own ([`serve_all`]). WebSockets and answers of unknown length are not
//! limited in time, count as work, and are bounded in number.
//!
//! All work of a request ends with the credential that it was made with: when that is revoked, its
//! handler is dropped, its answer cut and its WebSocket closed ([`CredentialBinding`]).
//!
//! When a client disconnects, its handler's future is dropped as soon as the kernel reports the end
//! of the connection, which ends the work of the future. A request with an idempotency key is
//! carried out to its end ([`IdempotencyKeys`]).

mod access;
mod connection;
mod credential;
mod cuttable;
mod error;
mod fast;
mod gzip;
mod hosts;
mod http2;
mod idempotency;
mod in_process;
mod json;
mod linger;
mod operations;
mod protocol;
mod query;
mod refusal;
mod room;
mod routing;
mod server;
mod shares;
mod shell;
mod socket;
mod stream;
mod traced;
mod upload;

pub use access::{CompatFace, FaceAccess, TokenSchemes, authenticate, is_forwarded, is_local_name};
pub use connection::{ConnectionPeer, serve_one};
pub use credential::CredentialBinding;
pub(crate) use cuttable::{CutControl, CuttableIo};
pub use error::HttpError;
pub use fast::{AtOnce, FastHead, FastPath, ListenerSite, Memory, path_part};
pub use gzip::accepts_gzip;
pub use hosts::{HostNames, check_hosts};
pub(crate) use http2::{FairExecutor, path_only};
pub use idempotency::IdempotencyKeys;
pub use in_process::{InProcessCaller, InProcessRoutes, ServedInProcess};
pub use json::{JsonBody, parse_json, plain_json_error};
pub use linger::close_lingering;
pub use operations::{OperationRoutes, filter as method_filter, native_faces};
pub use query::{last_event_id, query};
pub use routing::{PathMethods, RouteTable, delete, get, patch, post, put};
pub use server::{
    BindError, BoundListener, HttpListenerTls, PlaintextPolicy, ShellLimits, serve_all,
};
pub use shares::{Share, ShareOwner, ShareRefusal, Shares};
pub use shell::{HttpShell, MAIN_LISTENER, PeerHop, RequestId, VerbatimAnswer, not_found};
pub(crate) use stream::UpgradedRequest;
pub use upload::UploadBody;

#[cfg(test)]
mod tests;
