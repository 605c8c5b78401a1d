"""PyMySQL: sessions, transactions, procedures, large values, settings, files, errors."""

import contextlib
import os
import tempfile

import pymysql
from pymysql import cursors

from mysql_checks import CLIENTS, DATABASE, HOST, PASSWORD, PORT, USER, at_once, check, equal, main, raises, until

ERRORS = pymysql.err


def connect(**more):
    more = {"autocommit": True, "connect_timeout": 20, "read_timeout": 60, "charset": "utf8mb4", **more}
    return pymysql.connect(host=HOST, port=PORT, user=USER, password=PASSWORD, database=DATABASE, **more)


def rows(connection, sql, parameters=None):
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall()


def value(connection, sql, parameters=None):
    return rows(connection, sql, parameters)[0][0]


def run(connection, sql, parameters=None):
    with connection.cursor() as cursor:
        return cursor.execute(sql, parameters)


def results(cursor):
    """All results of what was run."""
    seen = [tuple(cursor.fetchall())]
    while cursor.nextset():
        seen.append(tuple(cursor.fetchall()))
    return seen


@contextlib.contextmanager
def table(connection, name, columns):
    run(connection, f"DROP TABLE IF EXISTS {name}")
    run(connection, f"CREATE TABLE {name} ({columns}) ENGINE=InnoDB")
    try:
        yield name
    finally:
        run(connection, f"DROP TABLE {name}")


@check
def values_come_back_as_they_went():
    with connect() as c, table(c, "py_values", "i BIGINT, t LONGTEXT, b LONGBLOB, d DOUBLE") as name:
        sent = [
            (7, "é€😀' \\ \"", b"\x00\xff'\\", 1.5), (-1, "", b"", -0.25), (None, None, None, None),
            (2**62, "x" * 70_000, bytes(range(256)) * 300, 1e300), (0, "\x00", b"\x00", 0.0),
        ]
        for row in sent:
            run(c, f"INSERT INTO {name} VALUES (%s, %s, %s, %s)", row)
        equal(sorted(rows(c, f"SELECT * FROM {name}"), key=str), sorted(sent, key=str))


@check
def many_point_selects_by_many_clients():
    with connect() as c, table(c, "py_points", "id INT PRIMARY KEY, v VARCHAR(40)") as name:
        with c.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {name} VALUES (%s, %s)", [(n, f"v{n}") for n in range(500)])

        def work(number):
            with connect() as mine:
                for turn in range(50):
                    key = (number * 31 + turn * 7) % 500
                    equal(value(mine, f"SELECT v FROM {name} WHERE id = %s", (key,)), f"v{key}")

        at_once(CLIENTS, work)


@check
def transactions_and_savepoints_and_errors_in_them():
    with connect() as c, connect() as other, table(c, "py_rows", "x INT PRIMARY KEY") as name:
        c.begin()
        run(c, f"INSERT INTO {name} VALUES (1)")
        run(c, "SAVEPOINT s")
        run(c, f"INSERT INTO {name} VALUES (2)")
        run(c, "ROLLBACK TO SAVEPOINT s")
        # An error does not end a transaction.
        raises(1062, ERRORS.IntegrityError, lambda: run(c, f"INSERT INTO {name} VALUES (1)"))
        raises(1054, ERRORS.OperationalError, lambda: run(c, "SELECT nothing"))
        raises(1064, ERRORS.ProgrammingError, lambda: run(c, "SELEC 1"))
        run(c, f"INSERT INTO {name} VALUES (3)")
        equal(value(other, f"SELECT COUNT(*) FROM {name}"), 0)
        c.commit()
        equal(rows(other, f"SELECT x FROM {name} ORDER BY x"), ((1,), (3,)))
        c.begin()
        run(c, f"DELETE FROM {name}")
        raises(1146, ERRORS.ProgrammingError, lambda: run(c, "SELECT * FROM py_nowhere"))
        equal(value(c, f"SELECT COUNT(*) FROM {name}"), 0)
        c.rollback()
        equal(value(c, f"SELECT COUNT(*) FROM {name}"), 2)


@check
def transactions_without_autocommit():
    with connect(autocommit=False) as c, connect() as other, table(other, "py_auto", "x INT") as name:
        run(c, f"INSERT INTO {name} VALUES (1)")
        equal(value(c, f"SELECT COUNT(*) FROM {name}"), 1)
        equal(value(other, f"SELECT COUNT(*) FROM {name}"), 0)
        c.rollback()
        equal(value(c, f"SELECT COUNT(*) FROM {name}"), 0)
        run(c, f"INSERT INTO {name} VALUES (2)")
        c.commit()
        equal(value(other, f"SELECT COUNT(*) FROM {name}"), 1)
        c.commit()
        equal(value(c, "SELECT @@autocommit"), 0)
        c.autocommit(True)
        run(c, f"INSERT INTO {name} VALUES (3)")
        equal(value(other, f"SELECT COUNT(*) FROM {name}"), 2)
        c.autocommit(False)
        run(c, f"DELETE FROM {name}")
        c.rollback()
        equal(value(other, f"SELECT COUNT(*) FROM {name}"), 2)
    # Whoever leaves takes nothing along.
    with connect() as c, table(c, "py_left", "x INT") as name:
        with connect(autocommit=False) as leaving:
            run(leaving, f"INSERT INTO {name} VALUES (1)")
        equal(value(c, f"SELECT COUNT(*) FROM {name}"), 0)


@check
def numbers_that_the_server_gives_are_the_client_s():
    with connect() as c, table(c, "py_ids", "id INT AUTO_INCREMENT PRIMARY KEY, who INT") as name:

        def work(number):
            with connect() as mine:
                for turn in range(20):
                    with mine.cursor() as cursor:
                        cursor.execute(f"INSERT INTO {name} (who) VALUES (%s)", (number,))
                        given = cursor.lastrowid
                    equal(value(mine, "SELECT LAST_INSERT_ID()"), given)
                    equal(value(mine, f"SELECT who FROM {name} WHERE id = LAST_INSERT_ID()"), number)
                    if turn % 4 == 0:
                        equal(value(mine, "SELECT 7"), 7)
                        equal(value(mine, "SELECT LAST_INSERT_ID()"), given)

        at_once(CLIENTS, work)


@check
def counts_of_rows_are_those_of_the_last_statement():
    with connect() as c, table(c, "py_counts", "x INT") as name:
        equal(run(c, f"INSERT INTO {name} VALUES (1), (2), (3)"), 3)
        equal(value(c, "SELECT ROW_COUNT()"), 3)
        equal(run(c, f"UPDATE {name} SET x = x + 1 WHERE x > 1"), 2)
        equal(value(c, "SELECT ROW_COUNT()"), 2)
        equal(len(rows(c, f"SELECT SQL_CALC_FOUND_ROWS x FROM {name} LIMIT 1")), 1)
        equal(value(c, "SELECT FOUND_ROWS()"), 3)


@check
def warnings_are_those_of_the_last_statement():
    with connect() as c, connect() as d, table(c, "py_warned", "x TINYINT") as name:
        for one in (c, d):
            run(one, "SET SESSION sql_mode = ''")
        for turn in range(5):
            run(c, f"INSERT INTO {name} VALUES (1000)")
            run(d, f"DROP TABLE IF EXISTS py_no_such_{turn}")
            equal([row[1] for row in rows(c, "SHOW WARNINGS")], [1264])
            equal([(row[1], f"py_no_such_{turn}" in row[2]) for row in rows(d, "SHOW WARNINGS")], [(1051, True)])
            run(c, f"INSERT INTO {name} VALUES (1000), (2000)")
            equal(value(c, "SELECT @@warning_count"), 2)
            equal(value(d, "SHOW COUNT(*) WARNINGS"), 1)
            run(c, f"INSERT INTO {name} VALUES (1)")
            equal(rows(c, "SHOW WARNINGS"), ())
        raises(1146, ERRORS.ProgrammingError, lambda: run(c, "SELECT * FROM py_nowhere"))
        equal([row[:2] for row in rows(c, "SHOW ERRORS")], [("Error", 1146)])


@check
def procedures_give_several_results():
    with connect() as c:
        run(c, "DROP PROCEDURE IF EXISTS py_several")
        run(c, "CREATE PROCEDURE py_several(n INT, OUT total INT) BEGIN SELECT n AS a; SELECT n + 1, 'é' WHERE n > 100;"
               " SELECT n * 2 AS b, '' AS empty; SET total = n * 3; END")
        with connect() as other:
            for one in (c, other):
                for n in range(5):
                    with one.cursor() as cursor:
                        arguments = cursor.callproc("py_several", (n, 0))
                        seen = results(cursor)
                    equal(seen, [((n,),), (), ((n * 2, ""),), ()])
                    equal(arguments[0], n)
                    equal(value(one, "SELECT @_py_several_1"), n * 3)
        run(c, "DROP PROCEDURE py_several")


@check
def several_statements_in_one_text():
    with connect(client_flag=pymysql.constants.CLIENT.MULTI_STATEMENTS) as c:
        with c.cursor() as cursor:
            cursor.execute("SELECT 1; SELECT 'a', '' UNION SELECT '', 'b'; DO 3; SELECT 4")
            seen = results(cursor)
        equal(seen, [((1,),), (("a", ""), ("", "b")), (), ((4,),)])

        def fails_in_the_middle():
            with c.cursor() as cursor:
                cursor.execute("SELECT 1; SELECT nothing; SELECT 3")
                while cursor.nextset():
                    pass

        raises(1054, ERRORS.OperationalError, fails_in_the_middle)
        equal(value(c, "SELECT 5"), 5)


@check
def large_values_and_many_rows():
    with connect() as c:
        for size in (1, 255, 65_536, (1 << 24) - 5, (1 << 24) + 3):
            equal(value(c, "SELECT LENGTH(%s)", ("x" * size,)), size)
            equal(len(value(c, f"SELECT REPEAT('y', {size})")), size)
        equal(len(rows(c, "SELECT seq, REPEAT('z', 100) FROM seq_1_to_20000")), 20_000)
        with c.cursor(cursors.SSCursor) as cursor:
            cursor.execute("SELECT seq FROM seq_1_to_5000")
            equal(sum(row[0] for row in cursor), 5000 * 5001 // 2)
        # Whoever stops reading in the middle reads the rest before the next one.
        with c.cursor(cursors.SSCursor) as cursor:
            cursor.execute("SELECT seq FROM seq_1_to_5000")
            equal(cursor.fetchone(), (1,))
        equal(value(c, "SELECT 1"), 1)


@check
def settings_are_the_session_s():
    with connect() as c, connect() as d:
        for number, one in enumerate((c, d)):
            run(one, f"SET SESSION sort_buffer_size = {(number + 1) * 1048576}")
            run(one, f"SET time_zone = '+0{number + 1}:00', lock_wait_timeout = {1000 + number}")
            run(one, f"SET @@session.max_statement_time = {100 + number}")
            run(one, "SET sql_mode = %s", (("ANSI_QUOTES", "NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES")[number],))
            run(one, f"SET @mine = 'it''s {number}', @other := {number}")
        for _ in range(10):
            for number, one in enumerate((c, d)):
                row = rows(one, "SELECT @@sort_buffer_size, @@time_zone, @@lock_wait_timeout, @@max_statement_time,"
                                " @@sql_mode, @mine, @other")[0]
                mode = ("ANSI_QUOTES", "NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES")[number]
                equal(sorted(row[4].split(",")), sorted(mode.split(",")))
                equal(row[:4] + row[5:], ((number + 1) * 1048576, f"+0{number + 1}:00", 1000 + number, 100 + number,
                                          f"it's {number}", number))
        run(c, "SET time_zone = DEFAULT, sql_mode = DEFAULT")
        with connect() as fresh:
            equal(rows(c, "SELECT @@time_zone, @@sql_mode"), rows(fresh, "SELECT @@time_zone, @@sql_mode"))
            equal(value(fresh, "SELECT @mine"), None)


@check
def character_sets_are_the_session_s():
    with connect(charset="latin1") as c, connect(charset="utf8mb4", collation="utf8mb4_bin") as d:
        for _ in range(5):
            equal(value(c, "SELECT %s", ("é",)), "é")
            equal(value(d, "SELECT %s", ("é€😀",)), "é€😀")
            equal(value(c, "SELECT HEX('é')"), "E9")
            equal(value(d, "SELECT HEX('é')"), "C3A9")
            equal(value(d, "SELECT @@collation_connection"), "utf8mb4_bin")
            equal(value(c, "SELECT @@character_set_client"), "latin1")
        c.set_character_set("utf8mb4")
        equal(value(c, "SELECT HEX('é')"), "C3A9")


@check
def databases_are_the_session_s():
    with connect() as c, connect() as d:
        run(c, "CREATE TABLE IF NOT EXISTS py_here AS SELECT 1 AS x")
        d.select_db("information_schema")
        for _ in range(5):
            equal(value(c, "SELECT DATABASE()"), DATABASE)
            equal(value(d, "SELECT DATABASE()"), "information_schema")
            equal(value(c, "SELECT x FROM py_here"), 1)
            raises(1109, ERRORS.OperationalError, lambda: run(d, "SELECT x FROM py_here"))
        run(d, f"USE {DATABASE}")
        equal(value(d, "SELECT x FROM py_here"), 1)
        raises(1049, ERRORS.OperationalError, lambda: d.select_db("py_no_such_database"))
        equal(value(d, "SELECT DATABASE()"), DATABASE)
        run(c, "DROP TABLE py_here")


@check
def temporary_tables_and_locks_are_the_session_s():
    # Such a name is one for the whole server, where this program runs in other databases, too.
    lock = f"py_lock {DATABASE}"
    with connect() as c, connect() as d:
        for number, one in enumerate((c, d)):
            run(one, f"CREATE TEMPORARY TABLE py_temp AS SELECT {number} AS who")
        for _ in range(5):
            for number, one in enumerate((c, d)):
                equal(value(one, "SELECT who FROM py_temp"), number)
        run(c, "DROP TEMPORARY TABLE py_temp")
        raises(1146, ERRORS.ProgrammingError, lambda: run(c, "SELECT * FROM py_temp"))
        equal(value(d, "SELECT who FROM py_temp"), 1)
        equal(value(c, f"SELECT GET_LOCK('{lock}', 0)"), 1)
        equal(value(d, f"SELECT GET_LOCK('{lock}', 0)"), 0)
        equal(value(c, f"SELECT RELEASE_LOCK('{lock}')"), 1)
        equal(value(d, f"SELECT GET_LOCK('{lock}', 0)"), 1)
    with connect() as c:
        equal(value(c, f"SELECT GET_LOCK('{lock}', 10)"), 1)
        raises(1146, ERRORS.ProgrammingError, lambda: run(c, "SELECT * FROM py_temp"))


@check
def a_statement_is_killed_and_only_that():
    with connect() as c, connect() as other:
        equal(c.thread_id(), value(c, "SELECT CONNECTION_ID()"))
        assert c.thread_id() != other.thread_id()

        def work(number):
            if number == 0:
                # MariaDB says 1317 or that the function was interrupted, by its value.
                try:
                    equal(value(c, "SELECT SLEEP(60)"), 1)
                except ERRORS.OperationalError as error:
                    equal(error.args[0], 1317)
            else:
                with connect() as watch:
                    # Until it has begun there is nothing to kill.
                    running = ("SELECT COUNT(*) FROM information_schema.processlist WHERE info ="
                               " 'SELECT SLEEP(60)' AND db = DATABASE() AND state = 'User sleep'")
                    until("the statement to run", lambda: value(watch, running))
                    run(watch, f"KILL QUERY {c.thread_id()}")

        at_once(2, work)
        equal(value(c, "SELECT 1"), 1)
        equal(value(other, "SELECT 2"), 2)
        raises(1094, ERRORS.OperationalError, lambda: run(c, "KILL QUERY 4294967290"))


@check
def files_of_the_client_are_its_own():
    """Whether the server may ask for one is the operator's to say: it gets it, or says that it may not."""
    with connect(local_infile=True) as c, table(c, "py_infile", "x INT, y TEXT") as name:
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
            file.write("".join(f"{n}\tline {n}\n" for n in range(3000)))
            file.flush()
            load = f"LOAD DATA LOCAL INFILE '{file.name}' INTO TABLE {name}"
            if os.environ.get("LOCAL_INFILE") == "1":
                equal(run(c, load), 3000)
                equal(value(c, f"SELECT COUNT(*) FROM {name}"), 3000)
            else:
                error = raises_any(lambda: run(c, load))
                assert error.args[0] in (1148, 4166, 3948), error
                equal(value(c, f"SELECT COUNT(*) FROM {name}"), 0)


def raises_any(action):
    try:
        action()
    except ERRORS.MySQLError as error:
        return error
    raise AssertionError("no error")


@check
def pings_and_lost_connections():
    with connect() as c:
        for _ in range(3):
            c.ping(reconnect=False)
        equal(value(c, "SELECT 1"), 1)
    c = connect()
    with connect() as other:
        run(other, f"KILL {c.thread_id()}")
        error = raises_any(lambda: run(c, "SELECT 1"))
        assert error.args[0] in (2006, 2013, 1927, 1317, 1053), error


@check
def prepared_statements_of_sql_are_the_client_s():
    with connect() as c, connect() as d:
        run(c, "PREPARE mine FROM 'SELECT ? * 2'")
        run(d, "PREPARE mine FROM 'SELECT ? * 3'")
        for number in range(5):
            for factor, one in ((2, c), (3, d)):
                run(one, f"SET @n = {number}")
                equal(value(one, "EXECUTE mine USING @n"), number * factor)
        run(c, "DEALLOCATE PREPARE mine")
        raises(1243, ERRORS.OperationalError, lambda: run(c, "EXECUTE mine USING @n"))
        equal(value(d, "EXECUTE mine USING @n"), 12)


@check
def reads_and_writes_by_many_clients():
    with connect() as c, table(c, "py_accounts", "id INT PRIMARY KEY, money INT") as name:
        run(c, f"INSERT INTO {name} SELECT seq, 100 FROM seq_1_to_40")

        def work(number):
            with connect() as mine:
                for turn in range(15):
                    a, b = sorted(((number * 7 + turn) % 40 + 1, (number * 3 + turn * 5) % 40 + 1))
                    mine.begin()
                    try:
                        run(mine, f"UPDATE {name} SET money = money - 1 WHERE id = %s", (a,))
                        run(mine, f"UPDATE {name} SET money = money + 1 WHERE id = %s", (b,))
                        mine.commit()
                    except ERRORS.OperationalError as error:
                        assert error.args[0] in (1213, 1205, 1020), error
                        mine.rollback()

        at_once(CLIENTS, work)
        equal(int(value(c, f"SELECT SUM(money) FROM {name}")), 4000)


if __name__ == "__main__":
    main()
