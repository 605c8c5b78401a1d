// Tenants of the bouncer: databases behind its pools.

import { CoveCall } from "./call.js";
import { type CallOptions, type Transport, part } from "./transport.js";
import type { Schemas, Tenant, TenantSpec } from "./types.js";

/** Tenants of the bouncer; an operator's token is needed. */
export class Tenants {
  readonly #transport: Transport;

  /** Made by the client. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Creates a tenant. */
  create(spec: TenantSpec, options?: CallOptions): CoveCall<Tenant> {
    return this.#transport.json({
      operation: "createTenant", method: "POST", path: "/v1/tenants", json: spec,
    }, options);
  }

  /** Shows a tenant. */
  get(name: string, options?: CallOptions): CoveCall<Tenant> {
    return this.#get("getTenant", at(name), options);
  }

  /** Lists tenants. */
  list(options?: CallOptions): CoveCall<Tenant[]> {
    const call = this.#get<Schemas["TenantList"]>("listTenants", "/v1/tenants", options);
    return call.map(({ tenants }) => tenants);
  }

  /** Replaces the definition of a tenant while clients are connected. */
  replace(name: string, spec: TenantSpec, options?: CallOptions): CoveCall<Tenant> {
    return this.#transport.json({
      operation: "replaceTenant", method: "PUT", path: at(name), json: spec,
    }, options);
  }

  /** Deletes a tenant. */
  delete(name: string, options?: CallOptions): CoveCall<void> {
    const spec = { operation: "deleteTenant", method: "DELETE", path: at(name) } as const;
    return this.#transport.done(spec, options);
  }

  /** Holds back its clients, or with `refuse` turns them away. */
  pause(
    name: string, query: { readonly refuse?: boolean } = {}, options?: CallOptions,
  ): CoveCall<Tenant> {
    return this.#transport.json({
      operation: "pauseTenant", method: "POST", path: `${at(name)}/pause`, query,
    }, options);
  }

  /** Serves its clients again. */
  resume(name: string, options?: CallOptions): CoveCall<Tenant> {
    return this.#transport.json({
      operation: "resumeTenant", method: "POST", path: `${at(name)}/resume`,
    }, options);
  }

  /** Lets its clients end what they do, and takes no others. */
  drain(name: string, options?: CallOptions): CoveCall<Tenant> {
    return this.#transport.json({
      operation: "drainTenant", method: "POST", path: `${at(name)}/drain`,
    }, options);
  }

  /** Disconnects its clients. */
  kill(name: string, options?: CallOptions): CoveCall<void> {
    return this.#transport.done({
      operation: "killTenant", method: "POST", path: `${at(name)}/kill`,
    }, options);
  }

  /** Replaces its server connections, each when it is idle. */
  reconnect(name: string, options?: CallOptions): CoveCall<void> {
    return this.#transport.done({
      operation: "reconnectTenant", method: "POST", path: `${at(name)}/reconnect`,
    }, options);
  }

  /** Figures of a tenant. */
  stats(name: string, options?: CallOptions): CoveCall<Schemas["TenantStats"]> {
    return this.#get("tenantStats", `${at(name)}/stats`, options);
  }

  /** Figures of all tenants. */
  allStats(options?: CallOptions): CoveCall<Schemas["TenantStatsList"]> {
    return this.#get("allTenantStats", "/v1/tenants/stats", options);
  }

  /** Result of the latest check of its server. */
  health(name: string, options?: CallOptions): CoveCall<Schemas["TenantHealthReport"]> {
    return this.#get("tenantHealth", `${at(name)}/health`, options);
  }

  /** Its clients. */
  clients(name: string, options?: CallOptions): CoveCall<Schemas["BouncerClientList"]> {
    return this.#get("tenantClients", `${at(name)}/clients`, options);
  }

  /** Clients that keep a server connection after their transaction, and why. */
  pins(name: string, options?: CallOptions): CoveCall<Schemas["BouncerClientList"]> {
    return this.#get("tenantPins", `${at(name)}/pins`, options);
  }

  /** Its server connections. */
  servers(name: string, options?: CallOptions): CoveCall<Schemas["BouncerServerList"]> {
    return this.#get("tenantServers", `${at(name)}/servers`, options);
  }

  /** Disconnects one client. */
  killClient(name: string, pid: number, options?: CallOptions): CoveCall<void> {
    return this.#transport.done({
      operation: "killTenantClient", method: "DELETE", path: `${at(name)}/clients/${pid}`,
    }, options);
  }

  #get<T>(operation: string, path: string, options?: CallOptions): CoveCall<T> {
    return this.#transport.json({ operation, method: "GET", path }, options);
  }
}

function at(name: string): string {
  return `/v1/tenants/${part(name)}`;
}
