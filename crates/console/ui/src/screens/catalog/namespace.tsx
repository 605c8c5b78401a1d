// A namespace: what is in it, its properties, its rights.
import {
  AsCommand, Button, Empty, Facts, Foreign, Loaded, PageHead, Panel, TabPanel, Table, Tabs, api, attempt, confirm, navigate, plural, refreshAll, shellWord,
  useQuery, useResource, withQuery, type Column,
} from '../../kit';
import { Maintenance } from './maintenance';
import { dotted, dottedWord, icebergPath, joined, pageOf } from './model';
import { Rights } from './rights';
import { Protect } from './table';
import type { NameLists } from './tree';

interface Inside { kind: 'namespace' | 'table' | 'view'; name: string; to: string }

const COLUMNS: Column<Inside>[] = [
  { id: 'name', title: 'Name', width: 'minmax(140px, 1fr)', render: (it) => <strong>{it.name}</strong> },
  { id: 'kind', title: 'Kind', width: '120px', render: (it) => it.kind },
];

export function NamespacePage({ warehouse, namespace }: { warehouse: string; namespace: string[] }) {
  const [tab, setTab] = useQuery('tab', 'objects');
  const own = useResource<{ properties: Record<string, string> }>(icebergPath(warehouse, 'namespaces', joined(namespace)));
  const shown = ['objects', 'maintenance', 'rights'].includes(tab) ? tab : 'objects';
  const remove = async () => {
    const isSure = await confirm({
      title: `Drop namespace ${dotted(namespace)}?`, action: 'Drop namespace', isDanger: true, typed: dotted(namespace),
      body: 'It has to be empty: the server refuses to drop a namespace with tables, views or namespaces in it.',
    });
    if (!isSure) return;
    const isGone = await attempt(api(icebergPath(warehouse, 'namespaces', joined(namespace)), { method: 'DELETE' }).then(() => true), `Dropped ${dotted(namespace)}`);
    if (!isGone) return;
    navigate(pageOf(warehouse, namespace.length > 1 ? namespace.slice(0, -1) : undefined));
    refreshAll('/catalog/');
  };
  return (
    <>
      <PageHead title={dotted(namespace)} aside={<span class="muted">namespace</span>}
        back={{ to: pageOf(warehouse, namespace.length > 1 ? namespace.slice(0, -1) : undefined), label: 'One level up' }} actions={(
          <>
            <AsCommand commands={() => [{
              title: 'Tables', path: icebergPath(warehouse, 'namespaces', joined(namespace), 'tables'),
              cove: `cove catalog table list ${shellWord(dottedWord(namespace))} --warehouse ${shellWord(warehouse)}`,
            }]} />
            <Protect warehouse={warehouse} namespace={namespace} />
            <Button icon="trash" onClick={remove}>Drop</Button>
          </>
        )} />
      <Tabs label="Parts of the namespace" value={shown} onValue={setTab} tabs={[
        { id: 'objects', label: 'Objects' }, { id: 'maintenance', label: 'Maintenance' }, { id: 'rights', label: 'Rights' },
      ]} />
      <TabPanel id={shown} class="stack loose">
        {shown === 'objects' && (
          <>
            <Objects warehouse={warehouse} namespace={namespace} />
            <Panel title="Properties">
              <Loaded from={own} rows={2}>
                {({ properties }) => {
                  const all = Object.entries(properties ?? {});
                  return all.length === 0 ? <p class="muted">None is set.</p> : <Facts items={all.map(([key, value]) => [key, <Foreign text={value} />])} />;
                }}
              </Loaded>
            </Panel>
          </>
        )}
        {shown === 'maintenance' && <Maintenance warehouse={warehouse} namespace={namespace} />}
        {shown === 'rights' && <Rights warehouse={warehouse} namespace={namespace} />}
      </TabPanel>
    </>
  );
}

/** What is in a namespace; without one, the namespaces of the warehouse. */
export function Objects({ warehouse, namespace }: { warehouse: string; namespace: string[] }) {
  const isRoot = namespace.length === 0;
  const spaces = useResource<NameLists['namespaces']>(withQuery(icebergPath(warehouse, 'namespaces'), { parent: joined(namespace) }));
  const tables = useResource<NameLists['tables']>(isRoot ? null : icebergPath(warehouse, 'namespaces', joined(namespace), 'tables'));
  const views = useResource<NameLists['tables']>(isRoot ? null : icebergPath(warehouse, 'namespaces', joined(namespace), 'views'));
  const rows: Inside[] = [
    ...(spaces.data.value?.namespaces ?? []).map((it) => ({ kind: 'namespace' as const, name: it[it.length - 1]!, to: pageOf(warehouse, it) })),
    ...(tables.data.value?.identifiers ?? []).map((it) => ({ kind: 'table' as const, name: it.name, to: pageOf(warehouse, namespace, it.name) })),
    ...(views.data.value?.identifiers ?? []).map((it) => ({ kind: 'view' as const, name: it.name, to: pageOf(warehouse, namespace, it.name, true) })),
  ];
  return (
    <Panel title={isRoot ? 'Namespaces' : plural(rows.length, 'object')} isFlush>
      <Loaded<unknown> from={isRoot ? spaces : tables} rows={4}>
        {() => (
          <Table label="Objects" columns={isRoot ? COLUMNS.slice(0, 1) : COLUMNS} rows={rows} keyOf={(it) => `${it.kind}/${it.name}`} hrefOf={(it) => it.to}
            empty={isRoot ? (
              <Empty icon="folder" title="No namespace yet" command={`cove catalog namespace create shop --warehouse ${shellWord(warehouse)}`}>
                <p>Tables are in namespaces. Any Iceberg client makes them too.</p>
              </Empty>
            ) : <Empty icon="table-2" title="Nothing in here"><p>Make a table with Spark, PyIceberg or any other Iceberg client.</p></Empty>} />
        )}
      </Loaded>
    </Panel>
  );
}
