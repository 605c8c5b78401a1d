//! `cove tenant`: manages the databases behind a server's bouncer.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use api::{
    BouncerClientList, BouncerServerList, TenantAdmission, TenantEngine, TenantHealth,
    TenantHealthReport, TenantLimitsSpec, TenantList, TenantOrigin, TenantSpec, TenantStats,
    TenantStatsList, TenantUserSpec, TenantView,
};
use axum::http::Method;

use crate::cli::{AddTenantArgs, TenantArgs, TenantCommand};
use crate::config::{CoveConfig, Environment};
use crate::remote::{self, Remote, plain};
use crate::run::print_json;
use crate::usage_error::UsageError;
use crate::values::columns;

/// Largest definition, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Largest password file, in bytes, including a line end that an editor adds.
const PASSWORD_BYTES_MAX: u64 = 70_000;

/// Runs one command.
pub(crate) fn run(args: &TenantArgs, config: &CoveConfig, environment: &Environment) -> ExitCode {
    remote::with_server(&args.server, config, environment, async |server| {
        execute(args, &server).await.map(|()| 0)
    })
}

async fn execute(args: &TenantArgs, server: &Remote) -> Result<()> {
    match &args.command {
        TenantCommand::Add(added) => {
            let spec = spec(added)?;
            let (method, path, done) = match added.replace {
                true => (Method::PUT, format!("/v1/tenants/{}", spec.name), "updated"),
                false => (Method::POST, "/v1/tenants".to_owned(), "created"),
            };
            let tenant: TenantView = server.ask(server.request_with(method, &path, &spec)?).await?;
            if args.json {
                return Ok(print_json(&tenant)?);
            }
            Ok(writeln!(io::stdout(), "{done} {}", plain(&tenant.spec.name))?)
        }
        TenantCommand::List => {
            let rows = fetch_tenants(server).await?;
            if args.json {
                return Ok(print_json(&rows)?);
            }
            Ok(write!(io::stdout(), "{}", table(&rows))?)
        }
        TenantCommand::Show { name, connections } => {
            show(server, name, *connections, args.json).await
        }
        TenantCommand::Pause { names, refuse } => {
            let query = if *refuse { "pause?refuse=true" } else { "pause" };
            each(server, names, Method::POST, query, args.json).await
        }
        TenantCommand::Resume(them) => {
            each(server, &them.names, Method::POST, "resume", args.json).await
        }
        TenantCommand::Drain(them) => {
            each(server, &them.names, Method::POST, "drain", args.json).await
        }
        TenantCommand::Reconnect(them) => {
            each(server, &them.names, Method::POST, "reconnect", args.json).await
        }
        TenantCommand::Remove(them) => {
            each(server, &them.names, Method::DELETE, "", args.json).await
        }
    }
}

/// Sends one request for each of several tenants, and reports each result.
async fn each(
    server: &Remote,
    names: &[String],
    method: Method,
    what: &str,
    json: bool,
) -> Result<()> {
    for name in names {
        let path = match what {
            "" => format!("/v1/tenants/{name}"),
            _ => format!("/v1/tenants/{name}/{what}"),
        };
        server.open(server.request(method.clone(), &path)).await?;
        if json {
            continue;
        }
        let done = match what {
            "" => format!("removed {name}"),
            "reconnect" => format!("{name} reconnects"),
            _ => {
                let tenant: TenantView =
                    server.call(Method::GET, &format!("/v1/tenants/{name}")).await?;
                format!("{name} is {}", admission(tenant.admission))
            }
        };
        writeln!(io::stdout(), "{done}")?;
    }
    Ok(())
}

/// Returns the tenant definition from the arguments.
fn spec(args: &AddTenantArgs) -> Result<TenantSpec> {
    let mut spec = match &args.from {
        Some(path) => read_spec(path)?,
        None => TenantSpec::default(),
    };
    spec.name.clone_from(&args.name);
    for (address, engine) in
        [(&args.postgres, TenantEngine::Postgres), (&args.mysql, TenantEngine::Mysql)]
    {
        if let Some(address) = address {
            spec.server.clone_from(address);
            spec.engine = engine;
        }
    }
    spec.engine = args.engine.map_or(spec.engine, Into::into);
    spec.database = args.database.clone().or(spec.database);
    spec.pool_mode = args.mode.map(Into::into).or(spec.pool_mode);
    spec.weight = args.weight.or(spec.weight);
    spec.read_only |= args.read_only;
    if let (Some(name), Some(file)) = (&args.user, &args.password_file) {
        let password = Some(read_password(file)?);
        spec.users.retain(|user| user.name != *name);
        let name = name.clone();
        spec.users.push(TenantUserSpec { name, password, ..TenantUserSpec::default() });
    }
    if let Some(user) = &args.server_user {
        spec.server_user = Some(user.clone());
        let password = args.server_password_file.as_deref().map(read_password);
        spec.server_password = password.transpose()?;
    }
    if !args.limit.is_empty() {
        spec.limits = limits(&spec.limits, &args.limit)?;
    }
    spec.settings.extend(args.set.iter().cloned());
    Ok(spec)
}

/// Overrides limits by name.
fn limits(before: &TenantLimitsSpec, more: &[(String, String)]) -> Result<TenantLimitsSpec> {
    let mut document = serde_json::to_value(before)?;
    for (name, text) in more {
        let usage = |what: &str| UsageError(format!("--limit {name}={text}: {what}"));
        let number: serde_json::Number = text.parse().map_err(|_| usage("is not a number"))?;
        document[name] = number.into();
        // One at a time, so that an error is about this limit.
        if let Err(error) = serde_json::from_value::<TenantLimitsSpec>(document.clone()) {
            return Err(usage(&error.to_string()).into());
        }
    }
    Ok(serde_json::from_value(document)?)
}

/// Reads a definition, as JSON or TOML according to the file's extension.
fn read_spec(path: &Path) -> Result<TenantSpec> {
    let path_text = path.display();
    let text = read(path, FILE_BYTES_MAX)?;
    let parsed = match path.extension().and_then(|it| it.to_str()) {
        Some("json") => serde_json::from_str(&text).map_err(|error| error.to_string()),
        _ => toml::from_str(&text).map_err(|error| error.to_string()),
    };
    parsed.map_err(|error| UsageError(format!("`{path_text}`: {error}")).into())
}

/// Reads a password, without its line end.
fn read_password(path: &Path) -> Result<String> {
    let text = read(path, PASSWORD_BYTES_MAX)?;
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        return Err(UsageError(format!("`{}` is empty", path.display())).into());
    }
    Ok(password.to_owned())
}

fn read(path: &Path, bytes_max: u64) -> Result<String> {
    let path_text = path.display();
    let mut text = String::new();
    let read = match path.to_str() {
        Some("-") => io::stdin().take(bytes_max + 1).read_to_string(&mut text),
        _ => std::fs::File::open(path)
            .and_then(|file| file.take(bytes_max + 1).read_to_string(&mut text)),
    };
    let length = read.with_context(|| format!("read `{path_text}`"))?;
    if u64::try_from(length).is_ok_and(|length| length > bytes_max) {
        return Err(UsageError(format!("`{path_text}` is too large")).into());
    }
    Ok(text)
}

/// Tenant with its figures.
#[derive(Debug, serde::Serialize)]
pub(crate) struct TenantRow {
    pub(crate) tenant: TenantView,
    pub(crate) stats: TenantStats,
}

/// Returns all tenants of a server.
pub(crate) async fn fetch_tenants(server: &Remote) -> Result<Vec<TenantRow>> {
    let list: TenantList = server.call(Method::GET, "/v1/tenants").await?;
    let stats: TenantStatsList = server.call(Method::GET, "/v1/tenants/stats").await?;
    let mut stats: HashMap<String, TenantStats> =
        stats.tenants.into_iter().map(|it| (it.name.clone(), it)).collect();
    // A tenant may have been removed since it was listed.
    let row = |tenant: TenantView| {
        let stats = stats.remove(&tenant.spec.name)?;
        Some(TenantRow { tenant, stats })
    };
    Ok(list.tenants.into_iter().filter_map(row).collect())
}

fn table(rows: &[TenantRow]) -> String {
    let heading =
        ["name", "engine", "server", "mode", "state", "health", "clients", "connections", "from"];
    let mut lines = vec![heading.map(str::to_owned)];
    for TenantRow { tenant, stats } in rows {
        let spec = &tenant.spec;
        lines.push([
            plain(&spec.name),
            spec.engine.as_str().to_owned(),
            plain(&spec.server),
            spec.pool_mode.map_or("default", mode).to_owned(),
            admission(tenant.admission).to_owned(),
            health(tenant.health).to_owned(),
            stats.clients.to_string(),
            format!("{} of {}", stats.servers, stats.server_connections_max),
            origin(tenant.origin).to_owned(),
        ]);
    }
    columns(&lines, "")
}

fn mode(mode: api::PoolMode) -> &'static str {
    match mode {
        api::PoolMode::Session => "session",
        api::PoolMode::Transaction => "transaction",
        api::PoolMode::Statement => "statement",
    }
}

pub(crate) fn admission(admission: TenantAdmission) -> &'static str {
    match admission {
        TenantAdmission::Open => "open",
        TenantAdmission::Paused => "paused",
        TenantAdmission::Refusing => "refusing",
        TenantAdmission::Draining => "draining",
    }
}

pub(crate) fn health(health: TenantHealth) -> &'static str {
    match health {
        TenantHealth::Unknown => "unknown",
        TenantHealth::Healthy => "healthy",
        TenantHealth::Unhealthy => "unhealthy",
    }
}

fn origin(origin: TenantOrigin) -> &'static str {
    match origin {
        TenantOrigin::File => "cove.toml",
        TenantOrigin::Api => "api",
    }
}

async fn show(server: &Remote, name: &str, connections: bool, json: bool) -> Result<()> {
    let path = format!("/v1/tenants/{name}");
    let tenant: TenantView = server.call(Method::GET, &path).await?;
    let stats: TenantStats = server.call(Method::GET, &format!("{path}/stats")).await?;
    let health: TenantHealthReport = server.call(Method::GET, &format!("{path}/health")).await?;
    let mut document = serde_json::json!({ "tenant": &tenant, "stats": &stats, "health": &health });
    let mut text = details(&tenant, &stats, &health);
    if connections {
        let clients: BouncerClientList =
            server.call(Method::GET, &format!("{path}/clients")).await?;
        let servers: BouncerServerList =
            server.call(Method::GET, &format!("{path}/servers")).await?;
        text.push_str(&lists(&clients, &servers));
        document["clients"] = serde_json::to_value(clients.clients)?;
        document["servers"] = serde_json::to_value(servers.servers)?;
    }
    if json {
        return Ok(print_json(&document)?);
    }
    Ok(write!(io::stdout(), "{text}")?)
}

fn details(tenant: &TenantView, stats: &TenantStats, report: &TenantHealthReport) -> String {
    let spec = &tenant.spec;
    let mut text = format!("{}\n", plain(&spec.name));
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            text.push_str(&format!("  {name:<14}{}\n", plain(value)));
        }
    };
    line("engine", spec.engine.as_str());
    line("server", &spec.server);
    line("database", spec.database.as_deref().unwrap_or(&spec.name));
    line("mode", spec.pool_mode.map_or("default", mode));
    let users: Vec<&str> = spec.users.iter().map(|user| user.name.as_str()).collect();
    line("users", &users.join(", "));
    line("server user", spec.server_user.as_deref().unwrap_or_default());
    line("read-only", if spec.read_only { "yes" } else { "" });
    line("local infile", if spec.local_infile == Some(true) { "yes" } else { "" });
    line("found rows", if spec.found_rows == Some(true) { "yes" } else { "" });
    let limits = serde_json::to_string(&spec.limits).unwrap_or_default();
    line("limits", if limits == "{}" { "" } else { &limits });
    line("state", admission(tenant.admission));
    line("health", health(report.health));
    line("error", report.error.as_deref().unwrap_or_default());
    line("from", origin(tenant.origin));
    line(
        "clients",
        &format!(
            "{}: {} active, {} waiting",
            stats.clients, stats.clients_active, stats.clients_waiting
        ),
    );
    line(
        "connections",
        &format!(
            "{} of {}: {} active, {} idle",
            stats.servers, stats.server_connections_max, stats.servers_active, stats.servers_idle
        ),
    );
    line("transactions", &stats.transactions.to_string());
    let times = stats.transaction_ms;
    line(
        "times",
        &format!("p50 {:.2} ms, p95 {:.2} ms, p99 {:.2} ms", times.p50, times.p95, times.p99),
    );
    line("errors", &error_counts(&stats.errors));
    text
}

/// Formats errors by code, the most frequent first.
fn error_counts(errors: &BTreeMap<String, u64>) -> String {
    let mut counts: Vec<(&String, &u64)> = errors.iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let texts: Vec<String> = counts.iter().map(|(code, count)| format!("{count} {code}")).collect();
    texts.join(", ")
}

fn lists(clients: &BouncerClientList, servers: &BouncerServerList) -> String {
    let heading = ["client", "user", "address", "state", "server", "pins"];
    let mut rows = vec![heading.map(str::to_owned)];
    for client in &clients.clients {
        rows.push([
            client.pid.to_string(),
            plain(&client.user),
            plain(&client.address),
            plain(&client.state),
            client.server_pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            plain(&client.pins.join(", ")),
        ]);
    }
    let mut text = format!("\n{}", columns(&rows, ""));
    let heading = ["server", "user", "state", "client", "age"];
    let mut rows = vec![heading.map(str::to_owned)];
    for server in &servers.servers {
        rows.push([
            server.pid.to_string(),
            plain(&server.user),
            plain(&server.state),
            server.client_pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            format!("{:.0} s", server.connected_s),
        ]);
    }
    text.push_str(&format!("\n{}", columns(&rows, "")));
    text
}

#[cfg(test)]
mod tests {
    //! Requests and text output about tenants.

    use testkit::Scratch;

    use super::*;

    fn args(name: &str) -> AddTenantArgs {
        AddTenantArgs {
            name: name.to_owned(),
            engine: None,
            postgres: None,
            mysql: None,
            database: None,
            mode: None,
            user: None,
            password_file: None,
            server_user: None,
            server_password_file: None,
            read_only: false,
            weight: None,
            limit: Vec::new(),
            set: Vec::new(),
            from: None,
            replace: false,
        }
    }

    #[test]
    fn the_command_line_is_laid_over_the_file() {
        let scratch = Scratch::new();
        let file = "name = \"other\"\nserver = \"db\"\nweight = 2\n\
            users = [{ name = \"app\", password = \"old\" }]\nlimits = { wait_s = 5 }\n";
        let from = Some(scratch.file("shop.toml", file));
        let password_file = Some(scratch.file("password", "new\n"));
        let pair = |text: &str| crate::values::variable(text).unwrap();
        let add = AddTenantArgs {
            from,
            user: Some("app".to_owned()),
            password_file,
            limit: vec![pair("query_s=1.5"), pair("waiting_max=7")],
            set: vec![pair("statement_timeout=5s")],
            ..args("shop")
        };
        let spec = spec(&add).unwrap();
        assert_eq!(
            (spec.name.as_str(), spec.server.as_str(), spec.weight),
            ("shop", "db", Some(2))
        );
        assert_eq!(spec.users.len(), 1);
        assert_eq!(spec.users[0].password.as_deref(), Some("new"));
        let TenantLimitsSpec { wait_s, query_s, waiting_max, .. } = spec.limits;
        assert_eq!((wait_s, query_s, waiting_max), (Some(5.0), Some(1.5), Some(7)));
        assert_eq!(spec.settings["statement_timeout"], "5s");
    }

    #[test]
    fn an_address_says_what_is_spoken_there() {
        let check = |add: AddTenantArgs, engine: TenantEngine| {
            let spec = spec(&add).unwrap();
            assert_eq!((spec.engine, spec.server.as_str()), (engine, "db"));
        };
        let db = || Some("db".to_owned());
        check(AddTenantArgs { postgres: db(), ..args("a") }, TenantEngine::Postgres);
        check(AddTenantArgs { mysql: db(), ..args("a") }, TenantEngine::Mysql);
        let scratch = Scratch::new();
        let file = "name = \"a\"\nserver = \"db\"\nengine = \"mysql\"\n";
        let from = Some(scratch.file("a.toml", file));
        check(AddTenantArgs { from, ..args("a") }, TenantEngine::Mysql);
    }

    #[test]
    fn mistakes_are_said_before_anything_is_sent() {
        let scratch = Scratch::new();
        let check = |add: AddTenantArgs, expected: &str| {
            let error = format!("{:#}", spec(&add).unwrap_err());
            assert!(error.contains(expected), "{error}");
        };
        let limit = |text: &str| AddTenantArgs {
            limit: vec![crate::values::variable(text).unwrap()],
            ..args("a")
        };
        check(limit("wait_s=soon"), "is not a number");
        check(limit("patience=3"), "patience");
        check(limit("waiting_max=1.5"), "waiting_max=1.5");
        let nothing = scratch.file("nothing", "\n");
        let user = Some("app".to_owned());
        check(AddTenantArgs { user, password_file: Some(nothing), ..args("a") }, "is empty");
        let wrong = Some(scratch.file("a.json", "{\"sever\": 1}"));
        check(AddTenantArgs { from: wrong, ..args("a") }, "sever");
    }
}
