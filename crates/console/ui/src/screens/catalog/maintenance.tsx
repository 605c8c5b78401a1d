// Maintenance of a table, a namespace or a warehouse: a dry run first, then the same for good.
import { useEffect, useState } from 'preact/hooks';
import {
  Badge, Button, CheckField, Empty, ErrorNote, Facts, Foreign, Loaded, Note, Panel, Table, Time, api, confirm, count, plural, refreshAll, useResource,
  type Column,
} from '../../kit';
import { dotted, managementPath, type MaintenanceJob } from './model';

interface Scope { warehouse: string; namespace?: string[]; name?: string }

const UNDER_WAY = ['queued', 'running'];
const ITEMS_SHOWN = 500;

export function Maintenance({ warehouse, namespace, name }: Scope) {
  const [isExpiring, setExpiring] = useState(true);
  const [isCleaning, setCleaning] = useState(true);
  const [isDeleting, setDeleting] = useState(false);
  const [job, setJob] = useState<{ id: string; choice: string } | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [isOver, setOver] = useState(false);
  const actions = [isExpiring && 'expire-snapshots', isCleaning && 'clean-metadata'].filter((it) => it !== false);
  const choice = `${actions.join()}/${isDeleting}`;
  const from = useResource<MaintenanceJob>(job === null ? null : managementPath(warehouse, 'maintenance', job.id), isOver ? 0 : 1000);
  const it = from.data.value;
  const isUnderWay = it !== undefined && UNDER_WAY.includes(it.state);
  useEffect(() => setOver(it !== undefined && !isUnderWay), [it, isUnderWay]);
  // Only what was looked at can be done: another choice needs a dry run of its own.
  const isTried = it !== undefined && it['dry-run'] && it.state === 'done' && job?.choice === choice;
  const start = async (isDry: boolean) => {
    setError(null);
    const target = name !== undefined ? { tables: [{ namespace, name }] } : namespace !== undefined ? { namespace } : {};
    try {
      const { id } = await api<{ id: string }>(managementPath(warehouse, 'maintenance'), {
        json: { ...target, actions, 'dry-run': isDry, 'delete-files': isExpiring && isDeleting },
      });
      setJob({ id, choice });
      refreshAll(managementPath(warehouse, 'maintenance'));
    } catch (problem) {
      setError(problem);
    }
  };
  const run = async () => {
    const isSure = await confirm({
      title: `Do it to ${dotted(namespace, name) || warehouse}?`, action: 'Do it', isDanger: true,
      body: `${plural(it!.snapshots, 'snapshot')}, ${plural(it!.refs, 'branch or tag', 'branches and tags')} and ${plural(it!.files, 'file')} go, as the dry run found. Nobody can go back to what expired.`,
    });
    if (isSure) await start(false);
  };
  return (
    <>
      <Panel title={`Maintenance of ${dotted(namespace, name) || warehouse}`}>
        <CheckField label="Expire snapshots" hint="By the table’s properties history.expire.*; what a branch or tag stands for stays" isOn={isExpiring} onValue={setExpiring} />
        <CheckField label="Remove data files that only expired snapshots lead to" isOn={isDeleting && isExpiring} onValue={setDeleting} />
        <CheckField label="Remove old metadata files" hint="Those that the table has left behind, and nothing that the catalog has not named" isOn={isCleaning} onValue={setCleaning} />
        <div class="row">
          <Button kind={isTried ? 'plain' : 'primary'} icon="eye" isDisabled={actions.length === 0 || isUnderWay} onClick={() => start(true)}>Dry run</Button>
          <Button kind="danger" icon="play" isDisabled={!isTried} title={isTried ? undefined : 'Look at a dry run of this choice first'} onClick={run}>Do it</Button>
        </div>
        {error !== null && <ErrorNote error={error} title="It was not started" />}
      </Panel>
      {job !== null && (
        <Panel title={it?.['dry-run'] === false ? 'What it does' : 'What it would do'}>
          <Loaded from={from} rows={3}>{(one) => <Report job={one} />}</Loaded>
        </Panel>
      )}
      <Jobs warehouse={warehouse} />
    </>
  );
}

function stateOf(job: MaintenanceJob) {
  const tone = UNDER_WAY.includes(job.state) ? 'run' : job.state !== 'done' ? 'warn' : job.failures.length > 0 ? 'bad' : 'ok';
  return <Badge tone={tone}>{job.state}</Badge>;
}

function Report({ job }: { job: MaintenanceJob }) {
  const items = job.items ?? [];
  const columns: Column<{ kind: string; name: string; table: string }>[] = [
    { id: 'kind', title: 'Kind', width: '130px', render: (it) => it.kind },
    { id: 'table', title: 'Table', width: 'minmax(110px, 1fr)', from: 520, render: (it) => <Foreign text={it.table} /> },
    { id: 'name', title: 'What', width: 'minmax(140px, 3fr)', isMono: true, render: (it) => <span title={it.name}>{it.name}</span> },
  ];
  return (
    <>
      <div class="row">{stateOf(job)}<span class="muted">{count(job['tables-done'])} of {plural(job['tables-total'], 'table')}</span></div>
      <Facts items={[['Snapshots', count(job.snapshots)], ['Branches and tags', count(job.refs)], ['Files', count(job.files)]]} />
      {job.failures.map((it) => <Note key={`${it.table}${it.message}`} tone="bad"><strong>{it.table}</strong> <span class="wrap">{it.message}</span></Note>)}
      {items.length > 0 && <Table label="What goes" columns={columns} rows={items.slice(0, ITEMS_SHOWN)} keyOf={(it) => `${it.kind}/${it.table}/${it.name}`} />}
      {items.length > ITEMS_SHOWN && <p class="muted">The first {ITEMS_SHOWN} of {count(items.length)} are shown.</p>}
    </>
  );
}

function Jobs({ warehouse }: { warehouse: string }) {
  const from = useResource<{ jobs: MaintenanceJob[] }>(managementPath(warehouse, 'maintenance'), 5000);
  const columns: Column<MaintenanceJob>[] = [
    { id: 'at', title: 'Started', width: '110px', render: (it) => <Time ms={it['created-ms']} /> },
    { id: 'state', title: 'State', width: '120px', render: stateOf },
    { id: 'dry', title: 'Kind', width: '90px', from: 420, render: (it) => (it['dry-run'] ? 'dry run' : 'for good') },
    { id: 'snapshots', title: 'Snapshots', width: '96px', align: 'end', from: 560, render: (it) => count(it.snapshots) },
    { id: 'files', title: 'Files', width: '80px', align: 'end', render: (it) => count(it.files) },
    { id: 'failures', title: 'Failures', width: 'minmax(90px, 1fr)', from: 640, render: (it) => it.failures.map((one) => `${one.table}: ${one.message}`).join('; ') },
  ];
  return (
    <Panel title={`Jobs of ${warehouse}`} isFlush>
      <Loaded from={from} rows={3}>
        {({ jobs }) => (
          <Table label="Jobs of maintenance" columns={columns} rows={jobs} keyOf={(it) => it.id}
            empty={<Empty icon="wand-sparkles" title="No job yet"><p>A dry run above is the first.</p></Empty>} />
        )}
      </Loaded>
    </Panel>
  );
}
