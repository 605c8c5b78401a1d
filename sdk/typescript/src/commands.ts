// Commands and terminals of a session.

import { ByteBuffer, fromBase64 } from "./bytes.js";
import { CoveConnectionError, CoveError } from "./errors.js";
import { MessageSocket, type SocketMessage } from "./socket.js";
import { EventStream, documentOf, serverSentEvents } from "./stream.js";
import { type CallOptions, type Transport, part } from "./transport.js";
import type { Schemas, SessionExec, SessionExecEvent, SessionExecResult } from "./types.js";

/** Bytes that are kept of each stream of a command, as many as the server keeps. */
const OUTPUT_BYTES_MAX = 10 << 20;

/** Settings of a command, and who gets its output as it comes. */
export interface ExecSettings extends Omit<SessionExec, "command" | "argv"> {
  /** Gets standard output. */
  readonly onStdout?: ((bytes: Uint8Array) => void) | undefined;
  /** Gets standard error. */
  readonly onStderr?: ((bytes: Uint8Array) => void) | undefined;
}

/** Starts a command: a line for `/bin/sh`, or a program with its arguments. */
export async function startCommand(
  transport: Transport, session: string, command: string | readonly string[],
  settings: ExecSettings, options: CallOptions,
): Promise<SessionCommand> {
  const { onStdout, onStderr, ...rest } = settings;
  const json = { ...rest, ...(typeof command === "string" ? { command } : { argv: command }) };
  const events = new EventStream<SessionExecEvent>(async function* read(signal) {
    const response = await transport.send({
      operation: "execInSession", method: "POST", path: `/v1/sessions/${part(session)}/exec`,
      json, accept: "text/event-stream", isStream: true,
    }, { ...options, signal });
    for await (const message of serverSentEvents(response, signal)) {
      const event = documentOf<SessionExecEvent>(message);
      yield event;
      if (event.type === "ended" || event.type === "error") return;
    }
  }, options.signal);
  const first = await events.next();
  if (first.done === true) throw new CoveConnectionError("the command's stream was empty");
  return new SessionCommand(first.value, events, { onStdout, onStderr });
}

/**
 * A command that runs in the background. It is read by `wait()` or by a loop, one of them; unread
 * output holds it up. It ends with its connection.
 */
export class SessionCommand implements AsyncIterable<SessionExecEvent> {
  /** Its process in the sandbox; `undefined` where it was not started. */
  readonly pid: number | undefined;
  readonly #first: SessionExecEvent;
  readonly #events: EventStream<SessionExecEvent>;
  readonly #listeners: Pick<ExecSettings, "onStdout" | "onStderr">;

  /** Made by its session. */
  constructor(
    first: SessionExecEvent, events: EventStream<SessionExecEvent>,
    listeners: Pick<ExecSettings, "onStdout" | "onStderr">,
  ) {
    this.#first = first;
    this.#events = events;
    this.#listeners = listeners;
    this.pid = first.type === "started" ? first.pid : undefined;
  }

  /** Waits for its end; the output is that of this call. */
  async wait(): Promise<SessionExecResult> {
    const stdout = new ByteBuffer(OUTPUT_BYTES_MAX);
    const stderr = new ByteBuffer(OUTPUT_BYTES_MAX);
    for await (const event of this) {
      if (event.type === "stdout") stdout.push(fromBase64(event.data_base64));
      if (event.type === "stderr") stderr.push(fromBase64(event.data_base64));
      if (event.type === "error") throw new CoveError(`the command ended: ${event.error}`);
      if (event.type !== "ended") continue;
      const { type: _, ...result } = event;
      const truncated = result.truncated || stdout.isCut || stderr.isCut;
      return { ...result, stdout: stdout.text(), stderr: stderr.text(), truncated };
    }
    throw new CoveConnectionError("the command's stream ended before the command");
  }

  /** Ends it and all that it started. */
  async kill(): Promise<void> {
    await this.#events.return();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<SessionExecEvent, void, undefined> {
    yield this.#first;
    for await (const event of this.#events) {
      const { onStdout, onStderr } = this.#listeners;
      if (event.type === "stdout") onStdout?.(fromBase64(event.data_base64));
      if (event.type === "stderr") onStderr?.(fromBase64(event.data_base64));
      yield event;
    }
  }

  /** Ends it, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }
}

/** Settings of a terminal. */
export interface TerminalSettings extends Partial<Schemas["TerminalSize"]> {
  /** Program and arguments; a shell unless given. */
  readonly argv?: readonly string[] | undefined;
  /** Where it starts. */
  readonly cwd?: string | undefined;
  /** Seconds that it lives on without a connection; `session.terminals()` has its id. */
  readonly detach_s?: number | undefined;
  /** Id of a terminal to attach to instead of opening one: what it has shown lately comes first. */
  readonly attach?: string | undefined;
  /** Position in the output of that terminal to go on from. */
  readonly from?: number | undefined;
}

/** A program with a terminal. It hangs up when this is closed, unless `detach_s` was given. */
export class Terminal implements AsyncIterable<Uint8Array> {
  readonly #socket: MessageSocket;
  #ended: SessionExecResult | undefined;

  /** Made by `Terminal.open`. */
  private constructor(socket: MessageSocket) {
    this.#socket = socket;
  }

  /** Opens one; sessions do. */
  static async open(
    transport: Transport, session: string, settings: TerminalSettings, options: CallOptions,
  ): Promise<Terminal> {
    const { argv, cwd, rows, cols, detach_s, attach, from } = settings;
    const path = `/v1/sessions/${part(session)}/terminal`;
    const address = { path, query: { argv, cwd, rows, cols, detach_s, attach, from }, signal: options.signal };
    return new Terminal(await MessageSocket.open(transport, address));
  }

  /** What became of its program; `undefined` before its end was read. */
  get ended(): SessionExecResult | undefined {
    return this.#ended;
  }

  /** Types. */
  write(input: string | Uint8Array): void {
    this.#socket.send(typeof input === "string" ? new TextEncoder().encode(input) : input);
  }

  /** Tells its size. */
  resize(size: Schemas["TerminalSize"]): void {
    this.#socket.sendJson({ type: "resize", ...size });
  }

  /** Sends a signal, such as `SIGINT`. */
  signal(signal: string): void {
    this.#socket.sendJson({ type: "signal", signal });
  }

  /** Hangs up. */
  close(): void {
    this.#socket.close();
  }

  /** What it shows, until its program ends. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    for await (const message of this.#socket) {
      if (typeof message !== "string") yield message;
      else this.#note(message);
    }
  }

  #note(data: SocketMessage & string): void {
    const event = documentOf<SessionExecEvent>({ id: undefined, event: "message", data });
    if (event.type === "error") throw new CoveError(`the terminal ended: ${event.error}`);
    if (event.type === "ended") this.#ended = event;
  }

  /** Hangs up, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}
