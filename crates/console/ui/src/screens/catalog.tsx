// The Iceberg catalog: warehouses, namespaces and tables, what each holds and how it came about.
import { useEffect, useRef } from 'preact/hooks';
import { Empty, Loaded, refreshAll, useLive, useQuery, useResource, type ScreenProps } from '../kit';
import { NamespacePage } from './catalog/namespace';
import { placeOf, type Warehouse } from './catalog/model';
import { TablePage, ViewPage } from './catalog/table';
import { CatalogTree } from './catalog/tree';
import { WarehousePage } from './catalog/warehouse';

interface CatalogSettings { overrides?: { prefix?: string }; defaults?: { prefix?: string } }

/** Time in which changes are taken together. */
const CALM_MS = 400;

export default function Catalog({ params }: ScreenProps) {
  const place = placeOf(params.rest);
  const [kind] = useQuery('kind');
  const listed = useResource<{ warehouses: Warehouse[] }>('/catalog/management/v1/warehouses');
  const settings = useResource<CatalogSettings>('/catalog/v1/config');
  // Who may not manage a warehouse is not shown it; the first one is where clients without a name go.
  const known = (listed.data.value?.warehouses ?? []).map((it) => it.name);
  const first = settings.data.value?.overrides?.prefix ?? settings.data.value?.defaults?.prefix;
  const names = [...new Set([...known, first, place.warehouse].filter((it) => it !== undefined))];
  const warehouse = place.warehouse ?? names[0];
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  useLive(warehouse === undefined ? null : 'catalog.changes', { warehouse }, {
    onEvent: () => {
      // Many commits at once are one reason to ask again.
      if (timer.current !== undefined) return;
      timer.current = setTimeout(() => {
        timer.current = undefined;
        refreshAll('/catalog/v1/');
        refreshAll('/catalog/management/');
      }, CALM_MS);
    },
  });
  if (warehouse === undefined) {
    return (
      <div class="page">
        <h1>Catalog</h1>
        <Loaded from={settings}>
          {() => <Empty icon="table-2" title="No warehouse" command="cove catalog warehouse list"><p>This token sees none.</p></Empty>}
        </Loaded>
      </div>
    );
  }
  const key = params.rest ?? '';
  return (
    <div class="page catalog">
      <CatalogTree warehouses={names} warehouse={warehouse} place={{ ...place, warehouse }} />
      <div class="catalog-main">
        {place.namespace === undefined ? <WarehousePage warehouse={warehouse} key={key} />
          : place.name === undefined ? <NamespacePage warehouse={warehouse} namespace={place.namespace} key={key} />
            : kind === 'view' ? <ViewPage warehouse={warehouse} namespace={place.namespace} name={place.name} key={key} />
              : <TablePage warehouse={warehouse} namespace={place.namespace} name={place.name} key={key} />}
      </div>
    </div>
  );
}
