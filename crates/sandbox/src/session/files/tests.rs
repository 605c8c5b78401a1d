//! The server's side alone, with faulty helpers.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use proptest::prelude::*;
use tokio::io::AsyncWriteExt;
use tokio::time;

use super::types::{FilesError, SandboxFileEntry, WatchEvent};
use super::wire::{self, FileRequest};
use super::{
    ATTRIBUTE_BYTES_MAX, EntryKind, LinkMode, ListDepth, MissingParents, SandboxFiles, WriteMode,
    absolute,
};
use crate::codec::{MessageReader, MessageWriter};
use crate::sys;

/// Longest wait, far above the usual time.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn paths_become_absolute() {
    let cases: [(&str, &str); 13] = [
        ("a", "/workspace/a"),
        ("./a//b/.", "/workspace/a/b"),
        (".", "/workspace"),
        ("~", "/home/user"),
        ("~/", "/home/user"),
        ("~/x", "/home/user/x"),
        ("~x", "/workspace/~x"),
        ("a~", "/workspace/a~"),
        ("/", "/"),
        ("//", "/"),
        ("/a/../b/", "/a/../b"),
        ("..", "/workspace/.."),
        ("...", "/workspace/..."),
    ];
    for (path, expected) in cases {
        let got = absolute(path.as_bytes()).unwrap();
        assert_eq!(got.to_str().unwrap(), expected, "{path}");
    }
    for path in ["", "a\0b", &"x/".repeat(2500)] {
        assert!(matches!(absolute(path.as_bytes()), Err(FilesError::Invalid(_))), "{path}");
    }
}

/// Reaction of a helper to a request.
enum Reply {
    Say(Vec<u8>, Vec<OwnedFd>),
    Nothing,
    End,
}

/// Starts a helper that handles each request with a function.
fn helper(
    reply: impl Fn(u64, FileRequest, Vec<OwnedFd>) -> Reply + Send + 'static,
) -> SandboxFiles {
    let (ours, theirs) = sys::message_pair().unwrap();
    std::thread::spawn(move || {
        let mut buf = vec![0; wire::FRAME_BYTES_MAX];
        while let Ok((n @ 1.., fds)) = sys::receive(theirs.as_fd(), &mut buf) {
            let (id, request) = FileRequest::decode(&buf[..n]).unwrap();
            match reply(id, request, fds) {
                Reply::Say(message, fds) => {
                    let handles: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
                    let _gone = sys::send(theirs.as_fd(), &message, &handles);
                }
                Reply::Nothing => {}
                Reply::End => return,
            }
        }
    });
    SandboxFiles::new(ours).unwrap()
}

fn done(id: u64, payload: MessageWriter) -> Vec<u8> {
    wire::encode_answer(id, &Ok(payload.finish().split_off(1)))
}

fn file_entry() -> MessageWriter {
    MessageWriter::new(0).u8(0).u64(1).u32(0o644).u32(0).u32(0).u64(0).bytes(b"")
}

/// Checks that the caller gets the error of a lost helper.
async fn lost<T: std::fmt::Debug>(call: impl Future<Output = Result<T, FilesError>>) {
    let result = time::timeout(PATIENCE, call).await.unwrap();
    assert!(matches!(result, Err(FilesError::Lost)), "{result:?}");
}

#[tokio::test]
async fn a_helper_that_talks_nonsense_is_lost() {
    type Say = fn(u64) -> Vec<u8>;
    let says: [Say; 6] = [
        |_| b"nonsense".to_vec(),
        |id| done(id + 1, file_entry()),
        |id| [done(id, file_entry()), vec![0]].concat(),
        |id| done(id, MessageWriter::new(0).u8(9)),
        |id| done(id, MessageWriter::new(0)),
        |_| vec![0; wire::FRAME_BYTES_MAX + 1],
    ];
    for say in says {
        let files = helper(move |id, _, _| Reply::Say(say(id), Vec::new()));
        lost(files.stat("x", LinkMode::Links)).await;
    }
    let files = helper(|_, _, _| Reply::End);
    lost(files.stat("x", LinkMode::Links)).await;
    lost(files.stat("x", LinkMode::Links)).await;
    assert!(!files.is_alive());
}

#[tokio::test]
async fn only_regular_files_are_taken_from_a_helper() {
    let gives: [fn() -> Vec<OwnedFd>; 4] = [
        Vec::new,
        || vec![sys::pipe().unwrap().0],
        || vec![sys::open(c"/dev/null", libc::O_RDWR).unwrap()],
        || vec![sys::open(c"/", libc::O_PATH).unwrap()],
    ];
    for give in gives {
        let files = helper(move |id, _, _| Reply::Say(done(id, file_entry()), give()));
        lost(files.read("x")).await;
        lost(files.write("x", MissingParents::Expect, WriteMode::Replace)).await;
        lost(files.write("x", MissingParents::Expect, WriteMode::Append)).await;
    }
}

/// Writes to the pipe of a request while it has a reader.
fn flood(fds: Vec<OwnedFd>, bytes: Vec<u8>) {
    std::thread::spawn(move || while sys::write_all(fds[0].as_fd(), &bytes).is_ok() {});
}

#[tokio::test]
async fn a_helper_cannot_make_a_listing_or_a_record_endless() {
    let files = helper(|_, request, fds| {
        if matches!(request, FileRequest::List { .. }) {
            let entry = MessageWriter::new(0).bytes(b"name").finish().split_off(1);
            let entry = [entry, file_entry().finish().split_off(1)].concat();
            flood(fds, wire::record(&entry));
        }
        Reply::Nothing
    });
    let listing = time::timeout(PATIENCE, files.list("x", 1, 100)).await.unwrap().unwrap();
    assert_eq!((listing.entries.len(), listing.cut), (100, true));
    let files = helper(|_, request, fds| {
        if request != FileRequest::Cancel {
            // The length of a record that is too large for any buffer.
            flood(fds, vec![0xff; 4096]);
        }
        Reply::Nothing
    });
    lost(files.list("x", 1, 100)).await;
    lost(files.watch("x", ListDepth::Single)).await;
}

#[tokio::test]
async fn who_gives_up_tells_the_helper() {
    let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
    let files = helper(move |id, request, _| {
        let is_cancel = request == FileRequest::Cancel;
        tx.send((id, request)).unwrap();
        // The helper also answers cancelled requests, which does no harm.
        if is_cancel { Reply::Say(done(id, file_entry()), Vec::new()) } else { Reply::Nothing }
    });
    // More often than the maximum of pending requests: each frees its place.
    for _ in 0..3 * wire::QUICK_MAX {
        let mut call = Box::pin(files.stat("y", LinkMode::Links));
        let waiting = time::timeout(PATIENCE, async {
            tokio::select! {
                result = &mut call => panic!("it was answered: {result:?}"),
                received = rx.recv() => received.unwrap(),
            }
        });
        let (id, _) = waiting.await.unwrap();
        drop(call);
        let cancelled = time::timeout(PATIENCE, rx.recv()).await.unwrap().unwrap();
        assert_eq!(cancelled, (id, FileRequest::Cancel));
    }
    assert!(files.is_alive());
}

#[tokio::test]
async fn an_import_ends_with_the_helper_or_with_its_source() {
    let files = helper(|id, _, _| {
        let refusal = wire::FileRefusal { errno: libc::ENOSPC, detail: Vec::new() };
        Reply::Say(wire::encode_answer(id, &Err(refusal)), Vec::new())
    });
    let endless = tokio::io::repeat(0);
    let done = time::timeout(PATIENCE, files.import_tar("x", endless)).await.unwrap();
    assert!(matches!(done, Err(FilesError::NoSpace)), "{done:?}");

    let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
    let files = helper(move |id, request, fds| match request {
        FileRequest::Import { .. } => {
            // In this thread: the answer comes when the archive has ended.
            let (mut buf, mut all) = ([0; 4096], Vec::new());
            while let Ok(n @ 1..) = sys::read(fds[0].as_fd(), &mut buf) {
                all.extend_from_slice(&buf[..n]);
            }
            tx.send(all).unwrap();
            Reply::Say(self::done(id, MessageWriter::new(0).u64(1).u64(2)), Vec::new())
        }
        _ => Reply::Nothing,
    });
    let usage = files.import_tar("x", &b"all of it"[..]).await.unwrap();
    assert_eq!((usage.entries, usage.bytes), (1, 2));
    assert_eq!(rx.recv().await.unwrap(), b"all of it");
    // When it is dropped in the middle, the helper sees an end of file.
    let (mut source, reader) = tokio::io::duplex(100);
    tokio::select! {
        done = files.import_tar("x", reader) => panic!("it has ended: {done:?}"),
        written = source.write_all(&[7; 150]) => written.unwrap(),
    }
    let seen = time::timeout(PATIENCE, rx.recv()).await.unwrap().unwrap();
    assert!(seen.len() <= 150 && seen.iter().all(|byte| *byte == 7), "{seen:?}");
}

#[test]
fn errors_of_the_kernel_become_those_of_files() {
    let cases = [
        (libc::ENOENT, "NotFound"),
        (libc::EROFS, "PermissionDenied"),
        (libc::EDQUOT, "NoSpace"),
        (libc::ENOTEMPTY, "NotEmpty"),
        (libc::EMFILE, "TooMany(\"things\")"),
        (libc::EINVAL, "Invalid(\"things\")"),
    ];
    for (errno, expected) in cases {
        let error = FilesError::from_errno(errno, "things".to_owned());
        assert_eq!(format!("{error:?}"), expected);
    }
    assert!(matches!(FilesError::from_errno(libc::EIO, String::new()), FilesError::Io(_)));
}

fn requests() -> impl Strategy<Value = FileRequest> {
    let string = || {
        proptest::collection::vec(1u8..=255, 0..60).prop_map(|bytes| CString::new(bytes).unwrap())
    };
    let value = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..60));
    let all = (0..18u8, string(), string(), any::<bool>(), any::<bool>(), any::<u32>(), value);
    all.prop_map(|(kind, path, other, flag, create, number, value)| match kind {
        0 => FileRequest::Stat { path, follow: flag },
        1 => FileRequest::List { path, depth: number, limit: u64::from(number) << 20 },
        2 => FileRequest::Read { path },
        3 => FileRequest::Write { path, parents: flag, create },
        4 => FileRequest::Finish { path, create },
        5 => FileRequest::Append { path, parents: flag },
        6 => FileRequest::MakeDir { path, parents: flag },
        7 => FileRequest::Rename { from: path, to: other },
        8 => FileRequest::Remove { path, recursive: flag },
        9 => FileRequest::Chmod { path, mode: number },
        10 => FileRequest::Watch { path, recursive: flag },
        11 => FileRequest::Export { path },
        12 => FileRequest::Import { path },
        13 => FileRequest::ListAttributes { path },
        14 => FileRequest::GetAttribute { path, name: other },
        15 => FileRequest::SetAttribute { path, name: other, value },
        16 => FileRequest::Usage { path },
        _ => FileRequest::Cancel,
    })
}

proptest! {
    #[test]
    fn a_request_survives_the_wire(id in any::<u64>(), request in requests()) {
        let bytes = request.encode(id);
        prop_assert_eq!(FileRequest::decode(&bytes).ok(), Some((id, request)));
        prop_assert!(FileRequest::decode(&bytes[..bytes.len() - 1]).is_err());
        prop_assert!(FileRequest::decode(&[bytes, vec![0]].concat()).is_err());
    }

    #[test]
    fn an_answer_survives_the_wire(
        id in any::<u64>(),
        errno in any::<i32>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..900),
        is_done in any::<bool>(),
    ) {
        let result = match is_done {
            true => Ok(bytes),
            false => Err(wire::FileRefusal { errno, detail: bytes }),
        };
        let message = wire::encode_answer(id, &result);
        prop_assert_eq!(wire::decode_answer(&message).ok(), Some((id, result)));
        prop_assert!(wire::decode_answer(&message[..message.len() - 1]).is_err());
    }

    #[test]
    fn no_bytes_break_the_decoders(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        // A request decoded from noise encodes to the same bytes.
        if let Ok((id, request)) = FileRequest::decode(&bytes) {
            prop_assert_eq!(request.encode(id), bytes.clone());
        }
        if let Ok((id, result)) = wire::decode_answer(&bytes) {
            prop_assert_eq!(wire::encode_answer(id, &result), bytes.clone());
        }
        if let Ok(entry) = SandboxFileEntry::decode(&mut MessageReader(&bytes), &bytes) {
            prop_assert_eq!(entry.symlink_target.is_some(), entry.kind == EntryKind::Symlink);
            prop_assert!(entry.mode <= 0o7777);
        }
        if let Ok(event) = WatchEvent::decode(&bytes) {
            prop_assert!((1..=6).contains(&bytes[0]), "{event:?}");
        }
        let mut rest = bytes.as_slice();
        while let Ok(Some(record)) = wire::take_record(&mut rest) {
            prop_assert!(record.len() <= wire::RECORD_BYTES_MAX);
        }
    }

    #[test]
    fn records_are_taken_apart_wherever_they_are_cut(
        records in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..9),
        at in any::<prop::sample::Index>(),
    ) {
        let bytes: Vec<u8> = records.iter().flat_map(|record| wire::record(record)).collect();
        let cut = at.index(bytes.len() + 1);
        let (mut taken, mut first) = (Vec::new(), &bytes[..cut]);
        while let Some(record) = wire::take_record(&mut first).unwrap() {
            taken.push(record.to_vec());
        }
        let mut rest = &bytes[cut - first.len()..];
        while let Some(record) = wire::take_record(&mut rest).unwrap() {
            taken.push(record.to_vec());
        }
        prop_assert_eq!((taken, rest.len()), (records, 0));
    }
}

#[test]
fn everything_fits_into_a_frame() {
    let path = CString::new(vec![b'x'; wire::PATH_BYTES_MAX]).unwrap();
    let name = CString::new(vec![b'x'; 255]).unwrap();
    let value = Some(vec![0; ATTRIBUTE_BYTES_MAX]);
    let largest = FileRequest::SetAttribute { path: path.clone(), name, value };
    assert!(largest.encode(0).len() <= wire::FRAME_BYTES_MAX);
    let twice = FileRequest::Rename { from: path.clone(), to: path };
    assert!(twice.encode(0).len() <= wire::FRAME_BYTES_MAX);
    let answer = wire::encode_answer(0, &Ok(vec![0; ATTRIBUTE_BYTES_MAX]));
    assert!(answer.len() <= wire::FRAME_BYTES_MAX);
}
