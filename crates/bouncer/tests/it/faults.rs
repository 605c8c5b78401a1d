//! Connections that end at any byte, on either side: only their own client notices.

use api::{PoolMode, TenantLimitsSpec, TenantSpec};
use testkit::pg::{PROTOCOL_3_0, startup};
use testkit::{Cut, Cutter, PgBatch, PgClient, Postgres, Way};

use crate::support::{Pooler, limited, message, rogue, tenant, until};

/// Transcripts of clients whose connection is cut, each with a mark of its replies. No other test
/// takes this lock.
fn transcripts(lock: u32) -> Vec<(&'static str, PgBatch)> {
    let table = "CREATE TEMP TABLE mine (text text); INSERT INTO mine VALUES ('victim')";
    vec![
        ("simple", PgBatch::new().query("SELECT 'victim'")),
        (
            "settings",
            PgBatch::new().query("SET application_name = 'victim'").query("SELECT 'victim'"),
        ),
        ("transaction", PgBatch::new().query("BEGIN").query(table).query("COMMIT")),
        (
            "extended",
            PgBatch::new()
                .parse("victim", "SELECT $1::text || 'victim'")
                .describe(b'S', "victim")
                .bind("", "victim", &[Some("the ")])
                .execute("", 0)
                .sync()
                .bind("", "victim", &[Some("a ")])
                .execute("", 0)
                .close(b'S', "victim")
                .sync(),
        ),
        (
            "failing",
            PgBatch::new()
                .parse("", "SELECT 'victim', 1 / $1::int")
                .bind("", "", &[Some("0")])
                .execute("", 0)
                .sync()
                .query("BEGIN; SELECT 1 / 0"),
        ),
        (
            "copy",
            PgBatch::new()
                .query("CREATE TEMP TABLE IF NOT EXISTS copied (text text)")
                .query("COPY copied FROM STDIN")
                .copy_data(b"victim\n")
                .copy_done()
                .query("COPY copied TO STDOUT"),
        ),
        ("lock", PgBatch::new().query(&format!("SELECT pg_advisory_lock({lock}), 'victim'"))),
    ]
}

fn one_connection(server: &Postgres) -> TenantSpec {
    let limits = TenantLimitsSpec { server_connections_max: Some(1), ..Default::default() };
    limited("t", server, PoolMode::Transaction, limits)
}

/// Checks that another client finds a server connection without traces of earlier clients.
#[expect(
    clippy::panic_in_result_fn,
    reason = "that it is not served may pass, what others left behind may not"
)]
fn check_witness(witness: &mut PgClient, number: u64) -> Result<(), String> {
    let sql = format!(
        "SELECT 'witness {number}', current_setting('application_name'), to_regclass('mine'), \
         (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())"
    );
    let answer = witness.query(&sql).map_err(|error| error.to_string())?;
    if let Some(error) = answer.error() {
        return Err(error.to_string());
    }
    let expected = [Some(format!("witness {number}")), Some(String::new()), None, Some("0".into())];
    assert_eq!(answer.letters(), "TDCZ", "{answer:?}");
    assert_eq!(answer.rows(), [expected]);
    assert_eq!(witness.status, b'I');
    let batch = PgBatch::new().bind("", "victim", &[Some("")]).sync();
    let answer = witness.ask(&batch).map_err(|error| error.to_string())?;
    assert_eq!(answer.error().expect("no statement of others").code(), "26000");
    Ok(())
}

/// Plays the transcript as far as possible; the client must not receive another client's data.
fn play(client: &mut PgClient, batch: &PgBatch) {
    if client.send(&batch.0).is_err() {
        return;
    }
    // Every message must be whole and not a witness's.
    while let Ok(message) = client.message() {
        assert!(!String::from_utf8_lossy(&message.body).contains("witness"), "{message:?}");
        if message.tag == b'Z' && client.status == b'I' {
            break;
        }
    }
}

#[test]
fn a_clients_connection_may_end_at_any_byte() {
    let server = Postgres::shared();
    let pooler = Pooler::start(1, vec![one_connection(&server)]);
    let cutter = Cutter::start(pooler.relay.addresses()[0].1);
    let mut witness = pooler.client("t");
    let hello = startup(PROTOCOL_3_0, &[("user", "app"), ("database", "t")]);
    let mut number = 0;
    for (what, batch) in transcripts(4242) {
        let forth = (hello.len() + batch.0.len()) as u64;
        // For the login, testing every byte once is enough.
        let begin = if what == "simple" { 0 } else { hello.len() as u64 };
        let cuts = (begin..=forth)
            .map(|after| Cut { way: Way::Forth, after })
            .chain((begin..700).step_by(7).map(|after| Cut { way: Way::Back, after }));
        for cut in cuts {
            cutter.plan(move |_| Some(cut));
            number += 1;
            let parameters = [("user", "app"), ("database", "t")];
            if let Ok(mut victim) = PgClient::login(&cutter.address().into(), &parameters, "") {
                play(&mut victim, &batch);
            }
            if let Err(error) = check_witness(&mut witness, number) {
                panic!("{what} {cut:?}: {error}");
            }
        }
    }
}

#[test]
fn a_servers_connection_may_end_at_any_byte() {
    let server = Postgres::shared();
    let cutter = Cutter::start(server.tcp());
    let address = cutter.address().to_string();
    let pooler = Pooler::start(1, vec![TenantSpec { server: address, ..one_connection(&server) }]);
    // A login's bytes in both directions; they were counted when a following request was answered.
    drop(pooler.client("t"));
    let mut number = 0;
    for (what, batch) in transcripts(4243) {
        // Beyond the login, whose failure makes the pool wait before it retries.
        for (way, first, last, step) in [(Way::Forth, 60, 500, 7), (Way::Back, 420, 900, 7)] {
            for after in (first..last).step_by(step) {
                cutter.cut_all();
                until("the connection is gone", || (pooler.servers() == 0).then_some(()));
                cutter.plan(move |_| Some(Cut { way, after }));
                let mut victim = pooler.client("t");
                play(&mut victim, &batch);
                drop(victim);
                cutter.plan(|_| None);
                number += 1;
                // It may get the cut connection, once.
                until(&format!("{what} {way:?} {after}: it serves again"), || {
                    check_witness(&mut pooler.client("t"), number).ok()
                });
            }
        }
    }
}

/// Returns a server's messages that let the pooler log in, and then `answer`, which is a separate
/// reply to the first request after that.
fn lets_in(answer: Option<Vec<u8>>) -> Vec<Vec<u8>> {
    let parts = [
        message(b'R', &[0; 4]),
        message(b'S', b"server_version\x0017.0\0"),
        message(b'K', &[0, 0, 0, 7, 0, 0, 0, 7]),
        message(b'Z', b"I"),
    ];
    let plain = b"N".to_vec();
    [plain, parts.concat()].into_iter().chain(answer).collect()
}

/// Returns a tenant of a server that sends this.
fn of_rogue(name: &str, says: Vec<Vec<u8>>, server: &Postgres) -> TenantSpec {
    let address = rogue(says).to_string();
    TenantSpec { server: address, ..tenant(name, server, PoolMode::Transaction) }
}

#[test]
fn who_was_to_be_greeted_by_a_connection_that_breaks_is_let_in_all_the_same() {
    let server = Postgres::shared();
    // Whether the end is noticed before the client has its turn is random; with many attempts it
    // is, once.
    let name = |number: u32| format!("short{number}");
    let tenants = (0..50).map(|number| of_rogue(&name(number), lets_in(None), &server)).collect();
    let pooler = Pooler::start(1, tenants);
    for number in 0..50 {
        let client = pooler.client(&name(number));
        assert_eq!(client.parameters["server_version"], "17.0", "{number}");
    }
}

#[test]
fn nothing_follows_a_part_of_a_message() {
    let server = Postgres::shared();
    let row = message(b'D', &[&[0, 1, 0, 0, 0, 100], &[b'x'; 100][..]].concat());
    let columns = message(b'T', &[&[0, 1, b'a', 0], &[0; 18][..]].concat());
    // In the middle of its header, of its value, and between messages.
    for (cut, last) in [(3, "TE"), (7, "T"), (60, "T"), (row.len(), "TDE")] {
        let answer = [&columns[..], &row[..cut]].concat();
        let pooler = Pooler::start(1, vec![of_rogue("t", lets_in(Some(answer)), &server)]);
        let mut client = pooler.client("t");
        client.send(&PgBatch::new().query("SELECT").0).unwrap();
        let mut letters = String::new();
        while let Ok(message) = client.message() {
            letters.push(message.tag.into());
        }
        assert_eq!(letters, last, "{cut}");
    }
}
