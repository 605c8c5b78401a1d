// Ash's TypeScript client against Cove: every method once, as a table of named checks.
//
// Needs ASH_SERVER_URL and ASH_API_KEY in the environment, and a server whose agents answer as
// examples/model/stand_in.py does. ASH_SDK names the client itself, packages/sdk/dist/index.js of a built
// checkout of Ash; without it requests.mjs makes the same requests. Arguments are parts of names: only
// those checks are done. Prints one line of JSON for each check, {name, ok, detail}, and ends with 1 if
// one failed.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { gunzipSync, gzipSync } from 'node:zlib'

const { AshClient, AshApiError } = await import(process.env.ASH_SDK ?? './requests.mjs')
const [serverUrl, apiKey] = [process.env.ASH_SERVER_URL, process.env.ASH_API_KEY]
const client = new AshClient({ serverUrl, apiKey })
const AGENT = `agent-${randomUUID().slice(0, 8)}`
const NOBODY = '00000000-0000-0000-0000-000000000000'
const base64 = (text) => Buffer.from(text).toString('base64')
const status = (code) => (error) => error instanceof AshApiError && error.statusCode === code

let deployed
const agent = () =>
  (deployed ??= client.createAgent(AGENT, { files: [{ path: 'CLAUDE.md', content: base64('# Test agent\n') }] }))

/** Does something with a session of its own. */
async function session(act, options) {
  await agent()
  const made = await client.createSession(AGENT, options)
  try {
    await act(made.id, made)
  } finally {
    await client.endSession(made.id)
  }
}

async function ask(id, content, options) {
  const events = []
  for await (const event of client.sendMessageStream(id, content, options)) events.push(event)
  const messages = events.filter((event) => event.type === 'message').map((event) => event.data)
  const blocks = messages.filter((data) => data.type === 'assistant').flatMap((data) => data.message.content)
  const text = blocks.filter((block) => block.type === 'text').map((block) => block.text)
  return { events, text: text.join(''), types: events.map((event) => event.type) }
}

const checks = {
  async health_and_keys() {
    assert.equal((await new AshClient({ serverUrl }).health()).status, 'ok')
    await assert.rejects(new AshClient({ serverUrl }).listAgents(), /Missing Authorization header/)
    await assert.rejects(new AshClient({ serverUrl, apiKey: 'wrong' }).listAgents(), /Invalid API key/)
    assert.ok(Array.isArray(await client.listAgents()))
  },

  async agents() {
    const name = `brief-${randomUUID().slice(0, 8)}`
    const made = await client.createAgent(name, { systemPrompt: 'Be brief.' })
    assert.deepEqual([made.name, made.version], [name, 1])
    assert.equal((await client.createAgent(name, { systemPrompt: 'Be briefer.' })).version, 2)
    assert.equal((await client.getAgent(name)).name, name)
    assert.ok((await client.listAgents()).some((one) => one.name === name))
    const secret = await client.updateAgent(name, { env: { TOKEN: 'secret' } })
    assert.ok(!JSON.stringify(secret).includes('"secret"'), 'the environment is told')
    assert.deepEqual(await client.updateAgentConfig(name, { one: 1 }), { one: 1 })
    assert.equal((await client.updateAgentConfig(name, { two: 2 })).one, 1)
    assert.equal((await client.getAgentConfig(name)).two, 2)
    assert.equal((await client.uploadAgentFiles(name, [{ path: 'a/b.txt', content: base64('text') }])).written, 1)
    assert.ok((await client.listAgentFiles(name)).files.some((file) => file.path === 'a/b.txt'))
    assert.equal((await client.getAgentFile(name, 'a/b.txt')).content, 'text')
    assert.equal((await client.deleteAgentFile(name, 'a/b.txt')).deleted, true)
    await assert.rejects(client.uploadAgentFiles(name, [{ path: '../x', content: '' }]), status(400))
    await client.deleteAgent(name)
    await assert.rejects(client.getAgent(name), status(404))
    await assert.rejects(client.createSession(name), status(404))
  },

  async versions_of_an_agent() {
    const name = `versions-${randomUUID().slice(0, 8)}`
    await client.createAgent(name, { systemPrompt: 'First.' })
    const made = await client.createAgentVersion(name, { name: 'two', systemPrompt: 'Second.' })
    const number = made.versionNumber
    assert.equal((await client.getAgentVersion(name, number)).systemPrompt, 'Second.')
    assert.equal((await client.updateAgentVersion(name, number, { releaseNotes: 'new' })).releaseNotes, 'new')
    await client.activateAgentVersion(name, number)
    const active = (await client.listAgentVersions(name)).filter((version) => version.isActive)
    assert.deepEqual(active.map((version) => version.versionNumber), [number])
    const copy = await client.createAgentVersion(name, { cloneFrom: number })
    assert.equal(copy.systemPrompt, 'Second.')
    await client.deleteAgentVersion(name, copy.versionNumber)
    await assert.rejects(client.getAgentVersion(name, copy.versionNumber), status(404))
    await client.deleteAgent(name)
  },

  async life_of_a_session() {
    await session(async (id, made) => {
      assert.deepEqual([made.status, made.agentName], ['active', AGENT])
      assert.equal((await client.getSession(id)).id, id)
      assert.ok((await client.listSessions(AGENT)).some((one) => one.id === id))
      const { sessions, total } = await client.listSessionsWithTotal({ agent: AGENT, limit: 1 })
      assert.ok(sessions.length === 1 && total >= 1, `${sessions.length} of ${total}`)
      assert.equal((await client.pauseSession(id)).status, 'paused')
      await assert.rejects(ask(id, 'hello'), status(400))
      assert.equal((await client.resumeSession(id)).status, 'active')
      assert.equal((await client.stopSession(id)).status, 'stopped')
      assert.equal((await client.resumeSession(id)).status, 'active')
      assert.equal((await client.resumeSession(id)).status, 'active')
      assert.equal((await client.updateSessionConfig(id, { model: 'claude-haiku-4-5' })).id, id)
      assert.equal((await client.endSession(id)).status, 'ended')
      await assert.rejects(client.resumeSession(id), status(410))
    })
    await assert.rejects(client.getSession(NOBODY), status(404))
  },

  async messages_and_their_traces() {
    await session(async (id) => {
      const first = await ask(id, 'I am ALPHA', { includePartialMessages: true })
      assert.equal(first.types[0], 'session_start')
      assert.deepEqual(first.events.at(-1), { type: 'done', data: { sessionId: id } })
      const deltas = first.events.filter((event) => event.type === 'text_delta')
      assert.equal(deltas.map((event) => event.data.delta).join(''), first.text)
      const tool = await ask(id, 'run: echo from the tool')
      assert.ok(tool.types.includes('tool_use') && tool.types.includes('tool_result'), tool.types.join())
      assert.match(tool.text, /from the tool/)
      assert.match((await ask(id, 'recall')).text, /ALPHA/)
      const blocks = await ask(id, [{ type: 'text', text: 'one block' }])
      assert.match(blocks.text, /one block/)
      const messages = await client.listMessages(id)
      assert.equal(JSON.parse(messages[0].content).content, 'I am ALPHA')
      const rest = await client.listMessages(id, { afterSequence: messages[0].sequence, limit: 1 })
      assert.deepEqual(rest.map((one) => one.id), [messages[1].id])
      const starts = await client.listSessionEvents(id, { type: 'tool_start' })
      assert.equal(JSON.parse(starts[0].data).toolName, 'Bash')
      assert.ok(Array.isArray((await client.getSessionLogs(id, { after: 0 })).logs))
      assert.ok((await client.listUsageEvents({ sessionId: id })).length > 0)
      assert.ok((await client.getUsageStats({ sessionId: id })).totalOutputTokens > 0)
    })
  },

  async a_stop_and_a_fork_keep_the_conversation() {
    await session(async (id) => {
      await ask(id, 'I am ALPHA')
      await client.exec(id, 'echo kept > kept.lock')
      await client.stopSession(id)
      await client.resumeSession(id)
      assert.match((await ask(id, 'recall')).text, /ALPHA/)
      assert.equal((await client.exec(id, 'cat kept.lock')).stdout, 'kept\n')
      const fork = await client.forkSession(id)
      try {
        assert.equal(fork.parentSessionId, id)
        await client.resumeSession(fork.id)
        assert.equal((await client.exec(fork.id, 'cat kept.lock')).stdout, 'kept\n')
        assert.match((await ask(fork.id, 'recall')).text, /ALPHA/)
      } finally {
        await client.endSession(fork.id)
      }
    })
  },

  async files_of_a_session() {
    await session(async (id) => {
      const files = [
        { path: 'a.txt', content: base64('text') },
        { path: '../../out.txt', content: base64('no') },
      ]
      const { files: written } = await client.writeSessionFiles(id, files, 'sub')
      assert.deepEqual(written.map((file) => file.written), [true, false])
      const read = await client.getSessionFile(id, 'sub/a.txt')
      assert.deepEqual([read.content, read.size, read.source], ['text', 4, 'sandbox'])
      const raw = await client.downloadSessionFile(id, 'sub/a.txt')
      assert.deepEqual([raw.buffer.toString(), raw.source], ['text', 'sandbox'])
      assert.match(raw.mimeType, /^text\/plain/)
      assert.ok((await client.getSessionFiles(id)).files.some((file) => file.path === 'sub/a.txt'))
      assert.deepEqual(await client.deleteSessionFile(id, 'sub/a.txt'), { path: 'sub/a.txt', deleted: true })
      await assert.rejects(client.getSessionFile(id, 'sub/a.txt'), status(404))
      const result = await client.exec(id, 'echo out; echo err >&2; exit 3')
      assert.deepEqual(result, { exitCode: 3, stdout: 'out\n', stderr: 'err\n' })
    })
  },

  async bundles_and_attachments() {
    await session(async (id) => {
      await client.writeSessionFiles(id, [{ path: 'packed.txt', content: base64('in the bundle') }])
      const bundle = await client.downloadWorkspace(id)
      assert.ok(gunzipSync(bundle).includes('in the bundle'), 'the file is not in the bundle')
      await client.exec(id, 'rm packed.txt')
      await client.uploadWorkspace(id, bundle)
      assert.equal((await client.getSessionFile(id, 'packed.txt')).content, 'in the bundle')
      await assert.rejects(client.uploadWorkspace(id, gzipSync('not a tar')), AshApiError)
      const made = await client.uploadAttachment(id, '../note.txt', Buffer.from('attached'), { mimeType: 'text/plain' })
      assert.deepEqual([made.filename, made.size, made.sessionId], ['note.txt', 8, id])
      assert.equal((await client.downloadAttachment(made.id)).toString(), 'attached')
      assert.equal((await client.exec(id, 'cat attachments/note.txt')).stdout, 'attached')
      assert.deepEqual((await client.listAttachments(id)).map((one) => one.id), [made.id])
      await client.deleteAttachment(made.id)
      await assert.rejects(client.downloadAttachment(made.id), status(404))
    })
  },

  async credentials_reach_the_sandbox_only() {
    const secret = `sk-${randomUUID()}`
    const made = await client.storeCredential('custom', secret, 'mine')
    assert.ok(!JSON.stringify([made, await client.listCredentials()]).includes(secret), 'the key is told')
    const show = async (id) => assert.equal((await client.exec(id, 'echo $ASH_CUSTOM_API_KEY')).stdout, `${secret}\n`)
    await session(show, { credentialId: made.id })
    await client.deleteCredential(made.id)
    await assert.rejects(client.createSession(AGENT, { credentialId: made.id }), status(400))
  },

  async the_queue() {
    await agent()
    const item = await client.enqueue(AGENT, 'hello', { priority: 1 })
    assert.equal(item.agentName, AGENT)
    assert.ok((await client.listQueueItems({ limit: 10 })).some((one) => one.id === item.id))
    const end = performance.now() + 30_000
    let state = item.status
    while (!['completed', 'failed'].includes(state)) {
      assert.ok(performance.now() < end, `the item is still ${state}`)
      await new Promise((done) => setTimeout(done, 50))
      state = (await client.getQueueItem(item.id)).status
    }
    assert.equal(state, 'completed')
    await assert.rejects(client.cancelQueueItem(item.id), status(400))
    assert.ok((await client.getQueueStats()).completed >= 1)
  },

  async analytics() {
    const figures = await client.getAnalytics()
    assert.ok(figures.agents.total >= 0 && figures.sessions.total >= 0, JSON.stringify(figures))
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
if (deployed) await client.deleteAgent(AGENT).catch(() => {})
process.exit(failed === 0 ? 0 : 1)
