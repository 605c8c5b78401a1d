//! Placed files and links, and who can change them.

use std::io::{Seek, Write};
use std::path::PathBuf;
use std::sync::Arc;

use sandbox::{Engine, SandboxCommand, SandboxError, SharedFile, WorkspaceContent, WorkspaceFile};

use crate::support::{python, run, shell, tests, text};

tests![
    shared_content_arrives_whole_in_every_sandbox,
    a_program_changes_its_copy_and_never_the_shared_file,
    more_shared_files_than_descriptors_arrive_as_well,
    a_shared_file_that_has_become_short_is_an_error,
    links_are_placed_as_they_are_and_followed_by_the_program_only,
    nothing_is_placed_through_a_link_of_the_program,
];

fn file(path: &str, content: WorkspaceContent) -> WorkspaceFile {
    WorkspaceFile { path: path.to_owned(), content, executable: false }
}

/// Returns megabytes of content without repetition.
fn content() -> Vec<u8> {
    (0u32..1 << 20).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

fn sum_of(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .enumerate()
        .fold(0, |sum, (at, byte)| sum + (at as u64 % 251 + 1) * u64::from(*byte))
}

const SUM: &str =
    "print(sum((at % 251 + 1) * byte for at, byte in enumerate(open('data', 'rb').read())))";

async fn shared_content_arrives_whole_in_every_sandbox(engine: Engine) {
    let bytes = content();
    let shared = Arc::new(SharedFile::from_bytes(&bytes).unwrap());
    let expected = format!("{}\n", sum_of(&bytes));
    for _ in 0..2 {
        let files = vec![file("data", WorkspaceContent::Shared(Arc::clone(&shared)))];
        let exit = run(&engine, SandboxCommand { files, ..python(SUM) }).await;
        assert_eq!(text(&exit.stdout), expected, "{exit:?}");
    }
    // An empty one, the same one twice, an executable one, and one in a directory.
    let script = SharedFile::from_bytes(b"#!/bin/sh\necho ran\n").unwrap();
    let executable = WorkspaceFile {
        executable: true,
        ..file("bin/run", WorkspaceContent::Shared(Arc::new(script)))
    };
    let empty = Arc::new(SharedFile::from_bytes(b"").unwrap());
    let one = Arc::new(SharedFile::from_bytes(b"one\n").unwrap());
    let files = vec![
        file("empty", WorkspaceContent::Shared(empty)),
        file("a/b/one", WorkspaceContent::Shared(Arc::clone(&one))),
        file("again", WorkspaceContent::Shared(one)),
        file("bytes", b"bytes\n".to_vec().into()),
        executable,
    ];
    let exit =
        run(&engine, SandboxCommand { files, ..shell("cat empty a/b/one again bytes; bin/run") })
            .await;
    assert_eq!(text(&exit.stdout), "one\none\nbytes\nran\n", "{exit:?}");
}

async fn a_program_changes_its_copy_and_never_the_shared_file(engine: Engine) {
    let shared = Arc::new(SharedFile::from_bytes(b"as it was\n").unwrap());
    let host = HostFile::new("as on the host\n");
    let opened = Arc::new(SharedFile::open(&host.0).unwrap());
    // There is no descriptor of it either.
    let script = "import os\n\
                  for name in 'memory', 'disk':\n    open(name, 'r+').write('XXXX')\n\
                  print(sorted(os.listdir('/proc/self/fd'))[:-1])\n\
                  print(open('memory').read(), open('disk').read(), end='')";
    for _ in 0..2 {
        let files = vec![
            file("memory", WorkspaceContent::Shared(Arc::clone(&shared))),
            file("disk", WorkspaceContent::Shared(Arc::clone(&opened))),
        ];
        let exit = run(&engine, SandboxCommand { files, ..python(script) }).await;
        let expected = "['0', '1', '2']\nXXXXt was\n XXXXn the host\n";
        assert_eq!(text(&exit.stdout), expected, "{exit:?}");
    }
    assert_eq!(shared.read().unwrap(), b"as it was\n");
    assert_eq!(opened.read().unwrap(), b"as on the host\n");
}

async fn more_shared_files_than_descriptors_arrive_as_well(engine: Engine) {
    let files = (0..100).map(|n| {
        let shared = SharedFile::from_bytes(format!("{n}\n").as_bytes()).unwrap();
        file(&format!("file{n:03}"), WorkspaceContent::Shared(Arc::new(shared)))
    });
    let exit = run(&engine, SandboxCommand { files: files.collect(), ..shell("cat file*") }).await;
    let expected: String = (0..100).map(|n| format!("{n}\n")).collect();
    assert_eq!(text(&exit.stdout), expected);
}

/// A file of the host that is removed afterwards.
struct HostFile(PathBuf);

impl HostFile {
    fn new(content: &str) -> HostFile {
        let name = format!("cove-sandbox-test-{}", std::process::id());
        let file = HostFile(std::env::temp_dir().join(name));
        std::fs::write(&file.0, content).unwrap();
        file
    }
}

impl Drop for HostFile {
    fn drop(&mut self) {
        let _may_be_gone = std::fs::remove_file(&self.0);
    }
}

async fn a_shared_file_that_has_become_short_is_an_error(engine: Engine) {
    let host = HostFile::new("longer than later\n");
    let shared = SharedFile::open(&host.0).unwrap();
    let mut writer = std::fs::OpenOptions::new().write(true).open(&host.0).unwrap();
    writer.set_len(0).unwrap();
    writer.rewind().unwrap();
    writer.write_all(b"short\n").unwrap();
    let files = vec![file("data", WorkspaceContent::Shared(Arc::new(shared)))];
    let mut sandbox = engine.sandbox().await.unwrap();
    let error =
        sandbox.run(SandboxCommand { files, ..shell("cat data") }, &mut ()).await.unwrap_err();
    assert!(
        matches!(&error, SandboxError::File(failure) if failure.step.contains("`data`")),
        "{error}"
    );
}

async fn links_are_placed_as_they_are_and_followed_by_the_program_only(engine: Engine) {
    let link = |path: &str, target: &str| (path.to_owned(), target.to_owned());
    let command = SandboxCommand {
        files: vec![file("real", b"content\n".to_vec().into())],
        symlinks: vec![
            link("near", "real"),
            link("a/up", "../real"),
            link("out", "/etc/hostname"),
            link("nowhere", "../../../../etc/shadow"),
            link("odd", "a \n\"b"),
        ],
        outputs: ["out", "near", "real"].map(str::to_owned).to_vec(),
        outputs_bytes_max: 1 << 10,
        ..shell("cat near a/up out; readlink nowhere odd; cat nowhere 2>&1; exit 0")
    };
    let exit = run(&engine, command).await;
    let stdout = text(&exit.stdout);
    // The sandbox's own name, not the host's.
    assert!(stdout.starts_with("content\ncontent\nsandbox\n"), "{stdout}");
    assert!(stdout.contains("../../../../etc/shadow\na \n\"b\n"), "{stdout}");
    assert!(stdout.contains("No such file"), "{stdout}");
    assert_eq!(exit.outputs[2].as_deref(), Ok(&b"content\n"[..]));
    for linked in &exit.outputs[..2] {
        assert!(linked.as_ref().is_err_and(|error| error.contains("link")), "{linked:?}");
    }
}

/// A first program leaves links at the names of the second one's files and links.
async fn nothing_is_placed_through_a_link_of_the_program(engine: Engine) {
    let link = |path: &str| vec![(path.to_owned(), "/tmp".to_owned())];
    let here = |path: &str| vec![file(path, b"placed\n".to_vec().into())];
    let first = "mkdir there; ln -s there dir; ln -s there/file file";
    let first = || SandboxCommand { last: false, ..shell(first) };
    for (files, symlinks) in
        [(here("dir/file"), vec![]), (vec![], link("dir/link")), (vec![], link("file"))]
    {
        let mut sandbox = engine.sandbox().await.unwrap();
        assert_eq!(sandbox.run(first(), &mut ()).await.unwrap().code, Some(0));
        let second = SandboxCommand { files, symlinks, ..shell("ls there") };
        let error = sandbox.run(second, &mut ()).await.unwrap_err();
        assert!(matches!(error, SandboxError::File(_)), "{error}");
    }
    // A file replaces the link itself.
    let mut sandbox = engine.sandbox().await.unwrap();
    assert_eq!(sandbox.run(first(), &mut ()).await.unwrap().code, Some(0));
    let second =
        SandboxCommand { files: here("file"), ..shell("ls there; test ! -L file && cat file") };
    let exit = sandbox.run(second, &mut ()).await.unwrap();
    assert_eq!((exit.code, &*exit.stdout), (Some(0), &b"placed\n"[..]));
}
