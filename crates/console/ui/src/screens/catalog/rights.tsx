// Who may what with an object: what was granted on it and on all that it is in, and what that comes to for members of roles.
import { useState } from 'preact/hooks';
import {
  Button, CheckField, Dialog, Empty, Foreign, Form, Loaded, Note, Panel, Table, TextField, api, attempt, confirm, isAway, useResource, type Column,
} from '../../kit';
import { RIGHTS, effectiveOn, holds, placeName, type AccessScope as Scope, type CatalogRole, type ObjectRight } from './access';
import { dotted, joined, managementPath, type CatalogGrant } from './model';
import { Policies } from './policies';

export function Rights(scope: Scope) {
  const { warehouse, namespace, name } = scope;
  const path = managementPath(warehouse, 'grants');
  const from = useResource<{ grants: CatalogGrant[] }>(path);
  const roles = useResource<{ roles: CatalogRole[] }>('/catalog/management/v1/roles');
  const [isNew, setNew] = useState(false);
  const revoke = async (it: CatalogGrant) => {
    const isSure = await confirm({
      title: 'Take rights back?', action: 'Take back', isDanger: true,
      body: `${it.principal} has ${it.rights.join(', ')} on ${dotted(it.namespace, it.name) || `warehouse ${warehouse}`}.`,
    });
    if (!isSure) return;
    const body = { principal: it.principal, rights: it.rights, namespace: it.namespace ?? undefined, name: it.name ?? undefined };
    await attempt(api(managementPath(warehouse, 'grants', 'revoke'), { json: body }), `Took rights of ${it.principal} back`);
    from.refresh();
  };
  const columns: Column<CatalogGrant>[] = [
    { id: 'principal', title: 'Principal', width: 'minmax(130px, 1.4fr)', isMono: true, render: (it) => <Foreign text={it.principal} /> },
    { id: 'rights', title: 'Rights', width: 'minmax(110px, 1fr)', render: (it) => it.rights.join(', ') },
    {
      id: 'on', title: 'Granted on', width: 'minmax(110px, 1fr)', from: 460,
      render: (it) => (dotted(it.namespace, it.name) === '' ? <span class="muted">the warehouse</span> : <Foreign text={dotted(it.namespace, it.name)} />),
    },
    { id: 'revoke', title: '', width: '52px', align: 'end', render: (it) => <Button kind="quiet" icon="x" label={`Take rights of ${it.principal} back`} onClick={() => revoke(it)} /> },
  ];
  const isHidden = roles.error.value !== undefined && !isAway(roles.error.value);
  return (
    <>
    <Panel title="What was granted" actions={<Button icon="plus" onClick={() => setNew(true)}>Grant rights</Button>} isFlush>
      <Loaded from={from} rows={3}>
        {({ grants }) => (
          <Table label="Rights" columns={columns} rows={grants.filter((it) => holds(it, scope))}
            keyOf={(it) => `${it.principal}/${joined(it.namespace ?? [])}/${it.name ?? ''}`} empty={(
              <Empty icon="shield" title="Nothing was granted here"><p>Operators may do everything; everybody else needs a grant, on this or on what it is in.</p></Empty>
            )} />
        )}
      </Loaded>
      {isNew && <GrantDialog warehouse={warehouse} namespace={namespace} name={name} onClose={() => { setNew(false); from.refresh(); }} />}
    </Panel>
    {from.data.value && (
      <Panel title="Who may do what here" isFlush>
        {isHidden && <Note tone="info">This token may not list roles: who has a role is not shown.</Note>}
        <Table label="Effective rights" columns={EFFECTIVE} rows={effectiveOn(scope, from.data.value.grants, roles.data.value?.roles ?? [])} keyOf={(it) => it.principal}
          empty={<Empty icon="shield" title="Nobody but operators"><p>A grant on this or on what it is in changes that.</p></Empty>} />
      </Panel>
    )}
    {name !== undefined && <Policies warehouse={warehouse} namespace={namespace} name={name} />}
    </>
  );
}

const EFFECTIVE: Column<ObjectRight>[] = [
  { id: 'principal', title: 'Principal', width: 'minmax(130px, 1.2fr)', isMono: true, render: (it) => <Foreign text={it.principal} /> },
  { id: 'rights', title: 'May', width: 'minmax(110px, 1fr)', render: (it) => it.rights.join(', ') },
  {
    id: 'from', title: 'Comes from', width: 'minmax(130px, 1.6fr)', from: 460, render: (it) => <Foreign most={200} text={it.sources.map(({ grant, way }) => (
      `${placeName(grant) === '' ? 'the warehouse' : placeName(grant)}${way.length === 0 ? '' : ` as role ${way.join(' in role ')}`}`
    )).join('; ')} />,
  },
];

function GrantDialog({ warehouse, namespace, name, onClose }: Scope & { onClose: () => void }) {
  const [principal, setPrincipal] = useState('');
  const [rights, setRights] = useState<string[]>(['read']);
  return (
    <Dialog title={`Grant rights on ${dotted(namespace, name) || `warehouse ${warehouse}`}`} onClose={onClose}>
      <Form submit="Grant" onCancel={onClose} onSubmit={async () => {
        await api(managementPath(warehouse, 'grants'), { json: { principal: principal.trim(), rights, namespace, name } });
        onClose();
      }}>
        {(errorOf) => (
          <>
            <TextField label="Principal" value={principal} onValue={setPrincipal} placeholder="role:etl" error={errorOf('principal')} required autofocus
              hint="tenant:NAME, client:ID, role:NAME, oidc:ISSUER:NAME, group:ISSUER:GROUP or grant:TENANT" />
            {RIGHTS.map(({ right, hint }) => (
              <CheckField key={right} label={right} hint={hint} isOn={rights.includes(right)}
                onValue={(isOn) => setRights(isOn ? [...rights, right] : rights.filter((it) => it !== right))} />
            ))}
          </>
        )}
      </Form>
    </Dialog>
  );
}
