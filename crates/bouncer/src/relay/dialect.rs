//! Wording of errors, and the name of the console's database.

/// The database that is the console.
pub const DATABASE: &str = "pgbouncer";

/// In whose words clients are told what goes wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorDialect {
    /// Ours: they name the settings of `cove.toml`.
    #[default]
    Own,
    /// PgBouncer's: they name its settings.
    PgBouncer,
}

impl ErrorDialect {
    /// Returns the wording that is configured.
    pub(super) fn of(self, own: &'static str, pgbouncer: &'static str) -> &'static str {
        match self {
            ErrorDialect::Own => own,
            ErrorDialect::PgBouncer => pgbouncer,
        }
    }

    /// The code of an error: PgBouncer has one for all that it refuses by itself.
    pub(super) fn code(self, own: &'static str) -> &'static str {
        self.of(own, "08P01")
    }
}
