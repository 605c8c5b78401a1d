//! The `schema` of a grant: the schema or search path for unqualified names.

use api::TenantEngine;

use crate::doors::FieldError;

/// Longest name of PostgreSQL, in bytes (`NAMEDATALEN`,
/// <https://www.postgresql.org/docs/current/sql-syntax-lexical.html>), and of MySQL, in characters
/// (<https://dev.mysql.com/doc/refman/8.4/en/identifier-length.html>).
const POSTGRES_NAME_BYTES_MAX: usize = 63;
const MYSQL_NAME_CHARS_MAX: usize = 64;
/// Most names of a list.
const NAMES_MAX: usize = 16;

/// MySQL's system databases, which contain password hashes.
const SYSTEM_DATABASES: [&str; 3] = ["mysql", "performance_schema", "sys"];

/// Checks that a server will accept a schema; otherwise every connection would fail later.
///
/// # Errors
/// Names the field.
pub(crate) fn check(engine: TenantEngine, schema: &str) -> Result<(), FieldError> {
    let wrong = |message: &str| Err(FieldError::new("schema", message));
    match engine {
        TenantEngine::Postgres if !is_search_path(schema) => wrong(
            "must be a list of at most 16 names of schemas, as `sales, \"$user\"`; names of other \
             than letters, digits and `_` stand in double quotes",
        ),
        TenantEngine::Mysql if !is_database(schema) => {
            wrong("must be the name of one database: at most 64 letters, digits, `_`, `$` and `-`")
        }
        TenantEngine::Mysql if is_system_database(schema) => {
            wrong("must not be a database of the server's own")
        }
        TenantEngine::Postgres | TenantEngine::Mysql => Ok(()),
    }
}

fn is_database(name: &str) -> bool {
    let is_fit = |it: char| it.is_alphanumeric() || matches!(it, '_' | '$' | '-');
    (1..=MYSQL_NAME_CHARS_MAX).contains(&name.chars().count()) && name.chars().all(is_fit)
}

fn is_system_database(name: &str) -> bool {
    SYSTEM_DATABASES.iter().any(|it| it.eq_ignore_ascii_case(name))
}

/// Returns whether a text is a list of names, in the syntax of `search_path`.
fn is_search_path(text: &str) -> bool {
    let mut rest = text;
    for _ in 0..NAMES_MAX {
        let Some((length, after)) = name(rest.trim_start_matches(' ')) else { return false };
        if !(1..=POSTGRES_NAME_BYTES_MAX).contains(&length) {
            return false;
        }
        match after.trim_start_matches(' ').strip_prefix(',') {
            Some(after) => rest = after,
            None => return after.trim_start_matches(' ').is_empty(),
        }
    }
    false
}

/// Returns the length of the name at the front of a text, and the rest of the text.
fn name(text: &str) -> Option<(usize, &str)> {
    if let Some(quoted) = text.strip_prefix('"') {
        let (name, after) = quoted.split_once('"')?;
        let is_plain = !name.chars().any(char::is_control) && !after.starts_with('"');
        return is_plain.then_some((name.len(), after));
    }
    let begins = |it: char| it.is_alphabetic() || it == '_';
    let end = text.find(|it: char| !it.is_alphanumeric() && it != '_' && it != '$');
    let (name, after) = text.split_at(end.unwrap_or(text.len()));
    name.starts_with(begins).then_some((name.len(), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_a_list_of_names() {
        for good in ["sales", "a, b,c", "\"$user\", public", "\"A b; c\" , d", "größe", "_x$1"] {
            assert_eq!(check(TenantEngine::Postgres, good), Ok(()), "{good}");
        }
        let long = "x".repeat(64);
        let many = vec!["x"; 17].join(",");
        for bad in [
            "",
            " ",
            "a,",
            ",a",
            "a b",
            "x, pg_catalog; drop",
            "a'b",
            "$user",
            "1a",
            "\"a",
            "\"\"",
            "\"a\"\"b\"",
            "\"a\nb\"",
            "a\0",
            "a\tb",
            &long,
            &many,
        ] {
            assert_eq!(check(TenantEngine::Postgres, bad).unwrap_err().field, "schema", "{bad}");
        }
    }

    #[test]
    fn a_database_is_one_name() {
        for good in ["sales", "my-shop_1", "größe", "$x"] {
            assert_eq!(check(TenantEngine::Mysql, good), Ok(()), "{good}");
        }
        let long = "x".repeat(65);
        for bad in ["", "a b", "a, b", "a`b", "a.b", "a/b", "a;b", "mysql", "SYS", &long] {
            assert_eq!(check(TenantEngine::Mysql, bad).unwrap_err().field, "schema", "{bad}");
        }
    }
}
