// The access log: what code in sandboxes did with its grants.
import type { ComponentChildren } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import {
  AsCommand, Badge, Button, CheckField, Drawer, Empty, ErrorNote, Facts, Foreign, Id, Link, Menu, Note, PageHead, SearchField,
  Loaded, Segments, SelectField, Skeleton, TabPanel, Table, Tabs, TextField, Time, attempt, bytes, count, duration, isAway, path,
  plural, precise, shellWord, sorted, useQuery, useResource, useSorting, withQuery, type Column, type Tone,
} from '../kit';
import { Picture } from './access/picture';
import {
  exportRecords, useAudit, type AuditFilters, type AuditGroup, type AuditRecord, type AuditSummary,
} from './access/records';

const EVENTS = ['granted', 'revoked', 'connect', 'disconnect', 'statement', 'request', 'missing'];
const OUTCOMES: Record<AuditRecord['outcome'], Tone> = { done: 'ok', failed: 'warn', refused: 'bad' };
const SPANS: [string, string, number][] = [['15m', '15 minutes', 15 * 60_000], ['1h', 'hour', 3_600_000], ['24h', '24 hours', 86_400_000], ['7d', '7 days', 604_800_000]];

function pageOf(holder: string): string | null {
  if (holder.startsWith('ses_')) return path`/sessions/${holder}`;
  if (holder.startsWith('ex_')) return path`/executions/${holder}`;
  return null;
}

const COLUMNS: Column<AuditRecord>[] = [
  { id: 'at', title: 'Time', width: '104px', render: (it) => <Time ms={Date.parse(it.at)} /> },
  { id: 'event', title: 'Event', width: '104px', render: (it) => it.event },
  { id: 'outcome', title: 'Outcome', width: '106px', render: (it) => <Badge tone={OUTCOMES[it.outcome]}>{it.outcome}</Badge> },
  { id: 'grant', title: 'Grant', width: 'minmax(150px, 1fr)', from: 520, render: (it) => <Foreign text={it.grant} /> },
  { id: 'text', title: 'What', width: 'minmax(160px, 3fr)', from: 560, isMono: true, render: (it) => <Foreign text={it.error ?? it.text ?? ''} most={300} /> },
  { id: 'holder', title: 'By', width: 'minmax(120px, 1.4fr)', from: 900, isMono: true, render: (it) => {
    const to = pageOf(it.holder);
    return to === null ? it.holder : <Link to={to}>{it.holder}</Link>;
  } },
  { id: 'took', title: 'Took', width: '88px', align: 'end', from: 700, render: (it) => duration(it.took_us / 1000) },
  { id: 'rows', title: 'Rows', width: '78px', align: 'end', from: 1000, render: (it) => count(it.rows) },
];

const GROUPS = [{ value: 'target', label: 'What' }, { value: 'grant', label: 'Grant' }, { value: 'holder', label: 'By whom' }];

const REACHED_COLUMNS: Column<AuditGroup>[] = [
  { id: 'name', title: 'Name', width: 'minmax(160px, 2fr)', isMono: true, sort: (it) => it.name, render: (it) => {
    const to = pageOf(it.name);
    return to === null ? <Foreign text={it.name} /> : <Link to={to}>{it.name}</Link>;
  } },
  { id: 'tenant', title: 'Tenant', width: 'minmax(90px, 0.7fr)', from: 640, sort: (it) => it.tenant, render: (it) => <Foreign text={it.tenant} /> },
  { id: 'records', title: 'Records', width: '96px', align: 'end', sort: (it) => it.records, render: (it) => count(it.records) },
  { id: 'refused', title: 'Refused', width: '96px', align: 'end', sort: (it) => it.refused, render: (it) => <span class={it.refused > 0 ? 'text-bad' : ''}>{count(it.refused)}</span> },
  { id: 'failed', title: 'Failed', width: '90px', align: 'end', from: 460, sort: (it) => it.failed, render: (it) => <span class={it.failed > 0 ? 'text-warn' : ''}>{count(it.failed)}</span> },
  { id: 'missing', title: 'Not kept', width: '96px', align: 'end', from: 760, sort: (it) => it.missing, render: (it) => count(it.missing) },
  { id: 'rows', title: 'Rows', width: '100px', align: 'end', from: 560, sort: (it) => it.rows, render: (it) => count(it.rows) },
  { id: 'targets', title: 'Targets', width: '90px', align: 'end', from: 860, sort: (it) => it.targets_count, render: (it) => (
    <span title={it.targets.join('\n')}>{count(it.targets_count)}</span>
  ) },
  { id: 'last', title: 'Last', width: '104px', from: 960, sort: (it) => it.last_ms, render: (it) => <Time ms={it.last_ms} /> },
];

export default function Access() {
  const [tab, setTab] = useQuery('tab', 'records');
  const [text, setText] = useQuery('text');
  const [holder, setHolder] = useQuery('holder');
  const [grant, setGrant] = useQuery('grant');
  const [event, setEvent] = useQuery('event');
  const [outcome, setOutcome] = useQuery('outcome');
  const [span, setSpan] = useQuery('span');
  const [follow, setFollow] = useQuery('follow');
  const [opened, setOpened] = useState<AuditRecord | null>(null);
  const spanMs = SPANS.find(([id]) => id === span)?.[2];
  // Fixed when the span is chosen, so that the list is not another one at each rendering.
  const fromMs = useMemo(() => (spanMs === undefined ? null : Date.now() - spanMs), [spanMs]);
  const filters: AuditFilters = { holder, grant, tenant: '', event, outcome, text, from_ms: fromMs, to_ms: null };
  const audit = useAudit(filters, follow !== '');
  const shown = ['records', 'reached', 'picture'].includes(tab) ? tab : 'records';
  const isFiltered = [text, holder, grant, event, outcome, span].some((it) => it !== '');
  const clear = () => [setText, setHolder, setGrant, setEvent, setOutcome, setSpan].forEach((set) => set(''));
  const save = (kind: 'jsonl' | 'csv') => attempt(
    exportRecords(filters, kind, AbortSignal.timeout(120_000)), (number) => `Exported ${plural(number, 'record')}`,
  );
  const flags = [['--holder', holder], ['--grant', grant], ['--event', event], ['--outcome', outcome], ['--text', text]]
    .filter(([, value]) => value !== '').map(([flag, value]) => `${flag} ${shellWord(value!)}`).join(' ');
  const empty = isFiltered ? (
    <Empty icon="search" title="No record matches" action={<Button onClick={clear}>Clear the filters</Button>}>
      <p>Records are kept for as long as <code>gateway.audit_keep_days</code> says.</p>
    </Empty>
  ) : (
    <Empty icon="scroll-text" title="Nothing was reached yet" command={"id=$(cove session create --grant postgres:shop --json | jq -r .id)\ncove session exec $id -- psql -c 'SELECT 1'"}>
      <p>Each grant that is given or taken back, each connection, statement and request of a sandbox is written down here, whether
        it was allowed or refused.</p>
    </Empty>
  );
  return (
    <div class="page">
      <PageHead title="Access log" actions={(
        <>
          <AsCommand commands={() => [{ path: '/v1/audit', query: { ...filters, order: 'desc' }, cove: `cove audit --order desc ${flags}`.trim() }]} />
          <Menu label="Export" items={[
            { label: 'JSON lines', icon: 'download', onClick: () => save('jsonl') },
            { label: 'CSV', icon: 'download', onClick: () => save('csv') },
          ]}>Export</Menu>
        </>
      )} />
      <div class="toolbar">
        <SearchField label="Text of statements and requests" placeholder="Statement, path, host" value={text} onValue={setText} />
        <TextField label="Session or execution" isLabelHidden placeholder="ses_… or ex_…" value={holder} onValue={setHolder} />
        <TextField label="Grant" isLabelHidden placeholder="postgres:shop" value={grant} onValue={setGrant} />
        <SelectField label="Event" isLabelHidden value={event} onValue={setEvent} choices={[{ value: '', label: 'Every event' }, ...EVENTS]} />
        <SelectField label="Outcome" isLabelHidden value={outcome} onValue={setOutcome} choices={[{ value: '', label: 'Every outcome' }, 'done', 'failed', 'refused']} />
        <SelectField label="Time" isLabelHidden value={span} onValue={setSpan}
          choices={[{ value: '', label: 'All that is kept' }, ...SPANS.map(([value, label]) => ({ value, label: `Last ${label}` }))]} />
        <CheckField label="Follow" isOn={follow !== ''} onValue={(isOn) => setFollow(isOn ? '1' : '')} />
        {isFiltered && <Button kind="quiet" icon="x" onClick={clear}>Clear</Button>}
      </div>
      <Tabs label="Views of the access log" value={shown} onValue={setTab} tabs={[
        { id: 'records', label: 'Records' }, { id: 'reached', label: 'Reached' }, { id: 'picture', label: 'Who reaches what' },
      ]} />
      <TabPanel id={shown}>
        {audit.error !== null && !isAway(audit.error) && <ErrorNote error={audit.error} onRetry={audit.retry} />}
        {audit.fresh.length > 0 && (
          <Button class="new-bar" icon="arrow-up" onClick={audit.showNew}>{plural(audit.fresh.length, 'new record')}</Button>
        )}
        {audit.records.length === 0 && audit.isLoading ? <Skeleton rows={8} /> : (
          <>
            {shown === 'records' && (
              <Table label="Records" columns={COLUMNS} rows={audit.records} keyOf={(it) => String(it.seq)} onOpen={setOpened}
                onEnd={audit.loadMore} empty={audit.error === null && empty} />
            )}
            {shown === 'reached' && <Reached filters={filters} empty={empty} />}
            {shown === 'picture' && (
              <>
                <SumOf number={audit.records.length} isEnd={audit.isEnd} onMore={audit.loadMore} />
                {audit.records.length === 0 ? empty : <Picture records={audit.records} />}
              </>
            )}
          </>
        )}
      </TabPanel>
      {opened && <RecordDrawer record={opened} onClose={() => setOpened(null)} onFilter={(holderOf) => { setHolder(holderOf); setOpened(null); }} />}
    </div>
  );
}

function Reached({ filters, empty }: { filters: AuditFilters; empty: ComponentChildren }) {
  const [by, setBy] = useQuery('by', 'target');
  const [sorting, setSorting] = useSorting('-records');
  const from = useResource<AuditSummary>(withQuery('/v1/audit/summary', { ...filters, by }), 5000);
  return (
    <>
      <Segments label="Summed up by" value={by} onValue={setBy} choices={GROUPS} />
      <Loaded from={from}>
        {({ groups, others, next_before: next }) => (
          <>
            {(others > 0 || next) && (
              <Note>
                {others > 0 && `${plural(others, 'record')} of smaller groups are not in the list. `}
                {next && 'Older records were not looked at: choose a shorter time, or a filter.'}
              </Note>
            )}
            <Table label="What was reached" columns={REACHED_COLUMNS} rows={sorted(groups, REACHED_COLUMNS, sorting)}
              keyOf={(it) => `${it.tenant}/${it.name}`} sorting={sorting} onSort={setSorting} empty={empty} />
          </>
        )}
      </Loaded>
    </>
  );
}

function SumOf({ number, isEnd, onMore }: { number: number; isEnd: boolean; onMore: () => void }) {
  return (
    <div class="row">
      <span class="muted">{isEnd ? `All ${plural(number, 'record')} that match` : `The latest ${plural(number, 'record')}`}</span>
      {!isEnd && <Button kind="quiet" icon="plus" onClick={onMore}>Include older ones</Button>}
    </div>
  );
}

function RecordDrawer({ record, onClose, onFilter }: { record: AuditRecord; onClose: () => void; onFilter: (holder: string) => void }) {
  const to = pageOf(record.holder);
  return (
    <Drawer title={`${record.event} ${record.seq}`} onClose={onClose}>
      <div class="stack">
        <div class="row"><Badge tone={OUTCOMES[record.outcome]}>{record.outcome}</Badge><span class="muted">{precise(Date.parse(record.at))}</span></div>
        {record.event === 'missing' && (
          <Note tone="warn">{plural(record.rows ?? 0, 'record')} were too many to be kept, over {duration(record.took_us / 1000)} until this time.</Note>
        )}
        {record.error && <Note tone={record.outcome === 'refused' ? 'bad' : 'warn'}><span class="wrap">{record.error}</span></Note>}
        {record.text && <pre class="output">{record.text}</pre>}
        <Facts items={[
          ['By', record.holder === '' ? 'several' : <Id id={record.holder} />],
          ['Grant', record.grant],
          ['Tenant', record.tenant],
          record.event !== 'missing' && ['Took', duration(record.took_us / 1000)],
          record.rows !== undefined && record.rows !== null && ['Rows', count(record.rows)],
          record.bytes_in !== undefined && record.bytes_in !== null && ['From the sandbox', bytes(record.bytes_in)],
          record.bytes_out !== undefined && record.bytes_out !== null && ['To the sandbox', bytes(record.bytes_out)],
        ]} />
        <div class="row">
          {to !== null && <Button href={to} icon="external-link">Open it</Button>}
          {record.holder !== '' && <Button icon="list-filter" onClick={() => onFilter(record.holder)}>Only this one</Button>}
        </div>
      </div>
    </Drawer>
  );
}
