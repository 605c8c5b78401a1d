// What the server says, for components: one request for all who ask the same, old data while new
// is on its way, the next poll only after the last one ended, and none in a hidden tab.
import { signal, type Signal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { ServerAwayError, api, awaySince, comebacks, token } from './api';

/** Resources that nobody shows any more and that are kept, so that going back shows them at once. */
const KEPT_MAX = 60;

/** Whether lists stand still until the user goes on. */
export const isPaused = signal(false);

export interface Resource<T> {
  /** The latest answer; undefined before the first. */
  data: Signal<T | undefined>;
  /** Why the latest request failed; undefined when it did not. */
  error: Signal<Error | undefined>;
  isLoading: Signal<boolean>;
  /** When `data` came (Unix ms). */
  at: Signal<number>;
  /** Asks again now. */
  refresh(): void;
  /** Changes what is shown until the next answer. */
  mutate(change: (data: T) => T): void;
}

class Entry<T> implements Resource<T> {
  data = signal<T | undefined>(undefined);
  error = signal<Error | undefined>(undefined);
  isLoading = signal(false);
  at = signal(0);
  private users = new Map<symbol, number>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private running: AbortController | undefined;
  private isDue = false;

  constructor(private readonly path: string) {}

  /** Adds a user who wants a new answer `pollMs` after each one; 0 for never. */
  add(user: symbol, pollMs: number): void {
    this.users.set(user, pollMs);
    if (this.running === undefined) this.ask();
    else this.schedule();
  }

  setPoll(user: symbol, pollMs: number): void {
    if (!this.users.has(user)) return;
    this.users.set(user, pollMs);
    this.schedule();
  }

  remove(user: symbol): void {
    this.users.delete(user);
    if (this.users.size > 0) return;
    clearTimeout(this.timer);
    this.running?.abort();
    this.running = undefined;
    this.isLoading.value = false;
  }

  get isUsed(): boolean {
    return this.users.size > 0;
  }

  refresh(): void {
    if (this.running !== undefined) {
      // What is on its way may be older than what the user just did.
      this.isDue = true;
      return;
    }
    this.ask();
  }

  mutate(change: (data: T) => T): void {
    if (this.data.value !== undefined) this.data.value = change(this.data.value);
  }

  private ask(): void {
    clearTimeout(this.timer);
    const running = new AbortController();
    this.running = running;
    this.isDue = false;
    this.isLoading.value = true;
    api<T>(this.path, { signal: running.signal }).then(
      (data) => {
        if (this.running !== running) return;
        this.data.value = data;
        this.error.value = undefined;
        this.at.value = Date.now();
      },
      (error: Error) => {
        if (this.running === running) this.error.value = error;
      },
    ).finally(() => {
      if (this.running !== running) return;
      this.running = undefined;
      this.isLoading.value = false;
      if (this.isDue) this.ask();
      else this.schedule();
    });
  }

  private schedule(): void {
    clearTimeout(this.timer);
    const polls = [...this.users.values()].filter((ms) => ms > 0);
    if (polls.length === 0 || this.running !== undefined) return;
    this.timer = setTimeout(() => {
      const isIdle = document.visibilityState === 'hidden' || isPaused.value || awaySince.value !== null;
      if (!isIdle) this.ask();
    }, Math.min(...polls));
  }

  /** Asks again if it is somebody's and would poll. */
  wake(isForced: boolean): void {
    const isPolled = [...this.users.values()].some((ms) => ms > 0);
    if (this.isUsed && (isForced || isPolled)) this.refresh();
  }
}

const entries = new Map<string, Entry<unknown>>();

function entryOf<T>(path: string): Entry<T> {
  let entry = entries.get(path);
  if (entry === undefined) {
    entry = new Entry(path);
  } else {
    entries.delete(path); // to the end: used last
  }
  entries.set(path, entry);
  if (entries.size > KEPT_MAX) {
    for (const [key, one] of entries) {
      if (entries.size <= KEPT_MAX) break;
      if (!one.isUsed && one !== entry) entries.delete(key);
    }
  }
  return entry as Entry<T>;
}

document.addEventListener('visibilitychange', () => {
  if (document.visibilityState === 'visible') for (const one of entries.values()) one.wake(false);
});
isPaused.subscribe((paused) => {
  if (!paused) for (const one of entries.values()) one.wake(false);
});
comebacks.subscribe((count) => {
  if (count > 0) for (const one of entries.values()) one.wake(true);
});
token.subscribe((value) => {
  // Another caller sees something else.
  if (value === null) entries.clear();
});

const NOTHING: Resource<never> = {
  data: signal(undefined),
  error: signal(undefined),
  isLoading: signal(false),
  at: signal(0),
  refresh() {},
  mutate() {},
};

/**
 * Returns what `GET path` answers, for as long as the component is there; nothing for null.
 * `pollMs` is the time between an answer and the next request; 0 for one request.
 */
export function useResource<T>(path: string | null, pollMs = 0): Resource<T> {
  const user = useMemo(() => Symbol(), []);
  const entry = useMemo(() => (path === null ? null : entryOf<T>(path)), [path]);
  useEffect(() => {
    if (entry === null) return undefined;
    entry.add(user, pollMs);
    return () => entry.remove(user);
  }, [entry]);
  useEffect(() => entry?.setPoll(user, pollMs), [entry, pollMs]);
  return entry ?? (NOTHING as Resource<T>);
}

/** Asks again for everything shown whose path begins with `prefix`. */
export function refreshAll(prefix: string): void {
  for (const [path, one] of entries) if (path.startsWith(prefix)) one.wake(true);
}

/** Whether an error only says that the server is away, which the banner says already. */
export function isAway(error: unknown): boolean {
  return error instanceof ServerAwayError;
}
