//! Conversion of definitions to a [`TenantRouting`]: every check, and the state that stays the same
//! across changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use api::{
    AuthQuerySpec, ClientTransportMode, PoolMode, TenantDefaults, TenantEngine, TenantOrigin,
    TenantSpec, TenantUserSpec, UserAuth, VerifyMode,
};
use pooler_core::pg::dial::LoginRules;

use wire::mysql::auth::MysqlSecret;

use super::{
    AuthQuery, BackendAddress, ClientAuth, DefinitionError, ServerAddress, ServerId, ServerSecret,
    ServerTls, TenantId, TenantLimits, TenantRouting, TenantSnapshot, TenantState, TenantUser,
    UserRuleSet,
};
use crate::config::{BouncerConfig, ServerTable};
use crate::secrets::{ClientSecret, PASSWORD_BYTES_MAX, Resolve, is_reference};

/// Longest name of a tenant.
pub(crate) const NAME_BYTES_MAX: usize = 63;

/// Names of users, roles, databases and settings are significant up to 63 bytes in PostgreSQL,
/// which truncates longer ones: two users must not become one role by that. MariaDB's users have up
/// to 128 characters and MySQL's fewer; both refuse longer ones.
const POSTGRES_IDENTIFIER_BYTES_MAX: usize = 63;
const MYSQL_IDENTIFIER_BYTES_MAX: usize = 128;

/// Maximum users listed by one tenant.
const USERS_MAX: usize = 10_000;

/// Maximum TLS server names of one tenant, and the maximum length of a name (RFC 1035).
const SERVER_NAMES_MAX: usize = 100;
const SERVER_NAME_BYTES_MAX: usize = 253;

/// Maximum settings of one tenant, and the maximum length of a value.
const SETTINGS_MAX: usize = 100;
const SETTING_BYTES_MAX: usize = 4096;

/// Maximum length of the query that looks users up.
const QUERY_BYTES_MAX: usize = 16 << 10;

/// Maximum weight.
const WEIGHT_MAX: u32 = 1000;

/// Name of the console's database.
const CONSOLE: &str = "pgbouncer";

/// A tenant's definition, with resolved passwords instead of references.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantDefinition {
    /// Definition.
    pub spec: TenantSpec,
    /// Origin.
    pub origin: TenantOrigin,
}

impl TenantDefinition {
    /// Creates the definition of a tenant of `cove.toml`, and resolves its references. `at` names
    /// it in errors.
    ///
    /// # Errors
    /// If the definition is invalid, or a reference cannot be resolved.
    pub fn of_file(
        spec: &TenantSpec,
        at: &str,
        resolve: &Resolve<'_>,
    ) -> Result<TenantDefinition, DefinitionError> {
        let mut spec = spec.clone();
        for (place, text) in passwords(&mut spec) {
            let field = format!("{at}.{place}");
            *text =
                resolve(&field, text).map_err(|message| DefinitionError::new(field, message))?;
        }
        let checked = TenantDefinition { spec, origin: TenantOrigin::File };
        check_name(&checked.spec.name).map_err(|error| error.below(at))?;
        Ok(checked)
    }

    /// Creates the definition of a tenant from the interface. References are refused: a caller
    /// could read files with them.
    ///
    /// # Errors
    /// If the definition is invalid.
    pub fn of_api(spec: TenantSpec) -> Result<TenantDefinition, DefinitionError> {
        let mut spec = spec;
        for (place, text) in passwords(&mut spec) {
            if is_reference(text) {
                return Err(DefinitionError::new(place, "references are for `cove.toml` only"));
            }
        }
        check_name(&spec.name)?;
        Ok(TenantDefinition { spec, origin: TenantOrigin::Api })
    }

    /// Creates the definition of a tenant from the store, which was checked before it was stored.
    pub(crate) fn of_store(spec: TenantSpec) -> TenantDefinition {
        TenantDefinition { spec, origin: TenantOrigin::Api }
    }
}

/// Returns every password of a tenant with its path.
pub(crate) fn passwords(spec: &mut TenantSpec) -> Vec<(String, &mut String)> {
    let mut found = Vec::new();
    found.extend(spec.server_password.as_mut().map(|it| ("server_password".to_owned(), it)));
    let query = spec.auth_query.as_mut().and_then(|it| it.password.as_mut());
    found.extend(query.map(|it| ("auth_query.password".to_owned(), it)));
    for (index, user) in spec.users.iter_mut().enumerate() {
        found.extend(user.password.as_mut().map(|it| (format!("users[{index}].password"), it)));
        let of_server = user.server_password.as_mut();
        found.extend(of_server.map(|it| (format!("users[{index}].server_password"), it)));
    }
    found
}

/// Settings of all tenants together.
#[derive(Clone, Debug, Default)]
pub struct SharedSettings {
    servers: BTreeMap<String, ServerTable>,
    server_connections_max: u32,
    server_name_suffix: Option<String>,
    tenants_max: usize,
    defaults: TenantDefaults,
    rules: Arc<UserRuleSet>,
}

impl SharedSettings {
    /// Takes the settings from the configuration.
    pub fn new(config: &BouncerConfig) -> SharedSettings {
        SharedSettings {
            servers: config.servers.clone(),
            server_connections_max: config.server_connections_max,
            server_name_suffix: config.server_name_suffix.clone(),
            tenants_max: config.tenants_max,
            defaults: config.defaults.clone(),
            rules: Arc::new(config.rules.clone()),
        }
    }
}

/// Assigns ids to tenants and servers, and keeps the state that outlives their definitions.
#[derive(Debug, Default)]
pub struct TenantRegistry {
    version: u64,
    /// A tenant with another protocol is a different one: their clients and connections have
    /// nothing in common.
    tenants: HashMap<(Arc<str>, TenantEngine), RegistryEntry>,
    servers: HashMap<(BackendAddress, ServerTls), ServerId>,
    pool_ids: Arc<AtomicU32>,
}

#[derive(Debug)]
struct RegistryEntry {
    id: TenantId,
    state: Arc<TenantState>,
    /// Parameters on which its server connections depend.
    target: Option<ServerTarget>,
    /// Users, with their credentials at the server.
    users: HashMap<Box<str>, Arc<TenantUser>>,
}

/// Parameters whose change makes open server connections unfit.
#[derive(Debug, PartialEq)]
struct ServerTarget {
    found_rows: bool,
    server: (BackendAddress, ServerTls),
    database: Arc<str>,
    forced: Option<(Arc<str>, Option<ClientSecret>)>,
    settings: BTreeMap<String, String>,
}

impl TenantRegistry {
    /// Creates the next snapshot. On an error nothing is changed.
    ///
    /// # Errors
    /// If a definition is invalid, or two conflict. The field begins with the tenant's name.
    pub fn build(
        &mut self,
        settings: &SharedSettings,
        definitions: &[TenantDefinition],
    ) -> Result<TenantRouting, DefinitionError> {
        if definitions.len() > settings.tenants_max {
            let message = format!("there may be {} tenants", settings.tenants_max);
            return Err(DefinitionError::new("tenants_max", message));
        }
        let mut drafts = Vec::with_capacity(definitions.len());
        let mut names = HashMap::new();
        for definition in definitions {
            let name = &definition.spec.name;
            let draft =
                TenantDraft::new(definition, settings).map_err(|error| error.below(name))?;
            if names.insert(name.as_str(), ()).is_some() {
                return Err(DefinitionError::new(name, format!("there are two tenants `{name}`")));
            }
            drafts.push(draft);
        }
        check_server_names(&drafts)?;
        check_servers(&drafts)?;
        // From here on no error is possible.
        Ok(self.number(settings, drafts))
    }

    fn number(&mut self, settings: &SharedSettings, drafts: Vec<TenantDraft>) -> TenantRouting {
        self.version += 1;
        let suffix = settings.server_name_suffix.as_deref();
        let mut routing = TenantRouting { version: self.version, ..TenantRouting::default() };
        let mut of_suffix: HashMap<Box<str>, Arc<TenantSnapshot>> = HashMap::new();
        let mut servers: HashMap<ServerId, Arc<ServerAddress>> = HashMap::new();
        for draft in drafts {
            let next = ServerId(u32::try_from(self.servers.len()).unwrap_or(u32::MAX));
            let key = (draft.address.clone(), draft.tls.clone());
            let id = *self.servers.entry(key).or_insert(next);
            let server = servers.entry(id).or_insert_with(|| {
                Arc::new(ServerAddress {
                    id,
                    address: draft.address.clone(),
                    connections_max: draft.connections_max,
                    tls: draft.tls.clone(),
                })
            });
            let server_names = draft.server_names.clone();
            let tenant = Arc::new(self.tenant(draft, Arc::clone(server)));
            for name in server_names {
                routing.by_server_name.insert(name, Arc::clone(&tenant));
            }
            if let Some(suffix) = suffix {
                let name = format!("{}{suffix}", tenant.name).to_ascii_lowercase();
                let first = of_suffix.entry(name.into()).or_insert_with(|| Arc::clone(&tenant));
                // DNS names are case-insensitive, tenants' names are not: the smallest of several
                // wins.
                if tenant.name < first.name {
                    *first = Arc::clone(&tenant);
                }
            }
            routing.offers.local_infile |= tenant.local_infile;
            routing.offers.found_rows |= tenant.found_rows;
            routing.by_id.insert(tenant.id, Arc::clone(&tenant));
            routing.by_name.insert(Arc::clone(&tenant.name), tenant);
        }
        for (name, tenant) in of_suffix {
            routing.by_server_name.entry(name).or_insert(tenant);
        }
        for ((name, engine), entry) in &self.tenants {
            let is_there = routing.named(name).is_some_and(|tenant| tenant.engine == *engine);
            entry.state.set_removed(!is_there);
        }
        routing
    }

    /// Assigns the id and the state of its name to a draft.
    fn tenant(&mut self, draft: TenantDraft, server: Arc<ServerAddress>) -> TenantSnapshot {
        let next = TenantId(u32::try_from(self.tenants.len()).unwrap_or(u32::MAX));
        let pool_ids = &self.pool_ids;
        let key = (Arc::clone(&draft.name), draft.engine);
        let entry = self.tenants.entry(key).or_insert_with(|| RegistryEntry {
            id: next,
            state: Arc::new(TenantState::new(Arc::clone(pool_ids))),
            target: None,
            users: HashMap::new(),
        });
        let target = ServerTarget {
            found_rows: draft.found_rows,
            server: (draft.address, draft.tls),
            database: Arc::clone(&draft.database),
            forced: draft.forced.clone(),
            settings: draft.settings.clone(),
        };
        let is_other = entry.target.as_ref().is_some_and(|before| *before != target);
        if is_other {
            entry.state.next_epoch();
        }
        if is_other || entry.users != draft.users {
            entry.state.next_revision();
        }
        entry.target = Some(target);
        entry.users.clone_from(&draft.users);
        let tenant = TenantSnapshot {
            id: entry.id,
            name: draft.name,
            engine: draft.engine,
            origin: draft.origin,
            server,
            database: draft.database,
            mode: draft.mode,
            limits: draft.limits,
            read_only: draft.read_only,
            weight: draft.weight,
            verify: draft.verify,
            transports: draft.transports,
            settings: draft.settings,
            local_infile: draft.local_infile,
            found_rows: draft.found_rows,
            users: draft.users,
            forced: draft.forced,
            auth_query: draft.auth_query,
            rules: draft.rules,
            state: Arc::clone(&entry.state),
            read_only_twin: None,
            is_twin: false,
        };
        let twin = (!tenant.read_only).then(|| Arc::new(read_only_twin(&tenant)));
        TenantSnapshot { read_only_twin: twin, ..tenant }
    }
}

/// Creates a tenant's twin for read-only clients.
fn read_only_twin(tenant: &TenantSnapshot) -> TenantSnapshot {
    let mut twin = TenantSnapshot { read_only: true, is_twin: true, ..tenant.clone() };
    make_read_only(twin.engine, &mut twin.settings);
    twin
}

/// Adds the settings that make a tenant's connections read-only.
fn make_read_only(engine: TenantEngine, settings: &mut BTreeMap<String, String>) {
    if engine == TenantEngine::Postgres {
        settings.insert("default_transaction_read_only".to_owned(), "on".to_owned());
    }
}

/// A tenant that was checked, except for conflicts with others.
struct TenantDraft {
    name: Arc<str>,
    engine: TenantEngine,
    origin: TenantOrigin,
    address: BackendAddress,
    tls: ServerTls,
    connections_max: u32,
    database: Arc<str>,
    mode: PoolMode,
    limits: TenantLimits,
    read_only: bool,
    weight: u32,
    verify: VerifyMode,
    transports: Option<Vec<ClientTransportMode>>,
    settings: BTreeMap<String, String>,
    local_infile: bool,
    found_rows: bool,
    users: HashMap<Box<str>, Arc<TenantUser>>,
    forced: Option<(Arc<str>, Option<ClientSecret>)>,
    auth_query: Option<AuthQuery>,
    rules: Arc<UserRuleSet>,
    server_names: Vec<Box<str>>,
}

impl TenantDraft {
    fn new(
        definition: &TenantDefinition,
        settings: &SharedSettings,
    ) -> Result<TenantDraft, DefinitionError> {
        let spec = &definition.spec;
        let defaults = &settings.defaults;
        check_engine(spec)?;
        let engine = spec.engine;
        let (address, tls, connections_max) = server(&spec.server, engine, settings)?;
        let database = spec.database.as_ref().unwrap_or(&spec.name);
        check_identifier(engine, "database", database)?;
        let forced = forced_role(spec)?;
        let query = spec.auth_query.as_ref();
        let auth_query = query.map(|query| auth_query(engine, query, database)).transpose()?;
        let weight = spec.weight.unwrap_or(1);
        if !(1..=WEIGHT_MAX).contains(&weight) {
            return Err(DefinitionError::new("weight", format!("must be 1 to {WEIGHT_MAX}")));
        }
        if spec.transports.as_ref().is_some_and(Vec::is_empty) {
            return Err(DefinitionError::new("transports", "must not be empty"));
        }
        Ok(TenantDraft {
            name: spec.name.as_str().into(),
            engine,
            origin: definition.origin,
            address,
            tls,
            connections_max,
            database: database.as_str().into(),
            mode: spec.pool_mode.unwrap_or(defaults.pool_mode),
            limits: TenantLimits::resolve(&spec.limits, &defaults.limits, "limits")?,
            read_only: spec.read_only,
            weight,
            verify: spec.verify.unwrap_or(defaults.verify),
            transports: spec.transports.clone(),
            settings: forced_settings(spec, defaults)?,
            local_infile: spec.local_infile.unwrap_or_default(),
            found_rows: spec.found_rows.unwrap_or_default(),
            users: users(spec, forced.as_ref(), &settings.rules)?,
            forced,
            auth_query,
            rules: Arc::clone(&settings.rules),
            server_names: server_names(spec)?,
        })
    }
}

/// Checks for settings that the engine does not support.
fn check_engine(spec: &TenantSpec) -> Result<(), DefinitionError> {
    let of_mysql = [("local_infile", spec.local_infile), ("found_rows", spec.found_rows)];
    match spec.engine {
        TenantEngine::Postgres => {
            match of_mysql.into_iter().find(|(_, is_said)| is_said.is_some()) {
                Some((field, _)) => {
                    let message = "is for tenants with `engine = \"mysql\"` only";
                    Err(DefinitionError::new(field, message))
                }
                None => Ok(()),
            }
        }
        TenantEngine::Mysql => {
            let users = spec.users.iter().enumerate();
            let mut secrets = users.flat_map(|(index, user)| {
                let of = |field: &str, text: &Option<String>| {
                    Some((format!("users[{index}].{field}"), text.clone()?))
                };
                [of("password", &user.password), of("server_password", &user.server_password)]
            });
            let of_server = spec.server_password.clone();
            let of_server = of_server.map(|text| ("server_password".to_owned(), text));
            let of_postgres = secrets
                .by_ref()
                .chain([of_server])
                .flatten()
                .find(|(_, text)| text.starts_with("SCRAM-SHA-256$"));
            match of_postgres {
                Some((field, _)) => {
                    let message = "is a secret of PostgreSQL, which proves nothing in MySQL: give \
                                   the password, or `*` and 40 hexadecimal digits";
                    Err(DefinitionError::new(field, message))
                }
                None => Ok(()),
            }
        }
    }
}

/// Role of all users on the server, and its password.
type ForcedRole = (Arc<str>, Option<ClientSecret>);

/// Returns the common role of all users on the server, if there is one.
fn forced_role(spec: &TenantSpec) -> Result<Option<ForcedRole>, DefinitionError> {
    match (&spec.server_user, &spec.server_password) {
        (Some(user), password) => {
            check_identifier(spec.engine, "server_user", user)?;
            let password = password.as_deref();
            let password =
                password.map(|text| check_password("server_password", text)).transpose()?;
            Ok(Some((Arc::from(user.as_str()), password)))
        }
        (None, None) => Ok(None),
        (None, Some(_)) => {
            let message = "has no meaning without `server_user`";
            Err(DefinitionError::new("server_password", message))
        }
    }
}

/// Returns the server that a text names.
fn server(
    text: &str,
    engine: TenantEngine,
    settings: &SharedSettings,
) -> Result<(BackendAddress, ServerTls, u32), DefinitionError> {
    if text.is_empty() {
        return Err(DefinitionError::new("server", "is missing"));
    }
    let Some(table) = settings.servers.get(text) else {
        let address = BackendAddress::parse(text, engine, "server")?;
        return Ok((address, ServerTls::default(), settings.server_connections_max));
    };
    let field = format!("servers.{text}.address");
    let address = BackendAddress::parse(&table.address, engine, &field)?;
    let tls = ServerTls {
        mode: table.tls,
        ca: table.ca.clone(),
        cert: table.cert.clone(),
        key: table.key.clone(),
        trust_server_key: table.trust_server_key,
        rules: login_rules(text, engine, table)?,
    };
    let connections_max = table.connections_max.unwrap_or(settings.server_connections_max);
    if connections_max == 0 {
        let field = format!("servers.{text}.connections_max");
        return Err(DefinitionError::new(field, "must be at least 1"));
    }
    if tls.cert.is_some() != tls.key.is_some() {
        let field = format!("servers.{text}.cert");
        return Err(DefinitionError::new(field, "`cert` and `key` belong together"));
    }
    Ok((address, tls, connections_max))
}

/// Parses the proofs that a server may request.
fn login_rules(
    name: &str,
    engine: TenantEngine,
    table: &ServerTable,
) -> Result<LoginRules, DefinitionError> {
    let refuse = |field: &str, message: &str| {
        Err(DefinitionError::new(format!("servers.{name}.{field}"), message.to_owned()))
    };
    if engine == TenantEngine::Mysql && !table.require_auth.is_empty() {
        return refuse("require_auth", "is for servers of PostgreSQL");
    }
    let defaults = LoginRules::default();
    let scram_iterations_min = table.scram_iterations_min.unwrap_or(defaults.scram_iterations_min);
    if scram_iterations_min == 0 {
        return refuse("scram_iterations_min", "must be at least 1");
    }
    Ok(LoginRules { methods: table.require_auth.clone(), scram_iterations_min })
}

fn auth_query(
    engine: TenantEngine,
    spec: &AuthQuerySpec,
    database: &str,
) -> Result<AuthQuery, DefinitionError> {
    check_identifier(engine, "auth_query.user", &spec.user)?;
    let database = spec.database.as_deref().unwrap_or(database);
    check_identifier(engine, "auth_query.database", database)?;
    let password = spec.password.as_deref();
    let password = password.map(|text| check_password("auth_query.password", text)).transpose()?;
    let query = spec.query.as_deref();
    let parameter = match engine {
        TenantEngine::Postgres => "$1",
        TenantEngine::Mysql => "?",
    };
    if query.is_some_and(|query| query.len() > QUERY_BYTES_MAX || !query.contains(parameter)) {
        let message =
            format!("must contain `{parameter}` and have at most {QUERY_BYTES_MAX} bytes");
        return Err(DefinitionError::new("auth_query.query", message));
    }
    Ok(AuthQuery {
        user: spec.user.as_str().into(),
        password,
        database: database.into(),
        query: query.map(Arc::from),
    })
}

/// Returns the settings of every server connection.
fn forced_settings(
    spec: &TenantSpec,
    defaults: &TenantDefaults,
) -> Result<BTreeMap<String, String>, DefinitionError> {
    // The engines have different settings.
    let mut settings = match spec.engine {
        TenantEngine::Postgres => defaults.settings.clone(),
        TenantEngine::Mysql => BTreeMap::new(),
    };
    settings.extend(spec.settings.clone());
    if settings.len() > SETTINGS_MAX {
        return Err(DefinitionError::new("settings", format!("may be {SETTINGS_MAX} at most")));
    }
    for (name, value) in &settings {
        let field = format!("settings.{name}");
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_.$".contains(&byte);
        let begins = name.bytes().next().is_some_and(|it| it.is_ascii_alphabetic() || it == b'_');
        if !begins || !name.bytes().all(is_part) || name.len() > POSTGRES_IDENTIFIER_BYTES_MAX {
            return Err(DefinitionError::new("settings", "has a name that no setting can have"));
        }
        // They would change the identity of the connection without the pool's knowledge.
        let identity = ["role", "session_authorization", "user", "database", "replication"];
        if identity.iter().any(|it| name.eq_ignore_ascii_case(it)) {
            return Err(DefinitionError::new(field, "cannot be set this way"));
        }
        if value.len() > SETTING_BYTES_MAX || value.contains('\0') {
            let message = format!("must have at most {SETTING_BYTES_MAX} bytes without NUL");
            return Err(DefinitionError::new(field, message));
        }
    }
    if spec.read_only {
        make_read_only(spec.engine, &mut settings);
    }
    Ok(settings)
}

fn users(
    spec: &TenantSpec,
    forced: Option<&(Arc<str>, Option<ClientSecret>)>,
    rules: &UserRuleSet,
) -> Result<HashMap<Box<str>, Arc<TenantUser>>, DefinitionError> {
    if spec.users.len() > USERS_MAX {
        return Err(DefinitionError::new("users", format!("may be {USERS_MAX} at most")));
    }
    let mut users = HashMap::with_capacity(spec.users.len());
    for (index, user) in spec.users.iter().enumerate() {
        let made = user_of(spec.engine, user, forced, rules)
            .map_err(|error| error.below(&format!("users[{index}]")))?;
        if users.insert(user.name.as_str().into(), Arc::new(made)).is_some() {
            let message = format!("there are two users `{}`", user.name);
            return Err(DefinitionError::new(format!("users[{index}].name"), message));
        }
    }
    Ok(users)
}

fn user_of(
    engine: TenantEngine,
    spec: &TenantUserSpec,
    forced: Option<&(Arc<str>, Option<ClientSecret>)>,
    rules: &UserRuleSet,
) -> Result<TenantUser, DefinitionError> {
    check_identifier(engine, "name", &spec.name)?;
    let password = spec.password.as_deref();
    let password = password.map(|text| check_password("password", text)).transpose()?;
    let auth = match (spec.auth, password.clone()) {
        (UserAuth::Password, Some(password)) => ClientAuth::Secret(password),
        (UserAuth::Password, None) => return Err(DefinitionError::new("password", "is missing")),
        (UserAuth::Trust, _) => ClientAuth::Trust,
        (UserAuth::Cert, _) => ClientAuth::Cert,
        (UserAuth::Peer, _) => ClientAuth::Peer,
    };
    let of_server = spec.server_password.as_deref();
    let of_server = of_server.map(|text| check_password("server_password", text)).transpose()?;
    let (server_user, server_secret) = match (&spec.server_user, of_server, forced) {
        (Some(user), secret, _) => {
            check_identifier(engine, "server_user", user)?;
            (Arc::from(user.as_str()), secret.map_or(ServerSecret::None, ServerSecret::Known))
        }
        (None, Some(secret), _) => (spec.name.as_str().into(), ServerSecret::Known(secret)),
        (None, None, Some((user, secret))) => {
            let secret = secret.clone();
            (Arc::clone(user), secret.map_or(ServerSecret::None, ServerSecret::Known))
        }
        (None, None, None) => (spec.name.as_str().into(), own_secret(engine, password)),
    };
    let rule = rules.of(&spec.name);
    // Limits by user name on the server apply only to users with the role of their own name.
    let is_itself = *server_user == *spec.name;
    Ok(TenantUser {
        name: spec.name.as_str().into(),
        auth,
        server_user,
        server_secret,
        mode: spec.pool_mode.or(rule.mode),
        server_connections_max: spec
            .server_connections_max
            .filter(|count| *count > 0)
            .or(rule.server_connections_max().filter(|_| is_itself)),
        clients_max: spec.clients_max.filter(|count| *count > 0).or(rule.clients_max),
        times: rule.times,
    })
}

/// Returns the credentials on the server that result from a user's own password. A hash cannot be
/// used at the server; its credentials then come from the client's proof.
fn own_secret(engine: TenantEngine, password: Option<ClientSecret>) -> ServerSecret {
    let is_hash = |text: &str| match engine {
        TenantEngine::Postgres => text.starts_with("SCRAM-SHA-256$"),
        TenantEngine::Mysql => !matches!(MysqlSecret::parse(text), Ok(MysqlSecret::Plain(_))),
    };
    match password {
        None => ServerSecret::None,
        Some(password) if is_hash(password.expose()) => ServerSecret::OfClient,
        Some(password) => ServerSecret::Known(password),
    }
}

fn server_names(spec: &TenantSpec) -> Result<Vec<Box<str>>, DefinitionError> {
    if spec.server_names.len() > SERVER_NAMES_MAX {
        return Err(DefinitionError::new(
            "server_names",
            format!("may be {SERVER_NAMES_MAX} at most"),
        ));
    }
    let mut names = Vec::with_capacity(spec.server_names.len());
    for (index, name) in spec.server_names.iter().enumerate() {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if name.is_empty() || name.len() > SERVER_NAME_BYTES_MAX || !name.bytes().all(is_part) {
            return Err(DefinitionError::new(format!("server_names[{index}]"), "is no host name"));
        }
        names.push(name.to_ascii_lowercase().into());
    }
    Ok(names)
}

/// Checks that a TLS server name belongs to one tenant.
fn check_server_names(drafts: &[TenantDraft]) -> Result<(), DefinitionError> {
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for draft in drafts {
        for name in &draft.server_names {
            let other = seen.insert(name, &draft.name).filter(|other| **other != *draft.name);
            if let Some(other) = other {
                let message = format!("`{name}` already refers to the tenant `{other}`");
                return Err(DefinitionError::new(format!("{}.server_names", draft.name), message));
            }
        }
    }
    Ok(())
}

/// Checks that a server has one limit, by whichever name it is used.
fn check_servers(drafts: &[TenantDraft]) -> Result<(), DefinitionError> {
    let mut seen: HashMap<(&BackendAddress, &ServerTls), u32> = HashMap::new();
    for draft in drafts {
        let key = (&draft.address, &draft.tls);
        let other = seen.insert(key, draft.connections_max);
        if let Some(other) = other.filter(|other| *other != draft.connections_max) {
            let message = format!(
                "`{}` has two values for its connections: {other} and {}",
                draft.address, draft.connections_max
            );
            return Err(DefinitionError::new(format!("{}.server", draft.name), message));
        }
    }
    Ok(())
}

/// Checks for `^[a-zA-Z0-9][a-zA-Z0-9_-]{0,62}$`, other than the console's name.
pub(crate) fn check_name(name: &str) -> Result<(), DefinitionError> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if !begins || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_part) {
        let message = "must be a letter or digit, then up to 62 letters, digits, `_` and `-`";
        return Err(DefinitionError::new("name", message));
    }
    if name == CONSOLE {
        return Err(DefinitionError::new("name", format!("`{CONSOLE}` is the console")));
    }
    Ok(())
}

fn check_identifier(engine: TenantEngine, field: &str, text: &str) -> Result<(), DefinitionError> {
    let bytes_max = match engine {
        TenantEngine::Postgres => POSTGRES_IDENTIFIER_BYTES_MAX,
        TenantEngine::Mysql => MYSQL_IDENTIFIER_BYTES_MAX,
    };
    if text.is_empty() || text.len() > bytes_max || text.contains('\0') {
        let message = format!("must have 1 to {bytes_max} bytes without NUL");
        return Err(DefinitionError::new(field, message));
    }
    Ok(())
}

fn check_password(field: &str, text: &str) -> Result<ClientSecret, DefinitionError> {
    if text.is_empty() || text.len() > PASSWORD_BYTES_MAX || text.contains('\0') {
        let message = format!("must have 1 to {PASSWORD_BYTES_MAX} bytes without NUL");
        return Err(DefinitionError::new(field, message));
    }
    Ok(ClientSecret::new(text))
}

#[cfg(test)]
mod tests;
