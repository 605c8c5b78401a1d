// Fields of forms. Inputs are the browser's own.
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { ApiError, messageOf } from './api';
import { Button, Icon } from './basics';

export interface FieldProps {
  label: string;
  /** What belongs there, in a sentence. */
  hint?: ComponentChildren;
  error?: string | null;
  /** Shows the label to screen readers only. */
  isLabelHidden?: boolean;
  class?: string;
}

interface Wiring { id: string; 'aria-describedby'?: string; 'aria-invalid'?: true }

/** A label, a control, a hint and an error. */
export function Field({ label, hint, error, isLabelHidden, class: name, control }: FieldProps & {
  control: (wiring: Wiring) => ComponentChildren;
}) {
  const id = useId();
  const described = [hint ? `${id}-hint` : '', error ? `${id}-error` : ''].filter(Boolean).join(' ');
  const wiring: Wiring = { id };
  if (described) wiring['aria-describedby'] = described;
  if (error) wiring['aria-invalid'] = true;
  return (
    <div class={`field ${name ?? ''}`}>
      <label for={id} class={isLabelHidden ? 'offscreen' : ''}>{label}</label>
      {control(wiring)}
      {hint && <small id={`${id}-hint`}>{hint}</small>}
      {error && <small id={`${id}-error`} class="text-bad"><Icon name="circle-alert" size={12} /> {error}</small>}
    </div>
  );
}

interface InputAttributes {
  type?: 'text' | 'password' | 'number' | 'datetime-local' | 'date';
  placeholder?: string;
  autocomplete?: string;
  required?: boolean;
  min?: number | string;
  max?: number | string;
  step?: number | string;
  maxLength?: number;
  disabled?: boolean;
  autofocus?: boolean;
  onKeyDown?: (event: KeyboardEvent) => void;
}

/** `list` has texts that the browser offers. */
export function TextField({ value, onValue, label, hint, error, isLabelHidden, class: name, list, ...more }: FieldProps
  & InputAttributes & { value: string; onValue: (value: string) => void; list?: string[] }) {
  return (
    <Field label={label} hint={hint} error={error} isLabelHidden={isLabelHidden} class={name} control={(wiring) => (
      <>
        <input spellcheck={false} autocomplete="off" {...more as object} {...wiring} value={value} list={list && `${wiring.id}-list`}
          onInput={(event) => onValue(event.currentTarget.value)} />
        {list && <datalist id={`${wiring.id}-list`}>{list.map((it) => <option key={it} value={it} />)}</datalist>}
      </>
    )} />
  );
}

export function AreaField({ value, onValue, rows = 4, placeholder, isMono, ...field }: FieldProps & {
  value: string; onValue: (value: string) => void; rows?: number; placeholder?: string; isMono?: boolean;
}) {
  return (
    <Field {...field} control={(wiring) => (
      <textarea {...wiring} rows={rows} placeholder={placeholder} spellcheck={false} value={value}
        class={isMono ? 'mono' : ''} onInput={(event) => onValue(event.currentTarget.value)} />
    )} />
  );
}

export interface Choice { value: string; label: string; isDisabled?: boolean }

export function SelectField({ value, onValue, choices, ...field }: FieldProps & {
  value: string; onValue: (value: string) => void; choices: (Choice | string)[];
}) {
  const all = choices.map((it) => (typeof it === 'string' ? { value: it, label: it, isDisabled: false } : it));
  return (
    <Field {...field} control={(wiring) => (
      <span class="select">
        <select {...wiring} value={value} onChange={(event) => onValue(event.currentTarget.value)}>
          {all.map((it) => <option key={it.value} value={it.value} disabled={it.isDisabled}>{it.label}</option>)}
        </select>
        <Icon name="chevron-down" size={14} />
      </span>
    )} />
  );
}

export function CheckField({ isOn, onValue, label, hint }: {
  isOn: boolean; onValue: (isOn: boolean) => void; label: string; hint?: ComponentChildren;
}) {
  const id = useId();
  return (
    <div class="check">
      <input id={id} type="checkbox" checked={isOn} aria-describedby={hint ? `${id}-hint` : undefined}
        onChange={(event) => onValue(event.currentTarget.checked)} />
      <label for={id}>{label}{hint && <small id={`${id}-hint`}>{hint}</small>}</label>
    </div>
  );
}

/** A search field that calls `onValue` when typing stops; `/` jumps to it. */
export function SearchField({ value, onValue, label, placeholder, waitMs = 250 }: {
  value: string; onValue: (value: string) => void; label: string; placeholder?: string; waitMs?: number;
}) {
  const [text, setText] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => setText(value), [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const change = (next: string) => {
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onValue(next), waitMs);
  };
  return (
    <span class="search">
      <Icon name="search" size={14} />
      <input type="search" aria-label={label} placeholder={placeholder ?? label} value={text} data-search
        spellcheck={false} autocomplete="off" onInput={(event) => change(event.currentTarget.value)} />
    </span>
  );
}

/** One of few values, as buttons side by side. */
export function Segments({ value, onValue, choices, label }: {
  value: string; onValue: (value: string) => void; choices: Choice[]; label: string;
}) {
  return (
    <div class="segments" role="group" aria-label={label}>
      {choices.map((it) => (
        <button key={it.value} type="button" aria-pressed={value === it.value} onClick={() => onValue(it.value)}>
          {it.label}
        </button>
      ))}
    </div>
  );
}

/**
 * A form whose `onSubmit` may throw: the message is shown, at its field when `ApiError` names one.
 * `children` gets the message for a field.
 */
export function Form({ onSubmit, submit, children, onCancel, isDanger }: {
  onSubmit: () => Promise<unknown>; submit: string; onCancel?: () => void; isDanger?: boolean;
  children: (errorOf: (field: string) => string | null) => ComponentChildren;
}) {
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const shown = useRef(new Set<string>());
  shown.current = new Set();
  const errorOf = (field: string) => {
    shown.current.add(field);
    return error instanceof ApiError && error.field === field ? error.message : null;
  };
  const run = async (event: SubmitEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await onSubmit();
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  const fields = children(errorOf);
  const isAtField = error instanceof ApiError && error.field !== null && shown.current.has(error.field);
  return (
    <form class="form" onSubmit={run}>
      {fields}
      {error !== null && !isAtField && (
        <div class="note bad" role="alert"><Icon name="circle-alert" /><div class="wrap">{messageOf(error)}</div></div>
      )}
      <div class="row end">
        {onCancel && <Button onClick={onCancel}>Cancel</Button>}
        <Button type="submit" kind={isDanger ? 'danger' : 'primary'} isDisabled={isBusy}>{submit}</Button>
      </div>
    </form>
  );
}
