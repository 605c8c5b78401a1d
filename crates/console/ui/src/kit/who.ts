// Who is signed in, and what that token may see.
import { computed, signal } from '@preact/signals';
import { api, request, setToken, token } from './api';
import type { Whoami } from '../schema';

export type { Whoami };

export const who = signal<Whoami | null>(null);

/** Conditions of a page: a scope, `operator`, or none. */
export type Need = 'executions' | 'sessions' | 'agents' | 'tokens' | 'tenants' | 'catalog' | 'operator' | null;

const SERVICE_OF: Partial<Record<string, keyof Whoami['services']>> = {
  executions: 'executions', sessions: 'sessions', agents: 'sessions', tenants: 'bouncer', catalog: 'catalog',
};

/** Whether the token has what a page needs, and the server the service. */
export function may(need: Need): boolean {
  const it = who.value;
  if (it === null || need === null) return it !== null;
  if (need === 'operator') return it.operator;
  const service = SERVICE_OF[need];
  return it.scopes.includes(need) && (service === undefined || it.services[service] !== false);
}

export const isOperator = computed(() => who.value?.operator ?? false);

/** What `start.ts` asked before this script was there: null where the answer was no good. */
export interface EarlyWhoami { token: string; answer: Promise<Whoami | null> }

/** The early answer, once, and only for the token that it was asked with. */
async function early(): Promise<Whoami | null> {
  const asked = window.earlyWhoami;
  delete window.earlyWhoami;
  if (asked === undefined || asked.token !== token.value) return null;
  const it = await asked.answer;
  return asked.token === token.value ? it : null;
}

/** Asks who this tab is; throws what the server refuses it with. */
export async function loadWho(): Promise<Whoami> {
  const it = await early() ?? await api<Whoami>('/v1/whoami');
  who.value = it;
  return it;
}

/** Signs in with a one-time code. */
export async function loginWithCode(code: string): Promise<void> {
  const { token: made } = await api<{ token: string }>('/v1/console/login', { json: { code }, isOpen: true });
  setToken(made);
}

/** Signs in with a token that was pasted, when the server knows it. */
export async function loginWithToken(text: string): Promise<void> {
  await request('/v1/whoami', { isOpen: true, headers: { authorization: `Bearer ${text}` } });
  setToken(text);
}

/** Ends the sign-in, here and at the server. */
export async function logout(): Promise<void> {
  if (who.value?.kind === 'console') {
    // Gone already is as good.
    await api('/v1/console/logout', { method: 'POST' }).catch(() => undefined);
  }
  who.value = null;
  setToken(null);
}

token.subscribe((value) => {
  if (value === null) who.value = null;
});
