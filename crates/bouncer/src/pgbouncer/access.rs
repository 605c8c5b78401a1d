//! Access to PgBouncer's console: permitted users, and the exchange between relay threads and the
//! console.

use std::fmt;
use std::sync::Arc;

use api::UserAuth;
use pooler_core::pg::login::{ClientTransport, PgLoginRefusal, PgStartupRequest};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::console::{AdminConsole, ConsoleRights};
use crate::config::{ConsoleTable, ConsoleUser};
use crate::relay::console_backend::{ConsoleBackend, ConsoleReplySlot};
use crate::relay::dialect::{DATABASE, ErrorDialect};
use crate::secrets::{ClientSecret, is_reference};
use crate::service::{Bouncer, Resolver};
use crate::tenants::{ClientAuth, ServerSecret, TenantUser, UserTimes};

/// The console as relay threads reach it.
pub struct PgBouncerConsole {
    console: AdminConsole,
    bouncer: Bouncer,
    resolve: Arc<Resolver>,
    runtime: Handle,
}

impl fmt::Debug for PgBouncerConsole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgBouncerConsole").field("console", &self.console).finish_non_exhaustive()
    }
}

impl PgBouncerConsole {
    /// Creates a console, whose commands run on `runtime`. The bouncer's configuration determines
    /// at each login who may use it; `resolve` resolves references to secrets in it.
    #[must_use]
    pub fn new(
        console: AdminConsole,
        bouncer: Bouncer,
        resolve: Arc<Resolver>,
        runtime: Handle,
    ) -> PgBouncerConsole {
        PgBouncerConsole { console, bouncer, resolve, runtime }
    }
}

impl ConsoleBackend for PgBouncerConsole {
    fn guest(
        &self,
        requested: &PgStartupRequest,
    ) -> Result<(TenantUser, ConsoleRights), PgLoginRefusal> {
        let us = rustix::process::geteuid().as_raw();
        guest(&self.bouncer.config().console, requested, us, &*self.resolve)
    }

    fn watchers_max(&self, user: &str) -> (Option<u32>, Option<u32>) {
        let rules = &self.bouncer.config().rules;
        (rules.watchers_max, rules.of(user).clients_max.or(rules.user_watchers_max))
    }

    fn words(&self) -> ErrorDialect {
        self.console.words()
    }

    fn ask(
        &self,
        text: String,
        rights: ConsoleRights,
        reply: ConsoleReplySlot,
        left: oneshot::Receiver<()>,
    ) {
        let console = self.console.clone();
        self.runtime.spawn(async move {
            tokio::select! {
                answer = console.answer(&text, rights) => reply.give(answer),
                // The client has left: `PAUSE` and other commands that wait are abandoned.
                _ = left => {}
            }
        });
    }
}

/// Returns the identity and rights of a user; `us` is the operating system user of this process.
fn guest(
    table: &ConsoleTable,
    requested: &PgStartupRequest,
    us: u32,
    resolve: &Resolver,
) -> Result<(TenantUser, ConsoleRights), PgLoginRefusal> {
    let name = requested.user.as_str();
    let is_us = requested.reached == ClientTransport::Unix { uid: Some(us) };
    if name == DATABASE && is_us {
        // A client with the same user id can read the process's files and end it anyway.
        return Ok((user(name, ClientAuth::Trust), ConsoleRights::Admin));
    }
    let find = |users: &'_ [ConsoleUser]| users.iter().find(|it| it.name == name).cloned();
    let (found, rights) = match find(&table.admin_users) {
        Some(found) => (found, ConsoleRights::Admin),
        None => match find(&table.stats_users) {
            Some(found) => (found, ConsoleRights::Stats),
            None => return Err(PgLoginRefusal::new("08P01", "not allowed")),
        },
    };
    let auth = match table.auth {
        UserAuth::Trust => ClientAuth::Trust,
        UserAuth::Cert => ClientAuth::Cert,
        UserAuth::Peer => ClientAuth::Peer,
        UserAuth::Password if found.password.is_empty() => ClientAuth::Unknown,
        UserAuth::Password if is_reference(&found.password) => {
            let text = resolve("bouncer.console", &found.password).map_err(|cause| {
                let refusal =
                    PgLoginRefusal::new("28000", "the password of this user is not available");
                PgLoginRefusal { cause: Some(cause), ..refusal }
            })?;
            ClientAuth::Secret(ClientSecret::new(text))
        }
        UserAuth::Password => ClientAuth::Secret(ClientSecret::new(found.password)),
    };
    Ok((user(name, auth), rights))
}

fn user(name: &str, auth: ClientAuth) -> TenantUser {
    TenantUser {
        name: name.into(),
        auth,
        server_user: name.into(),
        server_secret: ServerSecret::None,
        mode: None,
        server_connections_max: None,
        clients_max: None,
        times: UserTimes::default(),
    }
}

#[cfg(test)]
mod tests {
    use wire::pg::startup::ProtocolVersion;

    use super::*;
    use pooler_core::pg::login::ReplicationMode;

    fn requested(user: &str, reached: ClientTransport) -> PgStartupRequest {
        PgStartupRequest {
            version: ProtocolVersion { major: 3, minor: 0 },
            user: user.to_owned(),
            database: Some(DATABASE.to_owned()),
            options_tenant_id: None,
            tenant_id: None,
            replication: ReplicationMode::None,
            parameters: Vec::new(),
            tls: None,
            reached,
        }
    }

    #[test]
    fn only_those_who_are_listed_and_who_run_it_come_in() {
        let of = |name: &str, password: &str| ConsoleUser {
            name: name.to_owned(),
            password: password.to_owned(),
        };
        let table = ConsoleTable {
            auth: UserAuth::Password,
            admin_users: vec![of("ann", "apple"), of("eve", ""), of("ref", "env:X")],
            stats_users: vec![of("bob", "pear"), of("ann", "other")],
        };
        let check = |user: &str, reached, expected: Option<(ConsoleRights, ClientAuth)>| {
            let found = guest(&table, &requested(user, reached), 7, &|_, text| match text {
                "env:X" => Ok("cherry".to_owned()),
                _ => Err("no".to_owned()),
            });
            let found = found.ok().map(|(user, rights)| (rights, user.auth));
            assert_eq!(found, expected, "{user} {reached:?}");
        };
        let secret = |text: &str| ClientAuth::Secret(ClientSecret::new(text));
        check("ann", ClientTransport::Tcp, Some((ConsoleRights::Admin, secret("apple"))));
        check("bob", ClientTransport::Tcp, Some((ConsoleRights::Stats, secret("pear"))));
        check("ref", ClientTransport::Tcp, Some((ConsoleRights::Admin, secret("cherry"))));
        // A user without a password cannot authenticate.
        check("eve", ClientTransport::Tcp, Some((ConsoleRights::Admin, ClientAuth::Unknown)));
        check("mallory", ClientTransport::Tcp, None);
        let ours = ClientTransport::Unix { uid: Some(7) };
        check(DATABASE, ours, Some((ConsoleRights::Admin, ClientAuth::Trust)));
        check(DATABASE, ClientTransport::Unix { uid: Some(8) }, None);
        check(DATABASE, ClientTransport::Unix { uid: None }, None);
        check(DATABASE, ClientTransport::Tcp, None);
        check("mallory", ours, None);
    }
}
