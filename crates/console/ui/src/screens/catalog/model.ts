// Shapes of the catalog's answers, and where its pages are.
import type * as schema from '../../schema';
import type { CatalogFoundNames } from '../../schema';

/** Divides the levels of a namespace, in paths as well. */
const LEVEL = '\u001f';

export type {
  CatalogDropped as DroppedEntry, CatalogGrant, CatalogJob as MaintenanceJob, CatalogWarehouse as Warehouse,
} from '../../schema';
export type FoundObject = CatalogFoundNames['results'][number];

/** A type of Iceberg: a word, or what is within it. */
export type IcebergType = string
  | { type: 'struct'; fields: IcebergColumn[] }
  | { type: 'list'; 'element-id': number; element: IcebergType; 'element-required': boolean }
  | { type: 'map'; 'key-id': number; key: IcebergType; 'value-id': number; value: IcebergType; 'value-required': boolean };

export type IcebergColumn = Omit<schema.IcebergField, 'type'> & { type: IcebergType };
export type IcebergSchema = Omit<schema.IcebergSchema, 'fields'> & { fields: IcebergColumn[] };

/** A partition field; several columns in format 3. */
export type PartitionField = schema.PartitionSpec['fields'][number] & { 'source-ids'?: number[] };

/** A snapshot; its id is a text, because a double does not hold 63 bits. */
export type TableSnapshot = Omit<schema.IcebergSnapshot, 'snapshot-id' | 'parent-snapshot-id'>
  & { 'snapshot-id': string; 'parent-snapshot-id'?: string };

export type TableMetadata = Omit<schema.TableMetadata, 'schemas' | 'snapshots' | 'current-snapshot-id' | 'refs' | 'partition-specs'> & {
  'partition-specs'?: (Omit<schema.PartitionSpec, 'fields'> & { fields: PartitionField[] })[];
  schemas: IcebergSchema[];
  snapshots?: TableSnapshot[];
  'current-snapshot-id'?: string | null;
  refs?: Record<string, Omit<schema.SnapshotReference, 'snapshot-id'> & { 'snapshot-id': string }>;
};

export type LoadedTable = Omit<schema.LoadTableResult, 'metadata'> & { metadata: TableMetadata };

/** A place in the catalog. */
export interface CatalogPlace { warehouse?: string; namespace?: string[]; name?: string }

/** Reads `WAREHOUSE/NAMESPACE/NAME`, still encoded. */
export function placeOf(rest: string | undefined): CatalogPlace {
  const parts = (rest ?? '').split('/').filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { warehouse: parts[0], namespace: parts[1]?.split(LEVEL), name: parts[2] };
}

/** The page of a place. */
export function pageOf(warehouse: string, namespace?: string[], name?: string, isView = false): string {
  const parts = [warehouse, namespace?.join(LEVEL), name].filter((it) => it !== undefined);
  return `/catalog/${parts.map(encodeURIComponent).join('/')}${isView ? '?kind=view' : ''}`;
}

/** Namespace and name as people write them. */
export function dotted(namespace: string[] | null | undefined, name?: string | null): string {
  return [...(namespace ?? []), ...(name ? [name] : [])].join('.');
}

/** The same for the command line, where a dot that belongs to a name has a backslash before it. */
export function dottedWord(namespace: string[], name?: string): string {
  return [...namespace, ...(name === undefined ? [] : [name])].map((it) => it.replaceAll('\\', '\\\\').replaceAll('.', '\\.')).join('.');
}

export const joined = (namespace: string[]): string => namespace.join(LEVEL);

/** Path of Iceberg's interface below a warehouse. */
export function icebergPath(warehouse: string, ...parts: string[]): string {
  return ['/catalog/v1', encodeURIComponent(warehouse), ...parts.map(encodeURIComponent)].join('/');
}

/** Path of the management of a warehouse. */
export function managementPath(warehouse: string, ...parts: string[]): string {
  return ['/catalog/management/v1', encodeURIComponent(warehouse), ...parts.map(encodeURIComponent)].join('/');
}

/** A number of a snapshot's summary; null where there is none. */
export function figure(snapshot: TableSnapshot | undefined, name: string): number | null {
  const text = snapshot?.summary?.[name];
  const value = text === undefined ? NaN : Number(text);
  return Number.isFinite(value) ? value : null;
}

export function currentOf(metadata: TableMetadata): TableSnapshot | undefined {
  const id = metadata['current-snapshot-id'];
  return metadata.snapshots?.find((it) => it['snapshot-id'] === String(id));
}

/** A type in a line. */
export function typeText(type: IcebergType): string {
  if (typeof type === 'string') return type;
  if (type.type === 'struct') return 'struct';
  if (type.type === 'list') return `list<${typeText(type.element)}>`;
  return `map<${typeText(type.key)}, ${typeText(type.value)}>`;
}

export interface FlatColumn { id: number; name: string; path: string; depth: number; type: string; isRequired: boolean; doc: string }

/** Columns with those within them, in order. */
export function flatten(fields: IcebergColumn[], depth = 0, above = ''): FlatColumn[] {
  return fields.flatMap((field) => {
    const path = above === '' ? field.name : `${above}.${field.name}`;
    const own = {
      id: field.id, name: field.name, path, depth, type: typeText(field.type), isRequired: field.required, doc: field.doc ?? '',
    };
    return [own, ...within(field.type, depth + 1, path)];
  });
}

function within(type: IcebergType, depth: number, path: string): FlatColumn[] {
  if (typeof type === 'string') return [];
  if (type.type === 'struct') return flatten(type.fields, depth, path);
  if (type.type === 'list') {
    return flatten([{ id: type['element-id'], name: 'element', type: type.element, required: type['element-required'] }], depth, path);
  }
  return flatten([
    { id: type['key-id'], name: 'key', type: type.key, required: true },
    { id: type['value-id'], name: 'value', type: type.value, required: type['value-required'] },
  ], depth, path);
}

export interface ColumnDifference { id: number; kind: 'added' | 'removed' | 'changed'; path: string; what: string }

/** What makes one schema of the other; columns are the same when their ids are. */
export function differences(before: IcebergSchema, after: IcebergSchema): ColumnDifference[] {
  const old = new Map(flatten(before.fields).map((it) => [it.id, it]));
  const found: ColumnDifference[] = [];
  for (const it of flatten(after.fields)) {
    const was = old.get(it.id);
    old.delete(it.id);
    if (was === undefined) {
      found.push({ id: it.id, kind: 'added', path: it.path, what: it.type });
      continue;
    }
    const changes = [
      was.path !== it.path && `was named ${was.path}`,
      was.type !== it.type && `${was.type} → ${it.type}`,
      was.isRequired !== it.isRequired && (it.isRequired ? 'is required now' : 'may be null now'),
      was.doc !== it.doc && 'other description',
    ].filter(Boolean);
    if (changes.length > 0) found.push({ id: it.id, kind: 'changed', path: it.path, what: changes.join(', ') });
  }
  for (const it of old.values()) found.push({ id: it.id, kind: 'removed', path: it.path, what: it.type });
  return found;
}
