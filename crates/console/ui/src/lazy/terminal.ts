// xterm.js, loaded when the first terminal is opened.
import { FitAddon } from '@xterm/addon-fit';
import { Terminal } from '@xterm/xterm';

export type { Terminal } from '@xterm/xterm';

/** A terminal in an element. */
export interface OpenedTerminal {
  terminal: Terminal;
  /** Fits rows and columns to the element. */
  fit(): void;
}

/**
 * Opens a terminal in `element`. xterm.js makes style elements and takes no nonce, so those that it
 * makes while it opens are stamped before they are inserted
 * (https://github.com/xtermjs/xterm.js/issues/4445).
 */
export function open(
  element: HTMLElement,
  nonce: string,
  options: ConstructorParameters<typeof Terminal>[0],
): OpenedTerminal {
  const terminal = new Terminal(options);
  const fitting = new FitAddon();
  terminal.loadAddon(fitting);
  const original = document.createElement;
  document.createElement = function stamped(this: Document, name: string, more?: unknown) {
    const made = original.call(this, name, more as ElementCreationOptions);
    if (name.toLowerCase() === 'style') made.nonce = nonce;
    return made;
  } as typeof document.createElement;
  try {
    terminal.open(element);
  } finally {
    document.createElement = original;
  }
  return { terminal, fit: () => fitting.fit() };
}
