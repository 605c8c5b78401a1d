// Home in a wide and in a narrow window.
export const name = 'home';

export async function check({ page, go, api, until, axe, shot }) {
  await go('/');
  await page.waitForSelector('.stat-value');
  await page.waitForSelector('.home-verdict:has-text("Untrusted code") a:has-text("Doctor")');
  await axe();
  await shot('home');
  // Charts have points at the first look, in words too, and the range is in the address.
  await until('two steps of history', async () => {
    const report = await api('GET', '/v1/history?series=cove_executions_running');
    return report.series[0]?.values.filter((it) => it !== null).length > 1;
  });
  await page.reload();
  const line = page.locator('.stat:has-text("Executions running") svg.sparkline');
  await line.waitFor();
  await until('points of the line after a reload', async () => /^M.*L/.test(await line.locator('path').getAttribute('d')));
  await until('words of the line', async () => /in the last 15 min: now \d+, lowest 0/.test(await line.getAttribute('aria-label')));
  await page.click('button:has-text("1 h")');
  await until('the range in the address', () => page.url().includes('range=1h'));
  await page.waitForSelector('svg.sparkline[aria-label*="in the last 1 h"]');
  await page.setViewportSize({ width: 360, height: 740 });
  for (const to of ['/', '/system', '/playground', '/executions', '/queue']) {
    await go(to);
    await until(`${to} as wide as a window of 360 pixels`, () => page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth));
  }
  await axe();
  await page.click('button[aria-label="Open the navigation"]');
  await page.click('nav a:has-text("Executions")');
  await page.waitForSelector('h1:text("Executions")');
}
