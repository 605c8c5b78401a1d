// The health of a table: manifests that are written here lead to figures, a histogram and what to do.
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export const name = 'health';

/** Bytes of Avro: https://avro.apache.org/docs/1.11.1/specification/#binary-encoding */
function long(value) {
  const bytes = [];
  let rest = BigInt.asUintN(64, (BigInt(value) << 1n) ^ (BigInt(value) >> 63n));
  while (rest > 127n) {
    bytes.push(Number(rest & 127n) | 128);
    rest >>= 7n;
  }
  return Buffer.from([...bytes, Number(rest)]);
}

const text = (value) => Buffer.concat([long(Buffer.byteLength(value)), Buffer.from(value)]);
const record = (...fields) => Buffer.concat(fields);

/** A container file with one block: https://avro.apache.org/docs/1.11.1/specification/#object-container-files */
function container(schema, records, header = {}) {
  const sync = Buffer.alloc(16, 7);
  const entries = Object.entries({ 'avro.schema': JSON.stringify(schema), 'avro.codec': 'null', ...header });
  const block = Buffer.concat(records);
  return Buffer.concat([
    Buffer.from('Obj\u0001'), long(entries.length), ...entries.flatMap(([key, value]) => [text(key), text(value)]), long(0), sync,
    long(records.length), long(block.length), block, sync,
  ]);
}

const field = (id, name_, type) => ({ name: name_, type, 'field-id': id });
const FILE = {
  type: 'record', name: 'r2', fields: [
    field(134, 'content', 'int'), field(100, 'file_path', 'string'), field(101, 'file_format', 'string'),
    field(102, 'partition', { type: 'record', name: 'r102', fields: [field(1000, 'region', 'string')] }),
    field(103, 'record_count', 'long'), field(104, 'file_size_in_bytes', 'long'),
  ],
};
const MANIFEST = {
  type: 'record', name: 'manifest_entry', fields: [
    field(0, 'status', 'int'), field(1, 'snapshot_id', 'long'), field(3, 'sequence_number', 'long'), field(2, 'data_file', FILE),
  ],
};
const LIST = {
  type: 'record', name: 'manifest_file', fields: [
    field(500, 'manifest_path', 'string'), field(501, 'manifest_length', 'long'), field(502, 'partition_spec_id', 'int'), field(517, 'content', 'int'),
    field(515, 'sequence_number', 'long'), field(503, 'added_snapshot_id', 'long'), field(504, 'added_files_count', 'int'), field(505, 'existing_files_count', 'int'),
  ],
};
const MIB = 1024 * 1024;
const ID = 77;

const entry = (content, place, region, rows, bytes) => record(
  long(1), long(ID), long(1), long(content), text(place), text('PARQUET'), text(region), long(rows), long(bytes),
);

export async function check({ page, go, api, until, axe, shot }) {
  const warehouse = (await api('GET', '/catalog/v1/config')).overrides.prefix;
  const base = `/catalog/v1/${warehouse}/namespaces`;
  await api('POST', base, { namespace: ['health'] });
  const made = await api('POST', `${base}/health/tables`, {
    name: 'events',
    schema: { type: 'struct', 'schema-id': 0, fields: [{ id: 1, name: 'region', type: 'string', required: false }] },
    'partition-spec': { 'spec-id': 0, fields: [{ 'source-id': 1, 'field-id': 1000, name: 'region', transform: 'identity' }] },
  });
  const { location } = made.metadata;
  const write = (file, bytes) => {
    writeFileSync(fileURLToPath(`${location}/metadata/${file}`), bytes);
    return { path: `${location}/metadata/${file}`, length: bytes.length };
  };
  await go(`/catalog/${warehouse}/health/events?tab=health`);
  await page.waitForSelector('.empty:has-text("No file yet")');

  const small = Array.from({ length: 12 }, (_, at) => entry(0, `small-${at}`, '<b>eu</b>', 100, 5 * MIB));
  const data = write('data.avro', container(MANIFEST, [...small, entry(0, 'large', 'us', 9000, 900 * MIB)], { 'partition-spec-id': '0' }));
  const deletes = write('deletes.avro', container(MANIFEST, [entry(1, 'gone', '<b>eu</b>', 4000, 2000)], { 'partition-spec-id': '0' }));
  const list = write('list.avro', container(LIST, [[data, 0, 13], [deletes, 1, 1]].map(([{ path, length }, content, files]) => record(
    text(path), long(length), long(0), long(content), long(1), long(ID), long(files), long(0),
  ))));
  await api('POST', `${base}/health/tables/events`, {
    requirements: [], updates: [
      { action: 'add-snapshot', snapshot: {
        'snapshot-id': ID, 'sequence-number': 1, 'timestamp-ms': Date.now(), 'manifest-list': list.path, 'schema-id': 0, summary: { operation: 'append' },
      } },
      { action: 'set-snapshot-ref', 'ref-name': 'main', type: 'branch', 'snapshot-id': ID },
      { action: 'set-snapshot-ref', 'ref-name': 'v1', type: 'tag', 'snapshot-id': ID },
    ],
  });
  await page.waitForSelector('.stat:has-text("Data files"):has-text("13")');
  await page.waitForSelector('.stat:has-text("Small files"):has-text("12 below")');
  await page.waitForSelector('.stat:has-text("Deleted rows"):has-text("39.2 %")');
  await page.waitForSelector('svg.bin[aria-label^="12 files"]');
  await page.waitForSelector('.todo li:has-text("12 small data files in 1 partition")');
  await page.waitForSelector('.command:has-text("rewrite_data_files")');
  await page.waitForSelector('[role=row]:has-text("<b>eu</b>")');
  await axe();
  await shot('catalog-health');
  for (const [width, height] of [[400, 900], [1600, 1000]]) {
    await page.setViewportSize({ width, height });
    await until(`nothing cut off at ${width} pixels`, () => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
    await shot(`catalog-health-${width}`);
  }
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.selectOption('select', 'v1');
  await page.waitForURL(/ref=v1/);
  await page.waitForSelector('.stat:has-text("Data files"):has-text("13")');
}
