// Drivers for JavaScript in a sandbox with grants: `pg` finds its server in the environment, and
// `mysql2` where a server of MySQL is when nobody says anything. Neither is told anything.
//
// Tables `notes (id int primary key, text …)` are there to write to; ids from 1000 to 1999 are these
// clients'. At ports 5433 and 3307 is the same to read. With an argument it is only seen who answers
// at DATABASE_URL. A line of JSON for each check.

import assert from "node:assert/strict";

import mysql from "mysql2/promise";
import pg from "pg";

const { DATABASE_URL } = process.env;
const CLIENTS = 10;
const LARGE = 8 << 20;

const fails = (code, promise) =>
  assert.rejects(promise, (error) => {
    assert.equal(error.sqlState ?? error.code, code, error.message);
    return true;
  });

// What both are asked, by `texts(sql)` (text), `run(sql, values)` (prepared) and `end()`.
async function postgres(options) {
  const client = new pg.Client(options);
  await client.connect();
  return {
    texts: async (sql) => (await client.query(sql)).rows,
    run: async (sql, values) => {
      let number = 0;
      const text = sql.replaceAll("?", () => `$${++number}`);
      return (await client.query({ name: text, text, values })).rows;
    },
    end: () => client.end(),
  };
}

async function mariadb(options) {
  const client = await mysql.createConnection(options ?? {});
  return {
    texts: async (sql) => (await client.query(sql))[0],
    run: async (sql, values) => (await client.execute(sql, values))[0],
    end: () => client.end(),
  };
}

const drivers = {
  pg: {
    connect: postgres, reader: { port: 5433 }, missing: "42P01", twice: "23505", who: "current_user",
    user: /^clerk$/, many: "SELECT x, repeat('y', 100) AS y FROM generate_series(1, 50000) x",
    text: "CAST(? AS text)", number: "CAST(? AS int)",
  },
  mysql2: {
    connect: mariadb, reader: { port: 3307 }, missing: "42S02", twice: "23000", who: "CURRENT_USER()",
    user: /^judge@/, many: "SELECT seq AS x, repeat('y', 100) AS y FROM seq_1_to_50000",
    text: "?", number: "?",
  },
};

const checks = {
  async texts_and_statements({ connect, who, user, text, number }) {
    const one = await connect();
    assert.match((await one.texts(`SELECT ${who} AS w`))[0].w, user);
    for (let turn = 0; turn < 5; turn++) {
      const [row] = await one.run(`SELECT ${number} AS a, ${text} AS b, ${text} AS c`, [turn, `é'${turn}`, null]);
      assert.deepEqual({ ...row, a: Number(row.a) }, { a: turn, b: `é'${turn}`, c: null });
    }
    await one.end();
  },

  async more_clients_than_connections({ connect, number }) {
    const all = await Promise.all(Array.from({ length: CLIENTS }, () => connect()));
    for (let turn = 0; turn < 5; turn++) {
      const seen = await Promise.all(all.map((one, who) => one.run(`SELECT ${number} AS x`, [who * 10 + turn])));
      assert.deepEqual(seen.map(([row]) => Number(row.x)), all.map((_, who) => who * 10 + turn));
    }
    await Promise.all(all.map((one) => one.end()));
  },

  async transactions_and_errors({ connect, missing, twice }) {
    const [a, b] = await Promise.all([connect(), connect()]);
    const count = async () => Number((await b.texts("SELECT count(*) AS n FROM notes WHERE id BETWEEN 1000 AND 1999"))[0].n);
    await a.texts("BEGIN");
    await a.run("INSERT INTO notes VALUES (?, ?)", [1000, "kept"]);
    assert.equal(await count(), 0);
    await a.texts("COMMIT");
    await a.texts("BEGIN");
    await a.run("INSERT INTO notes VALUES (?, ?)", [1001, "undone"]);
    await fails(twice, a.run("INSERT INTO notes VALUES (?, ?)", [1000, "again"]));
    await a.texts("ROLLBACK");
    await fails(missing, a.texts("SELECT * FROM nowhere"));
    await fails(missing, a.run("SELECT * FROM nowhere WHERE x = ?", [1]));
    assert.equal(await count(), 1);
    await Promise.all([a.end(), b.end()]);
  },

  async readers_only_read({ connect, reader }) {
    const one = await connect(reader);
    await fails("25006", one.texts("UPDATE notes SET text = 'stolen'"));
    await fails("25006", one.run("INSERT INTO notes VALUES (?, ?)", [1002, "stolen"]));
    await assert.rejects(one.texts("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE"));
    assert.equal((await one.run("SELECT text FROM notes WHERE id = ?", [1000]))[0].text, "kept");
    await one.end();
  },

  async much_at_one_time({ connect, many, text }) {
    const one = await connect();
    const rows = await one.texts(many);
    assert.equal(rows.length, 50_000);
    assert.equal(rows.reduce((sum, { x, y }) => sum + Number(x) + y.length, 0), (50_000 * 50_001) / 2 + 5_000_000);
    const large = "z".repeat(LARGE);
    assert.equal((await one.run(`SELECT ${text} AS x`, [large]))[0].x, large);
    await one.end();
  },
};

async function report(name, run) {
  try {
    await run();
    console.log(JSON.stringify({ check: name, ok: true }));
  } catch (error) {
    console.log(JSON.stringify({ check: name, ok: false, error: String(error.stack ?? error) }));
  }
}

async function main() {
  if (process.argv.length > 2)
    return report("the address in the environment", async () => {
      const driver = DATABASE_URL.startsWith("mysql:") ? drivers.mysql2 : drivers.pg;
      const options = DATABASE_URL.startsWith("mysql:") ? DATABASE_URL : { connectionString: DATABASE_URL };
      const one = await driver.connect(options);
      assert.match((await one.texts(`SELECT ${driver.who} AS w`))[0].w, driver.user);
      await one.end();
    });
  for (const [name, driver] of Object.entries(drivers))
    for (const [check, run] of Object.entries(checks)) await report(`${name}: ${check}`, () => run(driver));
}

main();
