"""Asks both databases over five connections each, at the same time; prints how many answers were
right."""

from concurrent.futures import ThreadPoolExecutor

import psycopg2
import pymysql

ROUNDS = 20


def ask(number):
    connect = (lambda: psycopg2.connect("")) if number % 2 else pymysql.connect
    right = 0
    with connect() as database:
        for round in range(ROUNDS):
            with database.cursor() as cursor:
                cursor.execute("SELECT %s + %s", (number, round))
                right += cursor.fetchone() == (number + round,)
            database.commit()
    return right


with ThreadPoolExecutor(10) as pool:
    print(sum(pool.map(ask, range(10))))
