//! Stored roles.

use node::clock;
use node::store::{SqlStoreError, SqlValue, StoreTransaction};

use super::{AccessStore, Stored, catalog_roles, require_room};
use crate::access::principal_ids::{CATALOG_ROLE_PREFIX, ROLE_PREFIX};
use crate::access::roles::{MEMBERS_MAX, MembersChange, ROLES_MAX, RoleRecord, no_such, principal};
use crate::access::{catalog_roles as catalog_role, clients};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::store::{EntityKey, Properties, entities, rights_changed};

impl AccessStore {
    /// Stores a new role.
    pub(in crate::access) async fn insert_role(
        &self,
        name: &str,
        members: &[String],
        properties: &Properties,
    ) -> Result<()> {
        let (name, members) = (name.to_owned(), members.to_vec());
        let (properties, now_ms) = (properties.clone(), clock::wall_ms());
        let written = self.0.transact("catalog.insert_role", move |it| {
            if is_there(it, &name)? {
                let message = format!("Role already exists: {name}");
                return Err(SqlStoreError::refuse(CatalogError::new(
                    ErrorReason::AlreadyExists,
                    message,
                )));
            }
            require_room(it, "SELECT COUNT(*) FROM catalog_roles", ROLES_MAX, "roles")?;
            it.execute("INSERT INTO catalog_roles (name) VALUES ($1)", &[SqlValue::from(&name)])?;
            add(it, &name, &members)?;
            entities::made(it, &EntityKey::role(&name), &properties, now_ms)?;
            rights_changed(it)
        });
        written.await
    }

    /// Changes the members of a role.
    pub(in crate::access) async fn change_members(
        &self,
        role: &str,
        to: &MembersChange,
    ) -> Result<()> {
        let (role, to) = (role.to_owned(), to.clone());
        let written = self.0.transact("catalog.change_members", move |it| {
            require(it, &role)?;
            for member in &to.remove {
                let sql = "DELETE FROM catalog_role_members WHERE role = $1 AND member = $2";
                it.execute(sql, &[SqlValue::from(&role), SqlValue::from(member)])?;
            }
            add(it, &role, &to.add)?;
            rights_changed(it)
        });
        written.await
    }

    /// Removes a role and the grants to it.
    pub(in crate::access) async fn delete_role(&self, role: &str) -> Result<()> {
        let role = role.to_owned();
        let written = self.0.transact("catalog.delete_role", move |it| {
            let sql = "DELETE FROM catalog_roles WHERE name = $1";
            if it.execute(sql, &[SqlValue::from(&role)])? == 0 {
                return Err(SqlStoreError::refuse(no_such(&role)));
            }
            for sql in [
                "DELETE FROM catalog_role_members WHERE role = $1",
                "DELETE FROM catalog_catalog_role_holders WHERE role = $1",
            ] {
                it.execute(sql, &[SqlValue::from(&role)])?;
            }
            forget_principal(it, &principal(&role))?;
            entities::delete(it, &EntityKey::role(&role))?;
            rights_changed(it)
        });
        written.await
    }
}

fn is_there(it: &mut dyn StoreTransaction, role: &str) -> Stored<bool> {
    let sql = "SELECT name FROM catalog_roles WHERE name = $1";
    Ok(it.query_one(sql, &[role.into()])?.is_some())
}

/// Rejects a role that does not exist.
pub(super) fn require(it: &mut dyn StoreTransaction, role: &str) -> Stored<()> {
    match is_there(it, role)? {
        true => Ok(()),
        false => Err(SqlStoreError::refuse(no_such(role))),
    }
}

/// Rejects grants in a warehouse to a role or client that does not exist: it would be a mistake,
/// and a later role or client of that name would receive the rights. Other principals are unknown
/// before their first request. Checked in the transaction that grants, because the state in memory
/// may be outdated.
pub(super) fn require_principal(
    it: &mut dyn StoreTransaction,
    warehouse: &str,
    id: &str,
) -> Stored<()> {
    if let Some(of_catalog) = id.strip_prefix(CATALOG_ROLE_PREFIX) {
        // A catalog role of another warehouse could never use rights here.
        return match of_catalog.split_once(':').filter(|(its, _)| *its == warehouse) {
            Some((_, name)) => catalog_roles::require(it, warehouse, name),
            None => Err(SqlStoreError::refuse(catalog_role::no_such(of_catalog))),
        };
    }
    if let Some(client) = id.strip_prefix(clients::PRINCIPAL_PREFIX) {
        let sql = "SELECT 1 FROM catalog_clients WHERE id = $1";
        return match it.query_one(sql, &[client.into()])? {
            Some(_) => Ok(()),
            None => Err(SqlStoreError::refuse(clients::no_such(client))),
        };
    }
    match id.strip_prefix(ROLE_PREFIX) {
        Some(role) => require(it, role),
        None => Ok(()),
    }
}

/// Removes the grants to a removed principal, and the policies that restrict it.
pub(super) fn forget_principal(it: &mut dyn StoreTransaction, principal: &str) -> Stored<()> {
    for sql in [
        "DELETE FROM catalog_rights WHERE principal = $1",
        "DELETE FROM catalog_policies WHERE principal = $1",
    ] {
        it.execute(sql, &[principal.into()])?;
    }
    Ok(())
}

fn add(it: &mut dyn StoreTransaction, role: &str, members: &[String]) -> Stored<()> {
    for member in members {
        let parameters = [SqlValue::from(role), SqlValue::from(member)];
        let sql = "SELECT member FROM catalog_role_members WHERE role = $1 AND member = $2";
        if it.query_one(sql, &parameters)?.is_none() {
            let sql = "INSERT INTO catalog_role_members (role, member) VALUES ($1, $2)";
            it.execute(sql, &parameters)?;
        }
    }
    let most = MEMBERS_MAX + 1;
    require_room(it, "SELECT COUNT(*) FROM catalog_role_members", most, "members of roles")
}

/// Returns all roles, by name, with their members in order.
pub(super) fn all(it: &mut dyn StoreTransaction) -> Stored<Vec<RoleRecord>> {
    let sql = "SELECT r.name, m.member FROM catalog_roles r LEFT JOIN catalog_role_members m \
        ON m.role = r.name ORDER BY r.name, m.member";
    let mut all: Vec<RoleRecord> = Vec::new();
    for row in it.query(sql, &[])? {
        let (name, member): (String, Option<String>) = (row.get(0)?, row.get(1)?);
        match all.last_mut() {
            Some(last) if last.name == name => last.members.extend(member),
            _ => all.push(RoleRecord { name, members: member.into_iter().collect() }),
        }
    }
    Ok(all)
}
