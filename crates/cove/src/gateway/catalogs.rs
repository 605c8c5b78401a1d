//! Backend of catalog grants: their clients are guests of the catalog.

use std::sync::Arc;

use api::{AuditEvent, CatalogGrant, Grant, GrantAccess};
use catalog::guest::{
    CONNECTIONS_MAX, CatalogSandboxListener, NewGuest, SandboxAccess, SandboxAccessError,
    SandboxRequestObserver, SandboxRequestRecord,
};
use gateway::doors::{
    AuditSink, CatalogBackends, CatalogGuest, FieldError, GatewayEvent, StreamDoor,
};
use node::task::Boxed;
use tokio::net::TcpStream;

/// Warehouses of the catalog, as a backend.
#[derive(Debug)]
pub(super) struct CatalogBackend(SandboxAccess);

impl CatalogBackend {
    pub(super) fn new(guests: SandboxAccess) -> CatalogBackend {
        CatalogBackend(guests)
    }
}

impl CatalogBackends for CatalogBackend {
    fn known(&self, warehouses_max: usize) -> Vec<String> {
        let mut names = self.0.warehouses();
        names.truncate(warehouses_max);
        names
    }

    fn check(&self, grant: &CatalogGrant) -> Result<(), FieldError> {
        let checked = self.0.check(&grant.warehouse, &grant.namespaces);
        checked.map_err(|SandboxAccessError { field, message }| FieldError::new(field, message))
    }

    fn open(&self, guest: CatalogGuest) -> Result<Arc<dyn StreamDoor>, String> {
        let CatalogGuest { holder, grant, audit, fence } = guest;
        let port = Grant::Catalog(grant.clone()).port();
        let new = NewGuest {
            tenant: holder.tenant,
            warehouse: grant.warehouse,
            namespaces: grant.namespaces,
            writes: grant.access == GrantAccess::ReadWrite,
            address: format!("http://127.0.0.1:{port}"),
            watch: Arc::new(CatalogAuditSink(audit)),
            fence,
        };
        let door = self.0.open(new).map_err(|error| error.to_string())?;
        Ok(Arc::new(CatalogGrantListener(door)))
    }
}

#[derive(Debug)]
struct CatalogGrantListener(Arc<CatalogSandboxListener>);

impl StreamDoor for CatalogGrantListener {
    fn serve(self: Arc<Self>, stream: TcpStream) -> Boxed<'static, ()> {
        Box::pin(async move { Arc::clone(&self.0).serve(stream).await })
    }

    fn connections_max(&self) -> usize {
        CONNECTIONS_MAX
    }
}

/// Reports requests that the catalog observed to the gateway.
#[derive(Debug)]
struct CatalogAuditSink(Arc<dyn AuditSink>);

impl SandboxRequestObserver for CatalogAuditSink {
    fn observe(&self, seen: &SandboxRequestRecord<'_>) {
        let SandboxRequestRecord { text, status, outcome, error, took, bytes_out, bytes_in } =
            *seen;
        let text = format!("{text} {status}");
        self.0.saw(&GatewayEvent {
            text: Some(&text),
            error,
            took,
            bytes_out: Some(bytes_out),
            bytes_in: Some(bytes_in),
            status: Some(status).filter(|status| *status > 0),
            ..GatewayEvent::new(AuditEvent::Request, outcome)
        });
    }
}
