// One session: terminal, files, cells, conversation, events, snapshots, what it may reach.
import { useEffect, useState } from 'preact/hooks';
import {
  AsCommand, Badge, Button, Empty, Facts, Foreign, Id, Link, Loaded, Menu, Note, PageHead, Panel, Plot, Stat, TabPanel,
  Table, Tabs, TextField, Time, api, attempt, bytes, confirm, count, duration, navigate, path, percent, pollUnlessLive,
  precise, refreshAll, useLive, useQuery, useResource, type Column,
} from '../../kit';
import type { Snapshot } from '../../schema';
import { Cells } from './cells';
import { Chat, Timeline, useEvents } from './chat';
import { Files } from './files';
import { Access } from './grants';
import { SANDBOXES, STATES, isAwake, type Metrics, type Session } from './model';
import { Terminals } from './terminal';

const TABS = ['terminal', 'files', 'cells', 'chat', 'events', 'metrics', 'snapshots', 'access'] as const;

export function SessionPage({ id }: { id: string }) {
  const address = path`/v1/sessions/${id}`;
  const from = useResource<Session>(address, pollUnlessLive(2500));
  useLive<Session & { truncated?: boolean }>('sessions', {}, {
    onEvent: (session) => {
      if (session.id !== id) return;
      if (session.truncated) from.refresh();
      else from.mutate(() => session);
    },
  });
  const [tab, setTab] = useQuery('tab', 'terminal');
  const shown = TABS.includes(tab as typeof TABS[number]) ? tab : 'terminal';
  const { events, error } = useEvents(id);
  // A terminal stays when another tab is looked at.
  const [wasOpened, setOpened] = useState(shown === 'terminal');
  useEffect(() => { if (shown === 'terminal') setOpened(true); }, [shown]);
  const session = from.data.value;
  const name = session?.metadata?.name;
  return (
    <div class="page">
      <PageHead back={{ to: '/sessions', label: 'All sessions' }}
        title={name ? <Foreign text={name} most={60} /> : session?.agent ?? 'Session'}
        aside={session && <Badge tone={STATES[session.state].tone} title={session.message ?? undefined}>{STATES[session.state].word}</Badge>}
        actions={session && <Actions session={session} />} />
      <Loaded from={from}>
        {(it) => (
          <>
            {it.message && it.state === 'error' && <Note tone="bad"><span class="wrap">{it.message}</span></Note>}
            <Id id={it.id} />
            <Facts items={[
              ['Sandbox', SANDBOXES[it.sandbox]],
              ['Agent', it.agent ? <Link to={path`/agents/${it.agent}`}>{it.agent} v{it.agent_version}</Link> : 'none'],
              it.template !== undefined && it.template !== null && ['Template', it.template],
              ['Last active', <Time ms={Date.parse(it.last_active_at)} />],
              ['Made', <Time ms={Date.parse(it.created_at)} />],
              it.parent !== undefined && it.parent !== null && ['Forked from', <Link to={path`/sessions/${it.parent}`}>{it.parent}</Link>],
            ]} />
            <Tabs label="Parts of the session" value={shown} onValue={setTab} tabs={[
              { id: 'terminal', label: 'Terminal' }, { id: 'files', label: 'Files' }, { id: 'cells', label: 'Cells' },
              { id: 'chat', label: 'Chat', isHidden: !it.agent }, { id: 'events', label: 'Events' }, { id: 'metrics', label: 'Metrics' },
              { id: 'snapshots', label: 'Snapshots' }, { id: 'access', label: 'Access', count: it.grants?.length ?? 0 },
            ]} />
            {it.state === 'ended' ? <Empty icon="box" title="The session has ended"><p>Its files are gone; snapshots and records of it stay.</p></Empty> : (
              <>
                <div hidden={shown !== 'terminal'}>{wasOpened && <TabPanel id="terminal"><Terminals session={id} /></TabPanel>}</div>
                {shown !== 'terminal' && (
                  <TabPanel id={shown}>
                    {shown === 'files' && <Files session={id} isResting={!isAwake(it)} />}
                    {shown === 'cells' && <Cells session={id} />}
                    {shown === 'chat' && <Chat session={it} events={events} error={error} />}
                    {shown === 'events' && <Timeline events={events} error={error} />}
                    {shown === 'metrics' && <MetricsPanel id={id} isAwake={it.sandbox !== 'cold'} />}
                    {shown === 'snapshots' && <Snapshots session={it} />}
                    {shown === 'access' && <Access session={it} />}
                  </TabPanel>
                )}
              </>
            )}
          </>
        )}
      </Loaded>
    </div>
  );
}

function Actions({ session }: { session: Session }) {
  const { id } = session;
  const order = (verb: string, done: string) => (
    attempt(api(`${path`/v1/sessions/${id}`}/${verb}`, { method: 'POST' }), done).then(() => refreshAll('/v1/sessions'))
  );
  const fork = async () => {
    const made = await attempt(api<Session>(`${path`/v1/sessions/${id}`}/fork`, { json: {} }), 'Forked the session');
    if (made) navigate(path`/sessions/${made.id}`);
  };
  const end = async () => {
    const isSure = await confirm({
      title: 'End the session?', action: 'End session', isDanger: true,
      body: 'Its processes are killed and its files are deleted. Snapshots of it stay.',
    });
    if (!isSure) return;
    if (await attempt(api(path`/v1/sessions/${id}`, { method: 'DELETE' }).then(() => true), 'Ended the session')) {
      refreshAll('/v1/sessions');
      navigate('/sessions');
    }
  };
  const isOver = session.state === 'ended';
  return (
    <>
      <AsCommand commands={() => [
        { title: 'Show', path: path`/v1/sessions/${id}`, cove: `cove session show ${id}` },
        { title: 'Run a command', path: `${path`/v1/sessions/${id}`}/exec`, json: { command: 'uname -a' }, cove: `cove session exec ${id} -- uname -a` },
        { title: 'Pause', method: 'POST', path: `${path`/v1/sessions/${id}`}/pause`, cove: `cove session pause ${id}` },
      ]} />
      {isAwake(session) && <Button icon="pause" onClick={() => order('pause', 'Paused the session')}>Pause</Button>}
      {!isAwake(session) && !isOver && <Button kind="primary" icon="play" onClick={() => order('resume', 'Resumed the session')}>Resume</Button>}
      {!isOver && (
        <Menu label="More actions for the session" items={[
          { label: 'Fork', icon: 'git-fork', onClick: fork, hint: 'A new session with a copy of its files' },
          { label: 'Stop', icon: 'square', onClick: () => order('stop', 'Stopped the session'), isDisabled: session.state === 'stopped', hint: 'Gives up its sandbox; files are kept' },
          { label: 'End', icon: 'trash', isDanger: true, onClick: end },
        ]} />
      )}
    </>
  );
}

/** Figures that the page keeps, the latest 5 minutes. */
const SAMPLES_MAX = 150;

function MetricsPanel({ id, isAwake: isThere }: { id: string; isAwake: boolean }) {
  const from = useResource<Metrics>(isThere ? path`/v1/sessions/${id}/metrics` : null, 2000);
  const [samples, setSamples] = useState<Metrics[]>([]);
  const latest = from.data.value;
  useEffect(() => {
    if (latest) setSamples((all) => (all[all.length - 1]?.at_ms === latest.at_ms ? all : [...all.slice(1 - SAMPLES_MAX), latest]));
  }, [latest]);
  if (!isThere) return <Empty icon="activity" title="It has no sandbox now"><p>It uses nothing but its disk.</p></Empty>;
  const cpu = samples.map((it, at) => {
    const before = samples[at - 1];
    return before ? Math.max(0, (it.cpu_ms - before.cpu_ms) / Math.max(1, it.at_ms - before.at_ms)) : null;
  });
  const first = samples[0]?.at_ms ?? Date.now();
  const last = samples[samples.length - 1]?.at_ms ?? first;
  const stepMs = samples.length > 1 ? (last - first) / (samples.length - 1) : 2000;
  return (
    <Loaded from={from}>
      {(it) => (
        <>
          <div class="stats">
            <Stat label="Processor" value={percent(cpu[cpu.length - 1] ?? null)} detail={`${duration(it.cpu_ms)} in all`} />
            <Stat label="Memory" value={bytes(it.memory_bytes)} detail={`at most ${bytes(it.memory_peak_bytes)}`} />
            <Stat label="Processes" value={count(it.processes)} />
            <Stat label="Disk" value={bytes(it.disk_bytes)} detail={`of ${bytes(it.disk_total_bytes)}`} />
            <Stat label="Out of memory" value={count(it.oom_kills)} tone={it.oom_kills > 0 ? 'bad' : undefined} detail="processes killed" />
          </div>
          <div class="grid">
            <Panel title="Processor"><Plot label="Use of the processor" from={first} stepMs={stepMs} format={percent} series={[{ label: 'cores', values: cpu }]} /></Panel>
            <Panel title="Memory"><Plot label="Memory" from={first} stepMs={stepMs} format={bytes} series={[{ label: 'memory', values: samples.map((one) => one.memory_bytes) }]} /></Panel>
          </div>
        </>
      )}
    </Loaded>
  );
}

function Snapshots({ session }: { session: Session }) {
  const address = path`/v1/sessions/${session.id}/snapshots`;
  const from = useResource<{ snapshots: Snapshot[] }>(address, 5000);
  const [name, setName] = useState('');
  const make = async () => {
    const json = name.trim() === '' ? {} : { name: name.trim() };
    if (await attempt(api(address, { json }).then(() => true), 'Made a snapshot')) {
      setName('');
      from.refresh();
    }
  };
  const restore = async (snapshot: Snapshot) => {
    const made = await attempt(api<Session>('/v1/sessions', { json: { snapshot: snapshot.id } }), 'Created a session with these files');
    if (made) navigate(path`/sessions/${made.id}`);
  };
  const remove = async (snapshot: Snapshot) => {
    const isSure = await confirm({ title: 'Delete the snapshot?', action: 'Delete snapshot', isDanger: true, body: 'Sessions that began with it are not touched.' });
    if (!isSure) return;
    await attempt(api(path`/v1/snapshots/${snapshot.id}`, { method: 'DELETE' }), 'Deleted the snapshot');
    from.refresh();
  };
  const columns: Column<Snapshot>[] = [
    { id: 'name', title: 'Name', width: 'minmax(120px, 1fr)', render: (it) => (it.name ? <Foreign text={it.name} /> : <span class="muted">none</span>) },
    { id: 'id', title: 'Id', width: 'minmax(140px, 1.2fr)', isMono: true, from: 620, render: (it) => it.id },
    { id: 'bytes', title: 'Size', width: '100px', align: 'end', render: (it) => bytes(it.bytes) },
    { id: 'made', title: 'Made', width: '110px', from: 420, render: (it) => <span title={precise(Date.parse(it.created_at))}><Time ms={Date.parse(it.created_at)} /></span> },
    { id: 'actions', title: '', width: '190px', align: 'end', render: (it) => (
      <><Button kind="quiet" icon="play" onClick={() => restore(it)}>New session</Button><Button kind="quiet" icon="trash" label="Delete the snapshot" onClick={() => remove(it)} /></>
    ) },
  ];
  return (
    <>
      <form class="toolbar" onSubmit={(event) => { event.preventDefault(); void make(); }}>
        <TextField label="Name of the snapshot" isLabelHidden placeholder="Name of the snapshot" value={name} onValue={setName} />
        <Button type="submit" icon="camera">Make a snapshot</Button>
      </form>
      <Loaded from={from}>
        {({ snapshots }) => (
          <Table label="Snapshots" columns={columns} rows={snapshots} keyOf={(it) => it.id}
            empty={<Empty icon="camera" title="No snapshot yet" command={`cove session snapshot ${session.id}`}><p>A snapshot keeps the files as they are; new sessions can start from it.</p></Empty>} />
        )}
      </Loaded>
    </>
  );
}
