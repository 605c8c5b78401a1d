//! The dashboard and the alerts in the packages query only metrics that a server exports; each
//! alert fires when it should, and has a section with instructions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testkit::{Certificate, Client, PgAddress, PgClient, Request, Scratch, Server, until};

use crate::asynchronous::{ended, submit};
use crate::gateway::{CANARY, databases};
use crate::promql::{Metric, Metrics, Query, check_query, label_values};
use crate::sessions_support::{Sessions, config};
use crate::support::{COVE, SOON, beside_others, run, shell};

/// Families that have no sample while nothing fails: name, type and labels according to the
/// documentation.
const OF_FAILURES: &[(&str, &str, &[&str])] = &[
    ("cove_store_transaction_errors_total", "counter", &["name"]),
    ("cove_store_transaction_retries_total", "counter", &["name"]),
];
/// Metric that Prometheus itself records for a server, and the labels that it adds to all samples.
const UP: (&str, &str) = ("up", "gauge");
const OF_PROMETHEUS: &[&str] = &["job", "instance"];

fn monitoring() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/monitoring")
}

fn read(name: &str) -> String {
    fs::read_to_string(monitoring().join(name)).unwrap()
}

/// One alerting rule.
#[derive(Debug, Default)]
struct AlertRule {
    name: String,
    expr: String,
    lines: Vec<String>,
}

/// Returns the alerts of `cove.rules.yml`. Prometheus' own tool checks that it is YAML, and the
/// number of alerts.
fn alerts() -> Vec<AlertRule> {
    let mut found: Vec<AlertRule> = Vec::new();
    let mut in_expr = false;
    for line in read("cove.rules.yml").lines() {
        let text = line.trim();
        if let Some(name) = text.strip_prefix("- alert: ") {
            found.push(AlertRule { name: name.to_owned(), ..AlertRule::default() });
        }
        let Some(alert) = found.last_mut() else { continue };
        match text.strip_prefix("expr: ") {
            Some(">-") => in_expr = true,
            Some(quoted) if quoted.starts_with('\'') => {
                alert.expr = quoted.trim_matches('\'').replace("''", "'");
            }
            Some(plain) => plain.clone_into(&mut alert.expr),
            None if in_expr && !text.starts_with("for: ") => {
                alert.expr = format!("{} {text}", alert.expr).trim().to_owned();
            }
            None => in_expr = false,
        }
        alert.lines.push(text.to_owned());
    }
    found
}

/// Server that has done some of each kind of work, so that every family has samples.
struct Worker {
    server: Server,
    _neighbours: Box<dyn std::any::Any>,
}

fn worked() -> Worker {
    let scratch = Scratch::new();
    let own = Certificate::new(&scratch);
    let tls = format!("tls.cert = {:?}\ntls.key = {:?}\n", own.certificate, own.key);
    let (postgres, mariadb, tenants) = databases();
    let tenants = tenants.replacen("[bouncer]\n", &format!("[bouncer]\n{tls}"), 1);
    // No request uses the model, but its metrics exist only if one is configured.
    let sessions = config("resident_max = 1\nready = 0\nmodel.url = \"http://127.0.0.1:9\"\n");
    let server = Server::start_with(COVE, &[], Some(&(tls + &sessions + &tenants)));
    let client = server.client();

    run(&client, &shell("echo hello"));
    let refused = client.run(&json!({"language": "brainfog", "source": ""}));
    assert_eq!(refused.status, 400);
    let job = submit(&client, &shell("echo later"));
    assert_eq!(ended(&client, &job)["state"], "finished");

    // The second session evicts the first.
    let sessions = Sessions::from(&server);
    for _ in 0..2 {
        sessions.create(&json!({}));
    }

    let address = PgAddress::from(server.listener("bouncer"));
    let parameters = [("user", "clerk"), ("database", "shop")];
    let mut clerk = PgClient::login(&address, &parameters, CANARY).unwrap();
    assert_eq!(clerk.value("SELECT count(*) FROM items"), "100");
    clerk.fail("SELECT 1 / 0");
    clerk.run("CREATE TEMP TABLE kept (x int)");
    // The client is pinned to the connection that has the table.
    assert_eq!(clerk.value("SELECT count(*) FROM kept"), "0");
    clerk.close();

    Worker { server, _neighbours: Box::new((postgres, mariadb, scratch)) }
}

fn page(client: &Client) -> String {
    client.send(&Request::new("GET", "/metrics").header("accept", "text/plain")).text()
}

/// Returns the metrics of the server, once it is idle and all its work has been counted.
fn settled_page(client: &Client) -> String {
    until("figures of all that was done", SOON, || {
        let text = page(client);
        let shows = |part: &str| text.lines().any(|line| line.starts_with(part));
        let expected = [
            "cove_bouncer_errors_total{",
            "cove_bouncer_session_pins_total{",
            "cove_bouncer_tenant_health{",
            "cove_queue_executions{state=\"finished\"} 1",
            "cove_session_sandbox_events_total{",
            "cove_session_sandboxes_running 0",
        ];
        let missing: Vec<_> = expected.iter().filter(|part| !shows(part)).collect();
        if missing.is_empty() {
            Ok(text)
        } else {
            Err(format!("{missing:?}\n{}", figures_text(&text)))
        }
    })
}

/// Returns a metrics page without buckets and comments, for an error message.
fn figures_text(page: &str) -> String {
    page.lines().filter(|line| !line.contains("_bucket") && !line.starts_with('#')).collect()
}

/// Checks values that follow from the server's configuration and from its host.
fn check_figures(page: &str) {
    let figure = |name: &str| -> f64 {
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in\n{page}")).parse().unwrap()
    };
    for check in ["store", "queue", "disk"] {
        assert_eq!(figure(&format!("cove_ready{{check=\"{check}\"}}")), 1.0, "{check}");
    }
    assert_eq!(figure("cove_session_sandboxes_resident_max"), 1.0);
    assert!(figure("cove_executions_running_max") >= 1.0);
    assert_eq!(figure("cove_queue_paused"), 0.0);
    assert_eq!(figure("cove_queue_oldest_seconds"), 0.0);
    let free = figure("cove_data_dir_free_bytes");
    assert!(free > 0.0 && free < figure("cove_data_dir_size_bytes"), "{free}");
    let expiry = figure("cove_http_certificate_expiry_timestamp_seconds");
    assert!(expiry > figure("process_start_time_seconds"), "{expiry}");
    assert_eq!(figure("cove_bouncer_certificate_expiry_timestamp_seconds"), expiry);
}

fn known(page: &str) -> Metrics {
    let mut metrics = Metrics::read(page, OF_PROMETHEUS);
    let documentation = include_str!("../../../../docs/metrics.md");
    for (name, kind, labels) in OF_FAILURES {
        assert!(documentation.contains(&format!("`{name}`")), "docs/metrics.md lacks {name}");
        assert!(!metrics.has(name), "{name} has samples: it needs no exception");
        metrics.add(name, Metric::new(kind, labels.iter().chain(OF_PROMETHEUS)));
    }
    metrics.add(UP.0, Metric::new(UP.1, OF_PROMETHEUS));
    metrics
}

/// Collects every query below a value of the dashboard, with its location.
fn queries_of(value: &Value, place: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            let place = match fields.get("title").and_then(Value::as_str) {
                Some(title) => format!("{place} › {title}"),
                None => place.to_owned(),
            };
            if let Some(expr) = fields.get("expr").and_then(Value::as_str) {
                found.push((place.clone(), expr.to_owned()));
            }
            fields.values().for_each(|field| queries_of(field, &place, found));
        }
        Value::Array(values) => values.iter().for_each(|it| queries_of(it, place, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Checks that panels have a description, a unit and the dashboard's variables, and do not overlap.
fn check_panels(dashboard: &Value) {
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeMap::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id is used twice");
        let field = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(field("x") + field("w") <= 24, "{title}: wider than the page");
        for y in field("y")..field("y") + field("h") {
            for x in field("x")..field("x") + field("w") {
                let other = taken.insert((x, y), title);
                assert_eq!(other, None, "{title} covers it at {x}, {y}");
            }
        }
        if panel["type"] == "row" {
            continue;
        }
        let about = panel["description"].as_str().unwrap_or_default();
        assert!(about.len() > 15 && about.ends_with('.'), "{title}: no description");
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title}: no unit");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        for target in panel["targets"].as_array().unwrap() {
            let expr = target["expr"].as_str().unwrap();
            assert!(expr.contains("$instance"), "{title}: of all servers: {expr}");
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
        }
    }
}

#[test]
fn the_dashboard_and_the_alerts_ask_for_what_a_server_shows() {
    let _guard = beside_others();
    let worker = worked();
    let page = settled_page(&worker.server.client());
    check_figures(&page);
    let metrics = known(&page);

    let dashboard: Value = serde_json::from_str(&read("cove.dashboard.json")).unwrap();
    check_panels(&dashboard);
    let mut queries = Vec::new();
    queries_of(&dashboard, "dashboard", &mut queries);
    assert!(queries.len() > 100, "{queries:?}");
    queries.extend(alerts().into_iter().map(|alert| (alert.name, alert.expr)));
    for (place, expr) in &queries {
        check_query(&Query::parse(expr), &metrics).unwrap_or_else(|why| {
            panic!("{place}: {why}\n{expr}");
        });
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if let Some(definition) = variable["definition"].as_str() {
            let (selector, label) = label_values(definition).unwrap();
            check_query(&Query::parse(&format!("group by ({label}) ({selector})")), &metrics)
                .unwrap_or_else(|why| panic!("variable {}: {why}", variable["name"]));
        }
    }
    check_syntax(&queries);
    no_alert_fires(&page);
}

/// Checks the syntax of every query with Prometheus' own parser, as recording rules.
fn check_syntax(queries: &[(String, String)]) {
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    for (number, (_, expr)) in queries.iter().enumerate() {
        let expr = expr.replace("$__rate_interval", "5m").replace('\'', "''");
        rules += &format!("      - record: query:number{number}\n        expr: '{expr}'\n");
    }
    let scratch = Scratch::new();
    let file = scratch.path().join("dashboard.rules.yml");
    fs::write(&file, rules).unwrap();
    promtool(&["check", "rules", file.to_str().unwrap()]);
}

/// Returns the names of headings in the form that links to sections use.
fn anchors(markdown: &str) -> Vec<String> {
    let headings = markdown.lines().filter(|line| line.starts_with('#'));
    let slug = |line: &str| {
        let text = line.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(slug).collect()
}

#[test]
fn every_alert_says_who_how_bad_and_what_to_do() {
    let sections = anchors(include_str!("../../../../docs/operations.md"));
    let alerts = alerts();
    assert!(alerts.len() > 30, "{alerts:?}");
    let names: BTreeSet<String> = alerts.iter().map(|alert| alert.name.to_lowercase()).collect();
    assert_eq!(names.len(), alerts.len(), "two alerts of one name");
    let cases = read("cove.rules.test.yml");
    for AlertRule { name, lines, .. } in &alerts {
        let has = |start: &str| lines.iter().any(|line| line.starts_with(start));
        let severity = |it: &str| has(&format!("labels: {{severity: {it}}}"));
        assert!(severity("critical") || severity("warning"), "{name}: severity");
        assert!(has("for: ") && has("description: "), "{name}");
        let summary = lines.iter().find(|line| line.starts_with("summary: ")).unwrap();
        assert!(summary.contains("{{ $labels."), "{name}: the summary names no object");
        let anchor = name.to_lowercase();
        assert!(has(&format!("runbook: docs/operations.md#{anchor}")), "{name}: runbook");
        assert!(sections.contains(&anchor), "docs/operations.md has no section on {name}");
        let case = format!("ALERTS{{alertname=\"{name}\",alertstate=\"firing\"}}");
        assert!(cases.contains(&case), "cove.rules.test.yml does not try {name}");
    }
    let of_alerts = sections.iter().filter(|it| it.starts_with("cove") && !it.contains('-'));
    let stale: Vec<_> = of_alerts.filter(|it| !names.contains(*it)).collect();
    assert!(stale.is_empty(), "docs/operations.md is about alerts that are not there: {stale:?}");
    let found = promtool(&["check", "rules", "cove.rules.yml"]);
    assert!(found.contains(&format!("{} rules found", alerts.len())), "{found}");
    promtool(&["test", "rules", "cove.rules.test.yml"]);
}

/// Runs Prometheus' tool in the directory of the rules; it must succeed. Returns its output.
fn promtool(arguments: &[&str]) -> String {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(monitoring());
    let output = command.output().expect("start promtool; scripts/test-deps.sh installs it");
    let text = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    assert!(output.status.success(), "{command:?}: {}", text.concat());
    text.concat()
}

/// Checks that no alert fires for a healthy server whose metrics do not change.
fn no_alert_fires(page: &str) {
    let rules = read("cove.rules.yml");
    let mut series = vec![("up{job=\"cove\",instance=\"one\"}".to_owned(), "1".to_owned())];
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = name.split_once('{').unwrap_or((name, "}"));
        // The free disk space of this machine is not under test.
        if !rules.contains(name) || name.starts_with("cove_data_dir_") || value == "NaN" {
            continue;
        }
        let labels = labels.trim_end_matches('}');
        let comma = if labels.is_empty() { "" } else { "," };
        let labels = format!("job=\"cove\",instance=\"one\"{comma}{labels}");
        series.push((format!("{name}{{{labels}}}"), value.to_owned()));
    }
    assert!(series.len() > 50, "{series:?}");
    let mut test = format!(
        "rule_files: [{:?}]\nevaluation_interval: 5m\ntests:\n  - interval: 1m\n    \
         input_series:\n",
        monitoring().join("cove.rules.yml")
    );
    for (series, value) in series {
        test += &format!("      - series: '{series}'\n        values: '{value}x240'\n");
    }
    test += "    promql_expr_test:\n      - expr: ALERTS{alertstate=\"firing\"}\n        \
             eval_time: 4h\n        exp_samples: []\n";
    let scratch = Scratch::new();
    let file = scratch.path().join("well.test.yml");
    fs::write(&file, test).unwrap();
    promtool(&["test", "rules", file.to_str().unwrap()]);
}
