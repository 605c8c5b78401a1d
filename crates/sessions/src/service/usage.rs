//! Recorded model usage of turns.

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
    /// Earliest time, inclusive, in milliseconds since 1970.
    pub from_ms: Option<u64>,
    /// Latest time, exclusive.
    pub to_ms: Option<u64>,
}

impl From<UsageQuery> for UsageFilter {
    fn from(query: UsageQuery) -> UsageFilter {
        let UsageQuery { session, agent, from_ms, to_ms } = query;
        UsageFilter { session, agent, from_ms, to_ms }
    }
}

/// Total usage of turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct UsageTotal {
    /// Number of turns.
    pub turns: u64,
    /// Tokens that the model read, without those from its cache.
    pub input_tokens: u64,
    /// Tokens that it wrote.
    pub output_tokens: u64,
    /// Tokens read from its cache.
    pub cache_read_tokens: u64,
    /// Tokens written to its cache.
    pub cache_write_tokens: u64,
    /// Cost in US dollars, as reported by the agents.
    pub cost_usd: f64,
    /// Number of tool calls.
    pub tool_calls: u64,
    /// Duration in milliseconds.
    pub duration_ms: u64,
}

/// Usage of one turn.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnUsageRecord {
    /// Id of the session.
    pub session: String,
    /// Id of the turn.
    pub turn: String,
    /// Name of the agent.
    pub agent: Option<String>,
    /// Requested model.
    pub model: Option<String>,
    /// Time at which the turn ended, in milliseconds since 1970.
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

    /// Returns the total usage of a tenant's turns.
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

    /// Returns the usage of each of a tenant's turns, latest first.
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
