//! Errors of transactions: cause, blame, and whether to retry.

use std::error::Error;

/// Error of the database, or another cause.
pub(super) type Cause = Box<dyn Error + Send + Sync>;

/// Longest part of a statement that a message shows, in characters.
const SQL_CHARS_MAX: usize = 200;

/// Reason why a transaction failed. Unless the variant says otherwise, nothing of it was written.
#[derive(Debug, thiserror::Error)]
pub enum SqlStoreError {
    /// The address of the store is invalid.
    #[error("`store`: {0}")]
    Url(String),
    /// The database cannot be opened.
    #[error("open the store `{name}`")]
    Open {
        /// Address of the database, without credentials.
        name: String,
        /// Cause.
        source: Cause,
    },
    /// A statement failed, because of its text or of the disk.
    #[error("run `{sql}`")]
    Statement {
        /// The statement, shortened.
        sql: String,
        /// Cause.
        source: Cause,
    },
    /// A statement would break a rule of the schema: unique, not null, check, foreign key.
    #[error("run `{sql}`: a constraint is violated")]
    Constraint {
        /// The statement, shortened.
        sql: String,
        /// Cause.
        source: Cause,
    },
    /// The parameters do not fit the statement.
    #[error("run `{sql}`: {problem}")]
    Parameters {
        /// The statement, shortened.
        sql: String,
        /// Problem.
        problem: String,
    },
    /// A statement returned more rows than a transaction may hold.
    #[error("run `{sql}`: it returns more than {rows_max} rows")]
    TooManyRows {
        /// The statement, shortened.
        sql: String,
        /// The limit.
        rows_max: usize,
    },
    /// A column has an unexpected type.
    #[error("column {index} is {found}, expected {expected}")]
    Column {
        /// Index of the column, from 0.
        index: usize,
        /// Expected type.
        expected: &'static str,
        /// Actual type.
        found: &'static str,
    },
    /// An earlier statement of the transaction failed, so it can only be rolled back.
    #[error("a statement of the transaction failed before")]
    Spoiled,
    /// The transaction's own reason for a rollback.
    #[error("the transaction was refused")]
    Refused(#[source] Cause),
    /// The transaction's code panicked.
    #[error("the transaction panicked: {0}")]
    Panicked(String),
    /// Too many transactions wait. Retry later.
    #[error("{waiting_max} transactions are waiting for the store, which is its limit")]
    Busy {
        /// The limit.
        waiting_max: usize,
    },
    /// Other transactions kept changing the same rows. Retry.
    #[error("the transaction conflicted with others {attempts} times")]
    Contended {
        /// Number of attempts.
        attempts: u32,
        /// Error of the last attempt.
        source: Cause,
    },
    /// The database cannot be reached. Retry later.
    #[error("reach the store")]
    Unavailable(#[source] Cause),
    /// The disk of the database is full.
    #[error("the disk of the store is full")]
    Full(#[source] Cause),
    /// The connection was lost during the commit: the transaction may be committed or not.
    #[error("the connection to the store was lost during the commit: the outcome is unknown")]
    OutcomeUnknown(#[source] Cause),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// A newer version of Cove has removed tables or columns that this one uses.
    #[error(
        "the store has version {found} of `{service}`, this version of cove knows up to {known}, \
         and one that works with it has to know version {floor}"
    )]
    TooNew {
        /// Service that owns the tables.
        service: &'static str,
        /// Present version.
        found: usize,
        /// Latest version that this server knows.
        known: usize,
        /// Version that a server must know.
        floor: usize,
    },
    /// A step of a migration failed.
    #[error("bring `{service}` to version {version}")]
    Migrate {
        /// Service that owns the tables.
        service: &'static str,
        /// Version that the step leads to.
        version: usize,
        /// Cause.
        source: Box<SqlStoreError>,
    },
}

impl SqlStoreError {
    /// Rolls the transaction back for a reason of the caller's, which [`SqlStoreError::refusal`]
    /// returns.
    pub fn refuse(reason: impl Error + Send + Sync + 'static) -> SqlStoreError {
        SqlStoreError::Refused(Box::new(reason))
    }

    /// Returns the transaction's own reason, if it is an `E`.
    ///
    /// # Errors
    /// This error itself, if it is anything else.
    pub fn refusal<E: Error + 'static>(self) -> Result<E, SqlStoreError> {
        match self {
            SqlStoreError::Refused(reason) => match reason.downcast() {
                Ok(reason) => Ok(*reason),
                Err(reason) => Err(SqlStoreError::Refused(reason)),
            },
            other => Err(other),
        }
    }

    /// Returns whether the same transaction may succeed later, and a retry does no harm.
    pub fn is_temporary(&self) -> bool {
        match self {
            SqlStoreError::Busy { .. }
            | SqlStoreError::Contended { .. }
            | SqlStoreError::Unavailable(_)
            | SqlStoreError::Full(_) => true,
            SqlStoreError::Url(_)
            | SqlStoreError::Open { .. }
            | SqlStoreError::Statement { .. }
            | SqlStoreError::Constraint { .. }
            | SqlStoreError::Parameters { .. }
            | SqlStoreError::TooManyRows { .. }
            | SqlStoreError::Column { .. }
            | SqlStoreError::Spoiled
            | SqlStoreError::Refused(_)
            | SqlStoreError::Panicked(_)
            | SqlStoreError::OutcomeUnknown(_)
            | SqlStoreError::Closed
            | SqlStoreError::TooNew { .. }
            | SqlStoreError::Migrate { .. } => false,
        }
    }
}

/// Returns a statement abbreviated for messages: on one line, and truncated.
pub(super) fn abbreviated(sql: &str) -> String {
    let mut line: String = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(SQL_CHARS_MAX) {
        line.truncate(end);
        line.push('…');
    }
    line
}
