//! Settings that exist, derived from the types of the configuration.
//!
//! A type that derives `Deserialize` requests each of its fields by name. A deserializer without
//! values that records these requests therefore describes the configuration, and no second list of
//! settings could differ from the types.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use serde::de::value::{Error, StrDeserializer};
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, IntoDeserializer as _, MapAccess, SeqAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

use super::CoveConfig;

/// Step of a path to all values of a table with free names.
pub(crate) const ANY_NAME: &str = "*";
/// Step of a path to all elements of a list.
pub(crate) const ELEMENT: &str = "[]";
/// Maximum depth of the description. The configuration has no recursive type.
const DEPTH_MAX: usize = 12;

/// Shape of a setting, or of a table of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettingShape {
    /// A table with these keys.
    Table(&'static [&'static str]),
    /// A table whose keys are names that the user chooses.
    Names,
    /// A list.
    List,
    /// A text, even if it must have a certain format.
    Text,
    /// Anything else.
    Other,
}

/// Secrecy of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettingSecrecy {
    /// The value may be shown, except passwords in addresses.
    Open,
    /// An address may be shown without its password.
    Address,
    /// Only a reference to it may be shown.
    Secret,
}

/// A setting or a table, with what is below it.
#[derive(Clone, Debug)]
pub(crate) struct SettingNode {
    pub(crate) kind: SettingShape,
    pub(crate) secrecy: SettingSecrecy,
    /// By key, [`ANY_NAME`] or [`ELEMENT`].
    children: BTreeMap<&'static str, SettingNode>,
}

impl SettingNode {
    /// Returns the child with this key; a table with free names has one child for all names.
    pub(crate) fn child(&self, key: &str) -> Option<&SettingNode> {
        match self.kind {
            SettingShape::Names => self.children.get(ANY_NAME),
            _ => self.children.get(key),
        }
    }

    /// Returns the description of a list's elements.
    pub(crate) fn element(&self) -> Option<&SettingNode> {
        self.children.get(ELEMENT)
    }

    /// Returns the setting at a path. Values below a setting that is not a table have no node.
    pub(crate) fn at<'k>(&self, path: impl IntoIterator<Item = &'k str>) -> Option<&SettingNode> {
        path.into_iter().try_fold(self, |node, key| node.child(key))
    }

    /// Returns whether it, or anything below it, may contain a secret.
    pub(crate) fn has_secret(&self) -> bool {
        self.secrecy != SettingSecrecy::Open || self.children.values().any(SettingNode::has_secret)
    }

    /// Calls `visit` with the path of each setting that is not a table, in the order of the types'
    /// fields; a table with free names is one setting.
    pub(crate) fn each_setting(&self, visit: &mut impl FnMut(&[&'static str], &SettingNode)) {
        self.each_below(&mut Vec::new(), visit);
    }

    fn each_below(
        &self,
        path: &mut Vec<&'static str>,
        visit: &mut impl FnMut(&[&'static str], &SettingNode),
    ) {
        let SettingShape::Table(keys) = self.kind else { return visit(path, self) };
        for key in keys {
            path.push(key);
            if let Some(child) = self.children.get(key) {
                child.each_below(path, visit);
            }
            path.pop();
        }
    }
}

/// Returns the schema of the whole configuration.
pub(crate) fn schema() -> &'static SettingNode {
    static SCHEMA: OnceLock<SettingNode> = OnceLock::new();
    SCHEMA.get_or_init(describe::<CoveConfig>)
}

/// Returns the schema of a type.
fn describe<T: for<'de> Deserialize<'de>>() -> SettingNode {
    node_at::<T>(&mut Vec::new())
}

fn node_at<T: for<'de> Deserialize<'de>>(path: &mut Vec<&'static str>) -> SettingNode {
    let (kind, secrecy) = (Cell::new(SettingShape::Other), Cell::new(SettingSecrecy::Open));
    // It always fails, because there is no value.
    drop(T::deserialize(TypeProbe { path, kind: &kind, secrecy: &secrecy }));
    let keys = match kind.get() {
        SettingShape::Table(keys) => keys,
        SettingShape::Names => &[ANY_NAME],
        SettingShape::List => &[ELEMENT],
        SettingShape::Text | SettingShape::Other => &[],
    };
    let mut children = BTreeMap::new();
    let is_deep = path.len() >= DEPTH_MAX;
    for key in keys.iter().filter(|_| !is_deep) {
        path.push(key);
        children.insert(*key, node_at::<T>(path));
        path.pop();
    }
    SettingNode { kind: kind.get(), secrecy: secrecy.get(), children }
}

/// Deserializer that has one entry of each table on its path, and fails at the end of the path
/// after it has recorded the request made there.
#[derive(Clone, Copy)]
struct TypeProbe<'a> {
    path: &'a [&'static str],
    kind: &'a Cell<SettingShape>,
    secrecy: &'a Cell<SettingSecrecy>,
}

impl<'a> TypeProbe<'a> {
    fn found<T>(self, kind: SettingShape) -> Result<T, Error> {
        if self.path.is_empty() {
            self.kind.set(kind);
        }
        Err(de::Error::custom("described"))
    }

    /// Returns the next step of the path; none at its end.
    fn step(self) -> Option<OneEntry<'a>> {
        let (key, rest) = self.path.split_first()?;
        Some(OneEntry { key, below: TypeProbe { path: rest, ..self }, is_taken: false })
    }
}

impl<'de> Deserializer<'de> for TypeProbe<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        self.found(SettingShape::Other)
    }

    fn deserialize_str<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        self.found(SettingShape::Text)
    }

    fn deserialize_string<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        self.found(SettingShape::Text)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        match name {
            api::SECRET_SETTING => self.secrecy.set(SettingSecrecy::Secret),
            api::SECRET_ADDRESS => self.secrecy.set(SettingSecrecy::Address),
            _ => {}
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.step() {
            Some(entry) => visitor.visit_map(entry),
            None => self.found(SettingShape::Table(fields)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.step() {
            Some(entry) => visitor.visit_map(entry),
            None => self.found(SettingShape::Names),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.step() {
            Some(entry) => visitor.visit_seq(entry),
            None => self.found(SettingShape::List),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Error> {
        self.found(SettingShape::Text)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct
        tuple tuple_struct identifier ignored_any
    }
}

/// The only entry of a table, or element of a list.
struct OneEntry<'a> {
    key: &'static str,
    below: TypeProbe<'a>,
    is_taken: bool,
}

impl<'de> MapAccess<'de> for OneEntry<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        if std::mem::replace(&mut self.is_taken, true) {
            return Ok(None);
        }
        let key: StrDeserializer<'_, Error> = self.key.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(self.below)
    }
}

impl<'de> SeqAccess<'de> for OneEntry<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        if std::mem::replace(&mut self.is_taken, true) {
            return Ok(None);
        }
        seed.deserialize(self.below).map(Some)
    }
}

/// Path as it is written in messages: `executions.queue_max`, with quotes where a key needs them.
pub(crate) struct KeyPath<'a, S>(pub(crate) &'a [S]);

impl<S: AsRef<str>> fmt::Display for KeyPath<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, key) in self.0.iter().enumerate() {
            let (key, dot) = (key.as_ref(), if index == 0 { "" } else { "." });
            let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
            match !key.is_empty() && key.bytes().all(is_bare) {
                true => write!(f, "{dot}{key}")?,
                false => write!(f, "{dot}{}", toml::Value::from(key))?,
            }
        }
        Ok(())
    }
}

/// Longest key that is compared with known keys.
const COMPARED_BYTES_MAX: usize = 64;

/// Shortest prefix that counts as a match of a key.
const BEGINNING_BYTES_MIN: usize = 3;

/// Returns the known key that is closest to a mistyped one.
pub(crate) fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    if key.len() > COMPARED_BYTES_MAX {
        return None;
    }
    let near = |name: &&str| distance(key, name) <= 1 + name.len().min(key.len()) / 4;
    let nearest = known.iter().copied().filter(near).min_by_key(|name| distance(key, name));
    let begins = |name: &&&str| key.len() >= BEGINNING_BYTES_MIN && name.starts_with(key);
    nearest.or_else(|| known.iter().find(begins).copied())
}

/// Returns the number of letters to add, remove or replace to turn one text into the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut before = std::mem::replace(&mut row[0], index + 1);
        for (at, same) in other.iter().enumerate() {
            let replaced = before + usize::from(letter != *same);
            before = row[at + 1];
            row[at + 1] = replaced.min(before + 1).min(row[at] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_say_what_can_be_set() {
        let check = |path: &str, kind: Option<SettingShape>, secrecy: SettingSecrecy| {
            let found = schema().at(path.split('.'));
            let found = found.map(|it| (it.kind, it.secrecy));
            assert_eq!(found, kind.map(|kind| (kind, secrecy)), "{path}");
        };
        use SettingSecrecy::{Address, Open, Secret};
        check("store.url", Some(SettingShape::Text), Address);
        check("http", Some(SettingShape::Text), Open);
        check("drain_s", Some(SettingShape::Other), Open);
        check("log.level", Some(SettingShape::Text), Open);
        check("bouncer.listen", Some(SettingShape::Other), Open);
        check("bouncer.servers", Some(SettingShape::Names), Open);
        check("bouncer.servers.any.address", Some(SettingShape::Text), Open);
        check("bouncer.tenants", Some(SettingShape::List), Open);
        check("secrets_key", Some(SettingShape::Text), Secret);
        check("gateway.secrets", Some(SettingShape::Names), Secret);
        check("gateway.secrets.example", Some(SettingShape::Text), Secret);
        check("executions.quee_max", None, Open);
        check("http.address", None, Open);
        let users = schema().at(["bouncer", "tenants"]).unwrap().element().unwrap();
        let user = users.child("users").unwrap().element().unwrap();
        assert!(user.child("password").unwrap().secrecy == Secret && user.has_secret());
        assert!(!user.child("name").unwrap().has_secret());
    }

    #[test]
    fn a_mistyped_key_finds_the_one_that_was_meant() {
        let check = |key: &str, expected: Option<&str>| {
            let known = ["queue_max", "queue_max_per_tenant", "files_max", "http"];
            assert_eq!(nearest(key, &known), expected, "{key}");
        };
        check("quee_max", Some("queue_max"));
        check("queue-max", Some("queue_max"));
        check("htpp", Some("http"));
        check("file_max", Some("files_max"));
        check("files", Some("files_max"));
        check("port", None);
        check("", None);
        check(&"q".repeat(1000), None);
    }
}
