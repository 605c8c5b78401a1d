// Sparklines (own SVG) and charts over time (uPlot, loaded when the first is shown).
import { useEffect, useRef, useState } from 'preact/hooks';
import type uPlot from 'uplot';
import { Skeleton } from './basics';
import { load } from './load';
import { clock, compact } from './format';

/** A line of values without axes; gaps where a value is null. */
export function Sparkline({ values, label, height = 28, max, tone = 'info' }: {
  values: readonly (number | null)[]; label: string; height?: number; max?: number; tone?: string;
}) {
  const WIDTH = 120;
  const top = Math.max(max ?? 0, ...values.map((it) => it ?? 0), 1e-9);
  const step = values.length > 1 ? WIDTH / (values.length - 1) : 0;
  let path = '';
  let isDown = false;
  values.forEach((value, at) => {
    if (value === null) { isDown = false; return; }
    const y = height - 1.5 - (value / top) * (height - 3);
    path += `${isDown ? 'L' : 'M'}${(at * step).toFixed(1)} ${y.toFixed(1)}`;
    isDown = true;
  });
  return (
    <svg class={`sparkline line-${tone}`} viewBox={`0 0 ${WIDTH} ${height}`} preserveAspectRatio="none" role="img" aria-label={label}
      style={{ height: `${height}px` }}>
      <path d={path} fill="none" stroke="currentColor" stroke-width="1.5" vector-effect="non-scaling-stroke" stroke-linejoin="round" />
    </svg>
  );
}

export interface Series {
  label: string;
  values: readonly (number | null)[];
  /** A custom property of the style sheet: `--chart-1` to `--chart-6`. */
  colour?: string;
}

/** A chart over time. */
export function Plot({ label, from, stepMs, series, height = 180, format = compact, max }: {
  label: string;
  /** Time of the first value, Unix milliseconds. */
  from: number;
  stepMs: number;
  series: Series[];
  height?: number;
  format?: (value: number) => string;
  /** Top of the scale where it should not follow the values. */
  max?: number;
}) {
  const element = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [Constructor, setConstructor] = useState<typeof uPlot | null>(null);
  const [scheme, setScheme] = useState(0);
  useEffect(() => { load(() => import('../lazy/plot')).then((module) => setConstructor(() => module.default)); }, []);
  useEffect(() => {
    const changed = () => setScheme((before) => before + 1);
    document.addEventListener('cove-theme', changed);
    return () => document.removeEventListener('cove-theme', changed);
  }, []);
  const data = () => {
    const length = Math.max(0, ...series.map((it) => it.values.length));
    const times = Array.from({ length }, (_, at) => (from + at * stepMs) / 1000);
    return [times, ...series.map((it) => [...it.values])] as uPlot.AlignedData;
  };
  const shape = series.map((it) => it.label).join('|');
  useEffect(() => {
    const box = element.current;
    if (!Constructor || !box) return undefined;
    const colour = (name: string) => resolved(box, `var(${name})`);
    const axis = { stroke: colour('--text-2'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false }, font: '11px system-ui' };
    const made = new Constructor({
      width: Math.max(120, box.clientWidth),
      height,
      legend: { show: series.length > 1, live: true },
      cursor: { points: { size: 6 }, drag: { x: false, y: false } },
      // Where all is zero the scale ends at one: next to nothing would be magnified otherwise.
      scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(max ?? 0, (high ?? 0) * 1.08) || 1] } },
      axes: [{ ...axis, space: 76, values: (_, all) => all.map((it) => clock(it * 1000)) }, { ...axis, size: 58, values: (_, all) => labels(all, format) }],
      series: [{}, ...series.map((it, at) => ({
        label: it.label,
        stroke: colour(it.colour ?? `--chart-${(at % 6) + 1}`),
        width: 1.5,
        points: { show: false },
        value: (_: uPlot, value: number | null) => (value === null ? '–' : format(value)),
      }))],
    }, data(), box);
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: Math.max(120, box.clientWidth), height }));
    observer.observe(box);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [Constructor, shape, height, scheme, max]);
  useEffect(() => { plot.current?.setData(data()); });
  return (
    <figure class="plot" aria-label={label}>
      <div ref={element} style={{ minHeight: `${height}px` }}>{Constructor === null && <Skeleton rows={3} />}</div>
    </figure>
  );
}

/** Texts of an axis, each once: a coarse format rounds neighbours to the same. */
function labels(values: number[], format: (value: number) => string): (string | null)[] {
  const texts = values.map((it) => format(it));
  return texts.map((text, at) => (text === texts[at - 1] ? null : text));
}

/** The colour that a value of CSS has at an element, as canvas takes it. */
function resolved(element: HTMLElement, value: string): string {
  const probe = document.createElement('span');
  probe.style.color = value;
  element.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}
