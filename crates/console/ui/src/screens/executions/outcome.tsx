// Verdicts and what they were measured by.
import { Badge, Foreign, Panel, bytes, duration, type Column, Table } from '../../kit';
import { STATES, VERDICTS, type ExecutionRecord, type ExecutionState, type Outcome, type TestResult, type Verdict } from './types';
import type { ExecutionMode } from '../../schema';

export function VerdictBadge({ verdict }: { verdict: Verdict }) {
  const { tone, words } = VERDICTS[verdict] ?? { tone: 'muted' as const, words: '' };
  return <Badge tone={tone} title={words}>{verdict}</Badge>;
}

export function StateBadge({ state }: { state: ExecutionState }) {
  const { tone, words } = STATES[state] ?? { tone: 'muted' as const, words: '' };
  return <Badge tone={tone} title={words} icon={state === 'cancelled' ? 'ban' : state === 'finished' ? 'check' : undefined}>{state}</Badge>;
}

const verdictOf = (it: ExecutionRecord) => it.verdict ?? it.result?.verdict;
/** Width from which state and verdict have columns of their own. */
const BOTH_FROM_PX = 560;

/** State and verdict of a list; where it is narrow, in one column. */
export const OUTCOME_COLUMNS: Column<ExecutionRecord>[] = [
  { id: 'outcome', title: 'State', width: '116px', until: BOTH_FROM_PX, render: (it) => {
    const verdict = verdictOf(it);
    return verdict ? <VerdictBadge verdict={verdict} /> : <StateBadge state={it.state} />;
  } },
  { id: 'state', title: 'State', width: '116px', from: BOTH_FROM_PX, render: (it) => <StateBadge state={it.state} /> },
  { id: 'verdict', title: 'Verdict', width: '82px', from: BOTH_FROM_PX, render: (it) => {
    const verdict = verdictOf(it);
    return verdict ? <VerdictBadge verdict={verdict} /> : <span class="muted">–</span>;
  } },
];

/** Why it has its verdict, in words. */
export function reason(outcome: Outcome): string {
  if (outcome.message) return outcome.message;
  const { verdict, limit } = outcome;
  if (limit) return `${VERDICTS[verdict]?.words ?? 'stopped'} (${limit})`;
  if (outcome.signal) return `ended by ${outcome.signal}`;
  if (outcome.exit_code !== null && outcome.exit_code !== 0) return `exit code ${outcome.exit_code}`;
  return VERDICTS[verdict]?.words ?? '';
}

/** Verdict and resources in one line. */
export function OutcomeLine({ outcome }: { outcome: Outcome & { mode?: ExecutionMode } }) {
  const facts: [string, string][] = [
    ['CPU', duration(outcome.cpu_ms)],
    ['wall', duration(outcome.wall_ms)],
    ['memory', bytes(outcome.memory_peak_bytes)],
    ['processes', String(outcome.processes_peak)],
  ];
  if (outcome.mode) facts.push(['mode', outcome.mode.replaceAll('_', ' ')]);
  return (
    <div class="outcome">
      <VerdictBadge verdict={outcome.verdict} />
      <span class="outcome-why wrap">{reason(outcome)}</span>
      <span class="outcome-facts">{facts.map(([name, value]) => <span key={name}><small>{name}</small> <b>{value}</b></span>)}</span>
    </div>
  );
}

/** Test cases with the time of each as a bar. */
export function TestTable({ tests, title = 'Test cases' }: { tests: TestResult[]; title?: string }) {
  const longest = Math.max(1, ...tests.map((it) => it.wall_ms));
  const passed = tests.filter((it) => it.verdict === 'OK').length;
  const columns: Column<TestResult>[] = [
    { id: 'name', title: 'Test', width: 'minmax(90px, 1fr)', render: (it) => <Foreign text={it.name} /> },
    { id: 'verdict', title: 'Verdict', width: '84px', render: (it) => <VerdictBadge verdict={it.verdict} /> },
    { id: 'why', title: 'First difference', width: 'minmax(140px, 2fr)', from: 480, render: (it) => (it.verdict === 'OK' ? '' : <Foreign text={reason(it)} most={300} />) },
    {
      id: 'time', title: 'Wall time', width: '150px', align: 'end', render: (it) => (
        <span class="time-bar"><span style={{ width: `${(60 * it.wall_ms) / longest}px` }} />{duration(it.wall_ms)}</span>
      ),
    },
    { id: 'memory', title: 'Memory', width: '96px', align: 'end', from: 640, render: (it) => bytes(it.memory_peak_bytes) },
  ];
  return (
    <Panel title={`${title}: ${passed} of ${tests.length} passed`} isFlush>
      <Table label={title} columns={columns} rows={tests} keyOf={(it) => it.name} height={Math.min(442, 34 + 34 * tests.length)} />
    </Panel>
  );
}
