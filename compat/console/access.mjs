// The access log: records of real statements, filters, followed ones, an export, the picture.
export const name = 'access';

const HOSTILE = "SELECT '<img src=x onerror=alert(1)>' AS \"<b>\", id FROM items LIMIT 1";

async function run(api, sql) {
  const source = `psql -Atc "$SQL" < /dev/null; true`;
  const made = await api('POST', '/v1/executions', {
    language: 'bash', source, env: { SQL: sql }, grants: [{ kind: 'postgres', tenant: 'shop', access: 'read_only' }],
  });
  return api('GET', `/v1/executions/${made.id}?wait=true`);
}

export async function check({ page, go, api, expect, axe, shot, until }) {
  const first = await run(api, HOSTILE);
  await run(api, 'DELETE FROM items');
  await go('/access');
  await page.waitForSelector('[role=row]:has-text("SELECT")');
  await axe();
  await shot('access');
  expect(await page.locator('[role=row][data-at] img').count() === 0, 'statements are text');

  // What comes later waits until it is asked for, so that no row jumps.
  const before = await page.getAttribute('[role=grid]', 'aria-rowcount');
  await run(api, 'SELECT count(*) FROM items');
  await page.waitForSelector('button:has-text("new record")');
  expect(await page.getAttribute('[role=grid]', 'aria-rowcount') === before, 'the list stands still');
  await page.click('button:has-text("new record")');
  await page.waitForSelector('[role=row]:has-text("count")');

  // A record in full, and from there only those of one execution.
  await page.click(`[role=row]:has-text("FROM items LIMIT")`);
  await page.waitForSelector('dialog .output');
  await axe();
  await page.click('dialog button:has-text("Only this one")');
  await until('the filter in the address', () => page.url().includes(first.id));
  await page.waitForFunction(() => document.querySelectorAll('[role=row][data-at]').length > 0
    && !document.body.textContent.includes('DELETE'));
  const saved = page.waitForEvent('download');
  await page.click('button:has-text("Export")');
  await page.click('[role=menuitem]:has-text("CSV")');
  const stream = await (await saved).createReadStream();
  let text = '';
  for await (const part of stream) text += part;
  expect(text.startsWith('at,seq,tenant,holder'), text.slice(0, 80));
  expect(text.includes('FROM items LIMIT') && !text.includes('DELETE'), 'the export has what is shown');

  await go('/access?outcome=refused');
  await page.waitForFunction(() => document.querySelectorAll('[role=row][data-at]').length > 0 || document.querySelector('.empty'));
  await go('/access?tab=reached');
  await page.waitForSelector('[role=row]:has-text("postgres:shop")');
  await axe();
  await go('/access?tab=picture');
  await page.waitForSelector('svg.picture');
  await axe();
  await shot('picture');
}
