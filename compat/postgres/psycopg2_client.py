"""psycopg2: the simple protocol only, transactions opened by themselves, COPY, notifications."""

import io
import select
import threading

import psycopg2
from psycopg2 import errors, extensions

from checks import CLIENTS, DATABASE, HOST, PASSWORD, PORT, USER, at_once, check, equal, main, until


def connect(**more):
    return psycopg2.connect(
        host=HOST, port=PORT, user=USER, password=PASSWORD, dbname=DATABASE, connect_timeout=20, **more
    )


def all_of(connection, query, parameters=None):
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        return cursor.fetchall() if cursor.description else None


def value(connection, query, parameters=None):
    return all_of(connection, query, parameters)[0][0]


def raises(kind, connection, query):
    try:
        all_of(connection, query)
    except kind:
        return connection.rollback()
    raise AssertionError(f"no {kind.__name__}: {query}")


@check
def transactions_open_by_themselves():
    a, b = connect(), connect()
    all_of(a, "DROP TABLE IF EXISTS p2_rows")
    all_of(a, "CREATE TABLE p2_rows (x int PRIMARY KEY)")
    a.commit()
    all_of(a, "INSERT INTO p2_rows VALUES (1)")
    equal(value(b, "SELECT count(*) FROM p2_rows"), 0)
    b.rollback()
    a.commit()
    equal(value(b, "SELECT count(*) FROM p2_rows"), 1)
    raises(errors.UniqueViolation, a, "INSERT INTO p2_rows VALUES (2); INSERT INTO p2_rows VALUES (1)")
    equal(value(b, "SELECT count(*) FROM p2_rows"), 1)
    b.commit()
    a.set_session(isolation_level="SERIALIZABLE", readonly=True)
    raises(errors.ReadOnlySqlTransaction, a, "INSERT INTO p2_rows VALUES (3)")
    a.set_session(isolation_level="DEFAULT", readonly=False)
    all_of(a, "DROP TABLE p2_rows")
    a.commit()


@check
def settings_of_the_session_stay_with_it():
    a, b = connect(), connect()
    for one in (a, b):
        one.autocommit = True
    a.set_client_encoding("LATIN1")
    all_of(a, "SET work_mem = '3MB'; SET TIME ZONE 'UTC'")
    for _ in range(10):
        equal((value(a, "SELECT %s::text", ("é",)), value(b, "SELECT %s::text", ("€",))), ("é", "€"))
        equal((value(a, "SHOW work_mem"), value(a, "SHOW client_encoding")), ("3MB", "LATIN1"))
        equal(value(b, "SHOW client_encoding"), "UTF8")
        assert value(b, "SHOW work_mem") != "3MB"
    a.reset()
    assert value(a, "SHOW work_mem") != "3MB"
    a.rollback()
    a.set_session(readonly=True, autocommit=True)
    for _ in range(3):
        equal((value(a, "SHOW transaction_read_only"), value(b, "SHOW transaction_read_only")), ("on", "off"))


@check
def copies_go_both_ways():
    c = connect()
    with c.cursor() as cursor:
        cursor.execute("CREATE TEMP TABLE p2_copied (x int, y text)")
        cursor.copy_from(io.StringIO("".join(f"{n}\ty{n}\n" for n in range(10000))), "p2_copied")
        out = io.StringIO()
        cursor.copy_expert("COPY (SELECT y FROM p2_copied ORDER BY x) TO STDOUT", out)
        equal(out.getvalue(), "".join(f"y{n}\n" for n in range(10000)))
        c.commit()
        try:
            cursor.copy_from(io.StringIO("x\ty\n" * 10000), "p2_copied")
            raise AssertionError("nonsense was copied")
        except psycopg2.DataError:
            c.rollback()
        equal(value(c, "SELECT count(*) FROM p2_copied"), 10000)


@check
def notifications_arrive_while_nothing_is_asked():
    a, b = connect(), connect()
    for one in (a, b):
        one.set_isolation_level(extensions.ISOLATION_LEVEL_AUTOCOMMIT)
    all_of(a, "LISTEN p2_channel")
    for number in range(20):
        all_of(b, "SELECT pg_notify('p2_channel', %s)", (str(number),))

    def come():
        select.select([a], [], [], 0.1)
        a.poll()
        return len(a.notifies) >= 20

    until("all notifications", come)
    equal([n.payload for n in a.notifies], [str(n) for n in range(20)])
    # While a transaction is open, none is told; afterwards they are.
    a.notifies.clear()
    all_of(a, "BEGIN")
    all_of(b, "NOTIFY p2_channel")
    for _ in range(5):
        equal(value(a, "SELECT 1"), 1)
    equal(a.notifies, [])
    all_of(a, "COMMIT")
    until("the notification", lambda: select.select([a], [], [], 0.1) and (a.poll() or a.notifies))


@check
def a_statement_is_cancelled():
    c, watch = connect(), connect()
    watch.autocommit = True
    query = "SELECT pg_sleep(60) AS p2_cancelled"

    def work():
        running = ("SELECT count(*) FROM pg_stat_activity WHERE query = %s AND datname = current_database()"
                   " AND wait_event = 'PgSleep'")
        until("the statement to run", lambda: value(watch, running, (query,)))
        c.cancel()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    raises(errors.QueryCanceled, c, query)
    thread.join()
    equal(value(c, "SELECT 1"), 1)


@check
def two_phases_commit_elsewhere():
    a = connect()
    if value(a, "SHOW max_prepared_transactions") == "0":
        a.rollback()
        raises(psycopg2.Error, a, "PREPARE TRANSACTION 'p2'")
        return
    a.rollback()
    all_of(a, "DROP TABLE IF EXISTS p2_phases")
    all_of(a, "CREATE TABLE p2_phases (x int)")
    a.commit()
    # Such a name is one for the whole server, where this program runs in other databases, too.
    name = "p2 " + DATABASE
    a.tpc_begin(a.xid(1, name, "one"))
    all_of(a, "INSERT INTO p2_phases VALUES (1)")
    a.tpc_prepare()
    a.reset()
    b = connect()
    equal(value(b, "SELECT count(*) FROM p2_phases"), 0)
    b.rollback()
    b.tpc_commit([xid for xid in b.tpc_recover() if xid.gtrid == name][0])
    equal(value(b, "SELECT count(*) FROM p2_phases"), 1)
    all_of(b, "DROP TABLE p2_phases")
    b.commit()


@check
def named_cursors_and_large_objects():
    c = connect()
    with c.cursor("p2_cursor") as cursor:
        cursor.itersize = 50
        cursor.execute("SELECT generate_series(1, 1000)")
        equal(sum(row[0] for row in cursor), 500500)
    # By function calls of the protocol.
    blob = c.lobject()
    blob.write(b"x" * 100000)
    blob.seek(0)
    equal(len(blob.read()), 100000)
    blob.unlink()
    c.commit()


@check
def many_clients_share_few_connections():
    def work(number):
        c = connect()
        all_of(c, "SELECT set_config('cove.who', %s, false)", (str(number),))
        c.commit()
        for _ in range(50):
            equal(value(c, "SELECT current_setting('cove.who')"), str(number))
            c.commit()
        c.close()

    at_once(CLIENTS, work)


if __name__ == "__main__":
    main()
