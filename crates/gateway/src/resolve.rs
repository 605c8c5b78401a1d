//! Resolution of requested grants. Pure, except for lookups in their services.

use std::collections::BTreeMap;

use api::Grant;
use node::http;

use crate::doors::FieldError;
use crate::environment::environment;
use crate::kinds::{self, ResolvedGrant};
use crate::shared::GatewayShared;

/// Grants of one sandbox.
pub const GRANTS_MAX: usize = 16;

/// Checks that these are not too many for one sandbox.
///
/// # Errors
/// 400 at `grants`.
pub(crate) fn check_count(grants: &[Grant]) -> Result<(), http::HttpError> {
    if grants.len() <= GRANTS_MAX {
        return Ok(());
    }
    Err(http::HttpError::invalid(format!("must be at most {GRANTS_MAX}")).at("grants"))
}

/// Resolves the grant at `index` of a request; other grants use these ports.
///
/// # Errors
/// 400 with the field of the grant that is wrong.
pub(crate) fn resolve_one(
    shared: &GatewayShared,
    index: usize,
    grant: &Grant,
    ports: &[u16],
) -> Result<Box<dyn ResolvedGrant>, http::HttpError> {
    let wrong = |error: FieldError| {
        http::HttpError::invalid(error.message).at(format!("grants[{index}].{}", error.field))
    };
    let port = grant.port();
    if port == 0 || ports.contains(&port) {
        let message = "must be a port that no other grant has";
        return Err(wrong(FieldError::new("port", message)));
    }
    kinds::kind_of(grant).resolve(shared).map_err(wrong)
}

/// Returns what clients inside look for, of grants at these ports.
pub(crate) fn environment_of(
    ports: &[u16],
    resolved: &[Box<dyn ResolvedGrant>],
) -> BTreeMap<String, String> {
    let at_ports = ports.iter().copied().zip(resolved.iter().map(|it| &**it));
    environment(&at_ports.collect::<Vec<_>>())
}
