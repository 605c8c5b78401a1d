//! Tar archives of folders. The same files result in the same bytes, and therefore the same hash.

use anyhow::Result;
use api::AgentFile;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// Size of a block and of a header.
const BLOCK: usize = 512;
/// Longest name in a header; longer ones have a separate entry (GNU tar, `././@LongLink`).
const NAME_BYTES_MAX: usize = 100;
/// Types of entries.
const FILE: u8 = b'0';
const LONG_NAME: u8 = b'L';
/// Name of an entry that contains a long name.
const LONG_LINK: &str = "././@LongLink";

/// Writes an archive.
pub(super) fn archive(files: &[AgentFile]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for file in files {
        let content = match file.base64 {
            true => BASE64.decode(&file.content)?,
            false => file.content.clone().into_bytes(),
        };
        if file.path.len() > NAME_BYTES_MAX {
            let mut name = file.path.clone().into_bytes();
            name.push(0);
            entry(&mut bytes, LONG_LINK, LONG_NAME, 0o644, &name);
        }
        let mode = if file.executable { 0o755 } else { 0o644 };
        entry(&mut bytes, &file.path, FILE, mode, &content);
    }
    bytes.resize(bytes.len() + 2 * BLOCK, 0);
    Ok(bytes)
}

/// Appends an entry; the header fields are those of POSIX.1-1988 with GNU's magic.
fn entry(bytes: &mut Vec<u8>, name: &str, kind: u8, mode: u32, content: &[u8]) {
    let mut head = [0_u8; BLOCK];
    let mut put = |at: usize, text: &[u8]| {
        for (byte, &value) in head.iter_mut().skip(at).zip(text) {
            *byte = value;
        }
    };
    put(0, name.as_bytes().get(..NAME_BYTES_MAX).unwrap_or(name.as_bytes()));
    put(100, format!("{mode:07o}\0").as_bytes());
    put(108, b"0000000\x000000000\0");
    put(124, format!("{:011o}\0", content.len()).as_bytes());
    put(136, b"00000000000\0");
    // The checksum counts its own field as spaces.
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar  \0");
    let sum: u32 = head.iter().map(|&byte| u32::from(byte)).sum();
    for (byte, value) in head.iter_mut().skip(148).zip(format!("{sum:06o}\0 ").bytes()) {
        *byte = value;
    }
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use testkit::Scratch;

    use super::*;

    #[test]
    fn tar_unpacks_what_was_packed() {
        let scratch = Scratch::new();
        let long = format!("{}/name", "d".repeat(120));
        let file = |path: &str, executable| AgentFile {
            path: path.to_owned(),
            content: BASE64.encode(path.repeat(7)),
            base64: true,
            executable,
        };
        let files = [file("a", true), file("b/c", false), file(&long, false)];
        let bytes = archive(&files).unwrap();
        assert_eq!(bytes, archive(&files).unwrap());
        let mut tar = Command::new("tar");
        tar.args(["-x", "-C"]).arg(scratch.path()).stdin(Stdio::piped());
        let mut child = tar.spawn().unwrap();
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        assert!(child.wait().unwrap().success());
        for file in &files {
            let found = std::fs::read_to_string(scratch.path().join(&file.path)).unwrap();
            assert_eq!(found, file.path.repeat(7));
        }
    }
}
