// Tenants of the bouncer as the interface gives them, and what the page makes of them.
import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { pollUnlessLive, useLive, useLiveDocument, useResource, type Range, type Resource, type Tone } from '../../kit';
import type * as schema from '../../schema';
import type { TenantStats } from '../../schema';

export type { BouncerClient as PooledClient, BouncerServer as PooledServer, Percentiles, TenantHealthReport, TenantStats } from '../../schema';

/** A definition as it is answered: with what a request may leave out. */
export type TenantSpec = schema.TenantSpec & Required<Pick<schema.TenantSpec, 'name' | 'engine' | 'server'>>;
export type Tenant = Omit<schema.Tenant, 'spec'> & { spec: TenantSpec };

/** Port of the bouncer's listener unless the configuration says otherwise. */
export const PORTS = { postgres: 6432, mysql: 6433 } as const;
/** Interval at which figures are asked for where they do not come by the socket. */
const POLL_MS = 2000;
/** Figures that are kept of each tenant, for rates between them. */
const SAMPLES_MAX = 2;

/** A tenant with its latest figures; none while they are on their way. */
export interface TenantRow { tenant: Tenant; stats: TenantStats | null; rates: Rates | null; past?: TenantPast }

/** What a row shows of the chosen time. */
export interface TenantPast { range: Range; transactions: (number | null)[]; p95: (number | null)[] }

/** Series of the charts of one tenant. */
export const TENANT_SERIES = [
  'transactions', 'queries', 'errors', 'clients', 'connections_active', 'connections_idle', 'connections_waiting', 'received_bytes', 'sent_bytes',
  'query_p50_seconds', 'query_p95_seconds', 'query_p99_seconds', 'wait_p50_seconds', 'wait_p95_seconds', 'wait_p99_seconds',
].map((it) => `cove_bouncer_${it}`);

/** Series of the list. */
export const LIST_SERIES = ['cove_bouncer_transactions', 'cove_bouncer_query_p95_seconds'];

/** Figures per second, between the last two answers. */
export interface Rates { transactions: number; queries: number; sent: number; received: number; waiting: number }

interface Sample { at: number; stats: TenantStats }

const samples = new Map<string, Sample[]>();
/** Grows with each answer, so that figures are drawn anew. */
export const sampleCount = signal(0);

function keep(all: TenantStats[], at: number): void {
  for (const stats of all) {
    const known = samples.get(stats.name) ?? [];
    const last = known[known.length - 1];
    // An answer that is shown again when the page is opened again.
    if (last !== undefined && last.at >= at) continue;
    // After a restart the counters begin again: what is older says nothing about them.
    const isRestarted = last !== undefined && stats.transactions < last.stats.transactions;
    const next = isRestarted ? [] : known.slice(1 - SAMPLES_MAX);
    next.push({ at, stats });
    samples.set(stats.name, next);
  }
  for (const name of samples.keys()) if (!all.some((it) => it.name === name)) samples.delete(name);
  sampleCount.value += 1;
}

function ratesOf(before: Sample, after: Sample): Rates {
  const seconds = Math.max((after.at - before.at) / 1000, 1e-3);
  const of = (pick: (stats: TenantStats) => number) => Math.max(0, pick(after.stats) - pick(before.stats)) / seconds;
  return {
    transactions: of((it) => it.transactions),
    queries: of((it) => it.queries),
    sent: of((it) => it.sent_bytes),
    received: of((it) => it.received_bytes),
    waiting: of((it) => it.wait_us) / 1e6,
  };
}

/** The latest rates of a tenant; none before the second answer. */
export function latestRates(name: string): Rates | null {
  const known = samples.get(name) ?? [];
  const [before, after] = known.slice(-2);
  return before && after ? ratesOf(before, after) : null;
}

/** Follows the figures of all tenants while the component is there; returns the latest request. */
export function useStats(): Resource<{ tenants: TenantStats[] }> {
  useLive<{ tenants: TenantStats[] }>('tenants', {}, { onEvent: ({ tenants }) => { if (Array.isArray(tenants)) keep(tenants, Date.now()); } });
  const from = useResource<{ tenants: TenantStats[] }>('/v1/tenants/stats', pollUnlessLive(POLL_MS));
  const answer = from.data.value;
  useEffect(() => { if (answer) keep(answer.tenants, from.at.value); }, [answer]);
  return from;
}

/** All tenants. */
export function useTenants(): Resource<{ tenants: Tenant[] }> {
  const from = useResource<{ tenants: Tenant[] }>('/v1/tenants', pollUnlessLive(5000));
  useLiveDocument('tenants.list', {}, from);
  return from;
}

export function latestStats(name: string): TenantStats | null {
  const known = samples.get(name);
  return known?.[known.length - 1]?.stats ?? null;
}

/** State of a tenant in a word, and how bad it is: 0 is well. */
export function trouble({ tenant, stats }: TenantRow): { word: string; tone: Tone; rank: number; why: string } {
  if (tenant.health === 'unhealthy') {
    return { word: 'unreachable', tone: 'bad', rank: 5, why: 'The server does not answer.' };
  }
  const waiting = stats?.clients_waiting ?? 0;
  if (tenant.admission === 'refusing') return { word: 'refusing', tone: 'bad', rank: 4, why: 'Clients are refused.' };
  if (tenant.admission === 'paused') {
    return { word: 'paused', tone: 'warn', rank: 3.5, why: 'Clients wait until the tenant is resumed.' };
  }
  if (tenant.admission === 'draining') {
    return { word: 'draining', tone: 'warn', rank: 3.2, why: 'New clients are refused, the others may finish.' };
  }
  if (waiting > 0) {
    const why = 'Clients wait for a server connection: all are in use.';
    return { word: `${waiting} waiting`, tone: 'warn', rank: 3, why };
  }
  const used = stats ? stats.servers_active + stats.servers_busy : 0;
  if (stats && stats.server_connections_max > 0 && used >= stats.server_connections_max) {
    return { word: 'full', tone: 'warn', rank: 2, why: 'All server connections are in use; nobody waits yet.' };
  }
  if (stats && stats.clients > 0) return { word: 'active', tone: 'ok', rank: 1, why: 'Clients are connected.' };
  return { word: 'idle', tone: 'muted', rank: 0, why: 'No client is connected.' };
}
