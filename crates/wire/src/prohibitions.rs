//! Parts of an SQL text that some clients may not use.

/// Prohibited parts of a text, for read-only clients and for sandboxes; the first of each, as named
/// in errors.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TextProhibitions {
    /// A part that a read-only transaction allows although it does not only read: a lock, a
    /// notification, a change of the server, or code that may begin another transaction.
    pub for_readers: Option<&'static str>,
    /// A part that shows a password, its hash or the statements of other clients, or changes a
    /// password that the sandbox must not know.
    pub for_sandboxes: Option<&'static str>,
}

impl TextProhibitions {
    /// No prohibition.
    pub const NONE: TextProhibitions = TextProhibitions { for_readers: None, for_sandboxes: None };

    /// Returns true if nothing is prohibited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == TextProhibitions::NONE
    }

    pub(crate) fn deny_readers(&mut self, what: Option<&'static str>) {
        self.for_readers = self.for_readers.or(what);
    }

    pub(crate) fn deny_sandboxes(&mut self, what: Option<&'static str>) {
        self.for_sandboxes = self.for_sandboxes.or(what);
    }

    pub(crate) fn deny_all(&mut self, other: TextProhibitions) {
        self.deny_readers(other.for_readers);
        self.deny_sandboxes(other.for_sandboxes);
    }
}
