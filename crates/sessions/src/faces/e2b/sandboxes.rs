//! State of live sandboxes that is kept between requests.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use api::SessionState;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time;

use super::figures::{SAMPLE_EVERY, SampleUse, UsageSamples};
use super::filesystem::PolledWatches;
use super::network::NetworkRules;
use super::process::SandboxProcesses;
use super::tokens::{SignedClaims, SignedOperation, TokenKeys, is_id};
use crate::error::SessionError;
use crate::service::{DeadlineAction, SandboxGuard, Sessions};

/// Name of this face.
pub(super) const FACE: &str = "e2b";
/// Maximum number of sandboxes whose tokens are tried on a signature that does not name its
/// sandbox.
const TRIED_MAX: usize = 4096;
/// Default lifetime of a sandbox, in seconds.
pub(super) const TIMEOUT_S: u64 = 300;

/// Data that is stored with a session of this face.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredE2bSandbox {
    /// Template that it was created from.
    pub(super) template: String,
    /// True if requests resume it when it is paused.
    #[serde(default)]
    pub(super) auto_resume: bool,
    /// True if it is paused at its deadline, rather than killed. Also applies while it has no
    /// deadline, as in a pause.
    #[serde(default)]
    pub(super) pauses: bool,
    /// True if a pause at its deadline preserves only its files.
    #[serde(default)]
    pub(super) drops_memory: bool,
    /// True if its ports require its traffic token.
    #[serde(default)]
    pub(super) private_ports: bool,
    /// `Host` header of requests to its ports, with `${PORT}` for the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) masked_host: Option<String>,
    /// Network rules, as E2B's clients gave them.
    #[serde(default)]
    pub(super) network: NetworkRules,
}

impl StoredE2bSandbox {
    pub(super) fn on_deadline(&self) -> DeadlineAction {
        match (self.pauses, self.drops_memory) {
            (false, _) => DeadlineAction::End,
            (true, false) => DeadlineAction::Pause,
            (true, true) => DeadlineAction::Rest,
        }
    }
}

/// A live sandbox.
#[derive(Debug)]
pub(super) struct LiveE2bSandbox {
    pub(super) tenant: String,
    pub(super) kept: StoredE2bSandbox,
    keys: TokenKeys,
    /// Ids of the API tokens for which its tokens were issued.
    holders: Mutex<BTreeSet<String>>,
    pub(super) processes: Arc<SandboxProcesses>,
    pub(super) watchers: PolledWatches,
    pub(super) samples: UsageSamples,
    /// Changes whenever its processes start anew.
    pub(super) boot_id: String,
    /// True while its processes are frozen. Each sandbox of the session has its own channel.
    frozen: watch::Receiver<bool>,
    /// Keeps it at work until its deadline, even if it is idle.
    held: Mutex<Option<SandboxGuard>>,
}

/// Id of a sandbox, and its tenant.
#[derive(Clone, Copy, Debug)]
pub(super) struct TenantSandbox<'a> {
    pub(super) tenant: &'a str,
    pub(super) id: &'a str,
}

/// All live sandboxes, by id.
#[derive(Clone, Debug, Default)]
pub(super) struct E2bSandboxes(Arc<Mutex<HashMap<String, Arc<LiveE2bSandbox>>>>);

/// Why a sandbox cannot be used.
#[derive(Debug)]
pub(super) enum SandboxClosed {
    /// Missing, not of this face, or not running.
    NotRunning,
    /// Any other failure.
    Failed(SessionError),
}

impl From<SessionError> for SandboxClosed {
    fn from(error: SessionError) -> SandboxClosed {
        match error {
            SessionError::NotFound(_)
            | SessionError::Ended
            | SessionError::Conflict(_)
            | SessionError::OnAnotherServer { is_node: false }
            | SessionError::SandboxEnded(_) => SandboxClosed::NotRunning,
            other @ (SessionError::Refused(_)
            | SessionError::Grant(_)
            | SessionError::TooMany(_)
            | SessionError::Capacity
            | SessionError::DiskFull(_)
            | SessionError::NotHere(_)
            | SessionError::Away(_)
            | SessionError::OnAnotherServer { is_node: true }
            | SessionError::Agent(_)
            | SessionError::Unavailable(_)
            | SessionError::Internal(_)) => SandboxClosed::Failed(other),
        }
    }
}

impl E2bSandboxes {
    /// Returns a live sandbox, resumed if it allows that. The caller has authorized the request.
    pub(super) async fn open(
        &self,
        sessions: &Sessions,
        keys: &TokenKeys,
        id: &str,
    ) -> Result<(Arc<LiveE2bSandbox>, SandboxGuard), SandboxClosed> {
        if !is_id(id) {
            return Err(SandboxClosed::NotRunning);
        }
        let known = self.0.lock().get(id).cloned();
        let (tenant, kept) = match &known {
            Some(live) => (live.tenant.clone(), live.kept.clone()),
            None => {
                let queries = sessions.queries()?;
                let tenant = queries.tenant_of(id).await?;
                let extras = queries.extras(&tenant, id).await?;
                if extras.face.as_deref() != Some(FACE) {
                    return Err(SandboxClosed::NotRunning);
                }
                (tenant, serde_json::from_value(extras.extra).unwrap_or_default())
            }
        };
        let guard = match sessions.sandbox(&tenant, id).await {
            Err(SessionError::Conflict(_)) if kept.auto_resume => {
                resume(sessions, &tenant, id, &kept, None).await?
            }
            other => other?,
        };
        let live =
            self.keep(sessions, keys, TenantSandbox { tenant: &tenant, id }, kept, guard.clone());
        Ok((live, guard))
    }

    /// Checks whether a sandbox runs, without side effects.
    pub(super) async fn check(&self, sessions: &Sessions, id: &str) -> Result<(), SandboxClosed> {
        if !is_id(id) {
            return Err(SandboxClosed::NotRunning);
        }
        let tenant = match self.known(id) {
            Some(live) => live.tenant.clone(),
            None => sessions.queries()?.tenant_of(id).await?,
        };
        match sessions.queries()?.get(&tenant, id).await?.state {
            SessionState::Active => Ok(()),
            SessionState::Starting
            | SessionState::Paused
            | SessionState::Stopped
            | SessionState::Ended
            | SessionState::Error => Err(SandboxClosed::NotRunning),
        }
    }

    /// Registers a sandbox for as long as it lives, and keeps it at work.
    pub(super) fn keep(
        &self,
        sessions: &Sessions,
        keys: &TokenKeys,
        of: TenantSandbox<'_>,
        kept: StoredE2bSandbox,
        guard: SandboxGuard,
    ) -> Arc<LiveE2bSandbox> {
        let TenantSandbox { tenant, id } = of;
        let (ended, frozen) = (guard.ended(), guard.frozen());
        let mut all = self.0.lock();
        // An entry whose sandbox has just ended is about to be removed.
        let is_same = |live: &&Arc<LiveE2bSandbox>| live.frozen.same_channel(&frozen);
        if let Some(live) = all.get(id).filter(is_same) {
            live.held.lock().get_or_insert(guard);
            return Arc::clone(live);
        }
        let live = Arc::new(LiveE2bSandbox {
            tenant: tenant.to_owned(),
            kept,
            keys: keys.clone(),
            holders: Mutex::default(),
            processes: Arc::default(),
            watchers: PolledWatches::default(),
            samples: UsageSamples::default(),
            boot_id: keys.boot(id, node::clock::wall_ms()),
            frozen: frozen.clone(),
            held: Mutex::new(Some(guard)),
        });
        all.insert(id.to_owned(), Arc::clone(&live));
        let (all, this, id) = (Arc::downgrade(&self.0), Arc::downgrade(&live), id.to_owned());
        let sessions = sessions.clone();
        // The task ends with the sandbox.
        node::task::spawn(async move {
            tokio::select! {
                _reason = ended => {}
                () = watch_over(&sessions, &this, &id, frozen) => {}
            }
            forget(&all, &this, &id);
        });
        live
    }

    /// Releases a paused sandbox, which may then be evicted.
    pub(super) fn release(&self, id: &str) {
        let live = self.0.lock().get(id).cloned();
        if let Some(live) = live {
            live.held.lock().take();
        }
    }

    /// Returns the state of a sandbox, if it lives.
    pub(super) fn known(&self, id: &str) -> Option<Arc<LiveE2bSandbox>> {
        self.0.lock().get(id).cloned()
    }

    /// Returns the sandbox for which a URL was signed, and the id of the API token behind it. The
    /// URL names neither.
    pub(super) fn signer(
        &self,
        signed: &SignedClaims<'_>,
        operation: SignedOperation,
    ) -> Option<(String, String)> {
        let tried: Vec<(String, Arc<LiveE2bSandbox>)> = {
            let all = self.0.lock();
            all.iter().take(TRIED_MAX).map(|(id, live)| (id.clone(), Arc::clone(live))).collect()
        };
        let mut signers = tried.into_iter().filter_map(|(id, live)| {
            let holders = live.holders.lock().clone();
            let is_signer =
                |holder: &String| signed.is_of(operation, &live.keys.access(&id, holder));
            holders.into_iter().find(is_signer).map(|holder| (id, holder))
        });
        signers.next()
    }
}

impl LiveE2bSandbox {
    /// Records an API token for which its tokens were issued.
    pub(super) fn note_holder(&self, token_id: &str) {
        self.holders.lock().insert(token_id.to_owned());
    }
}

/// Watches a sandbox while it lives: releases it when any request pauses it, and takes samples
/// while it runs.
async fn watch_over(
    sessions: &Sessions,
    this: &Weak<LiveE2bSandbox>,
    id: &str,
    mut frozen: watch::Receiver<bool>,
) {
    let mut every = time::interval(SAMPLE_EVERY);
    every.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    loop {
        let is_paused = tokio::select! {
            changed = frozen.changed() => match changed {
                Ok(()) => *frozen.borrow_and_update(),
                Err(_gone) => return,
            },
            _ = every.tick() => false,
        };
        let Some(live) = this.upgrade() else { return };
        let is_held = live.held.lock().is_some();
        if is_paused {
            live.processes.hang_up();
            let mut held = live.held.lock();
            // It may have been resumed meanwhile, and is held for that.
            if *frozen.borrow() {
                held.take();
            }
        } else if is_held
            && let Err(error) = live.samples.take(sessions, &live.tenant, id, SampleUse::Kept).await
        {
            tracing::debug!(sandbox = id, %error, "a sandbox was not looked at");
        }
    }
}

/// Removes the state of an ended sandbox.
fn forget(
    all: &Weak<Mutex<HashMap<String, Arc<LiveE2bSandbox>>>>,
    this: &Weak<LiveE2bSandbox>,
    id: &str,
) {
    let (Some(all), Some(this)) = (all.upgrade(), this.upgrade()) else { return };
    this.held.lock().take();
    let mut all = all.lock();
    if all.get(id).is_some_and(|live| Arc::ptr_eq(live, &this)) {
        all.remove(id);
    }
}

/// Resumes a paused sandbox for `timeout_s` seconds.
pub(super) async fn resume(
    sessions: &Sessions,
    tenant: &str,
    id: &str,
    kept: &StoredE2bSandbox,
    timeout_s: Option<u64>,
) -> Result<SandboxGuard, SessionError> {
    let (_, guard) = sessions.resume_held(tenant, id).await?;
    let at_ms = deadline(sessions, timeout_s.unwrap_or(TIMEOUT_S));
    sessions.set_deadline(tenant, id, Some(at_ms), kept.on_deadline()).await?;
    Ok(guard)
}

/// Returns the time `timeout_s` seconds from now, in milliseconds since 1970 by the store's clock.
pub(super) fn deadline(sessions: &Sessions, timeout_s: u64) -> u64 {
    sessions.now_ms().saturating_add(timeout_s.saturating_mul(1000))
}
