// Tenants of the bouncer: who has connections, who waits, what goes on in each.
import { useState } from 'preact/hooks';
import {
  AsCommand, Badge, Button, CheckField, Command, Empty, ErrorNote, Facts, HistoryLine, IN_UNIT, Loaded, Menu, Meter, Note, PageHead,
  Panel, Plot, RangeChoice, SearchField, SelectField, Stat, TabPanel, Table, Tabs, Time, api, attempt, compact, confirm, count,
  duration, isAway, navigate, path, plural, rate, refreshAll, shellWord, sorted, spoken, useHistory, useQuery, useRange, useResource,
  useSorting, valuesOf, type Column, type ScreenProps,
} from '../kit';
import { EditTenant, NewTenant } from './databases/edit';
import {
  LIST_SERIES, PORTS, TENANT_SERIES, latestRates, latestStats, sampleCount, trouble, useStats, useTenants,
  type PooledClient, type PooledServer, type Tenant, type TenantHealthReport, type TenantRow,
  type TenantStats,
} from './databases/model';

export default function Databases({ params }: ScreenProps) {
  return params.name === undefined ? <Overview /> : <TenantPage name={params.name} key={params.name} />;
}

const ENGINES = { postgres: 'PostgreSQL', mysql: 'MySQL' } as const;

function StatsProblem({ error }: { error: Error | undefined }) {
  return error !== undefined && !isAway(error) ? <ErrorNote error={error} title="The figures are old" /> : null;
}

function connections(stats: TenantStats) {
  const label = `${stats.servers_active} in use, ${stats.servers_busy} being opened or reset, ${stats.servers_idle} idle, `
    + `${stats.server_connections_max} at most`;
  return (
    <span class="db-connections">
      <Meter label={label} of={stats.server_connections_max} parts={[
        { value: stats.servers_active, tone: stats.clients_waiting > 0 ? 'warn' : 'info' },
        { value: stats.servers_busy, tone: 'run' },
        { value: stats.servers_idle, tone: 'muted' },
      ]} />
      <span>{stats.servers_active}/{stats.server_connections_max}</span>
    </span>
  );
}

const ROW_COLUMNS: Column<TenantRow>[] = [
  {
    id: 'name', title: 'Tenant', width: 'minmax(130px, 1.4fr)', sort: (row) => row.tenant.spec.name,
    render: ({ tenant }) => <><strong>{tenant.spec.name}</strong> <span class="muted">{ENGINES[tenant.spec.engine]}</span></>,
  },
  {
    id: 'state', title: 'State', width: '132px', sort: (row) => trouble(row).rank,
    render: (row) => {
      const it = trouble(row);
      return <Badge tone={it.tone} title={it.why}>{it.word}</Badge>;
    },
  },
  {
    id: 'connections', title: 'Server connections', width: '190px', from: 620,
    sort: ({ stats }) => (stats ? stats.servers_active / Math.max(1, stats.server_connections_max) : null),
    render: ({ stats }) => (stats ? connections(stats) : <span class="muted">–</span>),
  },
  {
    id: 'clients', title: 'Clients', width: '86px', align: 'end', from: 460, sort: ({ stats }) => stats?.clients ?? null,
    render: ({ stats }) => count(stats?.clients),
  },
  {
    id: 'waiting', title: 'Waiting', width: '90px', align: 'end', from: 520, sort: ({ stats }) => stats?.clients_waiting ?? null,
    render: ({ stats }) => (
      <span class={stats && stats.clients_waiting > 0 ? 'text-warn' : ''}>{count(stats?.clients_waiting)}</span>
    ),
  },
  {
    id: 'tps', title: 'Transactions', width: '118px', align: 'end', from: 760, sort: ({ rates }) => rates?.transactions ?? null,
    render: ({ rates }) => rate(rates?.transactions),
  },
  {
    id: 'p95', title: 'Query p95', width: '104px', align: 'end', from: 860, sort: ({ stats }) => stats?.query_ms.p95 ?? null,
    render: ({ stats }) => (stats ? duration(stats.query_ms.p95) : '–'),
  },
  {
    id: 'past', title: 'Lately', width: '132px', from: 680,
    render: ({ tenant, past }) => past && (
      <HistoryLine label={`Transactions of ${tenant.spec.name}`} values={past.transactions} format={IN_UNIT.rate} range={past.range} />
    ),
  },
  {
    id: 'past-p95', title: 'p95 lately', width: '132px', from: 1180,
    render: ({ tenant, past }) => past && (
      <HistoryLine label={`Query p95 of ${tenant.spec.name}`} values={past.p95} format={IN_UNIT.seconds} range={past.range} tone="warn" />
    ),
  },
  {
    id: 'wait', title: 'Wait p95', width: '98px', align: 'end', from: 960, sort: ({ stats }) => stats?.wait_ms.p95 ?? null,
    render: ({ stats }) => (stats ? duration(stats.wait_ms.p95) : '–'),
  },
  {
    id: 'server', title: 'Server', width: 'minmax(120px, 1fr)', from: 1100, isMono: true, sort: ({ tenant }) => tenant.spec.server,
    render: ({ tenant }) => tenant.spec.server,
  },
];

function Overview() {
  const from = useTenants();
  const tenants = from.data.value?.tenants ?? [];
  const figures = useStats();
  const [isNew, setNew] = useState(false);
  const [search, setSearch] = useQuery('q');
  const [sorting, setSorting] = useSorting('-state');
  // Read, so that an answer draws the list anew.
  sampleCount.value;
  const [range, setRange] = useRange();
  const history = useHistory(LIST_SERIES, range);
  const all = tenants.map((tenant) => {
    const { name } = tenant.spec;
    const [transactions, p95] = LIST_SERIES.map((it) => valuesOf(history, it, name)) as [(number | null)[], (number | null)[]];
    return { tenant, stats: latestStats(name), rates: latestRates(name), past: { range, transactions, p95 } };
  });
  const wanted = search.toLowerCase();
  const found = all.filter(({ tenant: { spec } }) => `${spec.name} ${spec.server} ${spec.database ?? ''}`.toLowerCase().includes(wanted));
  const rows = sorted(found, ROW_COLUMNS, sorting);
  const sum = (pick: (row: TenantRow) => number | undefined) => all.reduce((total, row) => total + (pick(row) ?? 0), 0);
  const waiting = sum((row) => row.stats?.clients_waiting);
  const ill = all.filter((row) => row.tenant.health === 'unhealthy').length;
  return (
    <div class="page">
      <PageHead title="Databases" actions={(
        <>
          <AsCommand commands={() => [
            { title: 'Tenants', path: '/v1/tenants', cove: 'cove tenant list' },
            { title: 'Figures of all', path: '/v1/tenants/stats', cove: 'cove bouncer top' },
            { title: 'The lines', path: '/v1/history', query: { window: range, series: LIST_SERIES.join(',') }, cove: `cove history --window ${range} ${LIST_SERIES.join(' ')}` },
          ]} />
          {tenants.length > 0 && <RangeChoice value={range} onValue={setRange} />}
          <Button kind="primary" icon="plus" onClick={() => setNew(true)}>New tenant</Button>
        </>
      )} />
      <StatsProblem error={figures.error.value} />
      {tenants.length > 0 && (
        <div class="stats">
          <Stat label="Tenants" value={count(tenants.length)} tone={ill > 0 ? 'bad' : undefined}
            detail={ill > 0 ? `${plural(ill, 'server')} not reached` : 'all servers reached or not yet asked'} />
          <Stat label="Clients" value={compact(sum((row) => row.stats?.clients))} detail={`${count(sum((row) => row.stats?.clients_active))} with a server connection`} />
          <Stat label="Waiting now" value={count(waiting)} tone={waiting > 0 ? 'warn' : undefined} detail="for a server connection" />
          <Stat label="Server connections" value={compact(sum((row) => row.stats?.servers))} detail={`${count(sum((row) => row.stats?.servers_idle))} idle`} />
          <Stat label="Transactions" value={rate(sum((row) => row.rates?.transactions))} detail={`${rate(sum((row) => row.rates?.queries))} statements`} />
        </div>
      )}
      <Loaded from={from} rows={6}>
        {() => (
          <>
            {tenants.length > 5 && (
              <div class="toolbar">
                <SearchField label="Search tenants" value={search} onValue={setSearch} />
              </div>
            )}
            <Table label="Tenants" columns={ROW_COLUMNS} rows={rows} keyOf={(row) => row.tenant.spec.name} sorting={sorting}
              onSort={setSorting} hrefOf={(row) => path`/databases/${row.tenant.spec.name}`}
              empty={search !== '' ? <Empty icon="search" title="No tenant of that name"><p>Nothing matches “{search}”.</p></Empty> : (
                <Empty icon="database" title="No tenant yet"
                  command="cove tenant add shop --postgres db.internal:5432 --user app --password-file app.password">
                  <p>A tenant is a PostgreSQL, MySQL or MariaDB database behind a name. Clients connect to the bouncer and name it as
                    their database; a few server connections serve thousands of them.</p>
                  <Button kind="primary" icon="plus" onClick={() => setNew(true)}>New tenant</Button>
                </Empty>
              )} />
          </>
        )}
      </Loaded>
      {isNew && <NewTenant onClose={() => setNew(false)} onMade={(name) => { setNew(false); navigate(path`/databases/${name}`); }} />}
    </div>
  );
}

const TABS = ['overview', 'clients', 'servers', 'definition'] as const;

function TenantPage({ name }: { name: string }) {
  const from = useResource<Tenant>(path`/v1/tenants/${name}`, 4000);
  const figures = useStats();
  const [tab, setTab] = useQuery('tab', 'overview');
  const [isEdited, setEdited] = useState(false);
  sampleCount.value;
  const stats = latestStats(name);
  const tenant = from.data.value;
  const shown = TABS.includes(tab as typeof TABS[number]) ? tab : 'overview';
  const state = tenant && trouble({ tenant, stats, rates: null });
  return (
    <div class="page">
      <PageHead title={name} back={{ to: '/databases', label: 'All databases' }}
        aside={state && <Badge tone={state.tone} title={state.why}>{state.word}</Badge>}
        actions={tenant && <Actions tenant={tenant} onEdit={() => setEdited(true)} />} />
      <StatsProblem error={figures.error.value} />
      <Loaded from={from}>
        {(it) => (
          <>
            <Tabs label="Parts of the tenant" value={shown} onValue={setTab} tabs={[
              { id: 'overview', label: 'Overview' },
              { id: 'clients', label: 'Clients', count: stats?.clients ?? null },
              { id: 'servers', label: 'Server connections', count: stats?.servers ?? null },
              { id: 'definition', label: 'Definition' },
            ]} />
            <TabPanel id={shown}>
              {shown === 'overview' && <Figures tenant={it} stats={stats} />}
              {shown === 'clients' && <Clients name={name} />}
              {shown === 'servers' && <Servers name={name} />}
              {shown === 'definition' && <Definition tenant={it} onEdit={() => setEdited(true)} />}
            </TabPanel>
            {isEdited && <EditTenant tenant={it} onClose={() => setEdited(false)} />}
          </>
        )}
      </Loaded>
    </div>
  );
}

function Actions({ tenant, onEdit }: { tenant: Tenant; onEdit: () => void }) {
  const { name } = tenant.spec;
  const order = (verb: string, done: string, query?: Record<string, string>) => (
    attempt(api(path`/v1/tenants/${name}` + `/${verb}`, { method: 'POST', query }), done).then(() => refreshAll('/v1/tenants'))
  );
  const kill = async () => {
    const isSure = await confirm({
      title: `Close all connections of ${name}?`, action: 'Close all connections', isDanger: true, typed: name,
      body: 'Every client is disconnected and every transaction under way is rolled back. Clients may connect again at once: pause the tenant first to keep them out.',
    });
    if (isSure) await order('kill', `Closed all connections of ${name}`);
  };
  const remove = async () => {
    const isSure = await confirm({
      title: `Remove tenant ${name}?`, action: 'Remove tenant', isDanger: true, typed: name,
      body: 'Its clients are disconnected, and its definition with the encrypted passwords is deleted. The database itself is not touched.',
    });
    if (!isSure) return;
    const isGone = await attempt(api(path`/v1/tenants/${name}`, { method: 'DELETE' }).then(() => true), `Removed tenant ${name}`);
    if (isGone) {
      refreshAll('/v1/tenants');
      navigate('/databases');
    }
  };
  return (
    <>
      <AsCommand commands={() => [
        { title: 'Figures', path: path`/v1/tenants/${name}/stats`, cove: `cove tenant show ${shellWord(name)}` },
        { title: 'Clients', path: path`/v1/tenants/${name}/clients` },
        { title: 'Pause', method: 'POST', path: path`/v1/tenants/${name}/pause`, cove: `cove tenant pause ${shellWord(name)}` },
      ]} />
      {tenant.admission === 'open'
        ? <Button icon="pause" onClick={() => order('pause', `Paused ${name}: clients wait`)}>Pause</Button>
        : <Button kind="primary" icon="play" onClick={() => order('resume', `Resumed ${name}`)}>Resume</Button>}
      <Menu label={`More actions for ${name}`} items={[
        { label: 'Pause and refuse clients', icon: 'pause', onClick: () => order('pause', `${name} refuses clients`, { refuse: 'true' }) },
        { label: 'Drain', icon: 'log-out', onClick: () => order('drain', `${name} drains: clients may finish`), hint: 'New clients are refused, the others may finish' },
        { label: 'Reconnect', icon: 'refresh-cw', onClick: () => order('reconnect', `Server connections of ${name} are replaced as they become idle`) },
        { label: 'Change the definition', icon: 'pencil', onClick: onEdit, isDisabled: tenant.origin === 'file', hint: 'It is defined in cove.toml' },
        { label: 'Close all connections', icon: 'circle-x', isDanger: true, onClick: kill },
        { label: 'Remove', icon: 'trash', isDanger: true, onClick: remove, isDisabled: tenant.origin === 'file', hint: 'It is defined in cove.toml' },
      ]} />
    </>
  );
}

/** Charts of a tenant: what each is called, and its lines. */
const CHARTS: { title: string; format: (value: number) => string; lines: [string, string, string?][] }[] = [
  { title: 'Throughput', format: IN_UNIT.rate, lines: [
    ['transactions', 'cove_bouncer_transactions'], ['statements', 'cove_bouncer_queries'], ['errors', 'cove_bouncer_errors', '--bad'],
  ] },
  { title: 'Duration of statements', format: IN_UNIT.seconds, lines: [
    ['p50', 'cove_bouncer_query_p50_seconds'], ['p95', 'cove_bouncer_query_p95_seconds'], ['p99', 'cove_bouncer_query_p99_seconds'],
  ] },
  { title: 'Connections', format: IN_UNIT.count, lines: [
    ['clients waiting', 'cove_bouncer_connections_waiting', '--warn'], ['in use', 'cove_bouncer_connections_active'],
    ['idle', 'cove_bouncer_connections_idle'], ['clients', 'cove_bouncer_clients'],
  ] },
  { title: 'Wait for a connection', format: IN_UNIT.seconds, lines: [
    ['p50', 'cove_bouncer_wait_p50_seconds'], ['p95', 'cove_bouncer_wait_p95_seconds'], ['p99', 'cove_bouncer_wait_p99_seconds'],
  ] },
  { title: 'Traffic', format: IN_UNIT.bytes_rate, lines: [
    ['to clients', 'cove_bouncer_sent_bytes'], ['from clients', 'cove_bouncer_received_bytes'],
  ] },
];

function Figures({ tenant, stats }: { tenant: Tenant; stats: TenantStats | null }) {
  const { name } = tenant.spec;
  const rates = latestRates(name);
  const [range, setRange] = useRange();
  const history = useHistory(TENANT_SERIES, range, name);
  const pins = Object.entries(stats?.pins ?? {}).filter(([, times]) => times > 0).sort((one, other) => other[1] - one[1]);
  const missing = stats?.missing ?? [];
  return (
    <>
      {missing.length > 0 && <Note tone="warn">Figures of {missing.join(', ')} are missing: the node did not answer in time.</Note>}
      <div class="stats">
        <Stat label="Waiting now" value={count(stats?.clients_waiting)} tone={stats && stats.clients_waiting > 0 ? 'warn' : undefined}
          detail={stats ? `p95 ${duration(stats.wait_ms.p95)}, most ${duration(stats.wait_ms.max)}` : ''} />
        <Stat label="Clients" value={count(stats?.clients)} detail={`${count(stats?.clients_active)} with a server connection`} />
        <Stat label="Server connections" value={stats ? `${stats.servers}/${stats.server_connections_max}` : '–'}
          detail={stats ? `${stats.servers_active} in use, ${stats.servers_idle} idle` : ''} />
        <Stat label="Transactions" value={rate(rates?.transactions)} detail={`${compact(stats?.transactions)} since the start`} />
        <Stat label="Query p95" value={stats ? duration(stats.query_ms.p95) : '–'}
          detail={stats ? `p50 ${duration(stats.query_ms.p50)}, p99 ${duration(stats.query_ms.p99)}` : ''} />
        <Stat label="Refused" value={count(stats?.exhausted)} tone={stats && stats.exhausted > 0 ? 'warn' : undefined} detail="waited too long, or too many waited" />
      </div>
      <div class="row end">
        <AsCommand commands={() => [{
          title: 'The charts', path: '/v1/history', query: { window: range, series: 'cove_bouncer_*', tenant: name },
          cove: `cove history 'bouncer_*' --tenant ${shellWord(name)} --window ${range}`,
        }]} />
        <RangeChoice value={range} onValue={setRange} />
      </div>
      <div class="grid">
        {CHARTS.map(({ title, format, lines }) => (
          <Panel key={title} title={title}>
            <Plot from={history?.from ?? Date.now()} stepMs={history?.stepMs ?? 1} format={format}
              label={lines.map(([label, series]) => spoken(label, valuesOf(history, series, name), format, range)).join('; ')}
              series={lines.map(([label, series, colour]) => ({ label, colour, values: valuesOf(history, series, name) }))} />
          </Panel>
        ))}
      </div>
      <div class="grid">
        <Panel title="Connect">
          <Connect tenant={tenant} />
        </Panel>
        <Panel title="Kept beyond a transaction">
          {pins.length === 0
            ? <p class="muted">No client has kept a server connection beyond its transaction.</p>
            : <Facts items={pins.map(([reason, times]) => [reason, plural(times, 'time')])} />}
        </Panel>
      </div>
    </>
  );
}

function Connect({ tenant }: { tenant: Tenant }) {
  const { name, engine, users } = tenant.spec;
  const user = users?.[0]?.name ?? 'USER';
  const host = window.location.hostname;
  const port = PORTS[engine];
  const text = engine === 'postgres'
    ? `psql ${shellWord(`host=${host} port=${port} dbname=${name} user=${user}`)}`
    : `mariadb -h ${shellWord(host)} -P ${port} -u ${shellWord(user)} -p ${shellWord(name)}`;
  return (
    <>
      <Command text={text} />
      <p class="muted">
        The port is the one that <code>cove serve</code> has unless <code>{engine === 'postgres' ? '[bouncer] listen' : '[bouncer.mysql] listen'}</code> says
        otherwise. Code in a sandbox needs no password: grant it the tenant.
      </p>
      <Command text={`cove session create --grant ${shellWord(`${engine}:${name}`)}`} />
    </>
  );
}

/** Ages from which something is worth a look, in seconds. */
const IDLE_IN_TRANSACTION_BAD_S = 10;
const STATEMENT_WARN_S = 30;

function clientState(client: PooledClient) {
  const idle = client.in_transaction && client.state !== 'active' && (client.state_s ?? 0) > IDLE_IN_TRANSACTION_BAD_S;
  if (idle) return <Badge tone="bad" title="Idle in a transaction for more than ten seconds: it keeps a server connection and locks">idle in transaction</Badge>;
  const long = (client.statement_s ?? 0) > STATEMENT_WARN_S;
  if (long) return <Badge tone="warn" title="One statement runs for more than thirty seconds">long statement</Badge>;
  if (client.state === 'waiting') return <Badge tone="warn">waiting</Badge>;
  if (client.state === 'active') return <Badge tone="run">{client.in_transaction ? 'in transaction' : 'active'}</Badge>;
  return <Badge tone="muted">{client.state}</Badge>;
}

const seconds = (value: number | null | undefined) => (value === null || value === undefined ? '–' : duration(value * 1000));

function Clients({ name }: { name: string }) {
  const from = useResource<{ clients: PooledClient[]; missing?: string[] }>(path`/v1/tenants/${name}/clients`, 2000);
  const [search, setSearch] = useQuery('q');
  const [state, setState] = useQuery('state');
  const [active, setActive] = useQuery('active');
  const [sorting, setSorting] = useSorting('-age');
  const close = async (client: PooledClient) => {
    const isSure = await confirm({
      title: `Close client ${client.pid}?`, action: 'Close client', isDanger: true,
      body: `${client.user} at ${client.address} is disconnected; its transaction, if it has one, is rolled back.`,
    });
    if (!isSure) return;
    await attempt(api(path`/v1/tenants/${name}/clients/${client.pid}`, { method: 'DELETE' }), `Closed client ${client.pid}`);
    from.refresh();
  };
  const columns: Column<PooledClient>[] = [
    { id: 'pid', title: 'Process', width: '112px', isMono: true, sort: (it) => it.pid, render: (it) => it.pid },
    { id: 'user', title: 'User', width: 'minmax(90px, 1fr)', sort: (it) => it.user, render: (it) => it.user },
    { id: 'state', title: 'State', width: '158px', sort: (it) => `${it.state}${it.in_transaction}`, render: clientState },
    { id: 'for', title: 'For', width: '92px', align: 'end', from: 640, sort: (it) => it.waiting_s ?? it.state_s ?? null, render: (it) => seconds(it.waiting_s ?? it.state_s) },
    { id: 'server', title: 'Server', width: '112px', isMono: true, align: 'end', from: 720, sort: (it) => it.server_pid ?? null, render: (it) => it.server_pid ?? '–' },
    { id: 'pins', title: 'Kept by', width: 'minmax(100px, 1fr)', from: 820, sort: (it) => it.pins?.join() ?? null, render: (it) => (it.pins ?? []).join(', ') },
    { id: 'app', title: 'Application', width: 'minmax(100px, 1fr)', from: 980, sort: (it) => it.application_name ?? null, render: (it) => it.application_name ?? '' },
    { id: 'address', title: 'Address', width: 'minmax(120px, 1fr)', from: 900, isMono: true, sort: (it) => it.address, render: (it) => <>{it.address}{it.tls ? ' (TLS)' : ''}</> },
    { id: 'age', title: 'Connected', width: '100px', align: 'end', from: 520, sort: (it) => it.connected_s, render: (it) => seconds(it.connected_s) },
    { id: 'close', title: '', width: '50px', render: (it) => <Button kind="quiet" icon="x" label={`Close client ${it.pid}`} onClick={() => close(it)} /> },
  ];
  return (
    <Loaded from={from} rows={6}>
      {({ clients, missing }) => {
        const wanted = search.toLowerCase();
        const found = clients.filter((it) => (
          (state === '' || it.state === state)
          && (active === '' || it.state === 'active' || it.state === 'waiting')
          && `${it.pid} ${it.user} ${it.address} ${it.application_name ?? ''}`.toLowerCase().includes(wanted)
        ));
        return (
          <>
            {missing && missing.length > 0 && <Note tone="warn">Clients of {missing.join(', ')} are missing: the node did not answer in time.</Note>}
            <div class="toolbar">
              <SearchField label="Search clients" placeholder="User, address, process" value={search} onValue={setSearch} />
              <SelectField label="State" isLabelHidden value={state} onValue={setState}
                choices={[{ value: '', label: 'Every state' }, 'active', 'waiting', 'idle', 'login', 'closing']} />
              <CheckField label="Active only" isOn={active !== ''} onValue={(isOn) => setActive(isOn ? '1' : '')} />
              <span class="muted">{plural(found.length, 'client')}</span>
            </div>
            <Table label="Clients" columns={columns} rows={sorted(found, columns, sorting)} keyOf={(it) => `${it.node ?? ''}/${it.pid}`} sorting={sorting} onSort={setSorting}
              empty={<Empty icon="users" title={clients.length === 0 ? 'No client is connected' : 'No client is of that kind'}>
                <p>{clients.length === 0 ? 'Connect one as the overview says.' : 'Change the filters above.'}</p>
              </Empty>} />
          </>
        );
      }}
    </Loaded>
  );
}

function Servers({ name }: { name: string }) {
  const from = useResource<{ servers: PooledServer[] }>(path`/v1/tenants/${name}/servers`, 2000);
  const [sorting, setSorting] = useSorting('state');
  const columns: Column<PooledServer>[] = [
    { id: 'pid', title: 'Process', width: '112px', isMono: true, sort: (it) => it.pid, render: (it) => it.pid },
    { id: 'user', title: 'Role', width: 'minmax(90px, 1fr)', sort: (it) => it.user, render: (it) => it.user },
    { id: 'state', title: 'State', width: '140px', sort: (it) => it.state, render: (it) => <Badge tone={it.state === 'active' ? 'run' : it.state === 'idle' ? 'ok' : 'warn'}>{it.state}</Badge> },
    { id: 'client', title: 'Client', width: '112px', isMono: true, align: 'end', sort: (it) => it.client_pid ?? null, render: (it) => it.client_pid ?? '–' },
    { id: 'address', title: 'Address', width: 'minmax(140px, 1.4fr)', from: 640, isMono: true, sort: (it) => it.address, render: (it) => <>{it.address}{it.tls ? ' (TLS)' : ''}</> },
    { id: 'age', title: 'Open for', width: '110px', align: 'end', from: 460, sort: (it) => it.connected_s, render: (it) => seconds(it.connected_s) },
  ];
  return (
    <Loaded from={from} rows={6}>
      {({ servers }) => (
        <Table label="Server connections" columns={columns} rows={sorted(servers, columns, sorting)} keyOf={(it) => `${it.node ?? ''}/${it.pid}/${it.address}`} sorting={sorting} onSort={setSorting}
          empty={<Empty icon="database" title="No server connection is open"><p>One is opened when a client needs it.</p></Empty>} />
      )}
    </Loaded>
  );
}

function Definition({ tenant, onEdit }: { tenant: Tenant; onEdit: () => void }) {
  const { spec, origin } = tenant;
  const from = useResource<TenantHealthReport>(path`/v1/tenants/${spec.name}/health`, 10_000);
  const limits = Object.entries(spec.limits ?? {}).filter(([, value]) => value !== null);
  return (
    <div class="grid">
      <Panel title="Definition" actions={<Button icon="pencil" isDisabled={origin === 'file'} title={origin === 'file' ? 'It is defined in cove.toml' : undefined} onClick={onEdit}>Change</Button>}>
        <Facts items={[
          ['Engine', ENGINES[spec.engine]],
          ['Server', <code>{spec.server}</code>],
          ['Database there', spec.database ?? spec.name],
          ['Pool mode', spec.pool_mode ?? 'default'],
          ['Role at the server', spec.server_user ?? 'as the client'],
          ['Read-only', spec.read_only ? 'yes' : 'no'],
          ['Defined', origin === 'file' ? 'in cove.toml' : 'by the interface'],
          ['Users', (spec.users ?? []).map((it) => it.name).join(', ') || 'looked up'],
        ]} />
      </Panel>
      <Panel title="Limits of its own">
        {limits.length === 0 ? <p class="muted">The defaults of the configuration hold.</p>
          : <Facts items={limits.map(([limit, value]) => [limit, String(value)])} />}
      </Panel>
      <Panel title="Health of the server">
        <Loaded from={from} rows={2}>
          {(it) => (
            <>
              <div class="row">
                <Badge tone={it.health === 'healthy' ? 'ok' : it.health === 'unhealthy' ? 'bad' : 'muted'}>{it.health}</Badge>
                {it.took_ms && <span class="muted">answered in {duration(it.took_ms)}</span>}
                {it.checked_at && <span class="muted"><Time ms={Date.parse(it.checked_at)} /></span>}
              </div>
              {it.error && <Note tone="bad"><span class="wrap">{it.error}</span></Note>}
            </>
          )}
        </Loaded>
      </Panel>
    </div>
  );
}
