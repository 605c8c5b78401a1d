"""asyncpg: the extended protocol and binary values only, statements kept, resets of its own pool."""

import asyncio
import os

import asyncpg

from checks import CLIENTS, DATABASE, HOST, PASSWORD, PATIENCE, PORT, USER, check as sync_check, equal, main


def check(function):
    def run():
        asyncio.run(asyncio.wait_for(function(), PATIENCE))

    run.__name__ = function.__name__
    return sync_check(run)


async def connect(**more):
    return await asyncpg.connect(
        host=HOST, port=PORT, user=USER, password=PASSWORD, database=DATABASE, timeout=20, ssl=False, **more
    )


async def raises(kind, awaitable):
    try:
        await awaitable
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


async def until(what, probe):
    for _ in range(PATIENCE * 100):
        seen = await probe()
        if seen:
            return seen
        await asyncio.sleep(0.01)
    raise AssertionError(f"not in time: {what}")


# Whether statements of one client run on several connections to the server.
SHARED = os.environ.get("PGDATABASE", "").endswith("_transaction")


@check
async def statements_are_kept_and_used_again():
    a, b = await connect(statement_cache_size=400), await connect(statement_cache_size=400)
    for turn in range(3):
        for number in range(300):
            for one in (a, b):
                equal(await one.fetchval(f"SELECT $1::int + {number}", turn), turn + number)
    statement = await a.prepare("SELECT $1::text || $2::text")
    for number in range(20):
        equal(await statement.fetchval(str(number), "x"), f"{number}x")
        equal(await b.fetchval("SELECT $1::text || $2::text", str(number), "y"), f"{number}y")
    await a.executemany("SELECT $1::int", [(number,) for number in range(1000)])
    equal(await a.fetch("SELECT * FROM unnest($1::int[], $2::text[])", [1, 2], ["a", None]), [(1, "a"), (2, None)])
    # Its own introspection of a type it does not know.
    await a.execute("DROP TYPE IF EXISTS apg_pair; CREATE TYPE apg_pair AS (x int, y text)")
    equal(tuple(await b.fetchval("SELECT ROW(1, 'z')::apg_pair")), (1, "z"))
    await a.execute("DROP TYPE apg_pair")
    await a.close()
    await b.close()


@check
async def a_statement_lives_through_changes_of_its_table():
    a, b = await connect(), await connect()
    await a.execute("DROP TABLE IF EXISTS apg_changed; CREATE TABLE apg_changed AS SELECT 1 AS x")
    for one in (a, b):
        equal(await one.fetch("SELECT * FROM apg_changed"), [(1,)])
    await a.execute("ALTER TABLE apg_changed ADD y int DEFAULT 2")
    # It prepares again by itself when it is told what PostgreSQL tells. On another connection of a
    # shared pool the statement is prepared anew, so that there nobody tells it.
    for one in () if SHARED else (a, b):
        equal(await one.fetch("SELECT * FROM apg_changed"), [(1, 2)])
    c = await connect()
    async with c.transaction():
        equal(await c.fetch("SELECT * FROM apg_changed"), [(1, 2)])
    await a.execute("ALTER TABLE apg_changed ALTER x TYPE text")
    d = await connect()
    async with d.transaction():
        equal(await d.fetch("SELECT * FROM apg_changed"), [("1", 2)])
    await a.execute("DROP TABLE apg_changed")
    for one in (a, b, c, d):
        await one.close()


@check
async def transactions_nest_and_fail():
    a, b = await connect(), await connect()
    await a.execute("DROP TABLE IF EXISTS apg_rows; CREATE TABLE apg_rows (x int PRIMARY KEY)")
    async with a.transaction():
        await a.execute("INSERT INTO apg_rows VALUES (1)")

        async def again():
            async with a.transaction():
                await a.execute("INSERT INTO apg_rows VALUES ($1)", 1)

        await raises(asyncpg.UniqueViolationError, again())
        equal(await b.fetchval("SELECT count(*) FROM apg_rows"), 0)
    equal(await b.fetchval("SELECT count(*) FROM apg_rows"), 1)
    await raises(asyncpg.UndefinedTableError, a.fetch("SELECT * FROM apg_nowhere WHERE x = $1", 1))
    equal(await a.fetchval("SELECT 1"), 1)
    async with a.transaction(isolation="repeatable_read"):
        equal(await a.fetchval("SELECT count(*) FROM apg_rows"), 1)
        await b.execute("INSERT INTO apg_rows VALUES (2)")
        equal(await a.fetchval("SELECT count(*) FROM apg_rows"), 1)
    equal(await a.fetchval("SELECT count(*) FROM apg_rows"), 2)
    async with a.transaction():
        rows = [row["n"] async for row in a.cursor("SELECT generate_series(1, 1000) AS n", prefetch=70)]
    equal(rows, list(range(1, 1001)))
    await a.execute("DROP TABLE apg_rows")
    await a.close()
    await b.close()


@check
async def copies_go_both_ways():
    c = await connect()
    await c.execute("CREATE TEMP TABLE apg_copied (x int, y text)")
    records = [(number, "y" * (number % 40)) for number in range(10000)]
    equal(await c.copy_records_to_table("apg_copied", records=records), "COPY 10000")
    size = 0

    async def count(data):
        nonlocal size
        size += len(data)

    equal(await c.copy_from_query("SELECT * FROM apg_copied", output=count), "COPY 10000")
    equal(size > 10000 * 20, True)
    await raises(asyncpg.DataError, c.copy_to_table("apg_copied", source=nonsense()))
    equal(await c.fetchval("SELECT count(*) FROM apg_copied"), 10000)
    await c.close()


async def nonsense():
    for _ in range(1000):
        yield b"nonsense\n" * 100


@check
async def notifications_reach_whoever_listens():
    a, b = await connect(), await connect()
    came = asyncio.Queue()
    await a.add_listener("apg_channel", lambda *what: came.put_nowait(what[2:]))
    async with b.transaction():
        for number in range(30):
            await b.execute("SELECT pg_notify('apg_channel', $1)", str(number))
        equal(came.qsize(), 0)
    for number in range(30):
        equal(await asyncio.wait_for(came.get(), 20), ("apg_channel", str(number)))
    await a.execute("UNLISTEN *")
    await b.execute("NOTIFY apg_channel")
    equal(await a.fetchval("SELECT 1"), 1)
    equal(came.qsize(), 0)
    await a.close()
    await b.close()


@check
async def a_statement_is_cancelled():
    c, watch = await connect(), await connect()
    query = "SELECT pg_sleep(60) AS apg_cancelled"
    task = asyncio.create_task(c.execute(query))
    running = ("SELECT count(*) FROM pg_stat_activity WHERE query = $1 AND datname = current_database()"
               " AND wait_event = 'PgSleep'")
    await until("the statement to run", lambda: watch.fetchval(running, query))
    task.cancel()
    await raises(asyncio.CancelledError, task)
    equal(await c.fetchval("SELECT 1"), 1)
    # Enough for it to begin: PostgreSQL forgets a request to cancel what has not.
    await raises(asyncio.TimeoutError, c.execute(query, timeout=2))
    equal(await c.fetchval("SELECT 2"), 2)
    await c.close()
    await watch.close()


@check
async def its_own_pool_resets_what_it_lends():
    options = dict(host=HOST, port=PORT, user=USER, password=PASSWORD, database=DATABASE, ssl=False)
    async with asyncpg.create_pool(min_size=CLIENTS, max_size=CLIENTS, **options) as pool:

        async def work(number):
            for turn in range(15):
                async with pool.acquire() as c:
                    equal(await c.fetchval("SELECT current_setting('cove.who', true)") or "", "")
                    await c.execute(f"SET cove.who = '{number}'")
                    await c.execute("SET work_mem = '2MB'")
                    async with c.transaction():
                        equal(await c.fetchval("SELECT current_setting('cove.who')"), str(number))
                    if turn % 5 == 0:
                        equal(await c.fetchval("SELECT pg_try_advisory_lock(4, $1)", number), True)
                        await c.execute("LISTEN apg_pool")

        await asyncio.gather(*(work(number) for number in range(CLIENTS * 2)))


@check
async def settings_are_told_and_kept():
    a = await connect(server_settings={"application_name": "apg", "search_path": "pg_catalog", "work_mem": "3MB"})
    b = await connect()
    for _ in range(10):
        equal(await a.fetchval("SHOW work_mem"), "3MB")
        equal(await a.fetchval("SHOW search_path"), "pg_catalog")
        equal(a.get_settings().application_name, "apg")
        assert await b.fetchval("SHOW work_mem") != "3MB"
        assert await b.fetchval("SHOW search_path") != "pg_catalog"
    await a.execute("SET application_name = 'other'")
    equal(a.get_settings().application_name, "other")
    await a.reset()
    equal(await a.fetchval("SHOW application_name"), "apg")
    await a.close()
    await b.close()


@check
async def large_values_and_many_rows():
    c = await connect()
    text = "x" * (6 << 20)
    equal(await c.fetchval("SELECT $1::text || ''", text) == text, True)
    equal(len(await c.fetch("SELECT n, repeat('y', 100) FROM generate_series(1, 50000) AS n")), 50000)
    await c.close()


if __name__ == "__main__":
    main()
