// Access by principal: what one may everywhere in a warehouse, where it comes from, and how it differs from another's.
import {
  AsCommand, Badge, Empty, Facts, Foreign, Loaded, Note, Panel, SelectField, Table, isAway, shellWord, useQuery, useResource, type Column,
} from '../../kit';
import { managementPath, type CatalogGrant } from './model';
import {
  differencesOf, grantsOf, placeName, policiesOf, principalsOf, standsFor, withImplied, type CatalogClient, type CatalogPolicy, type CatalogRole,
  type EffectiveGrant, type RightDifference,
} from './access';

export function Principals({ warehouse }: { warehouse: string }) {
  const grants = useResource<{ grants: CatalogGrant[] }>(managementPath(warehouse, 'grants'));
  const policies = useResource<{ policies: CatalogPolicy[] }>(managementPath(warehouse, 'policies'));
  const roles = useResource<{ roles: CatalogRole[] }>('/catalog/management/v1/roles');
  const clients = useResource<{ clients: CatalogClient[] }>('/catalog/management/v1/clients');
  const [chosen, setChosen] = useQuery('principal', '');
  const [beside, setBeside] = useQuery('beside', '');
  const known = principalsOf(
    grants.data.value?.grants ?? [], roles.data.value?.roles ?? [], clients.data.value?.clients ?? [], policies.data.value?.policies ?? [],
  );
  return (
    <Loaded from={grants} rows={4}>
      {({ grants: all }) => {
        const own = roles.data.value?.roles ?? [];
        const principal = known.includes(chosen) ? chosen : known[0] ?? '';
        const hidden = [isRefused(roles) && 'roles', isRefused(clients) && 'clients', isRefused(policies) && 'policies'].filter((it) => it !== false);
        const nameOf = (id: string) => {
          const name = clients.data.value?.clients.find((it) => it.principal === id)?.name;
          return name === undefined ? id : `${id} (${name})`;
        };
        if (known.length === 0) return <Empty icon="shield" title="No principal yet" command="cove catalog principal create NAME"><p>Operators may do everything; nobody else was given anything.</p></Empty>;
        return (
          <>
            {hidden.length > 0 && <Note tone="info">This token may not list {hidden.join(' or ')}: rights that come from there are not shown.</Note>}
            <div class="toolbar">
              <SelectField label="Principal" value={principal} onValue={setChosen} choices={known.map((it) => ({ value: it, label: nameOf(it).slice(0, 80) }))} />
              <SelectField label="Beside" value={beside} onValue={setBeside}
                choices={[{ value: '', label: 'nobody' }, ...known.filter((it) => it !== principal).map((it) => ({ value: it, label: nameOf(it).slice(0, 80) }))]} />
              <span class="spacer" />
              <AsCommand commands={() => [
                { title: 'Rights of a principal', path: `${managementPath(warehouse, 'grants')}?principal=${encodeURIComponent(principal)}`, cove: `cove catalog grant list --principal ${shellWord(principal)} --warehouse ${shellWord(warehouse)}` },
                { title: 'Roles', path: '/catalog/management/v1/roles', cove: 'cove catalog role list' },
                { title: 'Clients', path: '/catalog/management/v1/clients', cove: 'cove catalog principal list' },
              ]} />
            </div>
            {beside !== '' && known.includes(beside) && (
              <Difference one={principal} other={beside} all={differencesOf(grantsOf(principal, all, own), grantsOf(beside, all, own))} />
            )}
            <One principal={principal} client={clients.data.value?.clients.find((it) => it.principal === principal)} grants={grantsOf(principal, all, own)}
              roles={own} policies={policiesOf(principal, policies.data.value?.policies ?? [], own)} />
          </>
        );
      }}
    </Loaded>
  );
}

const isRefused = (from: ReturnType<typeof useResource<unknown>>) => from.error.value !== undefined && !isAway(from.error.value);

function One({ principal, client, grants, roles, policies }: {
  principal: string; client?: CatalogClient; grants: EffectiveGrant[]; roles: CatalogRole[]; policies: CatalogPolicy[];
}) {
  const has = [...standsFor(principal, roles)].filter(([id]) => id !== principal).map(([id]) => id.slice('role:'.length));
  const members = principal.startsWith('role:') ? roles.find((it) => `role:${it.name}` === principal)?.members : undefined;
  const columns: Column<EffectiveGrant>[] = [
    {
      id: 'on', title: 'On', width: 'minmax(110px, 1.4fr)',
      render: (it) => (placeName(it.grant) === '' ? <span class="muted">the whole warehouse</span> : <Foreign text={placeName(it.grant)} />),
    },
    { id: 'rights', title: 'Rights', width: 'minmax(100px, 1fr)', render: (it) => withImplied(it.grant.rights).join(', ') },
    {
      id: 'from', title: 'Comes from', width: 'minmax(110px, 1fr)',
      render: (it) => (it.way.length === 0 ? <span class="muted">a grant to itself</span> : <Foreign text={`role ${it.way.join(' in role ')}`} />),
    },
  ];
  return (
    <>
      <Panel title="Who it is">
        <Facts items={[
          ['Principal', <code class="wrap"><Foreign text={principal} /></code>],
          client !== undefined && ['Client', <><Foreign text={client.name} /> {client.operator && <Badge tone="warn">operator: may do everything</Badge>}</>],
          ['Roles', has.length === 0 ? 'none' : <Foreign text={has.join(', ')} most={400} />],
          members !== undefined && ['Members', members.length === 0 ? 'none' : <Foreign text={members.join(', ')} most={600} />],
        ]} />
      </Panel>
      <Panel title="Rights" isFlush>
        <Table label="Rights of the principal" columns={columns} rows={grants} keyOf={(it) => `${it.grant.principal}/${placeName(it.grant)}`}
          empty={<Empty icon="shield" title="Nothing was granted"><p>{client?.operator ? 'An operator needs no grant.' : 'It may ask for the configuration, and no more.'}</p></Empty>} />
      </Panel>
      {policies.length > 0 && (
        <Panel title="Restricted by">
          <ul class="todo">
            {policies.map((it) => <li key={it.name}><strong><Foreign text={it.name} /></strong> on <Foreign text={[...it.namespace, it.table].join('.')} /> {it.principal === '*' && <span class="muted">for everybody</span>}</li>)}
          </ul>
        </Panel>
      )}
    </>
  );
}

function Difference({ one, other, all }: { one: string; other: string; all: RightDifference[] }) {
  const words = (rights: string[]) => (rights.length === 0 ? <span class="muted">nothing</span> : rights.join(', '));
  const columns: Column<RightDifference>[] = [
    { id: 'place', title: 'On', width: 'minmax(110px, 1fr)', render: (it) => (it.place === '' ? <span class="muted">the whole warehouse</span> : <Foreign text={it.place} />) },
    { id: 'one', title: one.slice(0, 40), width: 'minmax(100px, 1fr)', render: (it) => words(it.one) },
    { id: 'other', title: other.slice(0, 40), width: 'minmax(100px, 1fr)', render: (it) => words(it.other) },
  ];
  return (
    <Panel title="Differences" isFlush>
      <Table label="Differences" columns={columns} rows={all} keyOf={(it) => it.place}
        empty={<Empty icon="shield" title="No difference"><p>Both may the same everywhere.</p></Empty>} />
    </Panel>
  );
}
