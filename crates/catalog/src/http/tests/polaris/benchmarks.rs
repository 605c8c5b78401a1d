//! Requests of Polaris's benchmark tools, in their order, and the checks of the responses: a tree
//! of namespaces with tables and views in its leaves is created, read, and updated.

use super::manage::token_of;
use super::*;

/// Children of each inner namespace.
const WIDTH: usize = 2;
/// Levels.
const DEPTH: usize = 3;
const TABLES: usize = 2;
const VIEWS: usize = 1;

/// Returns each node's path from the root, level by level, as the tools number them.
fn tree() -> Vec<Vec<String>> {
    let count = (WIDTH.pow(u32::try_from(DEPTH).unwrap()) - 1) / (WIDTH - 1);
    let path = |node: usize| {
        let mut all = vec![node];
        while all[0] > 0 {
            all.insert(0, (all[0] - 1) / WIDTH);
        }
        all.iter().map(|it| format!("NS_{it}")).collect()
    };
    (0..count).map(path).collect()
}

fn is_leaf(path: &[String]) -> bool {
    path.len() == DEPTH
}

/// A server, the tools' token, and the paths that the tools use.
struct Bench {
    server: Server,
    token: String,
    base: String,
}

impl Bench {
    fn start() -> Bench {
        let server = Server::start();
        let client = json!({"name": "bench", "operator": true});
        let made = server.ask("POST", "/management/v1/clients", Some(&client)).json();
        let (id, secret) = (made["client-id"].as_str(), made["client-secret"].as_str());
        let token = token_of(&server, id.unwrap(), secret.unwrap()).unwrap();
        let base = base(&server, "C_0");
        Bench { server, token, base }
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>, status: u16) -> Value {
        let path = format!("/polaris/api/{path}");
        let response = self.server.ask_as(Some(&self.token), method, &path, body);
        assert_eq!(response.status, status, "{method} {path} {}", response.text());
        if response.body.is_empty() { Value::Null } else { response.json() }
    }

    fn create_catalog(&self) {
        let body = json!({"catalog": {"type": "INTERNAL", "name": "C_0",
            "properties": {"default-base-location": self.base},
            "storageConfigInfo": {"storageType": "FILE"}}});
        self.ask("POST", "management/v1/catalogs", Some(&body), 201);
        let catalog = self.ask("GET", "management/v1/catalogs/C_0", None, 200);
        assert_eq!((&catalog["type"], &catalog["name"]), (&json!("INTERNAL"), &json!("C_0")));
        assert_eq!(catalog["properties"]["default-base-location"], json!(self.base));
        assert_eq!(catalog["storageConfigInfo"]["allowedLocations"][0], json!(self.base));
        self.ask("GET", "management/v1/catalogs", None, 200);
    }

    fn create_and_fetch_namespace(&self, path: &[String]) {
        let properties = json!({"InitialAttribute_0": "0", "InitialAttribute_1": "1"});
        let body = json!({"namespace": path, "properties": properties});
        let made = self.ask("POST", "catalog/v1/C_0/namespaces", Some(&body), 200);
        assert_eq!(made["namespace"], json!(path));
        let multipart = path.join("%1F");
        let namespace = format!("catalog/v1/C_0/namespaces/{multipart}");
        let found = self.ask("GET", &namespace, None, 200);
        assert_eq!(found["namespace"], json!(path));
        assert_eq!(found["properties"]["InitialAttribute_1"], "1");
        let location = format!("{}/{}/", self.base, path.join("/"));
        assert_eq!(found["properties"]["location"], json!(location));
        self.ask("HEAD", &namespace, None, 204);
        self.ask("GET", &format!("catalog/v1/C_0/namespaces?parent={multipart}"), None, 200);
        let update = json!({"removals": [], "updates": {"UpdatedAttribute_0": "0"}});
        self.ask("POST", &format!("{namespace}/properties"), Some(&update), 200);
    }

    fn create_and_fetch_table(&self, path: &[String], name: &str) {
        let tables = format!("catalog/v1/C_0/namespaces/{}/tables", path.join("%1F"));
        let field = |id: usize| json!({"id": id, "name": format!("column{id}"), "type": "int", "required": true});
        let body = json!({"name": name, "stage-create": false, "schema": {"type": "struct",
            "fields": [field(1), field(2)], "identifier-field-ids": [1]},
            "properties": {"InitialAttribute_0": "0"}});
        self.ask("POST", &tables, Some(&body), 200);
        let table = format!("{tables}/{name}");
        self.fetch(&table, path, name, "table-uuid");
        self.ask("GET", &tables, None, 200);
        self.update(&table);
    }

    fn create_and_fetch_view(&self, path: &[String], name: &str) {
        let views = format!("catalog/v1/C_0/namespaces/{}/views", path.join("%1F"));
        let summary = json!({"engine-version": "3.5.5", "app-id": "gatling-1",
            "engine-name": "spark", "iceberg-version": "Apache Iceberg 1.7.0"});
        let body = json!({"name": name, "view-version": {"version-id": 1, "timestamp-ms": 1,
            "schema-id": 0, "summary": summary, "default-namespace": [path.join("%1F")],
            "representations": [{"type": "sql", "sql": "SELECT * FROM T_0", "dialect": "spark"}]},
            "schema": {"type": "struct", "schema-id": 0, "fields": [
                {"id": 1, "name": "column1", "type": "int", "required": true}]},
            "properties": {"InitialAttribute_0": "0"}});
        self.ask("POST", &views, Some(&body), 200);
        let view = format!("{views}/{name}");
        self.fetch(&view, path, name, "view-uuid");
        self.ask("GET", &views, None, 200);
        self.update(&view);
    }

    fn fetch(&self, at: &str, path: &[String], name: &str, uuid: &str) {
        let found = self.ask("GET", at, None, 200);
        let metadata = &found["metadata"];
        assert!(metadata[uuid].is_string(), "{metadata}");
        let location = format!("{}/{}/{name}", self.base, path.join("/"));
        assert_eq!(metadata["location"], json!(location));
        assert_eq!(metadata["properties"]["InitialAttribute_0"], "0");
        self.ask("HEAD", at, None, 204);
    }

    fn update(&self, at: &str) {
        let body = json!({"updates": [
            {"action": "set-properties", "updates": {"NewAttribute_0": "NewValue_0"}}]});
        let changed = self.ask("POST", at, Some(&body), 200);
        assert_eq!(changed["metadata"]["properties"]["NewAttribute_0"], "NewValue_0");
    }
}

#[test]
fn the_tree_of_the_benchmarks_is_made_read_and_updated() {
    let bench = Bench::start();
    bench.create_catalog();
    let tree = tree();
    for path in &tree {
        bench.create_and_fetch_namespace(path);
    }
    let mut count = 0;
    for path in tree.iter().filter(|path| is_leaf(path)) {
        for _ in 0..TABLES {
            bench.create_and_fetch_table(path, &format!("T_{count}"));
            count += 1;
        }
        for view in 0..VIEWS {
            bench.create_and_fetch_view(path, &format!("V_{}", count - TABLES + view));
        }
    }
    assert_eq!(count, TABLES * 4);
}

#[test]
fn no_two_tables_share_a_directory_whatever_they_are_called() {
    let bench = Bench::start();
    bench.create_catalog();
    let namespace = |path: &[&str]| {
        let body = json!({"namespace": path});
        bench.ask("POST", "catalog/v1/C_0/namespaces", Some(&body), 200);
    };
    let make = |path: &str, name: &str| {
        let tables = format!("catalog/v1/C_0/namespaces/{path}/tables");
        let made = bench.ask("POST", &tables, Some(&new_table(name)), 200);
        made["metadata"]["location"].as_str().unwrap().to_owned()
    };
    namespace(&["n"]);
    namespace(&["n", "x"]);
    let mut all = vec![make("n", "t"), make("n", "a b"), make("n", "a_b"), make("n", "x")];
    // Its default location would be in the directory of the table `x`.
    all.push(make("n%1Fx", "t"));
    assert_eq!(all[0], format!("{}/n/t", bench.base));
    bench.ask("DELETE", "catalog/v1/C_0/namespaces/n/tables/t", None, 204);
    all.push(make("n", "t"));
    let rename = json!({"source": {"namespace": ["n"], "name": "t"},
        "destination": {"namespace": ["n"], "name": "moved"}});
    bench.ask("POST", "catalog/v1/C_0/tables/rename", Some(&rename), 204);
    all.push(make("n", "t"));
    // A purged table's directory is used by its successor.
    all.remove(0);
    for (index, one) in all.iter().enumerate() {
        for other in &all[index + 1..] {
            assert_ne!(one, other);
            assert!(!other.starts_with(&format!("{one}/")), "{one} {other}");
            assert!(!one.starts_with(&format!("{other}/")), "{one} {other}");
        }
    }
}
