// E2B's JavaScript SDK for the code interpreter, unmodified, against Cove, as a table of named checks.
//
// Needs E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY in the environment. Prints one line of JSON for
// each check, {name, ok, detail}, and ends with 1 if one failed.

import assert from 'node:assert/strict'
import { Sandbox } from '@e2b/code-interpreter'

const sandbox = await Sandbox.create({ timeoutMs: 300_000, envs: { OWN: 'yes' } })

const run = async (code, options) => {
  const execution = await sandbox.runCode(code, options)
  assert.equal(execution.error, undefined, JSON.stringify(execution.error))
  return execution
}

const checks = {
  async 'values and state'() {
    assert.equal((await run('x = 20; x')).text, '20')
    const execution = await run('x + 1')
    assert.equal(execution.text, '21')
    assert.ok(execution.executionCount > 1)
  },
  async 'output as it comes'() {
    const out = []
    await run("import sys; print(1); print(2, file=sys.stderr)", {
      onStdout: (message) => out.push(['out', message.line]),
      onStderr: (message) => out.push(['err', message.line]),
    })
    assert.deepEqual(out.sort(), [['err', '2\n'], ['out', '1\n']])
  },
  async errors() {
    const { error } = await sandbox.runCode('missing')
    assert.equal(error.name, 'NameError')
    assert.equal(error.value, "name 'missing' is not defined")
  },
  async 'a figure with its chart'() {
    const [first] = (await run('import matplotlib.pyplot as plt\nplt.bar(["a"], [1])\nplt.show()')).results
    assert.ok(first.png)
    assert.deepEqual(first.extra, {})
    assert.equal(first.chart.type, 'bar')
    assert.deepEqual(first.chart.elements, [{ label: 'a', group: 'Group 0', value: 1 }])
  },
  async 'a data frame'() {
    const [first] = (await run('import pandas as pd; pd.DataFrame({"a": [1]})')).results
    assert.ok(first.html.includes('<table'))
    assert.deepEqual(first.data, { a: [1] })
  },
  async javascript() {
    assert.equal((await run('process.cwd()', { language: 'js' })).text, '/home/user')
    assert.equal((await run('await Promise.resolve(process.env.OWN)', { language: 'js' })).text, 'yes')
    const { error } = await sandbox.runCode('null.x', { language: 'js' })
    assert.equal(error.name, 'TypeError')
  },
  async typescript() {
    const execution = await run('const x: number = 1; console.log(x as number)', { language: 'ts' })
    assert.deepEqual(execution.logs.stdout, ['1\n'])
  },
  async bash() {
    assert.deepEqual((await run('pwd', { language: 'bash' })).logs.stdout, ['/home/user\n'])
  },
  async 'the environment of one execution'() {
    const code = "import os; os.getenv('FOO', 'none')"
    assert.equal((await run(code, { envs: { FOO: 'bar' } })).text, 'bar')
    assert.equal((await run(code)).text, 'none')
  },
  async contexts() {
    const context = await sandbox.createCodeContext({ cwd: '/tmp' })
    assert.equal((await run('import os; os.getcwd()', { context })).text, '/tmp')
    const listed = await sandbox.listCodeContexts()
    assert.equal(listed.at(-1).id, context.id)
    await sandbox.restartCodeContext(context)
    assert.equal((await sandbox.runCode('os', { context })).error.name, 'NameError')
    await sandbox.removeCodeContext(context)
    await assert.rejects(sandbox.runCode('1', { context }))
    await assert.rejects(sandbox.runCode('1', { context, language: 'python' }))
  },
  async 'a client that leaves interrupts'() {
    await assert.rejects(sandbox.runCode('import time; time.sleep(300)', { timeoutMs: 1000 }))
    assert.equal((await run('1 + 1', { timeoutMs: 20_000 })).text, '2')
  },
}

let failed = false
for (const [name, check] of Object.entries(checks)) {
  let detail = ''
  try {
    await check()
  } catch (error) {
    detail = error.stack ?? String(error)
    failed = true
  }
  console.log(JSON.stringify({ name, ok: detail === '', detail }))
}
await sandbox.kill()
process.exit(failed ? 1 : 0)
