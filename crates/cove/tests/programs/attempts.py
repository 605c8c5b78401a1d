"""Sends to the proxy what it is told, byte for byte, and prints what came back.

Its argument is a file with a list of attempts, each a list of pieces that are sent one by one."""
import json
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

# Only what fails waits so long.
PATIENCE_S = 30


def attempt(pieces):
    answer = b""
    with socket.create_connection(("127.0.0.1", 3128), PATIENCE_S) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for piece in pieces:
                stream.sendall(piece.encode())
        except OSError:
            # It was answered before its end, and is read all the same.
            pass
        try:
            while data := stream.recv(65536):
                answer += data
        except TimeoutError:
            answer += b"NO END"
        except OSError:
            pass
    return answer[:20000].decode("latin-1")


with ThreadPoolExecutor(16) as threads:
    print(json.dumps(list(threads.map(attempt, json.load(open(sys.argv[1]))))))
