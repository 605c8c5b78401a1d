// Small parts: icons, buttons, badges, times, copying, skeletons, empty lists, errors.
import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { messageOf } from './api';
import { precise, relative } from './format';
import { ICONS, type IconName } from './icons';
import { href as toHref } from './router';
import { isAway, type Resource } from './resource';

export type { IconName };

/** An icon; without a label it is decoration. */
export function Icon({ name, size = 16, label }: { name: IconName; size?: number; label?: string }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" fill="none" stroke="currentColor"
      stroke-width="2" stroke-linecap="round" stroke-linejoin="round"
      role={label ? 'img' : undefined} aria-label={label} aria-hidden={label ? undefined : 'true'}>
      <path d={ICONS[name]} />
    </svg>
  );
}

export type Tone = 'ok' | 'warn' | 'bad' | 'run' | 'info' | 'muted';

const TONE_ICONS: Record<Tone, IconName> = {
  ok: 'circle-check', warn: 'triangle-alert', bad: 'circle-x', run: 'circle-dot', info: 'info', muted: 'clock',
};

/** A state: word, shape and colour. */
export function Badge({ tone, icon, children, title }: {
  tone: Tone; icon?: IconName; children: ComponentChildren; title?: string;
}) {
  return (
    <span class={`badge tone-${tone}`} title={title}>
      <Icon name={icon ?? TONE_ICONS[tone]} size={13} />{children}
    </span>
  );
}

export interface ButtonProps {
  children?: ComponentChildren;
  onClick?: (event: MouseEvent) => unknown;
  icon?: IconName;
  kind?: 'primary' | 'plain' | 'quiet' | 'danger';
  /** Needed where there is an icon only. */
  label?: string;
  title?: string;
  isDisabled?: boolean;
  /** Whether a toggle is on. */
  isPressed?: boolean;
  type?: 'button' | 'submit';
  /** Keys that do the same, shown beside the words: `Ctrl+Enter`. */
  keys?: string;
  /** A place of the console; makes the button a link. */
  href?: string;
  class?: string;
  id?: string;
}

/** A button; while a promise that `onClick` returns is pending, it is busy. */
export function Button(props: ButtonProps) {
  const [isBusy, setBusy] = useState(false);
  const { kind = 'plain', icon, children, label } = props;
  const isBare = children === undefined;
  const classes = `button ${kind} ${isBare ? 'bare' : ''} ${props.class ?? ''}`;
  const inside = (
    <>
      {icon && <Icon name={icon} size={15} />}
      {children !== undefined && <span>{children}</span>}
      {props.keys && <Keys keys={props.keys} />}
    </>
  );
  if (props.href !== undefined) {
    return (
      <a class={classes} id={props.id} href={toHref(props.href)} aria-label={label} title={props.title ?? label}>
        {inside}
      </a>
    );
  }
  const click = (event: MouseEvent) => {
    // A busy button is not disabled: that would take the focus away from it.
    if (isBusy) {
      event.preventDefault();
      return;
    }
    const result = props.onClick?.(event);
    if (result instanceof Promise) {
      setBusy(true);
      result.finally(() => setBusy(false));
    }
  };
  return (
    <button class={classes} id={props.id} type={props.type ?? 'button'} disabled={props.isDisabled} aria-disabled={isBusy || undefined}
      aria-label={label} title={props.title ?? (isBare ? label : undefined)} aria-pressed={props.isPressed}
      aria-busy={isBusy || undefined} onClick={click}>
      {inside}
    </button>
  );
}

/** Keys, as `Ctrl+K` or `g e`. */
export function Keys({ keys }: { keys: string }) {
  const parts = keys.split(/([+ ])/).filter((part) => part !== '+' && part !== ' ' && part !== '');
  return <span class="keys" aria-hidden="true">{parts.map((part) => <kbd key={part}>{part}</kbd>)}</span>;
}

/** A link to a place of the console, or with `out` to another address. */
export function Link({ to, out, children, class: name, title }: {
  to?: string; out?: string; children: ComponentChildren; class?: string; title?: string;
}) {
  if (out !== undefined) {
    return <a class={name} href={out} target="_blank" rel="noopener noreferrer" title={title}>{children}</a>;
  }
  return <a class={name} href={toHref(to ?? '/')} title={title}>{children}</a>;
}

/** Grows so that relative times are right; stands still in hidden tabs. */
const now = signal(Date.now());
setInterval(() => {
  if (document.visibilityState === 'visible') now.value = Date.now();
}, 5000);
document.addEventListener('visibilitychange', () => { now.value = Date.now(); });

/** A time, relative, with the precise one as title. */
export function Time({ ms }: { ms: number | null | undefined }) {
  if (ms === null || ms === undefined) return <span class="muted">–</span>;
  return (
    <time dateTime={new Date(ms).toISOString()} title={precise(ms)}>
      {relative(ms, Math.max(now.value, Math.min(Date.now(), ms)))}
    </time>
  );
}

/** Copies a text; false where the browser forbids it. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without TLS and away from localhost there is no clipboard interface.
    const area = document.createElement('textarea');
    area.value = text;
    area.className = 'offscreen';
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}

/** Time until a saved file's address is given up: by then the browser has begun to read it. */
const SAVED_MS = 10_000;

/** Saves a text or bytes as a file of the browser's user. */
export function saveFile(content: BlobPart[], name: string, type = 'application/octet-stream'): void {
  const address = URL.createObjectURL(new Blob(content, { type }));
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), SAVED_MS);
}

/** A button that copies. */
export function CopyButton({ text, label = 'Copy' }: { text: string | (() => string); label?: string }) {
  const [isDone, setDone] = useState(false);
  const click = async () => {
    setDone(await copy(typeof text === 'function' ? text() : text));
    setTimeout(() => setDone(false), 1500);
  };
  return <Button kind="quiet" icon={isDone ? 'check' : 'copy'} label={isDone ? 'Copied' : label} onClick={click} />;
}

/** An id in full, that can be copied. */
export function Id({ id }: { id: string }) {
  return <span class="id"><code>{id}</code><CopyButton text={id} label={`Copy ${id}`} /></span>;
}

/** Lines that stand for what is on its way. */
export function Skeleton({ rows = 4 }: { rows?: number }) {
  return (
    <div class="skeleton" role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_, at) => <div key={at} style={{ width: `${90 - ((at * 23) % 45)}%` }} />)}
    </div>
  );
}

/** What an empty list says: what it would show, and what to type. */
export function Empty({ icon = 'box', title, children, command, action }: {
  icon?: IconName; title: string; children?: ComponentChildren; command?: string; action?: ComponentChildren;
}) {
  return (
    <div class="empty">
      <Icon name={icon} size={28} />
      <h3>{title}</h3>
      {children && <p>{children}</p>}
      {command && <Command text={command} />}
      {action && <div class="row">{action}</div>}
    </div>
  );
}

/** A command to paste into a shell. */
export function Command({ text }: { text: string }) {
  return (
    <div class="command">
      <pre tabIndex={0} aria-label="Command"><code>{text}</code></pre>
      <CopyButton text={text} label="Copy the command" />
    </div>
  );
}

/** An error, and a way to try again. */
export function ErrorNote({ error, onRetry, title = 'This could not be loaded' }: {
  error: unknown; onRetry?: () => void; title?: string;
}) {
  return (
    <div class="note bad" role="alert">
      <Icon name="circle-alert" />
      <div><strong>{title}</strong><p class="wrap">{messageOf(error)}</p></div>
      {onRetry && <Button onClick={onRetry} icon="refresh-cw">Try again</Button>}
    </div>
  );
}

/** A remark in a box. */
export function Note({ tone = 'info', children, icon }: { tone?: Tone; children: ComponentChildren; icon?: IconName }) {
  return <div class={`note ${tone}`}><Icon name={icon ?? TONE_ICONS[tone]} /><div>{children}</div></div>;
}

/**
 * What a resource is: a skeleton before the first answer, the error where there is none, else the
 * children with the data, also when it is old.
 */
export function Loaded<T>({ from, rows, children }: {
  from: Resource<T>; rows?: number; children: (data: T) => ComponentChildren;
}) {
  const data = from.data.value;
  const error = from.error.value;
  if (data === undefined) {
    if (error !== undefined && !isAway(error)) return <ErrorNote error={error} onRetry={() => from.refresh()} />;
    return <Skeleton rows={rows} />;
  }
  return (
    <>
      {error !== undefined && !isAway(error) && (
        <ErrorNote error={error} title="What is shown is old" onRetry={() => from.refresh()} />
      )}
      {children(data)}
    </>
  );
}

/** The head of a page: title, what belongs beside it, actions. */
export function PageHead({ title, aside, actions, back }: {
  title: ComponentChildren; aside?: ComponentChildren; actions?: ComponentChildren;
  back?: { to: string; label: string };
}) {
  return (
    <header class="page-head">
      <div class="page-title">
        {back && <Link to={back.to} class="back" title={back.label}><Icon name="chevron-left" label={back.label} /></Link>}
        <h1>{title}</h1>
        {aside}
      </div>
      {actions && <div class="row actions">{actions}</div>}
    </header>
  );
}

/** A box with a head. */
export function Panel({ title, actions, children, class: name, isFlush }: {
  title?: ComponentChildren; actions?: ComponentChildren; children: ComponentChildren; class?: string;
  /** Without room around the content, for tables and editors. */
  isFlush?: boolean;
}) {
  return (
    <section class={`panel ${name ?? ''}`}>
      {(title || actions) && (
        <header class="panel-head"><h2>{title}</h2>{actions && <div class="row">{actions}</div>}</header>
      )}
      <div class={isFlush ? 'panel-body flush' : 'panel-body'}>{children}</div>
    </section>
  );
}

/** Names and values. */
export function Facts({ items }: { items: ([string, ComponentChildren] | null | false)[] }) {
  return (
    <dl class="facts">
      {items.map((item) => item && <div key={item[0]}><dt>{item[0]}</dt><dd>{item[1]}</dd></div>)}
    </dl>
  );
}

/** A number with its name. */
export function Stat({ label, value, detail, tone, children, to }: {
  label: string; value: ComponentChildren; detail?: ComponentChildren; tone?: Tone;
  children?: ComponentChildren; to?: string;
}) {
  const inside = (
    <>
      <span class="stat-label">{label}</span>
      <span class={`stat-value ${tone ? `text-${tone}` : ''}`}>{value}</span>
      {detail && <span class="stat-detail">{detail}</span>}
      {children}
    </>
  );
  return to ? <a class="stat" href={toHref(to)}>{inside}</a> : <div class="stat">{inside}</div>;
}

/** A bar from 0 to `of`, with parts. */
export function Meter({ parts, of, label }: { parts: { value: number; tone: Tone }[]; of: number; label: string }) {
  const whole = Math.max(of, 1e-9);
  return (
    <span class="meter" role="img" aria-label={label} title={label}>
      {parts.map((part, at) => (
        <span key={at} class={`fill-${part.tone}`} style={{ width: `${Math.min(100, (100 * part.value) / whole)}%` }} />
      ))}
    </span>
  );
}

/** A text that strangers wrote, as text, cut in the middle of the page and whole as title. */
export function Foreign({ text, most = 120 }: { text: string; most?: number }) {
  return <span class="foreign" title={text.slice(0, 1000)}>{text.length > most ? `${text.slice(0, most)}…` : text}</span>;
}
