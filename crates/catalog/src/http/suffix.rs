//! The part of an answer with a table besides its document, for one principal: the configuration of
//! clients, credentials, and whatever else depends on who asks.
//!
//! The document stays shared: an answer is its bytes, then these. What is said here is part of the
//! answer's tag, so that nobody is told that nothing has changed when his credentials have.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::error::{CatalogError, Result};

/// Members of an answer beside the document and where that is.
#[derive(Debug, Default)]
pub(super) struct ResponseSuffix {
    config: Map<String, Value>,
    members: Map<String, Value>,
}

/// A finished suffix: the bytes that end an answer, and what they add to the tag.
#[derive(Debug, Default)]
pub(super) struct FinishedSuffix(Option<(Bytes, String)>);

impl ResponseSuffix {
    /// A setting of clients, in `config`.
    pub(super) fn configure(&mut self, name: &str, value: impl Into<String>) {
        self.config.insert(name.to_owned(), Value::String(value.into()));
    }

    /// A member of the answer itself.
    pub(super) fn put<T: Serialize>(&mut self, name: &str, value: &T) -> Result<()> {
        let value = serde_json::to_value(value).map_err(CatalogError::internal)?;
        self.members.insert(name.to_owned(), value);
        Ok(())
    }

    /// The bytes, which follow a document.
    pub(super) fn finish(self) -> Result<FinishedSuffix> {
        let ResponseSuffix { config, mut members } = self;
        if !config.is_empty() {
            members.insert("config".to_owned(), config.into());
        }
        if members.is_empty() {
            return Ok(FinishedSuffix(None));
        }
        let mut text = serde_json::to_vec(&members).map_err(CatalogError::internal)?;
        // In place of its `{`: it goes on where the document ends.
        if let Some(first) = text.first_mut() {
            *first = b',';
        }
        let digest = node::hex::encode(&Sha256::digest(&text)[..8]);
        Ok(FinishedSuffix(Some((text.into(), digest))))
    }
}

impl FinishedSuffix {
    /// Returns what follows the document, unless that is a mere `}`.
    pub(super) fn bytes(&self) -> Option<&Bytes> {
        self.0.as_ref().map(|(bytes, _)| bytes)
    }

    /// The tag of an answer with it, of a document's.
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
