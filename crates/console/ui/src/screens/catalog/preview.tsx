// What a policy would change for a principal, before it is saved: a dry run of the server.
import { useEffect, useState } from 'preact/hooks';
import { AsCommand, Badge, Foreign, Table, TextField, api, messageOf, type Column, type Tone } from '../../kit';
import type { CatalogPolicyPreview, CatalogPolicyPreviewRequest, CatalogPolicyRequest, CatalogReadScope } from '../../schema';
import { managementPath } from './model';

/** Pause after which what is typed is asked about. */
const ASK_AFTER_MS = 350;
/** Name in the address of a policy that has none yet. */
const UNNAMED = 'new';
/** Length of a filter that is shown. */
const FILTER_MAX = 400;

interface Previewed { of: string; preview?: CatalogPolicyPreview; problem?: string }

function usePreview(path: string, body: string | null): Previewed | null {
  const [previewed, setPreviewed] = useState<Previewed | null>(null);
  const of = `${path} ${body}`;
  useEffect(() => {
    if (body === null) return undefined;
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const preview = await api<CatalogPolicyPreview>(path, { json: JSON.parse(body) as unknown, signal: abort.signal });
        setPreviewed({ of, preview });
      } catch (error) {
        if (!abort.signal.aborted) setPreviewed({ of, problem: messageOf(error) });
      }
    }, ASK_AFTER_MS);
    return () => { abort.abort(); clearTimeout(timer); };
  }, [of]);
  return previewed?.of === of ? previewed : null;
}

/** `policy` is null while what was typed is none yet, of which `problem` is the reason. */
export function PolicyPreview({ warehouse, name, policy, problem, nameOf, suggested }: {
  warehouse: string; name: string; policy: CatalogPolicyRequest | null; problem: string | null;
  /** The name of a column by its id. */
  nameOf: (id: number) => string;
  /** Principals to choose from. */
  suggested: string[];
}) {
  const [typed, setTyped] = useState<string | null>(null);
  const principal = (typed ?? (policy?.principal === '*' ? suggested[0] ?? '' : policy?.principal ?? '')).trim();
  const path = managementPath(warehouse, 'policies', name.trim() === '' ? UNNAMED : name.trim(), 'preview');
  const asked: CatalogPolicyPreviewRequest | null = policy === null || principal === '' ? null : { principal, policy };
  const found = usePreview(path, asked === null ? null : JSON.stringify(asked));
  return (
    <section class="policy-preview" aria-label="Preview">
      <div class="row">
        <h3>Preview</h3>
        <span class="spacer" />
        {asked !== null && <AsCommand commands={() => [{ title: 'Preview of the policy', method: 'POST', path, json: asked }]} />}
      </div>
      <TextField label="For the principal" value={typed ?? principal} onValue={setTyped} placeholder="tenant:bi" list={suggested} hint="Nothing is saved by this" />
      <div role="status">
        {asked === null && <p class="muted">{problem ?? 'Name a principal and a table, and what the policy hides.'}</p>}
        {asked !== null && found === null && <p class="muted">Asking the server…</p>}
        {found?.problem !== undefined && <p class="note warn wrap">{found.problem}</p>}
        {found?.preview && <Outcome preview={found.preview} nameOf={nameOf} />}
      </div>
    </section>
  );
}

/** The outcome in a few words: allowed, filtered, denied. */
function outcomeOf({ rights, applies, then }: CatalogPolicyPreview): { tone: Tone; word: string; words: string } {
  if (rights !== undefined && !rights.includes('read')) {
    return { tone: 'bad', word: 'denied', words: 'has no right to read the table: the policy changes nothing until it is granted one.' };
  }
  if (then['row-filter'] === false) return { tone: 'bad', word: 'denied', words: 'would read no row.' };
  if (then.policies.length === 0) return { tone: 'ok', word: 'allowed', words: 'reads all of the table; the policy does not restrict it.' };
  const words = applies ? 'would read a part of the table.' : 'reads a part of the table already; this policy does not restrict it.';
  return { tone: 'warn', word: 'filtered', words };
}

interface Line { what: string; now: string; then: string }

function Outcome({ preview, nameOf }: { preview: CatalogPolicyPreview; nameOf: (id: number) => string }) {
  const { tone, word, words } = outcomeOf(preview);
  const { now, then } = preview;
  const rows = (it: CatalogReadScope) => (it['row-filter'] === undefined ? 'all' : filterText(it['row-filter'], nameOf));
  const shown = (it: CatalogReadScope, id: number) => it['column-projections'].find((one) => one['field-id'] === id)?.action ?? 'as it is';
  const ids = new Set([...now['column-projections'], ...then['column-projections']].map((it) => it['field-id'] ?? 0));
  const lines: Line[] = [
    { what: 'Rows', now: rows(now), then: rows(then) },
    ...[...ids].sort((one, other) => one - other).map((id) => ({ what: `Column ${nameOf(id)}`, now: shown(now, id), then: shown(then, id) })),
    { what: 'Files', now: now.files ? 'credentials' : 'no way to them', then: then.files ? 'credentials' : 'no way to them' },
    { what: 'Policies', now: now.policies.join(', ') || 'none', then: then.policies.join(', ') || 'none' },
  ];
  return (
    <>
      <p class="row"><Badge tone={tone}>{word}</Badge><span class="wrap"><code>{preview.principal}</code> {words}</span></p>
      <Table label="What it reads" columns={LINES} rows={lines} keyOf={(it) => it.what} />
    </>
  );
}

const LINES: Column<Line>[] = [
  { id: 'what', title: 'What', width: 'minmax(90px, 0.8fr)', render: (it) => <Foreign text={it.what} /> },
  { id: 'now', title: 'Now', width: 'minmax(90px, 1fr)', from: 420, render: (it) => <Foreign text={it.now} most={FILTER_MAX} /> },
  { id: 'then', title: 'With it', width: 'minmax(110px, 1.2fr)', render: (it) => (it.now === it.then ? <span class="muted"><Foreign text={it.then} most={FILTER_MAX} /></span> : <strong><Foreign text={it.then} most={FILTER_MAX} /></strong>) },
];

const SIGNS: Record<string, string> = {
  eq: '=', 'not-eq': '≠', lt: '<', 'lt-eq': '≤', gt: '>', 'gt-eq': '≥', 'starts-with': 'starts with', 'not-starts-with': 'does not start with',
  in: 'in', 'not-in': 'not in', 'is-null': 'is null', 'not-null': 'is not null', 'is-nan': 'is NaN', 'not-nan': 'is not NaN',
};

/** A predicate that the server has bound to ids, as people write it. */
export function filterText(filter: unknown, nameOf: (id: number) => string): string {
  if (typeof filter === 'boolean') return filter ? 'all' : 'none';
  const it = filter as { type: string; left?: unknown; right?: unknown; child?: unknown; values?: unknown[] };
  const column = (of: unknown) => nameOf((of as { id?: number } | undefined)?.id ?? 0);
  const value = (of: unknown) => JSON.stringify((of as { value?: unknown } | null)?.value ?? of);
  switch (it.type) {
    case 'and': case 'or': return `(${filterText(it.left, nameOf)} ${it.type} ${filterText(it.right, nameOf)})`;
    case 'not': return `not ${filterText(it.child, nameOf)}`;
    case 'in': case 'not-in': return `${column(it.child)} ${SIGNS[it.type]} (${(it.values ?? []).map(value).join(', ')})`;
    case 'is-null': case 'not-null': case 'is-nan': case 'not-nan': return `${column(it.child)} ${SIGNS[it.type]}`;
    default: return `${column(it.left)} ${SIGNS[it.type] ?? it.type} ${value(it.right)}`;
  }
}
