//! Rules for manifests: dependencies point down, and each version is set in one place.

use anyhow::{Context, Result};
use toml::Table;

use super::{Findings, SourceFile};

/// Every crate by layer, top first. A crate may use the layers below its own and no crate of its
/// own layer, so services cannot depend on one another.
const LAYERS: &[&[&str]] = &[
    &["cove"],
    &["sessions", "executions", "bouncer", "catalog", "gateway", "mcp", "console", "site"],
    &["pooler-core"],
    &["sandbox", "wire"],
    &["node"],
    &["pool", "iceberg", "cells"],
    &["api"],
];
/// Crates beside the layers: only tests use them, and they use no crate of Cove or, to generate
/// from it, only the contract.
const BESIDE: &[(&str, &[&str])] = &[("testkit", &[]), ("xtask", &["api"])];

pub(super) fn check(files: &[SourceFile], findings: &mut Findings) -> Result<()> {
    let is_member = |path: &str| {
        path == "xtask/Cargo.toml"
            || path
                .strip_prefix("crates/")
                .is_some_and(|rest| rest.split('/').skip(1).eq(["Cargo.toml"]))
    };
    for file in files.iter().filter(|file| is_member(&file.path)) {
        let manifest: Table = file.text.parse().with_context(|| file.path.clone())?;
        check_manifest(&file.path, &manifest, findings);
    }
    Ok(())
}

fn check_manifest(path: &str, manifest: &Table, findings: &mut Findings) {
    let name = manifest.get("package").and_then(|package| package.get("name")?.as_str());
    let name = name.unwrap_or("nameless");
    if layer(name).is_none() && beside(name).is_none() {
        findings.add(path, 0, format!("`{name}` has no place in the table of layers"));
        return;
    }
    if manifest.get("lints").and_then(|lints| lints.get("workspace")).is_none() {
        findings.add(path, 0, "does not take the workspace's lints");
    }
    for (section, dependencies) in sections(manifest) {
        for (dependency, value) in dependencies {
            if !may_use(name, dependency, section == "dev-dependencies") {
                findings.add(path, 0, format!("`{name}` may not depend on `{dependency}`"));
            }
            if value.get("workspace").is_none() {
                findings.add(path, 0, format!("the version of `{dependency}` belongs to the root"));
            }
        }
    }
}

/// Returns all tables of dependencies, including those of targets.
fn sections(manifest: &Table) -> Vec<(&'static str, &Table)> {
    let as_table = toml::Value::as_table;
    let targets = manifest.get("target").and_then(as_table).into_iter().flat_map(Table::values);
    let mut found = Vec::new();
    for table in targets.filter_map(as_table).chain([manifest]) {
        for name in ["dependencies", "dev-dependencies", "build-dependencies"] {
            found.extend(table.get(name).and_then(as_table).map(|one| (name, one)));
        }
    }
    found
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

fn beside(name: &str) -> Option<&'static [&'static str]> {
    BESIDE.iter().find(|(one, _)| *one == name).map(|(_, uses)| *uses)
}

/// Returns whether crate `user` may depend on `used`; this rule ignores external crates.
fn may_use(user: &str, used: &str, for_tests: bool) -> bool {
    match (layer(user), layer(used), beside(used)) {
        (_, None, Some(_)) => for_tests && used == "testkit",
        (_, None, None) => true,
        (Some(above), Some(below), _) => above < below,
        (None, Some(_), _) => beside(user).is_some_and(|uses| uses.contains(&used)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_point_down() {
        for (user, used, for_tests, allowed) in [
            ("cove", "executions", false, true),
            ("executions", "sandbox", false, true),
            ("executions", "pool", false, true),
            ("executions", "catalog", false, false),
            ("executions", "cove", false, false),
            ("sandbox", "wire", false, false),
            ("sandbox", "api", false, true),
            ("pool", "node", false, false),
            ("api", "pool", true, false),
            ("cove", "testkit", true, true),
            ("cove", "testkit", false, false),
            ("testkit", "api", false, false),
            ("xtask", "api", false, true),
            ("xtask", "node", false, false),
            ("pool", "serde", false, true),
        ] {
            assert_eq!(may_use(user, used, for_tests), allowed, "{user} -> {used}");
        }
    }

    fn findings(text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check_manifest("Cargo.toml", &text.parse().unwrap(), &mut findings);
        findings.0
    }

    #[test]
    fn a_manifest_takes_versions_and_lints_from_the_root() {
        let lints = "[lints]\nworkspace = true\n";
        let good =
            format!("[package]\nname = \"pool\"\n[dependencies]\napi.workspace = true\n{lints}");
        assert!(findings(&good).is_empty());
        let version = format!("[package]\nname = \"pool\"\n[dependencies]\nserde = \"1\"\n{lints}");
        assert_eq!(findings(&version).len(), 1);
        assert_eq!(findings("[package]\nname = \"pool\"\n").len(), 1);
        assert_eq!(findings("[package]\nname = \"utils\"\n").len(), 1);
        let target = format!(
            "[package]\nname = \"pool\"\n[target.'cfg(loom)'.dev-dependencies]\nnode.workspace = true\n{lints}"
        );
        assert_eq!(findings(&target).len(), 1);
    }
}
