// Requests to Cove's own interface. The token is in sessionStorage of this tab and nowhere else:
// no cookie, so nothing is sent by itself.
import { signal } from '@preact/signals';
import { apiBase } from './base';

const TOKEN_KEY = 'cove.token';
/** Time after which a request for JSON counts as unanswered. */
const ANSWER_MS_MAX = 60_000;

/** An error that the server answered with. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    /** Path of the field that is wrong, if one is. */
    readonly field: string | null = null,
    readonly retryAfterS: number | null = null,
  ) {
    super(message);
    this.name = 'ApiError';
  }
}

/** No answer: the server is not there, or not reached. */
export class ServerAwayError extends Error {
  constructor() {
    super('the server does not answer');
    this.name = 'ServerAwayError';
  }
}

function stored(): string | null {
  try {
    return sessionStorage.getItem(TOKEN_KEY);
  } catch {
    return null;
  }
}

/** The token of this tab; null before sign-in. */
export const token = signal<string | null>(stored());
/** Why the sign-in is shown although there was a token, in words. */
export const signedOutBecause = signal<string | null>(null);
/** Since when the server does not answer (Unix ms); null while it does. */
export const awaySince = signal<number | null>(null);
/** Grows by one each time that the server comes back, so that what is shown is asked for again. */
export const comebacks = signal(0);

export function setToken(value: string | null, because: string | null = null): void {
  try {
    if (value === null) sessionStorage.removeItem(TOKEN_KEY);
    else sessionStorage.setItem(TOKEN_KEY, value);
  } catch {
    // Then the token lasts as long as this page.
  }
  signedOutBecause.value = because;
  token.value = value;
}

/** Query parameters; what is null, undefined, false or empty is left out. */
export type Query = Record<string, string | number | boolean | null | undefined>;

/** Returns a path with its query. */
export function withQuery(path: string, query?: Query): string {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined && value !== '' && value !== false) {
      parts.set(name, String(value));
    }
  }
  const text = parts.toString();
  return text === '' ? path : `${path}${path.includes('?') ? '&' : '?'}${text}`;
}

/** Returns a path from a template whose `{}` are replaced by encoded parts. */
export function path(template: TemplateStringsArray, ...parts: (string | number)[]): string {
  return template.reduce((all, text, at) => all + encodeURIComponent(String(parts[at - 1])) + text);
}

export interface RequestOptions {
  method?: string;
  query?: Query;
  /** Sent as JSON. */
  json?: unknown;
  /** Sent as it is. */
  body?: BodyInit;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** Sends no token. */
  isOpen?: boolean;
}

/**
 * Sends a request and returns the response, whatever its length. Throws `ApiError` for what is not
 * 2xx, `ServerAwayError` where there is no answer, and an `AbortError` where `signal` ended it.
 */
export async function request(path: string, options: RequestOptions = {}): Promise<Response> {
  const headers: Record<string, string> = { ...options.headers };
  const sent = token.value;
  if (sent !== null && !options.isOpen) headers.authorization = `Bearer ${sent}`;
  let body = options.body;
  if (options.json !== undefined) {
    headers['content-type'] = 'application/json';
    body = JSON.stringify(options.json);
  }
  let response: Response;
  try {
    const address = new URL(withQuery(path, options.query).replace(/^\//, ''), apiBase);
    response = await fetch(address, {
      method: options.method ?? (body === undefined ? 'GET' : 'POST'),
      headers,
      body,
      signal: options.signal,
      credentials: 'omit',
      cache: 'no-store',
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    noteAway();
    throw new ServerAwayError();
  }
  noteAnswer();
  if (response.ok) return response;
  const error = await readError(response);
  // Only the token that was sent is given up: meanwhile there may be another.
  if (response.status === 401 && !options.isOpen && sent !== null && token.value === sent) {
    setToken(null, 'Your sign-in has ended. Sign in again to go on where you were.');
  }
  throw error;
}

/** Sends a request and returns its JSON; undefined where there is none. */
export async function api<T = unknown>(path: string, options: RequestOptions = {}): Promise<T> {
  const limit = AbortSignal.timeout(ANSWER_MS_MAX);
  const signals = options.signal ? AbortSignal.any([options.signal, limit]) : limit;
  const response = await request(path, { ...options, signal: signals });
  const text = await response.text();
  return (text === '' ? undefined : JSON.parse(path.startsWith('/catalog/') ? quoteSnapshots(text) : text)) as T;
}

/**
 * Makes texts of the ids of snapshots: they have 63 bits, of which a double would lose ten. A quote
 * within a text of JSON has a backslash before it, so nothing in a text is taken for a member.
 */
function quoteSnapshots(json: string): string {
  return json.replace(/("(?:[a-z]+-)*(?:snapshot|parent)-id"\s*:\s*)(-?\d+)/g, '$1"$2"');
}

async function readError(response: Response): Promise<ApiError> {
  const after = Number(response.headers.get('retry-after'));
  const retryAfter = Number.isFinite(after) && after > 0 ? after : null;
  try {
    const { error } = await response.json() as {
      error: { code?: string; type?: string; message: string; field?: string };
    };
    // Iceberg's errors have a type instead of a code.
    const code = error.code ?? error.type ?? 'error';
    return new ApiError(response.status, String(code), error.message, error.field ?? null, retryAfter);
  } catch {
    const message = `the server answered ${response.status} ${response.statusText}`.trim();
    return new ApiError(response.status, 'error', message, null, retryAfter);
  }
}

/** Returns an error as a sentence for people. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Interval at which a server that is away is looked for. */
const LOOK_MS = 800;
/** Interval at which it is looked for while nothing else would notice its end. */
const BEAT_MS = 1500;
let looking: ReturnType<typeof setTimeout> | undefined;

/** Notes that there was no answer; looks for the server until it is back. */
export function noteAway(): void {
  if (awaySince.value === null) awaySince.value = Date.now();
  clearTimeout(looking);
  looking = setTimeout(look, LOOK_MS);
}

function noteAnswer(): void {
  if (awaySince.value === null) return;
  awaySince.value = null;
  comebacks.value += 1;
}

async function look(): Promise<void> {
  try {
    const address = new URL('health/live', apiBase);
    await fetch(address, { cache: 'no-store', signal: AbortSignal.timeout(BEAT_MS), credentials: 'omit' });
    noteAnswer();
  } catch {
    noteAway();
  }
}

/**
 * Looks for the server now and then while the page is seen and `isNeeded` says that no socket would
 * notice its end.
 */
export function keepBeat(isNeeded: () => boolean): void {
  setInterval(() => {
    if (document.visibilityState === 'visible' && awaySince.value === null && isNeeded()) void look();
  }, BEAT_MS);
}
