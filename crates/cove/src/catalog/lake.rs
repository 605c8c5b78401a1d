//! Access to a server's catalog from the command line: paths, requests and output.

use std::io::{self, Write as _};

use anyhow::{Context as _, Result};
use axum::http::Method;
use serde_json::{Map, Value, json};

use super::names::{CatalogName, in_path};
use super::text;
use crate::cli::AsOfArgs;
use crate::percent::escaped;
use crate::remote::{Remote, RemoteFailure, plain};
use crate::run::print_json;

/// Path of the catalog on a server.
const CATALOG: &str = "/catalog/v1";
/// Path of the catalog's management interface, which is not part of Iceberg's.
const MANAGEMENT: &str = "/catalog/management/v1";

/// Header with the token of the next page, for bodies other than JSON.
const NEXT_PAGE: &str = "x-next-page-token";

/// Warehouse of a server's catalog, with the output format.
pub(super) struct RemoteWarehouse<'a> {
    server: &'a Remote,
    /// Prefix of the warehouse in paths.
    prefix: String,
    is_json: bool,
}

/// Kind of an object in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectKind {
    Table,
    View,
}

impl ObjectKind {
    /// Returns the name of the kind in paths and responses.
    pub(super) fn word(self) -> &'static str {
        match self {
            ObjectKind::Table => "table",
            ObjectKind::View => "view",
        }
    }
}

impl<'a> RemoteWarehouse<'a> {
    /// Returns the warehouse with this name, or the server's first one.
    pub(super) async fn find(
        server: &'a Remote,
        warehouse: Option<&str>,
        is_json: bool,
    ) -> Result<RemoteWarehouse<'a>> {
        let query = warehouse.map(|name| format!("?warehouse={}", escaped(name)));
        let path = format!("{CATALOG}/config{}", query.unwrap_or_default());
        let config: Value = server.call(Method::GET, &path).await?;
        let prefix = config["overrides"]["prefix"].as_str();
        let prefix =
            prefix.context("the server did not return its warehouse's location")?.to_owned();
        Ok(RemoteWarehouse { server, prefix, is_json })
    }

    /// Returns a path of Iceberg's interface in this warehouse.
    pub(super) fn path(&self, rest: &str) -> String {
        format!("{CATALOG}/{}/{rest}", self.prefix)
    }

    /// Returns a path of the management interface in this warehouse.
    pub(super) fn management(&self, rest: &str) -> String {
        format!("{MANAGEMENT}/{}/{rest}", self.prefix)
    }

    /// Returns the path of a namespace, or a path below it.
    pub(super) fn namespace(&self, levels: &[String], rest: &str) -> String {
        self.path(&format!("namespaces/{}{rest}", in_path(levels)))
    }

    /// Returns the path of a table or view.
    pub(super) fn relation(&self, kind: ObjectKind, name: &CatalogName) -> String {
        let (namespace, name) = name.split();
        self.namespace(namespace, &format!("/{}s/{}", kind.word(), escaped(name)))
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value, RemoteFailure> {
        ask(self.server, Method::GET, path, None).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, RemoteFailure> {
        ask(self.server, Method::POST, path, Some(body)).await
    }

    /// Sends a request with any method.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, RemoteFailure> {
        ask(self.server, method, path, body).await
    }

    /// Returns a page that is not JSON, and the token of the next page.
    pub(super) async fn page(&self, path: &str) -> Result<(String, Option<String>)> {
        let response = self.server.open(self.server.request(Method::GET, path)).await?;
        let next = response.headers.get(NEXT_PAGE).and_then(|it| it.to_str().ok());
        let next = next.map(str::to_owned);
        let body = response.bytes().await.map_err(|error| self.server.explain(error))?;
        let text =
            String::from_utf8(body.to_vec()).context("the server's page is not UTF-8 text")?;
        Ok((text, next))
    }

    pub(super) async fn delete(&self, path: &str) -> Result<Value, RemoteFailure> {
        ask(self.server, Method::DELETE, path, None).await
    }

    /// Prints a response: as JSON, or formatted by `text`.
    pub(super) fn show(&self, answer: &Value, text: impl FnOnce() -> String) -> Result<()> {
        show(self.is_json, answer, text)
    }

    /// Returns whether responses are printed as JSON.
    pub(super) fn is_json(&self) -> bool {
        self.is_json
    }

    /// Lists the objects of a kind in a namespace, now or at an earlier time.
    pub(super) async fn list(
        &self,
        kind: ObjectKind,
        namespace: &CatalogName,
        as_of: &AsOfArgs,
    ) -> Result<()> {
        let path = self.namespace(namespace.levels(), &format!("/{}s", kind.word()));
        let path = as_of.laid_on(path);
        let answer = self.get(&path).await?;
        self.show(&answer, || {
            let all = items(&answer, "identifiers").iter();
            all.map(|it| {
                let levels = items(it, "namespace").iter().filter_map(Value::as_str);
                format!("{}\n", super::names::dotted(levels.chain(it["name"].as_str())))
            })
            .collect()
        })
    }

    /// Sets and unsets properties by a commit.
    pub(super) async fn commit_properties(
        &self,
        kind: ObjectKind,
        name: &CatalogName,
        set: &[(String, String)],
        unset: &[String],
    ) -> Result<()> {
        let mut updates = Vec::new();
        if !set.is_empty() {
            updates.push(json!({"action": "set-properties", "updates": pairs(set)}));
        }
        if !unset.is_empty() {
            updates.push(json!({"action": "remove-properties", "removals": unset}));
        }
        let body = json!({"requirements": [], "updates": updates});
        let answer = self.post(&self.relation(kind, name), &body).await?;
        self.show(&answer, || properties(&answer["metadata"]["properties"]))
    }

    /// Renames a table or view.
    pub(super) async fn rename(
        &self,
        kind: ObjectKind,
        from: &CatalogName,
        to: &CatalogName,
    ) -> Result<()> {
        let ident = |name: &CatalogName| {
            let (namespace, name) = name.split();
            json!({"namespace": namespace, "name": name})
        };
        let body = json!({"source": ident(from), "destination": ident(to)});
        let answer = self.post(&self.path(&format!("{}s/rename", kind.word())), &body).await?;
        self.show(&answer, || format!("{} is {} now\n", from.dotted(), to.dotted()))
    }

    /// Drops the objects one after the other.
    pub(super) async fn drop_each(
        &self,
        names: &[CatalogName],
        path: impl Fn(&CatalogName) -> String,
    ) -> Result<()> {
        for name in names {
            let answer = self.delete(&path(name)).await?;
            self.show(&answer, || format!("dropped {}\n", name.dotted()))?;
        }
        Ok(())
    }
}

/// Returns a management path outside any warehouse.
pub(super) fn management(rest: &str) -> String {
    format!("{MANAGEMENT}/{rest}")
}

/// Sends a request with or without a JSON body. An empty response is returned as null.
pub(super) async fn ask(
    server: &Remote,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, RemoteFailure> {
    server.ask_with(method, path, body).await
}

/// Prints a response as JSON, if it has a body and `is_json` is set, or as a text.
pub(super) fn show(is_json: bool, answer: &Value, text: impl FnOnce() -> String) -> Result<()> {
    match (is_json, answer) {
        (true, Value::Null) => Ok(()),
        (true, answer) => Ok(print_json(answer)?),
        (false, _) => Ok(write!(io::stdout(), "{}", text())?),
    }
}

/// Returns the elements of the array with this name, or none if it is missing.
pub(super) fn items<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// Converts NAME=VALUE arguments to an object.
pub(super) fn pairs(all: &[(String, String)]) -> Value {
    let all = all.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
    Value::Object(all.collect::<Map<_, _>>())
}

/// Formats an object of strings, one on a line.
pub(super) fn properties(all: &Value) -> String {
    let all = all.as_object().into_iter().flatten();
    all.map(|(name, value)| format!("{}={}\n", plain(name), text(value))).collect()
}
