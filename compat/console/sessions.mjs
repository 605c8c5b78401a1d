// A session: its files with hostile names, a terminal under a flood, cells, a snapshot, a grant.
export const name = 'sessions';

const HOSTILE = '<img src=x onerror=alert(1)>.txt';

export async function check({ page, go, api, expect, axe, shot, until }) {
  // Sockets of the page, to lose one.
  await page.addInitScript(() => {
    const Original = globalThis.WebSocket;
    globalThis.__sockets = [];
    globalThis.WebSocket = class extends Original {
      constructor(...given) {
        super(...given);
        globalThis.__sockets.push(this);
      }
    };
  });
  const made = await api('POST', '/v1/sessions', {
    metadata: { name: '<b>console</b>' }, grants: [{ kind: 'postgres', tenant: 'shop', access: 'read_only' }],
  });
  await api('POST', `/v1/sessions/${made.id}/exec`, {
    command: `mkdir -p src; echo 'print(1)' > src/main.py; touch '${HOSTILE}'; printf '\\0\\1' > data.bin`,
  });
  await go('/sessions');
  await page.waitForSelector(`[role=row]:has-text("${made.id}")`);
  await axe();
  await shot('sessions');

  // Nothing runs before it is asked for; then a flood of output is stopped by Ctrl+C.
  await go(`/sessions/${made.id}`);
  await page.waitForSelector('h1:has-text("<b>console</b>")');
  await axe();
  await page.click('button:has-text("Open a terminal")');
  await page.waitForSelector('.badge:has-text("connected")');
  const rows = page.locator('.xterm-rows');
  await page.keyboard.type('head -c 10000000 /dev/zero | tr "\\\\0" y; echo; echo over-$((6*7))\n');
  await until('the end of ten megabytes', async () => (await rows.textContent()).includes('over-42'));
  await page.keyboard.type('yes\n');
  await until('the flood', async () => /y\s*y\s*y/.test(await rows.textContent()));
  await page.keyboard.press('Control+C');
  await page.keyboard.type('clear; echo still-$((6*7))\n');
  await until('the prompt', async () => (await rows.textContent()).includes('still-42'));
  await shot('terminal');

  // A lost connection: the same shell comes back, with what it has shown.
  const pids = async () => (await api('GET', `/v1/sessions/${made.id}/terminals`)).terminals.map((it) => it.pid);
  const before = await pids();
  expect(before.length === 1, JSON.stringify(before));
  await page.keyboard.type('here=kept-$((50-8))\n');
  await until('the command', async () => (await rows.textContent()).includes('here='));
  await page.evaluate(() => globalThis.__sockets.filter((it) => it.url.includes('/terminal')).forEach((it) => it.close(4000)));
  await page.waitForSelector('.badge:has-text("connecting again")');
  await page.waitForSelector('.badge:has-text("connected")');
  await page.keyboard.type('echo $here\n');
  await until('the variable of the same shell', async () => (await rows.textContent()).includes('kept-42'));
  await until('what was shown before', async () => (await rows.textContent()).includes('still-42'));
  expect(JSON.stringify(await pids()) === JSON.stringify(before), 'the shell is the same');

  // After a reload it is offered, and nothing is attached before a click.
  await page.reload();
  await page.click(`button:has-text("process ${before[0]}")`);
  await page.waitForSelector('.badge:has-text("connected")');
  await until('what it has shown', async () => (await rows.textContent()).includes('kept-42'));
  await page.keyboard.type('echo again-$here\n');
  await until('the same shell', async () => (await rows.textContent()).includes('again-kept-42'));
  await axe();
  await shot('terminal-again');
  await page.click('button[aria-label^="Close Shell"]');
  await until('a closed tab ends its shell', async () => (await pids()).length === 0);

  // Files: names are text, what the sandbox writes appears, an edit is saved.
  await page.click('[role=tab]:has-text("Files")');
  await page.waitForSelector(`[role=treeitem]:has-text("onerror")`);
  expect(await page.locator('[role=treeitem] img').count() === 0, 'names of files are text');
  await page.click('[role=treeitem]:has-text("data.bin")');
  await page.waitForSelector('.empty:has-text("no text in UTF-8")');
  await page.click('[role=treeitem]:has-text("src")');
  await page.click('[role=treeitem]:has-text("main.py")');
  await page.waitForSelector('.cm-content:has-text("print")');
  await axe();
  await shot('files');
  await api('POST', `/v1/sessions/${made.id}/exec`, { command: 'echo new > appeared.txt' });
  await page.waitForSelector('[role=treeitem]:has-text("appeared.txt")');
  await page.click('.cm-content');
  await page.keyboard.type('# edited\n');
  await page.click('button:has-text("Save")');
  await page.waitForSelector('.toast:has-text("Saved main.py")');
  const saved = await api('POST', `/v1/sessions/${made.id}/exec`, { command: 'cat src/main.py' });
  expect(saved.stdout.includes('# edited'), saved.stdout);

  await page.click('[role=tab]:has-text("Cells")');
  await page.click('button:has-text("Run")');
  await page.waitForSelector('.cell .badge:has-text("OK")');
  await axe();
  await page.click('[role=tab]:has-text("Metrics")');
  await page.waitForSelector('.stat:has-text("Memory")');
  await axe();
  await page.click('[role=tab]:has-text("Snapshots")');
  await page.click('button:has-text("Make a snapshot")');
  await page.waitForSelector('[role=row] button:has-text("New session")');
  await axe();

  // The form offers what the token may give, says before whether it would be given, and gives it.
  await page.click('[role=tab]:has-text("Access")');
  await page.waitForSelector('.grant:has-text("postgres:shop")');
  await page.click('button:has-text("Give a grant")');
  const dialog = page.locator('dialog[open]');
  await dialog.locator('label:text-is("What")').waitFor();
  const offered = await dialog.locator('select').first().locator('option').allTextContents();
  for (const word of ['postgres:shop', 'mysql:judge', 'http:']) expect(offered.some((it) => it.startsWith(word)), `${word} in ${offered}`);
  await dialog.locator('select').first().selectOption({ label: offered.find((it) => it.startsWith('postgres:shop')) });
  // The session has a grant at this port already.
  await dialog.locator('[role=status]:has-text("It would be refused")').waitFor();
  await axe();
  await shot('grant-refused');
  await dialog.locator('select').first().selectOption({ label: offered.find((it) => it.startsWith('mysql:judge')) });
  await dialog.locator('[role=status]:has-text("It would be given")').waitFor();
  await dialog.locator('button:has-text("To read and write")').click();
  await dialog.locator('summary:has-text("Port and limits")').click();
  await dialog.locator('label:has-text("Rows of a statement") + input').fill('50');
  await dialog.locator('[role=status]:has-text("It would be given")').waitFor();
  await axe();
  for (const [width, height] of [[400, 900], [1600, 1000]]) {
    await page.setViewportSize({ width, height });
    await shot(`grant-form-${width}`);
  }
  await page.setViewportSize({ width: 1280, height: 800 });
  await dialog.locator('button:has-text("JSON")').click();
  const said = JSON.parse(await dialog.locator('textarea').inputValue());
  expect(said.access === 'read_write' && said.limits.rows === 50, JSON.stringify(said));
  await dialog.locator('textarea').fill('{"kind": "postgres", "tenant": "nowhere", "port": 7000}');
  await dialog.locator('[role=status]:has-text("It would be refused")').waitFor();
  await dialog.locator('textarea').fill(JSON.stringify(said));
  await dialog.locator('[role=status]:has-text("It would be given")').waitFor();
  await dialog.locator('button:has-text("Give it")').click();
  await page.waitForSelector('.grant:has-text("mysql:judge")');
  const given = (await api('GET', `/v1/sessions/${made.id}`)).grants;
  expect(given.length === 2 && given[1].limits.rows === 50, JSON.stringify(given));
  await page.click('.grant:has-text("mysql:judge") button:has-text("Take back")');
  await page.waitForSelector('.grant:has-text("mysql:judge")', { state: 'detached' });

  // A grant is taken back at once.
  await page.click('[role=tab]:has-text("Access")');
  await page.waitForSelector('.grant:has-text("postgres:shop")');
  await axe();
  await page.click('button:has-text("Take back")');
  await until('the grant is gone', async () => ((await api('GET', `/v1/sessions/${made.id}`)).grants ?? []).length === 0);
  await page.click('[role=tab]:has-text("Events")');
  await page.waitForSelector('.timeline:visible, .empty:visible');
  await axe();

  await page.click('button:has-text("Pause")');
  await page.waitForSelector('header .badge:has-text("paused")');
  await page.click('button:has-text("Resume")');
  await page.waitForSelector('header .badge:has-text("active")');
  await page.click('button[aria-label="More actions for the session"]');
  await page.click('[role=menuitem]:has-text("End")');
  await page.click('dialog button:has-text("End session")');
  await page.waitForSelector('h1:text("Sessions")');
}
