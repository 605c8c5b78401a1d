//! Mark of a sandbox's session at the server connections that work for it, by which the session's
//! next owner finds what a former one has left running.
//!
//! A server connection is used by one client after the other, and what it tells of itself
//! (connection attributes) is said once, as it is opened. What a session does at the moment is seen
//! only by what is done in its own connection, and of that others see little: who is connected
//! and what runs, and who holds a user lock. So the mark is a user lock, `GET_LOCK`, that is taken
//! in front of a client's first statement, in the same write. It stays while the same session comes
//! again, so that this pays for it once, and is given back in front of the first statement of
//! somebody else, or when the connection was idle for a second: a next owner that looks before that
//! ends an idle connection, which costs its pool a login. The number of the connection is part of
//! its name: two connections never want the same lock, and the next owner needs no list of names,
//! only that of its own user's connections, which every user may see. It needs no privilege and no
//! setting, and when the server ends the connection, it gives the lock back by itself after it has
//! undone the transaction.
//!
//! What was rejected:
//! - a comment in front of statements: it is seen while a statement runs, and not in a transaction
//!   that is open and idle, and a prepared statement has that of whoever prepared it;
//! - numbers of connections in the store: they do not say for whom a connection works now, and
//!   other clients of a server that lives would lose theirs;
//! - a user variable: others see it in `performance_schema` only, which `MariaDB` has switched off;
//! - `COM_CHANGE_USER` with attributes: a login, after which nothing is prepared any more.
//!
//! # References
//! - <https://dev.mysql.com/doc/refman/8.4/en/locking-functions.html>
//! - <https://dev.mysql.com/doc/refman/8.4/en/kill.html>
//! - <https://mariadb.com/kb/en/get_lock/>

use super::literal::with_value;
use crate::epoch::SessionEpoch;

/// Former epochs of a session that are looked for: each owner ends what it finds of all before it,
/// so that more than the last one matter only where it could not.
const EPOCHS_MAX: u64 = 32;

/// Connections that are ended at a time; others are found by the next look.
const FOUND_MAX: usize = 50;

/// Takes a lock, whose name nobody else has: fails where the server has no user locks, as Galera
/// clusters do, so that nothing was marked either.
pub const TRY_MARK: &str = "DO GET_LOCK(CONCAT('cove:try:',CONNECTION_ID()),0)";

/// Error of a `KILL` that finds nobody.
pub const NO_SUCH_THREAD: u16 = 1094;

/// Statements that mark a server connection with a session, and take the mark away.
#[derive(Debug)]
pub struct SessionMark {
    /// Takes the lock.
    pub(crate) take: Box<str>,
    /// Gives it back.
    pub(crate) release: Box<str>,
}

impl SessionMark {
    /// Mark of a session in this epoch.
    pub fn new(session: &SessionEpoch) -> SessionMark {
        let name = lock_name(session, session.epoch, "CONNECTION_ID()");
        SessionMark {
            take: format!("DO GET_LOCK({name},0)").into(),
            release: format!("DO RELEASE_LOCK({name})").into(),
        }
    }
}

/// Expression that gives a lock's name. `MariaDB` compares names by their bytes, so that these must
/// not depend on the character set of whoever asks.
fn lock_name(session: &SessionEpoch, epoch: u64, connection: &str) -> String {
    let prefix = format!("{}{epoch}:", session.application_prefix());
    with_value(&format!("CONVERT(CONCAT(?,{connection}) USING utf8mb4)"), &prefix)
}

/// List of the connections that hold the locks which a connection would have by former epochs; of
/// `NULL` where there is none.
fn holders(session: &SessionEpoch, connection: &str) -> String {
    let epochs = session.epoch.saturating_sub(EPOCHS_MAX).max(1)..session.epoch;
    let holder = |epoch| format!("IS_USED_LOCK({})", lock_name(session, epoch, connection));
    let holders: Vec<String> = epochs.map(holder).collect();
    if holders.is_empty() { "NULL".to_owned() } else { holders.join(",") }
}

/// Asks for the connections of a user that are marked with an epoch of the session below its own.
pub fn find_former(session: &SessionEpoch, user: &str) -> String {
    let held = holders(session, "id");
    let user = with_value("?", user);
    format!(
        "SELECT id FROM information_schema.PROCESSLIST \
         WHERE user = {user} AND id IN ({held}) LIMIT {FOUND_MAX}"
    )
}

/// Ends a connection that [`find_former`] has found, if it is marked still: the server looks as
/// it ends it, so that a connection which works for somebody else meanwhile is not ended. Nobody
/// has the number 0.
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

    /// Returns whether a text has this part of a lock's name.
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
