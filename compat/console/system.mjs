// The server itself: nodes, who is signed in, licences.
export const name = 'system';

export async function check({ page, go, api, expect, axe, shot, base }) {
  await go('/system');
  const { nodes } = await api('GET', '/v1/nodes');
  await page.waitForSelector(`[role=row]:has-text("${nodes[0].id}")`);
  await axe();
  await shot('system');
  await page.click('[role=tab]:has-text("Doctor")');
  await page.waitForSelector('.command:has-text("cove doctor")');
  await axe();
  await page.click('[role=tab]:has-text("About")');
  await page.waitForSelector('dd:has-text("catalog")');
  const href = await page.getAttribute('a:has-text("Licences")', 'href');
  const answer = await fetch(base + href);
  expect(answer.ok && (await answer.text()).includes('preact'), 'the licences are there');
  await axe();
}
