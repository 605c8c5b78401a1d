//! The part of a table's response besides its document, for one principal: the configuration of
//! clients, credentials, and other values that depend on the caller.
//!
//! The document stays shared: a response is its bytes, then the suffix. The suffix is part of the
//! response's entity tag, so that a client with new credentials never receives "not modified".

use std::borrow::Cow;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::error::{CatalogError, Result};

/// Members of a response beside the document and its location.
#[derive(Debug, Default)]
pub(super) struct ResponseSuffix {
    config: Map<String, Value>,
    members: Map<String, Value>,
}

/// A finished suffix: the bytes that end a response, and their part of the entity tag.
#[derive(Debug, Default)]
pub(super) struct FinishedSuffix(Option<(Bytes, String)>);

impl ResponseSuffix {
    /// Adds a setting of clients to `config`.
    pub(super) fn configure(&mut self, name: &str, value: impl Into<String>) {
        self.config.insert(name.to_owned(), Value::String(value.into()));
    }

    /// Adds a member of the response itself.
    pub(super) fn put<T: Serialize>(&mut self, name: &str, value: &T) -> Result<()> {
        let value = serde_json::to_value(value).map_err(CatalogError::internal)?;
        self.members.insert(name.to_owned(), value);
        Ok(())
    }

    /// Returns the bytes that follow a document.
    pub(super) fn finish(self) -> Result<FinishedSuffix> {
        let ResponseSuffix { config, mut members } = self;
        if !config.is_empty() {
            members.insert("config".to_owned(), config.into());
        }
        if members.is_empty() {
            return Ok(FinishedSuffix(None));
        }
        let mut text = serde_json::to_vec(&members).map_err(CatalogError::internal)?;
        // Replaces its `{`: the suffix continues the document's object.
        if let Some(first) = text.first_mut() {
            *first = b',';
        }
        let digest = node::hex::encode(&Sha256::digest(&text)[..8]);
        Ok(FinishedSuffix(Some((text.into(), digest))))
    }
}

impl FinishedSuffix {
    /// Returns the bytes after the document, unless they are only `}`.
    pub(super) fn bytes(&self) -> Option<&Bytes> {
        self.0.as_ref().map(|(bytes, _)| bytes)
    }

    /// Returns the entity tag of a response with this suffix, from the document's tag.
    pub(super) fn tag<'a>(&self, etag: &'a str) -> Cow<'a, str> {
        match &self.0 {
            None => Cow::Borrowed(etag),
            Some((_, digest)) => Cow::Owned(format!("{etag}-{digest}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_goes_on_where_the_document_ends_and_is_part_of_the_tag() {
        let end = ResponseSuffix::default().finish().unwrap();
        assert_eq!((end.bytes(), &*end.tag("x")), (None, "x"));
        let ended = |key: &str, value: &str| {
            let mut suffix = ResponseSuffix::default();
            suffix.configure(key, value);
            suffix.put("list", &[1, 2]).unwrap();
            suffix.finish().unwrap()
        };
        let end = ended("k", "v\"");
        let text = [b"{\"metadata\":{}", &**end.bytes().unwrap()].concat();
        let whole: Value = serde_json::from_slice(&text).unwrap();
        let expected = serde_json::json!({"metadata": {}, "config": {"k": "v\""}, "list": [1, 2]});
        assert_eq!(whole, expected);
        assert_eq!(end.tag("x"), ended("k", "v\"").tag("x"));
        assert_ne!(end.tag("x"), ended("k", "w").tag("x"));
    }
}
