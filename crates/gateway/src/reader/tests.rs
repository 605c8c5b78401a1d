//! Limits, failures and sockets of readers; the protocols are tested beside real servers, in
//! `crates/cove/tests/it/gateway_data.rs`.

use serde_json::json;

use super::*;

#[tokio::test]
async fn both_ends_of_a_connection_are_this_process() {
    let (mut inner, outer) = socket_pair().await.unwrap();
    assert_eq!(inner.local_addr().unwrap(), outer.peer_addr().unwrap());
    outer.try_write(b"hello").unwrap();
    discard(&mut inner, 3).await.unwrap();
    let mut rest = [0; 2];
    inner.read_exact(&mut rest).await.unwrap();
    assert_eq!(&rest, b"lo");
}

#[test]
fn a_query_is_within_its_limits() {
    let query = |sql: &str, rows| GrantQuery {
        sql: sql.to_owned(),
        parameters: Vec::new(),
        max_rows: rows,
    };
    let field = |query: GrantQuery| checked(&query).map_err(|it| it.detail().field.clone());
    assert_eq!(field(query("SELECT 1", None)), Ok(ROWS_DEFAULT));
    assert_eq!(field(query("SELECT 1", Some(1))), Ok(1));
    for (wrong, at) in [
        (query(" \n", None), "sql"),
        (query("SELECT '\0'", None), "sql"),
        (query(&"x".repeat(SQL_BYTES_MAX + 1), None), "sql"),
        (query("SELECT 1", Some(0)), "max_rows"),
        (query("SELECT 1", Some(ROWS_MAX + 1)), "max_rows"),
        (
            GrantQuery {
                parameters: vec![json!(1); PARAMETERS_MAX + 1],
                ..query("SELECT 1", None)
            },
            "parameters",
        ),
    ] {
        assert_eq!(field(wrong), Err(Some(at.to_owned())));
    }
}

#[test]
fn a_failure_says_whose_fault_it_is() {
    for (failure, code, field) in [
        (SqlFailure::database("42601", "no".into()), ErrorCode::InvalidRequest, Some("sql")),
        (SqlFailure::parameters("no".into()), ErrorCode::InvalidRequest, Some("parameters")),
        (SqlFailure::database("53300", "full".into()).of_connection(), ErrorCode::Overloaded, None),
        (SqlFailure::Ended, ErrorCode::Overloaded, None),
    ] {
        let error = failure.answer("sql");
        assert_eq!((error.detail().code, error.detail().field.as_deref()), (code, field));
    }
}

/// Seed of a fuzz target: recorded output of a real server.
fn seed(target: &str, name: &str) -> Vec<u8> {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus");
    std::fs::read(format!("{corpus}/{target}/{name}")).unwrap()
}

#[test]
fn what_real_servers_have_sent_is_read() {
    let postgres = |name: &str| fuzzing::postgres(&seed("pg_replies", name));
    let mysql =
        |name: &str, parameters: usize| fuzzing::mysql(&seed("mysql_replies", name), parameters);
    let lake = |name: &str| fuzzing::lake_answer(&seed("lake_answers", name), 7);
    for (read, expected) in [
        (postgres("values"), r#"String("1.10"), String("AP8=")"#),
        (postgres("many"), "limit: Some(Rows)"),
        (postgres("named"), r#"type_name: "mood""#),
        (postgres("failure"), r#"code: "22012""#),
        (postgres("copy"), "COPY has no rows"),
        (postgres("refused"), "Err(Connection"),
        (mysql("values", 0), r#"String("18446744073709551615"), String("1.10")"#),
        (mysql("many", 0), "limit: Some(Rows)"),
        (mysql("prepared", 1), r#"String("18446744073709551615"), String("1.10")"#),
        (mysql("done", 0), "rows: [], limit: None"),
        (mysql("failure", 0), r#"Err(Database"#),
        (mysql("prepared_failure", 1), r#"code: "1064""#),
        (mysql("infile", 0), "Err(Database"),
        (lake("values"), "limit: Some(Rows)"),
        (lake("limit"), r#"String("DECIMAL(10,2)")"#),
        (lake("failure"), "Statement"),
        (lake("parameters"), "Parameters"),
        (lake("refused"), "Refused"),
    ] {
        assert!(read.contains(expected), "{expected}: {read}");
    }
}
