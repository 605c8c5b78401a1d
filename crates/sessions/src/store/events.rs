//! Events, messages and usage: written in batches for many sessions at once, read in pages.

use std::sync::{Arc, LazyLock};

use api::{SessionEvent, SessionEventKind};
use node::store::{SqlRow, SqlStoreError, SqlValue, StoreTransaction};

use super::rows::{EventRow, MessageRow, SessionRow, UsageRow};
use super::schema::{QueryConditions, SessionColumns, kind, limit, number, text, text_or_null};
use super::{SessionStore, documents, sessions};
use crate::error::SessionError;

/// Maximum bytes of a page, except for a single larger row.
pub(crate) const PAGE_BYTES_MAX: u64 = 4 << 20;

/// Rows per `INSERT`. Only a few sizes, which limits the number of prepared statements.
const INSERT_ROWS: [usize; 3] = [64, 8, 1];

/// Changes of sessions to write in one transaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteBatch {
    /// At most one part for each session.
    pub(crate) parts: Vec<SessionBatch>,
}

/// Changes of one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionBatch {
    /// Session that they belong to.
    pub(crate) session: String,
    /// Epoch at which the writer owns the session; at another epoch nothing is written.
    pub(crate) epoch: u64,
    /// Ceiling to make durable; a lower one than stored changes nothing.
    pub(crate) ceiling: u64,
    /// Number of the latest stored event; likewise.
    pub(crate) last_seq: u64,
    /// Bytes of the session's events and messages, including these; likewise.
    pub(crate) history_bytes: u64,
    /// Row, if it changed.
    pub(crate) row: Option<Arc<SessionRow>>,
    /// True if settings and chain changed as well.
    pub(crate) is_whole: bool,
    /// New events.
    pub(crate) events: Vec<EventRow>,
    /// New messages.
    pub(crate) messages: Vec<MessageRow>,
    /// Usage of turns.
    pub(crate) usage: Vec<UsageRow>,
}

impl SessionStore {
    /// Writes a batch idempotently. Returns the indexes of parts that were not written because
    /// their session is not at that epoch any more.
    pub(crate) async fn write_batch(
        &self,
        batch: Arc<WriteBatch>,
    ) -> Result<Vec<usize>, SessionError> {
        self.access.write_again("sessions.batch", move |it| write(it, &batch)).await
    }

    /// Returns a session's events with numbers above `after` and up to `up_to`, in order, of these
    /// kinds or of all if `kinds` is empty. A page with large events is shorter than `count_max`;
    /// it is empty only if there are no events.
    pub(crate) async fn event_page(
        &self,
        session: &str,
        after: u64,
        up_to: u64,
        count_max: usize,
        kinds: Vec<SessionEventKind>,
    ) -> Result<Vec<SessionEvent>, SessionError> {
        let session = session.to_owned();
        self.access
            .read("sessions.events", move |it| {
                let words: Vec<String> =
                    kinds.iter().map(|kind| format!("'{}'", kind.as_str())).collect();
                let only = match words.is_empty() {
                    true => String::new(),
                    false => format!(" AND kind IN ({})", words.join(", ")),
                };
                let range = EventRange { session: &session, after, up_to, count_max, only: &only };
                let columns = "seq, at_ms, turn, kind, data";
                page(it, "session_events", "data", columns, &range)?.iter().map(event).collect()
            })
            .await
    }

    /// Returns a session's messages with numbers above `after`, in order. A page with large
    /// messages is shorter than `count_max`; it is empty only if there are no messages.
    pub(crate) async fn messages(
        &self,
        session: &str,
        after: u64,
        count_max: usize,
    ) -> Result<Vec<MessageRow>, SessionError> {
        let session = session.to_owned();
        self.access
            .read("sessions.messages", move |it| {
                let up_to = u64::MAX;
                let range = EventRange { session: &session, after, up_to, count_max, only: "" };
                let columns = "session, seq, at_ms, turn, role, content";
                page(it, "session_messages", "content", columns, &range)?
                    .iter()
                    .map(message)
                    .collect()
            })
            .await
    }

    /// Returns the turns of a session that began and did not end, in order of their start.
    pub(crate) async fn open_turns(&self, session: &str) -> Result<Vec<String>, SessionError> {
        let sql = "SELECT turn FROM session_events AS begun \
            WHERE session = $1 AND kind = 'turn_start' AND turn IS NOT NULL AND NOT EXISTS \
            (SELECT 1 FROM session_events WHERE session = $1 AND kind = 'done' \
            AND turn = begun.turn) ORDER BY seq";
        let turns =
            |rows: &[SqlRow]| rows.iter().map(|row| SessionColumns::of(row).text()).collect();
        self.access.select("sessions.open_turns", sql.to_owned(), vec![text(session)], turns).await
    }
}

/// Range of a session's events or messages.
struct EventRange<'a> {
    session: &'a str,
    after: u64,
    up_to: u64,
    count_max: usize,
    /// Additional condition.
    only: &'a str,
}

/// Returns the rows of a range, up to [`PAGE_BYTES_MAX`] bytes. Lengths are read first, because
/// rows may be large, and a reader must not hold a thousand large ones.
fn page(
    transaction: &mut dyn StoreTransaction,
    table: &str,
    content: &str,
    columns: &str,
    range: &EventRange<'_>,
) -> Result<Vec<SqlRow>, SqlStoreError> {
    let mut conditions = QueryConditions::equal("session", text(range.session));
    conditions.and("seq > $", Some(number(range.after)));
    conditions.and("seq <= $", Some(number(range.up_to)));
    conditions.sql.push_str(range.only);
    let mut parameters = conditions.parameters.clone();
    parameters.push(limit(range.count_max));
    let lengths = format!(
        "SELECT seq, CAST(LENGTH({content}) AS BIGINT) FROM {table} WHERE {} ORDER BY seq LIMIT $4",
        conditions.sql
    );
    let mut bytes: u64 = 0;
    let mut last = None;
    for row in transaction.query(&lengths, &parameters)? {
        bytes = bytes.saturating_add(row.get(1)?);
        if last.is_some() && bytes > PAGE_BYTES_MAX {
            break;
        }
        last = row.values().first().cloned();
    }
    let Some(last) = last else { return Ok(Vec::new()) };
    // Replaces `up_to`.
    if let Some(up_to) = conditions.parameters.get_mut(2) {
        *up_to = last;
    }
    let rows = format!("SELECT {columns} FROM {table} WHERE {} ORDER BY seq", conditions.sql);
    transaction.query(&rows, &conditions.parameters)
}

fn event(row: &SqlRow) -> Result<SessionEvent, SqlStoreError> {
    let mut columns = SessionColumns::of(row);
    Ok(SessionEvent {
        seq: columns.take()?,
        at_ms: columns.take()?,
        turn: columns.text_or_null()?,
        kind: columns.word("a kind of event", kind)?,
        data: columns.json()?,
    })
}

fn message(row: &SqlRow) -> Result<MessageRow, SqlStoreError> {
    let mut columns = SessionColumns::of(row);
    Ok(MessageRow {
        session: columns.text()?,
        seq: columns.take()?,
        at_ms: columns.take()?,
        turn: columns.text_or_null()?,
        role: columns.text()?,
        content: columns.json()?,
    })
}

fn write(
    transaction: &mut dyn StoreTransaction,
    batch: &WriteBatch,
) -> Result<Vec<usize>, SqlStoreError> {
    let (mut lost, mut kept) = (Vec::new(), Vec::with_capacity(batch.parts.len()));
    for (index, part) in batch.parts.iter().enumerate() {
        match write_row(transaction, part)? {
            true => kept.push(part),
            false => lost.push(index),
        }
    }
    let events: Vec<[SqlValue; 6]> =
        kept.iter().flat_map(|part| &part.events).map(values).collect();
    insert_rows(transaction, &INSERT_EVENTS, &events)?;
    let messages = kept.iter().flat_map(|part| &part.messages);
    let messages: Result<Vec<[SqlValue; 6]>, SqlStoreError> =
        messages.map(message_values).collect();
    insert_rows(transaction, &INSERT_MESSAGES, &messages?)?;
    for usage in kept.iter().flat_map(|part| &part.usage) {
        documents::put_usage(transaction, usage)?;
    }
    Ok(lost)
}

/// Writes a session's row if it is still at the part's epoch; otherwise nothing of the part may be
/// written. The write also makes the transaction conflict with a concurrent claim.
fn write_row(
    transaction: &mut dyn StoreTransaction,
    part: &SessionBatch,
) -> Result<bool, SqlStoreError> {
    if let Some(row) = &part.row {
        if !part.is_whole {
            // A single statement, because this is the most frequent write.
            return sessions::update_live(transaction, row, part);
        }
        if !sessions::update_all(transaction, row, part.epoch)? {
            return Ok(false);
        }
    }
    let sql = "UPDATE sessions SET \
        seq_ceiling = CASE WHEN seq_ceiling < $3 THEN $3 ELSE seq_ceiling END, \
        last_seq = CASE WHEN last_seq < $4 THEN $4 ELSE last_seq END, \
        history_bytes = CASE WHEN COALESCE(history_bytes, 0) < $5 THEN $5 ELSE history_bytes END \
        WHERE id = $1 AND epoch = $2";
    let parameters = [
        text(&part.session),
        number(part.epoch),
        number(part.ceiling),
        number(part.last_seq),
        number(part.history_bytes),
    ];
    Ok(transaction.execute(sql, &parameters)? == 1)
}

fn values(event: &EventRow) -> [SqlValue; 6] {
    [
        text(&event.session),
        number(event.seq),
        number(event.at_ms),
        text_or_null(event.turn.as_deref()),
        event.kind.as_str().into(),
        SqlValue::Blob(event.data.clone()),
    ]
}

fn message_values(message: &MessageRow) -> Result<[SqlValue; 6], SqlStoreError> {
    Ok([
        text(&message.session),
        number(message.seq),
        number(message.at_ms),
        text_or_null(message.turn.as_deref()),
        text(&message.role),
        super::schema::json(&message.content)?,
    ])
}

/// A statement for each of [`INSERT_ROWS`].
type Inserts = LazyLock<[String; 3]>;

static INSERT_EVENTS: Inserts =
    LazyLock::new(|| inserts("INSERT INTO session_events (session, seq, at_ms, turn, kind, data)"));

static INSERT_MESSAGES: Inserts = LazyLock::new(|| {
    inserts("INSERT INTO session_messages (session, seq, at_ms, turn, role, content)")
});

fn inserts(into: &str) -> [String; 3] {
    INSERT_ROWS.map(|rows| {
        let row = |row: usize| {
            let places: Vec<String> =
                (1..=6).map(|column| format!("${}", row * 6 + column)).collect();
            format!("({})", places.join(", "))
        };
        let rows: Vec<String> = (0..rows).map(row).collect();
        // A conflict means that an earlier attempt, whose answer was lost, has written the row.
        format!("{into} VALUES {} ON CONFLICT (session, seq) DO NOTHING", rows.join(", "))
    })
}

fn insert_rows(
    transaction: &mut dyn StoreTransaction,
    inserts: &[String; 3],
    rows: &[[SqlValue; 6]],
) -> Result<(), SqlStoreError> {
    let mut rest = rows;
    for (size, sql) in INSERT_ROWS.into_iter().zip(inserts) {
        while rest.len() >= size {
            let (these, others) = rest.split_at(size);
            transaction.execute(sql, these.as_flattened())?;
            rest = others;
        }
    }
    Ok(())
}
