"""aiomysql: a pool of clients that share connections, in one thread."""

import asyncio

import aiomysql
from pymysql import err

from mysql_checks import CLIENTS, DATABASE, HOST, PASSWORD, PORT, USER, check, equal, main

SERVER = {"host": HOST, "port": PORT, "user": USER, "password": PASSWORD, "db": DATABASE, "charset": "utf8mb4"}


def asynchronous(function):
    def run():
        asyncio.run(asyncio.wait_for(function(), 60))

    run.__name__ = function.__name__
    return check(run)


async def rows(connection, sql, parameters=None):
    async with connection.cursor() as cursor:
        await cursor.execute(sql, parameters)
        return await cursor.fetchall()


async def value(connection, sql, parameters=None):
    return (await rows(connection, sql, parameters))[0][0]


@asynchronous
async def many_tasks_share_a_pool():
    async with aiomysql.create_pool(minsize=1, maxsize=CLIENTS, autocommit=True, **SERVER) as pool:

        async def work(number):
            for turn in range(20):
                async with pool.acquire() as connection:
                    equal(await value(connection, "SELECT %s + %s", (number, turn)), number + turn)

        await asyncio.gather(*(work(number) for number in range(CLIENTS * 3)))


@asynchronous
async def transactions_are_the_task_s():
    async with aiomysql.create_pool(minsize=CLIENTS, maxsize=CLIENTS, autocommit=True, **SERVER) as pool:
        async with pool.acquire() as connection:
            await rows(connection, "DROP TABLE IF EXISTS aio_rows")
            await rows(connection, "CREATE TABLE aio_rows (who INT, x INT, KEY (who)) ENGINE=InnoDB")

        async def work(number):
            async with pool.acquire() as connection:
                for turn in range(10):
                    await connection.begin()
                    await rows(connection, "INSERT INTO aio_rows VALUES (%s, %s)", (number, turn))
                    sql = "SELECT COUNT(*) FROM aio_rows WHERE who = %s"
                    seen = await value(connection, sql, (number,))
                    if turn % 2:
                        await connection.rollback()
                        equal(await value(connection, sql, (number,)), seen - 1)
                    else:
                        await connection.commit()

        await asyncio.gather(*(work(number) for number in range(CLIENTS)))
        async with pool.acquire() as connection:
            equal(await value(connection, "SELECT COUNT(*) FROM aio_rows"), CLIENTS * 5)
            await rows(connection, "DROP TABLE aio_rows")


@asynchronous
async def streams_of_rows_and_several_results():
    async with aiomysql.connect(autocommit=True, **SERVER) as connection:
        async with connection.cursor(aiomysql.SSCursor) as cursor:
            await cursor.execute("SELECT seq, REPEAT('x', 50) FROM seq_1_to_10000")
            total = 0
            async for row in cursor:
                total += row[0]
            equal(total, 10_000 * 10_001 // 2)
        async with connection.cursor(aiomysql.DictCursor) as cursor:
            await cursor.execute("SELECT 1 AS a, '' AS b")
            equal(await cursor.fetchone(), {"a": 1, "b": ""})
        await rows(connection, "DROP PROCEDURE IF EXISTS aio_two")
        await rows(connection, "CREATE PROCEDURE aio_two() BEGIN SELECT 1; SELECT 2, 3; END")
        async with connection.cursor() as cursor:
            await cursor.callproc("aio_two")
            seen = [await cursor.fetchall()]
            while await cursor.nextset():
                seen.append(await cursor.fetchall())
            equal([tuple(one) for one in seen], [((1,),), ((2, 3),), ()])
        await rows(connection, "DROP PROCEDURE aio_two")


@asynchronous
async def errors_leave_connections_usable():
    async with aiomysql.create_pool(minsize=1, maxsize=4, autocommit=True, **SERVER) as pool:
        for number in range(20):
            async with pool.acquire() as connection:
                try:
                    await rows(connection, "SELECT nothing")
                    raise AssertionError("no error")
                except err.OperationalError as error:
                    equal(error.args[0], 1054)
                equal(await value(connection, "SELECT %s", (number,)), number)


@asynchronous
async def state_of_sessions_is_not_mixed():
    connections = [await aiomysql.connect(autocommit=True, **SERVER) for _ in range(4)]
    for number, connection in enumerate(connections):
        await rows(connection, f"SET @who = {number}, SESSION wait_timeout = {1000 + number}")
        await rows(connection, f"CREATE TEMPORARY TABLE aio_temp AS SELECT {number} AS who")
    for _ in range(5):
        for number, connection in enumerate(connections):
            seen = await rows(connection, "SELECT @who, @@wait_timeout, who FROM aio_temp")
            equal(seen, ((number, 1000 + number, number),))
    for connection in connections:
        await connection.ensure_closed()


@asynchronous
async def a_task_that_is_given_up_leaves_nothing_behind():
    connection = await aiomysql.connect(autocommit=True, **SERVER)
    try:
        await asyncio.wait_for(rows(connection, "SELECT SLEEP(30)"), 0.3)
        raise AssertionError("it was not given up")
    except asyncio.TimeoutError:
        connection.close()
    async with aiomysql.connect(autocommit=True, **SERVER) as connection:
        equal(await value(connection, "SELECT 1"), 1)


if __name__ == "__main__":
    main()
