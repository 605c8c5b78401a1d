//! Policies: the part of a table that a principal may read if it has the right to read the table.
//! Clients that load the table receive them and apply them, as does scan planning.
//!
//! Several policies for one principal all apply. A token limited to one role lifts none.

use std::collections::HashMap;
use std::sync::Arc;

use iceberg::ident::{NamespaceIdent, TableIdent};
use iceberg::json::RawJson;
use iceberg::schema::{MaskAction, RestrictableColumns};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::grants::RightTrees;
use super::principal_ids::{GUEST_PREFIX, RESTRICTED, check_principal};
use super::roles::RoleMembership;
use super::{AccessControl, RightSet};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::{AccessRight, CatalogPrincipal, RightTarget, TableRestrictions};
use crate::warehouse::Warehouse;

/// Most policies.
pub const POLICIES_MAX: usize = 10_000;

/// Most columns with a projection in one policy.
pub const PROJECTIONS_MAX: usize = 500;

/// Most bytes of all policies of a table together: they may have to be sent in one response.
pub const TABLE_POLICIES_BYTES_MAX: usize = 32 << 10;

/// Longest name of a policy, in bytes.
const NAME_BYTES_MAX: usize = 100;

/// Principal that matches everyone but operators.
const EVERYBODY: &str = "*";

/// Requested policy.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct NewPolicy {
    /// Restricted principal: a principal or a role, `grant:` and a tenant for what its sandboxes
    /// were granted, or `*` for all but operators. A policy of a tenant also restricts its
    /// sandboxes.
    pub principal: String,
    /// Namespace of the table.
    pub namespace: NamespaceIdent,
    /// Name of the table.
    pub table: String,
    /// Rows that the principal may read, as an Iceberg REST predicate; `None` for all rows.
    #[serde(default)]
    pub row_filter: Option<Value>,
    /// Projections of columns.
    #[serde(default)]
    pub column_projections: Vec<NewProjection>,
    /// True if the principal is trusted to obey the policy with credentials for the table's files.
    #[serde(default)]
    pub trusted: bool,
}

/// Projection of a column.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct NewProjection {
    /// Name.
    #[serde(default)]
    pub column: Option<String>,
    /// Field id of the column, instead of its name.
    #[serde(default)]
    pub field_id: Option<i32>,
    /// The name of a [`MaskAction`].
    pub action: String,
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PolicyRecord {
    /// Name in its warehouse.
    pub name: String,
    /// Restricted principal.
    pub principal: String,
    /// Current namespace of the table.
    pub namespace: NamespaceIdent,
    /// Current name of the table.
    pub table: String,
    /// Restrictions, and whether the principal is trusted.
    #[serde(flatten)]
    pub body: PolicyBody,
}

/// Principal and policy of a preview.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PolicyPreviewRequest {
    /// Principal whose read access is shown: a principal, a role, or `grant:` and a tenant.
    pub principal: String,
    /// The policy, as it would be saved.
    pub policy: NewPolicy,
}

/// Comparison of a principal's read access to a table without and with a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PolicyPreview {
    /// The principal.
    pub principal: String,
    /// Rights that it has to the table, by grants to itself and to its roles; none for `grant:`,
    /// whose sandboxes have those of their own grants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rights: Option<RightSet>,
    /// True if the policy restricts it: it is the policy's principal, or has that role.
    pub applies: bool,
    /// Scope of reading as it is now.
    pub now: ReadScope,
    /// With the policy, in place of the one of its name.
    pub then: ReadScope,
}

/// Part of a table that a principal may read, as far as its rights go.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ReadScope {
    /// Names of the policies that restrict it, in order.
    pub policies: Vec<String>,
    /// Rows that it may read; none for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_filter: Option<Value>,
    /// Columns that are shown in another way, by id.
    pub column_projections: Vec<ColumnProjection>,
    /// True if it gets credentials for the table's files.
    pub files: bool,
}

/// Content of a policy, bound to ids of columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PolicyBody {
    /// Filter of rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_filter: Option<Value>,
    /// Projections of columns.
    #[serde(default)]
    pub column_projections: Vec<ColumnProjection>,
    /// True if its principal may have credentials for the table's files.
    pub trusted: bool,
}

/// Projection of a column, by its id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ColumnProjection {
    /// Id of the column.
    pub field_id: i32,
    /// The name of a [`MaskAction`].
    pub action: String,
}

impl PolicyRecord {
    fn named_body(&self) -> (&str, &PolicyBody) {
        (&self.name, &self.body)
    }
}

impl TableRestrictions {
    fn add(&mut self, body: &PolicyBody) {
        self.is_trusted &= body.trusted;
        if let Some(filter) = &body.row_filter {
            self.row_filter = Some(match self.row_filter.take() {
                None => filter.clone(),
                Some(others) => json!({"type": "and", "left": others, "right": filter}),
            });
        }
        for ColumnProjection { field_id, action } in &body.column_projections {
            // An action that is unknown to this version hides the value.
            let action = MaskAction::of(action).unwrap_or(MaskAction::ReplaceWithNull);
            let projection = self.projections.entry(*field_id).or_insert(action);
            *projection = projection.stricter(action);
        }
    }
}

impl NewPolicy {
    /// Binds the policy to a table with this schema.
    fn bind(&self, schema: &RawJson) -> Result<PolicyBody> {
        let refuse = |message: String| Err(CatalogError::new(ErrorReason::BadRequest, message));
        if self.row_filter.is_none() && self.column_projections.is_empty() {
            return refuse("a policy has a `row-filter` or `column-projections`".to_owned());
        }
        if self.column_projections.len() > PROJECTIONS_MAX {
            return refuse(format!("`column-projections` has more than {PROJECTIONS_MAX} columns"));
        }
        let table = RestrictableColumns::of(schema)?;
        let row_filter = self.row_filter.as_ref().map(|filter| table.bind(filter)).transpose()?;
        let mut column_projections: Vec<ColumnProjection> = Vec::new();
        for NewProjection { column, field_id, action } in &self.column_projections {
            let Some(known) = MaskAction::of(action) else {
                return refuse(format!("`column-projections`: `{action:.40}` is not an action"));
            };
            let reference = match (column, field_id) {
                (Some(name), None) => Value::from(name.as_str()),
                (None, Some(id)) => Value::from(*id),
                _ => return refuse("a projection has a `column` or a `field-id`".to_owned()),
            };
            let field_id = table.project(&reference, known)?;
            if column_projections.iter().any(|it| it.field_id == field_id) {
                return refuse(format!("`column-projections` has the column {field_id} twice"));
            }
            column_projections.push(ColumnProjection { field_id, action: action.clone() });
        }
        Ok(PolicyBody { row_filter, column_projections, trusted: self.trusted })
    }
}

/// All policies, by warehouse id and table.
#[derive(Debug, Default)]
pub(super) struct PolicyIndex(HashMap<Box<str>, HashMap<TableIdent, Vec<PolicyRecord>>>);

impl PolicyIndex {
    /// Creates the index of the policies in the store, each with the id of its warehouse.
    pub(super) fn new(all: Vec<(Box<str>, PolicyRecord)>) -> PolicyIndex {
        let mut policies = PolicyIndex::default();
        for (warehouse, policy) in all {
            let ident =
                TableIdent { namespace: policy.namespace.clone(), name: (*policy.table).into() };
            let tables = policies.0.entry(warehouse).or_default();
            tables.entry(ident).or_default().push(policy);
        }
        policies
    }

    fn restrictions(
        &self,
        who: &CatalogPrincipal,
        warehouse: &str,
        ident: &TableIdent,
        roles: &RoleMembership,
    ) -> Option<TableRestrictions> {
        let all = self.0.get(warehouse)?.get(ident)?;
        let own = roles.every_principal(who);
        let mut sum = TableRestrictions { is_trusted: true, ..TableRestrictions::default() };
        let mut is_restricted = false;
        for policy in all {
            if policy.principal == EVERYBODY || own.contains(&policy.principal) {
                sum.add(&policy.body);
                is_restricted = true;
            }
        }
        is_restricted.then_some(sum)
    }
}

impl ReadScope {
    /// Combines policies into the restrictions of a table.
    fn of<'a>(
        policies: impl Iterator<Item = (&'a str, &'a PolicyBody)>,
        is_reader: bool,
    ) -> ReadScope {
        let mut all: Vec<_> = policies.collect();
        all.sort_by_key(|(name, _)| *name);
        let mut sum = TableRestrictions { is_trusted: true, ..TableRestrictions::default() };
        all.iter().for_each(|(_, body)| sum.add(body));
        let column_projections = sum.projections.iter().map(|(id, action)| ColumnProjection {
            field_id: *id,
            action: action.name().to_owned(),
        });
        ReadScope {
            policies: all.iter().map(|(name, _)| (*name).to_owned()).collect(),
            row_filter: sum.row_filter,
            column_projections: column_projections.collect(),
            files: sum.is_trusted && is_reader,
        }
    }
}

fn check_name(name: &str) -> Result<()> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_name) {
        return Ok(());
    }
    let message = format!(
        "the name of a policy has 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` and `.` of ASCII"
    );
    Err(CatalogError::new(ErrorReason::BadRequest, message))
}

/// Policies on rows and columns.
#[derive(Clone, Copy, Debug)]
pub struct PolicyRegistry<'a>(pub(super) &'a AccessControl);

impl PolicyRegistry<'_> {
    /// Rejects a caller that may not set policies in a warehouse.
    ///
    /// # Errors
    /// `Forbidden` without the right to grant on the warehouse.
    pub fn may_restrict(self, who: &CatalogPrincipal, warehouse: &Warehouse) -> Result<()> {
        self.0.may_grant(who, warehouse, RightTarget::Warehouse, RightSet::NONE)
    }

    /// Creates or replaces a policy. `schema` is that of the table.
    ///
    /// # Errors
    /// `Forbidden` of [`PolicyRegistry::may_restrict`]; `BadRequest`, which names the field;
    /// `NotFound` if the role or client does not exist; `NoSuchTable`.
    pub async fn put_policy(
        self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        name: &str,
        new: &NewPolicy,
        schema: &RawJson,
    ) -> Result<PolicyRecord> {
        self.may_restrict(who, warehouse)?;
        check_name(name)?;
        if new.principal != EVERYBODY {
            check_principal(&new.principal, RESTRICTED)?;
        }
        TableIdent::check_name(&new.table)?;
        let policy = PolicyRecord {
            name: name.to_owned(),
            principal: new.principal.clone(),
            namespace: new.namespace.clone(),
            table: new.table.clone(),
            body: new.bind(schema)?,
        };
        self.0.0.store.put_policy(warehouse.id(), &policy).await?;
        self.0.changed().await?;
        Ok(policy)
    }

    /// Returns what a principal may read of a table now, and with a policy. Nothing is saved.
    /// `schema` is that of the table.
    ///
    /// The groups of an identity provider's principal are known only from its tokens: preview the
    /// group instead.
    ///
    /// # Errors
    /// Those of [`PolicyRegistry::put_policy`], except for the limits of all policies together.
    pub fn preview_policy(
        self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        name: &str,
        request: &PolicyPreviewRequest,
        schema: &RawJson,
    ) -> Result<PolicyPreview> {
        self.may_restrict(who, warehouse)?;
        check_name(name)?;
        let PolicyPreviewRequest { principal, policy: new } = request;
        check_principal(principal, RESTRICTED)?;
        let ident = TableIdent::new(new.namespace.clone(), &new.table)?;
        let body = new.bind(schema)?;
        let loaded = self.0.0.loaded.read();
        if new.principal != EVERYBODY {
            check_principal(&new.principal, RESTRICTED)?;
            loaded.roles.require_principal(&new.principal)?;
        }
        loaded.roles.require_principal(principal)?;
        let is = loaded.roles.principals_of_id(principal);
        let trees = RightTrees::of_all(is.iter().filter_map(|id| loaded.grants.of(id)));
        let object = RightTarget::Relation(&ident);
        let is_guest = principal.starts_with(GUEST_PREFIX);
        let rights = (!is_guest).then(|| trees.rights(warehouse.id(), object).with_implied());
        let is_reader = rights.is_none_or(|rights| rights.allow(AccessRight::Read));
        let restricts = |of: &str| of == EVERYBODY || is.iter().any(|id| id == of);
        let all = loaded.policies.0.get(&**warehouse.id()).and_then(|it| it.get(&ident));
        let kept = || all.into_iter().flatten().filter(|it| restricts(&it.principal));
        let applies = restricts(&new.principal);
        let others = kept().filter(|it| it.name != name).map(PolicyRecord::named_body);
        let then = others.chain(applies.then_some((name, &body)));
        Ok(PolicyPreview {
            principal: principal.clone(),
            rights,
            applies,
            now: ReadScope::of(kept().map(PolicyRecord::named_body), is_reader),
            then: ReadScope::of(then, is_reader),
        })
    }

    /// Removes a policy.
    ///
    /// # Errors
    /// `Forbidden` of [`PolicyRegistry::may_restrict`]; `NotFound`.
    pub async fn delete_policy(
        self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        name: &str,
    ) -> Result<()> {
        self.may_restrict(who, warehouse)?;
        self.0.0.store.delete_policy(warehouse.id(), name).await?;
        self.0.changed().await
    }

    /// Returns the policies of a warehouse, by name.
    ///
    /// # Errors
    /// `Forbidden` of [`PolicyRegistry::may_restrict`].
    pub fn list(self, who: &CatalogPrincipal, warehouse: &Warehouse) -> Result<Vec<PolicyRecord>> {
        self.may_restrict(who, warehouse)?;
        let loaded = self.0.0.loaded.read();
        let tables = loaded.policies.0.get(&**warehouse.id());
        let mut all: Vec<PolicyRecord> =
            tables.into_iter().flat_map(HashMap::values).flatten().cloned().collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }

    /// Returns the restrictions of a principal on a table; `None` if it may read all of it.
    pub(super) fn restrictions_of(
        self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        ident: &TableIdent,
    ) -> Option<Arc<TableRestrictions>> {
        let loaded = self.0.0.loaded.read();
        let roles = &loaded.roles;
        loaded.policies.restrictions(who, warehouse.id(), ident, roles).map(Arc::new)
    }
}

pub(super) fn no_such(name: &str) -> CatalogError {
    let excerpt: String = name.chars().take(NAME_BYTES_MAX).collect();
    CatalogError::new(ErrorReason::NotFound, format!("Policy does not exist: {excerpt}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(filter: Option<Value>, projections: &[(i32, &str)], trusted: bool) -> PolicyBody {
        let projections = projections.iter();
        let column_projections = projections
            .map(|(id, action)| ColumnProjection { field_id: *id, action: (*action).to_owned() })
            .collect();
        PolicyBody { row_filter: filter, column_projections, trusted }
    }

    #[test]
    fn several_policies_restrict_by_all_of_them() {
        let mut sum = TableRestrictions { is_trusted: true, ..TableRestrictions::default() };
        sum.add(&body(Some(json!({"a": 1})), &[(1, "show-last-4")], true));
        sum.add(&body(None, &[(1, "replace-with-null"), (2, "mask-alphanum")], true));
        sum.add(&body(Some(json!({"b": 1})), &[(3, "of-a-later-version")], false));
        assert!(!sum.is_trusted);
        assert_eq!(
            serde_json::to_value(&sum).unwrap(),
            json!({
                "required-row-filter": {"type": "and", "left": {"a": 1}, "right": {"b": 1}},
                "required-column-projections": [
                    {"action": "replace-with-null", "field-id": 1},
                    {"action": "mask-alphanum", "field-id": 2},
                    {"action": "replace-with-null", "field-id": 3},
                ],
            })
        );
    }

    #[test]
    fn a_policy_is_bound_to_its_table_or_refused() {
        let schema = json!({"type": "struct", "fields": [
            {"id": 7, "name": "mail", "required": false, "type": "string"}]});
        let schema = RawJson::of(&schema).unwrap();
        let base = json!({"principal": "role:bi", "namespace": ["n"], "table": "t"});
        let with = |more: Value| {
            let mut all = base.clone();
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value::<NewPolicy>(all).unwrap()
        };
        let projected = |of: Value| with(json!({"column-projections": of}));
        let bound =
            projected(json!([{"column": "mail", "action": "show-last-4"}])).bind(&schema).unwrap();
        assert_eq!(bound, body(None, &[(7, "show-last-4")], false));
        for (policy, expected) in [
            (with(json!({})), "has a `row-filter`"),
            (with(json!({"row-filter": 5})), "`row-filter`"),
            (projected(json!([{"action": "show-last-4"}])), "`column` or a `field-id`"),
            (
                projected(json!([{"column": "mail", "field-id": 7, "action": "show-last-4"}])),
                "`column` or a `field-id`",
            ),
            (projected(json!([{"column": "mail", "action": "hide"}])), "`hide` is not an action"),
            (
                projected(json!([{"column": "mail", "action": "show-last-4"},
                    {"field-id": 7, "action": "show-first-4"}])),
                "twice",
            ),
        ] {
            let refused = policy.bind(&schema).unwrap_err();
            assert!(refused.message.contains(expected), "{}", refused.message);
        }
        for (name, expected) in [("eu-only", true), ("", false), ("a/b", false), ("ä", false)] {
            assert_eq!(check_name(name).is_ok(), expected, "{name}");
        }
    }
}
