//! Functions: listed and loaded by clients, created and removed by managers. Their rights are those
//! of their namespace: a right to a table of the same name does not extend to a function.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use iceberg::function::FunctionDoc;
use iceberg::ident::{NamespaceIdent, TableIdent, Uuid};
use iceberg::json::RawJson;
use serde::Deserialize;

use super::homes::{ChosenLocation, LocationRules, LocationScope};
use super::keys::ChangeRunner;
use super::rights::RightGuard;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::page::{ListPage, PageRequest};
use crate::principal::{AccessRight, CatalogPrincipal, ChangeCall, RightTarget, VisibleNames};
use crate::store::{ChangeContext, FunctionStore};
use crate::warehouse::Warehouse;

/// A function to store.
#[derive(Debug, Deserialize)]
struct PutFunction {
    namespace: NamespaceIdent,
    name: String,
    #[serde(default)]
    overwrite: bool,
}

/// Returns the location in a function's document.
fn location_in(document: &[u8]) -> Option<String> {
    let document = RawJson::parse(document.to_vec().into()).ok()?;
    let location = document.present("location")?;
    location.as_str().map(Cow::into_owned)
}

/// Functions of namespaces. Cheap to clone.
#[derive(Clone)]
pub struct FunctionService(Arc<FunctionServiceInner>);

struct FunctionServiceInner {
    function_store: FunctionStore,
    locations: LocationRules,
    rights: RightGuard,
    changes: ChangeRunner,
}

impl std::fmt::Debug for FunctionService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FunctionService").finish_non_exhaustive()
    }
}

impl FunctionService {
    pub(super) fn new(
        function_store: FunctionStore,
        locations: LocationRules,
        rights: RightGuard,
        changes: ChangeRunner,
    ) -> FunctionService {
        FunctionService(Arc::new(FunctionServiceInner {
            function_store,
            locations,
            rights,
            changes,
        }))
    }

    /// Returns the functions of a namespace. Rights to an object in it do not extend to its
    /// functions.
    ///
    /// # Errors
    /// `NoSuchNamespace`; `Forbidden`.
    pub async fn list_functions(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        namespace: &NamespaceIdent,
        page: &PageRequest,
    ) -> Result<ListPage<String>> {
        let visible = self.0.rights.listed_names(who, warehouse, Some(namespace))?;
        let (after, limit) = page.bounds()?;
        let mut names = self.0.function_store.list(warehouse.id(), namespace, after, limit).await?;
        if matches!(visible, VisibleNames::Part { .. }) {
            names.clear();
        }
        Ok(page.cut(names, String::clone))
    }

    /// Returns the document of a function.
    ///
    /// # Errors
    /// `NoSuchNamespace`, `NoSuchFunction`.
    pub async fn load_function(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        ident: &TableIdent,
    ) -> Result<Bytes> {
        self.0.rights.allow(
            who,
            warehouse,
            AccessRight::Read,
            RightTarget::Namespace(&ident.namespace),
        )?;
        Ok(self.0.function_store.function(warehouse.id(), ident).await?.into())
    }

    /// Creates a function, or replaces its document. Returns the document.
    ///
    /// # Errors
    /// `BadRequest` and `IllegalArgument` if it is invalid; `NoSuchNamespace`; `AlreadyExists` if
    /// it must not be replaced; `Forbidden` if its location is outside of the warehouse, or the
    /// caller may not use it.
    pub async fn put_function(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        body: &RawJson,
    ) -> Result<Bytes> {
        let PutFunction { namespace, name, overwrite } = body.decode()?;
        let ident = TableIdent::new(namespace, &name)?;
        self.0.rights.allow(
            call.who,
            warehouse,
            AccessRight::Write,
            RightTarget::Namespace(&ident.namespace),
        )?;
        if overwrite {
            self.0.rights.allow(
                call.who,
                warehouse,
                AccessRight::Manage,
                RightTarget::Namespace(&ident.namespace),
            )?;
        }
        let metadata = body.get("metadata");
        let metadata = metadata
            .ok_or_else(|| CatalogError::new(ErrorReason::BadRequest, "`metadata` is missing"))?;
        let known = match overwrite {
            true => self.0.function_store.function_uuid(warehouse.id(), &ident).await?,
            false => None,
        };
        let fresh = || Uuid::v4().map_err(CatalogError::internal);
        let doc = FunctionDoc::parse(&metadata, known.map_or_else(fresh, Ok)?)?;
        let scope = LocationScope::of(&self.0.rights, call.who, warehouse, Some(&ident.namespace));
        let (warehouse, again_in) = (Arc::clone(warehouse), Arc::clone(warehouse));
        let again = ident.clone();
        let service = self.clone();
        let act = async move |context: ChangeContext| {
            let (functions, id) = (&service.0.function_store, warehouse.id());
            if let Some(location) = &doc.location {
                let own = match known {
                    Some(_) => location_in(&functions.function(id, &ident).await?),
                    None => None,
                };
                let (field, own) = ("metadata.location", own.as_deref());
                let chosen = ChosenLocation { field, location, own };
                service.0.locations.check_scope(&warehouse, &scope, chosen).await?;
            }
            functions.put_function(&context, id, &ident, &doc, overwrite).await?;
            Ok(doc.document)
        };
        let service = self.clone();
        let again = async move || {
            Ok(Bytes::from(service.0.function_store.function(again_in.id(), &again).await?))
        };
        self.0.changes.run(call, act, again).await
    }

    /// Removes a function.
    ///
    /// # Errors
    /// `NoSuchFunction`.
    pub async fn drop_function(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
    ) -> Result<()> {
        self.0.rights.allow(
            call.who,
            warehouse,
            AccessRight::Manage,
            RightTarget::Namespace(&ident.namespace),
        )?;
        let (warehouse, ident) = (Arc::clone(warehouse), ident.clone());
        let service = self.clone();
        let act = async move |context: ChangeContext| {
            service.0.function_store.drop_function(&context, warehouse.id(), &ident).await
        };
        self.0.changes.run(call, act, async || Ok(())).await
    }
}
