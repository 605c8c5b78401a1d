// A WebSocket of the server as an async iterable of its messages.

import { CoveConnectionError, CoveProtocolError } from "./errors.js";
import type { Query, Transport, WebSocketLike } from "./transport.js";

/** A message: text, or bytes. */
export type SocketMessage = string | Uint8Array;

/** Bytes of messages that wait to be read; a WebSocket cannot be told to wait. */
const WAITING_BYTES_MAX = 64 << 20;
/** Code of a close that both sides expected. */
const CLOSE_NORMAL = 1000;

/** Settings of an address to open. */
export interface SocketAddress {
  readonly path: string;
  readonly query?: Query;
  readonly protocols?: string[];
  readonly signal?: AbortSignal | undefined;
}

/** An open WebSocket. Iterating it ends with a normal close and throws at any other. */
export class MessageSocket implements AsyncIterable<SocketMessage> {
  readonly #socket: WebSocketLike;
  readonly #waiting: SocketMessage[] = [];
  #waitingBytes = 0;
  #wake: (() => void) | undefined;
  #end: { error: unknown } | undefined;

  private constructor(socket: WebSocketLike) {
    this.#socket = socket;
    socket.addEventListener("message", ({ data }) => this.#receive(data));
    socket.addEventListener("close", ({ code, reason }) => {
      const text = `the WebSocket was closed: ${code} ${reason}`.trimEnd();
      this.#finish(code === CLOSE_NORMAL ? undefined : new CoveConnectionError(text));
    });
  }

  /** Opens it, or throws. */
  static async open(transport: Transport, address: SocketAddress): Promise<MessageSocket> {
    const { path, query = {}, protocols = [], signal } = address;
    signal?.throwIfAborted();
    const socket = await transport.openSocket(path, query, protocols);
    const opened = new MessageSocket(socket);
    await new Promise<void>((resolve, reject) => {
      socket.addEventListener("open", () => resolve());
      const refuse = (): void =>
        reject(new CoveConnectionError(`${transport.url}${path}: no WebSocket was opened`));
      socket.addEventListener("error", refuse);
      socket.addEventListener("close", refuse);
      signal?.addEventListener("abort", () => {
        reject(signal.reason);
        opened.#finish(signal.reason);
        socket.close(CLOSE_NORMAL);
      }, { once: true });
    });
    return opened;
  }

  /** Sends a document. */
  sendJson(message: unknown): void {
    this.send(JSON.stringify(message));
  }

  /** Sends a message. */
  send(message: SocketMessage): void {
    if (this.#end !== undefined) throw new CoveConnectionError("the WebSocket is closed");
    this.#socket.send(message);
  }

  /** Closes it. */
  close(): void {
    this.#finish(undefined);
    this.#socket.close(CLOSE_NORMAL);
  }

  /** Whether it is closed. */
  get isClosed(): boolean {
    return this.#end !== undefined;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<SocketMessage, void, undefined> {
    try {
      for (;;) {
        const message = this.#waiting.shift();
        if (message !== undefined) {
          this.#waitingBytes -= message.length;
          yield message;
        } else if (this.#end !== undefined) {
          if (this.#end.error !== undefined) throw this.#end.error;
          return;
        } else {
          await new Promise<void>((resolve) => { this.#wake = resolve; });
        }
      }
    } finally {
      if (this.#end === undefined) this.close();
    }
  }

  #receive(data: unknown): void {
    if (this.#end !== undefined) return;
    const message = typeof data === "string" ? data : new Uint8Array(data as ArrayBuffer);
    this.#waitingBytes += message.length;
    this.#waiting.push(message);
    if (this.#waitingBytes > WAITING_BYTES_MAX) {
      const text = `more than ${WAITING_BYTES_MAX} bytes of messages were not read`;
      this.#finish(new CoveProtocolError(text));
      this.#socket.close(CLOSE_NORMAL);
    }
    this.#wake?.();
  }

  #finish(error: unknown): void {
    this.#end ??= { error };
    this.#wake?.();
  }
}
