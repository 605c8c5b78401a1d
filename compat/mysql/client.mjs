// mysql2: text and prepared statements, pools, transactions, procedures, streams.
//
// The server is named by MYSQL_HOST, MYSQL_PORT, MYSQL_DATABASE, MYSQL_USER and MYSQL_PASSWORD. A
// line of JSON for each check.

import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { setTimeout as pause } from "node:timers/promises";

import mysql from "mysql2/promise";

const env = process.env;
const CLIENTS = Number(env.CLIENTS ?? 16);
const PATIENCE = 60_000;
const server = {
  host: env.MYSQL_HOST, port: Number(env.MYSQL_PORT), user: env.MYSQL_USER, password: env.MYSQL_PASSWORD,
  database: env.MYSQL_DATABASE, connectTimeout: 20_000,
};

const checks = [];
const check = (name, run) => checks.push({ name, run });

async function connected(count, run, options = {}) {
  const all = await Promise.all(Array.from({ length: count }, () => mysql.createConnection({ ...server, ...options })));
  try {
    return await run(...all);
  } finally {
    await Promise.all(all.map((one) => one.end().catch(() => {})));
  }
}

const rows = async (client, sql, values) => (await client.query(sql, values))[0];
const value = async (client, sql, values) => Object.values((await rows(client, sql, values))[0])[0];
const executed = async (client, sql, values) => Object.values((await client.execute(sql, values))[0][0])[0];
const fails = (errno, promise) =>
  assert.rejects(promise, (error) => {
    assert.equal(error.errno, errno, error.message);
    return true;
  });

check("a pool of many clients selects points", async () => {
  const pool = mysql.createPool({ ...server, connectionLimit: CLIENTS });
  try {
    await pool.query("DROP TABLE IF EXISTS js_points");
    await pool.query("CREATE TABLE js_points (id INT PRIMARY KEY, v VARCHAR(20))");
    await pool.query("INSERT INTO js_points VALUES ?", [Array.from({ length: 300 }, (_, n) => [n, `v${n}`])]);
    await Promise.all(
      Array.from({ length: 600 }, async (_, n) => {
        const run = n % 2 ? value : executed;
        assert.equal(await run(pool, "SELECT v FROM js_points WHERE id = ?", [n % 300]), `v${n % 300}`);
      }),
    );
    await pool.query("DROP TABLE js_points");
  } finally {
    await pool.end();
  }
});

check("statements are prepared and used in many transactions", () =>
  connected(2, async (a, b) => {
    for (let turn = 0; turn < 40; turn++)
      for (const [who, client] of [a, b].entries()) {
        assert.equal(Number(await executed(client, "SELECT ? + ?", [turn, who])), turn + who);
        assert.equal(await executed(client, "SELECT CONCAT(?, 'é', ?)", ["", `${turn}`]), `é${turn}`);
        assert.equal(await executed(client, "SELECT ? IS NULL", [null]), 1);
      }
  }));

check("more statements than a connection keeps", () =>
  connected(2, async (a, b) => {
    for (let again = 0; again < 2; again++)
      for (let number = 0; number < 300; number++)
        for (const client of [a, b])
          assert.equal(Number(await executed(client, `SELECT ? + ${number}`, [again])), again + number);
  }, { maxPreparedStatements: 1000 }));

check("a statement is closed and prepared again", () =>
  connected(2, async (a, b) => {
    for (let turn = 0; turn < 10; turn++) {
      const statements = await Promise.all([a, b].map((client) => client.prepare("SELECT ? AS x")));
      for (const statement of statements) assert.equal((await statement.execute([`${turn}`]))[0][0].x, `${turn}`);
      for (const client of [a, b]) client.unprepare("SELECT ? AS x");
    }
  }));

check("a statement lives through changes of its table", () =>
  connected(2, async (a, b) => {
    await a.query("DROP TABLE IF EXISTS js_changed");
    await a.query("CREATE TABLE js_changed AS SELECT 1 AS x");
    for (const client of [a, b]) assert.deepEqual((await client.execute("SELECT * FROM js_changed"))[0], [{ x: 1 }]);
    await a.query("ALTER TABLE js_changed ADD y INT DEFAULT 2");
    for (const client of [a, b])
      assert.deepEqual((await client.execute("SELECT * FROM js_changed"))[0], [{ x: 1, y: 2 }]);
    await a.query("DROP TABLE js_changed");
    for (const client of [a, b]) await fails(1146, client.execute("SELECT * FROM js_changed"));
  }));

check("transactions and errors in them", () =>
  connected(2, async (a, b) => {
    await a.query("DROP TABLE IF EXISTS js_rows");
    await a.query("CREATE TABLE js_rows (x INT PRIMARY KEY)");
    await a.beginTransaction();
    await a.execute("INSERT INTO js_rows VALUES (?)", [1]);
    await fails(1062, a.execute("INSERT INTO js_rows VALUES (?)", [1]));
    await fails(1054, a.query("SELECT nothing"));
    await fails(1146, a.execute("SELECT * FROM js_nowhere"));
    assert.equal(await value(b, "SELECT COUNT(*) FROM js_rows"), 0);
    await a.execute("INSERT INTO js_rows VALUES (?)", [2]);
    await a.commit();
    assert.equal(await value(b, "SELECT COUNT(*) FROM js_rows"), 2);
    await a.beginTransaction();
    await a.query("DELETE FROM js_rows");
    await a.rollback();
    assert.equal(await executed(b, "SELECT COUNT(*) FROM js_rows"), 2);
    await a.query("DROP TABLE js_rows");
  }));

check("commands are queued by one client", () =>
  connected(1, async (a) => {
    const all = Array.from({ length: 100 }, (_, n) => (n % 3 ? value(a, "SELECT ?", [n]) : executed(a, "SELECT ?", [n])));
    assert.deepEqual((await Promise.all(all)).map(Number), Array.from({ length: 100 }, (_, n) => n));
  }));

check("numbers that the server gives", async () => {
  const pool = mysql.createPool({ ...server, connectionLimit: CLIENTS });
  try {
    await pool.query("DROP TABLE IF EXISTS js_ids");
    await pool.query("CREATE TABLE js_ids (id INT AUTO_INCREMENT PRIMARY KEY, who INT)");
    await Promise.all(
      Array.from({ length: CLIENTS }, async (_, who) => {
        const client = await pool.getConnection();
        for (let turn = 0; turn < 10; turn++) {
          const [done] = await client.execute("INSERT INTO js_ids (who) VALUES (?)", [who]);
          assert.equal(await value(client, "SELECT LAST_INSERT_ID()"), done.insertId);
          assert.equal(await executed(client, "SELECT who FROM js_ids WHERE id = LAST_INSERT_ID()"), who);
        }
        client.release();
      }),
    );
    await pool.query("DROP TABLE js_ids");
  } finally {
    await pool.end();
  }
});

check("procedures with several results", () =>
  connected(2, async (a, b) => {
    await a.query("DROP PROCEDURE IF EXISTS js_two");
    await a.query("CREATE PROCEDURE js_two(n INT) BEGIN SELECT n AS a; SELECT '' AS b, n * 2 AS c; END");
    for (let turn = 0; turn < 5; turn++)
      for (const client of [a, b])
        for (const run of ["query", "execute"]) {
          const [sets] = await client[run]("CALL js_two(?)", [turn]);
          assert.deepEqual(sets.slice(0, 2), [[{ a: turn }], [{ b: "", c: turn * 2 }]]);
        }
    await a.query("DROP PROCEDURE js_two");
  }));

check("several statements in one text", () =>
  connected(1, async (a) => {
    const [sets] = await a.query("SELECT 1 AS x; DO 2; SELECT '' AS y");
    assert.deepEqual([sets[0], sets[2]], [[{ x: 1 }], [{ y: "" }]]);
    await fails(1054, a.query("SELECT 1; SELECT nothing; SELECT 3"));
    assert.equal(await value(a, "SELECT 4"), 4);
  }, { multipleStatements: true }));

check("large values", () =>
  connected(1, async (a) => {
    const large = Buffer.alloc((1 << 24) + 100, "x");
    assert.equal(await executed(a, "SELECT LENGTH(?)", [large]), large.length);
    assert.equal((await executed(a, "SELECT REPEAT('y', ?)", [(1 << 24) + 100])).length, large.length);
    assert.equal((await value(a, `SELECT REPEAT('z', ${1 << 24})`)).length, 1 << 24);
  }));

check("rows are streamed", () =>
  connected(1, async (a) => {
    let total = 0;
    const stream = a.connection.query("SELECT seq, REPEAT('x', 200) AS x FROM seq_1_to_20000").stream();
    for await (const row of stream) total += row.seq;
    assert.equal(total, (20_000 * 20_001) / 2);
  }));

check("state of sessions", () =>
  connected(3, async (...all) => {
    for (const [who, client] of all.entries()) {
      await client.query("SET @who = ?, SESSION wait_timeout = ?", [who, 1000 + who]);
      await client.query(`SET time_zone = '+0${who + 1}:00'`);
      await client.query(`CREATE TEMPORARY TABLE js_temp AS SELECT ${who} AS who`);
    }
    for (let turn = 0; turn < 5; turn++)
      for (const [who, client] of all.entries()) {
        const [[row]] = await client.execute("SELECT @who AS w, @@wait_timeout AS t, @@time_zone AS z, who FROM js_temp");
        assert.deepEqual({ ...row, w: Number(row.w) }, { w: who, t: 1000 + who, z: `+0${who + 1}:00`, who });
      }
  }));

check("another user, and the same again", () =>
  connected(1, async (a) => {
    await a.query("SET @left = 1");
    await a.query("CREATE TEMPORARY TABLE js_left (x INT)");
    await a.changeUser({ user: server.user, password: server.password, database: server.database });
    assert.equal(await value(a, "SELECT @left"), null);
    await fails(1146, a.query("SELECT * FROM js_left"));
    assert.equal(Number(await executed(a, "SELECT ?", [5])), 5);
    if (a.connection.reset) {
      await a.query("SET @left = 2");
      await new Promise((resolve, reject) => a.connection.reset((error) => (error ? reject(error) : resolve())));
      assert.equal(await value(a, "SELECT @left"), null);
    }
  }));

check("a file of the client's", () =>
  connected(1, async (a) => {
    await a.query("DROP TABLE IF EXISTS js_infile");
    await a.query("CREATE TABLE js_infile (x INT)");
    const text = Array.from({ length: 2000 }, (_, n) => `${n}\n`).join("");
    const sql = "LOAD DATA LOCAL INFILE 'from.csv' INTO TABLE js_infile";
    const load = () => a.query({ sql, infileStreamFactory: () => Readable.from([Buffer.from(text)]) });
    if (env.LOCAL_INFILE === "1") assert.equal((await load())[0].affectedRows, 2000);
    else await assert.rejects(load());
    assert.equal(await value(a, "SELECT COUNT(*) FROM js_infile"), env.LOCAL_INFILE === "1" ? 2000 : 0);
    await a.query("DROP TABLE js_infile");
  }, { flags: ["+LOCAL_FILES"] }));

const wanted = process.argv.slice(2);
let failed = false;
for (const { name, run } of checks) {
  if (wanted.length && !wanted.some((word) => name.includes(word))) continue;
  const late = pause(PATIENCE, undefined, { ref: false }).then(() => {
    throw new Error("it never ended");
  });
  try {
    await Promise.race([run(), late]);
    console.log(JSON.stringify({ check: name, ok: true }));
  } catch (error) {
    failed = true;
    console.log(JSON.stringify({ check: name, ok: false, error: String(error.stack ?? error) }));
  }
}
process.exit(failed ? 1 : 0);
