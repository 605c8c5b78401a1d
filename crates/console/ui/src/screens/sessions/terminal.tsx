// Terminals of a session. One opens by a click only: an opened page must not wake a sandbox.
import { useEffect, useRef, useState } from 'preact/hooks';
import { Badge, Button, Empty, TerminalPane, openSocket, path, withQuery, type TerminalHandle, type Tone } from '../../kit';

/** Terminals of one page. */
const TABS_MAX = 5;
const BACKOFF_MS = [500, 1000, 2000, 4000, 8000, 8000];

interface Opened { id: number; title: string }

export function Terminals({ session }: { session: string }) {
  const [open, setOpen] = useState<Opened[]>([]);
  const [shown, setShown] = useState(0);
  const numbers = useRef(0);
  const add = () => {
    numbers.current += 1;
    const id = numbers.current;
    setOpen((all) => [...all, { id, title: `Shell ${id}` }]);
    setShown(id);
  };
  const close = (id: number) => {
    const rest = open.filter((it) => it.id !== id);
    setOpen(rest);
    if (shown === id) setShown(rest[rest.length - 1]?.id ?? 0);
  };
  if (open.length === 0) {
    return (
      <Empty icon="terminal" title="No terminal is open" command={`cove session shell ${session}`}
        action={<Button kind="primary" icon="terminal" onClick={add}>Open a terminal</Button>}>
        <p>A terminal runs a shell in the session's sandbox, which is resumed for that if it is not there.</p>
      </Empty>
    );
  }
  return (
    <div class="terminals">
      <div class="row" role="group" aria-label="Terminals">
        {open.map((it) => (
          <span key={it.id} class="terminal-tab">
            <Button kind={shown === it.id ? 'plain' : 'quiet'} isPressed={shown === it.id} onClick={() => setShown(it.id)}>{it.title}</Button>
            <Button kind="quiet" icon="x" label={`Close ${it.title}`} onClick={() => close(it.id)} />
          </span>
        ))}
        {open.length < TABS_MAX && <Button kind="quiet" icon="plus" label="Open another terminal" onClick={add} />}
      </div>
      {open.map((it) => (
        <div key={it.id} hidden={shown !== it.id} class="terminal-holder">
          <One session={session} title={it.title} />
        </div>
      ))}
    </div>
  );
}

type Phase = { word: string; tone: Tone; isOver?: boolean };

function One({ session, title }: { session: string; title: string }) {
  const [phase, setPhase] = useState<Phase>({ word: 'connecting', tone: 'run' });
  const socket = useRef<WebSocket | null>(null);
  const handle = useRef<TerminalHandle | null>(null);
  const size = useRef({ rows: 24, cols: 80 });
  const isGone = useRef(false);

  const connect = (attempt: number) => {
    if (isGone.current) return;
    setPhase({ word: attempt === 0 ? 'connecting' : 'connecting again', tone: 'run' });
    const opened = openSocket(withQuery(path`/v1/sessions/${session}/terminal`, { ...size.current }));
    opened.binaryType = 'arraybuffer';
    socket.current = opened;
    let isEnded = false;
    let isStarted = false;
    opened.onmessage = ({ data }) => {
      if (typeof data !== 'string') {
        handle.current?.write(new Uint8Array(data as ArrayBuffer));
        return;
      }
      const event = JSON.parse(data) as { type: string; exit_code?: number | null; message?: string };
      if (event.type === 'started') {
        isStarted = true;
        setPhase({ word: 'connected', tone: 'ok' });
        handle.current?.focus();
      } else if (event.type === 'ended' || event.type === 'error') {
        isEnded = true;
        const word = event.type === 'error' ? event.message ?? 'it failed' : `ended${event.exit_code ? ` with ${event.exit_code}` : ''}`;
        setPhase({ word, tone: event.type === 'error' ? 'bad' : 'muted', isOver: true });
      }
    };
    opened.onclose = ({ code, reason }) => {
      if (isGone.current || socket.current !== opened) return;
      socket.current = null;
      if (isEnded || code === 1000) {
        setPhase((before) => (before.isOver ? before : { word: reason || 'closed', tone: 'muted', isOver: true }));
        return;
      }
      const next = isStarted ? 0 : attempt;
      const wait = BACKOFF_MS[next];
      if (wait === undefined) {
        setPhase({ word: reason || 'the connection was lost', tone: 'bad', isOver: true });
        return;
      }
      // What ran in the terminal has ended with its connection; what it showed stays.
      if (isStarted) handle.current?.write('\r\n\x1b[2m[the connection was lost; a new shell follows]\x1b[0m\r\n');
      setPhase({ word: `connecting again in ${wait / 1000} s`, tone: 'warn' });
      setTimeout(() => connect(next + 1), wait);
    };
  };
  useEffect(() => {
    isGone.current = false;
    return () => {
      isGone.current = true;
      socket.current?.close(1000);
    };
  }, []);
  const send = (data: string) => {
    const opened = socket.current;
    if (opened?.readyState === WebSocket.OPEN) opened.send(new TextEncoder().encode(data));
  };
  return (
    <>
      <div class="row terminal-state" aria-live="polite">
        <Badge tone={phase.tone}>{phase.word}</Badge>
        {phase.isOver && <Button kind="quiet" icon="refresh-cw" onClick={() => connect(0)}>Start a new shell</Button>}
      </div>
      <div class="terminal-frame">
        <TerminalPane label={title}
          onReady={(ready) => {
            handle.current = ready;
            size.current = { rows: ready.rows, cols: ready.cols };
            connect(0);
          }}
          onInput={send}
          onResize={(rows, cols) => {
            size.current = { rows, cols };
            const opened = socket.current;
            if (opened?.readyState === WebSocket.OPEN) opened.send(JSON.stringify({ type: 'resize', rows, cols }));
          }} />
      </div>
    </>
  );
}
