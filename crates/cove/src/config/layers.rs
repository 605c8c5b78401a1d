//! Layers of the configuration: the file, the environment and flags, merged with the origin of each
//! value. All problems in them are collected.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize as _;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::effective::{find, is_reloadable};
use super::schema::{KeyPath, SettingNode, SettingShape, nearest, schema};
use super::{CoveConfig, CoveConfigError, ENV_NOT_SETTINGS, ENV_PREFIX, Environment, Flags};

/// Maximum number of problems that are reported for one file.
const PROBLEMS_MAX: usize = 100;
/// Largest integers of the JSON interface and of TOML.
const JSON_WHOLE_MAX: &str = "18446744073709551615";
const TOML_WHOLE_MAX: &str = "9223372036854775807";
/// Known keys that a message lists.
const KNOWN_MAX: usize = 40;

/// Origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueOrigin {
    /// A line of the configuration file, from 1.
    File { path: Arc<Path>, line: usize },
    /// A variable of the environment.
    Variable(String),
    /// A flag of the command line.
    Flag(&'static str),
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueOrigin::File { path, line } => write!(f, "{}:{line}", path.display()),
            ValueOrigin::Variable(name) => f.write_str(name),
            ValueOrigin::Flag(name) => f.write_str(name),
        }
    }
}

/// Problem in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigProblem {
    /// Origin of the value; none for one that is not set.
    pub(crate) origin: Option<ValueOrigin>,
    /// Path of the setting; empty if the file is not TOML.
    pub(crate) key: String,
    /// Description of the problem, with the accepted values.
    pub(crate) message: String,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        match self.key.is_empty() {
            true => f.write_str(&self.message),
            false => write!(f, "{}: {}", self.key, self.message),
        }
    }
}

/// A path of keys.
type SettingPath = Vec<String>;

/// Layers of settings, before conversion to a [`CoveConfig`].
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigLayers {
    /// File that was read, if there is one.
    pub(crate) file: Option<Arc<Path>>,
    /// All values that are set.
    pub(crate) values: Table,
    origins: BTreeMap<SettingPath, ValueOrigin>,
    pub(crate) problems: Vec<ConfigProblem>,
    /// Variables with the prefix that are not settings.
    pub(crate) ignored_variables: Vec<String>,
}

impl ConfigLayers {
    /// Reads all layers. `file` is the flag's value; a named file must exist, the default file need
    /// not.
    ///
    /// # Errors
    /// If the file cannot be read. Invalid content is reported among the problems.
    pub(crate) fn read(
        file: Option<&Path>,
        environment: &Environment,
        flags: Flags,
    ) -> Result<ConfigLayers, CoveConfigError> {
        let mut layers = ConfigLayers::default();
        if let Some((path, text)) = read_file(file, environment)? {
            layers.lay_file(path.into(), &text);
        }
        layers.lay_environment(environment);
        for (path, value, flag) in flags {
            let path = path.split('.').map(str::to_owned).collect();
            layers.lay_value(path, value, ValueOrigin::Flag(flag));
        }
        Ok(layers)
    }

    /// Returns the origin of a setting's value; none if it is not set. A value that was set as part
    /// of a larger one has the larger one's origin.
    pub(crate) fn origin<S: AsRef<str>>(&self, path: &[S]) -> Option<&ValueOrigin> {
        let mut path: SettingPath = path.iter().map(|key| key.as_ref().to_owned()).collect();
        while !path.is_empty() {
            if let Some(origin) = self.origins.get(&path) {
                return Some(origin);
            }
            path.pop();
        }
        None
    }

    /// Applies the values, with their origins, of those settings that a reload applies and whose
    /// paths begin with these keys.
    pub(crate) fn take_over(&mut self, read: &ConfigLayers, keys: &[&str]) {
        schema().each_setting(&mut |path, _| {
            let is_taken =
                path.starts_with(keys) && is_reloadable(self, path) && is_reloadable(read, path);
            if !is_taken {
                return;
            }
            let path: SettingPath = path.iter().map(|key| (*key).to_owned()).collect();
            remove(&mut self.values, &path);
            self.origins.retain(|of, _| !of.starts_with(&path));
            if let Some(value) = find(&read.values, &path) {
                set(&mut self.values, &path, value.clone());
            }
            let origins = read.origins.iter().filter(|(of, _)| of.starts_with(&path));
            self.origins.extend(origins.map(|(of, at)| (of.clone(), at.clone())));
        });
        self.file.clone_from(&read.file);
    }

    /// Records a problem that was found later, with the origin of the value. `key` may be below a
    /// setting of the file, such as `bouncer.tenants[0].server`.
    pub(crate) fn add_problem(&mut self, key: &str, message: String) {
        let path: Vec<&str> = key.split('.').map(|it| it.split('[').next().unwrap_or(it)).collect();
        let origin = self.origin(&path).cloned();
        self.problems.push(ConfigProblem { origin, key: key.to_owned(), message });
    }

    fn lay_file(&mut self, path: Arc<Path>, text: &str) {
        let place = |at: usize| ValueOrigin::File { path: Arc::clone(&path), line: line(text, at) };
        let (mut root, errors) = DeTable::parse_recoverable(text);
        self.file = Some(Arc::clone(&path));
        if !errors.is_empty() {
            // Values that can be read from a file that is not TOML are not what its author meant.
            let errors = errors.into_iter().take(PROBLEMS_MAX);
            self.problems.extend(errors.map(|error| ConfigProblem {
                origin: Some(place(error.span().map_or(0, |span| span.start))),
                key: String::new(),
                message: one_line(error.message()),
            }));
            return;
        }
        let mut reader = FileReader { problems: Vec::new(), origins: Vec::new() };
        reader.drop_unknown(schema(), &mut Vec::new(), root.get_mut());
        reader.drop_wrong(&mut root);
        reader.note_origins(schema(), &mut Vec::new(), root.get_ref());
        let mut problems = reader.problems;
        problems.sort_by_key(|(at, ..)| *at);
        self.problems.extend(problems.into_iter().map(|(at, key, message)| ConfigProblem {
            origin: Some(place(at)),
            key,
            message,
        }));
        let origins = reader.origins.into_iter();
        self.origins.extend(origins.map(|(path, at)| (path, place(at))));
        // It was read as a configuration before, so it is a table.
        self.values = Table::deserialize(toml::Deserializer::from(root)).unwrap_or_default();
    }

    fn lay_environment(&mut self, environment: &Environment) {
        for (name, text) in &environment.variables {
            let Some(rest) = name.strip_prefix(ENV_PREFIX) else { continue };
            if text.is_empty() || ENV_NOT_SETTINGS.contains(&name.as_str()) {
                continue;
            }
            let path: SettingPath = rest.to_lowercase().split("__").map(str::to_owned).collect();
            // Other programs use variables with this prefix, too.
            let is_ours = schema().child(&path[0]).is_some_and(|node| match node.kind {
                SettingShape::Table(_) | SettingShape::Names => path.len() > 1,
                SettingShape::List | SettingShape::Text | SettingShape::Other => true,
            });
            if !is_ours {
                self.ignored_variables.push(name.clone());
                continue;
            }
            let node = schema().at(path.iter().map(String::as_str));
            let value = match node.map(|it| it.kind) {
                Some(SettingShape::Text) => Value::String(text.clone()),
                _ => scalar(text),
            };
            self.lay_value(path, value, ValueOrigin::Variable(name.clone()));
        }
    }

    /// Sets one value, unless the result is an invalid configuration.
    fn lay_value(&mut self, path: SettingPath, value: Value, origin: ValueOrigin) {
        let message = match unknown_key(&path) {
            Some(message) => Some(message),
            // The value is checked together with all others, because some tables are complete only
            // with several keys.
            None => {
                let mut whole = self.values.clone();
                set(&mut whole, &path, value);
                match CoveConfig::deserialize(whole.clone()) {
                    Ok(_) => {
                        self.values = whole;
                        None
                    }
                    Err(error) => Some(harmless(error.message(), schema_of(&path))),
                }
            }
        };
        match message {
            None => drop(self.origins.insert(path, origin)),
            Some(message) => {
                let key = KeyPath(&path).to_string();
                self.problems.push(ConfigProblem { origin: Some(origin), key, message });
            }
        }
    }
}

/// Returns the configuration file and its text; none if there is no file.
fn read_file(
    named: Option<&Path>,
    environment: &Environment,
) -> Result<Option<(PathBuf, String)>, CoveConfigError> {
    let named = named.or_else(|| environment.get("COVE_CONFIG").map(Path::new));
    let (path, must_exist) = match named {
        Some(path) => (path.to_owned(), true),
        None => match environment.default_file() {
            Some(path) => (path, false),
            None => return Ok(None),
        },
    };
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some((path, text))),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !must_exist => Ok(None),
        Err(source) => Err(CoveConfigError::Read { path, source }),
    }
}

/// Finds the problems in a file, with byte offsets.
struct FileReader {
    /// Offset, path and message.
    problems: Vec<(usize, String, String)>,
    origins: Vec<(SettingPath, usize)>,
}

impl FileReader {
    /// Records and removes unknown keys.
    fn drop_unknown(
        &mut self,
        node: &SettingNode,
        path: &mut SettingPath,
        table: &mut DeTable<'_>,
    ) {
        let keys: Vec<_> = table.keys().cloned().collect();
        for key in keys {
            let name = key.get_ref().to_string();
            path.push(name);
            let is_list = |it: &Spanned<DeValue<'_>>| matches!(it.get_ref(), DeValue::Array(_));
            match node.child(key.get_ref()) {
                // A list would be taken for the values of the table's keys, in order.
                Some(child)
                    if matches!(child.kind, SettingShape::Table(_))
                        && table.get(&key).is_some_and(is_list) =>
                {
                    let (at, path) = (key.span().start, KeyPath(path).to_string());
                    self.problems.push((at, path, "expected a table, got a list".to_owned()));
                    table.remove(&key);
                }
                Some(child) => {
                    if let Some(value) = table.get_mut(&key) {
                        self.drop_unknown_below(child, path, value.get_mut());
                    }
                }
                None => {
                    let message = unknown_in(node, path);
                    let at = key.span().start;
                    self.problems.push((at, KeyPath(path).to_string(), message));
                    table.remove(&key);
                }
            }
            path.pop();
        }
    }

    fn drop_unknown_below(
        &mut self,
        node: &SettingNode,
        path: &mut SettingPath,
        value: &mut DeValue<'_>,
    ) {
        match (value, node.kind) {
            (DeValue::Table(table), SettingShape::Table(_) | SettingShape::Names) => {
                self.drop_unknown(node, path, table);
            }
            (DeValue::Array(values), SettingShape::List) => {
                let Some(element) = node.element() else { return };
                for value in values.iter_mut() {
                    self.drop_unknown_below(element, path, value.get_mut());
                }
            }
            _ => {}
        }
    }

    /// Records and removes invalid values until the rest is a valid configuration.
    fn drop_wrong(&mut self, root: &mut Spanned<DeTable<'_>>) {
        for _ in 0..PROBLEMS_MAX {
            let read = CoveConfig::deserialize(toml::Deserializer::from(root.clone()));
            let Err(error) = read else { return };
            let at = error.span().map_or(0, |span| span.start);
            let mut path = SettingPath::new();
            remove_at(root.get_mut(), at, &mut path);
            let message = harmless(error.message(), schema_of(&path));
            let is_stuck = path.is_empty();
            self.problems.push((at, KeyPath(&path).to_string(), message));
            if is_stuck {
                return;
            }
        }
    }

    fn note_origins(&mut self, node: &SettingNode, path: &mut SettingPath, table: &DeTable<'_>) {
        for (key, value) in table {
            path.push(key.get_ref().to_string());
            match (value.get_ref(), node.child(key.get_ref())) {
                (DeValue::Table(table), Some(child))
                    if matches!(child.kind, SettingShape::Table(_) | SettingShape::Names) =>
                {
                    self.note_origins(child, path, table);
                }
                _ => self.origins.push((path.clone(), key.span().start)),
            }
            path.pop();
        }
    }
}

/// Removes the smallest value at an offset: an entry of a table, or an element of a list. Returns
/// whether there was one; `path` is then its path.
fn remove_at(table: &mut DeTable<'_>, at: usize, path: &mut SettingPath) -> bool {
    let keys: Vec<_> = table.keys().cloned().collect();
    for key in &keys {
        let Some(value) = table.get_mut(key) else { continue };
        path.push(key.get_ref().to_string());
        let is_below = match value.get_mut() {
            DeValue::Table(table) => remove_at(table, at, path),
            // Only the element is removed, so that the other elements are checked as well.
            DeValue::Array(values) => match values.iter().position(|it| is_at(it, at)) {
                Some(found) => {
                    let rest = values.iter().enumerate().filter(|(index, _)| *index != found);
                    *values = rest.map(|(_, it)| it.clone()).collect();
                    true
                }
                None => false,
            },
            _ => false,
        };
        if is_below {
            return true;
        }
        if key.span().contains(&at) || is_at(value, at) {
            table.remove(key);
            return true;
        }
        path.pop();
    }
    false
}

/// Returns whether a value, or anything below it, is at an offset. The span of a table with a
/// header is the header.
fn is_at(value: &Spanned<DeValue<'_>>, at: usize) -> bool {
    value.span().contains(&at)
        || match value.get_ref() {
            DeValue::Table(table) => {
                table.iter().any(|(key, value)| key.span().contains(&at) || is_at(value, at))
            }
            DeValue::Array(values) => values.iter().any(|value| is_at(value, at)),
            _ => false,
        }
}

/// Returns the node of a setting, or the last one on the way to it.
fn schema_of(path: &[String]) -> &'static SettingNode {
    path.iter().fold(schema(), |node, key| node.child(key).unwrap_or(node))
}

/// Returns the message for a path without a setting.
fn unknown_key(path: &[String]) -> Option<String> {
    let mut node = schema();
    for (depth, key) in path.iter().enumerate() {
        if !matches!(node.kind, SettingShape::Table(_) | SettingShape::Names) {
            // Below a value that is not a table: the error of its type is reported.
            return None;
        }
        match node.child(key) {
            Some(child) => node = child,
            None => return Some(unknown_in(node, &path[..=depth])),
        }
    }
    None
}

/// Returns the message for a key that a table does not have, with the most likely correct key.
fn unknown_in(node: &SettingNode, path: &[String]) -> String {
    let key = path.last().map(String::as_str).unwrap_or_default();
    let SettingShape::Table(known) = node.kind else { return format!("unknown field `{key}`") };
    if let Some(meant) = nearest(key, known) {
        return format!("unknown field `{key}`; did you mean `{meant}`?");
    }
    let mut elsewhere = Vec::new();
    schema().each_setting(&mut |path, _| {
        if path.last() == Some(&key) {
            elsewhere.push(KeyPath(path).to_string());
        }
    });
    match &elsewhere[..] {
        [only] => format!("unknown field `{key}`; did you mean `{only}`?"),
        _ => {
            let names: Vec<String> =
                known.iter().take(KNOWN_MAX).map(|it| format!("`{it}`")).collect();
            format!("unknown field `{key}`, expected one of {}", names.join(", "))
        }
    }
}

/// Returns a parser message in terms of TOML, without secret values.
fn harmless(message: &str, node: &SettingNode) -> String {
    readable(&without_secret(message, node))
}

/// Returns a message in terms of TOML: the parser names Rust types.
fn readable(message: &str) -> String {
    let message = api::json_message::plain(message);
    // The rest may be a value, in which nothing is replaced.
    let (expected, found) = message.split_once(", got ").unwrap_or((&message, ""));
    let expected = match expected {
        "expected an array" => "expected a list",
        "expected an object" => "expected a table",
        "expected a string" => "expected a text",
        other => other,
    };
    let expected = expected.replace(JSON_WHOLE_MAX, TOML_WHOLE_MAX);
    let found = match found {
        "" => return expected,
        "an array" => "a list".to_owned(),
        "an object" => "a table".to_owned(),
        "a string" => "a text".to_owned(),
        other => match other.strip_prefix("the string ") {
            Some(text) => format!("the text {text}"),
            None => other.to_owned(),
        },
    };
    format!("{expected}, got {found}")
}

fn without_secret(message: &str, node: &SettingNode) -> String {
    let message = one_line(message);
    if !node.has_secret() {
        return message;
    }
    // `invalid type: string "…", expected …`: the value is between the first and the last quote.
    let quotes = |it: char| it == '"' || it == '`';
    match (message.find(quotes), message.rfind(", expected")) {
        (Some(first), Some(last)) if first < last => {
            format!("{}…{}", &message[..first], &message[last..])
        }
        (Some(_), _) => "this value cannot be read".to_owned(),
        (None, _) => message,
    }
}

fn one_line(message: &str) -> String {
    message.trim().replace('\n', "; ")
}

/// Returns the line of an offset, from 1.
fn line(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or_default();
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// Parses numbers and booleans; everything else is text.
fn scalar(text: &str) -> Value {
    let number = text.parse().map(Value::Integer);
    let number = number.or_else(|_| text.parse().map(Value::Boolean));
    number.unwrap_or_else(|_| match text.parse::<f64>() {
        Ok(float) if float.is_finite() => Value::Float(float),
        _ => Value::String(text.to_owned()),
    })
}

fn remove(table: &mut Table, path: &[String]) {
    match path {
        [] => {}
        [last] => drop(table.remove(last)),
        [first, rest @ ..] => {
            if let Some(Value::Table(inner)) = table.get_mut(first) {
                remove(inner, rest);
            }
        }
    }
}

fn set(table: &mut Table, path: &[String], value: Value) {
    match path {
        [] => {}
        [last] => drop(table.insert(last.clone(), value)),
        [first, rest @ ..] => {
            let inner = table.entry(first).or_insert_with(|| Value::Table(Table::new()));
            if !inner.is_table() {
                *inner = Value::Table(Table::new());
            }
            if let Value::Table(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}
