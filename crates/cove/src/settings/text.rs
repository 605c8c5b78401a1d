//! Formats a configuration as a valid configuration file.

use api::{ConfigView, SettingOrigin, SettingOriginKind, SettingView};
use serde_json::Value as Json;
use toml::Value;

/// Returns the file. `has_origins` adds the origin after each value. A value with a hidden secret
/// is commented out, so that a copy of the file does not replace the secret.
pub(super) fn file(view: &ConfigView, has_origins: bool) -> String {
    // Keys of a table must precede those of its subtables.
    let mut tables: Vec<(&str, Vec<String>)> = vec![("", Vec::new())];
    for setting in &view.settings {
        let (table, key) = last_key(&setting.key);
        let line = line(key, setting, has_origins);
        match tables.iter_mut().find(|(name, _)| *name == table) {
            Some((_, lines)) => lines.push(line),
            None => tables.push((table, vec![line])),
        }
    }
    let sections = tables.iter().filter(|(_, lines)| !lines.is_empty()).map(|(table, lines)| {
        let header = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
        format!("{header}{}\n", lines.join("\n"))
    });
    sections.collect::<Vec<_>>().join("\n")
}

fn line(key: &str, setting: &SettingView, has_origins: bool) -> String {
    let mut notes = Vec::new();
    if setting.masked {
        notes.push("masked".to_owned());
    }
    if has_origins {
        notes.push(origin(&setting.origin));
    }
    let notes = match notes.is_empty() {
        true => String::new(),
        false => format!("  # {}", notes.join(", ")),
    };
    match toml(&setting.value) {
        None => format!("# {key} is not set{notes}"),
        Some(value) if setting.masked => format!("# {key} = {value}{notes}"),
        Some(value) => format!("{key} = {value}{notes}"),
    }
}

fn origin(origin: &SettingOrigin) -> String {
    let name = origin.name.as_deref().unwrap_or_default();
    match (origin.kind, origin.line) {
        (SettingOriginKind::Default, _) => "default".to_owned(),
        // The name must not end the comment's line.
        (_, Some(line)) => format!("{}:{line}", name.replace(['\n', '\r'], " ")),
        (_, None) => name.to_owned(),
    }
}

/// Splits a path into its table and its last key, which may be quoted.
fn last_key(path: &str) -> (&str, &str) {
    let (mut quote, mut is_escaped, mut dot) = (None, false, None);
    for (at, letter) in path.char_indices() {
        match quote {
            Some(_) if is_escaped => is_escaped = false,
            Some('"') if letter == '\\' => is_escaped = true,
            Some(open) if letter == open => quote = None,
            Some(_) => {}
            None if letter == '"' || letter == '\'' => quote = Some(letter),
            None if letter == '.' => dot = Some(at),
            None => {}
        }
    }
    dot.map_or(("", path), |at| (&path[..at], &path[at + 1..]))
}

/// Converts a value to TOML; none for null.
fn toml(value: &Json) -> Option<Value> {
    Some(match value {
        Json::Null => return None,
        Json::Bool(is_true) => Value::from(*is_true),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => Value::from(whole),
            None => Value::from(number.as_f64()?),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(values) => Value::Array(values.iter().filter_map(toml).collect()),
        Json::Object(entries) => {
            let entries = entries.iter().filter_map(|(key, it)| Some((key.clone(), toml(it)?)));
            Value::Table(entries.collect())
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_is_divided_at_its_last_dot() {
        let check = |path: &str, expected: (&str, &str)| assert_eq!(last_key(path), expected);
        check("http", ("", "http"));
        check("bouncer.tls.mode", ("bouncer.tls", "mode"));
        check("a.\"b.c\".d", ("a.\"b.c\"", "d"));
        check("a.\"b.\\\".c\"", ("a", "\"b.\\\".c\""));
        check("a.'b\\.c'", ("a", "'b\\.c'"));
    }

    #[test]
    fn the_file_is_toml_whatever_the_values_are() {
        let setting = |key: &str, value: Json, masked| SettingView {
            key: key.to_owned(),
            value,
            default: Json::Null,
            origin: SettingOrigin {
                kind: SettingOriginKind::File,
                name: Some("a\nb = 1".to_owned()),
                line: Some(3),
            },
            masked,
            reloadable: false,
        };
        let settings = vec![
            setting("http", json!("127.0.0.1:1\n[x]"), false),
            setting("a.b.c", json!(1.5), false),
            setting("a.d", json!([{ "name": "x", "list": [1, true] }]), false),
            setting("secrets_key", json!("…"), true),
            setting("a.e", Json::Null, false),
        ];
        let text = file(&ConfigView { file: None, settings }, true);
        let read: toml::Table = toml::from_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(read["http"].as_str(), Some("127.0.0.1:1\n[x]"), "{text}");
        assert_eq!(read["a"]["b"]["c"].as_float(), Some(1.5));
        assert_eq!(read["a"]["d"][0]["list"][1].as_bool(), Some(true));
        assert!(
            !read.contains_key("secrets_key") && text.contains("# secrets_key = \"…\"  # masked")
        );
        assert!(text.contains("# e is not set  # a b = 1:3"), "{text}");
    }
}
