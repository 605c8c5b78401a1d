//! Servers whose sessions start in an unusual SQL mode: the bouncer parses texts as the server
//! does, without additional statements.

use std::sync::Arc;

use testkit::{MariaDb, MyClient, MyLogin};

use crate::mysql_support::{Fronted, behind, front, login, prepared};

/// Capability with which drivers allow a space between a function's name and its parenthesis.
const IGNORE_SPACE: u32 = 1 << 8;

/// Text with its expected result: values, `!` and the number of an error, or `*` for no error.
type Texts = [(&'static str, &'static str)];

/// In one reading `@x` is assigned; in another the assignment is part of a string.
const ANSI_HIDES: (&str, &str) = (r#"SELECT 1 AS "\", @x := 5 AS "b" /* " */"#, "1|5");
const BACKSLASH_HIDES: (&str, &str) = (r"SELECT '\', @x := 5, 'b' /* ' */", r"\|5|b");

/// In one reading there are names or strings; in another there is a forbidden statement.
const ANSI_SHOWS: (&str, &str) = (r#"SELECT 1 AS "\", 2 AS "; KILL 7; ", 3 AS "x" -- ""#, "1|2|3");
const BACKSLASH_SHOWS: (&str, &str) = (r"SELECT '\', '; KILL 7; ', 'x' -- '", r"\|; KILL 7; |x");

fn answer(client: &mut MyClient, sql: &str) -> String {
    let answer = client.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    match answer.error() {
        Some(error) => format!("!{}", error.code),
        None => answer.rows().into_iter().flatten().flatten().collect::<Vec<_>>().join("|"),
    }
}

/// Checks that other clients do not see a client's state, on any connection; one of three is held.
fn nobody_meets(fronted: &Fronted, tenant: &str, sql: &str) {
    let mut others = [(); 2].map(|()| fronted.login(tenant));
    for other in &mut others {
        other.run("START TRANSACTION");
        assert_eq!(other.run("SELECT @x").rows(), [[None::<String>]], "{tenant}: {sql}");
    }
}

/// Checks that each text has the same result on the server itself, for a new client, and for an
/// existing one, on shared connections.
fn check((fronted, tenant): (&Fronted, &str), of: &dyn Fn(MyLogin) -> MyLogin, texts: &Texts) {
    let of_tenant = of(login(tenant));
    let mut direct = MyClient::login(&fronted.maria.address(), &of_tenant).unwrap();
    let connect = || MyClient::login(&fronted.address(), &of_tenant).unwrap();
    for (sql, expected) in texts {
        let mut stays = connect();
        assert_eq!(stays.value("SELECT 1"), "1");
        for (who, client) in
            [("directly", &mut direct), ("first", &mut connect()), ("later", &mut stays)]
        {
            let seen = answer(client, sql);
            let is_right = seen == *expected || (*expected == "*" && !seen.starts_with('!'));
            assert!(is_right, "{tenant}, {who}: {sql}: {seen}");
        }
        nobody_meets(fronted, tenant, sql);
        assert_eq!(stays.value("SELECT @@sql_mode"), direct.value("SELECT @@sql_mode"), "{tenant}");
        let statement = stays.prepare("SELECT ?").unwrap();
        let value = [testkit::MyValue::Text("prepared")];
        assert_eq!(stays.execute(&statement, &value).unwrap().value(), "prepared");
    }
}

/// Returns the number of `SET` statements that the server has run.
fn sets(maria: &MariaDb) -> String {
    maria.sql(
        "SELECT variable_value FROM information_schema.global_status \
               WHERE variable_name = 'Com_set_option'",
    )
}

#[test]
fn texts_are_read_as_the_server_reads_them() {
    let maria = Arc::new(prepared(MariaDb::start_with(&["sql_mode=ANSI_QUOTES"])));
    let names = ["ansi", "oracle", "backslash", "space", "plain"];
    let tenants = names.map(|name| behind(name, "transaction", 3).with("limits.wait_s = 20"));
    let fronted = front(Arc::clone(&maria), "", &tenants);
    let as_it_is = |login: MyLogin| login;
    // A server session uses the mode of the server at its start.
    for (name, mode, texts) in [
        ("ansi", "ANSI_QUOTES", &[ANSI_HIDES, ANSI_SHOWS, BACKSLASH_PLAIN][..]),
        (
            "oracle",
            "ORACLE",
            &[ANSI_HIDES, ANSI_SHOWS, ("BEGIN NULL; END", "*"), ("SELECT 'a' || 'b'", "ab")],
        ),
        (
            "backslash",
            "NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT",
            &[BACKSLASH_HIDES, BACKSLASH_SHOWS, ("SELECT 'a' || 'b'", "ab")],
        ),
        ("space", "IGNORE_SPACE", &[("SELECT COUNT (*) FROM seq_1_to_3", "3"), BACKSLASH_PLAIN]),
        ("plain", "", &[("SELECT COUNT (*) FROM seq_1_to_3", "!1064"), BACKSLASH_PLAIN]),
    ] {
        maria.sql(&format!("SET GLOBAL sql_mode = '{mode}'"));
        check((&fronted, name), &as_it_is, texts);
    }
    // A mode that a client requests at login applies only to that client.
    let spaced = |login: MyLogin| login.with(IGNORE_SPACE);
    check((&fronted, "plain"), &spaced, &[("SELECT COUNT (*) FROM seq_1_to_3", "3")]);
    let (mut a, mut b) = (fronted.login("ansi"), fronted.login("ansi"));
    for client in [&mut a, &mut b] {
        // Older connections have the mode that their clients know.
        assert_eq!(client.value(r#"SELECT "x" FROM (SELECT 7 AS x) t"#), "7");
    }
    let before = sets(&maria);
    for _ in 0..5 {
        for client in [&mut a, &mut b] {
            assert_eq!(client.value(r#"SELECT "x" FROM (SELECT 7 AS x) t"#), "7");
        }
    }
    assert_eq!(sets(&maria), before, "what is the same is not set");
}

/// Text that is only a string.
const BACKSLASH_PLAIN: (&str, &str) = (r"SELECT 'a\'b'", "a'b");
