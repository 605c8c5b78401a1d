//! Memory usage of a relay: measured for the whole process, and so apart from other tests.

use std::io::{Read, Write};
use std::net::TcpStream;

use api::PoolMode;
use parking_lot::{Mutex, MutexGuard};
use testkit::pg::{PROTOCOL_3_0, startup};
use testkit::{PgBatch, Postgres};

use crate::support::{Pooler, tenant};

#[path = "../it/support.rs"]
#[expect(dead_code, reason = "the other tests of the relay use more of it")]
mod support;

/// Serializes the tests, so that none measures the memory of another test's client.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock()
}

#[test]
fn rows_are_never_held_whole() {
    let _alone = alone();
    const ROW_BYTES: usize = 64 << 20;
    let server = Postgres::shared();
    let pooler = Pooler::start(1, vec![tenant("t", &server, PoolMode::Transaction)]);
    let address = pooler.relay.addresses()[0].1;
    // Not the client of other tests, which buffers whole rows itself.
    let mut stream = TcpStream::connect(address).expect("connect");
    let hello = startup(PROTOCOL_3_0, &[("user", "app"), ("database", "t")]);
    stream.write_all(&hello).expect("send");
    read_until_ready(&mut stream);
    let before = memory();
    let query = PgBatch::new().query("SELECT repeat('x', 64 << 20)");
    stream.write_all(&query.0).expect("send");
    let (bytes, peak) = read_until_ready(&mut stream);
    assert!(bytes > ROW_BYTES, "{bytes} bytes came");
    assert!(peak < before + (8 << 20), "{before} bytes before, {peak} at the most");
}

/// Reads up to a `ReadyForQuery`; returns the number of bytes, and the maximum memory in use.
fn read_until_ready(stream: &mut TcpStream) -> (usize, usize) {
    let (mut buffer, mut bytes, mut peak) = (vec![0; 64 << 10], 0, 0);
    loop {
        let count = stream.read(&mut buffer).expect("read");
        assert!(count > 0, "the connection was closed");
        bytes += count;
        peak = peak.max(memory());
        if buffer[..count].ends_with(b"Z\0\0\0\x05I") {
            return (bytes, peak);
        }
    }
}

/// Returns the resident memory of this process in bytes.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: usize = status.split(' ').nth(1).expect("resident").parse().expect("pages");
    pages * 4096
}

#[test]
fn a_client_that_does_not_read_stops_its_server_and_nobody_else() {
    let _alone = alone();
    let server = Postgres::shared();
    let pooler = Pooler::start(1, vec![tenant("t", &server, PoolMode::Transaction)]);
    let mut slow = pooler.client("t");
    slow.run("SELECT 1");
    let before = memory();
    let big = "SELECT repeat('x', 1000) FROM generate_series(1, 200000)";
    slow.send(&PgBatch::new().query(big).0).expect("send");
    let mut other = pooler.client("t");
    for _ in 0..50 {
        assert_eq!(other.value("SELECT 1"), "1");
    }
    let held = memory().saturating_sub(before);
    assert!(held < 16 << 20, "{held} bytes are held for a client that does not read");
    assert_eq!(slow.answer().expect("an answer").rows().len(), 200_000);
}
