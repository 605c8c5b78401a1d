// Agents: folders with versions, from which sessions are made.

import { CoveCall } from "./call.js";
import { type CallOptions, type Transport, part } from "./transport.js";
import type { Agent, Schemas } from "./types.js";

/** Agents of the token's tenant. */
export class Agents {
  readonly #transport: Transport;

  /** Made by the client. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Deploys a folder: a new agent, or a new version. It waits for `install.sh`. */
  deploy(request: Schemas["DeployRequest"], options?: CallOptions): CoveCall<Agent> {
    return this.#transport.json({
      operation: "deployAgent", method: "POST", path: "/v1/agents", json: request, isLong: true,
    }, options);
  }

  /** Shows an agent. */
  get(name: string, options?: CallOptions): CoveCall<Agent> {
    return this.#transport.json({ operation: "getAgent", method: "GET", path: at(name) }, options);
  }

  /** Lists agents by name. */
  list(options?: CallOptions): CoveCall<Agent[]> {
    const spec = { operation: "listAgents", method: "GET", path: "/v1/agents" } as const;
    return this.#transport.json<Schemas["AgentList"]>(spec, options).map(({ agents }) => agents);
  }

  /** Changes its settings or grants without a new version, or goes back to an earlier one. */
  update(name: string, request: Schemas["AgentUpdate"], options?: CallOptions): CoveCall<Agent> {
    return this.#transport.json({
      operation: "updateAgent", method: "PATCH", path: at(name), json: request,
    }, options);
  }

  /** Deletes an agent. */
  delete(name: string, options?: CallOptions): CoveCall<void> {
    const spec = { operation: "deleteAgent", method: "DELETE", path: at(name) } as const;
    return this.#transport.done(spec, options);
  }

  /** Lists its versions. */
  versions(name: string, options?: CallOptions): CoveCall<Schemas["AgentVersion"][]> {
    const path = `${at(name)}/versions`;
    const spec = { operation: "listAgentVersions", method: "GET", path } as const;
    const call = this.#transport.json<Schemas["AgentVersionList"]>(spec, options);
    return call.map(({ versions }) => versions);
  }

  /** Lists the files of a version, the current one unless given. */
  files(
    name: string, version?: number, options?: CallOptions,
  ): CoveCall<Schemas["AgentFileEntry"][]> {
    const path = `${at(name)}/files`;
    const query = { version };
    const spec = { operation: "listAgentFiles", method: "GET", path, query } as const;
    const call = this.#transport.json<Schemas["AgentFileList"]>(spec, options);
    return call.map(({ files }) => files);
  }

  /** Reads a file of a version. */
  readFile(
    name: string, path: string, version?: number, options?: CallOptions,
  ): CoveCall<Uint8Array> {
    const response = this.#transport.send({
      operation: "getAgentFile", method: "GET", path: `${at(name)}/files/${part(path)}`,
      query: { version }, accept: "*/*",
    }, options);
    return new CoveCall(response, async (it) => new Uint8Array(await it.arrayBuffer()));
  }
}

function at(name: string): string {
  return `/v1/agents/${part(name)}`;
}
