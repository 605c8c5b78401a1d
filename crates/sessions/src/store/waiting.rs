//! Queued messages: stored until their turn begins, so that the session's next owner continues
//! with them.
//!
//! A turn's first event records that it has begun. A message with that event is no longer queued,
//! even while its row still exists: a turn that began on a lost server does not begin again.

use std::collections::HashSet;

use api::MessageRequest;
use node::store::{SqlRow, SqlStoreError};

use super::access::TableAccess;
use super::schema::{SessionColumns, json, number, text};
use crate::error::SessionError;

/// A queued message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WaitingMessage {
    /// Id of its turn. Ids of later turns are greater.
    pub(crate) turn: String,
    /// Message, with the policy for a turn without subscribers.
    pub(crate) request: MessageRequest,
    /// Time of arrival, in milliseconds since 1970.
    pub(crate) at_ms: u64,
}

/// Queued messages.
#[derive(Clone, Debug)]
pub(crate) struct WaitingMessageTable(pub(super) TableAccess);

impl WaitingMessageTable {
    /// Stores a message of a session that this server owns at an epoch. Returns false if the
    /// session is not at that epoch any more.
    pub(crate) async fn keep(
        &self,
        session: &str,
        epoch: u64,
        message: WaitingMessage,
    ) -> Result<bool, SessionError> {
        let of_session = [text(session), number(epoch)];
        self.0
            .write_again("sessions.keep_waiting", move |it| {
                let sql = "SELECT 1 FROM sessions WHERE id = $1 AND epoch = $2";
                if it.query_one(sql, &of_session)?.is_none() {
                    return Ok(false);
                }
                let [session, _] = &of_session;
                let sql = "INSERT INTO session_waiting_messages (session, turn, request, at_ms) \
                VALUES ($1, $2, $3, $4) ON CONFLICT (session, turn) DO NOTHING";
                let row = [
                    session.clone(),
                    text(&message.turn),
                    json(&message.request)?,
                    number(message.at_ms),
                ];
                it.execute(sql, &row).map(|_| true)
            })
            .await
    }

    /// Removes messages of a session by their turns, because they are no longer queued.
    pub(crate) async fn remove(
        &self,
        session: &str,
        turns: Vec<String>,
    ) -> Result<(), SessionError> {
        let session = text(session);
        self.0
            .write_again("sessions.drop_waiting", move |it| {
                for turn in &turns {
                    let sql =
                        "DELETE FROM session_waiting_messages WHERE session = $1 AND turn = $2";
                    it.execute(sql, &[session.clone(), text(turn)])?;
                }
                Ok(())
            })
            .await
    }

    /// Returns which of some sessions have stored messages.
    pub(crate) async fn sessions_with(
        &self,
        sessions: Vec<String>,
    ) -> Result<HashSet<String>, SessionError> {
        if sessions.is_empty() {
            return Ok(HashSet::new());
        }
        let places: Vec<String> = (1..=sessions.len()).map(|place| format!("${place}")).collect();
        let sql = format!(
            "SELECT DISTINCT session FROM session_waiting_messages WHERE session IN ({})",
            places.join(", ")
        );
        let parameters = sessions.iter().map(|session| text(session)).collect();
        let ids = |rows: &[SqlRow]| rows.iter().map(|row| SessionColumns::of(row).text()).collect();
        self.0.select("sessions.with_waiting", sql, parameters, ids).await
    }

    /// Returns the queued messages of a session, in order of arrival.
    pub(crate) async fn of_session(
        &self,
        session: &str,
    ) -> Result<Vec<WaitingMessage>, SessionError> {
        let sql = "SELECT turn, request, at_ms FROM session_waiting_messages AS waiting \
            WHERE session = $1 AND NOT EXISTS (SELECT 1 FROM session_events WHERE session = $1 \
            AND kind = 'turn_start' AND turn = waiting.turn) ORDER BY turn";
        let messages = |rows: &[SqlRow]| rows.iter().map(message).collect();
        self.0.select("sessions.waiting", sql.to_owned(), vec![text(session)], messages).await
    }
}

fn message(row: &SqlRow) -> Result<WaitingMessage, SqlStoreError> {
    let mut columns = SessionColumns::of(row);
    Ok(WaitingMessage { turn: columns.text()?, request: columns.json()?, at_ms: columns.take()? })
}
