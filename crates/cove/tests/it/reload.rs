//! A running server reloads its configuration: settings that take effect, settings that do not, and
//! the effect of an invalid one.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};
use testkit::{Certificate, Client, Request, Scratch, Server, command, until};

use crate::asynchronous::post;
use crate::support::{COVE, LANGUAGES, SOON, beside_others, shell};

/// Values of settings that cannot be changed by adding one to the default, by the last part of
/// their keys: `executions.limits.cpu_ms`, `bouncer.tls.mode`.
const OTHER_VALUES: [(&str, &str); 31] = [
    ("admin_users", "[{ name = \"root\", password = \"x\" }]"),
    ("audit_queries", "true"),
    ("auth", "\"trust\""),
    ("cpu_ms", "7000"),
    ("disk_bytes", "60000000"),
    ("disk_bytes_max", "9000000000"),
    ("disk_inodes", "4000"),
    ("file_size_bytes", "60000000"),
    ("history_bytes_max", "1000000"),
    (
        "issuers",
        "[{ name = \"id\", issuer = \"https://id.example\", audience = \"https://cove.example/mcp\", \
          jwks_file = \"/dev/null\", tenant = \"team\" }]",
    ),
    ("level", "\"debug\""),
    ("memory_bytes", "100000000"),
    ("memory_bytes_max", "5000000000"),
    ("offers", "[{ tenants = [\"*\"], grants = [\"http:a.example\"] }]"),
    ("open_files", "100"),
    ("output_bytes", "60000"),
    ("outputs_max", "7"),
    ("processes", "50"),
    ("processes_max", "2000"),
    ("queue_max", "300"),
    ("secrets", "{ example = \"hunter2\" }"),
    ("server_name_suffix", "\".db.example\""),
    ("servers", "{ main = { address = \"db.example:5432\" } }"),
    ("stack_bytes", "4000000"),
    ("stats_users", "[{ name = \"eve\", password = \"x\" }]"),
    (
        "tenants",
        "[{ name = \"shop\", server = \"main\", users = [{ name = \"app\", password = \"x\" }] }]",
    ),
    ("wall_ms", "14000"),
    ("mode", "\"require\""),
    ("pool_mode", "\"session\""),
    ("settings", "{ statement_timeout = \"1s\" }"),
    ("verify", "\"always\""),
];

/// Server whose configuration file the test rewrites.
struct ReloadedServer {
    server: Server,
    /// Lines at the beginning of each of its configurations.
    always: String,
}

impl ReloadedServer {
    fn start(always: &str) -> ReloadedServer {
        let always = format!("{always}\nexecutions.languages = {LANGUAGES:?}\n");
        ReloadedServer { server: Server::start_with(COVE, &[], Some(&always)), always }
    }

    fn write(&self, more: &str) {
        let path = self.server.scratch().path().join("cove.toml");
        fs::write(path, format!("{}{more}\n", self.always)).unwrap();
    }

    fn reload(&self) -> (u16, Value) {
        let answer = post(&self.server.client(), "/v1/reload", &json!({}));
        (answer.status, answer.json())
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        let config = self.server.client().get("/v1/config").json();
        let settings = config["settings"].as_array().unwrap().iter();
        settings.map(|it| (it["key"].as_str().unwrap().to_owned(), it.clone())).collect()
    }
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect()
}

/// Returns another value for a setting in TOML; for certificate settings, the path of a file in
/// `files`.
fn other_value(key: &str, setting: &Value, files: &Certificate) -> String {
    let last = key.rsplit('.').next().unwrap();
    match last {
        "cert" | "client_ca" => return format!("{:?}", files.certificate),
        "key" => return format!("{:?}", files.key),
        _ => {}
    }
    let known = OTHER_VALUES.iter().find(|(name, _)| *name == last);
    match (known, setting["default"].as_f64()) {
        (Some((_, value)), _) => (*value).to_owned(),
        (None, Some(number)) => (number + 1.0).to_string(),
        (None, None) => panic!("{key} is reloadable, and OTHER_VALUES has nothing for it"),
    }
}

#[test]
fn every_setting_that_is_reloadable_is_taken_over() {
    let _guard = beside_others();
    let (scratch, other) = (Scratch::new(), Scratch::new());
    let (current, renewed) = (Certificate::new(&scratch), Certificate::new(&other));
    let always = "tls.plaintext = \"always\"\n";
    let tls =
        |it: &Certificate| format!("tls.cert = {:?}\ntls.key = {:?}\n", it.certificate, it.key);
    let it = ReloadedServer::start(&format!("{always}{}", tls(&current)));
    let it = ReloadedServer { always: it.always.replace(&tls(&current), ""), ..it };
    let before = it.settings();
    let (mut lines, mut expected) = (String::new(), Vec::new());
    for (key, setting) in before.iter().filter(|(_, setting)| setting["reloadable"] == true) {
        lines += &format!("{key} = {}\n", other_value(key, setting, &renewed));
        expected.push(key.as_str());
    }
    assert!(expected.len() > 80, "{expected:?}");
    // Two settings that are not reloadable.
    lines += "drain_s = 7\nexecutions.running_max = 3\n";
    it.write(&lines);
    let (status, answer) = it.reload();
    assert_eq!(status, 200, "{answer}\n{lines}");
    assert_eq!(strings(&answer["restart_needed_for"]), ["drain_s", "executions.running_max"]);
    let taken_over = strings(&answer["taken_over"]);
    let after = it.settings();
    for key in &expected {
        assert!(taken_over.contains(key), "{key} is not among {taken_over:?}");
        // In a table with free names, each entry is a separate setting.
        let value =
            |settings: &BTreeMap<String, Value>| settings.get(*key).map(|it| it["value"].clone());
        assert_ne!(value(&after), value(&before), "{key}");
    }
    assert_eq!(taken_over.len(), expected.len(), "{taken_over:?}");
    for key in ["drain_s", "executions.running_max"] {
        assert_eq!(after[key], before[key]);
    }

    // The displayed values are in effect.
    let client = it.server.client();
    let refused = |request: &Value, message: &str| {
        let answer = post(&client, "/v1/executions?wait=true", request);
        assert!(answer.status == 400 && answer.text().contains(message), "{}", answer.text());
    };
    let outputs: Vec<String> = (0..8).map(|number| format!("{number}")).collect();
    refused(&json!({ "argv": ["true"], "outputs": outputs }), "7");
    refused(&json!({ "argv": ["true"], "limits": { "cpu_ms": 7001 } }), "7000");
    let offers = client.get("/v1/gateway/offers").json();
    assert_eq!(offers["limits"]["database"]["rows"], after["gateway.database.rows"]["value"]);
    until("a line of the new level", SOON, || match it.server.log() {
        log if log.contains("DEBUG") => Ok(()),
        log => Err(log),
    });
    let address = format!("https://localhost:{}/health/live", client.address().port());
    let shows = |certificate: &Certificate| {
        let mut curl = command("curl");
        curl.args(["--silent", "--cacert"]).arg(&certificate.certificate).arg(&address);
        curl.output().unwrap().status.success()
    };
    assert_eq!((shows(&renewed), shows(&current)), (true, false));
    // A second reload changes nothing, and reports the pending restart again.
    let (_, answer) = it.reload();
    assert_eq!(answer["taken_over"], json!([]));
    assert_eq!(strings(&answer["restart_needed_for"]), ["drain_s", "executions.running_max"]);
}

#[test]
fn an_invalid_configuration_changes_nothing_and_all_that_is_wrong_is_said() {
    let _guard = beside_others();
    let mut it = ReloadedServer::start("bouncer.enabled = false\n");
    let before = it.settings();
    it.write("executions.files_max = 3\ndrain_s = 'soon'\nlog.level = 'loud'\n");
    let (status, answer) = it.reload();
    let message = answer["error"]["message"].as_str().unwrap();
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("invalid_request")), "{answer}");
    assert!(message.contains("drain_s: expected") && message.contains("`loud`"), "{message}");
    // Contradictory settings are rejected as well.
    it.write(
        "executions.files_max = 3\ntls.cert = '/nowhere'\ngateway.secrets.x = 'file:/nowhere'\n",
    );
    let (status, answer) = it.reload();
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(status == 400 && message.contains("tls.key is missing"), "{answer}");
    assert!(message.contains("gateway.secrets.x"), "{answer}");
    assert_eq!(it.settings(), before);

    // After the signal, the rejection is logged, and a server without a bouncer reloads too.
    it.server.expect_log("the configuration is not taken over");
    it.server.signal("HUP");
    until("the refusal in the log", SOON, || match it.server.log() {
        log if log.contains("not taken over") => Ok(()),
        log => Err(log),
    });
    it.write("executions.files_max = 3\n");
    it.server.signal("HUP");
    until("the new limit", SOON, || match &it.settings()["executions.files_max"]["value"] {
        value if *value == 3 => Ok(()),
        value => Err(value.to_string()),
    });
    let files: BTreeMap<String, Value> =
        (0..4).map(|number| (format!("{number}"), json!({ "content": "" }))).collect();
    let mut request = shell("true");
    request["files"] = json!(files);
    let answer = post(&it.server.client(), "/v1/executions?wait=true", &request);
    assert!(answer.status == 400 && answer.text().contains("files"), "{}", answer.text());

    // Only operators may reload, and the command line can.
    let other: Client = it.server.other_client("other", &[]);
    assert_eq!(other.send(&Request::new("POST", "/v1/reload")).status, 403);
    let cove = |arguments: &[&str]| {
        let mut command = it.server.command("reload");
        let output = command.args(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    it.write("executions.files_max = 4\nhttp = '127.0.0.1:1'\ndrain_s = 1\n");
    let expected = "reloaded: executions.files_max\na restart is needed for: drain_s\n";
    assert_eq!(cove(&[]), (Some(0), expected.to_owned(), String::new()));
    let (code, json, _) = cove(&["--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(code, Some(0));
    assert_eq!(json, json!({ "taken_over": [], "restart_needed_for": ["drain_s"] }));
    assert_eq!(cove(&["--quiet"]), (Some(0), String::new(), String::new()));
    it.write("quee = 1\n");
    let (code, out, error) = cove(&["-q"]);
    assert!(code == Some(2) && out.is_empty() && error.contains("unknown field `quee`"), "{error}");
}

#[test]
fn a_catalog_alone_takes_over_what_it_serves_with() {
    let _guard = beside_others();
    let mut server = Server::start_catalog(COVE, Some("limits.connections_max = 500\n"));
    let path = server.scratch().path().join("cove.toml");
    let write = |more: &str| fs::write(&path, format!("{more}\n")).unwrap();
    let setting = |server: &Server| {
        let config = server.client().get("/v1/config").json();
        let settings = config["settings"].as_array().unwrap().clone();
        let found = settings.into_iter().find(|it| it["key"] == "limits.connections_max");
        found.unwrap()["value"].clone()
    };
    assert_eq!(setting(&server), 500);
    write("limits.connections_max = 'many'");
    server.expect_log("the configuration is not taken over");
    server.signal("HUP");
    until("the refusal in the log", SOON, || match server.log() {
        log if log.contains("not taken over") => Ok(()),
        log => Err(log),
    });
    assert_eq!(setting(&server), 500);
    write("limits.connections_max = 501\ndrain_s = 7");
    server.signal("HUP");
    until("the new limit", SOON, || match setting(&server) {
        value if value == 501 => Ok(()),
        value => Err(value.to_string()),
    });
    write("limits.connections_max = 502\ndrain_s = 7");
    let answer = post(&server.client(), "/v1/reload", &json!({}));
    let expected =
        json!({ "taken_over": ["limits.connections_max"], "restart_needed_for": ["drain_s"] });
    assert_eq!((answer.status, answer.json()), (200, expected));
    assert_eq!(server.client().get("/catalog/v1/config").status, 200);
}
