// The main tasks by keyboard alone: every key is pressed, nothing is clicked. The focus is seen and
// not covered wherever it rests, and a dialog gives it back.
export const name = 'walks';
export const isSignedIn = false;

/** Steps of Tab after which something counts as not reached. */
const TABS_MAX = 120;

export async function check({ page, base, token, api, expect, until, server, axe }) {
  const press = (...keys) => keys.reduce((before, key) => before.then(() => page.keyboard.press(key)), Promise.resolve());
  const type = (text) => page.keyboard.type(text);
  const isFocused = (selector) => page.evaluate(() => document.activeElement !== null) && page.locator(selector).first().evaluate(
    (element) => element === document.activeElement || element.contains(document.activeElement),
  ).catch(() => false);

  /** What is wrong with the focus that is shown; null where it is seen. */
  const hidden = () => page.evaluate(() => {
    const element = document.activeElement;
    if (element === document.body || element.closest('.xterm, .editor')) return null;
    const box = element.getBoundingClientRect();
    const name = `${element.tagName} ${element.className} "${(element.getAttribute('aria-label') ?? element.textContent ?? '').slice(0, 40)}"`;
    if (box.width === 0 || box.height === 0) return `${name} has no size`;
    // A row is wider than what is seen of it: its beginning is enough.
    const [x, y] = [Math.min(box.left + Math.min(box.width / 2, 12), innerWidth - 1), box.top + box.height / 2];
    const top = document.elementFromPoint(x, y);
    if (top === null || !(element.contains(top) || top.contains(element) || top.closest('label')?.control === element)) return `${name} is covered at ${x}, ${y}`;
    const sources = [element, element.parentElement, element.closest('label'), element.closest('.field, .tree-row, .search')].filter(Boolean);
    const isMarked = sources.some((it) => {
      const style = getComputedStyle(it);
      return (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== 'none';
    });
    return isMarked || element.matches('main') ? null : `${name} does not show the focus`;
  });

  /** Goes to an element by Tab, looking at the focus at each step. */
  async function tabTo(selector, key = 'Tab') {
    await page.waitForSelector(selector);
    for (let at = 0; at < TABS_MAX; at += 1) {
      if (await isFocused(selector)) return;
      await page.keyboard.press(key);
      // What is being drawn anew, or a message that goes by itself, may cover it for a moment.
      await until(`a focus that is seen at ${page.url()}`, async () => {
        const wrong = await hidden();
        if (wrong !== null) throw new Error(wrong);
        return true;
      });
    }
    throw new Error(`Tab does not reach ${selector} at ${page.url()}`);
  }

  /** Opens a page by the palette. */
  async function goTo(text, heading) {
    await press('Control+k');
    await page.waitForSelector('[role=combobox]');
    await type(text);
    await page.waitForSelector(`[role=option][aria-selected=true]:has-text("${text}")`);
    await press('Enter');
    await page.waitForSelector(`h1:has-text("${heading}")`);
  }

  /** Presses a button, whose dialog gives the focus back to it. */
  async function inDialog(selector, use) {
    await tabTo(selector);
    await press('Enter');
    await page.waitForSelector('dialog[open]');
    await axe();
    await use();
    await page.waitForSelector('dialog[open]', { state: 'detached' });
  }

  // Sign in.
  await page.goto(`${base}/console/`);
  await page.waitForSelector('#token');
  await tabTo('#token');
  await type(token);
  await press('Enter');
  await page.waitForSelector('h1:has-text("Home")');

  // The keys are listed, and Escape gives the focus back.
  await tabTo('main a');
  const before = await page.evaluate(() => document.activeElement.textContent);
  await press('?');
  await page.waitForSelector('dialog h2:has-text("Keyboard")');
  for (const words of ['go to Executions', 'leave an editor', 'search in this page']) await page.waitForSelector(`dialog dd:has-text("${words}")`);
  await press('Escape');
  await until('the focus is back', async () => (await page.evaluate(() => document.activeElement.textContent)) === before);

  // A program with input.
  await press('g', 'p');
  await page.waitForSelector('h1:has-text("Playground")');
  await page.waitForSelector('.cm-content');
  await tabTo('.cm-content');
  await press('Control+a');
  await type("name = input('name? ')\nprint('hello', name)");
  await press('Control+Enter');
  await until('the question', async () => (await page.textContent('.xterm-rows')).includes('name?'));
  await until('the terminal has the focus', () => isFocused('.xterm'));
  await type('walker\n');
  await until('the answer', async () => (await page.textContent('.xterm-rows')).includes('hello walker'));
  await page.waitForSelector('.outcome:has-text("OK")');
  await press('F6');
  await until('F6 leaves the terminal', async () => !(await isFocused('.xterm')));

  // A session: terminal, F6, a file that is edited and saved, a grant given and taken back.
  const session = await api('POST', '/v1/sessions', { metadata: { name: 'walked' } });
  await api('POST', `/v1/sessions/${session.id}/exec`, { command: 'echo before > note.txt' });
  await goTo(session.id, 'walked');
  await tabTo('button:has-text("Open a terminal")');
  await press('Enter');
  await page.waitForSelector('.badge:has-text("connected")');
  await until('the terminal has the focus', () => isFocused('.xterm'));
  await type('echo typed-$((6*7))\n');
  await until('the shell answers', async () => (await page.textContent('.xterm-rows')).includes('typed-42'));
  await press('F6');
  await tabTo('[role=tab][aria-selected=true]');
  await press('ArrowRight');
  await page.waitForSelector('[role=treeitem]:has-text("note.txt")');
  await tabTo('[role=treeitem]');
  await until('the file has the focus', async () => {
    if (await isFocused('[role=treeitem]:has-text("note.txt")')) return true;
    await press('ArrowDown');
    return false;
  });
  await press('Enter');
  await page.waitForSelector('.cm-content:has-text("before")');
  await tabTo('.cm-content');
  await press('Control+a');
  await type('after');
  await press('Control+s');
  await page.waitForSelector('.toast:has-text("Saved note.txt")');
  await press('F6');
  expect((await api('POST', `/v1/sessions/${session.id}/exec`, { command: 'cat note.txt' })).stdout.startsWith('after'), 'the file is saved');
  await tabTo('[role=tab][aria-selected=true]');
  await until('the tab of the grants', async () => {
    if (await page.locator('[role=tab][aria-selected=true]:has-text("Access")').count() > 0) return true;
    await press('ArrowRight');
    return false;
  });
  await inDialog('button:has-text("Give a grant")', async () => {
    await tabTo('dialog select');
    await type('postgres:shop');
    await page.waitForSelector('dialog [role=status]:has-text("It would be given")');
    await tabTo('dialog button:has-text("Give it")');
    await press('Enter');
  });
  await page.waitForSelector('.grant:has-text("postgres:shop")');
  await tabTo('button:has-text("Take back")');
  await press('Enter');
  await page.waitForSelector('.grant', { state: 'detached' });

  // A tenant is found by its name, paused and resumed.
  await goTo('shop', 'shop');
  await tabTo('header button:has-text("Pause")');
  await press('Enter');
  await page.waitForSelector('header .badge:has-text("paused")');
  await tabTo('header button:has-text("Resume")');
  await press('Enter');
  await page.waitForSelector('header .badge:has-text("paused")', { state: 'detached' });

  // A table is found by its name, and its schemas are compared.
  const warehouse = (await api('GET', '/catalog/v1/config')).overrides.prefix;
  const tables = `/catalog/v1/${warehouse}/namespaces/walks/tables`;
  const column = (id, word) => ({ id, name: word, type: 'long', required: false });
  const schema = { type: 'struct', 'schema-id': 0, fields: [column(1, 'one')] };
  await api('POST', `/catalog/v1/${warehouse}/namespaces`, { namespace: ['walks'] });
  await api('POST', tables, { name: 'strolls', schema });
  await api('POST', `${tables}/strolls`, { requirements: [], updates: [
    { action: 'add-schema', schema: { ...schema, fields: [column(1, 'one'), column(2, 'two')] } },
    { action: 'set-current-schema', 'schema-id': -1 },
  ] });
  await goTo('strolls', 'strolls');
  await tabTo('main [role=tab][aria-selected=true]');
  await until('the tab of the schema', async () => {
    if (await page.locator('[role=tab][aria-selected=true]:has-text("Schema")').count() > 0) return true;
    await press('ArrowRight');
    return false;
  });
  await page.waitForSelector('[role=row]:has-text("added"):has-text("two")');

  // The access log is filtered and exported.
  await press('g', 'l');
  await page.waitForSelector('h1:has-text("Access log")');
  await press('/');
  await until('the search has the focus', () => isFocused('[data-search]'));
  await type('postgres');
  await until('the filter in the address', () => page.url().includes('postgres'));
  await tabTo('button:has-text("Export")');
  await press('Enter');
  await page.waitForSelector('[role=menuitem]:has-text("CSV")');
  await until('the item has the focus', async () => {
    if (await isFocused('[role=menuitem]:has-text("CSV")')) return true;
    await press('ArrowDown');
    return false;
  });
  const saved = page.waitForEvent('download');
  await press('Enter');
  await (await saved).cancel();

  // The question before a node is drained; Escape leaves it as it was.
  await press('g', 'y');
  await page.waitForSelector('h1:has-text("System")');
  await tabTo('[role=tab][aria-selected=true]');
  await press('ArrowRight');
  await page.waitForSelector('[role=tab][aria-selected=true]:has-text("Nodes")');
  await inDialog('button:has-text("Drain")', () => press('Escape'));
  await until('the focus is back at the button', () => isFocused('button:has-text("Drain")'));

  // What was opened lately is offered first.
  await press('Control+k');
  await page.waitForSelector('[role=option]:has-text("opened lately")');
  await axe();
  await press('Escape');

  // An execution that Cove failed at as often as it may is found and retried.
  const record = await api('POST', '/v1/executions', { language: 'bash', source: 'sleep 20', label: 'walks-dead', limits: { wall_ms: 30_000 } });
  for (const attempt of [1, 2]) {
    await until(`attempt ${attempt} runs`, async () => {
      const { state, attempts } = await api('GET', `/v1/executions/${record.id}`).catch(() => ({}));
      return state === 'running' && attempts === attempt;
    });
    await server.kill();
    await server.restart();
  }
  await until('its death', async () => (await api('GET', `/v1/executions/${record.id}`)).state === 'dead');
  await page.waitForSelector('.banner.bad', { state: 'detached' });
  await press('g', 'e');
  await page.waitForSelector('h1:has-text("Executions")');
  await press('/');
  await type('walks-dead');
  await page.waitForSelector('[role=row][data-at]:has-text("dead")');
  await tabTo('[role=row][data-at]');
  await press('Enter');
  await page.waitForSelector('.badge:has-text("dead")');
  await tabTo('button[aria-label="More actions"]');
  await press('Enter');
  await until('the item has the focus', async () => {
    if (await isFocused('[role=menuitem]:has-text("Retry")')) return true;
    await press('ArrowDown');
    return false;
  });
  await press('Enter');
  await page.waitForSelector('.badge:has-text("running"), .badge:has-text("queued")');
  await api('DELETE', `/v1/executions/${record.id}`);

  // Sign out.
  await tabTo('button[aria-label="Account and settings"]');
  await press('Enter');
  await until('the item has the focus', async () => {
    if (await isFocused('[role=menuitem]:has-text("Sign out")')) return true;
    await press('ArrowDown');
    return false;
  });
  await press('Enter');
  await page.waitForSelector('#token');
  expect(await page.evaluate(() => sessionStorage.getItem('cove.token')) === null, 'the token is forgotten');
}
