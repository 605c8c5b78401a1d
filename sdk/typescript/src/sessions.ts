// Sessions: a sandbox, its files and a conversation with an agent.

import { CoveCall, PagedCall } from "./call.js";
import { CodeContext, CodeContexts, type CellSettings } from "./contexts.js";
import { type ExecSettings, SessionCommand, Terminal, type TerminalSettings, startCommand }
  from "./commands.js";
import { CoveError, CoveProtocolError, GoneError, NotFoundError } from "./errors.js";
import type { FollowOptions } from "./executions.js";
import { SessionFiles } from "./files.js";
import { EventStream, type ServerSentEvent, documentOf, resumed } from "./stream.js";
import { type CallOptions, type Transport, part } from "./transport.js";
import type {
  CellReport, CreateSession, Grant, GrantQueryResult, ListQuery, MessageAnswer, QueryOf, Schemas,
  SessionEvent, SessionExecResult, SessionInfo, Snapshot,
} from "./types.js";

/** A message: its text or blocks, and how it is treated. */
export type MessageSettings = Omit<Schemas["MessageRequest"], "content">;

/** Which sessions are listed. */
export interface SessionFilter extends ListQuery<"listSessions"> {
  /** Entries of the metadata that they have. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
}

/** Sessions of the token's tenant. */
export class Sessions {
  readonly #transport: Transport;

  /** Made by the client. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Creates a session; it is ready when this is answered. With `await using` it ends by itself. */
  create(request: CreateSession = {}, options?: CallOptions): CoveCall<Session> {
    const call = this.#transport.json<SessionInfo>({
      operation: "createSession", method: "POST", path: "/v1/sessions", json: request,
      isLong: true,
    }, options);
    return call.map((info) => new Session(this.#transport, info));
  }

  /** Connects to a session that there is. */
  connect(id: string, options?: CallOptions): CoveCall<Session> {
    return this.get(id, options).map((info) => new Session(this.#transport, info));
  }

  /** Shows a session. */
  get(id: string, options?: CallOptions): CoveCall<SessionInfo> {
    return this.#transport.json({ operation: "getSession", method: "GET", path: at(id) }, options);
  }

  /** Lists sessions, newest first. */
  list(
    filter: SessionFilter = {}, options?: CallOptions,
  ): PagedCall<Schemas["SessionList"], SessionInfo> {
    const { metadata = {}, ...query } = filter;
    const entries = Object.entries(metadata).map(([name, value]) => [`metadata.${name}`, value]);
    const all: Record<string, string> = Object.fromEntries(entries);
    const page = (cursor?: string): CoveCall<Schemas["SessionList"]> => this.#transport.json({
      operation: "listSessions", method: "GET", path: "/v1/sessions",
      query: { ...all, ...query, cursor },
    }, options);
    const next = ({ next_cursor: cursor }: Schemas["SessionList"]) =>
      cursor ? page(cursor) : undefined;
    return new PagedCall(page(), next, ({ sessions }) => sessions);
  }

  /** Lists snapshots, of every session unless one is named. */
  snapshots(session?: string, options?: CallOptions): PagedCall<Schemas["SnapshotList"], Snapshot> {
    const path = session === undefined ? "/v1/snapshots" : `${at(session)}/snapshots`;
    const page = (cursor?: string): CoveCall<Schemas["SnapshotList"]> => this.#transport.json({
      operation: "listSnapshots", method: "GET", path, query: { cursor },
    }, options);
    const next = ({ next_cursor: cursor }: Schemas["SnapshotList"]) =>
      cursor ? page(cursor) : undefined;
    return new PagedCall(page(), next, ({ snapshots }) => snapshots);
  }

  /** Deletes a snapshot. */
  deleteSnapshot(id: string, options?: CallOptions): CoveCall<void> {
    const path = `/v1/snapshots/${part(id)}`;
    return this.#transport.done({ operation: "deleteSnapshot", method: "DELETE", path }, options);
  }

  /** Adds up tokens, cost and calls of tools. */
  usage(query: QueryOf<"getUsage"> = {}, options?: CallOptions): CoveCall<Schemas["UsageReport"]> {
    return this.#transport.json({
      operation: "getUsage", method: "GET", path: "/v1/usage", query,
    }, options);
  }
}

function at(id: string): string {
  return `/v1/sessions/${part(id)}`;
}

/** A session to work with. */
export class Session {
  /** Its id. */
  readonly id: string;
  /** Its files. */
  readonly files: SessionFiles;
  /** Its contexts of the code interpreter. */
  readonly contexts: CodeContexts;
  readonly #transport: Transport;
  #info: SessionInfo;

  /** Made by the client. */
  constructor(transport: Transport, info: SessionInfo) {
    this.#transport = transport;
    this.#info = info;
    this.id = info.id;
    this.files = new SessionFiles(transport, info.id);
    this.contexts = new CodeContexts(transport, info.id);
  }

  /** What the server said of it last. */
  get info(): SessionInfo {
    return this.#info;
  }

  /** Asks the server what it is like now. */
  refresh(options?: CallOptions): CoveCall<SessionInfo> {
    return this.#note({ operation: "getSession", method: "GET", path: at(this.id) }, options);
  }

  /** Changes it; what is left out stays as it is. */
  update(request: Schemas["UpdateSession"], options?: CallOptions): CoveCall<SessionInfo> {
    return this.#note({
      operation: "updateSession", method: "PATCH", path: at(this.id), json: request,
    }, options);
  }

  /** It takes no messages any more until it is resumed. */
  pause(options?: CallOptions): CoveCall<SessionInfo> {
    return this.#verb("pauseSession", "pause", options);
  }

  /** It takes messages again, with its files and its conversation. */
  resume(options?: CallOptions): CoveCall<SessionInfo> {
    return this.#verb("resumeSession", "resume", options);
  }

  /** Gives up its sandbox; its files are kept. */
  stop(options?: CallOptions): CoveCall<SessionInfo> {
    return this.#verb("stopSession", "stop", options);
  }

  /** Ends it for ever; its files are gone. */
  end(options?: CallOptions): CoveCall<SessionInfo> {
    return this.#note({ operation: "endSession", method: "DELETE", path: at(this.id) }, options);
  }

  /** Ends it, for `await using`; nothing happens where it has ended. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.end();
    } catch (error) {
      if (!(error instanceof GoneError || error instanceof NotFoundError)) throw error;
    }
  }

  /** Copies it with files, conversation and settings. */
  fork(request: Schemas["ForkRequest"] = {}, options?: CallOptions): CoveCall<Session[]> {
    const call = this.#transport.json<Schemas["SessionList"]>({
      operation: "forkSession", method: "POST", path: `${at(this.id)}/fork`, json: request,
      isLong: true,
    }, options);
    return call.map(({ sessions }) => sessions.map((info) => new Session(this.#transport, info)));
  }

  /** Keeps its files as they are; a new session starts from them with `snapshot`. */
  snapshot(request: Schemas["SnapshotRequest"] = {}, options?: CallOptions): CoveCall<Snapshot> {
    return this.#transport.json({
      operation: "createSnapshot", method: "POST", path: `${at(this.id)}/snapshots`, json: request,
      isLong: true,
    }, options);
  }

  /** Sends a message to its agent; the events of the turn come over lost connections, too. */
  send(
    content: Schemas["MessageContent"], settings: MessageSettings = {}, options: CallOptions = {},
  ): Turn {
    return new Turn(this.#transport, this.id, { ...settings, content }, options);
  }

  /** Sends a message and waits for what comes of it. */
  ask(
    content: Schemas["MessageContent"], settings: MessageSettings = {}, options?: CallOptions,
  ): CoveCall<MessageAnswer> {
    return this.#transport.json({
      operation: "sendMessage", method: "POST", path: `${at(this.id)}/messages`,
      query: { wait: true }, json: { ...settings, content }, isLong: true,
    }, options);
  }

  /** Interrupts the turn that runs; whether there was one. */
  interrupt(options?: CallOptions): CoveCall<boolean> {
    const call = this.#transport.json<Schemas["InterruptAnswer"]>({
      operation: "interruptSession", method: "POST", path: `${at(this.id)}/interrupt`,
    }, options);
    return call.map(({ interrupted }) => interrupted);
  }

  /** Events as they happen, over lost connections and restarts, until the session has ended. */
  events(
    query: { readonly types?: string } = {}, options: FollowOptions = {},
  ): EventStream<SessionEvent> {
    const { after, signal, ...rest } = options;
    const source = {
      connect: (from: string | undefined, stop: AbortSignal) =>
        followEvents(this.#transport, this.id, { ...query, after: from },
          { ...rest, signal: stop }),
      read: (message: ServerSentEvent) => documentOf<SessionEvent>(message),
      mark: (_: SessionEvent, message: ServerSentEvent) => message.id,
      isLast: () => false,
      isOver: async () => (await this.refresh(rest)).state === "ended",
    };
    const { maxReconnects } = this.#transport;
    return new EventStream(
      (stop) => resumed(source, after?.toString(), maxReconnects, stop), signal);
  }

  /** The conversation, oldest first. */
  messages(
    query: ListQuery<"listMessages"> = {}, options?: CallOptions,
  ): PagedCall<Schemas["SessionMessageList"], Schemas["SessionMessage"]> {
    const page = (after?: number): CoveCall<Schemas["SessionMessageList"]> =>
      this.#transport.json({
        operation: "listMessages", method: "GET", path: `${at(this.id)}/messages`,
        query: { ...query, ...(after === undefined ? {} : { after }) },
      }, options);
    const next = ({ next_after: after }: Schemas["SessionMessageList"]) =>
      after == null ? undefined : page(after);
    return new PagedCall(page(), next, ({ messages }) => messages);
  }

  /** What its agent wrote to standard error. */
  logs(query: QueryOf<"getSessionLogs"> = {}, options?: CallOptions):
  CoveCall<Schemas["SessionLogs"]> {
    const path = `${at(this.id)}/logs`;
    return this.#transport.json({ operation: "getSessionLogs", method: "GET", path, query },
      options);
  }

  /** Runs a command and waits for it: a line for `/bin/sh`, or a program with its arguments. */
  async exec(
    command: string | readonly string[], settings: ExecSettings = {}, options: CallOptions = {},
  ): Promise<SessionExecResult> {
    return (await this.start(command, settings, options)).wait();
  }

  /** Starts a command in the background. */
  start(
    command: string | readonly string[], settings: ExecSettings = {}, options: CallOptions = {},
  ): Promise<SessionCommand> {
    return startCommand(this.#transport, this.id, command, settings, options);
  }

  /** Opens a terminal; a shell unless `argv` is given. */
  terminal(settings: TerminalSettings = {}, options: CallOptions = {}): Promise<Terminal> {
    return Terminal.open(this.#transport, this.id, settings, options);
  }

  /** Terminals that can be attached to, oldest first. */
  terminals(options?: CallOptions): CoveCall<Schemas["SessionTerminalList"]["terminals"]> {
    const path = `${at(this.id)}/terminals`;
    const spec = { operation: "listTerminals", method: "GET", path } as const;
    return this.#transport.json<Schemas["SessionTerminalList"]>(spec, options)
      .map(({ terminals }) => terminals);
  }

  /** Ends a terminal and its program. */
  endTerminal(terminal: string, options?: CallOptions): CoveCall<void> {
    const path = `${at(this.id)}/terminals/${part(terminal)}`;
    return this.#transport.done({ operation: "endTerminal", method: "DELETE", path }, options);
  }

  /** Runs a cell in the default context of a language, Python unless given. */
  run(
    code: string, settings: CellSettings & { readonly language?: string | undefined } = {},
    options: CallOptions = {},
  ): Promise<CellReport> {
    const { language = "python", ...rest } = settings;
    return new CodeContext(this.#transport, this.id, language).execute(code, rest, options);
  }

  /** What its sandbox uses now. */
  metrics(options?: CallOptions): CoveCall<Schemas["SessionMetrics"]> {
    const path = `${at(this.id)}/metrics`;
    return this.#transport.json({ operation: "getSessionMetrics", method: "GET", path }, options);
  }

  /** Grants that it has now. */
  grants(options?: CallOptions): CoveCall<Grant[]> {
    return this.refresh(options).map(({ grants }) => grants ?? []);
  }

  /** Gives it these grants in place of all that it has. */
  setGrants(grants: readonly Grant[], options?: CallOptions): CoveCall<SessionInfo> {
    return this.update({ grants: [...grants] }, options);
  }

  /** Gives it grants beside those that it has; one at the same port is replaced. */
  async give(grants: Grant | readonly Grant[], options?: CallOptions): Promise<SessionInfo> {
    const added = Array.isArray(grants) ? grants as readonly Grant[] : [grants as Grant];
    const ports = new Set(added.map(grantPort));
    const kept = (await this.grants(options)).filter((it) => !ports.has(grantPort(it)));
    return this.setGrants([...kept, ...added], options);
  }

  /** Takes a grant back, by its name or port; what is connected over it ends. */
  async takeBack(nameOrPort: string | number, options?: CallOptions): Promise<SessionInfo> {
    const grants = await this.grants(options);
    const left = grants.filter(
      (it) => grantName(it) !== nameOrPort && grantPort(it) !== nameOrPort);
    if (left.length === grants.length) {
      const names = grants.map(grantName).join(", ") || "none";
      throw new CoveError(`session ${this.id} has no grant ${nameOrPort}; it has ${names}`);
    }
    return this.setGrants(left, options);
  }

  /** Reads a database or warehouse that it was granted, with SQL. */
  query(
    grant: string, sql: string, settings: Omit<Schemas["GrantQuery"], "sql"> = {},
    options?: CallOptions,
  ): CoveCall<GrantQueryResult> {
    return this.#transport.json({
      operation: "queryGrant", method: "POST",
      path: `${at(this.id)}/grants/${part(grant)}/query`, json: { ...settings, sql },
    }, options);
  }

  /** Lists tables of a grant, or describes one of them. */
  describe(
    grant: string, name?: string, options?: CallOptions,
  ): CoveCall<Schemas["GrantDescription"]> {
    return this.#transport.json({
      operation: "describeGrant", method: "GET",
      path: `${at(this.id)}/grants/${part(grant)}/describe`, query: { name },
    }, options);
  }

  #verb(operation: string, verb: string, options?: CallOptions): CoveCall<SessionInfo> {
    const path = `${at(this.id)}/${verb}`;
    return this.#note({ operation, method: "POST", path, isLong: true }, options);
  }

  #note(spec: Parameters<Transport["json"]>[0], options?: CallOptions): CoveCall<SessionInfo> {
    return this.#transport.json<SessionInfo>(spec, options).map((info) => {
      this.#info = info;
      return info;
    });
  }
}

/** Ports inside by kind, where a grant names none. */
const GRANT_PORTS: Readonly<Record<Grant["kind"], number>> = {
  postgres: 5432, mysql: 3306, catalog: 8181, http: 3128, model: 8100,
};

/** Name of a grant in queries and records: `postgres:shop`, `http`. */
export function grantName(grant: Grant): string {
  if ("tenant" in grant) return `${grant.kind}:${grant.tenant}`;
  return "warehouse" in grant ? `${grant.kind}:${grant.warehouse}` : grant.kind;
}

function grantPort(grant: Grant): number {
  return grant.port ?? GRANT_PORTS[grant.kind];
}

function followEvents(
  transport: Transport, session: string, query: QueryParameters, options: CallOptions,
): Promise<Response> {
  return transport.send({
    operation: "followSession", method: "GET", path: `${at(session)}/events`, query,
    accept: "text/event-stream", isStream: true,
  }, options);
}

type QueryParameters = Readonly<Record<string, string | undefined>>;

/** The turn of a message: its events until `done`, however often the connection is lost. */
export class Turn extends EventStream<SessionEvent> {
  /** Made by its session. */
  constructor(
    transport: Transport, session: string, request: Schemas["MessageRequest"],
    options: CallOptions,
  ) {
    const { signal, ...rest } = options;
    let turn: string | undefined;
    let isSent = false;
    const source = {
      connect: (after: string | undefined, stop: AbortSignal) => {
        if (!isSent) {
          isSent = true;
          return transport.send({
            operation: "sendMessage", method: "POST", path: `${at(session)}/messages`,
            json: request, accept: "text/event-stream", isStream: true,
          }, { ...rest, signal: stop });
        }
        if (turn === undefined || after === undefined) {
          throw new CoveError(`session ${session}: the connection was lost before the turn's first `
            + "event; the session's events say whether the message was taken");
        }
        return followEvents(transport, session, { after }, { ...rest, signal: stop });
      },
      read: (message: ServerSentEvent) => {
        const event = documentOf<SessionEvent>(message);
        turn ??= event.turn ?? undefined;
        // Behind a lost connection there are events of everything.
        return event.turn === turn ? event : undefined;
      },
      mark: (_: SessionEvent, message: ServerSentEvent) => message.id,
      isLast: (event: SessionEvent) => event.type === "done",
    };
    super((stop) => resumed(source, undefined, transport.maxReconnects, stop), signal);
  }

  /** Reads the turn to its end: the texts of the agent, line by line. Throws where it failed. */
  async text(): Promise<string> {
    const texts: string[] = [];
    for await (const { type, data } of this) {
      const fields = data as { readonly text?: unknown; readonly error?: unknown };
      if (type === "text") texts.push(String(fields.text));
      if (type === "error") throw new CoveError(`the turn failed: ${String(fields.error)}`);
      if (type === "done") return texts.join("\n");
    }
    throw new CoveProtocolError("the turn ended without `done`");
  }
}
