//! Iceberg's REST compatibility kit, unmodified, four of its tests that it skips for every catalog,
//! and scans that are planned for Iceberg's own client.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Postgres, Server};

use crate::java::class_path;
use crate::shared::{COMPAT, COVE, finish};

/// Options of the kit for this catalog. Versions after 1.11 read the last one.
const SWITCHES: [&str; 6] = [
    "-Drck.local=false",
    "-Drck.requires-namespace-create=true",
    "-Drck.supports-serverside-retry=true",
    "-Drck.overrides-requested-location=false",
    "-Drck.supports-names-with-dot=true",
    "-Drck.supports-variant=true",
];

/// Counts of the unmodified kit: tests that were started, succeeded, and were aborted. Aborted are
/// five that need tables outside of any namespace, for which Iceberg's REST interface has no path,
/// and the four of [`MORE`]. One more is never started, because it needs the kit's own server.
const WHOLE: [(&str, u32); 5] =
    [("skipped", 1), ("started", 156), ("successful", 147), ("aborted", 9), ("failed", 0)];

/// Tests that the kit skips for every catalog, without an option. The second list has a separate
/// server, because its test leaves namespaces that make one of the first list fail.
const MORE: [&[&str]; 2] = [
    &["testDropNamespaceWithNestedNamespace", "testTableNameWithSlash", "testNamespaceWithSlash"],
    &["testListNestedNamespaces"],
];

/// Fixed location of the kit's tables, with the names below it.
const FIXED: &str = "/tmp";
const FIXED_NAMESPACES: [&str; 2] = ["ns", "newdb"];

/// Removes the kit's files at that location, unless they existed before.
struct Leftovers {
    new: Vec<PathBuf>,
    // Only one kit runs at a time: all use the same directory.
    _lock: File,
}

impl Leftovers {
    fn watch() -> Leftovers {
        let lock = File::open(FIXED).unwrap();
        lock.lock().unwrap();
        let paths = FIXED_NAMESPACES.map(|name| Path::new(FIXED).join(name));
        let new = paths.into_iter().filter(|path| !path.exists()).collect();
        Leftovers { new, _lock: lock }
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        for path in self.new.iter().filter(|path| path.exists()) {
            drop(fs::remove_dir_all(path));
        }
    }
}

/// Compiles a program next to the kit's `pom.xml`. Returns its class path.
fn compiled(program: &str, scratch: &Path) -> String {
    let (packages, classes) = (class_path("iceberg/rck/pom.xml"), scratch.join("classes"));
    let mut javac = Command::new("javac");
    javac.args(["-cp", &packages, "-d"]).arg(&classes);
    finish(javac.arg(Path::new(COMPAT).join("iceberg/rck").join(program)));
    format!("{}:{packages}", classes.display())
}

/// Runs the selected tests against a new server, and compares the kit's own counts.
fn check(store: &str, selection: &[String], expected: &[(&str, u32)]) {
    let leftovers = Leftovers::watch();
    let config = format!("{store}[catalog]\nlocations = [\"file://{FIXED}\"]\n");
    let server = Server::start_with(COVE, &[], Some(&config));
    let scratch = server.scratch().path();
    let packages = compiled("MoreTests.java", scratch);
    let mut kit = Command::new("java");
    kit.args(SWITCHES)
        // It ends before a better compiler would pay off.
        .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"])
        .arg(format!("-Djava.io.tmpdir={}", scratch.display()))
        .arg(format!("-Duri=http://{}/catalog", server.client().address()))
        .arg(format!("-Dtoken={}", server.token()))
        .args(["-Dwarehouse=main", "-cp", &packages])
        .args(["org.junit.platform.console.ConsoleLauncher", "execute"])
        .args(["--details=tree", "--details-theme=ascii", "--disable-ansi-colors"])
        .args(selection)
        .current_dir(scratch);
    let output = kit.output().unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    let counted: Vec<_> = expected
        .iter()
        .map(|(what, _)| (*what, count(&report, what).unwrap_or(u32::MAX)))
        .collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(counted == expected, "{report}\n{errors}\n{counted:?} instead of {expected:?}");
    drop(server);
    drop(leftovers);
}

/// Returns the count in a line like `[       147 tests successful      ]`.
fn count(output: &str, what: &str) -> Option<u32> {
    let end = format!(" tests {what}");
    let line = output.lines().find_map(|line| {
        line.strip_prefix('[')?.strip_suffix(']')?.trim().strip_suffix(end.as_str())
    });
    line?.parse().ok()
}

fn whole(store: &str) {
    let suite = "--select-class=org.apache.iceberg.rest.RESTCompatibilityKitSuite";
    check(store, &[suite.to_owned()], &WHOLE);
}

#[test]
fn the_compatibility_kit_finds_no_fault_with_sqlite() {
    whole("");
}

#[test]
fn the_compatibility_kit_finds_no_fault_with_postgresql() {
    let database = Postgres::shared();
    whole(&format!("[store]\nurl = {:?}\n", database.database()));
}

#[test]
fn what_the_compatibility_kit_leaves_out_holds_as_well() {
    for tests in MORE {
        let select = |it| format!("--select-method=org.apache.iceberg.rest.MoreTests#{it}");
        let selection: Vec<_> = tests.iter().map(select).collect();
        let all = u32::try_from(tests.len()).unwrap();
        let expected = [("started", all), ("successful", all), ("aborted", 0), ("failed", 0)];
        check("", &selection, &expected);
    }
}

/// Column statistics, keys, offsets, partitions of all types, and all kinds of deletes.
#[test]
fn planned_scans_tell_icebergs_client_what_it_plans_itself() {
    let server = Server::start(COVE);
    let scratch = server.scratch().path();
    let packages = compiled("PlannedScans.java", scratch);
    let mut client = Command::new("java");
    client
        .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"])
        .arg(format!("-Djava.io.tmpdir={}", scratch.display()))
        .args(["-cp", &packages, "org.apache.iceberg.rest.PlannedScans"])
        .arg(format!("http://{}/catalog", server.client().address()))
        .arg(server.token())
        .current_dir(scratch);
    let output = finish(&mut client);
    assert!(output.ends_with("ok\n"), "{output}");
}
