// Keys of the whole console, and the help that lists them. Single keys rest while something is
// typed (WCAG 2.1.4).
import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { Dialog } from './overlay';
import { Keys } from './basics';

export interface Shortcut {
  /** `g e`, `/`, `?`, `Ctrl+K`; Ctrl stands for Command on a Mac. */
  keys: string;
  title: string;
  run: () => void;
}

const shortcuts = signal<Shortcut[]>([]);
export const isHelpOpen = signal(false);

/** Time that a first key such as `g` waits for the second. */
const SEQUENCE_MS = 1200;
let first = '';
let firstAt = 0;

/** Adds keys while the component is there. */
export function useKeys(list: Shortcut[]): void {
  const latest = useRef(list);
  latest.current = list;
  useEffect(() => {
    const added = list.map((one, at): Shortcut => ({ ...one, run: () => latest.current[at]?.run() }));
    shortcuts.value = [...shortcuts.value, ...added];
    return () => { shortcuts.value = shortcuts.value.filter((one) => !added.includes(one)); };
  }, [list.map((one) => one.keys).join('|')]);
}

function isTyping(target: EventTarget | null): boolean {
  const element = target as HTMLElement | null;
  return element?.closest?.('input, textarea, select, [contenteditable=true], .xterm, .editor') !== null
    && element?.closest !== undefined;
}

function nameOf(event: KeyboardEvent): string {
  const key = event.key.length === 1 ? event.key.toUpperCase() : event.key;
  if (event.ctrlKey || event.metaKey) return `Ctrl+${event.shiftKey ? 'Shift+' : ''}${key}`;
  return event.key;
}

document.addEventListener('keydown', (event) => {
  if (event.defaultPrevented || event.isComposing || event.altKey) return;
  const name = nameOf(event);
  // Out of a terminal or an editor, where Tab is a key like any other (WCAG 2.1.2).
  if (event.key === 'F6' || name === 'Ctrl+Shift+Escape') {
    const inside = (event.target as HTMLElement).closest?.('.xterm, .editor');
    if (inside) {
      event.preventDefault();
      (event.target as HTMLElement).blur();
      document.querySelector<HTMLElement>('main')?.focus();
    }
    return;
  }
  const isModified = name.startsWith('Ctrl+');
  if (!isModified && (isTyping(event.target) || document.querySelector('dialog[open]'))) return;
  const isSequence = first !== '' && Date.now() - firstAt < SEQUENCE_MS;
  const wanted = isSequence && !isModified ? `${first} ${name}` : name;
  first = '';
  // The latest first: a page may take a key of the shell.
  const found = [...shortcuts.value].reverse().find((one) => one.keys === wanted);
  if (found) {
    event.preventDefault();
    found.run();
  } else if (!isModified && shortcuts.value.some((one) => one.keys.startsWith(`${name} `))) {
    first = name;
    firstAt = Date.now();
  }
});

/** The list of all keys there are now. */
export function KeyHelp() {
  if (!isHelpOpen.value) return null;
  const fixed: [string, string][] = [
    ['Enter', 'open the row that has the focus'], ['j', 'next row (also the arrow keys, PageDown, End)'],
    ['k', 'row before'], ['F6', 'leave an editor or a terminal'], ['Escape', 'close what is open'],
  ];
  const all = [...new Map(shortcuts.value.map((one): [string, string] => [one.keys, one.title])), ...fixed];
  return (
    <Dialog title="Keyboard" onClose={() => { isHelpOpen.value = false; }}>
      <dl class="key-list">
        {all.map(([keys, title]) => <div key={keys}><dt><Keys keys={keys} /><span class="offscreen">{keys}</span></dt><dd>{title}</dd></div>)}
      </dl>
    </Dialog>
  );
}
