// Templates: what sessions and executions begin with, built step by step.

import { sha256 } from "./bytes.js";
import { CoveCall } from "./call.js";
import { NotFoundError, TemplateBuildError } from "./errors.js";
import { EventStream, type ServerSentEvent, documentOf, resumed } from "./stream.js";
import { type CallOptions, type Transport, part, pauseMs, sleep } from "./transport.js";
import type { Schemas, Template, TemplateBuild, TemplateLogLine } from "./types.js";

/** Who is told how a build goes on. */
export interface BuildListener {
  /** Gets every line of the log. */
  readonly onLog?: ((line: TemplateLogLine) => void) | undefined;
}

/** Templates of the token's tenant. */
export class Templates {
  readonly #transport: Transport;

  /** Made by the client. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Builds a template and waits until it is ready; throws where a step fails. */
  async build(
    request: Schemas["BuildTemplate"], listener: BuildListener = {}, options: CallOptions = {},
  ): Promise<TemplateBuild> {
    const { template, id } = await this.start(request, options);
    const rest = { ...options, idempotencyKey: undefined };
    for await (const line of this.logs(template, id, rest)) listener.onLog?.(line);
    for (let attempt = 0; ; attempt += 1) {
      const build = await this.getBuild(template, id, rest);
      if (build.status === "ready") return build;
      if (build.status === "error") {
        const why = build.failure?.message ?? "the log of the build says why";
        throw new TemplateBuildError(`template ${template}: ${why}`, id);
      }
      // The log ends a moment before the build does.
      await sleep(pauseMs(attempt), options.signal);
    }
  }

  /** Begins to build a template. */
  start(request: Schemas["BuildTemplate"], options?: CallOptions): CoveCall<TemplateBuild> {
    return this.#transport.json({
      operation: "buildTemplate", method: "POST", path: "/v1/templates", json: request,
    }, options);
  }

  /** Lines of the log as they come, over lost connections, until the build has ended. */
  logs(
    template: string, build: string, options: CallOptions = {},
  ): EventStream<TemplateLogLine> {
    const { signal, ...rest } = options;
    const source = {
      connect: (from: string | undefined, stop: AbortSignal) => this.#transport.send({
        operation: "getTemplateBuildLogs", method: "GET",
        path: `${at(template)}/builds/${part(build)}/logs`, query: { from },
        accept: "text/event-stream", isStream: true,
      }, { ...rest, signal: stop }),
      read: (message: ServerSentEvent) => {
        const line = documentOf<Partial<TemplateLogLine>>(message);
        return line.index === undefined ? undefined : line as TemplateLogLine;
      },
      mark: ({ index }: TemplateLogLine) => String(index + 1),
      isLast: () => false,
      isOver: async () => {
        const { status } = await this.getBuild(template, build, rest);
        return status === "ready" || status === "error";
      },
    };
    const { maxReconnects } = this.#transport;
    return new EventStream((stop) => resumed(source, undefined, maxReconnects, stop), signal);
  }

  /** Shows a build. */
  getBuild(template: string, build: string, options?: CallOptions): CoveCall<TemplateBuild> {
    const path = `${at(template)}/builds/${part(build)}`;
    return this.#transport.json({ operation: "getTemplateBuild", method: "GET", path }, options);
  }

  /** Lists builds of a template. */
  builds(template: string, options?: CallOptions): CoveCall<TemplateBuild[]> {
    const path = `${at(template)}/builds`;
    const spec = { operation: "listTemplateBuilds", method: "GET", path } as const;
    const call = this.#transport.json<Schemas["TemplateBuildList"]>(spec, options);
    return call.map(({ builds }) => builds);
  }

  /** Shows a template. */
  get(name: string, options?: CallOptions): CoveCall<Template> {
    const spec = { operation: "getTemplate", method: "GET", path: at(name) } as const;
    return this.#transport.json(spec, options);
  }

  /** Lists templates. */
  list(options?: CallOptions): CoveCall<Template[]> {
    const spec = { operation: "listTemplates", method: "GET", path: "/v1/templates" } as const;
    const call = this.#transport.json<Schemas["TemplateList"]>(spec, options);
    return call.map(({ templates }) => templates);
  }

  /** Deletes a template. */
  delete(name: string, options?: CallOptions): CoveCall<void> {
    const spec = { operation: "deleteTemplate", method: "DELETE", path: at(name) } as const;
    return this.#transport.done(spec, options);
  }

  /** Names a build by tags. */
  tag(name: string, request: Schemas["TagTemplate"], options?: CallOptions): CoveCall<Template> {
    return this.#transport.json({
      operation: "tagTemplate", method: "POST", path: `${at(name)}/tags`, json: request,
    }, options);
  }

  /** Removes a tag. */
  untag(name: string, tag: string, options?: CallOptions): CoveCall<void> {
    const path = `${at(name)}/tags/${part(tag)}`;
    return this.#transport.done({ operation: "untagTemplate", method: "DELETE", path }, options);
  }

  /** Uploads a tar archive, unless the server has it; returns the `archive` of `copy` steps. */
  async upload(archive: Uint8Array, options?: CallOptions): Promise<string> {
    const name = await sha256(archive);
    const path = `/v1/template-files/${name}`;
    try {
      await this.#transport.done({ operation: "hasTemplateArchive", method: "GET", path }, options);
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error;
      await this.#transport.done({
        operation: "putTemplateArchive", method: "PUT", path, content: archive,
        contentType: "application/x-tar", isLong: true,
      }, options);
    }
    return name;
  }
}

function at(name: string): string {
  return `/v1/templates/${part(name)}`;
}
