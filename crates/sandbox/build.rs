//! Compiles the start hook of the warm Java runtime, a library that the virtual machine loads.

use std::error::Error;
use std::path::PathBuf;

const SOURCE: &str = "src/warm/start.c";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={SOURCE}");
    let library = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("no OUT_DIR")?).join("start.so");
    // Its C library functions are resolved when it is loaded, whichever C library that is.
    let status = cc::Build::new()
        .warnings_into_errors(true)
        .extra_warnings(true)
        .pic(true)
        .opt_level(2)
        .debug(false)
        .try_get_compiler()?
        .to_command()
        .args(["-shared", "-nostdlib", "-fno-stack-protector", "-fvisibility=hidden", "-s", "-o"])
        .arg(&library)
        .arg(SOURCE)
        .status()?;
    if status.success() { Ok(()) } else { Err(format!("compile {SOURCE}: {status}").into()) }
}
