// Health of a table: sizes of its files, deletes, partitions, manifests, snapshots, and what to do about them.
import {
  AsCommand, Badge, Button, Command, Empty, Facts, Foreign, Loaded, Note, Panel, SelectField, Stat, Table, bytes, compact, count, duration, percent, plural,
  shellWord, useQuery, useResource, withQuery, type Column, type Tone,
} from '../../kit';
import type { CatalogFileTotals, CatalogPartitionFigures, CatalogTableHealth } from '../../schema';
import { dottedWord, joined, managementPath, type TableMetadata } from './model';

type Recommendation = CatalogTableHealth['recommendations'][number];

const ACTIONS: Record<Recommendation['action'], string> = {
  compact: 'Rewrite data files', 'rewrite-manifests': 'Merge manifests', 'expire-snapshots': 'Expire snapshots', 'remove-orphans': 'Remove old metadata files',
};

/** Partitions are skewed from here on: the largest is so many times the average one. */
const SKEW_WARN = 10;

export function Health({ warehouse, namespace, name, metadata, onMaintain }: {
  warehouse: string; namespace: string[]; name: string; metadata: TableMetadata; onMaintain: () => void;
}) {
  const [at, setAt] = useQuery('ref', '');
  const path = withQuery(managementPath(warehouse, 'tables', joined(namespace), name, 'stats'), { ref: at === '' ? undefined : at });
  const from = useResource<CatalogTableHealth>(path);
  const refs = Object.keys(metadata.refs ?? {});
  const word = shellWord(dottedWord(namespace, name));
  return (
    <>
      <div class="toolbar">
        {refs.length > 1 && (
          <SelectField label="Branch or tag" value={at} onValue={setAt} choices={[{ value: '', label: 'the current snapshot' }, ...refs]} />
        )}
        <span class="spacer" />
        <AsCommand commands={() => [{ title: 'Health of the table', path, cove: `cove catalog table stats ${word}${at ? ` --ref ${shellWord(at)}` : ''} --warehouse ${shellWord(warehouse)}` }]} />
      </div>
      <Loaded from={from} rows={6}>
        {(it) => (it['snapshot-id'] === null
          ? <Empty icon="file" title="No file yet"><p>The table has no snapshot.</p></Empty>
          : <Figures health={it} onMaintain={onMaintain} />)}
      </Loaded>
    </>
  );
}

function Figures({ health, onMaintain }: { health: CatalogTableHealth; onMaintain: () => void }) {
  const { data, small, deletes, partitions, manifests, snapshots } = health;
  const part = small.files / Math.max(1, data.files);
  const deleteFiles = deletes.position.files + deletes.equality.files + deletes.vectors.files;
  return (
    <>
      {!health.complete && <Note tone="warn">The snapshot has {count(manifests.count)} manifests; these are the figures of the first {count(manifests.data + manifests.deletes)}.</Note>}
      <Todo all={health.recommendations} onMaintain={onMaintain} />
      <div class="stats">
        <Stat label="Data files" value={compact(data.files)} detail={`${bytes(data.bytes)}, ${compact(health['rows-per-file'])} rows each`} />
        <Stat label="Small files" value={percent(part)} detail={`${count(small.files)} below ${bytes(health['small-below-bytes'])}`} />
        <Stat label="Deleted rows" value={compact(deletes['deleted-rows'])} detail={`${deletes['deleted-percent'].toFixed(1)} % in ${plural(deleteFiles, 'delete file')}`} tone={deletes['deleted-percent'] >= 30 ? 'warn' : undefined} />
        <Stat label="Partitions" value={count(partitions.count)} detail={`largest ${partitions.skew.toFixed(1)} × average`} tone={partitions.skew >= SKEW_WARN ? 'warn' : undefined} />
        <Stat label="Manifests" value={count(manifests.count)} detail={`${plural(manifests['files-per-manifest'], 'file')} each`} />
        <Stat label="Oldest snapshot" value={snapshots['oldest-age-ms'] === null ? '–' : duration(snapshots['oldest-age-ms'])} detail={`of ${count(snapshots.count)}, ${snapshots.expired === null ? 'properties are wrong' : `${count(snapshots.expired)} expired`}`} />
      </div>
      <div class="grid">
        <Panel title="Sizes of data files"><Histogram health={health} /></Panel>
        <Panel title="Deletes and manifests">
          <Facts items={[
            ['Position deletes', totals(deletes.position)],
            ['Equality deletes', totals(deletes.equality)],
            ['Deletion vectors', totals(deletes.vectors)],
            ['Average data file', bytes(health['bytes-per-file'])],
            ['Writers aim at', bytes(health['target-bytes'])],
            ['Manifests', `${count(manifests.data)} of data, ${count(manifests.deletes)} of deletes, ${bytes(manifests.bytes)}`],
            ['Removed entries in them', count(manifests['removed-entries'])],
          ]} />
        </Panel>
      </div>
      {partitions['files-beyond'] > 0 && <Note tone="info">{count(partitions['files-beyond'])} files are in partitions beyond those that are told apart.</Note>}
      <Partitions title="Largest partitions" all={partitions.largest} />
      <Partitions title="Most skewed partitions" all={partitions.skewed} />
    </>
  );
}

const totals = (it: CatalogFileTotals) => (it.files === 0 ? 'none' : `${plural(it.files, 'file')}, ${count(it.rows)} entries, ${bytes(it.bytes)}`);

function Todo({ all, onMaintain }: { all: Recommendation[]; onMaintain: () => void }) {
  if (all.length === 0) return <Note tone="ok">Nothing needs to be done.</Note>;
  return (
    <Panel title="What to do">
      <ul class="todo">
        {all.map((it) => (
          <li key={it.action}>
            <div class="row">
              <Badge tone={toneOf(it)}>{ACTIONS[it.action]}</Badge>
              <span class="wrap">{it.reason}.</span>
              <span class="spacer" />
              {it.operation !== null && <Button icon="wand-sparkles" onClick={onMaintain}>Go to a dry run</Button>}
            </div>
            {it.operation === null && <p class="muted">Cove writes no data: an engine does it, such as Spark.</p>}
            {it.elsewhere !== null && <Command text={it.elsewhere} />}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

const toneOf = (it: Recommendation): Tone => (it.action === 'compact' || it.action === 'rewrite-manifests' ? 'warn' : 'info');

/** A bar for each size; parts beyond the last one with files are left out. */
function Histogram({ health }: { health: CatalogTableHealth }) {
  const last = health.histogram.findLastIndex((it) => it.files > 0);
  const parts = health.histogram.slice(0, last + 1);
  const most = Math.max(1, ...parts.map((it) => it.files));
  return (
    <dl class="bins">
      {parts.map((it) => {
        const label = it['to-bytes'] === null ? `from ${bytes(it['from-bytes'])}` : `below ${bytes(it['to-bytes'])}`;
        const isSmall = it['to-bytes'] !== null && it['to-bytes'] <= health['small-below-bytes'];
        return (
          <div key={label}>
            <dt>{label}</dt>
            <dd>
              <svg class="bin" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={`${plural(it.files, 'file')} ${label}, ${bytes(it.bytes)}`}>
                <rect class={isSmall ? 'small' : ''} width={(100 * it.files) / most} height="10" />
              </svg>
              <span title={bytes(it.bytes)}>{count(it.files)}</span>
            </dd>
          </div>
        );
      })}
    </dl>
  );
}

function Partitions({ title, all }: { title: string; all: CatalogPartitionFigures[] }) {
  if (all.length === 0 || (all.length === 1 && all[0]!.partition === '')) return null;
  const columns: Column<CatalogPartitionFigures>[] = [
    { id: 'partition', title: 'Partition', width: 'minmax(140px, 2fr)', isMono: true, render: (it) => <Foreign text={it.partition === '' ? 'not partitioned' : it.partition} most={160} /> },
    { id: 'bytes', title: 'Size', width: '96px', align: 'end', render: (it) => bytes(it.data.bytes) },
    { id: 'files', title: 'Files', width: '80px', align: 'end', render: (it) => count(it.data.files) },
    { id: 'small', title: 'Small', width: '80px', align: 'end', from: 520, render: (it) => count(it['small-files']) },
    { id: 'rows', title: 'Rows', width: '90px', align: 'end', from: 600, render: (it) => compact(it.data.rows) },
    { id: 'largest', title: 'Largest file', width: '110px', align: 'end', from: 700, render: (it) => bytes(it['largest-bytes']) },
    { id: 'deletes', title: 'Deletes', width: '80px', align: 'end', from: 560, render: (it) => count(it.deletes.files) },
  ];
  return (
    <Panel title={title} isFlush>
      <Table label={title} columns={columns} rows={all} keyOf={(it) => `${it['spec-id']}/${it.partition}`} />
    </Panel>
  );
}
