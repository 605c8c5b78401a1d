// Who reaches what: holders at the left, grants in the middle, targets at the right.
import { compact, shorten } from '../../kit';
import { targetOf, type AuditRecord } from './records';

/** Nodes of a column; the rest is one node. */
const COLUMN_MAX = 14;
const WIDTH = 960;
const ROW_PX = 30;
const REST = 'others';

interface Edge { from: string; to: string; times: number; refused: number }

function tally(pairs: Iterable<[string, string, boolean]>): Edge[] {
  const found = new Map<string, Edge>();
  for (const [from, to, isRefused] of pairs) {
    const key = `${from}\n${to}`;
    const one = found.get(key) ?? { from, to, times: 0, refused: 0 };
    one.times += 1;
    if (isRefused) one.refused += 1;
    found.set(key, one);
  }
  return [...found.values()];
}

function column(names: Iterable<string>): string[] {
  const times = new Map<string, number>();
  for (const name of names) times.set(name, (times.get(name) ?? 0) + 1);
  const all = [...times].sort((one, other) => other[1] - one[1]).map(([name]) => name);
  return all.length <= COLUMN_MAX ? all : [...all.slice(0, COLUMN_MAX - 1), REST];
}

export function Picture({ records }: { records: readonly AuditRecord[] }) {
  const used = records.filter((it) => it.event === 'connect' || it.event === 'statement' || it.event === 'request');
  const columns = [
    column(used.map((it) => it.holder)), column(used.map((it) => it.grant)), column(used.map(targetOf)),
  ] as const;
  const named = (at: 0 | 1 | 2, name: string) => (columns[at].includes(name) ? name : REST);
  const edges = [
    tally(used.map((it) => [named(0, it.holder), named(1, it.grant), it.outcome === 'refused'])),
    tally(used.map((it) => [named(1, it.grant), named(2, targetOf(it)), it.outcome === 'refused'])),
  ] as const;
  const height = Math.max(...columns.map((it) => it.length), 1) * ROW_PX + 34;
  const y = (at: 0 | 1 | 2, name: string) => {
    const list = columns[at];
    const space = (height - 34) / Math.max(1, list.length);
    return 34 + space * (list.indexOf(name) + 0.5);
  };
  const x = [0, 350, 660] as const;
  const boxes = [250, 200, 300] as const;
  const most = Math.max(1, ...edges.flat().map((it) => it.times));
  const label = `${columns[0].length} sessions and executions reach ${columns[2].length} targets through ${columns[1].length} grants`;
  return (
    <div class="scroll-x">
      <svg class="picture" viewBox={`0 0 ${WIDTH} ${height}`} style={{ minWidth: '720px', width: '100%' }} role="img" aria-label={label}>
        {(['Sessions and executions', 'Grants', 'Reached'] as const).map((title, at) => (
          <text key={title} class="picture-title" x={x[at]! + 2} y="16">{title}</text>
        ))}
        {edges.map((list, at) => list.map((edge) => {
          const left = at as 0 | 1;
          const from = { x: x[left] + boxes[left], y: y(left, edge.from) };
          const to = { x: x[(left + 1) as 1 | 2], y: y((left + 1) as 1 | 2, edge.to) };
          const middle = (from.x + to.x) / 2;
          return (
            <path key={`${edge.from}>${edge.to}`} class={`picture-edge ${edge.refused > 0 ? 'refused' : ''}`}
              d={`M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`}
              stroke-width={1 + 5 * Math.sqrt(edge.times / most)}>
              <title>{`${edge.from} → ${edge.to}: ${compact(edge.times)}${edge.refused > 0 ? `, ${compact(edge.refused)} refused` : ''}`}</title>
            </path>
          );
        }))}
        {columns.map((names, at) => names.map((name) => (
          <g key={name} transform={`translate(${x[at as 0 | 1 | 2]} ${y(at as 0 | 1 | 2, name) - 12})`}>
            <rect class="picture-node" width={boxes[at as 0 | 1 | 2]} height="24" rx="5" />
            <text class="picture-text" x="9" y="16">{shorten(name, at === 1 ? 26 : at === 0 ? 33 : 40)}<title>{name}</title></text>
          </g>
        )))}
      </svg>
    </div>
  );
}
