// Documents of the interface by their names. Fields are spelled as they are sent.

import type { components, operations } from "./schema.js";

/** All documents by name. */
export type Schemas = components["schemas"];

/** Parameters of the query of an operation. */
export type QueryOf<Name extends keyof operations> =
  operations[Name] extends { parameters: { query?: infer Q } } ? NonNullable<Q> : never;

/** The same but for what the client says by itself. */
export type ListQuery<Name extends keyof operations, Own extends string = never> = Omit<
  QueryOf<Name>, Own | "cursor" | "pageToken"
>;

/** A program to run, on which input and within which limits. */
export type ExecutionRequest = Schemas["ExecutionRequest"];
/** What a program did and how it ended. */
export type Execution = Schemas["Execution"];
/** An execution and its state. */
export type ExecutionRecord = Schemas["ExecutionRecord"];
/** Event of an execution. */
export type ExecutionEvent = Schemas["ExecutionEvent"];
/** Judgement of a program. */
export type Verdict = Schemas["Verdict"];
/** A test case of a request. */
export type TestCase = Schemas["TestCase"];
/** What became of a test case. */
export type TestResult = Schemas["TestResult"];
/** Limits of a stage. */
export type LimitSpec = Schemas["LimitSpec"];
/** A thing that a sandbox may reach. */
export type Grant = Schemas["Grant"];
/** Settings of a new session. */
export type CreateSession = Schemas["CreateSession"];
/** A session, as the server shows it. */
export type SessionInfo = Schemas["Session"];
/** Event of a session. */
export type SessionEvent = Schemas["SessionEvent"];
/** Answer to a message. */
export type MessageAnswer = Schemas["MessageAnswer"];
/** A command of a session. */
export type SessionExec = Schemas["SessionExec"];
/** What became of a command. */
export type SessionExecResult = Schemas["SessionExecResult"];
/** Event of a command or a terminal. */
export type SessionExecEvent = Schemas["SessionExecEvent"];
/** A file or directory of a session. */
export type FileEntry = Schemas["FileEntry"];
/** Change of a watched file. */
export type FileChange = Schemas["FileChange"];
/** A context of the code interpreter. */
export type CodeContextInfo = Schemas["CodeContext"];
/** What became of a cell. */
export type CellReport = Schemas["CellReport"];
/** Event of a cell. */
export type CellEvent = Schemas["CellEvent"];
/** Result of a statement. */
export type GrantQueryResult = Schemas["GrantQueryResult"];
/** A snapshot of a session's files. */
export type Snapshot = Schemas["Snapshot"];
/** An agent. */
export type Agent = Schemas["Agent"];
/** A template. */
export type Template = Schemas["Template"];
/** A build of a template. */
export type TemplateBuild = Schemas["TemplateBuild"];
/** Line of the log of a build. */
export type TemplateLogLine = Schemas["TemplateLogLine"];
/** A tenant of the bouncer. */
export type Tenant = Schemas["Tenant"];
/** Definition of a tenant. */
export type TenantSpec = Schemas["TenantSpec"];
/** Record of what was reached through a grant. */
export type AuditRecord = Schemas["AuditRecord"];
/** Figures of the queue. */
export type QueueStats = Schemas["QueueStats"];
/** Caller of a request, and what the server has for it. */
export type Whoami = Schemas["Whoami"];
/** Change of a warehouse. */
export type CatalogChange = Schemas["CatalogChange"];
