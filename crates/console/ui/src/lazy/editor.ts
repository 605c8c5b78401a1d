// CodeMirror, loaded when the first editor is shown.
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import {
  HighlightStyle, StreamLanguage, bracketMatching, indentOnInput, indentUnit, syntaxHighlighting,
  type StreamParser,
} from '@codemirror/language';
import { c, cpp, csharp, java, kotlin, scala } from '@codemirror/legacy-modes/mode/clike';
import { go } from '@codemirror/legacy-modes/mode/go';
import { javascript, json, typescript } from '@codemirror/legacy-modes/mode/javascript';
import { perl } from '@codemirror/legacy-modes/mode/perl';
import { python } from '@codemirror/legacy-modes/mode/python';
import { ruby } from '@codemirror/legacy-modes/mode/ruby';
import { rust } from '@codemirror/legacy-modes/mode/rust';
import { shell } from '@codemirror/legacy-modes/mode/shell';
import { standardSQL } from '@codemirror/legacy-modes/mode/sql';
import { toml } from '@codemirror/legacy-modes/mode/toml';
import { yaml } from '@codemirror/legacy-modes/mode/yaml';
import { highlightSelectionMatches, search, searchKeymap } from '@codemirror/search';
import { Compartment, EditorState } from '@codemirror/state';
import {
  EditorView, drawSelection, highlightActiveLine, highlightActiveLineGutter, keymap, lineNumbers,
} from '@codemirror/view';
import { tags } from '@lezer/highlight';

const MODES: Record<string, StreamParser<unknown>> = {
  bash: shell, sh: shell, c, cpp, csharp, java, kotlin, scala, go, javascript, js: javascript, json,
  typescript, ts: typescript, perl, python, py: python, ruby, rust, rs: rust, sql: standardSQL, toml,
  yaml, yml: yaml,
} as Record<string, StreamParser<unknown>>;

const colours = HighlightStyle.define([
  { tag: tags.comment, color: 'var(--code-comment)' },
  { tag: [tags.keyword, tags.modifier, tags.operatorKeyword], color: 'var(--code-keyword)' },
  { tag: [tags.string, tags.special(tags.string)], color: 'var(--code-string)' },
  { tag: [tags.number, tags.bool, tags.atom], color: 'var(--code-number)' },
  { tag: [tags.definition(tags.variableName), tags.function(tags.variableName)], color: 'var(--code-name)' },
  { tag: [tags.typeName, tags.className, tags.standard(tags.variableName)], color: 'var(--code-type)' },
  { tag: [tags.propertyName, tags.meta], color: 'var(--code-name)' },
]);

const look = EditorView.theme({
  '&': { height: '100%', fontSize: '13px', backgroundColor: 'transparent', color: 'var(--text)' },
  '&.cm-focused': { outline: 'none' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.55' },
  '.cm-content': { caretColor: 'var(--text)', padding: '8px 0' },
  '.cm-gutters': { backgroundColor: 'transparent', color: 'var(--text-3)', border: 'none' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'var(--hover)' },
  '.cm-activeLineGutter': { color: 'var(--text-2)' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '&.cm-focused .cm-selectionBackground, .cm-selectionBackground, ::selection': {
    backgroundColor: 'var(--selection) !important',
  },
  '.cm-panels': { backgroundColor: 'var(--surface-2)', color: 'var(--text)', borderColor: 'var(--line)' },
  '.cm-textfield, .cm-button': { backgroundImage: 'none', font: 'inherit', color: 'inherit' },
});

/** What an editor is made of. */
export interface EditorSettings {
  text: string;
  language: string;
  label: string;
  nonce: string;
  isReadOnly: boolean;
  /** Called with the text after each change by the user. */
  onChange(text: string): void;
  /** Called for Ctrl+Enter. */
  onRun?(): void;
  /** Called for Ctrl+S. */
  onSave?(): void;
}

/** An editor in an element. */
export interface MountedEditor {
  setText(text: string): void;
  setLanguage(language: string): void;
  setReadOnly(isReadOnly: boolean): void;
  focus(): void;
  destroy(): void;
}

export function mount(element: HTMLElement, settings: EditorSettings): MountedEditor {
  const language = new Compartment();
  const readOnly = new Compartment();
  const mode = (name: string) => {
    const found = MODES[name.toLowerCase()];
    return found ? StreamLanguage.define(found) : [];
  };
  const only = (is: boolean) => [EditorState.readOnly.of(is), EditorView.editable.of(!is)];
  const calling = (call?: () => void) => () => {
    call?.();
    return call !== undefined;
  };
  let isSilent = false;
  const view = new EditorView({
    parent: element,
    state: EditorState.create({
      doc: settings.text,
      extensions: [
        EditorView.cspNonce.of(settings.nonce),
        keymap.of([
          { key: 'Mod-Enter', run: calling(settings.onRun), preventDefault: true },
          { key: 'Mod-s', run: calling(settings.onSave), preventDefault: settings.onSave !== undefined },
          // Tab indents, so another key has to lead out (WCAG 2.1.2); the label says which.
          { key: 'Escape', run: (it) => { it.contentDOM.blur(); return true; } },
          indentWithTab, ...defaultKeymap, ...historyKeymap, ...searchKeymap,
        ]),
        history(), drawSelection(), lineNumbers(), highlightActiveLine(), highlightActiveLineGutter(),
        bracketMatching(), indentOnInput(), indentUnit.of('    '), search({ top: true }),
        highlightSelectionMatches(), syntaxHighlighting(colours), look,
        language.of(mode(settings.language)),
        readOnly.of(only(settings.isReadOnly)),
        EditorView.contentAttributes.of({ 'aria-label': settings.label }),
        EditorView.updateListener.of((update) => {
          if (update.docChanged && !isSilent) settings.onChange(update.state.doc.toString());
        }),
      ],
    }),
  });
  return {
    setText(text) {
      if (text === view.state.doc.toString()) return;
      isSilent = true;
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
      isSilent = false;
    },
    setLanguage: (name) => view.dispatch({ effects: language.reconfigure(mode(name)) }),
    setReadOnly: (is) => view.dispatch({ effects: readOnly.reconfigure(only(is)) }),
    focus: () => view.focus(),
    destroy: () => view.destroy(),
  };
}
