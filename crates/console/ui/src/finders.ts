// What the palette finds besides pages: things by their name or id, asked of the server with this tab's
// token, and what was opened lately.
import { effect } from '@preact/signals';
import { addPaletteSource, api, comebacks, currentPath, may, path, token, type IconName, type Need, type PaletteEntry } from './kit';
import type {
  AgentList, CatalogFoundNames, CatalogWarehouseList, NodeList, SessionList, SnapshotList, TemplateList, TenantList,
} from './schema';

/** Results of one kind. */
const FOUND_MAX = 6;
/** Sessions that are looked through: a page of the interface. */
const SESSIONS_MAX = 200;
/** Warehouses that are searched, the first ones. */
const WAREHOUSES_MAX = 5;
/** Time for which lists are kept while somebody types. */
const KEPT_MS = 10_000;

const kept = new Map<string, { at: number; answer: Promise<unknown> }>();

/** A list, asked for once while somebody types. */
function list<T>(address: string): Promise<T> {
  const known = kept.get(address);
  if (known !== undefined && Date.now() - known.at < KEPT_MS) return known.answer as Promise<T>;
  const answer = api<T>(address);
  kept.set(address, { at: Date.now(), answer });
  // What failed is asked for again.
  answer.catch(() => kept.delete(address));
  return answer;
}

const has = (word: string, ...texts: (string | null | undefined)[]) => texts.some((it) => it?.toLowerCase().includes(word));

/** Adds what `find` finds where the token has what it needs. */
function finder(need: Need, find: (text: string, word: string, signal: AbortSignal) => Promise<PaletteEntry[]>): void {
  addPaletteSource(async (text, signal) => (may(need) ? (await find(text, text.toLowerCase(), signal)).slice(0, FOUND_MAX) : []));
}

finder('sessions', async (_, word) => {
  const { sessions } = await list<SessionList>(`/v1/sessions?limit=${SESSIONS_MAX}`);
  return sessions.filter((it) => has(word, it.agent, it.template, ...Object.values(it.metadata ?? {}))).map((it) => ({
    title: `${it.metadata?.name ?? it.agent ?? it.template ?? ''} ${it.id}`.trim(), group: `Session, ${it.state}`, icon: 'terminal',
    to: path`/sessions/${it.id}`,
  }));
});

finder('sessions', async (text) => {
  if (!text.startsWith('snap_')) return [];
  const { snapshots } = await list<SnapshotList>('/v1/snapshots');
  return snapshots.filter((it) => it.id.startsWith(text))
    .map((it) => ({ title: it.id, group: 'Snapshot', icon: 'camera', to: `${path`/sessions/${it.session}`}?tab=snapshots` }));
});

finder('tenants', async (_, word) => {
  const { tenants } = await list<TenantList>('/v1/tenants');
  return tenants.map(({ spec }) => spec).filter((it) => has(word, it.name, it.server))
    .map((it) => ({ title: it.name ?? '', group: 'Database', icon: 'database', to: path`/databases/${it.name ?? ''}` }));
});

finder('agents', async (text, word) => {
  const { agents } = await list<AgentList>('/v1/agents');
  return agents.filter((it) => it.id === text || has(word, it.name, it.description))
    .map((it) => ({ title: it.name, group: 'Agent', icon: 'bot', to: path`/agents/${it.name}` }));
});

finder('agents', async (text, word) => {
  const { templates } = await list<TemplateList>('/v1/templates');
  return templates.filter((it) => it.id === text || it.build?.id === text || has(word, it.name))
    .map((it) => ({ title: it.name, group: 'Template', icon: 'layers', to: '/agents?tab=templates' }));
});

finder('catalog', async (text, word, signal) => {
  const { warehouses } = await list<CatalogWarehouseList>('/catalog/management/v1/warehouses');
  const places = warehouses.filter((it) => it.id === text || has(word, it.name))
    .map((it): PaletteEntry => ({ title: it.name, group: 'Warehouse', icon: 'table-2', to: path`/catalog/${it.name}` }));
  const searches = warehouses.slice(0, WAREHOUSES_MAX).map(async ({ name: warehouse }) => {
    const query = { q: text, limit: FOUND_MAX };
    const { results } = await api<CatalogFoundNames>(path`/catalog/management/v1/${warehouse}/search`, { query, signal });
    return results.map((it) => ({ ...foundPlace(warehouse, it), group: `${it.kind} in ${warehouse}` }));
  });
  const found = await Promise.allSettled(searches);
  return [...places, ...found.flatMap((it) => (it.status === 'fulfilled' ? it.value : []))];
});

finder('operator', async (text) => {
  if (!text.startsWith('node_')) return [];
  const { nodes } = await list<NodeList>('/v1/nodes');
  return nodes.filter((it) => it.id.startsWith(text)).map((it) => ({ title: it.id, group: 'Node', icon: 'server-cog', to: '/system' }));
});

function foundPlace(warehouse: string, it: CatalogFoundNames['results'][number]): { title: string; icon: IconName; to: string } {
  const isSpace = it.kind === 'namespace';
  const title = [...it.namespace, ...(isSpace ? [] : [it.name]), ...(it.column ? [it.column] : [])].join('.');
  const parts = [warehouse, it.namespace.join('\u001f'), ...(isSpace ? [] : [it.name])];
  const to = `/catalog/${parts.map(encodeURIComponent).join('/')}${it.kind === 'view' ? '?kind=view' : ''}`;
  return { title, icon: 'table-2', to };
}

const RECENT_KEY = 'cove.recent';
const RECENT_MAX = 8;
/** Pages of one thing, and what they are of. */
const KINDS: [RegExp, string, IconName][] = [
  [/^\/executions\/([^/]+)$/, 'Execution', 'list'],
  [/^\/sessions\/([^/]+)$/, 'Session', 'terminal'],
  [/^\/agents\/([^/]+)$/, 'Agent', 'bot'],
  [/^\/databases\/([^/]+)$/, 'Database', 'database'],
  [/^\/catalog\/(.+)$/, 'Catalog', 'table-2'],
];

/** What was opened lately in this tab, the latest first. */
export function recentEntries(): PaletteEntry[] {
  return recentPaths().flatMap((to) => {
    const kind = KINDS.find(([pattern]) => pattern.test(to));
    if (kind === undefined || to === currentPath.value) return [];
    const name = kind[0].exec(to)![1]!.split('/').map(plain).join(' / ');
    return [{ title: name, group: `${kind[1]}, opened lately`, icon: kind[2], to }];
  });
}

function plain(text: string): string {
  try {
    return decodeURIComponent(text).replaceAll('\u001f', '.');
  } catch {
    return text;
  }
}

function recentPaths(): string[] {
  try {
    const value: unknown = JSON.parse(sessionStorage.getItem(RECENT_KEY) ?? '[]');
    return Array.isArray(value) ? value.filter((it): it is string => typeof it === 'string') : [];
  } catch {
    return [];
  }
}

effect(() => {
  const to = currentPath.value;
  if (!KINDS.some(([pattern]) => pattern.test(to))) return;
  try {
    sessionStorage.setItem(RECENT_KEY, JSON.stringify([to, ...recentPaths().filter((it) => it !== to)].slice(0, RECENT_MAX)));
  } catch {
    // Then nothing is remembered.
  }
});

token.subscribe((value) => {
  kept.clear();
  // Another person has opened other things.
  if (value === null) sessionStorage.removeItem(RECENT_KEY);
});
comebacks.subscribe(() => kept.clear());
