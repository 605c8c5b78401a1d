//! Reads from a copy of the store for a backup, and changes for a restore.

use node::store::{SqlStoreError, StoreTransaction};

use super::access::PAGE_MAX;
use super::schema::{SessionColumns, limit, text};

/// Ids of one server's disks, and of all layers.
#[derive(Debug, Default)]
pub(crate) struct SessionFileIds {
    pub(crate) disks: Vec<String>,
    pub(crate) layers: Vec<String>,
}

/// Reads which files belong to a server's sessions.
pub(crate) fn file_ids(
    it: &mut dyn StoreTransaction,
    server: &str,
) -> Result<SessionFileIds, SqlStoreError> {
    let mut found = SessionFileIds::default();
    let mut after = String::new();
    loop {
        let sql = "SELECT id, disk FROM sessions WHERE disk_server = $1 AND id > $2 \
            AND state <> 'ended' AND disk IS NOT NULL ORDER BY id LIMIT $3";
        let rows = it.query(sql, &[text(server), text(&after), limit(PAGE_MAX)])?;
        for row in &rows {
            let mut columns = SessionColumns::of(row);
            after = columns.text()?;
            found.disks.push(columns.text()?);
        }
        if rows.len() < PAGE_MAX {
            break;
        }
    }
    after.clear();
    loop {
        let sql = "SELECT id FROM session_layers WHERE id > $1 ORDER BY id LIMIT $2";
        let rows = it.query(sql, &[text(&after), limit(PAGE_MAX)])?;
        for row in &rows {
            after = SessionColumns::of(row).text()?;
            found.layers.push(after.clone());
        }
        if rows.len() < PAGE_MAX {
            return Ok(found);
        }
    }
}

/// Transfers all sessions, disks and builds of one server to another; returns the number of
/// sessions.
pub(crate) fn change_server(
    it: &mut dyn StoreTransaction,
    from: &str,
    to: &str,
) -> Result<u64, SqlStoreError> {
    let both = [text(from), text(to)];
    it.execute("UPDATE sessions SET owner = $2 WHERE owner = $1", &both)?;
    it.execute("UPDATE session_template_builds SET owner = $2 WHERE owner = $1", &both)?;
    it.execute("UPDATE sessions SET disk_server = $2 WHERE disk_server = $1", &both)
}
