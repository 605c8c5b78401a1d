//! Helpers that tests of several modules share.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A private directory that is removed when it is dropped.
pub(crate) struct ScratchDirectory(PathBuf);

impl ScratchDirectory {
    pub(crate) fn new() -> ScratchDirectory {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "cove-executions-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        ScratchDirectory(fs::canonicalize(path).unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, path: &str, content: &[u8], mode: u32) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// A table of languages whose tools are fakes in a home directory, so that tests do not depend on
/// installed tools.
pub(crate) const TABLE: &str = r#"
[tools.interp]
executable = "bin/interp"
directories = ["~/interp"]
version = ["--version"]
relocated_env = { LIBS = "{interp.dir}/lib", MODE = "not used" }

[tools.compiler]
executable = "bin/compiler"
directories = ["~/compiler-*"]
version = ["--version"]

[tools.nowhere]
executable = "bin/nowhere"
directories = ["~/nowhere"]
version = ["--version"]

[languages.script]
aliases = ["sc"]
extensions = ["sc"]
entry = "main.sc"
ways = [{ version = "interp", run = ["{interp}", "{entry}", "{args}"], env = { MODE = "script", HEAP = "{heap_mib}" } }]
limits = { processes = 7 }

[languages.built]
extensions = ["bt", "built"]
entry = "main.bt"
ways = [{ version = "compiler", compile = ["{compiler}", "-o", "program", "{files}"], run = ["./program", "{args}"], compile_env = { ROOT = "{compiler.dir}" } }]

[languages.made]
extensions = ["mk"]
entry = "main.mk"
ways = [{ version = "compiler", compile = ["{compiler}", "{compile_args}", "{files}"], run = ["./program", "{args}"], artifacts = { programs = ["program"], files = ["data"] } }]

[languages.listed]
extensions = ["ls"]
entry = "main.ls"
ways = [{ version = "compiler", compile = ["{compiler}", "{files}"], run = ["./run", "{args}"], artifacts = { list = ["list"] } }]

[languages.absent]
extensions = ["ab"]
entry = "main.ab"
hint = "install nowhere"
ways = [{ version = "nowhere", run = ["{nowhere}", "{entry}"] }]
"#;

/// Returns the languages of [`TABLE`] in addition to the built-in ones.
pub(crate) fn languages() -> (ScratchDirectory, crate::Languages) {
    let home = ScratchDirectory::new();
    home.write("interp/bin/interp", b"\x7fELF", 0o755);
    home.write("compiler-1/bin/compiler", b"\x7fELF", 0o755);
    home.write("table.toml", TABLE.as_bytes(), 0o644);
    let host = crate::ToolHost { home: Some(home.path().to_owned()), cache: None };
    let languages = crate::Languages::load(Some(&home.path().join("table.toml")), &host).unwrap();
    (home, languages)
}
