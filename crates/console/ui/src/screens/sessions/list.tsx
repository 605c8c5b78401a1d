// All sessions, and a new one.
import { useState } from 'preact/hooks';
import {
  AsCommand, Badge, Button, Dialog, Empty, Foreign, Form, HistoryLine, IN_UNIT, Loaded, Meter, Note, PageHead, RangeChoice, SearchField, SelectField,
  Stat, Table, TextField, Time, api, count, isOperator, merged, navigate, path, pollUnlessLive, refreshAll, sorted, toast, useHistory, useLiveDocument,
  useLiveRecords, useQuery, useRange, useResource, useSorting, valuesOf, withQuery, type Column, type Range,
} from '../../kit';
import type { SandboxCounts } from '../../schema';
import { SANDBOXES, STATES, labelOf, type Session } from './model';

const COLUMNS: Column<Session>[] = [
  { id: 'id', title: 'Session', width: 'minmax(150px, 1.4fr)', isMono: true, sort: (it) => it.id, render: (it) => it.id },
  { id: 'state', title: 'State', width: '112px', sort: (it) => it.state, render: (it) => (
    <Badge tone={STATES[it.state].tone} title={it.message ?? undefined}>{STATES[it.state].word}</Badge>
  ) },
  { id: 'sandbox', title: 'Sandbox', width: '110px', from: 620, sort: (it) => it.sandbox, render: (it) => it.state === 'ended' ? 'none' : SANDBOXES[it.sandbox] },
  { id: 'agent', title: 'Agent or template', width: 'minmax(110px, 0.8fr)', from: 520, sort: (it) => it.agent ?? it.template ?? '', render: (it) => (
    it.agent ? <>{it.agent} <span class="muted">v{it.agent_version}</span></> : it.template ?? <span class="muted">none</span>
  ) },
  { id: 'metadata', title: 'Metadata', width: 'minmax(120px, 1fr)', from: 820, render: (it) => (
    <Foreign text={Object.entries(it.metadata ?? {}).map(([name, value]) => `${name}=${value}`).join(' ')} />
  ) },
  { id: 'grants', title: 'Reaches', width: 'minmax(110px, 1fr)', from: 980, render: (it) => (it.grants ?? []).map(labelOf).join(', ') || <span class="muted">nothing</span> },
  { id: 'active', title: 'Last active', width: '112px', from: 460, sort: (it) => it.last_active_at, render: (it) => <Time ms={Date.parse(it.last_active_at)} /> },
  { id: 'created', title: 'Made', width: '104px', from: 720, sort: (it) => it.created_at, render: (it) => <Time ms={Date.parse(it.created_at)} /> },
];

/** Series of the tiles, and those that an operator sees. */
const SERIES = ['cove_session_sandboxes', 'cove_session_sandboxes_running'];
const SERIES_OF_ALL = ['cove_session_messages', 'cove_session_commands'];

/** Sessions that the list shows: a page of the interface. */
const SHOWN_MAX = 200;

export function SessionList() {
  const [state, setState] = useQuery('state');
  const [agent, setAgent] = useQuery('agent');
  const [search, setSearch] = useQuery('q');
  const [sorting, setSorting] = useSorting('-created');
  const [isNew, setNew] = useState(false);
  const from = useResource<{ sessions: Session[]; next_cursor?: string | null }>(
    withQuery('/v1/sessions', { state, agent, limit: SHOWN_MAX }), pollUnlessLive(3000),
  );
  useLiveRecords<Session>('sessions', {}, from, (session) => {
    const isWanted = (state === '' || session.state === state) && (agent === '' || session.agent === agent);
    from.mutate((page) => ({
      ...page,
      sessions: isWanted ? merged(page.sessions, session).slice(0, SHOWN_MAX) : page.sessions.filter((it) => it.id !== session.id),
    }));
  });
  const sandboxes = useResource<SandboxCounts>('/v1/sandboxes', pollUnlessLive(3000));
  useLiveDocument('sandboxes', {}, sandboxes);
  const [range, setRange] = useRange();
  const series = isOperator.value ? [...SERIES, ...SERIES_OF_ALL] : SERIES;
  const history = useHistory(series, range);
  const wanted = search.toLowerCase();
  const isFiltered = state !== '' || agent !== '' || search !== '';
  const counts = sandboxes.data.value;
  return (
    <div class="page">
      <PageHead title="Sessions" actions={(
        <>
          <AsCommand commands={() => [
            { title: 'List', path: '/v1/sessions', query: { state, agent }, cove: `cove session list${agent ? ` --agent ${agent}` : ''}` },
            { title: 'A new one', path: '/v1/sessions', json: {}, cove: 'cove session create' },
            { title: 'The charts', path: '/v1/history', query: { window: range, series: series.join(',') }, cove: `cove history --window ${range} ${series.join(' ')}` },
          ]} />
          <RangeChoice value={range} onValue={setRange} />
          <Button kind="primary" icon="plus" onClick={() => setNew(true)}>New session</Button>
        </>
      )} />
      {counts && (
        <div class="stats">
          {(['running', 'waiting', 'warm', 'warming'] as const).map((it) => (
            <Stat key={it} label={{ running: 'Working', waiting: 'Waiting', warm: 'Ready in the pool', warming: 'Being made' }[it]}
              value={count(counts[it])} detail={it === 'running' && counts.capacity > 0 ? (
                <Meter label={`${counts.total} of ${counts.capacity} sandboxes`} of={counts.capacity}
                  parts={[{ value: counts.running, tone: 'run' }, { value: counts.waiting, tone: 'info' }]} />
              ) : undefined}>
              {it === 'running' && <HistoryLine label="Working" values={valuesOf(history, 'cove_session_sandboxes_running')} format={IN_UNIT.count} range={range} />}
              {it === 'waiting' && <HistoryLine label="Sandboxes of sessions" values={valuesOf(history, 'cove_session_sandboxes')} format={IN_UNIT.count} range={range} />}
            </Stat>
          ))}
          {isOperator.value && (
            <>
              <Past label="Messages" values={valuesOf(history, 'cove_session_messages')} range={range} />
              <Past label="Commands" values={valuesOf(history, 'cove_session_commands')} range={range} />
            </>
          )}
        </div>
      )}
      <div class="toolbar">
        <SearchField label="Search sessions" placeholder="Id, agent, metadata" value={search} onValue={setSearch} />
        <SelectField label="State" isLabelHidden value={state} onValue={setState}
          choices={[{ value: '', label: 'Every state' }, ...Object.keys(STATES)]} />
        <TextField label="Agent" isLabelHidden placeholder="Agent" value={agent} onValue={setAgent} />
      </div>
      <Loaded from={from} rows={8}>
        {({ sessions, next_cursor: more }) => {
          const found = sessions.filter((it) => (
            `${it.id} ${it.agent ?? ''} ${it.template ?? ''} ${Object.entries(it.metadata ?? {}).map((pair) => pair.join('=')).join(' ')}`
              .toLowerCase().includes(wanted)
          ));
          return (
            <>
            {more && <Note>The first {SHOWN_MAX} sessions are shown. Choose a state or an agent to see others.</Note>}
            <Table label="Sessions" columns={COLUMNS} rows={sorted(found, COLUMNS, sorting)} keyOf={(it) => it.id} sorting={sorting}
              onSort={setSorting} hrefOf={(it) => path`/sessions/${it.id}`}
              empty={isFiltered ? <Empty icon="search" title="No session matches"><p>Change the filters above.</p></Empty> : (
                <Empty icon="terminal" title="No session yet" command={'id=$(cove session create --json | jq -r .id)\ncove session exec $id -- uname -a'}
                  action={<Button kind="primary" icon="plus" onClick={() => setNew(true)}>New session</Button>}>
                  <p>A session is a sandbox with files that stay: run commands and cells in it, open a terminal, talk to an agent,
                    pause it and go on later.</p>
                </Empty>
              )} />
            </>
          );
        }}
      </Loaded>
      {isNew && <NewSession onClose={() => setNew(false)} />}
    </div>
  );
}

function NewSession({ onClose }: { onClose: () => void }) {
  const agents = useResource<{ agents: { name: string; description?: string | null }[] }>('/v1/agents');
  const templates = useResource<{ templates: { name: string }[] }>('/v1/templates');
  const [base, setBase] = useState('');
  const [label, setLabel] = useState('');
  const [snapshot, setSnapshot] = useState('');
  const submit = async () => {
    const [kind, name] = base.split(/:(.*)/s);
    const made = await api<Session>('/v1/sessions', {
      json: {
        ...(kind === 'agent' ? { agent: name } : kind === 'template' ? { template: name } : {}),
        ...(label.trim() === '' ? {} : { metadata: { name: label.trim() } }),
        ...(snapshot.trim() === '' ? {} : { snapshot: snapshot.trim() }),
      },
    });
    refreshAll('/v1/sessions');
    toast('Created a session');
    navigate(path`/sessions/${made.id}`);
  };
  return (
    <Dialog title="New session" onClose={onClose}>
      <Form onSubmit={submit} submit="Create session" onCancel={onClose}>
        {(errorOf) => (
          <>
            <SelectField label="Starts from" value={base} onValue={setBase} error={errorOf('agent') ?? errorOf('template')} choices={[
              { value: '', label: 'an empty workspace' },
              ...(agents.data.value?.agents ?? []).map((it) => ({ value: `agent:${it.name}`, label: `agent ${it.name}` })),
              ...(templates.data.value?.templates ?? []).map((it) => ({ value: `template:${it.name}`, label: `template ${it.name}` })),
            ]} />
            <TextField label="Name" value={label} onValue={setLabel} error={errorOf('metadata')} placeholder="to find it by" hint="Kept as metadata" autofocus />
            <TextField label="Snapshot" value={snapshot} onValue={setSnapshot} error={errorOf('snapshot')} placeholder="files of another session" />
          </>
        )}
      </Form>
    </Dialog>
  );
}

/** A rate, now and in the chosen time. */
function Past({ label, values, range }: { label: string; values: (number | null)[]; range: Range }) {
  const now = values.filter((it): it is number => it !== null).pop();
  return (
    <Stat label={label} value={now === undefined ? '–' : IN_UNIT.rate(now)}>
      <HistoryLine label={label} values={values} format={IN_UNIT.rate} range={range} />
    </Stat>
  );
}
