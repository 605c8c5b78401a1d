//! Usage of the model by turns, as it was written down.

use crate::error::SessionError;
use crate::store::rows::UsageFilter;
use crate::store::{PAGE_MAX, UsageTable};

/// Filter of usage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageQuery {
    /// Session that used it.
    pub session: Option<String>,
    /// Name of the agent that used it.
    pub agent: Option<String>,
    /// Not before (milliseconds since 1970).
    pub from_ms: Option<u64>,
    /// Before.
    pub to_ms: Option<u64>,
}

impl From<UsageQuery> for UsageFilter {
    fn from(query: UsageQuery) -> UsageFilter {
        let UsageQuery { session, agent, from_ms, to_ms } = query;
        UsageFilter { session, agent, from_ms, to_ms }
    }
}

/// Usage of turns, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct UsageTotal {
    /// Number of turns.
    pub turns: u64,
    /// Tokens that the model read, without those from its cache.
    pub input_tokens: u64,
    /// Tokens that it wrote.
    pub output_tokens: u64,
    /// Tokens that came from its cache.
    pub cache_read_tokens: u64,
    /// Tokens that were put there.
    pub cache_write_tokens: u64,
    /// In US dollars, as agents reckon it.
    pub cost_usd: f64,
    /// Calls of tools.
    pub tool_calls: u64,
    /// Milliseconds.
    pub duration_ms: u64,
}

/// Usage of one turn.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnUsageRecord {
    /// The session's.
    pub session: String,
    /// The turn's.
    pub turn: String,
    /// Name of the agent.
    pub agent: Option<String>,
    /// The model that was asked for.
    pub model: Option<String>,
    /// When the turn ended (milliseconds since 1970).
    pub at_ms: u64,
    /// Usage of this turn alone.
    pub used: UsageTotal,
}

/// Usage of turns.
#[derive(Debug)]
pub struct UsageReports {
    table: UsageTable,
}

impl UsageReports {
    pub(super) fn new(table: UsageTable) -> UsageReports {
        UsageReports { table }
    }

    /// Returns what turns of a tenant used, together.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn total(&self, tenant: &str, query: UsageQuery) -> Result<UsageTotal, SessionError> {
        let sum = self.table.sum(tenant, query.into()).await?;
        Ok(UsageTotal {
            turns: sum.turns,
            input_tokens: sum.input_tokens,
            output_tokens: sum.output_tokens,
            cache_read_tokens: sum.cache_read_tokens,
            cache_write_tokens: sum.cache_write_tokens,
            cost_usd: sum.cost_usd,
            tool_calls: sum.tool_calls,
            duration_ms: sum.duration_ms,
        })
    }

    /// Returns what turns of a tenant used, one by one, the latest first.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn turns(
        &self,
        tenant: &str,
        query: UsageQuery,
        limit: usize,
    ) -> Result<Vec<TurnUsageRecord>, SessionError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let rows = self.table.list(tenant, query.into(), limit).await?;
        let turn = |row: crate::store::rows::UsageRow| TurnUsageRecord {
            session: row.session,
            turn: row.turn,
            agent: row.agent,
            model: row.model,
            at_ms: row.at_ms,
            used: UsageTotal {
                turns: 1,
                input_tokens: row.input_tokens,
                output_tokens: row.output_tokens,
                cache_read_tokens: row.cache_read_tokens,
                cache_write_tokens: row.cache_write_tokens,
                cost_usd: row.cost_usd,
                tool_calls: row.tool_calls,
                duration_ms: row.duration_ms,
            },
        };
        Ok(rows.into_iter().map(turn).collect())
    }
}
