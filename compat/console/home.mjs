// Home in a wide and in a narrow window.
export const name = 'home';

export async function check({ page, go, expect, axe, shot }) {
  await go('/');
  await page.waitForSelector('.stat-value');
  await page.waitForSelector('.home-verdict:has-text("Untrusted code") a:has-text("Doctor")');
  await axe();
  await shot('home');
  await page.setViewportSize({ width: 360, height: 740 });
  for (const to of ['/', '/system', '/playground', '/executions', '/queue']) {
    await go(to);
    await page.waitForTimeout(0);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    expect(overflow <= 0, `${to} is ${overflow} pixels wider than a window of 360`);
  }
  await axe();
  await page.click('button[aria-label="Open the navigation"]');
  await page.click('nav a:has-text("Executions")');
  await page.waitForSelector('h1:text("Executions")');
}
