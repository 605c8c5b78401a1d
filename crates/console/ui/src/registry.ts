// Every screen, in the order of the navigation. A screen is a file of `screens/` and a line here.
import type { ScreenEntry } from './kit';

export const SCREENS: ScreenEntry[] = [
  // home
  {
    name: 'home', title: 'Home', icon: 'house', need: null, paths: ['/'], nav: 'own', keys: 'g h',
    load: () => import('./screens/home'),
  },

  // playground
  {
    name: 'playground', title: 'Playground', icon: 'play', need: 'executions', paths: ['/playground'], nav: 'own',
    keys: 'g p', load: () => import('./screens/playground'),
    actions: [{ title: 'Run a program', group: 'Action', icon: 'play', to: '/playground', words: 'execute new code' }],
  },

  // executions
  {
    name: 'executions', title: 'Executions', icon: 'list', need: 'executions',
    paths: ['/executions', '/executions/:id'], nav: 'own', keys: 'g e', load: () => import('./screens/executions'),
    ids: [{ prefix: 'ex_', group: 'Execution', to: (id) => `/executions/${id}` }],
  },
  {
    name: 'queue', title: 'Queue', icon: 'hourglass', need: 'executions', paths: ['/queue'], nav: { below: 'executions' },
    keys: 'g q', load: () => import('./screens/queue'),
  },

  // sessions
  {
    name: 'sessions', title: 'Sessions', icon: 'terminal', need: 'sessions', paths: ['/sessions', '/sessions/:id'], nav: 'own',
    keys: 'g s', load: () => import('./screens/sessions'),
    ids: [{ prefix: 'ses_', group: 'Sessions', to: (id) => `/sessions/${encodeURIComponent(id)}` }],
  },

  // agents
  {
    name: 'agents', title: 'Agents', icon: 'bot', need: 'agents', paths: ['/agents', '/agents/:name'], nav: { below: 'sessions' },
    keys: 'g a', load: () => import('./screens/agents'),
  },

  // databases
  {
    name: 'databases', title: 'Databases', icon: 'database', need: 'tenants', paths: ['/databases', '/databases/:name'], nav: 'own',
    keys: 'g d', load: () => import('./screens/databases'),
  },

  // catalog
  {
    name: 'catalog', title: 'Catalog', icon: 'table-2', need: 'catalog', paths: ['/catalog', '/catalog/*'], nav: 'own',
    keys: 'g c', load: () => import('./screens/catalog'),
  },

  // access log
  {
    name: 'access', title: 'Access log', icon: 'scroll-text', need: 'sessions', paths: ['/access'], nav: 'own', keys: 'g l',
    load: () => import('./screens/access'),
  },

  // system
  {
    name: 'system', title: 'System', icon: 'server-cog', need: 'operator', paths: ['/system'], nav: 'own', keys: 'g y',
    load: () => import('./screens/system'),
  },
];
