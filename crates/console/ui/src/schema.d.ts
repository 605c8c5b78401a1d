// Types of Cove's interface, by the names of its schemas. Made from crates/api/openapi.json by
// `cargo run -q -p xtask -- gen`, never by hand.

/** An agent, as it is shown. */
export interface Agent {
  /** When its first version was deployed (RFC 3339, milliseconds, UTC). */
  created_at: string;
  /** Description, as given. */
  description?: string | null;
  /** Names of its environment variables. */
  env: string[];
  /** Grants of the agent's sessions. */
  grants?: Grant[];
  /** Names it for ever: `ag_…`. */
  id: string;
  /** Limits, as given. */
  limits: SessionLimits;
  /** Names it for its tenant. */
  name: string;
  /** Options, as given. */
  options: AgentOptions;
  /** Program that sessions start. */
  runtime: AgentRuntime;
  /** Settings, as given. */
  settings: AgentSettings;
  /** Tenant that owns the agent. */
  tenant: string;
  /** When it was changed last. */
  updated_at: string;
  /** The version that new sessions get. */
  version: number;
}

/** A file of an agent's folder. */
export interface AgentFile {
  /** True if `content` is Base64 (RFC 4648 §4) rather than text. Default: `false`. */
  base64?: boolean;
  /** Content. */
  content?: string;
  /** Mode 0755 rather than 0644. Default: `false`. */
  executable?: boolean;
  /** Relative, `/`-separated, without empty, `.` or `..` parts. */
  path?: string;
}

/** A file of an agent's folder, without its content. */
export interface AgentFileEntry {
  /** Mode 0755 rather than 0644. */
  executable: boolean;
  /** Relative, `/`-separated. */
  path: string;
  /** Bytes. */
  size: number;
}

/** Answer of `GET /v1/agents/{name}/files`. */
export interface AgentFileList {
  /** By path. */
  files: AgentFileEntry[];
}

/** Answer of `GET /v1/agents`. */
export interface AgentList {
  /** By name. */
  agents: Agent[];
}

/** Options that an agent gets at its start; every field can be set by the agent and by a session. */
export interface AgentOptions {
  /** Tools that need no permission. */
  allowed_tools?: string[] | null;
  /** Tools that are not there. */
  disallowed_tools?: string[] | null;
  /** Servers of the Model Context Protocol by name, in the shape of `.mcp.json`. */
  mcp_servers?: Record<string, unknown> | null;
  /** Model to use. */
  model?: string | null;
  /** `bypassPermissions`, `acceptEdits`, `plan` or `default`, as Claude's command line has them. */
  permission_mode?: string | null;
  /** In place of the agent's own prompt. */
  system_prompt?: string | null;
}

/** Program that is started once for a session and lives as long as its sandbox. */
export type AgentRuntime = AgentRuntimeClaude | AgentRuntimeCommand | AgentRuntimeNone;

/** Claude's command line over its stream-json protocol. */
export interface AgentRuntimeClaude {
  type: 'claude';
}

/** Any program that speaks the agent protocol on its standard streams (`docs/agents.md`). */
export interface AgentRuntimeCommand {
  /** Program and arguments; started in `/workspace`. */
  argv: string[];
  type: 'command';
}

/** No program: the session is a workspace to run programs in. */
export interface AgentRuntimeNone {
  type: 'none';
}

/** Lifetimes of an agent's sessions. */
export interface AgentSettings {
  /** Seconds without a message after which a session gives up its sandbox; the server's default when absent. */
  idle_s?: number | null;
  /** Start the agent with the first message rather than with the session. Default: `false`. */
  lazy?: boolean;
  /** Park an interpreter in the agent's sandboxes before the first context is asked for, in those that wait as in new ones: it costs its memory, and the first context is there at once. Default: `false`. */
  park_interpreter?: boolean;
  /** Sandboxes kept ready in which the agent has started, too. Default: `0`. */
  prewarm_agents?: number;
  /** Sandboxes kept ready with the agent's files. Default: `0`. */
  prewarm_sandboxes?: number;
}

/** Body of `PATCH /v1/agents/{name}`: what changes without a new version. */
export interface AgentUpdate {
  /** In place of the description. */
  description?: string | null;
  /** In place of the environment, all of it. */
  env?: Record<string, string> | null;
  /** In place of the grants, for new sessions. */
  grants?: Grant[] | null;
  /** In place of the limits. */
  limits?: SessionLimits | null;
  /** In place of the options. */
  options?: AgentOptions | null;
  /** In place of the settings. */
  settings?: AgentSettings | null;
  /** Number of the version that new sessions get. */
  version?: number | null;
}

/** A version of an agent. */
export interface AgentVersion {
  /** True if new sessions get it. */
  active: boolean;
  /** Their bytes. */
  bytes: number;
  /** When it was deployed. */
  created_at: string;
  /** Files of its folder. */
  files: number;
  /** The end of what `install.sh` wrote, where there was one. */
  install_output?: string | null;
  /** Program that sessions start. */
  runtime: AgentRuntime;
  /** Counts from 1. */
  version: number;
}

/** Answer of `GET /v1/agents/{name}/versions`. */
export interface AgentVersionList {
  /** Newest first. */
  versions: AgentVersion[];
}

/** Answer of `PUT /v1/sessions/{id}/archive`. */
export interface ArchiveImported {
  /** Bytes of content. */
  bytes: number;
  /** Files, directories and links that were unpacked. */
  entries: number;
}

/** Kinds of events at a socket. */
export type AuditEvent = 'granted' | 'revoked' | 'connect' | 'disconnect' | 'statement' | 'request' | 'missing';

/** Outcomes of an event. */
export type AuditOutcome = 'done' | 'failed' | 'refused';

/** Record of what a sandbox did at one of its sockets. */
export interface AuditRecord {
  /** When it ended (RFC 3339, milliseconds, UTC). */
  at: string;
  /** Bytes that came into it. */
  bytes_in?: number | null;
  /** Bytes that went out of the sandbox. */
  bytes_out?: number | null;
  /** Why it failed or was refused. */
  error?: string | null;
  /** Kind of event. */
  event: AuditEvent;
  /** The grant: `postgres:shop`, `http`. */
  grant: string;
  /** The session or execution. */
  holder: string;
  /** Outcome. */
  outcome: AuditOutcome;
  /** Rows of a statement. */
  rows?: number | null;
  /** Number of the record. Numbers grow and may have gaps. */
  seq: number;
  /** Tenant that owns the sandbox. */
  tenant: string;
  /** Request: a statement, or a method with a URL. */
  text?: string | null;
  /** Duration in microseconds. */
  took_us: number;
}

/** Answer of `GET /v1/audit`: oldest first, or newest first where that is asked for. */
export interface AuditRecordList {
  /** Greatest number of a record when this was read: value of `after` for those that come later. Default: `0`. */
  newest: number;
  /** Value of `after` for the next page; none on the last one, and where the newest come first. A page may be empty and have one: a request looks at 20,000 records at most. */
  next_after?: number | null;
  /** Value of `before` for the next page, where the newest come first; none on the last one. */
  next_before?: number | null;
  /** This page. */
  records: AuditRecord[];
}

/** Records of the audit that have something in common. */
export interface AuditSummaryGroup {
  /** Bytes that came into them. */
  bytes_in: number;
  /** Bytes that went out of sandboxes. */
  bytes_out: number;
  /** Records of what failed. */
  failed: number;
  /** When the first one ended (Unix milliseconds). */
  first_ms: number;
  /** When the last one ended. */
  last_ms: number;
  /** Records that were too many to be kept. */
  missing: number;
  /** Name that they have in common: a target, a session or execution, a grant. */
  name: string;
  /** Records. */
  records: number;
  /** Records of what was refused. */
  refused: number;
  /** Rows of statements. */
  rows: number;
  /** Some of them, by name. */
  targets: string[];
  /** Distinct targets that were reached or refused, counted up to 1,000. */
  targets_count: number;
  /** Tenant that owns the sandboxes. */
  tenant: string;
}

/** Answer of `GET /v1/audit/summary`. */
export interface AuditSummaryReport {
  /** Groups, those with most records first. */
  groups: AuditSummaryGroup[];
  /** Value of `before` for the records that were not looked at: a request looks at 20,000. None where all were. */
  next_before?: number | null;
  /** Records of groups that are not listed. */
  others: number;
}

/** Lookup of users on the server. */
export interface AuthQuerySpec {
  /** Database to do that in; the tenant's when absent. */
  database?: string | null;
  /** Password of that user. */
  password?: string | null;
  /** A query with the parameter `$1`, of MySQL `?`, that answers name and secret, of MySQL plugin and secret. Absent: one of `pg_authid` that leaves out expired passwords, of MySQL one of `mysql.user`. */
  query?: string | null;
  /** Role that looks them up. Nobody can log in as it this way. */
  user?: string;
}

/** Answer of `POST /v1/executions/batch`, in the order of the request. */
export interface BatchAnswer {
  /** Executions that were accepted. */
  executions: ExecutionRecord[];
}

/** Body of `POST /v1/executions/batch`: all are accepted, or none. */
export interface BatchRequest {
  /** Executions to submit. */
  executions: ExecutionRequest[];
}

/** A client that is connected. */
export interface BouncerClient {
  /** Address of the client; `unix` for a Unix socket. */
  address: string;
  /** The `application_name` of a client of PostgreSQL: what it says of itself. */
  application_name?: string | null;
  /** Since when it is connected, in seconds. */
  connected_s: number;
  /** True if it is in a transaction. */
  in_transaction: boolean;
  /** Node at which it is, where there are several. */
  node?: string | null;
  /** Process id that the client knows; cancel requests name it. */
  pid: number;
  /** Why it keeps that beyond its transaction. */
  pins?: string[];
  /** Process id of the server connection that it has. */
  server_pid?: number | null;
  /** `login`, `idle`, `waiting`, `active`, `closing`. */
  state: string;
  /** Since when it is in its state, in seconds. Default: `0.0`. */
  state_s: number;
  /** Since when its statement waits or runs, in seconds; none between statements. */
  statement_s?: number | null;
  /** Tenant of the client. */
  tenant: string;
  /** True if it came by TLS. */
  tls: boolean;
  /** User of the client. */
  user: string;
  /** Since when it waits for a server connection, in seconds; none while it does not. */
  waiting_s?: number | null;
}

/** Answer of `GET /v1/tenants/{name}/clients` and `/pins`. */
export interface BouncerClientList {
  /** In no order. */
  clients: BouncerClient[];
  /** Nodes that did not answer in time. */
  missing?: string[];
}

/** Answer of `POST /v1/bouncer/reload`. */
export interface BouncerReloaded {
  /** Settings that changed and are taken over only by a restart. */
  restart_needed_for: string[];
  /** Tenants that are there now. */
  tenants: number;
}

/** A connection to a server. */
export interface BouncerServer {
  /** Address of the server. */
  address: string;
  /** The client that has it. */
  client_pid?: number | null;
  /** Since when it is open, in seconds. */
  connected_s: number;
  /** Node at which it is, where there are several. */
  node?: string | null;
  /** The server's process id for it. */
  pid: number;
  /** `login`, `idle`, `active`, `resetting`, `cancelling`. */
  state: string;
  /** Tenant of the connection. */
  tenant: string;
  /** True if it is encrypted. */
  tls: boolean;
  /** Role that it is logged in as. */
  user: string;
}

/** Answer of `GET /v1/tenants/{name}/servers`. */
export interface BouncerServerList {
  /** Nodes that did not answer in time. */
  missing?: string[];
  /** In no order. */
  servers: BouncerServer[];
}

/** Body of `POST /v1/templates`: a new template, or a new build of one. */
export interface BuildTemplate {
  /** Run every step, also those whose layers are there. Default: `false`. */
  force?: boolean;
  /** Template to begin with: a name, `name:tag`, or an id. Left out, or `base`: the programs of the host, and no files. */
  from?: string | null;
  /** Name, or `name:tag`: letters, digits, `_`, `-` and `.`, 1 to 64 of each; unique for its tenant. */
  name?: string;
  /** Command that succeeds when what `start` runs is ready: it is repeated until then, and the session is answered only afterwards. */
  ready?: string | null;
  /** Command that each new session runs in the background. */
  start?: string | null;
  /** Steps, in their order. */
  steps?: TemplateStep[];
  /** Tags that name this build when it is ready, beside the one of `name`; `default` when there is none. */
  tags?: string[];
}

/** Encoding of bytes in JSON. */
export type BytesEncoding = 'utf8' | 'base64';

/** A request that changed something, gave something away, or was refused. */
export interface CatalogAuditLine {
  /** Address of the caller. */
  address?: string | null;
  /** When. */
  at: string;
  /** Milliseconds since 1970. */
  'at-ms': number;
  /** The API key that was shown. */
  key?: string | null;
  /** Who, for people. */
  name?: string | null;
  /** Such as `drop-table`. */
  operation: string;
  outcome: 'done' | 'refused' | 'failed';
  /** What it was about. */
  path: string;
  /** Who; null of a stranger. */
  principal?: string | null;
  /** The type of the error. */
  refusal?: string | null;
  /** The request, as the server's log names it. */
  'request-id'?: string | null;
  /** Rises with every line. */
  seq: number;
  /** The status of the answer. */
  status: number;
}

/** A page of the audit, the newest first. */
export interface CatalogAuditPage {
  /** Lines that did not fit since the server started. */
  'left-out': number;
  /** The lines. */
  lines: CatalogAuditLine[];
  /** The `pageToken` of the next page; null on the last one. */
  'next-page-token'?: string | null;
}

/** A change of the catalog. */
export interface CatalogChange {
  /** Such as `create-table`. */
  action: string;
  /** When. */
  at: string;
  /** The id of the table or view, which stays when it is renamed. */
  id?: string;
  /** Its metadata file since then. */
  'metadata-location'?: string;
  /** The table or view. */
  name?: string;
  namespace?: NamespaceLevels;
  /** Its metadata file before. */
  'previous-metadata-location'?: string;
  /** Who did it; told to operators. */
  principal?: string;
  /** Its number: one more than that of the change before. */
  seq: number;
  /** Its new name. */
  to?: TableIdentifier;
  /** Its version since then. */
  version?: number;
}

/** A page of changes, the oldest first. */
export interface CatalogChangePage {
  /** The changes. */
  changes: CatalogChange[];
  /** Whether there are more. */
  more: boolean;
  /** The last number that there is. */
  newest: number;
  /** The `after` of the next page. */
  'next-after': number;
  /** The first number that is kept. */
  oldest: number;
}

/** A client: a program that logs in by OAuth. */
export interface CatalogClient {
  /** The `client_id`. */
  'client-id': string;
  /** When it was made. */
  created: string;
  /** For people. */
  name: string;
  /** Whether it may do everything. */
  operator: boolean;
  /** Its id in grants: `client:` and the client id. */
  principal: string;
}

/** All clients. */
export interface CatalogClientList {
  /** Without their secrets. */
  clients: CatalogClient[];
}

/** A client to make. */
export interface CatalogClientRequest {
  /** For people. */
  name: string;
  /** Whether it may do everything. */
  operator?: boolean;
}

/** A client with its secret, which is told once. */
export type CatalogClientSecret = CatalogClient & {
  /** The `client_secret`. */
  'client-secret': string;
};

/** A table or view that can come back. */
export interface CatalogDropped {
  /** When it was dropped. */
  'dropped-at-ms': number;
  /** Names it. */
  id: string;
  /** Whether that has begun. */
  'is-purging': boolean;
  /** The name that it had. */
  name: string;
  namespace: NamespaceLevels;
  /** Who dropped it; told to operators. */
  principal?: string;
  /** When it goes for good. */
  'purge-at-ms': number;
  /** Whether its files go as well. */
  'purge-requested': boolean;
  type: 'table' | 'view';
  /** Its identity. */
  uuid: string;
}

/** A page of what can come back. */
export interface CatalogDroppedList {
  /** The last dropped first. */
  dropped: CatalogDropped[];
  /** The `pageToken` of the next page; null on the last one. */
  'next-page-token'?: string | null;
}

/** Files, with their rows and bytes. */
export interface CatalogFileTotals {
  /** Bytes. */
  bytes: number;
  /** Number of files. */
  files: number;
  /** Rows of data files; of delete files the positions or keys in them. */
  rows: number;
}

/** Results of a search by name. */
export interface CatalogFoundNames {
  /** Namespaces, then tables and views, then columns. */
  results: ({
    /** The column, with dots for those within others. */
    column?: string;
    /** Kind of what was found. */
    kind: 'namespace' | 'table' | 'view' | 'column';
    /** Its own name; of a column that of its table. */
    name: string;
    /** The namespace, or that which it is in. */
    namespace: string[];
  })[];
  /** True if there may be more: more than were asked for, or more names than one search reads. */
  truncated: boolean;
}

/** A function to make or replace. */
export interface CatalogFunctionRequest {
  metadata: FunctionMetadata;
  /** Its name. */
  name: string;
  namespace: NamespaceLevels;
  /** Take the place of the one that has the name. */
  overwrite?: boolean;
}

/** Rights of a principal to a warehouse, a namespace, or a table or view. */
export interface CatalogGrant {
  /** A table or view of it; without it all of the namespace. */
  name?: string;
  /** The namespace; without it the warehouse. */
  namespace?: NamespaceLevels;
  /** `client:`, `role:`, `tenant:`, `oidc:` or `group:` and who it is. */
  principal: string;
  /** What it may do. */
  rights: ('read' | 'write' | 'manage' | 'grant')[];
}

/** What was granted. */
export interface CatalogGrantList {
  /** By the names that things have now. */
  grants: CatalogGrant[];
}

/** A job of maintenance. */
export interface CatalogJob {
  /** When it was asked for. */
  'created-ms': number;
  /** Whether it changes nothing. */
  'dry-run': boolean;
  /** What could not be done. */
  failures: {
    /** Why. */
    message: string;
    /** The table. */
    table: string;
  }[];
  /** Files. */
  files: number;
  /** Names it. */
  id: string;
  /** Whether there is more than is listed. */
  'is-truncated': boolean;
  /** The first 10,000. */
  items: ({
    kind: 'snapshot' | 'ref' | 'file' | 'metadata-file';
    /** Id, name or location. */
    name: string;
    /** The table. */
    table: string;
  })[];
  /** Branches and tags. */
  refs: number;
  /** Snapshots that went, or would go. */
  snapshots: number;
  state: 'queued' | 'running' | 'done' | 'cancelled' | 'interrupted';
  /** Tables that it has been through. */
  'tables-done': number;
  /** Tables that it goes through. */
  'tables-total': number;
}

/** Jobs of a warehouse, the newest first. */
export interface CatalogJobList {
  /** The jobs. */
  jobs: CatalogJob[];
}

/** Maintenance to do. */
export interface CatalogJobRequest {
  /** What is done. */
  actions: ('expire-snapshots' | 'clean-metadata')[];
  /** Remove files that only expired snapshots lead to. */
  'delete-files'?: boolean;
  /** Change nothing, list what would go. */
  'dry-run'?: boolean;
  /** All tables in it. */
  namespace?: NamespaceLevels;
  /** Tables; without it and `namespace` all of the warehouse. */
  tables?: TableIdentifier[];
}

/** A job. */
export interface CatalogJobStarted {
  /** Names it. */
  id: string;
}

/** An API key of a client. */
export interface CatalogKey {
  /** When it was made. */
  created: string;
  /** Until when it is good; null for as long as it is there. */
  expires: string | null;
  /** Names it. */
  'key-id': string;
  /** When it was last used, to a minute. */
  'last-used': string | null;
  /** For people. */
  name: string;
}

/** All keys of a client. */
export interface CatalogKeyList {
  /** Without their secrets. */
  keys: CatalogKey[];
}

/** A key to make. */
export interface CatalogKeyRequest {
  /** How long it is good; without it until it is removed. */
  'expires-seconds'?: number;
  /** For people. */
  name: string;
}

/** A key with its secret, which is told once. */
export type CatalogKeySecret = CatalogKey & {
  /** The bearer token. */
  key: string;
};

/** Changes of who has a role. */
export interface CatalogMembersRequest {
  /** Principals to add. */
  add?: string[];
  /** Principals to remove. */
  remove?: string[];
}

/** Files of one partition. */
export interface CatalogPartitionFigures {
  data: CatalogFileTotals;
  deletes: CatalogFileTotals;
  /** Bytes of the largest data file. */
  'largest-bytes': number;
  /** Values of the partition, such as `day="2026-11-28"`; empty where nothing is partitioned. */
  partition: string;
  /** Their bytes. */
  'small-bytes': number;
  /** Data files below the small size. */
  'small-files': number;
  /** Specification of the partition. */
  'spec-id': number;
}

/** A policy. */
export interface CatalogPolicy {
  /** Columns that are not shown as they are. */
  'column-projections': CatalogProjection[];
  /** Its name in the warehouse. */
  name: string;
  namespace: NamespaceLevels;
  /** Whom it restricts. */
  principal: string;
  /** Rows that may be read. */
  'row-filter'?: unknown;
  /** The table. */
  table: string;
  /** Whether it may have credentials for the files. */
  trusted: boolean;
}

/** All policies of a warehouse. */
export interface CatalogPolicyList {
  /** In order. */
  policies: CatalogPolicy[];
}

/** What a principal may read of a table without a policy, and with it. */
export interface CatalogPolicyPreview {
  /** Whether the policy restricts it: it is the policy's principal, or has that role. */
  applies: boolean;
  now: CatalogReadScope;
  /** The principal. */
  principal: string;
  /** Rights that it has to the table, by grants to itself and to its roles; absent for `grant:`, whose sandboxes have those of their own grants. */
  rights?: ('read' | 'write' | 'manage' | 'grant')[];
  then: CatalogReadScope;
}

/** Whom and what a preview of a policy is about. */
export interface CatalogPolicyPreviewRequest {
  policy: CatalogPolicyRequest;
  /** Whose reading is shown: a principal, a role, or `grant:` and a tenant. */
  principal: string;
}

/** What part of a table a principal may read. */
export interface CatalogPolicyRequest {
  /** Columns that are not shown as they are. */
  'column-projections'?: CatalogProjection[];
  namespace: NamespaceLevels;
  /** Whom it restricts; `*`: everybody but operators. */
  principal: string;
  /** A predicate of Iceberg's interface; without it all rows. */
  'row-filter'?: unknown;
  /** The table. */
  table: string;
  /** Whether it may have credentials for the files. */
  trusted?: boolean;
}

/** What is shown of a column. */
export interface CatalogProjection {
  /** What is done to its values. */
  action: string;
  /** Its name. */
  column?: string;
  /** Or its id. */
  'field-id'?: number;
}

/** Whether something is protected. */
export interface CatalogProtectRequest {
  /** A table or view; without it the namespace. */
  name?: string;
  namespace: NamespaceLevels;
  /** Whether it is. */
  protected: boolean;
}

/** Whether something is protected, and by what. */
export interface CatalogProtection {
  /** By this interface. */
  'by-flag': boolean;
  /** By its property `protected`. */
  'by-property': boolean;
  /** Whether it is. */
  protected: boolean;
}

/** What a principal may read of a table, as far as its rights go. */
export interface CatalogReadScope {
  /** Columns that are shown in another way, by id. */
  'column-projections': CatalogProjection[];
  /** Whether it gets credentials for the table's files. */
  files: boolean;
  /** Names of the policies that restrict it, in order. */
  policies: string[];
  /** Rows that it may read; absent for all. */
  'row-filter'?: unknown;
}

/** How long what is dropped stays. */
export interface CatalogRetention {
  /** Seconds. */
  'undrop-seconds': number;
}

/** How long what is dropped stays. */
export interface CatalogRetentionRequest {
  /** Seconds; null for what the configuration says. */
  'undrop-seconds': number | null;
}

/** A role: a name for principals. */
export interface CatalogRole {
  /** Ids of principals. */
  members: string[];
  /** Its name. */
  name: string;
}

/** All roles. */
export interface CatalogRoleList {
  /** In order. */
  roles: CatalogRole[];
}

/** A role to make. */
export interface CatalogRoleRequest {
  /** Ids of principals. */
  members?: string[];
  /** Its name. */
  name: string;
}

/** Another secret. */
export interface CatalogRotateRequest {
  /** How long the old one stays valid, at most 604800. Default: `0`. */
  'grace-seconds'?: number;
}

/** Rows of what a table's metadata says. */
export interface CatalogRowsPage {
  /** The `pageToken` of the next page; null on the last one. */
  'next-page-token'?: string | null;
  /** A row each. */
  rows: Record<string, unknown>[];
}

/** What a client begins with. */
export interface CatalogSettings {
  /** Properties that the client may replace. */
  defaults: Record<string, string>;
  /** Operations that are there, as `METHOD path`. */
  endpoints?: string[];
  /** How long an `Idempotency-Key` is remembered, as a duration of ISO 8601. */
  'idempotency-key-lifetime'?: string;
  /** Properties that the client has to use; `prefix` is the `{prefix}` of all other paths. */
  overrides: Record<string, string>;
}

/** How a bucket is reached, and what clients get. */
export interface CatalogStorage {
  /** How long credentials are good for: 900 to 43200. */
  'credentials-seconds'?: number;
  /** Address of the service; without it Amazon's. */
  endpoint?: string;
  /** What the role demands to be told. */
  'external-id'?: string;
  /** Whether the bucket is in the path. */
  'path-style'?: boolean;
  /** Whether new tables are at `NAMESPACE/TABLE`. */
  'plain-locations'?: boolean;
  /** For signatures. */
  region?: string;
  /** Whether the server signs requests of clients. */
  'remote-signing'?: boolean;
  /** The role that clients' credentials are for. */
  'role-arn'?: string;
  /** Where credentials are asked for. */
  'sts-endpoint'?: string;
  /** Whether clients get credentials. */
  'vended-credentials'?: boolean;
}

/** A key for a bucket. Told to nobody. */
export interface CatalogStorageKey {
  /** Names it. */
  'access-key-id': string;
  /** The secret. */
  'secret-access-key': string;
  /** Of temporary credentials. */
  'session-token'?: string;
}

/** Health of a table at a snapshot. */
export interface CatalogTableHealth {
  /** Average bytes of a data file. */
  'bytes-per-file': number;
  /** False if the snapshot has more manifests than are read for one answer: 2,000, or 1 GiB of them in memory. */
  complete: boolean;
  data: CatalogFileTotals;
  /** Delete files by kind. */
  deletes: {
    /** Their part of all rows. */
    'deleted-percent': number;
    /** Rows that positions and vectors delete. */
    'deleted-rows': number;
    equality: CatalogFileTotals;
    position: CatalogFileTotals;
    vectors: CatalogFileTotals;
  };
  /** Data files by size. */
  histogram: ({
    /** Their bytes. */
    bytes: number;
    /** Number of files. */
    files: number;
    /** Least size. */
    'from-bytes': number;
    /** Size from which on files are in the next part; none of the last one. */
    'to-bytes': number | null;
  })[];
  /** Manifests of the snapshot. */
  manifests: {
    /** Bytes of those that were read, where the list says so. */
    bytes: number;
    /** Manifests in the snapshot's list. */
    count: number;
    /** Those of data files that were read. */
    data: number;
    /** Those of delete files that were read. */
    deletes: number;
    /** Average files of a manifest. */
    'files-per-manifest': number;
    /** Entries of files that were removed. */
    'removed-entries': number;
  };
  /** Partitions with files; at most 10,000 are told apart. */
  partitions: {
    /** How many there are. */
    count: number;
    /** Files of partitions beyond those that are told apart. */
    'files-beyond': number;
    /** The largest ones, at most 20. */
    largest: CatalogPartitionFigures[];
    /** Bytes of the largest partition for each byte of the average one. */
    skew: number;
    /** Those whose largest file stands out most, at most 20. */
    skewed: CatalogPartitionFigures[];
    /** Those with most small files, at most 20. */
    small: CatalogPartitionFigures[];
  };
  /** What to do, the most useful first. */
  recommendations: ({
    /** What to do. */
    action: 'compact' | 'rewrite-manifests' | 'expire-snapshots' | 'remove-orphans';
    /** How an engine does it. */
    elsewhere: string | null;
    /** Maintenance action of the catalog that does it; none where an engine has to. */
    operation: string | null;
    /** Why, in a sentence. */
    reason: string;
  })[];
  /** Average rows of a data file. */
  'rows-per-file': number;
  small: CatalogFileTotals;
  /** Size below which a data file is small: three quarters of the target. */
  'small-below-bytes': number;
  /** Time of that snapshot in milliseconds. */
  'snapshot-at-ms': number | null;
  /** Snapshot that was looked at; none of a table without one. */
  'snapshot-id': number | null;
  /** Snapshots of the table. */
  snapshots: {
    /** How many there are. */
    count: number;
    /** Those that the table's properties let expire now; none when these are wrong. */
    expired: number | null;
    /** Age of the oldest one in milliseconds. */
    'oldest-age-ms': number | null;
    /** Time of the oldest one in milliseconds. */
    'oldest-at-ms': number | null;
  };
  /** Size that writers aim at: `write.target-file-size-bytes`. */
  'target-bytes': number;
}

/** What is to come back, by `id` or `uuid`. */
export interface CatalogUndropRequest {
  /** Its id. */
  id?: string;
  /** The name that it gets, instead of its own. */
  name?: string;
  /** Where it goes, instead of where it was. */
  namespace?: NamespaceLevels;
  /** Or its identity. */
  uuid?: string;
}

/** What came back. */
export interface CatalogUndropped {
  /** Its id. */
  id: string;
  /** Its name. */
  name: string;
  namespace: NamespaceLevels;
  type: 'table' | 'view';
}

/** A warehouse. */
export interface CatalogWarehouse {
  /** Whether the configuration describes it. */
  configured: boolean;
  /** When it was made. */
  'created-ms': number;
  /** Whether it has a key of its own. */
  'has-credentials': boolean;
  /** Its id, which stays. */
  id: string;
  /** Other roots. */
  locations: string[];
  /** Its name. */
  name: string;
  /** Where it is. */
  root: string;
  /** What is in it. */
  statistics?: {
    /** Namespaces. */
    namespaces: number;
    /** Tables. */
    tables: number;
    /** Views. */
    views: number;
  };
  /** `read-only`: nothing in it changes; `protected`: it is not removed. */
  status: 'active' | 'read-only' | 'protected';
  storage: CatalogStorage;
  /** When it was changed. */
  'updated-ms': number | null;
}

/** Warehouses. */
export interface CatalogWarehouseList {
  /** In order. */
  warehouses: CatalogWarehouse[];
}

/** A warehouse to make. */
export interface CatalogWarehouseRequest {
  credentials?: CatalogStorageKey;
  /** Up to 32 other roots. */
  locations?: string[];
  /** 1 to 255 bytes, without `/`. */
  name: string;
  /** `s3://BUCKET/PREFIX` or `file:///DIRECTORY`. */
  root: string;
  /** `read-only`: nothing in it changes; `protected`: it is not removed. */
  status?: 'active' | 'read-only' | 'protected';
  storage?: CatalogStorage;
}

/** Changes of a warehouse: what is there. */
export interface CatalogWarehouseUpdate {
  credentials?: CatalogStorageKey;
  /** Up to 32 other roots. */
  locations?: string[];
  /** `read-only`: nothing in it changes; `protected`: it is not removed. */
  status?: 'active' | 'read-only' | 'protected';
  storage?: CatalogStorage;
}

/** End of a cell. */
export interface CellEnd {
  /** True if the context's process has ended: what was defined is lost, and the next cell starts a new one. */
  context_ended: boolean;
  /** Processor time of the context's process and of what it has waited for, as the process itself says; none when it has ended. */
  cpu_ms?: number | null;
  /** Most memory that the context's process had during the cell, as the process itself says. */
  memory_bytes?: number | null;
  /** Verdict: `OK`, `RE` for an error, `TLE`, `MLE`, `OLE`, `SG` for a context that was killed. */
  verdict: Verdict;
  /** Wall time. */
  wall_ms: number;
}

/** Event of a cell while it runs. */
export type CellEvent = CellEventStarted | CellEventStdout | CellEventStderr | CellEventResult | CellEventError | CellEventEnded | CellEventGone;

/** Ended. The last event. */
export type CellEventEnded = CellEnd & {
  type: 'ended';
};

/** The cell failed. */
export type CellEventError = CellFailure & {
  type: 'error';
};

/** No longer available, because its sandbox is gone. The last event. */
export interface CellEventGone {
  /** Why. */
  error: string;
  type: 'gone';
}

/** A result, or something that the cell displays. */
export type CellEventResult = CellResult & {
  type: 'result';
};

/** The context has begun with it. */
export interface CellEventStarted {
  /** Number of the cell in its context, from 1. */
  execution_count: number;
  type: 'started';
}

/** Output on standard error. */
export interface CellEventStderr {
  /** The text. */
  text: string;
  type: 'stderr';
}

/** Output on standard output; bytes that are not UTF-8 are replaced. */
export interface CellEventStdout {
  /** The text. */
  text: string;
  type: 'stdout';
}

/** Error of a cell. */
export interface CellFailure {
  /** Class of the error, such as `NameError`; `TimeLimitExceeded`, `OutputLimitExceeded`, `MemoryLimitExceeded`, `ContextEnded` and `ProtocolError` are Cove's own. */
  name: string;
  /** Places in the code that led to it, without colours. */
  traceback: string;
  /** Message of the error. */
  value: string;
}

/** Answer of `POST /v1/sessions/{id}/contexts/{context}/execute` without a stream. */
export interface CellReport {
  /** True if the context's process has ended: what was defined is lost, and the next cell starts a new one. */
  context_ended: boolean;
  /** Processor time of the context's process and of what it has waited for, as the process itself says; none when it has ended. */
  cpu_ms?: number | null;
  /** Error, if it failed. */
  error?: CellFailure | null;
  /** Number of the cell in its context, from 1. */
  execution_count: number;
  /** Most memory that the context's process had during the cell, as the process itself says. */
  memory_bytes?: number | null;
  /** Results and what was displayed, in their order. */
  results: CellResult[];
  /** Standard error. */
  stderr: string;
  /** Standard output. */
  stdout: string;
  /** True if there was more output than is kept. */
  truncated: boolean;
  /** Verdict: `OK`, `RE` for an error, `TLE`, `MLE`, `OLE`, `SG` for a context that was killed. */
  verdict: Verdict;
  /** Wall time. */
  wall_ms: number;
}

/** A value in all its representations. */
export interface CellResult {
  /** Representations by MIME type: text, Base64 for binary types, JSON for `application/json`, `e2b/data` (columns of a data frame) and `e2b/chart` (data of a chart). */
  data: Record<string, unknown>;
  /** True for the value of the cell, false for what it displays. */
  is_main_result: boolean;
  /** MIME types that were cut or left out because they are too long. */
  truncated?: string[];
}

/** Result of a check of the machine. */
export type CheckStatus = 'ok' | 'note' | 'missing';

/** A grant that was checked. Nothing was made. */
export interface CheckedGrant {
  /** True if it would be given. */
  given: boolean;
  /** Name of the grant: `postgres:shop`, `http`. */
  grant: string;
  /** Port inside. */
  port: number;
  /** Reason why it would not be. */
  refusal?: GrantRefusal | null;
}

/** Message of a caller on the WebSocket of `/v1/executions/{id}/events`. */
export type ClientMessage = ClientMessageStdin | ClientMessageEof | ClientMessageSignal | ClientMessageResize | ClientMessageCancel | ClientMessageAck;

/** Acknowledges output of a terminal that was opened with `window`. Elsewhere it says nothing. */
export interface ClientMessageAck {
  /** Bytes of this connection's output that the client has shown so far. */
  bytes: number;
  type: 'ack';
}

/** Ends the execution. */
export interface ClientMessageCancel {
  type: 'cancel';
}

/** End of standard input. */
export interface ClientMessageEof {
  type: 'eof';
}

/** The terminal has another size. */
export interface ClientMessageResize {
  /** Columns. */
  cols: number;
  /** Lines. */
  rows: number;
  type: 'resize';
}

/** A signal for the program. */
export interface ClientMessageSignal {
  /** Name of the signal, such as `SIGINT`. */
  signal: string;
  type: 'signal';
}

/** Bytes for standard input: exactly one of `data` and `data_base64`. */
export interface ClientMessageStdin {
  /** The bytes as text. */
  data?: string | null;
  /** The bytes as base64. */
  data_base64?: string | null;
  type: 'stdin';
}

/** Transport of a client to the bouncer. */
export type ClientTransportMode = 'tcp' | 'tls' | 'unix';

/** Context of a code interpreter: a process that keeps what its cells have defined. */
export interface CodeContext {
  /** Directory that it starts in. */
  cwd: string;
  /** True for the one that the name of its language stands for. */
  default: boolean;
  /** Cells that it has run since it was started; a copy counts on from those of its origin. */
  executions: number;
  /** Id of the context that it is a copy of. */
  forked_from?: string | null;
  /** Names it: `ctx_…`. */
  id: string;
  /** Language of its cells. */
  language: string;
  /** State of its process. */
  state: CodeContextState;
}

/** Answer of `GET /v1/sessions/{id}/contexts`: oldest first. */
export interface CodeContextList {
  /** All there are. */
  contexts: CodeContext[];
}

/** State of a context. */
export type CodeContextState = 'cold' | 'idle' | 'running';

/** Changes of one table, all or none. */
export interface CommitTableRequest {
  identifier?: TableIdentifier;
  /** What must hold. */
  requirements: TableRequirement[];
  /** What is done, in this order. */
  updates: TableUpdate[];
}

/** A table after a commit. */
export interface CommitTableResult {
  metadata: TableMetadata;
  /** Its new metadata file. */
  'metadata-location': string;
}

/** Changes of several tables, all or none. */
export interface CommitTransactionRequest {
  /** For each table its changes. */
  'table-changes': CommitTableRequest[];
}

/** Changes of one view, all or none. */
export interface CommitViewRequest {
  identifier?: TableIdentifier;
  /** What must hold. */
  requirements?: {
    type: 'assert-view-uuid';
    /** The identity that it must have. */
    uuid?: string;
  }[];
  /** What is done, in this order. */
  updates: TableUpdate[];
}

/** Configuration of a server that is in force. */
export interface Config {
  /** Configuration file that was read; absent when there is none. */
  file?: string | null;
  /** Settings, in the order of the documentation. */
  settings: Setting[];
}

/** Answer of `POST /v1/reload`. */
export interface ConfigReloaded {
  /** Settings that changed and are taken over only by a restart. */
  restart_needed_for: string[];
  /** Settings whose new values are in force from now on, and `tls.cert` when its files changed. */
  taken_over: string[];
}

/** A code that lets one page of the console sign in, once. */
export interface ConsoleCode {
  /** The code. */
  code: string;
  /** When it ends, in milliseconds since 1970. */
  expires_ms: number;
  /** Path of the console with the code in the fragment, which browsers do not send. */
  url_path: string;
}

/** Redemption of a code. */
export interface ConsoleLogin {
  /** The code. */
  code: string;
}

/** A sign-in of the console. */
export interface ConsoleSession {
  /** When it ends by itself, in milliseconds since 1970. */
  expires_ms: number;
  /** The token of the sign-in, to be sent as any other. */
  token: string;
}

/** Body of `POST /v1/sessions/{id}/contexts`. */
export interface CreateCodeContext {
  /** Working directory; `/workspace` when absent. */
  cwd?: string | null;
  /** Environment beside the session's. */
  env?: Record<string, string>;
  /** `python`, `javascript`, `typescript` or `bash`; `python` when absent. */
  language?: string | null;
}

/** Request for a code that lets one page of the console sign in. */
export interface CreateConsoleCode {
  /** Scopes of the sign-in, at most those of the token; left out, all of them. */
  scopes?: string[] | null;
}

/** Body of `POST /v1/credentials`. */
export interface CreateCredential {
  /** `anthropic`: the key for the model, which never enters a sandbox. `openai`, `bedrock`, `custom`: agents get it as `OPENAI_API_KEY`, `AWS_BEARER_TOKEN_BEDROCK`, `CREDENTIAL`. */
  kind: string;
  /** Label of the credential. */
  label?: string;
  /** The secret. Stored encrypted, never shown. */
  secret: string;
}

/** A namespace to make. */
export interface CreateNamespaceRequest {
  namespace: NamespaceLevels;
  /** Its properties. */
  properties?: Record<string, string>;
}

/** Body of `POST /v1/sessions`. */
export interface CreateSession {
  /** Name of the agent; none for a workspace without one. */
  agent?: string | null;
  /** Id of a credential whose secret the agent gets. */
  credential?: string | null;
  /** Environment beside the agent's. Stored encrypted, never shown. */
  env?: Record<string, string>;
  /** Grants of the sandbox, in place of the agent's; those when absent. */
  grants?: Grant[] | null;
  /** Seconds without a message after which it gives up its sandbox. */
  idle_s?: number | null;
  /** Limits in place of the agent's. */
  limits?: SessionLimits;
  /** Labels to find the session by. */
  metadata?: Record<string, string>;
  /** Treatment of a turn when its listeners go away. Default: `"continue"`. */
  on_disconnect?: OnDisconnect;
  /** Options that the agent gets at its start. */
  options?: AgentOptions;
  /** Id of the snapshot whose files are used in place of the agent's. */
  snapshot?: string | null;
  /** Template that it starts from: a name, `name:tag`, or an id. Only without `agent` and `snapshot`. */
  template?: string | null;
}

/** A table to make. */
export interface CreateTableRequest {
  /** Where its files go, if the client says. */
  location?: string;
  /** Its name in the namespace. */
  name: string;
  'partition-spec'?: PartitionSpec;
  /** Its properties; `format-version` is that of its metadata. */
  properties?: Record<string, string>;
  schema: IcebergSchema;
  /** Only prepare it: it is there with the first commit. */
  'stage-create'?: boolean;
  'write-order'?: SortOrder;
}

/** A view to make. */
export interface CreateViewRequest {
  /** Where its files go, if the client says. */
  location?: string;
  /** Its name in the namespace. */
  name: string;
  /** Its properties. */
  properties: Record<string, string>;
  schema: IcebergSchema;
  'view-version': ViewVersion;
}

/** A secret kept for agents, as it is shown: never with its value. */
export interface Credential {
  /** When it was made. */
  created_at: string;
  /** Names it: `cred_…`. */
  id: string;
  /** `anthropic`, `openai`, `bedrock` or `custom`. */
  kind: string;
  /** Name given by its owner. */
  label: string;
  /** When a session used it last. */
  last_used_at?: string | null;
}

/** Credential that a caller showed. */
export type CredentialKind = 'token' | 'console' | 'issued';

/** Answer of `GET /v1/credentials`. */
export interface CredentialList {
  /** All of the tenant. */
  credentials: Credential[];
}

/** Column of a table or view. */
export interface DataColumn {
  /** Comment on it. */
  comment?: string | null;
  /** Name. */
  name: string;
  /** True if it can be NULL. */
  nullable: boolean;
  /** Type, as it would be defined: `numeric(10,2)`, `list<string>`. */
  type: string;
}

/** Table, view or namespace. */
export interface DataObject {
  /** Columns. */
  columns?: DataColumn[];
  /** Comment on it. */
  comment?: string | null;
  /** Keys and other constraints, as they would be defined. */
  constraints?: string[];
  /** Kind, as the database calls it: `table`, `view`, `materialized view`, `namespace`. */
  kind: string;
  /** Name with its schema or namespace: `public.orders`. */
  name: string;
  /** Parts of the partition spec of an Iceberg table: `day(ordered_at)`. */
  partitions?: string[];
  /** Snapshots of an Iceberg table. */
  snapshots?: SnapshotFacts | null;
}

/** Limits of a sandbox on a database. What is left out is as the server's `[gateway]` says; 0 is for no limit. */
export interface DatabaseGrantLimits {
  /** Bytes of rows that one statement may return. */
  bytes?: number | null;
  /** Connections at one time. */
  connections?: number | null;
  /** Seconds that nothing may happen in an open transaction. */
  idle_in_transaction_s?: number | null;
  /** Rows that one statement may return. */
  rows?: number | null;
  /** Seconds that a statement may take. */
  statement_s?: number | null;
  /** Seconds that a transaction may be open. */
  transaction_s?: number | null;
}

/** Body of `POST /v1/agents`: a new agent, or a new version of one that exists. */
export interface DeployRequest {
  /** Description for people. */
  description?: string | null;
  /** Environment of every session's processes. Values are stored encrypted and never shown. */
  env?: Record<string, string>;
  /** Complete content of the agent's folder: what an earlier version had and this one has not is gone. A file `install.sh` is run once, inside a sandbox, and what it makes is part of the version. */
  files?: AgentFile[];
  /** Grants of the agent's sessions, unless one is created with others. Left out: what a file `grants.json` of the folder says, a list of them; nothing without one. */
  grants?: Grant[] | null;
  /** Limits of its sessions, unless a session asks for others. */
  limits?: SessionLimits;
  /** Letters, digits, `_` and `-`, 1 to 64 of them; unique for its tenant. */
  name?: string;
  /** Settings that a session may override. */
  options?: AgentOptions;
  /** Program that sessions start. Left out: Claude where there is a `CLAUDE.md`, else nothing, so that sessions have a workspace and no agent. */
  runtime?: AgentRuntime | null;
  /** Lifetimes of the agent's sessions. */
  settings?: AgentSettings;
  /** Template whose files and environment are below the folder's: a name, `name:tag`, or an id. */
  template?: string | null;
}

/** Checks of a server: those that are under way, and the last report. */
export interface Doctor {
  /** The last report; absent until the first is made. */
  last?: DoctorRun | null;
  /** True while checks are under way. */
  running: boolean;
}

/** A check of the machine. */
export interface DoctorCheck {
  /** Consequence and remedy, when there is one. */
  follows?: string | null;
  /** Findings, in words. */
  found: string;
  /** Name of the check. */
  name: string;
  /** Result. */
  status: CheckStatus;
}

/** Report about a machine. */
export interface DoctorReport {
  /** Checks, in the order in which they were made. */
  checks: DoctorCheck[];
  /** Languages, and which of them can be used. */
  languages: Language[];
  /** True if untrusted code can be run here. */
  ok: boolean;
  /** True if the checks ran as root. */
  root: boolean;
  /** Version of Cove. */
  version: string;
}

/** Report that a server made of itself. */
export interface DoctorRun {
  /** Id of the server. */
  node: string;
  /** The report. */
  report: DoctorReport;
  /** When the checks began, in milliseconds since 1970. */
  started_ms: number;
  /** Time that they took, in milliseconds. */
  took_ms: number;
}

/** Services that a server has. */
export interface EnabledServices {
  /** The pooler of databases. */
  bouncer: boolean;
  /** The Iceberg catalog. */
  catalog: boolean;
  /** Programs that are run once. */
  executions: boolean;
  /** Grants of sandboxes. */
  gateway: boolean;
  /** Asynchronous executions. */
  queue: boolean;
  /** Sessions and agents. */
  sessions: boolean;
}

/** Body of every response with a status of 400 or above. */
export interface ErrorBody {
  /** The error. */
  error: ErrorDetail;
}

/** Stable identifiers of errors. */
export type ErrorCode = 'invalid_request' | 'unknown_language' | 'language_unavailable' | 'unauthenticated' | 'forbidden' | 'not_found' | 'method_not_allowed' | 'conflict' | 'gone' | 'body_too_large' | 'unsupported_media_type' | 'too_many_requests' | 'overloaded' | 'draining' | 'upgrade_required' | 'node_lost' | 'internal';

/** An error: what went wrong, whose fault it is and whether to try again. */
export interface ErrorDetail {
  /** Stable identifier to match on. */
  code: ErrorCode;
  /** Path of the offending field in the request, when there is one: `limits.cpu_ms`, `files[2].name`. */
  field?: string | null;
  /** Sentence for a person: lower case, no period. Not stable. */
  message: string;
  /** True if the same request may succeed later without being changed. */
  retry: boolean;
}

/** Body of `POST /v1/sessions/{id}/contexts/{context}/execute`. */
export interface ExecuteCell {
  /** The cell. */
  code?: string;
  /** Environment for this cell alone. */
  env?: Record<string, string>;
  /** Milliseconds after which it is interrupted, and a little later killed with its context. */
  timeout_ms?: number | null;
}

/** The answer: what the program did, and how it ended. */
export interface Execution {
  /** CPU time of all its processes, in milliseconds with one decimal. */
  cpu_ms: number;
  /** The program's exit code; null when a signal ended it or it never started. */
  exit_code: number | null;
  /** The files asked for in `outputs`, in that order. */
  files?: OutputFile[];
  /** Names this execution in logs. */
  id: ExecutionId;
  /** Number of its last event; 0 for an execution without events. */
  last_seq?: number;
  /** The limit that ended the stage or spoiled its verdict. */
  limit: LimitHit | null;
  /** Largest memory use of all its processes together, in bytes; 0 where the kernel does not tell. */
  memory_peak_bytes: number;
  /** Explanation for a person beyond the verdict, such as why the program could not be started. */
  message?: string | null;
  /** Speed mode that was used. */
  mode: ExecutionMode;
  /** Processes the kernel killed because the stage was out of memory. */
  oom_kills: number;
  /** Largest number of processes and threads at one time; 0 where the kernel does not tell. */
  processes_peak: number;
  /** Name of the signal that ended it (`SIGSEGV`); null when it exited. */
  signal: string | null;
  /** Every stage that ran, in order. */
  stages: StageResult[];
  /** Standard error, likewise. */
  stderr: string;
  /** Exact standard error, likewise. */
  stderr_base64?: string | null;
  /** Standard output. Where `stdout_base64` is given, that is exact and this is for reading: what is not UTF-8 is replaced by U+FFFD, and only the beginning of what is long is here. */
  stdout: string;
  /** Exact standard output, only when it is not UTF-8, or has more than 4 KiB of which so much is control characters that JSON would take more than twice as long for it. */
  stdout_base64?: string | null;
  /** Results of the test cases that ran, in order. */
  tests?: TestResult[];
  /** Streams that lost output beyond `output_bytes`. */
  truncated: TruncatedStreams;
  /** The judgement. */
  verdict: Verdict;
  /** Time from start to end, in milliseconds with one decimal. */
  wall_ms: number;
}

/** Event of an execution, as on `/v1/executions/{id}/events`. */
export type ExecutionEvent = (ExecutionEventQueued | ExecutionEventStarted | ExecutionEventStage | ExecutionEventStdout | ExecutionEventStderr | ExecutionEventExit | ExecutionEventGap | ExecutionEventVerdict | ExecutionEventEnded) & {
  /** Counts from 1 without gaps; a later attempt, after a failure of the server, goes on with much larger numbers. The id of a server-sent event. */
  seq: number;
};

/** Ended without a result. The last event. */
export interface ExecutionEventEnded {
  /** Why. */
  message?: string | null;
  /** Final state. */
  state: ExecutionState;
  type: 'ended';
}

/** A stage has ended. */
export interface ExecutionEventExit {
  /** CPU time in milliseconds. */
  cpu_ms: number;
  /** Exit code, when it exited. */
  exit_code: number | null;
  /** Speed mode that was used. */
  mode: ExecutionMode;
  /** Signal that ended it. */
  signal: string | null;
  /** Name of the stage. */
  stage: StageName;
  /** Number of the test case, from 1. */
  test?: number | null;
  type: 'exit';
  /** Verdict of the stage. */
  verdict: Verdict;
  /** Time from start to end in milliseconds. */
  wall_ms: number;
}

/** Events in between are not kept any more. */
export interface ExecutionEventGap {
  /** The first one that is missing. */
  from: number;
  /** The last one that is missing. */
  to: number;
  type: 'gap';
}

/** Durable and waiting. */
export interface ExecutionEventQueued {
  /** Number of executions before it. */
  position?: number | null;
  type: 'queued';
}

/** A stage begins. */
export interface ExecutionEventStage {
  /** Name of the stage. */
  stage: StageName;
  /** Number of the test case, from 1. */
  test?: number | null;
  type: 'stage';
}

/** A worker has it. */
export interface ExecutionEventStarted {
  /** Number of the attempt, from 1. */
  attempt: number;
  type: 'started';
}

/** A chunk of standard error of the current stage. */
export interface ExecutionEventStderr {
  /** The bytes as text. */
  data?: string | null;
  /** The bytes as base64. */
  data_base64?: string | null;
  type: 'stderr';
}

/** A chunk of standard output of the current stage. */
export interface ExecutionEventStdout {
  /** The bytes as text. */
  data?: string | null;
  /** The bytes as base64. */
  data_base64?: string | null;
  type: 'stdout';
}

/** Finished with a result. The last event. */
export interface ExecutionEventVerdict {
  /** The whole result. */
  result: Execution;
  type: 'verdict';
  /** The judgement. */
  verdict: Verdict;
}

/** Identifies one execution: `ex_` and 26 characters of Crockford base 32, sortable by time. */
export type ExecutionId = string;

/** Answer of `GET /v1/executions`: newest first, without results. */
export interface ExecutionList {
  /** This page. */
  executions: ExecutionRecord[];
  /** Value of `cursor` for the next page; none on the last one. */
  next_cursor?: string | null;
}

/** Speed mode of a result. Speed modes have names of their own, so that no figure hides one. In every mode, each program runs in a sandbox of its own, which is used once. */
export type ExecutionMode = 'fresh' | 'cached' | 'zygote' | 'prestarted' | 'cached_zygote' | 'cached_prestarted';

/** An execution and its state. Answer of `POST /v1/executions` (202) and `GET /v1/executions/{id}`. */
export interface ExecutionRecord {
  /** Number of starts. */
  attempts: number;
  /** When it was accepted (RFC 3339, milliseconds, UTC). */
  created_at: string;
  /** In how many milliseconds it will start, estimated from what ran lately; while queued. */
  estimated_start_ms?: number | null;
  /** When it is forgotten, once it is final. */
  expires_at?: string | null;
  /** When it reached its final state. */
  finished_at?: string | null;
  /** Names it. */
  id: ExecutionId;
  /** Label, as given. */
  label?: string | null;
  /** The language, or `argv`. */
  language: string;
  /** Why it is dead, cancelled or expired. */
  message?: string | null;
  /** Number of executions before it, while it is queued. */
  position?: number | null;
  /** Priority, as given. */
  priority: number;
  /** The request as it was sent, with `include=request`. */
  request?: ExecutionRequest | null;
  /** The result, once it is finished. */
  result?: Execution | null;
  /** When the latest attempt began. */
  started_at?: string | null;
  /** State of the execution. */
  state: ExecutionState;
  /** Verdict, once it is finished. Absent in Redis, and for what a server of an earlier version finished; the result has it always. */
  verdict?: Verdict | null;
}

/** A program to run, on which input and within which limits. Body of `POST /v1/executions`. Exactly one of `language` and `argv` is given. With `language`, the program is `source` (one file under the language's usual name) or `files` (the first one is the program's entry). */
export interface ExecutionRequest {
  /** Arguments to the program, after the ones its language needs. */
  args?: string[];
  /** The command itself: program and arguments. Nothing is compiled. */
  argv?: string[] | null;
  /** Comparison of a test case's output with the expected one. */
  comparison?: OutputComparison | null;
  /** Arguments to the compiler, after the ones its language gives it. */
  compile_args?: string[];
  /** Limits of the compile stage. What is left out has the language's default. */
  compile_limits?: LimitSpec;
  /** Time within which it must have started, from submission, in milliseconds. After it, a waiting execution ends as `expired`. */
  deadline_ms?: number | null;
  /** Environment variables of the run stage, added to a minimal set. */
  env?: Record<string, string>;
  /** Files placed in the working directory before the first stage; with `source`, beside it. The directory is `/workspace` unless a template has another. */
  files?: SourceFile[];
  /** True to take no short cut: neither the compile cache nor a runtime that was started ahead. */
  fresh?: boolean;
  /** Grants of the program, which reaches them through sockets of its own loopback. With `tests`, each run has them anew; compilers, checkers and interactors have none. Variables that clients look for are set, unless `env` has them. */
  grants?: Grant[];
  /** True if standard input, signals and end of file come over a WebSocket of the caller's. The program starts when one is connected and is ended when it goes away. */
  interactive?: boolean;
  /** A second program, connected to the first by pipes: each one's standard output is the other's standard input. It judges the first. With `tests`, it is run anew for each. */
  interactor?: JudgeProgram | null;
  /** Text to find the execution by. */
  label?: string | null;
  /** Name or alias of a language of `GET /v1/languages`. */
  language?: string | null;
  /** Limits of the run stage. What is left out has the server's default. */
  limits?: LimitSpec;
  /** True if standard error goes where standard output goes, in order. */
  merge_stderr?: boolean;
  /** Files below the working directory to return when the run stage has ended. */
  outputs?: string[];
  /** Priority among the waiting executions of a tenant; the highest runs first, from -100 to 100. Waiting raises it, so that nothing waits for ever. */
  priority?: number;
  /** Text of a program that is one file. */
  source?: string | null;
  /** Standard input as text. Without it and `stdin_base64`, the program reads end of file at once. */
  stdin?: string | null;
  /** Standard input as base64 (RFC 4648 §4), for bytes that are not UTF-8. */
  stdin_base64?: string | null;
  /** True if test cases after the first that is not `OK` are left out. */
  stop_at_first_failure?: boolean;
  /** Template that every sandbox of it begins with: `name`, `name:tag` or an id. Its files are at their places, its environment is below that of `env`, and files, programs and outputs are in its working directory. What programs change is their own. The token needs the scope `sessions`. */
  template?: string | null;
  /** Runs the program on a terminal of this size instead of pipes; implies `interactive`. */
  terminal?: TerminalSize | null;
  /** Test cases: the program is compiled once and run once for each, every run in a sandbox of its own. Excludes `stdin`, `outputs`, `interactive` and `terminal`. Left out where there are none: an empty list is an error. */
  tests?: TestCase[];
  /** Whom to tell of the result. Only for asynchronous executions. */
  webhook?: WebhookTarget | null;
}

/** State of an execution. `queued` and `running` go on; the others are final. */
export type ExecutionState = 'queued' | 'running' | 'finished' | 'cancelled' | 'expired' | 'dead';

/** A token of a plan. */
export interface FetchTasksRequest {
  /** One of `plan-tasks`. */
  'plan-task': string;
}

/** Change of a watched file. */
export interface FileChange {
  /** From the watched directory on; empty for itself. */
  path: string;
  /** `create`, `write`, `remove`, `rename`, `chmod`; `overflow` when some were lost. */
  type: string;
}

/** A file or directory of a session. */
export interface FileEntry {
  /** `file`, `dir`, `symlink` or `other`. */
  kind: string;
  /** Permission bits. */
  mode: number;
  /** When it was changed (milliseconds since 1970). */
  modified_ms: number;
  /** Relative to what was listed, or absolute. */
  path: string;
  /** Bytes. */
  size: number;
  /** Target of a symbolic link. */
  target?: string | null;
}

/** Answer of `GET /v1/sessions/{id}/files`. */
export interface FileList {
  /** By path. */
  entries: FileEntry[];
  /** There is more than was asked for. */
  truncated: boolean;
}

/** Body of `POST /v1/sessions/{id}/contexts/{context}/fork`. */
export interface ForkCodeContext {
  /** Forks it although threads run in it: the copy does not have them, and a lock that one of them holds stays locked in it. Default: `false`. */
  force?: boolean;
}

/** Body of `POST /v1/sessions/{id}/fork`. */
export interface ForkRequest {
  /** Number of copies; one when absent. */
  count?: number | null;
}

/** A page of functions. */
export interface FunctionList {
  /** Each by the levels of its namespace and its name. */
  identifiers: string[][];
  /** The `pageToken` of the next page; null on the last one. */
  'next-page-token'?: string | null;
}

/** The document of a function. Kept as it came. */
export interface FunctionMetadata {
  /** Its identity. */
  'function-uuid'?: string;
}

/** A thing that a sandbox may reach. */
export type Grant = GrantPostgres | GrantMysql | GrantCatalog | GrantHttp | GrantModel;

/** Kinds of access that a grant allows. */
export type GrantAccess = 'read_only' | 'read_write';

/** A warehouse of the catalog, at `http://localhost:8181`. */
export interface GrantCatalog {
  /** Access that is allowed. Default: `"read_only"`. */
  access?: GrantAccess;
  kind: 'catalog';
  /** Namespaces that are there, with all that is below them, levels divided by `.`; all of the warehouse when there is none. */
  namespaces?: string[];
  /** Port inside; 8181 when absent. */
  port?: number | null;
  /** Name of the warehouse. */
  warehouse: string;
}

/** Answer of `POST /v1/gateway/offers/check`. */
export interface GrantCheckReport {
  /** Variables that programs of the sandbox would find; none unless all grants would be given. */
  environment?: Record<string, string>;
  /** True if a sandbox would be given all of them. */
  given: boolean;
  /** Each grant, in the order of the request. */
  grants: CheckedGrant[];
}

/** Body of `POST /v1/gateway/offers/check`. */
export interface GrantCheckRequest {
  /** Grants of one sandbox. */
  grants: Grant[];
}

/** Answer of `GET /v1/sessions/{id}/grants/{name}/describe`. */
export interface GrantDescription {
  /** The grant: `postgres:shop`. */
  grant: string;
  /** Tables, views and namespaces; one with its columns where a name was given. */
  objects: DataObject[];
  /** True if there are more objects than these. */
  truncated: boolean;
}

/** Servers outside, through a proxy at `http://localhost:3128`. */
export interface GrantHttp {
  kind: 'http';
  /** Limits; those left out are the server's. */
  limits?: HttpGrantLimits;
  /** Port inside; 3128 when absent. */
  port?: number | null;
  /** The first one that fits a request decides; what fits none is refused. */
  rules: HttpRule[];
}

/** The model, at `http://localhost:8100`. */
export interface GrantModel {
  /** Dollars that may be spent, by the server's table of prices. */
  dollars?: number | null;
  kind: 'model';
  /** Models that may be asked for; every one when there is none. */
  models?: string[];
  /** Port inside; 8100 when absent. */
  port?: number | null;
  /** Tokens that may be used, those of questions and answers together. */
  tokens?: number | null;
}

/** Database that speaks MySQL's protocol, at `localhost:3306`. */
export interface GrantMysql {
  /** Access that is allowed. Default: `"read_only"`. */
  access?: GrantAccess;
  kind: 'mysql';
  /** Limits; those left out are the server's. */
  limits?: DatabaseGrantLimits;
  /** Port inside; 5432 or 3306 when absent. */
  port?: number | null;
  /** User of the tenant whose role on the server is used; the tenant's `server_user` when absent, or its only user. */
  role?: string | null;
  /** Schema that names without one mean: `search_path` of PostgreSQL, the database of MySQL. */
  schema?: string | null;
  /** Tenant of the bouncer. */
  tenant: string;
}

/** Limits that grants have where they name none. A token that is not `unrestricted` may name less and not more. */
export interface GrantOfferLimits {
  /** Limits of databases; 0 is for no limit. */
  database: DatabaseGrantLimits;
  /** Grants of one sandbox. */
  grants: number;
  /** Limits of servers outside; 0 is for no limit. */
  http: HttpGrantLimits;
  /** Tokens that all `model` grants of the tenant may use together in all; none without such a limit. */
  model_tokens?: number | null;
}

/** Answer of `GET /v1/gateway/offers`. */
export interface GrantOfferList {
  /** Limits of grants. */
  limits: GrantOfferLimits;
  /** Offers, by kind and name. Two of one name differ in their access or roles, which belong together. */
  offers: OfferedGrant[];
  /** Tenant of the token. */
  tenant: string;
  /** True if there are more than are listed here: 1,000. */
  truncated: boolean;
  /** True if the token may give every grant that this server can serve, with any limits: that of an operator with the scope `tenants`. The offers are then what the server has. */
  unrestricted: boolean;
}

/** A tenant of the bouncer that speaks PostgreSQL's protocol, at `localhost:5432`. */
export interface GrantPostgres {
  /** Access that is allowed. Default: `"read_only"`. */
  access?: GrantAccess;
  kind: 'postgres';
  /** Limits; those left out are the server's. */
  limits?: DatabaseGrantLimits;
  /** Port inside; 5432 or 3306 when absent. */
  port?: number | null;
  /** User of the tenant whose role on the server is used; the tenant's `server_user` when absent, or its only user. */
  role?: string | null;
  /** Schema that names without one mean: `search_path` of PostgreSQL, the database of MySQL. */
  schema?: string | null;
  /** Tenant of the bouncer. */
  tenant: string;
}

/** Body of `POST /v1/sessions/{id}/grants/{name}/query`. */
export interface GrantQuery {
  /** Rows that are returned at most, 1 to 10000; 1000 when absent. */
  max_rows?: number | null;
  /** Values of its parameters: `$1`, `$2` … of PostgreSQL, `?` of MySQL. Objects and lists are sent as JSON. */
  parameters?: unknown[];
  /** Statement that reads, a single one, in the database's own language. */
  sql: string;
}

/** Result of a statement. */
export interface GrantQueryResult {
  /** Columns; none of a statement that returns no rows. */
  columns: QueryColumn[];
  /** Limit that ended the rows, when they are truncated. */
  limit?: QueryLimit | null;
  /** Rows that are here. */
  row_count: number;
  /** Values, in the order of the columns. */
  rows: unknown[][];
  /** Seconds from the connection to the last row. */
  seconds: number;
  /** True if there are more rows than these. */
  truncated: boolean;
}

/** Reason why a grant would not be given. */
export interface GrantRefusal {
  /** `forbidden` for what is not offered to the token's tenant, `invalid_request` for what this server cannot serve as it is said. */
  code: ErrorCode;
  /** Part of the request that is refused: `grants[1].tenant`. */
  field: string;
  /** A sentence. */
  message: string;
}

/** Source of a header's value. */
export type HeaderSource = {
  text: string;
} | {
  secret: string;
};

/** Series of what a server measured, with one value for each time. */
export interface HistoryReport {
  /** Series that had no room in the server's memory. */
  left_out?: number;
  /** The server that measured: each node of a cluster has a history of its own. */
  node: string;
  /** In the order of their names. */
  series: HistorySeries[];
  /** Milliseconds of a step. */
  step_ms: number;
  /** Tenant whose own figures these are; without it they are those of the whole server. */
  tenant?: string | null;
  /** Start of each step, in milliseconds since 1970. The last step is not over. */
  times_ms: number[];
}

/** Series of measurements. */
export interface HistorySeries {
  /** `tenant` of the bouncer, `class` of verdicts; empty for most. */
  labels?: Record<string, string>;
  /** Name, as in the page on history. */
  name: string;
  /** Unit of the values. */
  unit: HistoryUnit;
  /** A value for each time; null where nothing was measured. */
  values: (number | null)[];
}

/** Unit of the values of a series. */
export type HistoryUnit = 'count' | 'per_second' | 'bytes' | 'bytes_per_second' | 'seconds' | 'cores';

/** Treatment of a request. */
export type HttpEffect = 'allow' | 'deny';

/** Limits of a sandbox on its proxy. What is left out is as the server's `[gateway]` says; 0 is for no limit. */
export interface HttpGrantLimits {
  /** Bytes of bodies and tunnels in all, in both directions. */
  bytes?: number | null;
  /** Connections at one time. */
  connections?: number | null;
  /** Requests and tunnels in all. */
  requests?: number | null;
}

/** Rule on requests to servers outside. What is left out fits everything, but for the hosts. */
export interface HttpRule {
  /** Networks of addresses that its hosts may have although `deny_networks` has them. */
  allow_networks?: string[];
  /** Networks of addresses that its hosts may not have, such as `8.8.8.0/24`; `0.0.0.0/0` and `::/0` are all. Looked at when a name has been resolved. Only of a rule that allows. */
  deny_networks?: string[];
  /** Treatment of a request that matches. Default: `"allow"`. */
  effect?: HttpEffect;
  /** Headers that are put into each request outside, in place of those that it has: a text, or the name of one of the server's secrets. A rule that has some does not fit a tunnel. */
  headers?: Record<string, HeaderSource>;
  /** Names of hosts: `example.com`, `*.example.com` for all below it, `*` for all; or addresses. */
  hosts: string[];
  /** Networks of internal addresses that its hosts may have, such as `10.1.0.0/16`. Others are refused, whatever their names are. */
  internal?: string[];
  /** Methods, in upper case. A rule that allows some does not match a tunnel (`CONNECT`), whose requests are encrypted, unless it names `CONNECT`; a rule that denies some matches every tunnel. */
  methods?: string[];
  /** Paths: `/v1/items`, or `/v1/*` for all that begin so. A rule that allows some does not fit a tunnel; one that denies some fits every tunnel. A path that servers read in different ways, such as one with `%2f`, `//` or `;`, is refused where a rule looks at paths. */
  paths?: string[];
  /** Ports; 80 and 443 when there is none, and all for a rule that denies. */
  ports?: number[];
  /** True if requests of a session's sandbox carry `cove-session`, its id, and `cove-epoch`, a number that grows with each server that takes the session over, so that the host can refuse what a former one has sent. A rule that has it does not fit a tunnel. No program inside can set these headers. */
  session_headers?: boolean;
  /** True if the request goes on over TLS although it came without, which is how headers are put into requests to `https` servers: `http://api.example.com/` is asked for inside, and `https://api.example.com/` outside. */
  tls?: boolean;
}

/** The form of every error of the catalog. */
export interface IcebergError {
  /** What is wrong. */
  error: {
    /** The status of the answer. */
    code: number;
    /** A sentence for people. */
    message: string;
    /** Always empty. */
    stack?: string[];
    /** A name for programs, such as `NoSuchTableException`. */
    type: string;
  };
}

/** A column, or a field of one. */
export interface IcebergField {
  /** A comment. */
  doc?: string;
  /** Unique within the table, and kept when it is renamed. */
  id: number;
  /** Value of rows that were written before it was added. */
  'initial-default'?: unknown;
  /** Its name. */
  name: string;
  /** Whether each row has a value. */
  required: boolean;
  /** A primitive type by name, such as `long` or `decimal(9,2)`, or a struct, list or map. */
  type: string | Record<string, unknown>;
  /** Value of rows that do not say one. */
  'write-default'?: unknown;
}

/** Columns of a table or view. */
export interface IcebergSchema {
  /** Columns. */
  fields: IcebergField[];
  /** Columns that name a row. */
  'identifier-field-ids'?: number[];
  /** Its number within the table. */
  'schema-id'?: number;
  /** `struct`. */
  type: 'struct';
}

/** A version of the data of a table. */
export interface IcebergSnapshot {
  /** Rows that it added. */
  'added-rows'?: number;
  /** The id of its first row. */
  'first-row-id'?: number;
  /** The file that lists its manifests. */
  'manifest-list': string;
  /** The one before. */
  'parent-snapshot-id'?: number;
  /** The schema that it was written with. */
  'schema-id'?: number;
  /** Its place in the order of changes. */
  'sequence-number'?: number;
  /** Its id. */
  'snapshot-id': number;
  /** What it did. */
  summary: {
    operation: 'append' | 'replace' | 'overwrite' | 'delete';
  } & Record<string, string>;
  /** When it was made, in milliseconds since 1970. */
  'timestamp-ms': number;
}

/** Answer of `POST /v1/sessions/{id}/interrupt`. */
export interface InterruptAnswer {
  /** True if a turn was running. */
  interrupted: boolean;
}

/** A program beside the one that is judged: a checker or an interactor. */
export interface JudgeProgram {
  /** Arguments before those that Cove adds. */
  args?: string[];
  /** The command itself. */
  argv?: string[] | null;
  /** Arguments to its compiler, after the ones its language gives it. */
  compile_args?: string[];
  /** Limits of its compilation. */
  compile_limits?: LimitSpec;
  /** Environment variables. */
  env?: Record<string, string>;
  /** Source files. */
  files?: SourceFile[];
  /** Name or alias of a language; exactly one of this and `argv`. */
  language?: string | null;
  /** Limits of its run. */
  limits?: LimitSpec;
  /** Text of a program that is one file. */
  source?: string | null;
}

/** A language and whether it can be used on this host. */
export interface Language {
  /** Other names that are accepted. */
  aliases: string[];
  /** True if programs in it can be run here. */
  available: boolean;
  /** True if a compile stage precedes the run stage. */
  compiled: boolean;
  /** File name extensions that select it on the command line, without the dot. */
  extensions: string[];
  /** Canonical name, as given in `ExecutionRequest.language`. */
  name: string;
  /** True while files that its compiler uses, such as a standard library, are being prepared. Compiling is slow until then. */
  preparing?: boolean;
  /** Why not, when it is not available. */
  reason?: string | null;
  /** First line of what the tool prints for its version, when it is available. */
  version?: string | null;
}

/** Answer of `GET /v1/languages`. */
export interface LanguageList {
  /** Every configured language, available or not, by name. */
  languages: Language[];
}

/** The limit that was hit. */
export type LimitHit = 'cpu' | 'wall' | 'memory' | 'output';

/** Limits of one stage. What is left out has a default; what exceeds the server's maximum is refused. */
export interface LimitSpec {
  /** CPU time of all its processes together, in milliseconds. */
  cpu_ms?: number | null;
  /** Bytes in `/workspace`, `/tmp`, `/home/user` and `/dev/shm` together. */
  disk_bytes?: number | null;
  /** Files and directories there. */
  disk_inodes?: number | null;
  /** Size of one written file, in bytes. */
  file_size_bytes?: number | null;
  /** Memory of all its processes together, with the files they write, in bytes. */
  memory_bytes?: number | null;
  /** Open file descriptors of one process. */
  open_files?: number | null;
  /** Bytes kept of standard output and of standard error, each. */
  output_bytes?: number | null;
  /** Processes and threads at one time. */
  processes?: number | null;
  /** Size of the main thread's stack, in bytes. */
  stack_bytes?: number | null;
  /** Time from start to end, in milliseconds. */
  wall_ms?: number | null;
}

/** Message of a client on the WebSocket of `/v1/live`. */
export type LiveClientMessage = LiveClientMessageSubscribe | LiveClientMessageUnsubscribe;

/** Follows a topic. */
export type LiveClientMessageSubscribe = LiveSubscribe & {
  op: 'subscribe';
};

/** Stops following. Nothing of this subscription is sent any more; an `id` that is not known is no error, because the topic may have ended meanwhile. */
export interface LiveClientMessageUnsubscribe {
  /** The `id` of the subscription. */
  id: string;
  op: 'unsubscribe';
}

/** Message of the server on the WebSocket of `/v1/live`: `id`, and one of the others. */
export interface LiveServerMessage {
  /** True when nothing more can happen. The last message of the subscription. */
  ended?: boolean | null;
  /** Why the topic is not followed, or not any more. The last message of the subscription. */
  error?: ErrorDetail | null;
  /** Event, as the route of the topic has it. */
  event?: unknown;
  /** The `id` of the subscription. */
  id: string;
  /** Number of times that the topic was not looked at because this client did not read; the next event has what is current. */
  lagged?: number | null;
  /** True once, when the topic is followed: the token may, and what it names is there. */
  ok?: boolean | null;
}

/** A topic, and what of it is wanted. */
export interface LiveSubscribe {
  /** Name of the subscription, chosen by the client: 1 to 64 bytes, unique on the socket. */
  id: string;
  /** `executions`, `execution.events`, `sessions`, `session.events`, `session.files`, `audit`, `tenants` or `catalog.changes`. */
  topic: string;
}

/** Credentials for the files of a table. */
export interface LoadCredentialsResult {
  /** One for each prefix. */
  'storage-credentials': StorageCredential[];
}

/** A function. */
export interface LoadFunctionResult {
  metadata: FunctionMetadata;
  /** Its metadata file. */
  'metadata-location'?: string;
}

/** A table. */
export interface LoadTableResult {
  /** Settings for access to its files. */
  config?: Record<string, string>;
  metadata: TableMetadata;
  /** Its metadata file; absent when it is staged. */
  'metadata-location'?: string;
  /** Credentials for its files. */
  'storage-credentials'?: StorageCredential[];
}

/** A view. */
export interface LoadViewResult {
  /** Settings of the client. */
  config?: Record<string, string>;
  metadata: ViewMetadata;
  /** Its metadata file. */
  'metadata-location': string;
}

/** Error of JSON-RPC or of the protocol: the request was not carried out. */
export interface McpFailure {
  /** -32700 and -32600 to -32603 of JSON-RPC; -32020 headers that differ from the body, -32021 a capability that the client has not declared, -32022 a revision that is not spoken. */
  code: number;
  /** The same for programs. */
  data?: unknown;
  /** Sentence for the model. */
  message: string;
}

/** Request or notification of JSON-RPC 2.0. */
export interface McpRequest {
  /** Id of the request, which its answer repeats; absent of a notification. */
  id?: string | number;
  jsonrpc: '2.0';
  /** `server/discover`, `tools/list`, `tools/call`, `resources/list`, `resources/templates/list`, `resources/read`, `tasks/get`, `tasks/cancel`; of older revisions `initialize`, `ping` and `logging/setLevel` as well. */
  method: string;
  /** Parameters of the method. `_meta` has what revision 2026-07-28 says with each request. */
  params?: {
    _meta?: McpRequestMeta;
  };
}

/** What revision 2026-07-28 says with each request, in place of a handshake. */
export interface McpRequestMeta {
  /** What the client can do. */
  'io.modelcontextprotocol/clientCapabilities'?: Record<string, unknown>;
  /** Asks for the log of the call. */
  'io.modelcontextprotocol/logLevel'?: string;
  /** Revision of the request. */
  'io.modelcontextprotocol/protocolVersion'?: string;
  /** Asks for progress. */
  progressToken?: string | number;
}

/** Response of JSON-RPC 2.0: a result or an error. */
export interface McpResponse {
  error?: McpFailure;
  /** Id of the request; null when it could not be read. */
  id: string | number | null;
  jsonrpc: '2.0';
  /** Result of the method. In revision 2026-07-28 `resultType` says what it is: `complete`, `input_required` or `task`. */
  result?: {
    resultType?: string;
  };
}

/** Answer of `POST /v1/sessions/{id}/messages?wait=true`: what came of the message. */
export interface MessageAnswer {
  /** In US dollars, as the agent reckons it. */
  cost_usd?: number | null;
  /** Milliseconds that the agent took. */
  duration_ms?: number | null;
  /** Why the turn failed. */
  error?: string | null;
  /** True if the agent calls it a failure, or the turn failed. */
  is_error: boolean;
  /** Exchanges with the model. */
  num_turns?: number | null;
  /** Last text of the agent. */
  result?: string | null;
  /** Number of its last event. */
  seq: number;
  /** The session. */
  session: string;
  /** Names the turn. */
  turn: string;
  /** Tokens, as the agent counts them. */
  usage?: unknown;
}

/** Content of a message. */
export type MessageContent = string | Record<string, unknown>[];

/** Body of `POST /v1/sessions/{id}/messages`. */
export interface MessageRequest {
  /** Text, or blocks (`text`, `image`, `document`) as the Messages API has them. */
  content: MessageContent;
  /** Further fields for the agent, as they are. */
  extra?: Record<string, unknown>;
  /** Model from this message on. */
  model?: string | null;
  /** Instead of the session's `on_disconnect`, for this turn. */
  on_disconnect?: OnDisconnect | null;
  /** Send pieces of messages as they come. Default: `false`. */
  partial?: boolean;
}

/** What a client measured of a scan or commit. */
export interface MetricsReport {
  /** Figures by name. */
  metrics?: Record<string, unknown>;
  /** `scan-report` or `commit-report`. */
  'report-type': string;
  /** The snapshot. */
  'snapshot-id'?: number;
  /** The table. */
  'table-name'?: string;
}

/** Body of `POST /v1/sessions/{id}/files/move`. */
export interface MoveFile {
  /** Path of what is moved. */
  from: string;
  /** Destination path; an existing file is replaced. */
  to: string;
}

/** A namespace and its properties. */
export interface NamespaceDescription {
  namespace: NamespaceLevels;
  /** Its properties. */
  properties?: Record<string, string>;
}

/** A namespace: its levels, from the outermost. */
export type NamespaceLevels = string[];

/** A page of namespaces. */
export interface NamespaceList {
  /** The namespaces, in order. */
  namespaces: NamespaceLevels[];
  /** The `pageToken` of the next page; null on the last one. */
  'next-page-token'?: string | null;
}

/** What changed. */
export interface NamespaceUpdated {
  /** Properties to remove that were not there. */
  missing?: string[] | null;
  /** Properties that were removed. */
  removed: string[];
  /** Properties that were set. */
  updated: string[];
}

/** A server, as one of those that share a store. */
export interface Node {
  /** Address for clients. */
  address?: string | null;
  /** Progress of its drain, once a node that drains has looked for its sessions. */
  drain?: NodeDrain | null;
  /** Name, for as long as its data directory exists. */
  id: string;
  /** Name of its present run; new at each start. */
  incarnation: string;
  /** True for the one that answers. */
  is_this: boolean;
  /** Work that it has. */
  load: NodeLoad;
  /** Address for other nodes; without it they pass nothing on to it. */
  peer_address?: string | null;
  /** Services that it has. */
  roles: string[];
  /** When it was seen last, likewise. */
  seen_ms: number;
  /** When its run began, in milliseconds since 1970, by the store's clock. */
  started_ms: number;
  /** State that it is in. */
  state: NodeStatus;
  /** Version of Cove. */
  version: string;
  /** Failure domain that it shares with other nodes; empty if not configured. */
  zone: string;
}

/** Progress of a node that drains. */
export interface NodeDrain {
  /** Number of those sessions that are in use: they are handed over afterwards. */
  busy: number;
  /** Sessions of them whose files could not be brought to the object store; it is tried again. */
  failed: number;
  /** True if their files are on this node's disk alone, because servers share no object store: it keeps them. */
  keeps_files: boolean;
  /** Sessions that it still has; with none left it can be stopped. */
  sessions: number;
}

/** All nodes of the store. */
export interface NodeList {
  /** The nodes, by their ids. */
  nodes: Node[];
}

/** Work that a node has, and has room for, as it said when it was seen last. */
export interface NodeLoad {
  /** Executions that run. */
  executions: number;
  /** Most executions that run at one time. */
  executions_max: number;
  /** Executions that wait for a place. */
  executions_waiting: number;
  /** Sandboxes of sessions. */
  sandboxes: number;
  /** Most sandboxes of sessions at one time. */
  sandboxes_max: number;
}

/** State of a node. */
export type NodeStatus = 'joining' | 'active' | 'draining' | 'left' | 'lost';

/** The form of errors of the two requests of OAuth (RFC 6749 §5.2). */
export interface OauthError {
  /** Such as `invalid_client`. */
  error: string;
  /** A sentence for people. */
  error_description: string;
}

/** A token to take back (RFC 7009). Sent as a form. */
export interface OauthRevocationRequest {
  /** The client. */
  client_id?: string;
  /** Its secret. */
  client_secret?: string;
  /** The token. */
  token: string;
  /** Not looked at. */
  token_type_hint?: string;
}

/** An access token. */
export interface OauthToken {
  /** The token. */
  access_token: string;
  /** Seconds that it is good for. */
  expires_in?: number;
  /** Its type. */
  issued_token_type?: string;
  /** What it is for. */
  scope?: string;
  /** `bearer`. */
  token_type: string;
}

/** Credentials of a client, or a token to exchange (RFC 6749, RFC 8693). Sent as a form. */
export interface OauthTokenRequest {
  /** The client. */
  client_id?: string;
  /** Its secret. */
  client_secret?: string;
  /** `client_credentials` or `urn:ietf:params:oauth:grant-type:token-exchange`. */
  grant_type: string;
  /** `catalog`, or `PRINCIPAL_ROLE:` and the name of a role. */
  scope?: string;
  /** The token to exchange. */
  subject_token?: string;
  /** Its type. */
  subject_token_type?: string;
}

/** A database that may be granted. */
export interface OfferedDatabase {
  /** Access that a grant may have. */
  access: GrantAccess[];
  /** Port inside where a grant names none. */
  port: number;
  /** True if a grant has to name one of them: the tenant has no role of its own for sandboxes. Default: `false`. */
  role_required: boolean;
  /** Roles that a grant may name. */
  roles: string[];
  /** Tenant of the bouncer. */
  tenant: string;
  /** Reason why it cannot be granted at present; absent when it can be. */
  unavailable?: string | null;
}

/** A grant that may be given. */
export type OfferedGrant = OfferedGrantPostgres | OfferedGrantMysql | OfferedGrantCatalog | OfferedGrantHttp | OfferedGrantModel;

/** A warehouse of the catalog. */
export type OfferedGrantCatalog = OfferedWarehouse & {
  kind: 'catalog';
};

/** Servers outside. */
export type OfferedGrantHttp = OfferedHosts & {
  kind: 'http';
};

/** The model. */
export type OfferedGrantModel = OfferedModel & {
  kind: 'model';
};

/** A tenant of the bouncer that speaks MySQL's protocol. */
export type OfferedGrantMysql = OfferedDatabase & {
  kind: 'mysql';
};

/** A tenant of the bouncer that speaks PostgreSQL's protocol. */
export type OfferedGrantPostgres = OfferedDatabase & {
  kind: 'postgres';
};

/** Servers outside that rules of a grant may allow. What one offer lists belongs together: its secrets and networks are for its hosts. */
export interface OfferedHosts {
  /** Patterns of hosts: rules may name them and what is below them. */
  hosts: string[];
  /** Networks of internal addresses that rules may name. */
  internal: string[];
  /** Port inside where a grant names none. */
  port: number;
  /** Ports that rules may name; all when there is none. */
  ports: number[];
  /** Names of secrets that rules may put into headers. Their values are in no answer. */
  secrets: string[];
}

/** The model, where it may be granted. */
export interface OfferedModel {
  /** Port inside where a grant names none. */
  port: number;
  /** Models with a price, of which a grant can count `dollars`. */
  priced_models: string[];
  /** Reason why it cannot be granted at present; absent when it can be. */
  unavailable?: string | null;
}

/** A warehouse that may be granted. */
export interface OfferedWarehouse {
  /** Access that a grant may have. */
  access: GrantAccess[];
  /** Port inside where a grant names none. */
  port: number;
  /** Reason why it cannot be granted at present; absent when it can be. */
  unavailable?: string | null;
  /** Name of the warehouse. */
  warehouse: string;
}

/** Treatment of a turn when the last of its listeners goes away. */
export type OnDisconnect = 'continue' | 'interrupt';

/** Comparison of output with the expected output. */
export type OutputComparison = OutputComparisonExact | OutputComparisonTrailingSpace | OutputComparisonTokens | OutputComparisonFloat | OutputComparisonChecker;

/** A program of the caller's decides. It is run in a sandbox with the paths of three files as arguments: input, output, expected output. Exit code 0 accepts, 1 and 2 refuse (testlib's convention); anything else is the checker's failure. What it writes becomes the message. */
export interface OutputComparisonChecker {
  /** Arguments before those that Cove adds. */
  args?: string[];
  /** The command itself. */
  argv?: string[] | null;
  /** Arguments to its compiler, after the ones its language gives it. */
  compile_args?: string[];
  /** Limits of its compilation. */
  compile_limits?: LimitSpec;
  /** Environment variables. */
  env?: Record<string, string>;
  /** Source files. */
  files?: SourceFile[];
  /** Name or alias of a language; exactly one of this and `argv`. */
  language?: string | null;
  /** Limits of its run. */
  limits?: LimitSpec;
  mode: 'checker';
  /** Text of a program that is one file. */
  source?: string | null;
}

/** Byte for byte. */
export interface OutputComparisonExact {
  mode: 'exact';
}

/** Like tokens, but two numbers are equal when they differ by at most `absolute`, or by at most `relative` times the expected one. */
export interface OutputComparisonFloat {
  /** Absolute tolerance, not negative. Default: `0.0`. */
  absolute?: number;
  mode: 'float';
  /** Relative tolerance, not negative. Default: `0.0`. */
  relative?: number;
}

/** Words are compared; how much and which white space is between them does not count. */
export interface OutputComparisonTokens {
  mode: 'tokens';
}

/** White space at the end of lines and empty lines at the end do not count. The default. */
export interface OutputComparisonTrailingSpace {
  mode: 'trailing_space';
}

/** A file that was asked for in `outputs`. */
export interface OutputFile {
  /** Content, encoded as `encoding` says; null when it could not be read. */
  content: string | null;
  /** Form of `content`: base64 where it is not UTF-8, or long and full of control characters. */
  encoding: BytesEncoding;
  /** Why it could not be read: missing, not a regular file, too large. */
  error?: string | null;
  /** The name it was asked for by. */
  name: string;
}

/** How a table is partitioned. */
export interface PartitionSpec {
  /** Fields. */
  fields: {
    /** Its own number. */
    'field-id'?: number;
    /** Its name. */
    name: string;
    /** The column. */
    'source-id': number;
    /** Such as `identity`, `bucket[16]`, `day`. */
    transform: string;
  }[];
  /** Its number within the table. */
  'spec-id'?: number;
}

/** Percentiles of a distribution, exact to a few per cent. */
export interface Percentiles {
  /** All of them. Default: `0.0`. */
  max: number;
  /** Half of them. Default: `0.0`. */
  p50: number;
  /** 95 of a hundred. Default: `0.0`. */
  p95: number;
  /** 99 of a hundred. Default: `0.0`. */
  p99: number;
}

/** A scan to plan: of one snapshot, or of what was appended between two. */
export interface PlanScanRequest {
  /** Whether letters of names must agree. */
  'case-sensitive'?: boolean;
  /** The last snapshot of an incremental scan. */
  'end-snapshot-id'?: number;
  /** A predicate: `true`, `false`, or an object with `type`. */
  filter?: unknown;
  /** Rows after which to stop, if that saves work. */
  'min-rows-requested'?: number;
  /** Columns to read. */
  select?: string[];
  /** The snapshot; otherwise the current one. */
  'snapshot-id'?: number;
  /** Before the first snapshot of an incremental scan. */
  'start-snapshot-id'?: number;
  /** Columns whose figures are wanted. */
  'stats-fields'?: string[];
  /** Take the schema of the snapshot. */
  'use-snapshot-schema'?: boolean;
}

/** A plan. */
export interface PlanScanResult {
  /** Delete files. */
  'delete-files'?: Record<string, unknown>[];
  /** Of a plan that failed. */
  error?: Record<string, unknown>;
  /** Data files. */
  'file-scan-tasks'?: Record<string, unknown>[];
  /** Names it, for fetching and cancelling. */
  'plan-id'?: string;
  /** Tokens: each is fetched for more files. */
  'plan-tasks'?: string[];
  status: 'completed' | 'submitted' | 'cancelled' | 'failed';
  /** Credentials for them. */
  'storage-credentials'?: StorageCredential[];
}

/** When a server connection goes back to the pool. */
export type PoolMode = 'session' | 'transaction' | 'statement';

/** Column of a result. */
export interface QueryColumn {
  /** Name. Several columns can have the same. */
  name: string;
  /** Type, as the database calls it: `int4`, `numeric`, `text[]`, `varchar`. */
  type: string;
}

/** Limits of a result. */
export type QueryLimit = 'rows' | 'bytes';

/** Answer of the operations on the queue that change many executions at once. */
export interface QueueChange {
  /** Number of executions that were changed. */
  changed: number;
}

/** Answer of `GET /v1/queue`. */
export interface QueueStats {
  /** Back end that holds the queue: `sqlite`, `postgresql`, `redis`. */
  backend: string;
  /** Cancelled ones that are still kept. */
  cancelled: number;
  /** Dead letters. */
  dead: number;
  /** Expired ones that are still kept. */
  expired: number;
  /** Executions that finished and are still kept. */
  finished: number;
  /** Age of the oldest that waits, in milliseconds. */
  oldest_queued_ms?: number | null;
  /** True if nothing is started at present. */
  paused: boolean;
  /** Executions that wait. */
  queued: number;
  /** Executions that run. */
  running: number;
  /** Tenants that have something waiting. */
  tenants_waiting: number;
}

/** A metadata file that becomes a table or view. */
export interface RegisterRequest {
  /** The metadata file. */
  'metadata-location': string;
  /** Its name in the namespace. */
  name: string;
  /** Take the place of the one that has the name. */
  overwrite?: boolean;
}

/** Another name. */
export interface RenameRequest {
  destination: TableIdentifier;
  source: TableIdentifier;
}

/** Sandboxes of sessions, counted. */
export interface SandboxCounts {
  /** Most there may be. */
  capacity: number;
  /** By state. */
  cold: number;
  /** Nodes whose sandboxes these are, all together. One that does not answer in time is left out. Default: `0`. */
  nodes: number;
  /** Sessions that got a sandbox that was ready. */
  prewarm_hits: number;
  /** Sessions resumed from their disk on this server. */
  resumed_local: number;
  /** Sessions resumed from the object store. */
  resumed_remote: number;
  /** Sessions resumed whose sandbox was there. */
  resumed_warm: number;
  /** By state. */
  running: number;
  /** All of them, cold ones included. */
  total: number;
  /** By state. */
  waiting: number;
  /** By state. */
  warm: number;
  /** By state. */
  warming: number;
}

/** State of a session's sandbox. */
export type SandboxState = 'warming' | 'warm' | 'running' | 'waiting' | 'cold';

/** Files to read. */
export interface ScanTasks {
  /** Delete files. */
  'delete-files'?: Record<string, unknown>[];
  /** Data files. */
  'file-scan-tasks'?: {
    /** The file. */
    'data-file': Record<string, unknown>;
    /** Places in `delete-files`. */
    'delete-file-references'?: number[];
    /** What of the predicate has to be looked at row by row. */
    'residual-filter'?: unknown;
  }[];
  /** Tokens: each is fetched for more files. */
  'plan-tasks'?: string[];
}

/** A session, as it is shown. */
export interface Session {
  /** Name of its agent. */
  agent?: string | null;
  /** Version of the agent that it was created with. */
  agent_version?: number | null;
  /** When it was created (RFC 3339, milliseconds, UTC). */
  created_at: string;
  /** Grants of its sandbox. */
  grants?: Grant[];
  /** Names it for ever: `ses_…`. */
  id: string;
  /** When it was worked with last. */
  last_active_at: string;
  /** Number of its latest event. */
  last_seq: number;
  /** Limits of the session, complete. */
  limits: SessionLimits;
  /** Why it is in the state `error`. */
  message?: string | null;
  /** Metadata, as given. */
  metadata?: Record<string, string>;
  /** Treatment of a turn without listeners, as given. */
  on_disconnect: OnDisconnect;
  /** Options that the agent gets at its start, the agent's and the session's merged. */
  options: AgentOptions;
  /** Session that it was forked from. */
  parent?: string | null;
  /** State of its sandbox. */
  sandbox: SandboxState;
  /** State of the session. */
  state: SessionState;
  /** Template that it started from. */
  template?: string | null;
  /** Tenant that owns the session. */
  tenant: string;
}

/** A file given along with a session. */
export interface SessionAttachment {
  /** Bytes. */
  bytes: number;
  /** When it was added (milliseconds since 1970). */
  created_ms: number;
  /** Names it: `att_…`. */
  id: string;
  /** Media type of the file. */
  media_type?: string | null;
  /** Name of the file. */
  name: string;
  /** The session. */
  session: string;
}

/** Answer of `GET /v1/sessions/{id}/attachments`. */
export interface SessionAttachmentList {
  /** All of the session. */
  attachments: SessionAttachment[];
}

/** Event of a session. Numbers grow and are never used twice; they may have gaps. */
export interface SessionEvent {
  /** When (milliseconds since 1970). */
  at_ms: number;
  /** Data of the event, by its kind. */
  data: unknown;
  /** Number of the event: `id` of the server-sent event. */
  seq: number;
  /** The turn that it belongs to. */
  turn?: string | null;
  /** Kind of event. */
  type: SessionEventKind;
}

/** Kinds of events. A turn begins with `turn_start` and ends with `done`; an `error` may come before that. */
export type SessionEventKind = 'turn_start' | 'text_delta' | 'thinking_delta' | 'input_json_delta' | 'text' | 'reasoning' | 'tool_use' | 'tool_result' | 'message' | 'turn_complete' | 'error' | 'done' | 'lifecycle';

/** Answer of `GET /v1/sessions/{id}/events` with `accept: application/json`: oldest first. */
export interface SessionEventList {
  /** This page. */
  events: SessionEvent[];
  /** Value of `after` for the next page; none on the last one. */
  next_after?: number | null;
}

/** Body of `POST /v1/sessions/{id}/exec`. */
export interface SessionExec {
  /** Program and arguments. */
  argv?: string[] | null;
  /** A line for `/bin/sh -c`. Excludes `argv`. */
  command?: string | null;
  /** Working directory; `/workspace` when absent. */
  cwd?: string | null;
  /** Environment beside the session's. */
  env?: Record<string, string>;
  /** Content of its standard input. */
  stdin?: string | null;
  /** Milliseconds after which it is killed. */
  timeout_ms?: number | null;
}

/** Event of a command or a terminal while it runs. */
export type SessionExecEvent = SessionExecEventStarted | SessionExecEventAttached | SessionExecEventStdout | SessionExecEventStderr | SessionExecEventEnded | SessionExecEventError;

/** Attached to a terminal that runs already. Its output follows, from byte `from` on. */
export interface SessionExecEventAttached {
  /** Bytes that the program wrote before the first one that follows. */
  from: number;
  /** Process id inside the sandbox. */
  pid: number;
  /** Id of the terminal. */
  terminal: string;
  /** Bytes that the program has written so far: `to - from` of them are repeated. */
  to: number;
  type: 'attached';
}

/** Ended; its output is not repeated here. The last event. */
export type SessionExecEventEnded = SessionExecResult & {
  type: 'ended';
};

/** No longer available, because its sandbox is gone. The last event. */
export interface SessionExecEventError {
  /** Why. */
  error: string;
  type: 'error';
}

/** Started. */
export interface SessionExecEventStarted {
  /** Process id inside the sandbox. */
  pid: number;
  /** Id to attach to it again; only of a terminal that was opened with `detach_s`. */
  terminal?: string | null;
  type: 'started';
}

/** Output on standard error. */
export interface SessionExecEventStderr {
  /** The bytes, in Base64. */
  data_base64: string;
  type: 'stderr';
}

/** Output on standard output. Terminals send this as binary messages instead. */
export interface SessionExecEventStdout {
  /** The bytes, in Base64 (RFC 4648 §4). */
  data_base64: string;
  type: 'stdout';
}

/** Answer of `POST /v1/sessions/{id}/exec`. */
export interface SessionExecResult {
  /** Exit code, when it exited. */
  exit_code: number | null;
  /** Name of the signal that ended it. */
  signal?: string | null;
  /** Why it was not started, when it was not: no such program or directory, no right to execute it. Its exit code is then 127 (not found) or 126, as a shell has it. */
  start_error?: string | null;
  /** Likewise. */
  stderr: string;
  /** Standard output; bytes that are not UTF-8 are replaced. */
  stdout: string;
  /** True if it was killed because its time was up. */
  timed_out: boolean;
  /** True if there was more than is kept. */
  truncated: boolean;
}

/** Limits of a session's sandbox. What is left out is the agent's, then the server's. */
export interface SessionLimits {
  /** Size of `/workspace` and `/home/user` together, in bytes. */
  disk_bytes?: number | null;
  /** Files and directories there. */
  disk_inodes?: number | null;
  /** Memory of all its processes together, in bytes. */
  memory_bytes?: number | null;
  /** Open file descriptors of one process. */
  open_files?: number | null;
  /** Processes and threads at one time. */
  processes?: number | null;
  /** Size of `/tmp` and `/dev/shm` together, in bytes; it counts as memory as well. */
  tmp_bytes?: number | null;
}

/** Answer of `GET /v1/sessions`: newest first. */
export interface SessionList {
  /** Value of `cursor` for the next page; none on the last one. */
  next_cursor?: string | null;
  /** This page. */
  sessions: Session[];
}

/** A line that the agent wrote to its standard error, or the server about it. */
export interface SessionLogLine {
  /** When (milliseconds since 1970). */
  at_ms: number;
  /** Counts from 0; lines that are no longer kept have had numbers, too. */
  index: number;
  /** `stderr` or `system`. */
  level: string;
  /** Text of the line. */
  text: string;
}

/** Answer of `GET /v1/sessions/{id}/logs`: oldest first. */
export interface SessionLogs {
  /** Lines that are kept. */
  lines: SessionLogLine[];
  /** Value of `from` that gives the lines after these. */
  next: number;
}

/** A message of a conversation. */
export interface SessionMessage {
  /** When (milliseconds since 1970). */
  at_ms: number;
  /** Text or blocks. */
  content: unknown;
  /** `user` or `assistant`. */
  role: string;
  /** Number of the event within the session. */
  seq: number;
  /** The turn that it belongs to. */
  turn?: string | null;
}

/** Answer of `GET /v1/sessions/{id}/messages`: oldest first. */
export interface SessionMessageList {
  /** This page. */
  messages: SessionMessage[];
  /** Value of `after` for the next page; none on the last one. */
  next_after?: number | null;
}

/** Resource usage of a session's sandbox. */
export interface SessionMetrics {
  /** When (milliseconds since 1970). */
  at_ms: number;
  /** CPU time of all processes since the sandbox began, in milliseconds. */
  cpu_ms: number;
  /** Bytes of the disk in use. */
  disk_bytes: number;
  /** Bytes of the disk. */
  disk_total_bytes: number;
  /** Memory in use, in bytes. */
  memory_bytes: number;
  /** Most that was ever in use. */
  memory_peak_bytes: number;
  /** Processes killed for lack of memory. */
  oom_kills: number;
  /** Processes and threads. */
  processes: number;
}

/** State of a session. */
export type SessionState = 'starting' | 'active' | 'paused' | 'stopped' | 'ended' | 'error';

/** Terminal that outlives its WebSocket. */
export interface SessionTerminal {
  /** Program and arguments. */
  argv: string[];
  /** When it was opened (RFC 3339, UTC). */
  created_at: string;
  /** Seconds that it is kept without a client. */
  detach_s: number;
  /** When it is given up unless a client attaches; absent while one is attached. */
  expires_at?: string | null;
  /** Names it: `tm_…`. */
  id: string;
  /** Bytes of them that a client can still have repeated. */
  kept_bytes: number;
  /** Bytes that its program has written. */
  output_bytes: number;
  /** Process id inside the sandbox. */
  pid: number;
  /** State of the terminal. */
  state: SessionTerminalState;
}

/** Answer of `GET /v1/sessions/{id}/terminals`: oldest first. */
export interface SessionTerminalList {
  /** Terminals that a client can attach to. */
  terminals: SessionTerminal[];
}

/** State of a terminal that outlives its WebSocket. */
export type SessionTerminalState = 'attached' | 'detached' | 'ended';

/** Model usage of turns. */
export interface SessionUsage {
  /** Tokens that came from its cache. */
  cache_read_tokens: number;
  /** Tokens that were put there. */
  cache_write_tokens: number;
  /** In US dollars, as agents reckon it. */
  cost_usd: number;
  /** Milliseconds. */
  duration_ms: number;
  /** Tokens that the model read, without those from its cache. */
  input_tokens: number;
  /** Tokens that it wrote. */
  output_tokens: number;
  /** Calls of tools. */
  tool_calls: number;
  /** Number of turns. */
  turns: number;
}

/** A setting in force. */
export interface Setting {
  /** Default value; null if the server chooses it. */
  default: unknown;
  /** Path of the setting, such as `executions.queue_max`. */
  key: string;
  /** True if the value, or a part of it, is a secret that is not shown. */
  masked: boolean;
  /** Source of the value. */
  origin: SettingOrigin;
  /** True if a change is taken over while the server runs; false if it needs a restart. */
  reloadable: boolean;
  /** Value; null where nothing is set and the server decides. In place of a secret stands `…`; a reference to one (`env:NAME`, `file:PATH`) is shown. */
  value: unknown;
}

/** Place where a setting's value comes from. */
export interface SettingOrigin {
  /** Kind of the place. */
  kind: SettingOriginKind;
  /** Line in the file, from 1. */
  line?: number | null;
  /** Path of the file, name of the variable, or the flag; absent for a default. */
  name?: string | null;
}

/** Source of a setting's value. */
export type SettingOriginKind = 'default' | 'file' | 'environment' | 'flag';

/** A request for the object store that is to be signed. */
export interface SignRequest {
  /** Its body, when it says what it does. */
  body?: string;
  /** Its headers. */
  headers: Record<string, string[]>;
  /** Its method. */
  method: string;
  /** Properties of the client. */
  properties?: Record<string, string>;
  /** Region of the store. */
  region: string;
  /** Its address. */
  uri: string;
}

/** The signed request. */
export interface SignResult {
  /** Its headers. */
  headers: Record<string, string[]>;
  /** Its address. */
  uri: string;
}

/** A snapshot: a workspace that was frozen, for new sessions to start from. */
export interface Snapshot {
  /** Bytes of its own layer. */
  bytes: number;
  /** When it was taken. */
  created_at: string;
  /** Names it: `snap_…`. */
  id: string;
  /** Name, as given. */
  name?: string | null;
  /** Session that it was taken of. */
  session: string;
}

/** Snapshots of an Iceberg table. */
export interface SnapshotFacts {
  /** When it was made (RFC 3339, milliseconds, UTC). */
  at?: string | null;
  /** Snapshots that are kept. */
  count: number;
  /** Id of the current one, a number of 64 bits as text; none of an empty table. */
  current?: string | null;
  /** Summary of it: `operation`, `total-records`, `total-files-size` and others. */
  summary?: Record<string, string>;
}

/** Answer of `GET /v1/snapshots` and `GET /v1/sessions/{id}/snapshots`: newest first. */
export interface SnapshotList {
  /** Value of `cursor` for the next page; none on the last one. */
  next_cursor?: string | null;
  /** This page. */
  snapshots: Snapshot[];
}

/** A branch or tag. */
export interface SnapshotReference {
  /** When it goes. */
  'max-ref-age-ms'?: number;
  /** When its snapshots go. */
  'max-snapshot-age-ms'?: number;
  /** Snapshots that stay. */
  'min-snapshots-to-keep'?: number;
  /** The snapshot. */
  'snapshot-id': number;
  type: 'branch' | 'tag';
}

/** Body of `POST /v1/sessions/{id}/snapshots`. */
export interface SnapshotRequest {
  /** Name of the snapshot. */
  name?: string | null;
}

/** How rows of a table are sorted. */
export interface SortOrder {
  /** Fields. */
  fields: ({
    direction: 'asc' | 'desc';
    'null-order': 'nulls-first' | 'nulls-last';
    /** The column. */
    'source-id': number;
    /** Such as `identity`. */
    transform: string;
  })[];
  /** Its number within the table. */
  'order-id'?: number;
}

/** A file of a program. */
export interface SourceFile {
  /** Content, encoded as `encoding` says. */
  content: string;
  /** Encoding of `content`. Default: `"utf8"`. */
  encoding?: BytesEncoding;
  /** True if its mode is 0755 rather than 0644. Default: `false`. */
  executable?: boolean;
  /** Relative path below `/workspace`, `/`-separated, without `.` or `..` parts. */
  name: string;
}

/** The part of an execution a stage is. */
export type StageName = 'compile' | 'run' | 'interactor' | 'checker';

/** Outcome of a stage, with everything that was measured. */
export interface StageOutcome {
  /** CPU time of all its processes, in milliseconds with one decimal. */
  cpu_ms: number;
  /** The program's exit code; null when a signal ended it or it never started. */
  exit_code: number | null;
  /** The limit that ended the stage or spoiled its verdict. */
  limit: LimitHit | null;
  /** Largest memory use of all its processes together, in bytes; 0 where the kernel does not tell. */
  memory_peak_bytes: number;
  /** Explanation for a person beyond the verdict, such as why the program could not be started. */
  message?: string | null;
  /** Processes the kernel killed because the stage was out of memory. */
  oom_kills: number;
  /** Largest number of processes and threads at one time; 0 where the kernel does not tell. */
  processes_peak: number;
  /** Name of the signal that ended it (`SIGSEGV`); null when it exited. */
  signal: string | null;
  /** Standard error, likewise. */
  stderr: string;
  /** Exact standard error, likewise. */
  stderr_base64?: string | null;
  /** Standard output. Where `stdout_base64` is given, that is exact and this is for reading: what is not UTF-8 is replaced by U+FFFD, and only the beginning of what is long is here. */
  stdout: string;
  /** Exact standard output, only when it is not UTF-8, or has more than 4 KiB of which so much is control characters that JSON would take more than twice as long for it. */
  stdout_base64?: string | null;
  /** Streams that lost output beyond `output_bytes`. */
  truncated: TruncatedStreams;
  /** The judgement. */
  verdict: Verdict;
  /** Time from start to end, in milliseconds with one decimal. */
  wall_ms: number;
}

/** Result of one stage of an execution. */
export interface StageResult {
  /** CPU time of all its processes, in milliseconds with one decimal. */
  cpu_ms: number;
  /** The program's exit code; null when a signal ended it or it never started. */
  exit_code: number | null;
  /** The limit that ended the stage or spoiled its verdict. */
  limit: LimitHit | null;
  /** Largest memory use of all its processes together, in bytes; 0 where the kernel does not tell. */
  memory_peak_bytes: number;
  /** Explanation for a person beyond the verdict, such as why the program could not be started. */
  message?: string | null;
  /** Speed mode that was used. */
  mode: ExecutionMode;
  /** Name of the stage. */
  name: StageName;
  /** Processes the kernel killed because the stage was out of memory. */
  oom_kills: number;
  /** True when its output is too long to stand twice: then it is that of the execution, at the top of the answer, and left out here. */
  output_at_top?: boolean;
  /** Largest number of processes and threads at one time; 0 where the kernel does not tell. */
  processes_peak: number;
  /** Name of the signal that ended it (`SIGSEGV`); null when it exited. */
  signal: string | null;
  /** Standard error, likewise. */
  stderr: string;
  /** Exact standard error, likewise. */
  stderr_base64?: string | null;
  /** Standard output. Where `stdout_base64` is given, that is exact and this is for reading: what is not UTF-8 is replaced by U+FFFD, and only the beginning of what is long is here. */
  stdout: string;
  /** Exact standard output, only when it is not UTF-8, or has more than 4 KiB of which so much is control characters that JSON would take more than twice as long for it. */
  stdout_base64?: string | null;
  /** Streams that lost output beyond `output_bytes`. */
  truncated: TruncatedStreams;
  /** The judgement. */
  verdict: Verdict;
  /** Time from start to end, in milliseconds with one decimal. */
  wall_ms: number;
}

/** Credentials for what is below a prefix. */
export interface StorageCredential {
  /** Settings of the client, such as `s3.access-key-id`. */
  config: Record<string, string>;
  /** Where they are for. */
  prefix: string;
}

/** The name of a table or view. */
export interface TableIdentifier {
  /** Its own name. */
  name: string;
  namespace: NamespaceLevels;
}

/** A page of names. */
export interface TableIdentifierList {
  /** The names, in order. */
  identifiers: TableIdentifier[];
  /** The `pageToken` of the next page; null on the last one. */
  'next-page-token'?: string | null;
}

/** The metadata document of a table. Formats 1 to 3 of the specification. */
export interface TableMetadata {
  /** The schema in use. */
  'current-schema-id'?: number;
  /** The snapshot of `main`; null or -1 before the first one. */
  'current-snapshot-id'?: number | null;
  /** The sort order in use. */
  'default-sort-order-id'?: number;
  /** The partition spec in use. */
  'default-spec-id'?: number;
  /** Keys of encrypted files (format 3). */
  'encryption-keys'?: Record<string, unknown>[];
  /** 1, 2 or 3. */
  'format-version': number;
  /** The highest number of a column. */
  'last-column-id'?: number;
  /** The highest number of a partition field. */
  'last-partition-id'?: number;
  /** The highest sequence number. */
  'last-sequence-number'?: number;
  /** When it was changed last. */
  'last-updated-ms'?: number;
  /** Where its files are. */
  location?: string;
  /** Metadata files before this one. */
  'metadata-log'?: Record<string, unknown>[];
  /** The id that the next row gets (format 3). */
  'next-row-id'?: number;
  /** All partition specs. */
  'partition-specs'?: PartitionSpec[];
  /** Files of statistics of partitions. */
  'partition-statistics'?: Record<string, unknown>[];
  /** Its properties. */
  properties?: Record<string, string>;
  /** Branches and tags. */
  refs?: Record<string, SnapshotReference>;
  /** All schemas. */
  schemas?: IcebergSchema[];
  /** Which snapshot was the current one when. */
  'snapshot-log'?: Record<string, unknown>[];
  /** All snapshots, or those that branches and tags name. */
  snapshots?: IcebergSnapshot[];
  /** All sort orders. */
  'sort-orders'?: SortOrder[];
  /** Files of statistics. */
  statistics?: Record<string, unknown>[];
  /** Its identity, whatever its name. */
  'table-uuid': string;
}

/** A condition that a table must meet for a commit to be carried out. */
export interface TableRequirement {
  'current-schema-id'?: number;
  'default-sort-order-id'?: number;
  'default-spec-id'?: number;
  'last-assigned-field-id'?: number;
  'last-assigned-partition-id'?: number;
  /** Of `assert-ref-snapshot-id`: a branch or tag. */
  ref?: string;
  /** Of `assert-ref-snapshot-id`; null: there is no such branch. */
  'snapshot-id'?: number | null;
  type: 'assert-create' | 'assert-table-uuid' | 'assert-ref-snapshot-id' | 'assert-last-assigned-field-id' | 'assert-current-schema-id' | 'assert-last-assigned-partition-id' | 'assert-default-spec-id' | 'assert-default-sort-order-id';
  /** Of `assert-table-uuid`. */
  uuid?: string;
}

/** One change of a table or view; its other members depend on `action`. */
export interface TableUpdate {
  action: 'assign-uuid' | 'upgrade-format-version' | 'add-schema' | 'set-current-schema' | 'add-spec' | 'set-default-spec' | 'add-sort-order' | 'set-default-sort-order' | 'add-snapshot' | 'set-snapshot-ref' | 'remove-snapshots' | 'remove-snapshot-ref' | 'set-location' | 'set-properties' | 'remove-properties' | 'set-statistics' | 'remove-statistics' | 'set-partition-statistics' | 'remove-partition-statistics' | 'remove-partition-specs' | 'remove-schemas' | 'add-encryption-key' | 'remove-encryption-key' | 'add-view-version' | 'set-current-view-version';
}

/** Body of `POST /v1/templates/{name}/tags`: names a build by more tags. */
export interface TagTemplate {
  /** Build to be named, by its id or by a tag that it has. */
  build: string;
  /** Tags. */
  tags: string[];
}

/** A template. */
export interface Template {
  /** Newest build. */
  build?: TemplateBuild | null;
  /** Number of its builds that are kept. */
  builds: number;
  /** When it was created (RFC 3339, milliseconds, UTC). */
  created_at: string;
  /** Names it for ever: `tpl_…`. */
  id: string;
  /** Name. */
  name: string;
  /** Builds that have a name, by their tags. Sessions get `default` unless they name another one. */
  tags: Record<string, string>;
  /** Tenant that owns it. */
  tenant: string;
  /** When it was changed last. */
  updated_at: string;
}

/** Answer of `PUT /v1/template-files/{archive}`. */
export interface TemplateArchive {
  /** SHA-256 of the archive. */
  archive: string;
  /** Bytes. */
  bytes: number;
}

/** A build of a template. */
export interface TemplateBuild {
  /** Bytes of its layers. */
  bytes: number;
  /** When it was created. */
  created_at: string;
  /** Names of the variables that it sets. */
  env?: string[];
  /** Why it failed. */
  failure?: TemplateFailure | null;
  /** When it ended. */
  finished_at?: string | null;
  /** Names it for ever: a UUID. */
  id: string;
  /** Command that succeeds when that is ready. */
  ready?: string | null;
  /** Command that each new session runs in the background. */
  start?: string | null;
  /** State. */
  status: TemplateBuildStatus;
  /** Steps that made a layer, or took one that was there. */
  steps: TemplateStepResult[];
  /** Id of its template. */
  template: string;
  /** Working directory of commands. */
  workdir?: string | null;
}

/** Answer of `GET /v1/templates/{name}/builds`: newest first. */
export interface TemplateBuildList {
  /** The builds. */
  builds: TemplateBuild[];
}

/** State of a build. */
export type TemplateBuildStatus = 'waiting' | 'building' | 'ready' | 'error';

/** Reason why a build failed. */
export interface TemplateFailure {
  /** Sentence with the step, its command and the end of what it wrote. */
  message: string;
  /** Number of the step; none when it was no step that failed. */
  step?: number | null;
}

/** Answer of `GET /v1/templates`: by name. */
export interface TemplateList {
  /** The templates. */
  templates: Template[];
}

/** Line of the log of a build. */
export interface TemplateLogLine {
  /** When it was written (milliseconds since 1970). */
  at_ms: number;
  /** Number of the line, from 0. */
  index: number;
  /** `info` or `error`. */
  level: string;
  /** Text. */
  message: string;
  /** Number of its step; none when it belongs to no step. */
  step?: number | null;
}

/** Answer of `GET /v1/templates/{name}/builds/{build}/logs`. */
export interface TemplateLogList {
  /** This page. */
  lines: TemplateLogLine[];
  /** State of the build when they were read. */
  status: TemplateBuildStatus;
}

/** Step of a template. All of them run as the sandbox's user. */
export type TemplateStep = TemplateStepRun | TemplateStepEnv | TemplateStepWorkdir | TemplateStepUser | TemplateStepCopy | TemplateStepPipInstall | TemplateStepNpmInstall | TemplateStepGitClone;

/** Unpacks files of an archive that was uploaded. */
export interface TemplateStepCopy {
  /** SHA-256 of the archive, in hexadecimal digits, by which it was uploaded. */
  archive: string;
  /** Mode of files in octal digits, in place of that of the archive. */
  mode?: string | null;
  /** Path or pattern of what is taken from the archive; everything when it is `.`. Default: `"."`. */
  source?: string;
  /** Destination: a directory when it ends with `/`, when it is one, or when several things are copied. */
  to: string;
  type: 'copy';
}

/** Sets variables for the steps behind it, and for sessions. */
export interface TemplateStepEnv {
  type: 'env';
  /** Variables. */
  values: Record<string, string>;
}

/** Clones a repository. */
export interface TemplateStepGitClone {
  /** Branch or tag. */
  branch?: string | null;
  /** Number of commits. */
  depth?: number | null;
  /** Directory; named for the repository when absent. */
  path?: string | null;
  type: 'git_clone';
  /** Address of the repository. */
  url: string;
}

/** Installs packages of Node with `npm`. */
export interface TemplateStepNpmInstall {
  /** Install them for the sandbox's user rather than in the working directory. Default: `false`. */
  global?: boolean;
  /** Packages; those of `package.json` in the working directory when there is none. */
  packages?: string[];
  type: 'npm_install';
}

/** Installs packages of Python with `pip`, for the sandbox's user. */
export interface TemplateStepPipInstall {
  /** Packages, or options of `pip install`; the working directory itself when there is none. */
  packages?: string[];
  type: 'pip_install';
}

/** Result of a step. */
export interface TemplateStepResult {
  /** True if its layer was there already. */
  cached: boolean;
  /** The step as it is shown: `RUN pip install flask`. */
  command: string;
  /** Number of the step, from 1. */
  step: number;
  /** Milliseconds that it took. */
  took_ms: number;
}

/** Runs a command with `bash`. */
export interface TemplateStepRun {
  /** The command. */
  command: string;
  type: 'run';
}

/** Sets the user, of whom there is one: `user`. */
export interface TemplateStepUser {
  /** Name of the user. */
  name: string;
  type: 'user';
}

/** Sets the working directory of the steps behind it, and of commands in sessions. It is made. */
export interface TemplateStepWorkdir {
  /** Absolute path below `/workspace` or `/home/user`, or one relative to the directory before. */
  path: string;
  type: 'workdir';
}

/** A tenant, as it is shown. */
export interface Tenant {
  /** Admission state. */
  admission: TenantAdmission;
  /** Health of its server. */
  health: TenantHealth;
  /** Place where it is defined. */
  origin: TenantOrigin;
  /** Definition of the tenant. Every password is replaced by `***`. */
  spec: TenantSpec;
}

/** Admission state of a tenant. */
export type TenantAdmission = 'open' | 'paused' | 'refusing' | 'draining';

/** Protocol of a database server. */
export type TenantEngine = 'postgres' | 'mysql';

/** Health of a tenant's server. */
export type TenantHealth = 'unknown' | 'healthy' | 'unhealthy';

/** Result of health checks: answer of `GET /v1/tenants/{name}/health`. */
export interface TenantHealthReport {
  /** When the last one ended (RFC 3339, milliseconds, UTC). */
  checked_at?: string | null;
  /** Why the last one failed. */
  error?: string | null;
  /** Checks that failed one after the other. */
  failures: number;
  /** Current health. */
  health: TenantHealth;
  /** Duration in milliseconds. */
  took_ms?: number | null;
}

/** Limits of a tenant. Times are seconds; 0 turns a time limit off, and so does 0 for `user_server_connections_max`, `user_clients_max` and `clients_max`. What is left out is the default's. */
export interface TenantLimitsSpec {
  /** Between two transactions of a client. */
  client_idle_s?: number | null;
  /** For a client to take what it was sent. */
  client_write_s?: number | null;
  /** Clients that are connected. */
  clients_max?: number | null;
  /** To connect to the server and log in. */
  connect_s?: number | null;
  /** Between two statements of a transaction. */
  idle_in_transaction_s?: number | null;
  /** Statements kept prepared on one server connection. */
  prepared_statements_max?: number | null;
  /** For one statement. */
  query_s?: number | null;
  /** See `server_connections_reserve`. */
  reserve_after_s?: number | null;
  /** Server connections at one time, of all users together. */
  server_connections_max?: number | null;
  /** Server connections that are kept open for each user that has clients. */
  server_connections_min?: number | null;
  /** Server connections beyond the limit for clients that waited `reserve_after_s`. */
  server_connections_reserve?: number | null;
  /** Until an unused server connection is closed. */
  server_idle_s?: number | null;
  /** Until a server connection is closed at its next rest. */
  server_lifetime_s?: number | null;
  /** Between attempts to reach a server that cannot be reached, at most. */
  server_retry_s?: number | null;
  /** For one transaction. */
  transaction_s?: number | null;
  /** Clients of one user that are connected. */
  user_clients_max?: number | null;
  /** Server connections of one user. */
  user_server_connections_max?: number | null;
  /** To wait for a server connection. */
  wait_s?: number | null;
  /** Clients that wait for a server connection; others are refused. */
  waiting_max?: number | null;
}

/** Answer of `GET /v1/tenants`. */
export interface TenantList {
  /** By name. */
  tenants: Tenant[];
}

/** Place where a tenant is defined. */
export type TenantOrigin = 'file' | 'api';

/** A tenant as it is asked for: body of `POST /v1/tenants` and `PUT /v1/tenants/{name}`, and a `[[bouncer.tenants]]` of `cove.toml`. */
export interface TenantSpec {
  /** Lookup of users that are not in `users`. */
  auth_query?: AuthQuerySpec | null;
  /** Database there; the tenant's name when absent. */
  database?: string | null;
  /** Protocol of its server and its clients. Default: `"postgres"`. */
  engine?: TenantEngine;
  /** MySQL only: true if rows that were found count as affected, rather than those that changed, for clients that ask for it. No when absent. */
  found_rows?: boolean | null;
  /** Limits; those left out are the defaults'. */
  limits?: TenantLimitsSpec;
  /** MySQL only: true if a server may ask its clients for files (`LOAD DATA LOCAL INFILE`). No when absent. */
  local_infile?: boolean | null;
  /** A letter or digit, then up to 62 letters, digits, `_` and `-`. Clients name it by the database they ask for, among other ways. */
  name?: string;
  /** When a server connection goes back to the pool; the default's when absent. */
  pool_mode?: PoolMode | null;
  /** True if all transactions are read-only. Default: `false`. */
  read_only?: boolean;
  /** The server: `host:port`, `host`, a Unix socket, or the name of a `[bouncer.servers.NAME]`. A Unix socket of PostgreSQL is its directory, with or without `:port`; one of MySQL is its file. */
  server?: string;
  /** Names by which TLS clients reach it (server name indication). */
  server_names?: string[];
  /** Password of that role. */
  server_password?: string | null;
  /** Role of all users on the server, except users with their own. If absent, each user has the same name there. */
  server_user?: string | null;
  /** Settings that every server connection has, whatever its client asks for. */
  settings?: Record<string, string>;
  /** Transports that clients may use; all when absent. */
  transports?: ClientTransportMode[] | null;
  /** Users that may log in, by name. Others are looked up with `auth_query`, if there is one. */
  users?: TenantUserSpec[];
  /** When a server connection is examined before another client gets it; the default's when absent. */
  verify?: VerifyMode | null;
  /** Weight of its share of a server that tenants have in common: 1 to 1000; 1 when absent. */
  weight?: number | null;
}

/** Figures of a tenant: answer of `GET /v1/tenants/{name}/stats`. */
export interface TenantStats {
  /** Microseconds that server connections were in the hands of clients, since the start. Default: `0`. */
  busy_us: number;
  /** Clients that are connected. Default: `0`. */
  clients: number;
  /** Clients that have a server connection. Default: `0`. */
  clients_active: number;
  /** Clients that wait for a server connection. Default: `0`. */
  clients_waiting: number;
  /** Number of errors that clients got from their servers, by code: SQLSTATE of PostgreSQL, error number of MySQL. Codes beyond the first 64 are counted as `other`. */
  errors: Record<string, number>;
  /** Number of clients that were refused because too many waited, or for too long. Default: `0`. */
  exhausted: number;
  /** Nodes that did not answer in time, whose figures are not in these. */
  missing?: string[];
  /** Name of the tenant. */
  name: string;
  /** Number of nodes whose figures these are, all together. Default: `0`. */
  nodes: number;
  /** Number of times a client kept a server connection beyond its transaction, by reason. */
  pins: Record<string, number>;
  /** Statements that were answered, since the start. Default: `0`. */
  queries: number;
  /** Duration of statements in milliseconds. */
  query_ms: Percentiles;
  /** Bytes from clients, since the start. Default: `0`. */
  received_bytes: number;
  /** Bytes to clients, since the start. Default: `0`. */
  sent_bytes: number;
  /** Server connections that it may have; each node may open as many as its limit says. Default: `0`. */
  server_connections_max: number;
  /** Server connections. Default: `0`. */
  servers: number;
  /** Server connections that a client holds. Default: `0`. */
  servers_active: number;
  /** Server connections that are being opened, probed or reset. Default: `0`. */
  servers_busy: number;
  /** Server connections that are idle. Default: `0`. */
  servers_idle: number;
  /** Duration of transactions in milliseconds. */
  transaction_ms: Percentiles;
  /** Transactions that ended, since the start. Default: `0`. */
  transactions: number;
  /** Time clients waited for a server connection, in milliseconds. */
  wait_ms: Percentiles;
  /** Microseconds that clients waited for server connections, since the start. Default: `0`. */
  wait_us: number;
}

/** Answer of `GET /v1/tenants/stats`. */
export interface TenantStatsList {
  /** Nodes that did not answer in time, whose figures are not in these. */
  missing?: string[];
  /** Figures of all tenants, by name. */
  tenants: TenantStats[];
}

/** A user of a tenant. */
export interface TenantUserSpec {
  /** Authentication of the user. Default: `"password"`. */
  auth?: UserAuth;
  /** Clients that may be connected with its name; the tenant's `user_clients_max` when absent. */
  clients_max?: number | null;
  /** Name of the user, as clients send it. */
  name?: string;
  /** With `password`: the password, or what the server keeps of it: a SCRAM secret (`SCRAM-SHA-256$…`) or an MD5 hash (`md5…`) of PostgreSQL, `*` and 40 hexadecimal digits of MySQL. In `cove.toml` also `env:NAME` or `file:PATH`. */
  password?: string | null;
  /** In place of the tenant's. */
  pool_mode?: PoolMode | null;
  /** Server connections that it may hold at one time; the tenant's `user_server_connections_max` when absent. */
  server_connections_max?: number | null;
  /** Password of that role. Absent: the user's own, as far as it can be used there. */
  server_password?: string | null;
  /** Role that it becomes on the server; the tenant's `server_user` when absent. */
  server_user?: string | null;
}

/** Size of a terminal, in characters. */
export interface TerminalSize {
  /** Columns. */
  cols: number;
  /** Lines. */
  rows: number;
}

/** Input of a program with its expected output. */
export interface TestCase {
  /** Arguments to the program, instead of the request's. */
  args?: string[] | null;
  /** Expected standard output as text. Without it and `expected_base64`, nothing is compared. */
  expected?: string | null;
  /** Expected standard output as base64. */
  expected_base64?: string | null;
  /** Limits of this run, where they differ from the request's. */
  limits?: LimitSpec;
  /** Name in the result; its number, from 1, when left out. */
  name?: string | null;
  /** Standard input as text. */
  stdin?: string | null;
  /** Standard input as base64. */
  stdin_base64?: string | null;
}

/** Result of one test case. */
export interface TestResult {
  /** CPU time of all its processes, in milliseconds with one decimal. */
  cpu_ms: number;
  /** The program's exit code; null when a signal ended it or it never started. */
  exit_code: number | null;
  /** Outcome of the checker or interactor, where there is one. */
  judge?: StageOutcome | null;
  /** The limit that ended the stage or spoiled its verdict. */
  limit: LimitHit | null;
  /** Largest memory use of all its processes together, in bytes; 0 where the kernel does not tell. */
  memory_peak_bytes: number;
  /** Explanation for a person beyond the verdict, such as why the program could not be started. */
  message?: string | null;
  /** Speed mode that was used. */
  mode: ExecutionMode;
  /** Name of the test case. */
  name: string;
  /** Processes the kernel killed because the stage was out of memory. */
  oom_kills: number;
  /** True when its output is too long to stand twice: then it is that of the execution, at the top of the answer, and left out here. */
  output_at_top?: boolean;
  /** Largest number of processes and threads at one time; 0 where the kernel does not tell. */
  processes_peak: number;
  /** Name of the signal that ended it (`SIGSEGV`); null when it exited. */
  signal: string | null;
  /** Standard error, likewise. */
  stderr: string;
  /** Exact standard error, likewise. */
  stderr_base64?: string | null;
  /** Standard output. Where `stdout_base64` is given, that is exact and this is for reading: what is not UTF-8 is replaced by U+FFFD, and only the beginning of what is long is here. */
  stdout: string;
  /** Exact standard output, only when it is not UTF-8, or has more than 4 KiB of which so much is control characters that JSON would take more than twice as long for it. */
  stdout_base64?: string | null;
  /** Streams that lost output beyond `output_bytes`. */
  truncated: TruncatedStreams;
  /** The judgement. */
  verdict: Verdict;
  /** Time from start to end, in milliseconds with one decimal. */
  wall_ms: number;
}

/** An API token, without its secret. */
export interface Token {
  /** When it was made (RFC 3339). */
  created: string;
  /** True if it has ended by itself. */
  expired: boolean;
  /** When it ends by itself (RFC 3339); null when it lasts until it is revoked. */
  expires: string | null;
  /** Id, by which it is revoked. */
  id: string;
  /** Name given by its owner. */
  name: string;
  /** True if it is an operator's token, which may use operations on all tenants. */
  operator: boolean;
  /** Scopes: `executions`, `sessions`, `agents`, `tokens`, `tenants`, `catalog`. */
  scopes: string[];
  /** Tenant that it belongs to; null for a tenant of its own, named like the id. */
  tenant: string | null;
}

/** All API tokens of a server. */
export interface TokenList {
  /** Tokens, the oldest first. */
  tokens: Token[];
}

/** Output streams that were cut at their limit. */
export interface TruncatedStreams {
  /** More was written to standard error than is kept. */
  stderr: boolean;
  /** More was written to standard output than is kept. */
  stdout: boolean;
}

/** Model usage of one turn. */
export interface TurnUsage {
  /** Name of the agent. */
  agent?: string | null;
  /** When the turn ended (milliseconds since 1970). */
  at_ms: number;
  /** The model that was asked for. */
  model?: string | null;
  /** The session. */
  session: string;
  /** The turn. */
  turn: string;
  /** Model usage of the turn. */
  usage: SessionUsage;
}

/** Changes of the properties of a namespace. No property may be in both. */
export interface UpdateNamespaceRequest {
  /** Properties to remove. */
  removals?: string[];
  /** Properties to set. */
  updates?: Record<string, string>;
}

/** Body of `PATCH /v1/sessions/{id}`: what is left out stays as it is. */
export interface UpdateSession {
  /** In place of its grants, all of them: those that are not here are taken back at once, and connections over them end. Programs that run keep the environment that they were started with. */
  grants?: Grant[] | null;
  /** Seconds without a message after which it gives up its sandbox. */
  idle_s?: number | null;
  /** In place of the metadata, all of it. */
  metadata?: Record<string, string> | null;
  /** Treatment of a turn when its listeners go away. */
  on_disconnect?: OnDisconnect | null;
  /** Options that replace those of the session. They take effect at the agent's next start. */
  options?: AgentOptions | null;
}

/** Answer of `GET /v1/usage`. */
export interface UsageReport {
  /** Sum over all turns that were asked for. */
  total: SessionUsage;
  /** Single turns, the latest first; only as many as `limit` says. */
  turns?: TurnUsage[];
}

/** Authentication methods of a user. */
export type UserAuth = 'password' | 'trust' | 'cert' | 'peer';

/** The judgement of a stage. Where several hold, the first of `IE OLE TLE MLE SG RE JF WA OK` wins; a compile stage that is not `OK` is `CE`. With test cases, the execution's is that of the first one that is not `OK`. */
export type Verdict = 'OK' | 'RE' | 'SG' | 'TLE' | 'MLE' | 'OLE' | 'CE' | 'WA' | 'JF' | 'IE';

/** When a server connection is examined before another client gets it. */
export type VerifyMode = 'unknown' | 'always' | 'never';

/** The metadata document of a view. */
export interface ViewMetadata {
  /** The version in use. */
  'current-version-id': number;
  /** 1. */
  'format-version': number;
  /** Where its files are. */
  location: string;
  /** Its properties. */
  properties?: Record<string, string>;
  /** All schemas. */
  schemas: IcebergSchema[];
  /** Which version was the current one when. */
  'version-log': Record<string, unknown>[];
  /** All versions. */
  versions: ViewVersion[];
  /** Its identity. */
  'view-uuid': string;
}

/** A version of a view. */
export interface ViewVersion {
  /** Catalog of names that say none. */
  'default-catalog'?: string;
  'default-namespace': NamespaceLevels;
  /** The view in each dialect. */
  representations: {
    /** Such as `spark`. */
    dialect: string;
    /** The text. */
    sql: string;
    type: 'sql';
  }[];
  /** Its columns. */
  'schema-id': number;
  /** Who made it. */
  summary: Record<string, string>;
  /** When it was made. */
  'timestamp-ms': number;
  /** Its number. */
  'version-id': number;
}

/** Answer of `GET /v1/webhooks/secret`. */
export interface WebhookSecret {
  /** The key that this token's webhooks are signed with, unless a request has its own: `whsec_` and base64, as libraries of Standard Webhooks take it. */
  secret: string;
}

/** Address that results are sent to: `POST` with the body of `GET /v1/executions/{id}`. */
export interface WebhookTarget {
  /** Key of the signature in the header `webhook-signature` (Standard Webhooks 1.0: HMAC-SHA-256 of `id.timestamp.body`). Without it, the token's own key is used. */
  secret?: string | null;
  /** An `https` or `http` address outside of private networks. */
  url: string;
}

/** Caller of a request, and what the server has for it. */
export interface Whoami {
  /** When it ends by itself, in milliseconds since 1970; absent when it lasts until it is revoked. */
  expires_ms?: number | null;
  /** Credential that was shown. */
  kind: CredentialKind;
  /** Name of the token. */
  name: string;
  /** Id of the server that answers. */
  node: string;
  /** True if it is an operator's token, which may use operations on all tenants. */
  operator: boolean;
  /** Scopes: `executions`, `sessions`, `agents`, `tokens`, `tenants`, `catalog`. */
  scopes: string[];
  /** Services that it has. */
  services: EnabledServices;
  /** Tenant that the token belongs to. */
  tenant: string;
  /** Version of Cove. */
  version: string;
}
