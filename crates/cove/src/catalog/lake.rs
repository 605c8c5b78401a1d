//! A server's catalog seen from the command line: its paths, its answers, its refusals.

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
/// Path of its management interface, which is not Iceberg's.
const MANAGEMENT: &str = "/catalog/management/v1";

/// Header with the token of the next page where the body is no JSON.
const NEXT_PAGE: &str = "x-next-page-token";

/// A warehouse of a server's catalog, and how answers are shown.
pub(super) struct RemoteWarehouse<'a> {
    server: &'a Remote,
    /// Prefix of the warehouse, as it stands in a path.
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
    /// Name of the kind in paths and answers.
    pub(super) fn word(self) -> &'static str {
        match self {
            ObjectKind::Table => "table",
            ObjectKind::View => "view",
        }
    }
}

impl<'a> RemoteWarehouse<'a> {
    /// The warehouse of this name, or the server's first one.
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

    /// A path of Iceberg's in this warehouse.
    pub(super) fn path(&self, rest: &str) -> String {
        format!("{CATALOG}/{}/{rest}", self.prefix)
    }

    /// A path of management in this warehouse.
    pub(super) fn management(&self, rest: &str) -> String {
        format!("{MANAGEMENT}/{}/{rest}", self.prefix)
    }

    /// The path of a namespace, and of what is below it.
    pub(super) fn namespace(&self, levels: &[String], rest: &str) -> String {
        self.path(&format!("namespaces/{}{rest}", in_path(levels)))
    }

    /// The path of a table or view.
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

    /// Asks by any method.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, RemoteFailure> {
        ask(self.server, method, path, body).await
    }

    /// A page that is no JSON, and what continues it.
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

    /// Shows an answer: all of it as JSON, or what `text` makes of it.
    pub(super) fn show(&self, answer: &Value, text: impl FnOnce() -> String) -> Result<()> {
        show(self.is_json, answer, text)
    }

    /// Returns whether answers are shown as they are.
    pub(super) fn is_json(&self) -> bool {
        self.is_json
    }

    /// Lists what is of a kind in a namespace, or was.
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

    /// Gives a table or view another name.
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

    /// Removes what has these paths, one after the other.
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

/// A path of management that belongs to no warehouse.
pub(super) fn management(rest: &str) -> String {
    format!("{MANAGEMENT}/{rest}")
}

/// Asks, with or without a document. An answer without one is null.
pub(super) async fn ask(
    server: &Remote,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, RemoteFailure> {
    server.ask_with(method, path, body).await
}

/// Shows an answer as JSON, if there is one and that was asked for, or as a text.
pub(super) fn show(is_json: bool, answer: &Value, text: impl FnOnce() -> String) -> Result<()> {
    match (is_json, answer) {
        (true, Value::Null) => Ok(()),
        (true, answer) => Ok(print_json(answer)?),
        (false, _) => Ok(write!(io::stdout(), "{}", text())?),
    }
}

/// The members of a list, if there is one of this name.
pub(super) fn items<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// Returns what was typed as NAME=VALUE, as an object.
pub(super) fn pairs(all: &[(String, String)]) -> Value {
    let all = all.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
    Value::Object(all.collect::<Map<_, _>>())
}

/// An object of texts, one on a line.
pub(super) fn properties(all: &Value) -> String {
    let all = all.as_object().into_iter().flatten();
    all.map(|(name, value)| format!("{}={}\n", plain(name), text(value))).collect()
}
