// Agents and templates: a deployed agent with two versions, its files, the way back.
export const name = 'agents';

const PROGRAM = 'import sys\nfor line in sys.stdin:\n    pass\n';

export async function check({ page, go, api, expect, axe, shot }) {
  await go('/agents');
  await page.waitForSelector('.empty:has-text("No agent yet")');
  await axe();
  const agent = (text) => ({
    name: 'greeter', files: [{ path: 'agent.py', content: text }], runtime: { type: 'command', argv: ['python3', 'agent.py'] },
  });
  await api('POST', '/v1/agents', agent(PROGRAM));
  await api('POST', '/v1/agents', agent(`# <b>second</b>\n${PROGRAM}`));
  await page.waitForSelector('[role=row]:has-text("greeter")');
  await page.click('[role=row]:has-text("greeter")');
  await page.waitForSelector('[role=row]:has-text("v2") .badge:has-text("in use")');
  await axe();
  await shot('agent');
  await page.click('button:has-text("Use it")');
  await page.waitForSelector('[role=row]:has-text("v1") .badge:has-text("in use")');
  expect((await api('GET', '/v1/agents/greeter')).version === 1, 'the server says so too');
  await page.click('[role=tab]:has-text("Files")');
  await page.click('[role=row]:has-text("agent.py")');
  await page.waitForSelector('dialog pre:has-text("import sys")');
  await axe();
  await page.keyboard.press('Escape');
  await go('/agents?tab=templates');
  await page.waitForSelector('.empty:has-text("No template yet")');
  await axe();
}
