// Rights as they work out: who has what, by itself or through roles, and by which policies it is restricted.
import type { CatalogClient, CatalogPolicy, CatalogRole } from '../../schema';
import { joined, dotted, type CatalogGrant } from './model';

export type { CatalogClient, CatalogPolicy, CatalogRole } from '../../schema';

/** Names of objects; without a namespace the warehouse. */
export interface AccessScope { warehouse: string; namespace?: string[]; name?: string }

export const RIGHTS = [
  { right: 'read', hint: 'list, load, credentials' },
  { right: 'write', hint: 'read, and make, commit, set properties' },
  { right: 'manage', hint: 'write, and drop, rename' },
  { right: 'grant', hint: 'give and take back rights that one has' },
];

/** Rights that come with one. */
const IMPLIED: Record<string, string[]> = { manage: ['manage', 'write', 'read'], write: ['write', 'read'], read: ['read'], grant: ['grant'] };

export function withImplied(rights: string[]): string[] {
  const all = new Set(rights.flatMap((it) => IMPLIED[it] ?? [it]));
  return RIGHTS.map((it) => it.right).filter((it) => all.has(it));
}

/** Whether a grant holds for an object: on itself or on what it is in. */
export function holds(grant: CatalogGrant, { namespace, name }: AccessScope): boolean {
  const on = grant.namespace ?? [];
  if (grant.name) return grant.name === name && joined(on) === joined(namespace ?? []);
  return on.every((level, at) => namespace?.[at] === level);
}

/** Principals that a principal is as well, with the roles that lead there; roles may be in roles. */
export function standsFor(principal: string, roles: CatalogRole[]): Map<string, string[]> {
  const found = new Map<string, string[]>([[principal, []]]);
  for (const [one, way] of found) {
    for (const role of roles) {
      const id = `role:${role.name}`;
      if (role.members.includes(one) && !found.has(id)) found.set(id, [...way, role.name]);
    }
  }
  return found;
}

/** A right that somebody has, and where it comes from. */
export interface EffectiveGrant { grant: CatalogGrant; way: string[] }

/** Grants of a principal, its own and those of its roles. */
export function grantsOf(principal: string, grants: CatalogGrant[], roles: CatalogRole[]): EffectiveGrant[] {
  const is = standsFor(principal, roles);
  return grants.flatMap((grant) => {
    const way = is.get(grant.principal);
    return way === undefined ? [] : [{ grant, way }];
  });
}

export function policiesOf(principal: string, policies: CatalogPolicy[], roles: CatalogRole[]): CatalogPolicy[] {
  const is = standsFor(principal, roles);
  return policies.filter((it) => it.principal === '*' || is.has(it.principal));
}

export interface ObjectRight { principal: string; rights: string[]; sources: EffectiveGrant[] }

/** Who may what with an object, members of roles one by one. */
export function effectiveOn(scope: AccessScope, grants: CatalogGrant[], roles: CatalogRole[]): ObjectRight[] {
  const here = grants.filter((it) => holds(it, scope));
  const principals = new Set(here.map((it) => it.principal));
  for (const role of roles) for (const member of role.members) principals.add(member);
  const found = [...principals].map((principal) => {
    const sources = grantsOf(principal, here, roles);
    return { principal, rights: withImplied(sources.flatMap((it) => it.grant.rights)), sources };
  });
  return found.filter((it) => it.sources.length > 0).sort((one, other) => one.principal.localeCompare(other.principal));
}

/** All principals that grants, roles, clients and policies name. */
export function principalsOf(grants: CatalogGrant[], roles: CatalogRole[], clients: CatalogClient[], policies: CatalogPolicy[]): string[] {
  const all = [
    ...grants.map((it) => it.principal), ...clients.map((it) => it.principal), ...policies.map((it) => it.principal).filter((it) => it !== '*'),
    ...roles.flatMap((it) => [`role:${it.name}`, ...it.members]),
  ];
  return [...new Set(all)].sort((one, other) => one.localeCompare(other));
}

export const placeName = (grant: CatalogGrant): string => dotted(grant.namespace, grant.name);

export interface RightDifference { place: string; one: string[]; other: string[] }

/** Places at which two principals have other rights. What holds above a place counts there as well. */
export function differencesOf(one: EffectiveGrant[], other: EffectiveGrant[]): RightDifference[] {
  const places = new Map<string, AccessScope>();
  for (const { grant } of [...one, ...other]) {
    places.set(placeName(grant), { warehouse: '', namespace: grant.namespace ?? undefined, name: grant.name ?? undefined });
  }
  const at = (all: EffectiveGrant[], scope: AccessScope) => withImplied(all.filter((it) => holds(it.grant, scope)).flatMap((it) => it.grant.rights));
  const rows = [...places].map(([place, scope]) => ({ place, one: at(one, scope), other: at(other, scope) }));
  return rows.filter((it) => it.one.join() !== it.other.join()).sort((a, b) => a.place.localeCompare(b.place));
}
