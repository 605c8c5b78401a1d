//! The rules that hold for every file, and the checkout itself.

use super::*;

fn findings(path: &str, text: &str) -> Vec<String> {
    let mut findings = Findings::default();
    let file = SourceFile { path: path.to_owned(), text: text.to_owned(), size: text.len() };
    check_any(&file, &mut findings);
    findings.0
}

#[test]
fn every_unwanted_mark_is_found_with_its_line() {
    for (mark, _) in UNWANTED {
        let found = findings("a.txt", &format!("fine\nbefore {mark} after\n"));
        assert_eq!(found.len(), 1, "{mark}");
        assert!(found[0].starts_with("a.txt:2: "), "{found:?}");
    }
    assert!(findings("a.txt", "fine\n").is_empty());
}

#[test]
fn packages_come_from_the_public_registry() {
    let line = |source: &str| format!("[[package]]\nsource = \"{source}\"\n");
    assert!(findings("Cargo.lock", &line(REGISTRY)).is_empty());
    assert_eq!(findings("Cargo.lock", &line("registry+https://mirror.example/index")).len(), 1);
    assert_eq!(findings("Cargo.lock", &line("git+https://example.com/x")).len(), 1);
}

#[test]
fn large_files_are_found_except_lock_files() {
    let large = "x".repeat(FILE_BYTES_MAX + 1);
    assert_eq!(findings("a.json", &large).len(), 1);
    assert!(findings("bench/load/Cargo.lock", &large).is_empty());
}

#[test]
fn the_checkout_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    if let Err(error) = check(root) {
        panic!("{error:#}");
    }
}
