//! The chart, checked with Kubernetes tools: Helm renders it, each object matches the schema of its
//! kind, and this binary accepts the configuration in it. No cluster runs.
//!
//! `COVE_GOLDEN=write cargo test -p cove --test it -- kubernetes` writes the rendered chart into
//! `tests/fixtures/helm`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::{Map, Value, json};
use testkit::{Certificate, Scratch};

use crate::go::go;
use crate::support::{COVE, beside_others};

const HELM: &str = "helm.sh/helm/v3/cmd/helm@v3.22.0";
const KUBECONFORM: &str = "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0";
/// Modules with the schemas of Kubernetes' own kinds and of the Prometheus operator's.
const KUBERNETES: &str = "k8s.io/kubernetes@v1.37.2";
const PROMETHEUS_OPERATOR: &str = "github.com/prometheus-operator/prometheus-operator@v0.85.0";
/// Kubernetes version passed to Helm.
const KUBE_VERSION: &str = "1.37.2";

/// Kinds of the chart, by the file of their schema.
const KINDS: &[(&str, &[&str])] = &[
    (
        "api__v1",
        &[
            "io.k8s.api.core.v1.ConfigMap",
            "io.k8s.api.core.v1.Secret",
            "io.k8s.api.core.v1.Service",
            "io.k8s.api.core.v1.ServiceAccount",
        ],
    ),
    ("apis__apps__v1", &["io.k8s.api.apps.v1.DaemonSet", "io.k8s.api.apps.v1.Deployment"]),
    ("apis__autoscaling__v2", &["io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler"]),
    ("apis__networking.k8s.io__v1", &["io.k8s.api.networking.v1.NetworkPolicy"]),
    ("apis__policy__v1", &["io.k8s.api.policy.v1.PodDisruptionBudget"]),
    (
        "apis__rbac.authorization.k8s.io__v1",
        &["io.k8s.api.rbac.v1.ClusterRole", "io.k8s.api.rbac.v1.ClusterRoleBinding"],
    ),
];
/// Kinds of the Prometheus operator.
const OPERATOR_KINDS: [&str; 2] = ["PodMonitor", "PrometheusRule"];

/// A key in the format of `openssl rand -hex 32`.
const KEY: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";

/// Cases whose complete output is in the repository.
const GOLDEN: [&str; 2] = ["minimal", "everything"];

fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent).unwrap()
}

fn chart() -> PathBuf {
    checkout().join("packaging/helm/cove")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn finished(command: &mut Command) -> Output {
    let output = command.output().expect("a command that starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{errors}", text(&output));
    output
}

/// Tools of the checks, built once by Go and cached.
struct KubernetesTools {
    helm: PathBuf,
    kubeconform: PathBuf,
    schemas: PathBuf,
}

fn tools() -> &'static KubernetesTools {
    static TOOLS: OnceLock<KubernetesTools> = OnceLock::new();
    TOOLS.get_or_init(|| {
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubernetes");
        let tools = [HELM, KUBECONFORM].map(|package| {
            let (path, version) = package.split_once('@').unwrap();
            let directory = cache.join(version);
            let tool = directory.join(path.rsplit_once('/').unwrap().1);
            if !tool.is_file() {
                finished(go().args(["install", package]).env("GOBIN", &directory));
            }
            tool
        });
        let [helm, kubeconform] = tools;
        let schemas = cache.join(KUBE_VERSION);
        // Written last.
        if !schemas.join("made").is_file() {
            write_schemas(&helm, &schemas);
        }
        KubernetesTools { helm, kubeconform, schemas }
    })
}

/// Directory of a module in Go's cache.
fn module(name: &str) -> PathBuf {
    let output = finished(go().args(["mod", "download", "-json", name]).current_dir("/"));
    let module: Value = serde_json::from_slice(&output.stdout).unwrap();
    PathBuf::from(module["Dir"].as_str().unwrap())
}

/// Writes a schema for each kind, under the name that kubeconform expects.
fn write_schemas(helm: &Path, out: &Path) {
    fs::create_dir_all(out).unwrap();
    let openapi = module(KUBERNETES).join("api/openapi-spec/v3");
    for (file, kinds) in KINDS {
        let described = fs::read_to_string(openapi.join(format!("{file}_openapi.json"))).unwrap();
        let described = described.replace("#/components/schemas/", "#/definitions/");
        let described: Value = serde_json::from_str(&described).unwrap();
        let all = &described["components"]["schemas"];
        for name in *kinds {
            let mut schema = json!({"$ref": format!("#/definitions/{name}"), "definitions": all});
            closed(&mut schema["definitions"]);
            let about = &all[*name]["x-kubernetes-group-version-kind"][0];
            write_schema(out, about, &schema);
        }
    }
    let definitions = module(PROMETHEUS_OPERATOR).join("example/prometheus-operator-crd");
    for kind in OPERATOR_KINDS {
        let file = format!("monitoring.coreos.com_{}s.yaml", kind.to_lowercase());
        let crd = yaml_with(helm, &[fs::read_to_string(definitions.join(file)).unwrap()]);
        let versions = crd[0]["spec"]["versions"].as_array().unwrap();
        let version = versions.iter().find(|it| it["name"] == "v1").unwrap();
        let mut schema = version["schema"]["openAPIV3Schema"].clone();
        closed(&mut schema);
        // An API server defines more metadata than the definition.
        schema["properties"]["metadata"] = json!({"type": "object"});
        let about = json!({"group": "monitoring.coreos.com", "kind": kind, "version": "v1"});
        write_schema(out, &about, &schema);
    }
    fs::write(out.join("made"), "").unwrap();
}

fn write_schema(out: &Path, about: &Value, schema: &Value) {
    let part = |name: &str| about[name].as_str().unwrap().to_lowercase();
    let group = part("group").split('.').next().unwrap_or_default().to_owned();
    let name = [part("kind"), group, part("version")].into_iter().filter(|it| !it.is_empty());
    let name = name.collect::<Vec<_>>().join("-");
    fs::write(out.join(format!("{name}.json")), schema.to_string()).unwrap();
}

/// Makes a schema reject fields that it does not name, as an API server does.
fn closed(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let is_open = fields.contains_key("additionalProperties")
                || fields.contains_key("x-kubernetes-preserve-unknown-fields");
            if fields.get("properties").is_some_and(|it| it.is_object()) && !is_open {
                fields.insert("additionalProperties".to_owned(), json!(false));
            }
            fields.values_mut().for_each(closed);
        }
        Value::Array(items) => items.iter_mut().for_each(closed),
        _ => {}
    }
}

/// Reads YAML documents with Helm's own parser, as the template of a chart.
fn yaml_with(helm: &Path, documents: &[String]) -> Vec<Value> {
    let scratch = Scratch::new();
    let path = |name: &str| scratch.path().join(name);
    fs::create_dir_all(path("templates")).unwrap();
    fs::create_dir_all(path("in")).unwrap();
    fs::write(path("Chart.yaml"), "apiVersion: v2\nname: reader\nversion: 0.0.0\n").unwrap();
    for (index, document) in documents.iter().enumerate() {
        fs::write(path("in").join(format!("{index:04}")), document).unwrap();
    }
    let template = "{{ $all := list }}{{ range $path, $_ := .Files.Glob \"in/*\" }}\
        {{ $all = append $all ($.Files.Get $path | fromYaml) }}{{ end }}\
        {{ dict \"all\" $all | toJson }}\n";
    fs::write(path("templates/all.yaml"), template).unwrap();
    let output = text(&finished(Command::new(helm).arg("template").arg(scratch.path())));
    let line =
        output.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{output}"));
    let read: Value = serde_json::from_str(line).unwrap();
    let all = read["all"].as_array().unwrap().clone();
    assert_eq!(all.len(), documents.len());
    for (value, document) in all.iter().zip(documents) {
        assert!(value["Error"].is_null(), "{}\n{document}", value["Error"]);
    }
    all
}

fn yaml(documents: &[String]) -> Vec<Value> {
    yaml_with(&tools().helm, documents)
}

/// Objects that the chart renders for a case.
struct RenderedCase {
    text: String,
    objects: Vec<Value>,
}

impl RenderedCase {
    fn of(case: &str) -> RenderedCase {
        let scratch = Scratch::new();
        let text = text(&finished(&mut helm("template", &cases()[case], &scratch)));
        let documents = text.split("\n---\n").map(|it| it.trim_start_matches("---\n").to_owned());
        let documents: Vec<String> = documents.collect();
        let objects = yaml(&documents);
        RenderedCase { text, objects }
    }

    fn get(&self, kind: &str, name: &str) -> &Value {
        let mut all = self.objects.iter();
        let found = all.find(|it| it["kind"] == kind && it["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} {name}\n{}", self.text))
    }

    fn kinds(&self) -> BTreeSet<&str> {
        self.objects.iter().map(|it| it["kind"].as_str().unwrap()).collect()
    }
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/helm")
}

/// Values of all cases, by name.
fn cases() -> &'static Map<String, Value> {
    static CASES: OnceLock<Value> = OnceLock::new();
    let read = || yaml(&[fs::read_to_string(fixtures().join("cases.yaml")).unwrap()]).remove(0);
    CASES.get_or_init(read).as_object().unwrap()
}

/// A Helm command for the chart with these values in addition to the required ones.
fn helm(command: &str, values: &Value, scratch: &Scratch) -> Command {
    let needed = json!({
        "existingSecret": "cove-keys",
        "objects": {"url": "s3://cove?endpoint=https://s3.example"},
    });
    let needed = scratch.file("needed.yaml", needed.to_string());
    let values = scratch.file("values.yaml", values.to_string());
    let mut helm = Command::new(&tools().helm);
    helm.arg(command);
    if command == "template" {
        helm.arg("cove");
    }
    helm.arg(chart()).args(["--namespace", "agents", "--kube-version", KUBE_VERSION]);
    helm.arg("--values").arg(needed).arg("--values").arg(values);
    helm
}

/// Pod and container of a workload.
fn pod(workload: &Value) -> (&Value, &Value) {
    let spec = &workload["spec"]["template"]["spec"];
    assert_eq!(spec["containers"].as_array().unwrap().len(), 1);
    (spec, &spec["containers"][0])
}

#[test]
fn the_chart_renders_what_kubernetes_takes() {
    let _guard = beside_others();
    let mut all = String::new();
    let mut kinds = BTreeSet::new();
    for (name, values) in cases() {
        let scratch = Scratch::new();
        finished(helm("lint", values, &scratch).arg("--strict"));
        let case = RenderedCase::of(name);
        kinds.extend(case.kinds().into_iter().map(str::to_owned));
        all += &case.text;
        if GOLDEN.contains(&name.as_str()) {
            compare(&case.text, &fixtures().join(format!("{name}.yaml")));
        }
    }
    let expected =
        KINDS.iter().flat_map(|(_, kinds)| *kinds).map(|it| it.rsplit_once('.').unwrap().1);
    let expected: BTreeSet<String> = expected.chain(OPERATOR_KINDS).map(str::to_owned).collect();
    assert_eq!(kinds, expected);
    assert_eq!(conforms(&all), Ok(()));
    // The schemas reject wrong fields.
    let wrong = all.replacen("terminationGracePeriodSeconds:", "terminationGraceSeconds:", 1);
    assert!(conforms(&wrong).unwrap_err().contains("terminationGraceSeconds"));
    let wrong = all.replacen("podMetricsEndpoints:", "podMetricEndpoints:", 1);
    assert!(conforms(&wrong).is_err());
}

fn compare(rendered: &str, golden: &Path) {
    if std::env::var_os("COVE_GOLDEN").is_some_and(|it| it == "write") {
        fs::write(golden, rendered).unwrap();
    }
    let expected = fs::read_to_string(golden).unwrap();
    let path = golden.display();
    assert!(
        rendered == expected,
        "{path} is not what the chart renders; COVE_GOLDEN=write writes it anew\n{rendered}"
    );
}

/// Validates objects against the schemas of their kinds.
fn conforms(objects: &str) -> Result<(), String> {
    let KubernetesTools { kubeconform, schemas, .. } = tools();
    let location = format!("{}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json", schemas.display());
    let mut check = Command::new(kubeconform)
        .args(["-strict", "-summary", "-verbose", "-schema-location", &location])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    check.stdin.take().unwrap().write_all(objects.as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    let output_text = text(&output);
    let all_valid = output.status.success() && output_text.contains("Skipped: 0");
    if all_valid { Ok(()) } else { Err(output_text) }
}

#[test]
fn values_that_make_no_sense_are_refused() {
    let _guard = beside_others();
    for (values, expected) in [
        (json!({"nodes": {"hostpath": "/data"}}), "hostpath"),
        (json!({"existingSecret": ""}), "secret.storeUrl"),
        (json!({"objects": {"url": ""}}), "objects.url"),
        (json!({"objects": {"url": "https://bucket"}}), "objects/url"),
        (json!({"catalog": {"enabled": true}}), "catalog.root"),
        (
            json!({"fronts": {"catalog": {"enabled": true}}}),
            "fronts.catalog.enabled needs catalog.enabled",
        ),
        (json!({"drainSeconds": 0}), "drainSeconds"),
        (json!({"secret": {"secretsKey": "short"}}), "secretsKey"),
    ] {
        let scratch = Scratch::new();
        let output = helm("template", &values, &scratch).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(expected), "{values}: {errors}");
    }
}

/// Arguments of `FROM`, `ENV` and other instructions of the image.
fn image() -> BTreeMap<String, Vec<String>> {
    let file = fs::read_to_string(checkout().join("packaging/container/Containerfile")).unwrap();
    let file = file.replace("\\\n", " ");
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in file.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace().map(str::to_owned);
        let Some(instruction) = words.next() else { continue };
        found.entry(instruction).or_default().extend(words);
    }
    found
}

#[test]
fn pods_use_what_the_image_has() {
    let _guard = beside_others();
    let (image, case) = (image(), RenderedCase::of("everything"));
    assert_eq!(image["ENTRYPOINT"], ["[\"/usr/bin/cove\"]"]);
    for (kind, name) in
        [("DaemonSet", "cove"), ("Deployment", "cove-catalog"), ("Deployment", "cove-bouncer")]
    {
        let (spec, container) = pod(case.get(kind, name));
        // The arguments form a valid command of this binary.
        let arguments = container["args"].as_array().unwrap().iter();
        let arguments: Vec<&str> = arguments.map(|it| it.as_str().unwrap()).collect();
        finished(testkit::command(COVE).args(&arguments).arg("--help"));
        for port in container["ports"].as_array().unwrap() {
            let number = port["containerPort"].to_string();
            assert!(image["EXPOSE"].contains(&number), "{number} is not exposed");
        }
        let mounts = container["volumeMounts"].as_array().unwrap();
        let data = mounts.iter().find(|it| it["name"] == "data").unwrap();
        assert_eq!(data["mountPath"], image["VOLUME"][0].as_str());
        // Volumes and mounts have the same names.
        let names = |list: &Value| -> BTreeSet<String> {
            list.as_array().unwrap().iter().map(|it| it["name"].to_string()).collect()
        };
        assert_eq!(names(&spec["volumes"]), names(&container["volumeMounts"]));
        let privileged = container["securityContext"]["privileged"] == true;
        assert_eq!(privileged, kind == "DaemonSet", "{name}");
        if !privileged {
            assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
            assert_eq!(container["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
            assert_eq!(spec["automountServiceAccountToken"], false);
        }
    }
    // Labels of a service's pods match the selectors of its Service, its budget and its rules.
    for object in &case.objects {
        let spec = &object["spec"];
        let selector = match object["kind"].as_str().unwrap() {
            "Service" => &spec["selector"],
            "PodDisruptionBudget" => &spec["selector"]["matchLabels"],
            "NetworkPolicy" => &spec["podSelector"]["matchLabels"],
            _ => continue,
        };
        let selected = case.objects.iter().filter(|it| {
            let labels = &it["spec"]["template"]["metadata"]["labels"];
            let mut wanted = selector.as_object().unwrap().iter();
            labels.is_object() && wanted.all(|(key, value)| labels[key] == *value)
        });
        let selected: Vec<&Value> = selected.collect();
        assert!(!selected.is_empty(), "{object}");
        // Each port of a Service exists in these pods.
        for port in spec["ports"].as_array().into_iter().flatten() {
            for workload in &selected {
                let ports = pod(workload).1["ports"].as_array().unwrap();
                assert!(ports.iter().any(|it| it["name"] == port["targetPort"]), "{object}");
            }
        }
    }
    // The longest duration of a stop: programs, sessions, the engine.
    for (case, drain_s) in [("minimal", 30), ("long", 600)] {
        let case = RenderedCase::of(case);
        let grace = pod(case.get("DaemonSet", "cove")).0["terminationGracePeriodSeconds"].as_u64();
        assert_eq!(grace, Some(drain_s + 95));
    }
}

/// Runs `cove config check` on the configuration of pods, with the variables of the image and of
/// the pod.
fn checked(case: &str, kind: &str, name: &str) {
    let case = RenderedCase::of(case);
    let scratch = Scratch::new();
    let config = case.get("ConfigMap", "cove")["data"]["cove.toml"].as_str().unwrap();
    let place = scratch.path().display().to_string();
    // The kubelet's mount points.
    fs::create_dir_all(scratch.path().join("secrets")).unwrap();
    fs::create_dir_all(scratch.path().join("tls")).unwrap();
    let own = Certificate::new(&scratch);
    fs::copy(&own.certificate, scratch.path().join("tls/tls.crt")).unwrap();
    fs::copy(&own.key, scratch.path().join("tls/tls.key")).unwrap();
    let secrets: [(&str, &str); 5] = [
        ("store_url", "postgres://cove:x@db/cove"),
        ("secrets_key", KEY),
        ("webhook_key", KEY),
        ("objects_access_key_id", "id"),
        ("objects_secret_access_key", "key"),
    ];
    for (name, content) in secrets {
        fs::write(scratch.path().join("secrets").join(name), content).unwrap();
    }
    if let Some(own) = case.objects.iter().find(|it| it["kind"] == "Secret") {
        let keys: Vec<&String> = own["stringData"].as_object().unwrap().keys().collect();
        assert_eq!(keys.len(), secrets.len());
        assert!(secrets.iter().all(|(name, _)| keys.iter().any(|it| it == name)));
    }
    let config = config.replace("/etc/cove/", &format!("{place}/"));
    let config = scratch.file("cove.toml", config);
    let mut check = testkit::command(COVE);
    check.args(["config", "check", "--config"]).arg(&config);
    for variable in &image()["ENV"] {
        let (name, value) = variable.split_once('=').unwrap();
        check.env(name, value);
    }
    for variable in pod(case.get(kind, name)).1["env"].as_array().unwrap() {
        let value = match &variable["valueFrom"]["fieldRef"]["fieldPath"] {
            Value::String(path) if path == "spec.nodeName" => "worker-7".to_owned(),
            Value::String(path) if path == "status.podIP" => continue,
            Value::String(_) => "zone-a".to_owned(),
            _ => variable["value"].as_str().unwrap().replace("$(POD_IP)", "10.244.7.9"),
        };
        check.env(variable["name"].as_str().unwrap(), value);
    }
    check.env("AWS_ACCESS_KEY_ID", "id").env("AWS_SECRET_ACCESS_KEY", "key");
    finished(&mut check);
    // The chart's settings for listeners take precedence over those of the image.
    let mut show = testkit::command(COVE);
    show.args(["config", "show", "--json", "--config"]).arg(&config);
    let output_text = text(&finished(&mut show));
    assert!(output_text.contains("4190") && output_text.contains("4100"), "{output_text}");
    // An invalid configuration is rejected, so the file is read.
    fs::write(&config, format!("nonsense = 1\n{}", fs::read_to_string(&config).unwrap())).unwrap();
    assert!(!check.output().unwrap().status.success());
}

#[test]
fn cove_understands_the_configuration_of_the_chart() {
    let _guard = beside_others();
    for (case, kind, name) in [
        ("minimal", "DaemonSet", "cove"),
        ("everything", "DaemonSet", "cove"),
        ("everything", "Deployment", "cove-catalog"),
        ("everything", "Deployment", "cove-bouncer"),
        ("without-drain", "DaemonSet", "cove"),
        ("without-taints", "DaemonSet", "cove"),
        ("without-bouncer", "DaemonSet", "cove"),
        ("environment", "DaemonSet", "cove"),
    ] {
        checked(case, kind, name);
    }
}

#[test]
fn alerts_and_the_dashboard_are_those_that_packages_ship() {
    let _guard = beside_others();
    let case = RenderedCase::of("monitoring");
    let shipped = |name: &str| {
        fs::read_to_string(checkout().join("packaging/monitoring").join(name)).unwrap()
    };
    let rules = yaml(&[shipped("cove.rules.yml")]).remove(0);
    assert!(rules["groups"].as_array().unwrap().len() > 3);
    assert_eq!(case.get("PrometheusRule", "cove")["spec"], rules);
    let dashboard = case.get("ConfigMap", "cove-dashboard")["data"]["cove.json"].as_str().unwrap();
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(read(dashboard), read(&shipped("cove.dashboard.json")));
    // The alerts select this job.
    let endpoint = &case.get("PodMonitor", "cove")["spec"]["podMetricsEndpoints"][0];
    assert_eq!(endpoint["relabelings"][0]["targetLabel"], "job");
    assert_eq!(endpoint["relabelings"][0]["replacement"], "cove");
    assert!(rules.to_string().contains("job=\\\"cove\\\""));
}

/// Names and defaults of values, down to free-form ones.
fn values_of(schema: &Value, values: &Value, path: &str, found: &mut BTreeMap<String, String>) {
    match schema["properties"].as_object() {
        Some(properties) => {
            for (name, schema) in properties {
                // Helm's own values, and a repeated section.
                if matches!((path, name.as_str()), ("", "global") | ("fronts.", "bouncer")) {
                    continue;
                }
                let below = if schema["properties"].is_object() { "." } else { "" };
                values_of(schema, &values[name], &format!("{path}{name}{below}"), found);
            }
        }
        None => {
            assert!(!values.is_null(), "{path} has no default");
            found.insert(path.to_owned(), compact(values));
        }
    }
}

/// Formats a value as the documentation does.
fn compact(value: &Value) -> String {
    let sorted = |map: &Map<String, Value>| {
        let mut all: Vec<_> =
            map.iter().map(|(key, it)| format!("\"{key}\":{}", compact(it))).collect();
        all.sort();
        all.join(",")
    };
    match value {
        Value::Object(map) => format!("{{{}}}", sorted(map)),
        Value::Array(all) => format!("[{}]", all.iter().map(compact).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

#[test]
fn the_chart_documents_its_values() {
    let _guard = beside_others();
    let read = |name: &str| fs::read_to_string(chart().join(name)).unwrap();
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    let values = yaml(&[read("values.yaml")]).remove(0);
    let mut known = BTreeMap::new();
    values_of(&schema, &values, "", &mut known);
    assert_eq!(values["fronts"]["bouncer"], values["fronts"]["catalog"]);
    let readme = read("README.md");
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | `"));
    let rows = rows.map(|(name, rest)| {
        let default = rest.split_once("` |").unwrap().0;
        (name.to_owned(), compact(&serde_json::from_str(default).unwrap()))
    });
    assert_eq!(rows.collect::<BTreeMap<_, _>>(), known);
    let versions = yaml(&[read("Chart.yaml")]).remove(0);
    assert_eq!(versions["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(versions["appVersion"], env!("CARGO_PKG_VERSION"));
}

/// Reads a compose file.
fn compose(name: &str) -> Value {
    let file = checkout().join("packaging/container").join(name);
    yaml(&[fs::read_to_string(file).unwrap()]).remove(0)
}

/// Published ports, all on loopback only and under the same number.
fn published(service: &Value) -> Vec<String> {
    let ports = service["ports"].as_array().into_iter().flatten();
    let port = |it: &Value| {
        let parts: Vec<&str> = it.as_str().unwrap().split(':').collect();
        assert_eq!((parts[0], parts.len(), parts[1]), ("127.0.0.1", 3, parts[2]), "{it}");
        parts[2].to_owned()
    };
    ports.map(port).collect()
}

/// Checks that references within a compose file resolve.
fn assert_whole(file: &Value) {
    let services = file["services"].as_object().unwrap();
    for (name, service) in services {
        for other in service["depends_on"].as_object().into_iter().flat_map(Map::keys) {
            assert!(services.contains_key(other), "{name} depends on {other}");
        }
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let (source, _) = volume.as_str().unwrap().split_once(':').unwrap();
            let is_there = source.starts_with('/') || file["volumes"].get(source).is_some();
            assert!(is_there, "{name} mounts {source}");
        }
        for config in service["configs"].as_array().into_iter().flatten() {
            assert!(file["configs"].get(config["source"].as_str().unwrap()).is_some(), "{name}");
        }
        if let Some(build) = service["build"].as_object() {
            // Below the directory of packages, which `make dist` creates.
            assert_eq!(build["context"], "../../target/dist/packages");
            assert_eq!(build["dockerfile"], "../../packaging/container/Containerfile");
            let mounts = service["volumes"].as_array().unwrap();
            let data = format!(":{}", image()["VOLUME"][0]);
            assert!(mounts.iter().any(|it| it.as_str().unwrap().ends_with(&data)), "{name}");
            assert_eq!(service["privileged"], true);
        }
    }
}

#[test]
fn one_server_by_compose_publishes_what_the_image_has() {
    let _guard = beside_others();
    let file = compose("compose.yaml");
    assert_whole(&file);
    let ports = published(&file["services"]["cove"]);
    assert_eq!(ports, ["4100", "6432", "6433"]);
    assert!(ports.iter().all(|port| image()["EXPOSE"].contains(port)));
}

#[test]
fn three_nodes_by_compose_are_configured_as_one() {
    let _guard = beside_others();
    let file = compose("compose.cluster.yaml");
    assert_whole(&file);
    let services = &file["services"];
    let chosen = [
        ("${POSTGRES_PASSWORD:?}", "x"),
        ("${COVE_SECRETS_KEY:?openssl rand -hex 32}", KEY),
        ("${COVE_WEBHOOK_KEY:?openssl rand -hex 32}", KEY),
        ("${MINIO_PASSWORD:?}", "x"),
    ];
    let mut shared = BTreeSet::new();
    let mut volumes = BTreeSet::new();
    for node in ["node1", "node2", "node3"] {
        let service = &services[node];
        assert_eq!(published(service), Vec::<String>::new(), "{node}");
        volumes.insert(service["volumes"][0].to_string());
        let scratch = Scratch::new();
        let mut check = testkit::command(COVE);
        check.args(["config", "check", "--config"]).arg(scratch.file("cove.toml", ""));
        for variable in &image()["ENV"] {
            let (name, value) = variable.split_once('=').unwrap();
            check.env(name, value);
        }
        let mut own = service["environment"].as_object().unwrap().clone();
        for (name, value) in &own {
            let text =
                chosen.iter().fold(value.as_str().unwrap().to_owned(), |text, (from, to)| {
                    text.replace(from, to)
                });
            assert!(!text.contains('$'), "{name}={text}");
            check.env(name, text);
        }
        finished(&mut check);
        let address = own.remove("COVE_CLUSTER__ADVERTISE").unwrap();
        assert_eq!(address, format!("{node}:4190"));
        shared.insert(Value::Object(own).to_string());
    }
    assert_eq!((shared.len(), volumes.len()), (1, 3), "{shared:?} {volumes:?}");

    // Each published port leads to all three.
    let balancer = file["configs"]["balancer"]["content"].as_str().unwrap();
    for port in published(&services["balancer"]) {
        assert!(image()["EXPOSE"].contains(&port));
        assert!(balancer.contains(&format!("bind :{port}\n")), "{port}");
        for node in ["node1", "node2", "node3"] {
            assert!(balancer.contains(&format!("server {node} {node}:{port}\n")), "{node} {port}");
        }
    }
    let scratch = Scratch::new();
    let config = scratch.file("haproxy.cfg", balancer);
    finished(Command::new("/usr/sbin/haproxy").arg("-c").arg("-f").arg(config));
}
