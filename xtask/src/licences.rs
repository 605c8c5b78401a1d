//! The licences of all packages, checked against the list in `deny.toml`.
//!
//! The list is cargo-deny's own, so that both checks agree. Advisories are left to cargo-deny:
//! their database must be downloaded, and this check works without a network.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use toml::Table;

/// The file with the list, from the root of the checkout.
const LIST: &str = "deny.toml";
/// Workspaces with a lock file, from the root of the checkout.
const WORKSPACES: &[&str] = &[".", "fuzz"];
/// Packages for other systems are neither downloaded nor compiled.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Permitted licences, and permitted pairs of a package and a licence.
#[derive(Debug, Default)]
struct AllowedLicences {
    everywhere: BTreeSet<String>,
    exceptions: BTreeSet<(String, String)>,
}

/// Checks all packages of the checkout at `root`.
///
/// # Errors
/// If a package has no permitted licence; one line per package.
pub(crate) fn check(root: &Path) -> Result<String> {
    let text = fs::read_to_string(root.join(LIST)).context(LIST)?;
    let allowed = AllowedLicences::read(&text).context(LIST)?;
    let (mut findings, mut packages) = (BTreeSet::new(), BTreeSet::new());
    for workspace in WORKSPACES {
        for (name, licence) in packages_of(&root.join(workspace))? {
            if let Err(error) = allowed.check(&name, licence.as_deref()) {
                findings.insert(format!("{name}: {error:#}"));
            }
            packages.insert(name);
        }
    }
    if findings.is_empty() {
        return Ok(format!("licences: {} packages\n", packages.len()));
    }
    let findings: Vec<String> = findings.into_iter().collect();
    bail!("{} packages against {LIST}:\n{}", findings.len(), findings.join("\n"))
}

/// Returns the names and licences of the packages in a workspace's lock file.
fn packages_of(workspace: &Path) -> Result<Vec<(String, Option<String>)>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", TARGET])
        .current_dir(workspace)
        .output()
        .context("run cargo metadata")?;
    ensure!(
        output.status.success(),
        "cargo metadata in {}: {}",
        workspace.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().context("no packages in cargo metadata")?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    packages
        .iter()
        .map(|package| {
            Ok((
                text(&package["name"]).context("a package has no name")?,
                text(&package["license"]),
            ))
        })
        .collect()
}

impl AllowedLicences {
    fn read(text: &str) -> Result<AllowedLicences> {
        let table: Table = text.parse()?;
        let licences = table.get("licenses").context("no table `licenses`")?;
        let array = |value: &toml::Value, name: &str| -> Result<Vec<toml::Value>> {
            let array = value.get(name).and_then(toml::Value::as_array);
            Ok(array.with_context(|| format!("no array `{name}`"))?.clone())
        };
        let text = |value: toml::Value| value.as_str().map(str::to_owned).context("not a text");
        let mut allowed = AllowedLicences::default();
        for licence in array(licences, "allow")? {
            allowed.everywhere.insert(text(licence)?);
        }
        for exception in array(licences, "exceptions")? {
            let package = exception.get("crate").and_then(toml::Value::as_str);
            let package = package.context("an exception without `crate`")?;
            for licence in array(&exception, "allow")? {
                allowed.exceptions.insert((package.to_owned(), text(licence)?));
            }
        }
        Ok(allowed)
    }

    fn check(&self, package: &str, licence: Option<&str>) -> Result<()> {
        let licence = licence.context("names no licence")?;
        // Notation from before SPDX had `OR`.
        let text = licence.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let mut expression =
            LicenceExpression { words: text.split_whitespace().collect(), next: 0 };
        let is_allowed = expression.any(&|licence| {
            self.everywhere.contains(licence)
                || self.exceptions.contains(&(package.to_owned(), licence.to_owned()))
        })?;
        ensure!(expression.next == expression.words.len(), "`{licence}` cannot be read");
        ensure!(is_allowed, "`{licence}` is not on the list");
        Ok(())
    }
}

/// An SPDX expression, read word by word. `AND` binds stronger than `OR`.
struct LicenceExpression<'a> {
    words: Vec<&'a str>,
    next: usize,
}

impl LicenceExpression<'_> {
    fn any(&mut self, is_allowed: &dyn Fn(&str) -> bool) -> Result<bool> {
        let mut result = self.all(is_allowed)?;
        while self.take("OR") {
            result |= self.all(is_allowed)?;
        }
        Ok(result)
    }

    fn all(&mut self, is_allowed: &dyn Fn(&str) -> bool) -> Result<bool> {
        let mut result = self.one(is_allowed)?;
        while self.take("AND") {
            result &= self.one(is_allowed)?;
        }
        Ok(result)
    }

    fn one(&mut self, is_allowed: &dyn Fn(&str) -> bool) -> Result<bool> {
        if self.take("(") {
            let result = self.any(is_allowed)?;
            ensure!(self.take(")"), "a bracket is not closed");
            return Ok(result);
        }
        let mut licence = self.word()?.to_owned();
        if self.take("WITH") {
            licence = format!("{licence} WITH {}", self.word()?);
        }
        Ok(is_allowed(&licence))
    }

    fn word(&mut self) -> Result<&str> {
        let word = self.words.get(self.next).context("the licence ends too early")?;
        self.next += 1;
        Ok(word)
    }

    fn take(&mut self, word: &str) -> bool {
        let is_next = self.words.get(self.next) == Some(&word);
        self.next += usize::from(is_next);
        is_next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> AllowedLicences {
        let text = r#"
            [licenses]
            allow = ["MIT", "Apache-2.0", "ISC"]
            exceptions = [{ crate = "fuzzer", allow = ["NCSA"] }]
        "#;
        AllowedLicences::read(text).unwrap()
    }

    #[test]
    fn a_licence_on_the_list_is_enough_and_each_of_several_is_needed() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "MIT AND ISC",
            "(MIT OR GPL-3.0) AND ISC",
            "GPL-3.0 AND MIT OR ISC",
            "Apache-2.0 WITH LLVM-exception OR MIT",
        ] {
            allowed().check("any", Some(good)).unwrap();
        }
        for bad in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT OR ISC) AND GPL-3.0",
            "Apache-2.0 WITH LLVM-exception",
            "NCSA",
        ] {
            assert!(allowed().check("any", Some(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for bad in ["", "MIT MIT", "(MIT", "MIT OR", "MIT WITH", ") MIT"] {
            assert!(allowed().check("any", Some(bad)).is_err(), "{bad}");
        }
        assert!(allowed().check("any", None).is_err());
    }

    #[test]
    fn an_exception_holds_for_its_package_only() {
        allowed().check("fuzzer", Some("MIT AND NCSA")).unwrap();
        assert!(allowed().check("other", Some("MIT AND NCSA")).is_err());
    }

    #[test]
    fn the_list_of_the_checkout_can_be_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let list = AllowedLicences::read(&fs::read_to_string(root.join(LIST)).unwrap()).unwrap();
        assert!(list.everywhere.contains("Apache-2.0"));
    }
}
