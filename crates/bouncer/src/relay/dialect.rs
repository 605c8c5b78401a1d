//! Wording of errors, and the name of the console's database.

/// Name of the console's database.
pub const DATABASE: &str = "pgbouncer";

/// Dialect of error messages to clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorDialect {
    /// Cove's: messages name the settings of `cove.toml`.
    #[default]
    Own,
    /// PgBouncer's: messages name its settings.
    PgBouncer,
}

impl ErrorDialect {
    /// Returns the message in this dialect.
    pub(super) fn of(self, own: &'static str, pgbouncer: &'static str) -> &'static str {
        match self {
            ErrorDialect::Own => own,
            ErrorDialect::PgBouncer => pgbouncer,
        }
    }

    /// Returns the code of an error: PgBouncer has a single one for its own refusals.
    pub(super) fn code(self, own: &'static str) -> &'static str {
        self.of(own, "08P01")
    }
}
