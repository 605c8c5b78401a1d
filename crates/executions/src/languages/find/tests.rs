//! Tools are found at their real location, and nothing beside them is shown.

use std::os::unix::fs::symlink;

use super::*;
use crate::testing::ScratchDirectory;

const ELF: &[u8] = b"\x7fELF and so on";
const SCRIPT: &[u8] = b"#!/bin/sh\nexec real \"$@\"\n";

fn tool(executable: &str, directories: &[&str]) -> ToolEntry {
    ToolEntry {
        executable: executable.into(),
        directories: directories.iter().map(|&directory| directory.to_owned()).collect(),
        version: Vec::new(),
        interpreter: None,
        relocated_env: BTreeMap::new(),
    }
}

/// A home directory with the given files in it, all executable.
fn home(files: &[(&str, &[u8])]) -> ScratchDirectory {
    let home = ScratchDirectory::new();
    for (path, content) in files {
        home.write(path, content, 0o755);
    }
    home
}

fn found_in(home: &ScratchDirectory, tool: ToolEntry) -> Option<(PathBuf, String)> {
    let tools = BTreeMap::from([("tool".to_owned(), tool)]);
    let mut all = find_all(&tools, Some(home.path()));
    all.remove("tool").map(|found| {
        let source = found.toolchain.unwrap().source;
        (source.strip_prefix(home.path()).unwrap().to_owned(), found.program)
    })
}

#[test]
fn the_highest_version_wins() {
    let home = home(&[
        (".pyenv/versions/3.9.18/bin/python3", ELF),
        (".pyenv/versions/3.13.0/bin/python3", ELF),
        (".pyenv/versions/2.7.18/bin/python3", ELF),
    ]);
    assert_eq!(
        found_in(&home, tool("bin/python3", &["~/.pyenv/versions/3*"])),
        Some((".pyenv/versions/3.13.0".into(), "/opt/tool/bin/python3".to_owned()))
    );
}

#[test]
fn a_shim_is_not_a_tool() {
    let home = home(&[("shims/bin/python3", SCRIPT), ("real/bin/python3", ELF)]);
    assert_eq!(
        found_in(&home, tool("bin/python3", &["~/shims", "~/real"])),
        Some(("real".into(), "/opt/tool/bin/python3".to_owned()))
    );
}

#[test]
fn a_link_to_a_proxy_elsewhere_is_not_a_tool() {
    let home = home(&[("proxy/rustup", ELF)]);
    home.write("cargo/bin/cargo", ELF, 0o755);
    symlink(home.path().join("proxy/rustup"), home.path().join("cargo/bin/rustc")).unwrap();
    assert_eq!(found_in(&home, tool("bin/rustc", &["~/cargo"])), None);
}

#[test]
fn a_linked_directory_is_shown_by_its_real_place() {
    let home = home(&[("toolchains/stable-x86/bin/rustc", ELF)]);
    symlink("stable-x86", home.path().join("toolchains/1.95.0")).unwrap();
    assert_eq!(
        found_in(&home, tool("bin/rustc", &["~/toolchains/1.*"])),
        Some(("toolchains/stable-x86".into(), "/opt/tool/bin/rustc".to_owned()))
    );
}

#[test]
fn a_link_inside_the_directory_is_followed() {
    let home = home(&[("py/bin/python3.13", ELF)]);
    symlink("python3.13", home.path().join("py/bin/python3")).unwrap();
    assert_eq!(
        found_in(&home, tool("bin/python3", &["~/py"])),
        Some(("py".into(), "/opt/tool/bin/python3.13".to_owned()))
    );
}

#[test]
fn the_home_directory_itself_is_never_shown() {
    let home = home(&[("bin/go", ELF)]);
    assert_eq!(found_in(&home, tool("bin/go", &["~/"])), None);
    assert!(!showable(home.path().parent().unwrap(), Some(home.path())));
    assert!(!showable(Path::new("/opt"), Some(home.path())));
    assert!(showable(Path::new("/opt/jdk"), Some(home.path())));
}

#[test]
fn what_cannot_be_executed_is_not_a_tool() {
    let home = home(&[]);
    home.write("go/bin/go", ELF, 0o644);
    assert_eq!(found_in(&home, tool("bin/go", &["~/go"])), None);
    home.write("dir/bin/go/x", ELF, 0o755);
    assert_eq!(found_in(&home, tool("bin/go", &["~/dir"])), None);
}

#[test]
fn tools_of_one_directory_share_one_view() {
    let home = home(&[("jdk/bin/java", ELF), ("jdk/bin/javac", ELF)]);
    let tools = BTreeMap::from([
        ("java".to_owned(), tool("bin/java", &["~/jdk"])),
        ("javac".to_owned(), tool("bin/javac", &["~/jdk"])),
    ]);
    let all = find_all(&tools, Some(home.path()));
    assert_eq!(all["java"].toolchain, all["javac"].toolchain);
    assert_eq!(all["javac"].program, "/opt/java/bin/javac");
}

#[test]
fn without_a_home_its_patterns_find_nothing() {
    assert_eq!(expand("~/go", None), Vec::<PathBuf>::new());
}

#[test]
fn what_is_below_usr_stays_where_it_is() {
    let tools = BTreeMap::from([("sh".to_owned(), tool("bin/env", &["/usr"]))]);
    let all = find_all(&tools, None);
    assert_eq!(all["sh"].program, "/usr/bin/env");
    assert_eq!(all["sh"].toolchain, None);
}

#[test]
fn stars_stand_for_anything_within_one_name() {
    for (pattern, name, expected) in [
        ("*", "x", true),
        ("*", ".x", false),
        ("jdk*", "jdk", true),
        ("jdk*", "ajdk", false),
        ("*-jdk*", "temurin-jdk-25", true),
        ("*-jdk*", "jdk-25", false),
        ("a*b", "ab", true),
        ("a*b", "abc", false),
        ("a*a", "a", false),
    ] {
        assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
    }
}

#[test]
fn versions_compare_by_number() {
    for (smaller, larger) in
        [("3.9", "3.13"), ("v18.20.1", "v22.1.0"), ("go1.9", "go1.21"), ("3", "3.1"), ("a", "b")]
    {
        assert_eq!(by_version(smaller, larger), Ordering::Less, "{smaller} {larger}");
        assert_eq!(by_version(larger, smaller), Ordering::Greater, "{smaller} {larger}");
    }
    assert_eq!(by_version("3.09", "3.9"), Ordering::Equal);
}
