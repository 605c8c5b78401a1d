//! Termination of statements that a session's former owners still run at a database.
//!
//! A server that has lost a session sends nothing more for it, but a statement that it has sent may
//! still run, or hold locks in an open transaction. The next owner ends it before its own first
//! statement. In PostgreSQL it finds the connection by its `application_name`, which has the
//! [`SessionEpoch`], in MySQL and `MariaDB` by a user lock that the server connection holds while
//! it works for the session (`mysql/mark.rs`). Both let a user end statements of the same user.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-ADMIN-SIGNAL>
//! - <https://dev.mysql.com/doc/refman/8.4/en/kill.html>

use std::sync::Arc;
use std::time::Duration;

use pooler_core::epoch::SessionEpoch;
use tokio::time::timeout;

use super::SandboxListener;
use crate::service::Bouncer;
use crate::tenants::{TenantSnapshot, TenantUser};

/// Time that ending former statements may take, with connecting: the session's first connection
/// waits for it.
pub const END_FORMER_TIME_MAX: Duration = Duration::from_secs(5);

/// Pause between checks whether they have ended: a signalled backend exits by itself.
pub(crate) const END_FORMER_PAUSE: Duration = Duration::from_millis(20);

/// Ends the statements that the same role runs under names that begin with `$1` followed by a
/// number below `$2`, and counts them. Idle connections are left alone: they run nothing, and may
/// belong to another client by the time they would be ended.
pub(crate) const END_FORMER: &str = "SELECT count(pg_terminate_backend(pid)) FROM \
    (SELECT pid, substr(application_name, length($1::text) + 1) AS epoch FROM pg_stat_activity \
    WHERE usename = current_user AND pid <> pg_backend_pid() AND state <> 'idle' \
    AND starts_with(application_name, $1::text)) AS named \
    WHERE CASE WHEN epoch ~ '^[0-9]{1,18}$' THEN epoch::bigint < $2::bigint ELSE false END";

/// Statements of a former owner to end.
#[derive(Clone, Debug)]
pub struct FormerStatements {
    /// Tenant.
    pub tenant: Arc<TenantSnapshot>,
    /// User with whose role they run.
    pub user: Arc<TenantUser>,
    /// Session, with the epoch below which statements are ended.
    pub session: SessionEpoch,
}

impl SandboxListener {
    /// Returns the statements that former owners of the guest's session may still run at its
    /// database; `None` if there was no former owner.
    #[must_use]
    pub fn former(&self, bouncer: &Bouncer) -> Option<FormerStatements> {
        let spec = self.guest.spec();
        let session = spec.session.clone().filter(|session| session.epoch > 1)?;
        let routing = bouncer.routing();
        let tenant = Arc::clone(routing.for_guest(&spec.tenant, spec.engine).ok()?);
        let user = tenant.role_of_guest(spec.role.as_deref()).ok()?;
        Some(FormerStatements { tenant, user, session })
    }
}

impl FormerStatements {
    /// Ends them. Errors and timeouts are logged: the session waits for no more than
    /// [`END_FORMER_TIME_MAX`].
    pub async fn end(self, bouncer: &Bouncer) {
        let (session, tenant) = (self.session.session.clone(), Arc::clone(&self.tenant.name));
        match timeout(END_FORMER_TIME_MAX, bouncer.probe().end_former(self)).await {
            Ok(Ok(0)) => {}
            Ok(Ok(count)) => {
                tracing::info!(%session, %tenant, count, "ended statements of a former owner");
            }
            Ok(Err(why)) => {
                tracing::warn!(%session, %tenant, why, "statements of a former owner may go on");
            }
            Err(_) => {
                let why = "the database did not answer in time";
                tracing::warn!(%session, %tenant, why, "statements of a former owner may go on");
            }
        }
    }
}
