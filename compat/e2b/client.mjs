// E2B's JavaScript SDK, unmodified, against Cove: what it does in another way than the Python one, and
// every kind of call once, as a table of named checks.
//
// Needs E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY in the environment. E2B_TEMPLATE names another
// template than the default. Arguments are parts of names: only those checks are done. Prints one line
// of JSON for each check, {name, ok, detail}, and ends with 1 if one failed.

import assert from 'node:assert/strict'
import { randomBytes, randomUUID } from 'node:crypto'
import { AuthenticationError, CommandExitError, NotFoundError, Sandbox, SandboxError, TimeoutError } from 'e2b'

const TEMPLATE = process.env.E2B_TEMPLATE ?? 'base'
const DEADLINE_MS = 20_000
// One sandbox for all checks that leave nothing behind which another would see.
let common

const sleep = (ms) => new Promise((done) => setTimeout(done, ms))
const place = () => `/home/user/check-${randomUUID()}`
const create = (options = {}) => Sandbox.create(TEMPLATE, { timeoutMs: 120_000, ...options })
const shared = async () => (common ??= await create({ envs: { SHARED: 'yes' }, metadata: { purpose: 'shared' } }))
const identity = (sandbox) => ({ 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49983' })

/** Does something with a sandbox of its own. */
async function own(options, act) {
  const sandbox = await create(options)
  try {
    await act(sandbox)
  } finally {
    await sandbox.kill()
  }
}

/** The first true value of the condition. */
async function until(condition, what) {
  const end = performance.now() + DEADLINE_MS
  while (performance.now() < end) {
    const value = await condition()
    if (value) return value
    await sleep(20)
  }
  throw new Error(`not within ${DEADLINE_MS} ms: ${what}`)
}

async function every(pages) {
  const found = []
  while (pages.hasNext) found.push(...(await pages.nextItems()))
  return found
}

const checks = {
  async life_of_a_sandbox() {
    const sandbox = await create({ metadata: { user: 'ä b&c=d' } })
    const info = await sandbox.getInfo()
    assert.deepEqual([info.sandboxId, info.state, info.metadata], [sandbox.sandboxId, 'running', { user: 'ä b&c=d' }])
    assert.equal(await sandbox.isRunning(), true)
    await sandbox.setTimeout(600_000)
    const left = (await sandbox.getInfo()).endAt - Date.now()
    assert.ok(left > 500_000 && left <= 601_000, `${left} ms are left`)
    assert.equal(await sandbox.kill(), true)
    assert.equal(await sandbox.isRunning(), false)
    assert.equal(await Sandbox.kill(sandbox.sandboxId), false)
    await assert.rejects(sandbox.getInfo(), NotFoundError)
    await assert.rejects(Sandbox.connect(sandbox.sandboxId), NotFoundError)
    await assert.rejects(sandbox.commands.run('true'), SandboxError)
  },

  async a_wrong_key_is_refused() {
    await assert.rejects(create({ apiKey: `e2b_${'0'.repeat(40)}` }), AuthenticationError)
  },

  async pause_and_connect() {
    await own({}, async (sandbox) => {
      await sandbox.files.write('kept.txt', 'kept')
      assert.equal(await sandbox.pause(), true)
      assert.equal(await sandbox.pause(), false)
      assert.equal((await sandbox.getInfo()).state, 'paused')
      const again = await Sandbox.connect(sandbox.sandboxId)
      assert.equal(await again.files.read('kept.txt'), 'kept')
      assert.equal((await sandbox.commands.run('cat kept.txt')).stdout, 'kept')
    })
  },

  async list_pages_and_filters() {
    const mark = randomUUID()
    const made = []
    try {
      for (let number = 0; number < 3; number++) made.push(await create({ metadata: { mark } }))
      const ids = made.map((sandbox) => sandbox.sandboxId).sort()
      const found = await every(Sandbox.list({ query: { metadata: { mark } }, limit: 2 }))
      assert.deepEqual(found.map((info) => info.sandboxId).sort(), ids)
      const paused = await every(Sandbox.list({ query: { metadata: { mark }, state: ['paused'] } }))
      assert.deepEqual(paused, [])
    } finally {
      await Promise.all(made.map((sandbox) => sandbox.kill()))
    }
  },

  async forks_and_snapshots() {
    await own({}, async (sandbox) => {
      await sandbox.files.write('state.txt', 'then')
      const [fork] = await sandbox.fork()
      assert.ok(fork instanceof Sandbox, String(fork))
      const snapshot = await sandbox.createSnapshot()
      let copy
      try {
        await sandbox.files.write('state.txt', 'now')
        assert.equal(await fork.files.read('state.txt'), 'then')
        const kept = await every(sandbox.listSnapshots())
        assert.ok(kept.some((item) => item.snapshotId === snapshot.snapshotId), JSON.stringify(kept))
        copy = await Sandbox.create(snapshot.snapshotId, { timeoutMs: 60_000 })
        assert.equal(await copy.files.read('state.txt'), 'then')
      } finally {
        await Promise.all([fork.kill(), copy?.kill()])
      }
      assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
      assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false)
    })
  },

  async metrics_are_figures() {
    const sandbox = await shared()
    const metrics = await until(async () => {
      const all = await sandbox.getMetrics()
      return all.length > 0 && all
    }, 'there are metrics')
    assert.ok(metrics.at(-1).memTotal > 0 && metrics.at(-1).cpuCount >= 1, JSON.stringify(metrics.at(-1)))
  },

  async files_up_and_down() {
    const { files } = await shared()
    const root = place()
    for (const [index, text] of ['', 'text\n', 'ä€😀\n', 'a'.repeat(1 << 20)].entries()) {
      const written = await files.write(`${root}/deep/er/${index}`, text)
      assert.equal(written.path, `${root}/deep/er/${index}`)
      assert.equal(await files.read(`${root}/deep/er/${index}`), text)
    }
    const bytes = new Uint8Array(randomBytes(2 << 20))
    await files.write(`${root}/bytes`, bytes.buffer)
    await files.write(`${root}/blob`, new Blob([bytes]))
    await files.write(`${root}/octets`, bytes.buffer, { useOctetStream: true })
    await files.write(`${root}/packed`, bytes.buffer, { gzip: true })
    await files.write(`${root}/stream`, new Blob([bytes]).stream())
    for (const name of ['bytes', 'blob', 'octets', 'packed', 'stream']) {
      const back = await files.read(`${root}/${name}`, { format: 'bytes' })
      assert.ok(Buffer.from(back).equals(bytes), name)
    }
    const parts = []
    for await (const part of await files.read(`${root}/bytes`, { format: 'stream' })) parts.push(part)
    assert.ok(Buffer.concat(parts).equals(bytes), 'stream')
    const several = await files.write([
      { path: `${root}/one`, data: '1' },
      { path: `${root}/two`, data: '2' },
    ])
    assert.deepEqual(several.map((info) => info.path), [`${root}/one`, `${root}/two`])
  },

  async directories() {
    const { files } = await shared()
    const root = place()
    assert.equal(await files.makeDir(`${root}/a/b`), true)
    assert.equal(await files.makeDir(`${root}/a/b`), false)
    await files.write(`${root}/a/b/file`, '12345')
    const names = (entries) => entries.map((entry) => entry.path.slice(root.length + 1)).sort()
    assert.deepEqual(names(await files.list(root)), ['a'])
    assert.deepEqual(names(await files.list(root, { depth: 3 })), ['a', 'a/b', 'a/b/file'])
    const info = await files.getInfo(`${root}/a/b/file`)
    assert.deepEqual([info.name, info.type, info.size, info.owner], ['file', 'file', 5, 'user'])
    assert.equal((await files.rename(`${root}/a/b/file`, `${root}/moved`)).path, `${root}/moved`)
    assert.equal(await files.exists(`${root}/a/b/file`), false)
    await files.remove(`${root}/moved`)
    await assert.rejects(files.read(`${root}/moved`), NotFoundError)
    await assert.rejects(files.list(`${root}/nothing`), NotFoundError)
  },

  async watching_by_stream() {
    const { files } = await shared()
    const root = place()
    await files.makeDir(`${root}/sub`)
    const seen = []
    const handle = await files.watchDir(root, (event) => void seen.push(`${event.type} ${event.name}`), {
      recursive: true,
    })
    await files.write(`${root}/new`, '1')
    await until(() => seen.includes('create new'), 'the file is created')
    await files.write(`${root}/sub/deep`, '1')
    await until(() => seen.includes('create sub/deep'), 'the file below is created')
    await files.remove(`${root}/new`)
    await until(() => seen.includes('remove new'), 'the file is removed')
    await handle.stop()
    await assert.rejects(files.watchDir(`${root}/nothing`, () => {}), NotFoundError)
  },

  async signed_addresses() {
    const sandbox = await shared()
    const path = `${place()}/a b`
    await sandbox.files.write(path, 'signed')
    const options = { headers: identity(sandbox) }
    const url = await sandbox.downloadUrl(path, { useSignatureExpiration: 60 })
    assert.equal(await (await fetch(url, options)).text(), 'signed')
    const changed = await fetch(url.replace(/signature=v1_./, 'signature=v1_-'), options)
    assert.ok([401, 403].includes(changed.status), `status ${changed.status}`)
    const form = new FormData()
    form.append('file', new Blob(['uploaded']), 'up')
    const up = await fetch(await sandbox.uploadUrl(path), { method: 'POST', body: form, ...options })
    assert.deepEqual([up.status, await sandbox.files.read(path)], [200, 'uploaded'])
  },

  async commands_in_the_foreground() {
    const { commands } = await shared()
    const texts = []
    const result = await commands.run('echo $SHARED $MORE; pwd; echo err >&2', {
      envs: { MORE: 'too' },
      cwd: '/tmp',
      onStdout: (text) => void texts.push(text),
    })
    assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['yes too\n/tmp\n', 'err\n', 0])
    assert.equal(texts.join(''), 'yes too\n/tmp\n')
    await assert.rejects(commands.run('exit 3'), (error) => error instanceof CommandExitError && error.exitCode === 3)
    await assert.rejects(commands.run('sleep 60', { timeoutMs: 1000 }), TimeoutError)
    const many = await Promise.all(Array.from({ length: 20 }, (_, number) => commands.run(`echo ${number}`)))
    assert.deepEqual(many.map((one) => one.stdout), Array.from({ length: 20 }, (_, number) => `${number}\n`))
    const lines = (await commands.run('seq 1 200000')).stdout.split('\n')
    assert.deepEqual([lines.length, lines[199_999]], [200_001, '200000'])
  },

  async commands_in_the_background() {
    const { commands } = await shared()
    const handle = await commands.run('while read line; do echo got $line; done', { background: true, stdin: true })
    assert.ok((await commands.list()).some((process) => process.pid === handle.pid))
    await commands.sendStdin(handle.pid, 'one\n')
    await handle.sendStdin('two\n')
    await commands.closeStdin(handle.pid)
    assert.equal((await handle.wait()).stdout, 'got one\ngot two\n')
    const endless = await commands.run('exec sleep 300', { background: true })
    await endless.disconnect()
    const again = await commands.connect(endless.pid)
    assert.equal(await again.kill(), true)
    await assert.rejects(again.wait(), CommandExitError)
    assert.equal(await commands.kill(endless.pid), false)
  },

  async terminals() {
    const { pty } = await shared()
    let output = ''
    const shows = (text) => until(() => output.includes(text), `${text} in ${JSON.stringify(output.slice(-300))}`)
    const send = (text) => pty.sendInput(terminal.pid, new TextEncoder().encode(text))
    const terminal = await pty.create({
      cols: 80,
      rows: 24,
      timeoutMs: 60_000,
      onData: (data) => void (output += Buffer.from(data).toString()),
    })
    await send('stty size; echo $TERM-ok\n')
    await shows('24 80')
    await shows('xterm-256color-ok')
    await pty.resize(terminal.pid, { cols: 132, rows: 40 })
    await send('stty size\n')
    await shows('40 132')
    assert.equal(await pty.kill(terminal.pid), true)
    assert.equal(await pty.kill(terminal.pid), false)
  },
}

let failed = 0
const wanted = process.argv.slice(2)
for (const [name, check] of Object.entries(checks)) {
  if (wanted.length > 0 && !wanted.some((part) => name.includes(part))) continue
  const started = performance.now()
  let line
  try {
    await check()
    line = { name, ok: true, detail: `${Math.round(performance.now() - started)} ms` }
  } catch (error) {
    failed++
    const where = String(error?.stack).match(/client\.mjs:(\d+)/)?.[1]
    line = { name, ok: false, detail: `line ${where}: ${error?.name}: ${error?.message}` }
  }
  console.log(JSON.stringify(line))
}
await common?.kill()
process.exit(failed === 0 ? 0 : 1)
