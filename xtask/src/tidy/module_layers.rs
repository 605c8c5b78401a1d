//! Rule for modules of one crate: they have layers too, and their dependencies point down.

use super::{Findings, SourceFile};

/// Modules of a crate by layer, top first. A module may use those after it and modules that are not
/// listed, which are below them all.
const LAYERS: &[(&str, &[&str])] =
    &[("crates/catalog/src/", &["guest", "http", "service", "access", "store"])];
/// Modules below all layers, although their parent module is not.
const BELOW: &[&str] = &["crate::guest::exchange", "crate::guest::session"];

/// Checks the modules of shipped crates.
pub(super) fn check(files: &[SourceFile], findings: &mut Findings) {
    for (folder, layers) in LAYERS {
        for file in files {
            let Some(path) = file.path.strip_prefix(folder) else { continue };
            if path.ends_with("tests.rs") || path.contains("/tests/") {
                continue;
            }
            let module = path.split(['/', '.']).next().unwrap_or_default();
            let Some(layer) = layers.iter().position(|it| *it == module) else { continue };
            let above = &layers[..layer];
            let lines = file.text.lines().take_while(|line| *line != "#[cfg(test)]").enumerate();
            for (index, line) in lines.filter(|(_, line)| !line.trim_start().starts_with("//")) {
                if let Some(used) = above.iter().find(|it| uses(line, it)) {
                    let what = format!("`{module}` may not use `{used}`, which is above it");
                    findings.add(&file.path, index + 1, what);
                }
            }
        }
    }
}

/// Returns whether a line names an item of a module of its crate.
fn uses(line: &str, module: &str) -> bool {
    let path = format!("crate::{module}");
    line.match_indices(&path).any(|(at, _)| {
        let rest = &line[at..];
        let ends = !rest[path.len()..].starts_with(|it: char| it.is_alphanumeric() || it == '_');
        ends && !BELOW.iter().any(|it| rest.starts_with(it))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_point_down() {
        for (path, text, expected) in [
            ("access/roles.rs", "use crate::service::Catalog;", 1),
            ("access.rs", "    crate::http::from_shell(&error)", 1),
            ("service/who.rs", "use crate::access::AccessControl;", 0),
            ("store/tests.rs", "use crate::service::Catalog;", 0),
            ("service.rs", "#[cfg(test)]\nmod tests { use crate::http; }", 0),
            ("service.rs", "use crate::guest::session::StagedTable;", 0),
            ("service.rs", "use crate::guest::SandboxAccess;", 1),
            ("store.rs", "//! See `crate::http`.", 0),
            ("store.rs", "use crate::accessories::Button;", 0),
            ("config.rs", "use crate::access::IssuerConfig;", 0),
        ] {
            let mut findings = Findings::default();
            let path = format!("crates/catalog/src/{path}");
            let file = SourceFile { path, text: text.to_owned(), size: text.len() };
            check(&[file], &mut findings);
            assert_eq!(findings.0.len(), expected, "{text}");
        }
    }
}
