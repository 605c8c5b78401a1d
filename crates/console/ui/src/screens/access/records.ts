// Records of the audit: read newest first, page by page, and followed.
import { useEffect, useRef, useState } from 'preact/hooks';
import { api, liveState, pollUnlessLive, saveFile, useLive } from '../../kit';
import type { AuditRecord, AuditRecordList } from '../../schema';

export type { AuditRecord, AuditSummaryGroup as AuditGroup, AuditSummaryReport as AuditSummary } from '../../schema';

/** Filters, as the interface takes them. */
export interface AuditFilters {
  holder: string;
  grant: string;
  tenant: string;
  event: string;
  outcome: string;
  text: string;
  from_ms: number | null;
  to_ms: number | null;
}

const PAGE = 200;
/** Records that the page holds; older ones are read again when they are asked for. */
const RECORDS_MAX = 20_000;
const POLL_MS = 3000;

/** Reads a page of records older than `before`, newest first. */
async function older(filters: AuditFilters, before: number | null, signal: AbortSignal): Promise<AuditRecordList> {
  return api<AuditRecordList>('/v1/audit', { query: { ...filters, order: 'desc', before, limit: PAGE }, signal });
}

/** Calls `each` with pages of all records that match, newest first, until it returns false. */
export async function readAll(filters: AuditFilters, each: (records: AuditRecord[]) => boolean, signal: AbortSignal): Promise<void> {
  let before: number | null = null;
  for (;;) {
    const page: AuditRecordList = await older(filters, before, signal);
    if (!each(page.records) || !page.next_before) return;
    before = page.next_before;
  }
}

export interface Audit {
  /** Newest first. */
  records: AuditRecord[];
  /** Those that came since, oldest last; shown when `showNew` is called. */
  fresh: AuditRecord[];
  isLoading: boolean;
  isEnd: boolean;
  error: unknown;
  loadMore(): void;
  showNew(): void;
  retry(): void;
}

/** Records that match, for as long as the component is there. */
export function useAudit(filters: AuditFilters, isFollowed: boolean): Audit {
  const [records, setRecords] = useState<AuditRecord[]>([]);
  const [fresh, setFresh] = useState<AuditRecord[]>([]);
  const [isLoading, setLoading] = useState(false);
  const [next, setNext] = useState<number | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [attempt, setAttempt] = useState(0);
  const running = useRef<AbortController | null>(null);
  const newest = useRef(0);
  const key = JSON.stringify(filters);

  const load = (before: number | null) => {
    const control = new AbortController();
    running.current?.abort();
    running.current = control;
    setLoading(true);
    older(filters, before, control.signal).then((page) => {
      if (running.current !== control) return;
      newest.current = Math.max(newest.current, page.newest);
      setRecords((known) => (before === null ? page.records : [...known, ...page.records]));
      setNext(page.next_before ?? null);
      setError(null);
      setLoading(false);
    }, (problem: unknown) => {
      if (running.current !== control) return;
      setError(problem);
      setLoading(false);
    });
  };

  useEffect(() => {
    newest.current = 0;
    setFresh([]);
    setNext(null);
    load(null);
    return () => {
      running.current?.abort();
      running.current = null;
    };
  }, [key, attempt]);

  const take = (come: AuditRecord[]) => {
    const unknown = come.filter((it) => it.seq > newest.current).sort((one, other) => other.seq - one.seq);
    if (unknown.length === 0) return;
    newest.current = unknown[0]!.seq;
    setFresh((known) => [...unknown, ...known].slice(0, RECORDS_MAX));
  };
  const isLive = filters.to_ms === null;
  const { from_ms: _from, to_ms: _to, ...wanted } = filters;
  const topic = Object.fromEntries(Object.entries(wanted).filter(([, value]) => value !== ''));
  useLive<AuditRecord>(isLive ? 'audit' : null, topic, { onEvent: (record) => { if (typeof record.seq === 'number') take([record]); } });
  const interval = isLive ? pollUnlessLive(POLL_MS) : 0;
  useEffect(() => {
    if (interval === 0) return undefined;
    let isGone = false;
    let timer: ReturnType<typeof setTimeout>;
    const ask = async () => {
      if (document.visibilityState === 'visible' && newest.current > 0) {
        const query = { ...filters, after: newest.current, limit: PAGE };
        await api<AuditRecordList>('/v1/audit', { query }).then((page) => { if (!isGone) take(page.records); }, () => undefined);
      }
      if (!isGone) timer = setTimeout(ask, interval);
    };
    timer = setTimeout(ask, interval);
    return () => { isGone = true; clearTimeout(timer); };
  }, [key, interval, liveState.value]);

  const showNew = () => {
    setRecords((known) => [...fresh, ...known].slice(0, RECORDS_MAX));
    setFresh([]);
  };
  useEffect(() => { if (isFollowed && fresh.length > 0) showNew(); }, [isFollowed, fresh]);
  return {
    records, fresh, isLoading, isEnd: next === null && !isLoading, error, showNew,
    loadMore: () => {
      if (!isLoading && next !== null && records.length < RECORDS_MAX) load(next);
    },
    retry: () => setAttempt(attempt + 1),
  };
}

/** What a record reached, in a word: a host, the command of a statement, or the kind of event. */
export function targetOf(record: AuditRecord): string {
  const text = record.text ?? '';
  const host = /\bhttps?:\/\/([^/\s?#]+)/i.exec(text)?.[1] ?? /^CONNECT\s+(\S+)/.exec(text)?.[1];
  if (host !== undefined) return host.slice(0, 80);
  if (record.event === 'statement') return /^\W*([A-Za-z]+)/.exec(text)?.[1]?.toUpperCase().slice(0, 30) ?? 'statement';
  if (record.event === 'request') return /^([A-Z]+)\s+(\/\S{0,60})/.exec(text)?.slice(1, 3).join(' ') ?? 'request';
  return record.event;
}

/** Most records in one export. */
export const EXPORT_MAX = 50_000;

const CSV_FIELDS = ['at', 'seq', 'tenant', 'holder', 'grant', 'event', 'outcome', 'text', 'error', 'took_us', 'rows', 'bytes_in', 'bytes_out'] as const;

/** A field of CSV (RFC 4180) that no spreadsheet takes for a formula. */
function csvField(value: unknown): string {
  let text = value === null || value === undefined ? '' : String(value);
  if (/^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Saves all records that match as a file. */
export async function exportRecords(filters: AuditFilters, kind: 'jsonl' | 'csv', signal: AbortSignal): Promise<number> {
  const lines: string[] = kind === 'csv' ? [CSV_FIELDS.join(',')] : [];
  let number = 0;
  await readAll(filters, (records) => {
    for (const record of records.slice(0, EXPORT_MAX - number)) {
      lines.push(kind === 'csv' ? CSV_FIELDS.map((field) => csvField(record[field])).join(',') : JSON.stringify(record));
      number += 1;
    }
    return number < EXPORT_MAX;
  }, signal);
  const type = kind === 'csv' ? 'text/csv' : 'application/x-ndjson';
  const name = `cove-audit-${new Date().toISOString().replace(/[:.]/g, '-')}.${kind}`;
  saveFile([lines.join('\n'), '\n'], name, type);
  return number;
}

