//! A gateway whose sockets report their holder.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::{ErrorCode, Grant};
use node::auth::TokenPrincipal;
use node::gateway::{GrantGate, GrantGateway, GrantHolder, GrantOpening};
use node::http;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Every grant is a socket that reports its port and its holder.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    /// Number of gates that were opened, and of those that are open.
    pub(crate) opened: Arc<AtomicUsize>,
    pub(crate) open: Arc<AtomicUsize>,
    /// Number of resolved grants, and the number after which they resolve to nothing.
    pub(crate) resolved: AtomicUsize,
    pub(crate) gone_after: Mutex<Option<usize>>,
}

impl GrantGateway for Echo {
    fn authorize(&self, who: &TokenPrincipal, grants: &[Grant]) -> Result<(), http::HttpError> {
        match grants.iter().position(|grant| matches!(grant, Grant::Model(_))) {
            Some(index) if !who.operator => {
                let error = http::HttpError::new(ErrorCode::Forbidden, "not yours");
                Err(error.at(format!("grants[{index}]")))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn resolve(
        &self,
        holder: &GrantHolder,
        grants: &[Grant],
    ) -> Result<Box<dyn GrantOpening>, http::HttpError> {
        let before = self.resolved.fetch_add(1, Ordering::SeqCst);
        if self.gone_after.lock().is_some_and(|after| before >= after) {
            return Err(http::HttpError::invalid("is gone").at("grants[0].tenant"));
        }
        let ports: Vec<u16> = grants.iter().map(Grant::port).collect();
        let listed = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(" ");
        let environment = [("PGHOST", "localhost"), ("PORTS", &listed)];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(Box::new(Sockets {
            says: format!("{} of {}", holder.id, holder.tenant),
            ports,
            environment: environment.into(),
            opened: Arc::clone(&self.opened),
            open: Arc::clone(&self.open),
        }))
    }
}

#[derive(Debug)]
struct Sockets {
    says: String,
    ports: Vec<u16>,
    environment: BTreeMap<String, String>,
    opened: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

impl GrantOpening for Sockets {
    fn ports(&self) -> &[u16] {
        &self.ports
    }

    fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }

    fn open(self: Box<Self>, listeners: Vec<TcpListener>) -> Box<dyn GrantGate> {
        let mut serving = JoinSet::new();
        assert_eq!(listeners.len(), self.ports.len());
        for (listener, port) in listeners.into_iter().zip(&self.ports) {
            assert_eq!(listener.local_addr().unwrap().port(), *port);
            let says = format!("{port} {}\n", self.says);
            serving.spawn(async move {
                while let Ok((mut connection, _)) = listener.accept().await {
                    connection.write_all(says.as_bytes()).await.unwrap();
                }
            });
        }
        self.opened.fetch_add(1, Ordering::SeqCst);
        self.open.fetch_add(1, Ordering::SeqCst);
        Box::new(Serving { open: self.open, _serving: serving })
    }
}

#[derive(Debug)]
struct Serving {
    open: Arc<AtomicUsize>,
    _serving: JoinSet<()>,
}

impl GrantGate for Serving {
    fn missing(&self, _grants: &[Grant]) -> Vec<u16> {
        Vec::new()
    }

    fn retain(&self, _grants: &[Grant]) {}

    fn add(&self, _opening: Box<dyn GrantOpening>, _listeners: Vec<TcpListener>) {}

    fn rest(&self) {}
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}
