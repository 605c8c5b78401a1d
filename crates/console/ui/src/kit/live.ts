// One WebSocket for everything that is followed (`GET /v1/live`, subprotocol `cove.live.v1`),
// because a browser opens only six HTTP/1.1 connections to a server, over all tabs.
import { batch, signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { awaySince, noteAway, token } from './api';
import { apiBase } from './base';
import { reconnectWaitMs } from './reconnect';
import { isPaused, type Resource } from './resource';

/** Attempts that end before the socket is open, while the server answers, before it counts as missing. */
const REFUSALS_MAX = 2;
/** Time for which records of a list are gathered before they are drawn. */
const TOGETHER_MS = 15;
/** Time until a server without the route is asked again; it may have been upgraded. */
const MISSING_MS = 60_000;

/**
 * State of the socket: `idle` while nothing is followed, `missing` where the server has no such
 * route (then components poll).
 */
export const liveState = signal<'idle' | 'connecting' | 'open' | 'waiting' | 'missing'>('idle');

export interface LiveHandlers<E> {
  onEvent(event: E): void;
  /** Events were left out because this reader was too slow. */
  onLagged?(count: number): void;
  /** The topic ended, or the server refused it. */
  onEnd?(error: { code: string; message: string } | null): void;
}

interface Subscription {
  id: string;
  topic: string;
  parameters: Record<string, unknown>;
  after: number | null;
  handlers: LiveHandlers<never>;
}

interface Message {
  id: string;
  ok?: true;
  event?: { seq?: number };
  error?: { code: string; message: string };
  ended?: true;
  lagged?: number;
}

const subscriptions = new Map<string, Subscription>();
let socket: WebSocket | null = null;
let timer: ReturnType<typeof setTimeout> | undefined;
let attempts = 0;
let numbers = 0;

/**
 * Follows a topic until the returned function is called. After a lost connection it goes on behind
 * the last event (`seq`) that was seen.
 */
export function follow<E>(
  topic: string,
  parameters: Record<string, unknown>,
  handlers: LiveHandlers<E>,
): () => void {
  numbers += 1;
  const id = String(numbers);
  const after = typeof parameters.after === 'number' ? parameters.after : null;
  const one: Subscription = { id, topic, parameters, after, handlers: handlers as LiveHandlers<never> };
  subscriptions.set(id, one);
  if (liveState.value === 'open') subscribe(one);
  else if (liveState.value === 'idle') connect();
  return () => {
    if (!subscriptions.delete(id)) return;
    send({ op: 'unsubscribe', id });
    // No console that follows something: no connection.
    if (subscriptions.size === 0) close();
  };
}

/** Follows a topic for as long as the component is there; nothing for a null topic. */
export function useLive<E>(
  topic: string | null,
  parameters: Record<string, unknown>,
  handlers: LiveHandlers<E>,
): void {
  const latest = useRef(handlers);
  latest.current = handlers;
  useEffect(() => {
    if (topic === null) return undefined;
    return follow<E>(topic, parameters, {
      onEvent: (event) => latest.current.onEvent(event),
      onLagged: (count) => latest.current.onLagged?.(count),
      onEnd: (error) => latest.current.onEnd?.(error),
    });
  }, [topic, JSON.stringify(parameters)]);
}

/**
 * Follows a topic of records that `from` shows. While lists stand still, records only leave a mark,
 * and the list is asked for when it goes on.
 */
export function useLiveRecords<T extends { id: string }>(
  topic: string | null,
  parameters: Record<string, unknown>,
  from: Resource<unknown>,
  put: (record: T) => void,
): void {
  const isBehind = useRef(false);
  const waiting = useRef<T[]>([]);
  const latest = useRef(put);
  latest.current = put;
  useLive<T & { truncated?: boolean }>(topic, parameters, {
    onEvent: (record) => {
      if (isPaused.value) isBehind.current = true;
      else if (record.truncated) from.refresh();
      else if (waiting.current.push(record) === 1) {
        // What comes together is drawn together: the first records are the whole list.
        setTimeout(() => batch(() => waiting.current.splice(0).forEach((it) => latest.current(it))), TOGETHER_MS);
      }
    },
    onLagged: () => from.refresh(),
  });
  const paused = isPaused.value;
  useEffect(() => {
    if (paused || !isBehind.current) return;
    isBehind.current = false;
    from.refresh();
  }, [paused]);
}

/** Returns a list, newest first, with a record in its place, or in front when it was not there. */
export function merged<T extends { id: string }>(list: T[], record: T): T[] {
  const isKnown = list.some((it) => it.id === record.id);
  return isKnown ? list.map((it) => (it.id === record.id ? record : it)) : [record, ...list];
}

function send(message: unknown): void {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
}

function subscribe({ id, topic, parameters, after }: Subscription): void {
  const from = after === null ? {} : { after };
  send({ op: 'subscribe', id, topic, ...parameters, ...from });
}

/** Returns an open address for a WebSocket with this tab's token. */
export function openSocket(path: string, protocols: string[] = []): WebSocket {
  const address = new URL(path.replace(/^\//, ''), apiBase);
  address.protocol = address.protocol === 'https:' ? 'wss:' : 'ws:';
  return new WebSocket(address, [...protocols, `bearer.${token.value ?? ''}`]);
}

function connect(): void {
  clearTimeout(timer);
  if (token.value === null || subscriptions.size === 0 || socket !== null) return;
  liveState.value = 'connecting';
  const opened = openSocket('v1/live', ['cove.live.v1']);
  socket = opened;
  let wasOpen = false;
  opened.onopen = () => {
    wasOpen = true;
    attempts = 0;
    liveState.value = 'open';
    for (const one of subscriptions.values()) subscribe(one);
  };
  opened.onmessage = ({ data }) => {
    if (typeof data === 'string') receive(JSON.parse(data) as Message);
  };
  opened.onclose = () => {
    if (socket !== opened) return;
    socket = null;
    if (subscriptions.size === 0) {
      liveState.value = 'idle';
      return;
    }
    attempts += 1;
    if (wasOpen) noteAway(); // it looks at once whether the server is there
    const isMissing = !wasOpen && attempts >= REFUSALS_MAX && awaySince.value === null;
    liveState.value = isMissing ? 'missing' : 'waiting';
    timer = setTimeout(connect, isMissing ? MISSING_MS : reconnectWaitMs(attempts));
  };
}

function close(): void {
  clearTimeout(timer);
  const opened = socket;
  socket = null;
  opened?.close(1000);
  if (liveState.value !== 'missing') liveState.value = 'idle';
}

function receive(message: Message): void {
  const one = subscriptions.get(message.id);
  if (one === undefined) return;
  if (message.event !== undefined) {
    if (typeof message.event.seq === 'number') one.after = message.event.seq;
    one.handlers.onEvent(message.event as never);
  } else if (message.lagged !== undefined) {
    one.handlers.onLagged?.(message.lagged);
  } else if (message.error !== undefined || message.ended) {
    subscriptions.delete(message.id);
    one.handlers.onEnd?.(message.error ?? null);
  }
}

awaySince.subscribe((since) => {
  // Back again: do not sit out the wait.
  if (since === null && liveState.value === 'waiting') connect();
});
token.subscribe((value) => {
  close();
  liveState.value = 'idle';
  attempts = 0;
  if (value !== null) connect();
});

/** Interval to poll at: none while events come over the socket. */
export function pollUnlessLive(ms: number): number {
  return liveState.value === 'open' ? 0 : ms;
}
