//! Tables of the console over all nodes: each node returns its own, and rows about the same object
//! are merged. So a client that connects through a load balancer sees the same at every node.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{Method, StatusCode};
use axum::{Json, Router};
use node::cluster::PeerAnswer;
use node::http::{RouteTable as _, get, post};

use super::command::{ConsoleCommand, ShowTopic, TOPICS};
use super::console::AdminConsole;
use super::table::{ShowTable, TableRow};
use crate::tenants::TenantSnapshot;

/// Path below which a node answers other nodes for its own console.
const CONSOLE: &str = "/peer/console";
/// Interval at which a command that waits for other nodes asks them again.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Columns of `SHOW DATABASES`, from 0.
const NAME: usize = 0;
const CURRENT_CONNECTIONS: usize = 12;
const PAUSED: usize = 15;

/// Relation of the rows of several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowRelation {
    /// Each row is about another object.
    Distinct,
    /// Rows with the same values in this many leading columns are about the same object.
    SameKey(usize),
    /// All nodes report the same: this node's rows are used.
    Repeated,
}

fn relation(topic: ShowTopic) -> RowRelation {
    match topic {
        ShowTopic::Clients
        | ShowTopic::Servers
        | ShowTopic::Sockets
        | ShowTopic::ActiveSockets
        | ShowTopic::Pins => RowRelation::Distinct,
        ShowTopic::Pools => RowRelation::SameKey(2),
        ShowTopic::Databases
        | ShowTopic::Users
        | ShowTopic::Lists
        | ShowTopic::Stats
        | ShowTopic::StatsTotals
        | ShowTopic::StatsAverages
        | ShowTopic::Totals => RowRelation::SameKey(1),
        ShowTopic::Help
        | ShowTopic::Config
        | ShowTopic::Fds
        | ShowTopic::PeerPools
        | ShowTopic::Peers
        | ShowTopic::Version
        | ShowTopic::State
        | ShowTopic::Mem
        | ShowTopic::DnsHosts
        | ShowTopic::DnsZones => RowRelation::Repeated,
    }
}

/// Adds the rows of other nodes to a table.
fn add(topic: ShowTopic, table: &mut ShowTable, of_others: Vec<TableRow>) {
    let columns = table.columns();
    let of_others = of_others.into_iter().filter(|row| row.len() == columns.len());
    match relation(topic) {
        RowRelation::Repeated => {}
        RowRelation::Distinct => of_others.for_each(|row| table.push(row)),
        RowRelation::SameKey(key) => {
            let keys = table.rows().iter().map(|row| row[..key].to_vec());
            let mut indexes: HashMap<_, _> = keys.zip(0..).collect();
            for row in of_others {
                let next = table.rows().len();
                match indexes.entry(row[..key].to_vec()) {
                    Entry::Occupied(index) => {
                        let own = &mut table.rows_mut()[*index.get()];
                        *own = sum(topic, columns, own, &row);
                    }
                    Entry::Vacant(index) => {
                        index.insert(next);
                        table.push(row);
                    }
                }
            }
        }
    }
}

/// Merges two rows about the same object.
fn sum(
    topic: ShowTopic,
    columns: &[&'static str],
    own: &[Option<String>],
    other: &[Option<String>],
) -> TableRow {
    let number = |row: &[Option<String>], name: &str| -> u64 {
        let index = columns.iter().position(|column| *column == name);
        let text = index.and_then(|index| row.get(index)?.as_deref());
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    let longest = |row| (number(row, "maxwait"), number(row, "maxwait_us"));
    let waits_longest = if longest(own) < longest(other) { other } else { own };
    let is_counted = |name: &str| match topic {
        ShowTopic::Pools => name.starts_with("cl_") || name.starts_with("sv_"),
        ShowTopic::Databases | ShowTopic::Users => {
            matches!(name, "current_connections" | "current_client_connections")
        }
        ShowTopic::Lists => {
            matches!(own.first(), Some(Some(list)) if
                matches!(list.as_str(), "used_clients" | "login_clients" | "used_servers"))
        }
        _ => true,
    };
    let merged = columns.iter().zip(own).map(|(name, value)| {
        if matches!(*name, "maxwait" | "maxwait_us") {
            return Some(number(waits_longest, name).to_string());
        }
        if value.as_deref().is_none_or(|text| text.parse::<u64>().is_err()) || !is_counted(name) {
            return value.clone();
        }
        let (here, there) = (number(own, name), number(other, name));
        let merged = match time_weight(topic, name) {
            None => here.saturating_add(there),
            Some(counted) => {
                let (here_count, there_count) = (number(own, counted), number(other, counted));
                let time = here.saturating_mul(here_count) + there.saturating_mul(there_count);
                let count = here_count + there_count;
                // Nothing was counted in the period, so neither average has a weight.
                time.checked_div(count).unwrap_or_else(|| here.max(there))
            }
        };
        Some(merged.to_string())
    });
    merged.collect()
}

/// Returns the count by which an average time of a row is weighted; `None` for other columns.
fn time_weight(topic: ShowTopic, column: &str) -> Option<&'static str> {
    match (topic, column) {
        (ShowTopic::Stats, "avg_xact_time") => Some("avg_xact_count"),
        (ShowTopic::Stats, "avg_query_time") => Some("avg_query_count"),
        (ShowTopic::Stats, "avg_wait_time") => Some("avg_server_assignment_count"),
        (ShowTopic::StatsAverages, "xact_time") => Some("xact_count"),
        (ShowTopic::StatsAverages, "query_time") => Some("query_count"),
        (ShowTopic::StatsAverages, "wait_time") => Some("server_assignment_count"),
        _ => None,
    }
}

impl AdminConsole {
    /// Returns the table of a topic, of all nodes together. Nodes that do not answer are left out.
    pub(super) async fn show_everywhere(&self, topic: ShowTopic) -> ShowTable {
        let mut table = self.show(topic).await;
        if relation(topic) != RowRelation::Repeated {
            for rows in self.rows_of_others(topic).await.into_iter().flatten() {
                add(topic, &mut table, rows);
            }
        }
        table
    }

    /// Returns the rows of every other node; `None` for a node that does not answer.
    async fn rows_of_others(&self, topic: ShowTopic) -> Vec<Option<Vec<TableRow>>> {
        let name = TOPICS.iter().find(|(_, of)| *of == topic).map_or("", |(name, _)| *name);
        let path = format!("{CONSOLE}/show/{name}");
        let answers = self.bouncer().peers().ask_all(&Method::GET, &path).await;
        let rows = |answer: PeerAnswer| match answer.answer? {
            // The node's version has no such table.
            (StatusCode::NOT_FOUND, _) => Some(Vec::new()),
            (StatusCode::OK, body) => serde_json::from_slice(&body).ok(),
            _ => None,
        };
        answers.into_iter().map(rows).collect()
    }

    /// Waits until other nodes have paused these tenants and closed their server connections.
    pub(super) async fn paused_elsewhere(&self, tenants: &[Arc<TenantSnapshot>]) {
        let is_meant = |row: &TableRow| {
            let name = row.get(NAME).and_then(|name| name.as_deref());
            tenants.iter().any(|tenant| name == Some(&*tenant.name))
        };
        let is = |row: &TableRow, column: usize, text: &str| {
            row.get(column).and_then(|value| value.as_deref()) == Some(text)
        };
        let is_paused = |row: &TableRow| is(row, PAUSED, "1") && is(row, CURRENT_CONNECTIONS, "0");
        loop {
            let others = self.rows_of_others(ShowTopic::Databases).await;
            let mut rows = others.iter().map(|rows| match rows {
                Some(rows) => rows.iter().filter(|row| is_meant(row)).all(is_paused),
                // The node is queried again until it answers or leaves the cluster.
                None => false,
            });
            if rows.all(|all_paused| all_paused) {
                return;
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Closes a client at another node; returns whether it existed.
    pub(super) async fn kill_elsewhere(&self, id: &str) -> bool {
        // The id is part of a path, without escaping.
        if !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return false;
        }
        let path = format!("{CONSOLE}/kill/{id}");
        let answers = self.bouncer().peers().ask_all(&Method::POST, &path).await;
        answers.into_iter().any(|answer| answer.success().is_some())
    }

    /// Returns the routes at which other nodes query the console.
    pub fn peer_routes(&self) -> Router {
        Router::new()
            .at("/peer/console/show/{topic}", get(show))
            .at("/peer/console/kill/{id}", post(kill))
            .with_state(self.clone())
    }
}

async fn show(
    State(console): State<AdminConsole>,
    Path(topic): Path<String>,
) -> Result<Json<Vec<TableRow>>, StatusCode> {
    let command = super::command::parse(&format!("show {topic}"));
    let Ok(ConsoleCommand::Show(topic)) = command else { return Err(StatusCode::NOT_FOUND) };
    Ok(Json(console.show(topic).await.into_rows()))
}

async fn kill(State(console): State<AdminConsole>, Path(id): Path<String>) -> StatusCode {
    match console.kill_client_here(&id).await {
        Ok(true) => StatusCode::NO_CONTENT,
        Ok(false) | Err(_) => StatusCode::NOT_FOUND,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pgbouncer::table::of;

    const POOLS: [&str; 6] =
        ["database", "user", "cl_active", "maxwait", "maxwait_us", "pool_mode"];
    const AVERAGES: [&str; 4] = ["database", "xact_count", "bytes_sent", "xact_time"];

    fn rows(text: &[&str]) -> Vec<TableRow> {
        text.iter().map(|row| row.split(' ').map(of).collect()).collect()
    }

    #[test]
    fn rows_about_the_same_become_one() {
        let check = |topic,
                     columns: &'static [&'static str],
                     own: &[&str],
                     other: &[&str],
                     all: &[&str]| {
            let mut table = ShowTable::new(columns).with(rows(own));
            add(topic, &mut table, rows(other));
            assert_eq!(table.into_rows(), rows(all), "{topic:?}");
        };
        check(
            ShowTopic::Pools,
            &POOLS,
            &["a u 1 2 5 session", "b u 1 0 0 session"],
            &["a u 2 1 900 session", "a v 7 1 0 session", "too short"],
            &["a u 3 2 5 session", "b u 1 0 0 session", "a v 7 1 0 session"],
        );
        // Both columns of the longest wait are of the same client.
        let waits = ["a u 2 2 900 session"];
        check(ShowTopic::Pools, &POOLS, &["a u 1 2 5 session"], &waits, &["a u 3 2 900 session"]);
        // Rates are summed; times are weighted by their counts.
        check(
            ShowTopic::StatsAverages,
            &AVERAGES,
            &["a 3 10 100", "idle 0 0 7"],
            &["a 1 5 500", "idle 0 0 0"],
            &["a 4 15 200", "idle 0 0 7"],
        );
        let lists = ["used_clients 3", "databases 2"];
        check(
            ShowTopic::Lists,
            &["list", "items"],
            &lists,
            &lists,
            &["used_clients 6", "databases 2"],
        );
        check(ShowTopic::Clients, &["type"], &["C"], &["C"], &["C", "C"]);
        check(ShowTopic::Version, &["version"], &["1"], &["2"], &["1"]);
    }
}
