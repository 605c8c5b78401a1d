//! Capabilities that both ends negotiate, and the status in OK and EOF packets.
//!
//! Source: MySQL's source documentation, pages "Capabilities Flags" and `SERVER_STATUS_flags_enum`;
//! the upper half of the capabilities is MariaDB's.
//!
//! # References
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/group__group__cs__capabilities__flags.html>

/// A set of capabilities. The lower 32 bits are MySQL's, the upper 32 are MariaDB's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CapabilityFlags(pub u64);

impl CapabilityFlags {
    /// None.
    pub const NONE: Self = Self(0);
    /// Long passwords; always set by MySQL. A MariaDB server omits it to announce capabilities of
    /// its own.
    pub const LONG_PASSWORD: Self = Self(1);
    /// `UPDATE` counts the rows found, not the rows changed.
    pub const FOUND_ROWS: Self = Self(1 << 1);
    /// Longer flags in column definitions.
    pub const LONG_FLAG: Self = Self(1 << 2);
    /// The login names a database.
    pub const CONNECT_WITH_DB: Self = Self(1 << 3);
    /// `database.table.column` is refused.
    pub const NO_SCHEMA: Self = Self(1 << 4);
    /// Compressed packets by zlib.
    pub const COMPRESS: Self = Self(1 << 5);
    /// Obsolete.
    pub const ODBC: Self = Self(1 << 6);
    /// `LOAD DATA LOCAL INFILE`.
    pub const LOCAL_FILES: Self = Self(1 << 7);
    /// Spaces before the parenthesis of a function's arguments.
    pub const IGNORE_SPACE: Self = Self(1 << 8);
    /// The protocol since MySQL 4.1, the only supported one.
    pub const PROTOCOL_41: Self = Self(1 << 9);
    /// `interactive_timeout` instead of `wait_timeout`.
    pub const INTERACTIVE: Self = Self(1 << 10);
    /// The connection continues with TLS.
    pub const SSL: Self = Self(1 << 11);
    /// Client only; ignored by servers.
    pub const IGNORE_SIGPIPE: Self = Self(1 << 12);
    /// The status reports transactions.
    pub const TRANSACTIONS: Self = Self(1 << 13);
    /// An old name of `PROTOCOL_41`; unused.
    pub const RESERVED: Self = Self(1 << 14);
    /// Authentication since MySQL 4.1.
    pub const SECURE_CONNECTION: Self = Self(1 << 15);
    /// Several statements in one text.
    pub const MULTI_STATEMENTS: Self = Self(1 << 16);
    /// Several results of one text.
    pub const MULTI_RESULTS: Self = Self(1 << 17);
    /// Several results of a prepared statement, and output parameters.
    pub const PS_MULTI_RESULTS: Self = Self(1 << 18);
    /// Authentication by plugins.
    pub const PLUGIN_AUTH: Self = Self(1 << 19);
    /// The login has attributes of the program.
    pub const CONNECT_ATTRS: Self = Self(1 << 20);
    /// The login's proof may be longer than 255 bytes.
    pub const PLUGIN_AUTH_LENENC_CLIENT_DATA: Self = Self(1 << 21);
    /// The client understands that a password has expired.
    pub const CAN_HANDLE_EXPIRED_PASSWORDS: Self = Self(1 << 22);
    /// OK packets report changes of the session.
    pub const SESSION_TRACK: Self = Self(1 << 23);
    /// Results end with an OK packet, and no EOF follows column definitions.
    pub const DEPRECATE_EOF: Self = Self(1 << 24);
    /// A result may omit column definitions.
    pub const OPTIONAL_RESULTSET_METADATA: Self = Self(1 << 25);
    /// Compressed packets by Zstandard.
    pub const ZSTD_COMPRESSION: Self = Self(1 << 26);
    /// Queries carry attributes, which changes their form.
    pub const QUERY_ATTRIBUTES: Self = Self(1 << 27);
    /// More than one factor of authentication.
    pub const MULTI_FACTOR_AUTHENTICATION: Self = Self(1 << 28);
    /// Reserved for future capabilities.
    pub const CAPABILITY_EXTENSION: Self = Self(1 << 29);
    /// Client only: it checks the server's certificate.
    pub const SSL_VERIFY_SERVER_CERT: Self = Self(1 << 30);
    /// Client only.
    pub const REMEMBER_OPTIONS: Self = Self(1 << 31);
    /// MariaDB: progress reports, which look like errors with the number 0xFFFF. The grammar of
    /// [`super::reply`] does not support them: it must not be negotiated.
    pub const MARIADB_PROGRESS: Self = Self(1 << 32);
    /// MariaDB: several commands in one packet; withdrawn.
    pub const MARIADB_COM_MULTI: Self = Self(1 << 33);
    /// MariaDB: executions with arrays of parameters.
    pub const MARIADB_STMT_BULK_OPERATIONS: Self = Self(1 << 34);
    /// MariaDB: column definitions have more information about types.
    pub const MARIADB_EXTENDED_METADATA: Self = Self(1 << 35);
    /// MariaDB: executions do not repeat column definitions, which changes replies.
    pub const MARIADB_CACHE_METADATA: Self = Self(1 << 36);
    /// MariaDB: a result for each set of parameters of a bulk execution.
    pub const MARIADB_BULK_UNIT_RESULTS: Self = Self(1 << 37);

    /// Returns whether all of `other` are among these.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the flags in either.
    #[inline]
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the flags in both.
    #[inline]
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns these without `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns MySQL's half, as in greetings and logins.
    #[inline]
    #[must_use]
    pub const fn lower(self) -> u32 {
        let [a, b, c, d, ..] = self.0.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// Returns MariaDB's half.
    #[inline]
    #[must_use]
    pub const fn upper(self) -> u32 {
        let [.., a, b, c, d] = self.0.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }
}

/// Status of the session that the server sends at the end of each result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StatusFlags(pub u16);

impl StatusFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// Inside a transaction.
    pub const IN_TRANS: Self = Self(1);
    /// Each statement is a transaction of its own.
    pub const AUTOCOMMIT: Self = Self(1 << 1);
    /// Another result follows.
    pub const MORE_RESULTS: Self = Self(1 << 3);
    /// No good index was used.
    pub const NO_GOOD_INDEX_USED: Self = Self(1 << 4);
    /// No index was used.
    pub const NO_INDEX_USED: Self = Self(1 << 5);
    /// A cursor was opened; its rows have to be fetched.
    pub const CURSOR_EXISTS: Self = Self(1 << 6);
    /// The cursor has no more rows, and is closed.
    pub const LAST_ROW_SENT: Self = Self(1 << 7);
    /// The database was dropped.
    pub const DB_DROPPED: Self = Self(1 << 8);
    /// A backslash in a string is an ordinary character.
    pub const NO_BACKSLASH_ESCAPES: Self = Self(1 << 9);
    /// The columns of a prepared statement differ from those at its preparation.
    pub const METADATA_CHANGED: Self = Self(1 << 10);
    /// The statement was slow.
    pub const QUERY_WAS_SLOW: Self = Self(1 << 11);
    /// The result holds output parameters.
    pub const PS_OUT_PARAMS: Self = Self(1 << 12);
    /// Inside a read-only transaction.
    pub const IN_TRANS_READONLY: Self = Self(1 << 13);
    /// Changes of the session follow.
    pub const SESSION_STATE_CHANGED: Self = Self(1 << 14);
    /// MariaDB: a double quote encloses a name.
    pub const ANSI_QUOTES: Self = Self(1 << 15);

    /// Returns whether all of `other` are set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns these and `other`.
    #[inline]
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns these without `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_added_and_taken_away() {
        let both = CapabilityFlags::SSL.union(CapabilityFlags::DEPRECATE_EOF);
        assert_eq!(both.0, 0x0100_0800);
        assert!(both.contains(CapabilityFlags::SSL) && both.contains(CapabilityFlags::NONE));
        assert!(!both.contains(CapabilityFlags::SSL.union(CapabilityFlags::ODBC)));
        assert_eq!(both.without(CapabilityFlags::SSL), CapabilityFlags::DEPRECATE_EOF);
        assert_eq!(both.intersection(CapabilityFlags::SSL), CapabilityFlags::SSL);
        let status = StatusFlags::IN_TRANS.union(StatusFlags::AUTOCOMMIT);
        assert_eq!(status.0, 3);
        assert!(
            status.contains(StatusFlags::IN_TRANS) && !status.contains(StatusFlags::MORE_RESULTS)
        );
        assert_eq!(status.without(StatusFlags::IN_TRANS), StatusFlags::AUTOCOMMIT);
    }

    #[test]
    fn halves_are_those_of_the_wire() {
        let all = CapabilityFlags(0x0000_0025_8100_0201);
        assert_eq!((all.lower(), all.upper()), (0x8100_0201, 0x25));
        assert_eq!(CapabilityFlags::MARIADB_PROGRESS.upper(), 1);
        assert_eq!(CapabilityFlags::REMEMBER_OPTIONS.lower(), 0x8000_0000);
    }
}
