//! The three layers, with made-up environments.

use super::*;

fn environment(variables: &[(&str, &str)]) -> Environment {
    let variables = [("HOME", "/home/somebody")].iter().chain(variables);
    let variables = variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Environment { variables: variables.collect(), is_root: false }
}

/// A file with this text that is gone after the test.
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
    let check = |name: &str, text: &str, line: usize, words: &str| {
        let file = File::new(name, text);
        let error = CoveConfig::load(Some(&file.0), &environment(&[]), Flags::new()).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(&format!(".toml:{line}: ")), "{message}");
        assert!(message.contains(words), "{message}");
    };
    check("key", "# x\nhttpp = 'x'\n", 2, "unknown field `httpp`");
    check("nested", "[executions]\n\nquee_max = 3\n", 3, "unknown field `quee_max`");
    check("limits", "[executions.limits]\ncpu = 3\n", 2, "unknown field `cpu`");
    check("table", "[server]\n", 1, "unknown field `server`");
    check("type", "[limits]\nconnections_max = 'many'\n", 2, "invalid type");
    check("negative", "[limits]\nconnections_max = -1\n", 2, "-1");
    check("level", "[log]\nlevel = 'loud'\n", 2, "`loud` is no log level");
    check("seconds", "drain_s = -1\n", 1, "seconds");
    check("syntax", "http = \n", 1, "");
    check("twice", "http = 'a'\nhttp = 'b'\n", 2, "duplicate");
}

#[test]
fn a_wrong_variable_is_named() {
    let check = |variable: &str, value: &str, words: &str| {
        let error = CoveConfig::load(None, &environment(&[(variable, value)]), Flags::new());
        let message = error.unwrap_err().to_string();
        assert!(message.starts_with(variable) && message.contains(words), "{message}");
    };
    check("COVE_EXECUTIONS__QUEE_MAX", "3", "unknown field `quee_max`");
    check("COVE_LIMITS__CONNECTIONS_MAX", "many", "invalid type");
    check("COVE_DRAIN_S", "soon", "expected a number of seconds");
    check("COVE_HTTP__ADDRESS", "x", "invalid type");
}

#[test]
fn variables_of_others_are_left_alone() {
    let others = [("COVE_CASE", "x"), ("COVE_TOKEN", "y"), ("COVE_HTTP", ""), ("HTTP", "z")];
    let config = CoveConfig::load(None, &environment(&others), Flags::new()).unwrap();
    assert_eq!(config.http, HTTP_DEFAULT);
    assert_eq!(config.ignored_variables, ["COVE_CASE"]);
}

/// An example with its settings that are commented out.
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
    // What follows the host, or is left out, has an example value rather than a default.
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
    assert!(toml::from_str::<CoveConfig>(text).is_ok(), "and as it stands it is one, too");
}
