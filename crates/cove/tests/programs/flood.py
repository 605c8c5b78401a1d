"""Floods the sockets of its sandbox until it is ended: connections that say nothing, that begin
messages of a gigabyte, that ask for large results and read none of them, and that come and go. Says in
the file `flooded` how many connections were let in for large results, once all others are under way."""

import os
import resource
import socket
import struct
import threading
import time

import psycopg2

resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
PORTS = (5432, 3306, 3128)
ATTEMPTS = 300
GIGABYTE = struct.pack("!II", 0x3FFFFFFF, 196608) + b"x" * 64


def begin(port):
    """A connection that may not be there yet."""
    stream = socket.socket()
    stream.setblocking(False)
    stream.connect_ex(("127.0.0.1", port))
    return stream


def is_over(stream):
    try:
        while stream.recv(65536):
            pass
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


def greedy():
    """Asks for what it does not read, with as many connections as it gets."""
    kept = []
    try:
        for _ in range(100):
            database = psycopg2.connect("", async_=True)
            wait(database)
            database.cursor().execute("SELECT repeat('x', 100000) FROM generate_series(1, 1000)")
            kept.append(database)
    except psycopg2.Error:
        pass
    return kept


def wait(database):
    import select
    from psycopg2.extensions import POLL_OK, POLL_READ, POLL_WRITE

    while (state := database.poll()) != POLL_OK:
        reads = [database] if state == POLL_READ else []
        writes = [database] if state == POLL_WRITE else []
        select.select(reads, writes, [], 30)


def churn():
    while True:
        for port in PORTS:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=1) as stream:
                    stream.sendall(GIGABYTE)
            except OSError:
                pass


waiting = greedy()
silent = [(port, begin(port)) for port in PORTS for _ in range(ATTEMPTS)]
for _ in range(4):
    threading.Thread(target=churn, daemon=True).start()
with open("flooded.new", "w") as file:
    file.write(str(len(waiting)))
os.rename("flooded.new", "flooded")
while True:
    for place, (port, stream) in enumerate(silent):
        try:
            if place % 2:
                # A message of a gigabyte, of which it follows a little.
                stream.send(GIGABYTE)
        except OSError:
            pass
        if is_over(stream):
            stream.close()
            silent[place] = (port, begin(port))
    time.sleep(0.1)
