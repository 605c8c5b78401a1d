//! Parses names as people type them: levels separated by dots, columns with their types.

use crate::percent::escaped;
use crate::plain_text::plain;

/// Name of a namespace, table or view: its levels, from the outermost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CatalogName(Vec<String>);

/// Separator of the levels of a namespace in a path (the character "unit separator").
const SEPARATOR: &str = "%1F";

impl CatalogName {
    /// Returns all levels.
    pub(crate) fn levels(&self) -> &[String] {
        &self.0
    }

    /// Returns the namespace of a table or view, and its own name.
    pub(crate) fn split(&self) -> (&[String], &str) {
        match self.0.split_last() {
            Some((name, namespace)) => (namespace, name),
            None => (&[], ""),
        }
    }

    /// Returns the levels separated by dots, as they are typed.
    pub(crate) fn dotted(&self) -> String {
        dotted(self.0.iter().map(String::as_str))
    }
}

/// Returns levels separated by dots, as they are typed, without terminal control characters.
pub(crate) fn dotted<'a>(levels: impl Iterator<Item = &'a str>) -> String {
    let written = levels.map(|level| plain(&level.replace('\\', r"\\").replace('.', r"\.")));
    written.collect::<Vec<_>>().join(".")
}

/// Returns levels as one segment of a path.
pub(crate) fn in_path(levels: &[String]) -> String {
    levels.iter().map(|level| escaped(level)).collect::<Vec<_>>().join(SEPARATOR)
}

/// Parses a namespace. A backslash escapes a dot or backslash.
pub(crate) fn levels(text: &str) -> Result<CatalogName, String> {
    let (mut all, mut level) = (Vec::new(), String::new());
    let mut characters = text.chars();
    while let Some(it) = characters.next() {
        match it {
            '.' => all.push(std::mem::take(&mut level)),
            '\\' => match characters.next() {
                Some(next @ ('.' | '\\')) => level.push(next),
                _ => return Err(r"a backslash stands before a dot or a backslash only".to_owned()),
            },
            other => level.push(other),
        }
    }
    all.push(level);
    if all.iter().any(String::is_empty) {
        return Err(r"a level of the name is empty; a dot in a name is written `\.`".to_owned());
    }
    Ok(CatalogName(all))
}

/// Parses the name of a table or view, which requires a namespace.
pub(crate) fn relation(text: &str) -> Result<CatalogName, String> {
    let name = levels(text)?;
    if name.0.len() < 2 {
        return Err("its namespace is missing: NAMESPACE.NAME".to_owned());
    }
    Ok(name)
}

/// Parses a column: name, type, and whether it is required.
pub(crate) fn column(text: &str) -> Result<(String, String, bool), String> {
    let (text, is_required) = match text.strip_suffix(":required") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    match text.rsplit_once(':') {
        Some((name, kind)) if !name.is_empty() && !kind.is_empty() => {
            Ok((name.to_owned(), kind.to_owned(), is_required))
        }
        _ => Err(format!("`{text}` is not NAME:TYPE")),
    }
}

/// Condition on a column, in Iceberg's JSON format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ColumnCondition(pub(crate) serde_json::Value);

/// Comparison operators with their names; an operator precedes its own prefixes.
const SIGNS: [(&str, &str); 6] =
    [("!=", "not-eq"), ("<=", "lt-eq"), (">=", "gt-eq"), ("=", "eq"), ("<", "lt"), (">", "gt")];

/// Parses a condition: column, operator, value. Numbers, booleans and quoted strings are read as
/// JSON; any other value is text.
pub(crate) fn comparison(text: &str) -> Result<ColumnCondition, String> {
    let wrong = || format!("`{text}` is not COLUMN=VALUE; there are = != < <= > >=");
    let at = text.find(['!', '<', '>', '=']).ok_or_else(wrong)?;
    let (column, rest) = text.split_at(at);
    let sign = SIGNS.iter().find_map(|(sign, name)| Some((rest.strip_prefix(sign)?, name)));
    let (value, name) = sign.ok_or_else(wrong)?;
    let (column, value) = (column.trim(), value.trim());
    if column.is_empty() || value.is_empty() {
        return Err(wrong());
    }
    let literal = serde_json::from_str::<serde_json::Value>(value).ok();
    let literal = literal.filter(|it| it.is_boolean() || it.is_number() || it.is_string());
    let value = literal.unwrap_or_else(|| value.into());
    Ok(ColumnCondition(serde_json::json!({"type": name, "term": column, "value": value})))
}

#[cfg(test)]
mod tests {
    //! Parsing and formatting of names and conditions.

    use serde_json::json;

    use super::*;

    fn check(text: &str, path: Result<&str, &str>) {
        let name = levels(text);
        let found = name.as_ref().map(|it| in_path(it.levels())).map_err(String::as_str);
        match (&found, &path) {
            (Ok(found), Ok(path)) => assert_eq!(found, path, "{text}"),
            (Err(found), Err(part)) => assert!(found.contains(part), "{text}: {found}"),
            _ => panic!("{text}: {found:?}, not {path:?}"),
        }
        if let Ok(name) = name {
            assert_eq!(name.dotted(), text, "what is shown can be typed");
        }
    }

    #[test]
    fn levels_have_dots_between_them_and_some_within() {
        check("shop", Ok("shop"));
        check("shop.eu", Ok("shop%1Feu"));
        check(r"shop.v1\.5", Ok("shop%1Fv1.5"));
        check(r"a\\.b", Ok("a%5C%1Fb"));
        check("a b/ü%", Ok("a%20b%2F%C3%BC%25"));
        for (text, why) in [("", "empty"), ("a..b", "empty"), (".", "empty"), (r"a\b", "backslash")]
        {
            check(text, Err(why));
        }
        check(r"a\", Err("backslash"));
        assert!(relation("orders").unwrap_err().contains("namespace"));
        assert_eq!(relation("a.b.c").unwrap().split(), (&["a".into(), "b".into()][..], "c"));
    }

    #[test]
    fn nothing_that_is_shown_steers_a_terminal() {
        assert_eq!(dotted(["a\x1b[2J", "b.c"].into_iter()), "a\u{fffd}[2J.b\\.c");
    }

    #[test]
    fn columns_have_types() {
        let check = |text: &str, name: &str, kind: &str, is_required| {
            assert_eq!(column(text), Ok((name.to_owned(), kind.to_owned(), is_required)));
        };
        check("id:long", "id", "long", false);
        check("id:long:required", "id", "long", true);
        check("a:b:decimal(9,2)", "a:b", "decimal(9,2)", false);
        for wrong in ["", "id", "id:", ":long", ":required", "id:required"] {
            assert!(column(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_condition_is_a_column_a_sign_and_a_value() {
        for (text, expected) in [
            ("region=EU", Some(("eq", "region", json!("EU")))),
            ("region != EU", Some(("not-eq", "region", json!("EU")))),
            ("price<=9.5", Some(("lt-eq", "price", json!(9.5)))),
            ("price>-3", Some(("gt", "price", json!(-3)))),
            ("a.b>=2026-01-01", Some(("gt-eq", "a.b", json!("2026-01-01")))),
            ("open=true", Some(("eq", "open", json!(true)))),
            (r#"zip="01067""#, Some(("eq", "zip", json!("01067")))),
            ("note=a=b", Some(("eq", "note", json!("a=b")))),
            ("note=[1]", Some(("eq", "note", json!("[1]")))),
            ("region", None),
            ("=EU", None),
            ("region=", None),
            ("region!EU", None),
            ("", None),
        ] {
            let expected = expected
                .map(|(kind, term, value)| json!({"type": kind, "term": term, "value": value}));
            assert_eq!(comparison(text).ok().map(|it| it.0), expected, "{text}");
        }
    }
}
