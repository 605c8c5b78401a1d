"""psycopg 3: sessions, transactions, prepared statements, COPY, pipelines, notifications."""

import threading

import psycopg
from psycopg import errors, sql

from checks import CLIENTS, PASSWORD, USER, DATABASE, HOST, PORT, at_once, check, equal, main, until


def connect(**more):
    more = {"autocommit": True, **more}
    return psycopg.connect(
        host=HOST, port=PORT, user=USER, password=PASSWORD, dbname=DATABASE, connect_timeout=20, **more
    )


def value(connection, query, parameters=None, **more):
    return connection.execute(query, parameters, **more).fetchone()[0]


def raises(kind, action):
    try:
        action()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


@check
def values_come_back_as_they_went():
    with connect() as c:
        for kind, sent in [
            ("int", 7), ("text", "é€😀' \\ \""), ("bytea", b"\x00\xff'\\"), ("float8", 1.5), ("int[]", [1, 2, None]),
            ("bool", True), ("text", ""), ("text", None), ("numeric", 10**30),
        ]:
            for binary in (False, True):
                seen = c.execute(f"SELECT %s::{kind}", (sent,), binary=binary).fetchone()[0]
                equal(seen, sent, kind)


@check
def statements_are_prepared_and_used_in_many_transactions():
    with connect(prepare_threshold=0) as c:
        for number in range(200):
            equal(value(c, "SELECT %s::int + %s::int", (number, 1), prepare=True), number + 1)
            equal(value(c, f"SELECT {number % 20}, %s::text", ("x",), prepare=True), number % 20)
        with c.transaction():
            for number in range(20):
                equal(value(c, "SELECT %s::int + %s::int", (number, 1), prepare=True), number + 1)


@check
def many_statements_are_more_than_a_connection_keeps():
    with connect(prepare_threshold=0) as c, connect(prepare_threshold=0) as d:
        c.prepared_max = d.prepared_max = 1000
        for again in range(2):
            for number in range(300):
                for one in (c, d):
                    equal(value(one, f"SELECT %s::int + {number}", (again,)), again + number)


@check
def a_statement_lives_through_changes_of_its_table():
    with connect(prepare_threshold=0) as c, connect(prepare_threshold=0) as other:
        c.execute("DROP TABLE IF EXISTS p3_changed")
        c.execute("CREATE TABLE p3_changed (a int)")
        c.execute("INSERT INTO p3_changed VALUES (1)")
        for one in (c, other):
            equal(one.execute("SELECT * FROM p3_changed", prepare=True).fetchall(), [(1,)])
        c.execute("ALTER TABLE p3_changed ADD b int DEFAULT 2")
        # Whoever prepares it from now on knows nothing of what it was, in a transaction or out of it.
        with connect(prepare_threshold=0) as late:
            with late.transaction():
                equal(late.execute("SELECT * FROM p3_changed", prepare=True).fetchall(), [(1, 2)])
        with connect(prepare_threshold=0) as late:
            equal(late.execute("SELECT * FROM p3_changed", prepare=True).fetchall(), [(1, 2)])
        # The others may be told, once, what PostgreSQL tells.
        for one in (c, other):
            try:
                rows = one.execute("SELECT * FROM p3_changed", prepare=True).fetchall()
            except errors.FeatureNotSupported as error:
                assert "cached plan must not change result type" in str(error), error
                one.execute("DEALLOCATE ALL")
                rows = one.execute("SELECT * FROM p3_changed").fetchall()
            equal(rows, [(1, 2)])
        c.execute("DROP TABLE p3_changed")


@check
def the_same_text_means_what_the_search_path_says():
    with connect(prepare_threshold=0) as c, connect(prepare_threshold=0) as d:
        for name, one in (("p3_one", c), ("p3_two", d)):
            one.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
            one.execute(f"CREATE SCHEMA {name}")
            one.execute(f"CREATE TABLE {name}.t AS SELECT '{name}' AS whose")
            one.execute(f"SET search_path = {name}")
        for _ in range(20):
            equal(value(c, "SELECT whose FROM t", prepare=True), "p3_one")
            equal(value(d, "SELECT whose FROM t", prepare=True), "p3_two")
        c.execute("SET search_path = p3_two")
        for one in (c, d):
            equal(value(one, "SELECT whose FROM t", prepare=True), "p3_two")
        c.execute("DROP SCHEMA p3_one, p3_two CASCADE")


@check
def statements_of_sql_are_the_client_s():
    with connect() as c, connect() as d:
        c.execute("PREPARE mine (int) AS SELECT $1 * 2")
        d.execute("PREPARE mine (int) AS SELECT $1 * 3")
        for number in range(10):
            equal(value(c, f"EXECUTE mine({number})"), number * 2)
            equal(value(d, f"EXECUTE mine({number})"), number * 3)
        c.execute("DEALLOCATE mine")
        raises(errors.InvalidSqlStatementName, lambda: c.execute("EXECUTE mine(1)"))
        equal(value(d, "EXECUTE mine(2)"), 6)
        d.execute("DEALLOCATE ALL")
        raises(errors.InvalidSqlStatementName, lambda: d.execute("EXECUTE mine(1)"))


@check
def transactions_and_savepoints_and_errors_in_them():
    with connect() as c:
        c.execute("DROP TABLE IF EXISTS p3_rows")
        c.execute("CREATE TABLE p3_rows (x int PRIMARY KEY)")
        with c.transaction():
            c.execute("INSERT INTO p3_rows VALUES (1)")
            raises(errors.UniqueViolation, lambda: insert_in_savepoint(c, 1))
            insert_in_savepoint(c, 2)
        equal(c.execute("SELECT x FROM p3_rows ORDER BY x").fetchall(), [(1,), (2,)])
        c.execute("BEGIN")
        raises(errors.UndefinedColumn, lambda: c.execute("SELECT nothing"))
        raises(errors.InFailedSqlTransaction, lambda: c.execute("SELECT 1"))
        c.execute("ROLLBACK")
        equal(value(c, "SELECT count(*) FROM p3_rows"), 2)
        with connect() as other:
            with c.transaction():
                c.execute("INSERT INTO p3_rows VALUES (3)")
                equal(value(other, "SELECT count(*) FROM p3_rows"), 2)
            equal(value(other, "SELECT count(*) FROM p3_rows"), 3)
        c.execute("BEGIN")
        c.execute("INSERT INTO p3_rows VALUES (4)")
        c.execute("COMMIT AND CHAIN")
        c.execute("INSERT INTO p3_rows VALUES (5)")
        c.execute("ROLLBACK")
        equal(value(c, "SELECT max(x) FROM p3_rows"), 4)
        c.execute("DROP TABLE p3_rows")


def insert_in_savepoint(c, number):
    with c.transaction():
        c.execute("INSERT INTO p3_rows VALUES (%s)", (number,))


@check
def copies_go_both_ways_and_fail_well():
    with connect() as c:
        c.execute("CREATE TEMP TABLE p3_copied (x int, y text)")
        with c.cursor() as cursor:
            with cursor.copy("COPY p3_copied FROM STDIN") as copy:
                for number in range(20000):
                    copy.write_row((number, "y" * (number % 50)))
            equal(cursor.rowcount, 20000)
            with cursor.copy("COPY p3_copied TO STDOUT (FORMAT BINARY)") as copy:
                equal(sum(len(block) for block in copy) > 20000 * 10, True)
            with cursor.copy("COPY (SELECT x FROM p3_copied ORDER BY x) TO STDOUT") as copy:
                equal([int(row[0]) for row in copy.rows()], list(range(20000)))

        def nonsense():
            with c.cursor() as cursor, cursor.copy("COPY p3_copied FROM STDIN") as copy:
                for _ in range(5000):
                    copy.write("nonsense\n")

        raises(psycopg.DataError, nonsense)

        def given_up():
            with c.cursor() as cursor, cursor.copy("COPY p3_copied FROM STDIN") as copy:
                copy.write("1\ta\n")
                raise ZeroDivisionError

        raises(ZeroDivisionError, given_up)
        equal(value(c, "SELECT count(*) FROM p3_copied"), 20000)
        # Leaving in the middle of a COPY OUT cancels it.
        with c.cursor() as cursor:
            try:
                with cursor.copy("COPY (SELECT generate_series(1, 3000000)) TO STDOUT") as copy:
                    next(iter(copy))
                    raise ZeroDivisionError
            except ZeroDivisionError:
                pass
        equal(value(c, "SELECT 1"), 1)


@check
def a_statement_is_cancelled_and_only_that():
    with connect() as c, connect() as other, connect() as watch:
        for number in range(5):
            query = f"SELECT pg_sleep(60) AS p3_cancelled_{number}"
            canceller = cancel_when_seen(watch, c, query)
            raises(errors.QueryCanceled, lambda: c.execute(query))
            canceller.join()
            equal(value(c, "SELECT 1"), 1)
            equal(value(other, "SELECT 2"), 2)
        with c.transaction(force_rollback=True):
            c.execute("CREATE TABLE p3_never ()")
            query = "SELECT pg_sleep(60) AS p3_cancelled_nested"
            canceller = cancel_when_seen(watch, c, query)

            def nested():
                with c.transaction():
                    c.execute(query)

            raises(errors.QueryCanceled, nested)
            canceller.join()
            equal(value(c, "SELECT count(*) FROM p3_never"), 0)


def cancel_when_seen(watch, connection, query):
    """Cancels what a connection does, once the server does it."""

    def work():
        running = ("SELECT count(*) FROM pg_stat_activity WHERE query = %s AND datname = current_database()"
                   " AND wait_event = 'PgSleep'")
        until("the statement to run", lambda: value(watch, running, (query,)))
        connection.cancel_safe(timeout=20)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@check
def notifications_come_when_they_are_committed():
    with connect() as listener, connect() as other:
        listener.execute("LISTEN p3_channel")
        listener.execute('LISTEN "P3 odd"')
        with other.transaction():
            other.execute("NOTIFY p3_channel, 'early'")
            equal(list(listener.notifies(timeout=0.3, stop_after=1)), [])
        with other.transaction(force_rollback=True):
            other.execute("NOTIFY p3_channel, 'never'")
        other.execute("SELECT pg_notify('P3 odd', %s)", ("x" * 7000,))
        equal(take(listener, 2), [("p3_channel", "early"), ("P3 odd", "x" * 7000)])
        # One's own come as well, and in order.
        for number in range(50):
            listener.execute("SELECT pg_notify('p3_channel', %s)", (str(number),))
        equal(take(listener, 50), [("p3_channel", str(number)) for number in range(50)])
        # What is rolled back was never listened to.
        with listener.transaction(force_rollback=True):
            listener.execute("LISTEN p3_undone")
        with listener.transaction():
            listener.execute("LISTEN p3_done")
        listener.execute("UNLISTEN p3_channel")
        for channel in ("p3_channel", "p3_undone", "p3_done"):
            other.execute(sql.SQL("NOTIFY {}, 'end'").format(sql.Identifier(channel)))
        equal(take(listener, 1), [("p3_done", "end")])
        equal(list(listener.notifies(timeout=0.3, stop_after=1)), [])
        equal(set(row[0] for row in listener.execute("SELECT pg_listening_channels()").fetchall()) - {"P3 odd", "p3_done"}, set())
        listener.execute("UNLISTEN *")
        other.execute("NOTIFY p3_done, 'late'")
        equal(list(listener.notifies(timeout=0.3, stop_after=1)), [])


def take(listener, count):
    return [(n.channel, n.payload) for n in listener.notifies(timeout=20, stop_after=count)]


@check
def settings_are_the_session_s():
    with connect() as c, connect() as d:
        for number, one in enumerate((c, d)):
            one.execute(f"SET statement_timeout = {1000001 + number}")
            one.execute(f"SET work_mem = '{1 + number}MB'")
            one.execute("SELECT set_config('cove.mine', %s, false)", (f"it's \\ {number}",))
            one.execute(f"SET TIME ZONE {number + 1}")
            one.execute(f"SET application_name = 'p3 \"{number}\"'")
            one.execute(f"SET DateStyle = '{('ISO, DMY', 'SQL, MDY')[number]}'")
        for _ in range(10):
            for number, one in enumerate((c, d)):
                equal(value(one, "SHOW statement_timeout"), f"{1000001 + number}ms")
                equal(value(one, "SHOW work_mem"), f"{1 + number}MB")
                equal(value(one, "SELECT current_setting('cove.mine')"), f"it's \\ {number}")
                equal(value(one, "SELECT current_setting('TimeZone')"), f"<+0{number + 1}>-0{number + 1}")
                equal(value(one, "SHOW application_name"), f'p3 "{number}"')
                equal(one.info.parameter_status("application_name"), f'p3 "{number}"')
                equal(value(one, "SHOW DateStyle"), ("ISO, DMY", "SQL, MDY")[number])
        # In a transaction that is rolled back, nothing was set; what is local is over with it.
        with c.transaction(force_rollback=True):
            c.execute("SET work_mem = '64MB'")
        with c.transaction():
            c.execute("SET LOCAL statement_timeout = 7")
        equal((value(c, "SHOW work_mem"), value(c, "SHOW statement_timeout")), ("1MB", "1000001ms"))
        with c.transaction():
            with c.transaction(force_rollback=True):
                c.execute("SET work_mem = '32MB'")
            c.execute("SET statement_timeout = 0")
        equal((value(c, "SHOW work_mem"), value(c, "SHOW statement_timeout")), ("1MB", "0"))
        c.execute("RESET work_mem")
        fresh = value(d, "SELECT reset_val FROM pg_settings WHERE name = 'work_mem'")
        equal(value(c, "SELECT setting FROM pg_settings WHERE name = 'work_mem'"), fresh)
        c.execute("RESET ALL")
        with connect() as e:
            for name in ("statement_timeout", "work_mem", "DateStyle", "TimeZone"):
                equal(value(c, f"SHOW {name}"), value(e, f"SHOW {name}"), name)
            equal(value(e, "SELECT current_setting('cove.mine', true)") or "", "")
        equal(value(d, "SHOW work_mem"), "2MB")
        # Options of the connection are settings, too.
        with connect(options="-c work_mem=3MB -c cove.mine=a\\ b") as e:
            for _ in range(3):
                equal((value(e, "SHOW work_mem"), value(e, "SHOW cove.mine")), ("3MB", "a b"))
            e.execute("SET work_mem = '5MB'")
            e.execute("RESET work_mem")
            equal(value(e, "SHOW work_mem"), "3MB")


@check
def settings_within_functions_are_seen():
    with connect() as c, connect() as d:
        c.execute("DO $$ BEGIN PERFORM set_config('cove.hidden', 'c', false); END $$")
        d.execute("DO $$ BEGIN PERFORM set_config('work_mem', '9MB', false); END $$")
        for _ in range(5):
            equal(value(c, "SELECT current_setting('cove.hidden', true)"), "c")
            equal(value(d, "SELECT current_setting('cove.hidden', true)") or "", "")
            equal(value(d, "SHOW work_mem"), "9MB")
            assert value(c, "SHOW work_mem") != "9MB"


@check
def temporary_tables_are_the_session_s():
    with connect() as c, connect() as d:
        for number, one in enumerate((c, d)):
            one.execute("CREATE TEMP TABLE p3_temp (x int)")
            one.execute("INSERT INTO p3_temp VALUES (%s)", (number,))
        for _ in range(5):
            for number, one in enumerate((c, d)):
                equal(one.execute("SELECT x FROM p3_temp").fetchall(), [(number,)])
        for one in (c, d):
            one.execute("DROP TABLE p3_temp")
            raises(errors.UndefinedTable, lambda: one.execute("SELECT * FROM p3_temp"))
        with c.transaction():
            c.execute("CREATE TEMP TABLE p3_short (x int) ON COMMIT DROP")
        raises(errors.UndefinedTable, lambda: c.execute("SELECT * FROM p3_short"))
        c.execute("SELECT 1 AS x INTO TEMP p3_into")
        equal(value(c, "SELECT x FROM p3_into"), 1)
        c.execute("DO $$ BEGIN CREATE TEMP TABLE p3_hidden (x int); END $$")
        for _ in range(3):
            equal(value(c, "SELECT count(*) FROM p3_hidden"), 0)


@check
def advisory_locks_are_the_session_s():
    with connect() as c, connect() as d:
        equal(value(c, "SELECT pg_try_advisory_lock(3, 1)"), True)
        for _ in range(5):
            equal(value(d, "SELECT pg_try_advisory_lock(3, 1)"), False)
            equal(value(c, "SELECT 1"), 1)
        equal(value(c, "SELECT pg_advisory_unlock(3, 1)"), True)
        equal(value(d, "SELECT pg_try_advisory_lock(3, 1)"), True)
        equal(value(c, "SELECT pg_try_advisory_lock(3, 1)"), False)
        d.execute("SELECT pg_advisory_unlock_all()")
        with c.transaction():
            c.execute("SELECT pg_advisory_xact_lock(3, 1)")
            equal(value(d, "SELECT pg_try_advisory_lock(3, 1)"), False)
        equal(value(d, "SELECT pg_try_advisory_lock(3, 1)"), True)
    # Whoever leaves gives up what it had.
    with connect() as c:
        until("the lock to be free", lambda: value(c, "SELECT pg_try_advisory_lock(3, 1)"))


@check
def cursors_are_read_within_and_beyond_transactions():
    with connect() as c, connect() as d:
        with c.transaction(), c.cursor("p3_cursor") as cursor:
            cursor.itersize = 100
            cursor.execute("SELECT generate_series(1, 5000)")
            equal(sum(row[0] for row in cursor), 5000 * 5001 // 2)
        with c.cursor("p3_held", withhold=True) as cursor:
            cursor.execute("SELECT generate_series(1, 10)")
            for number in range(1, 11):
                equal(cursor.fetchone(), (number,))
                equal(value(d, "SELECT 1"), 1)
        raises(errors.InvalidCursorName, lambda: c.execute("FETCH 1 FROM p3_held"))


@check
def pipelines_keep_their_order_and_survive_errors():
    with connect(prepare_threshold=2) as c:
        with c.pipeline():
            cursors = [c.execute("SELECT %s::int", (number,)) for number in range(500)]
        equal([cursor.fetchone()[0] for cursor in cursors], list(range(500)))
        with c.pipeline() as pipeline:
            good = c.execute("SELECT 1")
            bad = c.execute("SELECT 1/%s", (0,))
            skipped = []

            def go_on():
                # PostgreSQL tells the error at once: it may be here before the next statement is.
                skipped.append(c.execute("SELECT 2"))
                pipeline.sync()

            raises(errors.DivisionByZero, go_on)
            if not skipped:
                # What was skipped is told when it has come: at once, or to who waits for an answer.
                def settle():
                    pipeline.sync()
                    c.execute("SELECT 0").fetchone()

                raises(errors.PipelineAborted, settle)
            after = c.execute("SELECT 3")
        equal((good.fetchone()[0], after.fetchone()[0]), (1, 3))
        for one in (bad, *skipped):
            raises(psycopg.Error, one.fetchone)
        with c.pipeline() as pipeline:
            for number in range(50):
                with c.transaction():
                    c.execute("SELECT %s::int", (number,))
                pipeline.sync()
        equal(value(c, "SELECT 1"), 1)


@check
def large_values_go_both_ways():
    with connect() as c:
        text = "0123456789abcdef" * (1 << 19)  # 8 MiB
        equal(value(c, "SELECT length(%s::text)", (text,)), len(text))
        equal(value(c, "SELECT %s::text", (text,)) == text, True)
        equal(value(c, "SELECT %s::bytea", (text.encode(),), binary=True) == text.encode(), True)
        equal(len(c.execute("SELECT repeat('x', 1000) FROM generate_series(1, 20000)").fetchall()), 20000)
        equal(len(value(c, "SELECT repeat('y', 32 << 20)")), 32 << 20)
        # A long text of SQL, which is more than is looked at.
        equal(value(c, "SELECT length('" + "z" * (3 << 20) + "')"), 3 << 20)


@check
def everything_is_discarded_when_it_is_asked_for():
    with connect(prepare_threshold=0) as c:
        c.execute("SET work_mem = '7MB'")
        c.execute("CREATE TEMP TABLE p3_discarded (x int)")
        equal(value(c, "SELECT 1 + %s", (1,), prepare=True), 2)
        c.execute("DISCARD ALL")
        assert value(c, "SHOW work_mem") != "7MB"
        raises(errors.UndefinedTable, lambda: c.execute("SELECT * FROM p3_discarded"))
        # psycopg notes that its statements are gone; what it prepares again must not exist.
        for _ in range(3):
            equal(value(c, "SELECT 1 + %s", (1,), prepare=True), 2)
        c.execute("DEALLOCATE ALL")
        for _ in range(3):
            equal(value(c, "SELECT 1 + %s", (1,), prepare=True), 2)


@check
def roles_do_not_stay():
    with connect() as c, connect() as d:
        mine = value(c, "SELECT current_user")
        c.execute("SET ROLE pg_read_all_data")
        for _ in range(5):
            equal(value(c, "SELECT current_user"), "pg_read_all_data")
            equal(value(d, "SELECT current_user"), mine)
        c.execute("RESET ROLE")
        equal(value(c, "SELECT current_user"), mine)
        c.execute("SET ROLE pg_read_all_data")
    for _ in range(5):
        with connect() as c:
            equal(value(c, "SELECT current_user"), mine)


@check
def sequences_tell_only_one_s_own_values():
    with connect() as c, connect() as d:
        c.execute("DROP SEQUENCE IF EXISTS p3_sequence")
        c.execute("CREATE SEQUENCE p3_sequence")
        equal(c.execute("SELECT nextval('p3_sequence'), currval('p3_sequence')").fetchone(), (1, 1))
        for _ in range(3):
            raises(errors.ObjectNotInPrerequisiteState, lambda: d.execute("SELECT currval('p3_sequence')"))
        c.execute("DROP SEQUENCE p3_sequence")


@check
def what_is_left_behind_is_nobody_s():
    c = connect()
    c.execute("SET work_mem = '11MB'")
    c.execute("SELECT pg_advisory_lock(3, 2)")
    c.execute("PREPARE left_behind AS SELECT 1")
    c.execute("DECLARE left_behind CURSOR WITH HOLD FOR SELECT 1")
    c.execute("LISTEN p3_left")
    c.execute("BEGIN")
    c.execute("CREATE TABLE p3_left_behind ()")
    c.execute("CREATE TEMP TABLE p3_left ()")
    c.pgconn.finish()
    clients = [connect() for _ in range(4)]
    until("the lock to be free", lambda: value(clients[0], "SELECT pg_try_advisory_lock(3, 2)"))
    for d in clients:
        for query, kind in [
            ("SELECT * FROM p3_left_behind", errors.UndefinedTable), ("SELECT * FROM pg_temp.p3_left", psycopg.Error),
            ("EXECUTE left_behind", errors.InvalidSqlStatementName), ("FETCH 1 FROM left_behind", errors.InvalidCursorName),
        ]:
            raises(kind, lambda: d.execute(query))
        assert value(d, "SHOW work_mem") != "11MB"
        equal(d.execute("SELECT pg_listening_channels()").fetchall(), [])
    for d in clients:
        d.close()


@check
def many_clients_share_few_connections():
    with connect() as c:
        c.execute("DROP TABLE IF EXISTS p3_shared")
        c.execute("CREATE TABLE p3_shared (who int, x int)")

    def work(number):
        with connect(prepare_threshold=1) as c:
            c.execute("SELECT set_config('cove.who', %s, false)", (str(number),))
            for turn in range(40):
                with c.transaction():
                    equal(value(c, "SELECT current_setting('cove.who')"), str(number))
                    c.execute("INSERT INTO p3_shared VALUES (%s, %s)", (number, turn))
                    equal(value(c, "SELECT count(*) FROM p3_shared WHERE who = %s", (number,)), turn + 1)
                if turn % 10 == 0:
                    c.execute("CREATE TEMP TABLE p3_of_one AS SELECT %s::int AS who" % number)
                    equal(value(c, "SELECT who FROM p3_of_one"), number)
                    c.execute("DROP TABLE p3_of_one")

    at_once(CLIENTS, work)
    with connect() as c:
        equal(value(c, "SELECT count(*) FROM p3_shared"), CLIENTS * 40)
        c.execute("DROP TABLE p3_shared")


if __name__ == "__main__":
    main()
