// The list: filters in the query, pages loaded while scrolling, new ones announced and not inserted.
import { useEffect, useRef, useState } from 'preact/hooks';
import {
  AsCommand, Button, Empty, ErrorNote, Foreign, Icon, Menu, PageHead, SearchField, SelectField, Skeleton, Table, Time,
  ApiError, api, attempt, confirm, currentPath, duration, isAway, isOperator, isPaused, liveState, merged, navigate, path, place,
  plural, pollUnlessLive, setQuery, timeOf, useLiveRecords, useQuery, useResource, withQuery, type Column, type Query,
} from '../../kit';
import { OUTCOME_COLUMNS } from './outcome';
import { VERDICTS, type ExecutionRecord, type ExecutionState, type Language } from './types';

const PAGE = 100;
/** Rows that are kept; whoever looks for older ones filters. */
const ROWS_MAX = 10_000;
const STATES: ExecutionState[] = ['queued', 'running', 'finished', 'cancelled', 'expired', 'dead'];
const RANGES: [string, string, number][] = [['15m', 'Last 15 minutes', 900], ['1h', 'Last hour', 3600], ['1d', 'Last day', 86_400]];

interface Page { executions: ExecutionRecord[]; next_cursor?: string | null }

/** The filters of the address, as the interface takes them. */
function filters(): Query {
  const { query } = place.value;
  const text = (query.get('text') ?? '').trim();
  const range = RANGES.find(([id]) => id === query.get('range'));
  return {
    state: query.get('state'),
    language: query.get('language'),
    verdict: query.get('verdict'),
    label: query.get('label'),
    ...(text.startsWith('ex_') ? { id: text } : text ? { text } : {}),
    ...(range ? { from_ms: Math.floor(Date.now() / 60_000) * 60_000 - range[2] * 1000 } : {}),
    ...(query.get('order') === 'asc' ? { order: 'asc' } : {}),
    tenant: query.get('tenant'),
  };
}

export function took(record: ExecutionRecord, now = Date.now()): number | null {
  const from = timeOf(record.started_at);
  if (from === null) return null;
  return (timeOf(record.finished_at) ?? (record.state === 'running' ? now : from)) - from;
}

/** Whether a record is one that the filters let through, as the interface decides it. */
function isWanted(record: ExecutionRecord, query: Query): boolean {
  const { state, language, verdict, label, text, id, from_ms: from } = query;
  return (!state || String(state).split(',').includes(record.state))
    && (!language || record.language === language)
    && (!verdict || record.verdict === verdict)
    && (!label || record.label === label)
    && (!text || (record.label ?? '').includes(String(text)))
    && (!id || record.id.startsWith(String(id)))
    && (!from || (timeOf(record.created_at) ?? 0) >= Number(from));
}

const COLUMNS: Column<ExecutionRecord>[] = [
  ...OUTCOME_COLUMNS,
  { id: 'id', title: 'Id', width: '256px', isMono: true, from: 760, render: (it) => it.id },
  { id: 'language', title: 'Language', width: '104px', from: 480, render: (it) => it.language },
  { id: 'label', title: 'Label', width: 'minmax(90px, 1fr)', render: (it) => (it.label ? <Foreign text={it.label} /> : it.message ? <span class="muted"><Foreign text={it.message} /></span> : '') },
  { id: 'attempts', title: 'Attempts', width: '84px', align: 'end', from: 1100, render: (it) => it.attempts },
  { id: 'took', title: 'Took', width: '92px', align: 'end', from: 520, render: (it) => duration(took(it)) },
  { id: 'created', title: 'Submitted', width: '104px', align: 'end', sort: true, render: (it) => <Time ms={timeOf(it.created_at)} /> },
];

export function ExecutionTable() {
  const query = filters();
  const address = withQuery('/v1/executions', { ...query, limit: PAGE });
  const first = useResource<Page>(address, pollUnlessLive(2500));
  const [older, setOlder] = useState<{ of: string; rows: ExecutionRecord[]; next: string | null }>({ of: '', rows: [], next: null });
  const [top, setTop] = useState<{ of: string; rows: ExecutionRecord[] }>({ of: '', rows: [] });
  const [problem, setProblem] = useState<unknown>(null);
  const isLoadingMore = useRef(false);
  const languages = useResource<{ languages: Language[] }>('/v1/languages');
  const box = useRef<HTMLDivElement>(null);
  const order = place.value.query.get('order') === 'asc' ? 'asc' : 'desc';

  // Rows do not move under the pointer: what is new waits above, behind a bar.
  const fresh = first.data.value?.executions;
  useEffect(() => {
    if (fresh === undefined) return;
    const isReading = (box.current?.querySelector('.table')?.scrollTop ?? 0) > 0 || box.current?.matches(':hover') === true;
    setTop((before) => {
      if (before.of !== address || before.rows.length === 0 || !isReading) return { of: address, rows: fresh };
      // States change in place.
      const by = new Map(fresh.map((it) => [it.id, it]));
      return { of: address, rows: before.rows.map((it) => by.get(it.id) ?? it) };
    });
  }, [fresh, address]);
  const isOldestFirst = order === 'asc';
  useLiveRecords<ExecutionRecord>('executions', query.tenant ? { tenant: query.tenant } : {}, first, (record) => {
    const list = first.data.value?.executions;
    if (list === undefined) return;
    const isKnown = list.some((it) => it.id === record.id);
    if (!isWanted(record, query)) {
      if (isKnown) first.mutate((page) => ({ ...page, executions: page.executions.filter((it) => it.id !== record.id) }));
    } else if (isKnown || !isOldestFirst) {
      // The cursor of the next page is behind what was read; too much in front of that is read anew.
      if (list.length >= 2 * PAGE) first.refresh();
      else first.mutate((page) => ({ ...page, executions: merged(page.executions, record) }));
    }
  });

  const isSame = top.of === address;
  const shownFirst = isSame ? top.rows : fresh ?? (first.data.value ? first.data.value.executions : []);
  const seen = new Set(shownFirst.map((it) => it.id));
  const rows = older.of === address ? [...shownFirst, ...older.rows.filter((it) => !seen.has(it.id))] : shownFirst;
  const unseen = order === 'desc' && isSame && fresh ? fresh.filter((it) => !seen.has(it.id)).length : 0;
  const next = older.of === address ? older.next : first.data.value?.next_cursor ?? null;
  const more = () => {
    if (!next || isLoadingMore.current || rows.length >= ROWS_MAX) return;
    isLoadingMore.current = true;
    api<Page>('/v1/executions', { query: { ...query, limit: 200, cursor: next } }).then(
      (page) => setOlder((before) => ({
        of: address,
        rows: before.of === address ? [...before.rows, ...page.executions] : page.executions,
        next: page.next_cursor ?? null,
      })),
      setProblem,
    ).finally(() => { isLoadingMore.current = false; });
  };
  const [text] = useQuery('text');
  const areFiltered = ['state', 'language', 'verdict', 'label', 'text', 'range', 'tenant'].some((name) => place.value.query.has(name));
  const clear = () => setQuery({ state: null, language: null, verdict: null, label: null, text: null, range: null, tenant: null });
  const error = first.error.value;
  const select = (name: string, label: string, choices: { value: string; label: string }[]) => (
    <SelectField label={label} isLabelHidden value={place.value.query.get(name) ?? ''} onValue={(value) => setQuery({ [name]: value })}
      choices={[{ value: '', label }, ...choices]} />
  );
  return (
    <div class="page">
      <PageHead title="Executions" aside={<LiveMark />} actions={(
        <>
          <AsCommand commands={() => [{ path: '/v1/executions', query, cove: listCommand(query) }]} />
          <Button kind="primary" icon="play" href="/playground">Run a program</Button>
        </>
      )} />
      <div class="toolbar">
        <SearchField label="Search" placeholder="Id or part of a label" value={text} onValue={(value) => setQuery({ text: value })} />
        {select('state', 'Any state', STATES.map((it) => ({ value: it, label: it })))}
        {select('verdict', 'Any verdict', Object.entries(VERDICTS).map(([value, it]) => ({ value, label: `${value}: ${it.words}` })))}
        {select('language', 'Any language', (languages.data.value?.languages ?? []).map((it) => ({ value: it.name, label: it.name })))}
        {select('range', 'Any time', RANGES.map(([value, label]) => ({ value, label })))}
        {isOperator.value && place.value.query.has('tenant') && <span class="muted">tenant {place.value.query.get('tenant')}</span>}
        {areFiltered && <Button kind="quiet" icon="x" onClick={clear}>Clear</Button>}
      </div>
      {unseen > 0 && (
        <Button class="new-bar" icon="arrow-up" onClick={() => {
          setTop({ of: address, rows: fresh! });
          box.current?.querySelector('.table')?.scrollTo({ top: 0 });
        }}>{plural(unseen, 'new execution')}</Button>
      )}
      {error !== undefined && !isAway(error) && (
        <ErrorNote error={error} title={error instanceof ApiError && error.status === 400 ? 'This server cannot filter so' : undefined}
          onRetry={() => first.refresh()} />
      )}
      {problem !== null && <ErrorNote error={problem} onRetry={() => { setProblem(null); more(); }} />}
      <div ref={box}>
        {rows.length === 0 && first.data.value === undefined && error === undefined ? <Skeleton rows={8} /> : (
          <Table label="Executions" columns={COLUMNS} rows={rows} keyOf={(it) => it.id} hrefOf={(it) => `/executions/${it.id}`}
            sorting={{ id: 'created', isDescending: order === 'desc' }}
            onSort={(sorting) => setQuery({ order: sorting.isDescending ? null : 'asc' })}
            onEnd={more} isStale={isAway(error)}
            empty={areFiltered
              ? <Empty icon="search" title="Nothing matches" action={<Button onClick={clear}>Clear the filters</Button>}>No execution of this token is like that.</Empty>
              : <Empty icon="play" title="No executions yet" command="echo 'print(6*7)' | cove exec submit --watch --lang python -" action={<Button kind="primary" icon="play" href="/playground">Open the playground</Button>}>Asynchronous executions are listed here for a day. Synchronous ones (<code>wait=true</code>) are not kept.</Empty>} />
        )}
      </div>
    </div>
  );
}

/** Whether the page follows what happens. */
export function LiveMark() {
  if (isPaused.value) return <small class="live-mark"><Icon name="pause" size={12} /> paused</small>;
  return <small class="live-mark"><span class="dot" aria-hidden="true" /> {liveState.value === 'open' ? 'live' : 'updates itself'}</small>;
}

function listCommand(query: Query): string {
  const option = (name: string, flag = name) => (query[name] ? ` --${flag} ${String(query[name])}` : '');
  return `cove exec list${option('state')}${option('language', 'lang')}${option('label')}${option('verdict')}`;
}

/** Actions for one execution, as far as its state allows them. */
export function ExecutionActions({ record, onChange }: { record: ExecutionRecord; onChange: () => void }) {
  const cancel = async () => {
    const isYes = record.state === 'queued' || await confirm({
      title: 'End this execution?', body: 'Its program is killed; it gets no verdict.', action: 'End it', isDanger: true,
    });
    if (isYes) await attempt(api(path`/v1/executions/${record.id}`, { method: 'DELETE' }), 'It is told to end.');
    onChange();
  };
  const retry = async () => {
    await attempt(api(path`/v1/executions/${record.id}/retry`, { method: 'POST' }), 'It waits for its turn again.');
    onChange();
  };
  return (
    <Menu items={[
      (record.state === 'queued' || record.state === 'running') && { label: 'Cancel', icon: 'ban', isDanger: true, onClick: cancel },
      record.state === 'dead' && { label: 'Retry', icon: 'rotate-ccw', onClick: retry },
      { label: 'Filter by its language', icon: 'list-filter', onClick: () => navigate(withQuery('/executions', { language: record.language })) },
      record.label ? { label: 'Filter by its label', icon: 'tag', onClick: () => navigate(withQuery('/executions', { label: record.label })) } : null,
      currentPath.value !== '/queue' && { label: 'The queue', icon: 'hourglass', href: '/queue' },
    ]} />
  );
}
