// Tenants of real databases: figures, clients, pause and resume, a new one in the form.
export const name = 'databases';

/** Code in a sandbox that holds a server connection of PostgreSQL for as long as it runs. */
const HOLD = {
  language: 'bash', label: 'holds-a-connection', source: "psql -Atc 'SELECT pg_sleep(60)'",
  limits: { wall_ms: 60_000 }, grants: [{ kind: 'postgres', tenant: 'shop', access: 'read_only' }],
};

export async function check({ page, go, api, expect, axe, shot, until }) {
  const holding = await api('POST', '/v1/executions', HOLD);
  await go('/databases');
  await page.waitForSelector('[role=row]:has-text("shop") .badge:has-text("active")');
  await until('both tenants in the list', async () => await page.locator('[role=row][data-at]').count() === 2);
  await axe();
  await shot('databases');

  // Figures move while somebody is connected, and charts are drawn of them.
  await page.click('[role=row]:has-text("shop")');
  await page.waitForSelector('.stat:has-text("1 with a server connection")');
  await until('a chart', () => page.locator('.plot canvas').count());
  // What was before the page was opened is in the chart.
  await page.waitForSelector('figure.plot[aria-label*="in use in the last 15 min: now 1"]');
  await page.reload();
  await page.waitForSelector('figure.plot[aria-label*="in use in the last 15 min: now 1"]');
  await axe();
  await shot('database');

  await page.click('[role=tab]:has-text("Clients")');
  const client = `[role=row]:has-text("${holding.id.slice(0, 8)}") .badge`;
  await page.waitForSelector(client);
  await axe();
  await page.click('label:has-text("Active only")');
  await until('the filter in the address', () => page.url().includes('active=1'));
  await page.waitForSelector(client);
  await page.click('[role=tab]:has-text("Server connections")');
  await page.waitForSelector('[role=row] .badge:has-text("active")');
  await page.click('[role=tab]:has-text("Definition")');
  await page.waitForSelector('.badge:has-text("healthy"), .badge:has-text("unknown")');
  await axe();

  // Pause and resume, and the end of a client.
  await page.click('button:has-text("Pause")');
  await page.waitForSelector('header .badge:has-text("paused")');
  expect((await api('GET', '/v1/tenants/shop')).admission === 'paused', 'the server says so too');
  await page.click('button:has-text("Resume")');
  await page.waitForSelector('header .badge:has-text("active")');
  await page.click('[role=tab]:has-text("Clients")');
  await page.click('button[aria-label^="Close client"]');
  await page.click('dialog button:has-text("Close client")');
  await page.waitForSelector('.empty:has-text("No client"), .empty:has-text("of that kind")');
  const ended = await api('GET', `/v1/executions/${holding.id}?wait=true`);
  expect(ended.result.verdict === 'RE', `the program ended with ${ended.result.verdict}`);

  // A tenant by the form; a wrong name is told at its field.
  await go('/databases');
  await page.click('button:has-text("New tenant")');
  await page.fill('dialog input >> nth=0', 'no spaces');
  await page.getByLabel('Server', { exact: true }).fill('127.0.0.1:1');
  await page.click('dialog button:has-text("Create tenant")');
  await page.waitForSelector('dialog .text-bad, dialog .note.bad');
  await axe();
  await page.fill('dialog input >> nth=0', 'console-made');
  await page.click('dialog button:has-text("Create tenant")');
  await page.waitForSelector('h1:text("console-made")');
  await page.click('button[aria-label="More actions for console-made"]');
  await page.click('[role=menuitem]:has-text("Remove")');
  expect(await page.isDisabled('dialog button:has-text("Remove tenant")'), 'the name has to be typed first');
  await page.fill('dialog input', 'console-made');
  await page.click('dialog button:has-text("Remove tenant")');
  await page.waitForSelector('h1:text("Databases")');
}
