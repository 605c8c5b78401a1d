// The frame of every page: navigation, banners, palette, keys, and the screen.
import { effect, signal } from '@preact/signals';
import type { ComponentType } from 'preact';
import { useEffect, useErrorBoundary, useLayoutEffect, useState } from 'preact/hooks';
import {
  ApiError, ErrorNote, Button, Icon, KeyHelp, Keys, Menu, Overlays, PaletteHost, Skeleton, awaySince, comebacks,
  currentPath, href, isHelpOpen, isOutdated, isPaletteOpen, isPaused, keepBeat, liveState, load, loadWho, logout, match,
  may, navigate, setToken, token, useKeys, who, type PaletteEntry, type ScreenEntry, type ScreenProps,
} from './kit';
import { recentEntries } from './finders';
import { SCREENS } from './registry';
import { SignIn, codeInAddress, signInWithCode } from './signin';
import { setTheme, theme } from './theme-switch';

const loaded = signal<Record<string, ComponentType<ScreenProps>>>({});

keepBeat(() => token.value !== null && liveState.value !== 'open');

function find(path: string): { entry: ScreenEntry; params: Record<string, string> } | null {
  for (const entry of SCREENS) {
    for (const pattern of entry.paths) {
      const params = match(pattern, path);
      if (params !== null) return { entry, params };
    }
  }
  return null;
}

function visible(): ScreenEntry[] {
  return SCREENS.filter((entry) => may(entry.need));
}

function Screen() {
  const path = currentPath.value;
  const found = find(path);
  const name = found?.entry.name ?? null;
  const [problem, setProblem] = useState<Error | null>(null);
  useEffect(() => {
    document.title = found ? `${found.entry.title} · Cove` : 'Cove';
    setProblem(null);
    if (found === null || loaded.value[found.entry.name]) return;
    load(found.entry.load).then(
      (module) => { loaded.value = { ...loaded.value, [found.entry.name]: module.default }; },
      (error: Error) => setProblem(error),
    );
  }, [name, comebacks.value]);
  if (found === null) {
    return (
      <div class="page">
        <h1>Nothing is here</h1>
        <p class="muted wrap">The console has no page <code>{path.slice(0, 200)}</code>.</p>
        <Button href="/" icon="house">Home</Button>
      </div>
    );
  }
  if (!may(found.entry.need)) {
    return (
      <div class="page">
        <h1>{found.entry.title}</h1>
        <p class="muted">
          {found.entry.need === 'operator'
            ? 'This page is for operators: sign in with a token without a tenant.'
            : <>This page needs a token with the scope <code>{found.entry.need}</code>, and a server on which the service is enabled.</>}
        </p>
      </div>
    );
  }
  if (problem !== null) return <div class="page"><ErrorNote error={problem} title="This page could not be loaded" onRetry={() => location.reload()} /></div>;
  const Component = loaded.value[found.entry.name];
  if (!Component) return <div class="page"><Skeleton rows={6} /></div>;
  return <Guarded key={found.entry.name} Component={Component} params={found.params} />;
}

function Guarded({ Component, params }: { Component: ComponentType<ScreenProps>; params: Record<string, string> }) {
  const [error, reset] = useErrorBoundary((problem: unknown) => console.error(problem));
  const path = currentPath.value;
  useEffect(() => { if (error) reset(); }, [path]);
  if (error) return <div class="page"><ErrorNote error={error} title="This page failed" onRetry={reset} /></div>;
  return <Component params={params} />;
}

function Banner() {
  const since = awaySince.value;
  if (isOutdated.value) {
    return (
      <div class="banner warn" role="status">
        <Icon name="info" /> The server has another version of this console now.
        <Button onClick={() => location.reload()}>Reload</Button>
      </div>
    );
  }
  if (since !== null) {
    return (
      <div class="banner bad" role="status">
        <Icon name="circle-alert" /> The server does not answer. What is shown is old; this page goes on by itself when it is back.
      </div>
    );
  }
  if (isPaused.value) {
    return (
      <div class="banner" role="status">
        <Icon name="pause" /> Lists stand still.
        <Button onClick={() => { isPaused.value = false; }}>Go on</Button>
      </div>
    );
  }
  return null;
}

function Navigation({ onGo }: { onGo: () => void }) {
  const path = currentPath.value;
  const entries = visible();
  const current = find(path)?.entry.name;
  const link = (entry: ScreenEntry, isBelow: boolean) => (
    <li key={entry.name}>
      <a href={href(entry.paths[0]!)} class={isBelow ? 'below' : ''} aria-current={entry.name === current ? 'page' : undefined}
        onClick={onGo} title={entry.keys ? `${entry.title} (${entry.keys})` : entry.title}>
        <Icon name={entry.icon} /><span>{entry.title}</span>
      </a>
    </li>
  );
  return (
    <nav aria-label="Main">
      <ul>
        {entries.filter((entry) => entry.nav === 'own').flatMap((entry) => [
          link(entry, false),
          ...entries.filter((it) => typeof it.nav === 'object' && it.nav?.below === entry.name).map((it) => link(it, true)),
        ])}
      </ul>
    </nav>
  );
}

function Account() {
  const it = who.value;
  const next = theme.value === 'light' ? 'dark' : theme.value === 'dark' ? null : 'light';
  return (
    <div class="account">
      <Menu kind="quiet" icon="settings" label="Account and settings" items={[
        { label: `Theme: ${theme.value ?? 'as the system'}`, icon: theme.value === 'dark' ? 'moon' : theme.value === 'light' ? 'sun' : 'monitor', onClick: () => setTheme(next) },
        { label: isPaused.value ? 'Go on updating lists' : 'Have lists stand still', icon: isPaused.value ? 'play' : 'pause', onClick: () => { isPaused.value = !isPaused.value; } },
        { label: 'Keyboard', icon: 'keyboard', keys: '?', onClick: () => { isHelpOpen.value = true; } },
        { label: 'Documentation', icon: 'code', onClick: () => window.open(new URL('../docs/', new URL(href('/'), location.href)), '_blank', 'noopener') },
        { label: 'Licences', icon: 'scroll-text', onClick: () => window.open(href('/licences'), '_blank', 'noopener') },
        { label: 'Sign out', icon: 'log-out', onClick: () => logout() },
      ]} />
      <div class="account-name">
        <span class="ellipsis" title={it?.name}>{it?.name ?? ''}</span>
        <small class="ellipsis">{it?.operator ? 'operator' : it?.tenant ?? ''}{it ? ` · ${it.version}` : ''}</small>
      </div>
    </div>
  );
}

function byId(text: string): PaletteEntry[] {
  const found: PaletteEntry[] = [];
  for (const entry of visible()) {
    for (const { prefix, group, to } of entry.ids ?? []) {
      if (text.startsWith(prefix) && text.length > prefix.length && /^[\w-]+$/.test(text)) {
        found.push({ title: text, group, icon: entry.icon, to: to(text) });
      }
    }
  }
  return found;
}

function fixedEntries(): PaletteEntry[] {
  const pages = visible().filter((entry) => entry.nav !== null)
    .map((entry): PaletteEntry => ({ title: entry.title, group: 'Page', icon: entry.icon, keys: entry.keys, to: entry.paths[0] }));
  return [
    ...recentEntries(),
    ...pages,
    ...visible().flatMap((entry) => entry.actions ?? []),
    { title: 'Use the light theme', group: 'Action', icon: 'sun', run: () => setTheme('light') },
    { title: 'Use the dark theme', group: 'Action', icon: 'moon', run: () => setTheme('dark') },
    { title: 'Use the theme of the system', group: 'Action', icon: 'monitor', run: () => setTheme(null) },
    { title: isPaused.value ? 'Go on updating lists' : 'Have lists stand still', group: 'Action', icon: 'pause', words: 'pause live refresh', run: () => { isPaused.value = !isPaused.value; } },
    { title: 'Show the keys', group: 'Action', icon: 'keyboard', keys: '?', words: 'keyboard help shortcuts', run: () => { isHelpOpen.value = true; } },
    { title: 'Sign out', group: 'Action', icon: 'log-out', run: () => void logout() },
  ];
}

function Frame() {
  const [isOpen, setOpen] = useState(false);
  useKeys([
    { keys: 'Ctrl+K', title: 'go to a page, a thing by its name or id, or an action', run: () => { isPaletteOpen.value = !isPaletteOpen.value; } },
    { keys: '?', title: 'show the keys', run: () => { isHelpOpen.value = true; } },
    { keys: '/', title: 'search in this page', run: () => document.querySelector<HTMLElement>('[data-search]')?.focus() },
    ...visible().filter((entry) => entry.keys).map((entry) => ({
      keys: entry.keys!, title: `go to ${entry.title}`, run: () => navigate(entry.paths[0]!),
    })),
  ]);
  return (
    <div class={`frame ${isOpen ? 'nav-open' : ''}`}>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById('main')?.focus(); }}>Skip to the content</a>
      <header class="side">
        <div class="brand">
          <a href={href('/')} class="logo" aria-label="Cove, home"><Logo /><span>Cove</span></a>
          <Button kind="quiet" class="nav-toggle" icon={isOpen ? 'x' : 'list'} label={isOpen ? 'Close the navigation' : 'Open the navigation'} onClick={() => setOpen(!isOpen)} />
        </div>
        <div class="side-body">
          <button type="button" class="search-button" onClick={() => { isPaletteOpen.value = true; }}>
            <Icon name="search" size={14} /><span>Go to…</span><Keys keys="Ctrl+K" />
          </button>
          <Navigation onGo={() => setOpen(false)} />
          <Account />
        </div>
      </header>
      <div class="content">
        <Banner />
        <main id="main" tabIndex={-1}><Screen /></main>
      </div>
      <PaletteHost fixed={fixedEntries} byId={byId} />
      <KeyHelp />
    </div>
  );
}

export function Logo({ size = 22 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 24 24" aria-hidden="true">
      <rect width="24" height="24" rx="6" fill="var(--accent)" />
      <path d="M16.5 8.2A5.6 5.6 0 1 0 16.5 15.8" fill="none" stroke="white" stroke-width="2.6" stroke-linecap="round" />
    </svg>
  );
}

/** Why the server refuses what it knows the token for; null while there is nothing to say. */
const refused = signal<Error | null>(null);

effect(() => {
  // Again when the token changes and when the server comes back.
  void comebacks.value;
  if (token.value === null || who.peek() !== null) return;
  refused.value = null;
  loadWho().catch((error: Error) => {
    if (!(error instanceof ApiError && error.status === 401)) refused.value = error;
  });
});

const code = codeInAddress();
if (code !== null) void signInWithCode(code);

// The screen is fetched while the server is asked who this is, so that the first picture has both.
if (token.value !== null) {
  const entry = find(currentPath.value)?.entry;
  entry?.load().then(({ default: first }) => { loaded.value = { ...loaded.value, [entry.name]: first }; }, () => undefined);
}

export function Shell() {
  const isRefused = refused.value instanceof ApiError;
  const isDrawn = token.value === null || who.value !== null || isRefused;
  // index.html has what stands there until there is something to draw.
  useLayoutEffect(() => { if (isDrawn) document.getElementById('start')?.remove(); }, [isDrawn]);
  if (token.value === null) return <><Banner /><SignIn /><Overlays /></>;
  if (who.value === null) {
    return (
      <>
        <Banner />
        {isRefused && (
          <div class="start"><ErrorNote error={refused.value!} title="The server does not say who this is" onRetry={() => setToken(null)} /></div>
        )}
        {!isRefused && document.getElementById('start') === null && <div class="start"><Skeleton rows={5} /></div>}
        <Overlays />
      </>
    );
  }
  return <><Frame /><Overlays /></>;
}
