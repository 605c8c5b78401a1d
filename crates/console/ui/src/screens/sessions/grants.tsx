// What a session may reach: its grants, a form that offers what the token may give, and what was reached.
import { useEffect, useMemo, useState } from 'preact/hooks';
import {
  AreaField, AsCommand, Badge, Button, Dialog, Form, Foreign, Loaded, Note, Panel, SelectField, Segments, TextField, Time, api, attempt,
  messageOf, path, refreshAll, useResource, withQuery,
} from '../../kit';
import type { AuditRecordList } from '../../schema';
import { labelOf, type Grant, type Session } from './model';
import {
  emptyDraft, grantOf, grantsOfText, labelOfOffer, unavailableBecause, type Draft, type GrantCheckReport, type GrantOfferList, type OfferedGrant,
} from './offers';

export function Access({ session }: { session: Session }) {
  const grants = session.grants ?? [];
  const records = useResource<AuditRecordList>(withQuery('/v1/audit', { holder: session.id, order: 'desc', limit: 50 }), 3000);
  const [isGiving, setGiving] = useState(false);
  const set = async (next: Grant[]) => {
    await api(path`/v1/sessions/${session.id}`, { method: 'PATCH', json: { grants: next } });
    refreshAll('/v1/sessions');
    records.refresh();
  };
  const change = (next: Grant[], done: string) => attempt(set(next), done);
  return (
    <>
      <Panel title="Grants" actions={<Button icon="plus" onClick={() => setGiving(true)}>Give a grant</Button>}>
        {grants.length === 0 ? (
          <p class="muted">It reaches nothing: no network, no database, no model. A grant gives it a socket to one thing, without a credential inside.</p>
        ) : grants.map((grant, at) => (
          <div key={`${at} ${labelOf(grant)}`} class="row grant">
            <strong>{labelOf(grant)}</strong>
            {'access' in grant && grant.access && <Badge tone={grant.access === 'read_only' ? 'ok' : 'warn'}>{grant.access === 'read_only' ? 'to read' : 'to read and write'}</Badge>}
            <span class="spacer" />
            <Button kind="quiet" icon="x" onClick={() => change(grants.filter((it) => it !== grant), `Took ${labelOf(grant)} back`)}>Take back</Button>
          </div>
        ))}
      </Panel>
      <Panel title="Latest records" actions={<Button kind="quiet" href={`/access?holder=${encodeURIComponent(session.id)}`}>All of them</Button>}>
        <Loaded from={records}>
          {({ records: all }) => (all.length === 0 ? <p class="muted">It has reached nothing yet.</p> : (
            <ol class="timeline">
              {all.map((it) => (
                <li key={it.seq}>
                  <Time ms={Date.parse(it.at)} />
                  <Badge tone={it.outcome === 'done' ? 'ok' : it.outcome === 'failed' ? 'warn' : 'bad'}>{it.outcome}</Badge>
                  <Foreign text={`${it.event} ${it.grant} ${it.error ?? it.text ?? ''}`} most={300} />
                </li>
              ))}
            </ol>
          ))}
        </Loaded>
      </Panel>
      {isGiving && <GiveGrant held={grants} session={session.id} onClose={() => setGiving(false)} onGive={(more) => set([...grants, ...more])} />}
    </>
  );
}

/** Pause after which what is typed is checked. */
const CHECK_AFTER_MS = 350;

interface Checked { of: string; report?: GrantCheckReport; problem?: string }

/** Checks a text of grants beside those that are held, when typing stops. */
function useCheck(held: Grant[], text: string): Checked | null {
  const [checked, setChecked] = useState<Checked | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const grants = [...held, ...grantsOfText(text)];
        const report = await api<GrantCheckReport>('/v1/gateway/offers/check', { json: { grants }, signal: abort.signal });
        setChecked({ of: text, report });
      } catch (error) {
        if (!abort.signal.aborted) setChecked({ of: text, problem: messageOf(error) });
      }
    }, CHECK_AFTER_MS);
    return () => { abort.abort(); clearTimeout(timer); };
  }, [text, held.length]);
  return checked?.of === text ? checked : null;
}

function GiveGrant({ held, session, onClose, onGive }: {
  held: Grant[]; session: string; onClose: () => void; onGive: (grants: Grant[]) => Promise<void>;
}) {
  const from = useResource<GrantOfferList>('/v1/gateway/offers');
  return (
    <Dialog title="Give a grant" kind="wide" onClose={onClose}>
      <Loaded from={from}>
        {(list) => <GrantForm list={list} held={held} session={session} onClose={onClose} onGive={onGive} />}
      </Loaded>
    </Dialog>
  );
}

function GrantForm({ list, held, session, onClose, onGive }: {
  list: GrantOfferList; held: Grant[]; session: string; onClose: () => void; onGive: (grants: Grant[]) => Promise<void>;
}) {
  const first = list.offers.findIndex((it) => unavailableBecause(it) === null);
  const [way, setWay] = useState(list.offers.length === 0 ? 'json' : 'form');
  const [chosen, setChosen] = useState(String(Math.max(0, first)));
  const offer = list.offers[Number(chosen)];
  const [draft, setDraft] = useState<Draft | null>(offer ? emptyDraft(offer) : null);
  const [json, setJson] = useState('');
  const made = useMemo(() => (offer && draft ? JSON.stringify(grantOf(offer, draft), null, 2) : '{}'), [offer, draft]);
  const text = way === 'json' ? json : made;
  const checked = useCheck(held, text);
  const choose = (at: string) => {
    const next = list.offers[Number(at)];
    setChosen(at);
    setDraft(next ? emptyDraft(next) : null);
  };
  const turn = (next: string) => {
    if (next === 'json' && json === '') setJson(made);
    setWay(next);
  };
  const give = async () => {
    const grants = grantsOfText(text);
    const report = await api<GrantCheckReport>('/v1/gateway/offers/check', { json: { grants: [...held, ...grants] } });
    const refused = report.grants.slice(held.length).find((it) => !it.given);
    if (refused) throw new Error(`${refused.grant}: ${refused.refusal?.message ?? 'refused'}`);
    await onGive(grants);
    onClose();
  };
  return (
    <Form submit="Give it" onCancel={onClose} onSubmit={give}>
      {() => (
        <>
          <div class="row">
            <Segments label="Way to say it" value={way} onValue={turn} choices={[{ value: 'form', label: 'From the offers' }, { value: 'json', label: 'JSON' }]} />
            <span class="spacer" />
            <AsCommand commands={() => [
              { title: 'Check it', method: 'POST', path: '/v1/gateway/offers/check', json: { grants: safely(text) }, cove: `cove grants check '${compact(text)}'` },
              { title: 'Give it', method: 'PATCH', path: path`/v1/sessions/${session}`, json: { grants: [...held, ...safely(text)] } },
              { title: 'What may be given', path: '/v1/gateway/offers', cove: 'cove grants offers' },
            ]} />
          </div>
          {way === 'form' && list.offers.length === 0 && (
            <Note tone="warn">Nothing is offered to the tenant <strong>{list.tenant}</strong>. Who runs the server does that in <code>[[gateway.offers]]</code>.</Note>
          )}
          {way === 'form' && offer && draft && (
            <>
              <SelectField label="What" value={chosen} onValue={choose}
                hint={list.unrestricted ? 'This token may give all that the server has.' : `What the server offers to the tenant ${list.tenant}.`}
                choices={list.offers.map((it, at) => ({
                  value: String(at), label: labelOfChoice(it), isDisabled: unavailableBecause(it) !== null,
                }))} />
              {unavailableBecause(offer) !== null && <Note tone="warn">It cannot be granted now: {unavailableBecause(offer)}.</Note>}
              <OfferFields offer={offer} draft={draft} limits={list.limits} onDraft={(part) => setDraft({ ...draft, ...part })} />
            </>
          )}
          {way === 'json' && (
            <AreaField label="Grant" value={json} onValue={setJson} rows={12} isMono hint="A grant, or a list of them, as the interface has it." />
          )}
          <Verdict checked={checked} heldCount={held.length} />
        </>
      )}
    </Form>
  );
}

function labelOfChoice(offer: OfferedGrant): string {
  const how = 'access' in offer && offer.access.includes('read_write') ? ', to read and write' : 'access' in offer ? ', to read' : '';
  const roles = 'roles' in offer && offer.roles.length > 0 ? `, as ${offer.roles.slice(0, 3).join(' or ')}` : '';
  return `${labelOfOffer(offer).slice(0, 60)}${how}${roles}${unavailableBecause(offer) === null ? '' : ' (not now)'}`;
}

function safely(text: string): Grant[] {
  try {
    return grantsOfText(text);
  } catch {
    return [];
  }
}

function compact(text: string): string {
  return safely(text).map((it) => JSON.stringify(it)).join("' '");
}

/** What the dry run said, and what programs would find. */
function Verdict({ checked, heldCount }: { checked: Checked | null; heldCount: number }) {
  if (checked === null) return <div class="note" role="status">Checking what would be given…</div>;
  if (!checked.report) return <div class="note warn wrap" role="status">{checked.problem}</div>;
  const { report } = checked;
  const refused = report.grants.slice(heldCount).filter((it) => !it.given);
  const others = report.grants.slice(0, heldCount).filter((it) => !it.given);
  const names = Object.entries(report.environment ?? {});
  return (
    <div class={`note ${refused.length > 0 ? 'bad' : 'ok'}`} role="status">
      <div class="wrap">
        {refused.length === 0 && <strong>It would be given.</strong>}
        {refused.map((it) => <p key={it.grant}><strong>It would be refused.</strong> {it.grant}: {it.refusal?.message} {it.refusal?.field && <code>{it.refusal.field}</code>}</p>)}
        {others.length > 0 && <p>This token may not give {others.map((it) => it.grant).join(', ')}; the session keeps what its agent has.</p>}
        {refused.length === 0 && names.length > 0 && (
          <details><summary>What programs find</summary><pre class="mono">{names.map(([name, value]) => `${name}=${value}`).join('\n')}</pre></details>
        )}
      </div>
    </div>
  );
}

const LIMITS: Record<string, string> = {
  connections: 'Connections', statement_s: 'Seconds of a statement', transaction_s: 'Seconds of a transaction',
  idle_in_transaction_s: 'Seconds idle in a transaction', rows: 'Rows of a statement', bytes: 'Bytes of an answer', requests: 'Requests in all',
};

function OfferFields({ offer, draft, limits, onDraft }: {
  offer: OfferedGrant; draft: Draft; limits: GrantOfferList['limits']; onDraft: (part: Partial<Draft>) => void;
}) {
  const isDatabase = offer.kind === 'postgres' || offer.kind === 'mysql';
  const known = isDatabase ? limits.database : offer.kind === 'http' ? limits.http : null;
  return (
    <>
      {'access' in offer && (
        <Segments label="Access" value={draft.access} onValue={(it) => onDraft({ access: it as Draft['access'] })}
          choices={offer.access.map((it) => ({ value: it, label: it === 'read_only' ? 'To read' : 'To read and write' }))} />
      )}
      {isDatabase && offer.roles.length > 0 && (
        <SelectField label="Role" value={draft.role} onValue={(role) => onDraft({ role })}
          choices={[...(offer.role_required ? [] : [{ value: '', label: 'the tenant\u2019s own' }]), ...offer.roles]} />
      )}
      {isDatabase && (
        <TextField label="Schema" value={draft.schema} onValue={(schema) => onDraft({ schema })}
          hint={offer.kind === 'mysql' ? 'The database; the tenant\u2019s own when empty.' : 'The search path; the role\u2019s own when empty.'} />
      )}
      {offer.kind === 'catalog' && (
        <TextField label="Namespaces" value={draft.namespaces} onValue={(namespaces) => onDraft({ namespaces })} placeholder="sales, web.logs"
          hint="Divided by commas; all of the warehouse when empty." />
      )}
      {offer.kind === 'http' && (
        <>
          <TextField label="Hosts" value={draft.hosts} onValue={(hosts) => onDraft({ hosts })} required placeholder="api.example.com"
            hint={`Divided by commas; below ${offer.hosts.join(', ').slice(0, 120)}.`} />
          {offer.secrets.length > 0 && (
            <SelectField label="Secret" value={draft.secret} onValue={(secret) => onDraft({ secret })}
              hint="Put into requests outside; programs never see it." choices={[{ value: '', label: 'none' }, ...offer.secrets]} />
          )}
          {draft.secret !== '' && <TextField label="Header of the secret" value={draft.header} onValue={(header) => onDraft({ header })} required />}
        </>
      )}
      {offer.kind === 'model' && (
        <>
          <TextField label="Models" value={draft.models} onValue={(models) => onDraft({ models })} hint="Divided by commas; every one when empty." />
          <TextField label="Tokens at most" type="number" min={1} value={draft.tokens} onValue={(tokens) => onDraft({ tokens })}
            hint={limits.model_tokens ? `The tenant has ${limits.model_tokens} in all.` : 'No limit when empty.'} />
          <TextField label="Dollars at most" type="number" min={0} step="any" value={draft.dollars} onValue={(dollars) => onDraft({ dollars })}
            hint={offer.priced_models.length > 0 ? `For models with a price: ${offer.priced_models.join(', ').slice(0, 120)}.` : 'No model has a price on this server.'} />
        </>
      )}
      <details>
        <summary>Port and limits</summary>
        <div class="grid">
          <TextField label="Port inside" type="number" min={1024} max={65535} value={draft.port} placeholder={String(offer.port)} onValue={(port) => onDraft({ port })} />
          {known && Object.entries(known).map(([name, value]) => (
            <TextField key={name} label={LIMITS[name] ?? name} type="number" min={0} step="any" placeholder={value === 0 ? 'no limit' : String(value)}
              value={draft.limits[name] ?? ''} onValue={(next) => onDraft({ limits: { ...draft.limits, [name]: next } })} />
          ))}
        </div>
      </details>
    </>
  );
}
