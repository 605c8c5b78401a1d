// Editor and terminal, whose libraries are loaded when the first one is shown.
import { useEffect, useRef, useState } from 'preact/hooks';
import type { MountedEditor } from '../lazy/editor';
import type { OpenedTerminal } from '../lazy/terminal';
import { ErrorNote, Skeleton } from './basics';
import { nonce } from './base';
import { load } from './load';

/** Texts between a key and the render that follows it. */
const TYPED_MAX = 32;

/** An editor. Escape or F6 leaves it, because Tab indents. */
export function Editor({ text, language, label, onChange, onRun, onSave, isReadOnly = false }: {
  text: string; language: string; label: string; onChange?: (text: string) => void; onRun?: () => void;
  onSave?: () => void; isReadOnly?: boolean;
}) {
  const element = useRef<HTMLDivElement>(null);
  const editor = useRef<MountedEditor | null>(null);
  const [state, setState] = useState<'loading' | 'ready' | Error>('loading');
  const typed = useRef<string[]>([]);
  const latest = useRef({ text, onChange, onRun, onSave });
  latest.current = { text, onChange, onRun, onSave };
  useEffect(() => {
    let isGone = false;
    load(() => import('../lazy/editor')).then((module) => {
      if (isGone || !element.current) return;
      editor.current = module.mount(element.current, {
        text: latest.current.text,
        language,
        label: `${label}. Escape or F6 leaves the editor.`,
        nonce,
        isReadOnly,
        onChange: (next) => {
          typed.current = [...typed.current.slice(1 - TYPED_MAX), next];
          latest.current.onChange?.(next);
        },
        onRun: onRun && (() => latest.current.onRun?.()),
        onSave: onSave && (() => latest.current.onSave?.()),
      });
      setState('ready');
    }, (error: Error) => setState(error));
    return () => {
      isGone = true;
      editor.current?.destroy();
      editor.current = null;
    };
  }, []);
  useEffect(() => {
    // What was typed comes back as the text, later than the next key: only other texts are set.
    const at = typed.current.indexOf(text);
    if (at < 0) editor.current?.setText(text);
    else typed.current = typed.current.slice(at);
  }, [text, state]);
  useEffect(() => editor.current?.setLanguage(language), [language, state]);
  useEffect(() => editor.current?.setReadOnly(isReadOnly), [isReadOnly, state]);
  return (
    <div class="editor">
      {state === 'loading' && <Skeleton rows={6} />}
      {state instanceof Error && <ErrorNote error={state} title="The editor could not be loaded" />}
      <div class="editor-box" ref={element} />
    </div>
  );
}

/** What a terminal is told and asked. */
export interface TerminalHandle {
  /** Shows what a program wrote; `then` is called when that is done. */
  write(data: string | Uint8Array, then?: () => void): void;
  clear(): void;
  focus(): void;
  readonly rows: number;
  readonly cols: number;
}

function colours(): Record<string, string> {
  const style = getComputedStyle(document.documentElement);
  const names = ['background', 'foreground', 'cursor', 'black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'];
  const probe = document.createElement('span');
  document.body.append(probe);
  const found: Record<string, string> = {};
  for (const name of names) {
    if (style.getPropertyValue(`--term-${name}`) === '') continue;
    probe.style.color = `var(--term-${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  found.selectionBackground = 'rgba(128, 160, 200, 0.4)';
  return found;
}

/**
 * A terminal. What programs write goes to xterm.js alone; links are not opened and the clipboard is
 * not given to them (OSC 52).
 */
export function TerminalPane({ label, onReady, onInput, onResize, scrollback = 5000, isReadOnly = false }: {
  label: string;
  onReady: (handle: TerminalHandle) => (() => void) | void;
  onInput?: (data: string) => void;
  onResize?: (rows: number, cols: number) => void;
  scrollback?: number;
  isReadOnly?: boolean;
}) {
  const element = useRef<HTMLDivElement>(null);
  const [state, setState] = useState<'loading' | 'ready' | Error>('loading');
  const latest = useRef({ onInput, onResize });
  latest.current = { onInput, onResize };
  useEffect(() => {
    let isGone = false;
    let opened: OpenedTerminal | null = null;
    let leave: (() => void) | void;
    const observer = new ResizeObserver(() => opened?.fit());
    load(() => import('../lazy/terminal')).then((module) => {
      const box = element.current;
      if (isGone || !box) return;
      opened = module.open(box, nonce, {
        scrollback,
        fontFamily: getComputedStyle(document.documentElement).getPropertyValue('--mono'),
        fontSize: 13,
        lineHeight: 1.2,
        theme: colours(),
        cursorBlink: !isReadOnly,
        disableStdin: isReadOnly,
        convertEol: isReadOnly,
        screenReaderMode: localStorage.getItem('cove.screen-reader') === 'on',
        allowProposedApi: false,
        minimumContrastRatio: 4.5,
      });
      const { terminal } = opened;
      terminal.textarea?.setAttribute('aria-label', `${label}. F6 leaves the terminal.`);
      terminal.attachCustomKeyEventHandler((event) => {
        if (event.key === 'F6') return false;
        const isCopy = event.ctrlKey && event.shiftKey && event.key === 'C';
        if (isCopy && event.type === 'keydown' && terminal.hasSelection()) {
          event.preventDefault();
          void navigator.clipboard?.writeText(terminal.getSelection());
        }
        // The browser pastes by itself.
        return !(isCopy || (event.ctrlKey && event.shiftKey && event.key === 'V'));
      });
      terminal.onData((data) => latest.current.onInput?.(data));
      terminal.onBinary((data) => latest.current.onInput?.(data));
      terminal.onResize(({ rows, cols }) => latest.current.onResize?.(rows, cols));
      opened.fit();
      observer.observe(box);
      setState('ready');
      leave = onReady({
        write: (data, then) => terminal.write(data, then),
        clear: () => terminal.reset(),
        focus: () => terminal.focus(),
        get rows() { return terminal.rows; },
        get cols() { return terminal.cols; },
      });
    }, (error: Error) => setState(error));
    const recolour = () => { if (opened) opened.terminal.options.theme = colours(); };
    document.addEventListener('cove-theme', recolour);
    return () => {
      isGone = true;
      document.removeEventListener('cove-theme', recolour);
      observer.disconnect();
      if (typeof leave === 'function') leave();
      opened?.terminal.dispose();
    };
  }, []);
  return (
    <div class="terminal" role="group" aria-label={label}>
      {state === 'loading' && <Skeleton rows={4} />}
      {state instanceof Error && <ErrorNote error={state} title="The terminal could not be loaded" />}
      <div class="terminal-box" ref={element} />
    </div>
  );
}
