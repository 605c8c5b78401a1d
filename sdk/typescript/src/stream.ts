// Server-sent events, and streams of them that go on behind the last event after a lost connection.

import {
  CoveConnectionError, CoveError, CoveProtocolError, CoveStatusError, CoveTimeoutError,
} from "./errors.js";
import { pauseMs, sleep } from "./transport.js";

/** A message of a stream of server-sent events. */
export interface ServerSentEvent {
  /** Its id, if it has one. */
  readonly id: string | undefined;
  /** Its kind, `message` if it does not say. */
  readonly event: string;
  /** Its data. */
  readonly data: string;
}

/** Longest message. The largest of the server is a result with all of its output. */
const EVENT_CHARACTERS_MAX = 256 << 20;
/** Silence after which a connection counts as lost: four of the server's signs of life. */
const SILENCE_MS_MAX = 60_000;

/** Reads messages from a body, as the HTML standard says. */
export async function* serverSentEvents(
  response: Response, signal?: AbortSignal,
): AsyncGenerator<ServerSentEvent, void, undefined> {
  if (response.body === null) return;
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let lines: string[] = [];
  let size = 0;
  try {
    for (;;) {
      const { done, value } = await unlessSilent(reader, signal);
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      // A line end may be one of three, and the last character half of one.
      const parts = rest.split(/\r\n|\n|\r(?!$)/);
      rest = parts.pop() ?? "";
      for (const line of parts) {
        if (line !== "") {
          lines.push(line);
          size += line.length;
          continue;
        }
        const message = messageOf(lines);
        lines = [];
        size = 0;
        if (message !== undefined) yield message;
      }
      if (size + rest.length > EVENT_CHARACTERS_MAX) {
        throw new CoveProtocolError(`an event has more than ${EVENT_CHARACTERS_MAX} characters`);
      }
    }
  } finally {
    // Also where the caller leaves the loop: the server is to hear of it.
    await reader.cancel().catch(() => undefined);
  }
}

async function unlessSilent(
  reader: ReadableStreamDefaultReader<Uint8Array>, signal: AbortSignal | undefined,
): Promise<ReadableStreamReadResult<Uint8Array>> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stop: (() => void) | undefined;
  const silence = new Promise<never>((_, reject) => {
    const late = (): void =>
      reject(new CoveTimeoutError(`the stream was silent for ${SILENCE_MS_MAX} ms`));
    timer = setTimeout(late, SILENCE_MS_MAX);
    stop = () => reject(signal?.reason);
    if (signal?.aborted === true) stop();
    signal?.addEventListener("abort", stop);
  });
  try {
    return await Promise.race([reader.read(), silence]);
  } catch (error) {
    if (error instanceof CoveError || signal?.aborted === true) throw error;
    throw new CoveConnectionError(`the stream broke off: ${String(error)}`, { cause: error });
  } finally {
    clearTimeout(timer);
    if (stop !== undefined) signal?.removeEventListener("abort", stop);
  }
}

function messageOf(lines: readonly string[]): ServerSentEvent | undefined {
  const data: string[] = [];
  let event = "message";
  let id: string | undefined;
  for (const line of lines) {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") data.push(value);
    else if (name === "event") event = value;
    else if (name === "id") id = value;
  }
  return data.length === 0 ? undefined : { id, event, data: data.join("\n") };
}

/** Events as they come. Leaving the loop, `cancel()` or the call's signal end the connection. */
export class EventStream<T> implements AsyncIterableIterator<T> {
  readonly #controller = new AbortController();
  readonly #events: AsyncGenerator<T, void, undefined>;

  /** Made by the client. */
  constructor(
    make: (signal: AbortSignal) => AsyncGenerator<T, void, undefined>,
    signal?: AbortSignal,
  ) {
    const stop = (): void => this.#controller.abort(signal?.reason);
    if (signal?.aborted === true) stop();
    signal?.addEventListener("abort", stop);
    const events = make(this.#controller.signal);
    this.#events = (async function* until() {
      try {
        yield* events;
      } finally {
        signal?.removeEventListener("abort", stop);
      }
    })();
  }

  /** The next event. */
  next(): Promise<IteratorResult<T, void>> {
    return this.#events.next();
  }

  /** Ends the stream, as leaving a loop does. */
  async return(): Promise<IteratorResult<T, void>> {
    this.#controller.abort(new CoveError("the stream was left"));
    return this.#events.return();
  }

  /** Ends the stream. A `next()` under way is rejected. */
  cancel(): void {
    this.#controller.abort(new CoveError("the stream was cancelled"));
    // What was not begun has no connection to end.
    this.#events.return().catch(() => undefined);
  }

  /** All events until the end. */
  async all(): Promise<T[]> {
    const all: T[] = [];
    for await (const event of this) all.push(event);
    return all;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Ends the stream, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }
}

/** What a stream that can be taken up again has to say. */
export interface Resumable<T> {
  /** Connects; `after` is what the last event was marked with. */
  connect(after: string | undefined, signal: AbortSignal): Promise<Response>;
  /** Reads an event; `undefined` for a message that is none. */
  read(message: ServerSentEvent): T | undefined;
  /** What to connect with behind this event; `undefined` leaves that as it was. */
  mark(event: T, message: ServerSentEvent): string | undefined;
  /** Whether nothing comes behind this event. */
  isLast(event: T): boolean;
  /** Whether a stream that ended without a last event is over, rather than interrupted. */
  isOver?(): Promise<boolean>;
}

/** Follows a stream over lost connections, until its last event. */
export async function* resumed<T>(
  source: Resumable<T>, from: string | undefined, reconnectsMax: number, signal: AbortSignal,
): AsyncGenerator<T, void, undefined> {
  let after = from;
  let attempts = 0;
  for (;;) {
    let failure: unknown;
    try {
      const response = await source.connect(after, signal);
      for await (const message of serverSentEvents(response, signal)) {
        const event = source.read(message);
        if (event === undefined) continue;
        attempts = 0;
        after = source.mark(event, message) ?? after;
        yield event;
        if (source.isLast(event)) return;
      }
      if (await source.isOver?.() === true) return;
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      if (!isPassing(error)) throw error;
      failure = error;
    }
    if (attempts >= reconnectsMax) {
      throw failure ?? new CoveConnectionError("the stream ends again and again without an event");
    }
    await sleep(pauseMs(attempts), signal);
    attempts += 1;
  }
}

/** Whether it is worth connecting again: a server that starts or stops, a proxy without one. */
export function isPassing(error: unknown): boolean {
  if (error instanceof CoveConnectionError) return true;
  return error instanceof CoveStatusError
    && (error.retry || error.status === 502 || error.status === 503 || error.status === 504);
}

/** Reads the data of a message as a document. */
export function documentOf<T>(message: ServerSentEvent): T {
  try {
    return JSON.parse(message.data) as T;
  } catch (error) {
    throw new CoveProtocolError(`an event is not JSON: ${message.data.slice(0, 100)}`, {
      cause: error,
    });
  }
}
