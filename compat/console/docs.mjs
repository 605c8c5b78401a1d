// The documentation at /docs: navigation, search, both themes, a narrow screen, no scripts; and the
// same pages from a directory (COVE_DOCS), as `cove docs` writes them.
export const name = 'docs';
export const isSignedIn = false;

const NARROW = { width: 400, height: 800 };

async function isWithin(page) {
  return page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth);
}

async function searchAndFollow(page, expect) {
  await page.keyboard.press('/');
  await page.keyboard.type('memory limit');
  await page.keyboard.press('Enter');
  await page.waitForSelector('#results li a');
  expect(new URL(page.url()).searchParams.get('q') === 'memory limit', `the search has an address: ${page.url()}`);
  expect(/^\d+ sections found for “memory limit”/.test(await page.textContent('#count')), 'the results are counted');
  expect(await page.locator('#results mark').count() > 0, 'words are marked');
  // As it is typed; plural and singular are one word.
  await page.fill('input[type=search]', 'verdicts');
  await page.waitForSelector('#results li:first-child a:has-text("Verdicts")');
  await page.keyboard.press('Enter');
  await page.keyboard.press('Enter');
  await page.waitForSelector('h1:text("The sandbox")');
  expect(page.url().endsWith('sandbox.html#verdicts'), `the result leads to its section: ${page.url()}`);
}

export async function check({ page, base, open, expect, until, axe, shot, problems }) {
  await page.goto(`${base}/docs`);
  await page.waitForSelector('h1:text("Documentation")');
  expect(page.url() === `${base}/docs/`, `it is a directory: ${page.url()}`);
  await axe();
  await shot('docs-index');
  await searchAndFollow(page, expect);
  await axe();
  await shot('docs-page');
  await page.goto(`${base}/docs/search?q=grant+postgres`);
  await page.waitForSelector('#results li a');
  await axe();
  await shot('docs-search');
  await page.fill('input[type=search]', '<img src=x onerror=alert(1)> zzzz');
  await until('what was asked for as text', async () => (await page.textContent('#count')).includes('<img'));

  // Previous and next, the page's own contents, and the tutorial's files.
  await page.goto(`${base}/docs/tutorials/run-code`);
  await page.waitForSelector('nav.here a:text("Test cases")');
  expect(await page.textContent('#pages [aria-current=page]') === 'Run your users\' code', 'the navigation says where one is');
  expect(await page.textContent('.file') === 'sum.py', 'a file of a tutorial has its name');
  await shot('docs-tutorial');
  await page.click('footer .behind');
  await page.waitForSelector('h1:text("Tutorial: build an agent")');

  // What a block of a terminal is copied as: what is typed.
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.locator('pre:has-text("session create notes")').hover();
  await page.locator('.code:has-text("session create notes") .copy').click();
  await page.waitForSelector('.copy:text("Copied")');
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  expect(copied === 'id=$(cove session create notes)\ncove session send $id tea\ncove session send $id salt', `copied: ${copied}`);

  // The theme that is chosen stays, and is the console's.
  await page.click('#theme');
  expect(await page.evaluate(() => localStorage.getItem('cove.theme')) === 'dark', 'the choice is kept');
  await page.reload();
  expect(await page.evaluate(() => getComputedStyle(document.body).backgroundColor) === 'rgb(23, 25, 27)', 'the page is dark');
  await page.evaluate(() => localStorage.removeItem('cove.theme'));

  // The reference of the interface.
  await page.goto(`${base}/docs/api#createExecution`);
  // Some hundred sections, over which axe takes minutes.
  await page.waitForSelector('section#createExecution');
  await shot('docs-api');

  // Narrow: nothing moves sideways, and the navigation is one step away.
  const narrow = await open({ isSignedIn: false, viewport: NARROW });
  for (const address of ['', 'metrics', 'bouncer', 'command-line', 'tutorials/pool-databases', 'search?q=tenant', 'api']) {
    await narrow.page.goto(`${base}/docs/${address}`);
    expect(await isWithin(narrow.page), `${address} is wider than ${NARROW.width} pixels`);
  }
  await narrow.page.goto(`${base}/docs/executions`);
  await narrow.page.click('summary:text("On this page")');
  await narrow.page.click('.contents a:text("The answer")');
  await narrow.page.screenshot({ path: process.env.COVE_SHOTS ? `${process.env.COVE_SHOTS}/docs-narrow.png` : undefined });
  await narrow.page.click('.to-pages');
  await narrow.page.click('#pages a:text("Test cases, checkers, interactors")');
  await narrow.page.waitForSelector('h1:text("Test cases")');
  expect(narrow.foreign.length === 0, `asked others: ${narrow.foreign}`);
  await narrow.context.close();

  // Headers, and a browser that has the page already.
  const first = await fetch(`${base}/docs/executions`);
  const policy = first.headers.get('content-security-policy');
  expect(policy.includes("script-src 'self'") && !policy.includes('unsafe'), policy);
  const again = await fetch(`${base}/docs/executions`, { headers: { 'if-none-match': first.headers.get('etag') } });
  expect(again.status === 304, `known pages are not sent again: ${again.status}`);
  expect((await fetch(`${base}/docs/..%2f..%2fetc%2fpasswd`)).status === 404, 'only pages are served');
  expect(problems.length === 0, problems.join('\n'));

  // From a directory, by another browser context: no server is asked for anything.
  const files = await open({ isSignedIn: false });
  await files.page.goto(`file://${process.env.COVE_DOCS}/index.html`);
  await searchAndFollow(files.page, expect);
  expect(files.foreign.length > 3 && files.foreign.every((it) => it.startsWith(`file://${process.env.COVE_DOCS}/`)), `asked for: ${files.foreign}`);
  await files.context.close();
}
