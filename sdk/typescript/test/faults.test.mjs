// Lost answers, refusals, cut connections, and a server that is killed and comes back.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as sdk from "@cove/sdk";
import { TOKEN, address, client, deployEcho, faultyWay, server, stableWay } from "./support.mjs";

const PYTHON = { language: "python", source: "print(6 * 7)" };

test("an answer that is lost makes one execution, and one batch", async () => {
  const label = crypto.randomUUID();
  const way = await faultyWay(
    ({ method }, count) => ({ isLost: method === "POST" && count % 2 === 1 }));
  const { executions } = client({ url: way.url });
  const record = await executions.submit({ ...PYTHON, label });
  const all = await executions.list({ label }).all();
  assert.deepEqual(all.map(({ id }) => id), [record.id]);
  const [first, second] = way.seen.map(({ headers }) => headers["idempotency-key"]);
  assert.match(first, /^[0-9a-f]{8}-[0-9a-f-]{27}$/);
  assert.equal(first, second);
  const before = way.seen.length;
  const batch = await executions.submitBatch([{ ...PYTHON, label }, { ...PYTHON, label }], {
    idempotencyKey: `batch ${label}`,
  });
  assert.equal(batch.length, 2);
  assert.ok(way.seen.length >= before + (before % 2 === 0 ? 2 : 1));
  assert.equal((await executions.list({ label }).all()).length, 3);
  way.close();
});

test("a lost answer without a key in the contract is an error, not a second session", async () => {
  const { paths } = await (await fetch(`${address()}/openapi.json`)).json();
  const { parameters = [] } = paths["/v1/sessions"].post;
  const isKeyed = parameters.some(({ name }) => name.toLowerCase() === "idempotency-key");
  const way = await faultyWay(
    ({ method }, count) => ({ isLost: method === "POST" && count === 1 }));
  const metadata = { lost: crypto.randomUUID() };
  const created = client({ url: way.url }).sessions.create({ metadata });
  if (isKeyed) await created;
  else await assert.rejects(created, sdk.CoveConnectionError);
  const made = await client().sessions.list({ metadata }).all();
  assert.equal(made.length, 1);
  await (await client().sessions.connect(made[0].id)).end();
  way.close();
});

test("429 and 503 are tried again when the server says, 500 and 400 are not", async () => {
  const error = (code, retry) => JSON.stringify({ error: { code, message: "no", retry } });
  for (const [status, code, retry, attempts] of [
    [429, "too_many_requests", true, 3], [503, "overloaded", true, 3], [502, "node_lost", false, 3],
    [504, "later", false, 3], [500, "internal", false, 1], [400, "invalid_request", false, 1],
  ]) {
    const headers = { "retry-after": "0", "x-request-id": "req_made_up" };
    const way = await faultyWay(() => ({ status, headers, body: error(code, retry) }));
    const failure = await client({ url: way.url }).whoami().catch((it) => it);
    assert.ok(failure instanceof sdk.CoveStatusError, String(failure));
    const { requestId } = failure;
    assert.deepEqual([failure.status, failure.code, requestId], [status, code, "req_made_up"]);
    assert.equal(way.seen.length, attempts, code);
    way.close();
  }
  const body = error("too_many_requests", true);
  const busy = () => ({ status: 429, headers: { "retry-after": "0" }, body });
  const way = await faultyWay((_, count) => (count < 3 ? busy() : undefined));
  assert.equal((await client({ url: way.url }).run(PYTHON)).stdout, "42\n");
  assert.ok(way.seen.every(({ headers }) => headers["idempotency-key"] === undefined));
  way.close();
  const late = await faultyWay(() => ({ status: 503, headers: { "retry-after": "3600" } }));
  await assert.rejects(client({ url: late.url }).whoami(), sdk.OverloadedError);
  assert.equal(late.seen.length, 1);
  late.close();
});

test("a run whose answer is lost is not run again", async () => {
  const way = await faultyWay(() => ({ isLost: true }));
  await assert.rejects(client({ url: way.url }).run(PYTHON), sdk.CoveConnectionError);
  assert.equal(way.seen.length, 1);
  way.close();
});

test("events go on behind a cut connection without a gap or a repetition", async () => {
  const way = await stableWay();
  const { executions } = client({ url: way.url });
  const source = "import time\nfor i in range(20):\n  print(i, flush=True)\n  time.sleep(0.05)";
  const { id } = await executions.submit({ language: "python", source });
  const numbers = [];
  const output = [];
  for await (const event of executions.watch(id)) {
    numbers.push(event.seq);
    if (event.type === "stdout") output.push(sdk.outputOf(event));
    if (numbers.length % 7 === 0) way.cut();
  }
  assert.deepEqual(numbers, numbers.map((_, index) => index + 1));
  const expected = Array.from({ length: 20 }, (_, index) => `${index}\n`).join("");
  assert.equal(Buffer.concat(output).toString(), expected);
  way.close();
});

test("streams survive the end of the server", async () => {
  await deployEcho();
  const way = await stableWay();
  const through = client({ url: way.url, maxReconnects: 30 });
  const session = await through.sessions.create({ agent: "echo" });
  assert.equal(await session.send("before").text(), "You said: before [messages: 1]");
  const events = session.events({ types: "text" }, { after: 0 });
  assert.match((await events.next()).value.data.text, /before/);
  const live = through.live();
  const topic = live.subscribe("session.events", { session: session.id, after: 0, types: "text" });
  assert.match((await topic.next()).value.data.text, /before/);
  const { id } = await through.executions.submit({ argv: ["/bin/sh", "-c", "echo up; sleep 1"] });
  const watched = through.executions.watch(id);
  for (;;) {
    const { value } = await watched.next();
    if (value.type === "stdout") break;
  }
  const rest = watched.all();
  const waited = through.executions.wait(id);
  await server.kill();
  await server.restart();
  // What ran when the server was killed is run again, and its result exists once.
  assert.equal((await rest).at(-1).type, "verdict");
  assert.equal((await waited).state, "finished");
  assert.equal((await waited).attempts, 2);
  const back = client();
  const again = await back.sessions.connect(session.id);
  if (again.info.state !== "active") await again.resume();
  assert.match(await again.send("after").text(), /You said: after/);
  assert.match((await events.next()).value.data.text, /after/);
  assert.match((await topic.next()).value.data.text, /after/);
  await events.return();
  live.close();
  await again.end();
  way.close();
  assert.ok(TOKEN);
});
