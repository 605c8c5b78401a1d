//! Against a real directory.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::testing::TempDir;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_new_directory_is_its_owners_alone() {
    let temp = TempDir::new();
    let path = temp.path().join("a/b");
    let data_dir = DataDir::open(&path).unwrap();
    assert_eq!(mode(data_dir.path()), 0o700);
    assert_eq!(mode(&path.join("lock")), 0o600);
}

#[test]
fn a_second_server_is_told_who_has_the_directory() {
    let temp = TempDir::new();
    let first = DataDir::open(temp.path()).unwrap();
    let message = DataDir::open(temp.path()).unwrap_err().to_string();
    assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
    drop(first);
    drop(DataDir::open(temp.path()).unwrap());
}

/// A killed server may have been starting a process, which has the lock for a moment.
#[test]
fn a_lock_whose_server_is_gone_is_waited_for() {
    let temp = TempDir::new();
    drop(DataDir::open(temp.path()).unwrap());
    // No process can have this id.
    fs::write(temp.path().join(LOCK_FILE), "4194305\n").unwrap();
    let held = open_private(&temp.path().join(LOCK_FILE), false).unwrap();
    held.try_lock().unwrap();
    let path = temp.path().to_owned();
    let opening = thread::spawn(move || DataDir::open(&path).map(drop));
    drop(held);
    opening.join().unwrap().unwrap();
}

#[test]
fn a_file_in_its_place_is_refused() {
    let temp = TempDir::new();
    let path = temp.path().join("file");
    fs::write(&path, "x").unwrap();
    assert!(matches!(DataDir::open(&path), Err(DataDirError::NotADirectory { .. })));
    assert!(matches!(DataDir::open(&path.join("below")), Err(DataDirError::Create { .. })));
}

#[test]
fn addresses_are_there_while_the_server_runs() {
    let temp = TempDir::new();
    let file = temp.path().join(ADDRESSES_FILE);
    fs::write(&file, "stale").unwrap();
    let data_dir = DataDir::open(temp.path()).unwrap();
    assert!(!file.exists());
    data_dir.write_addresses("127.0.0.1:4100".parse().unwrap(), &[]).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "{\"http\":\"127.0.0.1:4100\"}\n");
    data_dir.remove_addresses().unwrap();
    data_dir.remove_addresses().unwrap();
    assert!(!file.exists());
}

#[test]
fn an_atomic_write_leaves_one_file() {
    let temp = TempDir::new();
    let file = temp.path().join("x");
    write_atomic(&file, b"one").unwrap();
    write_atomic(&file, b"two").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"two");
    assert_eq!(mode(&file), 0o600);
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
}
