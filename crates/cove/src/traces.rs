//! Assembles tracing: the `[telemetry]` table, the variables that OpenTelemetry tools share, and
//! the exporter of a server.
//!
//! # References
//! - <https://opentelemetry.io/docs/specs/otel/protocol/exporter/>
//! - <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use gateway::config::NamedSecrets;
use node::client;
use node::cluster::NodeIdentity;
use node::telemetry::Registry;
use node::traces::{
    ExporterSettings, RunningExporter, TraceResource, TraceSampler, Tracer, TracerSettings,
};
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use crate::config::ConfigSource;
use crate::config::{self, CoveConfig, Environment};

/// Path at which collectors receive traces (OTLP/HTTP).
const TRACES_PATH: &str = "/v1/traces";
/// Default name of this service.
const SERVICE_NAME: &str = "cove";
/// Upper limit of the span queue. Each span may have some kilobytes.
const QUEUE_SPANS_MAX: usize = 1 << 20;

/// The `[telemetry]` table.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TelemetryConfig {
    /// Collector that receives spans by OTLP over HTTP: `http://127.0.0.1:4318`. Without it,
    /// nothing is traced.
    pub(crate) traces_endpoint: Option<String>,
    /// Headers of requests to the collector, by name: references (`env:NAME`, `file:PATH`), or
    /// literal values.
    #[serde(deserialize_with = "api::secret_setting")]
    pub(crate) traces_headers: NamedSecrets,
    /// True if requests to the collector are compressed.
    pub(crate) traces_gzip: bool,
    /// Recorded fraction of the traces that begin here, from 0 to 1.
    pub(crate) sample_ratio: f64,
    /// True if spans of statements contain the statement, in the audit's form.
    pub(crate) statements: bool,
    /// Name of this service among others.
    pub(crate) service_name: Option<String>,
    /// Further attributes of the resource: names and texts.
    pub(crate) resource_attributes: BTreeMap<String, String>,
    /// Maximum queued spans; more are dropped.
    pub(crate) queue_spans_max: usize,
    /// Maximum spans of one request.
    pub(crate) batch_spans_max: usize,
    /// Maximum time that a span waits for others.
    #[serde(deserialize_with = "config::seconds")]
    pub(crate) batch_delay_s: Duration,
    /// Timeout of one request.
    #[serde(deserialize_with = "config::seconds")]
    pub(crate) export_timeout_s: Duration,
}

impl Default for TelemetryConfig {
    fn default() -> TelemetryConfig {
        TelemetryConfig {
            traces_endpoint: None,
            traces_headers: NamedSecrets::default(),
            traces_gzip: true,
            sample_ratio: 1.0,
            statements: false,
            service_name: None,
            resource_attributes: BTreeMap::new(),
            queue_spans_max: 8192,
            batch_spans_max: 512,
            batch_delay_s: Duration::from_secs(5),
            export_timeout_s: Duration::from_secs(10),
        }
    }
}

/// Traces of a server.
#[derive(Debug, Default)]
pub(crate) struct ServerTraces {
    tracer: Option<Tracer>,
    exporter: Option<RunningExporter>,
}

impl ServerTraces {
    /// Starts to send spans if the configuration or the environment names a collector.
    pub(crate) fn start(
        source: &ConfigSource,
        node: Option<&NodeIdentity>,
        registry: &mut Registry,
    ) -> Result<ServerTraces> {
        let ConfigSource { config, environment, .. } = source;
        let zone = Some(config.cluster.zone.as_str()).filter(|zone| !zone.is_empty());
        let settings = settings(&config.telemetry, environment);
        let settings = settings.context("failed to set up traces")?;
        let Some(mut settings) = settings else {
            return Ok(ServerTraces::default());
        };
        let TraceResource(resource) = &mut settings.exporter.resource;
        let own = [
            ("service.version", Some(env!("CARGO_PKG_VERSION"))),
            ("service.instance.id", node.map(|node| node.id.as_str())),
            ("cloud.availability_zone", zone),
        ];
        for (name, text) in own.into_iter().filter_map(|(name, text)| Some((name, text?))) {
            resource.entry(name.to_owned()).or_insert_with(|| text.to_owned());
        }
        let (tracer, exporter) = Tracer::new(settings, registry);
        let exporter = exporter.start();
        Ok(ServerTraces { tracer: Some(tracer), exporter: Some(exporter) })
    }

    /// Returns the tracer; none if tracing is disabled.
    pub(crate) fn tracer(&self) -> Option<Tracer> {
        self.tracer.clone()
    }

    /// Sends the remaining spans.
    pub(crate) async fn close(self) {
        if let Some(exporter) = self.exporter {
            exporter.close().await;
        }
    }
}

/// Checks the settings.
pub(crate) fn check(config: &CoveConfig, environment: &Environment) -> Result<()> {
    settings(&config.telemetry, environment).map(drop)
}

/// Returns the settings of the tracer; none if no collector is named.
fn settings(config: &TelemetryConfig, environment: &Environment) -> Result<Option<TracerSettings>> {
    let Some(url) = endpoint(config, environment)? else { return Ok(None) };
    let Some(sampler) = TraceSampler::new(config.sample_ratio) else {
        bail!("telemetry.sample_ratio: must be a number from 0 to 1");
    };
    if !(1..=QUEUE_SPANS_MAX).contains(&config.queue_spans_max) {
        bail!("telemetry.queue_spans_max: must be 1 to {QUEUE_SPANS_MAX}");
    }
    if !(1..=config.queue_spans_max).contains(&config.batch_spans_max) {
        bail!("telemetry.batch_spans_max: must be 1 to `queue_spans_max`");
    }
    Ok(Some(TracerSettings {
        sampler,
        queue_spans_max: config.queue_spans_max,
        has_statements: config.statements,
        exporter: ExporterSettings {
            url,
            headers: headers(config, environment)?,
            timeout: config.export_timeout_s,
            batch_spans_max: config.batch_spans_max,
            batch_delay: config.batch_delay_s,
            is_gzip: config.traces_gzip,
            resource: resource(config, environment)?,
        },
    }))
}

/// Returns the URL that receives traces. The configured URL and the general variable name a
/// collector; `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is used unchanged.
fn endpoint(config: &TelemetryConfig, environment: &Environment) -> Result<Option<String>> {
    let is_off = |text: &str| text.eq_ignore_ascii_case("true");
    if environment.get("OTEL_SDK_DISABLED").is_some_and(is_off) {
        return Ok(None);
    }
    let of_traces = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    let of_all = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let (origin, url) = match (&config.traces_endpoint, environment.get(of_traces)) {
        (Some(base), _) if !base.is_empty() => {
            // A URL with a path is used unchanged.
            let has_path = base.split_once("://").is_some_and(|(_, rest)| {
                rest.split_once('/').is_some_and(|(_, path)| !path.is_empty())
            });
            let url = if has_path { base.clone() } else { below(base) };
            ("telemetry.traces_endpoint", url)
        }
        (_, Some(url)) => (of_traces, url.to_owned()),
        (_, None) => match environment.get(of_all) {
            Some(base) => (of_all, below(base)),
            None => return Ok(None),
        },
    };
    client::check_url(&url).with_context(|| format!("{origin}: no address of a collector"))?;
    Ok(Some(url))
}

fn below(base: &str) -> String {
    format!("{}{TRACES_PATH}", base.trim_end_matches('/'))
}

fn headers(config: &TelemetryConfig, environment: &Environment) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    let mut add = |origin: &str, name: &str, text: &str| -> Result<()> {
        let name: HeaderName =
            name.parse().with_context(|| format!("{origin}: `{name}` is not a header name"))?;
        // The message omits the value, because it is a secret.
        let Ok(mut value) = HeaderValue::from_str(text) else {
            bail!("{origin}: the value of `{name}` is not a header value");
        };
        value.set_sensitive(true);
        headers.insert(name, value);
        Ok(())
    };
    for variable in ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"] {
        for (name, text) in pairs(variable, environment)? {
            add(variable, &name, &text)?;
        }
    }
    for (name, text) in &config.traces_headers.0 {
        let setting = format!("telemetry.traces_headers.{name}");
        add(&setting, name, &config::resolve(&setting, text, environment)?)?;
    }
    Ok(headers)
}

/// Returns the attributes of this service: from the environment, overridden by the configuration.
fn resource(config: &TelemetryConfig, environment: &Environment) -> Result<TraceResource> {
    let mut all: BTreeMap<String, String> =
        pairs("OTEL_RESOURCE_ATTRIBUTES", environment)?.into_iter().collect();
    all.extend(config.resource_attributes.clone());
    let name = config.service_name.as_deref().filter(|name| !name.is_empty());
    let key = "service.name".to_owned();
    match name.or_else(|| environment.get("OTEL_SERVICE_NAME")) {
        Some(name) => drop(all.insert(key, name.to_owned())),
        None => drop(all.entry(key).or_insert_with(|| SERVICE_NAME.to_owned())),
    }
    Ok(TraceResource(all))
}

/// Parses `name=value` pairs separated by commas, whose values are percent-encoded
/// (<https://www.w3.org/TR/baggage/>).
fn pairs(variable: &str, environment: &Environment) -> Result<Vec<(String, String)>> {
    let text = environment.get(variable).unwrap_or_default();
    let mut pairs = Vec::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let decoded = pair.split_once('=').and_then(|(name, value)| {
            let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
            Some((name.trim().to_owned(), value.into_owned()))
        });
        // The message omits the pair, which may be a secret.
        let Some(decoded) = decoded.filter(|(name, _)| !name.is_empty()) else {
            bail!("{variable}: must be `name=value` pairs with commas between them");
        };
        pairs.push(decoded);
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Environment::made_up(variables.iter().map(owned).collect())
    }

    fn config(text: &str) -> TelemetryConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn the_address_is_that_of_the_configuration_before_the_environment() {
        let check = |file: &str, variables: &[(&str, &str)], expected: Option<&str>| {
            let settings = settings(&config(file), &environment(variables)).unwrap();
            let url = settings.map(|it| it.exporter.url);
            assert_eq!(url.as_deref(), expected, "{file} {variables:?}");
        };
        let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://of-all:4318/");
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://of-traces/x");
        let own = "traces_endpoint = 'http://own:4318'";
        check("", &[], None);
        check("traces_endpoint = ''", &[], None);
        check(own, &[], Some("http://own:4318/v1/traces"));
        check("traces_endpoint = 'http://own/'", &[], Some("http://own/v1/traces"));
        check("traces_endpoint = 'https://own/a/b'", &[], Some("https://own/a/b"));
        check("", &[all], Some("http://of-all:4318/v1/traces"));
        check("", &[all, traces], Some("http://of-traces/x"));
        check(own, &[all, traces], Some("http://own:4318/v1/traces"));
        check(own, &[all, ("OTEL_SDK_DISABLED", "true")], None);
        check("", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")], None);
    }

    #[test]
    fn headers_and_names_come_from_both() {
        let file = "traces_endpoint = 'http://own'\nservice_name = 'judge'\n\
                    traces_headers = { authorization = 'env:KEY', x-own = 'plain' }\n\
                    resource_attributes = { 'deployment.environment' = 'staging' }";
        let variables = [
            ("KEY", "Bearer hunter2"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20x, x-other=a%3Db"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,k=a%2Cb,deployment.environment=dev"),
            ("OTEL_SERVICE_NAME", "third"),
        ];
        let made = settings(&config(file), &environment(&variables)).unwrap().unwrap();
        let headers = &made.exporter.headers;
        for (name, expected) in
            [("authorization", "Bearer hunter2"), ("x-own", "plain"), ("x-other", "a=b")]
        {
            assert_eq!(headers[name], expected);
        }
        assert!(!format!("{made:?}").contains("hunter2"));
        let name = |file: &str, variables: &[(&str, &str)]| {
            let made = resource(&config(file), &environment(variables)).unwrap();
            made.0["service.name"].clone()
        };
        let resource = &made.exporter.resource.0;
        for (key, expected) in
            [("service.name", "judge"), ("k", "a,b"), ("deployment.environment", "staging")]
        {
            assert_eq!(resource[key], expected);
        }
        assert_eq!(name("", &variables), "third");
        assert_eq!(name("", &variables[..3]), "other");
        assert_eq!(name("", &[]), "cove");
    }

    #[test]
    fn what_is_wrong_is_named_without_secrets() {
        let check = |file: &str, variables: &[(&str, &str)], expected: &str| {
            let file = format!("traces_endpoint = 'http://own'\n{file}");
            let error = settings(&config(&file), &environment(variables)).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.starts_with(expected) && !error.contains("hunter2"), "{error}");
        };
        check("sample_ratio = 1.5", &[], "telemetry.sample_ratio: ");
        check("sample_ratio = -0.1", &[], "telemetry.sample_ratio: ");
        check("sample_ratio = nan", &[], "telemetry.sample_ratio: ");
        check("queue_spans_max = 0", &[], "telemetry.queue_spans_max: ");
        check("batch_spans_max = 9000", &[], "telemetry.batch_spans_max: ");
        check("traces_headers = { x = 'env:NONE' }", &[], "telemetry.traces_headers.x: ");
        check("traces_headers = { 'x y' = 'hunter2' }", &[], "telemetry.traces_headers.x y: ");
        check("traces_headers = { x = \"hunter2\\n\" }", &[], "telemetry.traces_headers.x: ");
        let variable = "OTEL_EXPORTER_OTLP_HEADERS";
        check("", &[(variable, "hunter2")], "OTEL_EXPORTER_OTLP_HEADERS: ");
        check("", &[(variable, "x=%ffhunter2")], "OTEL_EXPORTER_OTLP_HEADERS: ");
        check("", &[("OTEL_RESOURCE_ATTRIBUTES", "=x")], "OTEL_RESOURCE_ATTRIBUTES: ");
        let ftp = config("traces_endpoint = 'ftp://own'");
        let error = settings(&ftp, &environment(&[])).unwrap_err();
        assert!(error.to_string().starts_with("telemetry.traces_endpoint: "), "{error}");
    }
}
