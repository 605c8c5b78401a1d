// A program is written and run by keyboard alone, on a terminal; limits, tests, links.
export const name = 'playground';

export async function check({ page, go, expect, axe, shot, until }) {
  const text = () => page.evaluate(() => document.querySelector('.xterm-rows')?.textContent ?? '');
  await go('/playground');
  await page.waitForSelector('.cm-content');
  await axe();

  // By keyboard: into the editor, write, run, type the input, leave.
  await page.focus('.cm-content');
  await page.keyboard.press('Control+a');
  await page.keyboard.type("name = input('who? ')\nprint('hello \\x1b[31m' + name + '\\x1b[0m')");
  await page.keyboard.press('Control+Enter');
  await until('the question on the terminal', async () => (await text()).includes('who?'));
  await page.keyboard.type('Ada');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.outcome:has-text("OK")');
  await until('the answer on the terminal', async () => (await text()).includes('hello Ada'));
  await until('colours of the terminal under the policy', () => page.evaluate(() => {
    const span = [...document.querySelectorAll('.xterm-rows > div:nth-child(2) span')].find((it) => it.textContent.includes('Ada'));
    const [r, g] = getComputedStyle(span).color.match(/\d+/g).map(Number);
    return r > g + 60;
  }));
  await page.keyboard.press('F6');
  await until('F6 leaves the terminal', () => page.evaluate(() => document.activeElement?.closest('.xterm') === null));
  await axe();
  await shot('playground');

  // Ctrl-C is answered by a program that floods the terminal with 10 MB.
  await page.evaluate(() => sessionStorage.setItem('cove.playground', JSON.stringify({
    language: 'python',
    source: "try:\n    for _ in range(10): print('y\\n' * 500_000, flush=True)\n    while True: input()\nexcept KeyboardInterrupt:\n    print('interrupted')",
    terminal: { rows: 24, cols: 80 },
    limits: { output_bytes: 16 << 20 },
  })));
  await go('/');
  await go('/playground');
  await until('the flooding program', async () => (await page.textContent('.cm-content'))?.includes('500_000'));
  await page.click('[role=group] button:has-text("Terminal")');
  await page.click('#run');
  await until('the flood', async () => (await text()).includes('y'));
  await page.focus('.xterm textarea');
  await page.keyboard.press('Control+c');
  await page.waitForSelector('.outcome:has-text("OK")');
  await until('the answer to Ctrl-C', async () => (await text()).includes('interrupted'));

  // Examples: an endless loop is stopped.
  await page.click('button:has-text("Examples")');
  await page.click('[role=menuitem]:has-text("Endless loop")');
  await page.click('#run');
  await page.waitForSelector('.outcome:has-text("TLE")');

  // Test cases as a table.
  await page.click('button:has-text("Examples")');
  await page.click('[role=menuitem]:has-text("Sum, with test cases")');
  await page.click('#run');
  await page.waitForSelector('.outcome:has-text("WA")');
  await page.waitForSelector('h2:has-text("2 of 3 passed")');
  await axe();
  await shot('tests');

  // A link holds the program itself.
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.click('button:has-text("Share")');
  await page.waitForSelector('.toast:has-text("copied")');
  const link = await page.evaluate(() => navigator.clipboard.readText());
  await page.evaluate(() => sessionStorage.removeItem('cove.playground'));
  await page.goto('about:blank');
  await page.goto(link);
  await until('the program of the link', async () => (await page.textContent('.cm-content').catch(() => ''))?.includes('scanf'));
  expect(!page.url().includes('#z='), 'the fragment is taken out');

  // As command.
  await page.click('button:has-text("As command")');
  await page.waitForSelector('dialog pre:has-text("/v1/executions")');
  await axe();
}
