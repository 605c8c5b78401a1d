// Opens the console of a real server in Chromium and runs every check beside this file.
//
//   COVE_URL=http://127.0.0.1:4100 COVE_TOKEN=… COVE_DOCS=… node run.mjs [NAME…]
//
// COVE_DOCS is a directory that `cove docs --out` has written.
//
// COVE_SHOTS=DIRECTORY also keeps screenshots. What the parent has to do is said on standard output
// (`server: kill`, `server: restart`); it answers with a line on standard input, after a restart
// with the server's new address. Each check is `export async function check(tools)`.
import { readFileSync, readdirSync, mkdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { openProxy } from './proxy.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const token = process.env.COVE_TOKEN;
const shots = process.env.COVE_SHOTS;
const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];
/** Time for anything that is waited for, also on a machine that is busy with much else. */
const DEADLINE_MS = 60_000;

const proxy = await openProxy(process.env.COVE_URL);
const { base } = proxy;

const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
async function parent(what) {
  console.log(`server: ${what}`);
  return (await answers.next()).value ?? '';
}
const server = {
  kill: () => parent('kill'),
  async restart() { proxy.lead(await parent('restart')); },
};

function expect(condition, words) {
  if (!condition) throw new Error(`not so: ${words}`);
}

/** Asks again until `look` gives something true. What it throws is no answer: a server that was killed
 * takes connections along that had been kept for later requests. */
async function until(words, look) {
  const end = Date.now() + DEADLINE_MS;
  for (;;) {
    let last = '';
    try {
      const found = await look();
      if (found) return found;
    } catch (error) {
      last = `; the last answer: ${error.stack}`;
    }
    if (Date.now() > end) throw new Error(`not within ${DEADLINE_MS} ms: ${words}${last}`);
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
}

async function api(method, path, json) {
  const response = await fetch(base + path, {
    method,
    headers: { authorization: `Bearer ${token}`, ...(json === undefined ? {} : { 'content-type': 'application/json' }) },
    body: json === undefined ? undefined : JSON.stringify(json),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return text === '' ? undefined : JSON.parse(text);
}

const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
const problems = [];

// What a server without an answer makes the browser say; a policy or a script never does.
const HARMLESS = /^(Failed to load resource|WebSocket connection to)/;

async function open({ isSignedIn = true, viewport = { width: 1280, height: 800 }, colorScheme = 'light' } = {}) {
  const context = await browser.newContext({ viewport, colorScheme, reducedMotion: 'reduce' });
  const foreign = [];
  const page = await context.newPage();
  page.setDefaultTimeout(DEADLINE_MS);
  await page.exposeBinding('reportViolation', (_, what) => problems.push(`policy: ${what}`));
  await page.addInitScript((secret) => {
    document.addEventListener('securitypolicyviolation', (event) => {
      window.reportViolation(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`);
    });
    window.alert = () => window.reportViolation('a text became markup');
    if (secret !== null && location.protocol === 'http:' && sessionStorage.getItem('signed') === null) {
      sessionStorage.setItem('signed', 'yes');
      sessionStorage.setItem('cove.token', secret);
    }
  }, isSignedIn ? token : null);
  page.on('console', (message) => {
    if (message.type() === 'error' && !HARMLESS.test(message.text())) problems.push(`console: ${message.text()}`);
  });
  page.on('pageerror', (error) => problems.push(`error: ${error.stack}`));
  page.on('request', (request) => {
    if (!/^(data|blob):/.test(request.url()) && !request.url().startsWith(base)) foreign.push(request.url());
  });
  return { page, foreign, context };
}

/** Lets terminals and charts take the colours of another theme, at their next frames. */
function settle(page) {
  return page.evaluate(() => new Promise((done) => { setTimeout(done, 200); }));
}

function toolsOf(page, foreign) {
  return {
    page, base, api, expect, until, server, open, token, foreign, problems,
    /** Goes to a place of the console without loading the page again where it is loaded. */
    async go(to) {
      if (page.url().startsWith(`${base}/console`)) {
        await page.evaluate((path) => {
          history.pushState(null, '', `/console${path}`);
          dispatchEvent(new PopStateEvent('popstate'));
        }, to);
      } else {
        await page.goto(`${base}/console${to}`);
      }
      await page.waitForSelector('main h1');
    },
    /** Runs axe in both themes; in the second, what depends on colours. */
    async axe() {
      for (const colorScheme of ['light', 'dark']) {
        const only = colorScheme === 'light' ? { type: 'tag', values: RULES } : { type: 'rule', values: ['color-contrast'] };
        await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
        await settle(page);
        // The source as an expression: the page's policy forbids to add a script.
        await page.evaluate(axeSource);
        const result = await page.evaluate((runOnly) => window.axe.run(document, { runOnly }), only);
        const found = result.violations.flatMap((it) => it.nodes.map((node) => `${it.id}: ${node.target} (${node.any[0]?.message ?? it.help})`));
        expect(found.length === 0, `axe at ${page.url()} (${colorScheme}):\n  ${found.join('\n  ')}`);
      }
      await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' });
    },
    /** Keeps a screenshot where they are asked for. */
    async shot(name) {
      if (!shots) return;
      mkdirSync(shots, { recursive: true });
      for (const colorScheme of ['light', 'dark']) {
        await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
        await settle(page);
        await page.screenshot({ path: join(shots, `${name}-${colorScheme}.png`) });
      }
      await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' });
    },
  };
}

const wanted = process.argv.slice(2);
/** What is no check. */
const OTHERS = ['run.mjs', 'figures.mjs', 'gallery.mjs', 'proxy.mjs'];
const files = readdirSync(here).filter((it) => it.endsWith('.mjs') && !OTHERS.includes(it))
  .filter((it) => wanted.length === 0 || wanted.includes(it.replace('.mjs', ''))).sort();
let failures = 0;
for (const file of files) {
  const { name, check, isSignedIn } = await import(`./${file}`);
  const began = Date.now();
  const { page, foreign, context } = await open({ isSignedIn });
  problems.length = 0;
  try {
    await check(toolsOf(page, foreign));
    expect(problems.length === 0, problems.join('\n'));
    expect(foreign.length === 0, `asked others: ${foreign.join(', ')}`);
    console.log(`ok: ${name} (${Date.now() - began} ms)`);
  } catch (error) {
    failures += 1;
    console.log(`FAILED: ${name}: ${error.stack}\n${problems.join('\n')}`);
    if (shots) await page.screenshot({ path: join(shots, `failed-${file}.png`) });
  }
  await context.close();
}
await browser.close();
proxy.close();
console.log(failures === 0 ? `all ${files.length} checks passed` : `${failures} checks failed`);
process.exit(failures === 0 ? 0 : 1);
