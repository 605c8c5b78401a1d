//! Attachments, usage, and documents of the faces.

use node::store::{SqlRow, SqlStoreError, StoreTransaction};

use super::access::TableAccess;
use super::rows::{AttachmentRow, DocumentFilter, DocumentRow, UsageFilter, UsageRow, UsageSum};
use super::schema::{QueryConditions, SessionColumns, json, limit, number, text, text_or_null};
use crate::error::SessionError;

const ATTACHMENT: &str = "id, tenant, session, name, media_type, bytes, object, created_ms";
const DOCUMENT: &str = "tenant, kind, id, parent, body, created_ms, updated_ms";
const USAGE: &str = "session, turn, tenant, agent, at_ms, model, input_tokens, output_tokens, \
    cache_read_tokens, cache_write_tokens, cost_usd, tool_calls, duration_ms";

/// Files attached to sessions.
#[derive(Clone, Debug)]
pub(crate) struct AttachmentTable(pub(super) TableAccess);

impl AttachmentTable {
    /// Stores an attachment whose content has been stored.
    ///
    /// # Errors
    /// `TooMany` if its session has `count_max`.
    pub(crate) async fn insert(
        &self,
        row: AttachmentRow,
        count_max: u64,
    ) -> Result<(), SessionError> {
        self.0
            .write("attachments.insert", move |it| {
                let count = "SELECT COUNT(*) FROM session_attachments WHERE session = $1";
                let count = it.query_one(count, &[text(&row.session)])?;
                if count.map_or(Ok(0), |row| row.get::<u64>(0))? >= count_max {
                    let message = format!("a session may have {count_max} attachments");
                    return Err(SqlStoreError::refuse(SessionError::TooMany(message)));
                }
                let sql = format!(
                    "INSERT INTO session_attachments ({ATTACHMENT}) \
                VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
                );
                let parameters = [
                    text(&row.id),
                    text(&row.tenant),
                    text(&row.session),
                    text(&row.name),
                    text_or_null(row.media_type.as_deref()),
                    number(row.bytes),
                    text(&row.object),
                    number(row.created_ms),
                ];
                it.execute(&sql, &parameters).map(drop)
            })
            .await
    }

    /// Returns an attachment of a tenant.
    pub(crate) async fn find(
        &self,
        tenant: &str,
        id: &str,
    ) -> Result<Option<AttachmentRow>, SessionError> {
        let sql =
            format!("SELECT {ATTACHMENT} FROM session_attachments WHERE tenant = $1 AND id = $2");
        let parameters = [text(tenant), text(id)];
        self.0
            .read("attachments.get", move |it| {
                it.query_one(&sql, &parameters)?.map(|found| attachment(&found)).transpose()
            })
            .await
    }

    /// Returns the attachments of a tenant's session, oldest first.
    pub(crate) async fn of_session(
        &self,
        tenant: &str,
        session: &str,
    ) -> Result<Vec<AttachmentRow>, SessionError> {
        let sql = format!(
            "SELECT {ATTACHMENT} FROM session_attachments \
            WHERE tenant = $1 AND session = $2 ORDER BY id"
        );
        let parameters = [text(tenant), text(session)];
        self.0
            .read("attachments.list", move |it| {
                it.query(&sql, &parameters)?.iter().map(attachment).collect()
            })
            .await
    }

    /// Removes an attachment and returns it.
    pub(crate) async fn delete(
        &self,
        tenant: &str,
        id: &str,
    ) -> Result<Option<AttachmentRow>, SessionError> {
        let sql = format!(
            "DELETE FROM session_attachments WHERE tenant = $1 AND id = $2 RETURNING {ATTACHMENT}"
        );
        let parameters = [text(tenant), text(id)];
        self.0
            .write("attachments.delete", move |it| {
                it.query_one(&sql, &parameters)?.map(|found| attachment(&found)).transpose()
            })
            .await
    }
}

/// Usage of turns; its rows are written with the events of their session.
#[derive(Clone, Debug)]
pub(crate) struct UsageTable(pub(super) TableAccess);

impl UsageTable {
    /// Returns the total usage of a tenant's turns.
    pub(crate) async fn sum(
        &self,
        tenant: &str,
        filter: UsageFilter,
    ) -> Result<UsageSum, SessionError> {
        let conditions = usage_conditions(tenant, &filter);
        let whole = ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"];
        let whole = whole.into_iter().chain(["tool_calls", "duration_ms"]);
        let sums: Vec<String> =
            whole.map(|name| format!("CAST(COALESCE(SUM({name}), 0) AS BIGINT)")).collect();
        let sql = format!(
            "SELECT COUNT(*), CAST(COALESCE(SUM(cost_usd), 0) AS DOUBLE PRECISION), {} \
            FROM session_usage WHERE {}",
            sums.join(", "),
            conditions.sql
        );
        self.0
            .read("usage.sum", move |it| {
                let Some(row) = it.query_one(&sql, &conditions.parameters)? else {
                    return Ok(UsageSum::default());
                };
                let mut columns = SessionColumns::of(&row);
                Ok(UsageSum {
                    turns: columns.take()?,
                    cost_usd: columns.take()?,
                    input_tokens: columns.take()?,
                    output_tokens: columns.take()?,
                    cache_read_tokens: columns.take()?,
                    cache_write_tokens: columns.take()?,
                    tool_calls: columns.take()?,
                    duration_ms: columns.take()?,
                })
            })
            .await
    }

    /// Returns the usage of each of a tenant's turns, latest first.
    pub(crate) async fn list(
        &self,
        tenant: &str,
        filter: UsageFilter,
        count_max: usize,
    ) -> Result<Vec<UsageRow>, SessionError> {
        let mut conditions = usage_conditions(tenant, &filter);
        let place = conditions.place(limit(count_max));
        let sql = format!(
            "SELECT {USAGE} FROM session_usage WHERE {} \
            ORDER BY at_ms DESC, session, turn LIMIT {place}",
            conditions.sql
        );
        self.0
            .read("usage.list", move |it| {
                it.query(&sql, &conditions.parameters)?.iter().map(usage).collect()
            })
            .await
    }
}

/// Small documents that faces store.
#[derive(Clone, Debug)]
pub(crate) struct DocumentTable(pub(super) TableAccess);

impl DocumentTable {
    /// Stores a document, replacing the one with its kind and id except for `created_ms`.
    pub(crate) async fn put(&self, row: DocumentRow) -> Result<(), SessionError> {
        self.0.write_again("documents.put", move |it| {
            let sql = format!(
                "INSERT INTO session_documents ({DOCUMENT}) VALUES ($1, $2, $3, $4, $5, $6, $7) \
                ON CONFLICT (tenant, kind, id) DO UPDATE SET parent = excluded.parent, \
                body = excluded.body, updated_ms = excluded.updated_ms"
            );
            let parameters = [
                text(&row.tenant),
                text(&row.kind),
                text(&row.id),
                text_or_null(row.parent.as_deref()),
                json(&row.body)?,
                number(row.created_ms),
                number(row.updated_ms),
            ];
            it.execute(&sql, &parameters).map(drop)
        })
        .await
    }

    /// Changes a document if its `updated_ms` is still `known_ms`. Returns whether it was.
    pub(crate) async fn replace(
        &self,
        row: DocumentRow,
        known_ms: u64,
    ) -> Result<bool, SessionError> {
        self.0
            .write("documents.replace", move |it| {
                let sql = "UPDATE session_documents SET parent = $1, body = $2, updated_ms = $3 \
                WHERE tenant = $4 AND kind = $5 AND id = $6 AND updated_ms = $7";
                let parameters = [
                    text_or_null(row.parent.as_deref()),
                    json(&row.body)?,
                    number(row.updated_ms),
                    text(&row.tenant),
                    text(&row.kind),
                    text(&row.id),
                    number(known_ms),
                ];
                Ok(it.execute(sql, &parameters)? == 1)
            })
            .await
    }

    /// Returns the number of a tenant's documents of a kind, of one parent or of all.
    pub(crate) async fn count(
        &self,
        tenant: &str,
        kind: &str,
        parent: Option<&str>,
    ) -> Result<u64, SessionError> {
        let mut conditions = QueryConditions::equal("tenant", text(tenant));
        conditions.and("kind = $", Some(text(kind)));
        conditions.and("parent = $", parent.map(text));
        let sql = format!("SELECT COUNT(*) FROM session_documents WHERE {}", conditions.sql);
        self.0
            .read("documents.count", move |it| {
                let row = it.query_one(&sql, &conditions.parameters)?;
                row.map_or(Ok(0), |row| row.get::<u64>(0))
            })
            .await
    }

    /// Returns the tenants whose documents of a kind belong to a parent. Scans all documents, so it
    /// is too slow for every request.
    pub(crate) async fn tenants(
        &self,
        kind: &str,
        parent: &str,
    ) -> Result<Vec<String>, SessionError> {
        let sql = "SELECT DISTINCT tenant FROM session_documents WHERE kind = $1 AND parent = $2";
        let parameters = [text(kind), text(parent)];
        self.0
            .read("documents.tenants", move |it| {
                it.query(sql, &parameters)?
                    .iter()
                    .map(|row| SessionColumns::of(row).text())
                    .collect()
            })
            .await
    }

    /// Returns a document of a tenant.
    pub(crate) async fn find(
        &self,
        tenant: &str,
        kind: &str,
        id: &str,
    ) -> Result<Option<DocumentRow>, SessionError> {
        let sql = format!(
            "SELECT {DOCUMENT} FROM session_documents WHERE tenant = $1 AND kind = $2 AND id = $3"
        );
        let parameters = [text(tenant), text(kind), text(id)];
        self.0
            .read("documents.get", move |it| {
                it.query_one(&sql, &parameters)?.map(|found| document(&found)).transpose()
            })
            .await
    }

    /// Returns documents of a tenant, by id.
    pub(crate) async fn list(
        &self,
        tenant: &str,
        filter: DocumentFilter,
    ) -> Result<Vec<DocumentRow>, SessionError> {
        let mut conditions = QueryConditions::equal("tenant", text(tenant));
        conditions.and("kind = $", Some(text(&filter.kind)));
        conditions.and("parent = $", filter.parent.as_deref().map(text));
        conditions.and("id > $", filter.after.as_deref().map(text));
        let place = conditions.place(limit(filter.limit));
        let sql = format!(
            "SELECT {DOCUMENT} FROM session_documents WHERE {} ORDER BY id LIMIT {place}",
            conditions.sql
        );
        self.0
            .read("documents.list", move |it| {
                it.query(&sql, &conditions.parameters)?.iter().map(document).collect()
            })
            .await
    }

    /// Removes a document. Returns whether it existed.
    pub(crate) async fn delete(
        &self,
        tenant: &str,
        kind: &str,
        id: &str,
    ) -> Result<bool, SessionError> {
        let parameters = [text(tenant), text(kind), text(id)];
        self.0
            .write("documents.delete", move |it| {
                let sql =
                    "DELETE FROM session_documents WHERE tenant = $1 AND kind = $2 AND id = $3";
                Ok(it.execute(sql, &parameters)? == 1)
            })
            .await
    }
}

fn usage_conditions(tenant: &str, filter: &UsageFilter) -> QueryConditions {
    let mut conditions = QueryConditions::equal("tenant", text(tenant));
    conditions.and("session = $", filter.session.as_deref().map(text));
    conditions.and("agent = $", filter.agent.as_deref().map(text));
    conditions.and("at_ms >= $", filter.from_ms.map(number));
    conditions.and("at_ms < $", filter.to_ms.map(number));
    conditions
}

/// Stores the usage of a turn, once.
pub(super) fn put_usage(
    transaction: &mut dyn StoreTransaction,
    row: &UsageRow,
) -> Result<(), SqlStoreError> {
    let sql = format!(
        "INSERT INTO session_usage ({USAGE}) \
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) \
        ON CONFLICT (session, turn) DO NOTHING"
    );
    // Agents report arbitrary numbers; sums must stay finite.
    let cost = if row.cost_usd.is_finite() { row.cost_usd } else { 0.0 };
    let parameters = [
        text(&row.session),
        text(&row.turn),
        text(&row.tenant),
        text_or_null(row.agent.as_deref()),
        number(row.at_ms),
        text_or_null(row.model.as_deref()),
        count(row.input_tokens),
        count(row.output_tokens),
        count(row.cache_read_tokens),
        count(row.cache_write_tokens),
        cost.clamp(-COST_MAX, COST_MAX).into(),
        count(row.tool_calls),
        count(row.duration_ms),
    ];
    transaction.execute(&sql, &parameters).map(drop)
}

/// Largest accepted count of one turn: the sum of a billion of them does not overflow.
const COUNT_MAX: u64 = 1 << 32;
/// Largest accepted cost of one turn.
const COST_MAX: f64 = 1e9;

fn count(value: u64) -> node::store::SqlValue {
    number(value.min(COUNT_MAX))
}

fn attachment(row: &SqlRow) -> Result<AttachmentRow, SqlStoreError> {
    let mut columns = SessionColumns::of(row);
    Ok(AttachmentRow {
        id: columns.text()?,
        tenant: columns.text()?,
        session: columns.text()?,
        name: columns.text()?,
        media_type: columns.text_or_null()?,
        bytes: columns.take()?,
        object: columns.text()?,
        created_ms: columns.take()?,
    })
}

fn usage(row: &SqlRow) -> Result<UsageRow, SqlStoreError> {
    let mut columns = SessionColumns::of(row);
    Ok(UsageRow {
        session: columns.text()?,
        turn: columns.text()?,
        tenant: columns.text()?,
        agent: columns.text_or_null()?,
        at_ms: columns.take()?,
        model: columns.text_or_null()?,
        input_tokens: columns.take()?,
        output_tokens: columns.take()?,
        cache_read_tokens: columns.take()?,
        cache_write_tokens: columns.take()?,
        cost_usd: columns.take()?,
        tool_calls: columns.take()?,
        duration_ms: columns.take()?,
    })
}

fn document(row: &SqlRow) -> Result<DocumentRow, SqlStoreError> {
    let mut columns = SessionColumns::of(row);
    Ok(DocumentRow {
        tenant: columns.text()?,
        kind: columns.text()?,
        id: columns.text()?,
        parent: columns.text_or_null()?,
        body: columns.json()?,
        created_ms: columns.take()?,
        updated_ms: columns.take()?,
    })
}
