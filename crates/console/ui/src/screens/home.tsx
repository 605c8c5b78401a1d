// Home: what runs now, whether the machine is fit, and where to begin.
import type { ComponentChildren } from 'preact';
import {
  ApiError, AsCommand, Button, Empty, Foreign, Icon, Link, Loaded, PageHead, Panel, Plot, Sparkline, Stat, Table, Time,
  compact, count, duration, isOperator, may, plural, rate, timeOf, useResource, who, type Column, type Resource,
} from '../kit';
import { StateBadge, VerdictBadge } from './executions/outcome';
import { took } from './executions/list';
import type { ExecutionRecord, QueueStats } from './executions/types';

interface SandboxCounts { total: number; running: number; waiting: number; warm: number; warming: number; cold: number; capacity: number }
interface TenantStats { clients: number; clients_waiting: number; servers: number; server_connections_max: number }
interface Warehouse { name: string; statistics?: { tables?: number; 'number-of-tables'?: number } }
interface History { step_ms: number; from_ms: number; series: Record<string, (number | null)[]> }
interface Doctor { ok: boolean; checks: { name: string; status: string; found: string; remedy?: string }[] }

const WINDOW = '/v1/history?window_s=900&series=';

/** What the server has of a route that older ones lack, or nothing. */
function isMissing(from: Resource<unknown>): boolean {
  return from.error.value instanceof ApiError && from.error.value.status === 404;
}

export default function Home() {
  const queue = useResource<QueueStats>(may('executions') ? (isOperator.value ? '/v1/queue?all=true' : '/v1/queue') : null, 3000);
  const sandboxes = useResource<SandboxCounts>(may('sessions') ? '/v1/sandboxes' : null, 3000);
  const tenants = useResource<{ tenants: unknown[] }>(may('tenants') ? '/v1/tenants' : null, 5000);
  const stats = useResource<{ tenants: TenantStats[] }>(may('tenants') ? '/v1/tenants/stats' : null, 3000);
  const warehouses = useResource<{ warehouses: Warehouse[] }>(may('catalog') ? '/catalog/management/v1/warehouses' : null, 15_000);
  const recent = useResource<{ executions: ExecutionRecord[] }>(may('executions') ? '/v1/executions?limit=8' : null, 4000);
  const history = useResource<History>(isOperator.value && may('executions') ? `${WINDOW}cove_executions_total,cove_jobs_running,cove_http_requests_in_flight` : null, 5000);
  const line = (name: string, label: string) => {
    const values = history.data.value?.series[name];
    return values && <Sparkline values={values} label={label} />;
  };
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
              { title: 'Sandboxes of sessions', path: '/v1/sandboxes', cove: 'cove session top' },
            ]} />
            {may('executions') && <Button kind="primary" icon="play" href="/playground">Run something</Button>}
          </>
        )} />
      <div class="stats home-stats">
        {may('executions') && (
          <Stat label="Executions running" to="/executions?state=running" value={number(queue, (q) => q.running)}
            detail={queue.data.value ? `${count(queue.data.value.queued)} waiting${queue.data.value.dead ? `, ${count(queue.data.value.dead)} dead` : ''}` : ' '}>
            {line('cove_jobs_running', 'Executions running, last 15 minutes')}
          </Stat>
        )}
        {may('sessions') && (
          <Stat label="Sessions with a sandbox" to="/sessions" value={number(sandboxes, (s) => s.running + s.waiting)}
            detail={sandboxes.data.value ? `${count(sandboxes.data.value.total)} kept here, ${count(sandboxes.data.value.warm)} ready` : ' '} />
        )}
        {may('tenants') && (
          <Stat label="Database clients" to="/databases" tone={totals && totals.waiting > 0 ? 'warn' : undefined}
            value={isMissing(stats) ? number(tenants, (t) => t.tenants.length) : number(stats, () => totals?.clients ?? 0)}
            detail={isMissing(stats) ? 'tenants' : totals ? `on ${plural(totals.servers, 'connection')}${totals.waiting ? `, ${count(totals.waiting)} waiting` : ''}` : ' '} />
        )}
        {may('catalog') && (
          <Stat label="Warehouses" to="/catalog" value={number(warehouses, (w) => w.warehouses.length)} detail={warehouses.data.value?.warehouses.slice(0, 2).map((w) => w.name).join(', ') || ' '} />
        )}
      </div>
      {isOperator.value && <DoctorLine />}
      {history.data.value && Object.keys(history.data.value.series).length > 0 && (
        <Panel title="Executions, last 15 minutes">
          <Plot label="Executions each second, last 15 minutes" from={history.data.value.from_ms} stepMs={history.data.value.step_ms} format={rate} height={150}
            series={[{ label: 'executions', values: history.data.value.series.cove_executions_total ?? [] }]} />
        </Panel>
      )}
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

function number<T>(from: Resource<T>, take: (data: T) => number): ComponentChildren {
  const data = from.data.value;
  return data === undefined ? <span class="muted">–</span> : compact(take(data));
}

function Begin({ icon, to, title, children }: { icon: 'play' | 'server-cog' | 'database' | 'table-2'; to: string; title: string; children: ComponentChildren }) {
  return <li><Icon name={icon} size={18} /><div><Link to={to}>{title}</Link><small>{children}</small></div></li>;
}

/** The verdict of `cove doctor` in one line. */
function DoctorLine() {
  const doctor = useResource<Doctor>('/v1/doctor');
  if (isMissing(doctor)) return null;
  return (
    <Loaded from={doctor} rows={1}>
      {(it) => {
        const checks = it.checks ?? [];
        const wrong = checks.filter((check) => check.status !== 'ok');
        return (
          <div class={`note ${it.ok ? (wrong.length > 0 ? 'warn' : 'ok') : 'bad'}`}>
            <Icon name={it.ok ? 'circle-check' : 'triangle-alert'} />
            <div>
              <strong>{it.ok ? 'This machine isolates programs' : 'Isolation is incomplete'}</strong>{' '}
              {wrong.length > 0
                ? wrong.slice(0, 3).map((check) => `${check.name}: ${check.found}`).join('; ')
                : `${plural(checks.length, 'check')} by trying, all passed.`}
            </div>
            <Link to="/system">Details</Link>
          </div>
        );
      }}
    </Loaded>
  );
}

function RecentTable({ rows }: { rows: ExecutionRecord[] }) {
  const columns: Column<ExecutionRecord>[] = [
    { id: 'state', title: 'State', width: '116px', render: (it) => <StateBadge state={it.state} /> },
    { id: 'verdict', title: 'Verdict', width: '80px', from: 520, render: (it) => {
      const verdict = it.verdict ?? it.result?.verdict;
      return verdict ? <VerdictBadge verdict={verdict} /> : '';
    } },
    { id: 'what', title: 'What', width: 'minmax(100px, 1fr)', render: (it) => <>{it.language}{it.label && <span class="muted"> · <Foreign text={it.label} /></span>}</> },
    { id: 'took', title: 'Took', width: '84px', align: 'end', from: 440, render: (it) => duration(took(it)) },
    { id: 'when', title: 'Submitted', width: '96px', align: 'end', render: (it) => <Time ms={timeOf(it.created_at)} /> },
  ];
  return (
    <Table label="Latest executions" columns={columns} rows={rows} keyOf={(it) => it.id} hrefOf={(it) => `/executions/${it.id}`}
      empty={<Empty icon="play" title="Nothing has run yet" command="echo 'print(6*7)' | cove exec submit --watch --lang python -" action={<Button kind="primary" icon="play" href="/playground">Open the playground</Button>} />} />
  );
}

