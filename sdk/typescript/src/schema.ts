// Generated from crates/api/openapi.json, sha256:1de76eee6b8aa41a957f840f937d14627b613237c8cd50de48d052e9d9128307
// By `npm run generate`; do not edit.

export interface components {
  schemas: {
    /** An agent, as it is shown. */
    Agent: {
      /** When its first version was deployed (RFC 3339, milliseconds, UTC). */
      created_at: string;
      /** Description, as given. */
      description?: string | null;
      /** Names of its environment variables. */
      env: string[];
      /** Grants of the agent's sessions. */
      grants?: components["schemas"]["Grant"][];
      /** Names it for ever: `ag_…`. */
      id: string;
      /** Limits, as given. */
      limits: components["schemas"]["SessionLimits"];
      /** Names it for its tenant. */
      name: string;
      /** Options, as given. */
      options: components["schemas"]["AgentOptions"];
      /** Program that sessions start. */
      runtime: components["schemas"]["AgentRuntime"];
      /** Settings, as given. */
      settings: components["schemas"]["AgentSettings"];
      /** Tenant that owns the agent. */
      tenant: string;
      /** When it was changed last. */
      updated_at: string;
      /** The version that new sessions get. */
      version: number;
    };
    /** A file of an agent's folder. */
    AgentFile: {
      /** True if `content` is Base64 (RFC 4648 §4) rather than text. Default: `false`. */
      base64?: boolean;
      /** Content. */
      content?: string;
      /** Mode 0755 rather than 0644. Default: `false`. */
      executable?: boolean;
      /** Relative, `/`-separated, without empty, `.` or `..` parts. */
      path?: string;
    };
    /** A file of an agent's folder, without its content. */
    AgentFileEntry: {
      /** Mode 0755 rather than 0644. */
      executable: boolean;
      /** Relative, `/`-separated. */
      path: string;
      /** Bytes. */
      size: number;
    };
    /** Answer of `GET /v1/agents/{name}/files`. */
    AgentFileList: {
      /** By path. */
      files: components["schemas"]["AgentFileEntry"][];
    };
    /** Answer of `GET /v1/agents`. */
    AgentList: {
      /** By name. */
      agents: components["schemas"]["Agent"][];
    };
    /** Options that an agent gets at its start; every field can be set by the agent and by a session. */
    AgentOptions: {
      /** Tools that need no permission. */
      allowed_tools?: string[] | null;
      /** Tools that are not there. */
      disallowed_tools?: string[] | null;
      /** Servers of the Model Context Protocol by name, in the shape of `.mcp.json`. */
      mcp_servers?: {
        [key: string]: unknown;
      } | null;
      /** Model to use. */
      model?: string | null;
      /** `bypassPermissions`, `acceptEdits`, `plan` or `default`, as Claude's command line has them. */
      permission_mode?: string | null;
      /** In place of the agent's own prompt. */
      system_prompt?: string | null;
    };
    /** Program that is started once for a session and lives as long as its sandbox. */
    AgentRuntime: components["schemas"]["AgentRuntimeClaude"] | components["schemas"]["AgentRuntimeCommand"] | components["schemas"]["AgentRuntimeNone"];
    /** Claude's command line over its stream-json protocol. */
    AgentRuntimeClaude: {
      type: "claude";
    };
    /** Any program that speaks the agent protocol on its standard streams (`docs/agents.md`). */
    AgentRuntimeCommand: {
      /** Program and arguments; started in `/workspace`. */
      argv: string[];
      type: "command";
    };
    /** No program: the session is a workspace to run programs in. */
    AgentRuntimeNone: {
      type: "none";
    };
    /** Lifetimes of an agent's sessions. */
    AgentSettings: {
      /**
       * Seconds without a message after which a session gives up its sandbox; the server's default
       *     when absent.
       */
      idle_s?: number | null;
      /** Start the agent with the first message rather than with the session. Default: `false`. */
      lazy?: boolean;
      /**
       * Park an interpreter in the agent's sandboxes before the first context is asked for, in those
       *     that wait as in new ones: it costs its memory, and the first context is there at once. Default: `false`.
       */
      park_interpreter?: boolean;
      /** Sandboxes kept ready in which the agent has started, too. Default: `0`. */
      prewarm_agents?: number;
      /** Sandboxes kept ready with the agent's files. Default: `0`. */
      prewarm_sandboxes?: number;
    };
    /** Body of `PATCH /v1/agents/{name}`: what changes without a new version. */
    AgentUpdate: {
      /** In place of the description. */
      description?: string | null;
      /** In place of the environment, all of it. */
      env?: {
        [key: string]: string;
      } | null;
      /** In place of the grants, for new sessions. */
      grants?: components["schemas"]["Grant"][] | null;
      /** In place of the limits. */
      limits?: components["schemas"]["SessionLimits"] | null;
      /** In place of the options. */
      options?: components["schemas"]["AgentOptions"] | null;
      /** In place of the settings. */
      settings?: components["schemas"]["AgentSettings"] | null;
      /** Number of the version that new sessions get. */
      version?: number | null;
    };
    /** A version of an agent. */
    AgentVersion: {
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
      runtime: components["schemas"]["AgentRuntime"];
      /** Counts from 1. */
      version: number;
    };
    /** Answer of `GET /v1/agents/{name}/versions`. */
    AgentVersionList: {
      /** Newest first. */
      versions: components["schemas"]["AgentVersion"][];
    };
    /** Answer of `PUT /v1/sessions/{id}/archive`. */
    ArchiveImported: {
      /** Bytes of content. */
      bytes: number;
      /** Files, directories and links that were unpacked. */
      entries: number;
    };
    /** Kinds of events at a socket. */
    AuditEvent: "granted" | "revoked" | "connect" | "disconnect" | "statement" | "request" | "missing";
    /** Outcomes of an event. */
    AuditOutcome: "done" | "failed" | "refused";
    /** Record of what a sandbox did at one of its sockets. */
    AuditRecord: {
      /** When it ended (RFC 3339, milliseconds, UTC). */
      at: string;
      /** Bytes that came into it. */
      bytes_in?: number | null;
      /** Bytes that went out of the sandbox. */
      bytes_out?: number | null;
      /** Why it failed or was refused. */
      error?: string | null;
      /** Kind of event. */
      event: components["schemas"]["AuditEvent"];
      /** The grant: `postgres:shop`, `http`. */
      grant: string;
      /** The session or execution. */
      holder: string;
      /** Outcome. */
      outcome: components["schemas"]["AuditOutcome"];
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
    };
    /** Answer of `GET /v1/audit`: oldest first, or newest first where that is asked for. */
    AuditRecordList: {
      /** Greatest number of a record when this was read: value of `after` for those that come later. Default: `0`. */
      newest: number;
      /**
       * Value of `after` for the next page; none on the last one, and where the newest come first.
       *     A page may be empty and have one: a request looks at 20,000 records at most.
       */
      next_after?: number | null;
      /** Value of `before` for the next page, where the newest come first; none on the last one. */
      next_before?: number | null;
      /** This page. */
      records: components["schemas"]["AuditRecord"][];
    };
    /** Records of the audit that have something in common. */
    AuditSummaryGroup: {
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
    };
    /** Answer of `GET /v1/audit/summary`. */
    AuditSummaryReport: {
      /** Groups, those with most records first. */
      groups: components["schemas"]["AuditSummaryGroup"][];
      /**
       * Value of `before` for the records that were not looked at: a request looks at 20,000. None
       *     where all were.
       */
      next_before?: number | null;
      /** Records of groups that are not listed. */
      others: number;
    };
    /** Lookup of users on the server. */
    AuthQuerySpec: {
      /** Database to do that in; the tenant's when absent. */
      database?: string | null;
      /** Password of that user. */
      password?: string | null;
      /**
       * A query with the parameter `$1`, of MySQL `?`, that answers name and secret, of MySQL
       *     plugin and secret. Absent: one of `pg_authid` that leaves out expired passwords, of MySQL
       *     one of `mysql.user`.
       */
      query?: string | null;
      /** Role that looks them up. Nobody can log in as it this way. */
      user?: string;
    };
    /** Answer of `POST /v1/executions/batch`, in the order of the request. */
    BatchAnswer: {
      /** Executions that were accepted. */
      executions: components["schemas"]["ExecutionRecord"][];
    };
    /** Body of `POST /v1/executions/batch`: all are accepted, or none. */
    BatchRequest: {
      /** Executions to submit. */
      executions: components["schemas"]["ExecutionRequest"][];
    };
    /** A client that is connected. */
    BouncerClient: {
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
    };
    /** Answer of `GET /v1/tenants/{name}/clients` and `/pins`. */
    BouncerClientList: {
      /** In no order. */
      clients: components["schemas"]["BouncerClient"][];
      /** Nodes that did not answer in time. */
      missing?: string[];
    };
    /** Answer of `POST /v1/bouncer/reload`. */
    BouncerReloaded: {
      /** Settings that changed and are taken over only by a restart. */
      restart_needed_for: string[];
      /** Tenants that are there now. */
      tenants: number;
    };
    /** A connection to a server. */
    BouncerServer: {
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
    };
    /** Answer of `GET /v1/tenants/{name}/servers`. */
    BouncerServerList: {
      /** Nodes that did not answer in time. */
      missing?: string[];
      /** In no order. */
      servers: components["schemas"]["BouncerServer"][];
    };
    /** Body of `POST /v1/templates`: a new template, or a new build of one. */
    BuildTemplate: {
      /** Run every step, also those whose layers are there. Default: `false`. */
      force?: boolean;
      /**
       * Template to begin with: a name, `name:tag`, or an id. Left out, or `base`: the programs of
       *     the host, and no files.
       */
      from?: string | null;
      /**
       * Name, or `name:tag`: letters, digits, `_`, `-` and `.`, 1 to 64 of each; unique for its
       *     tenant.
       */
      name?: string;
      /**
       * Command that succeeds when what `start` runs is ready: it is repeated until then, and the
       *     session is answered only afterwards.
       */
      ready?: string | null;
      /** Command that each new session runs in the background. */
      start?: string | null;
      /** Steps, in their order. */
      steps?: components["schemas"]["TemplateStep"][];
      /**
       * Tags that name this build when it is ready, beside the one of `name`; `default` when there
       *     is none.
       */
      tags?: string[];
    };
    /** Encoding of bytes in JSON. */
    BytesEncoding: "utf8" | "base64";
    /** A request that changed something, gave something away, or was refused. */
    CatalogAuditLine: {
      /** Address of the caller. */
      address?: string | null;
      /** When. */
      at: string;
      /** Milliseconds since 1970. */
      "at-ms": number;
      /** The API key that was shown. */
      key?: string | null;
      /** Who, for people. */
      name?: string | null;
      /** Such as `drop-table`. */
      operation: string;
      outcome: "done" | "refused" | "failed";
      /** What it was about. */
      path: string;
      /** Who; null of a stranger. */
      principal?: string | null;
      /** The type of the error. */
      refusal?: string | null;
      /** The request, as the server's log names it. */
      "request-id"?: string | null;
      /** Rises with every line. */
      seq: number;
      /** The status of the answer. */
      status: number;
    };
    /** A page of the audit, the newest first. */
    CatalogAuditPage: {
      /** Lines that did not fit since the server started. */
      "left-out": number;
      /** The lines. */
      lines: components["schemas"]["CatalogAuditLine"][];
      /** The `pageToken` of the next page; null on the last one. */
      "next-page-token"?: string | null;
    };
    /** A change of the catalog. */
    CatalogChange: {
      /** Such as `create-table`. */
      action: string;
      /** When. */
      at: string;
      /** The id of the table or view, which stays when it is renamed. */
      id?: string;
      /** Its metadata file since then. */
      "metadata-location"?: string;
      /** The table or view. */
      name?: string;
      namespace?: components["schemas"]["NamespaceLevels"];
      /** Its metadata file before. */
      "previous-metadata-location"?: string;
      /** Who did it; told to operators. */
      principal?: string;
      /** Its number: one more than that of the change before. */
      seq: number;
      /** Its new name. */
      to?: components["schemas"]["TableIdentifier"];
      /** Its version since then. */
      version?: number;
    };
    /** A page of changes, the oldest first. */
    CatalogChangePage: {
      /** The changes. */
      changes: components["schemas"]["CatalogChange"][];
      /** Whether there are more. */
      more: boolean;
      /** The last number that there is. */
      newest: number;
      /** The `after` of the next page. */
      "next-after": number;
      /** The first number that is kept. */
      oldest: number;
    };
    /** A client: a program that logs in by OAuth. */
    CatalogClient: {
      /** The `client_id`. */
      "client-id": string;
      /** When it was made. */
      created: string;
      /** For people. */
      name: string;
      /** Whether it may do everything. */
      operator: boolean;
      /** Its id in grants: `client:` and the client id. */
      principal: string;
    };
    /** All clients. */
    CatalogClientList: {
      /** Without their secrets. */
      clients: components["schemas"]["CatalogClient"][];
    };
    /** A client to make. */
    CatalogClientRequest: {
      /** For people. */
      name: string;
      /** Whether it may do everything. */
      operator?: boolean;
    };
    /** A client with its secret, which is told once. */
    CatalogClientSecret: components["schemas"]["CatalogClient"] & {
      /** The `client_secret`. */
      "client-secret": string;
    };
    /** A table or view that can come back. */
    CatalogDropped: {
      /** When it was dropped. */
      "dropped-at-ms": number;
      /** Names it. */
      id: string;
      /** Whether that has begun. */
      "is-purging": boolean;
      /** The name that it had. */
      name: string;
      namespace: components["schemas"]["NamespaceLevels"];
      /** Who dropped it; told to operators. */
      principal?: string;
      /** When it goes for good. */
      "purge-at-ms": number;
      /** Whether its files go as well. */
      "purge-requested": boolean;
      type: "table" | "view";
      /** Its identity. */
      uuid: string;
    };
    /** A page of what can come back. */
    CatalogDroppedList: {
      /** The last dropped first. */
      dropped: components["schemas"]["CatalogDropped"][];
      /** The `pageToken` of the next page; null on the last one. */
      "next-page-token"?: string | null;
    };
    /** Files, with their rows and bytes. */
    CatalogFileTotals: {
      /** Bytes. */
      bytes: number;
      /** Number of files. */
      files: number;
      /** Rows of data files; of delete files the positions or keys in them. */
      rows: number;
    };
    /** Results of a search by name. */
    CatalogFoundNames: {
      /** Namespaces, then tables and views, then columns. */
      results: {
        /** The column, with dots for those within others. */
        column?: string;
        /** Kind of what was found. */
        kind: "namespace" | "table" | "view" | "column";
        /** Its own name; of a column that of its table. */
        name: string;
        /** The namespace, or that which it is in. */
        namespace: string[];
      }[];
      /** True if there may be more: more than were asked for, or more names than one search reads. */
      truncated: boolean;
    };
    /** A function to make or replace. */
    CatalogFunctionRequest: {
      metadata: components["schemas"]["FunctionMetadata"];
      /** Its name. */
      name: string;
      namespace: components["schemas"]["NamespaceLevels"];
      /** Take the place of the one that has the name. */
      overwrite?: boolean;
    };
    /** Rights of a principal to a warehouse, a namespace, or a table or view. */
    CatalogGrant: {
      /** A table or view of it; without it all of the namespace. */
      name?: string;
      /** The namespace; without it the warehouse. */
      namespace?: components["schemas"]["NamespaceLevels"];
      /** `client:`, `role:`, `tenant:`, `oidc:` or `group:` and who it is. */
      principal: string;
      /** What it may do. */
      rights: ("read" | "write" | "manage" | "grant")[];
    };
    /** What was granted. */
    CatalogGrantList: {
      /** By the names that things have now. */
      grants: components["schemas"]["CatalogGrant"][];
    };
    /** A job of maintenance. */
    CatalogJob: {
      /** When it was asked for. */
      "created-ms": number;
      /** Whether it changes nothing. */
      "dry-run": boolean;
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
      "is-truncated": boolean;
      /** The first 10,000. */
      items: {
        kind: "snapshot" | "ref" | "file" | "metadata-file";
        /** Id, name or location. */
        name: string;
        /** The table. */
        table: string;
      }[];
      /** Branches and tags. */
      refs: number;
      /** Snapshots that went, or would go. */
      snapshots: number;
      state: "queued" | "running" | "done" | "cancelled" | "interrupted";
      /** Tables that it has been through. */
      "tables-done": number;
      /** Tables that it goes through. */
      "tables-total": number;
    };
    /** Jobs of a warehouse, the newest first. */
    CatalogJobList: {
      /** The jobs. */
      jobs: components["schemas"]["CatalogJob"][];
    };
    /** Maintenance to do. */
    CatalogJobRequest: {
      /** What is done. */
      actions: ("expire-snapshots" | "clean-metadata")[];
      /** Remove files that only expired snapshots lead to. */
      "delete-files"?: boolean;
      /** Change nothing, list what would go. */
      "dry-run"?: boolean;
      /** All tables in it. */
      namespace?: components["schemas"]["NamespaceLevels"];
      /** Tables; without it and `namespace` all of the warehouse. */
      tables?: components["schemas"]["TableIdentifier"][];
    };
    /** A job. */
    CatalogJobStarted: {
      /** Names it. */
      id: string;
    };
    /** An API key of a client. */
    CatalogKey: {
      /** When it was made. */
      created: string;
      /** Until when it is good; null for as long as it is there. */
      expires: string | null;
      /** Names it. */
      "key-id": string;
      /** When it was last used, to a minute. */
      "last-used": string | null;
      /** For people. */
      name: string;
    };
    /** All keys of a client. */
    CatalogKeyList: {
      /** Without their secrets. */
      keys: components["schemas"]["CatalogKey"][];
    };
    /** A key to make. */
    CatalogKeyRequest: {
      /** How long it is good; without it until it is removed. */
      "expires-seconds"?: number;
      /** For people. */
      name: string;
    };
    /** A key with its secret, which is told once. */
    CatalogKeySecret: components["schemas"]["CatalogKey"] & {
      /** The bearer token. */
      key: string;
    };
    /** Changes of who has a role. */
    CatalogMembersRequest: {
      /** Principals to add. */
      add?: string[];
      /** Principals to remove. */
      remove?: string[];
    };
    /** Files of one partition. */
    CatalogPartitionFigures: {
      data: components["schemas"]["CatalogFileTotals"];
      deletes: components["schemas"]["CatalogFileTotals"];
      /** Bytes of the largest data file. */
      "largest-bytes": number;
      /** Values of the partition, such as `day="2026-11-28"`; empty where nothing is partitioned. */
      partition: string;
      /** Their bytes. */
      "small-bytes": number;
      /** Data files below the small size. */
      "small-files": number;
      /** Specification of the partition. */
      "spec-id": number;
    };
    /** A policy. */
    CatalogPolicy: {
      /** Columns that are not shown as they are. */
      "column-projections": components["schemas"]["CatalogProjection"][];
      /** Its name in the warehouse. */
      name: string;
      namespace: components["schemas"]["NamespaceLevels"];
      /** Whom it restricts. */
      principal: string;
      /** Rows that may be read. */
      "row-filter"?: unknown;
      /** The table. */
      table: string;
      /** Whether it may have credentials for the files. */
      trusted: boolean;
    };
    /** All policies of a warehouse. */
    CatalogPolicyList: {
      /** In order. */
      policies: components["schemas"]["CatalogPolicy"][];
    };
    /** What a principal may read of a table without a policy, and with it. */
    CatalogPolicyPreview: {
      /** Whether the policy restricts it: it is the policy's principal, or has that role. */
      applies: boolean;
      now: components["schemas"]["CatalogReadScope"];
      /** The principal. */
      principal: string;
      /** Rights that it has to the table, by grants to itself and to its roles; absent for `grant:`, whose sandboxes have those of their own grants. */
      rights?: ("read" | "write" | "manage" | "grant")[];
      then: components["schemas"]["CatalogReadScope"];
    };
    /** Whom and what a preview of a policy is about. */
    CatalogPolicyPreviewRequest: {
      policy: components["schemas"]["CatalogPolicyRequest"];
      /** Whose reading is shown: a principal, a role, or `grant:` and a tenant. */
      principal: string;
    };
    /** What part of a table a principal may read. */
    CatalogPolicyRequest: {
      /** Columns that are not shown as they are. */
      "column-projections"?: components["schemas"]["CatalogProjection"][];
      namespace: components["schemas"]["NamespaceLevels"];
      /** Whom it restricts; `*`: everybody but operators. */
      principal: string;
      /** A predicate of Iceberg's interface; without it all rows. */
      "row-filter"?: unknown;
      /** The table. */
      table: string;
      /** Whether it may have credentials for the files. */
      trusted?: boolean;
    };
    /** What is shown of a column. */
    CatalogProjection: {
      /** What is done to its values. */
      action: string;
      /** Its name. */
      column?: string;
      /** Or its id. */
      "field-id"?: number;
    };
    /** Whether something is protected. */
    CatalogProtectRequest: {
      /** A table or view; without it the namespace. */
      name?: string;
      namespace: components["schemas"]["NamespaceLevels"];
      /** Whether it is. */
      protected: boolean;
    };
    /** Whether something is protected, and by what. */
    CatalogProtection: {
      /** By this interface. */
      "by-flag": boolean;
      /** By its property `protected`. */
      "by-property": boolean;
      /** Whether it is. */
      protected: boolean;
    };
    /** What a principal may read of a table, as far as its rights go. */
    CatalogReadScope: {
      /** Columns that are shown in another way, by id. */
      "column-projections": components["schemas"]["CatalogProjection"][];
      /** Whether it gets credentials for the table's files. */
      files: boolean;
      /** Names of the policies that restrict it, in order. */
      policies: string[];
      /** Rows that it may read; absent for all. */
      "row-filter"?: unknown;
    };
    /** How long what is dropped stays. */
    CatalogRetention: {
      /** Seconds. */
      "undrop-seconds": number;
    };
    /** How long what is dropped stays. */
    CatalogRetentionRequest: {
      /** Seconds; null for what the configuration says. */
      "undrop-seconds": number | null;
    };
    /** A role: a name for principals. */
    CatalogRole: {
      /** Ids of principals. */
      members: string[];
      /** Its name. */
      name: string;
    };
    /** All roles. */
    CatalogRoleList: {
      /** In order. */
      roles: components["schemas"]["CatalogRole"][];
    };
    /** A role to make. */
    CatalogRoleRequest: {
      /** Ids of principals. */
      members?: string[];
      /** Its name. */
      name: string;
    };
    /** Another secret. */
    CatalogRotateRequest: {
      /** How long the old one stays valid, at most 604800. Default: `0`. */
      "grace-seconds"?: number;
    };
    /** Rows of what a table's metadata says. */
    CatalogRowsPage: {
      /** The `pageToken` of the next page; null on the last one. */
      "next-page-token"?: string | null;
      /** A row each. */
      rows: Record<string, never>[];
    };
    /** How a bucket is reached, and what clients get. */
    CatalogStorage: {
      /** How long credentials are good for: 900 to 43200. */
      "credentials-seconds"?: number;
      /** Address of the service; without it Amazon's. */
      endpoint?: string;
      /** What the role demands to be told. */
      "external-id"?: string;
      /** Whether the bucket is in the path. */
      "path-style"?: boolean;
      /** Whether new tables are at `NAMESPACE/TABLE`. */
      "plain-locations"?: boolean;
      /** For signatures. */
      region?: string;
      /** Whether the server signs requests of clients. */
      "remote-signing"?: boolean;
      /** The role that clients' credentials are for. */
      "role-arn"?: string;
      /** Where credentials are asked for. */
      "sts-endpoint"?: string;
      /** Whether clients get credentials. */
      "vended-credentials"?: boolean;
    };
    /** A key for a bucket. Told to nobody. */
    CatalogStorageKey: {
      /** Names it. */
      "access-key-id": string;
      /** The secret. */
      "secret-access-key": string;
      /** Of temporary credentials. */
      "session-token"?: string;
    };
    /** Health of a table at a snapshot. */
    CatalogTableHealth: {
      /** Average bytes of a data file. */
      "bytes-per-file": number;
      /** False if the snapshot has more manifests than are read for one answer: 2,000, or 1 GiB of them in memory. */
      complete: boolean;
      data: components["schemas"]["CatalogFileTotals"];
      /** Delete files by kind. */
      deletes: {
        /** Their part of all rows. */
        "deleted-percent": number;
        /** Rows that positions and vectors delete. */
        "deleted-rows": number;
        equality: components["schemas"]["CatalogFileTotals"];
        position: components["schemas"]["CatalogFileTotals"];
        vectors: components["schemas"]["CatalogFileTotals"];
      };
      /** Data files by size. */
      histogram: {
        /** Their bytes. */
        bytes: number;
        /** Number of files. */
        files: number;
        /** Least size. */
        "from-bytes": number;
        /** Size from which on files are in the next part; none of the last one. */
        "to-bytes": number | null;
      }[];
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
        "files-per-manifest": number;
        /** Entries of files that were removed. */
        "removed-entries": number;
      };
      /** Partitions with files; at most 10,000 are told apart. */
      partitions: {
        /** How many there are. */
        count: number;
        /** Files of partitions beyond those that are told apart. */
        "files-beyond": number;
        /** The largest ones, at most 20. */
        largest: components["schemas"]["CatalogPartitionFigures"][];
        /** Bytes of the largest partition for each byte of the average one. */
        skew: number;
        /** Those whose largest file stands out most, at most 20. */
        skewed: components["schemas"]["CatalogPartitionFigures"][];
        /** Those with most small files, at most 20. */
        small: components["schemas"]["CatalogPartitionFigures"][];
      };
      /** What to do, the most useful first. */
      recommendations: {
        /** What to do. */
        action: "compact" | "rewrite-manifests" | "expire-snapshots" | "remove-orphans";
        /** How an engine does it. */
        elsewhere: string | null;
        /** Maintenance action of the catalog that does it; none where an engine has to. */
        operation: string | null;
        /** Why, in a sentence. */
        reason: string;
      }[];
      /** Average rows of a data file. */
      "rows-per-file": number;
      small: components["schemas"]["CatalogFileTotals"];
      /** Size below which a data file is small: three quarters of the target. */
      "small-below-bytes": number;
      /** Time of that snapshot in milliseconds. */
      "snapshot-at-ms": number | null;
      /** Snapshot that was looked at; none of a table without one. */
      "snapshot-id": number | null;
      /** Snapshots of the table. */
      snapshots: {
        /** How many there are. */
        count: number;
        /** Those that the table's properties let expire now; none when these are wrong. */
        expired: number | null;
        /** Age of the oldest one in milliseconds. */
        "oldest-age-ms": number | null;
        /** Time of the oldest one in milliseconds. */
        "oldest-at-ms": number | null;
      };
      /** Size that writers aim at: `write.target-file-size-bytes`. */
      "target-bytes": number;
    };
    /** What is to come back, by `id` or `uuid`. */
    CatalogUndropRequest: {
      /** Its id. */
      id?: string;
      /** The name that it gets, instead of its own. */
      name?: string;
      /** Where it goes, instead of where it was. */
      namespace?: components["schemas"]["NamespaceLevels"];
      /** Or its identity. */
      uuid?: string;
    };
    /** What came back. */
    CatalogUndropped: {
      /** Its id. */
      id: string;
      /** Its name. */
      name: string;
      namespace: components["schemas"]["NamespaceLevels"];
      type: "table" | "view";
    };
    /** A warehouse. */
    CatalogWarehouse: {
      /** Whether the configuration describes it. */
      configured: boolean;
      /** When it was made. */
      "created-ms": number;
      /** Whether it has a key of its own. */
      "has-credentials": boolean;
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
      status: "active" | "read-only" | "protected";
      storage: components["schemas"]["CatalogStorage"];
      /** When it was changed. */
      "updated-ms": number | null;
    };
    /** Warehouses. */
    CatalogWarehouseList: {
      /** In order. */
      warehouses: components["schemas"]["CatalogWarehouse"][];
    };
    /** A warehouse to make. */
    CatalogWarehouseRequest: {
      credentials?: components["schemas"]["CatalogStorageKey"];
      /** Up to 32 other roots. */
      locations?: string[];
      /** 1 to 255 bytes, without `/`. */
      name: string;
      /** `s3://BUCKET/PREFIX` or `file:///DIRECTORY`. */
      root: string;
      /** `read-only`: nothing in it changes; `protected`: it is not removed. */
      status?: "active" | "read-only" | "protected";
      storage?: components["schemas"]["CatalogStorage"];
    };
    /** Changes of a warehouse: what is there. */
    CatalogWarehouseUpdate: {
      credentials?: components["schemas"]["CatalogStorageKey"];
      /** Up to 32 other roots. */
      locations?: string[];
      /** `read-only`: nothing in it changes; `protected`: it is not removed. */
      status?: "active" | "read-only" | "protected";
      storage?: components["schemas"]["CatalogStorage"];
    };
    /** End of a cell. */
    CellEnd: {
      /**
       * True if the context's process has ended: what was defined is lost, and the next cell starts
       *     a new one.
       */
      context_ended: boolean;
      /**
       * Processor time of the context's process and of what it has waited for, as the process itself
       *     says; none when it has ended.
       */
      cpu_ms?: number | null;
      /** Most memory that the context's process had during the cell, as the process itself says. */
      memory_bytes?: number | null;
      /**
       * Verdict: `OK`, `RE` for an error, `TLE`, `MLE`, `OLE`, `SG` for a context that was
       *     killed.
       */
      verdict: components["schemas"]["Verdict"];
      /** Wall time. */
      wall_ms: number;
    };
    /** Event of a cell while it runs. */
    CellEvent: components["schemas"]["CellEventStarted"] | components["schemas"]["CellEventStdout"] | components["schemas"]["CellEventStderr"] | components["schemas"]["CellEventResult"] | components["schemas"]["CellEventError"] | components["schemas"]["CellEventEnded"] | components["schemas"]["CellEventGone"];
    /** Ended. The last event. */
    CellEventEnded: components["schemas"]["CellEnd"] & {
      type: "ended";
    };
    /** The cell failed. */
    CellEventError: components["schemas"]["CellFailure"] & {
      type: "error";
    };
    /** No longer available, because its sandbox is gone. The last event. */
    CellEventGone: {
      /** Why. */
      error: string;
      type: "gone";
    };
    /** A result, or something that the cell displays. */
    CellEventResult: components["schemas"]["CellResult"] & {
      type: "result";
    };
    /** The context has begun with it. */
    CellEventStarted: {
      /** Number of the cell in its context, from 1. */
      execution_count: number;
      type: "started";
    };
    /** Output on standard error. */
    CellEventStderr: {
      /** The text. */
      text: string;
      type: "stderr";
    };
    /** Output on standard output; bytes that are not UTF-8 are replaced. */
    CellEventStdout: {
      /** The text. */
      text: string;
      type: "stdout";
    };
    /** Error of a cell. */
    CellFailure: {
      /**
       * Class of the error, such as `NameError`; `TimeLimitExceeded`, `OutputLimitExceeded`,
       *     `MemoryLimitExceeded`, `ContextEnded` and `ProtocolError` are Cove's own.
       */
      name: string;
      /** Places in the code that led to it, without colours. */
      traceback: string;
      /** Message of the error. */
      value: string;
    };
    /** Answer of `POST /v1/sessions/{id}/contexts/{context}/execute` without a stream. */
    CellReport: {
      /**
       * True if the context's process has ended: what was defined is lost, and the next cell starts
       *     a new one.
       */
      context_ended: boolean;
      /**
       * Processor time of the context's process and of what it has waited for, as the process itself
       *     says; none when it has ended.
       */
      cpu_ms?: number | null;
      /** Error, if it failed. */
      error?: components["schemas"]["CellFailure"] | null;
      /** Number of the cell in its context, from 1. */
      execution_count: number;
      /** Most memory that the context's process had during the cell, as the process itself says. */
      memory_bytes?: number | null;
      /** Results and what was displayed, in their order. */
      results: components["schemas"]["CellResult"][];
      /** Standard error. */
      stderr: string;
      /** Standard output. */
      stdout: string;
      /** True if there was more output than is kept. */
      truncated: boolean;
      /**
       * Verdict: `OK`, `RE` for an error, `TLE`, `MLE`, `OLE`, `SG` for a context that was
       *     killed.
       */
      verdict: components["schemas"]["Verdict"];
      /** Wall time. */
      wall_ms: number;
    };
    /** A value in all its representations. */
    CellResult: {
      /**
       * Representations by MIME type: text, Base64 for binary types, JSON for `application/json`,
       *     `e2b/data` (columns of a data frame) and `e2b/chart` (data of a chart).
       */
      data: {
        [key: string]: unknown;
      };
      /** True for the value of the cell, false for what it displays. */
      is_main_result: boolean;
      /** MIME types that were cut or left out because they are too long. */
      truncated?: string[];
    };
    /** Result of a check of the machine. */
    CheckStatus: "ok" | "note" | "missing";
    /** A grant that was checked. Nothing was made. */
    CheckedGrant: {
      /** True if it would be given. */
      given: boolean;
      /** Name of the grant: `postgres:shop`, `http`. */
      grant: string;
      /** Port inside. */
      port: number;
      /** Reason why it would not be. */
      refusal?: components["schemas"]["GrantRefusal"] | null;
    };
    /** Message of a caller on the WebSocket of `/v1/executions/{id}/events`. */
    ClientMessage: components["schemas"]["ClientMessageStdin"] | components["schemas"]["ClientMessageEof"] | components["schemas"]["ClientMessageSignal"] | components["schemas"]["ClientMessageResize"] | components["schemas"]["ClientMessageCancel"] | components["schemas"]["ClientMessageAck"];
    /** Acknowledges output of a terminal that was opened with `window`. Elsewhere it says nothing. */
    ClientMessageAck: {
      /** Bytes of this connection's output that the client has shown so far. */
      bytes: number;
      type: "ack";
    };
    /** Ends the execution. */
    ClientMessageCancel: {
      type: "cancel";
    };
    /** End of standard input. */
    ClientMessageEof: {
      type: "eof";
    };
    /** The terminal has another size. */
    ClientMessageResize: {
      /** Columns. */
      cols: number;
      /** Lines. */
      rows: number;
      type: "resize";
    };
    /** A signal for the program. */
    ClientMessageSignal: {
      /** Name of the signal, such as `SIGINT`. */
      signal: string;
      type: "signal";
    };
    /** Bytes for standard input: exactly one of `data` and `data_base64`. */
    ClientMessageStdin: {
      /** The bytes as text. */
      data?: string | null;
      /** The bytes as base64. */
      data_base64?: string | null;
      type: "stdin";
    };
    /** Transport of a client to the bouncer. */
    ClientTransportMode: "tcp" | "tls" | "unix";
    /** Context of a code interpreter: a process that keeps what its cells have defined. */
    CodeContext: {
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
      state: components["schemas"]["CodeContextState"];
    };
    /** Answer of `GET /v1/sessions/{id}/contexts`: oldest first. */
    CodeContextList: {
      /** All there are. */
      contexts: components["schemas"]["CodeContext"][];
    };
    /** State of a context. */
    CodeContextState: "cold" | "idle" | "running";
    /** Configuration of a server that is in force. */
    Config: {
      /** Configuration file that was read; absent when there is none. */
      file?: string | null;
      /** Settings, in the order of the documentation. */
      settings: components["schemas"]["Setting"][];
    };
    /** Answer of `POST /v1/reload`. */
    ConfigReloaded: {
      /** Settings that changed and are taken over only by a restart. */
      restart_needed_for: string[];
      /** Settings whose new values are in force from now on, and `tls.cert` when its files changed. */
      taken_over: string[];
    };
    /** Body of `POST /v1/sessions/{id}/contexts`. */
    CreateCodeContext: {
      /** Working directory; `/workspace` when absent. */
      cwd?: string | null;
      /** Environment beside the session's. */
      env?: {
        [key: string]: string;
      };
      /** `python`, `javascript`, `typescript` or `bash`; `python` when absent. */
      language?: string | null;
    };
    /** Body of `POST /v1/credentials`. */
    CreateCredential: {
      /**
       * `anthropic`: the key for the model, which never enters a sandbox. `openai`, `bedrock`,
       *     `custom`: agents get it as `OPENAI_API_KEY`, `AWS_BEARER_TOKEN_BEDROCK`, `CREDENTIAL`.
       */
      kind: string;
      /** Label of the credential. */
      label?: string;
      /** The secret. Stored encrypted, never shown. */
      secret: string;
    };
    /** Body of `POST /v1/sessions`. */
    CreateSession: {
      /** Name of the agent; none for a workspace without one. */
      agent?: string | null;
      /** Id of a credential whose secret the agent gets. */
      credential?: string | null;
      /** Environment beside the agent's. Stored encrypted, never shown. */
      env?: {
        [key: string]: string;
      };
      /** Grants of the sandbox, in place of the agent's; those when absent. */
      grants?: components["schemas"]["Grant"][] | null;
      /** Seconds without a message after which it gives up its sandbox. */
      idle_s?: number | null;
      /** Limits in place of the agent's. */
      limits?: components["schemas"]["SessionLimits"];
      /** Labels to find the session by. */
      metadata?: {
        [key: string]: string;
      };
      /** Treatment of a turn when its listeners go away. Default: `"continue"`. */
      on_disconnect?: components["schemas"]["OnDisconnect"];
      /** Options that the agent gets at its start. */
      options?: components["schemas"]["AgentOptions"];
      /** Id of the snapshot whose files are used in place of the agent's. */
      snapshot?: string | null;
      /**
       * Template that it starts from: a name, `name:tag`, or an id. Only without `agent` and
       *     `snapshot`.
       */
      template?: string | null;
    };
    /** A secret kept for agents, as it is shown: never with its value. */
    Credential: {
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
    };
    /** Credential that a caller showed. */
    CredentialKind: "token" | "console" | "issued";
    /** Answer of `GET /v1/credentials`. */
    CredentialList: {
      /** All of the tenant. */
      credentials: components["schemas"]["Credential"][];
    };
    /** Column of a table or view. */
    DataColumn: {
      /** Comment on it. */
      comment?: string | null;
      /** Name. */
      name: string;
      /** True if it can be NULL. */
      nullable: boolean;
      /** Type, as it would be defined: `numeric(10,2)`, `list<string>`. */
      type: string;
    };
    /** Table, view or namespace. */
    DataObject: {
      /** Columns. */
      columns?: components["schemas"]["DataColumn"][];
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
      snapshots?: components["schemas"]["SnapshotFacts"] | null;
    };
    /**
     * Limits of a sandbox on a database. What is left out is as the server's `[gateway]` says; 0 is
     *     for no limit.
     */
    DatabaseGrantLimits: {
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
    };
    /** Body of `POST /v1/agents`: a new agent, or a new version of one that exists. */
    DeployRequest: {
      /** Description for people. */
      description?: string | null;
      /** Environment of every session's processes. Values are stored encrypted and never shown. */
      env?: {
        [key: string]: string;
      };
      /**
       * Complete content of the agent's folder: what an earlier version had and this one has not is
       *     gone. A file `install.sh` is run once, inside a sandbox, and what it makes is part of the
       *     version.
       */
      files?: components["schemas"]["AgentFile"][];
      /**
       * Grants of the agent's sessions, unless one is created with others. Left out: what a file
       *     `grants.json` of the folder says, a list of them; nothing without one.
       */
      grants?: components["schemas"]["Grant"][] | null;
      /** Limits of its sessions, unless a session asks for others. */
      limits?: components["schemas"]["SessionLimits"];
      /** Letters, digits, `_` and `-`, 1 to 64 of them; unique for its tenant. */
      name?: string;
      /** Settings that a session may override. */
      options?: components["schemas"]["AgentOptions"];
      /**
       * Program that sessions start. Left out: Claude where there is a `CLAUDE.md`, else nothing, so
       *     that sessions have a workspace and no agent.
       */
      runtime?: components["schemas"]["AgentRuntime"] | null;
      /** Lifetimes of the agent's sessions. */
      settings?: components["schemas"]["AgentSettings"];
      /** Template whose files and environment are below the folder's: a name, `name:tag`, or an id. */
      template?: string | null;
    };
    /** Checks of a server: those that are under way, and the last report. */
    Doctor: {
      /** The last report; absent until the first is made. */
      last?: components["schemas"]["DoctorRun"] | null;
      /** True while checks are under way. */
      running: boolean;
    };
    /** A check of the machine. */
    DoctorCheck: {
      /** Consequence and remedy, when there is one. */
      follows?: string | null;
      /** Findings, in words. */
      found: string;
      /** Name of the check. */
      name: string;
      /** Result. */
      status: components["schemas"]["CheckStatus"];
    };
    /** Report about a machine. */
    DoctorReport: {
      /** Checks, in the order in which they were made. */
      checks: components["schemas"]["DoctorCheck"][];
      /** Languages, and which of them can be used. */
      languages: components["schemas"]["Language"][];
      /** True if untrusted code can be run here. */
      ok: boolean;
      /** True if the checks ran as root. */
      root: boolean;
      /** Version of Cove. */
      version: string;
    };
    /** Report that a server made of itself. */
    DoctorRun: {
      /** Id of the server. */
      node: string;
      /** The report. */
      report: components["schemas"]["DoctorReport"];
      /** When the checks began, in milliseconds since 1970. */
      started_ms: number;
      /** Time that they took, in milliseconds. */
      took_ms: number;
    };
    /** Services that a server has. */
    EnabledServices: {
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
    };
    /** Body of every response with a status of 400 or above. */
    ErrorBody: {
      /** The error. */
      error: components["schemas"]["ErrorDetail"];
    };
    /** Stable identifiers of errors. */
    ErrorCode: "invalid_request" | "unknown_language" | "language_unavailable" | "unauthenticated" | "forbidden" | "not_found" | "method_not_allowed" | "conflict" | "gone" | "body_too_large" | "unsupported_media_type" | "too_many_requests" | "overloaded" | "draining" | "upgrade_required" | "node_lost" | "internal";
    /** An error: what went wrong, whose fault it is and whether to try again. */
    ErrorDetail: {
      /** Stable identifier to match on. */
      code: components["schemas"]["ErrorCode"];
      /**
       * Path of the offending field in the request, when there is one: `limits.cpu_ms`,
       *     `files[2].name`.
       */
      field?: string | null;
      /** Sentence for a person: lower case, no period. Not stable. */
      message: string;
      /** True if the same request may succeed later without being changed. */
      retry: boolean;
    };
    /** Body of `POST /v1/sessions/{id}/contexts/{context}/execute`. */
    ExecuteCell: {
      /** The cell. */
      code?: string;
      /** Environment for this cell alone. */
      env?: {
        [key: string]: string;
      };
      /** Milliseconds after which it is interrupted, and a little later killed with its context. */
      timeout_ms?: number | null;
    };
    /** The answer: what the program did, and how it ended. */
    Execution: {
      /** CPU time of all its processes, in milliseconds with one decimal. */
      cpu_ms: number;
      /** The program's exit code; null when a signal ended it or it never started. */
      exit_code: number | null;
      /** The files asked for in `outputs`, in that order. */
      files?: components["schemas"]["OutputFile"][];
      /** Names this execution in logs. */
      id: components["schemas"]["ExecutionId"];
      /** Number of its last event; 0 for an execution without events. */
      last_seq?: number;
      /** The limit that ended the stage or spoiled its verdict. */
      limit: components["schemas"]["LimitHit"] | null;
      /**
       * Largest memory use of all its processes together, in bytes; 0 where the kernel does not
       *     tell.
       */
      memory_peak_bytes: number;
      /** Explanation for a person beyond the verdict, such as why the program could not be started. */
      message?: string | null;
      /** Speed mode that was used. */
      mode: components["schemas"]["ExecutionMode"];
      /** Processes the kernel killed because the stage was out of memory. */
      oom_kills: number;
      /** Largest number of processes and threads at one time; 0 where the kernel does not tell. */
      processes_peak: number;
      /** Name of the signal that ended it (`SIGSEGV`); null when it exited. */
      signal: string | null;
      /** Every stage that ran, in order. */
      stages: components["schemas"]["StageResult"][];
      /** Standard error, likewise. */
      stderr: string;
      /** Exact standard error, likewise. */
      stderr_base64?: string | null;
      /**
       * Standard output. Where `stdout_base64` is given, that is exact and this is for reading: what
       *     is not UTF-8 is replaced by U+FFFD, and only the beginning of what is long is here.
       */
      stdout: string;
      /**
       * Exact standard output, only when it is not UTF-8, or has more than 4 KiB of which so much is
       *     control characters that JSON would take more than twice as long for it.
       */
      stdout_base64?: string | null;
      /** Results of the test cases that ran, in order. */
      tests?: components["schemas"]["TestResult"][];
      /** Streams that lost output beyond `output_bytes`. */
      truncated: components["schemas"]["TruncatedStreams"];
      /** The judgement. */
      verdict: components["schemas"]["Verdict"];
      /** Time from start to end, in milliseconds with one decimal. */
      wall_ms: number;
    };
    /** Event of an execution, as on `/v1/executions/{id}/events`. */
    ExecutionEvent: {
      /**
       * Counts from 1 without gaps; a later attempt, after a failure of the server, goes on with
       *     much larger numbers. The id of a server-sent event.
       */
      seq: number;
    } & (components["schemas"]["ExecutionEventQueued"] | components["schemas"]["ExecutionEventStarted"] | components["schemas"]["ExecutionEventStage"] | components["schemas"]["ExecutionEventStdout"] | components["schemas"]["ExecutionEventStderr"] | components["schemas"]["ExecutionEventExit"] | components["schemas"]["ExecutionEventGap"] | components["schemas"]["ExecutionEventVerdict"] | components["schemas"]["ExecutionEventEnded"]);
    /** Ended without a result. The last event. */
    ExecutionEventEnded: {
      /** Why. */
      message?: string | null;
      /** Final state. */
      state: components["schemas"]["ExecutionState"];
      type: "ended";
    };
    /** A stage has ended. */
    ExecutionEventExit: {
      /** CPU time in milliseconds. */
      cpu_ms: number;
      /** Exit code, when it exited. */
      exit_code: number | null;
      /** Speed mode that was used. */
      mode: components["schemas"]["ExecutionMode"];
      /** Signal that ended it. */
      signal: string | null;
      /** Name of the stage. */
      stage: components["schemas"]["StageName"];
      /** Number of the test case, from 1. */
      test?: number | null;
      type: "exit";
      /** Verdict of the stage. */
      verdict: components["schemas"]["Verdict"];
      /** Time from start to end in milliseconds. */
      wall_ms: number;
    };
    /** Events in between are not kept any more. */
    ExecutionEventGap: {
      /** The first one that is missing. */
      from: number;
      /** The last one that is missing. */
      to: number;
      type: "gap";
    };
    /** Durable and waiting. */
    ExecutionEventQueued: {
      /** Number of executions before it. */
      position?: number | null;
      type: "queued";
    };
    /** A stage begins. */
    ExecutionEventStage: {
      /** Name of the stage. */
      stage: components["schemas"]["StageName"];
      /** Number of the test case, from 1. */
      test?: number | null;
      type: "stage";
    };
    /** A worker has it. */
    ExecutionEventStarted: {
      /** Number of the attempt, from 1. */
      attempt: number;
      type: "started";
    };
    /** A chunk of standard error of the current stage. */
    ExecutionEventStderr: {
      /** The bytes as text. */
      data?: string | null;
      /** The bytes as base64. */
      data_base64?: string | null;
      type: "stderr";
    };
    /** A chunk of standard output of the current stage. */
    ExecutionEventStdout: {
      /** The bytes as text. */
      data?: string | null;
      /** The bytes as base64. */
      data_base64?: string | null;
      type: "stdout";
    };
    /** Finished with a result. The last event. */
    ExecutionEventVerdict: {
      /** The whole result. */
      result: components["schemas"]["Execution"];
      type: "verdict";
      /** The judgement. */
      verdict: components["schemas"]["Verdict"];
    };
    /** Identifies one execution: `ex_` and 26 characters of Crockford base 32, sortable by time. */
    ExecutionId: string;
    /** Answer of `GET /v1/executions`: newest first, without results. */
    ExecutionList: {
      /** This page. */
      executions: components["schemas"]["ExecutionRecord"][];
      /** Value of `cursor` for the next page; none on the last one. */
      next_cursor?: string | null;
    };
    /**
     * Speed mode of a result. Speed modes have names of their own, so that no figure hides one.
     *     In every mode, each program runs in a sandbox of its own, which is used once.
     */
    ExecutionMode: "fresh" | "cached" | "zygote" | "prestarted" | "cached_zygote" | "cached_prestarted";
    /** An execution and its state. Answer of `POST /v1/executions` (202) and `GET /v1/executions/{id}`. */
    ExecutionRecord: {
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
      id: components["schemas"]["ExecutionId"];
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
      request?: components["schemas"]["ExecutionRequest"] | null;
      /** The result, once it is finished. */
      result?: components["schemas"]["Execution"] | null;
      /** When the latest attempt began. */
      started_at?: string | null;
      /** State of the execution. */
      state: components["schemas"]["ExecutionState"];
      /**
       * Verdict, once it is finished. Absent in Redis, and for what a server of an earlier
       *     version finished; the result has it always.
       */
      verdict?: components["schemas"]["Verdict"] | null;
    };
    /**
     * A program to run, on which input and within which limits. Body of `POST /v1/executions`.
     *
     *     Exactly one of `language` and `argv` is given. With `language`, the program is `source` (one
     *     file under the language's usual name) or `files` (the first one is the program's entry).
     */
    ExecutionRequest: {
      /** Arguments to the program, after the ones its language needs. */
      args?: string[];
      /** The command itself: program and arguments. Nothing is compiled. */
      argv?: string[] | null;
      /** Comparison of a test case's output with the expected one. */
      comparison?: components["schemas"]["OutputComparison"] | null;
      /** Arguments to the compiler, after the ones its language gives it. */
      compile_args?: string[];
      /** Limits of the compile stage. What is left out has the language's default. */
      compile_limits?: components["schemas"]["LimitSpec"];
      /**
       * Time within which it must have started, from submission, in milliseconds. After it, a
       *     waiting execution ends as `expired`.
       */
      deadline_ms?: number | null;
      /** Environment variables of the run stage, added to a minimal set. */
      env?: {
        [key: string]: string;
      };
      /**
       * Files placed in the working directory before the first stage; with `source`, beside it. The
       *     directory is `/workspace` unless a template has another.
       */
      files?: components["schemas"]["SourceFile"][];
      /** True to take no short cut: neither the compile cache nor a runtime that was started ahead. */
      fresh?: boolean;
      /**
       * Grants of the program, which reaches them through sockets of its own loopback. With `tests`,
       *     each run has them anew; compilers, checkers and interactors have none. Variables that
       *     clients look for are set, unless `env` has them.
       */
      grants?: components["schemas"]["Grant"][];
      /**
       * True if standard input, signals and end of file come over a WebSocket of the caller's. The
       *     program starts when one is connected and is ended when it goes away.
       */
      interactive?: boolean;
      /**
       * A second program, connected to the first by pipes: each one's standard output is the
       *     other's standard input. It judges the first. With `tests`, it is run anew for each.
       */
      interactor?: components["schemas"]["JudgeProgram"] | null;
      /** Text to find the execution by. */
      label?: string | null;
      /** Name or alias of a language of `GET /v1/languages`. */
      language?: string | null;
      /** Limits of the run stage. What is left out has the server's default. */
      limits?: components["schemas"]["LimitSpec"];
      /** True if standard error goes where standard output goes, in order. */
      merge_stderr?: boolean;
      /** Files below the working directory to return when the run stage has ended. */
      outputs?: string[];
      /**
       * Priority among the waiting executions of a tenant; the highest runs first, from -100 to 100.
       *     Waiting raises it, so that nothing waits for ever.
       */
      priority?: number;
      /** Text of a program that is one file. */
      source?: string | null;
      /**
       * Standard input as text. Without it and `stdin_base64`, the program reads end of file at
       *     once.
       */
      stdin?: string | null;
      /** Standard input as base64 (RFC 4648 §4), for bytes that are not UTF-8. */
      stdin_base64?: string | null;
      /** True if test cases after the first that is not `OK` are left out. */
      stop_at_first_failure?: boolean;
      /**
       * Template that every sandbox of it begins with: `name`, `name:tag` or an id. Its files are at
       *     their places, its environment is below that of `env`, and files, programs and outputs are in
       *     its working directory. What programs change is their own. The token needs the scope
       *     `sessions`.
       */
      template?: string | null;
      /** Runs the program on a terminal of this size instead of pipes; implies `interactive`. */
      terminal?: components["schemas"]["TerminalSize"] | null;
      /**
       * Test cases: the program is compiled once and run once for each, every run in a sandbox of
       *     its own. Excludes `stdin`, `outputs`, `interactive` and `terminal`. Left out where there are
       *     none: an empty list is an error.
       */
      tests?: components["schemas"]["TestCase"][];
      /** Whom to tell of the result. Only for asynchronous executions. */
      webhook?: components["schemas"]["WebhookTarget"] | null;
    };
    /** State of an execution. `queued` and `running` go on; the others are final. */
    ExecutionState: "queued" | "running" | "finished" | "cancelled" | "expired" | "dead";
    /** Change of a watched file. */
    FileChange: {
      /** From the watched directory on; empty for itself. */
      path: string;
      /** `create`, `write`, `remove`, `rename`, `chmod`; `overflow` when some were lost. */
      type: string;
    };
    /** A file or directory of a session. */
    FileEntry: {
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
    };
    /** Answer of `GET /v1/sessions/{id}/files`. */
    FileList: {
      /** By path. */
      entries: components["schemas"]["FileEntry"][];
      /** There is more than was asked for. */
      truncated: boolean;
    };
    /** Body of `POST /v1/sessions/{id}/contexts/{context}/fork`. */
    ForkCodeContext: {
      /**
       * Forks it although threads run in it: the copy does not have them, and a lock that one of
       *     them holds stays locked in it. Default: `false`.
       */
      force?: boolean;
    };
    /** Body of `POST /v1/sessions/{id}/fork`. */
    ForkRequest: {
      /** Number of copies; one when absent. */
      count?: number | null;
    };
    /** The document of a function. Kept as it came. */
    FunctionMetadata: {
      /** Its identity. */
      "function-uuid"?: string;
    } & {
      [key: string]: unknown;
    };
    /** A thing that a sandbox may reach. */
    Grant: components["schemas"]["GrantPostgres"] | components["schemas"]["GrantMysql"] | components["schemas"]["GrantCatalog"] | components["schemas"]["GrantHttp"] | components["schemas"]["GrantModel"];
    /** Kinds of access that a grant allows. */
    GrantAccess: "read_only" | "read_write";
    /** A warehouse of the catalog, at `http://localhost:8181`. */
    GrantCatalog: {
      /** Access that is allowed. Default: `"read_only"`. */
      access?: components["schemas"]["GrantAccess"];
      kind: "catalog";
      /**
       * Namespaces that are there, with all that is below them, levels divided by `.`; all of the
       *     warehouse when there is none.
       */
      namespaces?: string[];
      /** Port inside; 8181 when absent. */
      port?: number | null;
      /** Name of the warehouse. */
      warehouse: string;
    };
    /** Answer of `POST /v1/gateway/offers/check`. */
    GrantCheckReport: {
      /** Variables that programs of the sandbox would find; none unless all grants would be given. */
      environment?: {
        [key: string]: string;
      };
      /** True if a sandbox would be given all of them. */
      given: boolean;
      /** Each grant, in the order of the request. */
      grants: components["schemas"]["CheckedGrant"][];
    };
    /** Body of `POST /v1/gateway/offers/check`. */
    GrantCheckRequest: {
      /** Grants of one sandbox. */
      grants: components["schemas"]["Grant"][];
    };
    /** Answer of `GET /v1/sessions/{id}/grants/{name}/describe`. */
    GrantDescription: {
      /** The grant: `postgres:shop`. */
      grant: string;
      /** Tables, views and namespaces; one with its columns where a name was given. */
      objects: components["schemas"]["DataObject"][];
      /** True if there are more objects than these. */
      truncated: boolean;
    };
    /** Servers outside, through a proxy at `http://localhost:3128`. */
    GrantHttp: {
      kind: "http";
      /** Limits; those left out are the server's. */
      limits?: components["schemas"]["HttpGrantLimits"];
      /** Port inside; 3128 when absent. */
      port?: number | null;
      /** The first one that fits a request decides; what fits none is refused. */
      rules: components["schemas"]["HttpRule"][];
    };
    /** The model, at `http://localhost:8100`. */
    GrantModel: {
      /** Dollars that may be spent, by the server's table of prices. */
      dollars?: number | null;
      kind: "model";
      /** Models that may be asked for; every one when there is none. */
      models?: string[];
      /** Port inside; 8100 when absent. */
      port?: number | null;
      /** Tokens that may be used, those of questions and answers together. */
      tokens?: number | null;
    };
    /** Database that speaks MySQL's protocol, at `localhost:3306`. */
    GrantMysql: {
      /** Access that is allowed. Default: `"read_only"`. */
      access?: components["schemas"]["GrantAccess"];
      kind: "mysql";
      /** Limits; those left out are the server's. */
      limits?: components["schemas"]["DatabaseGrantLimits"];
      /** Port inside; 5432 or 3306 when absent. */
      port?: number | null;
      /**
       * User of the tenant whose role on the server is used; the tenant's `server_user` when absent,
       *     or its only user.
       */
      role?: string | null;
      /** Schema that names without one mean: `search_path` of PostgreSQL, the database of MySQL. */
      schema?: string | null;
      /** Tenant of the bouncer. */
      tenant: string;
    };
    /**
     * Limits that grants have where they name none. A token that is not `unrestricted` may name less
     *     and not more.
     */
    GrantOfferLimits: {
      /** Limits of databases; 0 is for no limit. */
      database: components["schemas"]["DatabaseGrantLimits"];
      /** Grants of one sandbox. */
      grants: number;
      /** Limits of servers outside; 0 is for no limit. */
      http: components["schemas"]["HttpGrantLimits"];
      /**
       * Tokens that all `model` grants of the tenant may use together in all; none
       *     without such a limit.
       */
      model_tokens?: number | null;
    };
    /** Answer of `GET /v1/gateway/offers`. */
    GrantOfferList: {
      /** Limits of grants. */
      limits: components["schemas"]["GrantOfferLimits"];
      /**
       * Offers, by kind and name. Two of one name differ in their access or roles, which belong
       *     together.
       */
      offers: components["schemas"]["OfferedGrant"][];
      /** Tenant of the token. */
      tenant: string;
      /** True if there are more than are listed here: 1,000. */
      truncated: boolean;
      /**
       * True if the token may give every grant that this server can serve, with any limits: that of
       *     an operator with the scope `tenants`. The offers are then what the server has.
       */
      unrestricted: boolean;
    };
    /** A tenant of the bouncer that speaks PostgreSQL's protocol, at `localhost:5432`. */
    GrantPostgres: {
      /** Access that is allowed. Default: `"read_only"`. */
      access?: components["schemas"]["GrantAccess"];
      kind: "postgres";
      /** Limits; those left out are the server's. */
      limits?: components["schemas"]["DatabaseGrantLimits"];
      /** Port inside; 5432 or 3306 when absent. */
      port?: number | null;
      /**
       * User of the tenant whose role on the server is used; the tenant's `server_user` when absent,
       *     or its only user.
       */
      role?: string | null;
      /** Schema that names without one mean: `search_path` of PostgreSQL, the database of MySQL. */
      schema?: string | null;
      /** Tenant of the bouncer. */
      tenant: string;
    };
    /** Body of `POST /v1/sessions/{id}/grants/{name}/query`. */
    GrantQuery: {
      /** Rows that are returned at most, 1 to 10000; 1000 when absent. */
      max_rows?: number | null;
      /**
       * Values of its parameters: `$1`, `$2` … of PostgreSQL, `?` of MySQL. Objects and lists are
       *     sent as JSON.
       */
      parameters?: unknown[];
      /** Statement that reads, a single one, in the database's own language. */
      sql: string;
    };
    /** Result of a statement. */
    GrantQueryResult: {
      /** Columns; none of a statement that returns no rows. */
      columns: components["schemas"]["QueryColumn"][];
      /** Limit that ended the rows, when they are truncated. */
      limit?: components["schemas"]["QueryLimit"] | null;
      /** Rows that are here. */
      row_count: number;
      /** Values, in the order of the columns. */
      rows: unknown[][];
      /** Seconds from the connection to the last row. */
      seconds: number;
      /** True if there are more rows than these. */
      truncated: boolean;
    };
    /** Reason why a grant would not be given. */
    GrantRefusal: {
      /**
       * `forbidden` for what is not offered to the token's tenant, `invalid_request` for what this
       *     server cannot serve as it is said.
       */
      code: components["schemas"]["ErrorCode"];
      /** Part of the request that is refused: `grants[1].tenant`. */
      field: string;
      /** A sentence. */
      message: string;
    };
    /** Source of a header's value. */
    HeaderSource: {
      text: string;
    } | {
      secret: string;
    };
    /** Series of what a server measured, with one value for each time. */
    HistoryReport: {
      /** Series that had no room in the server's memory. */
      left_out?: number;
      /** The server that measured: each node of a cluster has a history of its own. */
      node: string;
      /** In the order of their names. */
      series: components["schemas"]["HistorySeries"][];
      /** Milliseconds of a step. */
      step_ms: number;
      /** Tenant whose own figures these are; without it they are those of the whole server. */
      tenant?: string | null;
      /** Start of each step, in milliseconds since 1970. The last step is not over. */
      times_ms: number[];
    };
    /** Series of measurements. */
    HistorySeries: {
      /** `tenant` of the bouncer, `class` of verdicts; empty for most. */
      labels?: {
        [key: string]: string;
      };
      /** Name, as in the page on history. */
      name: string;
      /** Unit of the values. */
      unit: components["schemas"]["HistoryUnit"];
      /** A value for each time; null where nothing was measured. */
      values: (number | null)[];
    };
    /** Unit of the values of a series. */
    HistoryUnit: "count" | "per_second" | "bytes" | "bytes_per_second" | "seconds" | "cores";
    /** Treatment of a request. */
    HttpEffect: "allow" | "deny";
    /**
     * Limits of a sandbox on its proxy. What is left out is as the server's `[gateway]` says; 0 is for
     *     no limit.
     */
    HttpGrantLimits: {
      /** Bytes of bodies and tunnels in all, in both directions. */
      bytes?: number | null;
      /** Connections at one time. */
      connections?: number | null;
      /** Requests and tunnels in all. */
      requests?: number | null;
    };
    /** Rule on requests to servers outside. What is left out fits everything, but for the hosts. */
    HttpRule: {
      /** Networks of addresses that its hosts may have although `deny_networks` has them. */
      allow_networks?: string[];
      /**
       * Networks of addresses that its hosts may not have, such as `8.8.8.0/24`; `0.0.0.0/0` and
       *     `::/0` are all. Looked at when a name has been resolved. Only of a rule that allows.
       */
      deny_networks?: string[];
      /** Treatment of a request that matches. Default: `"allow"`. */
      effect?: components["schemas"]["HttpEffect"];
      /**
       * Headers that are put into each request outside, in place of those that it has: a text, or
       *     the name of one of the server's secrets. A rule that has some does not fit a tunnel.
       */
      headers?: {
        [key: string]: components["schemas"]["HeaderSource"];
      };
      /** Names of hosts: `example.com`, `*.example.com` for all below it, `*` for all; or addresses. */
      hosts: string[];
      /**
       * Networks of internal addresses that its hosts may have, such as `10.1.0.0/16`. Others are
       *     refused, whatever their names are.
       */
      internal?: string[];
      /**
       * Methods, in upper case. A rule that allows some does not match a tunnel (`CONNECT`), whose
       *     requests are encrypted, unless it names `CONNECT`; a rule that denies some matches every
       *     tunnel.
       */
      methods?: string[];
      /**
       * Paths: `/v1/items`, or `/v1/*` for all that begin so. A rule that allows some does not fit
       *     a tunnel; one that denies some fits every tunnel. A path that servers read in different
       *     ways, such as one with `%2f`, `//` or `;`, is refused where a rule looks at paths.
       */
      paths?: string[];
      /** Ports; 80 and 443 when there is none, and all for a rule that denies. */
      ports?: number[];
      /**
       * True if requests of a session's sandbox carry `cove-session`, its id, and `cove-epoch`, a
       *     number that grows with each server that takes the session over, so that the host can refuse
       *     what a former one has sent. A rule that has it does not fit a tunnel. No program inside can
       *     set these headers.
       */
      session_headers?: boolean;
      /**
       * True if the request goes on over TLS although it came without, which is how headers are put
       *     into requests to `https` servers: `http://api.example.com/` is asked for inside, and
       *     `https://api.example.com/` outside.
       */
      tls?: boolean;
    };
    /** The form of every error of the catalog. */
    IcebergError: {
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
    };
    /** Answer of `POST /v1/sessions/{id}/interrupt`. */
    InterruptAnswer: {
      /** True if a turn was running. */
      interrupted: boolean;
    };
    /** A program beside the one that is judged: a checker or an interactor. */
    JudgeProgram: {
      /** Arguments before those that Cove adds. */
      args?: string[];
      /** The command itself. */
      argv?: string[] | null;
      /** Arguments to its compiler, after the ones its language gives it. */
      compile_args?: string[];
      /** Limits of its compilation. */
      compile_limits?: components["schemas"]["LimitSpec"];
      /** Environment variables. */
      env?: {
        [key: string]: string;
      };
      /** Source files. */
      files?: components["schemas"]["SourceFile"][];
      /** Name or alias of a language; exactly one of this and `argv`. */
      language?: string | null;
      /** Limits of its run. */
      limits?: components["schemas"]["LimitSpec"];
      /** Text of a program that is one file. */
      source?: string | null;
    };
    /** A language and whether it can be used on this host. */
    Language: {
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
      /**
       * True while files that its compiler uses, such as a standard library, are being prepared.
       *     Compiling is slow until then.
       */
      preparing?: boolean;
      /** Why not, when it is not available. */
      reason?: string | null;
      /** First line of what the tool prints for its version, when it is available. */
      version?: string | null;
    };
    /** Answer of `GET /v1/languages`. */
    LanguageList: {
      /** Every configured language, available or not, by name. */
      languages: components["schemas"]["Language"][];
    };
    /** The limit that was hit. */
    LimitHit: "cpu" | "wall" | "memory" | "output";
    /**
     * Limits of one stage. What is left out has a default; what exceeds the server's maximum is
     *     refused.
     */
    LimitSpec: {
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
    };
    /** Message of a client on the WebSocket of `/v1/live`. */
    LiveClientMessage: components["schemas"]["LiveClientMessageSubscribe"] | components["schemas"]["LiveClientMessageUnsubscribe"];
    /** Follows a topic. */
    LiveClientMessageSubscribe: components["schemas"]["LiveSubscribe"] & {
      op: "subscribe";
    };
    /**
     * Stops following. Nothing of this subscription is sent any more; an `id` that is not known
     *     is no error, because the topic may have ended meanwhile.
     */
    LiveClientMessageUnsubscribe: {
      /** The `id` of the subscription. */
      id: string;
      op: "unsubscribe";
    };
    /** Message of the server on the WebSocket of `/v1/live`: `id`, and one of the others. */
    LiveServerMessage: {
      /** True when nothing more can happen. The last message of the subscription. */
      ended?: boolean | null;
      /** Why the topic is not followed, or not any more. The last message of the subscription. */
      error?: components["schemas"]["ErrorDetail"] | null;
      /** Event, as the route of the topic has it. */
      event?: unknown;
      /** The `id` of the subscription. */
      id: string;
      /**
       * Number of times that the topic was not looked at because this client did not read; the
       *     next event has what is current.
       */
      lagged?: number | null;
      /** True once, when the topic is followed: the token may, and what it names is there. */
      ok?: boolean | null;
    };
    /** A topic, and what of it is wanted. */
    LiveSubscribe: {
      /** Name of the subscription, chosen by the client: 1 to 64 bytes, unique on the socket. */
      id: string;
      /**
       * `executions`, `execution.events`, `sessions`, `session.events`, `session.files`, `audit`,
       *     `tenants` or `catalog.changes`.
       */
      topic: string;
    } & {
      [key: string]: unknown;
    };
    /** A function. */
    LoadFunctionResult: {
      metadata: components["schemas"]["FunctionMetadata"];
      /** Its metadata file. */
      "metadata-location"?: string;
    };
    /** Answer of `POST /v1/sessions/{id}/messages?wait=true`: what came of the message. */
    MessageAnswer: {
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
    };
    /** Content of a message. */
    MessageContent: string | {
      [key: string]: unknown;
    }[];
    /** Body of `POST /v1/sessions/{id}/messages`. */
    MessageRequest: {
      /** Text, or blocks (`text`, `image`, `document`) as the Messages API has them. */
      content: components["schemas"]["MessageContent"];
      /** Further fields for the agent, as they are. */
      extra?: {
        [key: string]: unknown;
      };
      /** Model from this message on. */
      model?: string | null;
      /** Instead of the session's `on_disconnect`, for this turn. */
      on_disconnect?: components["schemas"]["OnDisconnect"] | null;
      /** Send pieces of messages as they come. Default: `false`. */
      partial?: boolean;
    };
    /** Body of `POST /v1/sessions/{id}/files/move`. */
    MoveFile: {
      /** Path of what is moved. */
      from: string;
      /** Destination path; an existing file is replaced. */
      to: string;
    };
    /** A namespace: its levels, from the outermost. */
    NamespaceLevels: string[];
    /** A server, as one of those that share a store. */
    Node: {
      /** Address for clients. */
      address?: string | null;
      /** Progress of its drain, once a node that drains has looked for its sessions. */
      drain?: components["schemas"]["NodeDrain"] | null;
      /** Name, for as long as its data directory exists. */
      id: string;
      /** Name of its present run; new at each start. */
      incarnation: string;
      /** True for the one that answers. */
      is_this: boolean;
      /** Work that it has. */
      load: components["schemas"]["NodeLoad"];
      /** Address for other nodes; without it they pass nothing on to it. */
      peer_address?: string | null;
      /** Services that it has. */
      roles: string[];
      /** When it was seen last, likewise. */
      seen_ms: number;
      /** When its run began, in milliseconds since 1970, by the store's clock. */
      started_ms: number;
      /** State that it is in. */
      state: components["schemas"]["NodeStatus"];
      /** Version of Cove. */
      version: string;
      /** Failure domain that it shares with other nodes; empty if not configured. */
      zone: string;
    };
    /** Progress of a node that drains. */
    NodeDrain: {
      /** Number of those sessions that are in use: they are handed over afterwards. */
      busy: number;
      /** Sessions of them whose files could not be brought to the object store; it is tried again. */
      failed: number;
      /**
       * True if their files are on this node's disk alone, because servers share no object store: it
       *     keeps them.
       */
      keeps_files: boolean;
      /** Sessions that it still has; with none left it can be stopped. */
      sessions: number;
    };
    /** All nodes of the store. */
    NodeList: {
      /** The nodes, by their ids. */
      nodes: components["schemas"]["Node"][];
    };
    /** Work that a node has, and has room for, as it said when it was seen last. */
    NodeLoad: {
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
    };
    /** State of a node. */
    NodeStatus: "joining" | "active" | "draining" | "left" | "lost";
    /** An access token. */
    OauthToken: {
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
    };
    /** A database that may be granted. */
    OfferedDatabase: {
      /** Access that a grant may have. */
      access: components["schemas"]["GrantAccess"][];
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
    };
    /** A grant that may be given. */
    OfferedGrant: components["schemas"]["OfferedGrantPostgres"] | components["schemas"]["OfferedGrantMysql"] | components["schemas"]["OfferedGrantCatalog"] | components["schemas"]["OfferedGrantHttp"] | components["schemas"]["OfferedGrantModel"];
    /** A warehouse of the catalog. */
    OfferedGrantCatalog: components["schemas"]["OfferedWarehouse"] & {
      kind: "catalog";
    };
    /** Servers outside. */
    OfferedGrantHttp: components["schemas"]["OfferedHosts"] & {
      kind: "http";
    };
    /** The model. */
    OfferedGrantModel: components["schemas"]["OfferedModel"] & {
      kind: "model";
    };
    /** A tenant of the bouncer that speaks MySQL's protocol. */
    OfferedGrantMysql: components["schemas"]["OfferedDatabase"] & {
      kind: "mysql";
    };
    /** A tenant of the bouncer that speaks PostgreSQL's protocol. */
    OfferedGrantPostgres: components["schemas"]["OfferedDatabase"] & {
      kind: "postgres";
    };
    /**
     * Servers outside that rules of a grant may allow. What one offer lists belongs together: its
     *     secrets and networks are for its hosts.
     */
    OfferedHosts: {
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
    };
    /** The model, where it may be granted. */
    OfferedModel: {
      /** Port inside where a grant names none. */
      port: number;
      /** Models with a price, of which a grant can count `dollars`. */
      priced_models: string[];
      /** Reason why it cannot be granted at present; absent when it can be. */
      unavailable?: string | null;
    };
    /** A warehouse that may be granted. */
    OfferedWarehouse: {
      /** Access that a grant may have. */
      access: components["schemas"]["GrantAccess"][];
      /** Port inside where a grant names none. */
      port: number;
      /** Reason why it cannot be granted at present; absent when it can be. */
      unavailable?: string | null;
      /** Name of the warehouse. */
      warehouse: string;
    };
    /** Treatment of a turn when the last of its listeners goes away. */
    OnDisconnect: "continue" | "interrupt";
    /** Comparison of output with the expected output. */
    OutputComparison: components["schemas"]["OutputComparisonExact"] | components["schemas"]["OutputComparisonTrailingSpace"] | components["schemas"]["OutputComparisonTokens"] | components["schemas"]["OutputComparisonFloat"] | components["schemas"]["OutputComparisonChecker"];
    /**
     * A program of the caller's decides. It is run in a sandbox with the paths of three files as
     *     arguments: input, output, expected output. Exit code 0 accepts, 1 and 2 refuse (testlib's
     *     convention); anything else is the checker's failure. What it writes becomes the message.
     */
    OutputComparisonChecker: {
      /** Arguments before those that Cove adds. */
      args?: string[];
      /** The command itself. */
      argv?: string[] | null;
      /** Arguments to its compiler, after the ones its language gives it. */
      compile_args?: string[];
      /** Limits of its compilation. */
      compile_limits?: components["schemas"]["LimitSpec"];
      /** Environment variables. */
      env?: {
        [key: string]: string;
      };
      /** Source files. */
      files?: components["schemas"]["SourceFile"][];
      /** Name or alias of a language; exactly one of this and `argv`. */
      language?: string | null;
      /** Limits of its run. */
      limits?: components["schemas"]["LimitSpec"];
      mode: "checker";
      /** Text of a program that is one file. */
      source?: string | null;
    };
    /** Byte for byte. */
    OutputComparisonExact: {
      mode: "exact";
    };
    /**
     * Like tokens, but two numbers are equal when they differ by at most `absolute`, or by at
     *     most `relative` times the expected one.
     */
    OutputComparisonFloat: {
      /** Absolute tolerance, not negative. Default: `0.0`. */
      absolute?: number;
      mode: "float";
      /** Relative tolerance, not negative. Default: `0.0`. */
      relative?: number;
    };
    /** Words are compared; how much and which white space is between them does not count. */
    OutputComparisonTokens: {
      mode: "tokens";
    };
    /** White space at the end of lines and empty lines at the end do not count. The default. */
    OutputComparisonTrailingSpace: {
      mode: "trailing_space";
    };
    /** A file that was asked for in `outputs`. */
    OutputFile: {
      /** Content, encoded as `encoding` says; null when it could not be read. */
      content: string | null;
      /**
       * Form of `content`: base64 where it is not UTF-8, or long and full of control
       *     characters.
       */
      encoding: components["schemas"]["BytesEncoding"];
      /** Why it could not be read: missing, not a regular file, too large. */
      error?: string | null;
      /** The name it was asked for by. */
      name: string;
    };
    /** Percentiles of a distribution, exact to a few per cent. */
    Percentiles: {
      /** All of them. Default: `0.0`. */
      max: number;
      /** Half of them. Default: `0.0`. */
      p50: number;
      /** 95 of a hundred. Default: `0.0`. */
      p95: number;
      /** 99 of a hundred. Default: `0.0`. */
      p99: number;
    };
    /** When a server connection goes back to the pool. */
    PoolMode: "session" | "transaction" | "statement";
    /** Column of a result. */
    QueryColumn: {
      /** Name. Several columns can have the same. */
      name: string;
      /** Type, as the database calls it: `int4`, `numeric`, `text[]`, `varchar`. */
      type: string;
    };
    /** Limits of a result. */
    QueryLimit: "rows" | "bytes";
    /** Answer of the operations on the queue that change many executions at once. */
    QueueChange: {
      /** Number of executions that were changed. */
      changed: number;
    };
    /** Answer of `GET /v1/queue`. */
    QueueStats: {
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
    };
    /** Sandboxes of sessions, counted. */
    SandboxCounts: {
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
    };
    /** State of a session's sandbox. */
    SandboxState: "warming" | "warm" | "running" | "waiting" | "cold";
    /** A session, as it is shown. */
    Session: {
      /** Name of its agent. */
      agent?: string | null;
      /** Version of the agent that it was created with. */
      agent_version?: number | null;
      /** When it was created (RFC 3339, milliseconds, UTC). */
      created_at: string;
      /** Grants of its sandbox. */
      grants?: components["schemas"]["Grant"][];
      /** Names it for ever: `ses_…`. */
      id: string;
      /** When it was worked with last. */
      last_active_at: string;
      /** Number of its latest event. */
      last_seq: number;
      /** Limits of the session, complete. */
      limits: components["schemas"]["SessionLimits"];
      /** Why it is in the state `error`. */
      message?: string | null;
      /** Metadata, as given. */
      metadata?: {
        [key: string]: string;
      };
      /** Treatment of a turn without listeners, as given. */
      on_disconnect: components["schemas"]["OnDisconnect"];
      /** Options that the agent gets at its start, the agent's and the session's merged. */
      options: components["schemas"]["AgentOptions"];
      /** Session that it was forked from. */
      parent?: string | null;
      /** State of its sandbox. */
      sandbox: components["schemas"]["SandboxState"];
      /** State of the session. */
      state: components["schemas"]["SessionState"];
      /** Template that it started from. */
      template?: string | null;
      /** Tenant that owns the session. */
      tenant: string;
    };
    /** A file given along with a session. */
    SessionAttachment: {
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
    };
    /** Answer of `GET /v1/sessions/{id}/attachments`. */
    SessionAttachmentList: {
      /** All of the session. */
      attachments: components["schemas"]["SessionAttachment"][];
    };
    /** Event of a session. Numbers grow and are never used twice; they may have gaps. */
    SessionEvent: {
      /** When (milliseconds since 1970). */
      at_ms: number;
      /** Data of the event, by its kind. */
      data: unknown;
      /** Number of the event: `id` of the server-sent event. */
      seq: number;
      /** The turn that it belongs to. */
      turn?: string | null;
      /** Kind of event. */
      type: components["schemas"]["SessionEventKind"];
    };
    /**
     * Kinds of events. A turn begins with `turn_start` and ends with `done`; an `error` may come
     *     before that.
     */
    SessionEventKind: "turn_start" | "text_delta" | "thinking_delta" | "input_json_delta" | "text" | "reasoning" | "tool_use" | "tool_result" | "message" | "turn_complete" | "error" | "done" | "lifecycle";
    /** Answer of `GET /v1/sessions/{id}/events` with `accept: application/json`: oldest first. */
    SessionEventList: {
      /** This page. */
      events: components["schemas"]["SessionEvent"][];
      /** Value of `after` for the next page; none on the last one. */
      next_after?: number | null;
    };
    /** Body of `POST /v1/sessions/{id}/exec`. */
    SessionExec: {
      /** Program and arguments. */
      argv?: string[] | null;
      /** A line for `/bin/sh -c`. Excludes `argv`. */
      command?: string | null;
      /** Working directory; `/workspace` when absent. */
      cwd?: string | null;
      /** Environment beside the session's. */
      env?: {
        [key: string]: string;
      };
      /** Content of its standard input. */
      stdin?: string | null;
      /** Milliseconds after which it is killed. */
      timeout_ms?: number | null;
    };
    /** Event of a command or a terminal while it runs. */
    SessionExecEvent: components["schemas"]["SessionExecEventStarted"] | components["schemas"]["SessionExecEventAttached"] | components["schemas"]["SessionExecEventStdout"] | components["schemas"]["SessionExecEventStderr"] | components["schemas"]["SessionExecEventEnded"] | components["schemas"]["SessionExecEventError"];
    /** Attached to a terminal that runs already. Its output follows, from byte `from` on. */
    SessionExecEventAttached: {
      /** Bytes that the program wrote before the first one that follows. */
      from: number;
      /** Process id inside the sandbox. */
      pid: number;
      /** Id of the terminal. */
      terminal: string;
      /** Bytes that the program has written so far: `to - from` of them are repeated. */
      to: number;
      type: "attached";
    };
    /** Ended; its output is not repeated here. The last event. */
    SessionExecEventEnded: components["schemas"]["SessionExecResult"] & {
      type: "ended";
    };
    /** No longer available, because its sandbox is gone. The last event. */
    SessionExecEventError: {
      /** Why. */
      error: string;
      type: "error";
    };
    /** Started. */
    SessionExecEventStarted: {
      /** Process id inside the sandbox. */
      pid: number;
      /** Id to attach to it again; only of a terminal that was opened with `detach_s`. */
      terminal?: string | null;
      type: "started";
    };
    /** Output on standard error. */
    SessionExecEventStderr: {
      /** The bytes, in Base64. */
      data_base64: string;
      type: "stderr";
    };
    /** Output on standard output. Terminals send this as binary messages instead. */
    SessionExecEventStdout: {
      /** The bytes, in Base64 (RFC 4648 §4). */
      data_base64: string;
      type: "stdout";
    };
    /** Answer of `POST /v1/sessions/{id}/exec`. */
    SessionExecResult: {
      /** Exit code, when it exited. */
      exit_code: number | null;
      /** Name of the signal that ended it. */
      signal?: string | null;
      /**
       * Why it was not started, when it was not: no such program or directory, no right to execute
       *     it. Its exit code is then 127 (not found) or 126, as a shell has it.
       */
      start_error?: string | null;
      /** Likewise. */
      stderr: string;
      /** Standard output; bytes that are not UTF-8 are replaced. */
      stdout: string;
      /** True if it was killed because its time was up. */
      timed_out: boolean;
      /** True if there was more than is kept. */
      truncated: boolean;
    };
    /** Limits of a session's sandbox. What is left out is the agent's, then the server's. */
    SessionLimits: {
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
    };
    /** Answer of `GET /v1/sessions`: newest first. */
    SessionList: {
      /** Value of `cursor` for the next page; none on the last one. */
      next_cursor?: string | null;
      /** This page. */
      sessions: components["schemas"]["Session"][];
    };
    /** A line that the agent wrote to its standard error, or the server about it. */
    SessionLogLine: {
      /** When (milliseconds since 1970). */
      at_ms: number;
      /** Counts from 0; lines that are no longer kept have had numbers, too. */
      index: number;
      /** `stderr` or `system`. */
      level: string;
      /** Text of the line. */
      text: string;
    };
    /** Answer of `GET /v1/sessions/{id}/logs`: oldest first. */
    SessionLogs: {
      /** Lines that are kept. */
      lines: components["schemas"]["SessionLogLine"][];
      /** Value of `from` that gives the lines after these. */
      next: number;
    };
    /** A message of a conversation. */
    SessionMessage: {
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
    };
    /** Answer of `GET /v1/sessions/{id}/messages`: oldest first. */
    SessionMessageList: {
      /** This page. */
      messages: components["schemas"]["SessionMessage"][];
      /** Value of `after` for the next page; none on the last one. */
      next_after?: number | null;
    };
    /** Resource usage of a session's sandbox. */
    SessionMetrics: {
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
    };
    /** State of a session. */
    SessionState: "starting" | "active" | "paused" | "stopped" | "ended" | "error";
    /** Terminal that outlives its WebSocket. */
    SessionTerminal: {
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
      state: components["schemas"]["SessionTerminalState"];
    };
    /** Answer of `GET /v1/sessions/{id}/terminals`: oldest first. */
    SessionTerminalList: {
      /** Terminals that a client can attach to. */
      terminals: components["schemas"]["SessionTerminal"][];
    };
    /** State of a terminal that outlives its WebSocket. */
    SessionTerminalState: "attached" | "detached" | "ended";
    /** Model usage of turns. */
    SessionUsage: {
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
    };
    /** A setting in force. */
    Setting: {
      /** Default value; null if the server chooses it. */
      default: unknown;
      /** Path of the setting, such as `executions.queue_max`. */
      key: string;
      /** True if the value, or a part of it, is a secret that is not shown. */
      masked: boolean;
      /** Source of the value. */
      origin: components["schemas"]["SettingOrigin"];
      /** True if a change is taken over while the server runs; false if it needs a restart. */
      reloadable: boolean;
      /**
       * Value; null where nothing is set and the server decides. In place of a secret stands `…`; a
       *     reference to one (`env:NAME`, `file:PATH`) is shown.
       */
      value: unknown;
    };
    /** Place where a setting's value comes from. */
    SettingOrigin: {
      /** Kind of the place. */
      kind: components["schemas"]["SettingOriginKind"];
      /** Line in the file, from 1. */
      line?: number | null;
      /** Path of the file, name of the variable, or the flag; absent for a default. */
      name?: string | null;
    };
    /** Source of a setting's value. */
    SettingOriginKind: "default" | "file" | "environment" | "flag";
    /** A snapshot: a workspace that was frozen, for new sessions to start from. */
    Snapshot: {
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
    };
    /** Snapshots of an Iceberg table. */
    SnapshotFacts: {
      /** When it was made (RFC 3339, milliseconds, UTC). */
      at?: string | null;
      /** Snapshots that are kept. */
      count: number;
      /** Id of the current one, a number of 64 bits as text; none of an empty table. */
      current?: string | null;
      /** Summary of it: `operation`, `total-records`, `total-files-size` and others. */
      summary?: {
        [key: string]: string;
      };
    };
    /** Answer of `GET /v1/snapshots` and `GET /v1/sessions/{id}/snapshots`: newest first. */
    SnapshotList: {
      /** Value of `cursor` for the next page; none on the last one. */
      next_cursor?: string | null;
      /** This page. */
      snapshots: components["schemas"]["Snapshot"][];
    };
    /** Body of `POST /v1/sessions/{id}/snapshots`. */
    SnapshotRequest: {
      /** Name of the snapshot. */
      name?: string | null;
    };
    /** A file of a program. */
    SourceFile: {
      /** Content, encoded as `encoding` says. */
      content: string;
      /** Encoding of `content`. Default: `"utf8"`. */
      encoding?: components["schemas"]["BytesEncoding"];
      /** True if its mode is 0755 rather than 0644. Default: `false`. */
      executable?: boolean;
      /** Relative path below `/workspace`, `/`-separated, without `.` or `..` parts. */
      name: string;
    };
    /** The part of an execution a stage is. */
    StageName: "compile" | "run" | "interactor" | "checker";
    /** Outcome of a stage, with everything that was measured. */
    StageOutcome: {
      /** CPU time of all its processes, in milliseconds with one decimal. */
      cpu_ms: number;
      /** The program's exit code; null when a signal ended it or it never started. */
      exit_code: number | null;
      /** The limit that ended the stage or spoiled its verdict. */
      limit: components["schemas"]["LimitHit"] | null;
      /**
       * Largest memory use of all its processes together, in bytes; 0 where the kernel does not
       *     tell.
       */
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
      /**
       * Standard output. Where `stdout_base64` is given, that is exact and this is for reading: what
       *     is not UTF-8 is replaced by U+FFFD, and only the beginning of what is long is here.
       */
      stdout: string;
      /**
       * Exact standard output, only when it is not UTF-8, or has more than 4 KiB of which so much is
       *     control characters that JSON would take more than twice as long for it.
       */
      stdout_base64?: string | null;
      /** Streams that lost output beyond `output_bytes`. */
      truncated: components["schemas"]["TruncatedStreams"];
      /** The judgement. */
      verdict: components["schemas"]["Verdict"];
      /** Time from start to end, in milliseconds with one decimal. */
      wall_ms: number;
    };
    /** Result of one stage of an execution. */
    StageResult: {
      /** CPU time of all its processes, in milliseconds with one decimal. */
      cpu_ms: number;
      /** The program's exit code; null when a signal ended it or it never started. */
      exit_code: number | null;
      /** The limit that ended the stage or spoiled its verdict. */
      limit: components["schemas"]["LimitHit"] | null;
      /**
       * Largest memory use of all its processes together, in bytes; 0 where the kernel does not
       *     tell.
       */
      memory_peak_bytes: number;
      /** Explanation for a person beyond the verdict, such as why the program could not be started. */
      message?: string | null;
      /** Speed mode that was used. */
      mode: components["schemas"]["ExecutionMode"];
      /** Name of the stage. */
      name: components["schemas"]["StageName"];
      /** Processes the kernel killed because the stage was out of memory. */
      oom_kills: number;
      /**
       * True when its output is too long to stand twice: then it is that of the execution, at the
       *     top of the answer, and left out here.
       */
      output_at_top?: boolean;
      /** Largest number of processes and threads at one time; 0 where the kernel does not tell. */
      processes_peak: number;
      /** Name of the signal that ended it (`SIGSEGV`); null when it exited. */
      signal: string | null;
      /** Standard error, likewise. */
      stderr: string;
      /** Exact standard error, likewise. */
      stderr_base64?: string | null;
      /**
       * Standard output. Where `stdout_base64` is given, that is exact and this is for reading: what
       *     is not UTF-8 is replaced by U+FFFD, and only the beginning of what is long is here.
       */
      stdout: string;
      /**
       * Exact standard output, only when it is not UTF-8, or has more than 4 KiB of which so much is
       *     control characters that JSON would take more than twice as long for it.
       */
      stdout_base64?: string | null;
      /** Streams that lost output beyond `output_bytes`. */
      truncated: components["schemas"]["TruncatedStreams"];
      /** The judgement. */
      verdict: components["schemas"]["Verdict"];
      /** Time from start to end, in milliseconds with one decimal. */
      wall_ms: number;
    };
    /** The name of a table or view. */
    TableIdentifier: {
      /** Its own name. */
      name: string;
      namespace: components["schemas"]["NamespaceLevels"];
    };
    /** Body of `POST /v1/templates/{name}/tags`: names a build by more tags. */
    TagTemplate: {
      /** Build to be named, by its id or by a tag that it has. */
      build: string;
      /** Tags. */
      tags: string[];
    };
    /** A template. */
    Template: {
      /** Newest build. */
      build?: components["schemas"]["TemplateBuild"] | null;
      /** Number of its builds that are kept. */
      builds: number;
      /** When it was created (RFC 3339, milliseconds, UTC). */
      created_at: string;
      /** Names it for ever: `tpl_…`. */
      id: string;
      /** Name. */
      name: string;
      /** Builds that have a name, by their tags. Sessions get `default` unless they name another one. */
      tags: {
        [key: string]: string;
      };
      /** Tenant that owns it. */
      tenant: string;
      /** When it was changed last. */
      updated_at: string;
    };
    /** Answer of `PUT /v1/template-files/{archive}`. */
    TemplateArchive: {
      /** SHA-256 of the archive. */
      archive: string;
      /** Bytes. */
      bytes: number;
    };
    /** A build of a template. */
    TemplateBuild: {
      /** Bytes of its layers. */
      bytes: number;
      /** When it was created. */
      created_at: string;
      /** Names of the variables that it sets. */
      env?: string[];
      /** Why it failed. */
      failure?: components["schemas"]["TemplateFailure"] | null;
      /** When it ended. */
      finished_at?: string | null;
      /** Names it for ever: a UUID. */
      id: string;
      /** Command that succeeds when that is ready. */
      ready?: string | null;
      /** Command that each new session runs in the background. */
      start?: string | null;
      /** State. */
      status: components["schemas"]["TemplateBuildStatus"];
      /** Steps that made a layer, or took one that was there. */
      steps: components["schemas"]["TemplateStepResult"][];
      /** Id of its template. */
      template: string;
      /** Working directory of commands. */
      workdir?: string | null;
    };
    /** Answer of `GET /v1/templates/{name}/builds`: newest first. */
    TemplateBuildList: {
      /** The builds. */
      builds: components["schemas"]["TemplateBuild"][];
    };
    /** State of a build. */
    TemplateBuildStatus: "waiting" | "building" | "ready" | "error";
    /** Reason why a build failed. */
    TemplateFailure: {
      /** Sentence with the step, its command and the end of what it wrote. */
      message: string;
      /** Number of the step; none when it was no step that failed. */
      step?: number | null;
    };
    /** Answer of `GET /v1/templates`: by name. */
    TemplateList: {
      /** The templates. */
      templates: components["schemas"]["Template"][];
    };
    /** Line of the log of a build. */
    TemplateLogLine: {
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
    };
    /** Answer of `GET /v1/templates/{name}/builds/{build}/logs`. */
    TemplateLogList: {
      /** This page. */
      lines: components["schemas"]["TemplateLogLine"][];
      /** State of the build when they were read. */
      status: components["schemas"]["TemplateBuildStatus"];
    };
    /** Step of a template. All of them run as the sandbox's user. */
    TemplateStep: components["schemas"]["TemplateStepRun"] | components["schemas"]["TemplateStepEnv"] | components["schemas"]["TemplateStepWorkdir"] | components["schemas"]["TemplateStepUser"] | components["schemas"]["TemplateStepCopy"] | components["schemas"]["TemplateStepPipInstall"] | components["schemas"]["TemplateStepNpmInstall"] | components["schemas"]["TemplateStepGitClone"];
    /** Unpacks files of an archive that was uploaded. */
    TemplateStepCopy: {
      /** SHA-256 of the archive, in hexadecimal digits, by which it was uploaded. */
      archive: string;
      /** Mode of files in octal digits, in place of that of the archive. */
      mode?: string | null;
      /** Path or pattern of what is taken from the archive; everything when it is `.`. Default: `"."`. */
      source?: string;
      /**
       * Destination: a directory when it ends with `/`, when it is one, or when several things
       *     are copied.
       */
      to: string;
      type: "copy";
    };
    /** Sets variables for the steps behind it, and for sessions. */
    TemplateStepEnv: {
      type: "env";
      /** Variables. */
      values: {
        [key: string]: string;
      };
    };
    /** Clones a repository. */
    TemplateStepGitClone: {
      /** Branch or tag. */
      branch?: string | null;
      /** Number of commits. */
      depth?: number | null;
      /** Directory; named for the repository when absent. */
      path?: string | null;
      type: "git_clone";
      /** Address of the repository. */
      url: string;
    };
    /** Installs packages of Node with `npm`. */
    TemplateStepNpmInstall: {
      /** Install them for the sandbox's user rather than in the working directory. Default: `false`. */
      global?: boolean;
      /** Packages; those of `package.json` in the working directory when there is none. */
      packages?: string[];
      type: "npm_install";
    };
    /** Installs packages of Python with `pip`, for the sandbox's user. */
    TemplateStepPipInstall: {
      /** Packages, or options of `pip install`; the working directory itself when there is none. */
      packages?: string[];
      type: "pip_install";
    };
    /** Result of a step. */
    TemplateStepResult: {
      /** True if its layer was there already. */
      cached: boolean;
      /** The step as it is shown: `RUN pip install flask`. */
      command: string;
      /** Number of the step, from 1. */
      step: number;
      /** Milliseconds that it took. */
      took_ms: number;
    };
    /** Runs a command with `bash`. */
    TemplateStepRun: {
      /** The command. */
      command: string;
      type: "run";
    };
    /** Sets the user, of whom there is one: `user`. */
    TemplateStepUser: {
      /** Name of the user. */
      name: string;
      type: "user";
    };
    /** Sets the working directory of the steps behind it, and of commands in sessions. It is made. */
    TemplateStepWorkdir: {
      /**
       * Absolute path below `/workspace` or `/home/user`, or one relative to the directory
       *     before.
       */
      path: string;
      type: "workdir";
    };
    /** A tenant, as it is shown. */
    Tenant: {
      /** Admission state. */
      admission: components["schemas"]["TenantAdmission"];
      /** Health of its server. */
      health: components["schemas"]["TenantHealth"];
      /** Place where it is defined. */
      origin: components["schemas"]["TenantOrigin"];
      /** Definition of the tenant. Every password is replaced by `***`. */
      spec: components["schemas"]["TenantSpec"];
    };
    /** Admission state of a tenant. */
    TenantAdmission: "open" | "paused" | "refusing" | "draining";
    /** Protocol of a database server. */
    TenantEngine: "postgres" | "mysql";
    /** Health of a tenant's server. */
    TenantHealth: "unknown" | "healthy" | "unhealthy";
    /** Result of health checks: answer of `GET /v1/tenants/{name}/health`. */
    TenantHealthReport: {
      /** When the last one ended (RFC 3339, milliseconds, UTC). */
      checked_at?: string | null;
      /** Why the last one failed. */
      error?: string | null;
      /** Checks that failed one after the other. */
      failures: number;
      /** Current health. */
      health: components["schemas"]["TenantHealth"];
      /** Duration in milliseconds. */
      took_ms?: number | null;
    };
    /**
     * Limits of a tenant. Times are seconds; 0 turns a time limit off, and so does 0 for
     *     `user_server_connections_max`, `user_clients_max` and `clients_max`. What is left out is the
     *     default's.
     */
    TenantLimitsSpec: {
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
    };
    /** Answer of `GET /v1/tenants`. */
    TenantList: {
      /** By name. */
      tenants: components["schemas"]["Tenant"][];
    };
    /** Place where a tenant is defined. */
    TenantOrigin: "file" | "api";
    /**
     * A tenant as it is asked for: body of `POST /v1/tenants` and `PUT /v1/tenants/{name}`, and a
     *     `[[bouncer.tenants]]` of `cove.toml`.
     */
    TenantSpec: {
      /** Lookup of users that are not in `users`. */
      auth_query?: components["schemas"]["AuthQuerySpec"] | null;
      /** Database there; the tenant's name when absent. */
      database?: string | null;
      /** Protocol of its server and its clients. Default: `"postgres"`. */
      engine?: components["schemas"]["TenantEngine"];
      /**
       * MySQL only: true if rows that were found count as affected, rather than those that changed,
       *     for clients that ask for it. No when absent.
       */
      found_rows?: boolean | null;
      /** Limits; those left out are the defaults'. */
      limits?: components["schemas"]["TenantLimitsSpec"];
      /**
       * MySQL only: true if a server may ask its clients for files (`LOAD DATA LOCAL INFILE`). No
       *     when absent.
       */
      local_infile?: boolean | null;
      /**
       * A letter or digit, then up to 62 letters, digits, `_` and `-`. Clients name it by the
       *     database they ask for, among other ways.
       */
      name?: string;
      /** When a server connection goes back to the pool; the default's when absent. */
      pool_mode?: components["schemas"]["PoolMode"] | null;
      /** True if all transactions are read-only. Default: `false`. */
      read_only?: boolean;
      /**
       * The server: `host:port`, `host`, a Unix socket, or the name of a `[bouncer.servers.NAME]`. A
       *     Unix socket of PostgreSQL is its directory, with or without `:port`; one of MySQL is its
       *     file.
       */
      server?: string;
      /** Names by which TLS clients reach it (server name indication). */
      server_names?: string[];
      /** Password of that role. */
      server_password?: string | null;
      /**
       * Role of all users on the server, except users with their own. If absent, each user has the
       *     same name there.
       */
      server_user?: string | null;
      /** Settings that every server connection has, whatever its client asks for. */
      settings?: {
        [key: string]: string;
      };
      /** Transports that clients may use; all when absent. */
      transports?: components["schemas"]["ClientTransportMode"][] | null;
      /** Users that may log in, by name. Others are looked up with `auth_query`, if there is one. */
      users?: components["schemas"]["TenantUserSpec"][];
      /**
       * When a server connection is examined before another client gets it; the default's when
       *     absent.
       */
      verify?: components["schemas"]["VerifyMode"] | null;
      /** Weight of its share of a server that tenants have in common: 1 to 1000; 1 when absent. */
      weight?: number | null;
    };
    /** Figures of a tenant: answer of `GET /v1/tenants/{name}/stats`. */
    TenantStats: {
      /** Microseconds that server connections were in the hands of clients, since the start. Default: `0`. */
      busy_us: number;
      /** Clients that are connected. Default: `0`. */
      clients: number;
      /** Clients that have a server connection. Default: `0`. */
      clients_active: number;
      /** Clients that wait for a server connection. Default: `0`. */
      clients_waiting: number;
      /**
       * Number of errors that clients got from their servers, by code: SQLSTATE of PostgreSQL, error
       *     number of MySQL. Codes beyond the first 64 are counted as `other`.
       */
      errors: {
        [key: string]: number;
      };
      /** Number of clients that were refused because too many waited, or for too long. Default: `0`. */
      exhausted: number;
      /** Nodes that did not answer in time, whose figures are not in these. */
      missing?: string[];
      /** Name of the tenant. */
      name: string;
      /** Number of nodes whose figures these are, all together. Default: `0`. */
      nodes: number;
      /** Number of times a client kept a server connection beyond its transaction, by reason. */
      pins: {
        [key: string]: number;
      };
      /** Statements that were answered, since the start. Default: `0`. */
      queries: number;
      /** Duration of statements in milliseconds. */
      query_ms: components["schemas"]["Percentiles"];
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
      transaction_ms: components["schemas"]["Percentiles"];
      /** Transactions that ended, since the start. Default: `0`. */
      transactions: number;
      /** Time clients waited for a server connection, in milliseconds. */
      wait_ms: components["schemas"]["Percentiles"];
      /** Microseconds that clients waited for server connections, since the start. Default: `0`. */
      wait_us: number;
    };
    /** Answer of `GET /v1/tenants/stats`. */
    TenantStatsList: {
      /** Nodes that did not answer in time, whose figures are not in these. */
      missing?: string[];
      /** Figures of all tenants, by name. */
      tenants: components["schemas"]["TenantStats"][];
    };
    /** A user of a tenant. */
    TenantUserSpec: {
      /** Authentication of the user. Default: `"password"`. */
      auth?: components["schemas"]["UserAuth"];
      /** Clients that may be connected with its name; the tenant's `user_clients_max` when absent. */
      clients_max?: number | null;
      /** Name of the user, as clients send it. */
      name?: string;
      /**
       * With `password`: the password, or what the server keeps of it: a SCRAM secret
       *     (`SCRAM-SHA-256$…`) or an MD5 hash (`md5…`) of PostgreSQL, `*` and 40 hexadecimal digits of
       *     MySQL. In `cove.toml` also `env:NAME` or `file:PATH`.
       */
      password?: string | null;
      /** In place of the tenant's. */
      pool_mode?: components["schemas"]["PoolMode"] | null;
      /**
       * Server connections that it may hold at one time; the tenant's `user_server_connections_max`
       *     when absent.
       */
      server_connections_max?: number | null;
      /** Password of that role. Absent: the user's own, as far as it can be used there. */
      server_password?: string | null;
      /** Role that it becomes on the server; the tenant's `server_user` when absent. */
      server_user?: string | null;
    };
    /** Size of a terminal, in characters. */
    TerminalSize: {
      /** Columns. */
      cols: number;
      /** Lines. */
      rows: number;
    };
    /** Input of a program with its expected output. */
    TestCase: {
      /** Arguments to the program, instead of the request's. */
      args?: string[] | null;
      /** Expected standard output as text. Without it and `expected_base64`, nothing is compared. */
      expected?: string | null;
      /** Expected standard output as base64. */
      expected_base64?: string | null;
      /** Limits of this run, where they differ from the request's. */
      limits?: components["schemas"]["LimitSpec"];
      /** Name in the result; its number, from 1, when left out. */
      name?: string | null;
      /** Standard input as text. */
      stdin?: string | null;
      /** Standard input as base64. */
      stdin_base64?: string | null;
    };
    /** Result of one test case. */
    TestResult: {
      /** CPU time of all its processes, in milliseconds with one decimal. */
      cpu_ms: number;
      /** The program's exit code; null when a signal ended it or it never started. */
      exit_code: number | null;
      /** Outcome of the checker or interactor, where there is one. */
      judge?: components["schemas"]["StageOutcome"] | null;
      /** The limit that ended the stage or spoiled its verdict. */
      limit: components["schemas"]["LimitHit"] | null;
      /**
       * Largest memory use of all its processes together, in bytes; 0 where the kernel does not
       *     tell.
       */
      memory_peak_bytes: number;
      /** Explanation for a person beyond the verdict, such as why the program could not be started. */
      message?: string | null;
      /** Speed mode that was used. */
      mode: components["schemas"]["ExecutionMode"];
      /** Name of the test case. */
      name: string;
      /** Processes the kernel killed because the stage was out of memory. */
      oom_kills: number;
      /**
       * True when its output is too long to stand twice: then it is that of the execution, at the
       *     top of the answer, and left out here.
       */
      output_at_top?: boolean;
      /** Largest number of processes and threads at one time; 0 where the kernel does not tell. */
      processes_peak: number;
      /** Name of the signal that ended it (`SIGSEGV`); null when it exited. */
      signal: string | null;
      /** Standard error, likewise. */
      stderr: string;
      /** Exact standard error, likewise. */
      stderr_base64?: string | null;
      /**
       * Standard output. Where `stdout_base64` is given, that is exact and this is for reading: what
       *     is not UTF-8 is replaced by U+FFFD, and only the beginning of what is long is here.
       */
      stdout: string;
      /**
       * Exact standard output, only when it is not UTF-8, or has more than 4 KiB of which so much is
       *     control characters that JSON would take more than twice as long for it.
       */
      stdout_base64?: string | null;
      /** Streams that lost output beyond `output_bytes`. */
      truncated: components["schemas"]["TruncatedStreams"];
      /** The judgement. */
      verdict: components["schemas"]["Verdict"];
      /** Time from start to end, in milliseconds with one decimal. */
      wall_ms: number;
    };
    /** An API token, without its secret. */
    Token: {
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
    };
    /** All API tokens of a server. */
    TokenList: {
      /** Tokens, the oldest first. */
      tokens: components["schemas"]["Token"][];
    };
    /** Output streams that were cut at their limit. */
    TruncatedStreams: {
      /** More was written to standard error than is kept. */
      stderr: boolean;
      /** More was written to standard output than is kept. */
      stdout: boolean;
    };
    /** Model usage of one turn. */
    TurnUsage: {
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
      usage: components["schemas"]["SessionUsage"];
    };
    /** Body of `PATCH /v1/sessions/{id}`: what is left out stays as it is. */
    UpdateSession: {
      /**
       * In place of its grants, all of them: those that are not here are taken back at once, and
       *     connections over them end. Programs that run keep the environment that they were started
       *     with.
       */
      grants?: components["schemas"]["Grant"][] | null;
      /** Seconds without a message after which it gives up its sandbox. */
      idle_s?: number | null;
      /** In place of the metadata, all of it. */
      metadata?: {
        [key: string]: string;
      } | null;
      /** Treatment of a turn when its listeners go away. */
      on_disconnect?: components["schemas"]["OnDisconnect"] | null;
      /** Options that replace those of the session. They take effect at the agent's next start. */
      options?: components["schemas"]["AgentOptions"] | null;
    };
    /** Answer of `GET /v1/usage`. */
    UsageReport: {
      /** Sum over all turns that were asked for. */
      total: components["schemas"]["SessionUsage"];
      /** Single turns, the latest first; only as many as `limit` says. */
      turns?: components["schemas"]["TurnUsage"][];
    };
    /** Authentication methods of a user. */
    UserAuth: "password" | "trust" | "cert" | "peer";
    /**
     * The judgement of a stage. Where several hold, the first of `IE OLE TLE MLE SG RE JF WA OK` wins;
     *     a compile stage that is not `OK` is `CE`. With test cases, the execution's is that of the first
     *     one that is not `OK`.
     */
    Verdict: "OK" | "RE" | "SG" | "TLE" | "MLE" | "OLE" | "CE" | "WA" | "JF" | "IE";
    /** When a server connection is examined before another client gets it. */
    VerifyMode: "unknown" | "always" | "never";
    /** Answer of `GET /v1/webhooks/secret`. */
    WebhookSecret: {
      /**
       * The key that this token's webhooks are signed with, unless a request has its own: `whsec_`
       *     and base64, as libraries of Standard Webhooks take it.
       */
      secret: string;
    };
    /** Address that results are sent to: `POST` with the body of `GET /v1/executions/{id}`. */
    WebhookTarget: {
      /**
       * Key of the signature in the header `webhook-signature` (Standard Webhooks 1.0:
       *     HMAC-SHA-256 of `id.timestamp.body`). Without it, the token's own key is used.
       */
      secret?: string | null;
      /** An `https` or `http` address outside of private networks. */
      url: string;
    };
    /** Caller of a request, and what the server has for it. */
    Whoami: {
      /**
       * When it ends by itself, in milliseconds since 1970; absent when it lasts until it is
       *     revoked.
       */
      expires_ms?: number | null;
      /** Credential that was shown. */
      kind: components["schemas"]["CredentialKind"];
      /** Name of the token. */
      name: string;
      /** Id of the server that answers. */
      node: string;
      /** True if it is an operator's token, which may use operations on all tenants. */
      operator: boolean;
      /** Scopes: `executions`, `sessions`, `agents`, `tokens`, `tenants`, `catalog`. */
      scopes: string[];
      /** Services that it has. */
      services: components["schemas"]["EnabledServices"];
      /** Tenant that the token belongs to. */
      tenant: string;
      /** Version of Cove. */
      version: string;
    };
  };
}
export interface operations {
  listCatalogAudit: {
    parameters: {
      query?: {
        /** `next-page-token` of the previous page; empty for the first. */
        pageToken?: string;
        /** Maximum number. */
        pageSize?: number;
        /** Only records of this principal. */
        principal?: string;
        /** Only this operation, such as `drop-table`. */
        operation?: string;
        /** Only records about this path. */
        path?: string;
        /** `done`, `refused` or `failed`. */
        outcome?: string;
        /** At this time or later, in milliseconds since 1970. */
        since?: number;
        /** Before this time, in milliseconds since 1970. */
        until?: number;
      };
    };
  };
  deleteWarehouse: {
    parameters: {
      query?: {
        /** Also if it is protected. */
        force?: boolean;
      };
    };
  };
  listCatalogChanges: {
    parameters: {
      query?: {
        /** Number of the last change already seen, or `latest`. */
        after?: string;
        /** Only those of this namespace and its contents. */
        namespace?: string;
        /** Only those of this table of the namespace. */
        table?: string;
        /** Maximum number: 1 to 1000, 100 if absent. */
        limit?: number;
      };
    };
  };
  listDropped: {
    parameters: {
      query?: {
        /** Only objects that were in this namespace. */
        namespace?: string;
        /** `next-page-token` of the previous page; empty for the first. */
        pageToken?: string;
        /** Maximum number. */
        pageSize?: number;
      };
    };
  };
  listCatalogGrants: {
    parameters: {
      query?: {
        /** Only privileges of this principal. */
        principal?: string;
      };
    };
  };
  getCatalogJob: {
    parameters: {
      query?: {
        /** List the removed objects instead of only counting them. */
        items?: boolean;
      };
    };
  };
  getProtection: {
    parameters: {
      query?: {
        /** Levels of the namespace, separated by U+001F. Required. */
        namespace?: string;
        /** Table or view of the namespace. */
        name?: string;
      };
    };
  };
  searchCatalog: {
    parameters: {
      query?: {
        /** Text to search for, in either case: 1 to 256 bytes. */
        q?: string;
        /** Maximum number: 1 to 500, 50 if absent. */
        limit?: number;
      };
    };
  };
  getTableHealth: {
    parameters: {
      query?: {
        /** At this snapshot; at the current one when absent. */
        "snapshot-id"?: number;
        /** At the snapshot of this branch or tag. */
        ref?: string;
        /** Number of a change, or a time (RFC 3339), whose state is returned. */
        "as-of"?: string;
      };
    };
  };
  inspectTable: {
    parameters: {
      query?: {
        /** `json` or `csv`. */
        format?: string;
        /** With `files`: those of this snapshot. */
        "snapshot-id"?: number;
        /** `next-page-token` of the previous page; empty for the first. */
        pageToken?: string;
        /** Maximum number. */
        pageSize?: number;
        /** Number of a change, or a time (RFC 3339), whose state is returned. */
        "as-of"?: string;
      };
    };
  };
  listAgentFiles: {
    parameters: {
      query?: {
        /** Those of this version instead of the active one. */
        version?: number;
      };
    };
  };
  getAgentFile: {
    parameters: {
      query?: {
        /** Version; the active one if absent. */
        version?: number;
      };
    };
  };
  listAudit: {
    parameters: {
      query?: {
        /** Only records of this session or execution. */
        holder?: string;
        /** Only records of this tenant's sandboxes; other tenants need an operator's token. */
        tenant?: string;
        /** Only records of this grant: `postgres:shop`, `http`. */
        grant?: string;
        /** Only of this kind: `granted`, `revoked`, `connect`, `disconnect`, `statement`, `request`, `missing`. */
        event?: string;
        /** Only records with this outcome: `done`, `failed`, `refused`. */
        outcome?: string;
        /** Only records with this in the text or the error; ASCII letters match in either case. */
        text?: string;
        /** Only records that ended at this time or later (Unix milliseconds). */
        from_ms?: number;
        /** Only records that ended before this time. */
        to_ms?: number;
        /** `asc` for the oldest first, which is the default, or `desc`. */
        order?: string;
        /** Only those with a greater number; `next_after` of a page. */
        after?: number;
        /** Only those with a smaller number; `next_before` of a page. */
        before?: number;
        /** Maximum number: 1 to 1000, 100 if absent. */
        limit?: number;
      };
    };
  };
  summarizeAudit: {
    parameters: {
      query?: {
        /** Only records of this session or execution. */
        holder?: string;
        /** Only records of this tenant's sandboxes; other tenants need an operator's token. */
        tenant?: string;
        /** Only records of this grant: `postgres:shop`, `http`. */
        grant?: string;
        /** Only of this kind: `granted`, `revoked`, `connect`, `disconnect`, `statement`, `request`, `missing`. */
        event?: string;
        /** Only records with this outcome: `done`, `failed`, `refused`. */
        outcome?: string;
        /** Only records with this in the text or the error; ASCII letters match in either case. */
        text?: string;
        /** Only records that ended at this time or later (Unix milliseconds). */
        from_ms?: number;
        /** Only records that ended before this time. */
        to_ms?: number;
        /** `target`, which is the default, `holder` or `grant`. */
        by?: string;
        /** Only those with a greater number. */
        after?: number;
        /** Only those with a smaller number; `next_before` of another page. */
        before?: number;
        /** Maximum number of groups: 1 to 1000, 100 if absent. */
        limit?: number;
      };
    };
  };
  listExecutions: {
    parameters: {
      query?: {
        /** Only those in one of these states, separated by commas. */
        state?: string;
        /** Only those of this language, or `argv`. */
        language?: string;
        /** Only those with this label. */
        label?: string;
        /** Only those with this verdict, such as `TLE`. Refused in Redis. */
        verdict?: string;
        /** Only those whose id has this prefix. */
        id?: string;
        /** Only those whose label contains exactly this text. */
        text?: string;
        /** Only those accepted at this time or later, in milliseconds since 1970. */
        from_ms?: number;
        /** Only those accepted before this time. */
        to_ms?: number;
        /** Newest first, or oldest first. */
        order?: "desc" | "asc";
        /** Those of the token with this id, or of all with `*`; needs an operator's token. */
        tenant?: string;
        /** Maximum number on a page. */
        limit?: number;
        /** `next_cursor` of the previous page. */
        cursor?: string;
      };
    };
  };
  createExecution: {
    parameters: {
      query?: {
        /** Answer when the program has ended. Excludes `idempotency-key`, `webhook`, `deadline_ms`, `interactive` and `terminal`. */
        wait?: boolean;
      };
    };
  };
  getExecution: {
    parameters: {
      query?: {
        /** Answer when it has ended. */
        wait?: boolean;
        /** `request`: also return the request as it was sent. */
        include?: "request";
      };
    };
  };
  followExecution: {
    parameters: {
      query?: {
        /** Number of the last event that was seen; what follows is sent. `Last-Event-ID` says the same. */
        after?: number;
        /** Attach to an execution that is not `interactive`: it ends with this WebSocket. */
        attach?: boolean;
      };
    };
  };
  getHistory: {
    parameters: {
      query?: {
        /** Time until now: `15m`, `1h`, `90s`. At most `24h`; `15m` when it is left out. */
        window?: string;
        /** Time of one value. A multiple of `10s` where the window is more than `15m`; what makes at most 180 values when it is left out. */
        step?: string;
        /** Instead of `window`: number of steps, of `1s` unless `step` is set. */
        steps?: number;
        /** Names of series, with commas between; one that ends with `*` stands for all that begin so. All when it is left out. */
        series?: string;
        /** Tenant of the bouncer. */
        tenant?: string;
      };
    };
  };
  getQueue: {
    parameters: {
      query?: {
        /** Executions of all tokens instead of the caller's; needs an operator's token. */
        all?: boolean;
      };
    };
  };
  drainQueue: {
    parameters: {
      query?: {
        /** Executions of all tokens instead of the caller's; needs an operator's token. */
        all?: boolean;
      };
    };
  };
  retryDead: {
    parameters: {
      query?: {
        /** Executions of all tokens instead of the caller's; needs an operator's token. */
        all?: boolean;
      };
    };
  };
  countSandboxes: {
    parameters: {
      query?: {
        /** Only those of the queried node. */
        here?: boolean;
      };
    };
  };
  listSessions: {
    parameters: {
      query?: {
        /** Only those in one of these states, separated by commas. */
        state?: string;
        /** Only those of this agent. */
        agent?: string;
        /** Maximum number on a page: 1 to 200, 50 if absent. */
        limit?: number;
        /** `next_cursor` of the previous page. */
        cursor?: string;
      };
    };
  };
  exportArchive: {
    parameters: {
      query?: {
        /** The directory; `/workspace` if absent. */
        path?: string;
      };
    };
  };
  importArchive: {
    parameters: {
      query?: {
        /** Target directory; `/workspace` if absent. */
        path?: string;
      };
    };
  };
  addAttachment: {
    parameters: {
      query?: {
        /** Name of the file; required. */
        name?: string;
      };
    };
  };
  followSession: {
    parameters: {
      query?: {
        /** Number of the last event already seen, like `Last-Event-ID`. */
        after?: number;
        /** Only these types, separated by commas. */
        types?: string;
        /** Maximum number on a page. */
        limit?: number;
      };
    };
  };
  listFiles: {
    parameters: {
      query?: {
        /** The directory; `/workspace` if absent. */
        path?: string;
        /** Depth of the listing; 1 if absent. */
        depth?: number;
        /** Maximum number: 1 to 50000, 1000 if absent. */
        limit?: number;
      };
    };
  };
  readFile: {
    parameters: {
      query?: {
        /** Return its metadata as a `FileEntry` instead. */
        stat?: boolean;
      };
    };
  };
  writeFile: {
    parameters: {
      query?: {
        /** Fail with 409 if the file exists. */
        create?: boolean;
        /** Append to the existing content. */
        append?: boolean;
        /** Create a directory; without a body. */
        directory?: boolean;
        /** Permissions, in octal digits. */
        mode?: string;
      };
    };
  };
  removeFile: {
    parameters: {
      query?: {
        /** Remove a directory with its contents. */
        recursive?: boolean;
      };
    };
  };
  describeGrant: {
    parameters: {
      query?: {
        /** A table, as in a statement, or a namespace of a warehouse. */
        name?: string;
      };
    };
  };
  getSessionLogs: {
    parameters: {
      query?: {
        /** Number of the first line. */
        from?: number;
      };
    };
  };
  listMessages: {
    parameters: {
      query?: {
        /** Number of the last line already read. */
        after?: number;
        /** Maximum number: 1 to 1000, 200 if absent. */
        limit?: number;
      };
    };
  };
  sendMessage: {
    parameters: {
      query?: {
        /** Answer with one document when the turn is over. */
        wait?: boolean;
      };
    };
  };
  listSnapshotsOfSession: {
    parameters: {
      query?: {
        /** Maximum number on a page: 1 to 200, 50 if absent. */
        limit?: number;
        /** `next_cursor` of the previous page. */
        cursor?: string;
      };
    };
  };
  openTerminal: {
    parameters: {
      query?: {
        /** Program and arguments, one for each `argv`; a shell if absent. */
        argv?: string;
        /** Working directory; `/workspace` if absent. */
        cwd?: string;
        /** Rows of the terminal; 24 if absent. */
        rows?: number;
        /** Columns of the terminal; 80 if absent. */
        cols?: number;
        /** Seconds for which the terminal stays open without a client, at most 3600; 0 if absent. */
        detach_s?: number;
        /** Id of a terminal that was opened with `detach_s`, in place of a program to start. */
        attach?: string;
        /** With `attach`: number of bytes of output that the client has already. The last 256 KiB are repeated when absent. */
        from?: number;
        /** Bytes of output, 4096 to 262144, that may be unacknowledged: the client says by messages `ack` how many it has shown, and the program waits beyond that. Without it, all that the connection takes is on its way. */
        window?: number;
      };
    };
  };
  watchFiles: {
    parameters: {
      query?: {
        /** The directory; `/workspace` if absent. */
        path?: string;
        /** Include all levels below. */
        recursive?: boolean;
      };
    };
  };
  listSnapshots: {
    parameters: {
      query?: {
        /** Maximum number on a page: 1 to 200, 50 if absent. */
        limit?: number;
        /** `next_cursor` of the previous page. */
        cursor?: string;
      };
    };
  };
  buildTemplate: {
    parameters: {
      query?: {
        /** Answer when the build has ended. */
        wait?: boolean;
      };
    };
  };
  getTemplateBuild: {
    parameters: {
      query?: {
        /** Answer when the build has ended. */
        wait?: boolean;
      };
    };
  };
  getTemplateBuildLogs: {
    parameters: {
      query?: {
        /** Index of the first line. */
        from?: number;
      };
    };
  };
  pauseTenant: {
    parameters: {
      query?: {
        /** Reject clients instead of making them wait. */
        refuse?: boolean;
      };
    };
  };
  getUsage: {
    parameters: {
      query?: {
        /** Only those of this session. */
        session?: string;
        /** Only sessions of this agent. */
        agent?: string;
        /** At this time or later (milliseconds since 1970). */
        from_ms?: number;
        /** Before this time (milliseconds since 1970). */
        to_ms?: number;
        /** Number of listed turns: 1 to 1000, none if absent. */
        limit?: number;
      };
    };
  };
}
