"""An object store that is far away: MinIO behind a line with a latency.

The line is a process that carries bytes both ways, each half the round trip late. It holds nothing
back otherwise, so that requests beside one another wait side by side, as between two data centres.
"""

import asyncio
import contextlib
import os
import pathlib
import subprocess
import sys

import rivals

BUCKET, KEY, SECRET = "cove-bench", "cove-bench", "known-to-everybody"
CHUNK_BYTES = 1 << 16
# Chunks of one direction that are on their way: 64 MiB, more than any test has in flight.
CHUNKS_MAX = 1024


async def carry(reader, writer, delay):
    """Carries one direction, each chunk `delay` seconds after it came."""
    clock, chunks = asyncio.get_running_loop().time, asyncio.Queue(CHUNKS_MAX)

    async def send():
        while (chunk := await chunks.get()) is not None:
            due, data = chunk
            await asyncio.sleep(due - clock())
            writer.write(data)
            await writer.drain()

    sender = asyncio.create_task(send())
    try:
        while data := await reader.read(CHUNK_BYTES):
            await chunks.put((clock() + delay, data))
        await chunks.put(None)
        await sender
    except OSError:
        sender.cancel()
    finally:
        writer.close()


async def line(port, to_port, delay):
    """Listens at a port of loopback, and carries what comes to another one."""
    async def connected(reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", to_port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(carry(reader, far_writer, delay), carry(far_reader, writer, delay))

    async with await asyncio.start_server(connected, "127.0.0.1", port) as server:
        await server.serve_forever()


@contextlib.contextmanager
def store(scratch, minio, round_trip_ms):
    """Settings of servers whose objects are in a bucket that is so far away."""
    home, port, far_port = pathlib.Path(scratch) / "minio", rivals.free_port(), rivals.free_port()
    (home / BUCKET).mkdir(parents=True)
    log = (pathlib.Path(scratch) / "minio.log").open("w", encoding="utf-8")
    environment = {**os.environ, "MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET,
                   "MINIO_BROWSER": "off", "HOME": str(scratch)}
    argv = [minio, "server", str(home), "--address", f"127.0.0.1:{far_port}", "--quiet"]
    started = [subprocess.Popen(argv, env=environment, stdout=log, stderr=log)]
    argv = [sys.executable, __file__, str(port), str(far_port), str(round_trip_ms / 2000)]
    started.append(subprocess.Popen(argv))
    try:
        yield (f'url = "s3://{BUCKET}?endpoint=http://127.0.0.1:{port}"\n'
               f'access_key_id = "{KEY}"\nsecret_access_key = "{SECRET}"\n')
    finally:
        for process in started:
            process.terminate()
            process.wait()
        log.close()


if __name__ == "__main__":
    asyncio.run(line(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
