// What is over the page: dialogs, drawers, menus, toasts. Dialogs are the browser's own, which
// brings the focus trap, Escape and the return of the focus.
import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { messageOf } from './api';
import { Button, Icon, Keys, type IconName, type Tone } from './basics';
import { href as toHref } from './router';

/** A dialog; `kind` says where it is. */
export function Dialog({ title, onClose, children, kind = 'middle', actions, label }: {
  title?: ComponentChildren; onClose: () => void; children: ComponentChildren;
  kind?: 'middle' | 'wide' | 'drawer' | 'top'; actions?: ComponentChildren;
  /** Where there is no title. */
  label?: string;
}) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    if (dialog && !dialog.open) dialog.showModal();
    // Whoever opens a form wants its first field and not the button that closes it.
    if (document.activeElement?.closest('.dialog-head')) {
      dialog?.querySelector<HTMLElement>('.dialog-body :is(input, select, textarea):not([type=hidden], :disabled)')?.focus();
    }
    return () => {
      dialog?.close();
      // The browser gives the focus back only where the dialog is still in the document.
      if (document.activeElement !== document.body || !(before instanceof HTMLElement)) return;
      if (before.isConnected) before.focus();
      else document.querySelector<HTMLElement>('main')?.focus();
    };
  }, []);
  return (
    <dialog ref={element} class={`dialog ${kind}`} aria-labelledby={title ? id : undefined} aria-label={label}
      onCancel={(event) => { event.preventDefault(); onClose(); }}
      onMouseDown={(event) => { if (event.target === event.currentTarget) onClose(); }}>
      <div class="dialog-box">
        {title && (
          <header class="dialog-head">
            <h2 id={id}>{title}</h2>
            <div class="row">{actions}<Button kind="quiet" icon="x" label="Close" onClick={onClose} /></div>
          </header>
        )}
        <div class="dialog-body">{children}</div>
      </div>
    </dialog>
  );
}

/** A panel at the right that stands over the page. */
export function Drawer(props: { title: ComponentChildren; onClose: () => void; children: ComponentChildren; actions?: ComponentChildren }) {
  return <Dialog {...props} kind="drawer" />;
}

interface Question {
  title: string;
  body?: ComponentChildren;
  action: string;
  isDanger?: boolean;
  /** A word that has to be typed first. */
  typed?: string;
  answer(isYes: boolean): void;
}

const question = signal<Question | null>(null);

/** Asks before something that cannot be undone. */
export function confirm(asked: Omit<Question, 'answer'>): Promise<boolean> {
  return new Promise((resolve) => {
    question.value?.answer(false);
    question.value = { ...asked, answer: (isYes) => { question.value = null; resolve(isYes); } };
  });
}

function Confirmation({ asked }: { asked: Question }) {
  const [typed, setTyped] = useState('');
  const isReady = asked.typed === undefined || typed === asked.typed;
  const id = useId();
  return (
    <Dialog title={asked.title} onClose={() => asked.answer(false)}>
      <form class="form" onSubmit={(event) => { event.preventDefault(); if (isReady) asked.answer(true); }}>
        {asked.body && <div class="wrap">{asked.body}</div>}
        {asked.typed !== undefined && (
          <div class="field">
            <label for={id}>Type <code>{asked.typed}</code> to go on</label>
            <input id={id} autocomplete="off" spellcheck={false} value={typed} autofocus
              onInput={(event) => setTyped(event.currentTarget.value)} />
          </div>
        )}
        <div class="row end">
          <Button onClick={() => asked.answer(false)}>Cancel</Button>
          <Button type="submit" kind={asked.isDanger ? 'danger' : 'primary'} isDisabled={!isReady}>{asked.action}</Button>
        </div>
      </form>
    </Dialog>
  );
}

interface Toast { id: number; text: string; tone: Tone; link?: { to: string; label: string } }

const TOASTS_MAX = 4;
const TOAST_MS = 6000;
const toasts = signal<Toast[]>([]);
let toastNumbers = 0;

/** Says in a corner what happened. */
export function toast(text: string, tone: Tone = 'ok', link?: Toast['link']): void {
  toastNumbers += 1;
  const id = toastNumbers;
  toasts.value = [...toasts.value.slice(1 - TOASTS_MAX), { id, text: text.slice(0, 400), tone, link }];
  setTimeout(() => { toasts.value = toasts.value.filter((it) => it.id !== id); }, TOAST_MS);
}

/** Does something and says how it went; returns undefined where it failed. */
export async function attempt<T>(work: Promise<T>, done?: string | ((result: T) => string)): Promise<T | undefined> {
  try {
    const result = await work;
    if (done) toast(typeof done === 'function' ? done(result) : done);
    return result;
  } catch (error) {
    toast(messageOf(error), 'bad');
    return undefined;
  }
}

const TOAST_ICONS: Partial<Record<Tone, IconName>> = { ok: 'circle-check', bad: 'circle-x', warn: 'triangle-alert' };

/** Where questions and toasts are shown; once, in the shell. */
export function Overlays() {
  return (
    <>
      {question.value && <Confirmation asked={question.value} />}
      <div class="toasts" role="status" aria-live="polite">
        {toasts.value.map((it) => (
          <div key={it.id} class={`toast tone-${it.tone}`}>
            <Icon name={TOAST_ICONS[it.tone] ?? 'info'} />
            <span class="wrap">{it.text}</span>
            {it.link && <a href={toHref(it.link.to)}>{it.link.label}</a>}
            <Button kind="quiet" icon="x" label="Dismiss"
              onClick={() => { toasts.value = toasts.value.filter((one) => one.id !== it.id); }} />
          </div>
        ))}
      </div>
    </>
  );
}

export interface MenuItem {
  label: string;
  icon?: IconName;
  onClick?: () => unknown;
  href?: string;
  isDanger?: boolean;
  isDisabled?: boolean;
  /** Why, or what it does. */
  hint?: string;
  keys?: string;
}

/** A button that opens a list of actions. */
export function Menu({ items, label = 'More actions', icon = 'ellipsis', children, kind = 'plain' }: {
  items: (MenuItem | null | false)[]; label?: string; icon?: IconName; children?: ComponentChildren;
  kind?: 'plain' | 'quiet' | 'primary';
}) {
  const id = useId();
  const button = useRef<HTMLSpanElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const [isOpen, setOpen] = useState(false);
  const place = () => {
    const anchor = button.current?.getBoundingClientRect();
    const box = list.current;
    if (!anchor || !box) return;
    const left = Math.max(8, Math.min(anchor.right - box.offsetWidth, window.innerWidth - box.offsetWidth - 8));
    const below = anchor.bottom + 4;
    const isBelow = below + box.offsetHeight < window.innerHeight || anchor.top < box.offsetHeight;
    box.style.left = `${left}px`;
    box.style.top = `${isBelow ? below : anchor.top - box.offsetHeight - 4}px`;
  };
  const focus = (step: number) => {
    const all = [...(list.current?.querySelectorAll<HTMLElement>('[role=menuitem]:not([aria-disabled])') ?? [])];
    const at = all.indexOf(document.activeElement as HTMLElement);
    all[(at + step + all.length) % all.length]?.focus();
  };
  const close = () => {
    list.current?.hidePopover();
    button.current?.querySelector('button')?.focus();
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === 'ArrowDown') focus(1);
    else if (event.key === 'ArrowUp') focus(-1);
    else if (event.key === 'Escape' || event.key === 'Tab') close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const pick = (item: MenuItem) => {
    close();
    item.onClick?.();
  };
  return (
    <span class="menu" ref={button}>
      <button type="button" class={`button ${kind} ${children ? '' : 'bare'}`} aria-haspopup="menu" aria-expanded={isOpen}
        aria-controls={id} aria-label={children ? undefined : label} title={children ? undefined : label}
        onClick={() => { list.current?.togglePopover(); }}>
        {children ? <><span>{children}</span><Icon name="chevron-down" size={14} /></> : <Icon name={icon} />}
      </button>
      <div id={id} ref={list} class="menu-list" role="menu" aria-label={label} popover="auto" onKeyDown={onKey}
        onToggle={(event) => {
          const isNow = (event as unknown as { newState: string }).newState === 'open';
          setOpen(isNow);
          if (isNow) { place(); focus(1); }
        }}>
        {items.map((item) => item && (item.href !== undefined ? (
          <a key={item.label} role="menuitem" tabIndex={-1} href={toHref(item.href)} onClick={() => list.current?.hidePopover()}>
            {item.icon && <Icon name={item.icon} />}<span>{item.label}</span>
          </a>
        ) : (
          <button key={item.label} type="button" role="menuitem" tabIndex={-1} class={item.isDanger ? 'danger' : ''}
            aria-disabled={item.isDisabled || undefined} title={item.hint}
            onClick={() => { if (!item.isDisabled) pick(item); }}>
            {item.icon && <Icon name={item.icon} />}<span>{item.label}</span>{item.keys && <Keys keys={item.keys} />}
          </button>
        )))}
      </div>
    </span>
  );
}

export interface Tab { id: string; label: string; count?: number | null; isHidden?: boolean }

/** Tabs whose choice is the caller's, usually in the query. The panel has the id `panel-ID`. */
export function Tabs({ tabs, value, onValue, label }: {
  tabs: Tab[]; value: string; onValue: (id: string) => void; label: string;
}) {
  const shown = tabs.filter((tab) => !tab.isHidden);
  const onKey = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    const at = shown.findIndex((tab) => tab.id === value);
    const next = shown[(at + step + shown.length) % shown.length]!;
    onValue(next.id);
    const buttons = (event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>('[role=tab]');
    buttons[shown.indexOf(next)]?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={onKey}>
      {shown.map((tab) => (
        <button key={tab.id} type="button" role="tab" id={`tab-${tab.id}`} aria-selected={tab.id === value}
          tabIndex={tab.id === value ? 0 : -1} onClick={() => onValue(tab.id)}>
          {tab.label}{tab.count !== undefined && tab.count !== null && <span class="count">{tab.count}</span>}
        </button>
      ))}
    </div>
  );
}

/** The content of the tab that is shown. */
export function TabPanel({ id, children, class: name }: { id: string; children: ComponentChildren; class?: string }) {
  return <div role="tabpanel" id={`panel-${id}`} aria-labelledby={`tab-${id}`} class={`tab-panel ${name ?? ''}`} tabIndex={-1}>{children}</div>;
}
