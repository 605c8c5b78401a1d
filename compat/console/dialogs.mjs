// Every dialog, menu and tab that the other checks leave out: opened, looked at by axe in both themes,
// and left by Escape, which changes nothing. And two criteria of WCAG 2.2 that axe does not see.
export const name = 'dialogs';

export async function check({ page, go, api, expect, until, axe }) {
  const session = await api('POST', '/v1/sessions', { metadata: { name: 'dialogs' } });
  await api('POST', `/v1/sessions/${session.id}/exec`, { command: 'echo text > note.txt' });
  await api('POST', `/v1/sessions/${session.id}/snapshots`, {});
  await api('POST', '/v1/agents', {
    name: 'dialogs', files: [{ path: 'agent.py', content: 'pass\n' }, { path: 'install.sh', content: 'echo installed\n' }],
    runtime: { type: 'command', argv: ['python3', 'agent.py'] },
  });
  const warehouse = (await api('GET', '/catalog/v1/config')).overrides.prefix;
  const namespaces = `/catalog/v1/${warehouse}/namespaces`;
  const column = { id: 1, name: 'id', type: 'long', required: false };
  await api('POST', namespaces, { namespace: ['dialogs'] });
  for (const table of ['kept', 'gone']) {
    await api('POST', `${namespaces}/dialogs/tables`, { name: table, schema: { type: 'struct', 'schema-id': 0, fields: [column] } });
  }
  await api('DELETE', `${namespaces}/dialogs/tables/gone`);
  await api('PUT', `/catalog/management/v1/${warehouse}/policies/dialogs`, { principal: 'tenant:bi', namespace: ['dialogs'], table: 'kept', 'row-filter': true });
  await api('POST', `/catalog/management/v1/${warehouse}/grants`, { principal: 'tenant:bi', rights: ['read'] });

  await api('POST', '/v1/tenants', { name: 'dialogs', server: '127.0.0.1:1', database: 'none' });
  await api('POST', '/v1/queue/pause');
  const waiting = await api('POST', '/v1/executions', { language: 'bash', source: 'exit 0', label: 'dialogs' });

  const seen = [];
  /** Opens a dialog by presses, looks at it, and leaves it by Escape. */
  async function dialog(title, ...presses) {
    for (const selector of presses) await page.click(selector);
    await page.waitForSelector(`dialog[open] h2:has-text("${title}")`);
    await axe();
    await page.keyboard.press('Escape');
    await page.waitForSelector('dialog[open]', { state: 'detached' });
    seen.push(title);
  }
  async function menu(selector) {
    await page.click(selector);
    await page.waitForSelector('[role=menuitem]:visible');
    await axe();
    await page.keyboard.press('Escape');
    await until('a closed menu', async () => await page.locator('[role=menuitem]:visible').count() === 0);
  }
  async function tab(words, then) {
    await page.click(`main [role=tab]:has-text("${words}")`);
    await page.waitForSelector(then);
    await axe();
  }

  await go('/');
  await dialog('As command', 'button:has-text("As command")');
  await menu('button[aria-label="Account and settings"]');

  await go('/sessions');
  await dialog('New session', 'button:has-text("New session")');
  await go(`/sessions/${session.id}`);
  await menu('button[aria-label="More actions for the session"]');
  await dialog('End the session', 'button[aria-label="More actions for the session"]', '[role=menuitem]:has-text("End")');
  await page.click('main [role=tab]:has-text("Files")');
  await dialog('New file', 'button[aria-label="New file"]');
  await dialog('New directory', 'button[aria-label="New directory"]');
  await page.click('[role=treeitem]:has-text("note.txt")');
  await page.waitForSelector('.cm-content:has-text("text")');
  await dialog('Rename or move', 'button[aria-label="Rename or move"]');
  await dialog('Delete note.txt', '.files-view button[aria-label="Delete"]');
  await page.click('main [role=tab]:has-text("Snapshots")');
  await page.waitForSelector('[role=row] button:has-text("New session")');
  await dialog('Delete the snapshot', '[role=row] button[aria-label*="elete"]');

  await go('/agents/dialogs');
  await page.waitForSelector('[role=row]:has-text("v1")');
  await dialog('Install output', '[role=row] button:has-text("Install output")');
  await dialog('Remove agent dialogs', 'button[aria-label="Remove agent dialogs"]');

  await go('/databases/dialogs');
  await tab('Server connections', '[role=grid], .empty');
  await page.click('main [role=tab]:has-text("Definition")');
  await menu('button[aria-label="More actions for dialogs"]');
  await dialog('Close all connections', 'button[aria-label="More actions for dialogs"]', '[role=menuitem]:has-text("Close all")');
  await dialog('Change dialogs', 'button[aria-label="More actions for dialogs"]', '[role=menuitem]:has-text("Change")');

  await go('/queue');
  await page.waitForSelector('.stat');
  await page.waitForSelector('[role=gridcell]:has-text("dialogs")');
  await dialog('Cancel everything that waits', 'main button[aria-label^="More actions"]', '[role=menuitem]:has-text("Cancel all")');
  await api('DELETE', `/v1/executions/${waiting.id}`);
  await api('POST', '/v1/queue/resume');

  // The catalog: every tab of a warehouse, of a namespace and of a table.
  await go(`/catalog/${warehouse}`);
  await page.waitForSelector('.stat:has-text("Tables")');
  await axe();
  await page.click('main [role=tab]:has-text("Dropped")');
  await dialog('Purge dialogs.gone now', 'button[aria-label="Purge dialogs.gone"]');
  await tab('Connect', '.command');
  await tab('Maintenance', 'button:has-text("Dry run")');
  await tab('Rights', '[role=row]:has-text("tenant:bi")');
  await dialog('Take rights back', 'button[aria-label="Take rights of tenant:bi back"]');
  await dialog('Grant rights on', 'button:has-text("Grant rights")');
  await tab('Policies', '[role=row]:has-text("dialogs")');
  await dialog('Remove policy dialogs', 'button[aria-label="Remove dialogs"]');
  await page.click('button[aria-label="Edit dialogs"]');
  await page.waitForSelector('dialog[open] .policy-preview .badge:has-text("filtered")');
  await axe();
  await page.keyboard.press('Escape');
  await go(`/catalog/${warehouse}/dialogs`);
  await tab('Maintenance', 'button:has-text("Dry run")');
  await tab('Rights', '[role=row]:has-text("tenant:bi")');
  await dialog('Drop namespace dialogs', 'header button:has-text("Drop")');
  await go(`/catalog/${warehouse}/dialogs/kept`);
  await tab('Files', '.empty, [role=grid]');
  await tab('Health', '.empty, .stat');
  await page.click('main [role=tab]:has-text("Maintenance")');
  await page.click('label:has-text("Remove old metadata files")');
  await page.click('button:has-text("Dry run")');
  await page.waitForSelector('button:has-text("Do it"):enabled');
  await dialog('Do it to dialogs.kept', 'button:has-text("Do it")');
  await dialog('Drop table dialogs.kept', 'header button:has-text("Drop")');
  expect(new Set(seen).size === seen.length, seen.join(', '));

  // 2.4.11: what has the focus is not behind what sticks to the edge of a narrow and low window.
  await page.setViewportSize({ width: 360, height: 500 });
  for (const to of ['/executions', '/databases', `/catalog/${warehouse}/dialogs/kept`]) {
    await go(to);
    await page.waitForSelector('main [role=row], main [role=tab]');
    for (const key of [...Array(25).fill('Tab'), ...Array(12).fill('Shift+Tab')]) {
      await page.keyboard.press(key);
      await until(`a focus that is seen at ${to}`, () => page.evaluate(() => {
        const element = document.activeElement;
        if (element === null || element === document.body || element.matches('main')) return true;
        const box = element.getBoundingClientRect();
        const points = [[0.5, 0.5], [0.1, 0.2], [0.9, 0.8], [0.1, 0.8], [0.9, 0.2]];
        const isSeen = points.some(([x, y]) => {
          const top = document.elementFromPoint(box.left + box.width * x, box.top + box.height * y);
          return top !== null && (element.contains(top) || top.contains(element) || top.closest('label')?.control === element);
        });
        if (isSeen) return true;
        throw new Error(`${element.tagName} ${(element.getAttribute('aria-label') ?? element.textContent ?? '').slice(0, 40)} is hidden`);
      }));
    }
  }
  await page.setViewportSize({ width: 1280, height: 800 });

  // 2.5.7: nothing is done by dragging alone; files that can be dropped can be chosen as well.
  await go(`/sessions/${session.id}?tab=files`);
  await page.waitForSelector('button[aria-label="Upload files"]');
  await until('no element that is dragged', async () => await page.locator('[draggable=true]').count() === 0);

  for (const path of [`/v1/sessions/${session.id}`, '/v1/agents/dialogs', '/v1/tenants/dialogs', `/catalog/management/v1/${warehouse}/policies/dialogs`, `${namespaces}/dialogs/tables/kept`]) {
    await api('DELETE', path);
  }
}
