//! Rows of sessions and their owners.

use std::time::{Duration, Instant};

use api::{OnDisconnect, SessionLimits, SessionState};
use node::clock;
use node::cluster::{self, NodeIdentity, remove_amounts};
use node::store::{SqlRow, SqlStoreError, SqlValue, StoreTransaction};

use super::claims::ClaimTerms;
use super::events::SessionBatch;
use super::layers;
use super::rows::{OnDeadline, SessionFilter, SessionRow};
use super::schema::{
    QueryConditions, SessionColumns, json, limit, number, number_or_null, on_deadline,
    on_disconnect, pairs, state, text, text_or_null,
};
use super::{SEQ_BLOCK, SessionStore};
use crate::error::SessionError;

/// All columns, in the order in which [`row`] reads and [`insert`] writes them.
pub(super) const COLUMNS: &str = "id, tenant, agent_id, agent_name, agent_version, parent, face, created_ms, \
    options, limits, metadata, env, credential, on_disconnect, idle_s, on_deadline, extra, \
    state, chain, disk, disk_server, manifest, agent_session, turns, last_seq, last_active_ms, \
    deadline_ms, message, owner, epoch, seq_start, seq_ceiling, grants, history_bytes, template";

const INSERT: &str = "INSERT INTO sessions (id, tenant, agent_id, agent_name, agent_version, \
    parent, face, created_ms, options, limits, metadata, env, credential, on_disconnect, idle_s, \
    on_deadline, extra, state, chain, disk, disk_server, manifest, agent_session, turns, last_seq, \
    last_active_ms, deadline_ms, message, owner, epoch, seq_start, seq_ceiling, grants, \
    template) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, \
    $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34)";

/// Update of the columns that change while a session lives. Event numbers only grow, regardless of
/// the order of writers.
const UPDATE_LIFE: &str = "UPDATE sessions SET state = $3, disk = $4, disk_server = $5, \
    manifest = $6, agent_session = $7, turns = $8, \
    last_seq = CASE WHEN last_seq < $9 THEN $9 ELSE last_seq END, \
    last_active_ms = $10, deadline_ms = $11, message = $12 WHERE id = $1 AND epoch = $2";

/// Likewise, with the numbers and bytes that the event writer has reserved and written.
const UPDATE_LIVE: &str = "UPDATE sessions SET state = $3, disk = $4, disk_server = $5, \
    manifest = $6, agent_session = $7, turns = $8, \
    last_seq = CASE WHEN last_seq < $9 THEN $9 ELSE last_seq END, \
    last_active_ms = $10, deadline_ms = $11, message = $12, \
    seq_ceiling = CASE WHEN seq_ceiling < $13 THEN $13 ELSE seq_ceiling END, \
    history_bytes = CASE WHEN COALESCE(history_bytes, 0) < $14 THEN $14 ELSE history_bytes END \
    WHERE id = $1 AND epoch = $2";

const UPDATE_SETTINGS: &str = "UPDATE sessions SET options = $3, limits = $4, metadata = $5, \
    env = $6, credential = $7, on_disconnect = $8, idle_s = $9, on_deadline = $10, extra = $11, \
    chain = $12, agent_id = $13, agent_name = $14, agent_version = $15, grants = $16 \
    WHERE id = $1 AND epoch = $2";

/// Age after which a tenant's sessions are counted again, to include those of other servers.
const COUNT_AGE: Duration = Duration::from_secs(10);

/// Maximum number of tenants with a cached count; beyond it, the cache is cleared.
const COUNTS_MAX: usize = 10_000;

/// Events deleted in one transaction.
const DELETE_MAX: u32 = 10_000;

/// Number of sessions of a tenant.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionCount {
    count: u64,
    at: Instant,
}

/// Bytes of a tenant's events and messages, layers, attachments, archives for templates and folders
/// of agents.
const STORED_BYTES: [&str; 6] = [
    "SELECT CAST(COALESCE(SUM(history_bytes), 0) AS BIGINT) FROM sessions WHERE tenant = $1",
    "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM session_layers WHERE tenant = $1",
    "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM session_attachments WHERE tenant = $1",
    "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM session_template_archives \
        WHERE tenant = $1",
    "SELECT CAST(COALESCE(SUM(agent_versions.bytes), 0) AS BIGINT) FROM agent_versions \
        JOIN agents ON agents.id = agent_versions.agent_id WHERE agents.tenant = $1",
    "SELECT CAST(COALESCE(SUM(LENGTH(request)), 0) AS BIGINT) FROM session_waiting_messages \
        JOIN sessions ON sessions.id = session_waiting_messages.session WHERE tenant = $1",
];

/// Storage of a tenant.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StoredRows {
    /// Limits of its sessions that are not ended.
    pub(crate) limits: Vec<SessionLimits>,
    /// Disks of those sessions on the given server.
    pub(crate) disks: Vec<String>,
    /// Stored bytes that are not on these disks.
    pub(crate) bytes: u64,
}

impl SessionStore {
    /// Inserts a new session. Sets its `epoch`, `seq_start` and `seq_ceiling`, as the returned row
    /// shows; the owner is the one that `row` names.
    ///
    /// # Errors
    /// `TooMany` if the tenant has `sessions_max` sessions that are not ended, as far as this
    /// server knows: sessions added by other servers are seen after some seconds. `NotFound` for a
    /// missing layer of its chain.
    pub(crate) async fn insert_session(
        &self,
        row: SessionRow,
        sessions_max: u64,
    ) -> Result<SessionRow, SessionError> {
        let now = clock::now();
        self.take_place(&row.tenant, sessions_max, now).await?;
        let row = SessionRow { epoch: 1, seq_start: 0, seq_ceiling: SEQ_BLOCK, ..row };
        let inserted = row.clone();
        let result = self.access.write("sessions.insert", move |it| insert(it, &inserted)).await;
        match result {
            Ok(()) => Ok(row),
            Err(error) => {
                self.give_place_back(&row.tenant);
                Err(error)
            }
        }
    }

    /// Returns a session, if it belongs to this tenant.
    pub(crate) async fn session(
        &self,
        tenant: &str,
        id: &str,
    ) -> Result<Option<SessionRow>, SessionError> {
        let found = self.session_of_anybody(id).await?;
        Ok(found.filter(|row| row.tenant == tenant))
    }

    /// Returns a session of any tenant, for requests that are not made on behalf of a tenant.
    pub(crate) async fn session_of_anybody(
        &self,
        id: &str,
    ) -> Result<Option<SessionRow>, SessionError> {
        let sql = format!("SELECT {COLUMNS} FROM sessions WHERE id = $1");
        let first = |rows: &[SqlRow]| rows.first().map(row).transpose();
        self.access.select("sessions.get", sql, vec![text(id)], first).await
    }

    /// Sessions of a tenant, newest first.
    pub(crate) async fn sessions(
        &self,
        tenant: &str,
        filter: SessionFilter,
    ) -> Result<Vec<SessionRow>, SessionError> {
        let tenant = tenant.to_owned();
        self.access.read("sessions.list", move |it| list(it, &tenant, &filter)).await
    }

    /// Writes all mutable columns of a session that no server has live: settings, chain and
    /// location. Returns false and writes nothing if the session is not at the row's epoch any
    /// more.
    ///
    /// A session with a log on this server is written through the log
    /// ([`crate::events::Log::save`]), so that an older pending state does not overwrite this one.
    ///
    /// # Errors
    /// `NotFound` for a layer of its chain.
    #[cfg(test)]
    pub(crate) async fn update(&self, row: &SessionRow) -> Result<bool, SessionError> {
        let row = row.clone();
        self.access.write("sessions.update", move |it| update_all(it, &row, row.epoch)).await
    }

    /// Changes the current row of a session that no server has live. `change` may run again, on the
    /// unchanged row; if it returns an error, nothing changes.
    ///
    /// # Errors
    /// `NotFound` if it does not belong to this tenant, and the errors of `change`.
    pub(crate) async fn modify(
        &self,
        tenant: &str,
        id: &str,
        mut change: impl FnMut(&mut SessionRow) -> Result<(), SessionError> + Send + 'static,
    ) -> Result<SessionRow, SessionError> {
        let (tenant, id) = (tenant.to_owned(), id.to_owned());
        self.access
            .write("sessions.modify", move |it| {
                let found = get(it, &id)?.filter(|row| row.tenant == tenant);
                let mut row = found
                    .ok_or_else(|| SqlStoreError::refuse(SessionError::NotFound("session")))?;
                change(&mut row).map_err(SqlStoreError::refuse)?;
                update_all(it, &row, row.epoch)?;
                Ok(row)
            })
            .await
    }

    /// Returns the server that owns a session; none if it is unowned or does not exist.
    pub(crate) async fn owner(&self, id: &str) -> Result<Option<String>, SessionError> {
        let sql = "SELECT owner FROM sessions WHERE id = $1".to_owned();
        let first = |rows: &[SqlRow]| match rows.first() {
            Some(row) => SessionColumns::of(row).text_or_null(),
            None => Ok(None),
        };
        self.access.select("sessions.owner", sql, vec![text(id)], first).await
    }

    /// Makes `server` the owner of a session that is at `from_epoch`. Returns `None` and changes
    /// nothing if the session is at another epoch, or owned by another server that is alive.
    ///
    /// The returned row has the new epoch and the numbers for a new life, as
    /// [`crate::events::EventWriter::log`] requires.
    ///
    /// # Errors
    /// `NotFound` if there is no such session, `Ended` if it has ended.
    pub(crate) async fn claim(
        &self,
        id: &str,
        run: &NodeIdentity,
        from_epoch: u64,
        terms: ClaimTerms,
    ) -> Result<Option<SessionRow>, SessionError> {
        let (id, run) = (id.to_owned(), run.clone());
        self.access.write("sessions.claim", move |it| claim(it, &id, &run, from_epoch, terms)).await
    }

    /// Clears the owner of a session, so that any server can claim it. The caller must have written
    /// its data ([`crate::events::SessionLog::settle`]). Returns false if the session is not at
    /// this epoch any more.
    pub(crate) async fn release(&self, id: &str, epoch: u64) -> Result<bool, SessionError> {
        let parameters = [text(id), number(epoch)];
        self.access
            .write_again("sessions.release", move |it| {
                let sql = "UPDATE sessions SET owner = NULL WHERE id = $1 AND epoch = $2";
                Ok(it.execute(sql, &parameters)? == 1)
            })
            .await
    }

    /// Returns the sessions that a server owns and that are not ended, which it recovers at
    /// startup.
    pub(crate) async fn sessions_of_server(
        &self,
        server: &str,
    ) -> Result<Vec<SessionRow>, SessionError> {
        let condition = "owner = $1 AND state <> 'ended' ORDER BY id";
        self.of("sessions.of_server", condition, vec![text(server)]).await
    }

    /// Returns the sessions that are not ended and whose disk is on `server`, regardless of their
    /// owner.
    pub(crate) async fn sessions_on_disks_of(
        &self,
        server: &str,
    ) -> Result<Vec<SessionRow>, SessionError> {
        let condition = "disk_server = $1 AND state <> 'ended' ORDER BY id";
        self.of("sessions.of_disks", condition, vec![text(server)]).await
    }

    /// Returns sessions past their deadline, the longest overdue first.
    pub(crate) async fn sessions_due(
        &self,
        now_ms: u64,
        count_max: usize,
    ) -> Result<Vec<SessionRow>, SessionError> {
        let condition = "deadline_ms <= $1 AND state <> 'ended' ORDER BY deadline_ms LIMIT $2";
        self.of("sessions.due", condition, vec![number(now_ms), limit(count_max)]).await
    }

    /// Returns sessions that ended before a time, oldest first.
    pub(crate) async fn sessions_ended(
        &self,
        before_ms: u64,
        count_max: usize,
    ) -> Result<Vec<SessionRow>, SessionError> {
        let condition = "state = 'ended' AND last_active_ms < $1 ORDER BY last_active_ms LIMIT $2";
        self.of("sessions.ended", condition, vec![number(before_ms), limit(count_max)]).await
    }

    async fn of(
        &self,
        name: &'static str,
        condition: &'static str,
        parameters: Vec<SqlValue>,
    ) -> Result<Vec<SessionRow>, SessionError> {
        let sql = format!("SELECT {COLUMNS} FROM sessions WHERE {condition}");
        self.access
            .read(name, move |it| it.query(&sql, &parameters)?.iter().map(row).collect())
            .await
    }

    /// Removes a session with its events, messages and attachments; its usage stays. Returns the
    /// object keys of its attachments. Does nothing if the session does not belong to this tenant.
    pub(crate) async fn remove_session(
        &self,
        tenant: &str,
        id: &str,
    ) -> Result<Vec<String>, SessionError> {
        let (whose, which) = (tenant.to_owned(), id.to_owned());
        let removed = self
            .access
            .write_again("sessions.remove", move |it| remove(it, &whose, &which))
            .await?;
        // Runs even if the row is already gone: an earlier call may have been interrupted here.
        for table in ["session_events", "session_messages"] {
            loop {
                let id = id.to_owned();
                let more = move |it: &mut dyn StoreTransaction| match get(it, &id)? {
                    // The session belongs to another tenant, so nothing was removed.
                    Some(_) => Ok(false),
                    None => forget_some(it, table, &id),
                };
                if !self.access.write_again("sessions.forget", more).await? {
                    break;
                }
            }
        }
        Ok(removed)
    }

    /// Returns how many sessions a tenant has that are not ended.
    pub(crate) async fn count_sessions(&self, tenant: &str) -> Result<u64, SessionError> {
        let tenant = tenant.to_owned();
        self.access
            .read("sessions.count", move |it| {
                let sql = "SELECT COUNT(*) FROM sessions WHERE tenant = $1 AND state <> 'ended'";
                it.query_one(sql, &[text(&tenant)])?.map_or(Ok(0), |row| row.get(0))
            })
            .await
    }

    /// Returns the storage of a tenant, according to its rows.
    pub(crate) async fn stored_by(
        &self,
        tenant: &str,
        server: &str,
    ) -> Result<StoredRows, SessionError> {
        let (parameters, server) = ([text(tenant)], server.to_owned());
        self.access
            .read("sessions.stored", move |it| {
                let mut stored = StoredRows::default();
                let sql = "SELECT disk, disk_server, limits FROM sessions \
                WHERE tenant = $1 AND state <> 'ended'";
                for row in it.query(sql, &parameters)? {
                    let mut columns = SessionColumns::of(&row);
                    let (disk, at) = (columns.text_or_null()?, columns.text_or_null()?);
                    let limits: SessionLimits = columns.json()?;
                    stored.limits.push(limits);
                    stored.disks.extend(disk.filter(|_| at.as_ref() == Some(&server)));
                }
                for sql in STORED_BYTES {
                    let sum = it.query_one(sql, &parameters)?;
                    stored.bytes += sum.map_or(Ok(0), |row| row.get::<u64>(0))?;
                }
                Ok(stored)
            })
            .await
    }

    /// Counts one more session of a tenant, in memory: counting inside the inserting transaction
    /// would make concurrent inserts conflict.
    async fn take_place(&self, tenant: &str, max: u64, now: Instant) -> Result<(), SessionError> {
        let fresh = |count: &SessionCount| now.saturating_duration_since(count.at) < COUNT_AGE;
        let known = self.counts.lock().get(tenant).copied().filter(fresh);
        if known.is_none() {
            let count = self.count_sessions(tenant).await?;
            let mut counts = self.counts.lock();
            if counts.len() >= COUNTS_MAX {
                counts.clear();
            }
            counts.insert(tenant.to_owned(), SessionCount { count, at: now });
        }
        let mut counts = self.counts.lock();
        let Some(known) = counts.get_mut(tenant) else { return Ok(()) };
        if known.count >= max {
            // Forces a new count at the next call, to see sessions that have ended since.
            known.at = now.checked_sub(COUNT_AGE).unwrap_or(now);
            let message = format!("a tenant may have {max} sessions");
            return Err(SessionError::TooMany(message));
        }
        known.count += 1;
        Ok(())
    }

    fn give_place_back(&self, tenant: &str) {
        if let Some(known) = self.counts.lock().get_mut(tenant) {
            known.count = known.count.saturating_sub(1);
        }
    }
}

pub(super) fn row(row: &SqlRow) -> Result<SessionRow, SqlStoreError> {
    let mut columns = SessionColumns::of(row);
    Ok(SessionRow {
        id: columns.text()?,
        tenant: columns.text()?,
        agent_id: columns.text_or_null()?,
        agent_name: columns.text_or_null()?,
        agent_version: columns.take()?,
        parent: columns.text_or_null()?,
        face: columns.text_or_null()?,
        created_ms: columns.take()?,
        options: columns.json()?,
        limits: columns.json()?,
        metadata: columns.json()?,
        env: columns.take::<Option<Vec<u8>>>()?.map(super::rows::SealedBlob),
        credential: columns.text_or_null()?,
        on_disconnect: columns.word("a policy", |word| {
            [OnDisconnect::Continue, OnDisconnect::Interrupt]
                .into_iter()
                .find(|policy| on_disconnect(*policy) == word)
        })?,
        idle_s: columns.take()?,
        on_deadline: columns.word("a policy", |word| {
            [OnDeadline::Kill, OnDeadline::Pause, OnDeadline::Rest]
                .into_iter()
                .find(|policy| on_deadline(*policy) == word)
        })?,
        extra: columns.json()?,
        state: columns.word("a state", state)?,
        chain: columns.json()?,
        disk: columns.text_or_null()?,
        disk_server: columns.text_or_null()?,
        manifest: columns.text_or_null()?,
        agent_session: columns.text_or_null()?,
        turns: columns.take()?,
        last_seq: columns.take()?,
        last_active_ms: columns.take()?,
        deadline_ms: columns.take()?,
        message: columns.text_or_null()?,
        owner: columns.text_or_null()?,
        epoch: columns.take()?,
        seq_start: columns.take()?,
        seq_ceiling: columns.take()?,
        grants: columns.json_or_default()?,
        // Null for sessions that were created before bytes were counted.
        history_bytes: columns.take::<Option<u64>>()?.unwrap_or(0),
        template: columns.json_or_default()?,
    })
}

fn blob(sealed: Option<&super::rows::SealedBlob>) -> SqlValue {
    sealed.map_or(SqlValue::Null, |sealed| SqlValue::Blob(sealed.0.clone()))
}

pub(super) fn get(
    transaction: &mut dyn StoreTransaction,
    id: &str,
) -> Result<Option<SessionRow>, SqlStoreError> {
    let sql = format!("SELECT {COLUMNS} FROM sessions WHERE id = $1");
    transaction.query_one(&sql, &[text(id)])?.map(|found| row(&found)).transpose()
}

fn insert(transaction: &mut dyn StoreTransaction, row: &SessionRow) -> Result<(), SqlStoreError> {
    let parameters = [
        text(&row.id),
        text(&row.tenant),
        text_or_null(row.agent_id.as_deref()),
        text_or_null(row.agent_name.as_deref()),
        row.agent_version.into(),
        text_or_null(row.parent.as_deref()),
        text_or_null(row.face.as_deref()),
        number(row.created_ms),
        json(&row.options)?,
        json(&row.limits)?,
        json(&row.metadata)?,
        blob(row.env.as_ref()),
        text_or_null(row.credential.as_deref()),
        on_disconnect(row.on_disconnect).into(),
        row.idle_s.into(),
        on_deadline(row.on_deadline).into(),
        json(&row.extra)?,
        row.state.as_str().into(),
        json(&row.chain)?,
        text_or_null(row.disk.as_deref()),
        text_or_null(row.disk_server.as_deref()),
        text_or_null(row.manifest.as_deref()),
        text_or_null(row.agent_session.as_deref()),
        number(row.turns),
        number(row.last_seq),
        number(row.last_active_ms),
        number_or_null(row.deadline_ms),
        text_or_null(row.message.as_deref()),
        text_or_null(row.owner.as_deref()),
        number(row.epoch),
        number(row.seq_start),
        number(row.seq_ceiling),
        json(&row.grants)?,
        json(&row.template)?,
    ];
    transaction.execute(INSERT, &parameters)?;
    put_metadata(transaction, row)?;
    layers::begin_chain(transaction, &user(&row.id), &row.chain)
}

/// Returns the name of a session among the users of layers.
fn user(id: &str) -> String {
    format!("session:{id}")
}

fn put_metadata(
    transaction: &mut dyn StoreTransaction,
    row: &SessionRow,
) -> Result<(), SqlStoreError> {
    let sql = "INSERT INTO session_metadata (tenant, name, value, session) VALUES ($1, $2, $3, $4)";
    for [name, value] in pairs(&row.metadata) {
        transaction.execute(sql, &[text(&row.tenant), name, value, text(&row.id)])?;
    }
    Ok(())
}

/// Writes the columns that change while a session lives. Returns false if it is not at this epoch.
fn update_life(
    transaction: &mut dyn StoreTransaction,
    row: &SessionRow,
    epoch: u64,
) -> Result<bool, SqlStoreError> {
    Ok(transaction.execute(UPDATE_LIFE, &life(row, epoch, row.last_seq))? == 1)
}

/// Writes the columns that change while a session lives, and its event numbers. Returns false if it
/// is not at this epoch.
pub(super) fn update_live(
    transaction: &mut dyn StoreTransaction,
    row: &SessionRow,
    part: &SessionBatch,
) -> Result<bool, SqlStoreError> {
    let mut parameters = life(row, part.epoch, row.last_seq.max(part.last_seq)).to_vec();
    parameters.extend([number(part.ceiling), number(part.history_bytes)]);
    Ok(transaction.execute(UPDATE_LIVE, &parameters)? == 1)
}

fn life(row: &SessionRow, epoch: u64, last_seq: u64) -> [SqlValue; 12] {
    [
        text(&row.id),
        number(epoch),
        row.state.as_str().into(),
        text_or_null(row.disk.as_deref()),
        text_or_null(row.disk_server.as_deref()),
        text_or_null(row.manifest.as_deref()),
        text_or_null(row.agent_session.as_deref()),
        number(row.turns),
        number(last_seq),
        number(row.last_active_ms),
        number_or_null(row.deadline_ms),
        text_or_null(row.message.as_deref()),
    ]
}

/// Writes all mutable columns. Returns false if it is not at this epoch.
pub(super) fn update_all(
    transaction: &mut dyn StoreTransaction,
    row: &SessionRow,
    epoch: u64,
) -> Result<bool, SqlStoreError> {
    let before = "SELECT metadata, chain FROM sessions WHERE id = $1 AND epoch = $2";
    let place = [text(&row.id), number(epoch)];
    let Some(before) = transaction.query_one(before, &place)? else {
        return Ok(false);
    };
    let (metadata, chain) = (json(&row.metadata)?, json(&row.chain)?);
    let [metadata_before, chain_before] = before.values() else { return Ok(false) };
    if *metadata_before != metadata {
        let sql = "DELETE FROM session_metadata WHERE session = $1";
        transaction.execute(sql, &[text(&row.id)])?;
        put_metadata(transaction, row)?;
    }
    if *chain_before != chain {
        layers::use_chain(transaction, &user(&row.id), &row.chain)?;
    }
    let parameters = [
        text(&row.id),
        number(epoch),
        json(&row.options)?,
        json(&row.limits)?,
        metadata,
        blob(row.env.as_ref()),
        text_or_null(row.credential.as_deref()),
        on_disconnect(row.on_disconnect).into(),
        row.idle_s.into(),
        on_deadline(row.on_deadline).into(),
        json(&row.extra)?,
        chain,
        text_or_null(row.agent_id.as_deref()),
        text_or_null(row.agent_name.as_deref()),
        row.agent_version.into(),
        json(&row.grants)?,
    ];
    transaction.execute(UPDATE_SETTINGS, &parameters)?;
    update_life(transaction, row, epoch)
}

fn list(
    transaction: &mut dyn StoreTransaction,
    tenant: &str,
    filter: &SessionFilter,
) -> Result<Vec<SessionRow>, SqlStoreError> {
    let mut conditions = QueryConditions::equal("tenant", text(tenant));
    conditions.and("agent_name = $", filter.agent.as_deref().map(text));
    conditions.and("id < $", filter.before.as_deref().map(text));
    match &filter.face {
        None => {}
        Some(None) => conditions.sql.push_str(" AND face IS NULL"),
        Some(Some(face)) => conditions.and("face = $", Some(text(face))),
    }
    for [name, value] in pairs(&filter.metadata) {
        let (name, value) = (conditions.place(name), conditions.place(value));
        conditions.sql.push_str(&format!(
            " AND id IN (SELECT session FROM session_metadata \
            WHERE tenant = $1 AND name = {name} AND value = {value})"
        ));
    }
    if !filter.states.is_empty() {
        // Literals are safe: the words are constants.
        let words: Vec<String> =
            filter.states.iter().map(|state| format!("'{}'", state.as_str())).collect();
        conditions.sql.push_str(&format!(" AND state IN ({})", words.join(", ")));
    }
    let limit = conditions.place(limit(filter.limit));
    let sql = format!(
        "SELECT {COLUMNS} FROM sessions WHERE {} ORDER BY id DESC LIMIT {limit}",
        conditions.sql
    );
    transaction.query(&sql, &conditions.parameters)?.iter().map(row).collect()
}

fn claim(
    transaction: &mut dyn StoreTransaction,
    id: &str,
    run: &NodeIdentity,
    from_epoch: u64,
    terms: ClaimTerms,
) -> Result<Option<SessionRow>, SqlStoreError> {
    let server = run.id.as_str();
    let found = get(transaction, id)?;
    let mut row = found.ok_or_else(|| SqlStoreError::refuse(SessionError::NotFound("session")))?;
    if row.state == SessionState::Ended {
        return Err(SqlStoreError::refuse(SessionError::Ended));
    }
    if row.epoch != from_epoch || cluster::is_replaced(transaction, run)? {
        return Ok(None);
    }
    if let Some(owner) = row.owner.as_deref().filter(|owner| *owner != server)
        && !terms.allow(&row, cluster::find(transaction, owner)?.as_ref())
    {
        return Ok(None);
    }
    row.owner = Some(server.to_owned());
    row.epoch += 1;
    row.seq_start = row.seq_ceiling;
    row.seq_ceiling += SEQ_BLOCK;
    let sql = "UPDATE sessions SET owner = $3, epoch = $4, seq_start = $5, seq_ceiling = $6 \
        WHERE id = $1 AND epoch = $2";
    let parameters = [
        text(id),
        number(from_epoch),
        text(server),
        number(row.epoch),
        number(row.seq_start),
        number(row.seq_ceiling),
    ];
    let changed = transaction.execute(sql, &parameters)?;
    Ok((changed == 1).then_some(row))
}

fn remove(
    transaction: &mut dyn StoreTransaction,
    tenant: &str,
    id: &str,
) -> Result<Vec<String>, SqlStoreError> {
    let both = [text(tenant), text(id)];
    let sql = "DELETE FROM sessions WHERE tenant = $1 AND id = $2";
    if transaction.execute(sql, &both)? == 0 {
        return Ok(Vec::new());
    }
    let only = [text(id)];
    transaction.execute("DELETE FROM session_metadata WHERE session = $1", &only)?;
    transaction.execute("DELETE FROM session_waiting_messages WHERE session = $1", &only)?;
    layers::use_chain(transaction, &user(id), &[])?;
    remove_amounts(transaction, id)?;
    let sql = "DELETE FROM session_attachments WHERE session = $1 RETURNING object";
    transaction.query(sql, &only)?.iter().map(|row| SessionColumns::of(row).text()).collect()
}

/// Deletes the oldest rows of a session. Returns whether there may be more.
fn forget_some(
    transaction: &mut dyn StoreTransaction,
    table: &str,
    id: &str,
) -> Result<bool, SqlStoreError> {
    let sql = format!("SELECT seq FROM {table} WHERE session = $1 ORDER BY seq LIMIT 1 OFFSET $2");
    let last = transaction.query_one(&sql, &[text(id), DELETE_MAX.into()])?;
    let Some(last) = last else {
        transaction.execute(&format!("DELETE FROM {table} WHERE session = $1"), &[text(id)])?;
        return Ok(false);
    };
    let sql = format!("DELETE FROM {table} WHERE session = $1 AND seq <= $2");
    transaction
        .execute(&sql, &[text(id), last.values().first().cloned().unwrap_or(SqlValue::Null)])?;
    Ok(true)
}
