//! `auth_file`: names and passwords in double quotes, one user a line.
//!
//! # References
//! - <https://www.pgbouncer.org/config.html#authentication-file-format>

use super::ini::until_quote;

/// Maximum length of a password, as in PgBouncer (tokens of cloud providers are long).
pub const PASSWORD_BYTES_MAX: usize = 65_535;

/// Parses the users of the file, in its order; the password is kept as written: plain, `md5…` or
/// `SCRAM-SHA-256$…`.
///
/// # Errors
/// The number of the first line that cannot be parsed; never its content.
pub fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut users = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with([';', '#']) {
            continue;
        }
        let pair = user(line).ok_or_else(|| {
            format!(
                "line {}: not \"user\" \"password\" of at most {PASSWORD_BYTES_MAX} bytes",
                index + 1
            )
        })?;
        users.push(pair);
    }
    Ok(users)
}

/// Parses the first two fields. The rest of a line is ignored.
fn user(line: &str) -> Option<(String, String)> {
    let (name, rest) = until_quote(line.strip_prefix('"')?, '"')?;
    let (password, _) = until_quote(rest.trim_start().strip_prefix('"')?, '"')?;
    (!name.is_empty() && password.len() <= PASSWORD_BYTES_MAX).then_some((name, password))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_read_and_wrong_lines_counted() {
        let text = "; people\n\"ann\" \"a\"\"b\" more\n\n\"bob\"\t\"\"\n";
        let pairs = [("ann".to_owned(), "a\"b".to_owned()), ("bob".to_owned(), String::new())];
        assert_eq!(parse(text).unwrap(), pairs);
        for wrong in ["ann \"x\"", "\"ann\"", "\"ann\" \"x", "\"\" \"x\""] {
            let error = parse(&format!("\"ok\" \"\"\n{wrong}")).unwrap_err();
            assert!(error.starts_with("line 2: "), "{wrong}: {error}");
            assert!(!error.contains('x') || !wrong.contains("\"x\""), "{error}");
        }
    }
}
