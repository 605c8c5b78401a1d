//! New views: from a client's request to the first document.

use super::update::ViewBuilder;
use super::{ViewDoc, ViewUpdate, ViewVersion};
use crate::create::{location_of, object, properties_of, text};
use crate::doc::TableProperties;
use crate::error::illegal;
use crate::ident::Uuid;
use crate::json::RawJson;
use crate::{CatalogError, ErrorReason, Result};

/// Id of a view's first version.
const VERSION_ID_FIRST: i32 = 1;

/// Request to create a view.
#[derive(Clone, Debug)]
pub struct CreateView {
    /// Name within its namespace. Not checked.
    pub name: String,
    /// Location of its metadata, if the client sets it.
    pub location: Option<String>,
    /// Schema of its rows.
    pub schema: RawJson,
    /// First version of the view.
    pub version: ViewVersion,
    /// Properties.
    pub properties: TableProperties,
}

impl CreateView {
    /// Parses the body of a request.
    ///
    /// # Errors
    /// `BadRequest` or `IllegalArgument` if it is malformed.
    pub fn parse(body: &RawJson) -> Result<CreateView> {
        let missing = |name| {
            CatalogError::new(
                ErrorReason::BadRequest,
                format!("Cannot parse missing field: {name}"),
            )
        };
        let [version, name, location, schema, properties] =
            body.all_present(["view-version", "name", "location", "schema", "properties"]);
        let version = object("view-version", version)?.ok_or_else(|| missing("view-version"))?;
        Ok(CreateView {
            name: text("name", name)?.ok_or_else(|| missing("name"))?,
            location: location_of(location)?,
            schema: object("schema", schema)?.ok_or_else(|| missing("schema"))?,
            version: ViewVersion::read(version)?,
            properties: properties_of(properties)?,
        })
    }

    /// Creates the first document of the view. The version and the schema receive the first ids.
    ///
    /// # Errors
    /// `Validation` or `IllegalArgument` if the view would be invalid.
    pub fn document(&self, uuid: Uuid, location: &str, now_ms: i64) -> Result<ViewDoc> {
        let others = self.version.other_types();
        if !others.is_empty() {
            let others = others.join(", ");
            return Err(illegal(format!(
                "Found unsupported view representations: [{others:.200}]"
            )));
        }
        if self.version.dialects()?.is_empty() {
            return Err(illegal("Cannot create view without specifying a query"));
        }
        let doc = ViewDoc::empty(&uuid.to_string(), location);
        let mut builder = ViewBuilder::new(doc, now_ms);
        let version = ViewVersion {
            id: VERSION_ID_FIRST,
            schema_id: super::update::LAST_ADDED,
            ..self.version.clone()
        };
        builder.run(&[
            ViewUpdate::SetProperties(self.properties.clone()),
            ViewUpdate::AddSchema(self.schema.clone()),
            ViewUpdate::AddViewVersion(version),
            ViewUpdate::SetCurrentViewVersion(super::update::LAST_ADDED),
        ])?;
        builder.finish(None)
    }
}
