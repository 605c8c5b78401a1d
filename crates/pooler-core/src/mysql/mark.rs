//! Mark of a sandbox's session at the server connections that work for it, by which the session's
//! next owner finds statements that a former owner has left running.
//!
//! A server connection is used by one client after the other, and its connection attributes are
//! sent only once, when it is opened. The current use of a connection is visible only through
//! actions on that connection, and little of that is visible to others: the connected users, their
//! running statements, and the holders of user locks. So the mark is a user lock, `GET_LOCK`, which
//! is taken before a client's first statement, in the same write. The mark stays while the same
//! session uses the connection, which therefore pays for it once, and is released before the first
//! statement of another session, or when the connection was idle for a second: a next owner that
//! searches earlier ends an idle connection, which costs its pool a login. The lock's name contains
//! the number of the connection: two connections never want the same lock, and the next owner needs
//! no list of names, only that of its own user's connections, which every user may see. It requires
//! no privilege and no setting, and when the server ends the connection, it releases the lock by
//! itself after it has rolled the transaction back.
//!
//! Rejected alternatives:
//! - a comment before statements: it is visible while a statement runs, but not in an idle
//!   transaction, and a prepared statement has that of the client that prepared it;
//! - numbers of connections in the store: they do not show for which session a connection works
//!   now, and other clients of a running server would lose theirs;
//! - a user variable: others see it in `performance_schema` only, which `MariaDB` has disabled by
//!   default;
//! - `COM_CHANGE_USER` with attributes: a login, which removes all prepared statements.
//!
//! # References
//! - <https://dev.mysql.com/doc/refman/8.4/en/locking-functions.html>
//! - <https://dev.mysql.com/doc/refman/8.4/en/kill.html>
//! - <https://mariadb.com/kb/en/get_lock/>

use super::literal::with_value;
use crate::epoch::SessionEpoch;

/// Maximum number of former epochs of a session that are searched: each owner ends the statements
/// of all epochs before it, so epochs before the last one matter only where it could not.
const EPOCHS_MAX: u64 = 32;

/// Maximum connections that are ended at a time; the next search finds others.
const FOUND_MAX: usize = 50;

/// Takes a lock with a unique name. This fails where the server has no user locks, as in Galera
/// clusters, so that nothing was marked there either.
pub const TRY_MARK: &str = "DO GET_LOCK(CONCAT('cove:try:',CONNECTION_ID()),0)";

/// Error of a `KILL` without such a thread.
pub const NO_SUCH_THREAD: u16 = 1094;

/// Statements that mark a server connection with a session, and remove the mark.
#[derive(Debug)]
pub struct SessionMark {
    /// Takes the lock.
    pub(crate) take: Box<str>,
    /// Releases it.
    pub(crate) release: Box<str>,
}

impl SessionMark {
    /// Creates the mark of a session in this epoch.
    pub fn new(session: &SessionEpoch) -> SessionMark {
        let name = lock_name(session, session.epoch, "CONNECTION_ID()");
        SessionMark {
            take: format!("DO GET_LOCK({name},0)").into(),
            release: format!("DO RELEASE_LOCK({name})").into(),
        }
    }
}

/// Returns an expression for a lock's name. `MariaDB` compares names by their bytes, so these must
/// not depend on the character set of the connection.
fn lock_name(session: &SessionEpoch, epoch: u64, connection: &str) -> String {
    let prefix = format!("{}{epoch}:", session.application_prefix());
    with_value(&format!("CONVERT(CONCAT(?,{connection}) USING utf8mb4)"), &prefix)
}

/// Returns a list of the connections that hold the locks which a connection would have by former
/// epochs; with `NULL` where there is none.
fn holders(session: &SessionEpoch, connection: &str) -> String {
    let epochs = session.epoch.saturating_sub(EPOCHS_MAX).max(1)..session.epoch;
    let holder = |epoch| format!("IS_USED_LOCK({})", lock_name(session, epoch, connection));
    let holders: Vec<String> = epochs.map(holder).collect();
    if holders.is_empty() { "NULL".to_owned() } else { holders.join(",") }
}

/// Returns a query for the connections of a user that are marked with an epoch of the session below
/// its own.
pub fn find_former(session: &SessionEpoch, user: &str) -> String {
    let held = holders(session, "id");
    let user = with_value("?", user);
    format!(
        "SELECT id FROM information_schema.PROCESSLIST \
         WHERE user = {user} AND id IN ({held}) LIMIT {FOUND_MAX}"
    )
}

/// Returns a statement that ends a connection found by [`find_former`], if it is still marked: the
/// server checks that when it ends the connection, so that a connection which works for another
/// session meanwhile is not ended. No connection has the number 0.
pub fn end_former(session: &SessionEpoch, connection: u64) -> String {
    let held = holders(session, &connection.to_string());
    format!("KILL IF({connection} IN ({held}),{connection},0)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u64) -> SessionEpoch {
        SessionEpoch { session: "ses_1".into(), epoch }
    }

    /// Returns whether a text contains this part of a lock's name.
    fn names(text: &str, prefix: &str) -> bool {
        text.contains(&format!(
            "CONCAT(_utf8mb4 x'{}',",
            crate::mysql::literal::hex_digits(prefix.as_bytes())
        ))
    }

    #[test]
    fn a_mark_names_session_epoch_and_connection() {
        let mark = SessionMark::new(&at(3));
        let name = "CONVERT(CONCAT(_utf8mb4 x'636f76653a7365735f313a333a',CONNECTION_ID()) \
                    USING utf8mb4)";
        assert!(names(name, "cove:ses_1:3:"));
        assert_eq!(*mark.take, format!("DO GET_LOCK({name},0)"));
        assert_eq!(*mark.release, format!("DO RELEASE_LOCK({name})"));
    }

    #[test]
    fn epochs_below_the_own_one_are_looked_for_and_not_all_that_there_were() {
        for asked in [find_former(&at(100), "ada"), end_former(&at(100), 7)] {
            for (epoch, is_there) in [(67, false), (68, true), (99, true), (100, false)] {
                assert_eq!(names(&asked, &format!("cove:ses_1:{epoch}:")), is_there, "{epoch}");
            }
        }
        let count = |epoch| find_former(&at(epoch), "ada").matches("IS_USED_LOCK").count();
        assert_eq!((count(0), count(1), count(2), count(4)), (0, 0, 1, 3));
        assert!(find_former(&at(1), "ada").contains("id IN (NULL)"));
    }
}
