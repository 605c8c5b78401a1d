// Snapshots of a table as a timeline: what each commit left, and the branches and tags that lead to it.
import { useEffect, useRef, useState } from 'preact/hooks';
import {
  Badge, Empty, Facts, Foreign, Icon, Id, Panel, Table, Time, bytes, compact, count, precise, useQuery, type Column,
} from '../../kit';
import { currentOf, figure, type TableMetadata, type TableSnapshot } from './model';

/** Commits that the picture has; the table below has all. */
const DRAWN_MAX = 200;
const HEIGHT = 120;
const LANE = 20;
/** Lines for the names of branches and tags. */
const LABEL_LINES = 3;

interface DrawnCommit { snapshot: TableSnapshot; lane: number; refs: { name: string; type: string }[] }

/** Snapshots in order of time, each in the lane of the first branch that leads to it; `main` is the first. */
function drawn(metadata: TableMetadata): { commits: DrawnCommit[]; lanes: string[] } {
  const all = [...(metadata.snapshots ?? [])].sort((one, other) => one['timestamp-ms'] - other['timestamp-ms']);
  const byId = new Map(all.map((it) => [it['snapshot-id'], it]));
  const refs = Object.entries(metadata.refs ?? {});
  const branches = refs.filter(([, it]) => it.type === 'branch').sort(([one], [other]) => Number(other === 'main') - Number(one === 'main'));
  const laneOf = new Map<string, number>();
  const lanes: string[] = [];
  for (const [name, ref] of branches) {
    let isUsed = false;
    let id: string | undefined = ref['snapshot-id'];
    while (id !== undefined && byId.has(id) && !laneOf.has(id)) {
      laneOf.set(id, lanes.length);
      isUsed = true;
      id = byId.get(id)!['parent-snapshot-id'];
    }
    if (isUsed) lanes.push(name);
  }
  const isLoose = all.some((it) => !laneOf.has(it['snapshot-id']));
  if (isLoose) lanes.push('on no branch');
  const commits = all.slice(-DRAWN_MAX).map((snapshot) => ({
    snapshot, lane: laneOf.get(snapshot['snapshot-id']) ?? lanes.length - 1,
    refs: refs.filter(([, it]) => it['snapshot-id'] === snapshot['snapshot-id']).map(([name, it]) => ({ name, type: it.type })),
  }));
  return { commits, lanes };
}

function useWidth() {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(600);
  useEffect(() => {
    if (!box.current) return undefined;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  return { box, width };
}

function Timeline({ metadata, selected, onSelect }: { metadata: TableMetadata; selected: string; onSelect: (id: string) => void }) {
  const { box, width } = useWidth();
  const { commits, lanes } = drawn(metadata);
  const step = Math.min(200, Math.max(10, (width - 16) / commits.length));
  const whole = Math.max(width, step * commits.length + 16);
  const x = (at: number) => 8 + step * (at + 0.5);
  const sizes = commits.map(({ snapshot }) => figure(snapshot, 'total-files-size') ?? 0);
  const rows = commits.map(({ snapshot }) => figure(snapshot, 'total-records'));
  const sizeMost = Math.max(1, ...sizes);
  const rowsMost = Math.max(1, ...rows.map((it) => it ?? 0));
  const y = (share: number) => HEIGHT - 4 - share * (HEIGHT - 16);
  const laneY = (lane: number) => HEIGHT + 14 + lane * LANE;
  const at = new Map(commits.map((it, place) => [it.snapshot['snapshot-id'], place]));
  const points = rows.flatMap((it, place) => (it === null ? [] : [`${x(place)},${y(it / rowsMost)}`])).join(' ');
  const named = commits.flatMap(({ refs }, place) => (refs.length === 0 ? [] : [{ place, text: refs.map((it) => it.name).join(', ') }]));
  // Names that would touch the one before are a line lower.
  let end = -Infinity;
  let line = 0;
  const labels = named.map(({ place, text }) => {
    const short = text.length > 24 ? `${text.slice(0, 23)}…` : text;
    const half = short.length * 3.6 + 6;
    const middle = Math.min(Math.max(x(place), half), whole - half);
    line = middle - half < end ? (line + 1) % LABEL_LINES : 0;
    end = Math.max(end, middle + half);
    return { place, text, short, middle, line };
  });
  const lower = Math.max(0, ...labels.map((it) => it.line + 1));
  const below = HEIGHT + 10 + lanes.length * LANE;
  const height = below + lower * 15;
  return (
    <div class="commits" ref={box}>
      <div class="commits-scroll" tabIndex={0} role="region" aria-label="Timeline of commits">
        <svg width={whole} height={height} role="img"
          aria-label={`Rows and size after each of ${commits.length} commits, now ${count(rows[rows.length - 1])} rows and ${bytes(sizes[sizes.length - 1])}; the table below has the numbers`}>
          {commits.map(({ snapshot }, place) => (
            <g key={snapshot['snapshot-id']} class={`commit ${snapshot['snapshot-id'] === selected ? 'selected' : ''}`} onClick={() => onSelect(snapshot['snapshot-id'])}>
              <title>{`${precise(snapshot['timestamp-ms'])}\n${snapshot.summary?.operation ?? ''}\n${count(rows[place])} rows, ${bytes(sizes[place])}`}</title>
              <rect class="commit-field" x={x(place) - step / 2} y={0} width={step} height={height} />
              <rect class="commit-size" x={x(place) - step * 0.32} width={step * 0.64} y={y(sizes[place]! / sizeMost)} height={HEIGHT - 4 - y(sizes[place]! / sizeMost)} rx={2} />
            </g>
          ))}
          <polyline class="commit-rows" points={points} />
          {rows.map((it, place) => it !== null && <circle key={place} class="commit-point" cx={x(place)} cy={y(it / rowsMost)} r={2.5} />)}
          {commits.map(({ snapshot, lane }, place) => {
            const from = at.get(snapshot['parent-snapshot-id'] ?? '');
            return from === undefined ? null : (
              <path key={place} class={`commit-edge lane-${lane % 6}`} d={`M${x(from)} ${laneY(commits[from]!.lane)} L${x(place)} ${laneY(lane)}`} />
            );
          })}
          {commits.map(({ lane, refs }, place) => (
            <circle key={place} class={`commit-dot lane-${lane % 6}`} cx={x(place)} cy={laneY(lane)} r={refs.length > 0 ? 5.5 : 3.5}>
              {refs.length > 0 && <title>{refs.map((it) => `${it.type} ${it.name}`).join(', ')}</title>}
            </circle>
          ))}
          {labels.map((it) => (
            <text key={it.place} class="commit-label" x={it.middle} y={below + 9 + it.line * 15}>
              <title>{it.text.slice(0, 1000)}</title>{it.short}
            </text>
          ))}
        </svg>
      </div>
      <div class="commits-key">
        <span><i class="key-size" /> size, at most {bytes(sizeMost)}</span>
        <span><i class="key-rows" /> rows, at most {compact(rowsMost)}</span>
        {lanes.map((name, lane) => <span key={name}><i class={`key-lane lane-${lane % 6}`} /> <Foreign text={name} most={30} /></span>)}
      </div>
    </div>
  );
}

const signed = (value: number | null) => (value === null ? '' : `${value > 0 ? '+' : ''}${count(value)}`);

/** Rows that a commit added, less those that it removed. */
function change(snapshot: TableSnapshot): number | null {
  const added = figure(snapshot, 'added-records');
  const removed = figure(snapshot, 'deleted-records');
  return added === null && removed === null ? null : (added ?? 0) - (removed ?? 0);
}

export function Snapshots({ metadata }: { metadata: TableMetadata }) {
  const current = currentOf(metadata);
  const [chosen, setChosen] = useQuery('snapshot');
  const all = [...(metadata.snapshots ?? [])].sort((one, other) => other['timestamp-ms'] - one['timestamp-ms']);
  const refs = Object.entries(metadata.refs ?? {});
  const selected = all.find((it) => it['snapshot-id'] === chosen) ?? current ?? all[0];
  if (all.length === 0 || selected === undefined) {
    return <Empty icon="layers" title="No snapshot yet"><p>Each commit that adds or removes rows leaves one. Write to the table as the tab “Connect” says.</p></Empty>;
  }
  const refsOf = (it: TableSnapshot) => refs.filter(([, ref]) => ref['snapshot-id'] === it['snapshot-id']);
  const columns: Column<TableSnapshot>[] = [
    { id: 'at', title: 'Committed', width: '110px', render: (it) => <Time ms={it['timestamp-ms']} /> },
    { id: 'operation', title: 'Operation', width: '100px', render: (it) => it.summary?.operation ?? '–' },
    { id: 'change', title: 'Rows', width: '90px', align: 'end', render: (it) => signed(change(it)) },
    { id: 'rows', title: 'Rows then', width: '104px', align: 'end', from: 420, render: (it) => count(figure(it, 'total-records')) },
    { id: 'files', title: 'Files', width: '76px', align: 'end', from: 560, render: (it) => count(figure(it, 'total-data-files')) },
    { id: 'size', title: 'Size', width: '96px', align: 'end', from: 500, render: (it) => bytes(figure(it, 'total-files-size')) },
    {
      id: 'refs', title: 'Branches and tags', width: 'minmax(120px, 1fr)', from: 680,
      render: (it) => refsOf(it).map(([name, ref]) => (
        <span key={name} class="ref"><Icon name={ref.type === 'branch' ? 'git-branch' : 'tag'} size={12} label={ref.type} /> <Foreign text={name} most={40} /></span>
      )),
    },
    { id: 'id', title: 'Snapshot', width: '180px', from: 880, isMono: true, render: (it) => it['snapshot-id'] },
  ];
  return (
    <>
      <Panel title="Commits">
        <Timeline metadata={metadata} selected={selected['snapshot-id']} onSelect={setChosen} />
        {all.length > DRAWN_MAX && <p class="muted">The last {DRAWN_MAX} of {count(all.length)} commits are drawn.</p>}
      </Panel>
      <Panel title="Snapshots" isFlush>
        <Table label="Snapshots" columns={columns} rows={all} keyOf={(it) => it['snapshot-id']} onOpen={(it) => setChosen(it['snapshot-id'])}
          classOf={(it) => (it === selected ? 'selected' : '')} />
      </Panel>
      <div class="grid">
        <Panel title="Selected snapshot" actions={selected === current ? <Badge tone="ok">current</Badge> : undefined}>
          <Facts items={[
            ['Id', <Id id={selected['snapshot-id']} />],
            ['Parent', selected['parent-snapshot-id'] === undefined ? 'none' : <code>{selected['parent-snapshot-id']}</code>],
            ['Committed', precise(selected['timestamp-ms'])],
            ['Schema', selected['schema-id'] === undefined ? '–' : `version ${selected['schema-id']}`],
            ['Leads here', refsOf(selected).map(([name, ref]) => `${ref.type} ${name}`).join(', ') || 'no branch or tag'],
          ]} />
        </Panel>
        <Panel title="Summary of the writer">
          <Facts items={Object.entries(selected.summary ?? {}).map(([name, value]) => [name, <Foreign text={value} />])} />
        </Panel>
      </div>
    </>
  );
}
