// Ctrl+K: pages, things by their id, actions. Screens add to it with `usePalette`, and for good by
// `actions` and `ids` of their line in the registry.
import { signal } from '@preact/signals';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Icon, Keys, type IconName } from './basics';
import { Dialog } from './overlay';
import { navigate } from './router';

export interface PaletteEntry {
  title: string;
  /** What it belongs to: `Page`, `Action`, `Session`. */
  group: string;
  icon?: IconName;
  keys?: string;
  /** Other words it is found by. */
  words?: string;
  to?: string;
  run?: () => void;
}

/** Finds entries for what is typed, such as tables of the catalog. */
export type PaletteSource = (text: string, signal: AbortSignal) => Promise<PaletteEntry[]>;

export const isPaletteOpen = signal(false);
const added = signal<PaletteEntry[][]>([]);
const sources = new Set<PaletteSource>();

/** Adds entries while the component is there. */
export function usePalette(entries: PaletteEntry[]): void {
  const latest = useRef(entries);
  latest.current = entries;
  useEffect(() => {
    const mine = entries.map((one, at) => ({ ...one, run: one.to ? undefined : () => latest.current[at]?.run?.() }));
    added.value = [...added.value, mine];
    return () => { added.value = added.value.filter((one) => one !== mine); };
  }, [entries.map((one) => one.title + (one.to ?? '')).join('|')]);
}

/** Adds a source that is asked while the user types. */
export function addPaletteSource(source: PaletteSource): () => void {
  sources.add(source);
  return () => sources.delete(source);
}

const SHOWN_MAX = 50;
const ASK_MS = 150;

/** How well `text` is found in an entry; null where it is not. */
function score(entry: PaletteEntry, text: string): number | null {
  const title = entry.title.toLowerCase();
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  let sum = 0;
  for (const word of words) {
    const at = title.indexOf(word);
    if (at === 0) sum += 3;
    else if (at > 0) sum += title[at - 1] === ' ' ? 2 : 1;
    else if (`${entry.group} ${entry.words ?? ''}`.toLowerCase().includes(word)) sum += 0.5;
    else return null;
  }
  return sum;
}

function Palette({ fixed, byId }: { fixed: () => PaletteEntry[]; byId: (text: string) => PaletteEntry[] }) {
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  const [found, setFound] = useState<PaletteEntry[]>([]);
  const list = useRef<HTMLUListElement>(null);
  const close = () => { isPaletteOpen.value = false; };
  const standing = useMemo(fixed, []);
  useEffect(() => {
    setFound([]);
    if (text.trim().length < 2) return undefined;
    const stop = new AbortController();
    const timer = setTimeout(() => {
      for (const source of sources) {
        source(text.trim(), stop.signal).then(
          (more) => { if (!stop.signal.aborted) setFound((before) => [...before, ...more]); },
          () => undefined, // A service that does not answer has nothing to offer.
        );
      }
    }, ASK_MS);
    return () => { clearTimeout(timer); stop.abort(); };
  }, [text]);
  const all = useMemo(() => {
    const known = [...added.value.flat().reverse(), ...standing];
    const scored = known.map((entry) => ({ entry, points: score(entry, text) }))
      .filter((it): it is { entry: PaletteEntry; points: number } => it.points !== null);
    if (text.trim() !== '') scored.sort((one, other) => other.points - one.points);
    return [...byId(text.trim()), ...scored.map((it) => it.entry), ...found].slice(0, SHOWN_MAX);
  }, [text, found, added.value]);
  useEffect(() => setAt(0), [text]);
  useEffect(() => { list.current?.children[at]?.scrollIntoView({ block: 'nearest' }); }, [at]);
  const pick = (entry: PaletteEntry | undefined) => {
    if (!entry) return;
    close();
    if (entry.to !== undefined) navigate(entry.to);
    else entry.run?.();
  };
  const onKey = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (step !== 0 && all.length > 0) setAt((at + step + all.length) % all.length);
    else if (event.key === 'Enter') pick(all[at]);
    else return;
    event.preventDefault();
  };
  return (
    <Dialog label="Go to or do" onClose={close} kind="top">
      <div class="palette">
        <div class="palette-input">
          <Icon name="search" />
          <input autofocus role="combobox" aria-expanded="true" aria-controls="palette-list" aria-label="Go to or do"
            aria-activedescendant={all[at] ? `palette-${at}` : undefined} placeholder="Page, name, id or action" value={text}
            autocomplete="off" spellcheck={false}
            onInput={(event) => setText(event.currentTarget.value)} onKeyDown={onKey} />
          <Keys keys="Esc" />
        </div>
        <ul id="palette-list" role="listbox" aria-label="Results" ref={list}>
          {all.map((entry, index) => (
            <li key={`${entry.group}:${entry.title}:${index}`} id={`palette-${index}`} role="option" aria-selected={index === at}
              onMouseMove={() => setAt(index)} onClick={() => pick(entry)}>
              <Icon name={entry.icon ?? 'chevron-right'} />
              <span class="ellipsis">{entry.title}</span>
              <small>{entry.group}</small>
              {entry.keys && <Keys keys={entry.keys} />}
            </li>
          ))}
        </ul>
        {all.length === 0 && <p class="muted pad">Nothing is called so. An id such as <code>ex_…</code> or <code>ses_…</code> leads to its page.</p>}
      </div>
    </Dialog>
  );
}

/** The palette; once, in the shell. */
export function PaletteHost(props: { fixed: () => PaletteEntry[]; byId: (text: string) => PaletteEntry[] }) {
  return isPaletteOpen.value ? <Palette {...props} /> : null;
}
