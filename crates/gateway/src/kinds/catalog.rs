//! Grants of warehouses, served by the catalog.
//!
//! # References
//! - <https://py.iceberg.apache.org/configuration/>

use api::CatalogGrant;

use super::{
    GrantKind, GrantListener, GrantVariables, LOOPBACK, OpenContext, ResolvedGrant, backend_gone,
    no_backend,
};
use crate::config::GatewayConfig;
use crate::doors::{CatalogGuest, FieldError};
use crate::offers::{GrantNotOffered, TenantOffers};
use crate::shared::GatewayShared;

/// A grant of a warehouse of the catalog.
pub(super) struct CatalogKind<'a>(pub(super) &'a CatalogGrant);

impl GrantKind for CatalogKind<'_> {
    fn check_offered(&self, offers: &TenantOffers<'_>) -> Result<(), GrantNotOffered> {
        offers.check_named("catalog", &self.0.warehouse, self.0.access, None)
    }

    fn limit_above(&self, _config: &GatewayConfig) -> Option<&'static str> {
        None
    }

    fn resolve(&self, shared: &GatewayShared) -> Result<Box<dyn ResolvedGrant>, FieldError> {
        shared.catalogs.as_ref().ok_or_else(|| no_backend("catalog"))?.check(self.0)?;
        Ok(Box::new(ResolvedWarehouse(self.0.clone())))
    }
}

/// A warehouse that can be opened.
pub(super) struct ResolvedWarehouse(pub(super) CatalogGrant);

impl ResolvedGrant for ResolvedWarehouse {
    fn variables(&self, port: u16) -> GrantVariables {
        vec![
            ("PYICEBERG_CATALOG__DEFAULT__TYPE", "rest".to_owned()),
            ("PYICEBERG_CATALOG__DEFAULT__URI", format!("http://{LOOPBACK}:{port}")),
            ("PYICEBERG_CATALOG__DEFAULT__WAREHOUSE", self.0.warehouse.clone()),
        ]
    }

    fn open(self: Box<Self>, context: OpenContext<'_>) -> Result<GrantListener, String> {
        let OpenContext { shared, holder, audit, .. } = context;
        let catalogs = shared.catalogs.as_ref().ok_or_else(backend_gone)?;
        let fence = shared.fence.clone();
        catalogs
            .open(CatalogGuest { holder, grant: self.0, audit, fence })
            .map(GrantListener::Stream)
    }
}
