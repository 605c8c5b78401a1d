// Warehouses, namespaces, tables and views as a tree that loads what is opened, and a search over all of it.
import { useEffect, useState } from 'preact/hooks';
import { Empty, ErrorNote, Icon, Link, Loaded, Panel, SearchField, Skeleton, isAway, navigate, useQuery, useResource, withQuery } from '../../kit';
import { dotted, icebergPath, joined, managementPath, pageOf, type CatalogPlace, type FoundObject } from './model';

export interface NameLists { namespaces: { namespaces: string[][] }; tables: { identifiers: { namespace: string[]; name: string }[] } }

const RESULTS_MAX = 100;

export function CatalogTree({ warehouses, warehouse, place }: { warehouses: string[]; warehouse: string; place: CatalogPlace }) {
  const [search, setSearch] = useQuery('q');
  return (
    <Panel title="Objects" class="catalog-tree" isFlush>
      <div class="catalog-search">
        <SearchField label="Search the catalog" placeholder="Tables, views, columns" value={search} onValue={setSearch} />
      </div>
      {search.trim() !== '' ? <Results warehouse={warehouse} search={search.trim()} /> : (
        <div class="tree" role="tree" aria-label="Warehouses and what is in them">
          {warehouses.map((name) => <Branch key={name} warehouse={name} namespace={[]} place={place} depth={0} />)}
        </div>
      )}
    </Panel>
  );
}

function Results({ warehouse, search }: { warehouse: string; search: string }) {
  const from = useResource<{ results: FoundObject[]; truncated?: boolean }>(
    withQuery(managementPath(warehouse, 'search'), { q: search, limit: RESULTS_MAX }),
  );
  return (
    <div class="catalog-results">
      <Loaded from={from} rows={4}>
        {({ results, truncated }) => (
          results.length === 0 ? <Empty icon="search" title="Nothing found"><p>No name in {warehouse} has “{search}” in it.</p></Empty> : (
            <ul>
              {results.map((it) => {
                const isSpace = it.kind === 'namespace';
                return (
                  <li key={`${it.kind}/${joined(it.namespace)}/${it.name}/${it.column ?? ''}`}>
                    <Link class="tree-row" to={isSpace ? pageOf(warehouse, it.namespace) : pageOf(warehouse, it.namespace, it.name, it.kind === 'view')}>
                      <Icon name={isSpace ? 'folder' : it.kind === 'view' ? 'eye' : it.kind === 'column' ? 'list' : 'table-2'} size={14} />
                      <span class="tree-name" title={dotted(it.namespace, it.name)}>
                        {it.column ?? (isSpace ? dotted(it.namespace) : it.name)}
                        <span class="muted"> {it.column !== undefined ? `in ${dotted(it.namespace, it.name)}` : isSpace ? 'namespace' : dotted(it.namespace)}</span>
                      </span>
                    </Link>
                  </li>
                );
              })}
              {truncated && <li class="muted tree-empty">There may be more: say more of the name.</li>}
            </ul>
          )
        )}
      </Loaded>
    </div>
  );
}

/** Keys of a tree: up and down move, left and right close and open. */
function onTreeKey(event: KeyboardEvent, isOpen: boolean | undefined, onToggle: () => void) {
  const row = event.currentTarget as HTMLElement;
  const isToggled = (event.key === 'ArrowRight' && isOpen === false) || (event.key === 'ArrowLeft' && isOpen === true);
  const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
  if (isToggled) onToggle();
  else if (step !== 0) {
    event.preventDefault();
    const all = [...row.closest('[role=tree]')!.querySelectorAll<HTMLElement>('[role=treeitem]')];
    all[all.indexOf(row) + step]?.focus();
  }
}

function Branch({ warehouse, namespace, place, depth }: { warehouse: string; namespace: string[]; place: CatalogPlace; depth: number }) {
  const isRoot = namespace.length === 0;
  const isOnWay = place.warehouse === warehouse && namespace.every((level, at) => place.namespace?.[at] === level);
  const isHere = isOnWay && place.name === undefined && (place.namespace?.length ?? 0) === namespace.length;
  const [isOpen, setOpen] = useState(isOnWay);
  useEffect(() => { if (isOnWay) setOpen(true); }, [isOnWay]);
  const toggle = () => setOpen(!isOpen);
  const name = isRoot ? warehouse : namespace[namespace.length - 1]!;
  return (
    <div role="none">
      <button type="button" role="treeitem" class="tree-row" aria-expanded={isOpen} aria-selected={isHere} aria-level={depth + 1} title={name}
        style={{ paddingLeft: `${8 + depth * 14}px` }} onKeyDown={(event) => onTreeKey(event, isOpen, toggle)}
        onClick={() => {
          if (isHere) toggle();
          else navigate(isRoot ? pageOf(warehouse) : pageOf(warehouse, namespace));
        }}>
        <Icon name={isRoot ? 'hard-drive' : isOpen ? 'folder-open' : 'folder'} size={14} />
        <span class="tree-name">{name}</span>
      </button>
      {isOpen && <div role="group"><Inside warehouse={warehouse} namespace={namespace} place={place} depth={depth + 1} /></div>}
    </div>
  );
}

function Inside({ warehouse, namespace, place, depth }: { warehouse: string; namespace: string[]; place: CatalogPlace; depth: number }) {
  const isRoot = namespace.length === 0;
  const spaces = useResource<NameLists['namespaces']>(withQuery(icebergPath(warehouse, 'namespaces'), { parent: joined(namespace) }));
  const tables = useResource<NameLists['tables']>(isRoot ? null : icebergPath(warehouse, 'namespaces', joined(namespace), 'tables'));
  const views = useResource<NameLists['tables']>(isRoot ? null : icebergPath(warehouse, 'namespaces', joined(namespace), 'views'));
  const indent = { paddingLeft: `${8 + depth * 14}px` };
  // A principal may be refused one list and see another: an error is shown where nothing else is.
  const parts = isRoot ? [spaces] : [spaces, tables, views];
  const error = parts.map((it) => it.error.value).find((it) => it !== undefined && !isAway(it));
  const isWaiting = parts.some((it) => it.data.value === undefined && it.error.value === undefined);
  const inner = spaces.data.value?.namespaces ?? [];
  const leaves = [
    ...(tables.data.value?.identifiers ?? []).map((it) => ({ name: it.name, isView: false })),
    ...(views.data.value?.identifiers ?? []).map((it) => ({ name: it.name, isView: true })),
  ].sort((one, other) => one.name.localeCompare(other.name));
  const isHere = place.warehouse === warehouse && joined(place.namespace ?? []) === joined(namespace);
  return (
    <>
      {inner.map((it) => <Branch key={joined(it)} warehouse={warehouse} namespace={it} place={place} depth={depth} />)}
      {leaves.map(({ name, isView }) => (
        <button type="button" role="treeitem" key={`${isView}/${name}`} class="tree-row" style={indent} title={dotted(namespace, name)} aria-level={depth + 1}
          aria-selected={isHere && place.name === name} onKeyDown={(event) => onTreeKey(event, undefined, () => undefined)}
          onClick={() => navigate(pageOf(warehouse, namespace, name, isView))}>
          <Icon name={isView ? 'eye' : 'table-2'} size={14} />
          <span class="tree-name">{name}</span>
          {isView && <span class="tree-size">view</span>}
        </button>
      ))}
      {isWaiting && inner.length + leaves.length === 0 && <div style={indent}><Skeleton rows={2} /></div>}
      {!isWaiting && inner.length + leaves.length === 0 && (
        <div style={indent}>{error ? <ErrorNote error={error} title="Not shown" /> : <p class="muted tree-empty">empty</p>}</div>
      )}
    </>
  );
}
