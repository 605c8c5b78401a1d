//! Clients of the pooler: each has one connection and runs transactions that read and write.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio_postgres::{Client, Config, NoTls};

use super::super::database::DatabaseLogin;
use super::super::{DEMO, database};
use super::meter::LoadMeter;
use super::requests;
use crate::config::CoveConfig;
use crate::remote::{self, Remote};

/// Name of the pooler's listener in the addresses file.
const LISTENER: &str = "bouncer";
/// Table that clients write to, one row each.
const TABLE: &str = "demo_load";
/// Clients that log in concurrently.
const LOGINS_MAX: usize = 2;
/// Number of orders that are read.
const ORDERS: u64 = 600;
/// Number of writing transactions out of ten.
const WRITES_OF_TEN: u64 = 3;

/// Returns the reason why clients cannot run; none if they can.
pub(super) async fn lacks(server: &Remote, config: &CoveConfig) -> Result<Option<String>> {
    if let Some(why) = requests::lacks_tenant(server).await? {
        return Ok(Some(why));
    }
    Ok(place(config).err().map(|error| format!("{error:#}")))
}

/// Returns the pooler's address and the clients' login.
fn place(config: &CoveConfig) -> Result<DemoPooler> {
    let login = database::login(&config.data_dir)?.with_context(|| {
        format!(
            "`{}` has no PostgreSQL server of the demo's: name the server's directory with \
             --data-dir (a database of --postgres is not written to)",
            config.data_dir.display()
        )
    })?;
    let address = remote::listener_in(&config.data_dir, LISTENER).with_context(|| {
        format!("the server of `{}` does not pool PostgreSQL", config.data_dir.display())
    })?;
    Ok(DemoPooler { address, login })
}

/// Pooler of the demo's database, with its login.
struct DemoPooler {
    address: SocketAddr,
    login: DatabaseLogin,
}

/// Login of clients, and a limit of concurrent logins: deriving a key from the password blocks the
/// thread on which everything else runs.
struct ClientPlace {
    database: DemoPooler,
    logins: Semaphore,
}

/// Connects; the connection is driven while the future of `act` runs.
async fn connected<T>(
    database: &DemoPooler,
    logins: &Semaphore,
    act: impl AsyncFnOnce(&mut Client) -> Result<T>,
) -> Result<T> {
    let DemoPooler { address, login } = database;
    let mut config = Config::new();
    config.host(address.ip().to_string()).port(address.port());
    config.dbname(DEMO).user(&login.user).password(&login.password).application_name(super::LOAD);
    let permit = logins.acquire().await?;
    let (mut client, connection) = config.connect(NoTls).await.context("connect to the pooler")?;
    drop(permit);
    tokio::select! {
        outcome = act(&mut client) => outcome,
        ended = connection => {
            ended.context("the pooler's connection")?;
            anyhow::bail!("the pooler has closed the connection")
        }
    }
}

/// Clients that run transactions until they are dropped.
pub(super) async fn clients(
    config: &CoveConfig,
    count: u32,
    meter: &LoadMeter,
) -> Result<impl Future<Output = ()>> {
    let place = ClientPlace { database: place(config)?, logins: Semaphore::new(LOGINS_MAX) };
    let sql = format!(
        "DROP TABLE IF EXISTS {TABLE}; \
         CREATE TABLE {TABLE} (client bigint PRIMARY KEY, writes bigint NOT NULL)"
    );
    connected(&place.database, &place.logins, async |client| {
        Ok(client.batch_execute(&sql).await?)
    })
    .await?;
    Ok(async move {
        let place = &place;
        join_all((0..count).map(|number| serve(place, number, meter))).await;
    })
}

/// Runs a client, which reconnects when its connection is lost.
async fn serve(place: &ClientPlace, number: u32, meter: &LoadMeter) {
    let mut state = u64::from(number) + 1;
    loop {
        meter.pace().await;
        let work = connected(&place.database, &place.logins, async |client| {
            loop {
                let draw = random(&mut state);
                if !meter.measure(transaction(client, number, draw)).await {
                    return Ok(());
                }
                meter.pace().await;
            }
        });
        let lost: Result<()> = work.await;
        if lost.is_err() {
            meter.measure(async { lost }).await;
        }
    }
}

/// Reads an order, and in some transactions increments the client's own row.
async fn transaction(client: &mut Client, number: u32, draw: u64) -> Result<()> {
    let order = i64::try_from(draw % ORDERS + 1)?;
    let transaction = client.transaction().await?;
    let read = "SELECT c.city, o.total::text FROM orders o JOIN customers c ON c.id = o.customer \
                WHERE o.id = $1";
    transaction.query_one(read, &[&order]).await?;
    if draw / ORDERS % 10 < WRITES_OF_TEN {
        let write = format!(
            "INSERT INTO {TABLE} VALUES ($1, 1) \
             ON CONFLICT (client) DO UPDATE SET writes = {TABLE}.writes + 1"
        );
        transaction.execute(write.as_str(), &[&i64::from(number)]).await?;
    }
    Ok(transaction.commit().await?)
}

/// Returns the next number of a sequence that need not be unpredictable
/// (<https://www.jstatsoft.org/article/view/v008i14>).
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 11
}

/// Drops the table that clients wrote to.
pub(super) async fn remove(config: &CoveConfig) -> Result<()> {
    let sql = format!("DROP TABLE IF EXISTS {TABLE}");
    let logins = Semaphore::new(1);
    connected(&place(config)?, &logins, async |client| Ok(client.batch_execute(&sql).await?)).await
}
