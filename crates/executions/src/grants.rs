//! Grants of executions: refused or resolved before they run, and served while they do.
//!
//! The gateway ([`node::gateway`]) defines the meaning of grants. This module handles their owners,
//! and the life of their sockets: from just before the program starts until its run has ended.

use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::sync::{Arc, OnceLock};

use api::{ExecutionId, ExecutionRequest, Grant};
use node::auth::TokenPrincipal;
use node::gateway::{GrantGateway, GrantHolder, GrantOpening};
use node::http;
use sandbox::{LoopbackListen, OutputSink, PORT_MIN, PORTS_MAX, ProgramExit, SandboxCommand};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::error::RequestRefusal;
use crate::sandboxes::{LeasedSandbox, Pending, SandboxFailure};

/// The field of a request with its grants.
const FIELD: &str = "grants";

/// The gateway that serves grants, once it is set.
#[derive(Debug, Default)]
pub(crate) struct GatewayCell(OnceLock<Arc<dyn GrantGateway>>);

impl GatewayCell {
    /// Sets the gateway, unless one is set already.
    pub(crate) fn set(&self, gateway: Arc<dyn GrantGateway>) {
        let _there_is_one = self.0.set(gateway);
    }

    fn get(&self) -> Result<&Arc<dyn GrantGateway>, RequestRefusal> {
        let none =
            || RequestRefusal::invalid(FIELD, "this server has nothing that could be granted");
        self.0.get().ok_or_else(none)
    }

    /// Checks that a token may give these grants to its own execution.
    ///
    /// # Errors
    /// If the token may not give one of them, or no gateway is set.
    pub(crate) fn authorize(
        &self,
        who: &TokenPrincipal,
        grants: &[Grant],
    ) -> Result<(), RequestRefusal> {
        match grants {
            [] => Ok(()),
            grants => self.get()?.authorize(who, grants).map_err(refusal),
        }
    }

    /// Takes the grants out of a request, resolves them, and adds the gateway's variables to the
    /// environment, where the request's own take precedence. `None` if there are no grants.
    ///
    /// # Errors
    /// If one of them cannot be given, or no gateway is set.
    pub(crate) fn take(
        &self,
        id: &ExecutionId,
        tenant: &str,
        request: &mut ExecutionRequest,
    ) -> Result<Option<ExecutionGrants>, RequestRefusal> {
        let grants = std::mem::take(&mut request.grants);
        if grants.is_empty() {
            return Ok(None);
        }
        let gateway = Arc::clone(self.get()?);
        check_ports(&grants)?;
        let holder = GrantHolder::new(id.0.as_str(), tenant);
        let granted = ExecutionGrants { gateway, holder, grants };
        let opening = granted.resolve()?;
        for (name, value) in opening.environment() {
            request.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
        Ok(Some(granted))
    }
}

/// Checks that a sandbox can have the ports of these grants.
fn check_ports(grants: &[Grant]) -> Result<(), RequestRefusal> {
    if grants.len() > PORTS_MAX {
        let message = format!("there may be at most {PORTS_MAX}");
        return Err(RequestRefusal::invalid(FIELD, message));
    }
    for (index, grant) in grants.iter().enumerate() {
        let refuse = |message: String| {
            Err(RequestRefusal::invalid(format!("{FIELD}[{index}].port"), message))
        };
        if grant.port() < PORT_MIN {
            return refuse(format!("must be at least {PORT_MIN}"));
        }
        if grants.iter().take(index).any(|other| other.port() == grant.port()) {
            return refuse(format!("{} is the port of another grant", grant.port()));
        }
    }
    Ok(())
}

/// Converts a gateway's refusal into an error of the request.
fn refusal(error: http::HttpError) -> RequestRefusal {
    let detail = error.detail();
    let field = detail.field.clone().unwrap_or_else(|| FIELD.to_owned());
    RequestRefusal::new(detail.code, field, detail.message.clone())
}

/// The grants of one execution.
pub(crate) struct ExecutionGrants {
    gateway: Arc<dyn GrantGateway>,
    holder: GrantHolder,
    grants: Vec<Grant>,
}

impl ExecutionGrants {
    /// Resolves the grants in their current state.
    fn resolve(&self) -> Result<Box<dyn GrantOpening>, RequestRefusal> {
        self.gateway.resolve(&self.holder, &self.grants).map_err(refusal)
    }

    /// Attaches the sockets of the grants to a command, in their current state: a resource can have
    /// disappeared since the request was accepted.
    pub(crate) fn attach(
        &self,
        command: &mut SandboxCommand,
    ) -> Result<GrantSockets, SandboxFailure> {
        let opening = self.resolve().map_err(SandboxFailure::Refused)?;
        let (opened, listeners) = oneshot::channel();
        command.listen = Some(LoopbackListen { ports: opening.ports().to_vec(), opened });
        Ok(GrantSockets { opening, listeners })
    }
}

impl fmt::Debug for ExecutionGrants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Granted").field("holder", &self.holder).finish_non_exhaustive()
    }
}

/// The sockets of one run.
#[derive(Debug)]
pub(crate) struct GrantSockets {
    opening: Box<dyn GrantOpening>,
    listeners: oneshot::Receiver<Vec<TcpListener>>,
}

impl GrantSockets {
    /// Serves the sockets until it is dropped.
    async fn serve(self) -> Infallible {
        let Ok(listeners) = self.listeners.await else { return pending().await };
        let _gate = self.opening.open(listeners);
        pending().await
    }
}

/// Runs a command to its end, and serves its sockets until then.
pub(crate) fn run<'a>(
    sandbox: &'a mut dyn LeasedSandbox,
    command: SandboxCommand,
    serving: Option<GrantSockets>,
    sink: &'a mut dyn OutputSink,
) -> Pending<'a, ProgramExit> {
    let running = sandbox.run(command, sink);
    match serving {
        None => running,
        Some(serving) => Box::pin(async move {
            tokio::select! {
                ended = running => ended,
                never = serving.serve() => match never {},
            }
        }),
    }
}
