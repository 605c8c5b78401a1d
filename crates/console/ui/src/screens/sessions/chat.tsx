// The conversation with the agent of a session, and everything that happened in it.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import {
  Badge, Button, Empty, ErrorNote, Foreign, Icon, SelectField, api, attempt, clock, count, duration, follow, path,
  plural, precise, request, useQuery, type Tone,
} from '../../kit';
import type { Session, SessionEvent } from './model';

/** Events that are kept in the page. */
const EVENTS_MAX = 5000;
/** Characters of one block that are shown until it is opened. */
const BLOCK_MAX = 4000;

/** Events of a session, from the first on, followed. */
export function useEvents(session: string): { events: SessionEvent[]; error: unknown } {
  const [events, setEvents] = useState<SessionEvent[]>([]);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    setEvents([]);
    const waiting: SessionEvent[] = [];
    let frame = 0;
    // Many events at once are one rendering.
    const take = (event: SessionEvent) => {
      waiting.push(event);
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        const come = waiting.splice(0);
        setEvents((known) => {
          const last = known[known.length - 1]?.seq ?? 0;
          return [...known, ...come.filter((it) => it.seq > last || it.type.endsWith('_delta'))].slice(-EVENTS_MAX);
        });
      });
    };
    const stop = follow<SessionEvent>('session.events', { session, after: 0 }, {
      onEvent: take, onEnd: (problem) => { if (problem) setError(new Error(problem.message)); },
    });
    return () => {
      cancelAnimationFrame(frame);
      stop();
    };
  }, [session]);
  return { events, error };
}

const textOf = (value: unknown): string => {
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) return value.map((it) => textOf((it as { text?: unknown }).text ?? `[${String((it as { type?: unknown }).type ?? 'block')}]`)).join('\n');
  return value === undefined || value === null ? '' : JSON.stringify(value, null, 2);
};

interface Turn {
  id: string;
  atMs: number;
  question: string;
  parts: Part[];
  isOver: boolean;
  error: string | null;
  complete: Record<string, unknown> | null;
}
type Part = { kind: 'text'; text: string } | { kind: 'reasoning'; text: string } | { kind: 'tool'; id: string; name: string; input: unknown; result: string | null; isError: boolean };

function turnsOf(events: SessionEvent[]): Turn[] {
  const turns: Turn[] = [];
  const byId = new Map<string, Turn>();
  for (const { type, turn: id, data: anything, at_ms: atMs } of events) {
    const data = (anything ?? {}) as Record<string, unknown>;
    if (!id) continue;
    let turn = byId.get(id);
    if (turn === undefined) {
      turn = { id, atMs, question: '', parts: [], isOver: false, error: null, complete: null };
      byId.set(id, turn);
      turns.push(turn);
    }
    const last = turn.parts[turn.parts.length - 1];
    switch (type) {
      case 'turn_start': turn.question = textOf(data.content); break;
      case 'text_delta':
        if (last?.kind === 'text') last.text += String(data.delta ?? '');
        else turn.parts.push({ kind: 'text', text: String(data.delta ?? '') });
        break;
      case 'text': case 'reasoning':
        // The whole block takes the place of its pieces.
        if (type === 'text' && last?.kind === 'text' && String(data.text).startsWith(last.text)) last.text = String(data.text);
        else turn.parts.push({ kind: type as 'text' | 'reasoning', text: String(data.text ?? '') } as Part);
        break;
      case 'tool_use':
        turn.parts.push({ kind: 'tool', id: String(data.id), name: String(data.name), input: data.input, result: null, isError: false });
        break;
      case 'tool_result': {
        const used = turn.parts.find((it) => it.kind === 'tool' && it.id === data.tool_use_id);
        if (used?.kind === 'tool') {
          used.result = textOf(data.content);
          used.isError = data.is_error === true;
        }
        break;
      }
      case 'turn_complete': turn.complete = data; break;
      case 'error': turn.error = textOf(data.error); break;
      case 'done': turn.isOver = true; break;
      default: break;
    }
  }
  return turns;
}

export function Chat({ session, events, error }: { session: Session; events: SessionEvent[]; error: unknown }) {
  const turns = useMemo(() => turnsOf(events), [events]);
  const [text, setText] = useState('');
  const [problem, setProblem] = useState<unknown>(null);
  const end = useRef<HTMLDivElement>(null);
  const isBusy = turns.some((it) => !it.isOver);
  useEffect(() => { end.current?.scrollIntoView({ block: 'nearest' }); }, [events.length]);
  const send = async () => {
    const content = text.trim();
    if (content === '') return;
    setText('');
    setProblem(null);
    try {
      // The answer is the stream of the turn; its events come by the one socket, so it is not read.
      const response = await request(path`/v1/sessions/${session.id}/messages`, { json: { content, partial: true } });
      void response.body?.cancel();
    } catch (failed) {
      setProblem(failed);
      setText(content);
    }
  };
  if (!session.agent) {
    return (
      <Empty icon="bot" title="This session has no agent" command={`cove agent deploy ./my-agent\ncove session create --agent my-agent`}>
        <p>It is a workspace: use its terminal and files. An agent is a program that is deployed once and answers messages in sessions.</p>
      </Empty>
    );
  }
  return (
    <div class="chat">
      {error !== null && <ErrorNote error={error} title="The events cannot be followed" />}
      <div class="chat-turns" role="log" aria-label="Conversation">
        {turns.length === 0 && <p class="muted">Nothing was said yet.</p>}
        {turns.map((turn) => <TurnView key={turn.id} turn={turn} />)}
        <div ref={end} />
      </div>
      {problem !== null && <ErrorNote error={problem} title="The message was not sent" />}
      <form class="chat-input" onSubmit={(event) => { event.preventDefault(); void send(); }}>
        <textarea aria-label={`Message to ${session.agent}`} placeholder={`Message to ${session.agent}; Enter sends, Shift+Enter begins a line`} rows={2}
          value={text} onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
              event.preventDefault();
              void send();
            }
          }} />
        <Button type="submit" kind="primary" icon="send" isDisabled={text.trim() === ''}>Send</Button>
        {isBusy && <Button icon="square" onClick={() => attempt(api(path`/v1/sessions/${session.id}/interrupt`, { method: 'POST' }), 'Interrupted the turn')}>Stop</Button>}
      </form>
    </div>
  );
}

function TurnView({ turn }: { turn: Turn }) {
  const usage = (turn.complete?.usage ?? {}) as { input_tokens?: number; output_tokens?: number };
  const cost = turn.complete?.cost_usd;
  const took = turn.complete?.duration_ms;
  return (
    <article class="turn">
      <div class="turn-question"><Block text={turn.question} /><time class="muted" title={precise(turn.atMs)}>{clock(turn.atMs)}</time></div>
      {turn.parts.map((part, at) => {
        if (part.kind !== 'tool') {
          return part.kind === 'text' ? <Block key={at} text={part.text} />
            : <details key={at} class="fold"><summary>Thought</summary><Block text={part.text} /></details>;
        }
        return (
          <details key={at} class="fold">
            <summary>
              <Icon name="wand-sparkles" size={13} /> <strong><Foreign text={part.name} /></strong>{' '}
              <Foreign text={JSON.stringify(part.input) ?? ''} most={90} />
              {part.result === null ? !turn.isOver && <Badge tone="run">running</Badge> : part.isError && <Badge tone="bad">error</Badge>}
            </summary>
            <pre class="output">{textOf(part.input).slice(0, BLOCK_MAX)}</pre>
            {part.result !== null && <pre class="output">{part.result.slice(0, BLOCK_MAX)}{part.result.length > BLOCK_MAX ? '…' : ''}</pre>}
          </details>
        );
      })}
      {turn.error !== null && <div class="note bad"><Icon name="circle-alert" /><div class="wrap">{turn.error}</div></div>}
      {!turn.isOver && <Badge tone="run">working</Badge>}
      {turn.complete !== null && (
        <p class="muted turn-facts">
          {typeof took === 'number' && <span>{duration(took)}</span>}
          {usage.input_tokens !== undefined && <span>{count(usage.input_tokens)} tokens in</span>}
          {usage.output_tokens !== undefined && <span>{count(usage.output_tokens)} out</span>}
          {typeof cost === 'number' && cost > 0 && <span>{cost.toFixed(4)} USD</span>}
        </p>
      )}
    </article>
  );
}

function Block({ text }: { text: string }) {
  const [isWhole, setWhole] = useState(false);
  const isCut = text.length > BLOCK_MAX && !isWhole;
  return (
    <div class="chat-text">
      {isCut ? `${text.slice(0, BLOCK_MAX)}…` : text}
      {isCut && <Button kind="quiet" onClick={() => setWhole(true)}>Show all {plural(text.length, 'character')}</Button>}
    </div>
  );
}

const TONES: Record<string, Tone> = { error: 'bad', done: 'ok', tool_use: 'run', lifecycle: 'info' };

/** Everything that happened, as it is. */
export function Timeline({ events, error }: { events: SessionEvent[]; error: unknown }) {
  const [kind, setKind] = useQuery('kind');
  const kinds = [...new Set(events.map((it) => it.type))].sort();
  const shown = events.filter((it) => kind === '' || it.type === kind).slice(-500);
  return (
    <>
      {error !== null && <ErrorNote error={error} title="The events cannot be followed" />}
      <div class="toolbar">
        <SelectField label="Kind of event" isLabelHidden value={kind} onValue={setKind} choices={[{ value: '', label: 'Every event' }, ...kinds]} />
        <span class="muted">{plural(events.length, 'event')}</span>
      </div>
      {shown.length === 0 ? <Empty icon="activity" title="Nothing happened yet" /> : (
        <ol class="timeline">
          {shown.map((it) => (
            <li key={`${it.seq}-${it.type}`}>
              <time class="mono muted" title={precise(it.at_ms)}>{clock(it.at_ms)}</time>
              <Badge tone={TONES[it.type] ?? 'muted'}>{it.type}</Badge>
              <Foreign text={JSON.stringify(it.data)} most={400} />
            </li>
          ))}
        </ol>
      )}
    </>
  );
}
