// A table and a view: overview, columns, snapshots, files, and what can be done with them.
import {
  AsCommand, Badge, Button, Empty, ErrorNote, Facts, Foreign, Id, Loaded, Meter, Note, PageHead, Panel, Stat, TabPanel, Table, Tabs, Time, api, attempt,
  bytes, compact, confirm, count, isAway, navigate, percent, refreshAll, shellWord, useQuery, useResource, withQuery, type Column,
} from '../../kit';
import { Connect } from './connect';
import { Health } from './health';
import { Maintenance } from './maintenance';
import type { CatalogProtection } from '../../schema';
import { currentOf, dotted, dottedWord, figure, icebergPath, joined, managementPath, pageOf, type IcebergSchema, type LoadedTable, type TableMetadata } from './model';
import { Rights } from './rights';
import { Rows } from './rows';
import { Columns, SchemaVersions, schemaOf } from './schema';
import { Snapshots } from './snapshots';

export interface ObjectProps { warehouse: string; namespace: string[]; name: string }

const TABS = ['overview', 'snapshots', 'schema', 'files', 'health', 'rows', 'connect', 'maintenance', 'rights'];

export function TablePage({ warehouse, namespace, name }: ObjectProps) {
  const from = useResource<LoadedTable>(icebergPath(warehouse, 'namespaces', joined(namespace), 'tables', name));
  const [tab, setTab] = useQuery('tab', 'overview');
  const shown = TABS.includes(tab) ? tab : 'overview';
  const metadata = from.data.value?.metadata;
  const place = { warehouse, namespace, name };
  return (
    <>
      <PageHead title={name} back={{ to: pageOf(warehouse, namespace), label: `Namespace ${dotted(namespace)}` }}
        aside={<span class="muted">{dotted(namespace)}</span>} actions={(
          <>
            <AsCommand commands={() => [
              { title: 'The table', path: icebergPath(warehouse, 'namespaces', joined(namespace), 'tables', name), cove: `cove catalog table show ${shellWord(dottedWord(namespace, name))} --warehouse ${shellWord(warehouse)}` },
              { title: 'Snapshots', path: managementPath(warehouse, 'tables', joined(namespace), name, 'snapshots') },
            ]} />
            {metadata && <Protect {...place} />}
            {metadata && <Button icon="trash" onClick={() => drop(place, 'table')}>Drop</Button>}
          </>
        )} />
      <Loaded from={from}>
        {(it) => (
          <>
            <Tabs label="Parts of the table" value={shown} onValue={setTab} tabs={[
              { id: 'overview', label: 'Overview' },
              { id: 'snapshots', label: 'Snapshots', count: it.metadata.snapshots?.length ?? 0 },
              { id: 'schema', label: 'Schema', count: it.metadata.schemas.length },
              { id: 'files', label: 'Files' },
              { id: 'health', label: 'Health' },
              { id: 'rows', label: 'Rows' },
              { id: 'connect', label: 'Connect' },
              { id: 'maintenance', label: 'Maintenance' },
              { id: 'rights', label: 'Rights' },
            ]} />
            <TabPanel id={shown} class="stack loose">
              {shown === 'overview' && <Overview loaded={it} />}
              {shown === 'snapshots' && <Snapshots metadata={it.metadata} />}
              {shown === 'schema' && <SchemaVersions metadata={it.metadata} />}
              {shown === 'files' && <Files {...place} metadata={it.metadata} />}
              {shown === 'health' && <Health {...place} metadata={it.metadata} onMaintain={() => setTab('maintenance')} />}
              {shown === 'rows' && <Rows {...place} />}
              {shown === 'connect' && <Connect {...place} />}
              {shown === 'maintenance' && <Maintenance {...place} />}
              {shown === 'rights' && <Rights {...place} />}
            </TabPanel>
          </>
        )}
      </Loaded>
    </>
  );
}

/** Whether an object is protected, and the switch of it; nothing where the principal may not ask. */
export function Protect({ warehouse, namespace, name }: { warehouse: string; namespace: string[]; name?: string }) {
  const from = useResource<CatalogProtection>(withQuery(managementPath(warehouse, 'protection'), { namespace: joined(namespace), name }));
  const it = from.data.value;
  if (it === undefined) return null;
  const change = () => attempt(
    api(managementPath(warehouse, 'protection'), { json: { namespace, name, protected: !it.protected } }),
    it.protected ? 'It can be dropped now' : 'Nobody can drop it until this is lifted',
  ).then(() => from.refresh());
  return (
    <Button icon="shield" isPressed={it.protected} onClick={change} isDisabled={it['by-property'] && !it['by-flag']}
      title={it['by-property'] ? 'The property protected=true says so' : 'What is protected is neither dropped nor renamed'}>
      {it.protected ? 'Protected' : 'Protect'}
    </Button>
  );
}

async function drop({ warehouse, namespace, name }: ObjectProps, kind: 'table' | 'view') {
  const isSure = await confirm({
    title: `Drop ${kind} ${dotted(namespace, name)}?`, action: `Drop ${kind}`, isDanger: true, typed: name,
    body: 'Clients no longer find it. It stays among what was dropped, with its files, for as long as the warehouse keeps such things, and can be brought back from there.',
  });
  if (!isSure) return;
  const isGone = await attempt(
    api(icebergPath(warehouse, 'namespaces', joined(namespace), `${kind}s`, name), { method: 'DELETE' }).then(() => true), `Dropped ${dotted(namespace, name)}`,
  );
  if (!isGone) return;
  navigate(pageOf(warehouse, namespace));
  refreshAll('/catalog/');
}

function Overview({ loaded }: { loaded: LoadedTable }) {
  const { metadata } = loaded;
  const current = currentOf(metadata);
  const properties = Object.entries(metadata.properties ?? {});
  const files = figure(current, 'total-data-files');
  const deletes = figure(current, 'total-delete-files');
  const none = current === undefined ? 0 : null;
  return (
    <>
      {metadata.properties?.comment && <p><Foreign text={metadata.properties.comment} most={1000} /></p>}
      <div class="stats">
        <Stat label="Rows" value={compact(figure(current, 'total-records') ?? none)} detail={current ? 'as its last writer says' : 'nothing was written yet'} />
        <Stat label="Size" value={bytes(figure(current, 'total-files-size') ?? none)} detail="of its files now" />
        <Stat label="Data files" value={compact(files ?? none)} detail={`${count(deletes ?? 0)} with deletes`} tone={deletes !== null && files !== null && deletes > files ? 'warn' : undefined} />
        <Stat label="Last change" value={<Time ms={metadata['last-updated-ms']} />} detail={current?.summary?.operation ?? 'metadata'} />
        <Stat label="Snapshots" value={count(metadata.snapshots?.length ?? 0)} detail={`${count(Object.keys(metadata.refs ?? {}).length)} branches and tags`} />
      </div>
      <Panel title="Columns" isFlush><Columns schema={schemaOf(metadata)} /></Panel>
      <div class="grid">
        <Panel title="Layout">
          <Facts items={[
            ['Partitioned by', partitions(metadata)],
            ['Sorted by', sortOrder(metadata)],
            ['Format', `version ${metadata['format-version']}`],
            ['Location', <code class="wrap">{metadata.location}</code>],
            ['Metadata', <code class="wrap">{loaded['metadata-location'] ?? '–'}</code>],
            ['UUID', <Id id={metadata['table-uuid']} />],
          ]} />
        </Panel>
        <Panel title="Properties">
          {properties.length === 0 ? <p class="muted">None is set.</p>
            : <Facts items={properties.map(([key, value]) => [key, <Foreign text={value} />])} />}
        </Panel>
      </div>
    </>
  );
}

/** Names of columns by their ids, also of columns that only older schemas have. */
function columnNames(metadata: TableMetadata): Map<number, string> {
  return new Map([...metadata.schemas.filter((it) => it !== schemaOf(metadata)), schemaOf(metadata)].flatMap((schema) => (
    (schema?.fields ?? []).map((it): [number, string] => [it.id, it.name])
  )));
}

const transformed = (transform: string, column: string) => (transform === 'identity' ? column : `${transform}(${column})`);

function partitions(metadata: TableMetadata): string {
  const names = columnNames(metadata);
  const spec = metadata['partition-specs']?.find((it) => it['spec-id'] === metadata['default-spec-id']);
  const fields = spec?.fields ?? [];
  return fields.length === 0 ? 'nothing'
    : fields.map((it) => transformed(it.transform, (it['source-ids'] ?? [it['source-id'] ?? 0]).map((id) => names.get(id) ?? `column ${id}`).join(', '))).join(', ');
}

function sortOrder(metadata: TableMetadata): string {
  const names = columnNames(metadata);
  const order = metadata['sort-orders']?.find((it) => it['order-id'] === metadata['default-sort-order-id']);
  const fields = order?.fields ?? [];
  return fields.length === 0 ? 'nothing'
    : fields.map((it) => `${transformed(it.transform, names.get(it['source-id']) ?? `column ${it['source-id']}`)} ${it.direction}, ${it['null-order'].replace('-', ' ')}`).join('; ');
}

interface FileRow { content: string; 'file-path': string; 'file-format': string; 'record-count': number; 'file-size-in-bytes': number }

const SMALL_BYTES = 32 * 1024 * 1024;
const FILES_MAX = 10_000;
/** Files from which it is worth to write small ones together. */
const SMALL_FILES_MANY = 20;
const BINS: [string, number][] = [['under 1 MiB', 2 ** 20], ['1 to 32 MiB', 2 ** 25], ['32 to 128 MiB', 2 ** 27], ['128 to 512 MiB', 2 ** 29], ['from 512 MiB', Infinity]];

function Files({ warehouse, namespace, name, metadata }: ObjectProps & { metadata: TableMetadata }) {
  const isEmpty = currentOf(metadata) === undefined;
  const from = useResource<{ rows: FileRow[]; 'next-page-token': string | null }>(
    isEmpty ? null : withQuery(managementPath(warehouse, 'tables', joined(namespace), name, 'files'), { pageSize: FILES_MAX }),
  );
  if (isEmpty) return <Empty icon="file" title="No file yet"><p>The table has no snapshot.</p></Empty>;
  const columns: Column<FileRow>[] = [
    { id: 'content', title: 'Kind', width: '130px', from: 480, render: (it) => it.content },
    { id: 'path', title: 'File', width: 'minmax(160px, 3fr)', isMono: true, render: (it) => <span title={it['file-path']}>{it['file-path'].replace(`${metadata.location}/`, '')}</span> },
    { id: 'rows', title: 'Rows', width: '90px', align: 'end', from: 480, render: (it) => count(it['record-count']) },
    { id: 'size', title: 'Size', width: '96px', align: 'end', render: (it) => bytes(it['file-size-in-bytes']) },
    { id: 'format', title: 'Format', width: '90px', from: 640, render: (it) => it['file-format'] },
  ];
  return (
    <Loaded from={from} rows={6}>
      {({ rows, 'next-page-token': next }) => {
        const data = rows.filter((it) => it.content === 'data');
        const deletes = rows.length - data.length;
        const small = data.filter((it) => it['file-size-in-bytes'] < SMALL_BYTES).length;
        let low = 0;
        const bins = BINS.map(([label, high]) => {
          const number = data.filter((it) => it['file-size-in-bytes'] >= low && it['file-size-in-bytes'] < high).length;
          low = high;
          return { label, number };
        });
        return (
          <>
            {small >= SMALL_FILES_MANY && (
              <Note tone="warn">{count(small)} of {count(data.length)} data files are under 32 MiB: readers open each one. Write them together: <code>CALL system.rewrite_data_files</code> of Spark.</Note>
            )}
            {deletes > data.length / 2 && <Note tone="warn">{count(deletes)} delete files beside {count(data.length)} data files: readers apply each of them. Rewriting the data files removes them.</Note>}
            <Panel title="Sizes of data files">
              <dl class="bins">
                {bins.map(({ label, number }) => (
                  <div key={label}>
                    <dt>{label}</dt>
                    <dd><Meter label={`${count(number)} files, ${percent(number / Math.max(1, data.length))}`} of={Math.max(1, data.length)} parts={[{ value: number, tone: 'info' }]} /><span>{count(number)}</span></dd>
                  </div>
                ))}
              </dl>
            </Panel>
            <Panel title={`Files of the current snapshot${next ? `, the first ${count(rows.length)}` : ''}`} isFlush>
              <Table label="Files" columns={columns} rows={rows} keyOf={(it) => it['file-path']} />
            </Panel>
          </>
        );
      }}
    </Loaded>
  );
}

interface LoadedView {
  metadata: {
    location: string; 'view-uuid': string; 'current-version-id': number; properties?: Record<string, string>; schemas: IcebergSchema[];
    versions: { 'version-id': number; 'timestamp-ms': number; 'schema-id': number; representations: { type: string; sql?: string; dialect?: string }[] }[];
  };
}

export function ViewPage({ warehouse, namespace, name }: ObjectProps) {
  const from = useResource<LoadedView>(icebergPath(warehouse, 'namespaces', joined(namespace), 'views', name));
  const error = from.error.value;
  return (
    <>
      <PageHead title={name} back={{ to: pageOf(warehouse, namespace), label: `Namespace ${dotted(namespace)}` }} aside={<Badge tone="info">view</Badge>}
        actions={from.data.value && <Button icon="trash" onClick={() => drop({ warehouse, namespace, name }, 'view')}>Drop</Button>} />
      {error !== undefined && from.data.value === undefined && !isAway(error) ? <ErrorNote error={error} /> : (
        <Loaded from={from}>
          {({ metadata }) => {
            const version = metadata.versions.find((it) => it['version-id'] === metadata['current-version-id']);
            return (
              <>
                {(version?.representations ?? []).map((it, at) => (
                  <Panel key={at} title={`Query (${it.dialect ?? it.type})`}><pre class="output" tabIndex={0}>{it.sql}</pre></Panel>
                ))}
                <Panel title="Columns" isFlush><Columns schema={metadata.schemas.find((it) => it['schema-id'] === version?.['schema-id'])} /></Panel>
                <Panel title="Facts">
                  <Facts items={[
                    ['Versions', count(metadata.versions.length)],
                    ['Changed', <Time ms={version?.['timestamp-ms']} />],
                    ['Location', <code class="wrap">{metadata.location}</code>],
                    ['UUID', <Id id={metadata['view-uuid']} />],
                  ]} />
                </Panel>
              </>
            );
          }}
        </Loaded>
      )}
    </>
  );
}
