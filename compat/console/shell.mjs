// Sign-in, its end, the palette, keys, themes, first view, and a server that goes and comes back.
export const name = 'shell';
export const isSignedIn = false;

export async function check({ page, base, token, api, expect, until, server, axe, shot, foreign, problems }) {
  const requests = [];
  page.on('request', (request) => requests.push(new URL(request.url())));
  // A deep link is kept through the sign-in.
  await page.goto(`${base}/console/queue?whose=own`);
  await page.waitForSelector('#token');
  const files = requests.filter((it) => it.pathname.startsWith('/console'));
  expect(files.length <= 5, `first view takes ${files.length} requests: ${files.map((it) => it.pathname)}`);
  await axe();
  await shot('signin');

  await page.fill('#token', 'cove_wrong');
  await page.keyboard.press('Enter');
  await page.waitForSelector('[role=alert]');
  await page.fill('#token', token);
  await page.keyboard.press('Enter');
  await page.waitForSelector('h1:text("Queue")');
  expect(page.url().endsWith('/queue?whose=own'), `the page is kept: ${page.url()}`);
  expect(!(await page.context().cookies()).length, 'no cookie is set');
  expect((await page.evaluate(() => JSON.stringify(localStorage))).indexOf(token) < 0, 'the token is not in localStorage');

  // A code that is wrong leaves nothing in the address.
  const other = await page.context().newPage();
  await other.goto(`${base}/console/#c=wrong-code`);
  await other.waitForSelector('[role=alert]');
  expect(!other.url().includes('wrong-code'), 'the code is taken out of the address');
  await other.close();

  // Palette and keys, by keyboard alone.
  await page.keyboard.press('Control+k');
  await page.waitForSelector('[role=combobox]');
  await page.keyboard.type('playground');
  await page.keyboard.press('Enter');
  await page.waitForSelector('h1:text("Playground")');
  await page.locator('main').focus();
  await page.keyboard.press('g');
  await page.keyboard.press('e');
  await page.waitForSelector('h1:text("Executions")');
  await page.keyboard.press('Control+k');
  await page.waitForSelector('[role=combobox]');
  await page.keyboard.type('ex_01ABCDEF');
  await page.waitForSelector('[role=option]:has-text("ex_01ABCDEF")');
  await axe();
  await shot('palette');
  await page.keyboard.press('Escape');
  await page.locator('main').focus();
  await page.keyboard.press('?');
  await page.waitForSelector('dialog h2:text("Keyboard")');
  await axe();
  await page.keyboard.press('Escape');

  // The theme that was chosen is there before the first paint of the next visit.
  await page.evaluate(() => localStorage.setItem('cove.theme', 'dark'));
  await page.reload();
  await page.waitForSelector('main h1');
  expect(await page.evaluate(() => document.documentElement.dataset.theme) === 'dark', 'the dark theme is kept');
  await page.evaluate(() => localStorage.removeItem('cove.theme'));
  await page.reload();

  // The server is killed: the page says so, keeps what it shows, and goes on when it is back.
  await page.waitForSelector('nav a[aria-current]');
  const record = await api('POST', '/v1/executions', { language: 'bash', source: 'echo kept', label: 'kept-through-a-crash' });
  await page.waitForSelector(`text=kept-through-a-crash`);
  await server.kill();
  const killed = Date.now();
  await page.waitForSelector('.banner.bad');
  console.log(`note: the page noticed the end of the server after ${Date.now() - killed} ms`);
  expect(await page.isVisible('text=kept-through-a-crash'), 'old rows stay');
  await shot('away');
  await server.restart();
  await page.waitForSelector('.banner.bad', { state: 'detached' });
  await until('the record after the restart', () => api('GET', `/v1/executions/${record.id}`));

  // The end of the token: sign-in that keeps the page.
  await page.evaluate(() => sessionStorage.setItem('cove.token', 'cove_revoked'));
  await page.reload();
  await page.waitForSelector('#token');
  await page.waitForSelector('text=Your sign-in has ended');
  await page.fill('#token', token);
  await page.keyboard.press('Enter');
  await page.waitForSelector('h1:text("Executions")');

  // Nothing that a stranger can name leads out of the console's own files.
  for (const path of ['/console/assets/0123456789abcdef/app.js', '/console/assets/x/..%2f..%2fetc%2fpasswd', '/console/assets/x/.sources']) {
    expect((await fetch(base + path)).status === 404, `${path} is not there`);
  }
  const shell = await fetch(`${base}/console/any/deep/link`);
  const policy = shell.headers.get('content-security-policy');
  expect(policy.includes("require-trusted-types-for 'script'") && !policy.includes('unsafe'), policy);
  const html = await shell.text();
  expect(policy.includes(/nonce="([^"]+)"/.exec(html)[1]), 'the nonce of the page is that of the policy');
  expect(html.includes('<noscript>'), 'there is a line for browsers without scripts');
  // Markup cannot come in by a string, whoever wrote it.
  const thrown = await page.evaluate(() => {
    try {
      document.body.insertAdjacentHTML('beforeend', '<b id="made"></b>');
      return false;
    } catch {
      return true;
    }
  });
  expect(thrown, 'a string does not become markup');
  expect(problems.length > 0, 'the policy says so');
  problems.length = 0;
  expect(foreign.length === 0, 'nothing is asked of others');
}
