//! Objects at a past moment.
//!
//! The past state is the present state with the changes in the log undone: the first line after the
//! moment that concerns a name records its meaning at the moment. So the log must reach back to the
//! moment, and the cost is proportional to the number of changes since.

use std::collections::{BTreeSet, HashMap, HashSet};

use iceberg::ident::{NamespaceIdent, TableIdent};
use node::store::{SqlRow, SqlStoreError, SqlValue, StoreTransaction};

use super::log::{LINE, StoredLogLine, line};
use super::namespaces;
use super::relations::{self, RelationKind};
use super::timeline::{TimelineMoment, number_at, number_column, number_lines};
use crate::database::CatalogDatabase;
use crate::error::{CatalogError, ErrorReason, Result};

/// Most log lines read to reconstruct a past state.
pub const LINES_BACK_MAX: usize = 50_000;

/// Most namespaces queried in one statement.
const PATHS_AT_ONCE: usize = 500;

type Stored<T> = std::result::Result<T, SqlStoreError>;

/// A relation of the past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastRelation {
    /// Id, now and then.
    pub id: String,
    /// Version; `None` if the log does not record it.
    pub version: Option<u64>,
    /// Path of its metadata file.
    pub location: String,
}

/// A past relation and its present state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastAndPresent {
    /// State of the relation at that time.
    pub past: PastRelation,
    /// Present name; `None` if it no longer exists.
    pub today: Option<TableIdent>,
    /// True if it still has the same version.
    pub is_current: bool,
    /// True if it no longer exists and may be restored with policies.
    pub has_policies: bool,
    /// True if the namespace of this name was made after that moment.
    pub is_of_another: bool,
}

/// Meaning of a name just before a line of the log.
enum PriorName {
    /// No relation had the name.
    Nothing,
    /// The name was that of the relation with this id.
    Relation(String),
    /// The line does not concern the name.
    Unsaid,
}

fn kind_of(act: &str) -> RelationKind {
    if act.ends_with("-view") { RelationKind::View } else { RelationKind::Table }
}

/// Returns the meaning of the name `ident` before `line`.
fn before(line: &StoredLogLine, ident: &TableIdent) -> PriorName {
    if line.target.as_ref() == Some(ident) {
        return PriorName::Nothing;
    }
    let was = || line.relation.clone().map_or(PriorName::Unsaid, PriorName::Relation);
    match line.act.as_str() {
        "purge-table" | "purge-view" => PriorName::Unsaid,
        "create-table" | "create-view" | "register-view" | "undrop-table" | "undrop-view" => {
            PriorName::Nothing
        }
        // It may have replaced a relation.
        "register-table" if line.previous.is_none() => PriorName::Nothing,
        _ => was(),
    }
}

/// Returns the lines after a number that match a condition, oldest first.
fn lines_after(
    it: &mut dyn StoreTransaction,
    condition: &str,
    mut parameters: Vec<SqlValue>,
    number: i64,
) -> Stored<Vec<StoredLogLine>> {
    let column = number_column(it.dialect());
    let next = parameters.len() + 1;
    parameters.push(SqlValue::Int(number));
    let most = LINES_BACK_MAX;
    // Lines without a number were written after all numbered ones.
    let sql = format!(
        "SELECT {column}, {LINE} FROM catalog_log \
         WHERE {condition} AND ({column} > ${next} OR {column} IS NULL) \
         ORDER BY CASE WHEN {column} IS NULL THEN 1 ELSE 0 END, {column}, seq LIMIT {}",
        most + 1
    );
    let rows = it.query(&sql, &parameters)?;
    if rows.len() > most {
        let message = format!("more than {most} changes were made since then");
        return Err(SqlStoreError::refuse(CatalogError::new(ErrorReason::Gone, message)));
    }
    rows.iter().map(line).collect()
}

/// Returns whether a namespace existed.
fn had_namespace(
    it: &mut dyn StoreTransaction,
    warehouse: &str,
    ident: &NamespaceIdent,
    number: i64,
) -> Stored<bool> {
    let condition = "warehouse = $1 AND namespace = $2 AND name IS NULL \
        AND act IN ('create-namespace', 'drop-namespace')";
    let lines = lines_after(it, condition, vec![warehouse.into(), ident.key().into()], number)?;
    match lines.first() {
        Some(line) => Ok(line.act == "drop-namespace"),
        None => Ok(namespaces::find(it, warehouse, ident)?.is_some()),
    }
}

/// Returns the innermost of a namespace and its ancestors that was not recreated since; `None` if
/// all were.
fn kept_since(
    it: &mut dyn StoreTransaction,
    warehouse: &str,
    ident: &NamespaceIdent,
    number: i64,
) -> Stored<Option<NamespaceIdent>> {
    let mut next = Some(ident.clone());
    while let Some(ident) = next {
        let parameters = vec![warehouse.into(), ident.key().into()];
        if lines_after(it, MADE, parameters, number)?.is_empty() {
            return Ok(Some(ident));
        }
        next = ident.parent();
    }
    Ok(None)
}

fn require_namespace(
    it: &mut dyn StoreTransaction,
    warehouse: &str,
    ident: &NamespaceIdent,
    number: i64,
) -> Stored<()> {
    match had_namespace(it, warehouse, ident, number)? {
        true => Ok(()),
        false => Err(SqlStoreError::refuse(namespaces::no_such_namespace(ident))),
    }
}

/// Condition for lines that created a namespace.
const MADE: &str = "warehouse = $1 AND namespace = $2 AND act = 'create-namespace'";

/// Condition for lines that concern names in a namespace, or that gave a relation a name in it.
const ABOUT_NAMES: &str = "warehouse = $1 AND name IS NOT NULL \
    AND (namespace = $2 OR target IS NOT NULL)";

fn relations_then(
    it: &mut dyn StoreTransaction,
    warehouse: &str,
    namespace: &NamespaceIdent,
    kind: RelationKind,
    number: i64,
) -> Stored<BTreeSet<String>> {
    let sql = "SELECT name FROM catalog_tables \
        WHERE warehouse = $1 AND namespace = $2 AND kind = $3 ORDER BY name";
    let place = [warehouse.into(), namespace.key().into(), SqlValue::from(kind.name())];
    let rows = it.query(sql, &place)?;
    let names = rows.iter().map(|row| row.get::<String>(0));
    let mut names = names.collect::<Stored<BTreeSet<_>>>()?;
    let parameters = vec![warehouse.into(), namespace.key().into()];
    let mut judged = HashSet::new();
    for line in lines_after(it, ABOUT_NAMES, parameters, number)? {
        let own = line.name.clone().filter(|_| line.namespace == namespace.key());
        let target = line.target.as_ref().filter(|target| target.namespace == *namespace);
        for name in own.into_iter().chain(target.map(|it| it.name.to_string())) {
            let Ok(ident) = TableIdent::new(namespace.clone(), &name) else { continue };
            let before = before(&line, &ident);
            if matches!(before, PriorName::Unsaid) || !judged.insert(name.clone()) {
                continue;
            }
            match before {
                PriorName::Relation(_) if kind_of(&line.act) == kind => drop(names.insert(name)),
                _ => drop(names.remove(&name)),
            }
        }
    }
    Ok(names)
}

fn relation_then(
    it: &mut dyn StoreTransaction,
    warehouse: &str,
    kind: RelationKind,
    ident: &TableIdent,
    number: i64,
) -> Stored<Option<PastRelation>> {
    let condition = "warehouse = $1 AND (namespace = $2 AND name = $3 \
        OR target IS NOT NULL AND name IS NOT NULL)";
    let parameters =
        vec![warehouse.into(), ident.namespace.key().into(), SqlValue::from(&*ident.name)];
    let lines = lines_after(it, condition, parameters, number)?;
    let is_own = |line: &StoredLogLine| {
        line.namespace == ident.namespace.key() && line.name.as_deref() == Some(&*ident.name)
    };
    let about = lines.iter().filter(|line| is_own(line) || line.target.as_ref() == Some(ident));
    let names_before = about.map(|line| (before(line, ident), line));
    let first = names_before.into_iter().find(|(before, _)| !matches!(before, PriorName::Unsaid));
    let id = match first {
        Some((PriorName::Relation(id), line)) if kind_of(&line.act) == kind => id,
        Some(_) => return Ok(None),
        None => match relations::find(it, warehouse, ident)? {
            Some(found) if found.kind == kind => found.id,
            _ => return Ok(None),
        },
    };
    version_then(it, id, number)
}

/// Returns the version that an existing relation had.
fn version_then(
    it: &mut dyn StoreTransaction,
    id: String,
    number: i64,
) -> Stored<Option<PastRelation>> {
    let lines = lines_after(
        it,
        "relation = $1 AND previous IS NOT NULL AND act NOT IN ('purge-table', 'purge-view')",
        vec![SqlValue::from(&id)],
        number,
    )?;
    if let Some(StoredLogLine { act, version, previous: Some(location), .. }) =
        lines.into_iter().next()
    {
        // A line of a removal has the last version, a line of a change the next one.
        let is_last = act.starts_with("drop") || act.starts_with("unregister");
        let version = version.map(|it| if is_last { it } else { it.saturating_sub(1) });
        return Ok(Some(PastRelation { id, version, location }));
    }
    let sql = "SELECT version, location FROM catalog_tables WHERE id = $1";
    let row = it.query_one(sql, &[SqlValue::from(&id)])?;
    row.map(|row| Ok(PastRelation { id, version: Some(row.get(0)?), location: row.get(1)? }))
        .transpose()
}

/// Adds the present state to a past relation.
fn with_today(
    it: &mut dyn StoreTransaction,
    warehouse: &str,
    past: PastRelation,
) -> Stored<PastAndPresent> {
    let id = SqlValue::from(&past.id);
    let sql = "SELECT namespace, name, location FROM catalog_tables \
        WHERE id = $1 AND warehouse = $2";
    let Some(row) = it.query_one(sql, &[id.clone(), warehouse.into()])? else {
        let sql = "SELECT name FROM catalog_policies WHERE relation = $1 LIMIT 1";
        let has_policies = it.query_one(sql, &[id])?.is_some();
        return Ok(PastAndPresent {
            past,
            today: None,
            is_current: false,
            has_policies,
            is_of_another: false,
        });
    };
    let today = Some(ident_of(&row.get::<String>(0)?, &row.get::<String>(1)?)?);
    let is_current = row.get::<String>(2)? == past.location;
    Ok(PastAndPresent { past, today, is_current, has_policies: false, is_of_another: false })
}

fn ident_of(namespace: &str, name: &str) -> Stored<TableIdent> {
    let namespace = NamespaceIdent::split(namespace, "").map_err(SqlStoreError::refuse)?;
    Ok(TableIdent { namespace, name: name.into() })
}

/// Names and relations as of an earlier line of the log, in the store.
#[derive(Clone, Debug)]
pub(crate) struct PastStore(pub(super) CatalogDatabase);

impl PastStore {
    /// Returns the namespaces that were directly below `parent`, or at the top level, in the order
    /// of their keys; and the innermost namespace that was not recreated since.
    ///
    /// # Errors
    /// `Gone` if the log does not reach back so far; `NoSuchNamespace` if the parent did not exist.
    pub(crate) async fn namespaces_at(
        &self,
        warehouse: &str,
        parent: Option<&NamespaceIdent>,
        moment: TimelineMoment,
    ) -> Result<(Vec<NamespaceIdent>, Option<NamespaceIdent>)> {
        number_lines(&self.0).await?;
        let (warehouse, parent) = (warehouse.to_owned(), parent.cloned());
        let read = self.0.read("catalog.namespaces_at", move |it| {
            let number = number_at(it, moment)?;
            let mut kept = None;
            if let Some(parent) = &parent {
                require_namespace(it, &warehouse, parent, number)?;
                kept = kept_since(it, &warehouse, parent, number)?;
            }
            let above = parent.as_ref().map(NamespaceIdent::key).unwrap_or_default();
            let sql = "SELECT path FROM catalog_namespaces \
                WHERE warehouse = $1 AND parent = $2 ORDER BY path";
            let rows = it.query(sql, &[SqlValue::from(&warehouse), above.into()])?;
            let paths = rows.iter().map(|row| row.get::<String>(0));
            let mut paths = paths.collect::<Stored<BTreeSet<_>>>()?;
            let condition =
                "warehouse = $1 AND act IN ('create-namespace', 'drop-namespace') AND name IS NULL";
            let mut judged = HashSet::new();
            for line in lines_after(it, condition, vec![SqlValue::from(&warehouse)], number)? {
                let Ok(ident) = NamespaceIdent::split(&line.namespace, "") else { continue };
                if ident.parent() != parent || !judged.insert(line.namespace.clone()) {
                    continue;
                }
                match line.act.as_str() {
                    "drop-namespace" => paths.insert(line.namespace),
                    _ => paths.remove(&line.namespace),
                };
            }
            Ok((paths, kept))
        });
        let (paths, kept) = read.await?;
        let paths = paths.iter().map(|path| NamespaceIdent::split(path, ""));
        Ok((paths.collect::<Result<_>>()?, kept))
    }

    /// Returns the names of all tables or all views that a namespace had, in order; and the
    /// innermost namespace that was not recreated since.
    ///
    /// # Errors
    /// `Gone` if the log does not reach back so far; `NoSuchNamespace` if it did not exist.
    pub(crate) async fn relations_at(
        &self,
        warehouse: &str,
        namespace: &NamespaceIdent,
        kind: RelationKind,
        moment: TimelineMoment,
    ) -> Result<(Vec<String>, Option<NamespaceIdent>)> {
        number_lines(&self.0).await?;
        let (warehouse, namespace) = (warehouse.to_owned(), namespace.clone());
        let read = self.0.read("catalog.relations_at", move |it| {
            let number = number_at(it, moment)?;
            require_namespace(it, &warehouse, &namespace, number)?;
            let kept = kept_since(it, &warehouse, &namespace, number)?;
            Ok((relations_then(it, &warehouse, &namespace, kind, number)?, kept))
        });
        let (names, kept) = read.await?;
        Ok((names.into_iter().collect(), kept))
    }

    /// Returns the metadata files that the log names, of any table, whose path contains the last
    /// two segments of this directory. The result may include files of other directories that end
    /// alike.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn logged_below(&self, directory: &str) -> Result<HashSet<String>> {
        let mut parts: Vec<_> = directory.rsplit('/').filter(|it| !it.is_empty()).take(2).collect();
        parts.reverse();
        // Independent of the scheme and of the form of the root.
        let part = SqlValue::from(format!("/{}/", parts.join("/")));
        let read = self.0.read("catalog.logged_below", move |it| {
            let sql = "SELECT previous, location FROM catalog_log \
                WHERE replace(previous, $1, '') <> previous \
                OR replace(location, $1, '') <> location";
            let mut all = HashSet::new();
            for row in &it.query(sql, std::slice::from_ref(&part))? {
                all.extend(row.get::<Option<String>>(0)?);
                all.extend(row.get::<Option<String>>(1)?);
            }
            Ok(all)
        });
        read.await
    }

    /// Returns the number of the line that last created each of these namespaces, if it is after
    /// `number`. Lines without a number are after all others.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn made_since(
        &self,
        warehouse: &str,
        paths: BTreeSet<String>,
        number: i64,
    ) -> Result<HashMap<String, i64>> {
        let (warehouse, paths) = (warehouse.to_owned(), Vec::from_iter(paths));
        let read = self.0.read("catalog.made_since", move |it| {
            let (column, mut made) = (number_column(it.dialect()), HashMap::new());
            for paths in paths.chunks(PATHS_AT_ONCE) {
                let places: Vec<String> = (3..paths.len() + 3).map(|it| format!("${it}")).collect();
                let sql = format!(
                    "SELECT namespace, MAX(COALESCE({column}, {})) FROM catalog_log \
                     WHERE warehouse = $1 AND act = 'create-namespace' \
                     AND ({column} > $2 OR {column} IS NULL) AND namespace IN ({}) \
                     GROUP BY namespace",
                    i64::MAX,
                    places.join(", ")
                );
                let mut parameters = vec![SqlValue::from(&warehouse), SqlValue::Int(number)];
                parameters.extend(paths.iter().map(SqlValue::from));
                for row in it.query(&sql, &parameters)? {
                    made.insert(row.get(0)?, row.get(1)?);
                }
            }
            Ok(made)
        });
        read.await
    }

    /// Returns the present names of relations by their ids. Relations that no longer exist are
    /// omitted.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn names_today(
        &self,
        warehouse: &str,
        ids: BTreeSet<String>,
    ) -> Result<HashMap<String, TableIdent>> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let places: Vec<String> = (2..ids.len() + 2).map(|it| format!("${it}")).collect();
        let sql = format!(
            "SELECT id, namespace, name FROM catalog_tables WHERE warehouse = $1 AND id IN ({})",
            places.join(", ")
        );
        let mut parameters = vec![SqlValue::from(warehouse)];
        parameters.extend(ids.into_iter().map(SqlValue::from));
        let read = self.0.read("catalog.names_today", move |it| {
            let rows = it.query(&sql, &parameters)?;
            let name = |row: &SqlRow| {
                let ident = ident_of(&row.get::<String>(1)?, &row.get::<String>(2)?)?;
                Ok((row.get::<String>(0)?, ident))
            };
            rows.iter().map(name).collect::<Stored<HashMap<_, _>>>()
        });
        read.await
    }

    /// Returns the relation and version that had a name, and its present state.
    ///
    /// # Errors
    /// `Gone` if the log does not reach back so far; `NoSuchTable` or `NoSuchView` if no relation
    /// had the name.
    pub(crate) async fn relation_at(
        &self,
        warehouse: &str,
        kind: RelationKind,
        ident: &TableIdent,
        moment: TimelineMoment,
    ) -> Result<PastAndPresent> {
        number_lines(&self.0).await?;
        let (warehouse, ident) = (warehouse.to_owned(), ident.clone());
        let read = self.0.read("catalog.relation_at", move |it| {
            let number = number_at(it, moment)?;
            let past = relation_then(it, &warehouse, kind, &ident, number)?;
            let past = past.ok_or_else(|| SqlStoreError::refuse(kind.no_such(&ident)))?;
            let then = with_today(it, &warehouse, past)?;
            let parameters = vec![SqlValue::from(&warehouse), ident.namespace.key().into()];
            let is_of_another = !lines_after(it, MADE, parameters, number)?.is_empty();
            Ok(PastAndPresent { is_of_another, ..then })
        });
        read.await
    }
}
