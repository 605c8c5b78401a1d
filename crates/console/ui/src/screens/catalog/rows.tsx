// Rows of a table: a session with a grant to the warehouse reads them, and ends after that. The browser gets no credential.
import { useEffect, useRef, useState } from 'preact/hooks';
import {
  Button, Command, Empty, ErrorNote, Foreign, Note, Panel, SelectField, Table, api, duration, may, path, plural, useResource, type Column,
} from '../../kit';
import type { GrantQueryResult } from '../../schema';
import type { ObjectProps } from './table';

const ROWS_MAX = 100;
/** Time after which a session that nobody could end, because the window was closed, gives up its sandbox. */
const IDLE_S = 60;

/** A name of DuckDB. */
const quoted = (name: string) => `"${name.replaceAll('"', '""')}"`;

export function Rows({ warehouse, namespace, name }: ObjectProps) {
  const canRun = may('sessions');
  const templates = useResource<{ templates: { name: string }[] }>(canRun ? '/v1/templates' : null);
  const [template, setTemplate] = useState('');
  const [state, setState] = useState<string | null>(null);
  const [answer, setAnswer] = useState<GrantQueryResult | null>(null);
  const [error, setError] = useState<unknown>(null);
  const running = useRef<AbortController | null>(null);
  useEffect(() => () => running.current?.abort(), []);
  // Two levels are names of their own, more are one name: as the query's language has it.
  const levels = namespace.length <= 2 ? namespace : [namespace.join('.')];
  const sql = `SELECT * FROM ${[...levels, name].map(quoted).join('.')} LIMIT ${ROWS_MAX}`;
  // A grant divides levels by dots; one with a dot in its name is reached by a grant to the warehouse only.
  const isNamed = !namespace.some((it) => it.includes('.'));
  const look = async () => {
    const own = new AbortController();
    running.current = own;
    setError(null);
    setAnswer(null);
    let session: string | null = null;
    try {
      setState('Making a session with a grant to read');
      const grants = [{ kind: 'catalog', warehouse, namespaces: isNamed ? [namespace.join('.')] : undefined, access: 'read_only' }];
      const made = await api<{ id: string }>('/v1/sessions', {
        json: { grants, template: template === '' ? undefined : template, idle_s: IDLE_S, metadata: { purpose: 'rows of the console' } },
      });
      session = made.id;
      setState('Reading');
      const found = await api<GrantQueryResult>(path`/v1/sessions/${session}/grants/${`catalog:${warehouse}`}/query`, {
        json: { sql, max_rows: ROWS_MAX }, signal: own.signal,
      });
      setAnswer(found);
    } catch (problem) {
      if (!own.signal.aborted) setError(problem);
    } finally {
      if (session !== null) {
        await api(path`/v1/sessions/${session}`, { method: 'DELETE' }).catch((problem: unknown) => { if (!own.signal.aborted) setError(problem); });
      }
      setState(null);
    }
  };
  if (!canRun) return <Empty icon="table-2" title="Not with this token"><p>A sandbox reads the rows: the token needs the scope <code>sessions</code> as well.</p></Empty>;
  const choices = [{ value: '', label: 'No template' }, ...(templates.data.value?.templates ?? []).map((it) => ({ value: it.name, label: it.name }))];
  return (
    <>
      <Panel title="Look at rows">
        <p>A sandbox with a grant to read this {isNamed ? 'namespace' : 'warehouse'} runs the query, and ends after it. It needs PyIceberg and DuckDB: choose a template that has them.</p>
        <Command text={sql} />
        <div class="toolbar">
          <SelectField label="Template" isLabelHidden value={template} onValue={setTemplate} choices={choices} />
          <Button kind="primary" icon="play" onClick={look}>Show {ROWS_MAX} rows</Button>
          {state !== null && <span class="muted" role="status">{state} …</span>}
        </div>
        {error !== null && <ErrorNote error={error} title="No rows" />}
      </Panel>
      {answer !== null && <Answer answer={answer} />}
    </>
  );
}

function Answer({ answer }: { answer: GrantQueryResult }) {
  const columns: Column<{ at: number; values: unknown[] }>[] = answer.columns.map((column, at) => ({
    id: `${at}`, title: column.name, width: 'minmax(120px, 1fr)', render: ({ values }) => cell(values[at]),
  }));
  return (
    <Panel title={`${plural(answer.row_count, 'row')} in ${duration(answer.seconds * 1000)}`} isFlush>
      {answer.truncated && <Note tone="info">An answer has at most 4 MiB of values: rows beyond that are left out.</Note>}
      <div class="catalog-rows">
        <Table label="Rows" columns={columns} rows={answer.rows.map((values, at) => ({ at, values }))} keyOf={(it) => String(it.at)}
          empty={<Empty icon="table-2" title="The table is empty" />} />
      </div>
    </Panel>
  );
}

function cell(value: unknown) {
  if (value === null || value === undefined) return <span class="muted">NULL</span>;
  return <Foreign text={typeof value === 'object' ? JSON.stringify(value) : String(value)} most={300} />;
}
