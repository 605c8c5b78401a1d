// Executions, the queue, the catalog, tenants: documents, pages, errors, options.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as sdk from "@cove/sdk";
import { client, TOKEN } from "./support.mjs";

const PYTHON = { language: "python", source: "print(6 * 7)" };

test("a program has a verdict, output and figures", async () => {
  const result = await client().run(PYTHON);
  assert.deepEqual([result.verdict, result.stdout, result.exit_code], ["OK", "42\n", 0]);
  const tests = [{ stdin: "1", expected: "1" }, { stdin: "2", expected: "1" }];
  const judged = await client().run({ language: "python", source: "print(input())", tests });
  assert.deepEqual(judged.tests.map(({ verdict }) => verdict), ["OK", "WA"]);
  const files = await client().run({
    argv: ["/bin/sh", "-c", "cat in.txt >out.txt"], outputs: ["out.txt"],
    files: [{ name: "in.txt", content: "kept" }],
  });
  assert.equal(files.files[0].content, "kept");
});

test("what is submitted is waited for, watched, listed and found again", async () => {
  const { executions } = client();
  const label = `listed ${crypto.randomUUID()}`;
  const source = "import sys\nprint('out')\nprint('err', file=sys.stderr)";
  const { id } = await executions.submit({ language: "python", source, label });
  const events = await executions.watch(id).all();
  assert.equal(events.at(-1).type, "verdict");
  const bytes = events.filter(({ type }) => type === "stdout").map(sdk.outputOf);
  assert.equal(Buffer.concat(bytes).toString(), "out\n");
  const later = await executions.watch(id, { after: events.at(-2).seq }).all();
  assert.deepEqual(later.map(({ type }) => type), ["verdict"]);
  assert.equal((await executions.wait(id)).state, "finished");
  assert.equal(sdk.resultOf(await executions.get(id)).stderr, "err\n");
  const batch = await executions.submitBatch([{ ...PYTHON, label }, { ...PYTHON, label }]);
  await Promise.all(batch.map((record) => executions.wait(record.id)));
  const pages = [];
  for await (const page of executions.list({ label, limit: 2 }).pages()) pages.push(page);
  assert.deepEqual(pages.map((page) => page.executions.length), [2, 1]);
  const all = await executions.list({ label, limit: 2 }).all();
  assert.equal(new Set(all.map((record) => record.id)).size, 3);
  assert.equal((await executions.list({ label, limit: 2 }).all(1)).length, 1);
  assert.equal((await executions.submitAndWait(PYTHON)).stdout, "42\n");
});

test("a server reads its settings again, and is copied", async () => {
  assert.deepEqual(await client().reload(), { taken_over: [], restart_needed_for: [] });
  const reader = (await client().backup()).getReader();
  const { value } = await reader.read();
  assert.deepEqual([...value.slice(0, 2)], [0x1f, 0x8b]);
  await reader.cancel();
});

test("leaving a loop, cancelling and a signal end a stream", async () => {
  const { executions } = client();
  const request = { argv: ["/bin/sh", "-c", "echo on; sleep 100"] };
  const { id } = await executions.submit(request);
  for await (const event of executions.watch(id)) if (event.type === "stdout") break;
  const stream = executions.watch(id);
  const read = stream.all();
  stream.cancel();
  await assert.rejects(read, sdk.CoveError);
  const controller = new AbortController();
  const signalled = executions.watch(id, { signal: controller.signal }).all();
  controller.abort(new Error("enough"));
  await assert.rejects(signalled, /enough/);
  await executions.cancel(id);
  assert.equal((await executions.wait(id)).state, "cancelled");
  assert.throws(() => sdk.resultOf({ id, state: "cancelled" }), /has no result/);
});

test("a program is typed to over a WebSocket", async () => {
  const source = "print('hello', input('who? '))";
  const program = await client().executions.open({ language: "python", source });
  program.write("Ada\n");
  const result = await program.result();
  assert.equal(result.stdout, "who? hello Ada\n");
  const terminal = { rows: 24, cols: 80 };
  await using shell = await client().executions.open({ argv: ["/bin/sh"], terminal });
  shell.resize({ rows: 40, cols: 132 });
  shell.write("stty size; exit 3\n");
  const ended = await shell.result();
  assert.match(ended.stdout, /40 132/);
  assert.equal(ended.exit_code, 3);
});

test("every code of the contract has its class, and others go by their status", async () => {
  const { executions } = client();
  const cases = [
    [() => executions.run({ language: "python", limits: { cpu_ms: 0 }, source: "" }),
      sdk.InvalidRequestError, "invalid_request", "limits.cpu_ms"],
    [() => executions.run({ language: "klingon", source: "" }), sdk.UnknownLanguageError,
      "unknown_language", "language"],
    [() => executions.get("ex_none"), sdk.NotFoundError, "not_found", undefined],
    [() => client({ token: "wrong" }).whoami(), sdk.UnauthenticatedError, "unauthenticated",
      undefined],
    [() => client().catalog.warehouse("nowhere").get(), sdk.NotFoundError, undefined, undefined],
  ];
  for (const [call, kind, code, field] of cases) {
    const error = await call().then(() => undefined, (it) => it);
    assert.ok(error instanceof kind, `${error}`);
    assert.ok(error instanceof sdk.CoveStatusError && error instanceof sdk.CoveError);
    if (code !== undefined) assert.equal(error.code, code);
    assert.equal(error.field, field);
    assert.match(error.requestId, /^req_/);
    assert.ok(!String(error.stack).includes(TOKEN));
  }
  await assert.rejects(async () => client().executions.get(".."), /is no name/);
});

test("an answer is there as document, with its response, and raw", async () => {
  const call = client().whoami();
  const { data, response, requestId } = await call.withResponse();
  assert.equal(data.operator, true);
  assert.equal(response.status, 200);
  assert.equal(requestId, response.headers.get("x-request-id"));
  const raw = await client().whoami().asResponse();
  assert.equal((await raw.json()).name, data.name);
  assert.deepEqual(await client().request({ method: "GET", path: "/v1/whoami" }), data);
});

test("settings come from the environment, the client and the call", async () => {
  assert.equal((await new sdk.Cove().whoami()).operator, true);
  const refused = client().withOptions({ token: async () => "wrong" });
  await assert.rejects(refused.whoami(), sdk.UnauthenticatedError);
  const slow = { argv: ["/bin/sleep", "100"] };
  await assert.rejects(client().run(slow, { timeoutMs: 50 }), sdk.CoveTimeoutError);
  const signal = AbortSignal.abort("no");
  await assert.rejects(client().run(slow, { signal }), (it) => it === "no");
  const away = client({ url: "http://127.0.0.1:9", maxRetries: 0 });
  await assert.rejects(away.whoami(), sdk.CoveConnectionError);
  assert.equal((await client().health()).isReady, true);
  const bare = new sdk.Cove({ url: sdk.API_VERSION, WebSocket: undefined });
  if (globalThis.WebSocket === undefined) {
    await assert.rejects(bare.live().subscribe("tenants", {}).next(), /no WebSocket/);
  }
});

test("the queue is paused, resumed, drained and counted", async () => {
  const { executions, queue } = client();
  assert.equal((await queue.pause()).paused, true);
  const { id } = await executions.submit(PYTHON);
  assert.equal((await queue.stats()).queued, 1);
  assert.equal(await queue.drain(), 1);
  assert.equal((await queue.resume()).paused, false);
  assert.equal((await executions.get(id)).state, "cancelled");
  assert.equal(await queue.retryDead(), 0);
});

test("the catalog has warehouses, clients, roles and changes", async () => {
  const { catalog } = client();
  const { warehouses } = await catalog.warehouses();
  const warehouse = catalog.warehouse(warehouses[0].name);
  assert.equal((await warehouse.get()).name, warehouse.name);
  const made = await catalog.createClient({ name: "sdk" });
  const credentials = { clientId: made["client-id"], clientSecret: made["client-secret"] };
  const access = await catalog.connection(credentials, warehouse.name);
  assert.equal(access.uri, catalog.restUrl);
  await warehouse.grant({ principal: made.principal, rights: ["read"] });
  const given = (await warehouse.grants(made.principal)).grants;
  assert.deepEqual(given.map(({ rights }) => rights), [["read"]]);
  const answer = await fetch(`${access.uri}/v1/config?warehouse=${warehouse.name}`, {
    headers: { authorization: `Bearer ${access.token}` },
  });
  assert.equal(answer.status, 200);
  const changes = warehouse.changes({}, { after: 0 });
  const namespace = `sdk_${crypto.randomUUID().replaceAll("-", "")}`;
  await client().request({
    method: "POST", path: `/catalog/v1/${warehouse.name}/namespaces`,
    json: { namespace: [namespace] },
  });
  for await (const change of changes) if (change.namespace?.[0] === namespace) break;
  await catalog.deleteClient(made["client-id"]);
  assert.deepEqual(await warehouse.dropped().all(), []);
  assert.ok((await catalog.audit().all(5)).length > 0);
});

test("tenants are made, looked at and removed", async () => {
  const { tenants } = client();
  const name = "sdk-tenant";
  await tenants.create({ name, server: "127.0.0.1:5", users: [{ name: "app", password: "x" }] });
  assert.equal((await tenants.get(name)).spec.name, name);
  await tenants.pause(name);
  await tenants.resume(name);
  assert.ok((await tenants.list()).some(({ spec }) => spec.name === name));
  assert.ok((await tenants.allStats()).tenants.length > 0);
  await tenants.delete(name);
  await assert.rejects(tenants.get(name), sdk.NotFoundError);
});
