//! Data behind grants, read by callers of the HTTP interface: permitted and rejected statements.
//! The statements are known exploits of other read-only servers.

use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;

use serde_json::{Value, json};
use testkit::{Client, Request, Response, Scratch, Server, until};

use crate::asynchronous::post;
use crate::gateway::{CANARY, Stage, audit, judge, patch, shop, stage};
use crate::sessions_support::{SOON, Sessions, config, path, with};
use crate::shared::finish;
use crate::support::{COVE, beside_others};

const SHOP: &str = "postgres:shop";
const JUDGE: &str = "mysql:judge";

fn target(session: &str, grant: &str, what: &str) -> String {
    format!("{}/grants/{}/{what}", path(session), grant.replace(':', "%3A"))
}

pub(crate) fn query(client: &Client, session: &str, grant: &str, body: &Value) -> Response {
    post(client, &target(session, grant, "query"), body)
}

pub(crate) fn rows(client: &Client, session: &str, grant: &str, body: &Value) -> Value {
    let answer = query(client, session, grant, body);
    assert_eq!(answer.status, 200, "{body}: {}", answer.text());
    answer.json()
}

pub(crate) fn types(result: &Value) -> Vec<String> {
    let columns = result["columns"].as_array().unwrap().iter();
    columns.map(|column| column["type"].as_str().unwrap().to_owned()).collect()
}

/// Returns the error of a rejected statement.
pub(crate) fn refusal(client: &Client, session: &str, grant: &str, sql: &str) -> String {
    let answer = query(client, session, grant, &json!({"sql": sql}));
    assert_eq!(answer.status, 400, "{sql}: {}", answer.text());
    let error = answer.json()["error"].clone();
    assert_eq!(error["field"], "sql", "{sql}: {error}");
    error["message"].as_str().unwrap().to_owned()
}

#[test]
fn values_of_postgresql_come_as_they_are() {
    let _guard = beside_others();
    let stage = stage("");
    let Stage { sessions, postgres, .. } = &stage;
    let client = stage.server.client();
    postgres.sql("CREATE TYPE mood AS ENUM ('good', 'bad')");
    let session = sessions.create(&json!({"grants": [shop("read_only")]}));
    let sql = "SELECT NULL::int AS a, 9007199254740993::int8 AS b, 1.10::numeric AS c, \
               'NaN'::float8 AS d, 0.1::float4 AS e, '\\x00ff'::bytea AS f, \
               timestamptz '2026-11-28 12:00:00.5+00' AT TIME ZONE 'UTC' AS g, \
               '{\"k\": [1, null]}'::jsonb AS h, ARRAY[1, NULL, 3] AS i, \
               ARRAY['a b', 'c\"d', NULL] AS j, 'good'::mood AS k, true AS l, \
               'ü \u{1F600}' AS m, ARRAY[]::text[] AS n, interval '1 day 2 hours' AS o, \
               $1 || '!' AS p, $2::int + 1 AS q, $3::bool AS r, $4::jsonb AS s";
    let parameters = json!(["it's; DROP TABLE items --", 41, null, {"x": [true]}]);
    let result = rows(&client, &session, SHOP, &json!({"sql": sql, "parameters": parameters}));
    assert_eq!(
        result["rows"][0],
        json!([
            null, "9007199254740993", "1.10", "NaN", 0.1, "AP8=", "2026-11-28 12:00:00.5",
            {"k": [1, null]}, [1, null, 3], ["a b", "c\"d", null], "good", true, "ü \u{1F600}",
            [], "1 day 02:00:00", "it's; DROP TABLE items --!", 42, null, {"x": [true]}
        ])
    );
    let expected = "int4 int8 numeric float8 float4 bytea timestamp jsonb int4[] text[] mood bool \
                    text text[] interval text int4 bool jsonb";
    assert_eq!(types(&result).join(" "), expected);
    assert_eq!((&result["row_count"], &result["truncated"]), (&json!(1), &json!(false)));
    // Recorded like a program's statement, without its values.
    let records = audit(&client, &session, |record| record["event"] == "statement");
    let text = records.iter().find(|it| it["event"] == "statement").unwrap()["text"].to_string();
    assert!(text.contains("SELECT ?") || text.contains("SELECT NULL"), "{text}");
    assert!(!text.contains("good"), "{text}");
    assert_eq!(records[0]["event"], "granted", "{records:?}");
}

#[test]
fn values_of_mysql_are_the_same_with_and_without_parameters() {
    let _guard = beside_others();
    let stage = stage("");
    let Stage { sessions, mariadb, .. } = &stage;
    let client = stage.server.client();
    mariadb.sql(
        "CREATE TABLE judge.kinds (a bigint unsigned, b decimal(10,2), c double, d blob, \
         e datetime(3), f date, g time, h varchar(20) CHARACTER SET utf8mb4, i tinyint(1), \
         j enum('x','y'), k int, l bit(9), m float, n year); \
         INSERT INTO judge.kinds VALUES (18446744073709551615, 1.10, 0.25, x'00ff', \
         '2026-11-28 12:00:00.5', '2026-11-28', '-25:00:01', 'ü', 1, 'y', NULL, b'100000001', \
         1.5, 2026)",
    );
    let session = sessions.create(&json!({"grants": [judge()]}));
    let expected = json!([
        "18446744073709551615",
        "1.10",
        0.25,
        "AP8=",
        "2026-11-28 12:00:00.500",
        "2026-11-28",
        "-25:00:01",
        "ü",
        1,
        "y",
        null,
        257,
        1.5,
        2026
    ]);
    let plain = rows(&client, &session, JUDGE, &json!({"sql": "SELECT * FROM kinds"}));
    assert_eq!(plain["rows"][0], expected);
    let body = json!({
        "sql": "SELECT kinds.* FROM kinds WHERE 1 = ? AND 'it''s' = ? AND ? IS NULL AND 0.5 = ? \
                AND ? = '[1]'",
        "parameters": [1, "it's", null, 0.5, [1]],
    });
    let prepared = rows(&client, &session, JUDGE, &body);
    let microseconds = prepared["rows"][0][4].as_str().unwrap();
    assert!(microseconds.starts_with("2026-11-28 12:00:00.500"), "{microseconds}");
    let mut same = prepared.clone();
    same["rows"][0][4] = expected[4].clone();
    assert_eq!(same["rows"][0], expected);
    assert_eq!(types(&prepared), types(&plain));
    let expected = "bigint unsigned,decimal,double,blob,datetime,date,time,varchar,tinyint,enum,\
                    int,bit,float,year";
    assert_eq!(types(&plain).join(","), expected);
    let wrong = json!({"sql": "SELECT ?", "parameters": [1, 2]});
    let wrong = query(&client, &session, JUDGE, &wrong);
    assert_eq!((wrong.status, &wrong.json()["error"]["field"]), (400, &json!("parameters")));
}

#[test]
fn nobody_writes_to_postgresql_through_a_query() {
    let _guard = beside_others();
    let stage = stage("");
    let Stage { sessions, postgres, .. } = &stage;
    let client = stage.server.client();
    postgres.sql(
        "CREATE FUNCTION wipe() RETURNS int LANGUAGE sql AS 'DELETE FROM items RETURNING 1'; \
         CREATE FUNCTION sly() RETURNS int LANGUAGE plpgsql AS $$ BEGIN \
         PERFORM set_config('transaction_read_only', 'off', false); \
         DELETE FROM items; RETURN 1; END $$; GRANT CREATE ON SCHEMA public TO clerk",
    );
    // Regardless of its programs' write access.
    for access in ["read_only", "read_write"] {
        let session = sessions.create(&json!({"grants": [shop(access)]}));
        for sql in [
            "DELETE FROM items",
            "/* SELECT */ DELETE FROM items",
            "-- SELECT\nDELETE FROM items",
            "SELECT 1; DELETE FROM items",
            "COMMIT; DELETE FROM items",
            "ROLLBACK; BEGIN READ WRITE; DELETE FROM items; COMMIT",
            "BEGIN; DELETE FROM items; COMMIT",
            "SET default_transaction_read_only = off",
            "SET TRANSACTION READ WRITE",
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
            "SELECT set_config('default_transaction_read_only', 'off', false)",
            "BEGIN READ WRITE",
            "START TRANSACTION READ WRITE",
            "WITH gone AS (DELETE FROM items RETURNING *) SELECT count(*) FROM gone",
            "EXPLAIN ANALYZE DELETE FROM items",
            "SELECT wipe()",
            "SELECT sly()",
            "SELECT * INTO stolen FROM items",
            "CREATE TABLE stolen AS SELECT * FROM items",
            "SELECT name FROM items FOR UPDATE",
            "DO $$ BEGIN DELETE FROM items; END $$",
            "CALL nothing()",
            "COPY items FROM STDIN",
            "COPY items TO STDOUT",
            "COPY items TO '/tmp/stolen'",
            "SELECT lo_from_bytea(0, 'x')",
            "SELECT pg_advisory_lock(1)",
            "SELECT pg_notify('a', 'b')",
            "SELECT query_to_xml('DELETE FROM items RETURNING 1', true, true, '')",
            "SELECT * FROM pg_stat_activity",
            "SELECT rolpassword FROM pg_authid",
            "SELECT pg_read_file('/etc/passwd')",
            "LISTEN a",
            "VACUUM items",
            "LOCK TABLE items IN EXCLUSIVE MODE",
        ] {
            refusal(&client, &session, SHOP, sql);
            let left = postgres.sql("SELECT count(*) FROM items WHERE name LIKE 'item %'");
            assert_eq!(left, "100", "{access}: {sql}");
        }
        assert_eq!(postgres.sql("SELECT to_regclass('stolen') IS NULL"), "t");
        // Harmless statements still work, even after the others; a connection serves one statement.
        let prepared = json!({"sql": "PREPARE x AS DELETE FROM items"});
        assert_eq!(query(&client, &session, SHOP, &prepared).status, 200);
        assert_eq!(query(&client, &session, SHOP, &json!({"sql": "EXECUTE x"})).status, 400);
        let count = json!({"sql": "SELECT count(*) AS c FROM items; "});
        assert_eq!(rows(&client, &session, SHOP, &count)["rows"], json!([[100]]));
        // A program in the sandbox still has the rights of its grant.
        let inside = "psql -qAt -c \"UPDATE items SET name = name WHERE id = 1\"";
        let ended = sessions.exec(&session, inside)["exit_code"] == 0;
        assert_eq!(ended, access == "read_write", "{access}");
        let records = audit(&client, &session, |record| {
            record["text"]
                == "WITH gone AS (DELETE FROM items RETURNING *) SELECT count(*) FROM gone"
        });
        let text = "DELETE FROM items";
        let found = records.iter().find(|record| record["text"] == text).expect("a record");
        assert_ne!(found["outcome"], "done", "{found}");
        sessions.end(&session);
    }
}

#[test]
fn nobody_writes_to_mysql_through_a_query() {
    let _guard = beside_others();
    let stage = stage("");
    let Stage { sessions, mariadb, .. } = &stage;
    let client = stage.server.client();
    for access in ["read_only", "read_write"] {
        let session =
            sessions.create(&json!({"grants": [with(judge(), &json!({"access": access}))]}));
        for sql in [
            "DELETE FROM answers",
            "/*!40000 DELETE FROM answers */",
            "SELECT 1; DELETE FROM answers",
            "COMMIT; DELETE FROM answers",
            "SET SESSION TRANSACTION READ WRITE",
            "SET @@session.tx_read_only = 0",
            "START TRANSACTION READ WRITE",
            "SELECT * FROM answers INTO OUTFILE '/tmp/stolen'",
            "SELECT * FROM answers INTO DUMPFILE '/tmp/stolen'",
            "PREPARE x FROM 'DELETE FROM answers'; EXECUTE x",
            "EXECUTE IMMEDIATE CONCAT('DELETE FROM ', 'answers')",
            "EXECUTE IMMEDIATE 'DELETE FROM answers'",
            "BEGIN NOT ATOMIC DELETE FROM answers; END",
            "SELECT * FROM answers FOR UPDATE",
            "SELECT GET_LOCK('a', 1)",
            "SELECT LOAD_FILE('/etc/passwd')",
            "LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE answers",
            "CREATE TABLE stolen AS SELECT 1",
            "CALL nothing()",
            "SHOW PROCESSLIST",
            "SET GLOBAL read_only = 0",
        ] {
            refusal(&client, &session, JUDGE, sql);
            let left = mariadb.sql("SELECT GROUP_CONCAT(answer) FROM judge.answers");
            assert_eq!(left, "forty-two", "{access}: {sql}");
        }
        let parameters = json!({"sql": "DELETE FROM answers WHERE id = ?", "parameters": [1]});
        assert_eq!(query(&client, &session, JUDGE, &parameters).status, 400);
        assert_eq!(mariadb.sql("SHOW TABLES IN judge"), "answers");
        let read = json!({"sql": "SELECT answer FROM answers WHERE id = ?", "parameters": [1]});
        assert_eq!(rows(&client, &session, JUDGE, &read)["rows"], json!([["forty-two"]]));
    }
}

#[test]
fn a_result_is_within_its_limits() {
    let _guard = beside_others();
    let stage = stage("");
    let Stage { sessions, .. } = &stage;
    let client = stage.server.client();
    let limits = json!({"limits": {"rows": 5000, "statement_s": 1}});
    let grants = json!([with(shop("read_only"), &limits), with(judge(), &limits)]);
    let session = sessions.create(&json!({"grants": grants}));
    for (grant, many, wide) in [
        (
            SHOP,
            "SELECT generate_series(1, 4000) AS x",
            "SELECT repeat('x', 1000000) AS x FROM generate_series(1, 20)",
        ),
        (
            JUDGE,
            "SELECT seq AS x FROM seq_1_to_4000",
            "SELECT repeat('x', 1000000) AS x FROM seq_1_to_20",
        ),
    ] {
        let ask = |sql: &str, rows: u32| json!({"sql": sql, "max_rows": rows});
        let few = rows(&client, &session, grant, &ask(many, 3));
        assert_eq!(few["rows"], json!([[1], [2], [3]]), "{grant}");
        assert_eq!((&few["truncated"], &few["limit"]), (&json!(true), &json!("rows")), "{grant}");
        let all = rows(&client, &session, grant, &ask(many, 4000));
        assert_eq!((&all["row_count"], &all["truncated"]), (&json!(4000), &json!(false)));
        let bytes = rows(&client, &session, grant, &ask(wide, 100));
        assert_eq!((&bytes["row_count"], &bytes["limit"]), (&json!(4), &json!("bytes")), "{grant}");
        let huge = ask("SELECT repeat('x', 9000000) AS x", 1);
        let huge = rows(&client, &session, grant, &huge);
        assert_eq!((&huge["row_count"], &huge["limit"]), (&json!(0), &json!("bytes")), "{grant}");
        // The grant's own limits.
        let beyond = many.replace("4000", "9000");
        let beyond = query(&client, &session, grant, &ask(&beyond, 9000));
        assert_eq!(beyond.status, 400, "{}", beyond.text());
        assert!(beyond.text().contains("rows"), "{}", beyond.text());
        for wrong in [json!({"sql": ""}), ask("SELECT 1", 0), ask("SELECT 1", 10_001)] {
            assert_eq!(query(&client, &session, grant, &wrong).status, 400, "{wrong}");
        }
        let unknown = json!({"sql": "SELECT 1", "access": "read_write"});
        assert_eq!(query(&client, &session, grant, &unknown).status, 400);
    }
    // A truncated result is recorded as done, with the row that showed that there are more.
    let text = "SELECT generate_series(?, ?) AS x";
    let cut = |record: &Value| record["text"] == text && record["rows"] == 4;
    let records = audit(&client, &session, cut);
    let cut = records.iter().find(|record| cut(record)).unwrap();
    assert_eq!((&cut["outcome"], &cut["grant"]), (&json!("done"), &json!(SHOP)), "{cut}");
    let slow = query(&client, &session, SHOP, &json!({"sql": "SELECT pg_sleep(600)"}));
    assert!(slow.status == 400 && slow.text().contains("57014"), "{}", slow.text());
    let slow = query(&client, &session, JUDGE, &json!({"sql": "SELECT SLEEP(600)"}));
    // When MariaDB's function is interrupted, it returns instead of failing.
    assert!(slow.status == 400 || slow.text().contains("\"rows\":[[1]]"), "{}", slow.text());
}

/// Returns the numbers of statements that run in the databases.
fn busy(stage: &Stage) -> (String, String) {
    let postgres = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'clerk' \
                    AND state = 'active' AND query LIKE '%pg_sleep%'";
    let mariadb = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'judge' \
                   AND info LIKE '%SLEEP%'";
    (stage.postgres.sql(postgres), stage.mariadb.sql(mariadb))
}

/// Starts a query on a connection that can be closed.
pub(crate) fn begin_query(server: &Server, session: &str, grant: &str, sql: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.client().address()).unwrap();
    let body = json!({"sql": sql}).to_string();
    write!(
        stream,
        "POST {} HTTP/1.1\r\nhost: cove\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        target(session, grant, "query"),
        server.token(),
        body.len()
    )
    .unwrap();
    stream
}

fn begin(stage: &Stage, session: &str, grant: &str, sql: &str) -> TcpStream {
    begin_query(&stage.server, session, grant, sql)
}

fn wait_for_busy(stage: &Stage, expected: (&str, &str)) {
    until("statements in the databases", SOON, || {
        let (postgres, mariadb) = busy(stage);
        match (postgres.as_str(), mariadb.as_str()) == expected {
            true => Ok(()),
            false => Err(format!("{postgres}, {mariadb}")),
        }
    });
}

#[test]
fn a_caller_that_leaves_ends_its_statement_and_so_does_taking_the_grant_back() {
    let _guard = beside_others();
    let stage = stage("");
    let Stage { sessions, .. } = &stage;
    let client = stage.server.client();
    let session = sessions.create(&json!({"grants": [shop("read_write"), judge()]}));
    let one = begin(&stage, &session, SHOP, "SELECT pg_sleep(600)");
    let two = begin(&stage, &session, JUDGE, "SELECT SLEEP(600)");
    wait_for_busy(&stage, ("1", "1"));
    drop((one, two));
    wait_for_busy(&stage, ("0", "0"));
    // The tenant's connections are available again.
    let again = json!({"sql": "SELECT 1 AS x"});
    for grant in [SHOP, JUDGE] {
        assert_eq!(rows(&client, &session, grant, &again)["rows"], json!([[1]]));
    }
    // Revoking a grant ends its running statements, and it no longer exists.
    let _one = begin(&stage, &session, SHOP, "SELECT pg_sleep(600)");
    let _two = begin(&stage, &session, JUDGE, "SELECT SLEEP(600)");
    wait_for_busy(&stage, ("1", "1"));
    let taken = patch(&client, &session, &json!({"grants": []}));
    assert_eq!(taken.status, 200, "{}", taken.text());
    wait_for_busy(&stage, ("0", "0"));
    for grant in [SHOP, JUDGE, "5432"] {
        let gone = query(&client, &session, grant, &again);
        assert_eq!((gone.status, &gone.json()["error"]["code"]), (404, &json!("not_found")));
    }
    sessions.end(&session);
    assert_eq!(query(&client, &session, SHOP, &again).status, 410);
}

#[test]
fn queries_are_few_at_a_time_and_only_of_the_sessions_own_tenant() {
    let _guard = beside_others();
    let stage = stage("");
    let Stage { sessions, server, .. } = &stage;
    let client = server.client();
    let session = sessions.create(&json!({"grants": [shop("read_only")]}));
    let one = json!({"sql": "SELECT 1 AS x"});
    assert_eq!(query(&client, &session, SHOP, &one).status, 200);
    let other = server.other_client("other", &["--scope", "sessions"]);
    assert_eq!(query(&other, &session, SHOP, &one).status, 404);
    assert_eq!(other.get(&target(&session, SHOP, "describe")).status, 404);
    let runner = server.other_client("runner", &["--scope", "executions"]);
    assert_eq!(query(&runner, &session, SHOP, &one).status, 403);
    // A token has no grants that were not offered to it.
    let theirs = post(&other, "/v1/sessions", &json!({"grants": [shop("read_only")]}));
    assert_eq!(theirs.status, 403, "{}", theirs.text());
    let empty = post(&other, "/v1/sessions", &json!({})).json();
    let empty = empty["id"].as_str().unwrap();
    for grant in [SHOP, "postgres:judge", "5432", "..", "%2e%2e%2f", "postgres:shop%00"] {
        assert_eq!(query(&other, empty, grant, &one).status, 404, "{grant}");
    }
    let all: Vec<TcpStream> =
        (0..4).map(|_| begin(&stage, &session, SHOP, "SELECT pg_sleep(600)")).collect();
    // With the first query's, five connections have logged in.
    until("connections of all of them", SOON, || {
        let records = client.get(&format!("/v1/audit?holder={session}&event=connect")).json();
        match records["records"].as_array().map(Vec::len) {
            Some(5) => Ok(()),
            count => Err(format!("{count:?}")),
        }
    });
    let refused = query(&client, &session, SHOP, &one);
    assert_eq!(refused.status, 429, "{}", refused.text());
    drop(all);
    wait_for_busy(&stage, ("0", "0"));
    // Two grants with the same name are distinguished by their ports.
    let two = json!([shop("read_only"), with(shop("read_write"), &json!({"port": 5433}))]);
    let session = sessions.create(&json!({"grants": two}));
    let unclear = query(&client, &session, SHOP, &one);
    assert!(unclear.status == 400 && unclear.text().contains("5432 or 5433"), "{}", unclear.text());
    assert_eq!(query(&client, &session, "5433", &one).status, 200);
}

fn describe(client: &Client, session: &str, grant: &str, name: Option<&str>) -> Value {
    let name = name.map(|name| format!("?name={name}")).unwrap_or_default();
    let answer = client.get(&format!("{}{name}", target(session, grant, "describe")));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn names(described: &Value) -> Vec<&str> {
    let objects = described["objects"].as_array().unwrap().iter();
    objects.map(|object| object["name"].as_str().unwrap()).collect()
}

#[test]
fn tables_are_described_as_the_role_sees_them() {
    let _guard = beside_others();
    let stage = stage("");
    let Stage { sessions, postgres, mariadb, .. } = &stage;
    let client = stage.server.client();
    postgres.sql(
        "CREATE TABLE orders (id int PRIMARY KEY, item int NOT NULL, total numeric(10,2) \
         DEFAULT 0, note text); COMMENT ON COLUMN orders.note IS 'why'; \
         CREATE VIEW totals AS SELECT sum(total) FROM orders; CREATE TABLE hidden (id int); \
         GRANT SELECT ON orders, totals TO clerk",
    );
    mariadb.sql(
        "CREATE TABLE judge.runs (id int PRIMARY KEY, answer int NOT NULL, \
         note varchar(20) DEFAULT 'x' COMMENT 'why', UNIQUE KEY u (answer, note))",
    );
    let session = sessions.create(&json!({"grants": [shop("read_only"), judge()]}));
    let all = describe(&client, &session, SHOP, None);
    assert_eq!(names(&all), ["public.items", "public.orders", "public.totals"], "{all}");
    assert_eq!(all["objects"][2]["kind"], "view");
    for name in ["orders", "public.orders"] {
        let one = describe(&client, &session, SHOP, Some(name));
        let orders = &one["objects"][0];
        assert_eq!(orders["constraints"], json!(["PRIMARY KEY (id)"]), "{one}");
        assert_eq!(
            orders["columns"],
            json!([
                {"name": "id", "type": "integer", "nullable": false},
                {"name": "item", "type": "integer", "nullable": false},
                {"name": "total", "type": "numeric(10,2)", "nullable": true, "default": "0"},
                {"name": "note", "type": "text", "nullable": true, "comment": "why"},
            ])
        );
    }
    for name in ["hidden", "nothing", "x'--", "pg_authid"] {
        let found = client.get(&format!("{}?name={name}", target(&session, SHOP, "describe")));
        assert_eq!(found.status, 404, "{name}: {}", found.text());
    }
    let all = describe(&client, &session, JUDGE, None);
    assert_eq!(names(&all), ["judge.answers", "judge.runs"], "{all}");
    for name in ["runs", "judge.runs"] {
        let one = describe(&client, &session, JUDGE, Some(name));
        let runs = &one["objects"][0];
        assert_eq!(runs["constraints"], json!(["PRIMARY KEY (id)", "UNIQUE (answer, note)"]));
        assert_eq!(
            runs["columns"][2],
            json!({"name": "note", "type": "varchar(20)", "nullable": true, "default": "'x'",
                "comment": "why"})
        );
    }
    // The same from the command line.
    let command = |arguments: &[&str]| {
        let mut command = Command::new(COVE);
        command.args(["session", "sql", &session]).args(arguments);
        command.env("COVE_URL", format!("http://{}", client.address()));
        finish(command.env("COVE_TOKEN", stage.server.token()))
    };
    assert!(command(&[SHOP]).contains("table public.orders\n"));
    assert!(command(&[SHOP, "--describe", "orders"]).contains("  total numeric(10,2)\n"));
    let sql = "SELECT id, name FROM items WHERE id = $1";
    assert_eq!(command(&[SHOP, sql, "7"]), "id  name\n7   item 7\n");
}

#[test]
fn tables_of_a_warehouse_are_described_and_queries_say_which_packages_are_missing() {
    let _guard = beside_others();
    let scratch = Scratch::new();
    let settings = format!(
        "{}[catalog]\nwarehouse = \"lake\"\nroot = \"{}\"\n",
        config(""),
        scratch.path().join("lake").display()
    );
    let server = Server::start_with(COVE, &[], Some(&settings));
    let sessions = Sessions::from(&server);
    let client = server.client();
    let lake = json!({"kind": "catalog", "warehouse": "lake"});
    let writes = with(lake.clone(), &json!({"access": "read_write"}));
    let writer = sessions.create(&json!({"grants": [writes]}));
    let made = |place: &str, body: &Value| {
        let command = format!(
            "curl -sf -H 'content-type: application/json' -d '{body}' \
             http://127.0.0.1:8181/v1/lake/{place}"
        );
        assert_eq!(sessions.exec(&writer, &command)["exit_code"], 0, "{place}");
    };
    for namespace in [json!(["shop"]), json!(["shop", "old"]), json!(["other"])] {
        made("namespaces", &json!({"namespace": namespace}));
    }
    let schema = json!({"type": "struct", "schema-id": 0, "fields": [
        {"id": 1, "name": "id", "required": true, "type": "long"},
        {"id": 2, "name": "at", "required": false, "type": "timestamptz", "doc": "when"},
    ]});
    let spec = json!({"spec-id": 0, "fields": [
        {"source-id": 2, "field-id": 1000, "name": "day", "transform": "day"}]});
    made(
        "namespaces/shop/tables",
        &json!({"name": "orders", "schema": schema, "partition-spec": spec}),
    );
    let session =
        sessions.create(&json!({"grants": [with(lake, &json!({"namespaces": ["shop"]}))]}));
    let grant = "catalog:lake";
    let all = describe(&client, &session, grant, None);
    assert_eq!(names(&all), ["shop", "shop.orders"], "{all}");
    let inner = describe(&client, &session, grant, Some("shop"));
    assert_eq!(names(&inner), ["shop.orders", "shop.old"], "{inner}");
    let one = describe(&client, &session, grant, Some("shop.orders"));
    let orders = &one["objects"][0];
    assert_eq!(
        orders["columns"],
        json!([
            {"name": "id", "type": "long", "nullable": false},
            {"name": "at", "type": "timestamptz", "nullable": true, "comment": "when"},
        ])
    );
    assert_eq!(orders["partitions"], json!(["day(at)"]), "{one}");
    assert_eq!(orders["snapshots"], json!({"count": 0}), "{one}");
    for name in ["other", "other.t", "shop.nothing", "..", "a/../../management"] {
        let found = client.get(&format!("{}?name={name}", target(&session, grant, "describe")));
        assert_eq!(found.status, 404, "{name}: {}", found.text());
    }
    let refused = query(&client, &session, grant, &json!({"sql": "SELECT 1"}));
    assert!(refused.status == 409 && refused.text().contains("pyiceberg"), "{}", refused.text());
    audit(&client, &session, |record| {
        record["text"]
            .as_str()
            .is_some_and(|text| text.starts_with("GET ") && text.contains("orders"))
    });
    // Grants without data are rejected too.
    let http = json!({"kind": "http", "rules": [{"hosts": ["a.example"]}]});
    let session = sessions.create(&json!({"grants": [http]}));
    assert_eq!(query(&client, &session, "http", &json!({"sql": "SELECT 1"})).status, 400);
    assert_eq!(
        client.send(&Request::new("GET", &target(&session, "http", "describe"))).status,
        400
    );
    assert!(!all.to_string().contains(CANARY));
}
