//! Backend of model grants: doors to the model relay that agents use as well.

use std::sync::Arc;

use anyhow::Result;
use api::{AuditEvent, AuditOutcome, Grant, ModelGrant};
use gateway::config::ModelBudgetConfig;
use gateway::doors::{AuditSink, FieldError, GatewayEvent, ModelBackends, ModelGuest, StreamDoor};
use node::client::TlsRoots;
use node::cluster::AmountLedger;
use node::fence::EffectFence;
use node::task::Boxed;
use node::telemetry::Registry;
use node::traces::Tracer;
use sessions::model_door::{
    ModelDoor, ModelDoorSpec, ModelDoors, ModelEnd, ModelPrice, ModelRequest, ModelWitness,
};
use tokio::net::TcpStream;

use crate::config::{CoveConfig, Environment};

/// Endpoint of `[sessions.model]`.
#[derive(Debug)]
pub(super) struct ModelBackend {
    doors: ModelDoors,
    config: ModelBudgetConfig,
}

impl ModelBackend {
    /// Returns the backend; `None` if no model is configured.
    pub(super) fn new(
        config: &CoveConfig,
        environment: &Environment,
        tracer: Option<Tracer>,
        fence: EffectFence,
        amounts: Option<AmountLedger>,
        registry: &mut Registry,
    ) -> Result<Option<ModelBackend>> {
        let Some(url) = &config.sessions.model.url else { return Ok(None) };
        let key = crate::sessions::model_key(config, environment)?;
        let most = config.gateway.model.tokens_per_tenant;
        let doors = ModelDoors::new(url, key.as_deref(), TlsRoots::Machine, most)?;
        let doors = doors.traced_by(tracer).fenced_by(fence).kept_in(amounts);
        doors.register(registry);
        Ok(Some(ModelBackend { doors, config: config.gateway.model.clone() }))
    }
}

impl ModelBackends for ModelBackend {
    fn check(&self, _grant: &ModelGrant) -> Result<(), FieldError> {
        // The rules for grants apply to every endpoint, and the gateway checks them.
        Ok(())
    }

    fn open(&self, guest: ModelGuest) -> Result<Arc<dyn StreamDoor>, String> {
        let ModelGuest { holder, grant, audit } = guest;
        let port = Grant::Model(grant.clone()).port();
        let prices = self.config.prices.iter().map(|(model, price)| {
            let price = ModelPrice {
                input: price.input,
                output: price.output,
                cache_write: price.cache_write.unwrap_or(price.input),
                cache_read: price.cache_read.unwrap_or(price.input),
            };
            (model.clone(), price)
        });
        let door = self.doors.open(ModelDoorSpec {
            is_lasting: holder.is_lasting(),
            holder: holder.id,
            port,
            tenant: holder.tenant,
            models: grant.models,
            tokens_max: grant.tokens,
            dollars_max: grant.dollars,
            prices: prices.collect(),
            told: Arc::new(ModelAuditSink(audit)),
        });
        Ok(Arc::new(ModelGrantListener(door)))
    }
}

#[derive(Debug)]
struct ModelGrantListener(Arc<ModelDoor>);

impl StreamDoor for ModelGrantListener {
    fn serve(self: Arc<Self>, stream: TcpStream) -> Boxed<'static, ()> {
        Arc::clone(&self.0).serve(stream)
    }

    fn connections_max(&self) -> usize {
        self.0.connections_max()
    }
}

/// Reports requests to the model to the gateway.
#[derive(Debug)]
struct ModelAuditSink(Arc<dyn AuditSink>);

impl ModelWitness for ModelAuditSink {
    fn saw(&self, request: &ModelRequest<'_>) {
        let outcome = match request.end {
            ModelEnd::Answered => AuditOutcome::Done,
            ModelEnd::Failed => AuditOutcome::Failed,
            ModelEnd::Refused => AuditOutcome::Refused,
        };
        self.0.saw(&GatewayEvent {
            text: Some(&text(request)),
            error: request.error,
            took: request.took,
            bytes_out: Some(request.bytes_out),
            bytes_in: Some(request.bytes_in),
            status: request.status,
            ..GatewayEvent::new(AuditEvent::Request, outcome)
        });
    }
}

/// Returns the request and its result on one line.
fn text(request: &ModelRequest<'_>) -> String {
    let mut parts = vec![request.method.to_owned(), request.path.to_owned()];
    parts.extend(request.model.map(str::to_owned));
    parts.extend(request.status.map(|status| status.to_string()));
    let tokens = &request.tokens;
    if tokens.total() > 0 {
        let how = if request.is_estimated { ", estimated" } else { "" };
        let questions = tokens.total().saturating_sub(tokens.output);
        parts.push(format!("({questions} tokens in, {} out{how})", tokens.output));
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sessions::model_door::ModelTokens;

    use super::*;

    #[test]
    fn a_request_is_told_in_one_line() {
        let tokens = ModelTokens { input: 3, output: 4, cache_write: 5, cache_read: 6 };
        let mut request = ModelRequest {
            method: "POST",
            path: "/v1/messages",
            model: Some("small"),
            end: ModelEnd::Answered,
            status: Some(200),
            error: None,
            took: Duration::ZERO,
            tokens,
            is_estimated: false,
            bytes_out: 0,
            bytes_in: 0,
        };
        assert_eq!(text(&request), "POST /v1/messages small 200 (14 tokens in, 4 out)");
        request.is_estimated = true;
        request.status = None;
        assert_eq!(text(&request), "POST /v1/messages small (14 tokens in, 4 out, estimated)");
        let none = ModelRequest { model: None, tokens: ModelTokens::default(), ..request };
        assert_eq!(text(&none), "POST /v1/messages");
    }
}
