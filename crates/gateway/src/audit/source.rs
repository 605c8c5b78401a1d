//! Origin of audit records.

use node::gateway::GrantHolder;

/// Sandbox and grant of a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AuditSource {
    /// Holder; its id is empty if it is no longer known.
    pub(crate) holder: GrantHolder,
    pub(crate) grant: Box<str>,
}
