// Terminals of a session. One opens by a click only: an opened page must not wake a sandbox. A
// terminal goes on for a while when its socket is lost: the page attaches again by itself, and after a
// reload it offers those that are still there.
import { useEffect, useRef, useState } from 'preact/hooks';
import {
  Badge, Button, Empty, TerminalPane, api, duration, openSocket, path, reconnectWaitMs, toast, messageOf, useResource, withQuery,
  type TerminalHandle, type Tone,
} from '../../kit';

/** Terminals of one page. */
const TABS_MAX = 5;
/** Time that a shell goes on without the page. */
const DETACH_S = 600;
/** Bytes of output that may be on their way to what is shown: so Ctrl+C is not behind a flood. */
const WINDOW_BYTES = 32 << 10;
/** Bytes that are shown before the server is told so. */
const ACK_BYTES = WINDOW_BYTES / 4;
/** Close code of the server for a client whose terminal another one has taken over. */
const TAKEN_OVER = 4409;

interface Opened { id: number; title: string; terminal: string | null }
interface OpenTerminal { id: string; pid: number; argv: string[]; state: 'attached' | 'detached' | 'ended' }

export function Terminals({ session }: { session: string }) {
  const [open, setOpen] = useState<Opened[]>([]);
  const [shown, setShown] = useState(0);
  const numbers = useRef(0);
  const list = useResource<{ terminals: OpenTerminal[] }>(path`/v1/sessions/${session}/terminals`);
  const here = new Set(open.map((it) => it.terminal));
  const others = (list.data.value?.terminals ?? []).filter((it) => !here.has(it.id));
  const add = (terminal: OpenTerminal | null) => {
    numbers.current += 1;
    const id = numbers.current;
    const title = terminal ? `Shell of process ${terminal.pid}` : `Shell ${id}`;
    setOpen((all) => [...all, { id, title, terminal: terminal?.id ?? null }]);
    setShown(id);
  };
  const named = (id: number, terminal: string | null) => {
    setOpen((all) => all.map((it) => (it.id === id ? { ...it, terminal } : it)));
    if (terminal === null) list.refresh();
  };
  const close = async ({ id, terminal }: Opened) => {
    const rest = open.filter((it) => it.id !== id);
    setOpen(rest);
    if (shown === id) setShown(rest[rest.length - 1]?.id ?? 0);
    if (!terminal) return;
    try {
      await api(path`/v1/sessions/${session}/terminals/${terminal}`, { method: 'DELETE' });
    } catch (error) {
      // Its program may have ended meanwhile.
      if ((error as { status?: number }).status !== 404) toast(messageOf(error), 'bad');
    }
    list.refresh();
  };
  const offered = others.length > 0 && (
    <div class="row" role="group" aria-label="Terminals that are still open">
      <span class="muted">Still open:</span>
      {others.map((it) => (
        <Button key={it.id} icon="terminal" isDisabled={open.length >= TABS_MAX} onClick={() => add(it)}>
          {`${it.argv[0]?.split('/').pop() ?? 'program'}, process ${it.pid}${it.state === 'detached' ? '' : ` (${it.state === 'ended' ? 'ended' : 'shown elsewhere'})`}`}
        </Button>
      ))}
    </div>
  );
  if (open.length === 0) {
    return (
      <>
        {offered}
        <Empty icon="terminal" title={others.length > 0 ? 'No terminal is shown' : 'No terminal is open'} command={`cove session terminal ${session}`}
          action={<Button kind="primary" icon="terminal" onClick={() => add(null)}>Open a terminal</Button>}>
          <p>A terminal runs a shell in the session's sandbox, which is resumed for that if it is not there.</p>
        </Empty>
      </>
    );
  }
  return (
    <div class="terminals">
      <div class="row" role="group" aria-label="Terminals">
        {open.map((it) => (
          <span key={it.id} class="terminal-tab">
            <Button kind={shown === it.id ? 'plain' : 'quiet'} isPressed={shown === it.id} onClick={() => setShown(it.id)}>{it.title}</Button>
            <Button kind="quiet" icon="x" label={`Close ${it.title}`} onClick={() => void close(it)} />
          </span>
        ))}
        {open.length < TABS_MAX && <Button kind="quiet" icon="plus" label="Open another terminal" onClick={() => add(null)} />}
      </div>
      {offered}
      {open.map((it) => (
        <div key={it.id} hidden={shown !== it.id} class="terminal-holder">
          <One session={session} title={it.title} first={it.terminal} onTerminal={(terminal) => named(it.id, terminal)} />
        </div>
      ))}
    </div>
  );
}

type Phase = { word: string; tone: Tone; next?: 'new' | 'attach' };
interface TerminalEvent { type: string; exit_code?: number | null; error?: string; terminal?: string; from?: number; to?: number }

function One({ session, title, first, onTerminal }: {
  session: string; title: string; first: string | null; onTerminal: (terminal: string | null) => void;
}) {
  const [phase, setPhase] = useState<Phase>({ word: 'connecting', tone: 'run' });
  const socket = useRef<WebSocket | null>(null);
  const handle = useRef<TerminalHandle | null>(null);
  const size = useRef({ rows: 24, cols: 80 });
  const isGone = useRef(false);
  const timer = useRef(0);
  // The terminal that goes on without this page, the bytes of its output that are shown, and when its
  // connection was lost.
  const terminal = useRef(first);
  const received = useRef(0);
  const lostAt = useRef<number | null>(null);
  // What is repeated may hold questions to the terminal; they were answered when they were asked.
  const isReplaying = useRef(false);

  const forget = (word: string, tone: Tone) => {
    terminal.current = null;
    onTerminal(null);
    setPhase({ word, tone, next: 'new' });
  };
  /** Attaches again after a while, unless the terminal is gone. */
  const again = async (attempt: number) => {
    const since = lostAt.current ?? Date.now();
    lostAt.current = since;
    const id = terminal.current;
    if (id === null || Date.now() - since > DETACH_S * 1000) {
      forget('the connection was lost', 'bad');
      return;
    }
    try {
      const list = await api<{ terminals: OpenTerminal[] }>(path`/v1/sessions/${session}/terminals`);
      if (isGone.current) return;
      if (!list.terminals.some((it) => it.id === id)) {
        forget('the shell is gone', 'bad');
        return;
      }
    } catch {
      // A server that does not answer may do so later.
      if (isGone.current) return;
    }
    const wait = reconnectWaitMs(attempt + 1);
    setPhase({ word: `connecting again in ${duration(Math.round(wait / 100) * 100)}`, tone: 'warn' });
    timer.current = window.setTimeout(() => connect(attempt + 1), wait);
  };
  const connect = (attempt: number) => {
    if (isGone.current) return;
    setPhase({ word: attempt === 0 ? 'connecting' : 'connecting again', tone: 'run' });
    const program = terminal.current === null
      ? { detach_s: DETACH_S }
      : { attach: terminal.current, from: received.current > 0 ? received.current : undefined };
    const opened = openSocket(withQuery(path`/v1/sessions/${session}/terminal`, { ...size.current, ...program, window: WINDOW_BYTES }));
    opened.binaryType = 'arraybuffer';
    socket.current = opened;
    let isEnded = false;
    let isStarted = false;
    let replayEnd = 0;
    // Bytes of this connection that are shown, and of which the server knows it.
    let shown = 0;
    let told = 0;
    opened.onmessage = ({ data }) => {
      if (typeof data !== 'string') {
        const bytes = new Uint8Array(data as ArrayBuffer);
        received.current += bytes.length;
        const isReplayed = isReplaying.current && received.current >= replayEnd;
        handle.current?.write(bytes, () => {
          if (isReplayed) isReplaying.current = false;
          shown += bytes.length;
          if (shown - told < ACK_BYTES || opened.readyState !== WebSocket.OPEN) return;
          told = shown;
          opened.send(JSON.stringify({ type: 'ack', bytes: shown }));
        });
        return;
      }
      const event = JSON.parse(data) as TerminalEvent;
      if (event.type === 'started' || event.type === 'attached') {
        isStarted = true;
        lostAt.current = null;
        const from = event.from ?? 0;
        // What is shown does not lead up to what comes.
        if (from !== received.current) handle.current?.clear();
        received.current = from;
        replayEnd = event.to ?? 0;
        isReplaying.current = replayEnd > from;
        terminal.current = event.terminal ?? null;
        onTerminal(terminal.current);
        setPhase({ word: 'connected', tone: 'ok' });
        handle.current?.focus();
      } else if (event.type === 'ended' || event.type === 'error') {
        isEnded = true;
        received.current = 0;
        if (event.type === 'error') forget(event.error ?? 'it failed', 'bad');
        else forget(`ended${event.exit_code ? ` with ${event.exit_code}` : ''}`, 'muted');
      }
    };
    opened.onclose = ({ code, reason }) => {
      if (isGone.current || socket.current !== opened) return;
      socket.current = null;
      if (isEnded) return;
      if (code === TAKEN_OVER) setPhase({ word: 'shown elsewhere', tone: 'warn', next: 'attach' });
      else if (code === 1000) forget(reason || 'closed', 'muted');
      else void again(isStarted ? 0 : attempt);
    };
  };
  useEffect(() => {
    isGone.current = false;
    return () => {
      isGone.current = true;
      window.clearTimeout(timer.current);
      socket.current?.close(1000);
    };
  }, []);
  const send = (data: string) => {
    const opened = socket.current;
    if (opened?.readyState === WebSocket.OPEN && !isReplaying.current) opened.send(new TextEncoder().encode(data));
  };
  const restart = () => {
    if (phase.next === 'new') received.current = 0;
    connect(0);
  };
  return (
    <>
      <div class="row terminal-state" aria-live="polite">
        <Badge tone={phase.tone}>{phase.word}</Badge>
        {phase.next && (
          <Button kind="quiet" icon="refresh-cw" onClick={restart}>
            {phase.next === 'new' ? 'Start a new shell' : 'Show it here'}
          </Button>
        )}
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
