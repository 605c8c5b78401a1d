// A warehouse: where it is, what was dropped, who may what.
import {
  AsCommand, Badge, Button, Empty, Facts, Foreign, Loaded, PageHead, Panel, Stat, TabPanel, Table, Tabs, Time, api, attempt, confirm, count, refreshAll,
  shellWord, useQuery, useResource, type Column,
} from '../../kit';
import { Connect } from './connect';
import { Maintenance } from './maintenance';
import { dotted, managementPath, type DroppedEntry, type Warehouse } from './model';
import { Objects } from './namespace';
import { Policies, Retention } from './policies';
import { Principals } from './principals';
import { Rights } from './rights';

export function WarehousePage({ warehouse }: { warehouse: string }) {
  const from = useResource<Warehouse>(managementPath('warehouses', warehouse));
  const [tab, setTab] = useQuery('tab', 'overview');
  const shown = ['overview', 'dropped', 'connect', 'maintenance', 'rights', 'access', 'policies'].includes(tab) ? tab : 'overview';
  const it = from.data.value;
  return (
    <>
      <PageHead title="Catalog" aside={(
        <>
          <span class="muted">warehouse {warehouse}</span>
          {it && it.status !== 'active' && <Badge tone="warn">{it.status}</Badge>}
        </>
      )} actions={<AsCommand commands={() => [
        { title: 'Warehouses', path: '/catalog/management/v1/warehouses', cove: 'cove catalog warehouse list' },
        { title: 'What was dropped', path: managementPath(warehouse, 'dropped'), cove: `cove catalog undrop list --warehouse ${shellWord(warehouse)}` },
      ]} />} />
      <Tabs label="Parts of the warehouse" value={shown} onValue={setTab} tabs={[
        { id: 'overview', label: 'Overview' }, { id: 'dropped', label: 'Dropped' }, { id: 'connect', label: 'Connect' },
        { id: 'maintenance', label: 'Maintenance' }, { id: 'rights', label: 'Rights' }, { id: 'access', label: 'Access' }, { id: 'policies', label: 'Policies' },
      ]} />
      <TabPanel id={shown} class="stack loose">
        {shown === 'overview' && (
          <>
            <Objects warehouse={warehouse} namespace={[]} />
            <Panel title="Warehouse">
              <Loaded from={from} rows={3}>
                {(one) => (
                  <>
                    {one.statistics && (
                      <div class="stats">
                        <Stat label="Namespaces" value={count(one.statistics.namespaces)} />
                        <Stat label="Tables" value={count(one.statistics.tables)} />
                        <Stat label="Views" value={count(one.statistics.views)} />
                      </div>
                    )}
                    <Facts items={[
                      ['Root', <code class="wrap">{one.root}</code>],
                      one.locations.length > 0 && ['Other locations', <code class="wrap">{one.locations.join(', ')}</code>],
                      ['Status', one.status],
                      ['Defined', one.configured ? 'in the configuration' : 'while serving'],
                    ]} />
                  </>
                )}
              </Loaded>
            </Panel>
          </>
        )}
        {shown === 'dropped' && <><Dropped warehouse={warehouse} /><Retention warehouse={warehouse} /></>}
        {shown === 'connect' && <Connect warehouse={warehouse} />}
        {shown === 'maintenance' && <Maintenance warehouse={warehouse} />}
        {shown === 'rights' && <Rights warehouse={warehouse} />}
        {shown === 'access' && <Principals warehouse={warehouse} />}
        {shown === 'policies' && <Policies warehouse={warehouse} />}
      </TabPanel>
    </>
  );
}

function Dropped({ warehouse }: { warehouse: string }) {
  const from = useResource<{ dropped: DroppedEntry[]; 'next-page-token': string | null }>(managementPath(warehouse, 'dropped'), 15_000);
  const undrop = (it: DroppedEntry) => attempt(
    api(managementPath(warehouse, 'undrop'), { json: { uuid: it.uuid } }), `Brought ${dotted(it.namespace, it.name)} back`,
  ).then(() => refreshAll('/catalog/'));
  const purge = async (it: DroppedEntry) => {
    const isSure = await confirm({
      title: `Purge ${dotted(it.namespace, it.name)} now?`, action: 'Purge', isDanger: true, typed: it.name,
      body: 'Its files are removed and it cannot be brought back.',
    });
    if (!isSure) return;
    await attempt(api(managementPath(warehouse, 'dropped', it.uuid), { method: 'DELETE' }), `${dotted(it.namespace, it.name)} is being purged`);
    from.refresh();
  };
  const columns: Column<DroppedEntry>[] = [
    { id: 'name', title: 'Name', width: 'minmax(120px, 1fr)', render: (it) => <strong title={dotted(it.namespace, it.name)}><Foreign text={dotted(it.namespace, it.name)} /></strong> },
    { id: 'type', title: 'Kind', width: '80px', from: 620, render: (it) => it.type },
    { id: 'dropped', title: 'Dropped', width: '110px', from: 520, render: (it) => <Time ms={it['dropped-at-ms']} /> },
    { id: 'purge', title: 'Purged', width: '104px', render: (it) => (it['is-purging'] ? <Badge tone="bad">now</Badge> : <Time ms={it['purge-at-ms']} />) },
    {
      id: 'actions', title: '', width: '132px', align: 'end', render: (it) => !it['is-purging'] && (
        <span class="row end tight">
          <Button kind="quiet" icon="rotate-ccw" label={`Bring ${dotted(it.namespace, it.name)} back`} onClick={() => undrop(it)} />
          <Button kind="quiet" icon="trash" label={`Purge ${dotted(it.namespace, it.name)}`} onClick={() => purge(it)} />
        </span>
      ),
    },
  ];
  return (
    <Panel title="What can come back" isFlush>
      <Loaded from={from} rows={3}>
        {({ dropped, 'next-page-token': next }) => (
          <>
            <Table label="Dropped" columns={columns} rows={dropped} keyOf={(it) => it.uuid}
              empty={<Empty icon="trash" title="Nothing was dropped"><p>Tables and views that are dropped stay here, with their files, until their time is over.</p></Empty>} />
            {next && <p class="muted catalog-more">There is more: the list above is its first page.</p>}
          </>
        )}
      </Loaded>
    </Panel>
  );
}
