// Measures the console in Chromium and prints a table: for docs/console.md, run by hand.
//
//   COVE_URL=http://127.0.0.1:4100 COVE_TOKEN=… node figures.mjs [first paint inp rows terminal heap offline]
//
// COVE_HEAP_MINUTES says for how long the heap is watched (15). The server needs sessions. It is a
// measurement and no test: a busy machine makes other figures.
import { connect, createServer } from 'node:net';
import { chromium } from 'playwright-core';

const token = process.env.COVE_TOKEN;
const behind = new URL(process.env.COVE_URL);
const HEAP_MINUTES = Number(process.env.COVE_HEAP_MINUTES ?? 15);
const OFFLINE_S = 30;
const LOADS = 7;
const ROWS = 10_000;

// The browser's way to the server, which `offline` cuts.
const sockets = new Set();
let isCut = false;
const proxy = createServer((front) => {
  if (isCut) { front.destroy(); return; }
  const back = connect({ host: behind.hostname, port: Number(behind.port) });
  for (const socket of [front, back]) {
    sockets.add(socket);
    socket.on('close', () => { sockets.delete(socket); front.destroy(); back.destroy(); });
    socket.on('error', () => {});
  }
  front.pipe(back);
  back.pipe(front);
});
await new Promise((resolve) => { proxy.listen(0, '127.0.0.1', resolve); });
const base = `http://127.0.0.1:${proxy.address().port}`;
const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });

const sorted = (values) => [...values].sort((one, other) => one - other);
const quantile = (values, part) => sorted(values)[Math.min(values.length - 1, Math.floor(values.length * part))];
const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
const row = (what, value) => console.log(`| ${what} | ${value} |`);

async function api(method, path, json) {
  const response = await fetch(`${behind.origin}${path}`, {
    method, headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' }, body: json && JSON.stringify(json),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return text === '' ? undefined : JSON.parse(text);
}

async function open({ isSignedIn = true } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  if (isSignedIn) {
    await context.addInitScript((secret) => { if (location.protocol === 'http:') sessionStorage.setItem('cove.token', secret); }, token);
  }
  const page = await context.newPage();
  return { page, context, cdp: await context.newCDPSession(page) };
}

async function go(page, to) {
  await page.goto(`${base}/console${to}`);
  await page.waitForSelector('main h1');
}

/** Requests and bytes on the wire until a view is shown. */
async function first() {
  for (const [name, isSignedIn, selector] of [['sign-in', false, '#token'], ['Home', true, 'main h1']]) {
    const { page, context, cdp } = await open({ isSignedIn });
    const sizes = new Map();
    await cdp.send('Network.enable');
    const addresses = new Map();
    cdp.on('Network.requestWillBeSent', ({ requestId, request }) => addresses.set(requestId, request.url));
    cdp.on('Network.loadingFinished', ({ requestId, encodedDataLength }) => sizes.set(requestId, encodedDataLength));
    await page.goto(`${base}/console/`);
    await page.waitForSelector(selector);
    await page.waitForLoadState('networkidle');
    const files = [...sizes].filter(([id]) => new URL(addresses.get(id)).pathname.startsWith('/console'));
    const bytes = files.reduce((sum, [, size]) => sum + size, 0);
    row(`First view, ${name}: requests for files, bytes`, `${files.length}, ${(bytes / 1024).toFixed(1)} KiB`);
    await context.close();
  }
}

/** First and largest paint of Home, nothing cached, with the processor slowed to a quarter. */
async function paint() {
  const [fcp, lcp] = [[], []];
  for (let at = 0; at < LOADS; at += 1) {
    const { page, context, cdp } = await open();
    await cdp.send('Emulation.setCPUThrottlingRate', { rate: 4 });
    await go(page, '/');
    await pause(1500);
    const found = await page.evaluate(() => new Promise((done) => {
      new PerformanceObserver((list) => done({
        fcp: performance.getEntriesByName('first-contentful-paint')[0].startTime,
        lcp: list.getEntries().at(-1).startTime,
      })).observe({ type: 'largest-contentful-paint', buffered: true });
    }));
    fcp.push(found.fcp);
    lcp.push(found.lcp);
    await context.close();
  }
  row(`FCP, LCP of Home, CPU 4 times slower, median of ${LOADS}`, `${Math.round(quantile(fcp, 0.5))} ms, ${Math.round(quantile(lcp, 0.5))} ms`);
}

/** Time from an input to the next paint, on every screen that is used daily. */
async function inp() {
  const session = await api('POST', '/v1/sessions', { metadata: { name: 'figures' } });
  const jobs = Array.from({ length: 100 }, (_, at) => ({ language: 'bash', source: 'exit 0', label: `figures-${at}` }));
  await api('POST', '/v1/executions/batch', { executions: jobs });
  const { page, context } = await open();
  await page.addInitScript(() => {
    window.interactions = new Map();
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) {
        if (!entry.interactionId) continue;
        window.interactions.set(entry.interactionId, Math.max(entry.duration, window.interactions.get(entry.interactionId) ?? 0));
      }
    }).observe({ type: 'event', durationThreshold: 16, buffered: true });
  });
  const tabs = async () => {
    const count = await page.locator('main [role=tab]').count();
    for (let at = 0; at < count; at += 1) {
      await page.locator('main [role=tab]').nth(at).click();
      await pause(400);
    }
  };
  const palette = async () => {
    await page.keyboard.press('Control+k');
    await page.waitForSelector('[role=combobox]');
    await page.keyboard.type('figures', { delay: 60 });
    await pause(300);
    await page.keyboard.press('Escape');
    await pause(200);
  };
  const rows = async () => {
    const grid = page.locator('[role=row][data-at="0"]').first();
    if (await grid.count() === 0) return;
    await grid.focus();
    for (const key of ['j', 'j', 'PageDown', 'End', 'Home', 'k']) {
      await page.keyboard.press(key);
      await pause(120);
    }
  };
  const search = async () => {
    if (await page.locator('main [data-search]').count() === 0) return;
    await page.locator('main [data-search]').first().click();
    await page.keyboard.type('figures-1', { delay: 60 });
    await pause(500);
  };
  const playground = async () => {
    await page.locator('.cm-content').click();
    await page.keyboard.type('# typed while it is measured', { delay: 40 });
    await page.keyboard.press('Control+Enter');
    await pause(2500);
  };
  const every = [];
  for (const [to, ...uses] of [
    ['/', palette], ['/playground', playground], ['/executions', rows, search, palette], ['/queue', rows],
    ['/sessions', rows, search], [`/sessions/${session.id}`, tabs], ['/databases', rows, palette],
    ['/catalog', search], ['/access', tabs, search, rows],
  ]) {
    await go(page, to);
    await pause(1000);
    for (const use of uses) await use();
    const found = await page.evaluate(() => [...window.interactions.values()]);
    every.push(...found);
    console.error(`${to}: ${found.length} slower than 16 ms, slowest ${Math.max(0, ...found)} ms`);
  }
  // Interactions that take less than 16 ms are not reported: the true quantiles are no larger.
  row(`Input to next paint, ${every.length} interactions on 9 screens: p75, p98`, `${quantile(every, 0.75)} ms, ${quantile(every, 0.98)} ms`);
  await api('DELETE', `/v1/sessions/${session.id}`);
  await context.close();
}

/** Frames while 10,000 rows are scrolled of which 500 cells change each 100 ms. */
async function rows() {
  const { page, context } = await open();
  await go(page, '/system');
  const found = await page.evaluate(async (length) => {
    const kit = await import(document.querySelector('script[type=module]').src);
    const place = document.createElement('div');
    document.querySelector('main').replaceChildren(place);
    const list = Array.from({ length }, (_, at) => ({ id: `row-${at}`, number: kit.signal(at) }));
    const Cell = ({ value }) => value.value;
    const columns = [
      { id: 'id', title: 'Id', width: '1fr', render: (it) => it.id },
      { id: 'number', title: 'Number', width: '120px', align: 'end', render: (it) => kit.h(Cell, { value: it.number }) },
    ];
    const began = performance.now();
    kit.render(kit.h(kit.Table, { label: 'Many', columns, rows: list, keyOf: (it) => it.id }), place);
    await new Promise((done) => { requestAnimationFrame(() => requestAnimationFrame(done)); });
    const mount = performance.now() - began;
    const scroller = place.querySelector('.table');
    let at = 0;
    const changing = setInterval(() => { for (let it = 0; it < 500; it += 1) list[(at += 7) % length].number.value += 1; }, 100);
    const frames = [];
    await new Promise((done) => {
      let last = performance.now();
      const end = last + 8000;
      const frame = (now) => {
        frames.push(now - last);
        last = now;
        scroller.scrollTop = (scroller.scrollTop + 420) % (scroller.scrollHeight - scroller.clientHeight);
        if (now < end) requestAnimationFrame(frame);
        else done();
      };
      requestAnimationFrame(frame);
    });
    clearInterval(changing);
    return { mount, frames: frames.slice(2) };
  }, ROWS);
  const of = (part) => quantile(found.frames, part).toFixed(1);
  row('10,000 live rows: mount to paint', `${found.mount.toFixed(1)} ms`);
  row('10,000 live rows, scrolled: frame p50, p95, p99', `${of(0.5)}, ${of(0.95)}, ${of(0.99)} ms`);
  await context.close();
}

/** Ten megabytes in a terminal, Ctrl+C in a flood, and the echo of a key. */
async function terminal() {
  const session = await api('POST', '/v1/sessions', {});
  const { page, context } = await open();
  await go(page, `/sessions/${session.id}`);
  await page.click('button:has-text("Open a terminal")');
  await page.waitForSelector('.badge:has-text("connected")');
  const shows = (text) => page.waitForFunction((it) => document.querySelector('.xterm-rows').textContent.includes(it), text, { polling: 'raf', timeout: 120_000 });
  await page.keyboard.type('echo ready-$((6*7))\n');
  await shows('ready-42');
  let began = Date.now();
  await page.keyboard.type("head -c 10000000 /dev/zero | tr '\\0' y | fold -w 100; echo; echo over-$((6*7))\n");
  await shows('over-42');
  row('10 MB in a terminal, until the last line is shown', `${((Date.now() - began) / 1000).toFixed(1)} s`);
  await page.keyboard.type('clear; yes\n');
  await shows('yy');
  await pause(3000);
  began = Date.now();
  await page.keyboard.press('Control+C');
  await shows('^C');
  row('Ctrl+C in an endless flood, until it is seen to work', `${Date.now() - began} ms`);
  await page.keyboard.type('clear\n');
  await pause(500);
  const echoes = [];
  for (const letter of 'abcdefghijklmnopqrstuvwxyz') {
    const shown = shows(`${'abcdefghijklmnopqrstuvwxyz'.slice(0, echoes.length)}${letter}`);
    began = performance.now();
    await page.keyboard.press(letter);
    await shown;
    echoes.push(performance.now() - began);
  }
  row('Key to its echo in a terminal, with the driver\'s own time: p50, p95', `${quantile(echoes, 0.5).toFixed(0)} ms, ${quantile(echoes, 0.95).toFixed(0)} ms`);
  await api('DELETE', `/v1/sessions/${session.id}`);
  await context.close();
}

/** The heap of a live page, after a garbage collection each. */
async function heap() {
  const { page, context, cdp } = await open();
  await go(page, '/executions');
  const samples = [];
  const end = Date.now() + HEAP_MINUTES * 60_000;
  let count = 0;
  while (Date.now() < end) {
    const until = Date.now() + Math.min(60_000, HEAP_MINUTES * 6000);
    while (Date.now() < until) {
      await api('POST', '/v1/executions', { language: 'bash', source: 'exit 0', label: 'heap' });
      count += 1;
      await pause(500);
    }
    await cdp.send('HeapProfiler.collectGarbage');
    const { usedSize } = await cdp.send('Runtime.getHeapUsage');
    samples.push(usedSize / 2 ** 20);
  }
  const text = samples.map((it) => it.toFixed(1));
  row(`JS heap of the live list in ${HEAP_MINUTES} min with ${count} new executions: first, median, last, largest`,
    `${text[0]}, ${quantile(samples, 0.5).toFixed(1)}, ${text.at(-1)}, ${Math.max(...samples).toFixed(1)} MiB`);
  await context.close();
}

/** Half a minute without the server, and what is shown after it. */
async function offline() {
  const { page, context } = await open();
  await go(page, '/executions');
  const running = await api('POST', '/v1/executions', { language: 'bash', source: 'for i in $(seq 60); do echo line-$i; sleep 1; done', limits: { wall_ms: 90_000 } });
  const other = await context.newPage();
  await go(other, `/executions/${running.id}`);
  await pause(3000);
  await page.bringToFront();
  isCut = true;
  for (const socket of sockets) socket.destroy();
  let began = Date.now();
  await page.waitForSelector('.banner.bad');
  const noticed = Date.now() - began;
  const made = [];
  while (Date.now() - began < OFFLINE_S * 1000) {
    made.push((await api('POST', '/v1/executions', { language: 'bash', source: 'exit 0', label: `offline-${made.length}` })).id);
    await pause(1000);
  }
  await page.bringToFront();
  isCut = false;
  began = Date.now();
  await page.waitForFunction((ids) => ids.every((id) => document.querySelector('main').textContent.includes(id)), made.slice(-10), { timeout: 60_000 });
  const back = Date.now() - began;
  await api('GET', `/v1/executions/${running.id}?wait=true`);
  await other.bringToFront();
  await other.waitForSelector('.outcome:has-text("OK")');
  const lines = await other.evaluate(() => document.querySelector('main').textContent);
  const missing = Array.from({ length: 60 }, (_, at) => `line-${at + 1}`).filter((it) => !lines.includes(it));
  row('Server unreachable: until the page says so', `${noticed} ms`);
  row(`After ${OFFLINE_S} s without it: until what happened is shown; lines of output missing`, `${back} ms; ${missing.length} of 60`);
  await context.close();
}

const all = { first, paint, inp, rows, terminal, offline, heap };
const wanted = process.argv.slice(2);
for (const [name, measure] of Object.entries(all)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  try {
    await measure();
  } catch (error) {
    console.log(`| ${name} | failed: ${error.message.split('\n')[0]} |`);
    process.exitCode = 1;
  }
}
await browser.close();
proxy.close();
for (const socket of sockets) socket.destroy();
