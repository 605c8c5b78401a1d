//! Commands: the first byte of a client's message, and the kind of reply to each.
//!
//! Source: MySQL's source documentation, page "Command Phase"; MariaDB's knowledge base, page "Bulk
//! Execution", for MariaDB's own commands.
//!
//! # References
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_command_phase.html>

use super::reply::ReplyKind;

/// Declares the commands with their bytes and replies.
macro_rules! commands {
    ($($(#[$doc:meta])+ $name:ident = $code:literal => $reply:ident,)+) => {
        /// Command of a client.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Command {
            $($(#[$doc])+ $name,)+
        }

        impl Command {
            /// All commands.
            pub const ALL: &'static [Command] = &[$(Self::$name,)+];

            /// Returns the command of a first byte; `None` if it is unknown.
            #[inline]
            pub const fn of(byte: u8) -> Option<Self> {
                match byte {
                    $($code => Some(Self::$name),)+
                    _ => None,
                }
            }

            /// Returns the byte on the wire.
            #[inline]
            pub const fn code(self) -> u8 {
                match self {
                    $(Self::$name => $code,)+
                }
            }

            /// Returns the kind of the reply.
            #[inline]
            pub const fn reply(self) -> ReplyKind {
                match self {
                    $(Self::$name => ReplyKind::$reply,)+
                }
            }
        }
    };
}

commands! {
    /// Used by the server's own threads; a client gets an error.
    Sleep = 0x00 => Simple,
    /// Ends the session.
    Quit = 0x01 => None,
    /// Changes the default database.
    InitDb = 0x02 => Simple,
    /// A text of statements.
    Query = 0x03 => Query,
    /// The columns of a table; deprecated.
    FieldList = 0x04 => FieldList,
    /// Creates a database; unused.
    CreateDb = 0x05 => Simple,
    /// Drops a database; unused.
    DropDb = 0x06 => Simple,
    /// Flushes tables, logs and the like; deprecated.
    Refresh = 0x07 => Simple,
    /// Stops the server; deprecated.
    Shutdown = 0x08 => Simple,
    /// A line of figures.
    Statistics = 0x09 => Text,
    /// The list of connections; deprecated.
    ProcessInfo = 0x0A => Query,
    /// Used by the server's own threads.
    Connect = 0x0B => Simple,
    /// Ends a connection; deprecated.
    ProcessKill = 0x0C => Simple,
    /// Writes debug information to the server's log.
    Debug = 0x0D => Simple,
    /// Checks whether the server is alive.
    Ping = 0x0E => Simple,
    /// Used by the server's own threads.
    Time = 0x0F => Simple,
    /// Used by the server's own threads.
    DelayedInsert = 0x10 => Simple,
    /// Logs in again on the same connection.
    ChangeUser = 0x11 => Foreign,
    /// Replication.
    BinlogDump = 0x12 => Foreign,
    /// Replication; unused.
    TableDump = 0x13 => Foreign,
    /// Used by the server's own threads.
    ConnectOut = 0x14 => Simple,
    /// Replication.
    RegisterSlave = 0x15 => Simple,
    /// Prepares a statement.
    StmtPrepare = 0x16 => Prepare,
    /// Runs a prepared statement.
    StmtExecute = 0x17 => Execute,
    /// Sends a piece of a parameter.
    StmtSendLongData = 0x18 => None,
    /// Closes a prepared statement.
    StmtClose = 0x19 => None,
    /// Closes a statement's cursor and drops its pieces of parameters.
    StmtReset = 0x1A => Simple,
    /// Enables or disables several statements in one text.
    SetOption = 0x1B => Simple,
    /// Fetches rows of a cursor.
    StmtFetch = 0x1C => Rows,
    /// Used by the server's own threads.
    Daemon = 0x1D => Simple,
    /// Replication.
    BinlogDumpGtid = 0x1E => Foreign,
    /// Resets the session, except for its user and its database.
    ResetConnection = 0x1F => Simple,
    /// Copies a whole server.
    Clone = 0x20 => Foreign,
    /// Replication of groups.
    SubscribeGroupReplication = 0x21 => Foreign,
    /// MariaDB: runs a prepared statement with arrays of parameters.
    StmtBulkExecute = 0xFA => Execute,
}

impl Command {
    /// Returns whether the server sends no reply to it.
    #[inline]
    pub const fn is_without_reply(self) -> bool {
        matches!(self.reply(), ReplyKind::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_one_byte() {
        let known: Vec<u8> = (0..=u8::MAX).filter(|byte| Command::of(*byte).is_some()).collect();
        let all: Vec<u8> = Command::ALL.iter().map(|command| command.code()).collect();
        assert_eq!(known, all);
        for command in Command::ALL {
            assert_eq!(Command::of(command.code()), Some(*command));
        }
        assert_eq!(all.len(), 0x22 + 1);
    }

    #[test]
    fn three_commands_have_no_reply() {
        let silent: Vec<Command> =
            Command::ALL.iter().copied().filter(|command| command.is_without_reply()).collect();
        assert_eq!(silent, [Command::Quit, Command::StmtSendLongData, Command::StmtClose]);
    }
}
