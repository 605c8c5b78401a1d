//! Catalogs: warehouses.
//!
//! # References
//! - <https://github.com/apache/polaris/blob/main/spec/polaris-management-service.yml>

use axum::response::Response;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::storage::{self, StorageInfo};
use super::{EntityVersion, answer, missing};
use crate::access::{EntityChange, EntityKey, EntityKind, EntityRecord, only_operators};
use crate::error::{Result, bad};
use crate::http::request::CatalogRequest;
use crate::service::{NewWarehouse, WarehouseChange, WarehouseRecord};
use crate::store::Properties;
use crate::warehouse::WarehouseStatus;

/// Property with the location of a catalog.
const BASE: &str = "default-base-location";

/// The only supported type of catalogs.
const INTERNAL: &str = "INTERNAL";

#[derive(Serialize)]
struct PolarisCatalogList {
    catalogs: Vec<PolarisCatalog>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PolarisCatalog {
    r#type: &'static str,
    name: String,
    #[serde(flatten)]
    versioned: EntityVersion,
    storage_config_info: StorageInfo,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateCatalogRequest {
    catalog: NewCatalog,
}

/// Definition of a new catalog; fields that only responses have are ignored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewCatalog {
    #[serde(default)]
    r#type: Option<String>,
    name: String,
    properties: Properties,
    storage_config_info: serde_json::Value,
    #[serde(default)]
    connection_config_info: Option<IgnoredAny>,
    #[serde(default, rename = "createTimestamp")]
    _created: IgnoredAny,
    #[serde(default, rename = "lastUpdateTimestamp")]
    _updated: IgnoredAny,
    #[serde(default, rename = "entityVersion")]
    _version: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct UpdateCatalogRequest {
    current_entity_version: u64,
    #[serde(default)]
    properties: Option<Properties>,
    #[serde(default)]
    storage_config_info: Option<serde_json::Value>,
}

impl PolarisCatalog {
    fn of(record: WarehouseRecord, entity: EntityRecord) -> PolarisCatalog {
        let mut versioned = EntityVersion::of(entity, Some(record.created_ms));
        versioned.properties.insert(BASE.to_owned(), record.root.clone());
        PolarisCatalog {
            r#type: INTERNAL,
            versioned,
            storage_config_info: StorageInfo::of(&record),
            name: record.name,
        }
    }
}

pub(super) async fn list(input: &CatalogRequest<'_>) -> Result<Response> {
    let all = input.context.catalog.warehouses().list(&input.who).await?;
    let mut entities = input.context.access.entities().list(EntityKind::Warehouse, "").await?;
    let catalogs = all.into_iter().map(|it| {
        let entity = entities.remove(&it.id).unwrap_or_default();
        PolarisCatalog::of(it, entity)
    });
    answer::of(&PolarisCatalogList { catalogs: catalogs.collect() })
}

pub(super) async fn get(input: &CatalogRequest<'_>) -> Result<Response> {
    answer::of(&load(input, input.param("warehouse")?).await?)
}

async fn load(input: &CatalogRequest<'_>, name: &str) -> Result<PolarisCatalog> {
    let record = input.context.catalog.warehouses().show(&input.who, name).await?;
    let entity = input.context.access.entities().entity(EntityKey::warehouse(&record.id)).await?;
    Ok(PolarisCatalog::of(record, entity))
}

pub(super) async fn create(input: &CatalogRequest<'_>) -> Result<Response> {
    // Before the body is parsed: other callers learn nothing about valid bodies.
    only_operators(&input.who)?;
    let CreateCatalogRequest { catalog } = input.body()?;
    if catalog.connection_config_info.is_some() {
        return Err(missing("`connectionConfigInfo`: catalogs of other servers are not served"));
    }
    match catalog.r#type.as_deref().unwrap_or(INTERNAL) {
        INTERNAL => {}
        "EXTERNAL" => return Err(missing("`type`: there are no catalogs of type EXTERNAL")),
        _ => return Err(bad("`type` is INTERNAL")),
    }
    let mut properties = catalog.properties;
    let root = properties.remove(BASE).ok_or_else(|| bad(format!("`{BASE}` is missing")))?;
    let storage_fields = storage::read(catalog.storage_config_info)?;
    let root = root.trim_end_matches('/').to_owned();
    storage::require_kind(&storage_fields, &root)?;
    let new = NewWarehouse {
        name: catalog.name.clone(),
        locations: storage::others(&storage_fields, &root),
        root,
        status: WarehouseStatus::Active,
        storage: storage::settings(&storage_fields, None),
        credentials: None,
    };
    input.context.catalog.warehouses().create_with(&input.who, new, properties).await?;
    answer::made(&load(input, &catalog.name).await?)
}

pub(super) async fn update(input: &CatalogRequest<'_>) -> Result<Response> {
    only_operators(&input.who)?;
    let name = input.param("warehouse")?;
    let UpdateCatalogRequest { current_entity_version, properties, storage_config_info } =
        input.body()?;
    let record = input.context.catalog.warehouses().show(&input.who, name).await?;
    let mut change = WarehouseChange::default();
    if let Some(storage_fields) = storage_config_info {
        let storage_fields = storage::read(storage_fields)?;
        storage::require_kind(&storage_fields, &record.root)?;
        // Equal locations are no change: the configured warehouse accepts none.
        let locations = storage::others(&storage_fields, &record.root);
        change.locations = Some(locations)
            .filter(|it| storage_fields.allowed_locations.is_some() && *it != record.locations);
        let settings = storage::settings(&storage_fields, Some(&record.storage));
        change.storage = Some(settings).filter(|it| *it != record.storage);
    }
    let properties = properties.map(|mut properties| match properties.remove(BASE) {
        Some(base) if base.trim_end_matches('/') != record.root => {
            Err(bad(format!("`{BASE}` does not change: it is {}", record.root)))
        }
        _ => Ok(properties),
    });
    let entity =
        EntityChange { version: current_entity_version, properties: properties.transpose()? };
    let catalog = &input.context.catalog;
    catalog.warehouses().update_with(&input.who, name, change, Some(entity)).await?;
    answer::of(&load(input, name).await?)
}

pub(super) async fn delete(input: &CatalogRequest<'_>) -> Result<Response> {
    only_operators(&input.who)?;
    let name = input.param("warehouse")?;
    input.context.catalog.warehouses().delete(&input.who, name, false).await?;
    Ok(answer::done())
}
