//! Agents and their versions.

use node::store::{SqlRow, SqlStoreError, SqlValue, StoreTransaction};

use super::access::TableAccess;
use super::layers;
use super::rows::{AgentRow, SealedBlob, VersionRow};
use super::schema::{SessionColumns, json, number, text, text_or_null};
use crate::error::SessionError;

const AGENT: &str = "id, tenant, name, description, active_version, last_version, settings, \
    limits, options, env, env_names, created_ms, updated_ms, grants";

const VERSION: &str = "agent_id, version, runtime, chain, folder, listing, files, bytes, \
    install_output, created_ms";

/// Outcome of the deployment of an agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DeployOutcome {
    /// Agent after the deployment, with its id and the time of its first version.
    pub(crate) agent: AgentRow,
    /// True if this was its first version.
    pub(crate) is_new: bool,
}

/// Maximum number of versions of one agent: each has a layer and a copy of its folder.
const VERSIONS_MAX: u64 = 1000;

/// Agents and their versions.
#[derive(Clone, Debug)]
pub(crate) struct AgentTable(pub(super) TableAccess);

impl AgentTable {
    /// Creates an agent, or a new version of the one with this name, and activates it: it is
    /// `agent.last_version` of the result. The id, the versions and `created_ms` of `agent` apply
    /// only to a new agent; `agent_id` and `version` of `version` are ignored.
    ///
    /// # Errors
    /// `TooMany` if the tenant has `agents_max` agents; `NotFound` for a layer of the version's
    /// chain; `Conflict` if the existing agent's id differs from the one for which the environment
    /// is sealed.
    pub(crate) async fn deploy(
        &self,
        agent: AgentRow,
        version: VersionRow,
        agents_max: u64,
    ) -> Result<DeployOutcome, SessionError> {
        self.0.write("agents.deploy", move |it| deploy(it, &agent, &version, agents_max)).await
    }

    /// Returns an agent of a tenant by its name.
    pub(crate) async fn find(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<Option<AgentRow>, SessionError> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        self.0.read("agents.get", move |it| get(it, &tenant, &name)).await
    }

    /// Returns an agent of any tenant by its id, for requests that are not made on behalf of a
    /// tenant.
    pub(crate) async fn by_id(&self, id: &str) -> Result<Option<AgentRow>, SessionError> {
        let sql = format!("SELECT {AGENT} FROM agents WHERE id = $1");
        let first = |rows: &[SqlRow]| rows.first().map(agent).transpose();
        self.0.select("agents.by_id", sql, vec![text(id)], first).await
    }

    /// Returns all agents of a tenant, by name.
    pub(crate) async fn list(&self, tenant: &str) -> Result<Vec<AgentRow>, SessionError> {
        let sql = format!("SELECT {AGENT} FROM agents WHERE tenant = $1");
        let mut agents = self.select_all("agents.list", sql, vec![text(tenant)]).await?;
        // Sorted here, because collations differ between databases.
        agents.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(agents)
    }

    /// Returns all agents of all tenants, for preparing sandboxes at startup.
    pub(crate) async fn all(&self) -> Result<Vec<AgentRow>, SessionError> {
        self.select_all("agents.all", format!("SELECT {AGENT} FROM agents"), Vec::new()).await
    }

    async fn select_all(
        &self,
        name: &'static str,
        sql: String,
        parameters: Vec<SqlValue>,
    ) -> Result<Vec<AgentRow>, SessionError> {
        self.0.read(name, move |it| it.query(&sql, &parameters)?.iter().map(agent).collect()).await
    }

    /// Changes an agent's description, settings, limits, options, environment or active version;
    /// other columns stay. `change` may run again, on the unchanged row.
    ///
    /// # Errors
    /// `NotFound` if there is no such agent or version, and the errors of `change`.
    pub(crate) async fn update(
        &self,
        tenant: &str,
        name: &str,
        mut change: impl FnMut(&mut AgentRow) -> Result<(), SessionError> + Send + 'static,
    ) -> Result<AgentRow, SessionError> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        self.0
            .write("agents.update", move |it| {
                let found = get(it, &tenant, &name)?;
                let mut row =
                    found.ok_or_else(|| SqlStoreError::refuse(SessionError::NotFound("agent")))?;
                let before = row.active_version;
                change(&mut row).map_err(SqlStoreError::refuse)?;
                if row.active_version != before
                    && version(it, &row.id, row.active_version)?.is_none()
                {
                    return Err(SqlStoreError::refuse(SessionError::NotFound("version")));
                }
                update(it, &row)?;
                Ok(row)
            })
            .await
    }

    /// Deletes an agent with its versions, and returns its row with the object keys of its folders.
    /// Its sessions keep their layers.
    pub(crate) async fn delete(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<Option<(AgentRow, Vec<String>)>, SessionError> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        self.0
            .write("agents.delete", move |it| {
                let Some(row) = get(it, &tenant, &name)? else { return Ok(None) };
                let mut folders = Vec::new();
                for version in versions(it, &row.id)? {
                    layers::use_chain(it, &user(&row.id, version.version), &[])?;
                    folders.extend(version.folder);
                }
                let id = [text(&row.id)];
                it.execute("DELETE FROM agent_versions WHERE agent_id = $1", &id)?;
                it.execute("DELETE FROM agents WHERE id = $1", &id)?;
                Ok(Some((row, folders)))
            })
            .await
    }

    /// Returns all versions of an agent, newest first.
    pub(crate) async fn versions(&self, agent_id: &str) -> Result<Vec<VersionRow>, SessionError> {
        let id = agent_id.to_owned();
        self.0.read("agents.versions", move |it| versions(it, &id)).await
    }

    /// Reads a version of an agent.
    pub(crate) async fn version(
        &self,
        agent_id: &str,
        number: u32,
    ) -> Result<Option<VersionRow>, SessionError> {
        let parameters = vec![text(agent_id), number.into()];
        let first = |rows: &[SqlRow]| rows.first().map(version_row).transpose();
        self.0.select("agents.version", version_by_number(), parameters, first).await
    }

    /// Deletes a version that is not the active one. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// `Conflict` for the active one.
    pub(crate) async fn delete_version(
        &self,
        agent_id: &str,
        number: u32,
    ) -> Result<Option<VersionRow>, SessionError> {
        let id = agent_id.to_owned();
        self.0
            .write("agents.delete_version", move |it| {
                let Some(found) = version(it, &id, number)? else { return Ok(None) };
                let parameters = [text(&id), number.into()];
                let active = "SELECT id FROM agents WHERE id = $1 AND active_version = $2";
                if it.query_one(active, &parameters)?.is_some() {
                    let message = "the active version cannot be removed".to_owned();
                    return Err(SqlStoreError::refuse(SessionError::Conflict(message)));
                }
                layers::use_chain(it, &user(&id, number), &[])?;
                let sql = "DELETE FROM agent_versions WHERE agent_id = $1 AND version = $2";
                it.execute(sql, &parameters)?;
                Ok(Some(found))
            })
            .await
    }
}

fn agent(row: &SqlRow) -> Result<AgentRow, SqlStoreError> {
    let mut columns = SessionColumns::of(row);
    Ok(AgentRow {
        id: columns.text()?,
        tenant: columns.text()?,
        name: columns.text()?,
        description: columns.text_or_null()?,
        active_version: columns.take()?,
        last_version: columns.take()?,
        settings: columns.json()?,
        limits: columns.json()?,
        options: columns.json()?,
        env: columns.take::<Option<Vec<u8>>>()?.map(SealedBlob),
        env_names: columns.json()?,
        created_ms: columns.take()?,
        updated_ms: columns.take()?,
        grants: columns.json_or_default()?,
    })
}

fn get(
    transaction: &mut dyn StoreTransaction,
    tenant: &str,
    name: &str,
) -> Result<Option<AgentRow>, SqlStoreError> {
    let sql = format!("SELECT {AGENT} FROM agents WHERE tenant = $1 AND name = $2");
    let found = transaction.query_one(&sql, &[text(tenant), text(name)])?;
    found.map(|found| agent(&found)).transpose()
}

fn version_row(row: &SqlRow) -> Result<VersionRow, SqlStoreError> {
    let mut columns = SessionColumns::of(row);
    Ok(VersionRow {
        agent_id: columns.text()?,
        version: columns.take()?,
        runtime: columns.json()?,
        chain: columns.json()?,
        folder: columns.text_or_null()?,
        listing: columns.json()?,
        files: columns.take()?,
        bytes: columns.take()?,
        install_output: columns.text_or_null()?,
        created_ms: columns.take()?,
    })
}

fn version(
    transaction: &mut dyn StoreTransaction,
    agent_id: &str,
    number: u32,
) -> Result<Option<VersionRow>, SqlStoreError> {
    let found = transaction.query_one(&version_by_number(), &[text(agent_id), number.into()])?;
    found.map(|found| version_row(&found)).transpose()
}

fn version_by_number() -> String {
    format!("SELECT {VERSION} FROM agent_versions WHERE agent_id = $1 AND version = $2")
}

fn versions(
    transaction: &mut dyn StoreTransaction,
    agent_id: &str,
) -> Result<Vec<VersionRow>, SqlStoreError> {
    let sql =
        format!("SELECT {VERSION} FROM agent_versions WHERE agent_id = $1 ORDER BY version DESC");
    transaction.query(&sql, &[text(agent_id)])?.iter().map(version_row).collect()
}

/// Rejects another version of an agent that has reached the limit.
fn check_versions(
    transaction: &mut dyn StoreTransaction,
    agent: &AgentRow,
) -> Result<(), SqlStoreError> {
    let sql = "SELECT COUNT(*) FROM agent_versions WHERE agent_id = $1";
    let count = transaction.query_one(sql, &[text(&agent.id)])?;
    if count.map_or(Ok(0), |row| row.get::<u64>(0))? < VERSIONS_MAX {
        return Ok(());
    }
    let message = format!(
        "the agent \"{}\" has {VERSIONS_MAX} versions, as many as one may have; delete some first",
        agent.name
    );
    Err(SqlStoreError::refuse(SessionError::TooMany(message)))
}

/// Returns the name of a version among the users of layers.
fn user(agent_id: &str, version: u32) -> String {
    format!("agent:{agent_id}:{version}")
}

fn deploy(
    transaction: &mut dyn StoreTransaction,
    new: &AgentRow,
    version: &VersionRow,
    agents_max: u64,
) -> Result<DeployOutcome, SqlStoreError> {
    let before = get(transaction, &new.tenant, &new.name)?;
    let is_new = before.is_none();
    let number = before.as_ref().map_or(1, |before| before.last_version + 1);
    let mut agent = new.clone();
    agent.active_version = number;
    agent.last_version = number;
    if let Some(before) = before {
        if before.id != new.id && new.env.is_some() {
            // An environment sealed for one id cannot be opened for another.
            let message = "the agent was deployed concurrently".to_owned();
            return Err(SqlStoreError::refuse(SessionError::Conflict(message)));
        }
        agent.id = before.id;
        agent.created_ms = before.created_ms;
        check_versions(transaction, &agent)?;
        update(transaction, &agent)?;
    } else {
        let count = "SELECT COUNT(*) FROM agents WHERE tenant = $1";
        let count = transaction.query_one(count, &[text(&agent.tenant)])?;
        if count.map_or(Ok(0), |row| row.get::<u64>(0))? >= agents_max {
            let message = format!("a tenant may have {agents_max} agents");
            return Err(SqlStoreError::refuse(SessionError::TooMany(message)));
        }
        insert(transaction, &agent)?;
    }
    insert_version(transaction, &agent.id, number, version)?;
    Ok(DeployOutcome { agent, is_new })
}

/// Updates all columns except those that only [`insert`] writes: id, tenant, name and creation
/// time.
fn update(transaction: &mut dyn StoreTransaction, agent: &AgentRow) -> Result<(), SqlStoreError> {
    let sql = "UPDATE agents SET description = $2, active_version = $3, last_version = $4, \
        settings = $5, limits = $6, options = $7, env = $8, env_names = $9, updated_ms = $10, \
        grants = $11 WHERE id = $1";
    let mut parameters = vec![text(&agent.id)];
    parameters.extend(changeable(agent)?);
    transaction.execute(sql, &parameters).map(drop)
}

fn insert(transaction: &mut dyn StoreTransaction, agent: &AgentRow) -> Result<(), SqlStoreError> {
    // Without `ON CONFLICT`, a concurrent deployment of the same name would fail with a constraint
    // error; with it the transaction conflicts, and finds the name when it runs again.
    let sql = "INSERT INTO agents (id, tenant, name, created_ms, description, active_version, \
        last_version, settings, limits, options, env, env_names, updated_ms, grants) \
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT DO NOTHING";
    let fixed = [text(&agent.id), text(&agent.tenant), text(&agent.name), number(agent.created_ms)];
    let mut parameters = fixed.to_vec();
    parameters.extend(changeable(agent)?);
    if transaction.execute(sql, &parameters)? == 0 {
        let message = format!("another agent has the id {}", agent.id);
        return Err(SqlStoreError::refuse(SessionError::Conflict(message)));
    }
    Ok(())
}

fn changeable(agent: &AgentRow) -> Result<[SqlValue; 10], SqlStoreError> {
    Ok([
        text_or_null(agent.description.as_deref()),
        agent.active_version.into(),
        agent.last_version.into(),
        json(&agent.settings)?,
        json(&agent.limits)?,
        json(&agent.options)?,
        agent.env.as_ref().map_or(SqlValue::Null, |sealed| SqlValue::Blob(sealed.0.clone())),
        json(&agent.env_names)?,
        number(agent.updated_ms),
        json(&agent.grants)?,
    ])
}

fn insert_version(
    transaction: &mut dyn StoreTransaction,
    agent_id: &str,
    version: u32,
    row: &VersionRow,
) -> Result<(), SqlStoreError> {
    let sql = "INSERT INTO agent_versions (agent_id, version, runtime, chain, folder, listing, \
        files, bytes, install_output, created_ms) \
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    let parameters = [
        text(agent_id),
        version.into(),
        json(&row.runtime)?,
        json(&row.chain)?,
        text_or_null(row.folder.as_deref()),
        json(&row.listing)?,
        number(row.files),
        number(row.bytes),
        text_or_null(row.install_output.as_deref()),
        number(row.created_ms),
    ];
    transaction.execute(sql, &parameters)?;
    layers::begin_chain(transaction, &user(agent_id, version), &row.chain)
}
