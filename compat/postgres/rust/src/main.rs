//! Two clients for Rust against one server: tokio-postgres and sqlx.
//!
//! Named by PGHOST, PGPORT, PGDATABASE, PGUSER and PGPASSWORD. A line of JSON for each check.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt, TryStreamExt, future, pin_mut, stream};
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::{Connection, Executor, PgConnection, Row};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, error::SqlState};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const PATIENCE: Duration = Duration::from_secs(60);

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn clients() -> usize {
    env("CLIENTS").parse().unwrap_or(16)
}

fn equal<T: PartialEq + Debug>(seen: T, expected: T) -> Result {
    if seen == expected { Ok(()) } else { Err(format!("{seen:?} is not {expected:?}").into()) }
}

async fn until<F: Future<Output = Result<bool>>>(
    what: &str,
    mut probe: impl FnMut() -> F,
) -> Result {
    for _ in 0..PATIENCE.as_secs() * 100 {
        if probe().await? {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(format!("not in time: {what}").into())
}

fn config() -> Config {
    let mut config = Config::new();
    config.host(env("PGHOST")).port(env("PGPORT").parse().unwrap());
    config.dbname(env("PGDATABASE")).user(env("PGUSER")).password(env("PGPASSWORD"));
    config.connect_timeout(Duration::from_secs(20));
    config
}

async fn connect_with(config: &Config) -> Result<Client> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

async fn connect() -> Result<Client> {
    connect_with(&config()).await
}

fn has_code(
    result: std::result::Result<impl Debug, tokio_postgres::Error>,
    code: &SqlState,
) -> Result {
    match result {
        Err(error) if error.code() == Some(code) => Ok(()),
        other => Err(format!("{other:?} is not {code:?}").into()),
    }
}

async fn tokio_statements_are_pipelined() -> Result {
    let (a, b) = (connect().await?, connect().await?);
    for turn in 0..5_i32 {
        let both = [&a, &b].into_iter().enumerate().map(|(who, client)| async move {
            let who = i32::try_from(who)?;
            let statement = client.prepare("SELECT $1::int4 + $2::int4").await?;
            let all = (0..100_i32).map(|number| {
                let statement = &statement;
                async move { client.query_one(statement, &[&number, &who]).await }
            });
            for (number, row) in (0..).zip(future::try_join_all(all).await?) {
                equal(row.get::<_, i32>(0), number + who)?;
            }
            let (bad, good) = future::join(
                client.query_one("SELECT 1 / $1::int4", &[&0_i32]),
                client.query_one("SELECT $1::int4", &[&turn]),
            )
            .await;
            has_code(bad, &SqlState::DIVISION_BY_ZERO)?;
            equal(good?.get::<_, i32>(0), turn)
        });
        future::try_join_all(both).await?;
    }
    // What it introspects of a type that it does not know.
    a.batch_execute("DROP TYPE IF EXISTS tokio_mood; CREATE TYPE tokio_mood AS ENUM ('calm')")
        .await?;
    b.query_one("SELECT 'calm'::tokio_mood", &[]).await?;
    a.batch_execute("DROP TYPE tokio_mood").await?;
    Ok(())
}

async fn tokio_statements_live_through_changes_of_tables() -> Result {
    let (a, b) = (connect().await?, connect().await?);
    a.batch_execute(
        "DROP TABLE IF EXISTS tokio_changed; CREATE TABLE tokio_changed AS SELECT 1 AS x",
    )
    .await?;
    let text = "SELECT * FROM tokio_changed";
    let mut kept = Vec::new();
    for client in [&a, &b] {
        let statement = client.prepare(text).await?;
        equal(client.query_one(&statement, &[]).await?.len(), 1)?;
        kept.push(statement);
    }
    a.batch_execute("ALTER TABLE tokio_changed ADD y int DEFAULT 2").await?;
    for (client, statement) in [&a, &b].into_iter().zip(&kept) {
        // It does not ask again what the columns are: it must be told. On another connection of a
        // shared pool the statement is prepared anew, so that there it notices by itself.
        let told = client.query_one(statement, &[]).await;
        match std::env::var("PGDATABASE").is_ok_and(|name| name.ends_with("_transaction")) {
            true => equal(told.is_err(), true)?,
            false => has_code(told, &SqlState::FEATURE_NOT_SUPPORTED)?,
        }
        equal(client.query_one(text, &[]).await?.len(), 2)?;
    }
    let mut late = connect().await?;
    let transaction = late.transaction().await?;
    equal(transaction.query_one(text, &[]).await?.len(), 2)?;
    transaction.execute("DROP TABLE tokio_changed", &[]).await?;
    transaction.commit().await?;
    Ok(())
}

async fn tokio_transactions_portals_and_copies() -> Result {
    let (mut a, b) = (connect().await?, connect().await?);
    a.batch_execute(
        "DROP TABLE IF EXISTS tokio_rows; CREATE TABLE tokio_rows (x int4 PRIMARY KEY)",
    )
    .await?;
    let mut outer = a.transaction().await?;
    let sink = outer.copy_in("COPY tokio_rows FROM STDIN").await?;
    pin_mut!(sink);
    for number in 0..10000 {
        sink.send(bytes(format!("{number}\n"))).await?;
    }
    equal(sink.as_mut().finish().await?, 10000)?;
    let inner = outer.transaction().await?;
    has_code(
        inner.execute("INSERT INTO tokio_rows VALUES (1)", &[]).await,
        &SqlState::UNIQUE_VIOLATION,
    )?;
    inner.rollback().await?;
    let portal = outer.bind("SELECT x FROM tokio_rows ORDER BY x", &[]).await?;
    let mut next = 0;
    loop {
        let rows = outer.query_portal(&portal, 700).await?;
        for row in &rows {
            equal(row.get::<_, i32>(0), next)?;
            next += 1;
        }
        if rows.is_empty() {
            break;
        }
    }
    equal(next, 10000)?;
    equal(b.query_one("SELECT count(*) FROM tokio_rows", &[]).await?.get::<_, i64>(0), 0)?;
    outer.commit().await?;
    let out: Vec<_> = b.copy_out("COPY tokio_rows TO STDOUT").await?.try_collect().await?;
    equal(out.concat().iter().filter(|byte| **byte == b'\n').count(), 10000)?;
    // A transaction that is dropped is rolled back, and so is a COPY.
    let dropped = a.transaction().await?;
    dropped.execute("DELETE FROM tokio_rows", &[]).await?;
    drop(dropped);
    drop(a.copy_in::<_, bytes::Bytes>("COPY tokio_rows FROM STDIN").await?);
    equal(a.query_one("SELECT count(*) FROM tokio_rows", &[]).await?.get::<_, i64>(0), 10000)?;
    a.batch_execute("DROP TABLE tokio_rows").await?;
    Ok(())
}

fn bytes(text: String) -> bytes::Bytes {
    text.into()
}

async fn tokio_notifications_reach_whoever_listens() -> Result {
    let (a, mut connection) = config().connect(NoTls).await?;
    let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut messages = stream::poll_fn(move |cx| connection.poll_message(cx));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(notification) = message {
                drop(tx.send(notification.payload().to_owned()));
            }
        }
    });
    let b = connect().await?;
    a.batch_execute("LISTEN tokio_channel").await?;
    for number in 0..30 {
        b.execute("SELECT pg_notify('tokio_channel', $1)", &[&number.to_string()]).await?;
    }
    for number in 0..30 {
        let payload = tokio::time::timeout(Duration::from_secs(20), rx.recv()).await?;
        equal(payload, Some(number.to_string()))?;
    }
    Ok(())
}

async fn tokio_cancels_what_it_does() -> Result {
    let (a, b) = (connect().await?, connect().await?);
    let text = "SELECT pg_sleep(60) AS tokio_cancelled";
    let token = a.cancel_token();
    let running = until("the statement to run", || async {
        let seen = b
            .query_one(
                "SELECT count(*) FROM pg_stat_activity WHERE query = $1 \
                 AND wait_event = 'PgSleep' AND datname = current_database()",
                &[&text],
            )
            .await?;
        Ok(seen.get::<_, i64>(0) > 0)
    });
    let cancel = async {
        running.await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(token.cancel_query(NoTls).await?)
    };
    let (over, cancelled) = future::join(a.batch_execute(text), cancel).await;
    cancelled?;
    has_code(over, &SqlState::QUERY_CANCELED)?;
    equal(a.query_one("SELECT 1", &[]).await?.get::<_, i32>(0), 1)
}

async fn tokio_state_of_the_session_stays() -> Result {
    let mut config = config();
    config.options("-c work_mem=3MB").application_name("tokio");
    let (a, b) = (connect_with(&config).await?, connect().await?);
    b.batch_execute("CREATE TEMP TABLE tokio_temp AS SELECT 'b' AS who").await?;
    for _ in 0..10 {
        for (name, expected) in [("work_mem", "3MB"), ("application_name", "tokio")] {
            let row = a.query_one("SELECT current_setting($1)", &[&name]).await?;
            equal(row.get::<_, String>(0).as_str(), expected)?;
        }
        equal(
            b.query_one("SELECT who FROM tokio_temp", &[]).await?.get::<_, String>(0).as_str(),
            "b",
        )?;
        has_code(a.query("SELECT who FROM tokio_temp", &[]).await, &SqlState::UNDEFINED_TABLE)?;
    }
    Ok(())
}

fn options() -> PgConnectOptions {
    PgConnectOptions::new()
        .host(&env("PGHOST"))
        .port(env("PGPORT").parse().unwrap())
        .database(&env("PGDATABASE"))
        .username(&env("PGUSER"))
        .password(&env("PGPASSWORD"))
        .ssl_mode(sqlx::postgres::PgSslMode::Disable)
}

async fn sqlx_pool_with_few_connections() -> Result {
    let count = u32::try_from(clients())?;
    let pool = PgPoolOptions::new().max_connections(count).connect_with(options()).await?;
    let all = (0..i32::try_from(count * 20)?).map(|number| {
        let pool = &pool;
        async move {
            let mut transaction = pool.begin().await?;
            sqlx::query(&format!("SET LOCAL cove.who = {number}"))
                .execute(&mut *transaction)
                .await?;
            let row = sqlx::query("SELECT current_setting('cove.who'), $1::int4 + 1")
                .bind(number)
                .fetch_one(&mut *transaction)
                .await?;
            equal(row.get::<String, _>(0), number.to_string())?;
            equal(row.get::<i32, _>(1), number + 1)?;
            transaction.commit().await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        }
    });
    future::try_join_all(all).await?;
    pool.close().await;
    Ok(())
}

async fn sqlx_statements_and_changes_of_tables() -> Result {
    let mut a = PgConnection::connect_with(&options().statement_cache_capacity(400)).await?;
    let mut b = PgConnection::connect_with(&options().statement_cache_capacity(400)).await?;
    for turn in 0..2 {
        for number in 0..300 {
            for client in [&mut a, &mut b] {
                let text = format!("SELECT $1::int4 + {number}");
                let seen: i32 = sqlx::query_scalar(&text).bind(turn).fetch_one(client).await?;
                equal(seen, turn + number)?;
            }
        }
    }
    a.execute("DROP TABLE IF EXISTS sqlx_changed; CREATE TABLE sqlx_changed AS SELECT 1 AS x")
        .await?;
    let text = "SELECT * FROM sqlx_changed";
    for client in [&mut a, &mut b] {
        equal(sqlx::query(text).fetch_one(client).await?.len(), 1)?;
    }
    a.execute("ALTER TABLE sqlx_changed ADD y int DEFAULT 2").await?;
    let mut late = PgConnection::connect_with(&options()).await?;
    let mut transaction = late.begin().await?;
    equal(sqlx::query(text).fetch_one(&mut *transaction).await?.len(), 2)?;
    transaction.commit().await?;
    a.execute("DROP TABLE sqlx_changed").await?;
    Ok(())
}

async fn sqlx_listener_and_errors() -> Result {
    let pool = PgPoolOptions::new().max_connections(3).connect_with(options()).await?;
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen_all(["sqlx_one", "sqlx_two"]).await?;
    for number in 0..20 {
        let channel = if number % 2 == 0 { "sqlx_one" } else { "sqlx_two" };
        sqlx::query("SELECT pg_notify($1, $2)")
            .bind(channel)
            .bind(number.to_string())
            .execute(&pool)
            .await?;
    }
    for number in 0..20 {
        let one = tokio::time::timeout(Duration::from_secs(20), listener.recv()).await??;
        equal(one.payload().to_owned(), number.to_string())?;
    }
    let error = sqlx::query("SELECT 1 / $1::int4").bind(0).execute(&pool).await.unwrap_err();
    equal(error.as_database_error().and_then(|error| error.code()).as_deref(), Some("22012"))?;
    let mut copy = pool.acquire().await?;
    copy.execute("CREATE TEMP TABLE sqlx_copied (x int4)").await?;
    let mut sink = copy.copy_in_raw("COPY sqlx_copied FROM STDIN").await?;
    sink.send("1\n2\n".as_bytes()).await?;
    equal(sink.finish().await?, 2)?;
    let mut sink = copy.copy_in_raw("COPY sqlx_copied FROM STDIN").await?;
    sink.send("3\n".as_bytes()).await?;
    sink.abort("no more").await?;
    let count: i64 =
        sqlx::query_scalar("SELECT count(*) FROM sqlx_copied").fetch_one(&mut *copy).await?;
    equal(count, 2)
}

async fn run(name: &str, check: impl Future<Output = Result>) -> bool {
    if let Some(wanted) = std::env::args().nth(1)
        && !name.contains(&wanted)
    {
        return true;
    }
    let error = match tokio::time::timeout(PATIENCE, check).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("{error} ({error:?})")),
        Err(_) => Some("it never ended".to_owned()),
    };
    let mut line = serde_json::json!({"check": name, "ok": error.is_none()});
    if let Some(error) = &error {
        line["error"] = error.as_str().into();
    }
    println!("{line}");
    error.is_none()
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let mut ok = true;
    macro_rules! checks {
        ($($name:ident)*) => { $(ok &= run(stringify!($name), $name()).await;)* };
    }
    checks! {
        tokio_statements_are_pipelined
        tokio_statements_live_through_changes_of_tables
        tokio_transactions_portals_and_copies
        tokio_notifications_reach_whoever_listens
        tokio_cancels_what_it_does
        tokio_state_of_the_session_stays
        sqlx_pool_with_few_connections
        sqlx_statements_and_changes_of_tables
        sqlx_listener_and_errors
    }
    if ok { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}
