//! Grants of the model, served by the relay to its provider.

use api::{GrantAccess, ModelGrant};

use super::{
    GrantKind, GrantListener, GrantVariables, LOOPBACK, OpenContext, ResolvedGrant, backend_gone,
    no_backend,
};
use crate::config::{GatewayConfig, ModelBudgetConfig};
use crate::doors::{FieldError, ModelGuest};
use crate::offers::{GrantNotOffered, TenantOffers};
use crate::shared::GatewayShared;

/// Models that one grant may name, and bytes of one name.
const MODELS_MAX: usize = 64;
const MODEL_BYTES_MAX: usize = 200;

/// Placeholder of the key that clients of the model insist on; it opens nothing.
const PLACEHOLDER_KEY: &str = "provided-by-cove";

/// A grant of the model.
pub(super) struct ModelKind<'a>(pub(super) &'a ModelGrant);

impl GrantKind for ModelKind<'_> {
    fn check_offered(&self, offers: &TenantOffers<'_>) -> Result<(), GrantNotOffered> {
        offers.check_label("model", GrantAccess::ReadOnly)
    }

    fn limit_above(&self, _config: &GatewayConfig) -> Option<&'static str> {
        None
    }

    fn resolve(&self, shared: &GatewayShared) -> Result<Box<dyn ResolvedGrant>, FieldError> {
        check_models(self.0, &shared.config.now().model)?;
        shared.models.as_ref().ok_or_else(|| no_backend("way to a model"))?.check(self.0)?;
        Ok(Box::new(ResolvedModel(self.0.clone())))
    }
}

/// Checks that models have names, and prices where dollars are to be counted.
fn check_models(grant: &ModelGrant, config: &ModelBudgetConfig) -> Result<(), FieldError> {
    if grant.models.len() > MODELS_MAX {
        let message = format!("must be at most {MODELS_MAX}");
        return Err(FieldError::new("models", message));
    }
    for (index, model) in grant.models.iter().enumerate() {
        let wrong = |message: &str| Err(FieldError::new(format!("models[{index}]"), message));
        if model.is_empty() || model.len() > MODEL_BYTES_MAX {
            return wrong("must be the name of a model");
        }
        if grant.dollars.is_some() && !config.prices.contains_key(model) {
            return wrong("has no price on this server, by which `dollars` could be counted");
        }
    }
    let Some(dollars) = grant.dollars else { return Ok(()) };
    if !dollars.is_finite() || dollars < 0.0 {
        return Err(FieldError::new("dollars", "must be a number of dollars"));
    }
    if grant.models.is_empty() {
        let message = "must name the permitted models, so that `dollars` can be counted";
        return Err(FieldError::new("models", message));
    }
    Ok(())
}

/// A model that can be opened.
pub(super) struct ResolvedModel(pub(super) ModelGrant);

impl ResolvedGrant for ResolvedModel {
    fn variables(&self, port: u16) -> GrantVariables {
        vec![
            ("ANTHROPIC_BASE_URL", format!("http://{LOOPBACK}:{port}")),
            ("ANTHROPIC_API_KEY", PLACEHOLDER_KEY.to_owned()),
        ]
    }

    fn open(self: Box<Self>, context: OpenContext<'_>) -> Result<GrantListener, String> {
        let OpenContext { shared, holder, audit, .. } = context;
        let models = shared.models.as_ref().ok_or_else(backend_gone)?;
        models.open(ModelGuest { holder, grant: self.0, audit }).map(GrantListener::Stream)
    }
}
