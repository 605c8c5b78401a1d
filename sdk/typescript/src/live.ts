// Many things that are followed on one WebSocket (`/v1/live`).

import { CoveConnectionError, CoveError, statusError } from "./errors.js";
import { MessageSocket } from "./socket.js";
import { EventStream, documentOf } from "./stream.js";
import { type Transport, pauseMs, sleep } from "./transport.js";
import type {
  AuditRecord, CatalogChange, ExecutionEvent, ExecutionRecord, FileChange, Schemas, SessionEvent,
  SessionInfo,
} from "./types.js";

/** Topics with their parameters and events. */
export interface LiveTopics {
  /** Events of one execution. */
  "execution.events": {
    parameters: { execution: string; after?: number };
    event: ExecutionEvent;
  };
  /** Events of one session. */
  "session.events": {
    parameters: { session: string; after?: number; types?: string };
    event: SessionEvent;
  };
  /** Changes of a session's files. */
  "session.files": {
    parameters: { session: string; path?: string; recursive?: boolean };
    event: FileChange;
  };
  /** Changes of a warehouse. */
  "catalog.changes": {
    parameters: { warehouse: string; after?: number; namespace?: string; table?: string };
    event: CatalogChange;
  };
  /** Records of the audit. */
  audit: {
    parameters: {
      after?: number; holder?: string; tenant?: string; grant?: string; event?: string;
      outcome?: string; text?: string;
    };
    event: AuditRecord;
  };
  /** Executions that are new or have changed. */
  executions: {
    parameters: {
      state?: string; language?: string; label?: string; verdict?: string; text?: string;
      tenant?: string;
    };
    event: ExecutionRecord;
  };
  /** Sessions that are new or have changed. */
  sessions: { parameters: { state?: string; agent?: string }; event: SessionInfo };
  /** Figures of all tenants of the bouncer. */
  tenants: { parameters: Record<string, never>; event: Schemas["TenantStatsList"] };
}

/** Events of one subscription that wait to be read before the client stops reading for all. */
const WAITING_MAX = 10_000;

interface Subscription {
  readonly topic: string;
  parameters: Record<string, unknown>;
  readonly waiting: unknown[];
  wake: () => void;
  end: { error: CoveError | undefined } | undefined;
}

/** One WebSocket for everything that is followed. It connects with the first subscription. */
export class Live {
  readonly #transport: Transport;
  readonly #subscriptions = new Map<string, Subscription>();
  readonly #controller = new AbortController();
  #socket: MessageSocket | undefined;
  #isRunning = false;
  #count = 0;

  /** Made by the client. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Follows a topic, over lost connections, behind the last event that was seen. */
  subscribe<T extends keyof LiveTopics>(
    topic: T, parameters: LiveTopics[T]["parameters"],
    options: { readonly signal?: AbortSignal | undefined } = {},
  ): EventStream<LiveTopics[T]["event"]> {
    const begin = (): [string, Subscription] => this.#begin(topic, parameters);
    const finish = (id: string): void => this.#finish(id);
    return new EventStream(async function* events(signal) {
      const [id, subscription] = begin();
      const wake = (): void => subscription.wake();
      signal.addEventListener("abort", wake);
      try {
        for (;;) {
          if (signal.aborted) throw signal.reason;
          const event = subscription.waiting.shift();
          if (event !== undefined) {
            yield event as LiveTopics[T]["event"];
          } else if (subscription.end !== undefined) {
            if (subscription.end.error !== undefined) throw subscription.end.error;
            return;
          } else {
            await new Promise<void>((resolve) => { subscription.wake = resolve; });
          }
        }
      } finally {
        signal.removeEventListener("abort", wake);
        finish(id);
      }
    }, options.signal);
  }

  /** Closes the WebSocket and ends all subscriptions. */
  close(): void {
    this.#controller.abort(new CoveError("the live connection was closed"));
    this.#fail(undefined);
    this.#socket?.close();
  }

  /** Closes it, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  #begin(topic: string, parameters: Record<string, unknown>): [string, Subscription] {
    this.#controller.signal.throwIfAborted();
    const id = String(this.#count += 1);
    const subscription: Subscription = {
      topic, parameters, waiting: [], wake: () => undefined, end: undefined,
    };
    this.#subscriptions.set(id, subscription);
    if (this.#socket?.isClosed === false) this.#announce(id, subscription);
    if (!this.#isRunning) {
      this.#isRunning = true;
      void this.#run();
    }
    return [id, subscription];
  }

  #finish(id: string): void {
    if (!this.#subscriptions.delete(id)) return;
    if (this.#socket?.isClosed !== false) return;
    // Nothing is followed any more: no connection that holds a program up.
    if (this.#subscriptions.size === 0) this.#socket.close();
    else this.#socket.sendJson({ op: "unsubscribe", id });
  }

  #announce(id: string, { topic, parameters }: Subscription): void {
    this.#socket?.sendJson({ ...parameters, op: "subscribe", id, topic });
  }

  /** Connects for as long as something is followed. */
  async #run(): Promise<void> {
    const { signal } = this.#controller;
    let failures = 0;
    while (this.#subscriptions.size > 0 && !signal.aborted) {
      try {
        const socket = await MessageSocket.open(this.#transport, {
          path: "/v1/live", protocols: ["cove.live.v1"], signal,
        });
        this.#socket = socket;
        for (const [id, subscription] of this.#subscriptions) this.#announce(id, subscription);
        for await (const message of socket) {
          failures = 0;
          if (typeof message === "string") this.#receive(message);
        }
      } catch (error) {
        if (!(error instanceof CoveConnectionError) || failures >= this.#transport.maxReconnects) {
          this.#fail(error instanceof CoveError ? error : new CoveError(String(error)));
          break;
        }
      }
      if (this.#subscriptions.size === 0) break;
      await sleep(pauseMs(failures), signal).catch(() => undefined);
      failures += 1;
    }
    this.#isRunning = false;
  }

  #receive(data: string): void {
    const message = documentOf<Schemas["LiveServerMessage"]>({
      id: undefined, event: "message", data,
    });
    const subscription = this.#subscriptions.get(message.id);
    if (subscription === undefined) return;
    const { event, error, ended } = message;
    if (event != null) {
      const { seq } = event as { readonly seq?: unknown };
      const isNumbered = typeof seq === "number";
      if (isNumbered) subscription.parameters = { ...subscription.parameters, after: seq };
      subscription.waiting.push(event);
      if (subscription.waiting.length > WAITING_MAX) {
        const text = `more than ${WAITING_MAX} events of ${subscription.topic} were not read`;
        subscription.end = { error: new CoveError(text) };
      }
    } else if (error != null) {
      const detail = { ...error, field: error.field ?? undefined };
      const rest = { status: 0, retryAfterS: undefined, requestId: undefined, body: message };
      subscription.end = { error: statusError({ ...detail, ...rest }) };
    } else if (ended === true) {
      subscription.end = { error: undefined };
    }
    subscription.wake();
  }

  #fail(error: CoveError | undefined): void {
    for (const subscription of this.#subscriptions.values()) {
      subscription.end ??= { error };
      subscription.wake();
    }
  }
}
