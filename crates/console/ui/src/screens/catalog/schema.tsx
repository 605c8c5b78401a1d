// Columns of a table with those within them, and what makes one version of the schema of another.
import { Badge, Empty, Foreign, Icon, Panel, SelectField, Table, count, setQuery, useQuery, type Column, type Tone } from '../../kit';
import { differences, flatten, type ColumnDifference, type FlatColumn, type IcebergSchema, type TableMetadata } from './model';

export const schemaOf = (metadata: TableMetadata, id = metadata['current-schema-id']): IcebergSchema | undefined => (
  metadata.schemas.find((it) => it['schema-id'] === id)
);

export function Columns({ schema }: { schema: IcebergSchema | undefined }) {
  const keys = new Set(schema?.['identifier-field-ids'] ?? []);
  const rows = flatten(schema?.fields ?? []);
  const columns: Column<FlatColumn>[] = [
    {
      id: 'name', title: 'Column', width: 'minmax(140px, 1.2fr)',
      render: (it) => (
        <span style={{ paddingLeft: `${it.depth * 16}px` }} title={it.path}>
          {it.depth > 0 && <span class="muted">└ </span>}<strong>{it.name}</strong>
          {keys.has(it.id) && <> <Icon name="key" size={12} label="identifies a row" /></>}
        </span>
      ),
    },
    { id: 'type', title: 'Type', width: 'minmax(90px, 1fr)', isMono: true, render: (it) => <span title={it.type}>{it.type}</span> },
    { id: 'null', title: 'Null', width: '76px', from: 440, render: (it) => (it.isRequired ? 'required' : <span class="muted">may be</span>) },
    { id: 'doc', title: 'Description', width: 'minmax(120px, 2fr)', from: 560, render: (it) => <Foreign text={it.doc} most={400} /> },
    { id: 'id', title: 'Id', width: '60px', align: 'end', from: 700, render: (it) => count(it.id) },
  ];
  return (
    <Table label="Columns" columns={columns} rows={rows} keyOf={(it) => String(it.id)}
      empty={<Empty icon="list" title="No column"><p>The schema has none.</p></Empty>} />
  );
}

const KINDS: Record<ColumnDifference['kind'], Tone> = { added: 'ok', removed: 'bad', changed: 'warn' };

export function SchemaVersions({ metadata }: { metadata: TableMetadata }) {
  const ids = metadata.schemas.map((it) => it['schema-id'] ?? 0).sort((one, other) => one - other);
  const newest = String(metadata['current-schema-id']);
  const [to, setTo] = useQuery('to', newest);
  const [asked] = useQuery('from');
  const from = asked === '' ? String(ids[Math.max(0, ids.indexOf(Number(to)) - 1)]) : asked;
  const before = schemaOf(metadata, Number(from));
  const after = schemaOf(metadata, Number(to));
  const found = before && after ? differences(before, after) : [];
  const choices = ids.map((id) => ({ value: String(id), label: `Version ${id}${String(id) === newest ? ' (current)' : ''}` }));
  const columns: Column<ColumnDifference>[] = [
    { id: 'kind', title: 'Change', width: '118px', render: (it) => <Badge tone={KINDS[it.kind]}>{it.kind}</Badge> },
    { id: 'path', title: 'Column', width: 'minmax(110px, 1fr)', render: (it) => <strong title={it.path}>{it.path}</strong> },
    { id: 'what', title: 'What', width: 'minmax(120px, 2fr)', render: (it) => <span title={it.what}>{it.what}</span> },
  ];
  return (
    <>
      <Panel title="Differences" actions={(
        <>
          <SelectField label="From version" isLabelHidden value={from} onValue={(value) => setQuery({ from: value })} choices={choices} />
          <span class="muted">to</span>
          <SelectField label="To version" isLabelHidden value={to} onValue={setTo} choices={choices} />
        </>
      )} isFlush>
        <Table label="Differences of schemas" columns={columns} rows={found} keyOf={(it) => `${it.kind}/${it.id}`} empty={(
          <Empty icon="check" title={ids.length === 1 ? 'One version' : 'No difference'}>
            <p>{ids.length === 1 ? 'The schema has never been changed.' : 'Both versions have the same columns.'}</p>
          </Empty>
        )} />
      </Panel>
      <Panel title={`Columns of version ${to}`} isFlush><Columns schema={after} /></Panel>
    </>
  );
}
