//! `mysql_async`: pools, prepared statements, transactions, several results, files.
//!
//! Named by `MYSQL_HOST`, `MYSQL_PORT`, `MYSQL_DATABASE`, `MYSQL_USER` and `MYSQL_PASSWORD`. A line
//! of JSON for each check.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use mysql_async::prelude::*;
use mysql_async::{Conn, Error, Opts, OptsBuilder, Pool, PoolConstraints, PoolOpts, TxOpts};

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

fn options() -> OptsBuilder {
    OptsBuilder::default()
        .ip_or_hostname(env("MYSQL_HOST"))
        .tcp_port(env("MYSQL_PORT").parse().unwrap())
        .user(Some(env("MYSQL_USER")))
        .pass(Some(env("MYSQL_PASSWORD")))
        .db_name(Some(env("MYSQL_DATABASE")))
        .prefer_socket(false)
}

async fn connect() -> Result<Conn> {
    Ok(Conn::new(options()).await?)
}

fn pool() -> Pool {
    let limits = PoolConstraints::new(1, clients()).unwrap();
    Pool::new(Opts::from(options().pool_opts(PoolOpts::default().with_constraints(limits))))
}

fn has_code(result: std::result::Result<impl Debug, Error>, code: u16) -> Result {
    match result {
        Err(Error::Server(error)) if error.code == code => Ok(()),
        other => Err(format!("{other:?} is not {code}").into()),
    }
}

/// Runs so many tasks at once.
async fn at_once<F: Future<Output = Result> + Send + 'static>(
    count: usize,
    work: impl Fn(usize) -> F,
) -> Result {
    let tasks: Vec<_> = (0..count).map(|number| tokio::spawn(work(number))).collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

async fn statements_of_a_pool() -> Result {
    let pool = pool();
    let shared = pool.clone();
    at_once(clients() * 2, move |who| {
        let pool = shared.clone();
        async move {
            for turn in 0..20 {
                let mut client = pool.get_conn().await?;
                let sum: Option<usize> = client.exec_first("SELECT ? + ?", (who, turn)).await?;
                equal(sum, Some(who + turn))?;
                let text: Option<String> =
                    client.exec_first("SELECT CONCAT(?, 'é', ?)", ("", turn.to_string())).await?;
                equal(text, Some(format!("é{turn}")))?;
                let point: Option<usize> = client.query_first(format!("SELECT {who}")).await?;
                equal(point, Some(who))?;
            }
            Ok(())
        }
    })
    .await?;
    pool.disconnect().await?;
    Ok(())
}

async fn more_statements_than_a_connection_keeps() -> Result {
    let options = options().stmt_cache_size(400);
    let mut both = [Conn::new(options.clone()).await?, Conn::new(options).await?];
    for turn in 0..2_u32 {
        for number in 0..300_u32 {
            for client in &mut both {
                let seen: Option<u32> =
                    client.exec_first(format!("SELECT ? + {number}"), (turn,)).await?;
                equal(seen, Some(turn + number))?;
            }
        }
    }
    for client in both {
        client.disconnect().await?;
    }
    Ok(())
}

async fn a_statement_lives_through_changes_of_its_table() -> Result {
    let (mut a, mut b) = (connect().await?, connect().await?);
    a.query_drop("DROP TABLE IF EXISTS rs_changed").await?;
    a.query_drop("CREATE TABLE rs_changed AS SELECT 1 AS x").await?;
    let text = "SELECT * FROM rs_changed";
    for client in [&mut a, &mut b] {
        let row: Option<mysql_async::Row> = client.exec_first(text, ()).await?;
        equal(row.map(|row| row.len()), Some(1))?;
    }
    a.query_drop("ALTER TABLE rs_changed ADD y INT DEFAULT 2").await?;
    for client in [&mut a, &mut b] {
        let row: Option<mysql_async::Row> = client.exec_first(text, ()).await?;
        equal(row.map(|row| row.len()), Some(2))?;
    }
    a.query_drop("DROP TABLE rs_changed").await?;
    has_code(b.exec_drop(text, ()).await, 1146)
}

async fn transactions_and_errors_in_them() -> Result {
    let (mut a, mut b) = (connect().await?, connect().await?);
    a.query_drop("DROP TABLE IF EXISTS rs_rows").await?;
    a.query_drop("CREATE TABLE rs_rows (x INT PRIMARY KEY) ENGINE=InnoDB").await?;
    let count = "SELECT COUNT(*) FROM rs_rows";
    let mut transaction = a.start_transaction(TxOpts::default()).await?;
    transaction.exec_drop("INSERT INTO rs_rows VALUES (?)", (1,)).await?;
    has_code(transaction.exec_drop("INSERT INTO rs_rows VALUES (?)", (1,)).await, 1062)?;
    has_code(transaction.query_drop("SELECT nothing").await, 1054)?;
    equal(b.query_first(count).await?, Some(0))?;
    transaction.exec_drop("INSERT INTO rs_rows VALUES (?)", (2,)).await?;
    transaction.commit().await?;
    equal(b.exec_first(count, ()).await?, Some(2))?;
    let mut transaction = a.start_transaction(TxOpts::default()).await?;
    transaction.query_drop("DELETE FROM rs_rows").await?;
    // Whoever forgets a transaction takes it back.
    drop(transaction);
    equal(a.query_first(count).await?, Some(2))?;
    a.query_drop("DROP TABLE rs_rows").await?;
    Ok(())
}

async fn batches_and_numbers_that_the_server_gives() -> Result {
    let mut a = connect().await?;
    a.query_drop("DROP TABLE IF EXISTS rs_ids").await?;
    a.query_drop("CREATE TABLE rs_ids (id INT AUTO_INCREMENT PRIMARY KEY, who INT)").await?;
    a.exec_batch("INSERT INTO rs_ids (who) VALUES (?)", (0..300).map(|who| (who,))).await?;
    equal(a.query_first("SELECT COUNT(*) FROM rs_ids").await?, Some(300))?;
    at_once(clients(), |who| async move {
        let mut client = connect().await?;
        for _ in 0..10 {
            client.exec_drop("INSERT INTO rs_ids (who) VALUES (?)", (who,)).await?;
            let given = client.last_insert_id();
            equal(client.query_first("SELECT LAST_INSERT_ID()").await?, given)?;
            let text = "SELECT who FROM rs_ids WHERE id = LAST_INSERT_ID()";
            equal(client.exec_first(text, ()).await?, Some(who))?;
        }
        Ok(())
    })
    .await?;
    a.query_drop("DROP TABLE rs_ids").await?;
    Ok(())
}

async fn several_results() -> Result {
    let mut a = connect().await?;
    a.query_drop("DROP PROCEDURE IF EXISTS rs_two").await?;
    a.query_drop("CREATE PROCEDURE rs_two(n INT) BEGIN SELECT n; SELECT '', n * 2; END").await?;
    for turn in 0..5_i32 {
        let mut results = a.query_iter(format!("CALL rs_two({turn})")).await?;
        equal(results.collect::<i32>().await?, vec![turn])?;
        equal(results.collect::<(String, i32)>().await?, vec![(String::new(), turn * 2)])?;
        results.drop_result().await?;
        let mut results = a.exec_iter("CALL rs_two(?)", (turn,)).await?;
        equal(results.collect::<i32>().await?, vec![turn])?;
        equal(results.collect::<(String, i32)>().await?, vec![(String::new(), turn * 2)])?;
        results.drop_result().await?;
    }
    let mut results = a.query_iter("SELECT 1; DO 2; SELECT 3").await?;
    equal(results.collect::<i32>().await?, vec![1])?;
    results.collect::<i32>().await?;
    equal(results.collect::<i32>().await?, vec![3])?;
    results.drop_result().await?;
    has_code(a.query_drop("SELECT 1; SELECT nothing; SELECT 3").await, 1054)?;
    a.query_drop("DROP PROCEDURE rs_two").await?;
    equal(a.query_first("SELECT 4").await?, Some(4))
}

async fn large_values() -> Result {
    let mut a = connect().await?;
    for size in [(1 << 24) - 5, (1 << 24) + 11] {
        let large = vec![b'x'; size];
        equal(a.exec_first("SELECT LENGTH(?)", (large,)).await?, Some(size))?;
        let back: Option<Vec<u8>> = a.exec_first("SELECT REPEAT('y', ?)", (size,)).await?;
        equal(back.map(|back| back.len()), Some(size))?;
        let back: Option<Vec<u8>> = a.query_first(format!("SELECT REPEAT('z', {size})")).await?;
        equal(back.map(|back| back.len()), Some(size))?;
    }
    Ok(())
}

async fn state_of_sessions() -> Result {
    let mut all = Vec::new();
    for who in 0..4_u32 {
        let mut client = connect().await?;
        client.query_drop(format!("SET @who = {who}, SESSION wait_timeout = {}", 1000 + who)).await?;
        client.query_drop(format!("CREATE TEMPORARY TABLE rs_temp AS SELECT {who} AS who")).await?;
        all.push(client);
    }
    for _ in 0..5 {
        for (who, client) in (0_u32..).zip(&mut all) {
            let row = client.exec_first("SELECT @who, @@wait_timeout, who FROM rs_temp", ()).await?;
            equal(row, Some((who, 1000 + who, who)))?;
        }
    }
    for client in &mut all {
        client.reset().await?;
        has_code(client.query_drop("SELECT * FROM rs_temp").await, 1146)?;
        equal(client.query_first("SELECT @who").await?, Some(None::<u32>))?;
    }
    Ok(())
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
        statements_of_a_pool
        more_statements_than_a_connection_keeps
        a_statement_lives_through_changes_of_its_table
        transactions_and_errors_in_them
        batches_and_numbers_that_the_server_gives
        several_results
        large_values
        state_of_sessions
    }
    if ok { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}
