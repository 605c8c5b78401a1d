"""Floods the sockets of its sandbox until it is ended: connections that say nothing, that begin
messages of a gigabyte, that ask for large results and read none of them, and that come and go. Says in
the file `flooded`, as JSON, how many connections are open, as often as it finds out."""

import json
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


def connect(port):
    stream = socket.create_connection(("127.0.0.1", port), timeout=30)
    stream.settimeout(30)
    return stream


def is_open(stream):
    """Whether the server has not ended it."""
    stream.setblocking(False)
    try:
        while stream.recv(65536):
            pass
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False


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
                with connect(port) as stream:
                    stream.sendall(struct.pack("!I", 0x3FFFFFFF) * 2)
            except OSError:
                pass


waiting = greedy()
silent = {port: [] for port in PORTS}
for port, streams in silent.items():
    for _ in range(ATTEMPTS):
        try:
            stream = connect(port)
            if len(streams) % 2:
                # A message of a gigabyte, of which nothing follows but a part.
                stream.sendall(struct.pack("!II", 0x3FFFFFFF, 196608) + b"x" * 4096)
            streams.append(stream)
        except OSError:
            pass
for _ in range(4):
    threading.Thread(target=churn, daemon=True).start()
while True:
    open_now = {port: sum(map(is_open, streams)) for port, streams in silent.items()}
    with open("flooded.new", "w") as file:
        json.dump({"greedy": len(waiting), **open_now}, file)
    os.rename("flooded.new", "flooded")
    time.sleep(0.2)
