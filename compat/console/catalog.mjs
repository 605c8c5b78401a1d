// The catalog: an empty table made by the interface, its schema that changes, a search, a drop that comes back, rows.
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { promisify } from 'node:util';

export const name = 'catalog';

const SCHEMA = {
  type: 'struct', 'schema-id': 0, 'identifier-field-ids': [1], fields: [
    { id: 1, name: 'id', type: 'long', required: true, doc: '<b>number</b> of the order' },
    {
      id: 2, name: 'address', required: false, type: {
        type: 'struct', fields: [{ id: 3, name: 'city', type: 'string', required: false }],
      },
    },
  ],
};
/** A snapshot whose id no double holds: the console must show each digit. */
const SNAPSHOT = '6148914691236517205';

/** A table of which the console shows a part: NULL, a value that is too long, more rows than a page has. */
const ROWS = `
import os, pyarrow
from pyiceberg.catalog import load_catalog
catalog = load_catalog("c", type="rest", uri=os.environ["COVE_URL"] + "/catalog", token=os.environ["COVE_TOKEN"])
data = pyarrow.table({"id": list(range(1, 151)), "name": ["<b>kettle</b>", None, "x" * 1000] * 50})
catalog.create_namespace("goods_shop")
catalog.create_table(("goods_shop", "goods"), data.schema).append(data)
`;
/** Time for PyIceberg and DuckDB to start in a sandbox of a busy machine. */
const QUERY_MS = 120_000;

/** Runs a program. Connections to the server go through this process, which may not stand still. */
const run = promisify(execFile);

/** Makes the table, and a template that has what a query needs. */
async function makeRows({ base, api, token }) {
  await run(process.env.COVE_PYTHON, ['-c', ROWS], { env: { ...process.env, COVE_URL: base, COVE_TOKEN: token } });
  const places = process.env.COVE_PACKAGES.split(':').flatMap((it) => ['-C', it, '.']);
  const { stdout: packed } = await run('tar', ['-c', '--exclude=__pycache__', ...places], { maxBuffer: 1 << 30, encoding: 'buffer' });
  const archive = createHash('sha256').update(packed).digest('hex');
  const put = await fetch(`${base}/v1/template-files/${archive}`, { method: 'PUT', headers: { authorization: `Bearer ${token}` }, body: packed });
  if (!put.ok) throw new Error(await put.text());
  const steps = [
    { type: 'copy', archive, source: '.', to: '/workspace/packages/' },
    { type: 'env', values: { PYTHONPATH: '/workspace/packages' } },
  ];
  const built = await api('POST', '/v1/templates?wait=true', { name: 'lake', steps });
  if (built.status !== 'ready') throw new Error(JSON.stringify(built));
}

export async function check({ page, base: address, go, api, expect, axe, shot, until, token }) {
  const warehouse = (await api('GET', '/catalog/v1/config')).overrides.prefix;
  const base = `/catalog/v1/${warehouse}/namespaces`;
  await api('POST', base, { namespace: ['console.shop'] });
  await api('POST', `${base}/console.shop/tables`, { name: 'orders', schema: SCHEMA, properties: { owner: '<i>sales</i>' } });
  const table = `/catalog/${warehouse}/console.shop/orders`;
  const commit = (updates) => api('POST', `${base}/console.shop/tables/orders`, { requirements: [], updates });

  // The tree leads to the table.
  await go('/catalog');
  await page.click('[role=treeitem]:has-text("console.shop")');
  await page.waitForSelector('h1:text("console.shop")');
  await axe();
  await page.click('[role=treeitem]:has-text("orders")');
  await page.waitForSelector('h1:text("orders")');
  await page.waitForSelector('[role=row]:has-text("<b>number</b>")');
  await until('columns within columns', async () => await page.locator('[role=row]:has-text("city")').count() === 1);
  await page.waitForSelector('.facts dd:has-text("<i>sales</i>")');
  await axe();
  await shot('catalog-table');

  // A search over columns goes to their table.
  await go('/catalog');
  await page.fill('[data-search]', 'city');
  await page.waitForSelector('.catalog-results a:has-text("in console.shop.orders")');
  await axe();
  await page.click('.catalog-results a');
  await page.waitForSelector('h1:text("orders")');

  // What another client commits appears: another schema, a snapshot.
  await commit([
    { action: 'add-schema', schema: { ...SCHEMA, fields: [{ ...SCHEMA.fields[0], name: 'number' }, { id: 4, name: 'total', type: 'double', required: false }] } },
    { action: 'set-current-schema', 'schema-id': -1 },
  ]);
  await page.waitForSelector('[role=row]:has-text("total")');
  await page.click('[role=tab]:has-text("Schema")');
  for (const word of ['was named id', 'added', 'removed']) await page.waitForSelector(`[role=row]:has-text("${word}")`);
  await axe();
  await shot('catalog-schema');
  // By hand, because a number of JavaScript would lose digits of the id.
  const manifests = (await api('GET', `${base}/console.shop/tables/orders`)).metadata.location;
  const snapshot = {
    'snapshot-id': 'ID', 'sequence-number': 1, 'timestamp-ms': Date.now(), 'manifest-list': `${manifests}/metadata/none.avro`, 'schema-id': 1,
    summary: { operation: 'append', 'added-records': '7', 'total-records': '7', 'total-files-size': '2048', 'total-data-files': '1', 'total-delete-files': '0' },
  };
  await page.evaluate(async ([address, body]) => {
    const sent = await fetch(address, {
      method: 'POST', body, headers: { authorization: `Bearer ${sessionStorage.getItem('cove.token')}`, 'content-type': 'application/json' },
    });
    if (!sent.ok) throw new Error(await sent.text());
  }, [`${base}/console.shop/tables/orders`, JSON.stringify({
    requirements: [], updates: [
      { action: 'add-snapshot', snapshot },
      { action: 'set-snapshot-ref', 'ref-name': 'main', type: 'branch', 'snapshot-id': 'ID' },
      { action: 'set-snapshot-ref', 'ref-name': 'v1', type: 'tag', 'snapshot-id': 'ID' },
    ],
  }).replaceAll('"ID"', SNAPSHOT)]);
  await page.click('[role=tab]:has-text("Snapshots")');
  await page.waitForSelector(`code:text("${SNAPSHOT}")`);
  await page.waitForSelector('.commits svg .commit-size');
  await page.waitForSelector('.ref:has-text("v1")');
  await axe();
  await shot('catalog-snapshots');

  // Clients, maintenance with a dry run before it is done, rights.
  await page.click('[role=tab]:has-text("Connect")');
  await page.waitForSelector('.command:has-text("console.shop")');
  await page.click('button:has-text("Spark")');
  await page.waitForSelector('.command:has-text("`console.shop`.`orders`")');
  await axe();
  await page.click('[role=tab]:has-text("Maintenance")');
  expect(await page.isDisabled('button:has-text("Do it")'), 'a dry run comes first');
  await page.click('label:has-text("Expire snapshots")');
  await page.click('button:has-text("Dry run")');
  await page.waitForSelector('button:has-text("Do it"):enabled');
  await axe();
  await page.click('[role=tab]:has-text("Rights")');
  await page.click('button:has-text("Grant rights")');
  await page.fill('dialog input', 'tenant:readers');
  await page.click('dialog button:has-text("Grant")');
  await page.waitForSelector('[role=row]:has-text("tenant:readers")');
  // A role has the right as well, its member through it, and a policy restricts it.
  await api('POST', '/catalog/management/v1/roles', { name: 'analysts', members: ['tenant:bi'] });
  await api('POST', `/catalog/management/v1/${warehouse}/grants`, { principal: 'role:analysts', namespace: ['console.shop'], rights: ['write'] });
  await go('/catalog');
  await go(`${table}?tab=rights`);
  await page.waitForSelector('[aria-label="Effective rights"] [role=row]:has-text("tenant:bi"):has-text("role analysts")');
  await page.click('button:has-text("New policy")');
  const policy = page.locator('dialog[open]');
  await policy.locator('label:text-is("Name") + input').fill('totals');
  await policy.locator('label:text-is("Principal") + input').fill('role:analysts');
  await policy.locator('select').first().selectOption('total');
  // Before it is saved: what it would change for the role, and for a member of it.
  await policy.locator('.policy-preview .badge:has-text("filtered")').waitFor();
  await policy.locator('.policy-preview [role=row]:has-text("total"):has-text("replace-with-null")').waitFor();
  await policy.locator('label:text-is("For the principal") + input').fill('tenant:nobody');
  await policy.locator('.policy-preview .badge:has-text("denied")').waitFor();
  await policy.locator('label:text-is("For the principal") + input').fill('tenant:bi');
  await policy.locator('.policy-preview .badge:has-text("filtered")').waitFor();
  await axe();
  await shot('catalog-policy');
  await policy.locator('button:has-text("Save")').click();
  await page.waitForSelector('[aria-label="Policies"] [role=row]:has-text("totals"):has-text("1 masked column")');
  await axe();
  for (const [width, height] of [[400, 900], [1600, 1000]]) {
    await page.setViewportSize({ width, height });
    await shot(`catalog-rights-${width}`);
    await go(`/catalog/${warehouse}?tab=access&principal=tenant:bi&beside=tenant:readers`);
    await page.waitForSelector('[aria-label="Differences"] [role=row]:has-text("read, write")');
    await page.waitForSelector('[aria-label="Rights of the principal"] [role=row]:has-text("role analysts")');
    await page.waitForSelector('.todo li:has-text("totals")');
    await axe();
    await shot(`catalog-access-${width}`);
    await go(`${table}?tab=rights`);
  }
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.click('button[aria-label="Remove totals"]');
  expect(await page.isDisabled('dialog button:has-text("Remove policy")'), 'the name of the policy has to be typed');
  await page.fill('dialog input', 'totals');
  await page.click('dialog button:has-text("Remove policy")');
  await page.waitForSelector('[aria-label="Policies"] [role=row]:has-text("totals")', { state: 'detached' });
  await api('DELETE', '/catalog/management/v1/roles/analysts');

  // Rows need programs that this session lacks: the server's words are shown, and no session stays.
  await page.click('[role=tab]:has-text("Rows")');
  await page.click('button:has-text("Show 100 rows")');
  await page.waitForSelector('.note.bad:has-text("pyiceberg")');
  await page.waitForSelector('.command:has-text("pip install")');
  await axe();
  const ended = () => until('the end of the session', async () => (
    (await api('GET', '/v1/sessions')).sessions.every((it) => it.metadata?.purpose !== 'rows of the console' || it.state === 'ended')
  ));
  await ended();

  // With them, a sandbox reads the files of the server's directory through its grant.
  await makeRows({ base: address, api, token });
  await go(`/catalog/${warehouse}/goods_shop/goods?tab=rows`);
  await page.locator('select:has(option:text-is("lake"))').selectOption('lake');
  await page.click('button:has-text("Show 100 rows")');
  await page.waitForSelector('h2:has-text("100 rows")', { timeout: QUERY_MS });
  const found = page.locator('[aria-label="Rows"] [role=row]');
  await found.filter({ hasText: '<b>kettle</b>' }).first().waitFor();
  await found.filter({ hasText: 'NULL' }).first().waitFor();
  await found.filter({ hasText: 'x'.repeat(250) }).first().waitFor();
  expect(await found.filter({ hasText: 'x'.repeat(400) }).count() === 0, 'a long value is cut');
  await page.click('.toolbar button:has-text("As command")');
  await page.waitForSelector('dialog .command:has-text("grants/catalog")');
  await page.keyboard.press('Escape');
  await axe();
  await shot('catalog-rows');
  await ended();
  await api('DELETE', '/v1/templates/lake');
  await go(table);

  // A drop asks for the name, and what was dropped comes back.
  await page.click('header button:has-text("Drop")');
  expect(await page.isDisabled('dialog button:has-text("Drop table")'), 'the name has to be typed first');
  await page.fill('dialog input', 'orders');
  await page.click('dialog button:has-text("Drop table")');
  await page.waitForSelector('h1:text("console.shop")');
  await go(`/catalog/${warehouse}?tab=dropped`);
  await page.waitForSelector('[role=row]:has-text("console.shop.orders")');
  await axe();
  await shot('catalog-dropped');
  await page.click('button[aria-label="Bring console.shop.orders back"]');
  await page.waitForSelector('.empty:has-text("Nothing was dropped")');
  await go(table);
  await page.waitForSelector('h1:text("orders")');
  await page.waitForSelector('.stat:has-text("Rows"):has-text("7")');
}
