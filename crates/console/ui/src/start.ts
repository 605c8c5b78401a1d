// Runs before the first paint and before app.js is there: the theme, what the page shows until the
// script draws it, and what that will ask for first, so that both are on their way meanwhile.
import type { EarlyWhoami } from './kit/who';

/** Names of the files `screen-*.js`, as the build knows them. */
declare const SCREEN_NAMES: string[];
declare global {
  interface Window { earlyWhoami?: EarlyWhoami }
}

function stored(storage: () => Storage, key: string): string | null {
  try {
    return storage().getItem(key);
  } catch {
    // A browser that keeps nothing shows the system's theme, and the sign-in.
    return null;
  }
}

const root = document.documentElement;
const theme = stored(() => localStorage, 'cove.theme');
if (theme === 'light' || theme === 'dark') root.dataset.theme = theme;

const token = stored(() => sessionStorage, 'cove.token');
const self = (document.currentScript as HTMLScriptElement).src;
if (token !== null) {
  root.dataset.signed = 'in';
  const base = new URL('../../', self);
  const first = location.pathname.slice(base.pathname.length).split('/', 1)[0];
  const screen = first === '' || first === undefined ? 'home' : first;
  if (SCREEN_NAMES.includes(screen)) {
    const link = document.createElement('link');
    link.rel = 'modulepreload';
    link.href = new URL(`screen-${screen}.js`, self).href;
    document.head.append(link);
  }
  const asked = fetch(new URL('../v1/whoami', base), {
    headers: { authorization: `Bearer ${token}` }, credentials: 'omit', cache: 'no-store',
  });
  // Without an answer, app.js asks again, and says so.
  window.earlyWhoami = { token, answer: asked.then((response) => (response.ok ? response.json() : null), () => null) };
}
