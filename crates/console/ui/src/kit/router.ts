// Pages and their state, on the History API. Everything that a list shows is in the query, so that
// a link shows the same.
import { computed, signal } from '@preact/signals';
import { useCallback } from 'preact/hooks';
import { consolePath } from './base';

interface Place {
  /** Path below the console, from `/`. */
  path: string;
  query: URLSearchParams;
  /** Behind `#`, without it. */
  fragment: string;
}

function read(): Place {
  const { pathname, search, hash } = window.location;
  const below = pathname.startsWith(consolePath) ? pathname.slice(consolePath.length) : '/';
  const path = below.length > 1 ? below.replace(/\/$/, '') : '/';
  return { path, query: new URLSearchParams(search), fragment: hash.slice(1) };
}

/** Where the user is. */
export const place = signal<Place>(read());
export const currentPath = computed(() => place.value.path);

window.addEventListener('popstate', () => { place.value = read(); });
window.addEventListener('hashchange', () => { place.value = read(); });

/** Returns the address of a place of the console. */
export function href(to: string): string {
  return consolePath + to;
}

/** Goes to a place of the console: a path, with its query. */
export function navigate(to: string, options: { replace?: boolean } = {}): void {
  if (options.replace) history.replaceState(null, '', href(to));
  else history.pushState(null, '', href(to));
  const before = place.value.path;
  place.value = read();
  if (place.value.path !== before) window.scrollTo(0, 0);
}

/** Changes parameters of the query; null and '' remove one. */
export function setQuery(changes: Record<string, string | null>, options: { push?: boolean } = {}): void {
  const query = new URLSearchParams(place.value.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === '') query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  const fragment = place.value.fragment === '' ? '' : `#${place.value.fragment}`;
  navigate(`${place.value.path}${text === '' ? '' : `?${text}`}${fragment}`, { replace: !options.push });
}

/** A parameter of the query and how to change it. */
export function useQuery(name: string, initial = ''): [string, (value: string) => void] {
  const value = place.value.query.get(name) ?? initial;
  const set = useCallback((next: string) => setQuery({ [name]: next === initial ? null : next }), [name]);
  return [value, set];
}

/**
 * Matches a path with a pattern such as `/executions/:id` or `/catalog/*` (the rest as `rest`);
 * returns the decoded parts, or null.
 */
export function match(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split('/').filter(Boolean);
  const given = path.split('/').filter(Boolean);
  const found: Record<string, string> = {};
  for (const [at, part] of wanted.entries()) {
    if (part === '*') {
      found.rest = given.slice(at).join('/');
      return found;
    }
    const value = given[at];
    if (value === undefined) return null;
    if (part.startsWith(':')) {
      try {
        found[part.slice(1)] = decodeURIComponent(value);
      } catch {
        return null;
      }
    } else if (part !== value) return null;
  }
  return wanted.length === given.length ? found : null;
}

// Links inside the console do not load the page again.
document.addEventListener('click', (event) => {
  if (event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const anchor = (event.target as Element | null)?.closest?.('a');
  if (!anchor || anchor.target || anchor.hasAttribute('download')) return;
  const address = new URL(anchor.href, window.location.href);
  if (address.origin !== window.location.origin) return;
  if (address.pathname !== consolePath && !address.pathname.startsWith(`${consolePath}/`)) return;
  if (/\/(assets|licences)(\/|$)/.test(address.pathname.slice(consolePath.length))) return;
  event.preventDefault();
  navigate(address.pathname.slice(consolePath.length) + address.search + address.hash);
});
