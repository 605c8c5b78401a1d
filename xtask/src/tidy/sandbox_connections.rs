//! Rule for connections into sandboxes: only the places listed here make them, and
//! `Session::connect` refuses the ports that the server itself serves. A new place is a potential
//! path to another tenant's grants until proved otherwise.

use super::{Findings, SourceFile};

/// Calls that lead into a sandbox's network, and the only files that make them.
const SANDBOX_CONNECTIONS: &[(&str, &[&str])] = &[
    // The guest init connects when the session's connection requests it.
    (
        "connect_loopback(",
        &["crates/sandbox/src/guest/session.rs", "crates/sandbox/src/sys/session.rs"],
    ),
    (
        "to_session::CONNECT",
        &["crates/sandbox/src/guest/session.rs", "crates/sandbox/src/session.rs"],
    ),
    // Only code that makes sandboxes enters namespaces, never code that serves requests.
    (
        "setns(",
        &[
            "crates/sandbox/src/guest.rs",
            "crates/sandbox/src/guest/session.rs",
            "crates/sandbox/src/spawner/networks.rs",
            "crates/sandbox/src/sys/processes.rs",
        ],
    ),
    // The sessions service passes connections on, only for E2B's ports by host name.
    (".sandbox()?.connect(", &["crates/sessions/src/service/files.rs"]),
    ("guard.connect(", &["crates/sessions/src/faces/e2b/ports.rs"]),
];

/// Finds such calls elsewhere, and listed calls that no longer exist.
pub(super) fn check(files: &[SourceFile], findings: &mut Findings) {
    let is_source = |file: &&SourceFile| {
        file.path.starts_with("crates/")
            && file.path.contains("/src/")
            && file.path.ends_with(".rs")
    };
    for (call, places) in SANDBOX_CONNECTIONS {
        let callers = files.iter().filter(is_source).filter(|file| file.text.contains(call));
        let callers: Vec<&str> = callers.map(|file| file.path.as_str()).collect();
        for caller in callers.iter().filter(|caller| !places.contains(caller)) {
            findings.add(caller, 0, format!("`{call}` leads into a sandbox: see {}", file!()));
        }
        for place in places.iter().filter(|place| !callers.contains(place)) {
            findings.add(place, 0, format!("`{call}` is not there any more: see {}", file!()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_way_into_a_sandbox_is_found_and_so_is_one_that_is_gone() {
        let file = |path: &str, text: &str| SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
            size: text.len(),
        };
        let known = || {
            SANDBOX_CONNECTIONS
                .iter()
                .flat_map(|(call, places)| places.iter().map(|it| file(it, call)))
        };
        let mut files: Vec<SourceFile> = Vec::new();
        for new in known() {
            match files.iter_mut().find(|file| file.path == new.path) {
                Some(file) => file.text.push_str(&new.text),
                None => files.push(new),
            }
        }
        let count = |files: &[SourceFile]| {
            let mut findings = Findings::default();
            check(files, &mut findings);
            findings.0.len()
        };
        assert_eq!(count(&files), 0);
        files.push(file("crates/sessions/src/http/ports.rs", "guard.connect(port).await"));
        assert_eq!(count(&files), 1);
        files.retain(|file| !file.path.ends_with("service/files.rs"));
        assert_eq!(count(&files), 2);
    }
}
