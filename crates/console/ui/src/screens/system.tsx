// The server itself: its checks, its nodes, who is signed in, where more is.
import {
  AsCommand, Badge, Button, Empty, Facts, Link, Loaded, Note, PageHead, Panel, TabPanel, Table, Tabs, Time, api, apiOrigin,
  attempt, confirm, consolePath, count, path, refreshAll, sorted, useQuery, useResource, useSorting, who, type Column, type Tone,
} from '../kit';
import type { Node as NodeRow } from '../schema';
import { Doctor } from './system/doctor';
import { Settings } from './system/settings';
import { Tokens } from './system/tokens';

const TABS = [
  { id: 'doctor', label: 'Doctor' }, { id: 'nodes', label: 'Nodes' }, { id: 'config', label: 'Configuration' },
  { id: 'tokens', label: 'Tokens' }, { id: 'about', label: 'About' },
];

const NODES: Record<NodeRow['state'], Tone> = { joining: 'run', active: 'ok', draining: 'warn', left: 'muted', lost: 'bad' };

export default function System() {
  const [tab, setTab] = useQuery('tab', 'doctor');
  const shown = TABS.some(({ id }) => id === tab) ? tab : 'doctor';
  return (
    <div class="page">
      <PageHead title="System" actions={(
        <AsCommand commands={() => [
          { title: 'Check this server', method: 'POST', path: '/v1/doctor', cove: `cove doctor --server ${apiOrigin}` },
          { title: 'Nodes', path: '/v1/nodes', cove: 'cove node list' },
          { title: 'Configuration', path: '/v1/config', cove: `cove config show --server ${apiOrigin} --origin` },
          { title: 'Tokens', path: '/v1/tokens', cove: 'cove token list' },
        ]} />
      )} />
      <Tabs label="Parts of the system" value={shown} onValue={setTab} tabs={TABS} />
      <TabPanel id={shown}>
        {shown === 'doctor' && <Doctor />}
        {shown === 'nodes' && <Nodes />}
        {shown === 'config' && <Settings />}
        {shown === 'tokens' && <Tokens />}
        {shown === 'about' && <About />}
      </TabPanel>
    </div>
  );
}

const NODE_COLUMNS: Column<NodeRow>[] = [
  { id: 'id', title: 'Node', width: 'minmax(150px, 1.6fr)', isMono: true, sort: (it) => it.id, render: (it) => <>{it.id}{it.is_this ? ' (this)' : ''}</> },
  { id: 'state', title: 'State', width: '112px', sort: (it) => it.state, render: (it) => <Badge tone={NODES[it.state]}>{it.state}</Badge> },
  { id: 'sessions', title: 'Sandboxes', width: '110px', align: 'end', from: 520, sort: (it) => it.load.sandboxes, render: (it) => `${count(it.load.sandboxes)}/${count(it.load.sandboxes_max)}` },
  { id: 'executions', title: 'Executions', width: '110px', align: 'end', from: 620, sort: (it) => it.load.executions, render: (it) => `${count(it.load.executions)}/${count(it.load.executions_max)}` },
  { id: 'waiting', title: 'Waiting', width: '90px', align: 'end', from: 700, sort: (it) => it.load.executions_waiting, render: (it) => count(it.load.executions_waiting) },
  { id: 'address', title: 'Address', width: 'minmax(130px, 1fr)', from: 820, isMono: true, sort: (it) => it.address ?? '', render: (it) => it.address ?? '–' },
  { id: 'roles', title: 'Roles', width: 'minmax(120px, 1fr)', from: 1000, sort: (it) => it.roles.join(), render: (it) => it.roles.join(', ') },
  { id: 'version', title: 'Version', width: '86px', from: 900, sort: (it) => it.version, render: (it) => it.version },
  { id: 'started', title: 'Started', width: '100px', from: 760, sort: (it) => it.started_ms, render: (it) => <Time ms={it.started_ms} /> },
];

function Nodes() {
  const from = useResource<{ nodes: NodeRow[] }>('/v1/nodes', 3000);
  const [sorting, setSorting] = useSorting('id');
  const drain = async (node: NodeRow) => {
    const isBack = node.state === 'draining';
    const isSure = isBack || await confirm({
      title: `Drain ${node.id}?`, action: 'Drain node', isDanger: true,
      body: 'It finishes what it has and takes no new work; its sessions go on elsewhere. It can be taken back.',
    });
    if (!isSure) return;
    const verb = isBack ? 'undrain' : 'drain';
    await attempt(api(path`/v1/nodes/${node.id}` + `/${verb}`, { method: 'POST' }), isBack ? `${node.id} takes work again` : `${node.id} drains`);
    refreshAll('/v1/nodes');
  };
  const columns: Column<NodeRow>[] = [...NODE_COLUMNS, {
    id: 'drain', title: '', width: '96px', render: (it) => (
      (it.state === 'active' || it.state === 'draining')
        && <Button kind="quiet" onClick={() => drain(it)}>{it.state === 'draining' ? 'Undrain' : 'Drain'}</Button>
    ),
  }];
  return (
    <Loaded from={from}>
      {({ nodes }) => (
        <>
          {nodes.length === 1 && <Note>One node. Several share a store and are one service: see <Link out={`${apiOrigin}/docs/cluster`}>the documentation</Link> of clusters.</Note>}
          <Table label="Nodes" columns={columns} rows={sorted(nodes, columns, sorting)} keyOf={(it) => it.id} sorting={sorting} onSort={setSorting}
            empty={<Empty icon="network" title="No node" />} />
        </>
      )}
    </Loaded>
  );
}

function About() {
  const it = who.value;
  return (
    <div class="grid">
      <Panel title="This server">
        <Facts items={[
          ['Version', it?.version ?? '–'],
          ['Node', it?.node ?? '–'],
          ['Address', apiOrigin],
          ['Services', it === null ? '–' : Object.entries(it.services).filter(([, isOn]) => isOn).map(([name]) => name).join(', ')],
        ]} />
      </Panel>
      <Panel title="Signed in">
        <Facts items={[
          ['Token', it?.name ?? '–'],
          ['Tenant', it?.tenant ?? 'none'],
          ['Scopes', it?.scopes.join(', ') ?? '–'],
          ['Operator', it?.operator ? 'yes' : 'no'],
          ['Ends', it?.expires_ms ? <Time ms={it.expires_ms} /> : 'with the tab'],
        ]} />
        <p class="muted">Tokens are made and revoked at the command line: <code>cove token create</code>, <code>cove token revoke</code>.</p>
      </Panel>
      <Panel title="More">
        <ul class="plain-list">
          <li><Link out={`${apiOrigin}/docs/`}>Documentation</Link></li>
          <li><Link out={`${apiOrigin}/docs/api`}>Reference of the HTTP interface</Link></li>
          <li><Link out={`${apiOrigin}/openapi.json`}>openapi.json</Link></li>
          <li><Link out={`${apiOrigin}/metrics`}>Metrics for Prometheus</Link></li>
          <li><a href={`${consolePath}/licences`} target="_blank" rel="noopener noreferrer">Licences of what the console is made of</a></li>
        </ul>
      </Panel>
    </div>
  );
}
