//! Search of logs: a system test fails if the server logged an unexpected warning or error.

/// Returns the lines of `log` at level WARN or ERROR, or of a panic, that contain none of
/// `expected`.
///
/// Supports both formats of the server: text (`… WARN target: …`) and JSON (`"level":"WARN"`).
#[must_use]
pub fn unlisted(log: &str, expected: &[String]) -> Vec<String> {
    log.lines()
        .filter(|line| is_alarming(line))
        .filter(|line| !expected.iter().any(|text| line.contains(text.as_str())))
        .map(str::to_owned)
        .collect()
}

fn is_alarming(line: &str) -> bool {
    let level_word = line.split_whitespace().take(4).any(|word| word == "WARN" || word == "ERROR");
    let level_json = line.contains("\"level\":\"WARN\"") || line.contains("\"level\":\"ERROR\"");
    level_word || level_json || line.contains("panicked at")
}

#[cfg(test)]
mod tests {
    use super::unlisted;

    #[test]
    fn only_unannounced_alarms_are_reported() {
        let log = "2026-01-01T00:00:00Z  INFO cove: ready\n\
                   2026-01-01T00:00:00Z  WARN sandbox: slot retired\n\
                   {\"level\":\"ERROR\",\"message\":\"boom\"}\n\
                   2026-01-01T00:00:00Z  INFO cove: the word ERROR in a message is none\n\
                   thread 'main' panicked at src/main.rs:1:1\n";
        let found = unlisted(log, &["slot retired".to_owned()]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("boom"));
        assert!(found[1].contains("panicked"));
    }
}
