// Policies of a warehouse: which rows and columns of a table a principal may see; and for how long what was dropped can come back.
import { useState } from 'preact/hooks';
import {
  AreaField, AsCommand, Badge, Button, CheckField, Dialog, Empty, Foreign, Form, Loaded, Panel, SelectField, Table, TextField, api, attempt, confirm, plural,
  shellWord, useResource, type Column,
} from '../../kit';
import { dotted, icebergPath, joined, managementPath, type LoadedTable } from './model';
import type { CatalogGrantList, CatalogPolicyRequest, CatalogRoleList } from '../../schema';
import { principalsOf, type CatalogPolicy } from './access';
import { PolicyPreview } from './preview';
import { schemaOf } from './schema';

const ACTIONS: Record<string, string> = {
  'mask-alphanum': 'letters and digits hidden', 'show-first-4': 'the first four characters', 'show-last-4': 'the last four characters',
  'sha-256-global': 'a hash, the same everywhere', 'sha-256-query-local': 'a hash of the query', 'truncate-to-year': 'the year', 'truncate-to-month': 'the month',
  'mask-to-fixed-value': 'a fixed value', 'replace-with-null': 'null',
};

export function Policies({ warehouse, namespace, name }: { warehouse: string; namespace?: string[]; name?: string }) {
  const from = useResource<{ policies: CatalogPolicy[] }>(managementPath(warehouse, 'policies'));
  const [edited, setEdited] = useState<CatalogPolicy | 'new' | null>(null);
  const remove = async (it: CatalogPolicy) => {
    const isSure = await confirm({
      title: `Remove policy ${it.name}?`, action: 'Remove policy', isDanger: true, typed: it.name,
      body: `${it.principal} reads all of ${dotted(it.namespace, it.table)} then, as far as its rights go.`,
    });
    if (!isSure) return;
    await attempt(api(managementPath(warehouse, 'policies', it.name), { method: 'DELETE' }), `Removed ${it.name}`);
    from.refresh();
  };
  const isHere = (it: CatalogPolicy) => name === undefined || (it.table === name && joined(it.namespace) === joined(namespace ?? []));
  const columns: Column<CatalogPolicy>[] = [
    { id: 'name', title: 'Policy', width: 'minmax(110px, 1fr)', render: (it) => <strong><Foreign text={it.name} /></strong> },
    { id: 'principal', title: 'Restricts', width: 'minmax(110px, 1fr)', render: (it) => (it.principal === '*' ? 'everybody' : <Foreign text={it.principal} />) },
    { id: 'table', title: 'On', width: 'minmax(110px, 1fr)', from: 560, render: (it) => <Foreign text={dotted(it.namespace, it.table)} /> },
    {
      id: 'what', title: 'To', width: 'minmax(120px, 1.2fr)', from: 460, render: (it) => (
        <>{it['row-filter'] ? 'some rows' : 'all rows'}{(it['column-projections']?.length ?? 0) > 0 && `, ${plural(it['column-projections']!.length, 'masked column')}`} {it.trusted && <Badge tone="warn">trusted</Badge>}</>
      ),
    },
    {
      id: 'actions', title: '', width: '92px', align: 'end', render: (it) => (
        <span class="row end tight">
          <Button kind="quiet" icon="pencil" label={`Edit ${it.name}`} onClick={() => setEdited(it)} />
          <Button kind="quiet" icon="trash" label={`Remove ${it.name}`} onClick={() => remove(it)} />
        </span>
      ),
    },
  ];
  return (
    <Panel title="Policies" isFlush actions={(
      <>
        <AsCommand commands={() => [{ title: 'Policies', path: managementPath(warehouse, 'policies'), cove: `cove catalog policy list --warehouse ${shellWord(warehouse)}` }]} />
        <Button icon="plus" onClick={() => setEdited('new')}>New policy</Button>
      </>
    )}>
      <Loaded from={from} rows={2}>
        {({ policies }) => (
          <Table label="Policies" columns={columns} rows={policies.filter(isHere)} keyOf={(it) => it.name}
            empty={<Empty icon="shield" title="No policy"><p>Whoever may read a table reads all of it. A policy hides rows and masks columns.</p></Empty>} />
        )}
      </Loaded>
      {edited !== null && (
        <PolicyDialog warehouse={warehouse} namespace={namespace} table={name} policy={edited === 'new' ? undefined : edited}
          onClose={() => { setEdited(null); from.refresh(); }} />
      )}
    </Panel>
  );
}

/** What the form says, as it would be saved; null where it restricts nothing yet, or not in JSON. */
function previewable(request: () => CatalogPolicyRequest): { policy: CatalogPolicyRequest | null; problem: string | null } {
  try {
    const policy = request();
    const isWhole = policy.principal !== '' && policy.table !== '' && policy.namespace.length > 0
      && (policy['row-filter'] !== undefined || (policy['column-projections'] ?? []).length > 0);
    return { policy: isWhole ? policy : null, problem: null };
  } catch {
    return { policy: null, problem: 'The row filter is not JSON yet.' };
  }
}

/** Principals that the warehouse knows, as far as this token may list them. */
function usePrincipals(warehouse: string): string[] {
  const grants = useResource<CatalogGrantList>(managementPath(warehouse, 'grants')).data.value?.grants ?? [];
  const roles = useResource<CatalogRoleList>('/catalog/management/v1/roles').data.value?.roles ?? [];
  return principalsOf(grants, roles, [], []);
}

interface Projection { column: string; action: string }

function PolicyDialog({ warehouse, namespace, table, policy, onClose }: {
  warehouse: string; namespace?: string[]; table?: string; policy?: CatalogPolicy; onClose: () => void;
}) {
  const [name, setName] = useState(policy?.name ?? '');
  const [principal, setPrincipal] = useState(policy?.principal ?? '');
  const [where, setWhere] = useState(dotted(policy?.namespace ?? namespace));
  const [target, setTarget] = useState(policy?.table ?? table ?? '');
  const [filter, setFilter] = useState(policy?.['row-filter'] === undefined ? '' : JSON.stringify(policy['row-filter'], null, 2));
  const [trusted, setTrusted] = useState(policy?.trusted ?? false);
  // A level may have a dot: what was given as levels is taken as such.
  const given = policy?.namespace ?? namespace;
  const levels = given !== undefined && dotted(given) === where ? given : where.split('.').filter((it) => it !== '');
  const loaded = useResource<LoadedTable>(levels.length > 0 && target !== '' ? icebergPath(warehouse, 'namespaces', joined(levels), 'tables', target) : null);
  const fields = (loaded.data.value && schemaOf(loaded.data.value.metadata)?.fields) ?? [];
  const named = (it: { 'field-id'?: number; column?: string }) => it.column ?? fields.find((one) => one.id === it['field-id'])?.name ?? `#${it['field-id']}`;
  const [masks, setMasks] = useState<Projection[] | null>(null);
  const projections = masks ?? (policy?.['column-projections'] ?? []).map((it) => ({ column: named(it), action: it.action }));
  const request = (): CatalogPolicyRequest => ({
    principal: principal.trim(), namespace: levels, table: target, trusted,
    ...(filter.trim() === '' ? {} : { 'row-filter': JSON.parse(filter) as unknown }),
    'column-projections': projections.map((it) => (it.column.startsWith('#') ? { 'field-id': Number(it.column.slice(1)), action: it.action } : it)),
  });
  const save = async () => {
    await api(managementPath(warehouse, 'policies', name.trim()), { method: 'PUT', json: request() });
    onClose();
  };
  const { policy: said, problem } = previewable(request);
  const everybody = usePrincipals(warehouse);
  const masked = new Map(projections.map((it) => [it.column, it.action]));
  return (
    <Dialog title={policy ? `Policy ${policy.name}` : 'New policy'} kind="wide" onClose={onClose}>
      <Form submit="Save" onCancel={onClose} onSubmit={save}>
        {(errorOf) => (
          <>
            {!policy && <TextField label="Name" value={name} onValue={setName} required autofocus placeholder="eu-only" error={errorOf('name')} />}
            <TextField label="Principal" value={principal} onValue={setPrincipal} required placeholder="role:bi" list={everybody} hint="A principal or role, or * for everybody but operators" error={errorOf('principal')} />
            {table === undefined && (
              <div class="grid">
                <TextField label="Namespace" value={where} onValue={setWhere} required placeholder="shop" />
                <TextField label="Table" value={target} onValue={setTarget} required placeholder="orders" />
              </div>
            )}
            <AreaField label="Row filter" value={filter} onValue={setFilter} rows={4} isMono hint="A predicate of Iceberg’s interface; all rows when empty" placeholder={'{"type": "eq", "term": "region", "value": "EU"}'} />
            <div class="row">
              <SelectField label="Mask a column" value="" onValue={(column) => column !== '' && setMasks([...projections, { column, action: 'replace-with-null' }])}
                choices={[{ value: '', label: fields.length === 0 ? 'name a table first' : 'choose one' }, ...fields.map((it) => it.name).filter((it) => !masked.has(it))]} />
            </div>
            {projections.map((it, at) => (
              <div class="row" key={it.column}>
                <SelectField label={`Column ${it.column} is shown as`} value={it.action}
                  onValue={(action) => setMasks(projections.map((one, place) => (place === at ? { ...one, action } : one)))}
                  choices={Object.entries(ACTIONS).map(([value, label]) => ({ value, label: `${value}: ${label}` }))} />
                <Button kind="quiet" icon="x" label={`Do not mask ${it.column}`} onClick={() => setMasks(projections.filter((one) => one !== it))} />
              </div>
            ))}
            <CheckField label="Trusted" isOn={trusted} onValue={setTrusted} hint="Its clients keep to the policy, so that it gets credentials for the table’s files" />
            <PolicyPreview warehouse={warehouse} name={name} policy={said} problem={problem} suggested={everybody}
              nameOf={(id) => fields.find((it) => it.id === id)?.name ?? `#${id}`} />
          </>
        )}
      </Form>
    </Dialog>
  );
}

const DAY_S = 86_400;

/** For how long what was dropped can come back. */
export function Retention({ warehouse }: { warehouse: string }) {
  const from = useResource<{ 'undrop-seconds': number | null }>(managementPath(warehouse, 'retention'));
  const [days, setDays] = useState<string | null>(null);
  const set = async (seconds: number | null) => {
    if (seconds === 0) {
      const isSure = await confirm({
        title: 'Keep nothing that is dropped?', action: 'Keep nothing', isDanger: true, typed: warehouse,
        body: 'A table that is dropped from then on cannot come back.',
      });
      if (!isSure) return;
    }
    await attempt(api(managementPath(warehouse, 'retention'), { json: { 'undrop-seconds': seconds } }), 'Changed for how long it is kept');
    setDays(null);
    from.refresh();
  };
  return (
    <Panel title="How long what was dropped can come back">
      <Loaded from={from} rows={1}>
        {({ 'undrop-seconds': seconds }) => (
          <form class="toolbar" onSubmit={(event) => { event.preventDefault(); if (days !== null && days.trim() !== '') void set(Math.round(Number(days) * DAY_S)); }}>
            <TextField label="Days" type="number" min={0} step="any" value={days ?? (seconds === null ? '' : String(seconds / DAY_S))} placeholder="as configured" onValue={setDays} />
            <Button type="submit" isDisabled={days === null || days.trim() === ''}>Set</Button>
            <Button kind="quiet" isDisabled={seconds === null} onClick={() => void set(null)}>As configured</Button>
            <span class="muted">A namespace’s property <code>undrop.retention</code> goes before it.</span>
          </form>
        )}
      </Loaded>
    </Panel>
  );
}
