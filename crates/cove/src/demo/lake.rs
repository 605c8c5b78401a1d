//! Tables of the demo in the catalog's first warehouse, created through Iceberg's interface, with
//! files that any engine can read.
//!
//! The client writes the files of a table itself, as every client of the catalog does. Therefore
//! the warehouse must be a directory on this machine.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use axum::http::Method;
use node::clock;
use serde_json::{Value, json};

use super::manifests::{DemoFile, manifest, manifest_list};
use super::parquet::{self, ParquetColumn, ParquetValues};
use super::{DEMO, DemoOutcome, counted, delete, found, get_if_present, items, text};
use crate::remote::{self, Remote, RemoteFailure};

/// Namespaces, outermost first. Paths join the levels of a namespace with a separator.
const NAMESPACES: [&[&str]; 2] = [&["demo"], &["demo", "web"]];
/// Separator of the levels of a namespace in a path: U+001F, percent-encoded
/// (<https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>).
const SEPARATOR: &str = "%1F";
/// Property that marks a namespace as the demo's.
const MADE_BY: &str = "made-by";
/// Tables of the demo and its view, in any of its namespaces.
const TABLES: [&str; 6] = ["orders", "customers", "visits", "old_prices", "big_orders", "load"];
/// Snapshots of the table of orders: one for each day.
const SNAPSHOTS: i64 = 30;
const ORDERS_PER_DAY: i64 = 20;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// Days on which the columns of orders change, and days that a branch and tags refer to.
const COUNTRY_ADDED: i64 = 10;
const TOTAL_RENAMED: i64 = 20;
const REFERENCES: [(&str, &str, i64); 4] =
    [("first-day", "tag", 1), ("v1", "tag", 10), ("v2", "tag", 20), ("audit", "branch", 15)];
const CITIES: [&str; 5] = ["Lima", "Oslo", "Pune", "Quito", "Riga"];
const COUNTRIES: [&str; 3] = ["NO", "IN", "PE"];

/// The catalog's first warehouse.
pub(super) struct DemoLake<'a> {
    server: &'a Remote,
    prefix: String,
}

/// New table, and the files of its snapshots.
struct DemoTable<'l> {
    lake: &'l DemoLake<'l>,
    path: String,
    location: String,
    files: Vec<DemoFile>,
}

impl<'a> DemoLake<'a> {
    pub(super) async fn find(server: &'a Remote) -> Result<DemoLake<'a>> {
        let config = server.ask_with(Method::GET, "/catalog/v1/config", None).await?;
        let prefix = text(&config["overrides"], "prefix")?.to_owned();
        Ok(DemoLake { server, prefix })
    }

    fn path(&self, rest: &str) -> String {
        format!("/catalog/v1/{}/{rest}", self.prefix)
    }

    fn management(&self, rest: &str) -> String {
        format!("/catalog/management/v1/{}/{rest}", self.prefix)
    }

    pub(super) fn namespace(&self, levels: &[&str], rest: &str) -> String {
        self.path(&format!("namespaces/{}{rest}", levels.join(SEPARATOR)))
    }

    /// Returns whether a namespace exists. One that the demo did not create is an error.
    pub(super) async fn has(&self, levels: &[&str]) -> Result<bool> {
        let Some(there) = get_if_present(self.server, &self.namespace(levels, "")).await? else {
            return Ok(false);
        };
        let name = levels.join(".");
        let is_own = there["properties"][MADE_BY] == json!(DEMO);
        anyhow::ensure!(
            is_own,
            "the namespace `{name}` is not the demo's (its property `{MADE_BY}` is not `{DEMO}`); \
             rename it or leave it"
        );
        Ok(true)
    }

    /// Returns the name of the warehouse.
    pub(super) fn warehouse(&self) -> String {
        node::objects::decoded(&self.prefix).unwrap_or_else(|| self.prefix.clone())
    }

    /// Creates a table without rows in the demo's namespace; returns its path.
    pub(super) async fn create_empty(&self, name: &str) -> Result<String> {
        Ok(self.create(NAMESPACES[0], name, &schema(0, &[(1, "id", "long")])).await?.path)
    }

    /// Purges dropped tables of these names from a namespace of the demo.
    pub(super) async fn purge_dropped(&self, levels: &[&str], names: &[&str]) -> Result<()> {
        let path = self.management(&format!("dropped?namespace={}", levels.join(SEPARATOR)));
        let list = self.server.ask_with(Method::GET, &path, None).await?;
        let is_own = |it: &&Value| it["name"].as_str().is_some_and(|it| names.contains(&it));
        for entry in items(&list, "dropped").iter().filter(is_own) {
            let path = self.management(&format!("dropped/{}", text(entry, "id")?));
            delete(self.server, &path).await?;
        }
        Ok(())
    }

    async fn make_namespace(&self, levels: &[&str]) -> Result<()> {
        // The server chooses where files are written: one on another machine could name any path.
        anyhow::ensure!(
            remote::is_local(self.server.base()),
            "the server is on another machine, and a demo's rows are written to directories of this one"
        );
        if !self.has(levels).await? {
            let body = json!({"namespace": levels, "properties": {MADE_BY: DEMO}});
            self.server.ask_with(Method::POST, &self.path("namespaces"), Some(&body)).await?;
        }
        Ok(())
    }

    async fn create(&self, levels: &[&str], name: &str, schema: &Value) -> Result<DemoTable<'_>> {
        let body = json!({"name": name, "schema": schema, "properties": {MADE_BY: DEMO}});
        let tables = self.namespace(levels, "/tables");
        let made = self.server.ask_with(Method::POST, &tables, Some(&body)).await?;
        let location = text(&made["metadata"], "location")?.to_owned();
        Ok(DemoTable { lake: self, path: format!("{tables}/{name}"), location, files: Vec::new() })
    }
}

/// Returns the path of a table's file on this machine.
fn local(address: &str) -> Result<PathBuf> {
    let path = address.strip_prefix("file://").with_context(|| {
        format!("rows are written to directories only, and the warehouse is at {address}")
    })?;
    Ok(PathBuf::from(path))
}

fn write(address: &str, bytes: &[u8]) -> Result<i64> {
    let path = local(address)?;
    let directory = path.parent().context("a file has a directory")?;
    let why = || {
        format!("write `{}`: run the demo on the server's machine and as its user", path.display())
    };
    fs::create_dir_all(directory).with_context(why)?;
    fs::write(&path, bytes).with_context(why)?;
    Ok(i64::try_from(bytes.len()).unwrap_or(i64::MAX))
}

impl DemoTable<'_> {
    /// Writes the files of another snapshot; returns the updates that add it.
    fn append(
        &mut self,
        at_ms: i64,
        schema: &Value,
        columns: &[ParquetColumn],
    ) -> Result<Vec<Value>> {
        let sequence = i64::try_from(self.files.len()).unwrap_or(i64::MAX) + 1;
        let rows = columns.first().map_or(0, |it| i64::try_from(it.len()).unwrap_or(0));
        let (location, parent) = (&self.location, self.files.last().map(|it| it.snapshot));
        // The high bits are a time and the low ones the number, so that ids differ between runs.
        let snapshot = clock::wall_ms().cast_signed() * 1000 + sequence;
        let mut file = DemoFile {
            path: format!("{location}/data/{DEMO}-{sequence}.parquet"),
            bytes: 0,
            rows,
            snapshot,
            sequence,
            manifest: format!("{location}/metadata/{DEMO}-{sequence}-m0.avro"),
            manifest_bytes: 0,
        };
        file.bytes = write(&file.path, &parquet::file(columns))?;
        file.manifest_bytes = write(&file.manifest, &manifest(&file, schema))?;
        self.files.push(file);
        let list = format!("{location}/metadata/{DEMO}-{sequence}-list.avro");
        write(&list, &manifest_list(&self.files))?;
        let total = |of: fn(&DemoFile) -> i64| self.files.iter().map(of).sum::<i64>().to_string();
        let added = self.files.last().map_or(0, |it| it.bytes);
        let mut added = json!({
            "snapshot-id": snapshot, "sequence-number": sequence, "timestamp-ms": at_ms,
            "manifest-list": list, "schema-id": schema["schema-id"], "summary": {
                "operation": "append", "added-data-files": "1", "added-records": rows.to_string(),
                "added-files-size": added.to_string(), "total-records": total(|it| it.rows),
                "total-files-size": total(|it| it.bytes), "total-data-files": sequence.to_string(),
                "total-delete-files": "0",
            },
        });
        if let Some(parent) = parent {
            added["parent-snapshot-id"] = parent.into();
        }
        Ok(vec![
            json!({"action": "add-snapshot", "snapshot": added}),
            reference("main", "branch", snapshot),
        ])
    }

    async fn commit(&self, updates: Vec<Value>) -> Result<()> {
        let body = json!({"requirements": [], "updates": updates});
        self.lake.server.ask_with(Method::POST, &self.path, Some(&body)).await?;
        Ok(())
    }
}

fn reference(name: &str, kind: &str, snapshot: i64) -> Value {
    json!({
        "action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": snapshot,
    })
}

fn column(id: i64, name: &'static str, values: ParquetValues) -> ParquetColumn {
    ParquetColumn { id, name, values }
}

fn schema(id: i64, fields: &[(i64, &str, &str)]) -> Value {
    let field = |(id, name, kind): &(i64, &str, &str)| json!({"id": id, "name": name, "type": kind, "required": false});
    let fields = fields.iter().map(field).collect::<Vec<_>>();
    json!({"type": "struct", "schema-id": id, "fields": fields})
}

/// Returns the columns of orders on a day: one is added, and another one is renamed.
fn orders_schema(day: i64) -> Value {
    let amount = if day > TOTAL_RENAMED { "total" } else { "amount" };
    let mut fields = vec![
        (1, "id", "long"),
        (2, "customer", "long"),
        (3, amount, "double"),
        (4, "ordered_at", "timestamptz"),
    ];
    if day > COUNTRY_ADDED {
        fields.push((5, "country", "string"));
    }
    let id = i64::from(day > COUNTRY_ADDED) + i64::from(day > TOTAL_RENAMED);
    schema(id, &fields)
}

/// Selects a text by a number.
fn pick(all: &[&str], number: i64) -> String {
    let place = usize::try_from(number).unwrap_or_default() % all.len().max(1);
    all.get(place).copied().unwrap_or_default().to_owned()
}

/// Returns the orders of a day. `amount` has two decimals, which a float cannot represent exactly;
/// this is sufficient for a demo.
fn orders_of(day: i64, at_ms: i64) -> Vec<ParquetColumn> {
    let ids: Vec<i64> = ((day - 1) * ORDERS_PER_DAY + 1..=day * ORDERS_PER_DAY).collect();
    let amount = |id: &i64| f64::from(u32::try_from(id * 37 % 9000 + 500).unwrap_or(0)) / 100.0;
    let name = if day > TOTAL_RENAMED { "total" } else { "amount" };
    let times = (0..ORDERS_PER_DAY).map(|it| (at_ms - it * 60_000) * 1000).collect();
    let mut all = vec![
        column(1, "id", ParquetValues::Long(ids.clone())),
        column(2, "customer", ParquetValues::Long(ids.iter().map(|it| it * 7 % 40 + 1).collect())),
        column(3, name, ParquetValues::Double(ids.iter().map(amount).collect())),
        column(4, "ordered_at", ParquetValues::Timestamp(times)),
    ];
    if day > COUNTRY_ADDED {
        let countries = ids.iter().map(|it| pick(&COUNTRIES, *it)).collect();
        all.push(column(5, "country", ParquetValues::Text(countries)));
    }
    all
}

/// Creates the table with a history: snapshots, changing columns, a branch and tags.
pub(super) async fn orders(server: &Remote) -> Result<DemoOutcome> {
    let lake = DemoLake::find(server).await?;
    let levels = NAMESPACES[0];
    if lake.has(levels).await?
        && get_if_present(server, &lake.namespace(levels, "/tables/orders")).await?.is_some()
    {
        return Ok(DemoOutcome::Present("demo.orders is there".to_owned()));
    }
    lake.make_namespace(levels).await?;
    let mut table = lake.create(levels, "orders", &orders_schema(1)).await?;
    let filled = fill_orders(&mut table).await;
    taken_back(&table, filled).await?;
    let count = SNAPSHOTS * ORDERS_PER_DAY;
    Ok(DemoOutcome::Made(format!(
        "demo.orders: {count} rows, {SNAPSHOTS} snapshots, 3 schemas, a branch and 3 tags"
    )))
}

/// Drops a table that could not be filled, so that the next run creates it again.
async fn taken_back(table: &DemoTable<'_>, filled: Result<()>) -> Result<()> {
    if filled.is_err() {
        delete(table.lake.server, &table.path).await?;
    }
    filled
}

async fn fill_orders(table: &mut DemoTable<'_>) -> Result<()> {
    let today_ms = clock::wall_ms().cast_signed();
    let mut updates = Vec::new();
    for day in 1..=SNAPSHOTS {
        let at_ms = today_ms - (SNAPSHOTS - day) * DAY_MS;
        let schema = orders_schema(day);
        if day == COUNTRY_ADDED + 1 || day == TOTAL_RENAMED + 1 {
            updates.push(json!({"action": "add-schema", "schema": schema}));
            updates.push(json!({"action": "set-current-schema", "schema-id": -1}));
        }
        updates.extend(table.append(at_ms, &schema, &orders_of(day, at_ms))?);
    }
    for (name, kind, day) in REFERENCES {
        let of = table.files.iter().find(|it| it.sequence == day).context("no such day")?;
        updates.push(reference(name, kind, of.snapshot));
    }
    table.commit(updates).await
}

/// Creates a table with one snapshot.
async fn small_table(
    lake: &DemoLake<'_>,
    levels: &[&str],
    name: &str,
    columns: &[ParquetColumn],
) -> Result<()> {
    let kind = |values: &ParquetValues| match values {
        ParquetValues::Long(_) => "long",
        ParquetValues::Double(_) => "double",
        ParquetValues::Text(_) => "string",
        ParquetValues::Timestamp(_) => "timestamptz",
    };
    let fields: Vec<_> = columns.iter().map(|it| (it.id, it.name, kind(&it.values))).collect();
    let schema = schema(0, &fields);
    let mut table = lake.create(levels, name, &schema).await?;
    let updates = table.append(clock::wall_ms().cast_signed(), &schema, columns);
    let filled = match updates {
        Ok(updates) => table.commit(updates).await,
        Err(error) => Err(error),
    };
    taken_back(&table, filled).await
}

/// Creates the other tables, a view, and a dropped table that can be restored.
pub(super) async fn others(server: &Remote) -> Result<DemoOutcome> {
    let lake = DemoLake::find(server).await?;
    let (shop, web) = (NAMESPACES[0], NAMESPACES[1]);
    if lake.has(shop).await?
        && get_if_present(server, &lake.namespace(shop, "/views/big_orders")).await?.is_some()
    {
        return Ok(DemoOutcome::Present(
            "demo.customers, demo.web.visits and a view are there".to_owned(),
        ));
    }
    lake.make_namespace(shop).await?;
    lake.make_namespace(web).await?;
    let ids: Vec<i64> = (1..=40).collect();
    let names = ids.iter().map(|it| format!("customer {it}")).collect();
    let cities = ids.iter().map(|it| pick(&CITIES, *it)).collect();
    small_table(
        &lake,
        shop,
        "customers",
        &[
            column(1, "id", ParquetValues::Long(ids.clone())),
            column(2, "name", ParquetValues::Text(names)),
            column(3, "city", ParquetValues::Text(cities)),
        ],
    )
    .await?;
    let pages = ids.iter().map(|it| format!("/goods/{}", it % 7)).collect();
    small_table(
        &lake,
        web,
        "visits",
        &[
            column(1, "customer", ParquetValues::Long(ids.clone())),
            column(2, "page", ParquetValues::Text(pages)),
        ],
    )
    .await?;
    let prices = vec![1.5, 2.0, 3.25];
    small_table(
        &lake,
        shop,
        "old_prices",
        &[
            column(1, "id", ParquetValues::Long(vec![1, 2, 3])),
            column(2, "price", ParquetValues::Double(prices)),
        ],
    )
    .await?;
    server.ask_with(Method::DELETE, &lake.namespace(shop, "/tables/old_prices"), None).await?;
    let sql = "SELECT id, customer, total FROM demo.orders WHERE total > 50";
    let body = json!({
        "name": "big_orders", "properties": {MADE_BY: DEMO},
        "schema": schema(0, &[(1, "id", "long"), (2, "customer", "long"), (3, "total", "double")]),
        "view-version": {
            "version-id": 1, "timestamp-ms": clock::wall_ms(), "schema-id": 0, "summary": {},
            "default-namespace": shop,
            "representations": [{"type": "sql", "sql": sql, "dialect": "spark"}],
        },
    });
    server.ask_with(Method::POST, &lake.namespace(shop, "/views"), Some(&body)).await?;
    let made = "demo.customers, demo.web.visits, a view, and a dropped table that can come back";
    Ok(DemoOutcome::Made(made.to_owned()))
}

async fn reader_of(server: &Remote) -> Result<Option<String>> {
    let list = server.ask_with(Method::GET, "/catalog/management/v1/clients", None).await?;
    let own = items(&list, "clients").iter().find(|it| it["name"] == json!(DEMO));
    own.map(|it| Ok(text(it, "client-id")?.to_owned())).transpose()
}

/// Creates a client of the catalog that can only read one namespace.
pub(super) async fn reader(server: &Remote) -> Result<DemoOutcome> {
    let lake = DemoLake::find(server).await?;
    if reader_of(server).await?.is_some() {
        return Ok(DemoOutcome::Present(format!("the client {DEMO} is there")));
    }
    if !lake.has(NAMESPACES[1]).await? {
        let why = "there is no namespace demo.web to read, see the step `other tables`";
        return Ok(DemoOutcome::Skipped(why.to_owned()));
    }
    let body = json!({"name": DEMO});
    let clients = "/catalog/management/v1/clients";
    let made = server.ask_with(Method::POST, clients, Some(&body)).await?;
    let principal = format!("client:{}", text(&made, "client-id")?);
    let grant = json!({"principal": principal, "namespace": NAMESPACES[1], "rights": ["read"]});
    server.ask_with(Method::POST, &lake.management("grants"), Some(&grant)).await?;
    Ok(DemoOutcome::Made(format!("{principal} reads demo.web alone")))
}

pub(super) async fn remove_reader(server: &Remote) -> Result<DemoOutcome> {
    let Some(id) = reader_of(server).await? else {
        return Ok(DemoOutcome::Removed("there was none".to_owned()));
    };
    delete(server, &format!("/catalog/management/v1/clients/{id}")).await?;
    Ok(DemoOutcome::Removed(format!("client:{id}")))
}

/// Purges tables and views of the demo's namespaces with their files, and drops the namespaces.
/// Objects that others created there are kept.
pub(super) async fn remove(server: &Remote) -> Result<DemoOutcome> {
    let lake = DemoLake::find(server).await?;
    let (mut tables, mut views) = (0, 0);
    for levels in NAMESPACES.iter().rev() {
        if !lake.has(levels).await? {
            continue;
        }
        let own = |answer: Value| answer["metadata"]["properties"][MADE_BY] == json!(DEMO);
        for (kind, count) in [("views", &mut views), ("tables", &mut tables)] {
            let path = lake.namespace(levels, &format!("/{kind}"));
            let list = server.ask_with(Method::GET, &path, None).await?;
            for ident in items(&list, "identifiers") {
                let one = format!("{path}/{}", crate::percent::escaped(text(ident, "name")?));
                if get_if_present(server, &one).await?.is_some_and(own) {
                    let purge = if kind == "tables" { "?purgeRequested=true" } else { "" };
                    delete(server, &format!("{one}{purge}")).await?;
                    *count += 1;
                }
            }
        }
        lake.purge_dropped(levels, &TABLES).await?;
        delete_namespace(&lake, levels).await?;
    }
    let (tables, views) = (counted(tables, "table"), counted(views, "view"));
    Ok(DemoOutcome::Removed(format!("{tables} and {views} with their files")))
}

async fn delete_namespace(lake: &DemoLake<'_>, levels: &[&str]) -> Result<(), RemoteFailure> {
    found(lake.server.ask_with(Method::DELETE, &lake.namespace(levels, ""), None).await)?;
    Ok(())
}
