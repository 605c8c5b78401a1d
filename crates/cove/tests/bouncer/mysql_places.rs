//! Runs tests in three places: on MariaDB itself, and through Cove in two modes.

use std::sync::Arc;

use testkit::{MariaDb, MyClient, MyFailure, MyLogin, PgAddress};

use crate::mysql_support::{Fronted, behind, front, login, shared_maria};

/// Server connections in transaction mode: for clients that hold one, and for others.
pub(crate) const CONNECTIONS: u32 = 3;

/// Place in which a test runs.
pub(crate) struct Place<'a> {
    /// Name for failure messages.
    pub(crate) name: &'static str,
    pub(crate) address: PgAddress,
    pub(crate) database: String,
    /// Cove of this place, if there is one.
    pub(crate) fronted: Option<&'a Fronted>,
    /// Clients that make connections change hands, in transaction mode.
    others: Vec<MyClient>,
    /// Current action, for failure messages.
    pub(crate) doing: String,
}

impl Place<'_> {
    /// Logs a client in.
    pub(crate) fn login(&self) -> MyClient {
        let client = self.login_as(&login(&self.database));
        client.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// Logs a client in with other parameters.
    pub(crate) fn login_as(&self, login: &MyLogin) -> Result<MyClient, MyFailure> {
        MyClient::login(&self.address, login)
    }

    /// Returns whether connections are shared.
    pub(crate) fn is_shared(&self) -> bool {
        self.name == "transaction"
    }

    /// Lets other clients use the connections that are not held.
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

/// Runs a test in every place, each with its own database.
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

/// Logs a client in on the server itself.
pub(crate) fn directly(maria: &MariaDb, database: &str) -> MyClient {
    let client = MyClient::login(&maria.address(), &login(database));
    client.unwrap_or_else(|error| panic!("{database}: {error}"))
}
