// Rows of a table: a session with a grant to the warehouse reads them, and ends after that. The browser gets no credential.
import { useEffect, useRef, useState } from 'preact/hooks';
import {
  ApiError, AsCommand, Button, Command, Empty, ErrorNote, Foreign, Note, Panel, SelectField, Table, api, duration, may, path, plural, shellWord, useResource, type Column,
} from '../../kit';
import type { GrantQueryResult } from '../../schema';
import type { ObjectProps } from './table';

const ROWS_MAX = 100;
/** Time after which a session that nobody could end, because the window was closed, gives up its sandbox. */
const IDLE_S = 60;

/** Characters of a value that are shown. */
const VALUE_CHARS_MAX = 300;
/** Packages that the query needs, as pip takes them. */
const PACKAGES = "'pyiceberg[pyarrow]' duckdb";
const TEMPLATE = '{"name": "lake", "steps": [{"type": "pip_install", "packages": ["pyiceberg[pyarrow]", "duckdb"]}]}';

/** Returns whether the session lacks the packages that run a query. */
const lacksPackages = (error: unknown) => error instanceof ApiError && error.status === 409 && error.message.includes('pip_install');

/** A level of a namespace, in which dots and backslashes stand behind a backslash. */
const escaped = (level: string) => level.replace(/[.\\]/g, '\\$&');
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
  const names = namespace.map(escaped);
  const levels = names.length <= 2 ? names : [names.join('.')];
  const sql = `SELECT * FROM ${[...levels, name].map(quoted).join('.')} LIMIT ${ROWS_MAX}`;
  // A grant divides levels by dots; one with a dot in its name is reached by a grant to the warehouse only.
  const isNamed = !namespace.some((it) => it.includes('.'));
  const session = {
    grants: [{ kind: 'catalog', warehouse, namespaces: isNamed ? [namespace.join('.')] : undefined, access: 'read_only' }],
    template: template === '' ? undefined : template, idle_s: IDLE_S, metadata: { purpose: 'rows of the console' },
  };
  const label = `catalog:${warehouse}`;
  const commands = () => [
    { title: 'Make a session that may read', method: 'POST', path: '/v1/sessions', json: session },
    {
      title: 'Read, with its id in place of SESSION', method: 'POST', path: path`/v1/sessions/SESSION/grants/${label}/query`, json: { sql, max_rows: ROWS_MAX },
      cove: `cove session sql SESSION ${shellWord(label)} ${shellWord(sql)}`,
    },
    { title: 'End the session', method: 'DELETE', path: '/v1/sessions/SESSION', cove: 'cove session end SESSION' },
  ];
  const look = async () => {
    const own = new AbortController();
    running.current = own;
    setError(null);
    setAnswer(null);
    let id: string | null = null;
    try {
      setState('Making a session with a grant to read');
      const made = await api<{ id: string }>('/v1/sessions', { json: session });
      id = made.id;
      setState('Reading');
      const found = await api<GrantQueryResult>(path`/v1/sessions/${id}/grants/${label}/query`, {
        json: { sql, max_rows: ROWS_MAX }, signal: own.signal,
      });
      setAnswer(found);
    } catch (problem) {
      if (!own.signal.aborted) setError(problem);
    } finally {
      if (id !== null) {
        await api(path`/v1/sessions/${id}`, { method: 'DELETE' }).catch((problem: unknown) => { if (!own.signal.aborted) setError(problem); });
      }
      setState(null);
    }
  };
  if (!canRun) return <Empty icon="table-2" title="Not with this token"><p>A sandbox reads the rows: the token needs the scope <code>sessions</code> as well.</p></Empty>;
  const choices = [{ value: '', label: 'No template' }, ...(templates.data.value?.templates ?? []).map((it) => ({ value: it.name, label: it.name }))];
  return (
    <>
      <Panel title="Look at rows">
        <p>A sandbox with a grant to read this {isNamed ? 'namespace' : 'warehouse'} runs the query, and ends after it. It needs PyIceberg and DuckDB for <code>python3</code>, of the server's machine or of a template.</p>
        <Command text={sql} />
        <div class="toolbar">
          <SelectField label="Template" isLabelHidden value={template} onValue={setTemplate} choices={choices} />
          <Button kind="primary" icon="play" onClick={look}>Show {ROWS_MAX} rows</Button>
          <AsCommand commands={commands} />
          {state !== null && <span class="muted" role="status">{state} …</span>}
        </div>
        {error !== null && <ErrorNote error={error} title="No rows" />}
        {lacksPackages(error) && <Packages />}
      </Panel>
      {answer !== null && <Answer answer={answer} />}
    </>
  );
}

/** Commands that bring what a query needs. */
function Packages() {
  return (
    <div class="stack">
      <p>On the server's machine, once for all sandboxes:</p>
      <Command text={`sudo /usr/bin/python3 -m pip install --break-system-packages ${PACKAGES}`} />
      <p>Or in a template, where the server names an <code>index</code> of packages; choose it above then:</p>
      <Command text={`curl -s ${shellWord(`${location.origin}/v1/templates?wait=true`)} -H "authorization: Bearer $(cove token)" -H 'content-type: application/json' \\\n  -d ${shellWord(TEMPLATE)}`} />
    </div>
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
  return <Foreign text={typeof value === 'object' ? JSON.stringify(value) : String(value)} most={VALUE_CHARS_MAX} />;
}
