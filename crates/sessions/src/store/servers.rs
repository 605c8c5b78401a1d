//! Servers that share the store, and when they were seen.

use node::store::{SqlRow, SqlStoreError};

use super::SessionStore;
use super::rows::ServerRow;
use super::schema::{SessionColumns, number, text, text_or_null};
use crate::error::SessionError;

impl SessionStore {
    /// Says that a server is there, every [`super::HEARTBEAT_EVERY`], and where others reach it.
    pub(crate) async fn heartbeat(
        &self,
        server: &str,
        address: Option<&str>,
        now_ms: u64,
    ) -> Result<(), SessionError> {
        let parameters = [text(server), text_or_null(address), number(now_ms)];
        self.write_again("servers.heartbeat", move |it| {
            let sql = "INSERT INTO session_servers (id, address, heartbeat_ms) VALUES ($1, $2, $3) \
                ON CONFLICT (id) DO UPDATE SET address = excluded.address, \
                heartbeat_ms = excluded.heartbeat_ms";
            it.execute(sql, &parameters).map(drop)
        })
        .await
    }

    /// A server that is going: others may claim what it still owns at once.
    pub(crate) async fn remove_server(&self, server: &str) -> Result<(), SessionError> {
        let parameters = [text(server)];
        self.write_again("servers.remove", move |it| {
            it.execute("DELETE FROM session_servers WHERE id = $1", &parameters).map(drop)
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

fn row(row: &SqlRow) -> Result<ServerRow, SqlStoreError> {
    let mut columns = SessionColumns::of(row);
    Ok(ServerRow {
        id: columns.text()?,
        address: columns.text_or_null()?,
        heartbeat_ms: columns.take()?,
    })
}
