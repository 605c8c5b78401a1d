//! Operations of the HTTP interface: for each service one table, which says of every operation
//! where it is, who may use it, what it takes and answers, and which command does the same.
//!
//! Everything else that has to know that comes from these tables: the routers of the services
//! (`node::http::OperationRoutes`), the scopes that the server asks for by paths, what idempotency
//! keys do, `openapi.json` with the clients that are made of it, and the test that asks every route
//! with every kind of token. Examples and longer words are in `xtask/src/gen/operations`. The
//! catalog has a table of its own, because its rights are its own: `catalog::http::operations`.
//!
//! A table never says how an operation is done, and nothing here knows an HTTP library.

pub mod executions;
pub mod gateway;
pub mod mcp;
pub mod server;
pub mod sessions;
pub mod tenants;

use crate::TokenScope;

/// An operation of the HTTP interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiOperation {
    /// Name in `openapi.json`; no other operation has it.
    pub id: &'static str,
    /// Method.
    pub method: OperationMethod,
    /// Path as it is matched: `{id}` is one part of it, `{*path}` all that follows.
    pub path: &'static str,
    /// Heading under which it is described.
    pub tag: &'static str,
    /// Right that a caller needs.
    pub right: OperationRight,
    /// Summary in a few words.
    pub summary: &'static str,
    /// Body of its requests.
    pub request: RequestBody,
    /// Answers when all is well.
    pub answers: &'static [OperationAnswer],
    /// Statuses of its errors, besides 401 and 503 where a token is needed, and 409 where keys are
    /// [kept](KeyedRequests::Kept).
    pub errors: &'static [u16],
    /// Effect of an idempotency key.
    pub keys: KeyedRequests,
    /// Command that does the same, without `cove`: `exec submit`.
    pub command: Option<&'static str>,
}

/// Method of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationMethod {
    /// `GET`, which answers `HEAD` as well.
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
}

impl OperationMethod {
    /// Returns the name in requests.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            OperationMethod::Get => "GET",
            OperationMethod::Head => "HEAD",
            OperationMethod::Post => "POST",
            OperationMethod::Put => "PUT",
            OperationMethod::Patch => "PATCH",
            OperationMethod::Delete => "DELETE",
        }
    }
}

/// Right that a caller of an operation needs. What an operation asks for beyond that, it says
/// itself: whose things it is about, and parameters that are for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationRight {
    /// None, and no token.
    Open,
    /// A token of any kind.
    AnyToken,
    /// A token with one of these scopes.
    OneOf(&'static [TokenScope]),
    /// A token of an operator that has all of these scopes.
    Operator(&'static [TokenScope]),
}

impl OperationRight {
    /// Returns whether a token is needed at all.
    #[must_use]
    pub const fn needs_token(self) -> bool {
        !matches!(self, OperationRight::Open)
    }

    /// Returns the one scope without which nothing is allowed, if there is one.
    #[must_use]
    pub const fn only_scope(self) -> Option<TokenScope> {
        match self {
            OperationRight::OneOf([scope]) | OperationRight::Operator([scope]) => Some(*scope),
            _ => None,
        }
    }
}

/// Body of the requests of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBody {
    /// None that is described.
    Absent,
    /// A document of JSON, with the name of its type in `openapi.json`.
    Json(&'static str),
    /// Bytes of any length, which are taken as they come.
    Upload,
}

/// An answer of an operation when all is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationAnswer {
    /// Status.
    pub status: u16,
    /// Body.
    pub body: AnswerBody,
}

/// Body of an answer. Types have their names in `openapi.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerBody {
    /// A document of JSON.
    Json(&'static str),
    /// Bytes of this media type, or none at all.
    Bytes(&'static str),
    /// Server-sent events.
    Events(&'static str),
    /// Server-sent events or a document, as the caller wants it.
    EventsOr {
        /// Type of an event.
        event: &'static str,
        /// Type of the document.
        document: &'static str,
    },
    /// A WebSocket.
    Socket {
        /// Type of the messages that it takes.
        receives: &'static str,
    },
}

/// Effect of an idempotency key on requests of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyedRequests {
    /// None.
    Ignored,
    /// A request that is sent again gets the answer that is kept of the first, which is carried out
    /// to its end also when its client goes away.
    Kept,
    /// Answers are kept as with [`KeyedRequests::Kept`], but the work of a request ends with the
    /// connection of its client.
    EndWithClient,
    /// The operation has keys of its own, which last as long as what was made with them.
    OfOperation,
}

/// Tag and right that operations have in common.
#[derive(Clone, Copy, Debug)]
struct OperationGroup {
    tag: &'static str,
    right: OperationRight,
}

impl OperationGroup {
    const fn new(tag: &'static str, right: OperationRight) -> OperationGroup {
        OperationGroup { tag, right }
    }

    const fn get(self, path: &'static str, id: &'static str) -> ApiOperation {
        self.operation(OperationMethod::Get, path, id, KeyedRequests::Ignored)
    }

    const fn post(self, path: &'static str, id: &'static str) -> ApiOperation {
        self.operation(OperationMethod::Post, path, id, KeyedRequests::Kept)
    }

    const fn put(self, path: &'static str, id: &'static str) -> ApiOperation {
        self.operation(OperationMethod::Put, path, id, KeyedRequests::Ignored)
    }

    const fn patch(self, path: &'static str, id: &'static str) -> ApiOperation {
        self.operation(OperationMethod::Patch, path, id, KeyedRequests::Ignored)
    }

    const fn delete(self, path: &'static str, id: &'static str) -> ApiOperation {
        self.operation(OperationMethod::Delete, path, id, KeyedRequests::Ignored)
    }

    const fn operation(
        self,
        method: OperationMethod,
        path: &'static str,
        id: &'static str,
        keys: KeyedRequests,
    ) -> ApiOperation {
        let OperationGroup { tag, right } = self;
        ApiOperation {
            id,
            method,
            path,
            tag,
            right,
            summary: "",
            request: RequestBody::Absent,
            answers: &[],
            errors: &[],
            keys,
            command: None,
        }
    }
}

impl ApiOperation {
    /// Summarizes the operation by the comment above its row.
    const fn summarized(self, comment: &'static str) -> ApiOperation {
        ApiOperation { summary: comment.trim_ascii(), ..self }
    }

    const fn needs(self, right: OperationRight) -> ApiOperation {
        ApiOperation { right, ..self }
    }

    const fn takes(self, schema: &'static str) -> ApiOperation {
        ApiOperation { request: RequestBody::Json(schema), ..self }
    }

    const fn uploads(self) -> ApiOperation {
        ApiOperation { request: RequestBody::Upload, ..self }
    }

    const fn answers(self, answers: &'static [OperationAnswer]) -> ApiOperation {
        ApiOperation { answers, ..self }
    }

    const fn fails(self, errors: &'static [u16]) -> ApiOperation {
        ApiOperation { errors, ..self }
    }

    const fn keys(self, keys: KeyedRequests) -> ApiOperation {
        ApiOperation { keys, ..self }
    }

    const fn command(self, command: &'static str) -> ApiOperation {
        ApiOperation { command: Some(command), ..self }
    }
}

const fn json(status: u16, schema: &'static str) -> OperationAnswer {
    OperationAnswer { status, body: AnswerBody::Json(schema) }
}

const fn bytes(status: u16, media_type: &'static str) -> OperationAnswer {
    OperationAnswer { status, body: AnswerBody::Bytes(media_type) }
}

/// An answer without a body.
const fn nothing(status: u16) -> OperationAnswer {
    bytes(status, "text/plain")
}

const fn events(event: &'static str) -> OperationAnswer {
    OperationAnswer { status: 200, body: AnswerBody::Events(event) }
}

const fn events_or(event: &'static str, document: &'static str) -> OperationAnswer {
    OperationAnswer { status: 200, body: AnswerBody::EventsOr { event, document } }
}

const fn socket(receives: &'static str) -> OperationAnswer {
    OperationAnswer { status: 101, body: AnswerBody::Socket { receives } }
}

/// Defines a table and each of its operations as constants. The comment above an operation is its
/// summary.
macro_rules! operations {
    (
        $(#[doc = $of_table:literal])+
        $table:ident:
        $(#[doc = $summary:literal] $name:ident = $operation:expr;)+
    ) => {
        $(
            #[doc = $summary]
            pub const $name: ApiOperation = $operation.summarized($summary);
        )+

        $(#[doc = $of_table])+
        pub const $table: &[ApiOperation] = &[$($name),+];
    };
}
use operations;

/// All tables, in the order in which they are described.
pub const TABLES: &[&[ApiOperation]] = &[
    executions::EXECUTIONS,
    sessions::AGENTS,
    sessions::SESSIONS,
    sessions::SHELF,
    sessions::TEMPLATES,
    tenants::TENANTS,
    gateway::GATEWAY,
    gateway::LIVE,
    server::NODES,
    server::DOCTOR,
    server::SETTINGS,
    server::BACKUP,
    server::HISTORY,
    server::IDENTITY,
    server::SIGN_IN,
    server::HEALTH,
    server::SITE,
    mcp::MCP,
];

/// Returns all operations.
pub fn all() -> impl Iterator<Item = &'static ApiOperation> {
    TABLES.iter().copied().flatten()
}

/// Finds the operation of a method at a path as it is matched.
#[must_use]
pub fn find(method: OperationMethod, path: &str) -> Option<&'static ApiOperation> {
    all().find(|it| it.method == method && it.path == path)
}

/// Returns the paths, as they are matched, at which bodies of any length are taken.
#[must_use]
pub fn upload_paths() -> Vec<&'static str> {
    all().filter(|it| it.request == RequestBody::Upload).map(|it| it.path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(right: OperationRight) -> String {
        let names = |scopes: &[TokenScope], between: &str| {
            scopes.iter().map(|scope| scope.name()).collect::<Vec<_>>().join(between)
        };
        match right {
            OperationRight::Open => "open".to_owned(),
            OperationRight::AnyToken => "any token".to_owned(),
            OperationRight::OneOf(scopes) => names(scopes, " or "),
            OperationRight::Operator([]) => "operator".to_owned(),
            OperationRight::Operator(scopes) => format!("{} and operator", names(scopes, " and ")),
        }
    }

    /// The tables both enforce rights and tell tests of them. This list does not come from them, so
    /// that whoever changes a right sees it, and so does whoever reads the change.
    #[test]
    fn rights_are_those_that_were_agreed_on() {
        let mut all: Vec<&ApiOperation> = all().collect();
        all.sort_by_key(|operation| (operation.path, operation.method.name()));
        let lines = all.into_iter().map(|ApiOperation { method, path, right, .. }| {
            format!("{} {path}: {}\n", method.name(), described(*right))
        });
        assert_eq!(lines.collect::<String>(), include_str!("operations/rights.txt"));
    }
}
