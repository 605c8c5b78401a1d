//! The three layers, with constructed environments.

use super::*;

fn environment(variables: &[(&str, &str)]) -> Environment {
    let variables = [("HOME", "/home/somebody")].iter().chain(variables);
    let variables = variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Environment::made_up(variables.collect())
}

/// Largest whole number of TOML.
const TOML_MAX: &str = "9223372036854775807";

/// Temporary file with this text, removed after the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let path = env::temp_dir().join(format!("cove-config-{}-{name}.toml", std::process::id()));
        fs::write(&path, text).unwrap();
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

#[test]
fn nothing_at_all_is_a_configuration() {
    let config = CoveConfig::load(None, &environment(&[]), Flags::new()).unwrap();
    assert_eq!(config.http, "127.0.0.1:4100");
    assert_eq!(config.data_dir, Path::new("/home/somebody/.local/share/cove"));
    assert_eq!(config.limits.limits(), ShellLimits::default());
}

#[test]
fn the_data_directory_has_a_default_for_everybody() {
    let check = |environment: Environment, expected: &str| {
        let config = CoveConfig::load(None, &environment, Flags::new()).unwrap();
        assert_eq!(config.data_dir, Path::new(expected));
    };
    check(Environment { is_root: true, ..environment(&[]) }, "/var/lib/cove");
    check(environment(&[("XDG_DATA_HOME", "/data")]), "/data/cove");
    check(environment(&[("XDG_DATA_HOME", "relative")]), "/home/somebody/.local/share/cove");
    check(environment(&[("COVE_DATA_DIR", "/here")]), "/here");
    let homeless = Environment::default();
    assert!(matches!(
        CoveConfig::load(None, &homeless, Flags::new()),
        Err(CoveConfigError::NoHome)
    ));
}

#[test]
fn flags_win_over_variables_and_variables_over_the_file() {
    let text = "http = '127.0.0.1:1'\ndrain_s = 1.5\n[executions]\nqueue_max = 1\nfiles_max = 3\n";
    let file = File::new("layers", text);
    let variables = [
        ("COVE_HTTP", "127.0.0.1:2"),
        ("COVE_EXECUTIONS__QUEUE_MAX", "2"),
        ("COVE_LOG__LEVEL", "debug"),
    ];
    let flags = vec![("http", Value::from("127.0.0.1:3"), "--http")];
    let config = CoveConfig::load(Some(&file.0), &environment(&variables), flags).unwrap();
    assert_eq!(config.http, "127.0.0.1:3");
    assert_eq!((config.executions.queue_max, config.executions.files_max), (2, 3));
    assert_eq!(config.drain_s, Duration::from_millis(1500));
    assert_eq!(config.log.level, LevelFilter::DEBUG);
}

#[test]
fn the_file_is_found_through_the_environment() {
    let file = File::new("env", "http = '127.0.0.1:7'");
    let path = file.0.to_str().unwrap();
    let config =
        CoveConfig::load(None, &environment(&[("COVE_CONFIG", path)]), Flags::new()).unwrap();
    assert_eq!(config.http, "127.0.0.1:7");
    let missing = environment(&[("COVE_CONFIG", "/nowhere/cove.toml")]);
    assert!(matches!(
        CoveConfig::load(None, &missing, Flags::new()),
        Err(CoveConfigError::Read { .. })
    ));
}

#[test]
fn a_wrong_file_is_an_error_that_names_the_line() {
    let check = |name: &str, text: &str, line: usize, expected: &str| {
        let file = File::new(name, text);
        let error = CoveConfig::load(Some(&file.0), &environment(&[]), Flags::new()).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(&format!(".toml:{line}: ")), "{message}");
        assert!(message.contains(expected), "{message}");
    };
    check("key", "# x\nhttpp = 'x'\n", 2, "unknown field `httpp`");
    check("nested", "[executions]\n\nquee_max = 3\n", 3, "unknown field `quee_max`");
    check("limits", "[executions.limits]\ncpu = 3\n", 2, "unknown field `cpu`");
    check("table", "[server]\n", 1, "unknown field `server`");
    check("type", "[limits]\nconnections_max = 'many'\n", 2, "expected a whole number from 0");
    check("negative", "[limits]\nconnections_max = -1\n", 2, "-1");
    check("level", "[log]\nlevel = 'loud'\n", 2, "`loud` is not a log level");
    check("seconds", "drain_s = -1\n", 1, "seconds");
    check("syntax", "http = \n", 1, "");
    check("twice", "http = 'a'\nhttp = 'b'\n", 2, "duplicate");
}

#[test]
fn every_problem_is_found_with_its_place_and_a_remedy() {
    let check = |text: &str, variables: &[(&str, &str)], expected: &[&str]| {
        let file = File::new("problems", text);
        let path = file.0.display().to_string();
        let layers = ConfigLayers::read(Some(&file.0), &environment(variables), Flags::new());
        let layers = layers.unwrap();
        let found = layers.problems.iter().map(|it| it.to_string().replace(&path, "f"));
        assert_eq!(found.collect::<Vec<_>>(), expected, "{text}");
    };
    check("http = '127.0.0.1:1'\n[log]\nlevel = 'debug'\n", &[], &[]);
    // All problems of one file, in the order of its lines.
    check(
        "htpp = 'x'\ndrain_s = -1\n[executions]\nquee_max = 1\nfiles_max = 'many'\n\n[log]\nlevel = 'loud'\n",
        &[],
        &[
            "f:1: htpp: unknown field `htpp`; did you mean `http`?",
            "f:2: drain_s: -1 is not a number of seconds",
            "f:4: executions.quee_max: unknown field `quee_max`; did you mean `queue_max`?",
            "f:5: executions.files_max: expected a whole number from 0 to 9223372036854775807, got the \
             text \"many\"",
            "f:8: log.level: `loud` is not a log level; use `off`, `error`, `warn`, `info`, \
             `debug` and `trace`",
        ],
    );
    // A setting of another table, and one of none.
    check(
        "queue_max = 1\n",
        &[],
        &["f:1: queue_max: unknown field `queue_max`; did you mean `executions.queue_max`?"],
    );
    check(
        "[log]\ncolour = true\n",
        &[],
        &["f:2: log.colour: unknown field `colour`, expected one of `format`, `level`"],
    );
    // In lists and below names; other elements are checked as well.
    check(
        "[[bouncer.tenants]]\nnam = 'a'\n[[bouncer.tenants]]\nname = 'b'\nread_only = 'x'\n\
         [bouncer.servers.main]\nadress = 'db'\nconnections_max = -1\n",
        &[],
        &[
            "f:2: bouncer.tenants.nam: unknown field `nam`; did you mean `name`?",
            "f:5: bouncer.tenants: expected `true` or `false`, got the text …",
            "f:7: bouncer.servers.main.adress: unknown field `adress`; did you mean `address`?",
            "f:8: bouncer.servers.main.connections_max: expected a whole number from 0 to 4294967295, \
             got the number -1",
        ],
    );
    check(
        "",
        &[("COVE_LOG__LEVEL", "loud"), ("COVE_TLS__CRT", "x"), ("COVE_CASE", "x")],
        &[
            "COVE_LOG__LEVEL: log.level: `loud` is not a log level; use `off`, `error`, \
             `warn`, `info`, `debug` and `trace`",
            "COVE_TLS__CRT: tls.crt: unknown field `crt`; did you mean `cert`?",
        ],
    );
    // No message contains the value of a secret.
    check(
        "secrets_key = 12345\n[gateway]\nsecrets = 'hunter2'\n",
        &[("COVE_BOUNCER__TENANTS", "hunter2")],
        &[
            "f:1: secrets_key: expected a text, got the number …",
            "f:3: gateway.secrets: expected a table, got the text …",
            "COVE_BOUNCER__TENANTS: bouncer.tenants: expected a list, got the text …",
        ],
    );
}

#[test]
fn a_value_of_another_kind_is_described_in_words_of_toml() {
    let check = |text: &str, expected: &str| {
        let error =
            LoadedConfig::read(Some(&File::new("kinds", text).0), &environment(&[]), Flags::new());
        let Err(CoveConfigError::Problems(problems)) = error else { panic!("{text} is read") };
        let found: Vec<&str> = problems.iter().map(|it| it.message.as_str()).collect();
        assert_eq!(found, [expected], "{text}");
        for word in ["usize", "u32", "u64", "f64", "invalid type", "sequence", "map", "struct"] {
            assert!(!expected.contains(word), "{expected}");
        }
    };
    let whole = "expected a whole number from 0 to";
    check("[executions]\nqueue_max = 1.5", &format!("{whole} {TOML_MAX}, got the number 1.5"));
    check("[executions]\nqueue_max = true", &format!("{whole} {TOML_MAX}, got `true`"));
    check("[executions]\nqueue_max = [1]", &format!("{whole} {TOML_MAX}, got a list"));
    check("[executions]\nqueue_max = {}", &format!("{whole} {TOML_MAX}, got a table"));
    check("[sessions]\nidle_s = -1", &format!("{whole} 4294967295, got the number -1"));
    check(
        "[sessions]\nidle_s = 'an array'",
        &format!("{whole} 4294967295, got the text \"an array\""),
    );
    check("[sandbox]\nwarm_runtimes = 1", "expected `true` or `false`, got the number 1");
    check("[console]\nhosts = 'a'", "expected a list, got the text \"a\"");
    check("[console]\nhosts = [1]", "expected a text, got the number 1");
    check("log = 'debug'", "expected a table, got the text \"debug\"");
    check("[[log]]", "expected a table, got a list");
    check("http = 4100", "expected a text, got the number 4100");
    check("data_dir = 1", "expected a text, got the number 1");
    check("[gateway.database]\nstatement_s = 'x'", "expected a number, got the text \"x\"");
}

#[test]
fn texts_that_look_like_numbers_stay_texts_where_texts_are_wanted() {
    let variables = [
        ("COVE_OBJECTS__SECRET_ACCESS_KEY", "0123456789"),
        ("COVE_CLUSTER__ZONE", "7"),
        ("COVE_CONSOLE__ENABLED", "false"),
        ("COVE_DRAIN_S", "2.5"),
    ];
    let config = CoveConfig::load(None, &environment(&variables), Flags::new()).unwrap();
    assert_eq!(config.objects.secret_access_key.as_deref(), Some("0123456789"));
    assert_eq!((config.cluster.zone.as_str(), config.console.enabled), ("7", false));
    assert_eq!(config.drain_s, Duration::from_millis(2500));
}

#[test]
fn every_value_says_where_it_is_from() {
    let text = "drain_s = 5\n\n[executions]\nqueue_max = 1\n[bouncer.servers.main]\naddress = 'db'\n\
                [[bouncer.tenants]]\nname = 'shop'\n";
    let file = File::new("origins", text);
    let variables = [("COVE_EXECUTIONS__QUEUE_MAX", "2"), ("COVE_GATEWAY__SECRETS__KEY", "env:X")];
    let flags = vec![("http", Value::from("127.0.0.1:3"), "--http")];
    let loaded = LoadedConfig::read(Some(&file.0), &environment(&variables), flags).unwrap();
    let view = loaded.view();
    let path = file.0.display().to_string();
    assert_eq!(view.file.as_deref(), Some(path.as_str()));
    let check = |key: &str, value: &str, default: &str, kind, name: Option<&str>, line| {
        let found = view.settings.iter().filter(|it| it.key == key).collect::<Vec<_>>();
        let [found] = found[..] else { panic!("{key}: {found:?}") };
        let texts = (found.value.to_string(), found.default.to_string());
        assert_eq!((texts.0.as_str(), texts.1.as_str()), (value, default), "{key}");
        let origin = api::SettingOrigin { kind, name: name.map(str::to_owned), line };
        assert_eq!(found.origin, origin, "{key}");
    };
    use api::SettingOriginKind::{Default, Environment, File as OfFile, Flag};
    check("http", "\"127.0.0.1:3\"", "\"127.0.0.1:4100\"", Flag, Some("--http"), None);
    check("drain_s", "5", "30", OfFile, Some(&path), Some(1));
    let variable = Some("COVE_EXECUTIONS__QUEUE_MAX");
    check("executions.queue_max", "2", "256", Environment, variable, None);
    check("executions.running_max", "null", "null", Default, None, None);
    check("executions.files_max", "256", "256", Default, None, None);
    check("bouncer.servers.main.address", "\"db\"", "null", OfFile, Some(&path), Some(6));
    check("bouncer.tenants", "[{\"name\":\"shop\"}]", "[]", OfFile, Some(&path), Some(7));
    let variable = Some("COVE_GATEWAY__SECRETS__KEY");
    check("gateway.secrets.key", "\"env:X\"", "null", Environment, variable, None);
    check("data_dir", "\"/home/somebody/.local/share/cove\"", "null", Default, None, None);
}

/// Returns a value for every secret below a node, and for the settings that it requires.
fn filled(node: &schema::SettingNode, path: &str, secrets: &mut Vec<String>) -> Option<Value> {
    if !node.has_secret() {
        return None;
    }
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    Some(match node.kind {
        schema::SettingShape::Table(keys) => {
            let entries = keys.iter().filter_map(|key| {
                Some(((*key).to_owned(), filled(node.child(key)?, &below(key), secrets)?))
            });
            Value::Table(entries.collect())
        }
        schema::SettingShape::Names => {
            let value = filled(node.child("example")?, &below("example"), secrets)?;
            Value::Table([("example".to_owned(), value)].into_iter().collect())
        }
        schema::SettingShape::List => {
            Value::Array(vec![filled(node.element()?, &below("[]"), secrets)?])
        }
        schema::SettingShape::Text | schema::SettingShape::Other => {
            secrets.push(path.to_owned());
            match node.secrecy {
                schema::SettingSecrecy::Address => Value::from("postgres://app:hunter2@db/x"),
                _ => Value::from("hunter2"),
            }
        }
    })
}

#[test]
fn no_secret_is_ever_shown() {
    let mut secrets = Vec::new();
    let all = filled(schema::schema(), "", &mut secrets).unwrap();
    secrets.sort_unstable();
    let expected = [
        "bouncer.console.admin_users.[].password",
        "bouncer.console.stats_users.[].password",
        "bouncer.tenants.[].auth_query.password",
        "bouncer.tenants.[].server_password",
        "bouncer.tenants.[].users.[].password",
        "bouncer.tenants.[].users.[].server_password",
        "catalog.secret_access_key",
        "catalog.session_token",
        "executions.jobs.redis",
        "executions.jobs.webhook_key",
        "gateway.secrets.example",
        "objects.secret_access_key",
        "objects.session_token",
        "secrets_key",
        "sessions.model.api_key",
        "store.url",
        "telemetry.traces_headers.example",
    ];
    assert_eq!(secrets, expected);
    let text = toml::to_string(&all).unwrap();
    assert_eq!(text.matches("hunter2").count(), expected.len(), "{text}");
    let file = File::new("secrets", &text);
    let loaded = LoadedConfig::read(Some(&file.0), &environment(&[]), Flags::new()).unwrap();
    let view = loaded.view();
    let json_text = serde_json::to_string(&view).unwrap();
    assert!(!json_text.contains("hunter2"), "{json_text}");
    assert_eq!(json_text.matches('…').count(), expected.len(), "{json_text}");
    // Secrets in lists are part of one value.
    assert_eq!(view.settings.iter().filter(|it| it.masked).count(), 14);
}

#[test]
fn a_setting_that_sounds_secret_is_marked_as_one() {
    fn each(
        node: &schema::SettingNode,
        path: &str,
        visit: &mut impl FnMut(&str, &schema::SettingNode),
    ) {
        let keys: &[&str] = match node.kind {
            schema::SettingShape::Table(keys) => keys,
            schema::SettingShape::Names => &["*"],
            schema::SettingShape::List => &["[]"],
            _ => return visit(path, node),
        };
        for key in keys {
            let child = node.element().or_else(|| node.child(key)).unwrap();
            each(child, &format!("{path}.{key}"), visit);
        }
    }
    let mut found = Vec::new();
    each(schema::schema(), "", &mut |path, node| {
        let name = path.rsplit('.').find(|it| *it != "[]" && *it != "*").unwrap_or_default();
        let secret_terms = ["password", "secret", "token", "key", "credential"];
        let is_text = node.kind == schema::SettingShape::Text && !node.has_secret();
        if is_text && secret_terms.iter().any(|word| name.contains(word)) {
            found.push(path.to_owned());
        }
    });
    // Files of keys, and names of keys and of secrets.
    let open = [
        ".tls.key",
        ".bouncer.tls.key",
        ".bouncer.servers.*.key",
        ".catalog.access_key_id",
        ".gateway.offers.[].secrets.[]",
        ".objects.access_key_id",
    ];
    assert_eq!(found, open);
}

#[test]
fn every_setting_is_in_the_example_file() {
    let text = uncommented(include_str!("../../../../docs/cove.toml"));
    let example: toml::Table = toml::from_str(&text).unwrap();
    schema::schema().each_setting(&mut |path, _| {
        let mut value = Some(&example);
        for (index, key) in path.iter().enumerate() {
            let found = value.and_then(|table| table.get(*key));
            assert!(found.is_some(), "docs/cove.toml lacks {}", path[..=index].join("."));
            value = found.and_then(Value::as_table);
        }
    });
}

#[test]
fn a_wrong_variable_is_named() {
    let check = |variable: &str, value: &str, expected: &str| {
        let error = CoveConfig::load(None, &environment(&[(variable, value)]), Flags::new());
        let message = error.unwrap_err().to_string();
        assert!(message.starts_with(variable) && message.contains(expected), "{message}");
    };
    check("COVE_EXECUTIONS__QUEE_MAX", "3", "unknown field `quee_max`");
    check("COVE_LIMITS__CONNECTIONS_MAX", "many", "expected a whole number");
    check("COVE_DRAIN_S", "soon", "expected a number of seconds");
    check("COVE_HTTP__ADDRESS", "x", "expected a text, got a table");
}

#[test]
fn variables_of_others_are_left_alone() {
    let others = [("COVE_CASE", "x"), ("COVE_TOKEN", "y"), ("COVE_HTTP", ""), ("HTTP", "z")];
    let config = CoveConfig::load(None, &environment(&others), Flags::new()).unwrap();
    assert_eq!(config.http, HTTP_DEFAULT);
    assert_eq!(config.ignored_variables, ["COVE_CASE"]);
}

/// Returns an example with its commented-out settings enabled.
fn uncommented(text: &str) -> String {
    let lines = text.lines().map(|line| match line.strip_prefix("# ") {
        // A commented-out setting looks like one; prose does not.
        Some(rest) if rest.split_once(" = ").is_some_and(|(key, _)| !key.contains(' ')) => {
            format!("{rest}\n")
        }
        _ => format!("{line}\n"),
    });
    lines.collect()
}

#[test]
fn the_example_file_is_the_default_configuration() {
    let text = include_str!("../../../../docs/cove.toml");
    let mut config: CoveConfig = toml::from_str(&uncommented(text)).unwrap();
    // Settings that depend on the host, or are omitted, have an example value rather than a
    // default.
    config.data_dir = PathBuf::new();
    config.store.url = None;
    config.objects = ObjectsTable::default();
    config.catalog.root = None;
    config.catalog.namespace_separator = None;
    config.catalog.access_key_id = None;
    config.catalog.secret_access_key = None;
    config.catalog.session_token = None;
    config.catalog.role_arn = None;
    config.catalog.external_id = None;
    config.catalog.sts_endpoint = None;
    config.secrets_key = None;
    config.telemetry.traces_endpoint = None;
    config.telemetry.traces_headers = gateway::config::NamedSecrets::default();
    config.telemetry.service_name = None;
    config.telemetry.resource_attributes.clear();
    config.gateway.model.prices.clear();
    config.sessions.claude = None;
    config.sessions.templates.pip_index = None;
    config.sessions.templates.npm_registry = None;
    config.mcp.resource = None;
    config.console.directory = None;
    config.sessions.model = sessions::SessionsConfig::default().model;
    config.executions.jobs.redis = None;
    config.executions.jobs.webhook_key = None;
    config.cluster.listen = None;
    config.cluster.advertise = None;
    config.cluster.lease_ms = None;
    config.cluster.kubernetes.node = None;
    config.cluster.kubernetes.server = None;
    config.tls = HttpTlsConfig::default();
    config.compat.piston.listen = None;
    config.compat.piston.settings.compile_memory_limit = None;
    config.compat.piston.settings.run_memory_limit = None;
    config.compat.judge0.listen = None;
    config.compat.ash.agents = None;
    config.compat.e2b.listen = None;
    config.compat.e2b.settings.domain = None;
    config.compat.e2b.settings.url = None;
    config.compat.go_judge.listen = None;
    config.compat.sandbox_fusion.listen = None;
    config.compat.go_judge.settings.stored_file_ttl_s = None;
    config.compat.dbbouncer.listen = None;
    config.gateway.secrets = gateway::config::NamedSecrets::default();
    let defaults = bouncer::config::BouncerConfig::default();
    assert_eq!(config.bouncer.defaults.limits, bouncer::config::LIMITS_DEFAULT);
    assert_eq!((config.bouncer.tenants.len(), config.bouncer.servers.len()), (1, 3));
    assert_eq!(config.bouncer.bound.len(), 1);
    config.bouncer = bouncer::config::BouncerConfig {
        unix_socket_dir: None,
        server_name_suffix: None,
        threads: None,
        bound: defaults.bound,
        tls: defaults.tls,
        servers: defaults.servers,
        defaults: defaults.defaults,
        tenants: defaults.tenants,
        ..config.bouncer
    };
    config.sandbox.warm_runtimes_ready = None;
    config.sandbox.warm = None;
    config.sandbox.spawners = None;
    config.executions.languages = None;
    config.executions.running_max = None;
    config.executions.memory_budget_bytes = None;
    let limits = |limits: &api::LimitSpec| limits.cpu_ms.is_some() && limits.memory_bytes.is_some();
    assert!(limits(&config.executions.limits) && limits(&config.executions.limits_max));
    assert!(
        limits(&config.executions.compile_limits) && limits(&config.executions.compile_limits_max)
    );
    config.executions.limits = api::LimitSpec::default();
    config.executions.limits_max = api::LimitSpec::default();
    config.executions.compile_limits = api::LimitSpec::default();
    config.executions.compile_limits_max = api::LimitSpec::default();
    assert_eq!(config, CoveConfig::default());
    // Displayed defaults are read from the file without changes.
    let mut from_file: CoveConfig = toml::from_str(text).unwrap();
    // An omitted limit of tenants has the same value.
    from_file.bouncer.defaults.limits = api::TenantLimitsSpec::default();
    assert_eq!(from_file, CoveConfig::default());
}
