//! The tables of access control, and the representation of values in them.
//!
//! A right refers to an object's identity and not to its name: to a table's or a view's id, so that
//! it follows a rename and is removed with the object. Namespaces cannot be renamed and have no id.

use node::store::MigrationStep;

/// Service that owns the tables.
pub(crate) const SERVICE: &str = "catalog-access";

/// Migrations of the tables; append only. The tables of the catalog are migrated before.
pub(crate) const MIGRATIONS: &[MigrationStep] = &[
    MigrationStep::Same(
        "CREATE TABLE catalog_clients (
            id TEXT NOT NULL PRIMARY KEY,
            name TEXT NOT NULL,
            operator BIGINT NOT NULL,
            secret BYTEA NOT NULL,
            previous BYTEA,
            previous_until_ms BIGINT NOT NULL,
            created_ms BIGINT NOT NULL
        )",
    ),
    MigrationStep::Same(
        "CREATE TABLE catalog_grants (
            principal TEXT NOT NULL,
            warehouse TEXT NOT NULL,
            namespace TEXT NOT NULL,
            relation TEXT NOT NULL,
            rights BIGINT NOT NULL,
            PRIMARY KEY (principal, warehouse, namespace, relation)
        )",
    ),
    MigrationStep::Same(
        "CREATE TABLE catalog_access (
            id BIGINT NOT NULL PRIMARY KEY,
            version BIGINT NOT NULL
        );
        INSERT INTO catalog_access (id, version) VALUES (1, 1)",
    ),
    MigrationStep::Same(
        "CREATE TABLE catalog_tokens (
            hash BYTEA NOT NULL PRIMARY KEY,
            client TEXT NOT NULL,
            role TEXT,
            revoked BIGINT NOT NULL,
            ends_ms BIGINT NOT NULL
        );
        CREATE INDEX catalog_tokens_client ON catalog_tokens (client, ends_ms);
        CREATE INDEX catalog_tokens_ends ON catalog_tokens (ends_ms)",
    ),
    MigrationStep::Same(
        "CREATE TABLE catalog_api_keys (
            id TEXT NOT NULL PRIMARY KEY,
            client TEXT NOT NULL,
            name TEXT NOT NULL,
            secret BYTEA NOT NULL,
            previous BYTEA,
            previous_until_ms BIGINT NOT NULL,
            created_ms BIGINT NOT NULL,
            ends_ms BIGINT,
            used_ms BIGINT NOT NULL
        );
        CREATE INDEX catalog_api_keys_client ON catalog_api_keys (client)",
    ),
    MigrationStep::Same(
        "CREATE TABLE catalog_roles (
            name TEXT NOT NULL PRIMARY KEY
        );
        CREATE TABLE catalog_role_members (
            role TEXT NOT NULL,
            member TEXT NOT NULL,
            PRIMARY KEY (role, member)
        );
        CREATE INDEX catalog_role_members_member ON catalog_role_members (member)",
    ),
    // Converts rights by name to rights by object.
    MigrationStep::Contract(
        "CREATE TABLE catalog_rights (
            principal TEXT NOT NULL,
            warehouse TEXT NOT NULL,
            kind TEXT NOT NULL,
            object TEXT NOT NULL,
            rights BIGINT NOT NULL,
            PRIMARY KEY (principal, warehouse, kind, object)
        );
        CREATE INDEX catalog_rights_object ON catalog_rights (object);
        INSERT INTO catalog_rights (principal, warehouse, kind, object, rights)
            SELECT principal, warehouse, 'warehouse', '', rights FROM catalog_grants
            WHERE namespace = '' AND relation = '';
        INSERT INTO catalog_rights (principal, warehouse, kind, object, rights)
            SELECT g.principal, g.warehouse, 'namespace', g.namespace, g.rights
            FROM catalog_grants g JOIN catalog_namespaces n
            ON n.warehouse = g.warehouse AND n.path = g.namespace WHERE g.relation = '';
        INSERT INTO catalog_rights (principal, warehouse, kind, object, rights)
            SELECT g.principal, g.warehouse, 'relation', t.id, g.rights
            FROM catalog_grants g JOIN catalog_tables t ON t.warehouse = g.warehouse
            AND t.namespace = g.namespace AND t.name = g.relation;
        DROP TABLE catalog_grants",
    ),
    MigrationStep::Same(
        "CREATE TABLE catalog_policies (
            warehouse TEXT NOT NULL,
            name TEXT NOT NULL,
            relation TEXT NOT NULL,
            principal TEXT NOT NULL,
            body BYTEA NOT NULL,
            PRIMARY KEY (warehouse, name)
        );
        CREATE INDEX catalog_policies_relation ON catalog_policies (relation)",
    ),
    MigrationStep::Each {
        sqlite: "CREATE TABLE catalog_audit (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            at_ms BIGINT NOT NULL,
            principal TEXT,
            name TEXT,
            key TEXT,
            operation TEXT NOT NULL,
            path TEXT NOT NULL,
            status BIGINT NOT NULL,
            refusal TEXT,
            request TEXT,
            address TEXT
        );
        CREATE INDEX catalog_audit_at ON catalog_audit (at_ms);
        CREATE INDEX catalog_audit_principal ON catalog_audit (principal, seq)",
        postgres: "CREATE TABLE catalog_audit (
            seq BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
            at_ms BIGINT NOT NULL,
            principal TEXT,
            name TEXT,
            key TEXT,
            operation TEXT NOT NULL,
            path TEXT NOT NULL,
            status BIGINT NOT NULL,
            refusal TEXT,
            request TEXT,
            address TEXT
        );
        CREATE INDEX catalog_audit_at ON catalog_audit (at_ms);
        CREATE INDEX catalog_audit_principal ON catalog_audit (principal, seq)",
    },
    // Catalog roles and entities of Polaris's management.
    MigrationStep::Same(
        "CREATE TABLE catalog_catalog_roles (
            warehouse TEXT NOT NULL,
            name TEXT NOT NULL,
            PRIMARY KEY (warehouse, name)
        );
        CREATE TABLE catalog_catalog_role_holders (
            warehouse TEXT NOT NULL,
            name TEXT NOT NULL,
            role TEXT NOT NULL,
            PRIMARY KEY (warehouse, name, role)
        );
        CREATE INDEX catalog_catalog_role_holders_role ON catalog_catalog_role_holders (role);
        CREATE TABLE catalog_entities (
            kind TEXT NOT NULL,
            warehouse TEXT NOT NULL,
            name TEXT NOT NULL,
            properties BYTEA NOT NULL,
            version BIGINT NOT NULL,
            created_ms BIGINT,
            updated_ms BIGINT NOT NULL,
            PRIMARY KEY (kind, warehouse, name)
        )",
    ),
    // Tokens become invalid with the secret that they were issued for.
    MigrationStep::Same("ALTER TABLE catalog_tokens ADD COLUMN secret BYTEA"),
    // Source of `seq` of audit lines, see `node::store::take_numbers`.
    MigrationStep::Same(
        "CREATE TABLE catalog_audit_numbers (id BIGINT NOT NULL PRIMARY KEY, last BIGINT NOT NULL);
        INSERT INTO catalog_audit_numbers (id, last)
            SELECT 1, COALESCE(MAX(seq), 0) FROM catalog_audit",
    ),
];
