// A table of any length: only the rows that are seen are in the document.
import type { ComponentChildren } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Icon } from './basics';
import { href as toHref, navigate, place, setQuery } from './router';

/** Height of a row, as the style sheet has it. */
const ROW_PX = 34;
/** Rows beyond the edge that are there already. */
const OVERSCAN = 8;

export interface Column<T> {
  id: string;
  title: string;
  /** A track of CSS grid: `120px`, `minmax(140px, 1fr)`. */
  width: string;
  render: (row: T) => ComponentChildren;
  /** What it is sorted by in the browser; with `onSort` any truth makes it sortable. */
  sort?: ((row: T) => string | number | null) | true;
  align?: 'end';
  isMono?: boolean;
  /** Left out where the table is narrower than so many pixels. */
  from?: number;
  /** Left out from so many pixels on: it stands for columns that are left out below. */
  until?: number;
}

export interface Sorting { id: string; isDescending: boolean }

/** Sorting kept in the query as `sort=name` or `sort=-name`. */
export function useSorting(initial: string): [Sorting, (sorting: Sorting) => void] {
  const text = place.value.query.get('sort') ?? initial;
  const sorting = { id: text.replace(/^-/, ''), isDescending: text.startsWith('-') };
  const set = (next: Sorting) => {
    const value = `${next.isDescending ? '-' : ''}${next.id}`;
    setQuery({ sort: value === initial ? null : value });
  };
  return [sorting, set];
}

/** Returns the rows sorted by a column, in the browser. */
export function sorted<T>(rows: readonly T[], columns: Column<T>[], sorting: Sorting): T[] {
  const by = columns.find((column) => column.id === sorting.id)?.sort;
  if (typeof by !== 'function') return [...rows];
  const sign = sorting.isDescending ? -1 : 1;
  return rows.map((row, at) => ({ row, at, key: by(row) })).sort((one, other) => {
    // What has no value is last in both directions.
    if (one.key === null || other.key === null) {
      return one.key === other.key ? one.at - other.at : one.key === null ? 1 : -1;
    }
    if (one.key < other.key) return -sign;
    return one.key > other.key ? sign : one.at - other.at;
  }).map((it) => it.row);
}

export function Table<T>({ label, columns, rows, keyOf, hrefOf, onOpen, sorting, onSort, onEnd, isStale, empty, height,
  classOf, total }: {
  label: string;
  columns: Column<T>[];
  rows: readonly T[];
  keyOf: (row: T) => string;
  /** A place of the console that a row leads to. */
  hrefOf?: (row: T) => string;
  /** What Enter and a click do where there is no place to go. */
  onOpen?: (row: T) => void;
  sorting?: Sorting;
  onSort?: (sorting: Sorting) => void;
  /** Called when the end comes into view, to load more. */
  onEnd?: () => void;
  /** Whether what is shown is old. */
  isStale?: boolean;
  /** Shown instead of rows where there are none. */
  empty?: ComponentChildren;
  /** Height in pixels; left out, the table is as high as its rows, up to the window. */
  height?: number;
  classOf?: (row: T) => string;
  /** Rows there are in all, where more can be loaded. */
  total?: number;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800, width: 1200 });
  const [focused, setFocused] = useState<string | null>(null);
  /** Key of the row that is to have the focus once it is drawn. */
  const wantsFocus = useRef<string | null>(null);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const measure = () => setView((before) => {
      const next = { top: element.scrollTop, height: element.clientHeight, width: element.clientWidth };
      return before.top === next.top && before.height === next.height && before.width === next.width ? before : next;
    });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener('scroll', measure, { passive: true });
    measure();
    return () => {
      observer.disconnect();
      element.removeEventListener('scroll', measure);
    };
  }, [rows.length === 0]);

  const shown = columns.filter((column) => view.width >= (column.from ?? 0) && view.width < (column.until ?? Infinity));
  const grid = { gridTemplateColumns: shown.map((column) => column.width).join(' ') };
  const body = Math.max(view.height - ROW_PX, ROW_PX);
  const first = Math.max(0, Math.floor(view.top / ROW_PX) - OVERSCAN);
  const last = Math.min(rows.length, Math.ceil((view.top + body) / ROW_PX) + OVERSCAN);
  useEffect(() => {
    if (onEnd && rows.length > 0 && last >= rows.length) onEnd();
  }, [last, rows.length]);

  const focusedAt = focused === null ? -1 : rows.findIndex((row) => keyOf(row) === focused);
  const active = focusedAt >= 0 ? focusedAt : 0;
  useEffect(() => {
    // An effect of an earlier drawing may run late, and the row of that is about to go.
    if (wantsFocus.current === null || wantsFocus.current !== focused) return;
    const row = box.current?.querySelector<HTMLElement>(`[data-at="${active}"]`);
    if (!row) return;
    wantsFocus.current = null;
    row.focus({ preventScroll: true });
  });
  const goTo = (at: number) => {
    const target = Math.max(0, Math.min(rows.length - 1, at));
    const row = rows[target];
    const element = box.current;
    if (row === undefined || !element) return;
    const top = target * ROW_PX;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + ROW_PX > element.scrollTop + body) element.scrollTop = top + ROW_PX - body;
    wantsFocus.current = keyOf(row);
    setFocused(keyOf(row));
    setView((before) => ({ ...before, top: element.scrollTop }));
  };
  const open = (row: T) => {
    if (hrefOf) navigate(hrefOf(row));
    else onOpen?.(row);
  };
  const isInner = (target: EventTarget | null) => (target as Element | null)?.closest?.('a, button, input, select');
  const onKey = (event: KeyboardEvent) => {
    if (!(event.target as HTMLElement).matches('[data-at]')) return;
    const page = Math.max(1, Math.floor(body / ROW_PX) - 1);
    const steps: Record<string, number> = {
      ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + page, PageUp: active - page, Home: 0,
      End: rows.length - 1, j: active + 1, k: active - 1,
    };
    const to = steps[event.key];
    if (to !== undefined && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      goTo(to);
    } else if (event.key === 'Enter' && rows[active] !== undefined) {
      event.preventDefault();
      open(rows[active]);
    }
  };
  const clickHead = (column: Column<T>) => {
    const isSame = sorting?.id === column.id;
    onSort?.({ id: column.id, isDescending: isSame ? !sorting.isDescending : false });
  };
  if (rows.length === 0 && empty) return <div class="table-empty">{empty}</div>;
  const style = height === undefined ? { maxHeight: `max(240px, calc(100vh - var(--table-above, 220px)))` } : { height: `${height}px` };
  return (
    <div class={`table ${isStale ? 'stale' : ''}`} ref={box} style={style} role="grid" aria-label={label}
      aria-rowcount={(total ?? rows.length) + 1} aria-colcount={shown.length} onKeyDown={onKey}>
      <div class="table-head" role="row" aria-rowindex={1} style={grid}>
        {shown.map((column) => {
          const isSorted = sorting?.id === column.id;
          const order = !isSorted ? 'none' : sorting.isDescending ? 'descending' : 'ascending';
          return (
            <div key={column.id} role="columnheader" class={column.align === 'end' ? 'end' : ''}
              aria-sort={column.sort && onSort ? order : undefined}>
              {column.sort && onSort ? (
                <button type="button" onClick={() => clickHead(column)}>
                  {column.title}
                  {isSorted && <Icon name={sorting.isDescending ? 'arrow-down' : 'arrow-up'} size={12} />}
                </button>
              ) : column.title || <span class="offscreen">Actions</span>}
            </div>
          );
        })}
      </div>
      <div class="table-body" role="rowgroup" style={{ height: `${rows.length * ROW_PX}px` }}>
        {rows.slice(first, last).map((row, offset) => {
          const at = first + offset;
          const key = keyOf(row);
          const isLink = hrefOf !== undefined || onOpen !== undefined;
          return (
            <div key={key} role="row" aria-rowindex={at + 2} data-at={at} tabIndex={at === active ? 0 : -1}
              class={`table-row ${isLink ? 'opens' : ''} ${classOf?.(row) ?? ''}`}
              style={{ ...grid, transform: `translateY(${at * ROW_PX}px)` }}
              onFocus={() => setFocused(key)}
              onClick={(event) => {
                if (!isLink || isInner(event.target) || String(window.getSelection()) !== '') return;
                if (hrefOf && (event.ctrlKey || event.metaKey)) window.open(toHref(hrefOf(row)), '_blank', 'noopener');
                else open(row);
              }}>
              {shown.map((column) => (
                <div key={column.id} role="gridcell" class={`${column.align === 'end' ? 'end' : ''} ${column.isMono ? 'mono' : ''}`}>
                  {column.render(row)}
                </div>
              ))}
            </div>
          );
        })}
      </div>
    </div>
  );
}
