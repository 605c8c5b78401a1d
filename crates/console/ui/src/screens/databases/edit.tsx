// Making a tenant and changing one.
import { useState } from 'preact/hooks';
import {
  AreaField, CheckField, Dialog, Form, SelectField, TextField, api, path, refreshAll, toast,
} from '../../kit';
import type { Tenant, TenantSpec } from './model';

interface Draft {
  name: string;
  engine: 'postgres' | 'mysql';
  server: string;
  database: string;
  user: string;
  password: string;
  pool_mode: string;
  connections: string;
  read_only: boolean;
}

const EMPTY: Draft = {
  name: '', engine: 'postgres', server: '', database: '', user: '', password: '', pool_mode: '', connections: '', read_only: false,
};

function specOf(draft: Draft): TenantSpec {
  const spec: TenantSpec = { name: draft.name.trim(), engine: draft.engine, server: draft.server.trim() };
  if (draft.database.trim() !== '') spec.database = draft.database.trim();
  if (draft.user.trim() !== '') spec.users = [{ name: draft.user.trim(), password: draft.password }];
  if (draft.pool_mode !== '') spec.pool_mode = draft.pool_mode as TenantSpec['pool_mode'];
  if (draft.connections.trim() !== '') spec.limits = { server_connections_max: Number(draft.connections) };
  if (draft.read_only) spec.read_only = true;
  return spec;
}

/** Asks for a new tenant; `onMade` gets its name. */
export function NewTenant({ onClose, onMade }: { onClose: () => void; onMade: (name: string) => void }) {
  const [draft, setDraft] = useState(EMPTY);
  const set = (change: Partial<Draft>) => setDraft({ ...draft, ...change });
  const submit = async () => {
    const made = specOf(draft);
    await api('/v1/tenants', { json: made });
    refreshAll('/v1/tenants');
    toast(`Created tenant ${made.name}`);
    onMade(made.name);
  };
  const port = draft.engine === 'postgres' ? 5432 : 3306;
  return (
    <Dialog title="New tenant" onClose={onClose}>
      <p class="muted">A tenant is a database behind a name. Clients name it as the database that they connect to.</p>
      <Form onSubmit={submit} submit="Create tenant" onCancel={onClose}>
        {(errorOf) => (
          <>
            <TextField label="Name" value={draft.name} onValue={(name) => set({ name })} error={errorOf('name')} required autofocus
              placeholder="shop" hint="Letters, digits, _ and -" />
            <SelectField label="Engine" value={draft.engine} error={errorOf('engine')}
              onValue={(engine) => set({ engine: engine as Draft['engine'] })}
              choices={[{ value: 'postgres', label: 'PostgreSQL' }, { value: 'mysql', label: 'MySQL or MariaDB' }]} />
            <TextField label="Server" value={draft.server} onValue={(server) => set({ server })} error={errorOf('server')} required
              placeholder={`db.internal:${port}`} hint="Host and port, or a Unix socket" />
            <TextField label="Database there" value={draft.database} onValue={(database) => set({ database })}
              error={errorOf('database')} placeholder={draft.name || 'as the tenant'} />
            <TextField label="User" value={draft.user} onValue={(user) => set({ user })} error={errorOf('users')} placeholder="app"
              hint="Who may log in, here and at the server" />
            <TextField label="Password" type="password" value={draft.password} onValue={(password) => set({ password })}
              autocomplete="new-password" hint="Kept encrypted; env:NAME and file:PATH are references that the server reads" />
            <SelectField label="A server connection goes back" value={draft.pool_mode} error={errorOf('pool_mode')}
              onValue={(pool_mode) => set({ pool_mode })}
              choices={[{ value: '', label: 'as the configuration says' }, { value: 'transaction', label: 'after each transaction' },
                { value: 'session', label: 'when its client leaves' }, { value: 'statement', label: 'after each statement' }]} />
            <TextField label="Server connections at most" type="number" min={1} value={draft.connections}
              onValue={(connections) => set({ connections })} error={errorOf('limits.server_connections_max')} placeholder="default" />
            <CheckField label="Read-only" hint="All transactions are read-only, whatever a client sets" isOn={draft.read_only}
              onValue={(read_only) => set({ read_only })} />
          </>
        )}
      </Form>
    </Dialog>
  );
}

/** Changes the definition of a tenant, as JSON. */
export function EditTenant({ tenant, onClose }: { tenant: Tenant; onClose: () => void }) {
  const [text, setText] = useState(() => JSON.stringify(tenant.spec, null, 2));
  const submit = async () => {
    const spec: unknown = JSON.parse(text);
    await api(path`/v1/tenants/${tenant.spec.name}`, { method: 'PUT', json: spec });
    refreshAll('/v1/tenants');
    toast(`Changed tenant ${tenant.spec.name}`);
    onClose();
  };
  return (
    <Dialog title={`Change ${tenant.spec.name}`} kind="wide" onClose={onClose}>
      <p class="muted">
        Passwords are not shown. Put them in again, or <code>env:NAME</code> and <code>file:PATH</code>: a definition replaces the
        one before as a whole.
      </p>
      <Form onSubmit={submit} submit="Change tenant" onCancel={onClose}>
        {() => <AreaField label="Definition" value={text} onValue={setText} rows={18} isMono />}
      </Form>
    </Dialog>
  );
}
