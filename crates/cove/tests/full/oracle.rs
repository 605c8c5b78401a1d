//! Random commits through Iceberg's own library and through Cove's, side by side.

use std::path::Path;
use std::process::Command;

use testkit::Scratch;

use crate::java::class_path;
use crate::shared::{COMPAT, finish};

/// Seeds of the commits, and the number of commits for each. A seed is a test case: it determines
/// the commits.
const SEEDS: [u32; 4] = [1, 2, 3, 4];
const COMMITS: u32 = 5_000;

#[test]
fn random_commits_make_the_documents_of_the_reference() {
    let scratch = Scratch::new();
    let packages = scratch.file("class-path", class_path("iceberg/rck/pom.xml"));
    for seed in SEEDS {
        let mut compare = Command::new("python3");
        compare.arg(Path::new(COMPAT).join("iceberg/oracle/run.py")).arg("--class-path");
        compare.arg(&packages).args(["--seed", &seed.to_string()]);
        finish(compare.args(["--commits", &COMMITS.to_string()]));
    }
}
