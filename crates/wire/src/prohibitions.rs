//! Things in a text of SQL that some clients may not do.

/// Prohibited parts of a text, for readers and for sandboxes; the first of each, as errors name it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TextProhibitions {
    /// Does what a read-only transaction lets happen although it is no reading: it locks, it
    /// notifies, it changes the server, or it is code that may begin another transaction.
    pub for_readers: Option<&'static str>,
    /// Shows a password, its hash or the statements of other clients, or changes the password that
    /// the sandbox is not to know.
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
