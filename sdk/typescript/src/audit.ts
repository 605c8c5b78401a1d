// The audit: what sandboxes reached through their grants.

import { CoveCall, PagedCall } from "./call.js";
import { EventStream } from "./stream.js";
import { type CallOptions, type Transport, sleep } from "./transport.js";
import type { AuditRecord, ListQuery, QueryOf, Schemas } from "./types.js";

/** Pause between two looks for new records: the server writes each half second. */
const FOLLOW_MS = 500;

/** Which records to follow. */
export type AuditFilter = Omit<
  QueryOf<"listAudit">, "order" | "before" | "after" | "limit" | "from_ms" | "to_ms"
>;

/** Records of the token's tenant. */
export class Audit {
  readonly #transport: Transport;

  /** Made by the client. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Lists records, the oldest first unless `order` is `desc`. */
  list(
    query: ListQuery<"listAudit"> = {}, options?: CallOptions,
  ): PagedCall<Schemas["AuditRecordList"], AuditRecord> {
    const page = (more: QueryOf<"listAudit">): CoveCall<Schemas["AuditRecordList"]> =>
      this.#transport.json({
        operation: "listAudit", method: "GET", path: "/v1/audit", query: { ...query, ...more },
      }, options);
    const next = (list: Schemas["AuditRecordList"]) => {
      const isBackwards = query.order === "desc";
      const from = isBackwards ? list.next_before : list.next_after;
      if (from == null || list.records.length === 0) return undefined;
      return page(isBackwards ? { before: from } : { after: from });
    };
    return new PagedCall(page({}), next, ({ records }) => records);
  }

  /** Records as they are written, behind `after`, or from now on without it. */
  follow(
    filter: AuditFilter = {}, options: CallOptions & { readonly after?: number | undefined } = {},
  ): EventStream<AuditRecord> {
    const { after: from, signal, ...rest } = options;
    const list = (more: QueryOf<"listAudit">, stop: AbortSignal) =>
      this.list({ ...filter, ...more }, { ...rest, signal: stop });
    return new EventStream(async function* records(stop) {
      let after = from ?? (await list({ limit: 1, order: "desc" }, stop)).newest;
      for (;;) {
        for await (const record of list({ after }, stop)) {
          after = record.seq;
          yield record;
        }
        await sleep(FOLLOW_MS, stop);
      }
    }, signal);
  }

  /** Counts what was reached, by `target`, `holder` or `grant`. */
  summary(
    query: QueryOf<"summarizeAudit"> = {}, options?: CallOptions,
  ): CoveCall<Schemas["AuditSummaryReport"]> {
    return this.#transport.json({
      operation: "summarizeAudit", method: "GET", path: "/v1/audit/summary", query,
    }, options);
  }
}
