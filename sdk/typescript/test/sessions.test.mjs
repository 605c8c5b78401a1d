// Sessions: commands, files, terminals, cells, agents, templates, grants, the audit, live topics.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as sdk from "@cove/sdk";
import { client, deployEcho } from "./support.mjs";

test("a session ends with its scope; it is found and connected to before", async () => {
  let id;
  const metadata = { purpose: crypto.randomUUID() };
  {
    await using session = await client().sessions.create({ metadata });
    id = session.id;
    const listed = await client().sessions.list({ metadata }).all();
    assert.deepEqual(listed.map((it) => it.id), [id]);
    const again = await client().sessions.connect(id);
    assert.equal(again.info.state, "active");
    await session.stop();
    assert.equal((await again.refresh()).state, "stopped");
    await again.resume();
    assert.ok((await session.metrics()).disk_total_bytes > 0);
  }
  assert.equal((await client().sessions.get(id)).state, "ended");
});

test("commands run in the foreground, in the background, with input", async () => {
  await using session = await client().sessions.create();
  const settings = { stdin: "typed\n", env: { NAME: "x" }, cwd: "/tmp" };
  const result = await session.exec("cat; echo $NAME; pwd; echo bad >&2; exit 3", settings);
  assert.deepEqual(
    [result.stdout, result.stderr, result.exit_code], ["typed\nx\n/tmp\n", "bad\n", 3]);
  assert.equal((await session.exec(["printf", "%s", "a b"])).stdout, "a b");
  assert.match((await session.exec(["no-such-program"])).start_error, /No such file/);
  assert.equal((await session.exec("sleep 100", { timeout_ms: 50 })).timed_out, true);
  const command = await session.start("echo up; exec sleep 4711");
  assert.ok(command.pid > 0);
  for await (const event of command) if (event.type === "stdout") break;
  const heard = [];
  const loud = await session.exec("echo 1; echo 2", { onStdout: (bytes) => heard.push(bytes) });
  assert.equal(Buffer.concat(heard).toString(), loud.stdout);
  await command.kill();
  const gone = await session.exec("for i in $(seq 100); do pgrep -f 'sleep 4711' | grep -qv $$ "
    + "|| exit 0; sleep 0.1; done; exit 1");
  assert.equal(gone.exit_code, 0);
  await using terminal = await session.terminal({ argv: ["/bin/sh"], rows: 30, cols: 90 });
  terminal.write("stty size; exit 4\n");
  const shown = [];
  for await (const bytes of terminal) shown.push(bytes);
  assert.match(Buffer.concat(shown).toString(), /30 90/);
  assert.equal(terminal.ended.exit_code, 4);
});

test("files are written, read, watched, moved, packed", async () => {
  await using session = await client().sessions.create();
  const { files } = session;
  const odd = "src/ä b%2F?#.txt";
  await files.write(odd, "text");
  assert.equal(await files.readText(`/workspace/${odd}`), "text");
  await files.write(odd, new Blob([" more"]), { append: true });
  assert.equal((await files.stat(odd)).size, 9);
  await assert.rejects(files.write(odd, "x", { create: true }), sdk.ConflictError);
  await files.write("~/bytes", new Uint8Array([0, 255]), { mode: "0600" });
  assert.deepEqual([...await files.read("~/bytes")], [0, 255]);
  const large = new Blob([new Uint8Array(8 << 20).fill(7)]);
  await files.write("large", large.stream());
  let size = 0;
  for await (const chunk of await files.readStream("large")) size += chunk.length;
  assert.equal(size, 8 << 20);
  const watch = await files.watch("src");
  await files.move(odd, "src/plain");
  assert.match((await watch.next()).value.path, /ä b|plain/);
  await watch.return();
  const packed = await new Response(await files.archive("src")).arrayBuffer();
  await files.makeDirectory("copy");
  assert.ok((await files.extract(packed, "copy")).entries > 0);
  assert.equal(await files.readText("copy/plain"), "text more");
  await files.remove("src", { recursive: true });
  const names = (await files.list()).entries.map(({ path }) => path);
  assert.ok(!names.includes("/workspace/src") && names.includes("/workspace/copy"));
  await assert.rejects(files.read("src/plain"), sdk.NotFoundError);
});

test("cells keep what they define, and contexts are forked", async () => {
  await using session = await client().sessions.create();
  await session.run("x = 40");
  const report = await session.run("print('seen')\nx + 2");
  assert.deepEqual([report.stdout, report.results[0].data["text/plain"]], ["seen\n", "42"]);
  const failed = await session.run("1 / 0");
  assert.deepEqual([failed.verdict, failed.error.name], ["RE", "ZeroDivisionError"]);
  const context = await session.contexts.create({ language: "bash" });
  const types = [];
  await context.execute("echo hi", { onEvent: ({ type }) => types.push(type) });
  assert.deepEqual(types, ["started", "stdout", "ended"]);
  const copy = await session.contexts.at("python").fork();
  assert.equal((await copy.execute("x")).results[0].data["text/plain"], "40");
  const ids = (await session.contexts.list()).map(({ id }) => id);
  assert.ok(ids.includes(context.id) && ids.includes(copy.id), String(ids));
  await context.restart();
  await context.delete();
});

test("forks and snapshots have the files", async () => {
  await using session = await client().sessions.create();
  await session.files.write("kept", "here");
  const [fork] = await session.fork();
  assert.equal(await fork.files.readText("kept"), "here");
  await fork.end();
  const { id } = await session.snapshot({ name: "one" });
  await using later = await client().sessions.create({ snapshot: id });
  assert.equal(await later.files.readText("kept"), "here");
  const listed = await client().sessions.snapshots(session.id).all();
  assert.deepEqual(listed.map((it) => it.id), [id]);
  await client().sessions.deleteSnapshot(id);
});

test("an agent answers, as text, as a document and as events", async () => {
  await deployEcho();
  assert.deepEqual((await client().agents.files("echo")).map(({ path }) => path), ["agent.py"]);
  await using session = await client().sessions.create({ agent: "echo" });
  assert.equal(await session.send("hello").text(), "You said: hello [messages: 1]");
  assert.equal((await session.ask("again")).result, "You said: again [messages: 2]");
  const types = [];
  for await (const { type } of session.send("third")) types.push(type);
  assert.equal(types.at(-1), "done");
  assert.ok((await session.messages().all()).length >= 6);
  const events = session.events({ types: "text" }, { after: 0 });
  assert.equal((await events.next()).value.data.text, "You said: hello [messages: 1]");
  await events.return();
  await session.end();
  assert.equal((await session.events({}, { after: 0 }).all()).at(-1).data.state, "ended");
});

test("a template is built with its log, and a failure names the step", async () => {
  const { templates, sessions } = client();
  const lines = [];
  const steps = [{ type: "run", command: "echo made >made; echo said" }];
  const build = await templates.build(
    { name: "sdk", steps }, { onLog: ({ message }) => lines.push(message) });
  assert.equal(build.status, "ready");
  assert.ok(lines.some((line) => line.includes("said")), lines.join("\n"));
  await using session = await sessions.create({ template: "sdk" });
  assert.equal(await session.files.readText("made"), "made\n");
  const failing = { name: "sdk", steps: [{ type: "run", command: "exit 3" }] };
  await assert.rejects(templates.build(failing), sdk.TemplateBuildError);
  assert.equal((await templates.builds("sdk")).length, 2);
});

test("grants are given, queried, audited and taken back", async () => {
  await using session = await client().sessions.create();
  await session.give({ kind: "postgres", tenant: "shop" });
  await session.give([{ kind: "mysql", tenant: "judge" }]);
  assert.deepEqual((await session.grants()).map(sdk.grantName), ["postgres:shop", "mysql:judge"]);
  const followed = client().audit.follow({ holder: session.id });
  const next = followed.next();
  const sql = "SELECT count(*) FROM items WHERE id > $1";
  const answer = await session.query("postgres:shop", sql, { parameters: [90] });
  assert.deepEqual(answer.rows.flat().map(Number), [10]);
  const objects = (await session.describe("postgres:shop")).objects.map(({ name }) => name);
  assert.ok(objects.includes("public.items"), String(objects));
  assert.equal((await next).value.holder, session.id);
  await followed.return();
  await session.takeBack("postgres:shop");
  await assert.rejects(session.query("postgres:shop", "SELECT 1"), sdk.CoveStatusError);
  await assert.rejects(session.takeBack("postgres:shop"), /has no grant/);
  const records = await client().audit.list({ holder: session.id, limit: 1 }).all();
  assert.ok(records.length > 3, String(records.length));
  assert.ok(records.every((it, at) => at === 0 || it.seq > records[at - 1].seq));
  const newest = await client().audit.list({ holder: session.id, limit: 2, order: "desc" }).all();
  assert.deepEqual(newest.map(({ seq }) => seq), records.map(({ seq }) => seq).reverse());
  const summary = await client().audit.summary({ holder: session.id, by: "grant" });
  assert.ok(summary.groups.some(({ name }) => name === "postgres:shop"));
});

test("one WebSocket follows many things", async () => {
  await using live = client().live();
  await using session = await client().sessions.create();
  const seen = live.subscribe("session.events", { session: session.id, after: 0 });
  assert.equal((await seen.next()).value.type, "lifecycle");
  const { id } = await client().executions.submit({ language: "python", source: "print(1)" });
  const types = [];
  for await (const { type } of live.subscribe("execution.events", { execution: id, after: 0 })) {
    types.push(type);
  }
  assert.equal(types.at(-1), "verdict");
  await seen.return();
  const unknown = live.subscribe("execution.events", { execution: "ex_none", after: 0 });
  await assert.rejects(unknown.next(), sdk.CoveStatusError);
});
