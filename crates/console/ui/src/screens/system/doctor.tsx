// What the machine of this server offers for isolation, and what is missing.
import {
  Badge, Button, Foreign, Loaded, Note, Panel, Skeleton, Table, Time, api, attempt, count, duration, plural, refreshAll, useResource,
  type Column, type Tone,
} from '../../kit';

type CheckStatus = 'ok' | 'note' | 'missing';
interface DoctorCheck { name: string; status: CheckStatus; found: string; follows?: string | null }
interface LanguageRow { name: string; version?: string | null; available: boolean; reason?: string | null }
export interface DoctorView {
  running: boolean;
  last?: {
    node: string; started_ms: number; took_ms: number;
    report: { ok: boolean; version: string; root: boolean; checks: DoctorCheck[]; languages: LanguageRow[] };
  } | null;
}

/** Interval at which a run is looked at that is under way. */
const RUNNING_MS = 1000;
/** The same when none is: others may begin one. */
const RESTING_MS = 30_000;
/** Length of what a check says; an engine that did not start says all its causes. */
const WORDS_MAX = 600;

const STATUS: Record<CheckStatus, { tone: Tone; word: string }> = {
  ok: { tone: 'ok', word: 'ok' }, note: { tone: 'warn', word: 'note' }, missing: { tone: 'bad', word: 'missing' },
};

/** The checks of this server; asked for often while they are under way. */
export function useDoctor(isWanted = true) {
  const from = useResource<DoctorView>(isWanted ? '/v1/doctor' : null, RESTING_MS);
  useResource<DoctorView>(isWanted && from.data.value?.running ? '/v1/doctor' : null, RUNNING_MS);
  return from;
}

/** The verdict in a few words, with what it is about as a tone. */
export function verdictOf({ last, running }: DoctorView): { tone: Tone; words: string } {
  if (!last) return { tone: 'run', words: running ? 'Checking this machine…' : 'Not checked yet' };
  const { ok, checks } = last.report;
  const [notes, missing] = (['note', 'missing'] as const).map((status) => checks.filter((it) => it.status === status).length);
  if (!ok) return { tone: 'bad', words: `Untrusted code cannot be run here: ${plural(missing, 'check')} failed` };
  if (notes > 0) return { tone: 'warn', words: `Untrusted code can be run here, with ${plural(notes, 'note')}` };
  return { tone: 'ok', words: `Untrusted code can be run here: all ${count(checks.length)} checks passed` };
}

const RANK: Record<CheckStatus, number> = { missing: 0, note: 1, ok: 2 };

/** What the server says of itself, the worst first. */
export function Doctor() {
  const from = useDoctor();
  const again = async () => {
    const ran = attempt(api('/v1/doctor', { method: 'POST' }), 'Checked');
    refreshAll('/v1/doctor');
    await ran;
    refreshAll('/v1/doctor');
  };
  return (
    <Loaded from={from} rows={12}>
      {(view) => {
        const { tone, words } = verdictOf(view);
        return (
          <>
            <Panel>
              <div class="doctor-verdict">
                <div>
                  <p role="status"><Badge tone={tone}>{words}</Badge></p>
                  {view.last && (
                    <small class="muted">
                      {view.last.node} · version {view.last.report.version} · {view.last.report.root ? 'as root' : 'not as root'} · <Time ms={view.last.started_ms} />, took {duration(view.last.took_ms)}
                    </small>
                  )}
                </div>
                <Button icon="rotate-ccw" onClick={again} isDisabled={view.running}>{view.running ? 'Checking' : 'Run again'}</Button>
              </div>
            </Panel>
            {view.last
              ? <Checks checks={view.last.report.checks} languages={view.last.report.languages} />
              : <Skeleton rows={8} />}
          </>
        );
      }}
    </Loaded>
  );
}

function Checks({ checks, languages }: { checks: DoctorCheck[]; languages: LanguageRow[] }) {
  const rows = [...checks].sort((a, b) => RANK[a.status] - RANK[b.status]);
  const isAbsent = (it: LanguageRow) => !it.available;
  return (
    <>
      <Panel title="Checks" isFlush>
        <div class="checks" role="list">
          {rows.map((it, index) => (
            <div role="listitem" key={`${it.name} ${index}`}>
              <Badge tone={STATUS[it.status].tone}>{STATUS[it.status].word}</Badge>
              <strong>{it.name}</strong>
              <div>
                <Foreign text={it.found} most={WORDS_MAX} />
                {it.follows && <p class="muted">so <Foreign text={it.follows} most={WORDS_MAX} /></p>}
              </div>
            </div>
          ))}
        </div>
      </Panel>
      <Panel title="Languages" isFlush>
        {languages.some(isAbsent) && <Note>{plural(languages.filter(isAbsent).length, 'language')} cannot be used: their tools are not installed on this server.</Note>}
        <Table label="Languages" columns={LANGUAGES} rows={languages} keyOf={(it) => it.name} />
      </Panel>
    </>
  );
}

const LANGUAGES: Column<LanguageRow>[] = [
  { id: 'name', title: 'Language', width: '140px', render: (it) => it.name },
  { id: 'state', title: 'State', width: '120px', render: (it) => <Badge tone={it.available ? 'ok' : 'muted'}>{it.available ? 'available' : 'absent'}</Badge> },
  { id: 'version', title: 'Version', width: 'minmax(140px, 1fr)', from: 480, render: (it) => <Foreign text={it.version ?? it.reason ?? ''} /> },
];
