// The list and the detail: filters in the address, hostile names, cancel, the queue.
export const name = 'executions';

const HOSTILE = '<img src=x onerror=alert(1)>"\'&lt;';

export async function check({ page, go, api, expect, axe, shot, until }) {
  const hostile = await api('POST', '/v1/executions', {
    language: 'bash', label: HOSTILE, source: 'echo "<script>alert(1)</script>"; echo "<b>err</b>" >&2; exit 3',
  });
  await api('GET', `/v1/executions/${hostile.id}?wait=true`);
  const many = Array.from({ length: 100 }, (_, at) => ({ language: 'bash', source: 'exit 0', label: `many-${at}` }));
  await api('POST', '/v1/executions/batch', { executions: many });

  await go('/executions');
  await page.waitForSelector('[role=row][data-at]');
  await axe();
  await shot('executions');
  // Windowing: the document has the rows that are seen, the table says how many there are.
  await until('few rows in the document', async () => await page.locator('[role=row][data-at]').count() < 80);
  // To the end by keyboard; older pages come by themselves.
  await page.focus('[data-at="0"]');
  await page.keyboard.press('End');
  await until('the next page', async () => Number(await page.getAttribute('[role=grid]', 'aria-rowcount')) > 101);

  // Filters are in the address, and a link shows the same.
  await go(`/executions?label=${encodeURIComponent(HOSTILE)}`);
  await page.waitForSelector('[role=row] .foreign');
  await until('one row with this label', async () => await page.locator('[role=row][data-at]').count() === 1);
  expect(await page.textContent('[role=row] .foreign') === HOSTILE, 'the label is text');
  await page.focus('[data-at="0"]');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.outcome:has-text("RE")');
  await until('the address of the record', () => page.url().endsWith(hostile.id));
  await page.waitForSelector('pre:has-text("<script>alert(1)</script>")');
  await axe();
  await shot('execution');
  await page.click('[role=tab]:has-text("Events")');
  await page.waitForSelector('[role=gridcell]:has-text("verdict")');
  await axe();
  await page.click('[role=tab]:has-text("Stages")');
  await page.waitForSelector('[role=gridcell]:has-text("run")');

  // What runs is ended from the list's page of it.
  const endless = await api('POST', '/v1/executions', { language: 'bash', source: 'while :; do :; done', label: 'endless' });
  await go(`/executions/${endless.id}`);
  await page.waitForSelector('.badge:has-text("running")');
  await page.click('button[aria-label="More actions"]');
  await page.click('[role=menuitem]:has-text("Cancel")');
  const question = page.locator('dialog button:has-text("End it")');
  await question.waitFor();
  await question.click();
  await page.waitForSelector('.badge:has-text("cancelled")');

  // The queue: pause, a waiting row, resume.
  await go('/queue');
  await page.waitForSelector('.stat');
  await page.click('button:has-text("Pause")');
  await page.waitForSelector('.badge:has-text("paused")');
  const waiting = await api('POST', '/v1/executions', { language: 'bash', source: 'exit 0', label: 'waits' });
  await page.waitForSelector('[role=gridcell]:has-text("waits")');
  await axe();
  await page.waitForSelector('figure.plot[aria-label*="Running in the last 15 min: now"] canvas');
  await shot('queue');
  await page.click('button:has-text("Resume")');
  await until('its end', async () => (await api('GET', `/v1/executions/${waiting.id}`)).state === 'finished');
}
