//! The software bill of materials of the binary, and the licences of its dependencies.
//!
//! The bill is CycloneDX 1.6 (<https://cyclonedx.org/docs/1.6/json/>), which vulnerability scanners
//! read; packages are named by package URL (<https://github.com/package-url>).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// The package whose dependencies are listed.
const BINARY: &str = "cove";
/// Prefixes of the licence files of a dependency.
const LICENCE_FILES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];
/// Largest file that is accepted as a licence.
const LICENCE_BYTES_MAX: u64 = 256 << 10;
/// Licences of the console's bundled packages, from the root of the checkout.
const CONSOLE_LICENCES: &str = "crates/console/dist/LICENSES.txt";

/// A dependency that is compiled into the binary.
#[derive(Debug)]
struct BundledPackage {
    name: String,
    version: String,
    licence: String,
    checksum: Option<String>,
    /// Directory of its sources; none for packages of this workspace.
    sources: Option<PathBuf>,
    dependencies: BTreeSet<String>,
}

/// Writes `cove.cdx.json` and `THIRD-PARTY-LICENCES.txt` into a directory.
///
/// # Errors
/// If cargo cannot resolve the dependencies, or one of them has no licence.
pub(crate) fn write(root: &Path, arguments: &[String]) -> Result<String> {
    let [target_flag, target, version_flag, version, out] = arguments else {
        anyhow::bail!("usage: xtask sbom --target TRIPLE --version VERSION DIRECTORY");
    };
    ensure!(target_flag == "--target" && version_flag == "--version", "unknown option");
    let packages = bundled(root, target)?;
    let out = Path::new(out);
    let bill = bill_of_materials(&packages, version)?;
    fs::write(out.join("cove.cdx.json"), format!("{bill:#}\n"))?;
    let mut licences = licences(&packages)?;
    let console = fs::read_to_string(root.join(CONSOLE_LICENCES)).context(CONSOLE_LICENCES)?;
    licences.push_str("==== The console\n\n");
    licences.push_str(&console);
    fs::write(out.join("THIRD-PARTY-LICENCES.txt"), licences)?;
    Ok(String::new())
}

/// Returns the binary's dependencies according to the lock file, without those of tests and of
/// other systems.
fn bundled(root: &Path, target: &str) -> Result<BTreeMap<String, BundledPackage>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", target])
        .current_dir(root)
        .output()
        .context("run cargo metadata")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let lock: toml::Table = fs::read_to_string(root.join("Cargo.lock"))?.parse()?;
    reachable(&metadata, &lock)
}

fn reachable(metadata: &Value, lock: &toml::Table) -> Result<BTreeMap<String, BundledPackage>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<String, Value> =
        array(&metadata["packages"]).into_iter().map(|it| (text(&it["id"]), it)).collect();
    let nodes: BTreeMap<String, Value> =
        array(&metadata["resolve"]["nodes"]).into_iter().map(|it| (text(&it["id"]), it)).collect();
    let root = packages.iter().find(|(_, it)| it["name"] == BINARY).map(|(id, _)| id.clone());
    let mut waiting = vec![root.with_context(|| format!("there is no package {BINARY}"))?];
    let mut found = BTreeMap::new();
    while let Some(id) = waiting.pop() {
        if found.contains_key(&id) {
            continue;
        }
        let package = packages.get(&id).with_context(|| format!("no package {id}"))?;
        let node = nodes.get(&id).with_context(|| format!("{id} is not resolved"))?;
        let is_compiled_in = |dependency: &Value| {
            array(&dependency["dep_kinds"]).iter().any(|it| it["kind"].is_null())
        };
        let dependencies: BTreeSet<String> = array(&node["deps"])
            .iter()
            .filter(|it| is_compiled_in(it))
            .map(|it| text(&it["pkg"]))
            .collect();
        waiting.extend(dependencies.iter().cloned());
        let (name, version) = (text(&package["name"]), text(&package["version"]));
        let is_ours = package["source"].is_null();
        let sources = PathBuf::from(text(&package["manifest_path"]));
        found.insert(
            id,
            BundledPackage {
                checksum: checksum(lock, &name, &version),
                licence: text(&package["license"]),
                sources: sources.parent().filter(|_| !is_ours).map(Path::to_owned),
                dependencies,
                name,
                version,
            },
        );
    }
    Ok(found)
}

/// Returns the SHA-256 of a package's archive, from the lock file.
fn checksum(lock: &toml::Table, name: &str, version: &str) -> Option<String> {
    let packages = lock.get("package")?.as_array()?;
    let is_it = |it: &&toml::Value| {
        it.get("name").and_then(toml::Value::as_str) == Some(name)
            && it.get("version").and_then(toml::Value::as_str) == Some(version)
    };
    Some(packages.iter().find(is_it)?.get("checksum")?.as_str()?.to_owned())
}

fn bill_of_materials(packages: &BTreeMap<String, BundledPackage>, version: &str) -> Result<Value> {
    let url = |it: &BundledPackage| format!("pkg:cargo/{}@{}", it.name, it.version);
    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    for package in packages.values() {
        ensure!(!package.licence.is_empty(), "{} has no licence", package.name);
        let mut component = json!({
            "type": "library",
            "bom-ref": url(package),
            "name": package.name,
            "version": package.version,
            "purl": url(package),
            "licenses": [{ "expression": package.licence.replace('/', " OR ") }],
        });
        if let Some(checksum) = &package.checksum {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        }
        if package.name != BINARY {
            components.push(component);
        }
        let on: Vec<String> =
            package.dependencies.iter().filter_map(|id| packages.get(id)).map(url).collect();
        dependencies.push(json!({ "ref": url(package), "dependsOn": on }));
    }
    let program = json!({
        "type": "application",
        "bom-ref": format!("pkg:cargo/{BINARY}@{version}"),
        "name": BINARY,
        "version": version,
        "licenses": [{ "expression": "Apache-2.0" }],
    });
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "component": program },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// Collects the licence texts of the dependencies; a text that several share appears once.
fn licences(packages: &BTreeMap<String, BundledPackage>) -> Result<String> {
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages.values() {
        let Some(sources) = &package.sources else { continue };
        let title = format!("{} {} ({})", package.name, package.version, package.licence);
        let texts = licence_texts(sources)?;
        // A package without a licence text: its expression identifies the known text.
        let texts = if texts.is_empty() { vec![String::new()] } else { texts };
        for text in texts {
            by_text.entry(text).or_default().push(title.clone());
        }
    }
    let mut document = String::new();
    for (text, titles) in by_text {
        for title in titles {
            document.push_str("==== ");
            document.push_str(&title);
            document.push('\n');
        }
        document.push('\n');
        document.push_str(&text);
        document.push_str("\n\n");
    }
    Ok(document)
}

fn licence_texts(sources: &Path) -> Result<Vec<String>> {
    let mut texts = BTreeSet::new();
    for entry in fs::read_dir(sources).with_context(|| sources.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let metadata = entry.metadata()?;
        let is_licence = LICENCE_FILES.iter().any(|it| name.starts_with(it));
        if is_licence && metadata.is_file() && metadata.len() <= LICENCE_BYTES_MAX {
            texts.insert(String::from_utf8_lossy(&fs::read(entry.path())?).trim().to_owned());
        }
    }
    Ok(texts.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bill_has_what_the_binary_is_built_from_and_no_tools_of_tests() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let packages = bundled(root, "x86_64-unknown-linux-gnu").unwrap();
        let bill = bill_of_materials(&packages, "1.2.3").unwrap();
        let components = bill["components"].as_array().unwrap();
        let find = |name: &str| components.iter().find(|it| it["name"] == name);
        let tokio = find("tokio").unwrap();
        assert_eq!(tokio["hashes"][0]["content"].as_str().unwrap().len(), 64);
        assert!(tokio["purl"].as_str().unwrap().starts_with("pkg:cargo/tokio@1."));
        for (name, is_there) in
            [("rusqlite", true), ("gateway", true), ("proptest", false), ("testkit", false)]
        {
            assert_eq!(find(name).is_some(), is_there, "{name}");
        }
        let references: BTreeSet<&str> =
            components.iter().map(|it| it["bom-ref"].as_str().unwrap()).collect();
        assert_eq!(references.len(), components.len(), "names are unique");
        let text = licences(&packages).unwrap();
        assert!(text.contains("==== tokio ") && text.contains("Permission is hereby granted"));
        assert!(!text.contains(env!("CARGO_MANIFEST_DIR")));
    }
}
