// One HTTP request and its repetitions. What may be sent twice is decided here and nowhere else:
//
// - 429 and 503 with `retry-after` were refused before anything was done: any call is repeated.
// - A lost answer, 502 and 504 leave open what was done: repeated are GET, PUT, DELETE, and POST
//   where the contract says that the operation takes an idempotency key.
// - A connection that was refused has sent nothing: any call is repeated.

import type { FileContent } from "./bytes.js";
import { CoveCall } from "./call.js";
import { KEYED_OPERATIONS } from "./contract.js";
import {
  CoveConnectionError, CoveError, CoveStatusError, CoveTimeoutError, errorAnswer, statusError,
} from "./errors.js";

/** What a call may say about itself. */
export interface CallOptions {
  /** Ends the call: its promise is rejected with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds until an attempt has failed; 0 for no limit. */
  readonly timeoutMs?: number | undefined;
  /** How often it may be tried again. */
  readonly maxRetries?: number | undefined;
  /** Headers beside the client's. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Key by which the server knows a repetition, for POST; one is made for each call otherwise. */
  readonly idempotencyKey?: string | undefined;
}

/** A WebSocket, as browsers, Node.js 22, Deno, Bun and the package `ws` have it. */
export interface WebSocketLike {
  /** How bytes are handed over; set to `arraybuffer`. */
  binaryType: string;
  /** Sends a message. */
  send(data: string | Uint8Array): void;
  /** Closes it. */
  close(code?: number, reason?: string): void;
  /** Listens. */
  addEventListener(type: "open" | "error", listener: (event: unknown) => void): void;
  /** Listens. */
  addEventListener(type: "message", listener: (event: { data: unknown }) => void): void;
  /** Listens. */
  addEventListener(
    type: "close", listener: (event: { code: number; reason: string }) => void,
  ): void;
}

/** Constructor of WebSockets. */
export type WebSocketClass = new (url: string, protocols: string[]) => WebSocketLike;

/** Settings of a client. */
export interface ClientOptions {
  /** Address of the server; `COVE_URL`, or `http://127.0.0.1:4100`, if it is left out. */
  readonly url?: string | undefined;
  /** Token, or what returns one that is valid now; `COVE_TOKEN` if it is left out. */
  readonly token?: string | (() => string | Promise<string>) | undefined;
  /** In place of the runtime's `fetch`. */
  readonly fetch?: typeof fetch | undefined;
  /** In place of the runtime's `WebSocket`; Node.js 20 has none. */
  readonly WebSocket?: WebSocketClass | undefined;
  /** Milliseconds until an attempt has failed, 60 000 unless given; 0 for no limit. */
  readonly timeoutMs?: number | undefined;
  /** How often a call may be tried again: 2 unless given. */
  readonly maxRetries?: number | undefined;
  /** How often in a row a stream connects anew without an event in between: 10 unless given. */
  readonly maxReconnects?: number | undefined;
  /** Headers of every request. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

/** Values of a query; `undefined` and `null` are left out, a list is given item by item. */
export type Query = Readonly<
  Record<string, string | number | boolean | readonly string[] | null | undefined>
>;

/** A request, as a resource describes it. */
export interface CallSpec {
  /** Its `operationId` in the contract. */
  readonly operation: string;
  readonly method: "GET" | "PUT" | "POST" | "PATCH" | "DELETE";
  readonly path: string;
  readonly query?: Query | undefined;
  /** Document to send. */
  readonly json?: unknown;
  /** Bytes to send instead. */
  readonly content?: FileContent | undefined;
  readonly contentType?: string;
  readonly accept?: string;
  /** True for a body that is read as it comes: the time of the call ends with the head. */
  readonly isStream?: boolean;
  /** True for a call that waits for what it began: without a limit unless one is given. */
  readonly isLong?: boolean;
  /** True for what makes another thing when it is sent twice, although it is a PUT. */
  readonly isOnce?: boolean;
  /** False where the server refuses an idempotency key. */
  readonly isKeyed?: boolean;
}

const URL_DEFAULT = "http://127.0.0.1:4100";
const TIMEOUT_MS_DEFAULT = 60_000;
const RETRIES_DEFAULT = 2;
const RECONNECTS_DEFAULT = 10;
const PAUSE_MS_FIRST = 250;
const PAUSE_MS_MAX = 8_000;
/** Longest pause that is granted to a server; one that asks for more gets its error thrown. */
const RETRY_AFTER_MS_MAX = 30_000;
/** What the runtimes call a connection that was never made. */
const NEVER_SENT: ReadonlySet<string> = /* @__PURE__ */ new Set([
  "ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "ConnectionRefused",
  "UND_ERR_CONNECT_TIMEOUT",
]);

/** Reads a variable where the runtime has variables and lets it. */
function variable(name: string): string | undefined {
  try {
    const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
    return process?.env?.[name] || undefined;
  } catch {
    // Deno without the permission.
    return undefined;
  }
}

/** Sends requests as the settings say. */
export class Transport {
  /** Address of the server, without a slash at its end. */
  readonly url: string;
  /** How often in a row a stream connects anew. */
  readonly maxReconnects: number;
  readonly #options: ClientOptions;

  constructor(options: ClientOptions) {
    this.#options = options;
    this.url = (options.url ?? variable("COVE_URL") ?? URL_DEFAULT).replace(/\/+$/, "");
    this.maxReconnects = options.maxReconnects ?? RECONNECTS_DEFAULT;
  }

  /** The same with other settings. */
  withOptions(options: ClientOptions): Transport {
    return new Transport({ ...this.#options, ...options });
  }

  /** Asks for a document. */
  json<T>(spec: CallSpec, options?: CallOptions): CoveCall<T> {
    return new CoveCall(this.send(spec, options), (response) => response.json() as Promise<T>);
  }

  /** Does something of which there is nothing to read. */
  done(spec: CallSpec, options?: CallOptions): CoveCall<void> {
    return new CoveCall(this.send(spec, options), () => undefined);
  }

  /** Sends it, again where that is allowed, until there is an answer that is no error. */
  async send(spec: CallSpec, options: CallOptions = {}): Promise<Response> {
    const isSentOnce = spec.isOnce === true || spec.content instanceof ReadableStream
      || (spec.method === "POST" && !KEYED_OPERATIONS.has(spec.operation));
    const isRepeatable = !isSentOnce;
    const retriesMax = options.maxRetries ?? this.#options.maxRetries ?? RETRIES_DEFAULT;
    const key = spec.method === "POST" && spec.isKeyed !== false
      ? options.idempotencyKey ?? crypto.randomUUID() : undefined;
    for (let attempt = 0; ; attempt += 1) {
      let pause = pauseMs(attempt);
      let failure: CoveError;
      try {
        const response = await this.#attempt(spec, options, key);
        if (response.ok) return response;
        const answer = errorAnswer(response, await response.text());
        failure = statusError(answer);
        if (!mayRepeat(failure as CoveStatusError, isRepeatable)) throw failure;
        pause = Math.max(pause, (answer.retryAfterS ?? 0) * 1000);
      } catch (error) {
        if (!(error instanceof CoveConnectionError)) throw error;
        if (!isRepeatable && !wasNeverSent(error)) throw error;
        failure = error;
      }
      const isUsed = spec.content instanceof ReadableStream && spec.content.locked;
      if (attempt >= retriesMax || pause > RETRY_AFTER_MS_MAX || isUsed) throw failure;
      await sleep(pause, options.signal);
    }
  }

  /** Opens a WebSocket of the server, with the token as a subprotocol. */
  async openSocket(path: string, query: Query, protocols: string[]): Promise<WebSocketLike> {
    const found = this.#options.WebSocket
      ?? (globalThis as { WebSocket?: unknown }).WebSocket as WebSocketClass | undefined;
    if (found === undefined) {
      throw new CoveError("this runtime has no WebSocket: give the client one as `WebSocket`, "
        + "such as that of the package `ws`");
    }
    const token = await this.#token();
    const bearer = token === undefined ? [] : [`bearer.${token}`];
    const url = this.#address(path, query).replace(/^http/, "ws");
    const socket = new found(url, [...protocols, ...bearer]);
    socket.binaryType = "arraybuffer";
    return socket;
  }

  /** The token that is valid now. */
  async #token(): Promise<string | undefined> {
    const { token } = this.#options;
    return typeof token === "function" ? token() : token ?? variable("COVE_TOKEN");
  }

  #address(path: string, query: Query = {}): string {
    const parameters = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
      if (value === undefined || value === null) continue;
      for (const item of Array.isArray(value) ? value : [value]) {
        parameters.append(name, String(item));
      }
    }
    const text = parameters.toString();
    return `${this.url}${path}${text === "" ? "" : `?${text}`}`;
  }

  async #attempt(
    spec: CallSpec, options: CallOptions, key: string | undefined,
  ): Promise<Response> {
    const token = await this.#token();
    const headers = new Headers({
      accept: spec.accept ?? "application/json",
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...(key === undefined ? {} : { "idempotency-key": key }),
      ...this.#options.headers,
      ...options.headers,
    });
    let body = spec.content;
    if (spec.json !== undefined) {
      body = JSON.stringify(spec.json);
      headers.set("content-type", "application/json");
    } else if (spec.contentType !== undefined) {
      headers.set("content-type", spec.contentType);
    }
    const limit = spec.isLong === true ? 0 : this.#options.timeoutMs ?? TIMEOUT_MS_DEFAULT;
    const watch = new CallWatch(options.signal, options.timeoutMs ?? limit);
    const init: RequestInit & { duplex?: "half" } = {
      method: spec.method, headers, signal: watch.signal,
    };
    if (body !== undefined) init.body = body as BodyInit;
    // What the standard asks for where a body is a stream.
    if (body instanceof ReadableStream) init.duplex = "half";
    try {
      const fetcher = this.#options.fetch ?? globalThis.fetch;
      const response = await fetcher(this.#address(spec.path, spec.query), init);
      if (spec.isStream === true && response.ok) {
        watch.pass();
        return response;
      }
      // Read here, so that an answer that breaks off is one that was lost.
      const content = await response.arrayBuffer();
      watch.end();
      const { status, statusText } = response;
      const isEmpty = status === 204 || status === 205 || status === 304;
      return new Response(isEmpty ? null : content, {
        status, statusText, headers: response.headers,
      });
    } catch (error) {
      watch.end();
      throw watch.failure(error, `${spec.method} ${this.url}${spec.path}`);
    }
  }
}

/** The time of one attempt, and the caller's signal. */
class CallWatch {
  readonly #controller = new AbortController();
  readonly #caller: AbortSignal | undefined;
  readonly #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #limit: number;
  #isLate = false;
  readonly #abort = (): void => this.#controller.abort(this.#caller?.reason);

  constructor(caller: AbortSignal | undefined, limit: number) {
    this.#caller = caller;
    this.#limit = limit;
    if (caller?.aborted === true) this.#abort();
    caller?.addEventListener("abort", this.#abort);
    if (limit <= 0) return;
    this.#timer = setTimeout(() => {
      this.#isLate = true;
      this.#controller.abort();
    }, limit);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** The head is there; the caller's signal goes on to end the body. */
  pass(): void {
    clearTimeout(this.#timer);
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#caller?.removeEventListener("abort", this.#abort);
  }

  /** What is thrown for what `fetch` threw. */
  failure(error: unknown, what: string): unknown {
    if (this.#caller?.aborted === true) return this.#caller.reason;
    if (this.#isLate) {
      return new CoveTimeoutError(`${what}: no answer in ${this.#limit} ms`, { cause: error });
    }
    // `fetch` says little; its cause says why.
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    const reason = cause instanceof Error ? cause.message || error : cause;
    return new CoveConnectionError(`${what}: ${reason}`, { cause: error });
  }
}

function mayRepeat(failure: CoveStatusError, isRepeatable: boolean): boolean {
  const { status } = failure;
  if (status === 429 || status === 503) return failure.retry || failure.retryAfterS !== undefined;
  return (status === 502 || status === 504) && isRepeatable;
}

/** Looks for the reason of the runtime, which is below what `fetch` throws. */
function wasNeverSent(error: unknown): boolean {
  for (let cause = error, depth = 0; cause instanceof Error && depth < 4; depth += 1) {
    if (NEVER_SENT.has(String((cause as { code?: unknown }).code))) return true;
    if (cause instanceof AggregateError && cause.errors.length > 0) {
      return cause.errors.every(wasNeverSent);
    }
    cause = cause.cause;
  }
  return false;
}

/** Pause before another attempt: exponential, bounded, anything from half of it to all. */
export function pauseMs(attempt: number): number {
  const whole = Math.min(PAUSE_MS_FIRST * 2 ** attempt, PAUSE_MS_MAX);
  return whole * (0.5 + Math.random() / 2);
}

/** Waits, or throws the signal's reason when it is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) {
      reject(signal.reason);
      return;
    }
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** A part of a path, whatever is in it; what `fetch` would take for another path is refused. */
export function part(text: string): string {
  if (text === "" || text === "." || text === "..") {
    throw new CoveError(`${JSON.stringify(text)} is no name: it must not be empty, "." or ".."`);
  }
  return encodeURIComponent(text);
}
