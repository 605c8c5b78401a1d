//! The parts of a request: path, query, headers, body.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{Query, RawPathParams};
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT_ENCODING, IF_NONE_MATCH};
use axum::http::request::Parts;
use bytes::Bytes;
use iceberg::ident::{NamespaceIdent, TableIdent, Uuid};
use iceberg::json::RawJson;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use std::sync::Arc;

use super::HttpContext;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::guest::session::SandboxSession;
use crate::service::{CatalogPrincipal, ChangeCall, IdempotencyKey, PageRequest};
use crate::warehouse::Warehouse;

/// Longest body, in bytes.
pub const BODY_BYTES_MAX: u64 = 64 << 20;

/// Header that identifies a request, so that it is carried out once.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// A request of an identified principal.
pub(super) struct CatalogRequest<'a> {
    pub(super) context: &'a HttpContext,
    pub(super) who: CatalogPrincipal,
    pub(super) parts: &'a Parts,
    params: &'a RawPathParams,
    query: Vec<(String, String)>,
    body: Bytes,
    /// True if the response has credentials.
    has_credentials: AtomicBool,
    /// Session of a guest, which is not authenticated by a token.
    pub(super) session: Option<&'a SandboxSession>,
}

impl<'a> CatalogRequest<'a> {
    pub(super) fn new(
        context: &'a HttpContext,
        who: CatalogPrincipal,
        parts: &'a Parts,
        params: &'a RawPathParams,
        body: Bytes,
    ) -> Result<CatalogRequest<'a>> {
        let Query(query) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
            .map_err(|_| CatalogError::new(ErrorReason::BadRequest, "the query is malformed"))?;
        let has_credentials = AtomicBool::new(false);
        Ok(CatalogRequest {
            context,
            who,
            parts,
            params,
            query,
            body,
            has_credentials,
            session: None,
        })
    }

    /// Marks the request as one of a guest.
    pub(super) fn of_guest(self, session: &'a SandboxSession) -> CatalogRequest<'a> {
        CatalogRequest { session: Some(session), ..self }
    }

    /// Notes that the response has credentials, which is audited for any operation.
    pub(super) fn note_credentials(&self) {
        self.has_credentials.store(true, Ordering::Relaxed);
    }

    /// Returns whether the response has credentials.
    pub(super) fn has_credentials(&self) -> bool {
        self.has_credentials.load(Ordering::Relaxed)
    }

    /// Returns a parameter of the path, decoded.
    pub(super) fn param(&self, name: &str) -> Result<&str> {
        let found = self.params.iter().find(|(key, _)| *key == name).map(|(_, value)| value);
        found.ok_or_else(|| CatalogError::internal("a route lacks a part that its handler needs"))
    }

    /// Returns a parameter of the query, which may occur once at most.
    pub(super) fn query(&self, name: &str) -> Result<Option<&str>> {
        let mut found = self.query.iter().filter(|(key, _)| key == name);
        let first = found.next().map(|(_, value)| value.as_str());
        match found.next() {
            None => Ok(first),
            Some(_) => Err(CatalogError::new(
                ErrorReason::BadRequest,
                format!("`{name}` is specified twice"),
            )),
        }
    }

    /// Looks up the warehouses that the request names, if another server may just have created
    /// them.
    pub(super) async fn seek_warehouse(&self) -> Result<()> {
        let names = ["prefix", "warehouse"].map(|name| self.params.iter().find(|it| it.0 == name));
        for (_, name) in names.into_iter().flatten() {
            self.context.catalog.warehouses().seek(name).await?;
        }
        match self.query("warehouse")? {
            Some(name) => self.context.catalog.warehouses().seek(name).await,
            None => Ok(()),
        }
    }

    /// Returns the warehouse in the path.
    pub(super) fn warehouse(&self) -> Result<Arc<Warehouse>> {
        self.context.catalog.warehouses().get(self.param("prefix")?)
    }

    /// Returns the warehouse in the path of a management call.
    pub(super) fn managed(&self) -> Result<Arc<Warehouse>> {
        self.context.catalog.warehouses().get(self.param("warehouse")?)
    }

    /// Returns the namespace in the path.
    pub(super) fn namespace(&self) -> Result<NamespaceIdent> {
        self.split(self.param("namespace")?)
    }

    /// Parses a namespace from one string.
    pub(super) fn split(&self, text: &str) -> Result<NamespaceIdent> {
        NamespaceIdent::split(text, &self.context.separator)
    }

    /// Returns the table or view in the path; `part` is the name of the parameter.
    pub(super) fn ident(&self, part: &str) -> Result<TableIdent> {
        let (namespace, name) = (self.param("namespace")?, self.param(part)?);
        // Iceberg's clients probe outside of any namespace, where no table can be: `n.files` may
        // also be the metadata table `files` of a table `n`.
        if namespace.is_empty() {
            let (kind, title) = match part {
                "view" => (ErrorReason::NoSuchView, "View"),
                _ => (ErrorReason::NoSuchTable, "Table"),
            };
            return Err(CatalogError::new(kind, format!("{title} does not exist: {name}")));
        }
        TableIdent::new(self.split(namespace)?, name)
    }

    /// Returns the requested page of a list.
    pub(super) fn page(&self) -> Result<PageRequest> {
        let size = self.query("pageSize")?.map(|text| {
            let size = text.parse::<usize>().ok().filter(|size| *size > 0);
            size.ok_or_else(|| {
                CatalogError::new(ErrorReason::BadRequest, "`pageSize` is a number from 1")
            })
        });
        let token = self.query("pageToken")?.map(str::to_owned);
        Ok(PageRequest { token, size: size.transpose()? })
    }

    /// Returns a flag of the query; false if it is absent.
    pub(super) fn flag(&self, name: &str) -> Result<bool> {
        match self.query(name)? {
            None => Ok(false),
            // Python writes booleans capitalized.
            Some(text) if text.eq_ignore_ascii_case("true") => Ok(true),
            Some(text) if text.eq_ignore_ascii_case("false") => Ok(false),
            Some(_) => {
                let message = format!("`{name}` is `true` or `false`");
                Err(CatalogError::new(ErrorReason::BadRequest, message))
            }
        }
    }

    /// Returns the body as JSON, regardless of its content type.
    pub(super) fn json(&self) -> Result<RawJson> {
        Ok(RawJson::parse(self.body.clone())?)
    }

    /// Returns whether there is a body.
    pub(super) fn has_body(&self) -> bool {
        !self.body.is_empty()
    }

    /// Decodes the body.
    pub(super) fn body<T: DeserializeOwned>(&self) -> Result<T> {
        Ok(self.json()?.decode()?)
    }

    /// Returns the request as a change.
    pub(super) fn call(&self) -> Result<ChangeCall<'_>> {
        Ok(ChangeCall { who: &self.who, key: self.key()? })
    }

    fn key(&self) -> Result<Option<IdempotencyKey>> {
        key_of(self.parts, &self.body)
    }
}

/// Returns the idempotency key of a request, if there is one, with the hash of the request that it
/// is bound to.
pub(super) fn key_of(parts: &Parts, body: &Bytes) -> Result<Option<IdempotencyKey>> {
    let mut values = parts.headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let key = value.to_str().ok().and_then(|text| text.trim().parse::<Uuid>().ok());
    let key = key.filter(|_| values.next().is_none()).ok_or_else(|| {
        CatalogError::new(ErrorReason::BadRequest, "`Idempotency-Key` is not one UUID")
    })?;
    let mut hash = Sha256::new();
    let target = parts.uri.path_and_query().map_or("", |it| it.as_str());
    // A line feed occurs neither in the method nor in the target.
    for piece in [parts.method.as_str().as_bytes(), target.as_bytes(), body] {
        hash.update(piece);
        hash.update(b"\n");
    }
    Ok(Some(IdempotencyKey { key, hash: hash.finalize().into() }))
}

/// Returns whether the client already has this version (RFC 9110 §13.1.2): the comparison is weak.
pub(super) fn has(headers: &HeaderMap, etag: &str) -> bool {
    let values = headers.get_all(IF_NONE_MATCH).iter();
    let mut tags = values.filter_map(|value| value.to_str().ok()).flat_map(|it| it.split(','));
    tags.any(|tag| {
        let tag = tag.trim();
        let opaque = tag.strip_prefix("W/").unwrap_or(tag);
        tag == "*" || opaque.strip_prefix('"').and_then(|it| it.strip_suffix('"')) == Some(etag)
    })
}

/// Returns whether the client accepts a gzip-encoded response.
pub(super) fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter();
    let codings = values.filter_map(|value| value.to_str().ok()).flat_map(|it| it.split(','));
    let mut any = false;
    for coding in codings {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        let is_refused = weight.is_some_and(|it| it.parse::<f32>().is_ok_and(|it| it <= 0.0));
        if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
            return !is_refused;
        }
        any |= name == "*" && !is_refused;
    }
    any
}

/// Percent-encodes text for a path.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            write!(out, "%{byte:02X}").ok();
        }
    }
    out
}
