"""Looks for a secret wherever a program in a sandbox can look. Its argument is the secret, backwards,
and it is never put together here, so that this program does not find itself."""
import glob
import os
import socket
import sys

import psycopg2
import pymysql

middle = len(sys.argv[1]) // 2
first, second = sys.argv[1][middle:][::-1].encode(), sys.argv[1][:middle][::-1].encode()
found = set()


def look(where, data):
    data = data if isinstance(data, bytes) else str(data).encode()
    at = data.find(first)
    while at >= 0:
        if data.startswith(second, at + len(first)):
            found.add(where)
        at = data.find(first, at + 1)


def ask(connection, statements):
    for statement in statements:
        try:
            cursor = connection.cursor()
            cursor.execute(statement)
            look(statement, cursor.fetchall())
        except Exception as error:
            look(statement, repr(error))
        connection.rollback()


def raw(port, said=b""):
    with socket.create_connection(("127.0.0.1", port)) as stream:
        stream.sendall(said)
        look(f"raw {port}", stream.recv(65536))


ask(psycopg2.connect(""), ["SELECT nothing", "SELECT * FROM pg_authid", "SELECT 1/0", "SHOW ALL"])
ask(
    pymysql.connect(),
    ["SELECT nothing", "SHOW VARIABLES", "SHOW PROCESSLIST", "SELECT * FROM mysql.user"],
)
for user in ("clerk", "postgres", "root"):
    try:
        psycopg2.connect(user=user, password="wrong", host="127.0.0.1", dbname="nothing")
    except Exception as error:
        look(user, repr(error))
raw(5432, b"GET / HTTP/1.0\r\n\r\n")
raw(3306)
look("environment", os.environ)
for process in glob.glob("/proc/[0-9]*"):
    for name in ("environ", "status", "mountinfo", "net/tcp", "net/unix"):
        try:
            look(f"{process}/{name}", open(f"{process}/{name}", "rb").read())
        except OSError:
            pass
for root in ("/etc", "/home", "/tmp", "/workspace", "/dev/shm", "/run", "/var"):
    for base, _, files in os.walk(root):
        for file in files:
            try:
                look(f"{base}/{file}", open(f"{base}/{file}", "rb").read(1 << 20))
            except OSError:
                pass
memory = open("/proc/self/mem", "rb", 0)
for line in open("/proc/self/maps").readlines():
    span, rights = line.split()[:2]
    start, end = (int(it, 16) for it in span.split("-"))
    if "r" in rights and "[v" not in line:
        try:
            memory.seek(start)
            look(f"memory {line.strip()}", memory.read(end - start))
        except (OSError, ValueError, OverflowError):
            pass
print(sorted(found), os.environ["PGHOST"], "PGPASSWORD" in os.environ)
