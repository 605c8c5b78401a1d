//! Servers other than Debian's MariaDB: a newer one, and one with MySQL 8's authentication.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use testkit::{Certificate, MyClient, MyValue, Scratch, Server};

use crate::clients::go_program;
use crate::mysql_support::{address, behind, front, login, prepared};
use crate::shared::COVE;
use crate::support::{PASSWORD, USER, config};

/// Checks a server behind Cove.
fn check(connect: &dyn Fn() -> MyClient) {
    let (mut a, mut b) = (connect(), connect());
    for turn in 0..5 {
        a.run("SET lock_wait_timeout = 7");
        b.run("SET NAMES utf8mb4 COLLATE utf8mb4_bin");
        assert_eq!(a.value("SELECT @@lock_wait_timeout"), "7");
        assert_eq!(b.value("SELECT @@collation_connection"), "utf8mb4_bin");
        assert_ne!(b.value("SELECT @@lock_wait_timeout"), "7");
        a.run(&format!("SET @a = {turn}"));
        assert_eq!(b.run("SELECT @a").rows(), [[None]]);
        assert_eq!(a.value("SELECT @a"), turn.to_string());
        a.run("BEGIN");
        a.run("INSERT INTO t VALUES (5, 'five')");
        assert_eq!(a.fail("INSERT INTO t VALUES (5, 'five')").code, 1062);
        a.run("ROLLBACK");
        assert_eq!(b.value("SELECT COUNT(*) FROM t WHERE id = 5"), "0");
        assert_eq!(b.fail("SELECT nothing FROM t").code, 1054);
        for client in [&mut a, &mut b] {
            let statement = client.prepare("SELECT v FROM t WHERE id = ?").unwrap();
            let answer = client.execute(&statement, &[MyValue::Int(1)]).unwrap();
            assert_eq!(answer.value(), "one");
            client.close_statement(statement.id).unwrap();
        }
        a = connect();
        assert_eq!(a.run("SELECT @a").rows(), [[None]]);
    }
}

/// The archive contains programs for this architecture only.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_newer_mariadb_is_no_other() {
    let maria = prepared(testkit::MariaDb::start_11());
    assert!(maria.sql("SELECT @@version").starts_with("11.4."));
    let fronted = front(Arc::new(maria), "", &[behind("newer", "transaction", 2)]);
    fronted.maria.sql(
        "CREATE TABLE newer.t (id INT PRIMARY KEY, v TEXT) ENGINE=InnoDB; \
         INSERT INTO newer.t VALUES (1, 'one')",
    );
    check(&|| fronted.login("newer"));
}

/// Server that ends with its standard input, and thus with the test.
struct Sha2 {
    child: Child,
    address: String,
}

impl Sha2 {
    fn start(certificate: &Certificate) -> Sha2 {
        let mut server = Command::new(go_program("mysql", "sha2"));
        server.arg(&certificate.certificate).arg(&certificate.key);
        server.args([
            &*format!(
                "CREATE USER {USER}@'%' IDENTIFIED WITH caching_sha2_password BY '{PASSWORD}'"
            ),
            &*format!("GRANT ALL ON *.* TO {USER}@'%'"),
            "CREATE TABLE t (id INT PRIMARY KEY, v TEXT)",
            "INSERT INTO t VALUES (1, 'one')",
        ]);
        server.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = server.spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Sha2 { child, address: address.trim().to_owned() }
    }
}

impl Drop for Sha2 {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

#[test]
fn a_server_that_asks_for_caching_sha2_is_logged_in_to() {
    let scratch = Scratch::new();
    let certificate = Certificate::new(&scratch);
    let sha2 = Sha2::start(&certificate);
    let port = sha2.address.rsplit(':').next().unwrap();
    let bouncer = format!(
        "servers.sha2.address = \"localhost:{port}\"\nservers.sha2.tls = \"verify-full\"\n\
         servers.sha2.ca = {:?}",
        certificate.certificate
    );
    let tenants = [behind("sha2", "transaction", 2)];
    let server = Server::start_with(COVE, &[], Some(&config("sha2", &bouncer, &tenants)));
    let at = address(&server).into();
    let mut client = MyClient::login(&at, &login("sha2")).unwrap();
    assert!(client.value("SELECT VERSION()").starts_with("8."));
    assert_eq!(client.value("SELECT v FROM t"), "one");
    for _ in 0..5 {
        let mut other = MyClient::login(&at, &login("sha2")).unwrap();
        other.run("SET @a = 1");
        let statement = other.prepare("SELECT v FROM t WHERE id = ?").unwrap();
        assert_eq!(other.execute(&statement, &[MyValue::Int(1)]).unwrap().value(), "one");
        assert_eq!(other.fail("SELECT * FROM nowhere").code, 1146);
        assert_eq!(client.run("SELECT @a").rows(), [[None]]);
    }
}
