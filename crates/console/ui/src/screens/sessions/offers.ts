// Offers of grants as the gateway lists them, and the grants that a form makes of them.
import type { GrantAccess, OfferedGrant } from '../../schema';
import type { Grant } from './model';

export type { GrantCheckReport, GrantOfferList, OfferedGrant } from '../../schema';

/** What is typed into the form; everything is a text until a grant is made of it. */
export interface Draft {
  access: GrantAccess;
  role: string;
  schema: string;
  namespaces: string;
  hosts: string;
  secret: string;
  header: string;
  models: string;
  tokens: string;
  dollars: string;
  port: string;
  limits: Record<string, string>;
}

export function emptyDraft(offer: OfferedGrant): Draft {
  return {
    access: 'read_only', role: (offer.kind === 'postgres' || offer.kind === 'mysql') && offer.role_required ? offer.roles[0] ?? '' : '',
    schema: '', namespaces: '', hosts: offer.kind === 'http' ? offer.hosts.filter((it) => it !== '*').join(', ') : '',
    secret: '', header: 'authorization', models: '', tokens: '', dollars: '', port: '', limits: {},
  };
}

/** Why it cannot be granted at present; null when it can be. */
export function unavailableBecause(offer: OfferedGrant): string | null {
  return 'unavailable' in offer ? offer.unavailable ?? null : null;
}

export function labelOfOffer(offer: OfferedGrant): string {
  switch (offer.kind) {
    case 'postgres': case 'mysql': return `${offer.kind}:${offer.tenant}`;
    case 'catalog': return `catalog:${offer.warehouse}`;
    case 'http': return `http:${offer.hosts.join(',')}`;
    case 'model': return 'model';
  }
}

function words(text: string): string[] {
  return text.split(',').map((it) => it.trim()).filter((it) => it !== '');
}

/** A number as it was typed; what is none is sent as it is, so that the server says so. */
function numbersOf(limits: Record<string, string>): Record<string, number | string> | undefined {
  const said = Object.entries(limits).filter(([, text]) => text.trim() !== '')
    .map(([name, text]) => [name, Number.isFinite(Number(text)) ? Number(text) : text] as const);
  return said.length === 0 ? undefined : Object.fromEntries(said);
}

function some<T>(name: string, value: T | undefined | ''): Record<string, T> {
  return value === undefined || value === '' ? {} : { [name]: value as T };
}

/** The grant that a draft of an offer says. */
export function grantOf(offer: OfferedGrant, draft: Draft): Grant {
  const port = some('port', draft.port.trim() === '' ? undefined : Number(draft.port));
  const limits = some('limits', numbersOf(draft.limits));
  switch (offer.kind) {
    case 'postgres': case 'mysql':
      return {
        kind: offer.kind, tenant: offer.tenant, access: draft.access, ...some('role', draft.role), ...some('schema', draft.schema.trim()),
        ...port, ...limits,
      };
    case 'catalog': {
      const namespaces = words(draft.namespaces);
      return { kind: 'catalog', warehouse: offer.warehouse, access: draft.access, ...(namespaces.length > 0 ? { namespaces } : {}), ...port };
    }
    case 'http': {
      const headers = draft.secret === '' ? {} : { headers: { [draft.header.trim()]: { secret: draft.secret } }, tls: true };
      const ports = offer.ports.length === 0 || String(offer.ports) === '80,443' ? {} : { ports: offer.ports };
      return { kind: 'http', rules: [{ hosts: words(draft.hosts), ...ports, ...headers }], ...port, ...limits };
    }
    case 'model': {
      const models = words(draft.models);
      return {
        kind: 'model', ...(models.length > 0 ? { models } : {}), ...some('tokens', draft.tokens.trim() === '' ? undefined : Number(draft.tokens)),
        ...some('dollars', draft.dollars.trim() === '' ? undefined : Number(draft.dollars)), ...port,
      };
    }
  }
}

/** Grants of a text of JSON: one, or a list of them. */
export function grantsOfText(text: string): Grant[] {
  const said: unknown = JSON.parse(text);
  return Array.isArray(said) ? said as Grant[] : [said as Grant];
}
