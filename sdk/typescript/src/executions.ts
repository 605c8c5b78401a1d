// Executions and their queue: one program, one verdict.

import { CoveCall, PagedCall } from "./call.js";
import { fromBase64 } from "./bytes.js";
import { CoveError, CoveProtocolError, CoveTimeoutError } from "./errors.js";
import { MessageSocket } from "./socket.js";
import { EventStream, documentOf, isPassing, resumed } from "./stream.js";
import { type CallOptions, type Transport, part, pauseMs, sleep } from "./transport.js";
import type {
  Execution, ExecutionEvent, ExecutionRecord, ExecutionRequest, ListQuery, QueueStats, Schemas,
} from "./types.js";

/** Milliseconds that one request for an end waits before the next one. */
const WAIT_MS = 60_000;

/** Options of a stream that can be taken up again. */
export interface FollowOptions extends CallOptions {
  /** Number of the last event that was seen: what comes after it. */
  readonly after?: number | undefined;
}

/** Programs that are run once, with a verdict. */
export class Executions {
  readonly #transport: Transport;

  /** Made by the client. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Runs a program and answers with its result; nothing is stored. */
  run(request: ExecutionRequest, options?: CallOptions): CoveCall<Execution> {
    const spec = {
      operation: "runExecution", method: "POST", path: "/v1/executions", query: { wait: true },
      json: request, isLong: true, isKeyed: false,
    } as const;
    return this.#transport.json(spec, options);
  }

  /** Accepts a program durably; it runs when its turn comes. */
  submit(request: ExecutionRequest, options?: CallOptions): CoveCall<ExecutionRecord> {
    const spec = {
      operation: "createExecution", method: "POST", path: "/v1/executions", json: request,
    } as const;
    return this.#transport.json(spec, options);
  }

  /** Accepts all of them, or none. */
  submitBatch(
    requests: readonly ExecutionRequest[], options?: CallOptions,
  ): CoveCall<ExecutionRecord[]> {
    const call = this.#transport.json<Schemas["BatchAnswer"]>({
      operation: "createBatch", method: "POST", path: "/v1/executions/batch",
      json: { executions: requests },
    }, options);
    return call.map(({ executions }) => executions);
  }

  /** Shows an execution and, when it has ended, its result. */
  get(id: string, options?: CallOptions): CoveCall<ExecutionRecord> {
    const spec = { operation: "getExecution", method: "GET", path: path(id) } as const;
    return this.#transport.json(spec, options);
  }

  /** Waits until it has ended, for `timeoutMs` at most (without a limit unless given). */
  async wait(id: string, options: CallOptions = {}): Promise<ExecutionRecord> {
    const { timeoutMs = 0 } = options;
    const end = timeoutMs > 0 ? Date.now() + timeoutMs : Number.POSITIVE_INFINITY;
    const spec = {
      operation: "getExecution", method: "GET", path: path(id), query: { wait: true },
    } as const;
    let failures = 0;
    for (;;) {
      const left = Math.max(end - Date.now(), 1);
      const step = { ...options, timeoutMs: Math.min(left, WAIT_MS), maxRetries: 0 };
      try {
        const record = await this.#transport.json<ExecutionRecord>(spec, step);
        if (isOver(record)) return record;
      } catch (error) {
        if (error instanceof CoveTimeoutError) {
          if (Date.now() >= end) throw error;
          continue;
        }
        if (!isPassing(error) || failures >= this.#transport.maxReconnects) throw error;
        failures += 1;
      }
      await sleep(pauseMs(failures), options.signal);
    }
  }

  /** Submits and waits; the result, or an error where there is none. */
  async submitAndWait(request: ExecutionRequest, options: CallOptions = {}): Promise<Execution> {
    const { id } = await this.submit(request, { ...options, timeoutMs: undefined });
    return resultOf(await this.wait(id, { ...options, idempotencyKey: undefined }));
  }

  /** Events as they happen, over lost connections and restarts, until the last one. */
  watch(id: string, options: FollowOptions = {}): EventStream<ExecutionEvent> {
    const { after, signal, ...rest } = options;
    const connect = (from: string | undefined, stop: AbortSignal): Promise<Response> => {
      const spec = {
        operation: "followExecution", method: "GET", path: `${path(id)}/events`,
        query: { after: from }, accept: "text/event-stream", isStream: true,
      } as const;
      return this.#transport.send(spec, { ...rest, signal: stop });
    };
    const source = {
      connect,
      read: (message: { id: string | undefined; event: string; data: string }) =>
        documentOf<ExecutionEvent>(message),
      mark: (event: ExecutionEvent) => String(event.seq),
      isLast: (event: ExecutionEvent) => event.type === "verdict" || event.type === "ended",
    };
    const { maxReconnects } = this.#transport;
    return new EventStream(
      (stop) => resumed(source, after?.toString(), maxReconnects, stop), signal);
  }

  /** Begins a program with input over a WebSocket, on a terminal where `terminal` is given. */
  async open(request: ExecutionRequest, options: CallOptions = {}): Promise<InteractiveExecution> {
    const { id } = await this.submit({ ...request, interactive: true }, options);
    const socket = await MessageSocket.open(this.#transport, {
      path: `${path(id)}/events`, signal: options.signal,
    });
    return new InteractiveExecution(id, socket);
  }

  /** Ends an execution. */
  cancel(id: string, options?: CallOptions): CoveCall<ExecutionRecord> {
    const spec = { operation: "cancelExecution", method: "DELETE", path: path(id) } as const;
    return this.#transport.json(spec, options);
  }

  /** Queues a dead execution again. */
  retry(id: string, options?: CallOptions): CoveCall<ExecutionRecord> {
    const spec = {
      operation: "retryExecution", method: "POST", path: `${path(id)}/retry`,
    } as const;
    return this.#transport.json(spec, options);
  }

  /** Lists executions, newest first, without results. */
  list(
    query: ListQuery<"listExecutions"> = {}, options?: CallOptions,
  ): PagedCall<Schemas["ExecutionList"], ExecutionRecord> {
    const page = (cursor?: string): CoveCall<Schemas["ExecutionList"]> => this.#transport.json({
      operation: "listExecutions", method: "GET", path: "/v1/executions",
      query: { ...query, cursor },
    }, options);
    const next = ({ next_cursor: cursor }: Schemas["ExecutionList"]) =>
      cursor ? page(cursor) : undefined;
    return new PagedCall(page(), next, ({ executions }) => executions);
  }

  /** Lists languages, with the tools that run them. */
  languages(options?: CallOptions): CoveCall<Schemas["Language"][]> {
    const spec = { operation: "listLanguages", method: "GET", path: "/v1/languages" } as const;
    const call = this.#transport.json<Schemas["LanguageList"]>(spec, options);
    return call.map(({ languages }) => languages);
  }
}

/** The result of an execution that has ended; throws where it ended without one. */
export function resultOf(record: ExecutionRecord): Execution {
  if (record.result != null) return record.result;
  const why = record.message == null ? "" : `: ${record.message}`;
  throw new CoveError(`execution ${record.id} is ${record.state} and has no result${why}`);
}

function isOver({ state }: ExecutionRecord): boolean {
  return state !== "queued" && state !== "running";
}

function path(id: string): string {
  return `/v1/executions/${part(id)}`;
}

/** A program whose input comes from here. It ends when this is closed. */
export class InteractiveExecution implements AsyncIterable<ExecutionEvent> {
  /** Its id. */
  readonly id: string;
  readonly #socket: MessageSocket;

  /** Made by `executions.open`. */
  constructor(id: string, socket: MessageSocket) {
    this.id = id;
    this.#socket = socket;
  }

  /** Sends standard input, or what is typed on its terminal. */
  write(input: string | Uint8Array): void {
    this.#socket.send(typeof input === "string" ? new TextEncoder().encode(input) : input);
  }

  /** Ends standard input. */
  endInput(): void {
    this.#socket.sendJson({ type: "eof" });
  }

  /** Sends a signal, such as `SIGINT`. */
  signal(signal: string): void {
    this.#socket.sendJson({ type: "signal", signal });
  }

  /** Tells the size of its terminal. */
  resize(size: Schemas["TerminalSize"]): void {
    this.#socket.sendJson({ type: "resize", ...size });
  }

  /** Ends the execution; the last event says so. */
  cancel(): void {
    this.#socket.sendJson({ type: "cancel" });
  }

  /** Closes the connection, and ends the execution with it. */
  close(): void {
    this.#socket.close();
  }

  /** Reads the events that are left, to the result. */
  async result(): Promise<Execution> {
    for await (const event of this) {
      if (event.type === "verdict") return event.result;
      if (event.type === "ended") {
        throw new CoveError(`execution ${this.id} is ${event.state}: ${event.message ?? ""}`);
      }
    }
    throw new CoveProtocolError(`execution ${this.id}: the WebSocket ended before its last event`);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<ExecutionEvent, void, undefined> {
    for await (const message of this.#socket) {
      if (typeof message !== "string") continue;
      yield documentOf<ExecutionEvent>({ id: undefined, event: "message", data: message });
    }
  }

  /** Closes it, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}

/** Bytes of a `stdout` or `stderr` event. */
export function outputOf(
  event: { readonly data?: string | null; readonly data_base64?: string | null },
): Uint8Array {
  if (event.data_base64 != null) return fromBase64(event.data_base64);
  return new TextEncoder().encode(event.data ?? "");
}

/** The queue of asynchronous executions. */
export class Queue {
  readonly #transport: Transport;

  /** Made by the client. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Figures of the token's own executions; of all, for an operator who asks for that. */
  stats(query: { readonly all?: boolean } = {}, options?: CallOptions): CoveCall<QueueStats> {
    const spec = { operation: "getQueue", method: "GET", path: "/v1/queue", query } as const;
    return this.#transport.json(spec, options);
  }

  /** Starts no more executions until it is resumed. */
  pause(options?: CallOptions): CoveCall<QueueStats> {
    return this.#post("pauseQueue", "pause", options);
  }

  /** Goes on. */
  resume(options?: CallOptions): CoveCall<QueueStats> {
    return this.#post("resumeQueue", "resume", options);
  }

  /** Cancels what waits; the number of executions. */
  drain(query: { readonly all?: boolean } = {}, options?: CallOptions): CoveCall<number> {
    return this.#change("drainQueue", "drain", query, options);
  }

  /** Queues what is dead again; the number of executions. */
  retryDead(query: { readonly all?: boolean } = {}, options?: CallOptions): CoveCall<number> {
    return this.#change("retryDead", "retry", query, options);
  }

  #post(operation: string, verb: string, options?: CallOptions): CoveCall<QueueStats> {
    return this.#transport.json({ operation, method: "POST", path: `/v1/queue/${verb}` }, options);
  }

  #change(
    operation: string, verb: string, query: { readonly all?: boolean }, options?: CallOptions,
  ): CoveCall<number> {
    const spec = { operation, method: "POST", path: `/v1/queue/${verb}`, query } as const;
    const call = this.#transport.json<Schemas["QueueChange"]>(spec, options);
    return call.map(({ changed }) => changed);
  }
}
