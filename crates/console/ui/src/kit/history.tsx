// What the server measured lately (`GET /v1/history`, topic `history`): charts are full at the first
// look, and go on from there.
import { signal, useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { HistoryReport } from '../schema';
import { ApiError, api, withQuery } from './api';
import { Sparkline } from './charts';
import { bytes, count, duration, rate } from './format';
import { Segments } from './forms';
import { follow, useLive } from './live';
import { isPaused, type Resource } from './resource';
import { useQuery } from './router';

/** Ranges that can be chosen: window and step of each, 180 values. */
export const RANGES = {
  '15m': { label: '15 min', step: '5s' },
  '1h': { label: '1 h', step: '20s' },
  '24h': { label: '24 h', step: '8m' },
} as const;
export type Range = keyof typeof RANGES;

/** Time after which a server without the topic is asked again. */
const POLL_MS = 5000;

export interface HistorySlice {
  from: number;
  stepMs: number;
  /** Number of steps. */
  length: number;
  /** Values by series: `name`, or `name` and the value of the label with a blank between. */
  values: Map<string, (number | null)[]>;
}

/** What a server without a history has. */
const NONE: HistorySlice = { from: 0, stepMs: 1, length: 0, values: new Map() };

/** The range that the address names. */
export function useRange(): [Range, (range: string) => void] {
  const [range, setRange] = useQuery('range', '15m');
  return [range in RANGES ? (range as Range) : '15m', setRange];
}

export function RangeChoice({ value, onValue }: { value: Range; onValue: (range: string) => void }) {
  const choices = Object.entries(RANGES).map(([id, { label }]) => ({ value: id, label }));
  return <Segments label="Time shown" value={value} onValue={onValue} choices={choices} />;
}

const isVisible = signal(document.visibilityState !== 'hidden');
document.addEventListener('visibilitychange', () => { isVisible.value = document.visibilityState !== 'hidden'; });

function keyOf({ name, labels }: HistoryReport['series'][number]): string {
  const label = Object.values(labels ?? {})[0];
  return label === undefined ? name : `${name} ${label}`;
}

function sliceOf(report: HistoryReport): HistorySlice {
  return {
    from: report.times_ms[0] ?? Date.now(),
    stepMs: report.step_ms,
    length: report.times_ms.length,
    values: new Map(report.series.map((it) => [keyOf(it), it.values])),
  };
}

/** Puts the latest steps in their places, and lets as many go at the other end. */
export function joined(slice: HistorySlice, latest: HistoryReport): HistorySlice | null {
  const { length } = slice;
  const last = latest.times_ms[latest.times_ms.length - 1];
  if (length === 0 || last === undefined || latest.step_ms !== slice.stepMs) return null;
  const moved = (last - (slice.from + (length - 1) * slice.stepMs)) / slice.stepMs;
  // The server's clock was set, or more was missed than came.
  if (moved < 0 || !Number.isInteger(moved) || moved >= latest.times_ms.length) return null;
  const from = slice.from + moved * slice.stepMs;
  const values = new Map<string, (number | null)[]>();
  for (const series of latest.series) {
    const before = slice.values.get(keyOf(series)) ?? Array.from({ length }, () => null);
    const next = [...before.slice(moved), ...Array.from({ length: moved }, () => null)];
    series.values.forEach((value, at) => {
      const place = Math.round((latest.times_ms[at]! - from) / slice.stepMs);
      if (place >= 0 && place < length) next[place] = value;
    });
    values.set(keyOf(series), next);
  }
  return { from, stepMs: slice.stepMs, length, values };
}

/**
 * Returns series over a range: what the server has, then what it adds. Asks nothing in a hidden tab
 * and while lists stand still. Null until the first answer; without steps where there is no history.
 */
export function useHistory(series: readonly string[] | null, range: Range, tenant?: string): HistorySlice | null {
  const shown = useSignal<HistorySlice | null>(null);
  const names = series !== null && series.length > 0 ? series.join(',') : null;
  const isAsked = names !== null && isVisible.value && !isPaused.value;
  useEffect(() => { shown.value = null; }, [names, range, tenant]);
  useEffect(() => {
    if (!isAsked) return undefined;
    const { step } = RANGES[range];
    const query = { series: names, tenant, step };
    let stop = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let unfollow: (() => void) | undefined;
    const ask = async (): Promise<boolean> => {
      try {
        const report = await api<HistoryReport>(withQuery('/v1/history', { ...query, window: range }));
        if (!stop) shown.value = sliceOf(report);
        return true;
      } catch (error) {
        if (!(error instanceof ApiError)) return true;
        // Without a history, or without the right to it, there is no chart.
        if (!stop) shown.value = NONE;
        return false;
      }
    };
    const poll = () => {
      if (stop) return;
      timer = setTimeout(async () => { if (await ask()) poll(); }, POLL_MS);
    };
    ask().then((isThere) => {
      if (stop || !isThere) return;
      unfollow = follow<HistoryReport>('history', query, {
        onEvent: (latest) => {
          const next = shown.value && joined(shown.value, latest);
          if (next) shown.value = next;
          else void ask();
        },
        onEnd: poll,
      });
    });
    return () => {
      stop = true;
      clearTimeout(timer);
      unfollow?.();
    };
  }, [isAsked, names, range, tenant]);
  return shown.value;
}

/**
 * Follows a topic whose events are whole documents, as `from` asks for them. In a hidden tab, and
 * while lists stand still, nothing is followed.
 */
export function useLiveDocument<T>(topic: string | null, parameters: Record<string, unknown>, from: Resource<T>): void {
  const isFollowed = isVisible.value && !isPaused.value;
  useLive<T & object>(isFollowed ? topic : null, parameters, {
    onEvent: (document) => { if (from.data.value === undefined) from.refresh(); else from.mutate(() => document); },
  });
}

/** Values of a series; gaps where the server has none. */
export function valuesOf(slice: HistorySlice | null, name: string, label?: string): (number | null)[] {
  return slice?.values.get(label === undefined ? name : `${name} ${label}`) ?? [];
}

/** Sums of several series, step by step. */
export function summed(all: (number | null)[][]): (number | null)[] {
  const length = Math.max(0, ...all.map((it) => it.length));
  return Array.from({ length }, (_, at) => {
    const known = all.map((it) => it[at] ?? null).filter((it): it is number => it !== null);
    return known.length > 0 ? known.reduce((sum, it) => sum + it, 0) : null;
  });
}

/** How values of a unit are written. */
export const IN_UNIT = {
  count: (value: number) => count(Math.round(value)),
  rate: (value: number) => rate(value),
  seconds: (value: number) => duration(value * 1000),
  bytes: (value: number) => bytes(value),
  bytes_rate: (value: number) => `${bytes(value)}/s`,
} as const;

/** What a chart shows, in words: for who does not see it. */
export function spoken(label: string, values: readonly (number | null)[], format: (value: number) => string, range: Range): string {
  const known = values.filter((it): it is number => it !== null);
  const time = RANGES[range].label;
  if (known.length === 0) return `${label}: nothing measured in the last ${time}`;
  return `${label} in the last ${time}: now ${format(known[known.length - 1]!)}, lowest ${format(Math.min(...known))}, highest ${format(Math.max(...known))}`;
}

/** A sparkline with its words. */
export function HistoryLine({ label, values, format, range, tone }: {
  label: string; values: readonly (number | null)[]; format: (value: number) => string; range: Range; tone?: string;
}) {
  if (values.length === 0) return null;
  return <Sparkline values={values} label={spoken(label, values, format, range)} tone={tone} />;
}
