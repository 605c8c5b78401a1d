//! Bytes that no MySQL client would send: each results in an error or a closed connection, without
//! an effect on other clients.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use testkit::my::{capability, command, execute, message, packets};
use testkit::{MyClient, MyValue, process, until};

use crate::model::Random;
use crate::mysql_support::{Fronted, behind, front, login, shared_maria};

/// Login timeout in seconds.
const LOGIN: &str = "login_s = 10";
/// Time limit for closing: an incomplete message may become complete until the login timeout.
const PATIENCE: Duration = Duration::from_secs(60);
/// Allowed growth of the server's memory, for buffers that it keeps.
const SLACK_BYTES: u64 = 24 << 20;
/// Runs of each randomized test.
const RUNS: u64 = 150;

struct Hostile<'a> {
    fronted: Fronted,
    tenant: &'a str,
}

impl Hostile<'_> {
    fn login(&self, what: &str) -> MyClient {
        let client = self.fronted.try_login(self.tenant);
        let client = client.unwrap_or_else(|error| panic!("login for {what}: {error}"));
        client.patience(PATIENCE);
        client
    }

    /// Answers the greeting with bytes and reads to the end of the connection, which must be
    /// closed.
    fn until_end(&self, what: &str, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.fronted.tcp()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        // The server may have rejected it before it was complete.
        drop(stream.write_all(bytes));
        drop(stream.shutdown(Shutdown::Write));
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("{what} is not ended"),
            _ => answer,
        }
    }

    /// Sends bytes after a regular login.
    fn after_login(&self, what: &str, bytes: &[u8]) {
        let mut client = self.login(what);
        drop(client.send(bytes));
        drop(client.send(&message(command::QUERY, b"SELECT 'still there'")));
        client.finish();
        let (is_over, error) = client.end();
        assert!(is_over, "{what} is not ended; {error:?}");
    }

    /// Checks that a reused server connection works.
    fn control(&self, what: &str) {
        let answer = self.login(what).query("SELECT 'control', @@autocommit, @a");
        let answer = answer.unwrap_or_else(|error| panic!("after {what}: {error}"));
        assert_eq!(answer.error(), None, "after {what}");
        let row = [Some("control".to_owned()), Some("1".to_owned()), None];
        assert_eq!(answer.rows(), [row], "after {what}");
    }
}

/// Starts a server with one tenant, and checks its state after `run` has sent everything.
fn check(tenant: &str, run: impl FnOnce(&Hostile<'_>)) {
    let tenants = [behind(tenant, "transaction", 1)];
    let hostile = Hostile { fronted: front(shared_maria(), LOGIN, &tenants), tenant };
    let pid = hostile.fronted.server.pid();
    for _ in 0..20 {
        hostile.control("nothing");
    }
    let (bytes, descriptors) = (process::resident_bytes(pid), process::descriptors(pid));
    run(&hostile);
    hostile.control("everything");
    until("descriptors to be closed", PATIENCE, || {
        let open = process::descriptors(pid);
        if open <= descriptors + 2 { Ok(()) } else { Err(format!("{open}, were {descriptors}")) }
    });
    let held = process::resident_bytes(pid).saturating_sub(bytes);
    assert!(held < SLACK_BYTES, "{held} bytes are held");
}

#[test]
fn nothing_but_a_login_logs_in_to_mysql() {
    check("myhostile_login", |hostile| {
        let mut honest = MyClient::open(&hostile.fronted.address()).unwrap();
        honest.greet().unwrap();
        let good = honest.response(&login("myhostile_login"));
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = good.clone();
            change(&mut bytes);
            packets(1, &bytes)
        };
        let wants = |bit: u32| {
            with(&|bytes| {
                let mut all = u32::from_le_bytes(bytes[..4].try_into().unwrap());
                all |= bit;
                bytes[..4].copy_from_slice(&all.to_le_bytes());
            })
        };
        let table: Vec<(&str, Vec<u8>)> = vec![
            ("somebody else's proof", packets(1, &good)),
            ("nothing", Vec::new()),
            ("nothing but zeros", vec![0; 64]),
            ("nothing but ones", vec![0xFF; 64]),
            ("an empty packet", packets(1, b"")),
            ("a packet with another number", packets(7, &good)),
            ("16 MiB", packets(1, &vec![b'x'; 1 << 24])),
            ("a length of 16 MiB and an end", vec![0xFF, 0xFF, 0xFF, 1, 0x85]),
            ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
            ("PostgreSQL", testkit::pg::startup(3 << 16, &[("user", "ada")])),
            ("TLS where there is none", wants(capability::SSL)),
            ("compression", wants(capability::COMPRESS)),
            ("an old protocol", with(&|bytes| bytes[1] &= !2)),
            ("no end of the user's name", with(&|bytes| bytes.truncate(34))),
            ("half of the proof", with(&|bytes| bytes.truncate(45))),
            ("a proof longer than all", with(&|bytes| bytes[36] = 250)),
            ("a name of 60 kB", {
                let mut bytes = good[..32].to_vec();
                bytes.extend(vec![b'n'; 60_000]);
                packets(1, &bytes)
            }),
            ("two logins", [packets(1, &good), packets(2, &good)].concat()),
        ];
        for (what, bytes) in table {
            let answer = hostile.until_end(what, &bytes);
            // The greeting, and an error after it, but never an OK: no client is logged in.
            let length = usize::from(answer[0]) + 4;
            let reply = answer.get(length + 4);
            assert_ne!(reply, Some(&0), "{what}: {:?}", &answer[length..]);
            hostile.control(what);
        }
        let mut random = Random::new(7);
        for run in 0..RUNS {
            let mut bytes = packets(1, &good);
            if run % 2 == 0 {
                bytes = (0..random.below(300))
                    .map(|_| u8::try_from(random.below(256)).unwrap())
                    .collect();
            } else {
                for _ in 0..=random.below(4) {
                    let at = random.below(u64::try_from(bytes.len()).unwrap());
                    let byte = u8::try_from(random.below(256)).unwrap();
                    bytes[usize::try_from(at).unwrap()] = byte;
                }
            }
            hostile.until_end(&format!("{bytes:?}"), &bytes);
        }
    });
}

#[test]
fn nothing_that_comes_after_a_login_to_mysql_troubles_others() {
    check("myhostile", |hostile| {
        let mut table: Vec<(String, Vec<u8>)> = Vec::new();
        for code in (0..=0x21).chain([0x7F, 0xFA, 0xFE, 0xFF]) {
            table.push((format!("{code} without a body"), message(code, b"")));
            table.push((format!("{code} with a short body"), message(code, b"a\0")));
            table.push((format!("{code} with zeros"), message(code, &[0; 40])));
            table.push((format!("{code} with ones"), message(code, &[0xFF; 40])));
            let numbered = packets(9, &[&[code][..], b"SELECT 1"].concat());
            table.push((format!("{code} with another number"), numbered));
            let never = [&[200, 0, 0, 0, code][..], b"SELECT 1"].concat();
            table.push((format!("{code} that never ends"), never));
            let huge = [&[0xFF, 0xFF, 0xFF, 0, code][..], &[b' '; 5000]].concat();
            table.push((format!("{code} of 16 MiB that never ends"), huge));
        }
        let many = vec![MyValue::Text("x"); 300];
        let rest: Vec<(&str, Vec<u8>)> = vec![
            ("an empty packet", packets(0, b"")),
            ("empty packets", packets(0, b"").repeat(500)),
            ("an execution of nothing", message(command::STMT_EXECUTE, &execute(9, 0, &[], true))),
            (
                "values nobody asked for",
                message(command::STMT_EXECUTE, &execute(1, 0, &many, true)),
            ),
            ("a piece for nothing", message(command::STMT_SEND_LONG_DATA, &[9; 60])),
            ("a text that is none", message(command::QUERY, b"SELECT '\xff\xfe\0'")),
            ("a comment that never ends", message(command::QUERY, b"/*! SELECT 1")),
            ("a string that never ends", message(command::QUERY, b"SELECT 'x")),
            ("nothing but comments", message(command::QUERY, b"-- \n/* */;;;")),
            ("parentheses", message(command::QUERY, &vec![b'('; 100_000])),
            ("a megabyte of blanks", message(command::QUERY, &vec![b' '; 1 << 20])),
            ("17 MiB of blanks", message(command::QUERY, &vec![b' '; 17 << 20])),
            ("a piece of 3 MiB for nothing", {
                message(command::STMT_SEND_LONG_DATA, &vec![7; 3 << 20])
            }),
            ("an old change of the user", message(command::CHANGE_USER, b"ada\0\0\0")),
            ("a thousand statements", {
                (0..1000)
                    .flat_map(|at| {
                        message(command::STMT_PREPARE, format!("SELECT {at}").as_bytes())
                    })
                    .collect()
            }),
            ("settings without end", {
                let all: Vec<String> = (0..5000).map(|at| format!("@v{at} = {at}")).collect();
                message(command::QUERY, format!("SET {}", all.join(", ")).as_bytes())
            }),
        ];
        table.extend(rest.into_iter().map(|(what, bytes)| (what.to_owned(), bytes)));
        for (what, bytes) in &table {
            hostile.after_login(what, bytes);
        }
        hostile.control("the table");
        // Valid messages of clients, with a few bytes changed.
        let good = [
            message(command::STMT_PREPARE, b"SELECT ?, 'x'"),
            message(command::STMT_SEND_LONG_DATA, &[1, 0, 0, 0, 0, 0, b'x']),
            message(command::STMT_EXECUTE, &execute(1, 0, &[MyValue::Text("value")], true)),
            message(command::QUERY, b"BEGIN; SET lock_wait_timeout = 5; COMMIT"),
            message(command::INIT_DB, b"mysql"),
            message(command::STMT_CLOSE, &[1, 0, 0, 0]),
            message(command::RESET_CONNECTION, b""),
        ]
        .concat();
        let mut random = Random::new(11);
        for _ in 0..RUNS {
            let mut bytes = good.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(u64::try_from(bytes.len()).unwrap());
                let byte = u8::try_from(random.below(256)).unwrap();
                bytes[usize::try_from(at).unwrap()] = byte;
            }
            hostile.after_login(&format!("{bytes:?}"), &bytes);
        }
        hostile.control("chance");
    });
}
