// Files of a session.

import type { FileContent } from "./bytes.js";
import { CoveCall } from "./call.js";
import { EventStream, documentOf, serverSentEvents } from "./stream.js";
import { type CallOptions, type Transport, part } from "./transport.js";
import type { FileChange, FileEntry, QueryOf, Schemas } from "./types.js";

/** Files of one session. Paths are relative to `/workspace`, absolute, or begin with `~/`. */
export class SessionFiles {
  readonly #transport: Transport;
  readonly #base: string;

  /** Made by its session. */
  constructor(transport: Transport, session: string) {
    this.#transport = transport;
    this.#base = `/v1/sessions/${part(session)}`;
  }

  /** Lists a directory, the working directory unless given; `depth` 1 unless given. */
  list(
    path?: string, query: Omit<QueryOf<"listFiles">, "path"> = {}, options?: CallOptions,
  ): CoveCall<Schemas["FileList"]> {
    return this.#transport.json({
      operation: "listFiles", method: "GET", path: `${this.#base}/files`,
      query: { ...query, path },
    }, options);
  }

  /** Looks at a file or directory. */
  stat(path: string, options?: CallOptions): CoveCall<FileEntry> {
    return this.#transport.json({
      operation: "readFile", method: "GET", path: this.#file(path), query: { stat: true },
    }, options);
  }

  /** Reads a file. */
  read(path: string, options?: CallOptions): CoveCall<Uint8Array> {
    const response = this.#transport.send({
      operation: "readFile", method: "GET", path: this.#file(path), accept: "*/*",
    }, options);
    return new CoveCall(response, async (it) => new Uint8Array(await it.arrayBuffer()));
  }

  /** Reads a file as text. */
  readText(path: string, options?: CallOptions): CoveCall<string> {
    return this.read(path, options).map((bytes) => new TextDecoder().decode(bytes));
  }

  /** Reads a file as it comes, however large it is. */
  readStream(path: string, options?: CallOptions): CoveCall<ReadableStream<Uint8Array>> {
    return this.#stream("readFile", this.#file(path), {}, options);
  }

  /** Writes a file in one step. With `create` it must be new, with `append` it is added to. */
  write(
    path: string, content: FileContent,
    query: Omit<QueryOf<"writeFile">, "directory"> = {}, options?: CallOptions,
  ): CoveCall<FileEntry> {
    return this.#transport.json({
      operation: "writeFile", method: "PUT", path: this.#file(path), query: { ...query },
      content: content, contentType: "application/octet-stream",
      isOnce: query.append === true || query.create === true,
    }, options);
  }

  /** Makes a directory, and those above it. */
  makeDirectory(path: string, options?: CallOptions): CoveCall<FileEntry> {
    return this.#transport.json({
      operation: "writeFile", method: "PUT", path: this.#file(path), query: { directory: true },
    }, options);
  }

  /** Moves a file or directory. */
  move(from: string, to: string, options?: CallOptions): CoveCall<FileEntry> {
    return this.#transport.json({
      operation: "moveFile", method: "POST", path: `${this.#base}/files/move`, json: { from, to },
    }, options);
  }

  /** Removes a file, or with `recursive` a directory. */
  remove(
    path: string, query: QueryOf<"removeFile"> = {}, options?: CallOptions,
  ): CoveCall<void> {
    return this.#transport.done({
      operation: "removeFile", method: "DELETE", path: this.#file(path), query,
    }, options);
  }

  /**
   * Changes below a directory, from when this is answered. Not taken up again after a lost
   * connection: what is missed is not kept.
   */
  async watch(
    path?: string, query: Omit<QueryOf<"watchFiles">, "path"> = {}, options: CallOptions = {},
  ): Promise<EventStream<FileChange>> {
    const controller = new AbortController();
    const stop = (): void => controller.abort(options.signal?.reason);
    if (options.signal?.aborted === true) stop();
    options.signal?.addEventListener("abort", stop);
    const response = await this.#transport.send({
      operation: "watchFiles", method: "GET", path: `${this.#base}/watch`,
      query: { ...query, path }, accept: "text/event-stream", isStream: true,
    }, { ...options, signal: controller.signal });
    return new EventStream(async function* changes(signal) {
      signal.addEventListener("abort", () => controller.abort(signal.reason));
      for await (const message of serverSentEvents(response, signal)) {
        yield documentOf<FileChange>(message);
      }
    }, controller.signal);
  }

  /** A directory as a tar archive, as it comes. */
  archive(path?: string, options?: CallOptions): CoveCall<ReadableStream<Uint8Array>> {
    return this.#stream("exportArchive", `${this.#base}/archive`, { path }, options);
  }

  /** Unpacks a tar archive, also with gzip, into a directory. */
  extract(
    archive: FileContent, path?: string, options?: CallOptions,
  ): CoveCall<Schemas["ArchiveImported"]> {
    return this.#transport.json({
      operation: "importArchive", method: "PUT", path: `${this.#base}/archive`, query: { path },
      content: archive, contentType: "application/x-tar", isLong: true,
    }, options);
  }

  #file(path: string): string {
    return `${this.#base}/files/${part(path)}`;
  }

  #stream(
    operation: string, path: string, query: { path?: string | undefined }, options?: CallOptions,
  ): CoveCall<ReadableStream<Uint8Array>> {
    const response = this.#transport.send({
      operation, method: "GET", path, query, accept: "*/*", isStream: true,
    }, options);
    const nothing = (): ReadableStream<Uint8Array> => new Blob([]).stream();
    return new CoveCall(response, (it) => it.body ?? nothing());
  }
}
