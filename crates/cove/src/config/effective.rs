//! The configuration in force for display: every setting with its value, default and origin.
//! Secrets are removed here, before anything can print or send them.

use std::sync::OnceLock;

use api::{ConfigView, SettingOrigin, SettingOriginKind, SettingView};
use serde_json::Value as Json;
use toml::{Table, Value};

use super::layers::{ConfigLayers, ValueOrigin};
use super::schema::{KeyPath, SettingNode, SettingSecrecy, SettingShape, schema};

/// Example file: lines that are not comments show defaults, which a test compares with the types.
const EXAMPLE: &str = include_str!("../../../../docs/cove.toml");

/// Replacement for a secret.
const MASK: &str = "…";

/// Settings, and tables of settings, that a reload applies, apart from the bouncer's.
/// `crate::reload` applies them; `tests/it/reload.rs` tests it.
const RELOADED: [&str; 52] = [
    "auth.issuers",
    "executions.compile_limits",
    "executions.compile_limits_max",
    "executions.files_bytes_max",
    "executions.files_max",
    "executions.limits",
    "executions.limits_max",
    "executions.outputs_bytes_max",
    "executions.outputs_max",
    "executions.queue_max",
    "executions.queue_max_per_tenant",
    "executions.running_max_per_tenant",
    "executions.stdin_bytes_max",
    "executions.tests_bytes_max",
    "executions.tests_max",
    "gateway.audit_queries",
    "gateway.database",
    "gateway.http",
    "gateway.offers",
    "gateway.secrets",
    "limits.body_bytes_max",
    "limits.body_bytes_per_s_min",
    "limits.body_pause_s",
    "limits.connections_max",
    "limits.connections_per_address_max",
    "limits.disk_free_bytes_min",
    "limits.header_bytes_max",
    "limits.header_read_s",
    "limits.write_stall_s",
    "log.level",
    "sessions.agent_start_s",
    "sessions.agents_max_per_tenant",
    "sessions.cold_s",
    "sessions.disk_bytes_max",
    "sessions.disk_bytes_max_per_tenant",
    "sessions.disk_free_bytes_min",
    "sessions.history_bytes_max",
    "sessions.idle_s",
    "sessions.install_s",
    "sessions.keep_ended_s",
    "sessions.memory_bytes_max",
    "sessions.messages_waiting_max",
    "sessions.processes_max",
    "sessions.sessions_max_per_tenant",
    "sessions.snapshots_max_per_tenant",
    "sessions.stored_bytes_max_per_tenant",
    "sessions.templates.archive_bytes_max",
    "sessions.templates.build_s",
    "sessions.templates.builds_max_per_tenant",
    "sessions.templates.count_max_per_tenant",
    "sessions.templates.ready_s",
    "sessions.turn_s",
];

/// Settings that a reload applies if they are set before and after it: TLS itself cannot be
/// switched on or off while the server runs.
const RELOADED_IF_SET: [&str; 2] = ["tls.cert", "tls.key"];

/// Words in user-chosen names, such as those of a database's settings, whose values are treated as
/// secrets.
const SECRET_WORDS: [&str; 6] = ["pass", "secret", "token", "key", "credential", "signature"];

/// Returns the configuration that results from the layers. `data_dir` is the data directory in
/// force.
pub(crate) fn view(layers: &ConfigLayers, data_dir: &str) -> ConfigView {
    let mut settings = Vec::new();
    schema().each_setting(&mut |path, node| {
        let value = find(&layers.values, path);
        match (node.kind, value) {
            // Each name is a setting.
            (SettingShape::Names, Some(Value::Table(table))) if !table.is_empty() => {
                let path: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
                each_named(&path, node, table, &mut |path, node, value| {
                    settings.push(setting(layers, path, node, Some(value)));
                });
            }
            _ => settings.push(setting(layers, path, Some(node), value)),
        }
    });
    // The only default that depends on the environment.
    if let Some(it) = settings.iter_mut().find(|it| it.key == "data_dir") {
        it.value = Json::from(data_dir);
    }
    ConfigView { file: layers.file.as_ref().map(|path| path.display().to_string()), settings }
}

/// Calls `visit` with everything below a table with free names that is no table of settings.
fn each_named<'v>(
    path: &[String],
    node: &SettingNode,
    table: &'v Table,
    visit: &mut impl FnMut(&[String], Option<&SettingNode>, &'v Value),
) {
    for (key, value) in table {
        let path: Vec<String> = path.iter().cloned().chain([key.clone()]).collect();
        match (node.child(key), value) {
            (Some(child), Value::Table(table))
                if matches!(child.kind, SettingShape::Table(_) | SettingShape::Names) =>
            {
                each_named(&path, child, table, visit);
            }
            (child, value) => visit(&path, child, value),
        }
    }
}

fn setting<S: AsRef<str>>(
    layers: &ConfigLayers,
    path: &[S],
    node: Option<&SettingNode>,
    value: Option<&Value>,
) -> SettingView {
    let empty = || match node.map(|it| it.kind) {
        Some(SettingShape::Names) => Json::Object(serde_json::Map::new()),
        Some(SettingShape::List) => Json::Array(Vec::new()),
        _ => Json::Null,
    };
    let default = find(defaults(), path).map_or_else(empty, json);
    let mut masked = false;
    let is_free = node.is_some() && schema_has_free_name(path);
    let value = match value {
        Some(value) => {
            let name = path.last().map(AsRef::as_ref).unwrap_or_default();
            masked_value(value, node, is_free.then_some(name), &mut masked)
        }
        None => default.clone(),
    };
    let origin = match layers.origin(path) {
        Some(found) => origin_view(found),
        None => SettingOrigin { kind: SettingOriginKind::Default, name: None, line: None },
    };
    let key = KeyPath(path).to_string();
    let reloadable = is_reloadable(layers, path);
    SettingView { key, value, default, origin, masked, reloadable }
}

/// Returns whether the last key of a path is a name that the user chose.
fn schema_has_free_name<S: AsRef<str>>(path: &[S]) -> bool {
    let Some((_, parents)) = path.split_last() else { return false };
    let parent = schema().at(parents.iter().map(AsRef::as_ref));
    parent.is_some_and(|it| it.kind == SettingShape::Names)
}

/// Returns whether a reload applies a change of a setting from its current value.
pub(super) fn is_reloadable<S: AsRef<str>>(layers: &ConfigLayers, path: &[S]) -> bool {
    let keys: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
    if let ["bouncer", key, ..] = keys[..] {
        return bouncer::config::RELOADED.contains(&key);
    }
    let path = keys.join(".");
    if RELOADED_IF_SET.contains(&path.as_str()) {
        return find(&layers.values, &keys).is_some();
    }
    let is_in = |table: &str| {
        path.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    RELOADED.iter().any(|table| is_in(table))
}

/// Returns settings whose values differ: the key of each, and whether a reload applies it.
pub(crate) fn changed(before: &ConfigLayers, after: &ConfigLayers) -> Vec<(String, bool)> {
    let mut changed = Vec::new();
    schema().each_setting(&mut |path, _| {
        let value = |layers: &ConfigLayers| {
            find(&layers.values, path).or_else(|| find(defaults(), path)).cloned()
        };
        if value(before) != value(after) {
            let reloadable = is_reloadable(before, path) && is_reloadable(after, path);
            changed.push((KeyPath(path).to_string(), reloadable));
        }
    });
    changed
}

/// Returns the origin of a value for display.
pub(crate) fn origin_view(found: &ValueOrigin) -> SettingOrigin {
    let (kind, name, line) = match found {
        ValueOrigin::File { path, line } => {
            let line = u64::try_from(*line).unwrap_or(u64::MAX);
            (SettingOriginKind::File, path.display().to_string(), Some(line))
        }
        ValueOrigin::Variable(name) => (SettingOriginKind::Environment, name.clone(), None),
        ValueOrigin::Flag(name) => (SettingOriginKind::Flag, (*name).to_owned(), None),
    };
    SettingOrigin { kind, name: Some(name), line }
}

/// Returns the defaults that do not depend on the machine.
fn defaults() -> &'static Table {
    static DEFAULTS: OnceLock<Table> = OnceLock::new();
    DEFAULTS.get_or_init(|| toml::from_str(EXAMPLE).unwrap_or_default())
}

pub(super) fn find<'t, S: AsRef<str>>(table: &'t Table, path: &[S]) -> Option<&'t Value> {
    let (first, rest) = path.split_first()?;
    let first = table.get(first.as_ref())?;
    rest.iter().try_fold(first, |value, key| value.as_table()?.get(key.as_ref()))
}

/// Returns a value with its secrets masked. `name` is the user-chosen key.
fn masked_value(
    value: &Value,
    node: Option<&SettingNode>,
    name: Option<&str>,
    masked: &mut bool,
) -> Json {
    let secrecy = node.map_or(SettingSecrecy::Open, |it| it.secrecy);
    match value {
        Value::Table(table) => {
            let is_names = node.is_some_and(|it| it.kind == SettingShape::Names);
            let entries = table.iter().map(|(key, value)| {
                let child = node.and_then(|it| it.child(key));
                let name = is_names.then_some(key.as_str());
                (key.clone(), masked_value(value, child, name, masked))
            });
            Json::Object(entries.collect())
        }
        Value::Array(values) => {
            let element = node.and_then(SettingNode::element);
            Json::Array(values.iter().map(|it| masked_value(it, element, name, masked)).collect())
        }
        Value::String(text) => {
            let visible = masked_text(text, secrecy, name);
            *masked |= visible != *text;
            Json::from(visible)
        }
        _ if secrecy == SettingSecrecy::Secret => {
            *masked = true;
            Json::from(MASK)
        }
        other => json(other),
    }
}

fn masked_text(text: &str, secrecy: SettingSecrecy, name: Option<&str>) -> String {
    let is_reference = ::bouncer::secrets::is_reference(text);
    match secrecy {
        _ if text.is_empty() => String::new(),
        SettingSecrecy::Secret | SettingSecrecy::Address if is_reference => text.to_owned(),
        SettingSecrecy::Secret => MASK.to_owned(),
        SettingSecrecy::Address if !text.contains("://") && text.contains('@') => MASK.to_owned(),
        SettingSecrecy::Open if name.is_some_and(is_secret_name) => MASK.to_owned(),
        SettingSecrecy::Open | SettingSecrecy::Address => without_password(text),
    }
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// Returns an address without its password; other texts unchanged.
pub(crate) fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    // The last `@`, because an unescaped password may have others.
    let rest = match rest.rsplit_once('@') {
        Some((user, place)) => match user.split_once(':') {
            Some((user, _)) if user.bytes().all(is_plain) => format!("{user}:{MASK}@{place}"),
            _ => format!("{MASK}@{place}"),
        },
        None => rest.to_owned(),
    };
    let rest = match rest.split_once('?') {
        Some((place, query)) => {
            let pairs = query.split('&').map(|pair| match pair.split_once('=') {
                Some((name, _)) if is_secret_name(name) => format!("{name}={MASK}"),
                _ => pair.to_owned(),
            });
            format!("{place}?{}", pairs.collect::<Vec<_>>().join("&"))
        }
        None => rest,
    };
    format!("{scheme}://{rest}")
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' || byte == b'.'
}

fn json(value: &Value) -> Json {
    match value {
        Value::String(text) => Json::from(text.as_str()),
        Value::Integer(number) => Json::from(*number),
        Value::Float(number) => Json::from(*number),
        Value::Boolean(is_true) => Json::from(*is_true),
        Value::Datetime(time) => Json::from(time.to_string()),
        Value::Array(values) => values.iter().map(json).collect(),
        Value::Table(table) => {
            Json::Object(table.iter().map(|(key, value)| (key.clone(), json(value))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        let check = |text: &str, expected: &str| assert_eq!(without_password(text), expected);
        check("postgres://app:hunter2@db:5432/x", "postgres://app:…@db:5432/x");
        check("redis://:hun/ter@2@cache", "redis://:…@cache");
        check("https://hunter2@host/x", "https://…@host/x");
        check("postgres://db/x?user=app&password=hunter2", "postgres://db/x?user=app&password=…");
        check("s3://b/p?endpoint=https://h:9000", "s3://b/p?endpoint=https://h:9000");
        check("https://a.example/simple", "https://a.example/simple");
        check("app@host", "app@host");
    }

    #[test]
    fn what_may_be_shown_depends_on_the_setting() {
        use SettingSecrecy::{Address, Open, Secret};
        let check = |text: &str, secrecy, name: Option<&str>, expected: &str| {
            assert_eq!(masked_text(text, secrecy, name), expected, "{text}");
        };
        check("hunter2", Secret, None, MASK);
        check("env:KEY", Secret, None, "env:KEY");
        check("file:/run/key", Secret, None, "file:/run/key");
        check("postgres://db/x", Secret, None, MASK);
        check("", Secret, None, "");
        check("sqlite:/srv/x", Address, None, "sqlite:/srv/x");
        check("postgres:/app:hunter2@db", Address, None, MASK);
        check("env:DATABASE_URL", Address, None, "env:DATABASE_URL");
        check("hunter2", Open, Some("app.jwt_secret"), MASK);
        check("utc", Open, Some("timezone"), "utc");
        check("utc", Open, None, "utc");
    }
}
