// The client: one server, one token, all services.

import { Agents } from "./agents.js";
import { Audit } from "./audit.js";
import { CoveCall } from "./call.js";
import { Catalog } from "./catalog.js";
import { CoveStatusError } from "./errors.js";
import { Executions, Queue } from "./executions.js";
import { Live } from "./live.js";
import { Sessions } from "./sessions.js";
import { Templates } from "./templates.js";
import { Tenants } from "./tenants.js";
import { type CallOptions, type ClientOptions, type Query, Transport, part } from "./transport.js";
import type { Execution, ExecutionRequest, QueryOf, Schemas, Whoami } from "./types.js";

/** Whether a server takes requests. */
export interface Health {
  /** True if it does. */
  readonly isReady: boolean;
  /** What it says. */
  readonly message: string;
}

/** A request of any operation, for what has no method of its own. */
export interface RawRequest {
  /** Method. */
  readonly method: "GET" | "PUT" | "POST" | "PATCH" | "DELETE";
  /** Path, with what is in it encoded: `/v1/nodes`. */
  readonly path: string;
  /** Parameters of the query. */
  readonly query?: Query;
  /** Document to send. */
  readonly json?: unknown;
}

/** Client of one server. */
export class Cove {
  /** Programs that are run once, with a verdict. */
  readonly executions: Executions;
  /** The queue of asynchronous executions. */
  readonly queue: Queue;
  /** Sandboxes that stay, with files and an agent. */
  readonly sessions: Sessions;
  /** Folders from which sessions are made. */
  readonly agents: Agents;
  /** What sessions and executions begin with. */
  readonly templates: Templates;
  /** Databases of the bouncer. */
  readonly tenants: Tenants;
  /** The Iceberg catalog. */
  readonly catalog: Catalog;
  /** What sandboxes reached. */
  readonly audit: Audit;
  readonly #transport: Transport;
  readonly #options: ClientOptions;

  /** Makes a client; without settings, of `COVE_URL` with `COVE_TOKEN`. */
  constructor(options: ClientOptions = {}) {
    this.#transport = new Transport(options);
    this.executions = new Executions(this.#transport);
    this.queue = new Queue(this.#transport);
    this.sessions = new Sessions(this.#transport);
    this.agents = new Agents(this.#transport);
    this.templates = new Templates(this.#transport);
    this.tenants = new Tenants(this.#transport);
    this.catalog = new Catalog(this.#transport);
    this.audit = new Audit(this.#transport);
    this.#options = options;
  }

  /** Address of the server. */
  get url(): string {
    return this.#transport.url;
  }

  /** A client with some settings changed. */
  withOptions(options: ClientOptions): Cove {
    return new Cove({ ...this.#options, ...options });
  }

  /** Runs a program and answers with its result: `executions.run`. */
  run(request: ExecutionRequest, options?: CallOptions): CoveCall<Execution> {
    return this.executions.run(request, options);
  }

  /** Follows many things on one WebSocket. */
  live(): Live {
    return new Live(this.#transport);
  }

  /** Who the token is, and what the server has for it. */
  whoami(options?: CallOptions): CoveCall<Whoami> {
    const spec = { operation: "whoami", method: "GET", path: "/v1/whoami" } as const;
    return this.#transport.json(spec, options);
  }

  /** What the machine of the server offers and lacks: the last report; for operators. */
  doctor(options?: CallOptions): CoveCall<Schemas["Doctor"]> {
    const spec = { operation: "getDoctor", method: "GET", path: "/v1/doctor" } as const;
    return this.#transport.json(spec, options);
  }

  /** Checks the machine of the server anew; for operators. */
  runDoctor(options?: CallOptions): CoveCall<Schemas["Doctor"]> {
    const spec = { operation: "runDoctor", method: "POST", path: "/v1/doctor" } as const;
    return this.#transport.json(spec, options);
  }

  /** The configuration in force of the server, without secrets; for operators. */
  config(options?: CallOptions): CoveCall<Schemas["Config"]> {
    const spec = { operation: "getConfig", method: "GET", path: "/v1/config" } as const;
    return this.#transport.json(spec, options);
  }

  /** Has the server read its configuration again; for operators. */
  reload(options?: CallOptions): CoveCall<Schemas["ConfigReloaded"]> {
    const spec = { operation: "reloadConfig", method: "POST", path: "/v1/reload" } as const;
    return this.#transport.json(spec, options);
  }

  /**
   * A copy of the server; for operators with every scope. An archive that was cut off can look like
   * a whole one: `cove backup verify` tells.
   */
  backup(options?: CallOptions): CoveCall<ReadableStream<Uint8Array>> {
    const response = this.#transport.send({
      operation: "getBackup", method: "GET", path: "/v1/backup", accept: "*/*", isStream: true,
    }, options);
    return new CoveCall(response, (it) => it.body ?? new Blob([]).stream());
  }

  /** All API tokens, without their secrets; for operators with the scope `tokens`. */
  tokens(options?: CallOptions): CoveCall<Schemas["TokenList"]> {
    const spec = { operation: "listTokens", method: "GET", path: "/v1/tokens" } as const;
    return this.#transport.json(spec, options);
  }

  /**
   * What the server measured in the last 24 hours: without `series` all that the token may see.
   * Names may end with `*`.
   */
  history(
    query: Omit<QueryOf<"getHistory">, "series"> & { readonly series?: readonly string[] } = {},
    options?: CallOptions,
  ): CoveCall<Schemas["HistoryReport"]> {
    const { series, ...more } = query;
    const spec = {
      operation: "getHistory", method: "GET", path: "/v1/history",
      query: { ...more, series: series?.join(",") },
    } as const;
    return this.#transport.json(spec, options);
  }

  /** What the token may grant to sandboxes. */
  grantOffers(options?: CallOptions): CoveCall<Schemas["GrantOfferList"]> {
    const spec = {
      operation: "listGrantOffers", method: "GET", path: "/v1/gateway/offers",
    } as const;
    return this.#transport.json(spec, options);
  }

  /** Whether each of these would be given, and why not. Nothing is made. */
  checkGrants(
    grants: readonly Schemas["Grant"][], options?: CallOptions,
  ): CoveCall<Schemas["GrantCheckReport"]> {
    return this.#transport.json({
      operation: "checkGrants", method: "POST", path: "/v1/gateway/offers/check", json: { grants },
    }, options);
  }

  /** Whether the server takes requests; throws where it is not reached. */
  async health(options: CallOptions = {}): Promise<Health> {
    try {
      const response = await this.#transport.send({
        operation: "ready", method: "GET", path: "/health/ready", accept: "*/*",
      }, { ...options, maxRetries: 0 });
      return { isReady: true, message: (await response.text()).trim() };
    } catch (error) {
      if (!(error instanceof CoveStatusError)) throw error;
      return { isReady: false, message: error.message };
    }
  }

  /** Sandboxes in each state. */
  sandboxes(options?: CallOptions): CoveCall<Schemas["SandboxCounts"]> {
    const spec = { operation: "countSandboxes", method: "GET", path: "/v1/sandboxes" } as const;
    return this.#transport.json(spec, options);
  }

  /** Nodes of the cluster. */
  nodes(options?: CallOptions): CoveCall<Schemas["Node"][]> {
    const spec = { operation: "listNodes", method: "GET", path: "/v1/nodes" } as const;
    return this.#transport.json<Schemas["NodeList"]>(spec, options).map(({ nodes }) => nodes);
  }

  /** Credentials of agents, without their secrets. */
  credentials(options?: CallOptions): CoveCall<Schemas["Credential"][]> {
    const spec = { operation: "listCredentials", method: "GET", path: "/v1/credentials" } as const;
    const call = this.#transport.json<Schemas["CredentialList"]>(spec, options);
    return call.map(({ credentials }) => credentials);
  }

  /** Keeps a credential, encrypted; it is never shown again. */
  createCredential(
    request: Schemas["CreateCredential"], options?: CallOptions,
  ): CoveCall<Schemas["Credential"]> {
    return this.#transport.json({
      operation: "createCredential", method: "POST", path: "/v1/credentials", json: request,
    }, options);
  }

  /** Deletes a credential. */
  deleteCredential(id: string, options?: CallOptions): CoveCall<void> {
    const path = `/v1/credentials/${part(id)}`;
    return this.#transport.done({ operation: "deleteCredential", method: "DELETE", path }, options);
  }

  /** Sends any request of the interface; the document is the caller's to know. */
  request<T = unknown>(request: RawRequest, options?: CallOptions): CoveCall<T> {
    return this.#transport.json({ ...request, operation: "" }, options);
  }
}
