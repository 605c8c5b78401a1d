// Cells of the code interpreter: run one after the other, they keep what they define.
import { useRef, useState } from 'preact/hooks';
import { Badge, Button, Editor, Empty, Segments, api, attempt, bytes, duration, messageOf, path, request, type Tone } from '../../kit';
import type { CellEnd, CellResult } from '../../schema';

/** Cells that the page keeps. */
const CELLS_MAX = 50;
/** Characters of one output that are shown. */
const SHOWN_MAX = 200_000;

interface Cell {
  id: number;
  language: string;
  code: string;
  output: { stream: 'stdout' | 'stderr'; text: string }[];
  results: CellResult[];
  error: { name: string; value: string; traceback?: string | string[] } | null;
  ended: CellEnd | null;
  problem: string | null;
}

const VERDICTS: Record<string, Tone> = { OK: 'ok', RE: 'bad', TLE: 'warn', MLE: 'warn', OLE: 'warn', SG: 'bad' };
const LANGUAGES = [
  { value: 'python', label: 'Python' }, { value: 'javascript', label: 'JavaScript' }, { value: 'typescript', label: 'TypeScript' }, { value: 'bash', label: 'bash' },
];
const FIRST: Record<string, string> = {
  python: 'import sys\nsys.version', javascript: 'process.version', typescript: 'const n: number = 6 * 7; n', bash: 'uname -a',
};

export function Cells({ session }: { session: string }) {
  const [language, setLanguage] = useState('python');
  const [code, setCode] = useState(FIRST.python!);
  const [cells, setCells] = useState<Cell[]>([]);
  const numbers = useRef(0);
  const change = (id: number, with_: (cell: Cell) => Cell) => setCells((all) => all.map((it) => (it.id === id ? with_(it) : it)));
  const isBusy = cells.some((it) => it.ended === null && it.problem === null);

  const run = async () => {
    numbers.current += 1;
    const id = numbers.current;
    const cell: Cell = { id, language, code, output: [], results: [], error: null, ended: null, problem: null };
    setCells((all) => [...all.slice(1 - CELLS_MAX), cell]);
    try {
      const response = await request(path`/v1/sessions/${session}/contexts/${language}/execute`, {
        json: { code }, headers: { accept: 'text/event-stream' },
      });
      for await (const { event, data } of eventsOf(response)) {
        change(id, (it) => {
          switch (event) {
            case 'stdout': case 'stderr': {
              const last = it.output[it.output.length - 1];
              const text = String(data.text ?? '');
              if (last?.stream === event) return { ...it, output: [...it.output.slice(0, -1), { stream: event, text: (last.text + text).slice(-SHOWN_MAX) }] };
              return { ...it, output: [...it.output, { stream: event, text }] };
            }
            case 'result': return { ...it, results: [...it.results, data as unknown as CellResult] };
            case 'error': return { ...it, error: data as Cell['error'] };
            case 'ended': return { ...it, ended: data as unknown as CellEnd };
            case 'gone': return { ...it, problem: 'the sandbox ended meanwhile' };
            default: return it;
          }
        });
      }
      change(id, (it) => (it.ended === null && it.problem === null ? { ...it, problem: 'the connection was lost' } : it));
    } catch (error) {
      change(id, (it) => ({ ...it, problem: messageOf(error) }));
    }
  };
  const interrupt = () => attempt(api(path`/v1/sessions/${session}/contexts/${language}/interrupt`, { method: 'POST' }), 'Interrupted the cell');
  const restart = () => attempt(api(path`/v1/sessions/${session}/contexts/${language}/restart`, { method: 'POST' }), 'Started anew: nothing is defined any more');
  return (
    <div class="cells">
      {cells.length === 0 && (
        <Empty icon="code" title="No cell was run yet" command={`cove session run ${session} --code '1 + 1'`}>
          <p>Cells keep what they define, as in a notebook; pictures, tables and errors are shown below each.</p>
        </Empty>
      )}
      {cells.map((cell) => <CellView key={cell.id} cell={cell} />)}
      <div class="cell-input">
        <div class="row">
          <Segments label="Language" value={language} choices={LANGUAGES} onValue={(next) => {
            if (code === FIRST[language]) setCode(FIRST[next]!);
            setLanguage(next);
          }} />
          <Button kind="primary" icon="play" keys="Ctrl+Enter" onClick={() => { void run(); }}>Run</Button>
          {isBusy && <Button icon="square" onClick={interrupt}>Interrupt</Button>}
          <Button kind="quiet" icon="rotate-ccw" onClick={restart}>Start anew</Button>
        </div>
        <div class="cell-editor"><Editor text={code} language={language} label="Code of the next cell" onChange={setCode} onRun={() => { void run(); }} /></div>
      </div>
    </div>
  );
}

/** Events of a stream as it comes (https://html.spec.whatwg.org/multipage/server-sent-events.html). */
async function* eventsOf(response: Response): AsyncGenerator<{ event: string; data: Record<string, unknown> }> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    const blocks = rest.split('\n\n');
    rest = blocks.pop()!;
    for (const block of blocks) {
      const lines = block.split('\n');
      const data = lines.filter((it) => it.startsWith('data:')).map((it) => it.slice(5).trimStart()).join('\n');
      if (data === '') continue;
      const parsed = JSON.parse(data) as Record<string, unknown>;
      yield { event: lines.find((it) => it.startsWith('event:'))?.slice(6).trim() ?? String(parsed.type ?? ''), data: parsed };
    }
  }
}

function CellView({ cell }: { cell: Cell }) {
  const traceback = Array.isArray(cell.error?.traceback) ? cell.error.traceback.join('\n') : cell.error?.traceback;
  return (
    <article class="cell">
      <pre class="cell-code"><code>{cell.code}</code></pre>
      {cell.output.map((it, at) => <pre key={at} class={`output ${it.stream === 'stderr' ? 'stderr' : ''}`}>{it.text}</pre>)}
      {cell.results.map((it, at) => <ResultView key={at} result={it} />)}
      {cell.error && <pre class="output stderr">{traceback || `${cell.error.name}: ${cell.error.value}`}</pre>}
      <div class="row muted">
        {cell.problem !== null ? <Badge tone="bad">{cell.problem}</Badge>
          : cell.ended === null ? <Badge tone="run">running</Badge> : (
            <>
              <Badge tone={VERDICTS[cell.ended.verdict] ?? 'muted'}>{cell.ended.verdict}</Badge>
              <span>{duration(cell.ended.wall_ms)}</span><span>cpu {duration(cell.ended.cpu_ms)}</span><span>{bytes(cell.ended.memory_bytes)}</span>
              {cell.ended.context_ended && <span>what was defined is lost</span>}
            </>
          )}
      </div>
    </article>
  );
}

const PICTURES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];

/** A result: a picture, or its text. HTML and SVG of strangers are shown as text. */
function ResultView({ result }: { result: CellResult }) {
  const type = PICTURES.find((it) => typeof result.data[it] === 'string');
  if (type !== undefined) {
    return <img class="cell-picture" src={`data:${type};base64,${String(result.data[type]).replace(/[^A-Za-z0-9+/=]/g, '')}`} alt={String(result.data['text/plain'] ?? 'a picture')} />;
  }
  const shown = ['text/plain', 'text/markdown', 'text/latex', 'application/json', 'text/html', 'image/svg+xml'].find((it) => result.data[it] !== undefined);
  if (shown === undefined) return <p class="muted">{Object.keys(result.data).join(', ')}</p>;
  const value = result.data[shown];
  const text = typeof value === 'string' ? value : JSON.stringify(value, null, 2);
  return <pre class="output">{text.slice(0, SHOWN_MAX)}</pre>;
}
