//! Servers that share the store, and when they were seen.
//!
//! A server's name lasts as long as its data directory, which can be copied: with a volume, an
//! image or a machine. So each run of a server has an incarnation, and only the latest one that
//! registered speaks for the name.

use node::store::{SqlRow, SqlStoreError, StoreTransaction};

use super::rows::ServerRow;
use super::schema::{SessionColumns, number, text, text_or_null};
use super::{SERVER_LEASE, SessionStore};
use crate::error::SessionError;

/// Identity of a run of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerIdentity {
    /// Name, for as long as its data directory exists.
    pub(crate) id: String,
    /// Name of this run.
    pub(crate) incarnation: String,
    /// Directory that it runs in, as nobody else's is called: that of a run which is over if it is
    /// the same, because a directory has one server at a time.
    pub(crate) home: String,
}

impl ServerIdentity {
    /// The first run of a server in a directory of its own.
    #[cfg(test)]
    pub(crate) fn first(id: &str) -> ServerIdentity {
        ServerIdentity {
            id: id.to_owned(),
            incarnation: format!("{id} 1"),
            home: format!("home of {id}"),
        }
    }
}

/// Result of [`SessionStore::register`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerRegistration {
    /// Registered: the run speaks for its name from now on.
    Done,
    /// Another run may be alive, in another directory: it was seen at this time.
    SeenElsewhere(u64),
}

impl SessionStore {
    /// Makes a run the one that speaks for its server, unless another one may be alive, which a
    /// store that is not shared rules out.
    pub(crate) async fn register(
        &self,
        run: &ServerIdentity,
        is_shared: bool,
        now_ms: u64,
    ) -> Result<ServerRegistration, SessionError> {
        let run = run.clone();
        self.write_again("servers.register", move |it| register(it, &run, is_shared, now_ms)).await
    }

    /// Says that a server is there, every [`super::HEARTBEAT_EVERY`], and where others reach it.
    /// False when another run speaks for it by now.
    pub(crate) async fn heartbeat(
        &self,
        run: &ServerIdentity,
        address: Option<&str>,
        now_ms: u64,
    ) -> Result<bool, SessionError> {
        let parameters =
            [text(&run.id), text(&run.incarnation), text_or_null(address), number(now_ms)];
        self.write_again("servers.heartbeat", move |it| {
            let sql = "UPDATE session_servers SET address = $3, heartbeat_ms = $4 \
                WHERE id = $1 AND incarnation = $2";
            Ok(it.execute(sql, &parameters)? == 1)
        })
        .await
    }

    /// A server that is going: others may claim what it still owns at once.
    pub(crate) async fn remove_server(&self, run: &ServerIdentity) -> Result<(), SessionError> {
        let parameters = [text(&run.id), text(&run.incarnation)];
        self.write_again("servers.remove", move |it| {
            let sql = "DELETE FROM session_servers WHERE id = $1 AND incarnation = $2";
            it.execute(sql, &parameters).map(drop)
        })
        .await
    }

    /// A server, however long it was not seen.
    pub(crate) async fn server(&self, id: &str) -> Result<Option<ServerRow>, SessionError> {
        let parameters = [text(id)];
        self.read("servers.get", move |it| {
            let sql = "SELECT id, address, heartbeat_ms FROM session_servers WHERE id = $1";
            it.query_one(sql, &parameters)?.map(|found| row(&found)).transpose()
        })
        .await
    }
}

fn register(
    it: &mut dyn StoreTransaction,
    run: &ServerIdentity,
    is_shared: bool,
    now_ms: u64,
) -> Result<ServerRegistration, SqlStoreError> {
    let sql = "SELECT incarnation, home, heartbeat_ms FROM session_servers WHERE id = $1";
    if let Some(found) = it.query_one(sql, &[text(&run.id)])? {
        let mut columns = SessionColumns::of(&found);
        let (incarnation, home) = (columns.text_or_null()?, columns.text_or_null()?);
        let seen_ms: u64 = columns.take()?;
        let lease_ms = u64::try_from(SERVER_LEASE.as_millis()).unwrap_or(u64::MAX);
        let is_over = !is_shared
            || home.as_ref() == Some(&run.home)
            || incarnation.as_ref() == Some(&run.incarnation)
            || seen_ms.saturating_add(lease_ms) <= now_ms;
        if !is_over {
            return Ok(ServerRegistration::SeenElsewhere(seen_ms));
        }
    }
    let sql = "INSERT INTO session_servers (id, heartbeat_ms, incarnation, home) \
        VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO UPDATE SET \
        heartbeat_ms = excluded.heartbeat_ms, incarnation = excluded.incarnation, \
        home = excluded.home";
    let parameters = [text(&run.id), number(now_ms), text(&run.incarnation), text(&run.home)];
    it.execute(sql, &parameters)?;
    Ok(ServerRegistration::Done)
}

/// Returns whether another run speaks for a server by now.
pub(super) fn is_replaced(
    it: &mut dyn StoreTransaction,
    run: &ServerIdentity,
) -> Result<bool, SqlStoreError> {
    let sql = "SELECT id FROM session_servers WHERE id = $1 AND incarnation <> $2";
    Ok(it.query_one(sql, &[text(&run.id), text(&run.incarnation)])?.is_some())
}

fn row(row: &SqlRow) -> Result<ServerRow, SqlStoreError> {
    let mut columns = SessionColumns::of(row);
    Ok(ServerRow {
        id: columns.text()?,
        address: columns.text_or_null()?,
        heartbeat_ms: columns.take()?,
    })
}
