// Contexts of the code interpreter: cells of code that keep what they define.

import { CoveCall } from "./call.js";
import { CoveConnectionError, CoveError } from "./errors.js";
import { EventStream, documentOf, serverSentEvents } from "./stream.js";
import { type CallOptions, type Transport, part } from "./transport.js";
import type { CellEvent, CellReport, CodeContextInfo, Schemas } from "./types.js";

/** Settings of a cell, and who gets its output as it comes. */
export interface CellSettings extends Omit<Schemas["ExecuteCell"], "code"> {
  /** Gets every event. */
  readonly onEvent?: ((event: CellEvent) => void) | undefined;
}

/** A context: made by `session.contexts`, or the default one of a language. */
export class CodeContext {
  /** Its id, or the name of a language for its default context. */
  readonly id: string;
  readonly #transport: Transport;
  readonly #session: string;

  /** Made by its session. */
  constructor(transport: Transport, session: string, id: string) {
    this.#transport = transport;
    this.#session = session;
    this.id = id;
  }

  /** Runs a cell; what it prints and shows is in the report. */
  async execute(
    code: string, settings: CellSettings = {}, options: CallOptions = {},
  ): Promise<CellReport> {
    const { onEvent, ...rest } = settings;
    const report: CellReport = {
      execution_count: 0, stdout: "", stderr: "", results: [], truncated: false, verdict: "OK",
      wall_ms: 0, context_ended: false,
    };
    for await (const event of this.stream(code, rest, options)) {
      onEvent?.(event);
      if (event.type === "started") report.execution_count = event.execution_count;
      if (event.type === "stdout" || event.type === "stderr") report[event.type] += event.text;
      if (event.type === "result") {
        const { type: _, ...result } = event;
        report.results.push(result);
        report.truncated ||= (result.truncated ?? []).length > 0;
      }
      if (event.type === "error") {
        const { type: _, ...failure } = event;
        report.error = failure;
      }
      if (event.type === "gone") throw new CoveError(`the cell is gone: ${event.error}`);
      if (event.type !== "ended") continue;
      const { type: _, ...end } = event;
      return Object.assign(report, end);
    }
    throw new CoveConnectionError("the cell's stream ended before the cell");
  }

  /** Runs a cell; its events as they come. Leaving the loop interrupts it. */
  stream(
    code: string, settings: Omit<CellSettings, "onEvent"> = {}, options: CallOptions = {},
  ): EventStream<CellEvent> {
    const transport = this.#transport;
    const spec = {
      operation: "executeCell", method: "POST", path: `${this.#path()}/execute`,
      json: { ...settings, code }, accept: "text/event-stream", isStream: true, isLong: true,
    } as const;
    return new EventStream(async function* events(signal) {
      const response = await transport.send(spec, { ...options, signal });
      for await (const message of serverSentEvents(response, signal)) {
        const event = documentOf<CellEvent>(message);
        yield event;
        if (event.type === "ended" || event.type === "gone") return;
      }
    }, options.signal);
  }

  /** Shows it. */
  info(options?: CallOptions): CoveCall<CodeContextInfo> {
    return this.#transport.json({
      operation: "getCodeContext", method: "GET", path: this.#path(),
    }, options);
  }

  /** Interrupts the cell that runs; whether there was one. */
  interrupt(options?: CallOptions): CoveCall<boolean> {
    const spec = {
      operation: "interruptCodeContext", method: "POST", path: `${this.#path()}/interrupt`,
    } as const;
    const call = this.#transport.json<Schemas["InterruptAnswer"]>(spec, options);
    return call.map(({ interrupted }) => interrupted);
  }

  /** Starts its process anew, with nothing defined. */
  restart(options?: CallOptions): CoveCall<CodeContextInfo> {
    return this.#transport.json({
      operation: "restartCodeContext", method: "POST", path: `${this.#path()}/restart`,
    }, options);
  }

  /** Copies it with all that is defined. */
  fork(
    request: Schemas["ForkCodeContext"] = {}, options?: CallOptions,
  ): CoveCall<CodeContext> {
    const spec = {
      operation: "forkCodeContext", method: "POST", path: `${this.#path()}/fork`, json: request,
    } as const;
    const call = this.#transport.json<CodeContextInfo>(spec, options);
    return call.map(({ id }) => new CodeContext(this.#transport, this.#session, id));
  }

  /** Removes it. */
  delete(options?: CallOptions): CoveCall<void> {
    return this.#transport.done({
      operation: "deleteCodeContext", method: "DELETE", path: this.#path(),
    }, options);
  }

  #path(): string {
    return `/v1/sessions/${part(this.#session)}/contexts/${part(this.id)}`;
  }
}

/** Contexts of one session. */
export class CodeContexts {
  readonly #transport: Transport;
  readonly #session: string;

  /** Made by its session. */
  constructor(transport: Transport, session: string) {
    this.#transport = transport;
    this.#session = session;
  }

  /** Makes one and starts it. */
  create(
    request: Schemas["CreateCodeContext"] = {}, options?: CallOptions,
  ): CoveCall<CodeContext> {
    const spec = {
      operation: "createCodeContext", method: "POST", path: this.#path(), json: request,
      isLong: true,
    } as const;
    return this.#transport.json<CodeContextInfo>(spec, options).map(({ id }) => this.at(id));
  }

  /** The context of an id, or the default one of a language. */
  at(idOrLanguage: string): CodeContext {
    return new CodeContext(this.#transport, this.#session, idOrLanguage);
  }

  /** Lists them, oldest first. */
  list(options?: CallOptions): CoveCall<CodeContextInfo[]> {
    const spec = { operation: "listCodeContexts", method: "GET", path: this.#path() } as const;
    const call = this.#transport.json<Schemas["CodeContextList"]>(spec, options);
    return call.map(({ contexts }) => contexts);
  }

  #path(): string {
    return `/v1/sessions/${part(this.#session)}/contexts`;
  }
}
