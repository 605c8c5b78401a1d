// The Iceberg catalog: how its clients connect, and its management. Tables themselves are for
// clients of Iceberg, such as PyIceberg, DuckDB, Spark and Trino.

import { CoveCall, PagedCall } from "./call.js";
import { CoveProtocolError } from "./errors.js";
import { EventStream, type ServerSentEvent, documentOf, resumed } from "./stream.js";
import { type CallOptions, type Query, type Transport, part } from "./transport.js";
import type { CatalogChange, ListQuery, Schemas } from "./types.js";

const MANAGEMENT = "/catalog/management/v1";

/** Access of one principal, by the names that clients of Iceberg have for it. */
export interface CatalogConnection {
  /** Kind of the catalog. */
  readonly type: "rest";
  /** Address of the catalog. */
  readonly uri: string;
  /** Bearer token. */
  readonly token: string;
  /** Warehouse. */
  readonly warehouse: string;
}

/** The catalog. */
export class Catalog {
  /** Address for clients of Iceberg. */
  readonly restUrl: string;
  readonly #transport: Transport;

  /** Made by the client. */
  constructor(transport: Transport) {
    this.#transport = transport;
    this.restUrl = `${transport.url}/catalog`;
  }

  /** Exchanges the id and secret of a client for a token, and says how to connect with it. */
  connection(
    credentials: { readonly clientId: string; readonly clientSecret: string },
    warehouse: string, options?: CallOptions,
  ): CoveCall<CatalogConnection> {
    const form = new URLSearchParams({
      grant_type: "client_credentials", scope: "PRINCIPAL_ROLE:ALL",
      client_id: credentials.clientId, client_secret: credentials.clientSecret,
    });
    const call = this.#transport.json<Schemas["OauthToken"]>({
      operation: "getCatalogToken", method: "POST", path: "/catalog/v1/oauth/tokens",
      content: form.toString(), contentType: "application/x-www-form-urlencoded",
    }, options);
    return call.map(({ access_token: token }) => ({
      type: "rest", uri: this.restUrl, token, warehouse,
    }));
  }

  /** Management of one warehouse. */
  warehouse(name: string): CatalogWarehouse {
    return new CatalogWarehouse(this.#transport, name);
  }

  /** Lists warehouses. */
  warehouses(options?: CallOptions): CoveCall<Schemas["CatalogWarehouseList"]> {
    return this.#get("listWarehouses", "warehouses", options);
  }

  /** Makes a warehouse. */
  createWarehouse(
    request: Schemas["CatalogWarehouseRequest"], options?: CallOptions,
  ): CoveCall<Schemas["CatalogWarehouse"]> {
    return this.#post("createWarehouse", "warehouses", request, options);
  }

  /** Lists clients, without secrets. */
  clients(options?: CallOptions): CoveCall<Schemas["CatalogClientList"]> {
    return this.#get("listCatalogClients", "clients", options);
  }

  /** Makes a client; its secret is told once. */
  createClient(
    request: Schemas["CatalogClientRequest"], options?: CallOptions,
  ): CoveCall<Schemas["CatalogClientSecret"]> {
    return this.#post("createCatalogClient", "clients", request, options);
  }

  /** Gives a client another secret. */
  rotateClient(
    client: string, request: Schemas["CatalogRotateRequest"] = {}, options?: CallOptions,
  ): CoveCall<Schemas["CatalogClientSecret"]> {
    return this.#post("rotateCatalogClient", `clients/${part(client)}/rotate`, request, options);
  }

  /** Removes a client with its tokens, keys and grants. */
  deleteClient(client: string, options?: CallOptions): CoveCall<void> {
    return this.#delete("deleteCatalogClient", `clients/${part(client)}`, options);
  }

  /** Lists the API keys of a client. */
  keys(client: string, options?: CallOptions): CoveCall<Schemas["CatalogKeyList"]> {
    return this.#get("listCatalogKeys", `clients/${part(client)}/keys`, options);
  }

  /** Makes an API key; it is told once. */
  createKey(
    client: string, request: Schemas["CatalogKeyRequest"], options?: CallOptions,
  ): CoveCall<Schemas["CatalogKeySecret"]> {
    return this.#post("createCatalogKey", `clients/${part(client)}/keys`, request, options);
  }

  /** Removes an API key. */
  deleteKey(client: string, key: string, options?: CallOptions): CoveCall<void> {
    const path = `clients/${part(client)}/keys/${part(key)}`;
    return this.#delete("deleteCatalogKey", path, options);
  }

  /** Lists roles with their members. */
  roles(options?: CallOptions): CoveCall<Schemas["CatalogRoleList"]> {
    return this.#get("listCatalogRoles", "roles", options);
  }

  /** Makes a role. */
  createRole(request: Schemas["CatalogRoleRequest"], options?: CallOptions): CoveCall<void> {
    return this.#act("createCatalogRole", "roles", request, options);
  }

  /** Changes who has a role. */
  changeRole(
    role: string, request: Schemas["CatalogMembersRequest"], options?: CallOptions,
  ): CoveCall<void> {
    return this.#act("changeCatalogRole", `roles/${part(role)}/members`, request, options);
  }

  /** Removes a role and what was granted to it. */
  deleteRole(role: string, options?: CallOptions): CoveCall<void> {
    return this.#delete("deleteCatalogRole", `roles/${part(role)}`, options);
  }

  /** What was done in the catalog, and by whom. */
  audit(
    query: ListQuery<"listCatalogAudit"> = {}, options?: CallOptions,
  ): PagedCall<Schemas["CatalogAuditPage"], Schemas["CatalogAuditLine"]> {
    return pages(this.#transport, {
      operation: "listCatalogAudit", path: `${MANAGEMENT}/audit`, query, options,
    }, ({ lines }) => lines);
  }

  #get<T>(operation: string, path: string, options?: CallOptions): CoveCall<T> {
    return this.#transport.json({ operation, method: "GET", path: `${MANAGEMENT}/${path}` },
      options);
  }

  #post<T>(operation: string, path: string, json: unknown, options?: CallOptions): CoveCall<T> {
    const spec = { operation, method: "POST", path: `${MANAGEMENT}/${path}`, json } as const;
    return this.#transport.json(spec, options);
  }

  #act(operation: string, path: string, json: unknown, options?: CallOptions): CoveCall<void> {
    const spec = { operation, method: "POST", path: `${MANAGEMENT}/${path}`, json } as const;
    return this.#transport.done(spec, options);
  }

  #delete(operation: string, path: string, options?: CallOptions): CoveCall<void> {
    const spec = { operation, method: "DELETE", path: `${MANAGEMENT}/${path}` } as const;
    return this.#transport.done(spec, options);
  }
}

/** What a page of the catalog has beside its items. */
interface CatalogPage {
  readonly "next-page-token"?: string | null;
}

interface CatalogList {
  readonly operation: string;
  readonly path: string;
  readonly query: Query;
  readonly options: CallOptions | undefined;
}

function pages<P extends CatalogPage, T>(
  transport: Transport, list: CatalogList, items: (page: P) => readonly T[],
): PagedCall<P, T> {
  const { operation, path, query, options } = list;
  const page = (pageToken: string): CoveCall<P> => transport.json({
    operation, method: "GET", path, query: { ...query, pageToken },
  }, options);
  const next = (it: P): CoveCall<P> | undefined => {
    const token = it["next-page-token"];
    return token ? page(token) : undefined;
  };
  return new PagedCall(page(""), next, items);
}

/** Management of one warehouse. */
export class CatalogWarehouse {
  /** Its name. */
  readonly name: string;
  readonly #transport: Transport;

  /** Made by the catalog. */
  constructor(transport: Transport, name: string) {
    this.#transport = transport;
    this.name = name;
  }

  /** Shows it. */
  get(options?: CallOptions): CoveCall<Schemas["CatalogWarehouse"]> {
    return this.#transport.json({
      operation: "getWarehouse", method: "GET", path: this.#itself(),
    }, options);
  }

  /** Changes it. */
  update(
    request: Schemas["CatalogWarehouseUpdate"], options?: CallOptions,
  ): CoveCall<Schemas["CatalogWarehouse"]> {
    return this.#transport.json({
      operation: "updateWarehouse", method: "PATCH", path: this.#itself(), json: request,
    }, options);
  }

  /** Removes it; with `force` although there is something in it. */
  delete(query: { readonly force?: boolean } = {}, options?: CallOptions): CoveCall<void> {
    return this.#transport.done({
      operation: "deleteWarehouse", method: "DELETE", path: this.#itself(), query,
    }, options);
  }

  /** Finds namespaces, tables, views and columns by a part of their names. */
  search(q: string, options?: CallOptions): CoveCall<Schemas["CatalogFoundNames"]> {
    return this.#get("searchCatalog", "search", { q }, options);
  }

  /** Rights that were given. */
  grants(principal?: string, options?: CallOptions): CoveCall<Schemas["CatalogGrantList"]> {
    return this.#get("listCatalogGrants", "grants", { principal }, options);
  }

  /** Gives rights to a namespace or table. */
  grant(request: Schemas["CatalogGrant"], options?: CallOptions): CoveCall<void> {
    return this.#act("grantCatalogRights", "grants", request, options);
  }

  /** Takes rights back. */
  revoke(request: Schemas["CatalogGrant"], options?: CallOptions): CoveCall<void> {
    return this.#act("revokeCatalogRights", "grants/revoke", request, options);
  }

  /** Policies. */
  policies(options?: CallOptions): CoveCall<Schemas["CatalogPolicyList"]> {
    return this.#get("listCatalogPolicies", "policies", {}, options);
  }

  /** Makes or replaces a policy. */
  putPolicy(
    name: string, request: Schemas["CatalogPolicyRequest"], options?: CallOptions,
  ): CoveCall<Schemas["CatalogPolicy"]> {
    return this.#transport.json({
      operation: "putCatalogPolicy", method: "PUT", path: this.#path(`policies/${part(name)}`),
      json: request,
    }, options);
  }

  /** What a principal reads of the table now, and would with a policy, which is not saved. */
  previewPolicy(
    name: string, request: Schemas["CatalogPolicyPreviewRequest"], options?: CallOptions,
  ): CoveCall<Schemas["CatalogPolicyPreview"]> {
    return this.#transport.json({
      operation: "previewCatalogPolicy", method: "POST",
      path: this.#path(`policies/${part(name)}/preview`), json: request,
    }, options);
  }

  /** Removes a policy. */
  deletePolicy(name: string, options?: CallOptions): CoveCall<void> {
    return this.#transport.done({
      operation: "deleteCatalogPolicy", method: "DELETE",
      path: this.#path(`policies/${part(name)}`),
    }, options);
  }

  /** What was dropped and can be had back. */
  dropped(
    query: ListQuery<"listDropped"> = {}, options?: CallOptions,
  ): PagedCall<Schemas["CatalogDroppedList"], Schemas["CatalogDropped"]> {
    return pages(this.#transport, {
      operation: "listDropped", path: this.#path("dropped"), query, options,
    }, ({ dropped }) => dropped);
  }

  /** Has a dropped table or view back. */
  undrop(
    request: Schemas["CatalogUndropRequest"], options?: CallOptions,
  ): CoveCall<Schemas["CatalogUndropped"]> {
    return this.#post("undrop", "undrop", request, options);
  }

  /** What may not be dropped. */
  protection(
    query: ListQuery<"getProtection"> = {}, options?: CallOptions,
  ): CoveCall<Schemas["CatalogProtection"]> {
    return this.#get("getProtection", "protection", query, options);
  }

  /** Protects from being dropped, or no longer. */
  setProtection(
    request: Schemas["CatalogProtectRequest"], options?: CallOptions,
  ): CoveCall<Schemas["CatalogProtection"]> {
    return this.#post("setProtection", "protection", request, options);
  }

  /** How long what was dropped and the past are kept. */
  retention(options?: CallOptions): CoveCall<Schemas["CatalogRetention"]> {
    return this.#get("getRetention", "retention", {}, options);
  }

  /** Changes that. */
  setRetention(
    request: Schemas["CatalogRetentionRequest"], options?: CallOptions,
  ): CoveCall<Schemas["CatalogRetention"]> {
    return this.#post("setRetention", "retention", request, options);
  }

  /** Jobs of maintenance. */
  jobs(options?: CallOptions): CoveCall<Schemas["CatalogJobList"]> {
    return this.#get("listCatalogJobs", "maintenance", {}, options);
  }

  /** Starts a job of maintenance. */
  startJob(
    request: Schemas["CatalogJobRequest"], options?: CallOptions,
  ): CoveCall<Schemas["CatalogJobStarted"]> {
    return this.#post("startCatalogJob", "maintenance", request, options);
  }

  /** Shows a job of maintenance. */
  job(job: string, options?: CallOptions): CoveCall<Schemas["CatalogJob"]> {
    return this.#get("getCatalogJob", `maintenance/${part(job)}`, {}, options);
  }

  /** Cancels a job of maintenance. */
  cancelJob(job: string, options?: CallOptions): CoveCall<void> {
    return this.#transport.done({
      operation: "cancelCatalogJob", method: "DELETE", path: this.#path(`maintenance/${part(job)}`),
    }, options);
  }

  /** Changes as they happen, over lost connections, behind `after` or from now on. */
  changes(
    query: { readonly namespace?: string; readonly table?: string } = {},
    options: CallOptions & { readonly after?: number | undefined } = {},
  ): EventStream<CatalogChange> {
    const { after, signal, ...rest } = options;
    const source = {
      connect: (from: string | undefined, stop: AbortSignal) => this.#transport.send({
        operation: "listCatalogChanges", method: "GET", path: this.#path("changes"),
        query: { ...query, after: from }, accept: "text/event-stream", isStream: true,
      }, { ...rest, signal: stop }),
      read: (message: ServerSentEvent) => {
        if (message.event !== "error") return documentOf<CatalogChange>(message);
        throw new CoveProtocolError(`the catalog ended the stream: ${message.data}`);
      },
      mark: ({ seq }: CatalogChange) => String(seq),
      isLast: () => false,
    };
    const from = after === undefined ? "latest" : String(after);
    const { maxReconnects } = this.#transport;
    return new EventStream((stop) => resumed(source, from, maxReconnects, stop), signal);
  }

  #itself(): string {
    return `${MANAGEMENT}/warehouses/${part(this.name)}`;
  }

  #path(rest: string): string {
    return `${MANAGEMENT}/${part(this.name)}/${rest}`;
  }

  #get<T>(operation: string, path: string, query: Query, options?: CallOptions): CoveCall<T> {
    const spec = { operation, method: "GET", path: this.#path(path), query } as const;
    return this.#transport.json(spec, options);
  }

  #post<T>(operation: string, path: string, json: unknown, options?: CallOptions): CoveCall<T> {
    const spec = { operation, method: "POST", path: this.#path(path), json } as const;
    return this.#transport.json(spec, options);
  }

  #act(operation: string, path: string, json: unknown, options?: CallOptions): CoveCall<void> {
    const spec = { operation, method: "POST", path: this.#path(path), json } as const;
    return this.#transport.done(spec, options);
  }
}
