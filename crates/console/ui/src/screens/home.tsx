// Home: what runs now, and where to begin.
import type { ComponentChildren } from 'preact';
import {
  AsCommand, Badge, Button, Empty, Foreign, HistoryLine, IN_UNIT, Icon, Link, Loaded, PageHead, Panel, RangeChoice, Stat, Table, Time, compact, count,
  duration, isOperator, may, merged, plural, pollUnlessLive, summed, timeOf, useHistory, useLiveDocument, useLiveRecords, useRange,
  useResource, valuesOf, who, type Column, type HistorySlice, type Range, type Resource,
} from '../kit';
import { OUTCOME_COLUMNS } from './executions/outcome';
import { took } from './executions/list';
import type { ExecutionRecord, QueueStats } from './executions/types';
import type { CatalogWarehouseList, SandboxCounts, TenantStatsList } from '../schema';
import { useDoctor, verdictOf } from './system/doctor';

/** Executions that the page shows. */
const RECENT_MAX = 8;

export default function Home() {
  const isAll = isOperator.value;
  const queue = useResource<QueueStats>(may('executions') ? (isAll ? '/v1/queue?all=true' : '/v1/queue') : null, pollUnlessLive(3000));
  const sandboxes = useResource<SandboxCounts>(may('sessions') ? '/v1/sandboxes' : null, pollUnlessLive(3000));
  const stats = useResource<TenantStatsList>(may('tenants') ? '/v1/tenants/stats' : null, pollUnlessLive(3000));
  const warehouses = useResource<CatalogWarehouseList>(may('catalog') ? '/catalog/management/v1/warehouses' : null, 0);
  useLiveDocument(may('executions') ? 'queue' : null, isAll ? { all: true } : {}, queue);
  useLiveDocument(may('sessions') ? 'sandboxes' : null, {}, sandboxes);
  useLiveDocument(may('tenants') ? 'tenants' : null, {}, stats);
  const [range, setRange] = useRange();
  const history = useHistory(seriesOfHome(), range);
  const recent = useResource<{ executions: ExecutionRecord[] }>(may('executions') ? `/v1/executions?limit=${RECENT_MAX}` : null, pollUnlessLive(4000));
  useLiveRecords<ExecutionRecord>(may('executions') ? 'executions' : null, {}, recent, (record) => {
    recent.mutate((page) => ({ ...page, executions: merged(page.executions, record).slice(0, RECENT_MAX) }));
  });
  const it = who.value;
  const totals = stats.data.value?.tenants.reduce((sum, one) => ({
    clients: sum.clients + one.clients, waiting: sum.waiting + one.clients_waiting, servers: sum.servers + one.servers,
  }), { clients: 0, waiting: 0, servers: 0 });
  return (
    <div class="page">
      <PageHead title="Home" aside={it && <small>{it.operator ? 'all tenants' : `tenant ${it.tenant ?? ''}`}{it.node ? ` · ${it.node}` : ''}</small>}
        actions={(
          <>
            <AsCommand commands={() => [
              { title: 'The queue', path: '/v1/queue', cove: 'cove queue stats' },
              { title: 'Sandboxes of sessions', path: '/v1/sandboxes', cove: 'cove top' },
              { title: 'The charts', path: '/v1/history', query: { window: range, series: seriesOfHome().join(',') }, cove: `cove history --window ${range} ${seriesOfHome().join(' ')}` },
            ]} />
            <RangeChoice value={range} onValue={setRange} />
            {may('executions') && <Button kind="primary" icon="play" href="/playground">Run something</Button>}
          </>
        )} />
      <div class="stats home-stats">
        {may('executions') && (
          <Stat label="Executions running" to="/executions?state=running" value={number(queue, (q) => q.running)}
            detail={queue.data.value ? `${count(queue.data.value.queued)} waiting${queue.data.value.dead ? `, ${count(queue.data.value.dead)} dead` : ''}` : ' '}>
            <Line label="Executions running" of={valuesOf(history, 'cove_executions_running')} range={range} />
          </Stat>
        )}
        {may('sessions') && (
          <Stat label="Sessions with a sandbox" to="/sessions" value={number(sandboxes, (s) => s.running + s.waiting)}
            detail={sandboxes.data.value ? `${count(sandboxes.data.value.total)} kept here, ${count(sandboxes.data.value.warm)} ready` : ' '}>
            <Line label="Sandboxes of sessions" of={valuesOf(history, 'cove_session_sandboxes')} range={range} />
          </Stat>
        )}
        {may('tenants') && (
          <Stat label="Database clients" to="/databases" tone={totals && totals.waiting > 0 ? 'warn' : undefined}
            value={number(stats, () => totals?.clients ?? 0)}
            detail={totals ? `on ${plural(totals.servers, 'connection')}${totals.waiting ? `, ${count(totals.waiting)} waiting` : ''}` : ' '}>
            <Line label="Database clients" of={clientsOf(history)} range={range} />
          </Stat>
        )}
        {may('catalog') && (
          <Stat label="Warehouses" to="/catalog" value={number(warehouses, (w) => w.warehouses.length)} detail={warehouses.data.value?.warehouses.slice(0, 2).map((w) => w.name).join(', ') || ' '}>
            {isAll && <Line label="Catalog requests a second" of={valuesOf(history, 'cove_catalog_requests')} range={range} format={IN_UNIT.rate} />}
          </Stat>
        )}
      </div>
      {isOperator.value && <Verdict />}
      <div class="home-grid">
        {may('executions') && (
          <Panel title="Latest executions" isFlush actions={<Link to="/executions">All</Link>}>
            <Loaded from={recent} rows={5}>{(page) => <RecentTable rows={page.executions} />}</Loaded>
          </Panel>
        )}
        <Panel title="Begin">
          <ul class="begin">
            {may('executions') && <Begin icon="play" to="/playground" title="Run a program">with limits on time, memory and processes, and a verdict at the end</Begin>}
            {may('sessions') && <Begin icon="server-cog" to="/sessions" title="Keep a session">a sandbox with a terminal and files, for you or an agent</Begin>}
            {may('tenants') && <Begin icon="database" to="/databases" title="Pool a database">thousands of clients on few connections</Begin>}
            {may('catalog') && <Begin icon="table-2" to="/catalog" title="Browse tables">Iceberg tables, their snapshots and who may read them</Begin>}
          </ul>
        </Panel>
      </div>
    </div>
  );
}

/** Series of the tiles that this token may see. */
function seriesOfHome(): string[] {
  return [
    ...(may('executions') ? ['cove_executions_running'] : []),
    ...(may('sessions') ? ['cove_session_sandboxes'] : []),
    ...(isOperator.value && may('tenants') ? ['cove_bouncer_clients'] : []),
    ...(isOperator.value && may('catalog') ? ['cove_catalog_requests'] : []),
  ];
}

/** Clients of all tenants. */
function clientsOf(history: HistorySlice | null): (number | null)[] {
  const all = [...(history?.values ?? [])].filter(([name]) => name.startsWith('cove_bouncer_clients '));
  return summed(all.map(([, values]) => values));
}

function Line({ label, of, range, format = IN_UNIT.count }: {
  label: string; of: (number | null)[]; range: Range; format?: (value: number) => string;
}) {
  return <HistoryLine label={label} values={of} format={format} range={range} />;
}

/** Whether this machine can keep untrusted code in, in one line. */
function Verdict() {
  const view = useDoctor().data.value;
  if (view === undefined) return null;
  const { tone, words } = verdictOf(view);
  return (
    <p class="home-verdict">
      <Badge tone={tone}>{words}</Badge>
      {view.last && <small class="muted">checked <Time ms={view.last.started_ms} /></small>}
      <Link to="/system?tab=doctor">Doctor</Link>
    </p>
  );
}

function number<T>(from: Resource<T>, take: (data: T) => number): ComponentChildren {
  const data = from.data.value;
  return data === undefined ? <span class="muted">–</span> : compact(take(data));
}

function Begin({ icon, to, title, children }: { icon: 'play' | 'server-cog' | 'database' | 'table-2'; to: string; title: string; children: ComponentChildren }) {
  return <li><Icon name={icon} size={18} /><div><Link to={to}>{title}</Link><small>{children}</small></div></li>;
}

function RecentTable({ rows }: { rows: ExecutionRecord[] }) {
  const columns: Column<ExecutionRecord>[] = [
    ...OUTCOME_COLUMNS,
    { id: 'what', title: 'What', width: 'minmax(100px, 1fr)', render: (it) => <>{it.language}{it.label && <span class="muted"> · <Foreign text={it.label} /></span>}</> },
    { id: 'took', title: 'Took', width: '84px', align: 'end', from: 440, render: (it) => duration(took(it)) },
    { id: 'when', title: 'Submitted', width: '96px', align: 'end', render: (it) => <Time ms={timeOf(it.created_at)} /> },
  ];
  return (
    <Table label="Latest executions" columns={columns} rows={rows} keyOf={(it) => it.id} hrefOf={(it) => `/executions/${it.id}`}
      empty={<Empty icon="play" title="Nothing has run yet" command="echo 'print(6*7)' | cove exec submit --watch --lang python -" action={<Button kind="primary" icon="play" href="/playground">Open the playground</Button>} />} />
  );
}

