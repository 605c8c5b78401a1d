// The configuration in force: every setting with its value, its default and where the value is from.
import { useState } from 'preact/hooks';
import {
  Badge, CheckField, Drawer, Empty, Facts, Foreign, Loaded, Note, SearchField, SelectField, Table, plural, sorted, useQuery, useResource,
  useSorting, type Column, type Tone,
} from '../../kit';
import type { Config, Setting, SettingOrigin } from '../../schema';

/** Characters of a value in the table; the drawer has all. */
const VALUE_MAX = 80;
/** Name of the section of settings that are in no table. */
const TOP = 'top level';

const TONES: Record<SettingOrigin['kind'], Tone> = { default: 'muted', file: 'info', environment: 'info', flag: 'info' };

function sectionOf({ key }: Setting): string {
  const dot = key.indexOf('.');
  return dot < 0 ? TOP : key.slice(0, dot);
}

function textOf(value: unknown): string {
  if (value === null || value === undefined) return 'not set';
  return typeof value === 'string' ? value || '""' : JSON.stringify(value);
}

/** A place in words: the file's name without its directories, which the drawer shows. */
function placeOf({ kind, name, line }: SettingOrigin): string {
  if (kind === 'default') return 'default';
  const short = kind === 'file' ? (name ?? '').split('/').pop() : name;
  return line ? `${short}:${line}` : short ?? kind;
}

function Value({ setting, most }: { setting: Setting; most: number }) {
  const { value, masked } = setting;
  return (
    <>
      <span class={value === null || value === undefined ? 'muted' : ''}><Foreign text={textOf(value)} most={most} /></span>
      {masked && <> <Badge tone="muted">masked</Badge></>}
    </>
  );
}

const COLUMNS: Column<Setting>[] = [
  { id: 'key', title: 'Setting', width: 'minmax(170px, 1.4fr)', isMono: true, sort: (it) => it.key, render: (it) => it.key },
  { id: 'value', title: 'Value', width: 'minmax(120px, 1.4fr)', isMono: true, render: (it) => <Value setting={it} most={VALUE_MAX} /> },
  { id: 'origin', title: 'From', width: 'minmax(110px, 1fr)', from: 560, sort: (it) => placeOf(it.origin), render: (it) => <Badge tone={TONES[it.origin.kind]}>{placeOf(it.origin)}</Badge> },
  { id: 'default', title: 'Default', width: 'minmax(90px, 1fr)', from: 820, isMono: true, render: (it) => <span class="muted"><Foreign text={textOf(it.default)} most={VALUE_MAX} /></span> },
  { id: 'change', title: 'A change needs', width: '120px', from: 960, sort: (it) => (it.reloadable ? 0 : 1), render: (it) => (it.reloadable ? 'a reload' : 'a restart') },
];

/** The settings of this server. */
export function Settings() {
  const from = useResource<Config>('/v1/config');
  const [search, setSearch] = useQuery('q');
  const [section, setSection] = useQuery('section');
  const [changed, setChanged] = useQuery('set');
  const [sorting, setSorting] = useSorting('');
  const [opened, setOpened] = useState<Setting | null>(null);
  const wanted = search.toLowerCase();
  return (
    <Loaded from={from} rows={12}>
      {({ file, settings }) => {
        const sections = [...new Set(settings.map(sectionOf))];
        const found = settings.filter((it) => (
          (section === '' || sectionOf(it) === section) && (changed === '' || it.origin.kind !== 'default')
          && `${it.key} ${textOf(it.value)} ${placeOf(it.origin)}`.toLowerCase().includes(wanted)
        ));
        return (
          <>
            <Note>{file ? <>Read from <code>{file}</code>, the environment and flags</> : 'There is no configuration file: settings come from the environment and flags'}; {plural(settings.filter((it) => it.origin.kind !== 'default').length, 'setting')} of {settings.length} set.</Note>
            <div class="toolbar">
              <SearchField label="Search the configuration" placeholder="Setting, value, file" value={search} onValue={setSearch} />
              <SelectField label="Section" isLabelHidden value={section} onValue={setSection} choices={[{ value: '', label: 'Every section' }, ...sections]} />
              <CheckField label="Only what was set" isOn={changed !== ''} onValue={(isOn) => setChanged(isOn ? '1' : '')} />
            </div>
            <Table label="Settings" columns={COLUMNS} rows={sorted(found, COLUMNS, sorting)} keyOf={(it) => it.key} sorting={sorting}
              onSort={setSorting} onOpen={setOpened}
              empty={changed !== '' && search === '' && section === ''
                ? <Empty icon="settings" title="Every setting has its default" command="cove serve --config cove.toml"><p>Values come from a file, variables or flags.</p></Empty>
                : <Empty icon="search" title="No setting matches"><p>Change the filters above.</p></Empty>} />
            {opened && <OneSetting setting={opened} onClose={() => setOpened(null)} />}
          </>
        );
      }}
    </Loaded>
  );
}

function variableOf(key: string): string {
  return `COVE_${key.toUpperCase().replaceAll('.', '__')}`;
}

function OneSetting({ setting, onClose }: { setting: Setting; onClose: () => void }) {
  const { key, value, origin, masked, reloadable } = setting;
  return (
    <Drawer title={key} onClose={onClose}>
      <Facts items={[
        ['Value', <code class="foreign">{textOf(value)}</code>],
        masked && ['Masked', 'A secret is not shown; … stands in its place'],
        ['Default', <code>{textOf(setting.default)}</code>],
        ['From', origin.kind === 'default' ? 'default' : `${origin.name ?? origin.kind}${origin.line ? `, line ${origin.line}` : ''}`],
        !key.includes('"') && ['Variable', <code>{variableOf(key)}</code>],
        ['A change needs', reloadable ? 'a reload' : 'a restart'],
      ]} />
    </Drawer>
  );
}
