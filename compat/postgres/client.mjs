// Two clients for JavaScript against one server: `pg`, and `postgres`, which pipelines by itself.
//
// Named by PGHOST, PGPORT, PGDATABASE, PGUSER and PGPASSWORD. A line of JSON for each check.

import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as pause } from "node:timers/promises";

import pg from "pg";
import { from as copyFrom, to as copyTo } from "pg-copy-streams";
import Cursor from "pg-cursor";
import postgres from "postgres";

const { PGHOST: host, PGPORT: port, PGDATABASE: database, PGUSER: user, PGPASSWORD: password } = process.env;
const CLIENTS = Number(process.env.CLIENTS ?? 16);
const PATIENCE = 60_000;

const checks = [];
const check = (name, run) => checks.push({ name, run });

async function connected(count, run, options = {}) {
  const make = () => new pg.Client({ host, port, database, user, password, ...options });
  const clients = Array.from({ length: count }, make);
  try {
    await Promise.all(clients.map((client) => client.connect()));
    return await run(...clients);
  } finally {
    await Promise.all(clients.map((client) => client.end().catch(() => {})));
  }
}

const value = async (client, text, values) => Object.values((await client.query(text, values)).rows[0])[0];

async function until(what, probe) {
  for (const start = Date.now(); Date.now() - start < PATIENCE; await pause(10)) {
    const seen = await probe();
    if (seen) return seen;
  }
  throw new Error(`not in time: ${what}`);
}

const prepared = (client, name, text, values) => client.query({ name, text, values });

check("pg: statements have names of the client's own", () =>
  connected(2, async (a, b) => {
    for (let turn = 0; turn < 30; turn++) {
      const [one, two] = await Promise.all([
        prepared(a, "mine", "SELECT $1::int + 1 AS x", [turn]),
        prepared(b, "mine", "SELECT $1::text || 'b' AS x", [`${turn}`]),
      ]);
      assert.deepEqual([one.rows[0].x, two.rows[0].x], [turn + 1, `${turn}b`]);
    }
    const long = "n".repeat(60) + "é";
    for (let turn = 0; turn < 3; turn++)
      assert.equal((await prepared(a, long, "SELECT $1::int AS x", [turn])).rows[0].x, turn);
  }));

check("pg: a statement lives through changes of its table", () =>
  connected(2, async (a, b) => {
    await a.query("DROP TABLE IF EXISTS njs_changed; CREATE TABLE njs_changed AS SELECT 1 AS x");
    for (const one of [a, b])
      assert.deepEqual((await prepared(one, "s", "SELECT * FROM njs_changed")).rows, [{ x: 1 }]);
    await a.query("ALTER TABLE njs_changed ADD y int DEFAULT 2");
    for (const one of [a, b]) {
      // PostgreSQL tells it once, and has no way around it; Cove may know one.
      const result = await prepared(one, "s", "SELECT * FROM njs_changed").catch((error) => error);
      if (result instanceof Error) assert.equal(result.code, "0A000");
      else assert.deepEqual(result.rows, [{ x: 1, y: 2 }]);
    }
    await connected(1, async (late) => {
      await late.query("BEGIN");
      assert.deepEqual((await prepared(late, "s", "SELECT * FROM njs_changed")).rows, [{ x: 1, y: 2 }]);
      await late.query("COMMIT");
    });
    await a.query("DROP TABLE njs_changed");
  }));

check("pg: transactions and errors in them", () =>
  connected(2, async (a, b) => {
    await a.query("DROP TABLE IF EXISTS njs_rows; CREATE TABLE njs_rows (x int PRIMARY KEY)");
    await a.query("BEGIN");
    await a.query("INSERT INTO njs_rows VALUES ($1)", [1]);
    await a.query("SAVEPOINT s");
    await assert.rejects(a.query("INSERT INTO njs_rows VALUES ($1)", [1]), { code: "23505" });
    await assert.rejects(a.query("SELECT 1"), { code: "25P02" });
    await a.query("ROLLBACK TO s");
    assert.equal(await value(b, "SELECT count(*)::int FROM njs_rows"), 0);
    await a.query("COMMIT");
    assert.equal(await value(b, "SELECT count(*)::int FROM njs_rows"), 1);
    // Several statements in one text are one transaction.
    await assert.rejects(a.query("INSERT INTO njs_rows VALUES (2); SELECT 1/0"), { code: "22012" });
    assert.equal(await value(b, "SELECT count(*)::int FROM njs_rows"), 1);
    const many = await a.query("SELECT 1 AS a; SELECT 2 AS b; SET work_mem = '3MB'; SHOW work_mem");
    assert.deepEqual(many.map((one) => one.rows[0]), [{ a: 1 }, { b: 2 }, undefined, { work_mem: "3MB" }]);
    assert.notEqual(await value(b, "SHOW work_mem"), "3MB");
    assert.equal(await value(a, "SHOW work_mem"), "3MB");
    await a.query("DROP TABLE njs_rows");
  }));

check("pg: copies go both ways", () =>
  connected(1, async (c) => {
    await c.query("CREATE TEMP TABLE njs_copied (x int)");
    const lines = Array.from({ length: 20000 }, (_, number) => `${number}\n`);
    await pipeline(Readable.from(lines), c.query(copyFrom("COPY njs_copied FROM STDIN")));
    let size = 0;
    for await (const piece of c.query(copyTo("COPY njs_copied TO STDOUT"))) size += piece.length;
    assert.equal(size, lines.join("").length);
    const bad = c.query(copyFrom("COPY njs_copied FROM STDIN"));
    await assert.rejects(pipeline(Readable.from(Array(2000).fill("nonsense\n")), bad), { code: "22P02" });
    assert.equal(await value(c, "SELECT count(*)::int FROM njs_copied"), 20000);
  }));

check("pg: notifications reach whoever listens", () =>
  connected(2, async (a, b) => {
    const came = [];
    a.on("notification", ({ channel, payload }) => came.push([channel, payload]));
    await a.query("LISTEN njs_channel");
    for (let number = 0; number < 30; number++) await b.query("SELECT pg_notify('njs_channel', $1)", [`${number}`]);
    await until("all notifications", () => came.length >= 30);
    assert.deepEqual(came, Array.from({ length: 30 }, (_, number) => ["njs_channel", `${number}`]));
    await a.query("UNLISTEN njs_channel");
    await b.query("NOTIFY njs_channel");
    await a.query("SELECT 1");
    assert.equal(came.length, 30);
  }));

check("pg: a statement is cancelled by another's request", () =>
  connected(2, async (c, watch) => {
    const text = "SELECT pg_sleep(60) AS njs_cancelled";
    const over = assert.rejects(c.query(text), { code: "57014" });
    const running = "SELECT count(*)::int FROM pg_stat_activity WHERE query = $1"
      + " AND wait_event = 'PgSleep' AND datname = current_database()";
    await until("the statement to run", () => value(watch, running, [text]));
    const other = new pg.Client({ host, port, database, user, password });
    other.on("error", () => {});
    other.connection.on("error", () => {});
    other.connection.once("connect", () => other.connection.cancel(c.processID, c.secretKey));
    other.connection.connect(Number(port), host);
    await over;
    assert.equal(await value(c, "SELECT 1"), 1);
  }));

check("pg: portals are read piece by piece", () =>
  connected(1, async (c) => {
    await c.query("BEGIN");
    const cursor = c.query(new Cursor("SELECT generate_series(1, $1::int) AS x", [1000]));
    let sum = 0;
    for (let rows; (rows = await cursor.read(70)).length > 0; ) for (const { x } of rows) sum += x;
    await cursor.close();
    await c.query("COMMIT");
    assert.equal(sum, 500500);
  }));

check("pg: settings and temporary tables are the session's", () =>
  connected(2, async (a, b) => {
    await a.query("SET search_path = pg_catalog; SET cove.who = 'a'");
    await b.query("CREATE TEMP TABLE njs_temp AS SELECT 'b' AS who");
    for (let turn = 0; turn < 10; turn++) {
      assert.equal(await value(a, "SELECT current_setting('cove.who')"), "a");
      assert.equal(await value(a, "SHOW search_path"), "pg_catalog");
      await assert.rejects(a.query("SELECT * FROM njs_temp"), { code: "42P01" });
      assert.equal(await value(b, "SELECT who FROM njs_temp"), "b");
      assert.notEqual(await value(b, "SHOW search_path"), "pg_catalog");
    }
  }));

check("pg: many clients share few connections", async () => {
  const pool = new pg.Pool({ host, port, database, user, password, max: CLIENTS });
  await Promise.all(
    Array.from({ length: CLIENTS * 20 }, async (_, number) => {
      const client = await pool.connect();
      await client.query("BEGIN");
      await client.query("SET LOCAL cove.who = " + number);
      assert.equal(await value(client, "SELECT current_setting('cove.who')"), `${number}`);
      await client.query("COMMIT");
      assert.equal((await prepared(client, "p", "SELECT $1::int AS x", [number])).rows[0].x, number);
      client.release();
    }),
  );
  await pool.end();
});

const sql = (options = {}) =>
  postgres({ host, port: Number(port), database, username: user, password, onnotice: () => {}, ...options });

check("postgres: statements are pipelined on few connections", async () => {
  const db = sql({ max: 4 });
  const all = await Promise.all(Array.from({ length: 500 }, (_, number) => db`SELECT ${number}::int AS x, ${"y"} AS y`));
  assert.deepEqual(all.map(([row]) => row.x), Array.from({ length: 500 }, (_, number) => number));
  const mixed = await Promise.allSettled(
    Array.from({ length: 60 }, (_, number) => (number % 3 ? db`SELECT ${number}::int AS x` : db`SELECT 1 / ${0}::int`)),
  );
  mixed.forEach((one, number) =>
    number % 3 ? assert.equal(one.value[0].x, number) : assert.equal(one.reason.code, "22012"));
  await db.end();
});

check("postgres: transactions, savepoints, cursors and copies", async () => {
  const db = sql({ max: 2 });
  await db`CREATE TABLE IF NOT EXISTS pjs_rows (x int PRIMARY KEY)`;
  await db`TRUNCATE pjs_rows`;
  await db.begin(async (tx) => {
    await tx`INSERT INTO pjs_rows VALUES (1)`;
    await tx.savepoint((inner) => inner`INSERT INTO pjs_rows VALUES (1)`).catch(({ code }) => assert.equal(code, "23505"));
    await tx`INSERT INTO pjs_rows VALUES (2)`;
  });
  await db.begin(async (tx) => [tx`INSERT INTO pjs_rows VALUES (3)`, tx`SELECT 1/0`]).catch(() => {});
  assert.deepEqual([...(await db`SELECT x FROM pjs_rows ORDER BY x`)], [{ x: 1 }, { x: 2 }]);
  let sum = 0;
  await db`SELECT generate_series(1, 1000) AS x`.cursor(30, (rows) => rows.forEach(({ x }) => (sum += x)));
  assert.equal(sum, 500500);
  const into = await db`COPY pjs_rows FROM STDIN`.writable();
  await pipeline(Readable.from(["10\n", "11\n"]), into);
  let out = "";
  for await (const piece of await db`COPY (SELECT x FROM pjs_rows ORDER BY x) TO STDOUT`.readable()) out += piece;
  assert.equal(out, "1\n2\n10\n11\n");
  await db`DROP TABLE pjs_rows`;
  await db.end();
});

check("postgres: notifications and cancelling", async () => {
  const db = sql({ max: 3 });
  const came = [];
  const { unlisten } = await db.listen("pjs_channel", (payload) => came.push(payload));
  for (let number = 0; number < 20; number++) await db.notify("pjs_channel", `${number}`);
  await until("all notifications", () => came.length >= 20);
  assert.deepEqual(came, Array.from({ length: 20 }, (_, number) => `${number}`));
  await unlisten();
  const query = db`SELECT pg_sleep(60) AS pjs_cancelled`.execute();
  const over = assert.rejects(query, { code: "57014" });
  await until("the statement to run", async () =>
    (await db`SELECT FROM pg_stat_activity WHERE query LIKE '%AS pjs_cancelled'
      AND wait_event = 'PgSleep' AND datname = current_database()`).length);
  query.cancel();
  await over;
  assert.equal((await db`SELECT 1 AS x`)[0].x, 1);
  await db.end();
});

const wanted = process.argv.slice(2);
const chosen = checks.filter(({ name }) => wanted.length === 0 || wanted.some((word) => name.includes(word)));
for (const { name, run } of chosen) {
  let error;
  const late = pause(PATIENCE * 2, null, { ref: false }).then(() => Promise.reject(new Error("it never ended")));
  await Promise.race([run(), late]).catch((reason) => (error = reason.stack ?? `${reason}`));
  if (error) process.exitCode = 1;
  console.log(JSON.stringify({ check: name, ok: !error, ...(error && { error }) }));
}
process.exit();
