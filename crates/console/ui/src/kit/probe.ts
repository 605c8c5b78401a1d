// For a server without `GET /v1/whoami`: finds out what a token may by asking.
import { ApiError, api, request } from './api';
import type { Whoami } from './who';

/** Routes that need a scope, asked for little. */
const PROBES: [string, string][] = [
  ['executions', '/v1/executions?limit=1'], ['sessions', '/v1/sessions?limit=1'], ['agents', '/v1/agents'],
  ['tokens', '/v1/credentials'], ['tenants', '/v1/tenants'], ['catalog', '/catalog/v1/config'],
];

async function isAllowed(path: string): Promise<boolean> {
  try {
    await request(path);
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status !== 401) {
      return ![403, 404, 501, 503].includes(error.status);
    }
    throw error;
  }
}

export async function probe(): Promise<Whoami> {
  const scopes: string[] = [];
  for (const [scope, path] of PROBES) if (await isAllowed(path)) scopes.push(scope);
  const operator = await isAllowed('/v1/nodes');
  const about = await api<{ info: { version: string } }>('/openapi.json', { isOpen: true });
  const has = (scope: string) => scopes.includes(scope);
  return {
    name: 'token', kind: 'token', tenant: null, scopes, operator, version: about.info.version, node: null,
    services: {
      executions: has('executions'), sessions: has('sessions'), bouncer: has('tenants'), catalog: has('catalog'),
      gateway: true, queue: has('executions'),
    },
  };
}
