// Measures the console in Chromium and prints a table: for docs/console.md, run by hand.
//
//   COVE_URL=http://127.0.0.1:4100 COVE_TOKEN=… node figures.mjs [first paint inp rows terminal offline cost heap]
//
// COVE_HEAP_MINUTES says for how long the heap is watched (30), COVE_PID whose CPU time is counted. The
// server needs sessions and a tenant. It is a measurement and no test: a busy machine makes other figures.
import { readFileSync } from 'node:fs';
import { chromium } from 'playwright-core';
import { openProxy } from './proxy.mjs';

const token = process.env.COVE_TOKEN;
const behind = new URL(process.env.COVE_URL);
const HEAP_MINUTES = Number(process.env.COVE_HEAP_MINUTES ?? 30);
const OFFLINE_S = 30;
const LOADS = 7;
const ROWS = 10_000;
const FLOODS = 5;
const CONSOLES = 10;
const COST_S = 60;
const serverPid = process.env.COVE_PID;

const proxy = await openProxy(behind);
const { base } = proxy;
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

/** First and largest paint with nothing cached and the processor slowed to a quarter; a page with next to no script as a control. */
async function paint() {
  const pages = [
    ['a page of the documentation', true, '/docs/history', 'main h1'], ['sign-in', false, '/console/', '#token'],
    ['Home', true, '/console/', 'main h1'],
  ];
  const found = new Map(pages.map(([name]) => [name, { fcp: [], lcp: [] }]));
  for (let at = 0; at < LOADS; at += 1) {
    // In turns, so that other work of the machine hits all of them.
    for (const [name, isSignedIn, to, selector] of pages) {
      const { page, context, cdp } = await open({ isSignedIn });
      await cdp.send('Emulation.setCPUThrottlingRate', { rate: 4 });
      await page.goto(`${base}${to}`);
      await page.waitForSelector(selector);
      await pause(1500);
      const { fcp, lcp } = await page.evaluate(() => new Promise((done) => {
        new PerformanceObserver((list) => done({
          fcp: performance.getEntriesByName('first-contentful-paint')[0].startTime,
          lcp: list.getEntries().at(-1).startTime,
        })).observe({ type: 'largest-contentful-paint', buffered: true });
      }));
      found.get(name).fcp.push(fcp);
      found.get(name).lcp.push(lcp);
      await context.close();
    }
  }
  for (const [name, { fcp, lcp }] of found) {
    row(`FCP, LCP of ${name}, CPU 4 times slower, median of ${LOADS}`, `${Math.round(quantile(fcp, 0.5))} ms, ${Math.round(quantile(lcp, 0.5))} ms`);
  }
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

/**
 * Runs in the page: the time from the next key, as the browser stamps it, until a text is in the rows
 * of the terminal and the frame with it is drawn. The driver's own time is not in it.
 */
function keyToFrame(text) {
  return new Promise((done) => {
    let at = null;
    const rows = document.querySelector('.xterm-rows');
    const observer = new MutationObserver(() => {
      if (at === null || !rows.textContent.includes(text)) return;
      observer.disconnect();
      // The rows change within a frame; what is posted there runs when it is drawn.
      const channel = new MessageChannel();
      channel.port1.onmessage = () => done(performance.now() - at);
      channel.port2.postMessage(null);
    });
    document.addEventListener('keydown', (event) => { at = event.timeStamp; }, { capture: true, once: true });
    observer.observe(rows, { childList: true, subtree: true, characterData: true });
  });
}

/** Ten megabytes in a terminal, Ctrl+C in floods, and the echo of keys. */
async function terminal() {
  const session = await api('POST', '/v1/sessions', {});
  const { page, context } = await open();
  await go(page, `/sessions/${session.id}`);
  await page.click('button:has-text("Open a terminal")');
  await page.waitForSelector('.badge:has-text("connected")');
  const shows = (text) => page.waitForFunction((it) => document.querySelector('.xterm-rows').textContent.includes(it), text, { polling: 'raf', timeout: 120_000 });
  const keyed = async (key, text) => {
    const took = page.evaluate(keyToFrame, text);
    await pause(50);
    await page.keyboard.press(key);
    return took;
  };
  await page.keyboard.type('echo ready-$((6*7))\n');
  await shows('ready-42');
  const began = Date.now();
  await page.keyboard.type("head -c 10000000 /dev/zero | tr '\\0' y | fold -w 100; echo; echo over-$((6*7))\n");
  await shows('over-42');
  row('10 MB in a terminal, until the last line is shown', `${((Date.now() - began) / 1000).toFixed(1)} s`);
  const stops = [];
  for (let at = 0; at < FLOODS; at += 1) {
    await page.keyboard.type('clear; yes\n');
    await shows('yy');
    await pause(2000);
    stops.push(await keyed('Control+C', '^C'));
    await pause(300);
  }
  row(`Ctrl+C in an endless flood, until it is seen to work: median, largest of ${FLOODS}`, `${quantile(stops, 0.5).toFixed(0)}, ${Math.max(...stops).toFixed(0)} ms`);
  await page.keyboard.type('clear\n');
  await pause(500);
  const echoes = [];
  let typed = '';
  for (const letter of 'abcdefghijklmnopqrstuvwxyz'.repeat(2)) {
    typed += letter;
    echoes.push(await keyed(letter, typed));
  }
  row(`Key to the frame with its echo in a terminal, ${echoes.length} keys: p50, p95`, `${quantile(echoes, 0.5).toFixed(0)}, ${quantile(echoes, 0.95).toFixed(0)} ms`);
  await api('DELETE', `/v1/sessions/${session.id}`);
  await context.close();
}

/** Slope of a line through points at equal distances. */
function slope(values) {
  const middle = (values.length - 1) / 2;
  const mean = values.reduce((sum, it) => sum + it, 0) / values.length;
  const [up, down] = values.reduce(([one, other], it, at) => [one + (at - middle) * (it - mean), other + (at - middle) ** 2], [0, 0]);
  return down === 0 ? 0 : up / down;
}

/** The heap of the live page of tenants, after a garbage collection each minute. */
async function heap() {
  const { page, context, cdp } = await open();
  await go(page, '/databases');
  await page.waitForSelector('[role=row][data-at]');
  const samples = [];
  for (let minute = 0; minute < HEAP_MINUTES; minute += 1) {
    await pause(60_000);
    await cdp.send('HeapProfiler.collectGarbage');
    const { usedSize } = await cdp.send('Runtime.getHeapUsage');
    samples.push(usedSize / 2 ** 20);
    console.error(`heap after ${minute + 1} min: ${samples.at(-1).toFixed(2)} MiB`);
  }
  // The first minutes fill what has a bound, such as the points of charts.
  const later = samples.slice(Math.floor(samples.length / 4));
  row(`JS heap of the live page of tenants in ${HEAP_MINUTES} min: first, largest, last; slope after the first quarter`,
    `${samples[0].toFixed(2)}, ${Math.max(...samples).toFixed(2)}, ${samples.at(-1).toFixed(2)} MiB; ${(slope(later) * 60 * 1024).toFixed(0)} KiB per hour`);
  await context.close();
}

/** CPU time of the server in seconds; of all its processes, which run programs as well. */
function cpuSeconds() {
  const ticks = (pid) => {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\) /, '').split(' ');
    return Number(fields[11]) + Number(fields[12]);
  };
  return ticks(serverPid) / 100;
}

/** What ten open consoles cost the server, idle and with an execution each second. */
async function cost() {
  if (serverPid === undefined) throw new Error('COVE_PID is needed: the process of the server');
  const measured = async (isBusy) => {
    const [before, began] = [cpuSeconds(), Date.now()];
    while (Date.now() - began < COST_S * 1000) {
      if (isBusy) await api('POST', '/v1/executions', { language: 'bash', source: 'exit 0', label: 'cost' });
      await pause(1000);
    }
    return (100 * (cpuSeconds() - before) * 1000) / (Date.now() - began);
  };
  const [alone, aloneBusy] = [await measured(false), await measured(true)];
  const all = [];
  for (let at = 0; at < CONSOLES; at += 1) {
    const { page, context } = await open();
    await go(page, ['/', '/executions', '/sessions', '/databases'][at % 4]);
    all.push(context);
  }
  // The first console after a start has the server check itself, which is not what is measured.
  for (let view = { running: true }; view.running; view = await api('GET', '/v1/doctor')) await pause(3000);
  const [idle, busy] = [await measured(false), await measured(true)];
  row(`CPU time of the server for ${CONSOLES} open consoles, idle`, `${(idle - alone).toFixed(1)} % of a core`);
  row('The same with an execution each second, beyond what that takes without a console', `${(busy - aloneBusy).toFixed(1)} % of a core`);
  for (const context of all) await context.close();
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
  proxy.cut();
  let began = Date.now();
  await page.waitForSelector('.banner.bad');
  const noticed = Date.now() - began;
  const made = [];
  while (Date.now() - began < OFFLINE_S * 1000) {
    made.push((await api('POST', '/v1/executions', { language: 'bash', source: 'exit 0', label: `offline-${made.length}` })).id);
    await pause(1000);
  }
  await page.bringToFront();
  proxy.mend();
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

const all = { first, paint, inp, rows, terminal, offline, cost, heap };
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
