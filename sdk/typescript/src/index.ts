/// <reference lib="esnext.disposable" preserve="true" />
// Client of Cove. `new Cove()` is where to begin.

export { Cove, type Health, type RawRequest } from "./client.js";
export { CoveCall, PagedCall, type WithResponse } from "./call.js";
export * from "./errors.js";
export { EventStream } from "./stream.js";
export {
  Executions, type FollowOptions, InteractiveExecution, Queue, outputOf, resultOf,
} from "./executions.js";
export {
  type MessageSettings, Session, type SessionFilter, Sessions, Turn, grantName,
} from "./sessions.js";
export { SessionFiles } from "./files.js";
export { type ExecSettings, SessionCommand, Terminal, type TerminalSettings } from "./commands.js";
export { type CellSettings, CodeContext, CodeContexts } from "./contexts.js";
export { Agents } from "./agents.js";
export { type BuildListener, Templates } from "./templates.js";
export { Tenants } from "./tenants.js";
export { Catalog, type CatalogConnection, CatalogWarehouse } from "./catalog.js";
export { Audit, type AuditFilter } from "./audit.js";
export { Live, type LiveTopics } from "./live.js";
export { type FileContent, fromBase64, toBase64 } from "./bytes.js";
export type {
  CallOptions, ClientOptions, Query, WebSocketClass, WebSocketLike,
} from "./transport.js";
export { API_VERSION, ERROR_CODES } from "./contract.js";
export type * from "./types.js";
