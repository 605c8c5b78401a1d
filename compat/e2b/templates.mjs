// E2B's JavaScript SDK, unmodified, against Cove: its builder of templates, as a table of named checks.
//
// Needs E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY in the environment; the server needs mirrors with
// the packages `greetings` and `shouter`. Arguments are parts of names: only those checks are done.
// Prints one line of JSON for each check, {name, ok, detail}, and ends with 1 if one failed.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { BuildError, Sandbox, Template, waitForPort } from 'e2b'

const name = () => `t-${randomUUID().slice(0, 13)}`

/** A build, with the messages of its log. */
async function build(template, wanted, options = {}) {
  const lines = []
  const info = await Template.build(template, wanted, { onBuildLogs: (line) => lines.push(line.message), ...options })
  return { info, lines }
}

/** Does something with a sandbox of a template. */
async function within(template, act) {
  const sandbox = await Sandbox.create(template, { timeoutMs: 60_000 })
  try {
    return await act(sandbox)
  } finally {
    await sandbox.kill()
  }
}

const out = async (sandbox, command) => (await sandbox.commands.run(command)).stdout

const checks = {
  async a_template_is_built_with_logs_and_sandboxes_start_from_it() {
    const files = await mkdtemp(join(tmpdir(), 'cove-templates-'))
    try {
      await mkdir(join(files, 'site'))
      await writeFile(join(files, 'site/index.html'), '<p>hi</p>\n')
      const template = Template({ fileContextPath: files })
        .fromBaseImage()
        .setWorkdir('/home/user/app')
        .copy('site', 'site/')
        .setEnvs({ GREETING: 'hello' })
        .runCmd(['echo building in $(pwd)', 'echo $GREETING > made.txt'])
        .setStartCmd('cd site && exec python3 -m http.server 8000', waitForPort(8000))
      const wanted = name()
      const { lines } = await build(template, wanted)
      assert.ok(lines.some((line) => line.includes('building in /home/user/app')), lines.join('\n'))
      await within(wanted, async (sandbox) => {
        assert.equal(await out(sandbox, 'cat made.txt; curl -s http://127.0.0.1:8000/'), 'hello\n<p>hi</p>\n')
      })
      const again = await build(template, wanted)
      assert.ok(again.lines.some((line) => line.includes('CACHED')), again.lines.join('\n'))
    } finally {
      await rm(files, { recursive: true })
    }
  },

  async a_build_that_fails_says_which_step() {
    const template = Template().fromBaseImage().runCmd('true').runCmd('echo why; exit 4')
    await assert.rejects(build(template, name()), (error) => {
      assert.ok(error instanceof BuildError, String(error))
      for (const part of ['step 2', 'exited with code 4', 'why']) assert.ok(error.message.includes(part), error.message)
      return true
    })
  },

  async what_there_is_not_is_refused_with_the_reason() {
    for (const [template, reason] of [
      [Template().fromNodeImage('24'), 'images are not pulled here'],
      [Template().fromBaseImage().setUser('root'), 'one user'],
      [Template().fromBaseImage().aptInstall('vim'), 'needs root'],
    ]) {
      await assert.rejects(build(template, name()), (error) => String(error).includes(reason))
    }
  },

  async packages_come_from_the_mirrors() {
    const wanted = name()
    await build(Template().fromBaseImage().pipInstall('greetings').npmInstall('shouter'), wanted)
    await within(wanted, async (sandbox) => {
      assert.equal(await out(sandbox, 'greet; npx --no shout'), 'hello from a wheel\nHELLO FROM A TARBALL\n')
    })
  },

  async names_and_tags() {
    const wanted = name()
    assert.equal(await Template.exists(wanted), false)
    const { info } = await build(Template().fromBaseImage().runCmd('echo one > ~/v'), `${wanted}:v1`)
    assert.equal(await Template.exists(wanted), true)
    await Template.assignTags(`${wanted}:v1`, ['stable'])
    const tags = await Template.getTags(wanted)
    assert.deepEqual(tags.map((tag) => [tag.tag, tag.buildId]).sort(), [
      ['stable', info.buildId],
      ['v1', info.buildId],
    ])
    await within(`${wanted}:stable`, async (sandbox) => assert.equal(await out(sandbox, 'cat ~/v'), 'one\n'))
  },
}

let failed = 0
const wanted = process.argv.slice(2)
for (const [title, check] of Object.entries(checks)) {
  if (wanted.length > 0 && !wanted.some((part) => title.includes(part))) continue
  const started = performance.now()
  let line
  try {
    await check()
    line = { name: title, ok: true, detail: `${Math.round(performance.now() - started)} ms` }
  } catch (error) {
    failed++
    const where = String(error?.stack).match(/templates\.mjs:(\d+)/)?.[1]
    line = { name: title, ok: false, detail: `line ${where}: ${error?.name}: ${error?.message}` }
  }
  console.log(JSON.stringify(line))
}
process.exit(failed === 0 ? 0 : 1)
