// One execution: verdict, output, test cases, stages, request, events.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import {
  AsCommand, Button, CheckField, CopyButton, RECONNECTS_MAX, Empty, Facts, Foreign, Id, Loaded, Note, PageHead, Panel, SearchField, Segments,
  TabPanel, Table, Tabs, Time, api, attempt, bytes, count, duration, href, navigate, openSocket, path, reconnectWaitMs, saveFile, timeOf, useQuery,
  useResource, type Column,
} from '../../kit';
import { ExecutionActions, took } from './list';
import { OutcomeLine, StateBadge, TestTable, VerdictBadge } from './outcome';
import {
  STATES, chunk, putDraft, type ExecutionEvent, type ExecutionRecord, type ExecutionRequest, type ExecutionResult, type Outcome,
  type OutputFile, type StageResult,
} from './types';

/** Characters of one stream that are shown; all of it can be saved. */
const SHOWN_MAX = 200_000;
const EVENTS_MAX = 5000;

export function ExecutionDetail({ id }: { id: string }) {
  const record = useResource<ExecutionRecord>(path`/v1/executions/${id}`);
  const data = record.data.value;
  const isLive = data !== undefined && (data.state === 'queued' || data.state === 'running');
  const events = useEvents(id, () => record.refresh());
  useEffect(() => {
    if (!isLive) return undefined;
    const timer = setInterval(() => record.refresh(), 2500);
    return () => clearInterval(timer);
  }, [isLive]);
  const [tab, setTab] = useQuery('tab', 'output');
  return (
    <div class="page">
      <PageHead back={{ to: '/executions', label: 'All executions' }} title="Execution" aside={<><Id id={id} />{data && <StateBadge state={data.state} />}</>}
        actions={data && <HeadActions record={data} onChange={() => record.refresh()} />} />
      <Loaded from={record} rows={8}>
        {(it) => (
          <>
            {it.result && <Panel><OutcomeLine outcome={it.result} /></Panel>}
            {!it.result && it.state !== 'finished' && (
              <Note tone={STATES[it.state].tone === 'bad' ? 'bad' : STATES[it.state].tone === 'warn' ? 'warn' : 'info'}>
                It {STATES[it.state].words}{it.message && <>: <Foreign text={it.message} most={500} /></>}.
                {it.state === 'queued' && it.position !== null && it.position !== undefined && (
                  <> {it.position === 0 ? 'It is next' : `${count(it.position)} go before it`}{it.estimated_start_ms ? `, in about ${duration(it.estimated_start_ms)}` : ''}.</>
                )}
              </Note>
            )}
            <Panel>
              <Facts items={[
                ['Language', it.language],
                it.label ? ['Label', <Foreign key="label" text={it.label} />] : null,
                ['Submitted', <Time key="created" ms={timeOf(it.created_at)} />],
                ['Waited', duration(waited(it))],
                ['Took', duration(took(it))],
                ['Attempts', it.attempts],
                ['Priority', it.priority],
                it.expires_at ? ['Kept until', <Time key="expires" ms={timeOf(it.expires_at)} />] : null,
              ]} />
            </Panel>
            <Tabs label="Parts of the execution" value={tab} onValue={setTab} tabs={[
              { id: 'output', label: 'Output' },
              { id: 'tests', label: 'Tests', count: it.result?.tests?.length, isHidden: !it.result?.tests?.length },
              { id: 'stages', label: 'Stages', count: it.result?.stages.length, isHidden: !it.result },
              { id: 'request', label: 'Request' },
              { id: 'events', label: 'Events', count: events.list.length || null },
            ]} />
            <TabPanel id={tab}>
              {tab === 'output' && (it.result ? <ResultOutput result={it.result} /> : <LiveOutput events={events.list} isLive={isLive} />)}
              {tab === 'tests' && it.result?.tests && <TestTable tests={it.result.tests} />}
              {tab === 'stages' && it.result && <StageTable stages={it.result.stages} />}
              {tab === 'request' && <RequestView id={id} />}
              {tab === 'events' && <EventTable events={events} />}
            </TabPanel>
          </>
        )}
      </Loaded>
    </div>
  );
}

function waited(record: ExecutionRecord): number | null {
  const [from, to] = [timeOf(record.created_at), timeOf(record.started_at)];
  return from === null || to === null ? null : to - from;
}

function HeadActions({ record, onChange }: { record: ExecutionRecord; onChange: () => void }) {
  const request = async () => (await attempt(withRequest(record.id)))?.request ?? null;
  const edit = async () => {
    const found = await request();
    if (!found) return;
    putDraft(found);
    navigate('/playground');
  };
  const again = async () => {
    const found = await request();
    if (!found) return;
    const { deadline_ms: _, webhook: __, ...rest } = found;
    const made = await attempt(api<ExecutionRecord>('/v1/executions', { json: rest }), 'It waits for its turn.');
    if (made) navigate(`/executions/${made.id}`);
  };
  return (
    <>
      <AsCommand commands={() => [
        { title: 'What is known of it', path: path`/v1/executions/${record.id}`, cove: `cove exec get ${record.id}` },
        { title: 'Follow it', path: path`/v1/executions/${record.id}/events`, cove: `cove exec watch ${record.id}` },
      ]} />
      <Button icon="pencil" onClick={edit}>Edit and run</Button>
      <Button icon="rotate-ccw" onClick={again}>Run again</Button>
      <ExecutionActions record={record} onChange={onChange} />
    </>
  );
}

async function withRequest(id: string): Promise<ExecutionRecord & { request: ExecutionRequest }> {
  const record = await api<ExecutionRecord>(path`/v1/executions/${id}`, { query: { include: 'request' } });
  if (!record.request) throw new Error('the server does not keep the request of this execution');
  return record as ExecutionRecord & { request: ExecutionRequest };
}

/** The whole of a stream. */
function streamOf(outcome: Outcome, name: 'stdout' | 'stderr'): { text: string; blob: Blob; isBinary: boolean } {
  const base64 = outcome[`${name}_base64`];
  const text = outcome[name] ?? '';
  if (!base64) return { text, blob: new Blob([text]), isBinary: false };
  return { text, blob: new Blob([Uint8Array.from(atob(base64), (it) => it.charCodeAt(0))]), isBinary: true };
}

function ResultOutput({ result }: { result: ExecutionResult }) {
  const streams = (['stdout', 'stderr'] as const).map((name) => ({ name, ...streamOf(result, name) })).filter((it) => it.blob.size > 0);
  const files = result.files ?? [];
  return (
    <>
      {streams.length === 0 && files.length === 0 && <Empty icon="file" title="It wrote nothing" />}
      {streams.map((it) => (
        <Panel key={it.name} isFlush title={<>{it.name === 'stdout' ? 'Standard output' : 'Standard error'} <small>{bytes(it.blob.size)}</small></>}
          actions={<><CopyButton text={it.text} label={`Copy ${it.name}`} /><Button kind="quiet" icon="download" label={`Save ${it.name}`} onClick={() => saveFile([it.blob], `${result.id}.${it.name}`)} /></>}>
          {it.isBinary && <Note>Not all of it is text; it can be saved exactly.</Note>}
          {result.truncated?.[it.name] && <Note tone="warn">It wrote more than <code>output_bytes</code>; the first part is kept.</Note>}
          <pre class={`plain-output tall ${it.name}`} tabIndex={0} aria-label={it.name}>{it.text.slice(0, SHOWN_MAX)}{it.text.length > SHOWN_MAX && '\n… (save it to see the rest)'}</pre>
        </Panel>
      ))}
      {files.length > 0 && <FileTable files={files} />}
    </>
  );
}

function FileTable({ files }: { files: OutputFile[] }) {
  const columns: Column<OutputFile>[] = [
    { id: 'name', title: 'File', width: 'minmax(160px, 2fr)', isMono: true, render: (it) => <Foreign text={it.name} /> },
    { id: 'state', title: '', width: 'minmax(120px, 1fr)', render: (it) => (it.error ? <span class="text-bad">{it.error}</span> : bytes(it.content?.length ?? 0)) },
    { id: 'save', title: '', width: '60px', render: (it) => it.content !== null && !it.error && (
      <Button kind="quiet" icon="download" label={`Save ${it.name}`} onClick={() => saveFile(
        [it.encoding === 'base64' ? chunk({ data_base64: it.content! }) as BlobPart : it.content!], it.name.split('/').pop() ?? 'file',
      )} />
    ) },
  ];
  return <Panel title="Files" isFlush><Table label="Files" columns={columns} rows={files} keyOf={(it) => it.name} /></Panel>;
}

function LiveOutput({ events, isLive }: { events: ExecutionEvent[]; isLive: boolean }) {
  const pieces = useMemo(() => events.filter((it) => it.type === 'stdout' || it.type === 'stderr'), [events.length]);
  const end = useRef<HTMLPreElement>(null);
  useEffect(() => { end.current?.scrollTo({ top: end.current.scrollHeight }); }, [pieces.length]);
  if (pieces.length === 0) return <Empty icon="file" title={isLive ? 'No output yet' : 'There is no output'}>{isLive ? 'It comes here as it is written.' : undefined}</Empty>;
  return (
    <Panel title="Output so far" isFlush>
      <pre class="plain-output tall" ref={end} tabIndex={0} aria-label="Output">
        {pieces.map((it) => <span key={it.seq} class={it.type}>{it.data ?? new TextDecoder().decode(chunk(it) as Uint8Array)}</span>)}
      </pre>
    </Panel>
  );
}

function StageTable({ stages }: { stages: StageResult[] }) {
  const columns: Column<StageResult>[] = [
    { id: 'name', title: 'Stage', width: 'minmax(100px, 1fr)', render: (it) => it.name },
    { id: 'verdict', title: 'Verdict', width: '84px', render: (it) => <VerdictBadge verdict={it.verdict} /> },
    { id: 'exit', title: 'Exit', width: '90px', from: 700, render: (it) => it.signal ?? it.exit_code ?? '–' },
    { id: 'cpu', title: 'CPU', width: '90px', align: 'end', render: (it) => duration(it.cpu_ms) },
    { id: 'wall', title: 'Wall', width: '90px', align: 'end', render: (it) => duration(it.wall_ms) },
    { id: 'memory', title: 'Memory', width: '96px', align: 'end', from: 500, render: (it) => bytes(it.memory_peak_bytes) },
    { id: 'processes', title: 'Processes', width: '90px', align: 'end', from: 800, render: (it) => it.processes_peak },
    { id: 'mode', title: 'Mode', width: '140px', from: 900, render: (it) => (it.mode ?? '').replaceAll('_', ' ') },
  ];
  return (
    <>
      <Panel title="Stages" isFlush><Table label="Stages" columns={columns} rows={stages} keyOf={(it) => it.name} /></Panel>
      {stages.map((it) => (['stdout', 'stderr'] as const).map((stream) => it[stream] && it.name !== 'run' && (
        <Panel key={`${it.name}-${stream}`} title={`${it.name}: ${stream}`} isFlush>
          <pre class={`plain-output tall ${stream}`} tabIndex={0} aria-label={`${it.name} ${stream}`}>{it[stream]!.slice(0, SHOWN_MAX)}</pre>
        </Panel>
      )))}
    </>
  );
}

function RequestView({ id }: { id: string }) {
  const record = useResource<ExecutionRecord>(path`/v1/executions/${id}?include=request`);
  return (
    <Loaded from={record}>
      {(it) => {
        if (!it.request) return <Empty icon="file" title="The request is not kept">This server does not give it; it may be an older version.</Empty>;
        const { source, files, tests, ...rest } = it.request;
        const text = JSON.stringify(rest, null, 2);
        return (
          <>
            {source !== undefined && source !== null && (
              <Panel title="Program" isFlush actions={<CopyButton text={source} label="Copy the program" />}>
                <pre class="plain-output tall" tabIndex={0} aria-label="Program">{source.slice(0, SHOWN_MAX)}</pre>
              </Panel>
            )}
            {files?.map((file) => (
              <Panel key={file.name} title={<Foreign text={file.name} />} isFlush>
                <pre class="plain-output tall" tabIndex={0} aria-label={`File ${file.name}`}>{file.encoding === 'base64' ? `${bytes(file.content.length * 0.75)} of binary data` : file.content.slice(0, SHOWN_MAX)}</pre>
              </Panel>
            ))}
            {tests && tests.length > 0 && <p class="muted">{count(tests.length)} test cases</p>}
            <Panel title="The rest of the request" isFlush actions={<CopyButton text={() => JSON.stringify(it.request, null, 2)} label="Copy the whole request" />}>
              <pre class="plain-output tall" tabIndex={0} aria-label="Request">{text}</pre>
            </Panel>
          </>
        );
      }}
    </Loaded>
  );
}

interface Events { list: ExecutionEvent[]; isCut: boolean }

/** Follows the events of one execution over a WebSocket, from the first that is kept. */
function useEvents(id: string, onEnd: () => void): Events {
  const [events, setEvents] = useState<Events>({ list: [], isCut: false });
  useEffect(() => {
    let isGone = false;
    let socket: WebSocket | null = null;
    let after = 0;
    let retries = 0;
    let waiting: ExecutionEvent[] = [];
    const show = () => {
      const more = waiting;
      waiting = [];
      setEvents(({ list, isCut }) => {
        const all = [...list, ...more];
        return all.length > EVENTS_MAX ? { list: all.slice(-EVENTS_MAX), isCut: true } : { list: all, isCut };
      });
    };
    const connect = () => {
      const opened = openSocket(`${path`/v1/executions/${id}/events`}?after=${after}`);
      socket = opened;
      opened.onmessage = ({ data }) => {
        retries = 0;
        const event = JSON.parse(data as string) as ExecutionEvent;
        after = Math.max(after, event.seq);
        if (waiting.length === 0) requestAnimationFrame(show);
        waiting.push(event);
        if (event.type === 'verdict' || event.type === 'ended') onEnd();
      };
      opened.onclose = ({ code }) => {
        retries += 1;
        if (!isGone && code !== 1000 && retries <= RECONNECTS_MAX) setTimeout(() => { if (!isGone) connect(); }, reconnectWaitMs(retries));
      };
    };
    connect();
    return () => {
      isGone = true;
      socket?.close(1000);
    };
  }, [id]);
  return events;
}

function describe(event: ExecutionEvent): string {
  switch (event.type) {
    case 'started': return `attempt ${event.attempt}`;
    case 'stage': return `${event.stage}${event.test ? `, test ${event.test}` : ''}`;
    case 'stdout': case 'stderr': return event.data ?? `${Math.round((event.data_base64?.length ?? 0) * 0.75)} bytes that are not text`;
    case 'exit': return `${event.stage}${event.test ? `, test ${event.test}` : ''}: ${event.verdict}, ${event.signal ?? `exit code ${event.exit_code}`}, cpu ${duration(event.cpu_ms)}, wall ${duration(event.wall_ms)}`;
    case 'gap': return `events ${event.from} to ${event.to} are not kept any more`;
    case 'verdict': return event.verdict ?? '';
    case 'ended': return `${event.state}${event.message ? `: ${event.message}` : ''}`;
    default: return '';
  }
}

const FAILED = (it: ExecutionEvent) => it.type === 'ended' || it.type === 'gap' || it.type === 'stderr' || (it.verdict !== undefined && it.verdict !== 'OK');

function EventTable({ events }: { events: Events }) {
  const [kind, setKind] = useQuery('kind', 'all');
  const [text, setText] = useQuery('find');
  const [failed, setFailed] = useQuery('failed');
  const shown = events.list.filter((it) => (kind === 'all' || (kind === 'output') === (it.type === 'stdout' || it.type === 'stderr'))
    && (failed === '' || FAILED(it)) && (text === '' || `${it.type} ${describe(it)}`.toLowerCase().includes(text.toLowerCase())));
  const columns: Column<ExecutionEvent>[] = [
    { id: 'seq', title: 'No.', width: '72px', align: 'end', render: (it) => it.seq },
    { id: 'type', title: 'Event', width: '92px', render: (it) => <span class={it.type === 'stderr' || it.type === 'gap' ? 'text-bad' : ''}>{it.type}</span> },
    { id: 'what', title: '', width: 'minmax(200px, 1fr)', isMono: true, render: (it) => <Foreign text={describe(it)} most={400} /> },
  ];
  return (
    <>
      <div class="toolbar">
        <Segments label="Kind" value={kind} onValue={setKind} choices={[{ value: 'all', label: 'All' }, { value: 'steps', label: 'Steps' }, { value: 'output', label: 'Output' }]} />
        <SearchField label="Find in the events" value={text} onValue={setText} />
        <CheckField label="Failures only" isOn={failed !== ''} onValue={(isOn) => setFailed(isOn ? '1' : '')} />
      </div>
      {events.isCut && <Note>Only the latest {count(EVENTS_MAX)} events are shown.</Note>}
      <Table label="Events" columns={columns} rows={shown} keyOf={(it) => String(it.seq)}
        empty={<Empty icon="list" title="No such events">Events are kept for a minute after the end, the last one for as long as the result. <a href={href('/executions')}>All executions</a></Empty>} />
    </>
  );
}
