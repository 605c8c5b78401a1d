// The server itself: its checks, nodes, who is signed in, licences.
export const name = 'system';

export async function check({ page, go, api, expect, until, axe, shot, base }) {
  await go('/system');
  await page.waitForSelector('.checks strong:text-is("stop a busy one")');
  const { last } = await api('GET', '/v1/doctor');
  const words = last.report.ok ? 'Untrusted code can be run here' : 'Untrusted code cannot be run here';
  await page.waitForSelector(`[role=status]:has-text("${words}")`);
  expect(await page.locator('.checks [role=listitem]').count() === last.report.checks.length, 'every check has a row');
  await axe();
  await shot('doctor');
  await page.click('button:has-text("Run again")');
  await until('a newer report', async () => (await api('GET', '/v1/doctor')).last.started_ms > last.started_ms);
  await page.waitForSelector('button:has-text("Run again"):not([disabled])');
  await page.click('[role=tab]:has-text("Nodes")');
  const { nodes } = await api('GET', '/v1/nodes');
  await page.waitForSelector(`[role=row]:has-text("${nodes[0].id}")`);
  await axe();
  await shot('system');
  await page.click('[role=tab]:has-text("About")');
  await page.waitForSelector('dd:has-text("catalog")');
  const href = await page.getAttribute('a:has-text("Licences")', 'href');
  const answer = await fetch(base + href);
  expect(answer.ok && (await answer.text()).includes('preact'), 'the licences are there');
  await axe();
}
