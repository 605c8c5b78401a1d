"""Psycopg 3 in a sandbox with grants: it finds its server in the environment, and is told nothing.

A table `notes (id int primary key, text text)` is there to write to; ids from 4000 to 4099 are this
client's. At port 5433 is the same to read. A line of JSON for each check."""
import asyncio
import json

import psycopg
from psycopg import errors


def texts_and_statements():
    with psycopg.connect("") as one:
        assert one.execute("SELECT current_user").fetchone() == ("clerk",)
        for turn in range(8):
            row = one.execute("SELECT %s::int, %s, %s::text", (turn, "é'", None), prepare=True)
            assert row.fetchone() == (turn, "é'", None)


def more_clients_than_connections():
    async def client(who):
        async with await psycopg.AsyncConnection.connect("", autocommit=True) as one:
            for turn in range(5):
                row = await (await one.execute("SELECT %s::int", (who + turn,))).fetchone()
                assert row == (who + turn,)

    async def every():
        await asyncio.gather(*(client(10 * who) for who in range(10)))

    asyncio.run(every())


def transactions_and_errors():
    count = "SELECT count(*) FROM notes WHERE id BETWEEN 4000 AND 4099"
    insert = "INSERT INTO notes VALUES (%s, %s)"
    with psycopg.connect("") as a, psycopg.connect("", autocommit=True) as b:
        a.execute(insert, (4000, "kept"))
        assert b.execute(count).fetchone() == (0,)
        a.commit()
        a.execute(insert, (4001, "undone"))
        fails(errors.UniqueViolation, lambda: a.execute(insert, (4000, "again")))
        a.rollback()
        fails(errors.UndefinedTable, lambda: b.execute("SELECT * FROM nowhere"))
        with b.pipeline():
            rows = [b.execute("SELECT %s::int", (number,)) for number in range(50)]
        assert [row.fetchone() for row in rows] == [(number,) for number in range(50)]
        with b.cursor().copy("COPY notes FROM STDIN") as copy:
            copy.write_row((4002, "copied"))
        assert b.execute(count).fetchone() == (2,)


def readers_only_read():
    with psycopg.connect("port=5433") as one:
        for statement in ("UPDATE notes SET text = 'stolen'", "COPY notes FROM STDIN"):
            fails(errors.ReadOnlySqlTransaction, lambda: one.execute(statement))
            one.rollback()
        assert one.execute("SELECT text FROM notes WHERE id = 4000").fetchone() == ("kept",)


def much_at_one_time():
    with psycopg.connect("") as one, one.cursor(name="piece by piece") as cursor:
        cursor.execute("SELECT x, repeat('y', 100) FROM generate_series(1, 50000) x")
        assert sum(x + len(y) for x, y in cursor) == 50_000 * 50_001 // 2 + 5_000_000


def fails(kind, act):
    try:
        act()
    except kind:
        return
    raise AssertionError(f"no {kind}")


for check in (
    texts_and_statements,
    more_clients_than_connections,
    transactions_and_errors,
    readers_only_read,
    much_at_one_time,
):
    line = {"check": f"psycopg: {check.__name__}", "ok": True}
    try:
        check()
    except Exception as error:
        line.update(ok=False, error=repr(error))
    print(json.dumps(line))
