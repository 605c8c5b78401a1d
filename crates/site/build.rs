//! Compresses the files that a crate embeds. Each list of names and `include_bytes!`, `NAME.inc`,
//! becomes a list of the same form in `OUT_DIR`, `NAME.rs`, whose files are compressed by gzip.
//! It is also the build script of `console`.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Lists of embedded files, by their paths in the crate that has them.
const LISTS: &[&str] = &["dist/files.inc", "src/sources.inc", "src/reference.inc"];

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("no OUT_DIR")?);
    for list in LISTS.iter().map(Path::new).filter(|list| list.exists()) {
        compress(list, &out).map_err(|error| format!("{}: {error}", list.display()))?;
    }
    Ok(())
}

/// Compresses the files of a list into `out`, and writes the list of the compressed files.
fn compress(list: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let stem = list.file_stem().and_then(|stem| stem.to_str()).ok_or("a list without a name")?;
    println!("cargo::rerun-if-changed={}", list.display());
    let mut written = "&[\n".to_owned();
    let text = fs::read_to_string(list)?;
    for (index, line) in text.lines().filter(|line| line.contains("include_bytes!")).enumerate() {
        let mut quoted = line.split('"').skip(1).step_by(2);
        let (Some(name), Some(path)) = (quoted.next(), quoted.next()) else {
            return Err(format!("no name and path: {line}").into());
        };
        let path = list.with_file_name(path);
        println!("cargo::rerun-if-changed={}", path.display());
        let content = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&content)?;
        let compressed = format!("{stem}-{index}.gz");
        fs::write(out.join(&compressed), encoder.finish()?)?;
        writeln!(written, "    (\"{name}\", include_bytes!(\"{compressed}\")),")?;
    }
    written.push_str("]\n");
    fs::write(out.join(format!("{stem}.rs")), written)?;
    Ok(())
}
