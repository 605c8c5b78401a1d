"""libpq of PostgreSQL 18, by way of psycopg: encryption and versions of the protocol.

Needs what the other programs need, and ROOT, a certificate that is to be trusted.
"""

import os
import threading

import psycopg

from checks import DATABASE, HOST, PASSWORD, PORT, USER, check, equal, main, until

ROOT = os.environ["ROOT"]


def connect(**more):
    more = {"host": HOST, "sslrootcert": ROOT, **more}
    return psycopg.connect(
        port=PORT, user=USER, password=PASSWORD, dbname=DATABASE, autocommit=True, connect_timeout=20, **more
    )


def fails(text, **more):
    try:
        connect(**more).close()
    except psycopg.OperationalError as error:
        assert text in str(error), error
        return
    raise AssertionError(f"it connected with {more}")


@check
def encryption_is_negotiated_in_every_way():
    for mode in ("require", "verify-ca", "verify-full", "prefer"):
        with connect(sslmode=mode) as c:
            equal((c.execute("SELECT 1").fetchone(), c.pgconn.ssl_in_use), ((1,), True), mode)
    with connect(sslmode="verify-full", host="localhost", hostaddr=HOST) as c:
        equal(c.pgconn.ssl_in_use, True)
    with connect(sslmode="disable") as c:
        equal(c.pgconn.ssl_in_use, False)
    fails("", sslmode="verify-full", host="elsewhere.example", hostaddr=HOST)
    fails("", sslmode="verify-ca", sslrootcert="system")


@check
def encryption_may_be_spoken_at_once():
    with connect(sslmode="verify-full", sslnegotiation="direct") as c:
        equal((c.execute("SELECT 1").fetchone(), c.pgconn.ssl_in_use), ((1,), True))


@check
def the_certificate_is_part_of_the_proof():
    for sslnegotiation in ("postgres", "direct"):
        with connect(sslmode="verify-full", channel_binding="require", sslnegotiation=sslnegotiation) as c:
            equal(c.execute("SELECT 1").fetchone(), (1,))


@check
def versions_of_the_protocol_are_negotiated():
    for minor, more in [("3.0", {}), ("3.2", {}), ("latest", {}), ("3.2", {"sslmode": "disable"})]:
        more = {"sslmode": "verify-full", "max_protocol_version": minor, **more}
        if minor != "3.0":
            more["min_protocol_version"] = "3.2"
        with connect(**more) as c:
            equal(c.execute("SELECT 1").fetchone(), (1,))
            expected = 30000 if minor == "3.0" else 30002
            equal(c.pgconn.full_protocol_version, expected)


@check
def cancelling_is_encrypted_too():
    newer = {"min_protocol_version": "3.2", "max_protocol_version": "3.2"}
    for more in ({}, newer, {"sslnegotiation": "direct"}):
        with connect(sslmode="verify-full", **more) as c, connect() as watch:
            query = f"SELECT pg_sleep(60) AS tls_cancelled_{len(more)}"

            def cancel():
                running = ("SELECT count(*) FROM pg_stat_activity WHERE query = %s AND datname = current_database()"
                           " AND wait_event = 'PgSleep'")
                until("the statement to run", lambda: watch.execute(running, (query,)).fetchone()[0])
                c.cancel_safe(timeout=20)

            thread = threading.Thread(target=cancel, daemon=True)
            thread.start()
            try:
                c.execute(query)
                raise AssertionError("it was not cancelled")
            except psycopg.errors.QueryCanceled:
                pass
            thread.join()
            equal(c.execute("SELECT 1").fetchone(), (1,))


if __name__ == "__main__":
    main()
