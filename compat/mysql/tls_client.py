"""PyMySQL over TLS: every way to ask for it, and not to."""

import os
import ssl

import pymysql

from mysql_checks import DATABASE, HOST, PASSWORD, PORT, USER, at_once, check, equal, main

ROOT = os.environ["ROOT"]


def connect(host=HOST, **more):
    return pymysql.connect(
        host=host, port=PORT, user=USER, password=PASSWORD, database=DATABASE, connect_timeout=20, **more
    )


def value(connection, sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


@check
def a_certificate_that_is_trusted():
    with connect("localhost", ssl_ca=ROOT, ssl_verify_cert=True, ssl_verify_identity=True) as c:
        assert isinstance(c._sock, ssl.SSLSocket)
        equal(value(c, "SELECT 6 * 7"), 42)
        equal(len(value(c, "SELECT REPEAT('x', 3000000)")), 3_000_000)


@check
def a_certificate_that_nobody_looks_at():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with connect(ssl=context) as c:
        assert isinstance(c._sock, ssl.SSLSocket)
        equal(value(c, "SELECT 1"), 1)


@check
def a_certificate_that_is_not_trusted():
    try:
        connect("localhost", ssl=ssl.create_default_context())
    except (pymysql.err.OperationalError, ssl.SSLError) as error:
        assert "certificate" in str(error).lower(), error
        return
    raise AssertionError("it was trusted")


@check
def without_encryption():
    with connect(ssl_disabled=True) as c:
        assert not isinstance(c._sock, ssl.SSLSocket)
        equal(value(c, "SELECT 1"), 1)


@check
def many_at_once():
    def work(number):
        with connect("localhost", ssl_ca=ROOT) as c:
            for turn in range(20):
                equal(value(c, f"SELECT {number} * {turn}"), number * turn)

    at_once(8, work)


if __name__ == "__main__":
    main()
