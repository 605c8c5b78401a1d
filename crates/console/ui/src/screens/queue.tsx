// The queue: what waits, runs and failed, and what an operator may do about it.
import {
  AsCommand, Badge, Button, Empty, Foreign, IN_UNIT, Link, Loaded, Menu, Note, PageHead, Panel, Plot, RangeChoice, Stat, Table, Time, api, attempt,
  confirm, count, duration, isOperator, plural, pollUnlessLive, refreshAll, spoken, timeOf, useHistory, useLive, useLiveDocument, useQuery, useRange,
  useResource, valuesOf, Segments, usePalette, type Column,
} from '../kit';
import { ExecutionActions, LiveMark } from './executions/list';
import type { ComponentChildren } from 'preact';
import { useRef } from 'preact/hooks';
import type { ExecutionRecord, QueueStats } from './executions/types';

interface Page { executions: ExecutionRecord[] }

/** Time in which changes of records are one. */
const TOGETHER_MS = 500;

/** Age from which something that waits is said to wait long. */
const LONG_MS = 60_000;

export default function Queue() {
  const [whose, setWhose] = useQuery('whose', isOperator.value ? 'all' : 'own');
  const isAll = isOperator.value && whose === 'all';
  const query = { all: isAll };
  const stats = useResource<QueueStats>(isAll ? '/v1/queue?all=true' : '/v1/queue', pollUnlessLive(2000));
  const waiting = useResource<Page>('/v1/executions?state=queued,running&limit=100', pollUnlessLive(2500));
  const dead = useResource<Page>('/v1/executions?state=dead&limit=100', pollUnlessLive(5000));
  useLiveDocument('queue', isAll ? { all: true } : {}, stats);
  // A record that changes may leave a list or enter it.
  const isDue = useRef(false);
  useLive<ExecutionRecord>('executions', {}, {
    onEvent: () => {
      if (isDue.current) return;
      isDue.current = true;
      setTimeout(() => {
        isDue.current = false;
        waiting.refresh();
        dead.refresh();
      }, TOGETHER_MS);
    },
  });
  const refresh = () => {
    refreshAll('/v1/queue');
    refreshAll('/v1/executions');
  };
  const post = async (action: string, done: string | ((it: { changed?: number }) => string), inQuery = {}) => {
    await attempt(api<{ changed?: number }>(`/v1/queue/${action}`, { method: 'POST', query: inQuery }), done as string);
    refresh();
  };
  const pause = () => post('pause', 'Nothing more is started.');
  const resume = () => post('resume', 'The queue goes on.');
  const retry = () => post('retry', (it) => `${plural(it.changed ?? 0, 'execution')} wait again.`, query);
  const drain = async () => {
    const isYes = await confirm({
      title: 'Cancel everything that waits?',
      body: isAll ? 'The waiting executions of all tenants are cancelled. What runs goes on.' : 'Your waiting executions are cancelled. What runs goes on.',
      action: 'Cancel all that wait', isDanger: true, typed: isAll ? 'drain' : undefined,
    });
    if (isYes) await post('drain', (it) => `${plural(it.changed ?? 0, 'execution')} cancelled.`, query);
  };
  const data = stats.data.value;
  usePalette([
    ...(isOperator.value ? [data?.paused
      ? { title: 'Resume the queue', group: 'Queue', icon: 'play' as const, run: resume }
      : { title: 'Pause the queue', group: 'Queue', icon: 'pause' as const, run: pause }] : []),
    { title: 'Retry all dead executions', group: 'Queue', icon: 'rotate-ccw', run: retry },
  ]);
  return (
    <div class="page">
      <PageHead title="Queue" aside={<>{data?.paused && <Badge tone="warn" icon="circle-pause">paused</Badge>}<LiveMark /></>} actions={(
        <>
          {isOperator.value && <Segments label="Whose" value={whose} onValue={setWhose} choices={[{ value: 'all', label: 'All tenants' }, { value: 'own', label: 'Own' }]} />}
          <AsCommand commands={() => [
            { title: 'Look', path: '/v1/queue', query, cove: `cove queue stats${isAll ? ' --all' : ''}` },
            { title: 'The charts', path: '/v1/history', query: { series: SERIES.join(',') }, cove: `cove history ${SERIES.join(' ')}` },
            { title: 'Retry what is dead', method: 'POST', path: '/v1/queue/retry', query, cove: 'cove queue retry --all' },
            { title: 'Pause', method: 'POST', path: '/v1/queue/pause', cove: 'cove queue pause' },
            { title: 'Resume', method: 'POST', path: '/v1/queue/resume', cove: 'cove queue resume' },
          ]} />
          {isOperator.value && (data?.paused
            ? <Button kind="primary" icon="play" onClick={resume}>Resume</Button>
            : <Button icon="pause" onClick={pause}>Pause</Button>)}
          <Menu items={[
            { label: 'Retry all dead', icon: 'rotate-ccw', onClick: retry, isDisabled: !data?.dead },
            { label: 'Cancel all that wait', icon: 'ban', isDanger: true, onClick: drain, isDisabled: !data?.queued },
          ]} />
        </>
      )} />
      <Loaded from={stats} rows={3}>
        {(it) => (
          <>
            {it.paused && <Note tone="warn">The queue is paused: what runs goes on, submissions are taken, nothing is started.</Note>}
            <div class="stats">
              <Stat label="Waiting" value={count(it.queued)} tone={(it.oldest_queued_ms ?? 0) > LONG_MS ? 'warn' : undefined}
                detail={it.oldest_queued_ms ? `the oldest for ${duration(Math.ceil(it.oldest_queued_ms / 1000) * 1000)}` : 'nothing waits'} to="/executions?state=queued" />
              <Stat label="Running" value={count(it.running)} detail={it.tenants_waiting > 0 ? `${plural(it.tenants_waiting, 'tenant')} waiting` : ' '} to="/executions?state=running" />
              <Stat label="Dead" value={count(it.dead)} tone={it.dead > 0 ? 'bad' : undefined}
                detail={it.dead > 0 ? 'Cove failed at them' : 'none'} to="/executions?state=dead" />
              <Stat label="Finished, kept" value={count(it.finished)} detail={`${count(it.cancelled)} cancelled`} to="/executions?state=finished" />
              <Stat label="Expired" value={count(it.expired)} detail="not started in time" to="/executions?state=expired" />
              <Stat label="Kept in" value={<span class="stat-text">{it.backend}</span>} detail="durable" />
            </div>
          </>
        )}
      </Loaded>
      <Past isOwn={!isOperator.value} />
      <Panel title="Dead" isFlush actions={(data?.dead ?? 0) > 0 && <Button icon="rotate-ccw" onClick={retry}>Retry all</Button>}>
        <Loaded from={dead} rows={2}>
          {(page) => <QueueTable label="Dead executions" rows={page.executions} onChange={refresh}
            empty={<Empty icon="circle-check" title="Nothing is dead">An execution is dead when Cove failed at it as often as it may; its program is not to blame.</Empty>} />}
        </Loaded>
      </Panel>
      <Panel title="Waiting and running, of this token" isFlush>
        <Loaded from={waiting} rows={3}>
          {(page) => <QueueTable label="Waiting and running executions" rows={page.executions} onChange={refresh}
            empty={<Empty icon="hourglass" title="Nothing waits" command="cove exec submit --label nightly main.py">What is submitted waits here for its turn. <Link to="/executions">All executions</Link></Empty>} />}
        </Loaded>
      </Panel>
    </div>
  );
}

/** Series of the charts; those in the middle are of the whole server alone. */
const SERIES = ['cove_executions_running', 'cove_executions_waiting', 'cove_executions_ended'];
const SERIES_OF_ALL = ['cove_execution_wait_p50_seconds', 'cove_execution_wait_p95_seconds', 'cove_execution_run_p95_seconds', 'cove_sandboxes_prepared'];
const CLASSES = [['ok', '--ok'], ['failed', '--warn'], ['limit', '--chart-3'], ['server', '--bad']] as const;

/** What this server ran in the chosen time. */
function Past({ isOwn }: { isOwn: boolean }) {
  const [range, setRange] = useRange();
  const history = useHistory(isOwn ? SERIES : [...SERIES, ...SERIES_OF_ALL], range);
  if (history?.length === 0) return null;
  const of = (name: string, label?: string) => valuesOf(history, name, label);
  const said = (label: string, name: string, format: (value: number) => string) => spoken(label, of(name), format, range);
  const shared = { from: history?.from ?? Date.now(), stepMs: history?.stepMs ?? 1, height: 140 };
  return (
    <>
      <div class="row end"><RangeChoice value={range} onValue={setRange} /></div>
      <div class="grid">
        <Panel title="Ended, by verdict">
          <Plot {...shared} format={IN_UNIT.rate} label={CLASSES.map(([name]) => spoken(name, of('cove_executions_ended', name), IN_UNIT.rate, range)).join('; ')}
            series={CLASSES.map(([name, colour]) => ({ label: name, colour, values: of('cove_executions_ended', name) }))} />
        </Panel>
        <Panel title="Running and waiting for a place">
          <Plot {...shared} label={`${said('Running', SERIES[0]!, IN_UNIT.count)}; ${said('Waiting', SERIES[1]!, IN_UNIT.count)}`} series={[
            { label: 'running', values: of('cove_executions_running') },
            { label: 'waiting', values: of('cove_executions_waiting'), colour: '--warn' },
            ...(isOwn ? [] : [{ label: 'prepared sandboxes', values: of('cove_sandboxes_prepared') }]),
          ]} />
        </Panel>
        {!isOwn && (
          <Panel title="Time to wait and to run">
            <Plot {...shared} format={IN_UNIT.seconds} label={said('Wait p95', 'cove_execution_wait_p95_seconds', IN_UNIT.seconds)} series={[
              { label: 'wait p50', values: of('cove_execution_wait_p50_seconds') },
              { label: 'wait p95', values: of('cove_execution_wait_p95_seconds'), colour: '--warn' },
              { label: 'run p95', values: of('cove_execution_run_p95_seconds') },
            ]} />
          </Panel>
        )}
      </div>
    </>
  );
}

function QueueTable({ rows, label, empty, onChange }: {
  rows: ExecutionRecord[]; label: string; empty: ComponentChildren; onChange: () => void;
}) {
  const columns: Column<ExecutionRecord>[] = [
    { id: 'state', title: 'State', width: '116px', render: (it) => <Badge tone={it.state === 'dead' ? 'bad' : it.state === 'running' ? 'run' : 'muted'}>{it.state}</Badge> },
    { id: 'id', title: 'Id', width: '256px', isMono: true, from: 620, render: (it) => it.id },
    { id: 'label', title: 'Label', width: 'minmax(80px, 1fr)', render: (it) => (it.label ? <Foreign text={it.label} /> : <span class="muted">{it.language}</span>) },
    { id: 'why', title: 'Why, or how long yet', width: 'minmax(120px, 2fr)', from: 800, render: (it) => (it.message
      ? <Foreign text={it.message} most={300} />
      : it.state === 'queued' && it.estimated_start_ms ? `about ${duration(it.estimated_start_ms)}` : '') },
    { id: 'position', title: 'Before it', width: '80px', align: 'end', from: 900, render: (it) => (it.state === 'queued' ? count(it.position) : '') },
    { id: 'since', title: 'Submitted', width: '104px', align: 'end', render: (it) => <Time ms={timeOf(it.created_at)} /> },
    { id: 'actions', title: '', width: '50px', render: (it) => <ExecutionActions record={it} onChange={onChange} /> },
  ];
  return <Table label={label} columns={columns} rows={rows} keyOf={(it) => it.id} hrefOf={(it) => `/executions/${it.id}`} empty={empty} height={rows.length > 0 ? Math.min(374, 34 + 34 * rows.length) : undefined} />;
}
