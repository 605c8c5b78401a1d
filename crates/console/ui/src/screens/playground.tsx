// Playground: a program, its input, its output as it comes, and what it took.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import {
  AsCommand, Badge, Button, CheckField, Editor, Empty, Icon, Link, Menu, PageHead, Panel, Segments, SelectField,
  TerminalPane, TextField, AreaField, api, attempt, awaySince, copy, count, href, may, messageOf, navigate, path, place, saveFile, toast,
  useKeys, usePalette, useResource, type TerminalHandle,
} from '../kit';
import { OutcomeLine, TestTable } from './executions/outcome';
import { takeDraft, putDraft, type ExecutionRequest, type ExecutionResult, type Language, type TestCase } from './executions/types';
import type { LimitSpec, OutputComparison } from '../schema';
import { EXAMPLES, FIRST, type Example } from './playground/examples';
import { start, type Run } from './playground/run';
import { pack, unpack } from './playground/share';

type Input = 'terminal' | 'text' | 'tests';

/** Text that the plain output shows; the whole of it is on the execution's page. */
const SHOWN_CHARACTERS_MAX = 200_000;
/** Largest file that is opened into the editor. */
const FILE_BYTES_MAX = 1 << 20;

interface Piece { stream: 'stdout' | 'stderr'; text: string }

/** What of a request is edited; the rest is kept as it is. */
function inputOf(request: ExecutionRequest): Input {
  if (request.tests?.length) return 'tests';
  return request.stdin !== undefined || request.limits ? 'text' : request.terminal || request.interactive ? 'terminal' : 'text';
}

export default function Playground() {
  const languages = useResource<{ languages: Language[] }>('/v1/languages');
  const [request, setRequest] = useState<ExecutionRequest>(() => takeDraft() ?? EXAMPLES[0]!.request);
  const [input, setInput] = useState<Input>(() => (takeDraft() ? inputOf(takeDraft()!) : EXAMPLES[0]!.input));
  const [phase, setPhase] = useState<string | null>(null);
  const [result, setResult] = useState<ExecutionResult | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [id, setId] = useState<string | null>(null);
  const [pieces, setPieces] = useState<Piece[]>([]);
  const [ran, setRan] = useState<Input | null>(null);
  const [round, setRound] = useState(0);
  const run = useRef<Run | null>(null);
  const terminal = useRef<TerminalHandle | null>(null);
  const early = useRef<(string | Uint8Array)[]>([]);
  const isRunning = phase !== null;

  const change = (changes: Partial<ExecutionRequest>) => setRequest((before) => ({ ...before, ...changes }));
  useEffect(() => { putDraft({ ...request, ...(input === 'terminal' ? { terminal: { rows: 24, cols: 80 } } : {}) }); }, [request, input]);
  const fragment = place.value.fragment;
  useEffect(() => {
    const packed = /^z=(.+)$/.exec(fragment)?.[1];
    if (!packed) return;
    unpack(packed).then(
      (shared) => {
        setRequest(shared);
        setInput(inputOf(shared));
        navigate('/playground', { replace: true });
      },
      (error: unknown) => toast(`The link could not be read: ${messageOf(error)}`, 'bad'),
    );
  }, [fragment]);
  useEffect(() => () => run.current?.leave(), []);

  /** The request as it is sent. */
  const asSent = (): ExecutionRequest => {
    const { terminal: _, interactive: __, tests, stdin, ...rest } = request;
    if (input === 'terminal') return { ...rest, terminal: { rows: terminal.current?.rows ?? 24, cols: terminal.current?.cols ?? 80 } };
    if (input === 'tests') return { ...rest, tests: tests?.length ? tests : [{ stdin: '', expected: '' }] };
    return { ...rest, ...(stdin ? { stdin } : {}) };
  };
  const begin = () => {
    if (isRunning || awaySince.value !== null) return;
    run.current?.leave();
    setPieces([]);
    setResult(null);
    setProblem(null);
    setId(null);
    setRan(input);
    setRound((before) => before + 1);
    early.current = [];
    terminal.current = null;
    const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
    let waiting: Piece[] = [];
    let shown = 0;
    const show = () => {
      const more = waiting;
      waiting = [];
      setPieces((before) => [...before, ...more]);
    };
    const begun = start(asSent(), {
      onPhase: setPhase,
      onAccepted: setId,
      onOutput: (stream, data) => {
        if (input === 'terminal') {
          if (terminal.current) terminal.current.write(data);
          else early.current.push(data);
          return;
        }
        const text = typeof data === 'string' ? data : decoders[stream].decode(data, { stream: true });
        if (shown > SHOWN_CHARACTERS_MAX) return;
        shown += text.length;
        // Once a frame, however many chunks come.
        if (waiting.length === 0) requestAnimationFrame(show);
        waiting.push({ stream, text });
      },
      onEnd: (outcome, why) => {
        setPhase(null);
        setResult(outcome);
        setProblem(why);
      },
    });
    run.current = begun;
  };
  const stop = () => run.current?.cancel();
  const take = (example: Example) => {
    setRequest(example.request);
    setInput(example.input);
    setResult(null);
    setProblem(null);
    setRan(null);
  };
  const choose = (language: string) => {
    const isUntouched = !request.source || Object.values(FIRST).includes(request.source)
      || EXAMPLES.some((it) => it.request.source === request.source);
    change({ language, argv: undefined, ...(isUntouched ? { source: FIRST[language] ?? '' } : {}) });
  };
  const share = async () => {
    const link = new URL(`${href('/playground')}#z=${await pack(asSent())}`, location.href).href;
    if (await copy(link)) toast('The link is copied. It holds the program itself; the server keeps nothing.');
    else navigate(`/playground#z=${await pack(asSent())}`, { replace: true });
  };
  const keep = async () => {
    const name = fileName(request.language);
    const session = await attempt(api<{ id: string }>('/v1/sessions', { json: {} }));
    if (!session) return;
    await attempt(api(path`/v1/sessions/${session.id}/files/${name}`, { method: 'PUT', body: request.source ?? '' }));
    navigate(`/sessions/${session.id}`);
  };
  useKeys([{ keys: 'Ctrl+Enter', title: 'run the program', run: begin }]);
  usePalette([
    ...EXAMPLES.map((example) => ({ title: `Example: ${example.title}`, group: 'Playground', icon: 'code' as const, run: () => take(example) })),
    { title: 'Copy a link with this program', group: 'Playground', icon: 'share-2', run: () => void share() },
  ]);

  const known = languages.data.value?.languages ?? [];
  const choices = known.length > 0
    ? known.map((it) => ({ value: it.name, label: it.available ? it.name : `${it.name} (not installed)`, isDisabled: !it.available }))
    : [{ value: request.language ?? 'python', label: request.language ?? 'python' }];
  return (
    <div class="page full playground">
      <PageHead title="Playground"
        aside={<small class="from-760">A sandbox nobody used before; nothing of it remains.</small>}
        actions={(
          <>
            <AsCommand commands={() => [{ path: '/v1/executions', query: { wait: input !== 'terminal' }, json: asSent(), cove: coveCommand(request, input) }]} />
            <Button kind="quiet" icon="share-2" onClick={share}>Share</Button>
            {isRunning
              ? <Button kind="danger" icon="square" onClick={stop}>Stop</Button>
              : <Button kind="primary" icon="play" onClick={begin} keys="Ctrl+Enter" id="run">Run</Button>}
          </>
        )} />
      <div class="playground-panes">
        <Panel class="editor-panel" isFlush title={(
          <SelectField label="Language" isLabelHidden value={request.language ?? ''} onValue={choose} choices={choices} />
        )} actions={(
          <>
            <Menu kind="quiet" label="Examples" items={EXAMPLES.map((example) => ({ label: example.title, hint: example.about, onClick: () => take(example) }))}>Examples</Menu>
            <FileMenu request={request} onOpen={(source, language) => change({ source, ...(language ? { language } : {}) })} languages={known} onKeep={may('sessions') ? keep : undefined} />
          </>
        )}>
          <Editor text={request.source ?? ''} language={request.language ?? ''} label="Program" onChange={(source) => change({ source })} onRun={begin} />
          {(request.files?.length ?? 0) > 0 && <div class="pane-foot"><Icon name="file" size={14} /> with {count(request.files!.length)} files of the request<Button kind="quiet" icon="x" label="Leave the files out" onClick={() => change({ files: undefined })} /></div>}
          <InputPane input={input} setInput={setInput} request={request} change={change} />
        </Panel>
        <Panel class="output-panel" isFlush title={<>Output {isRunning && <Badge tone="run">{phase}</Badge>}</>}
          actions={id && <Link to={`/executions/${id}`}>{isRunning ? 'Details' : 'Details and events'}</Link>}>
          {ran === null && (
            <Empty icon="play" title="Nothing has run yet">Press Ctrl+Enter in the editor. Output comes here as it is written, and below it the verdict and what it took.</Empty>
          )}
          {ran === 'terminal' && (
            <TerminalPane key={round} label="Terminal of the program"
              onReady={(handle) => {
                terminal.current = handle;
                for (const data of early.current) handle.write(data);
                early.current = [];
                run.current?.resize(handle.rows, handle.cols);
                handle.focus();
              }}
              onInput={(data) => run.current?.input(data)}
              onResize={(rows, cols) => run.current?.resize(rows, cols)} />
          )}
          {ran === 'text' && <TextOutput pieces={pieces} isRunning={isRunning} />}
          {ran === 'tests' && (result?.tests?.length
            ? <div class="scroll pad"><TestTable tests={result.tests} /></div>
            : <TextOutput pieces={pieces} isRunning={isRunning} />)}
          {problem !== null && <div class="pane-foot"><div class="note bad" role="alert"><Icon name="circle-alert" /><div>{problem}</div></div></div>}
          <div role="status" aria-live="polite">{result && <div class="pane-foot"><OutcomeLine outcome={result} /></div>}</div>
          {result?.verdict === 'CE' && <CompilerOutput result={result} />}
        </Panel>
      </div>
    </div>
  );
}

function TextOutput({ pieces, isRunning }: { pieces: Piece[]; isRunning: boolean }) {
  const element = useRef<HTMLPreElement>(null);
  const isAtEnd = useRef(true);
  useEffect(() => {
    const box = element.current;
    if (box && isAtEnd.current) box.scrollTop = box.scrollHeight;
  }, [pieces]);
  if (pieces.length === 0 && !isRunning) return <p class="muted pad grow">It wrote nothing.</p>;
  return (
    <pre class="plain-output" ref={element} tabIndex={0} aria-label="Output of the program"
      onScroll={(event) => {
        const box = event.currentTarget;
        isAtEnd.current = box.scrollTop + box.clientHeight > box.scrollHeight - 20;
      }}>
      {pieces.map((piece, at) => <span key={at} class={piece.stream}>{piece.text}</span>)}
    </pre>
  );
}

function CompilerOutput({ result }: { result: ExecutionResult }) {
  const stage = result.stages.find((it) => it.name === 'compile');
  const text = stage?.stderr || stage?.stdout || result.stderr || '';
  return text === '' ? null : <pre class="plain-output stderr" tabIndex={0} aria-label="Output of the compiler">{text}</pre>;
}

function InputPane({ input, setInput, request, change }: {
  input: Input; setInput: (input: Input) => void; request: ExecutionRequest; change: (changes: Partial<ExecutionRequest>) => void;
}) {
  const tests = request.tests ?? [];
  const setTest = (at: number, changes: Partial<TestCase>) => change({ tests: tests.map((it, index) => (index === at ? { ...it, ...changes } : it)) });
  const [areLimitsShown, showLimits] = useState(false);
  const limits = request.limits ?? {};
  const setLimit = (name: keyof LimitSpec, text: string, factor = 1) => {
    const { [name]: _, ...rest } = limits;
    const value = Number(text);
    const next = text === '' || !Number.isFinite(value) ? rest : { ...rest, [name]: Math.round(value * factor) };
    change({ limits: Object.keys(next).length > 0 ? next : undefined });
  };
  const limit = (name: keyof LimitSpec, label: string, unit: string, placeholder: string, factor = 1) => (
    <TextField label={`${label} (${unit})`} type="number" min={0} placeholder={placeholder}
      value={typeof limits[name] === 'number' ? String(limits[name] / factor) : ''} onValue={(text) => setLimit(name, text, factor)} />
  );
  const lineCount = useMemo(() => (request.stdin ?? '').split('\n').length, [request.stdin]);
  return (
    <div class="input-pane">
      <div class="row between">
        <Segments label="Input" value={input} onValue={(value) => setInput(value as Input)} choices={[
          { value: 'terminal', label: 'Terminal' }, { value: 'text', label: 'Text' },
          { value: 'tests', label: tests.length > 0 ? `Tests (${tests.length})` : 'Tests' },
        ]} />
        <Button kind="quiet" icon="sliders-horizontal" isPressed={areLimitsShown || undefined} onClick={() => showLimits(!areLimitsShown)}>
          {request.limits ? `Limits (${Object.keys(request.limits).length})` : 'Limits'}
        </Button>
      </div>
      {areLimitsShown && (
        <div class="limits">
          {limit('cpu_ms', 'CPU time', 's', '10', 1000)}
          {limit('wall_ms', 'Wall time', 's', '20', 1000)}
          {limit('memory_bytes', 'Memory', 'MiB', '512', 1 << 20)}
          {limit('processes', 'Processes', 'at once', '64')}
        </div>
      )}
      {input === 'terminal' && <small>The program runs on a terminal: type into the output while it runs. Ctrl-C and the window's size reach it.</small>}
      {input === 'text' && (
        <AreaField label="Standard input" isMono isLabelHidden rows={Math.min(6, Math.max(2, lineCount))} placeholder="Standard input; empty for none"
          value={request.stdin ?? ''} onValue={(stdin) => change({ stdin: stdin === '' ? undefined : stdin })} />
      )}
      {input === 'tests' && (
        <div class="stack">
          <div class="tests">
            {tests.map((test, at) => (
              <div key={at} class="test">
                <TextField label={`Name of test ${at + 1}`} isLabelHidden placeholder={String(at + 1)} value={test.name ?? ''} onValue={(name) => setTest(at, { name: name || undefined })} />
                <AreaField label={`Input of test ${at + 1}`} isLabelHidden isMono rows={2} placeholder="Input" value={test.stdin ?? ''} onValue={(stdin) => setTest(at, { stdin })} />
                <AreaField label={`Expected output of test ${at + 1}`} isLabelHidden isMono rows={2} placeholder="Expected output" value={test.expected ?? ''} onValue={(expected) => setTest(at, { expected })} />
                <Button kind="quiet" icon="trash" label={`Remove test ${at + 1}`} onClick={() => change({ tests: tests.filter((_, index) => index !== at) })} />
              </div>
            ))}
          </div>
          <div class="row">
            <Button icon="plus" onClick={() => change({ tests: [...tests, { stdin: '', expected: '' }] })}>Add a test</Button>
            <SelectField label="Comparison" isLabelHidden value={request.comparison?.mode ?? 'trailing_space'}
              onValue={(mode) => change({ comparison: mode === 'trailing_space' ? undefined : { mode } as OutputComparison })}
              choices={[
                { value: 'trailing_space', label: 'Ignore space at line ends' }, { value: 'exact', label: 'Byte for byte' },
                { value: 'tokens', label: 'Word by word' }, { value: 'float', label: 'Numbers within a tolerance' },
                ...(request.comparison?.mode === 'checker' ? [{ value: 'checker', label: 'By a checker' }] : []),
              ]} />
            <CheckField label="Stop at the first failure" isOn={request.stop_at_first_failure ?? false}
              onValue={(isOn) => change({ stop_at_first_failure: isOn || undefined })} />
          </div>
        </div>
      )}
    </div>
  );
}

const EXTENSIONS: Record<string, string> = {
  python: 'py', javascript: 'js', typescript: 'ts', bash: 'sh', c: 'c', cpp: 'cpp', go: 'go', rust: 'rs', java: 'java',
};

function fileName(language?: string | null): string {
  return language === 'java' ? 'Main.java' : `main.${EXTENSIONS[language ?? ''] ?? 'txt'}`;
}

function FileMenu({ request, onOpen, languages, onKeep }: {
  request: ExecutionRequest; onOpen: (source: string, language: string | null) => void; languages: Language[]; onKeep?: () => void;
}) {
  const chooser = useRef<HTMLInputElement>(null);
  const open = async (file: File | undefined) => {
    if (!file) return;
    if (file.size > FILE_BYTES_MAX) {
      toast('The file is larger than 1 MiB.', 'bad');
      return;
    }
    const extension = file.name.split('.').pop() ?? '';
    const language = Object.entries(EXTENSIONS).find(([, it]) => it === extension)?.[0] ?? null;
    onOpen(await file.text(), language !== null && languages.some((it) => it.name === language) ? language : null);
  };
  const save = () => saveFile([request.source ?? ''], fileName(request.language), 'text/plain');
  return (
    <>
      <input ref={chooser} type="file" hidden aria-label="File to open" onChange={(event) => {
        void open(event.currentTarget.files?.[0]);
        event.currentTarget.value = '';
      }} />
      <Menu kind="quiet" label="File" items={[
        { label: 'Open a file', icon: 'upload', onClick: () => chooser.current?.click() },
        { label: 'Save to a file', icon: 'download', onClick: save },
        onKeep !== undefined && { label: 'Keep it in a new session', icon: 'server-cog', onClick: onKeep },
      ]} />
    </>
  );
}

/** The command line that runs the same. */
function coveCommand(request: ExecutionRequest, input: Input): string {
  const name = fileName(request.language);
  const options = [`--lang ${request.language ?? ''}`];
  const { cpu_ms: cpu, wall_ms: wall, memory_bytes: memory, processes } = request.limits ?? {};
  if (cpu) options.push(`--cpu ${cpu}ms`);
  if (wall) options.push(`--wall ${wall}ms`);
  if (memory) options.push(`--memory ${Math.round(memory / (1 << 20))}M`);
  if (processes) options.push(`--processes ${processes}`);
  if (input === 'terminal') return `# with the program in ${name}\ncove run --tty ${options.join(' ')} ${name}`;
  if (input === 'tests') return `# with the program in ${name} and the test cases in tests.json\ncove exec submit --wait ${options.join(' ')} --tests tests.json ${name}`;
  const stdin = request.stdin ? ' --stdin-file input.txt' : '';
  return `# with the program in ${name}\ncove exec submit --watch ${options.join(' ')}${stdin} ${name}`;
}
