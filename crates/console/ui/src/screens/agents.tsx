// Agents: programs that are deployed once and answer messages in sessions; and templates.
import { useState } from 'preact/hooks';
import {
  AsCommand, Badge, Button, Drawer, Empty, ErrorNote, Facts, Foreign, Loaded, PageHead, Panel, Skeleton, TabPanel, Table, Tabs, Time,
  api, attempt, bytes, confirm, count, navigate, path, refreshAll, request, shellWord, sorted, useQuery, useResource, useSorting,
  withQuery, type Column, type ScreenProps, type Tone,
} from '../kit';
import { labelOf } from './sessions/model';
import type { Agent, AgentFileEntry, AgentVersion, Template } from '../schema';

export default function Agents({ params }: ScreenProps) {
  return params.name === undefined ? <Lists /> : <AgentPage name={params.name} key={params.name} />;
}

const programOf = ({ runtime }: Agent) => ('argv' in runtime ? runtime.argv.join(' ') : runtime.type);

const AGENT_COLUMNS: Column<Agent>[] = [
  { id: 'name', title: 'Agent', width: 'minmax(130px, 1fr)', sort: (it) => it.name, render: (it) => <strong>{it.name}</strong> },
  { id: 'version', title: 'Version', width: '84px', align: 'end', sort: (it) => it.version, render: (it) => count(it.version) },
  { id: 'runtime', title: 'Runs', width: 'minmax(130px, 1fr)', from: 560, isMono: true, sort: (it) => it.runtime.type, render: (it) => <Foreign text={programOf(it)} /> },
  { id: 'description', title: 'Description', width: 'minmax(140px, 2fr)', from: 760, render: (it) => <Foreign text={it.description ?? ''} /> },
  { id: 'ready', title: 'Kept ready', width: '104px', align: 'end', from: 860, sort: (it) => it.settings.prewarm_sandboxes ?? 0, render: (it) => count((it.settings.prewarm_sandboxes ?? 0) + (it.settings.prewarm_agents ?? 0)) },
  { id: 'updated', title: 'Changed', width: '104px', from: 460, sort: (it) => it.updated_at, render: (it) => <Time ms={Date.parse(it.updated_at)} /> },
];

const BUILDS: Record<string, Tone> = { ready: 'ok', building: 'run', waiting: 'run', error: 'bad', failed: 'bad' };

const TEMPLATE_COLUMNS: Column<Template>[] = [
  { id: 'name', title: 'Template', width: 'minmax(130px, 1fr)', sort: (it) => it.name, render: (it) => <strong>{it.name}</strong> },
  { id: 'build', title: 'Latest build', width: '130px', sort: (it) => it.build?.status ?? '', render: (it) => (
    it.build ? <Badge tone={BUILDS[it.build.status] ?? 'muted'} title={it.build.failure?.message}>{it.build.status}</Badge> : <span class="muted">none</span>
  ) },
  { id: 'tags', title: 'Tags', width: 'minmax(110px, 1fr)', from: 620, render: (it) => Object.keys(it.tags ?? {}).join(', ') },
  { id: 'builds', title: 'Builds', width: '84px', align: 'end', from: 520, sort: (it) => it.builds, render: (it) => count(it.builds) },
  { id: 'size', title: 'Size', width: '100px', align: 'end', from: 700, sort: (it) => it.build?.bytes ?? null, render: (it) => bytes(it.build?.bytes) },
  { id: 'updated', title: 'Changed', width: '104px', from: 460, sort: (it) => it.updated_at, render: (it) => <Time ms={Date.parse(it.updated_at)} /> },
];

function Lists() {
  const [tab, setTab] = useQuery('tab', 'agents');
  const shown = tab === 'templates' ? 'templates' : 'agents';
  const agents = useResource<{ agents: Agent[] }>('/v1/agents', 5000);
  const templates = useResource<{ templates: Template[] }>('/v1/templates', 5000);
  const [sorting, setSorting] = useSorting('name');
  return (
    <div class="page">
      <PageHead title="Agents" actions={(
        <AsCommand commands={() => [
          { title: 'Agents', path: '/v1/agents', cove: 'cove agent list' },
          { title: 'Templates', path: '/v1/templates', cove: 'cove template list' },
        ]} />
      )} />
      <Tabs label="Agents and templates" value={shown} onValue={setTab} tabs={[
        { id: 'agents', label: 'Agents', count: agents.data.value?.agents.length ?? null },
        { id: 'templates', label: 'Templates', count: templates.data.value?.templates.length ?? null },
      ]} />
      <TabPanel id={shown}>
        {shown === 'agents' ? (
          <Loaded from={agents}>
            {({ agents: all }) => (
              <Table label="Agents" columns={AGENT_COLUMNS} rows={sorted(all, AGENT_COLUMNS, sorting)} keyOf={(it) => it.name} sorting={sorting}
                onSort={setSorting} hrefOf={(it) => path`/agents/${it.name}`}
                empty={<Empty icon="bot" title="No agent yet" command={'cove agent deploy ./my-agent\ncove session create --agent my-agent'}>
                  <p>An agent is a directory with a program that reads messages and writes answers: Claude Code, or one of your own.</p>
                </Empty>} />
            )}
          </Loaded>
        ) : (
          <Loaded from={templates}>
            {({ templates: all }) => (
              <Table label="Templates" columns={TEMPLATE_COLUMNS} rows={sorted(all, TEMPLATE_COLUMNS, sorting)} keyOf={(it) => it.name} sorting={sorting} onSort={setSorting}
                empty={<Empty icon="layers" title="No template yet" command="cove template build data --pip pandas">
                  <p>A template is what sessions start from: files, packages and a start command, built once by steps with cached layers.</p>
                </Empty>} />
            )}
          </Loaded>
        )}
      </TabPanel>
    </div>
  );
}

function AgentPage({ name }: { name: string }) {
  const from = useResource<Agent>(path`/v1/agents/${name}`, 5000);
  const versions = useResource<{ versions: AgentVersion[] }>(path`/v1/agents/${name}/versions`, 5000);
  const [tab, setTab] = useQuery('tab', 'versions');
  const shown = ['versions', 'files'].includes(tab) ? tab : 'versions';
  const [opened, setOpened] = useState<AgentVersion | null>(null);
  const activate = async (version: AgentVersion) => {
    await attempt(api(path`/v1/agents/${name}`, { method: 'PATCH', json: { version: version.version } }), `New sessions of ${name} get version ${version.version}`);
    refreshAll('/v1/agents');
  };
  const remove = async () => {
    const isSure = await confirm({
      title: `Remove agent ${name}?`, action: 'Remove agent', isDanger: true, typed: name, body: 'Its versions are deleted. Sessions that run go on.',
    });
    if (isSure && await attempt(api(path`/v1/agents/${name}`, { method: 'DELETE' }).then(() => true), `Removed agent ${name}`)) {
      refreshAll('/v1/agents');
      navigate('/agents');
    }
  };
  const talk = async () => {
    const made = await attempt(api<{ id: string }>('/v1/sessions', { json: { agent: name } }), 'Created a session');
    if (made) navigate(`${path`/sessions/${made.id}`}?tab=chat`);
  };
  const columns: Column<AgentVersion>[] = [
    { id: 'version', title: 'Version', width: '90px', render: (it) => `v${it.version}` },
    { id: 'state', title: 'State', width: '118px', render: (it) => (it.active ? <Badge tone="ok">in use</Badge> : <Badge tone="muted">kept</Badge>) },
    { id: 'files', title: 'Files', width: '80px', align: 'end', from: 460, render: (it) => count(it.files) },
    { id: 'size', title: 'Size', width: '100px', align: 'end', from: 520, render: (it) => bytes(it.bytes) },
    { id: 'made', title: 'Deployed', width: 'minmax(100px, 1fr)', from: 400, render: (it) => <Time ms={Date.parse(it.created_at)} /> },
    { id: 'actions', title: '', width: '220px', align: 'end', render: (it) => (
      <>
        {it.install_output && <Button kind="quiet" icon="scroll-text" onClick={() => setOpened(it)}>Install output</Button>}
        {!it.active && <Button kind="quiet" icon="rotate-ccw" onClick={() => activate(it)}>Use it</Button>}
      </>
    ) },
  ];
  return (
    <div class="page">
      <PageHead title={name} back={{ to: '/agents', label: 'All agents' }} actions={(
        <>
          <AsCommand commands={() => [{ path: path`/v1/agents/${name}`, cove: `cove agent show ${shellWord(name)}` }]} />
          <Button href={`/sessions?agent=${encodeURIComponent(name)}`} icon="list">Its sessions</Button>
          <Button icon="trash" label={`Remove agent ${name}`} onClick={remove} />
          <Button kind="primary" icon="message-square" onClick={talk}>Talk to it</Button>
        </>
      )} />
      <Loaded from={from}>
        {(it) => (
          <>
            {it.description && <p class="wrap">{it.description}</p>}
            <Panel>
              <Facts items={[
                ['Version in use', `v${it.version}`],
                ['Runs', <code>{programOf(it)}</code>],
                ['Model', it.options?.model ?? 'default'],
                ['Kept ready', `${it.settings.prewarm_sandboxes ?? 0} sandboxes, ${it.settings.prewarm_agents ?? 0} with the agent`],
                ['Reaches', (it.grants ?? []).map(labelOf).join(', ') || 'nothing'],
                ['Environment', (it.env ?? []).join(', ') || 'none'],
                ['Changed', <Time ms={Date.parse(it.updated_at)} />],
              ]} />
            </Panel>
            <Tabs label="Parts of the agent" value={shown} onValue={setTab} tabs={[{ id: 'versions', label: 'Versions' }, { id: 'files', label: 'Files' }]} />
            <TabPanel id={shown}>
              {shown === 'versions' && (
                <Loaded from={versions}>
                  {({ versions: all }) => <Table label="Versions" columns={columns} rows={all} keyOf={(one) => String(one.version)} />}
                </Loaded>
              )}
              {shown === 'files' && <AgentFiles name={name} version={it.version} />}
            </TabPanel>
          </>
        )}
      </Loaded>
      {opened && (
        <Drawer title={`Install output of v${opened.version}`} onClose={() => setOpened(null)}>
          <pre class="output">{opened.install_output}</pre>
        </Drawer>
      )}
    </div>
  );
}

/** Bytes of a file that are shown. */
const SHOWN_BYTES_MAX = 512 * 1024;

function AgentFiles({ name, version }: { name: string; version: number }) {
  const from = useResource<{ files: AgentFileEntry[] }>(withQuery(path`/v1/agents/${name}/files`, { version }));
  const [opened, setOpened] = useState<{ file: AgentFileEntry; text: string | null; error: unknown } | null>(null);
  const open = async (file: AgentFileEntry) => {
    setOpened({ file, text: null, error: null });
    try {
      if (file.size > SHOWN_BYTES_MAX) throw new Error(`it has ${bytes(file.size)}; up to ${bytes(SHOWN_BYTES_MAX)} are shown`);
      const address = `${path`/v1/agents/${name}/files`}/${file.path.split('/').map(encodeURIComponent).join('/')}`;
      const response = await request(withQuery(address, { version }));
      setOpened({ file, text: new TextDecoder().decode(await response.arrayBuffer()), error: null });
    } catch (error) {
      setOpened({ file, text: null, error });
    }
  };
  const columns: Column<AgentFileEntry>[] = [
    { id: 'path', title: 'File', width: 'minmax(160px, 1fr)', isMono: true, render: (it) => <Foreign text={it.path} /> },
    { id: 'mode', title: 'Kind', width: '110px', render: (it) => (it.executable ? 'program' : 'file') },
    { id: 'size', title: 'Size', width: '100px', align: 'end', render: (it) => bytes(it.size) },
  ];
  return (
    <Loaded from={from}>
      {({ files }) => (
        <>
          <Table label="Files" columns={columns} rows={files} keyOf={(it) => it.path} onOpen={open} empty={<Empty icon="file" title="No file" />} />
          {opened && (
            <Drawer title={<Foreign text={opened.file.path} />} onClose={() => setOpened(null)}>
              {opened.error !== null ? <ErrorNote error={opened.error} /> : opened.text === null ? <Skeleton /> : <pre class="output">{opened.text}</pre>}
            </Drawer>
          )}
        </>
      )}
    </Loaded>
  );
}
