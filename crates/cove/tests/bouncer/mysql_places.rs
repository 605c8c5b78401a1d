//! Where the same is tried: at MariaDB itself, and through Cove in two modes.

use std::sync::Arc;

use testkit::{MariaDb, MyClient, MyFailure, MyLogin, PgAddress};

use crate::mysql_support::{Fronted, behind, front, login, shared_maria};

/// Connections to the server in transaction mode: for those who hold one, and others.
pub(crate) const CONNECTIONS: u32 = 3;

/// Where something is tried.
pub(crate) struct Place<'a> {
    /// For whoever reads of a failure.
    pub(crate) name: &'static str,
    pub(crate) address: PgAddress,
    pub(crate) database: String,
    /// What Cove is behind this place, if it is one of Cove's.
    pub(crate) fronted: Option<&'a Fronted>,
    /// Clients that let connections change hands, where they do.
    others: Vec<MyClient>,
    /// What is being done, for whoever reads of a failure.
    pub(crate) doing: String,
}

impl Place<'_> {
    /// A client.
    pub(crate) fn login(&self) -> MyClient {
        let client = self.login_as(&login(&self.database));
        client.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// The same as somebody else or in another way.
    pub(crate) fn login_as(&self, login: &MyLogin) -> Result<MyClient, MyFailure> {
        MyClient::login(&self.address, login)
    }

    /// Whether connections change hands.
    pub(crate) fn is_shared(&self) -> bool {
        self.name == "transaction"
    }

    /// Lets others use the connections that nobody holds.
    pub(crate) fn stir(&mut self) {
        if self.is_shared() {
            if self.others.is_empty() {
                self.others.push(self.login());
            }
            for other in &mut self.others {
                for sql in ["BEGIN", "SELECT 1", "COMMIT"] {
                    let answer = other.query(sql).unwrap_or_else(|error| {
                        panic!("somebody else {}: {sql}: {error}", self.doing)
                    });
                    assert_eq!(answer.error(), None, "somebody else {}: {sql}", self.doing);
                }
            }
        }
    }
}

/// Runs something in every place. Each has a database of its own.
pub(crate) fn everywhere(name: &str, more: &str, run: impl Fn(&mut Place<'_>)) {
    let maria = shared_maria();
    let direct = format!("{name}_direct");
    maria.sql(&format!("CREATE DATABASE {direct}"));
    let [session, transaction] = ["session", "transaction"].map(|mode| format!("{name}_{mode}"));
    let tenants = [
        behind(&session, "session", 12).with(more),
        behind(&transaction, "transaction", CONNECTIONS).with("limits.wait_s = 20").with(more),
    ];
    let fronted = front(Arc::clone(&maria), "", &tenants);
    let place = |name, address, database, fronted| {
        let others = Vec::new();
        let doing = String::new();
        run(&mut Place { name, address, database, fronted, others, doing });
    };
    place("directly", maria.address(), direct, None);
    place("session", fronted.address(), session, Some(&fronted));
    place("transaction", fronted.address(), transaction, Some(&fronted));
}

/// A client of the server itself.
pub(crate) fn directly(maria: &MariaDb, database: &str) -> MyClient {
    let client = MyClient::login(&maria.address(), &login(database));
    client.unwrap_or_else(|error| panic!("{database}: {error}"))
}
