// Makes the pictures of docs/console.md again: every screen of a server with the world of `cove demo`,
// in both themes, wide and narrow, as WebP.
//
//   cove demo --serve                      # in another terminal, with the data directory that it names
//   COVE_URL=http://127.0.0.1:4100 COVE_TOKEN=$(cove token) node gallery.mjs [DIRECTORY [all | NAME…]]
//
// Without a directory it writes ../../docs/images, without names the pictures of the page; `all` is for a
// look at every screen.
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const base = process.env.COVE_URL.replace(/\/$/, '');
const token = process.env.COVE_TOKEN;
const here = dirname(fileURLToPath(import.meta.url));
const [directory = join(here, '..', '..', 'docs', 'images'), ...named] = process.argv.slice(2);
/** Pictures of docs/console.md. */
const DOCUMENTED = ['home', 'playground', 'tests', 'execution', 'queue', 'files', 'databases', 'catalog-table'];
const wanted = named.length > 0 ? named : DOCUMENTED;
const SIZES = [{ width: 1600, height: 1000 }, { width: 400, height: 860 }];
const QUALITY = 0.8;
const DEADLINE_MS = 30_000;
/** Label of the executions that are made here. */
const LABEL = 'gallery';

async function api(method, path, json) {
  const response = await fetch(base + path, {
    method, headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' }, body: json && JSON.stringify(json),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return text === '' ? undefined : JSON.parse(text);
}

const found = (what, it) => { if (it === undefined) throw new Error(`no ${what}: is this the server of \`cove demo\`?`); return it; };

// The world of the demo.
const { sessions } = await api('GET', '/v1/sessions?limit=100');
const sessionFor = (purpose) => found(`session with the purpose ${purpose}`, sessions.find((it) => it.metadata?.purpose === purpose && it.state !== 'ended')).id;
const { executions } = await api('GET', '/v1/executions?verdict=WA&text=cove-demo&limit=1');
const judged = found('execution with tests', executions[0]);
const warehouse = found('warehouse', (await api('GET', '/catalog/management/v1/warehouses')).warehouses[0]).name;
const program = {
  language: 'python', label: LABEL, source: "for n in range(1, 16):\n    print('fizz' * (n % 3 == 0) + 'buzz' * (n % 5 == 0) or n)\n",
};
const ran = await api('POST', '/v1/executions', program);
await api('GET', `/v1/executions/${ran.id}?wait=true`);

/** Name, place, what is waited for, and what is done before the picture. */
const SCREENS = [
  ['signin', '/', '#token', null, { isSignedIn: false }],
  ['home', '/', '.stat-value', null],
  ['playground', '/playground', '.cm-content', async (page) => {
    await page.click('button:has-text("Run")');
    await page.waitForSelector('.outcome', { timeout: DEADLINE_MS }).catch(() => undefined);
  }],
  ['executions', '/executions', '[role=row][data-at]', null],
  ['execution', `/executions/${ran.id}`, '.outcome', null],
  ['tests', `/executions/${judged.id}`, '.outcome', null],
  ['queue', '/queue', '.stat', null],
  ['sessions', '/sessions', '[role=row][data-at]', null],
  ['terminal', `/sessions/${sessionFor('database')}`, 'button:has-text("Open a terminal")', async (page) => {
    await page.click('button:has-text("Open a terminal")');
    await page.waitForSelector('.badge:has-text("connected")');
    await page.keyboard.type("psql -c 'SELECT * FROM customers LIMIT 5'\n");
    await page.waitForFunction(() => document.querySelector('.xterm-rows')?.textContent.includes('rows)'));
  }],
  ['files', `/sessions/${sessionFor('files')}?tab=files`, '[role=treeitem]', async (page) => {
    await page.locator('[role=treeitem]').last().click();
    await page.waitForSelector('.cm-content, .empty');
  }],
  ['cells', `/sessions/${sessionFor('cells')}?tab=cells`, '.cell, .empty', null],
  ['chat', `/sessions/${sessionFor('conversation')}?tab=chat`, 'textarea', null],
  ['agents', '/agents', '[role=row][data-at]', null],
  ['databases', '/databases', '[role=row][data-at]', null],
  ['database', '/databases/cove-demo', '.plot canvas, .empty', null],
  ['catalog', `/catalog/${warehouse}`, '.stat', null],
  ['catalog-table', `/catalog/${warehouse}/demo/orders`, '.stat', null],
  ['catalog-snapshots', `/catalog/${warehouse}/demo/orders?tab=snapshots`, '.commits svg', null],
  ['catalog-health', `/catalog/${warehouse}/demo/orders?tab=health`, '.stat', null],
  ['catalog-access', `/catalog/${warehouse}?tab=access`, '[role=row], .empty', null],
  ['access', '/access', '[role=row][data-at], .empty', null],
  ['reached', '/access?tab=reached', '[role=row], .empty', null],
  ['doctor', '/system', '.checks', null],
  ['nodes', '/system?tab=nodes', '[role=row], .empty', null],
];

const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
const encoder = await (await browser.newContext()).newPage();

/** A picture as WebP, which the browser writes. */
async function webp(png) {
  const address = await encoder.evaluate(async ([data, quality]) => {
    const bytes = Uint8Array.from(atob(data), (it) => it.charCodeAt(0));
    const bitmap = await createImageBitmap(new Blob([bytes], { type: 'image/png' }));
    const canvas = document.createElement('canvas');
    [canvas.width, canvas.height] = [bitmap.width, bitmap.height];
    canvas.getContext('2d').drawImage(bitmap, 0, 0);
    return canvas.toDataURL('image/webp', quality);
  }, [png.toString('base64'), QUALITY]);
  return Buffer.from(address.split(',')[1], 'base64');
}

mkdirSync(directory, { recursive: true });
let failures = 0;
let bytes = 0;
for (const [name, to, selector, act, { isSignedIn = true } = {}] of SCREENS) {
  if (!wanted.includes('all') && !wanted.includes(name)) continue;
  for (const viewport of SIZES) {
    const context = await browser.newContext({ viewport, reducedMotion: 'reduce', colorScheme: 'light' });
    if (isSignedIn) await context.addInitScript((secret) => { if (location.protocol === 'http:') sessionStorage.setItem('cove.token', secret); }, token);
    const page = await context.newPage();
    page.setDefaultTimeout(DEADLINE_MS);
    try {
      await page.goto(`${base}/console${to}`);
      await page.waitForSelector(selector);
      if (act !== null) await act(page);
      for (const colorScheme of ['light', 'dark']) {
        await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
        // Charts and terminals take other colours at their next frames.
        await page.waitForTimeout(400);
        const picture = await webp(await page.screenshot());
        bytes += picture.length;
        writeFileSync(join(directory, `console-${name}-${viewport.width}-${colorScheme}.webp`), picture);
      }
    } catch (error) {
      failures += 1;
      console.error(`${name} at ${viewport.width}: ${error.message.split('\n')[0]}`);
    }
    await context.close();
  }
}
await browser.close();
console.log(`${(bytes / 1024).toFixed(0)} KiB in ${directory}; ${failures} failed`);
process.exitCode = failures === 0 ? 0 : 1;
