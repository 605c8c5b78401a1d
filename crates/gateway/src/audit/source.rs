//! Origin of audit records.

use node::gateway::GrantHolder;

/// Sandbox and grant that a record is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AuditSource {
    /// Its id is empty where that is not known any more.
    pub(crate) holder: GrantHolder,
    pub(crate) grant: Box<str>,
}
