//! `cove bouncer top`: shows a server's tenants continuously.

use std::collections::HashMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::Result;
use node::clock;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use crate::cli::BouncerTopArgs;
use crate::remote::{Remote, plain};
use crate::run::print_json;
use crate::tenant::{TenantRow, admission, fetch_tenants, health};
use crate::top::draw;
use crate::values::columns;

/// Maximum characters of a name.
const NAME_CHARS_MAX: usize = 24;

pub(super) async fn watch(args: &BouncerTopArgs, server: &Remote) -> Result<()> {
    if args.json {
        return Ok(print_json(&fetch_tenants(server).await?)?);
    }
    if !io::stdout().is_terminal() {
        return Ok(write!(
            io::stdout(),
            "{}",
            text(&fetch_tenants(server).await?, &PreviousCounts::default())
        )?);
    }
    let mut ticks = interval(args.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut before = PreviousCounts::default();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = interrupts.recv() => return Ok(()),
        }
        let rows = tokio::select! {
            rows = fetch_tenants(server) => rows?,
            _ = interrupts.recv() => return Ok(()),
        };
        draw(&text(&rows, &before))?;
        before = PreviousCounts::of(&rows, clock::now());
    }
}

/// Counts at the last poll, for rates.
#[derive(Default)]
struct PreviousCounts {
    at: Option<Instant>,
    transactions: HashMap<String, u64>,
}

impl PreviousCounts {
    fn of(rows: &[TenantRow], at: Instant) -> PreviousCounts {
        let counts = rows.iter().map(|row| (row.stats.name.clone(), row.stats.transactions));
        PreviousCounts { at: Some(at), transactions: counts.collect() }
    }

    /// Transactions per second since the last poll.
    fn rate(&self, row: &TenantRow, now: Instant) -> Option<f64> {
        let before = self.transactions.get(&row.stats.name)?;
        let count = row.stats.transactions.checked_sub(*before)?;
        let time = now.duration_since(self.at?).max(Duration::from_millis(1));
        Some(f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / time.as_secs_f64())
    }
}

fn text(rows: &[TenantRow], before: &PreviousCounts) -> String {
    let now = clock::now();
    let sum = |of: fn(&TenantRow) -> u64| rows.iter().map(of).sum::<u64>();
    let mut text = format!(
        "tenants {}  clients {} ({} active, {} waiting)  connections {} ({} active, {} idle)\n\n",
        rows.len(),
        sum(|it| it.stats.clients),
        sum(|it| it.stats.clients_active),
        sum(|it| it.stats.clients_waiting),
        sum(|it| it.stats.servers),
        sum(|it| it.stats.servers_active),
        sum(|it| it.stats.servers_idle),
    );
    let heading = [
        "tenant",
        "engine",
        "state",
        "health",
        "clients",
        "waiting",
        "connections",
        "tx/s",
        "tx p50",
        "p99",
        "wait p99",
    ];
    let mut lines = vec![heading.map(str::to_owned)];
    for row in rows {
        let stats = &row.stats;
        let rate = before.rate(row, now).map_or_else(|| "-".to_owned(), |it| format!("{it:.0}"));
        let ms = |ms: f64| format!("{ms:.2} ms");
        lines.push([
            plain(&stats.name).chars().take(NAME_CHARS_MAX).collect(),
            row.tenant.spec.engine.as_str().to_owned(),
            admission(row.tenant.admission).to_owned(),
            health(row.tenant.health).to_owned(),
            stats.clients.to_string(),
            stats.clients_waiting.to_string(),
            format!("{}/{}", stats.servers, stats.server_connections_max),
            rate,
            ms(stats.transaction_ms.p50),
            ms(stats.transaction_ms.p99),
            ms(stats.wait_ms.p99),
        ]);
    }
    text.push_str(&columns(&lines, ""));
    text
}

#[cfg(test)]
mod tests {
    use api::{TenantAdmission, TenantHealth, TenantOrigin, TenantSpec, TenantStats, TenantView};

    use super::*;

    fn row(transactions: u64) -> TenantRow {
        let name = "shop".to_owned();
        let spec = TenantSpec { name: name.clone(), ..TenantSpec::default() };
        let tenant = TenantView {
            spec,
            origin: TenantOrigin::Api,
            admission: TenantAdmission::Open,
            health: TenantHealth::Healthy,
        };
        let stats = TenantStats { name, transactions, clients: 3, ..TenantStats::default() };
        TenantRow { tenant, stats }
    }

    #[test]
    fn rates_are_between_two_looks() {
        let at = clock::now();
        let before = PreviousCounts::of(&[row(100)], at);
        let rate = |count, ms| before.rate(&row(count), at + Duration::from_millis(ms));
        assert_eq!(rate(300, 2000), Some(100.0));
        assert_eq!(rate(50, 2000), None, "the server was started anew");
        assert_eq!(PreviousCounts::default().rate(&row(1), at), None);
        let text = text(&[row(1)], &PreviousCounts::default());
        assert!(text.starts_with("tenants 1  clients 3 "), "{text}");
        assert!(text.contains("shop    postgres  open   healthy  3"), "{text}");
    }
}
